"""The mean probability that a linear classifier gives to class 1: a smooth stand-in for its rate of positives."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.special import expit

from fedpact.functions.arrays import as_data, gram, non_finite
from fedpact.functions.base import Function, Indices, Matrix, Vector


class MeanProbability(Function):
    """f(w) = mean_i sigmoid(x_i'w) over the rows x_i of X. It is neither convex nor concave.

    X: (rows, dim), dense or scipy sparse. Raises ProblemError on wrong shapes or on values that are not numbers;
    `defect` tells about wrong values.
    """

    has_hessian = True

    def __init__(self, X: ArrayLike | sp.sparray | sp.spmatrix) -> None:
        self.X = as_data("MeanProbability", "X", X)
        self.rows, self.dim = int(self.X.shape[0]), int(self.X.shape[1])

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        score = self.X @ w
        chance = expit(score)
        return float(np.mean(chance)), np.asarray(self.X.T @ (chance * expit(-score) / self.rows))

    def hessian(self, w: Vector) -> Matrix:
        curvature = self._curvature(w)
        return gram(self.X, np.maximum(curvature, 0.0)) - gram(self.X, np.maximum(-curvature, 0.0))

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return np.asarray(self.X.T @ (self._curvature(w) * (self.X @ v)))

    def _curvature(self, w: Vector) -> Vector:
        score = self.X @ w
        chance, other = expit(score), expit(-score)
        return np.asarray(chance * other * (other - chance) / self.rows)

    def batch(self, indices: Indices) -> MeanProbability:
        return MeanProbability(self.X[indices])

    def defect(self) -> str | None:
        return "X has no rows; leave this owner out or give it data" if self.rows == 0 else non_finite("X", self.X)

    def __repr__(self) -> str:
        return f"MeanProbability(rows={self.rows}, dim={self.dim})"
