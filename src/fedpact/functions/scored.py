"""Weighted means over rows of a function of the row's score: what losses of linear models have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from fedpact.functions.arrays import as_data, as_vector, count, first_of, gram, non_finite_defect, to_dense
from fedpact.functions.base import Function, Indices
from fedpact.functions.contributions import Contributions
from fedpact.types import Matrix, Vector
from fedpact.watching import note_scores, note_weights

#: Line searches look at huge scores too, where exponentials are infinite; the values tell, and need no warning.
quietly = np.errstate(over="ignore", invalid="ignore")


class ScoredMean(Function):
    """f(w) = sum_i p_i l(x_i'w + offset_i; y_i) over the rows x_i of X.

    A loss gives l and its first two derivatives by the score, row by row, and says which y it takes.

    X:      (rows, dim), dense or scipy sparse
    y:      (rows,)
    weight: (rows,), at least zero; p is weight scaled to sum one, and 1 / rows when weight is None
    offset: (rows,), a known part of the score; zero when None

    Raises ProblemError on wrong shapes or on values that are not numbers; `defect` reports invalid values.
    """

    has_hessian = True
    #: Whether it is the negative log-likelihood of a model, up to constants and a dispersion.
    likelihood: bool = False
    #: By how much a score changes until its slope does.
    unit: float = 1.0

    def __init__(
        self,
        X: ArrayLike | sp.sparray | sp.spmatrix,
        y: ArrayLike,
        weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> None:
        name = type(self).__name__
        self.X = as_data(f"{name}: X", X)
        self.rows = int(self.X.shape[0])
        self.dim = int(self.X.shape[1])
        self.y = as_vector(f"{name}: y", y, self.rows, "one label for each row of X")
        if weight is None:
            self.weight: Vector = np.full(self.rows, 1.0 / max(self.rows, 1))
        else:
            self.weight = normalize(as_vector(f"{name}: weight", weight, self.rows, "one for each row of X"))
        self.numbers: Indices = np.arange(self.rows)
        self.offset: Vector | None = None
        if offset is not None:
            self.offset = as_vector(f"{name}: offset", offset, self.rows, "one for each row of X")

    @abstractmethod
    def _losses(self, score: Vector) -> Vector:
        """l of every row."""

    @abstractmethod
    def _slopes(self, score: Vector) -> Vector:
        """Its derivative by the score."""

    @abstractmethod
    def _curvatures(self, score: Vector) -> Vector:
        """Its second derivative by the score, at least zero."""

    @abstractmethod
    def _label_defect(self) -> str | None:
        """What is wrong with y, with the remedy; None when nothing is."""

    @quietly
    def losses(self, score: Vector) -> Vector:
        """l of every row at these scores."""
        return self._losses(score)

    @quietly
    def slopes(self, score: Vector) -> Vector:
        """Its derivative by the score."""
        return self._slopes(score)

    @quietly
    def curvatures(self, score: Vector) -> Vector:
        """Its second derivative by the score."""
        return self._curvatures(score)

    def scores(self, w: Vector) -> Vector:
        """x_i'w + offset_i for every row i."""
        score = np.asarray(self.X @ w)
        if self.offset is None:
            return score
        return score + self.offset

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        value, gradient, _ = self.expand(w)
        return value, gradient

    @quietly
    def expand(self, w: Vector) -> tuple[float, Vector, Callable[[], Matrix]]:
        score = self.scores(w)
        losses, slopes, curvatures = self._expand(score)
        note_scores(self, score, self.unit)
        note_weights(self, "gradient", self.weight * slopes)
        gradient = np.asarray(self.X.T @ (self.weight * slopes))
        return float(self.weight @ losses), gradient, partial(self._curved, curvatures)

    @quietly
    def value(self, w: Vector) -> float:
        return float(self.weight @ self._losses(self.scores(w)))

    def hessian(self, w: Vector) -> Matrix:
        return self._curved(partial(self._curvatures, self.scores(w)))

    @quietly
    def _curved(self, curvatures: Callable[[], Vector]) -> Matrix:
        """The Hessian where the rows have these curvatures."""
        weights = self.weight * curvatures()
        note_weights(self, "hessian", weights)
        return gram(self.X, weights)

    @quietly
    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return np.asarray(self.X.T @ (self.weight * self._curvatures(self.scores(w)) * (self.X @ v)))

    def _expand(self, score: Vector) -> tuple[Vector, Vector, Callable[[], Vector]]:
        """l, l' and how to get l'' of every row, for a loss that has them from one computation."""
        return self._losses(score), self._slopes(score), partial(self._curvatures, score)

    def of_rows(self, numbers: Indices) -> Self:
        """The same mean, which knows that its rows are these of the owner's: for standard errors."""
        known = copy(self)
        known.numbers = numbers
        return known

    @quietly
    def contributions(self, w: Vector) -> list[Contributions]:
        score = self.scores(w)
        slope = self.weight * self._slopes(score)
        gradient = slope[:, None] * to_dense(self.X)
        return [Contributions(self.numbers, self.weight, self.weight * self._losses(score), gradient)]

    @quietly
    def information(self, w: Vector) -> Matrix | None:
        if not self.likelihood:
            return None
        return gram(self.X, self.weight**2 * self._curvatures(self.scores(w)))

    def batch(self, indices: Indices) -> Self:
        part = copy(self)
        part.numbers = self.numbers[indices]
        part.X = self.X[indices]
        part.y = self.y[indices]
        part.rows = len(indices)
        if self.offset is not None:
            part.offset = self.offset[indices]
        # Not scaled to sum one, so that the mean over all batches is the function itself.
        part.weight = self.weight[indices] * (self.rows / len(indices))
        return part

    def defect(self) -> str | None:
        if self.rows == 0:
            return "X has no rows; leave this owner out or give it data"
        defects = [non_finite_defect("X", self.X), self._label_defect(), weight_defect(self.weight)]
        if self.offset is not None:
            defects.append(non_finite_defect("offset", self.offset))
        return first_of(defects)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rows={self.rows}, dim={self.dim})"


def normalize(weight: Vector) -> Vector:
    """weight scaled to sum one; unchanged when its sum is not positive and finite, which `weight_defect` reports."""
    total = float(np.sum(weight))
    if np.isfinite(total) and total > 0:
        return weight / total
    return weight.copy()


def weight_defect(weight: Vector) -> str | None:
    """What is wrong with the weights of rows, with the remedy; None when nothing is."""
    bad = non_finite_defect("weight", weight)
    if bad is not None:
        return bad
    negative = np.flatnonzero(weight < 0)
    if negative.size:
        found = f"weight has {count(negative.size, 'negative value')}, first at row {negative[0]}"
        return f"{found}; weights must be at least 0"
    if not np.any(weight):
        return "weight is zero for every row; give at least one row a positive weight"
    return None
