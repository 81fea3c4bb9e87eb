"""The absolute values of the coordinates, alone or with a squared norm."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedpact.prox.base import Prox, Vector
from fedpact.prox.weights import as_weight, largest, shown, weight_defect


class L1(Prox):
    """h(w) = sum_j weight_j |w_j|; weight >= 0 is one number or one for each coordinate (0 for an intercept, say)."""

    def __init__(self, weight: ArrayLike) -> None:
        self.weight = as_weight("L1", "weight", weight)

    def value(self, w: Vector) -> float:
        return float(np.sum(self.weight * np.abs(w)))

    def prox(self, v: Vector, step: float) -> Vector:
        return soft_threshold(v, step * self.weight)

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        return sign_distance(v, w, self.weight)

    def defect(self, dim: int) -> str | None:
        return weight_defect("L1: weight", self.weight, dim)

    def __repr__(self) -> str:
        return f"L1({shown(self.weight)})"


class ElasticNet(Prox):
    """h(w) = sum_j l1_j |w_j| + 1/2 sum_j l2_j w_j^2; l1, l2 >= 0 are numbers or vectors."""

    def __init__(self, l1: ArrayLike, l2: ArrayLike) -> None:
        self.l1 = as_weight("ElasticNet", "l1", l1)
        self.l2 = as_weight("ElasticNet", "l2", l2)

    def value(self, w: Vector) -> float:
        return float(np.sum(self.l1 * np.abs(w)) + 0.5 * np.sum(self.l2 * w**2))

    def prox(self, v: Vector, step: float) -> Vector:
        return soft_threshold(v, step * self.l1) / (1.0 + step * self.l2)

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        return sign_distance(v - self.l2 * w, w, self.l1)

    def defect(self, dim: int) -> str | None:
        return weight_defect("ElasticNet: l1", self.l1, dim) or weight_defect("ElasticNet: l2", self.l2, dim)

    def __repr__(self) -> str:
        return f"ElasticNet({shown(self.l1)}, {shown(self.l2)})"


def soft_threshold(v: Vector, threshold: float | Vector) -> Vector:
    return np.asarray(np.sign(v) * np.maximum(np.abs(v) - threshold, 0.0))


def sign_distance(v: Vector, w: Vector, weight: float | Vector) -> float:
    """Max-norm distance from v to the subdifferential of sum_j weight_j |.|_j at w: an interval where w_j = 0."""
    return largest(np.where(w == 0, np.maximum(np.abs(v) - weight, 0.0), np.abs(v - weight * np.sign(w))))
