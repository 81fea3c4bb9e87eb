"""Owners whose rows are drawn from normal distributions, so that the true rates of any linear rule are known.

At an owner a row has group g with probability P(g), class y with P(y | g), and x ~ N(mean[y, g], spread^2 I). So w'x is
normal too, and "decide 1 when w'x >= limit" has the rates Phi((w'mean - limit) / (spread |w|)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from fedpact.data.table import Table
from fedpact.functions import Vector
from fedpact_experiments.bench.decision_counts import Parity

COLUMNS = 5
#: Distance between the classes' means, in deviations along one direction that all owners share.
SEPARATION = 1.5
#: Deviations of what an owner, and a group at an owner, adds to the means.
OWNER_SHIFT = 0.4
GROUP_SHIFT = 0.2


@dataclass(frozen=True, eq=False)
class Population:
    """The distribution of one owner's rows.

    group:  P(g = 1)                    positive: (2,) P(y = 1 | g)
    means:  (2, 2, columns), by y and g spread:   deviation of every column
    """

    group: float
    positive: Vector
    means: NDArray[np.float64]
    spread: float

    def draw(self, rows: int, rng: np.random.Generator) -> Table:
        group = (rng.random(rows) < self.group).astype(np.int64)
        y = (rng.random(rows) < self.positive[group]).astype(np.int64)
        noise = rng.normal(scale=self.spread, size=(rows, self.means.shape[2]))
        names = tuple(f"x{j}" for j in range(self.means.shape[2]))
        return Table(self.means[y, group] + noise, y, names, group)

    def decided(self, w: Vector, limit: float) -> NDArray[np.float64]:
        """(2, 2): P(w'x >= limit | y, g)"""
        distance = (self.means @ w - limit) / (self.spread * np.linalg.norm(w))
        return np.asarray(norm.cdf(distance))

    def joint(self) -> NDArray[np.float64]:
        """(2, 2): P(y, g)"""
        groups = np.array([1 - self.group, self.group])
        return np.array([(1 - self.positive) * groups, self.positive * groups])

    def recall(self, w: Vector, limit: float) -> float:
        return self._rate(w, limit, 1)

    def false_positive_rate(self, w: Vector, limit: float) -> float:
        return self._rate(w, limit, 0)

    def _rate(self, w: Vector, limit: float, y: int) -> float:
        """P(w'x >= limit | y)"""
        weights = self.joint()[y]
        return float(self.decided(w, limit)[y] @ weights / weights.sum())

    def accuracy(self, w: Vector, limit: float) -> float:
        decided = self.decided(w, limit)
        right = np.array([1 - decided[0], decided[1]])
        return float(np.sum(self.joint() * right))

    def gap(self, w: Vector, limit: float, parity: Parity) -> float:
        """The difference between the groups in P(w'x >= limit): of all rows, of those with y = 1, of either class."""
        decided = self.decided(w, limit)
        negatives, positives = np.abs(decided[:, 1] - decided[:, 0])
        if parity == "equal_opportunity":
            return float(positives)
        if parity == "equalized_odds":
            return float(max(negatives, positives))
        selected = (1 - self.positive) * decided[0] + self.positive * decided[1]
        return float(abs(selected[1] - selected[0]))

    def true_limit(self, w: Vector, recall: float) -> float:
        """The limit at which the recall is exactly this."""
        centres = self.means[1] @ w
        reach = 10 * self.spread * np.linalg.norm(w)
        lowest = float(centres.min() - reach)
        highest = float(centres.max() + reach)
        return float(brentq(lambda limit: self.recall(w, limit) - recall, lowest, highest, xtol=1e-12))


def draw_federation(owners: int, rng: np.random.Generator) -> dict[str, Population]:
    """Populations of so many owners: a common difference of the classes, shifted by owner, and by group at an owner."""
    direction = rng.normal(size=COLUMNS)
    direction *= SEPARATION / np.linalg.norm(direction)
    federation = {}
    for k in range(owners):
        owner_shift = OWNER_SHIFT * rng.normal(size=COLUMNS)
        group_shift = GROUP_SHIFT * rng.normal(size=(2, COLUMNS))
        classes = np.array([np.zeros(COLUMNS), direction])
        means = classes[:, None, :] + owner_shift + group_shift[None, :, :]
        positive = rng.uniform(0.3, 0.5, size=2)
        federation[f"owner {k + 1}"] = Population(rng.uniform(0.4, 0.6), positive, means, rng.uniform(0.8, 1.2))
    return federation
