"""The l1 norm, alone (lasso) or with a squared norm (elastic net)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedpact.prox.base import Prox
from fedpact.prox.weights import as_weight, format_weight, largest, weight_defect
from fedpact.types import Vector


class L1(Prox):
    """h(w) = sum_j weight_j |w_j|; prox(v, t)_j = sign(v_j) max(|v_j| - t weight_j, 0).

    weight >= 0: one number, or one for each coordinate (0 for an intercept, say).
    """

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
        return f"L1({format_weight(self.weight)})"


class ElasticNet(Prox):
    """h(w) = sum_j l1_j |w_j| + 1/2 sum_j l2_j w_j^2 (Zou and Hastie 2005).

    prox(v, t)_j = sign(v_j) max(|v_j| - t l1_j, 0) / (1 + t l2_j). l1, l2 >= 0: one number, or one for each coordinate.
    """

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
        return f"ElasticNet({format_weight(self.l1)}, {format_weight(self.l2)})"


def soft_threshold(v: Vector, threshold: float | Vector) -> Vector:
    """sign(v) max(|v| - threshold, 0)."""
    return np.asarray(np.sign(v) * np.maximum(np.abs(v) - threshold, 0.0))


def sign_distance(v: Vector, w: Vector, weight: float | Vector) -> float:
    """Max-norm distance from v to the subdifferential of sum_j weight_j |w_j|, an interval where w_j = 0."""
    at_zero = np.maximum(np.abs(v) - weight, 0.0)
    elsewhere = np.abs(v - weight * np.sign(w))
    return largest(np.where(w == 0, at_zero, elsewhere))
