"""Squared loss of a linear model."""

from __future__ import annotations

import numpy as np

from fedpact.functions.arrays import non_finite_defect
from fedpact.functions.scored import ScoredMean
from fedpact.types import Vector


class SquaredLoss(ScoredMean):
    """f(w) = sum_i p_i (s_i - y_i)^2 / 2, s_i = x_i'w + offset_i; the rest as `ScoredMean`."""

    convex = True
    likelihood = True
    constant_hessian = True
    unit = float("inf")

    def _losses(self, score: Vector) -> Vector:
        return 0.5 * (score - self.y) ** 2

    def _slopes(self, score: Vector) -> Vector:
        return score - self.y

    def _curvatures(self, score: Vector) -> Vector:
        return np.ones(self.rows)

    def squares(self, w: Vector) -> float:
        return float(self.rows * (self.weight @ (self.scores(w) - self.y) ** 2))

    def _label_defect(self) -> str | None:
        return non_finite_defect("y", self.y)
