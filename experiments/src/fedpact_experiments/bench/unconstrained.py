"""`fedpact bench unconstrained`: logistic regression, beside scikit-learn on pooled rows and Flower's simulation."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np

import fedpact as fp
from fedpact import data
from fedpact.errors import install
from fedpact.types import Matrix, Vector
from fedpact_experiments import datasets
from fedpact_experiments.bench.output import PAGE, SEED, Output, Table, cell, printing
from fedpact_experiments.options import COUNT, DATA, TOLERANCE, among, several

CAPTION = """\
Mean logistic loss of all rows plus ridge / 2 |w|^2, ridge = 1e-3; the rows are dealt to the owners by their label, so
that owners differ. exchanges: one message down and one up, with every owner. s: of this process, for Flower of the
rounds alone; start-up, s: what came before them. distance: (objective - optimum) / optimum; the optimum is
interior-point's to 1e-10. scikit-learn has all rows in one place, and a tolerance of 1e-8. FedAvg of Flower and of
fedpact take the same steps, of length 1 / L.
"""
COLUMNS = {
    "problem": cell("problem"),
    "n": cell("owners"),
    "method": cell("method"),
    "exchanges": cell("exchanges"),
    "s": cell("seconds", "{:.3g}".format),
    "ms / exchange": lambda row: f"{1e3 * row.seconds / row.exchanges:.3g}" if row.exchanges else "",
    "start-up, s": cell("start", "{:.1f}".format),
    "distance": cell("distance", "{:.1e}".format),
    "status": cell("status"),
}
RIDGE = 1e-3
OURS = ("interior-point", "ifeddr", "feddr", "scaffold", "fedavg")
PROBLEMS = ("synthetic", "breast-cancer", "adult")
FLOWER = "flower"
SKLEARN = ("newton-cholesky", "lbfgs")


@dataclass(frozen=True)
class Row:
    problem: str
    owners: int
    method: str
    status: str = "solved"
    exchanges: int | None = None
    seconds: float = 0.0
    start: float | None = None
    distance: float | None = None
    note: str = ""


@dataclass(frozen=True, eq=False)
class Dealt:
    """Rows and labels by owner; each counts by its rows."""

    name: str
    parts: tuple[tuple[Matrix, Vector], ...]

    @property
    def rows(self) -> int:
        return sum(len(y) for _, y in self.parts)

    @property
    def pooled(self) -> tuple[Matrix, Vector]:
        return np.vstack([X for X, _ in self.parts]), np.concatenate([y for _, y in self.parts])

    @property
    def curvature(self) -> float:
        """The largest L of an owner's mean loss."""
        return max(float(np.linalg.norm(X, 2) ** 2) / (4 * len(X)) for X, _ in self.parts) + RIDGE

    def problem(self) -> fp.FederatedProblem:
        losses = [(len(y) / self.rows) * fp.functions.LogisticLoss(X, y) for X, y in self.parts]
        return fp.FederatedProblem([fp.Share(loss) for loss in losses], regularizer=fp.prox.SquaredL2(RIDGE))

    def objective(self, w: Vector) -> float:
        X, y = self.pooled
        return float(fp.functions.LogisticLoss(X, y).value(w)) + 0.5 * RIDGE * float(w @ w)


def deal(name: str, owners: int, folder: str | None, seed: int) -> Dealt:
    """A data set, standardized, with intercept; each owner has labels of its own mixture."""
    if name == "synthetic":
        tables = data.neyman_pearson(owners, d=21, seed=seed)
        return Dealt(name, tuple((X, y.astype(float)) for X, y in tables.values()))
    table = data.wdbc() if name == "breast-cancer" else datasets.adult_a(folder)
    X = data.with_intercept(data.standardize(table.X))
    folds = data.dirichlet(table.y, owners, 1.0, seed)
    return Dealt(name, tuple((X[fold], table.y[fold].astype(float)) for fold in folds if len(fold)))


# ------------------------------------------------------------------------------------------------------------- the runs


def run_ours(dealt: Dealt, method: str, tol: float, most: int) -> tuple[Row, Vector]:
    options: dict[str, Any] = {}
    if method == "fedavg":
        options = {"steps": 1, "step_size": 1 / dealt.curvature}
    began = time.perf_counter()
    found = fp.solve(dealt.problem(), method, tol=tol, max_rounds=most, **options)
    seconds = time.perf_counter() - began
    return Row(dealt.name, len(dealt.parts), method, found.status, found.rounds, seconds), found.w


def run_sklearn(dealt: Dealt, solver: str) -> tuple[Row, Vector]:
    from sklearn.linear_model import LogisticRegression

    X, y = dealt.pooled
    began = time.perf_counter()
    model = LogisticRegression(C=1 / (RIDGE * len(X)), fit_intercept=False, solver=solver, tol=1e-8, max_iter=10_000)
    model.fit(X, y)
    seconds = time.perf_counter() - began
    return Row(dealt.name, len(dealt.parts), f"scikit-learn {solver}", seconds=seconds), model.coef_[0]


def run_flower(dealt: Dealt, rounds: int, steps: int) -> tuple[Row, Vector]:
    from fedpact_experiments.bench.unconstrained_flower import simulate

    slopes = [(X, y, RIDGE) for X, y in dealt.parts]
    run = simulate(slopes, rounds, steps, step_size=1 / dealt.curvature)
    name = f"Flower FedAvg, {steps} steps" if steps > 1 else "Flower FedAvg"
    return Row(dealt.name, len(dealt.parts), name, "max_rounds", rounds, run.seconds, run.start), run.w


# --------------------------------------------------------------------------------------------------------- the command


@click.command()
@among("--problems", PROBLEMS, ["synthetic", "breast-cancer"])
@several("--owners", COUNT, [5], "Numbers of owners.")
@among("--methods", [*SKLEARN, *OURS, FLOWER])
@several("--steps", COUNT, [1, 5], "Local steps of Flower's FedAvg.")
@click.option("--rounds", type=COUNT, default=100, show_default=True, help="Rounds of Flower's simulation.")
@click.option("--most", type=click.IntRange(8), default=2000, show_default=True, help="Exchanges of our methods.")
@click.option("--tol", type=TOLERANCE, default=1e-6, show_default=True, help="Tolerance of our certificates.")
@printing(Row, SEED, DATA, PAGE)
def unconstrained(
    problems: Sequence[str],
    owners: Sequence[int],
    methods: Sequence[str],
    steps: Sequence[int],
    rounds: int,
    most: int,
    tol: float,
    output: Output,
) -> None:
    """Logistic regression without constraints: our methods, scikit-learn on pooled rows, Flower's simulation.

    \b
    fedpact bench unconstrained
    fedpact bench unconstrained --problems adult --owners 5,20 --methods newton-cholesky,interior-point
    """
    absent = FLOWER in methods and any(importlib.util.find_spec(name) is None for name in ("flwr", "ray"))
    if absent:
        output.notes.append(f"Flower: not measured; {install('flower,ray')}")

    def runs_on(dealt: Dealt) -> Iterator[Callable[[], tuple[Row, Vector]]]:
        for method in methods:
            if method in SKLEARN:
                yield lambda method=method: run_sklearn(dealt, method)  # type: ignore[misc]
            elif method in OURS:
                yield lambda method=method: run_ours(dealt, method, tol, most)  # type: ignore[misc]
            elif not absent:
                for local in steps:
                    yield lambda local=local: run_flower(dealt, rounds, local)  # type: ignore[misc]

    def rows() -> Iterator[Row]:
        for name in problems:
            for n in owners:
                dealt = deal(name, n, output.folder, output.seed)
                optimum = dealt.objective(fp.solve(dealt.problem(), "interior-point", tol=1e-10).w)
                for run in runs_on(dealt):
                    row, w = run()
                    click.echo(f"measured: {row}", err=True)
                    yield replace(row, distance=dealt.objective(w) / optimum - 1)

    output.report(
        Table(rows(), COLUMNS, CAPTION, title="Logistic regression"),
        title="Without constraints",
        introduction="What our methods cost where nothing is constrained, beside what a user would pick instead.",
    )
