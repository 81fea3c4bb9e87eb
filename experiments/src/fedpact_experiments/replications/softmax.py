"""Softmax regression at owners who differ: what iFedDR's Figures 3, 4, 6 and 7 have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from fedpact import data, tasks
from fedpact.functions import Vector
from fedpact.report import figures
from fedpact_experiments.datasets import OwnersAndTest
from fedpact_experiments.replications import ifeddr
from fedpact_experiments.replications.findings import Table
from fedpact_experiments.replications.ifeddr import GAP, GRADIENTS, OPTIMUM, ROUNDS, Curve, Setup
from fedpact_experiments.replications.page import Page
from fedpact_experiments.replications.rows import Rows
from fedpact_experiments.trace import gap

#: Accuracies in percent that differ by no more are the same: one deviation of 1000 test images at 70 % is 1.4.
NEAR = 1.0
#: Series of a run: mean over the classes, which have equally many rows.
TESTED = "test accuracy"
TRAINED = "training accuracy"


def reduce_dimension(given: OwnersAndTest, directions: int) -> tuple[dict[str, tuple[Vector, Any]], Vector]:
    """Features along the leading principal directions of all training rows, and a column of ones."""
    X = np.vstack([X for X, _ in given.owners.values()])
    center = X.mean(axis=0)
    basis = np.linalg.eigh((X - center).T @ (X - center))[1][:, -directions:]  # eigenvalues ascend

    def along(rows: Vector) -> Vector:
        return data.with_intercept((rows - center) @ basis)

    return {name: (along(X), y) for name, (X, y) in given.owners.items()}, along(given.test.X)


def set_up(name: str, given: OwnersAndTest, directions: int) -> tuple[Setup, Curve]:
    """The problem, and what is measured at its optimum, which Newton's method finds on all rows."""
    owners, test = reduce_dimension(given, directions)
    classes = len(given.classes)
    problem = tasks.softmax_regression(owners, classes, ifeddr.WEIGHT)
    functions = [share.objective for share in problem.shares if share.objective is not None]

    def value_and_gradient(w: Vector) -> tuple[float, Vector]:
        values, gradients = zip(*(function.value_and_gradient(w) for function in functions), strict=True)
        return sum(values), np.sum(gradients, axis=0)

    def curved(w: Vector, v: Vector) -> Vector:
        return np.asarray(np.sum([function.hessian_product(w, v) for function in functions], axis=0))

    start = np.zeros(classes * test.shape[1])
    found = minimize(value_and_gradient, start, jac=True, hessp=curved, method="Newton-CG", options={"xtol": 1e-10})
    least = float(found.fun)
    rows = np.vstack([X for X, _ in owners.values()]), np.concatenate([y for _, y in owners.values()])

    def accuracy(w: Vector, X: Vector, y: Any) -> float:
        return float(tasks.class_accuracies(w, X, y, classes).mean())

    accuracies: dict[str, Callable[[Vector], float]] = {
        TRAINED: lambda w: accuracy(w, *rows),
        TESTED: lambda w: accuracy(w, test, given.test.y),
    }
    setup = Setup(name, problem, {GAP: gap(problem, least)} | accuracies)
    at = {series: measure(found.x) for series, measure in accuracies.items()}
    return setup, setup.found(OPTIMUM, {"f*": least} | at)


@dataclass(frozen=True, eq=False)
class Accurate:
    """A run, its accuracies in percent, and what it needed to be as accurate as the target on the test rows."""

    run: Curve
    target: float = 0.0

    @property
    def tested(self) -> float:
        """Mean over the last quarter of the rounds."""
        return 100 * self.run.end(TESTED)

    @property
    def trained(self) -> float:
        return 100 * self.run.seen[TRAINED][-1]

    @property
    def needed(self) -> tuple[str, str, str]:
        """Rounds, gradients per owner, exchanges."""
        there = self.run.first(lambda accuracy: accuracy >= self.target / 100, TESTED)
        if there is None:
            return "never", "", ""
        return str(there), f"{self.run.gradients[there]:.0f}", str(self.run.exchanges[there])


def choose_best(tries: Sequence[Curve]) -> Curve:
    """The most accurate; of those that are as good as it, the one with the least objective."""
    top = max(Accurate(run).tested for run in tries)
    return min((run for run in tries if Accurate(run).tested >= top - NEAR / 2), key=lambda run: run.last)


def read_runs(rows: Rows[Curve], baselines: Sequence[str]) -> list[Accurate]:
    """Of the baselines the best of their grids; then all others. The target is a point below the best of all."""
    best = [choose_best(rows.where(label=label)) for label in baselines]
    runs = [*best, *(run for run in rows if run.label not in baselines)]
    target = max(Accurate(run).tested for run in runs) - NEAR
    return [Accurate(run, target) for run in runs]


def table(page: Page, at: Curve, runs: Sequence[Accurate], most: tuple[int, int]) -> Table:
    """at: the optimum; most: rounds, and gradients per owner"""
    values = {"least": at.seen["f*"][0], "tested": 100 * at.seen[TESTED][0], "trained": 100 * at.seen[TRAINED][0]}
    limits = {"most": most, "done": ifeddr.DONE, "patience": ifeddr.PATIENCE, "target": runs[0].target}
    return page.table("compared", runs, at=at, **values, **limits)


def figure(title: str, runs: Sequence[Accurate]) -> object:
    """Test accuracy, training accuracy and f - f* against rounds and gradients per owner, from the first round on."""
    shown = {each.run.title: each.run for each in runs}
    return figures.panels(
        [
            ifeddr.panel(title, x, series, shown, first=1, log_x=True, log_y=series == GAP)
            for series in (TESTED, TRAINED, GAP)
            for x in (ROUNDS, GRADIENTS)
        ]
    )
