"""Poisson loss of a log-linear model of counts, and the mean that such a model predicts."""

from __future__ import annotations

import numpy as np

from fedpact.functions.arrays import count, first_of, list_distinct, non_finite_defect
from fedpact.functions.scored import ScoredMean
from fedpact.types import Vector


class PoissonLoss(ScoredMean):
    """f(w) = sum_i p_i (exp(s_i) - y_i s_i), s_i = x_i'w + offset_i, y_i >= 0; the rest as `ScoredMean`.

    The negative log-likelihood of counts y_i with mean exp(s_i), up to a constant. Exposures enter as their logarithm,
    by the offset. Where exp(s_i) is beyond the largest number the value is infinite.
    """

    convex = True
    likelihood = True

    def _losses(self, score: Vector) -> Vector:
        return np.exp(score) - self.y * score

    def _slopes(self, score: Vector) -> Vector:
        return np.exp(score) - self.y

    def _curvatures(self, score: Vector) -> Vector:
        return np.exp(score)

    @property
    def least(self) -> float:
        """sum_i p_i (y_i - y_i log y_i), below which no scores bring the loss; f - least is half the mean deviance."""
        positive = self.y[self.y > 0]
        return float(self.weight @ self.y - self.weight[self.y > 0] @ (positive * np.log(positive)))

    def _label_defect(self) -> str | None:
        return first_of([non_finite_defect("y", self.y), _sign_defect(self.y)])


class PoissonDeviance(PoissonLoss):
    """Half the mean deviance of a Poisson model: the loss of every row less the least it could be."""

    def _losses(self, score: Vector) -> Vector:
        positive = np.where(self.y > 0, self.y, 1.0)
        return super()._losses(score) - self.y + self.y * np.log(positive)


class MeanExponential(ScoredMean):
    """f(w) = sum_i p_i (exp(s_i) - y_i): by how much a log-linear model predicts too much on average.

    s_i = x_i'w + offset_i; the rest as `ScoredMean`.
    """

    convex = True

    def _losses(self, score: Vector) -> Vector:
        return np.exp(score) - self.y

    def _slopes(self, score: Vector) -> Vector:
        return np.exp(score)

    def _curvatures(self, score: Vector) -> Vector:
        return np.exp(score)

    def _label_defect(self) -> str | None:
        return non_finite_defect("y", self.y)


def _sign_defect(y: Vector) -> str | None:
    negative = y[y < 0]
    if negative.size == 0:
        return None
    found = f"y has {count(negative.size, 'negative value')} ({list_distinct(negative)})"
    return f"{found}; counts and rates are at least 0"
