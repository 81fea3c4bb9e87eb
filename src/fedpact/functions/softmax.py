"""Cross-entropy loss of a linear classifier with several classes."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from fedpact.errors import ProblemError
from fedpact.functions.arrays import (
    as_data,
    as_vector,
    count,
    first_of,
    gram,
    list_distinct,
    non_finite_defect,
    to_dense,
)
from fedpact.functions.base import Function, Indices
from fedpact.functions.contributions import Contributions
from fedpact.functions.scored import normalize, weight_defect
from fedpact.types import Matrix, Vector
from fedpact.watching import note_scores, note_weights


class SoftmaxLoss(Function):
    """f(w) = sum_i p_i (log sum_k exp(s_ik) - s_{i y_i}), s_i = W x_i + offset_i; w lists the rows of W.

    W is (classes, features).

    X:      (rows, features), dense or scipy sparse
    y:      (rows,), values 0 ... classes - 1
    weight: (rows,), at least zero; p is weight scaled to sum one, and 1 / rows when weight is None
    offset: (rows, classes), a known part of the scores; zero when None

    dim = classes * features. Raises ProblemError on wrong shapes, on values that are not numbers and when classes is
    below 2; `defect` reports invalid values.
    """

    has_hessian = True
    convex = True

    def __init__(
        self,
        X: ArrayLike | sp.sparray | sp.spmatrix,
        y: ArrayLike,
        classes: int,
        weight: ArrayLike | None = None,
        offset: Matrix | None = None,
    ) -> None:
        if not isinstance(classes, int | np.integer) or classes < 2:
            raise ProblemError(
                f"SoftmaxLoss: classes is {classes!r}; give a whole number of at least 2", code="FP-PROBLEM-154"
            )
        self.X = as_data("SoftmaxLoss: X", X)
        self.classes = int(classes)
        self.rows = int(self.X.shape[0])
        self.features = int(self.X.shape[1])
        self.dim = self.classes * self.features
        self.y = as_vector("SoftmaxLoss: y", y, self.rows, "one label for each row of X")
        self.weight: Vector | None = None
        if weight is not None:
            self.weight = normalize(as_vector("SoftmaxLoss: weight", weight, self.rows, "one for each row of X"))
        self.offset = offset
        self.numbers: Indices = np.arange(self.rows)
        # An invalid label becomes an index outside the classes, so that evaluating in spite of `defect` fails.
        known = np.isin(self.y, np.arange(self.classes))
        self._label = np.where(known, self.y, self.classes).astype(np.intp)

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        value, gradient, _ = self.expand(w)
        return value, gradient

    def expand(self, w: Vector) -> tuple[float, Vector, Callable[[], Matrix]]:
        scores = self._scores(w)
        probability, losses = self.probabilities_and_losses(scores)
        slopes = self.slopes(probability)
        note_scores(self, scores - scores.mean(axis=1, keepdims=True))
        for k in range(self.classes):
            note_weights(self, f"gradient {k}", self._weigh(slopes[:, k]))
        return self._mean(losses), self._pull_back(slopes), lambda: self._curved(probability)

    def value(self, w: Vector) -> float:
        return self._mean(self.probabilities_and_losses(self._scores(w))[1])

    def hessian(self, w: Vector) -> Matrix:
        return self._curved(self.probabilities_and_losses(self._scores(w))[0])

    def of_rows(self, numbers: Indices) -> Self:
        """The same mean, which knows that its rows are these of the owner's: for standard errors."""
        known = copy(self)
        known.numbers = numbers
        return known

    def contributions(self, w: Vector) -> list[Contributions]:
        probability, losses = self.probabilities_and_losses(self._scores(w))
        weight = self._weigh(np.ones(self.rows))
        slope = weight[:, None] * self.slopes(probability)
        gradient = slope[:, :, None] * to_dense(self.X)[:, None, :]
        return [Contributions(self.numbers, weight, weight * losses, gradient.reshape(self.rows, -1))]

    def information(self, w: Vector) -> Matrix:
        squared = copy(self)
        squared.weight = self._weigh(np.ones(self.rows)) ** 2
        return squared.hessian(w)

    def _curved(self, probability: Matrix) -> Matrix:
        """The Hessian, from the class probabilities of every row."""
        blocks = np.empty((self.classes, self.features, self.classes, self.features))
        for k in range(self.classes):
            # 1 - p_k as the sum of the others: exact where p_k rounds to 1.
            others = np.delete(probability, k, axis=1).sum(axis=1)
            curvature = self._weigh(probability[:, k] * others)
            note_weights(self, f"hessian {k}", curvature)
            blocks[k, :, k, :] = gram(self.X, curvature)
            for other in range(k):
                block = -gram(self.X, self._weigh(probability[:, k] * probability[:, other]))
                blocks[k, :, other, :] = block
                blocks[other, :, k, :] = block
        return blocks.reshape(self.classes * self.features, -1)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        probability, _ = self.probabilities_and_losses(self._scores(w))
        change = self._linear_scores(v)
        mean_change = np.sum(probability * change, axis=1, keepdims=True)
        return self._pull_back(probability * (change - mean_change))

    def _linear_scores(self, w: Vector) -> Matrix:
        """W x_i for every row i: (rows, classes)."""
        return np.asarray(self.X @ w.reshape(self.classes, self.features).T)

    def _scores(self, w: Vector) -> Matrix:
        """W x_i + offset_i."""
        scores = self._linear_scores(w)
        if self.offset is None:
            return scores
        return scores + self.offset

    def slopes(self, probability: Matrix) -> Matrix:
        """Derivatives of every row's loss by its scores, (rows, classes), where the probabilities are these."""
        slope = probability.copy()
        slope[np.arange(self.rows), self._label] -= 1.0
        return slope

    def probabilities_and_losses(self, scores: Matrix) -> tuple[Matrix, Vector]:
        """Class probabilities (rows, classes) and the loss of every row: softmax and logsumexp in one pass.

        The largest score enters by log1p(sum of the others), so that tiny losses are exact.
        """
        rows = np.arange(self.rows)
        top = np.argmax(scores, axis=1)
        scores = scores - scores[rows, top][:, None]
        weight = np.exp(scores)
        weight[rows, top] = 0.0
        others = weight.sum(axis=1)
        weight[rows, top] = 1.0
        losses = np.log1p(others) - scores[rows, self._label]
        return weight / (1.0 + others)[:, None], losses

    def _mean(self, losses: Vector) -> float:
        """sum_i p_i of these."""
        if self.weight is None:
            return float(np.mean(losses))
        return float(self.weight @ losses)

    def _weigh(self, values: Vector) -> Vector:
        """p_i times the value of every row i."""
        if self.weight is None:
            return values / self.rows
        return values * self.weight

    def _pull_back(self, slope: Matrix) -> Vector:
        """Gradient with respect to w from the (rows, classes) derivative with respect to the scores."""
        if self.weight is None:
            return np.asarray((self.X.T @ slope).T / self.rows).ravel()
        return np.asarray((self.X.T @ (self.weight[:, None] * slope)).T).ravel()

    def batch(self, indices: Indices) -> SoftmaxLoss:
        offset = None if self.offset is None else self.offset[indices]
        part = SoftmaxLoss(self.X[indices], self.y[indices], self.classes, offset=offset)
        if self.weight is not None:
            # Not scaled to sum one, so that the mean over all batches is the function itself.
            part.weight = self.weight[indices] * (self.rows / len(indices))
        return part

    def defect(self) -> str | None:
        if self.rows == 0:
            return "X has no rows; leave this owner out or give it data"
        defects = [non_finite_defect("X", self.X), self._label_defect()]
        if self.weight is not None:
            defects.append(weight_defect(self.weight))
        return first_of(defects)

    def _label_defect(self) -> str | None:
        wrong = self.y[self._label == self.classes]
        if wrong.size == 0:
            return None
        found = f"y has {count(wrong.size, 'label')} other than the whole numbers 0 to {self.classes - 1}"
        return f"{found} ({list_distinct(wrong)}); recode the classes or raise `classes`"

    def __repr__(self) -> str:
        return f"SoftmaxLoss(rows={self.rows}, features={self.features}, classes={self.classes})"
