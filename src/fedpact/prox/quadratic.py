"""The smooth regularizers: h = 0 and the squared norm."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedpact.prox.base import Prox
from fedpact.prox.weights import as_weight, format_weight, largest, weight_defect
from fedpact.types import Vector


class Zero(Prox):
    """h = 0; prox(v) = v."""

    curvature = 0.0

    def value(self, w: Vector) -> float:
        return 0.0

    def prox(self, v: Vector, step: float) -> Vector:
        return v.copy()

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        return largest(np.abs(v))

    def __repr__(self) -> str:
        return "Zero()"


class SquaredL2(Prox):
    """h(w) = 1/2 sum_j weight_j w_j^2; prox(v, t)_j = v_j / (1 + t weight_j).

    weight >= 0: one number, or one for each coordinate.
    """

    def __init__(self, weight: ArrayLike) -> None:
        self.weight = as_weight("SquaredL2", "weight", weight)
        self.curvature = self.weight

    def value(self, w: Vector) -> float:
        return float(0.5 * np.sum(self.weight * w**2))

    def prox(self, v: Vector, step: float) -> Vector:
        return v / (1.0 + step * self.weight)

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        return largest(np.abs(v - self.weight * w))

    def defect(self, dim: int) -> str | None:
        return weight_defect("SquaredL2: weight", self.weight, dim)

    def __repr__(self) -> str:
        return f"SquaredL2({format_weight(self.weight)})"
