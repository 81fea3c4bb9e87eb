"""Cross entropy of a linear classifier with several classes."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from fedpact.errors import ProblemError
from fedpact.functions.arrays import as_data, as_vector, count, first_of, gram, listed, non_finite
from fedpact.functions.base import Function, Indices, Matrix, Vector


class SoftmaxLoss(Function):
    """f(w) = mean_i (log sum_k exp(W_k x_i) - W_{y_i} x_i), W the (classes, features) matrix that w lists row by row.

    X: (rows, features), dense or scipy sparse; y: (rows,) with values 0 ... classes - 1. dim = classes * features.
    Raises ProblemError on wrong shapes, on values that are not numbers and when classes is below 2; `defect` tells
    about wrong values.
    """

    has_hessian = convex = True

    def __init__(self, X: ArrayLike | sp.sparray | sp.spmatrix, y: ArrayLike, classes: int) -> None:
        if not isinstance(classes, int | np.integer) or classes < 2:
            raise ProblemError(f"SoftmaxLoss: classes is {classes!r}; it must be a whole number, at least 2")
        self.X = as_data("SoftmaxLoss", "X", X)
        self.classes = int(classes)
        self.rows, self.features = int(self.X.shape[0]), int(self.X.shape[1])
        self.dim = self.classes * self.features
        self.y = as_vector("SoftmaxLoss", "y", y, self.rows, "one label for each row of X")
        # A wrong label becomes an index outside the classes, so that a call that ignored `defect` fails.
        known = np.isin(self.y, np.arange(self.classes))
        self._label = np.where(known, self.y, self.classes).astype(np.intp)

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        slope, loss = self._chances(self._score(w))
        slope[np.arange(self.rows), self._label] -= 1.0
        return loss, self._pulled_back(slope)

    def value(self, w: Vector) -> float:
        return self._chances(self._score(w))[1]

    def hessian(self, w: Vector) -> Matrix:
        chance = self._chances(self._score(w))[0]
        blocks = np.empty((self.classes, self.features, self.classes, self.features))
        for k in range(self.classes):
            # 1 - p_k as a sum of the others: exact where p_k rounds to 1.
            others = np.delete(chance, k, axis=1).sum(axis=1)
            blocks[k, :, k, :] = gram(self.X, chance[:, k] * others / self.rows)
            for other in range(k):
                block = -gram(self.X, chance[:, k] * chance[:, other] / self.rows)
                blocks[k, :, other, :] = blocks[other, :, k, :] = block
        return blocks.reshape(self.classes * self.features, -1)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        chance = self._chances(self._score(w))[0]
        change = self._score(v)
        return self._pulled_back(chance * (change - np.sum(chance * change, axis=1, keepdims=True)))

    def _score(self, w: Vector) -> Matrix:
        """W x_i for every row i: (rows, classes)."""
        return np.asarray(self.X @ w.reshape(self.classes, self.features).T)

    def _chances(self, score: Matrix) -> tuple[Matrix, float]:
        """Probabilities of the classes, and the mean loss: what scipy's softmax and logsumexp give, in one pass.

        The largest class is kept out of the sum until the logarithm, so that tiny losses are exact.
        """
        rows, top = np.arange(self.rows), np.argmax(score, axis=1)
        score = score - score[rows, top][:, None]
        chance = np.exp(score)
        chance[rows, top] = 0.0
        others = chance.sum(axis=1)
        chance[rows, top] = 1.0
        loss = np.mean(np.log1p(others) - score[rows, self._label])
        return chance / (1.0 + others)[:, None], float(loss)

    def _pulled_back(self, slope: Matrix) -> Vector:
        """The (rows, classes) derivative by the scores as one by w."""
        return np.asarray((self.X.T @ slope).T / self.rows).ravel()

    def batch(self, indices: Indices) -> SoftmaxLoss:
        return SoftmaxLoss(self.X[indices], self.y[indices], self.classes)

    def defect(self) -> str | None:
        if self.rows == 0:
            return "X has no rows; leave this owner out or give it data"
        return first_of([non_finite("X", self.X), self._label_defect()])

    def _label_defect(self) -> str | None:
        wrong = self.y[self._label == self.classes]
        if wrong.size == 0:
            return None
        found = f"y has {count(wrong.size, 'label')} other than the whole numbers 0 to {self.classes - 1}"
        return f"{found} ({listed(wrong)}); recode the classes or raise `classes`"

    def __repr__(self) -> str:
        return f"SoftmaxLoss(rows={self.rows}, features={self.features}, classes={self.classes})"
