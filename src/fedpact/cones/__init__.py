"""Cones of constraint values: `c(w) <=_K 0` means that -c(w) lies in K."""

from fedpact.cones.base import Cone
from fedpact.cones.exponential import Exponential
from fedpact.cones.nonnegative import Nonnegative
from fedpact.cones.product import Product
from fedpact.cones.psd import PSD, smat, svec
from fedpact.cones.second_order import SecondOrder
from fedpact.cones.zero import Zero

__all__ = ["PSD", "Cone", "Exponential", "Nonnegative", "Product", "SecondOrder", "Zero", "smat", "svec"]
