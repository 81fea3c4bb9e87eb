"""Rates of decisions, smoothed: what a model decides, as functions with derivatives.

A linear classifier decides for the class with the largest score. Every rate of its decisions (recall, false-positive
rate, selection rate), every gap between two groups of such a rate, and a bound on the precision is a weighted sum

    sum_i sum_k a_ik [row i is given class k]

over the rows. Here the decision, which is 0 or 1, is smoothed to softmax(s_i / width)_k, with s_i the scores of row i;
for two classes that is sigmoid(x_i'w / width). As the width tends to zero it tends to the decision itself.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from fedpact.errors import ProblemError
from fedpact.functions.arrays import Data, as_data, as_numbers, first_of, non_finite_defect
from fedpact.functions.base import ROUNDING, Function, Indices, Map
from fedpact.types import Matrix, Vector
from fedpact.watching import note_boundary, note_scores

#: Weights of decisions, (rows,) for two classes, where class 0 follows from class 1, else (rows, classes).
Weights = NDArray[np.float64]


#: Scores of smoothed decisions, in units of their smoothing, count as so many times smaller than those of a loss: their
#: whole point is to be sharp.
SHARP = 4.0


class SoftDecisions:
    """The smoothed decisions of a linear model on the rows of X, and derivatives of weighted sums of them.

    w has a coefficient per column for two classes, else it lists the rows of a (classes, columns) matrix. Those of a
    network are `fedpact.functions.decisions_from_torch`.
    """

    has_hessian = True
    rounding = ROUNDING
    start: Vector | None = None

    def __init__(self, X: ArrayLike | sp.sparray | sp.spmatrix, width: float, classes: int = 2) -> None:
        self.X: Data = as_data("rates: X", X)
        if not (np.isfinite(width) and width > 0):
            raise ProblemError(f"rates: width = {width}; give a positive number", code="FP-PROBLEM-260")
        self.width = float(width)
        self.classes = classes
        self.rows = int(self.X.shape[0])
        self.columns = int(self.X.shape[1])
        self.scored = 1 if classes == 2 else classes
        self.dim = self.scored * self.columns

    def decide(self, w: Vector) -> Weights:
        """How far each row is given each class, in [0, 1]; for two classes: class 1."""
        scores = self._scores(w) / self.width
        note_scores(self, scores, SHARP)
        if self.classes == 2:
            return np.asarray(expit(scores))
        return np.asarray(softmax(scores, axis=1))

    def count(self, w: Vector) -> Weights:
        """The decisions themselves, 0 or 1, in the shape of `decide`; a tie is decided for the first class."""
        scores = self._scores(w)
        if self.classes == 2:
            return np.asarray(scores > 0, dtype=np.float64)
        return np.asarray(np.eye(self.classes)[np.argmax(scores, axis=1)])

    def gradient(self, w: Vector, decided: Weights | None, weights: Weights) -> Vector:
        """The gradient of sum(weights * decided) in w; decided: `decide(w)` where that is known."""
        if decided is None:
            decided = self.decide(w)
        return self.pull_back(self.slope(decided, weights))

    def batch(self, indices: Indices) -> Self:
        """The decisions on these rows."""
        chosen = copy(self)
        chosen.X = self.X[indices]
        chosen.rows = len(indices)
        return chosen

    def slope(self, decided: Weights, weights: Weights) -> Weights:
        """The derivative of sum(weights * decided) in the scores."""
        if self.classes == 2:
            undecided = decided * (1 - decided)
            note_boundary(self, undecided)
            return np.asarray(weights * undecided / self.width)
        note_boundary(self, np.sum(decided * (1 - decided), axis=1))
        mean = np.sum(weights * decided, axis=1, keepdims=True)
        return np.asarray(decided * (weights - mean) / self.width)

    def pull_back(self, slope: Weights) -> Vector:
        """The gradient in w, from the derivative in the scores."""
        return np.asarray((self.X.T @ slope).T).ravel()

    def hessian(self, decided: Weights, weights: Weights) -> Matrix:
        """The Hessian of sum(weights * decided) in w, dense."""
        slope = self.slope(decided, weights)
        if self.classes == 2:
            return self._curved(slope * (1 - 2 * decided) / self.width)
        blocks = np.empty((self.classes, self.columns, self.classes, self.columns))
        for a in range(self.classes):
            for b in range(a + 1):
                curvature = -(decided[:, a] * slope[:, b] + slope[:, a] * decided[:, b])
                if a == b:
                    curvature = curvature + slope[:, a]
                block = self._curved(curvature / self.width)
                blocks[a, :, b, :] = block
                blocks[b, :, a, :] = block
        return blocks.reshape(self.dim, self.dim)

    def hessian_product(self, w: Vector, weights: Weights, v: Vector) -> Vector:
        """The Hessian of sum(weights * decided) times v."""
        decided = self.decide(w)
        slope = self.slope(decided, weights)
        change = self._scores(v)
        if self.classes == 2:
            return self.pull_back(slope * (1 - 2 * decided) * change / self.width)
        along = np.sum(slope * change, axis=1, keepdims=True)
        mean = np.sum(decided * change, axis=1, keepdims=True)
        return self.pull_back((slope * (change - mean) - decided * along) / self.width)

    def defect(self) -> str | None:
        if self.rows == 0:
            return "X has no rows; leave this owner out or give it data"
        return non_finite_defect("X", self.X)

    def _scores(self, w: Vector) -> Weights:
        if self.classes == 2:
            return np.asarray(self.X @ w)
        return np.asarray(self.X @ w.reshape(self.classes, self.columns).T)

    def _curved(self, curvature: Vector) -> Matrix:
        """X' diag(curvature) X, for a curvature of either sign."""
        if isinstance(self.X, sp.csr_array):
            matrix: Matrix = np.asarray((self.X.T @ sp.diags_array(curvature) @ self.X).toarray())
        else:
            matrix = self.X.T @ (curvature[:, None] * self.X)
        return np.asarray(0.5 * (matrix + matrix.T))


class SmoothedRate(Function):
    """f(w) = sum_ik weights_ik softmax(s_i / width)_k: a rate of decisions, smoothed; neither convex nor concave.

    X:       (rows, columns), dense or scipy sparse; or `SoftDecisions`, which know their own width and classes
    weights: (rows,) for two classes, of being given class 1; else (rows, classes)
    width:   of the smoothing, in units of the scores

    Raises ProblemError on wrong shapes or on values that are not numbers; `defect` reports invalid values.
    """

    has_hessian = True

    def __init__(
        self,
        X: ArrayLike | sp.sparray | sp.spmatrix | SoftDecisions,
        weights: ArrayLike,
        width: float = 1.0,
        classes: int = 2,
    ) -> None:
        self.soft = soften(X, width, classes)
        self.weights = _as_weights(self.soft, weights)
        self.dim = self.soft.dim
        self.rows = self.soft.rows
        self.has_hessian = self.soft.has_hessian
        self.rounding = self.soft.rounding
        self.start = self.soft.start

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        value, gradient, _ = self.expand(w)
        return value, gradient

    def expand(self, w: Vector) -> tuple[float, Vector, Callable[[], Matrix]]:
        decided = self.soft.decide(w)
        gradient = self.soft.gradient(w, decided, self.weights)
        return float(np.sum(self.weights * decided)), gradient, lambda: self.soft.hessian(decided, self.weights)

    def value(self, w: Vector) -> float:
        return float(np.sum(self.weights * self.soft.decide(w)))

    def gradient(self, w: Vector) -> Vector:
        return self.soft.gradient(w, None, self.weights)

    def batch(self, indices: Indices) -> SmoothedRate:
        scaled = self.weights[indices] * (self.rows / len(indices))
        return SmoothedRate(self.soft.batch(indices), scaled)

    def hessian(self, w: Vector) -> Matrix:
        return self.soft.hessian(self.soft.decide(w), self.weights)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return self.soft.hessian_product(w, self.weights, v)

    def defect(self) -> str | None:
        return first_of([self.soft.defect(), non_finite_defect("weights", self.weights)])


class SmoothedRates(Map):
    """c(w) = (rate_1(w), ..., rate_m(w)) + constant: several smoothed rates of the same rows, decided once for all.

    weights: one entry a rate, each as for `SmoothedRate`; constant: (m,)
    """

    has_hessian = True

    def __init__(
        self,
        X: ArrayLike | sp.sparray | sp.spmatrix | SoftDecisions,
        weights: ArrayLike,
        constant: ArrayLike,
        width: float = 1.0,
        classes: int = 2,
    ) -> None:
        self.soft = soften(X, width, classes)
        self.constant = np.array(as_numbers("rates: constant", constant), dtype=np.float64)
        self.length = self.constant.size
        given = as_numbers("rates: weights", weights)
        if len(given) != self.length:
            raise ProblemError(
                f"rates: {len(given)} weights for {self.length} constants; give one of each a rate",
                code="FP-PROBLEM-262",
            )
        self.weights = np.stack([_as_weights(self.soft, one) for one in given])
        self.dim = self.soft.dim
        self.rows = self.soft.rows
        self.has_hessian = self.soft.has_hessian and not self.stands_in
        self.rounding = self.soft.rounding
        self.start = self.soft.start

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        value, jacobian, _ = self.expand(w)
        return value, jacobian

    def expand(self, w: Vector) -> tuple[Vector, Matrix, Callable[[Vector], Matrix]]:
        decided = self.soft.decide(w)
        jacobian = np.stack([self.soft.gradient(w, decided, one) for one in self.weights])
        return self._total(decided), jacobian, lambda weights: self._curved(decided, weights)

    def value(self, w: Vector) -> Vector:
        return self._total(self.soft.decide(w))

    def pull_back(self, w: Vector, weights: Vector) -> Vector:
        return self.soft.gradient(w, None, np.tensordot(weights, self.weights, axes=1))

    def batch(self, indices: Indices) -> Self:
        chosen = copy(self)
        chosen.soft = self.soft.batch(indices)
        chosen.weights = self.weights[:, indices] * (self.rows / len(indices))
        chosen.rows = len(indices)
        return chosen

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        return self._curved(self.soft.decide(w), weights)

    def _curved(self, decided: Weights, weights: Vector) -> Matrix:
        return self.soft.hessian(decided, np.tensordot(weights, self.weights, axes=1))

    def weighted_hessian_product(self, w: Vector, weights: Vector, v: Vector) -> Vector:
        return self.soft.hessian_product(w, np.tensordot(weights, self.weights, axes=1), v)

    def defect(self) -> str | None:
        numbers = non_finite_defect("weights", self.weights.ravel())
        return first_of([self.soft.defect(), numbers, non_finite_defect("constant", self.constant)])

    def _total(self, decided: Weights) -> Vector:
        axes = tuple(range(1, self.weights.ndim))
        return np.asarray(np.sum(self.weights * decided, axis=axes) + self.constant)


class CountedRates(SmoothedRates):
    """The rates themselves, c(w) = (rate_1(w), ..., rate_m(w)) + constant, with the Jacobian of the smoothed ones.

    Counts have no slopes, so that a method for them follows the smoothed rates and prices the counted ones: the
    proxy-Lagrangian of Cotter et al. (2019). Whether a bound holds is then no matter of smoothing. Stationarity is
    that of the smoothed rates, weighed by these prices. For "stochastic-al", whose steps never compare values of c.
    """

    stands_in = True

    def expand(self, w: Vector) -> tuple[Vector, Matrix, Callable[[Vector], Matrix]]:
        _, jacobian, curvature = super().expand(w)
        return self.value(w), jacobian, curvature

    def value(self, w: Vector) -> Vector:
        return self._total(self.soft.count(w))


def soften(X: ArrayLike | sp.sparray | sp.spmatrix | SoftDecisions, width: float, classes: int) -> SoftDecisions:
    """The smoothed decisions of a linear model on X; those that are given as they are."""
    if isinstance(X, SoftDecisions):
        return X
    return SoftDecisions(X, width, classes)


def _as_weights(soft: SoftDecisions, given: ArrayLike) -> Weights:
    weights = np.array(as_numbers("rates: weights", given), dtype=np.float64)
    wanted = (soft.rows,) if soft.classes == 2 else (soft.rows, soft.classes)
    if weights.shape != wanted:
        raise ProblemError(
            f"rates: weights have shape {weights.shape}; expected {wanted}, a number for each decision",
            code="FP-PROBLEM-261",
        )
    return weights
