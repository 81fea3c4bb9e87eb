"""Losses of people's scores: all that a vertical problem is, besides the parties' columns.

Everyone has one score, or with softmax one for each class. Scores of all people are one vector, class by class.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fedpact.functions import Function, HuberLoss, LogisticLoss, PoissonLoss, ScoredMean, SoftmaxLoss, SquaredLoss
from fedpact.types import Matrix, Vector

Loss = Literal["logistic", "squared", "huber", "poisson", "softmax"]
LOSSES: dict[str, type[ScoredMean]] = {
    "logistic": LogisticLoss,
    "squared": SquaredLoss,
    "huber": HuberLoss,
    "poisson": PoissonLoss,
}
#: Of classes, which a gap may be about.
OF_CLASSES = ("logistic", "softmax")
#: The largest second derivative of each loss; that of Poisson's has none.
STEEPEST = {"logistic": 0.25, "squared": 1.0, "huber": 1.0}


@dataclass(frozen=True)
class Scored:
    """Losses of scores, without columns: what the coordinator knows, and what it tells the parties.

    loss:    its name
    y:       (n,), -1 and 1 for the logistic loss, numbers of classes for softmax, else numbers
    rows:    (m, n), one per gap or bounded mean: D = rows @ losses
    outputs: scores of each person
    """

    loss: str
    y: Vector
    rows: Matrix
    outputs: int = 1

    @property
    def length(self) -> int:
        """Scores of all people together."""
        return self.y.size * self.outputs

    @property
    def kind(self) -> type[ScoredMean]:
        """The class of the loss."""
        return LOSSES[self.loss]

    def mean_loss(self, X: Matrix, chosen: Any = slice(None), offset: Vector | None = None) -> Function:
        """The mean loss of the chosen rows, as a function of the w in scores X w + offset. X: of all rows"""
        known = None if offset is None else offset[chosen]
        numbers = np.arange(self.y.size)[chosen]
        return mean_loss(self.kind, X[chosen], self.y[chosen], known).of_rows(numbers)

    @cached_property
    def _loss_of_rows(self) -> ScoredMean:
        return mean_loss(self.kind, np.zeros((self.y.size, 0)), self.y)

    def smoothness(self, z: Vector) -> float:
        """The largest second derivative of the loss; where it has none, the largest at these scores."""
        if self.loss in STEEPEST:
            return STEEPEST[self.loss]
        return float(np.max(self._loss_of_rows.curvatures(z), initial=0.0))

    def steepness(self) -> float:
        """The largest slope of a row's loss: of the squared one at zero."""
        if self.loss == "squared":
            return float(np.max(np.abs(self.y), initial=0.0))
        return 1.0

    def losses(self, z: Vector) -> Vector:
        """l(z_i, y_i) of every row."""
        return self._loss_of_rows.losses(z)

    def slopes(self, z: Vector) -> Vector:
        """The derivatives of every row's loss by its scores."""
        return self._loss_of_rows.slopes(z)

    def curve(self, basis: Matrix, z: Vector, weights: Vector) -> Matrix:
        """Second derivatives of sum_i weights_i l(z_i) along these directions of the scores, one a row of `basis`."""
        return np.asarray(basis * (weights * self._loss_of_rows.curvatures(z)) @ basis.T)

    def weights(self, net: Vector) -> Vector:
        """How much the loss of each row counts in L + sum_j net_j D_j."""
        return 1.0 / self.y.size + net @ self.rows

    def pull(self, z: Vector, net: Vector) -> Vector:
        """The derivatives of L + sum_j net_j D_j by the scores."""
        return np.tile(self.weights(net), self.outputs) * self.slopes(z)

    def pulls(self, z: Vector) -> Matrix:
        """The derivatives of every D_j by the scores, one a row."""
        return np.tile(self.rows, (1, self.outputs)) * self.slopes(z)

    def gaps(self, z: Vector) -> Vector:
        """D_j(z) of every gap."""
        return self.rows @ self.losses(z)


@dataclass(frozen=True)
class OwnScored(Scored):
    """The same with a loss of one's own, which parties are not told: its class does not travel."""

    own: type[ScoredMean] = LogisticLoss

    @property
    def kind(self) -> type[ScoredMean]:
        return self.own


@dataclass(frozen=True)
class SoftmaxScored(Scored):
    """The same of several classes: everyone has a score for each, and the loss is that of `SoftmaxLoss`."""

    def mean_loss(self, X: Matrix, chosen: Any = slice(None), offset: Vector | None = None) -> Function:
        known = None if offset is None else self._by_person(offset)[chosen]
        numbers = np.arange(self.y.size)[chosen]
        return SoftmaxLoss(X[chosen], self.y[chosen], self.outputs, offset=known).of_rows(numbers)

    @cached_property
    def _softmax(self) -> SoftmaxLoss:
        return SoftmaxLoss(np.zeros((self.y.size, 0)), self.y, self.outputs)

    def _by_person(self, z: Vector) -> Matrix:
        """(n, classes)"""
        return z.reshape(self.outputs, -1).T

    def smoothness(self, z: Vector) -> float:
        return 0.5  # of diag(p) - p p'

    def steepness(self) -> float:
        return float(np.sqrt(2.0))  # of p less a unit vector

    def losses(self, z: Vector) -> Vector:
        return self._softmax.probabilities_and_losses(self._by_person(z))[1]

    def slopes(self, z: Vector) -> Vector:
        probability, _ = self._softmax.probabilities_and_losses(self._by_person(z))
        return self._softmax.slopes(probability).T.ravel()

    def curve(self, basis: Matrix, z: Vector, weights: Vector) -> Matrix:
        probability, _ = self._softmax.probabilities_and_losses(self._by_person(z))
        along = basis.reshape(len(basis), self.outputs, -1)  # direction, class, person
        mean = np.einsum("mkn,nk->mn", along, probability)
        found: Matrix = -(mean * weights) @ mean.T
        for k in range(self.outputs):
            found += along[:, k] * (weights * probability[:, k]) @ along[:, k].T
        return found


def score_losses(loss: str | type[ScoredMean], y: Vector, rows: Matrix, outputs: int = 1) -> Scored:
    """The losses of scores, for a loss that has a name or for one's own."""
    if loss == "softmax":
        return SoftmaxScored(loss, y, rows, outputs)
    if isinstance(loss, str):
        return Scored(loss, y, rows)
    return OwnScored(loss.__name__, y, rows, own=loss)


def mean_loss(loss: str | type[ScoredMean], X: Matrix, y: Vector, offset: Vector | None = None) -> ScoredMean:
    """The mean over these rows of the loss of this name, or of this class; labels as `Scored` has them."""
    kind = LOSSES[loss] if isinstance(loss, str) else loss
    if kind is LogisticLoss:
        y = (y > 0).astype(np.float64)
    return kind(X, y, offset=offset)
