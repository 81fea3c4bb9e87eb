"""Loaders, partitions and generators of tables. Nothing here knows of problems or solvers."""

from fedpact.data.adult import ClientsAndServer, adult_a, adult_b
from fedpact.data.folder import find
from fedpact.data.partition import iid, stratified
from fedpact.data.synthetic import QPArrays, lcqp, neyman_pearson
from fedpact.data.table import Table, standardize, with_intercept
from fedpact.data.uci import breast_cancer_wisconsin, monks1, wdbc

__all__ = [
    "ClientsAndServer",
    "QPArrays",
    "Table",
    "adult_a",
    "adult_b",
    "breast_cancer_wisconsin",
    "find",
    "iid",
    "lcqp",
    "monks1",
    "neyman_pearson",
    "standardize",
    "stratified",
    "wdbc",
    "with_intercept",
]
