"""Runs of Fair VFL's replication: one division of the rows, one model, and how good it is on the test rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit

from fedpact.functions import Vector
from fedpact.postprocess import calibrated_equalized_odds, equalized_odds
from fedpact.problem import VerticalProblem
from fedpact.solve import solve
from fedpact.solvers import Solution
from fedpact_experiments import datasets
from fedpact_experiments.datasets import VerticalTable


@dataclass(frozen=True)
class Fit:
    """One model. eps: None without the constraint; updates: the paper's Q

    accuracy, fairness, rates: on the test rows, in percent; rates: 1 - difference of the groups' true positive rates
    gap, price:                DEO on the training rows, and of the constraint
    curve:                     exchanges so far, loss, by how much the gap is too large, one a round
    """

    data: str
    seed: int
    label: str
    eps: float | None = None
    updates: int = 1
    accuracy: float = 0.0
    fairness: float = 0.0
    rates: float = 0.0
    gap: float = 0.0
    price: float = 0.0
    loss: float = 0.0
    exchanges: int = 0
    curve: list[list[float]] = field(default_factory=list)

    @property
    def harmonic(self) -> float:
        return 2 * self.accuracy * self.fairness / (self.accuracy + self.fairness)

    @property
    def rounds(self) -> int:
        """Exchanges at the end of its curve."""
        return int(self.curve[-1][0])

    @property
    def loss_at_end(self) -> float:
        return self.curve[-1][1]

    def first(self, loss: float) -> int | None:
        """Exchanges until the loss is this small."""
        return next((int(rounds) for rounds, value, _ in self.curve if value <= loss), None)

    def within(self, optimum: float, share: float) -> int | None:
        """Exchanges from which on the loss is within a share of the optimum, and the gap below eps + share / 10."""
        good = [abs(f - optimum) <= share * optimum and miss <= share / 10 for _, f, miss in self.curve]
        bad = max((i for i, fine in enumerate(good) if not fine), default=-1)
        return int(self.curve[bad + 1][0]) if bad + 1 < len(good) else None


@dataclass(frozen=True, eq=False)
class Case:
    """One random division into training and test rows."""

    data: str
    seed: int
    train: VerticalTable
    test: VerticalTable

    def problem(self, eps: float | None) -> VerticalProblem:
        parties = {name: block.X for name, block in datasets.split_columns(self.train).items()}
        return VerticalProblem(parties, self.train.y, *(() if eps is None else (self.train.group, eps)))

    def solve(self, method: str, eps: float | None, **options: Any) -> Solution:
        """Sums are taken in the clear: masks change the last digits and nothing else, and take time."""
        return solve(self.problem(eps), method, secure_sum=False, **options)

    def fit(self, label: str, eps: float | None, answer: Solution, updates: int = 1) -> Fit:
        known = scores(answer.w, self.train)
        z = scores(answer.w, self.test)
        return Fit(
            self.data,
            self.seed,
            label,
            eps,
            updates,
            **qualities((z >= 0).astype(np.float64), np.logaddexp(0.0, -z), self.test),
            gap=_gap(np.logaddexp(0.0, -known), self.train),
            price=float(np.sum(answer.multipliers[0])),
            loss=answer.objective,
            exchanges=answer.rounds,
            curve=[[r.rounds, r.objective, max(r.violations.values(), default=0.0)] for r in answer.history.outer],
        )


def scores(w: Vector, table: VerticalTable) -> Vector:
    return np.asarray(table.X @ w[:-1] + w[-1])  # the coordinator's intercept is last


def _gap(value: Vector, table: VerticalTable) -> float:
    """DEO: between the groups' means of a value over the rows with y = 1."""
    means = [float(value[(table.y == 1) & (table.group == g)].mean()) for g in (0, 1)]
    return abs(means[0] - means[1])


def qualities(chance: Vector, loss: Vector, table: VerticalTable) -> dict[str, Any]:
    """chance: of predicting 1; loss: of the rows with y = 1"""
    right = float(np.mean(np.where(table.y == 1, chance, 1 - chance)))
    return {
        "accuracy": 100 * right,
        "fairness": 100 * (1 - _gap(loss, table)),
        "rates": 100 * (1 - _gap(chance, table)),
    }


def post_process(case: Case, w: Vector) -> Iterator[Fit]:
    """EO and CEO, derived from FedBCD's scores of the training rows; expectations over their coins.

    A prediction of -1 or 1 taken for a score has the logistic loss log(1 + e) or 1 less, so DEO of EO's predictions is
    the difference of the groups' true positive rates. CEO's are probabilities still, and have a logistic loss.
    """
    train = case.train
    test = case.test
    known = scores(w, train)
    z = scores(w, test)
    equal = equalized_odds(train.y, known, train.group, constraint="true_positive_rate")
    chance = equal.predict_proba(z, test.group)
    yield Fit(case.data, case.seed, "EO", **qualities(chance, 1 - chance, test))
    derived = calibrated_equalized_odds(train.y, expit(known), train.group, on_infeasible="withhold")
    rate = np.where(test.group == derived.better_off, derived.rate, 0.0)
    chance = (1 - rate) * (z >= 0) + rate * (derived.base_rate >= 0.5)
    loss = (1 - rate) * np.logaddexp(0.0, -z) - rate * np.log(derived.base_rate)
    yield Fit(case.data, case.seed, "CEO", **qualities(chance, loss, test))
