"""The mean predicted probability of class 1: a smooth surrogate of the rate of positives."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.special import expit

from fedpact.functions.arrays import as_data, gram, non_finite_defect
from fedpact.functions.base import Function, Indices
from fedpact.types import Matrix, Vector


class MeanProbability(Function):
    """f(w) = mean_i sigmoid(x_i'w) over the rows x_i of X; neither convex nor concave.

    X: (rows, dim), dense or scipy sparse. Raises ProblemError on wrong shapes or on values that are not numbers;
    `defect` reports invalid values.
    """

    has_hessian = True

    def __init__(self, X: ArrayLike | sp.sparray | sp.spmatrix) -> None:
        self.X = as_data("MeanProbability: X", X)
        self.rows = int(self.X.shape[0])
        self.dim = int(self.X.shape[1])

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        score = self.X @ w
        probability = expit(score)
        slope = probability * expit(-score) / self.rows
        return float(np.mean(probability)), np.asarray(self.X.T @ slope)

    def hessian(self, w: Vector) -> Matrix:
        curvature = self._curvature(w)
        positive = gram(self.X, np.maximum(curvature, 0.0))
        negative = gram(self.X, np.maximum(-curvature, 0.0))
        return positive - negative

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return np.asarray(self.X.T @ (self._curvature(w) * (self.X @ v)))

    def _curvature(self, w: Vector) -> Vector:
        """sigmoid''(x_i'w) / rows for every row i."""
        score = self.X @ w
        probability = expit(score)
        other = expit(-score)
        return np.asarray(probability * other * (other - probability) / self.rows)

    def batch(self, indices: Indices) -> MeanProbability:
        return MeanProbability(self.X[indices])

    def defect(self) -> str | None:
        if self.rows == 0:
            return "X has no rows; leave this owner out or give it data"
        return non_finite_defect("X", self.X)

    def __repr__(self) -> str:
        return f"MeanProbability(rows={self.rows}, dim={self.dim})"
