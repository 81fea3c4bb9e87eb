"""From tables to problems. Each task also builds one owner's share alone, where the data is."""

from fedpact.tasks.fair_classification import (
    VotedLoss,
    fair_classification,
    fair_classification_share,
    worst_class_accuracy,
)
from fedpact.tasks.from_files import from_files, share_from_file, share_from_rows, sources
from fedpact.tasks.group_fairness import group_fairness, group_fairness_server, group_fairness_share
from fedpact.tasks.job import Job
from fedpact.tasks.linear_model import scores
from fedpact.tasks.linear_qp import Exact, exact, linear_qp, linear_qp_share
from fedpact.tasks.logistic_regression import (
    class_accuracies,
    logistic_regression,
    logistic_regression_share,
    softmax_regression,
    softmax_regression_share,
)
from fedpact.tasks.neyman_pearson import neyman_pearson, neyman_pearson_share
from fedpact.tasks.vertical_fairness import IdTable, vertical_fairness

__all__ = [
    "Exact",
    "IdTable",
    "Job",
    "VotedLoss",
    "class_accuracies",
    "exact",
    "fair_classification",
    "fair_classification_share",
    "from_files",
    "group_fairness",
    "group_fairness_server",
    "group_fairness_share",
    "linear_qp",
    "linear_qp_share",
    "logistic_regression",
    "logistic_regression_share",
    "neyman_pearson",
    "neyman_pearson_share",
    "scores",
    "share_from_file",
    "share_from_rows",
    "softmax_regression",
    "softmax_regression_share",
    "sources",
    "vertical_fairness",
    "worst_class_accuracy",
]
