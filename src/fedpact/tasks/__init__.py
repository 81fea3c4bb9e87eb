"""From tables to problems. Each task also builds one owner's share alone, where the data is."""

from fedpact.tasks.group_fairness import group_fairness, group_fairness_server, group_fairness_share
from fedpact.tasks.linear_qp import Exact, exact, linear_qp
from fedpact.tasks.neyman_pearson import neyman_pearson, neyman_pearson_share

__all__ = [
    "Exact",
    "exact",
    "group_fairness",
    "group_fairness_server",
    "group_fairness_share",
    "linear_qp",
    "neyman_pearson",
    "neyman_pearson_share",
]
