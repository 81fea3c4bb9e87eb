"""From tables to problems: tasks, and functions that build a problem, or one owner's share, from arrays."""

from fedpact.tasks.base import FileSource, HeldSource, Source, Task, keys_of, read_task
from fedpact.tasks.classification import Classification
from fedpact.tasks.custom import Custom
from fedpact.tasks.fair_classification import (
    VotedLoss,
    fair_classification,
    fair_classification_share,
    worst_class_accuracy,
)
from fedpact.tasks.generalized_linear import Regression
from fedpact.tasks.group_fairness import GroupFairness, group_fairness, group_fairness_server, group_fairness_share
from fedpact.tasks.linear_qp import Exact, LinearQP, exact, linear_qp, linear_qp_share
from fedpact.tasks.minimax import Minimax
from fedpact.tasks.model import Calibration, Model, PartyModel, RegressionModel, load_model
from fedpact.tasks.neyman_pearson import NeymanPearson, neyman_pearson, neyman_pearson_share
from fedpact.tasks.parties import LabelledParty, PartySource, Vertical
from fedpact.tasks.profile import Profile
from fedpact.tasks.regression import (
    class_accuracies,
    logistic_regression,
    logistic_regression_share,
    scores,
    softmax_regression,
    softmax_regression_share,
)
from fedpact.tasks.requirements import Requirement
from fedpact.tasks.tables import ClassTask, Rows, TableTask, from_files
from fedpact.tasks.vertical import IdTable, vertical_fairness

#: The tasks of a job, by name.
TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (NeymanPearson, GroupFairness, Classification, Regression, Minimax, LinearQP, Vertical, Custom)
}
#: What else owners may be asked: not by a job, but about its tables.
QUESTIONS: dict[str, type[Task]] = {Profile.name: Profile}

__all__ = [
    "QUESTIONS",
    "TASKS",
    "Calibration",
    "ClassTask",
    "Classification",
    "Custom",
    "Exact",
    "FileSource",
    "GroupFairness",
    "HeldSource",
    "IdTable",
    "LabelledParty",
    "LinearQP",
    "Minimax",
    "Model",
    "NeymanPearson",
    "PartyModel",
    "PartySource",
    "Profile",
    "Regression",
    "RegressionModel",
    "Requirement",
    "Rows",
    "Source",
    "TableTask",
    "Task",
    "Vertical",
    "VotedLoss",
    "class_accuracies",
    "exact",
    "fair_classification",
    "fair_classification_share",
    "from_files",
    "group_fairness",
    "group_fairness_server",
    "group_fairness_share",
    "keys_of",
    "linear_qp",
    "linear_qp_share",
    "load_model",
    "logistic_regression",
    "logistic_regression_share",
    "neyman_pearson",
    "neyman_pearson_share",
    "read_task",
    "scores",
    "softmax_regression",
    "softmax_regression_share",
    "vertical_fairness",
    "worst_class_accuracy",
]
