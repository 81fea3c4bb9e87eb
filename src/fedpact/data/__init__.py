"""Readers, partitions and generators of tables. Nothing here knows of problems or solvers."""

from fedpact.data.breast_cancer import wdbc
from fedpact.data.partition import (
    by_classes,
    by_column,
    by_label,
    by_quantity,
    deal_columns,
    dirichlet,
    iid,
    stratified,
)
from fedpact.data.synthetic import QPArrays, lcqp, neyman_pearson
from fedpact.data.table import Table, read_csv, standardize, with_intercept, write_csv

__all__ = [
    "QPArrays",
    "Table",
    "by_classes",
    "by_column",
    "by_label",
    "by_quantity",
    "deal_columns",
    "dirichlet",
    "iid",
    "lcqp",
    "neyman_pearson",
    "read_csv",
    "standardize",
    "stratified",
    "wdbc",
    "with_intercept",
    "write_csv",
]
