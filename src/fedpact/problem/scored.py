"""Losses of people's scores: all that a vertical problem is, besides the parties' columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from fedpact.functions import HuberLoss, LogisticLoss, PoissonLoss, ScoredMean, SquaredLoss
from fedpact.types import Matrix, Vector

Loss = Literal["logistic", "squared", "huber", "poisson"]
LOSSES: dict[str, type[ScoredMean]] = {
    "logistic": LogisticLoss,
    "squared": SquaredLoss,
    "huber": HuberLoss,
    "poisson": PoissonLoss,
}
#: The largest second derivative of each loss; that of Poisson's has none.
STEEPEST = {"logistic": 0.25, "squared": 1.0, "huber": 1.0}


@dataclass(frozen=True)
class Scored:
    """Losses of scores, without columns: what the coordinator knows, and what it tells the parties.

    loss: its name
    y:    (n,), -1 and 1 for the logistic loss, else numbers
    rows: (m, n), one per gap or bounded mean: D = rows @ losses
    """

    loss: str
    y: Vector
    rows: Matrix

    @cached_property
    def _loss_of_rows(self) -> ScoredMean:
        return mean_loss(self.kind, np.zeros((self.y.size, 0)), self.y)

    @property
    def kind(self) -> type[ScoredMean]:
        """The class of the loss."""
        return LOSSES[self.loss]

    def smoothness(self, z: Vector) -> float:
        """The largest second derivative of the loss; where it has none, the largest at these scores."""
        if self.loss in STEEPEST:
            return STEEPEST[self.loss]
        return float(np.max(self._loss_of_rows.curvatures(z), initial=0.0))

    def losses(self, z: Vector) -> Vector:
        """l(z_i, y_i) of every row."""
        return self._loss_of_rows.losses(z)

    def slopes(self, z: Vector) -> Vector:
        """The derivatives l'(z_i, y_i)."""
        return self._loss_of_rows.slopes(z)

    def weights(self, net: Vector) -> Vector:
        """How much the loss of each row counts in L + sum_j net_j D_j."""
        return 1.0 / self.y.size + net @ self.rows

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


def score_losses(loss: str | type[ScoredMean], y: Vector, rows: Matrix) -> Scored:
    """The losses of scores, for a loss that has a name or for one's own."""
    if isinstance(loss, str):
        return Scored(loss, y, rows)
    return OwnScored(loss.__name__, y, rows, loss)


def mean_loss(loss: str | type[ScoredMean], X: Matrix, y: Vector, offset: Vector | None = None) -> ScoredMean:
    """The mean over these rows of the loss of this name, or of this class; labels as `Scored` has them."""
    kind = LOSSES[loss] if isinstance(loss, str) else loss
    if kind is LogisticLoss:
        y = (y > 0).astype(np.float64)
    return kind(X, y, offset=offset)
