"""Huber's loss of a linear model: squares of small errors, absolute values of large ones."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from fedpact.functions.arrays import first_of, non_finite_defect
from fedpact.functions.scored import ScoredMean
from fedpact.types import Vector


class HuberLoss(ScoredMean):
    """f(w) = sum_i p_i l(s_i - y_i), l(r) = r^2/2 where |r| <= delta, else delta (|r| - delta/2) (Huber 1964).

    s_i = x_i'w + offset_i; delta > 0, in the units of y; the rest as `ScoredMean`. The second derivative jumps where
    |r| = delta; there `hessian` has that of the square.
    """

    convex = True

    def __init__(
        self,
        X: ArrayLike | sp.sparray | sp.spmatrix,
        y: ArrayLike,
        delta: float = 1.0,
        weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> None:
        super().__init__(X, y, weight, offset)
        self.delta = float(delta)
        self.unit = float("inf")  # its scores are in units of the label; effective rows tell what is far out

    def _losses(self, score: Vector) -> Vector:
        size = np.abs(score - self.y)
        inner = np.minimum(size, self.delta)
        return inner * (size - 0.5 * inner)

    def _slopes(self, score: Vector) -> Vector:
        return np.clip(score - self.y, -self.delta, self.delta)

    def _curvatures(self, score: Vector) -> Vector:
        return (np.abs(score - self.y) <= self.delta).astype(np.float64)

    def _label_defect(self) -> str | None:
        return first_of([non_finite_defect("y", self.y), self._delta_defect()])

    def _delta_defect(self) -> str | None:
        if np.isfinite(self.delta) and self.delta > 0:
            return None
        return f"delta is {self.delta:g}; give a positive number"
