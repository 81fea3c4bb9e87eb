"""Regularizers h with a cheap proximal map: penalties, and indicators of simple sets."""

from fedpact.prox.base import Prox, check_prox
from fedpact.prox.blocks import Blocks
from fedpact.prox.box import Box
from fedpact.prox.custom import Custom
from fedpact.prox.group import GroupL2
from fedpact.prox.l1 import L1, ElasticNet
from fedpact.prox.quadratic import SquaredL2, Zero
from fedpact.prox.simplex import Simplex
from fedpact.types import Vector

__all__ = [
    "L1",
    "Blocks",
    "Box",
    "Custom",
    "ElasticNet",
    "GroupL2",
    "Prox",
    "Simplex",
    "SquaredL2",
    "Vector",
    "Zero",
    "check_prox",
]
