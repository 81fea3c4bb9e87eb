"""Loaders of the data sets that the papers use. No file travels with them: `folder` says where they are looked for."""

from fedpact_experiments.datasets.adult import ClientsAndServer, adult_a, adult_b
from fedpact_experiments.datasets.by_owner import (
    OwnerTables,
    adult_by_workclass,
    communities_by_state,
    compas_by_age_and_charge,
)
from fedpact_experiments.datasets.folder import find
from fedpact_experiments.datasets.ifeddr import IFedDRProblems, ifeddr_problems, vehicle23, w8a, wdbc_by_label
from fedpact_experiments.datasets.images import OwnersAndTest, cifar10_features, fashion_mnist
from fedpact_experiments.datasets.uci import breast_cancer_wisconsin, monks1
from fedpact_experiments.datasets.vertical import (
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
    "OwnerTables",
    "OwnersAndTest",
    "TrainAndTest",
    "VerticalTable",
    "adult_a",
    "adult_b",
    "adult_by_workclass",
    "breast_cancer_wisconsin",
    "cifar10_features",
    "communities_by_state",
    "compas_by_age_and_charge",
    "fashion_mnist",
    "find",
    "ifeddr_problems",
    "monks1",
    "split",
    "split_columns",
    "vehicle23",
    "vertical_adult",
    "vertical_communities",
    "vertical_compas",
    "w8a",
    "wdbc_by_label",
]
