"""Poisson and negative binomial losses of a log-linear model of counts, and the mean that such a model predicts."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.special import expit

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


class NegativeBinomialDeviance(ScoredMean):
    """Half the mean deviance of counts with mean m_i = exp(s_i) and variance m_i + dispersion * m_i^2 (NB2).

    f(w) = sum_i p_i (y_i log(y_i / m_i) - (y_i + 1 / a) log((1 + a y_i) / (1 + a m_i))), a the dispersion, which is
    given and above 0; s_i = x_i'w + offset_i, y_i >= 0; the rest as `ScoredMean`.
    """

    convex = True
    likelihood = True

    def __init__(
        self,
        X: ArrayLike | sp.sparray | sp.spmatrix,
        y: ArrayLike,
        dispersion: float,
        weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> None:
        super().__init__(X, y, weight, offset)
        self.dispersion = dispersion

    def _losses(self, score: Vector) -> Vector:
        positive = np.where(self.y > 0, self.y, 1.0)
        perfect = self.y * np.log(positive) - (self.y + 1 / self.dispersion) * np.log1p(self.dispersion * self.y)
        grown = np.logaddexp(0.0, np.log(self.dispersion) + score)  # log(1 + a exp(s)), also where exp(s) is infinite
        return np.asarray(perfect + (self.y + 1 / self.dispersion) * grown - self.y * score)

    def _slopes(self, score: Vector) -> Vector:
        return self._shares(score) * (1 / self.dispersion + self.y) - self.y

    def _curvatures(self, score: Vector) -> Vector:
        share = self._shares(score)
        return share * (1 - share) * (1 / self.dispersion + self.y)

    def _shares(self, score: Vector) -> Vector:
        """a m / (1 + a m) of every row."""
        return np.asarray(expit(np.log(self.dispersion) + score))

    def _label_defect(self) -> str | None:
        return first_of([non_finite_defect("y", self.y), _sign_defect(self.y)])


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
