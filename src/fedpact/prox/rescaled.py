"""A regularizer in other units of its variables and of its value."""

from __future__ import annotations

import numpy as np

from fedpact.prox.base import Prox
from fedpact.prox.box import Box
from fedpact.prox.group import GroupL2
from fedpact.prox.l1 import L1, ElasticNet
from fedpact.prox.quadratic import SquaredL2, Zero
from fedpact.types import Vector


class Times(Prox):
    """factor h(w), factor > 0."""

    def __init__(self, inner: Prox, factor: float) -> None:
        self.inner = inner
        self.factor = factor
        self.indicator = inner.indicator
        if inner.curvature is not None:
            self.curvature = factor * inner.curvature

    def value(self, w: Vector) -> float:
        return self.factor * self.inner.value(w)

    def prox(self, v: Vector, step: float) -> Vector:
        return self.inner.prox(v, self.factor * step)

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        return self.factor * self.inner.subdifferential_distance(v / self.factor, w)

    def descent(self, slope: Vector, w: Vector) -> tuple[float, Vector]:
        return self.inner.descent(slope, w)

    def defect(self, dim: int) -> str | None:
        return self.inner.defect(dim)


def even_columns(regularizer: Prox, columns: Vector) -> Vector:
    """The nearest units of the columns in which h keeps its form: any for separable h, one within a group, else 1."""
    if isinstance(regularizer, Zero | L1 | ElasticNet | SquaredL2 | Box):
        return columns
    if isinstance(regularizer, GroupL2):
        even = columns.copy()
        for group in regularizer.groups:
            even[group] = 2.0 ** np.round(np.mean(np.log2(columns[group])))
        return even
    return np.ones_like(columns)


def rescale_prox(regularizer: Prox, columns: Vector, factor: float) -> Prox:
    """factor h(columns * v), for columns that `even_columns` gave."""
    if isinstance(regularizer, Zero):
        return regularizer
    if isinstance(regularizer, L1):
        return L1(factor * columns * regularizer.weight)
    if isinstance(regularizer, ElasticNet):
        return ElasticNet(factor * columns * regularizer.l1, factor * columns**2 * regularizer.l2)
    if isinstance(regularizer, SquaredL2):
        return SquaredL2(factor * columns**2 * regularizer.weight)
    if isinstance(regularizer, Box):
        return Box(regularizer.lo / columns, regularizer.hi / columns)
    if isinstance(regularizer, GroupL2):
        lengths = np.array([columns[group][0] if len(group) else 1.0 for group in regularizer.groups])
        return GroupL2(regularizer.groups, factor * lengths * regularizer.weight)
    return Times(regularizer, factor)
