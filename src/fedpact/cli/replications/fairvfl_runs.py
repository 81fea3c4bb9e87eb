"""Runs of Fair VFL's replication: one division of the rows, one answer, and how good it is on the test rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from fedpact import data
from fedpact.data import VerticalTable
from fedpact.functions import Vector
from fedpact.postprocess import calibrated_equalized_odds, equalized_odds
from fedpact.problem import VerticalProblem
from fedpact.solve import solve
from fedpact.solvers import Solution


@dataclass(frozen=True)
class Quality:
    """On the test rows, in percent; rates: 1 - difference of the groups' true positive rates."""

    accuracy: float
    fairness: float
    rates: float

    @property
    def harmonic(self) -> float:
        return 2 * self.accuracy * self.fairness / (self.accuracy + self.fairness)


@dataclass(frozen=True, eq=False)
class Case:
    """One random division into training and test rows."""

    train: VerticalTable
    test: VerticalTable

    def problem(self, eps: float | None) -> VerticalProblem:
        parties = {name: block.X for name, block in data.split_columns(self.train).items()}
        return VerticalProblem(parties, self.train.y, *(() if eps is None else (self.train.group, eps)))

    def solve(self, method: str, eps: float | None, **options: Any) -> Ran:
        """Sums are taken in the clear: masks change the last digits and nothing else, and take time."""
        return Ran(solve(self.problem(eps), method, secure_sum=False, **options), self)


@dataclass(frozen=True, eq=False)
class Ran:
    """One run. curve: exchanges so far, loss, by how much the gap is too large, one a round"""

    solution: Solution
    case: Case

    def scores(self, table: VerticalTable) -> Vector:
        return np.asarray(table.X @ self.solution.w[:-1] + self.solution.w[-1])  # the coordinator's intercept is last

    @property
    def quality(self) -> Quality:
        test, z = self.case.test, self.scores(self.case.test)
        return _quality((z >= 0).astype(np.float64), np.logaddexp(0.0, -z), test)

    @property
    def train_gap(self) -> float:
        return _gap(np.logaddexp(0.0, -self.scores(self.case.train)), self.case.train)

    @property
    def price(self) -> float:
        return float(np.sum(self.solution.multipliers[0]))

    @property
    def curve(self) -> list[tuple[int, float, float]]:
        return [(r.rounds, r.objective, max(r.violations.values(), default=0.0)) for r in self.solution.history.outer]

    def first(self, loss: float) -> int | None:
        """Exchanges until the loss is this small."""
        return next((rounds for rounds, value, _ in self.curve if value <= loss), None)

    def within(self, optimum: float, share: float) -> int | None:
        """Exchanges from which on the loss is within a share of the optimum, and the gap below eps + share / 10."""
        good = [abs(f - optimum) <= share * optimum and miss <= share / 10 for _, f, miss in self.curve]
        bad = max((i for i, fine in enumerate(good) if not fine), default=-1)
        return self.curve[bad + 1][0] if bad + 1 < len(good) else None


def _gap(value: Vector, table: VerticalTable) -> float:
    """DEO: between the groups' means of a value over the rows with y = 1."""
    means = [float(value[(table.y == 1) & (table.group == g)].mean()) for g in (0, 1)]
    return abs(means[0] - means[1])


def _quality(chance: Vector, loss: Vector, table: VerticalTable) -> Quality:
    """chance: of predicting 1; loss: of the rows with y = 1"""
    right = float(np.mean(np.where(table.y == 1, chance, 1 - chance)))
    return Quality(100 * right, 100 * (1 - _gap(loss, table)), 100 * (1 - _gap(chance, table)))


def post_processed(free: Ran) -> dict[str, Quality]:
    """EO and CEO, derived from FedBCD's scores of the training rows; expectations over their coins.

    A prediction of -1 or 1 taken for a score has the logistic loss log(1 + e) or 1 less, so DEO of EO's predictions is
    the difference of the groups' true positive rates. CEO's are probabilities still, and have a logistic loss.
    """
    train, test = free.case.train, free.case.test
    known, z = free.scores(train), free.scores(test)
    equal = equalized_odds(train.y, known, train.group, constraint="true_positive_rate")
    chance = equal.predict_proba(z, test.group)
    found = {"EO": _quality(chance, 1 - chance, test)}
    derived = calibrated_equalized_odds(train.y, expit(known), train.group, on_infeasible="withhold")
    rate = np.where(test.group == derived.better_off, derived.rate, 0.0)
    chance = (1 - rate) * (z >= 0) + rate * (derived.base_rate >= 0.5)
    loss = (1 - rate) * np.logaddexp(0.0, -z) - rate * np.log(derived.base_rate)
    return found | {"CEO": _quality(chance, loss, test)}
