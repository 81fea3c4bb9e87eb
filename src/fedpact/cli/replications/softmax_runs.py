"""Runs of softmax regression at owners who differ: what iFedDR's Figures 3, 6 and 7 have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from fedpact import data, tasks
from fedpact.cli.replications.findings import Table, Task
from fedpact.cli.replications.ifeddr_logistic import DONE, PATIENCE, WEIGHT, Ran, spent, until
from fedpact.cli.trace import Point, announced, gap, traced
from fedpact.functions import Vector
from fedpact.problem import FederatedProblem
from fedpact.report import figures

#: Accuracies that differ by no more are the same: one deviation of 1000 test images at 70 % is 0.014.
NEAR = 0.01


@dataclass(frozen=True, eq=False)
class Setup:
    """The problem, its optimum by Newton's method on all rows, and the rows on which accuracy is measured."""

    name: str
    problem: FederatedProblem
    optimum: float
    best: Vector
    train: tuple[Vector, Any]
    test: tuple[Vector, Any]
    classes: int

    def accuracy(self, w: Vector, rows: tuple[Vector, Any]) -> float:
        """Mean over the classes, which have equally many rows."""
        return float(tasks.class_accuracies(w, *rows, self.classes).mean())


@dataclass(frozen=True, eq=False)
class Accurate(Ran):
    """A run with accuracies on training and on test rows, one a point."""

    trained: Sequence[float]
    tested: Sequence[float]

    @property
    def accuracy(self) -> float:
        """On the test rows, mean over the last quarter of the rounds."""
        return float(np.mean(self.tested[-max(len(self.tested) // 4, 1) :]))

    def reaching(self, accuracy: float) -> Point | None:
        """The first point with this accuracy on the test rows."""
        return next((p for p, seen in zip(self.trace.points, self.tested, strict=True) if seen >= accuracy), None)

    @property
    def requests(self) -> int:
        """Exchanges that only asked iFedDR's owners to refine; one exchange is the first look."""
        last = self.trace.points[-1]
        return last.exchanges - last.rounds - 1


def reduced(given: data.OwnersAndTest, directions: int) -> tuple[dict[str, tuple[Vector, Any]], Vector]:
    """Features along the leading principal directions of all training rows, and a column of ones."""
    X = np.vstack([X for X, _ in given.owners.values()])
    center = X.mean(axis=0)
    basis = np.linalg.eigh((X - center).T @ (X - center))[1][:, -directions:]  # eigenvalues ascend

    def along(rows: Vector) -> Vector:
        return data.with_intercept((rows - center) @ basis)

    return {name: (along(X), y) for name, (X, y) in given.owners.items()}, along(given.test.X)


def set_up(name: str, given: data.OwnersAndTest, directions: int) -> Setup:
    owners, test = reduced(given, directions)
    problem = tasks.softmax_regression(owners, len(given.classes), WEIGHT)
    functions = [share.objective for share in problem.shares if share.objective is not None]

    def value_and_gradient(w: Vector) -> tuple[float, Vector]:
        values, gradients = zip(*(function.value_and_gradient(w) for function in functions), strict=True)
        return sum(values), np.sum(gradients, axis=0)

    def curved(w: Vector, v: Vector) -> Vector:
        return np.asarray(np.sum([function.hessian_product(w, v) for function in functions], axis=0))

    start = np.zeros(len(given.classes) * test.shape[1])
    found = minimize(value_and_gradient, start, jac=True, hessp=curved, method="Newton-CG", options={"xtol": 1e-10})
    rows = np.vstack([X for X, _ in owners.values()]), np.concatenate([y for _, y in owners.values()])
    return Setup(name, problem, float(found.fun), found.x, rows, (test, given.test.y), len(given.classes))


def run(
    task: Task, setup: Setup, most: tuple[int, int], label: str, method: str, setting: str, **options: Any
) -> Accurate:
    """most: rounds, and gradients per owner"""
    below, trained, tested = gap(setup.problem, setup.optimum), [], []

    def measure(w: Vector) -> float:
        trained.append(setup.accuracy(w, setup.train))
        tested.append(setup.accuracy(w, setup.test))
        return below(w)

    ends = announced(f"{setup.name}: {label}, {setting}", task.say, until(*most))
    return Accurate(label, setting, traced(setup.problem, method, measure, ends, **options), trained, tested)


def tuned(tries: Sequence[Accurate]) -> Accurate:
    """The most accurate; of those that are as good as it, the one with the least objective."""
    top = max(ran.accuracy for ran in tries)
    return min((ran for ran in tries if ran.accuracy >= top - NEAR / 2), key=lambda ran: ran.last)


def table(setup: Setup, runs: Sequence[Accurate], most: tuple[int, int], **more: Any) -> Table:
    target = max(ran.accuracy for ran in runs) - NEAR
    rows = []
    for ran in runs:
        last, found = ran.trace.points[-1], ran.reaching(target)
        rows.append(
            [
                ran.label,
                ran.setting,
                f"{100 * ran.accuracy:.1f}",
                f"{100 * ran.trained[-1]:.1f}",
                f"{ran.last:.1e}",
                str(last.rounds),
                f"{spent(last) / max(last.rounds, 1):.1f}",
                str(found.rounds) if found else "never",
                f"{spent(found):.0f}" if found else "",
                str(found.exchanges) if found else "",
            ]
        )
    columns = ("method", "setting", "test", "train", "f - f*", "after", "a round", "rounds", "gradients", "exchanges")
    caption = (
        f"{setup.name}: {len(setup.problem.shares)} owners, d = {setup.problem.dim}, f* = {setup.optimum:.8f} by "
        f"Newton's method on all rows, where accuracy is {100 * setup.accuracy(setup.best, setup.test):.1f} % on test "
        f"and {100 * setup.accuracy(setup.best, setup.train):.1f} % on training rows. test: accuracy in percent, mean "
        "over the last quarter of the rounds; train: at the end; f - f*: at the end, after so many rounds. A run ends "
        f"after {most[0]} rounds or {most[1]} gradients per owner, or at f - f* = {DONE:g}, or when it falls by less "
        f"than 1 % in {PATIENCE} rounds. a round: gradients per owner and round. rounds, gradients (per owner, mean), "
        f"exchanges: until test accuracy is {100 * target:.1f} %, a point below the best of the table. iFedDR, "
        "automatic, takes Newton steps: a Hessian each, besides the gradient, which is not counted. The paper shows "
        "curves and prints no numbers."
    )
    return Table(caption, columns, rows, text=("setting",), **more)


def figure(title: str, runs: Sequence[Accurate]) -> Any:
    """Test accuracy, training accuracy and f - f* against rounds and gradients per owner, from the first round on."""
    of: dict[str, Callable[[Accurate], Sequence[float]]] = {
        "test accuracy": lambda ran: ran.tested,
        "training accuracy": lambda ran: ran.trained,
        "f - f*": lambda ran: [point.measured for point in ran.trace.points],
    }
    by: dict[str, Callable[[Point], float]] = {
        "rounds (server steps)": lambda point: point.rounds,
        "gradients per owner (client steps)": spent,
    }

    def line(ran: Accurate, x: str, y: str) -> tuple[list[float], list[float]]:
        return [by[x](point) for point in ran.trace.points[1:]], list(of[y](ran)[1:])

    return figures.panels(
        [
            figures.Panel(
                title,
                x,
                y,
                {f"{ran.label} ({ran.setting})": line(ran, x, y) for ran in runs},
                log_x=True,
                log_y=y == "f - f*",
            )
            for y in of
            for x in by
        ]
    )
