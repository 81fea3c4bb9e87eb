"""Loaders, partitions and generators of tables. Nothing here knows of problems or solvers."""

from fedpact.data.adult import ClientsAndServer, adult_a, adult_b
from fedpact.data.csv_file import read_csv, write_csv
from fedpact.data.folder import find
from fedpact.data.ifeddr import IFedDRProblems, ifeddr_problems, vehicle23, w8a, wdbc_by_label
from fedpact.data.images import OwnersAndTest, cifar10_features, fashion_mnist
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
from fedpact.data.table import Table, standardize, with_intercept
from fedpact.data.uci import breast_cancer_wisconsin, monks1, wdbc
from fedpact.data.vertical import (
    Block,
    TrainAndTest,
    VerticalTable,
    split,
    split_columns,
    vertical_adult,
    vertical_communities,
    vertical_compas,
)

__all__ = [
    "Block",
    "ClientsAndServer",
    "IFedDRProblems",
    "OwnersAndTest",
    "QPArrays",
    "Table",
    "TrainAndTest",
    "VerticalTable",
    "adult_a",
    "adult_b",
    "breast_cancer_wisconsin",
    "by_classes",
    "by_column",
    "by_label",
    "by_quantity",
    "cifar10_features",
    "deal_columns",
    "dirichlet",
    "fashion_mnist",
    "find",
    "ifeddr_problems",
    "iid",
    "lcqp",
    "monks1",
    "neyman_pearson",
    "read_csv",
    "split",
    "split_columns",
    "standardize",
    "stratified",
    "vehicle23",
    "vertical_adult",
    "vertical_communities",
    "vertical_compas",
    "w8a",
    "wdbc",
    "wdbc_by_label",
    "with_intercept",
    "write_csv",
]
