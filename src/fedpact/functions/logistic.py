"""Logistic loss of a linear classifier."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.special import expit

from fedpact.functions.arrays import as_data, as_vector, count, first_of, gram, list_distinct, non_finite_defect
from fedpact.functions.base import Function, Indices
from fedpact.types import Matrix, Vector


class LogisticLoss(Function):
    """f(w) = sum_i p_i (log(1 + exp(x_i'w)) - y_i x_i'w), the weighted mean over the rows x_i of X.

    X:      (rows, dim), dense or scipy sparse
    y:      (rows,), values 0 and 1
    weight: (rows,), at least zero; p is weight scaled to sum one, and 1 / rows when weight is None

    Raises ProblemError on wrong shapes or on values that are not numbers; `defect` reports invalid values.
    """

    has_hessian = True
    convex = True

    def __init__(self, X: ArrayLike | sp.sparray | sp.spmatrix, y: ArrayLike, weight: ArrayLike | None = None) -> None:
        self.X = as_data("LogisticLoss: X", X)
        self.rows = int(self.X.shape[0])
        self.dim = int(self.X.shape[1])
        self.y = as_vector("LogisticLoss: y", y, self.rows, "one label for each row of X")
        if weight is None:
            self.weight: Vector = np.full(self.rows, 1.0 / max(self.rows, 1))
        else:
            self.weight = _normalize(as_vector("LogisticLoss: weight", weight, self.rows, "one for each row of X"))
        # With s = 2y - 1 the loss of a row is log(1 + exp(-s x'w)), which is free of cancellation.
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
        """p_i sigmoid'(x_i'w) for every row i."""
        score = self.X @ w
        return np.asarray(self.weight * expit(score) * expit(-score))

    def batch(self, indices: Indices) -> LogisticLoss:
        part = LogisticLoss(self.X[indices], self.y[indices])
        # Not scaled to sum one, so that the mean over all batches is the function itself.
        part.weight = self.weight[indices] * (self.rows / len(indices))
        return part

    def defect(self) -> str | None:
        if self.rows == 0:
            return "X has no rows; leave this owner out or give it data"
        return first_of([non_finite_defect("X", self.X), self._label_defect(), self._weight_defect()])

    def _label_defect(self) -> str | None:
        wrong = self.y[~np.isin(self.y, (0.0, 1.0))]
        if wrong.size == 0:
            return None
        found = f"y has {count(wrong.size, 'label')} other than 0 and 1 ({list_distinct(wrong)})"
        return f"{found}; recode the two classes as 0 and 1"

    def _weight_defect(self) -> str | None:
        bad = non_finite_defect("weight", self.weight)
        if bad is not None:
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


def _normalize(weight: Vector) -> Vector:
    """weight scaled to sum one; unchanged when its sum is not positive and finite, which `defect` reports."""
    total = float(np.sum(weight))
    if np.isfinite(total) and total > 0:
        return weight / total
    return weight.copy()
