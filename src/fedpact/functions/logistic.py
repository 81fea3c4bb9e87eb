"""Logistic loss of a linear classifier."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.special import expit

from fedpact.functions.arrays import as_data, as_vector, count, first_of, gram, listed, non_finite
from fedpact.functions.base import Function, Indices, Matrix, Vector


class LogisticLoss(Function):
    """f(w) = sum_i p_i (log(1 + exp(x_i'w)) - y_i x_i'w), the weighted mean over the rows x_i of X.

    X: (rows, dim), dense or scipy sparse; y: (rows,) with values 0 and 1; weight: (rows,), at least zero, scaled here
    to p with sum one; all rows count the same when None. Raises ProblemError on wrong shapes or on values that are
    not numbers; `defect` tells about wrong values.
    """

    has_hessian = convex = True

    def __init__(self, X: ArrayLike | sp.sparray | sp.spmatrix, y: ArrayLike, weight: ArrayLike | None = None) -> None:
        self.X = as_data("LogisticLoss", "X", X)
        self.rows, self.dim = int(self.X.shape[0]), int(self.X.shape[1])
        self.y = as_vector("LogisticLoss", "y", y, self.rows, "one label for each row of X")
        if weight is None:
            self.weight: Vector = np.full(self.rows, 1.0 / max(self.rows, 1))
        else:
            self.weight = _normalized(as_vector("LogisticLoss", "weight", weight, self.rows, "one for each row of X"))
        # With s = 2y - 1 the loss of a row is log(1 + exp(-s x'w)): the same, without a difference of large numbers.
        self._sign = 2.0 * self.y - 1.0

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        margin = self._sign * (self.X @ w)
        slope = -self.weight * self._sign * expit(-margin)
        return float(self.weight @ np.logaddexp(0.0, -margin)), np.asarray(self.X.T @ slope)

    def value(self, w: Vector) -> float:
        return float(self.weight @ np.logaddexp(0.0, -self._sign * (self.X @ w)))

    def hessian(self, w: Vector) -> Matrix:
        return gram(self.X, self._curvature(w))

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return np.asarray(self.X.T @ (self._curvature(w) * (self.X @ v)))

    def _curvature(self, w: Vector) -> Vector:
        score = self.X @ w
        return np.asarray(self.weight * expit(score) * expit(-score))

    def batch(self, indices: Indices) -> LogisticLoss:
        part = LogisticLoss(self.X[indices], self.y[indices])
        # Not scaled to sum one: rows with a large weight would then count too little over all batches.
        part.weight = self.weight[indices] * (self.rows / len(indices))
        return part

    def defect(self) -> str | None:
        if self.rows == 0:
            return "X has no rows; leave this owner out or give it data"
        return first_of([non_finite("X", self.X), self._label_defect(), self._weight_defect()])

    def _label_defect(self) -> str | None:
        wrong = self.y[~np.isin(self.y, (0.0, 1.0))]
        if wrong.size == 0:
            return None
        found = f"y has {count(wrong.size, 'label')} other than 0 and 1 ({listed(wrong)})"
        return f"{found}; recode the two classes as 0 and 1"

    def _weight_defect(self) -> str | None:
        if (bad := non_finite("weight", self.weight)) is not None:
            return bad
        negative = np.flatnonzero(self.weight < 0)
        if negative.size:
            found = f"weight has {count(negative.size, 'negative value')}, first at row {negative[0]}"
            return f"{found}; weights must be at least 0"
        if not np.any(self.weight):
            return "weight is zero for every row; give at least one row a positive weight"
        return None

    def __repr__(self) -> str:
        return f"LogisticLoss(rows={self.rows}, dim={self.dim})"


def _normalized(weight: Vector) -> Vector:
    """weight scaled to sum one, or as given when it has no positive finite sum: `defect` then says why."""
    total = float(np.sum(weight))
    return weight / total if np.isfinite(total) and total > 0 else weight.copy()
