"""`fedpact demo`: the main job on data that ships with scikit-learn, in process, without a network."""

from __future__ import annotations

import sys
import time

import click
import numpy as np
from numpy.typing import NDArray

from fedpact import data, tasks
from fedpact.functions import LogisticLoss, Vector
from fedpact.problem import FederatedProblem, Share
from fedpact.prox import SquaredL2
from fedpact.report.tables import table, terminal
from fedpact.solve import solve
from fedpact.solvers import METHODS, Solution

Rows = tuple[Vector, NDArray[np.int64]]


@click.command()
@click.option("--hospitals", default=10, show_default=True, type=click.IntRange(1, 40), help="How many owners.")
@click.option("--bound", default=0.05, show_default=True, help="Mean loss allowed on malignant cases at each hospital.")
@click.option("--weight", default=0.01, show_default=True, help="Weight of the squared-L2 regularizer.")
@click.option("--tol", default=1e-3, show_default=True, help="Tolerance of the certificate.")
@click.option("--method", default="auto", show_default=True, type=click.Choice(["auto", *METHODS]), help="Solver.")
@click.option("--seed", default=0, show_default=True, help="Of the split into hospitals.")
def demo(hospitals: int, bound: float, weight: float, tol: float, method: str, seed: int) -> None:
    """Train a breast-cancer classifier at ten hospitals that never pool their patients.

    Neyman-Pearson classification: the least loss on benign cases, while the mean loss on malignant cases stays below
    --bound at every single hospital. Compared with training without the constraint and with the optimum on pooled data.
    The data is the Wisconsin Diagnostic set of scikit-learn (569 patients, 30 features), standardized; without a
    regularizer it is separable and has no optimum.

    Exit code 0 when the certificate meets --tol, else 1.
    """
    patients = data.wdbc()
    X = data.with_intercept(data.standardize(patients.X))
    parts = data.stratified(patients.y, hospitals, seed)
    owners = {f"hospital {i}": (X[rows], patients.y[rows]) for i, rows in enumerate(parts, 1)}
    regularizer = SquaredL2(np.append(np.full(X.shape[1] - 1, weight), 0.0))  # the intercept is free
    problem = tasks.neyman_pearson(owners, bound, regularizer)
    usual = FederatedProblem(
        [Share((1 / hospitals) * LogisticLoss(*own)) for own in owners.values()], None, regularizer
    )

    began = time.perf_counter()
    answer = solve(problem, method, tol=tol, seed=seed)
    seconds = time.perf_counter() - began
    pooled = solve(problem, "centralized-proximal-al", tol=1e-3 * tol)
    free = solve(usual, "centralized-proximal-al", tol=1e-3 * tol)
    _show(owners, bound, answer, pooled, free, seconds)
    sys.exit(0 if answer.solved else 1)


def _show(
    owners: dict[str, Rows], bound: float, answer: Solution, pooled: Solution, free: Solution, seconds: float
) -> None:
    console = terminal()
    by_hospital = table("hospital", "patients", "malignant", "loss before", "loss", "bound", "price", "satisfied")
    for (name, (X, y)), price in zip(owners.items(), answer.multipliers[1:], strict=True):
        malignant = LogisticLoss(X[y == 1], y[y == 1])
        loss, before = malignant.value(answer.w), malignant.value(free.w)
        kept = "yes" if loss <= bound + answer.tol[1] else "NO"
        by_hospital.add_row(
            name, str(len(y)), str(int(y.sum())), f"{before:.4f}", f"{loss:.4f}", f"{bound:g}", f"{price[0]:.4f}", kept
        )
    console.print(by_hospital)

    models = table("training", "benign loss", "worst malignant", "specificity", "recall", "objective")
    for label, solution in (
        ("no constraint", free),
        ("federated", answer),
        ("pooled optimum", pooled),
    ):
        benign, worst = _losses(owners, solution.w)
        right = _found(owners, solution.w)
        objective = "" if solution is free else f"{solution.objective:.6f}"
        models.add_row(label, f"{benign:.4f}", f"{worst:.4f}", f"{right[0]:.1%}", f"{right[1]:.1%}", objective)
    console.print(models)

    c, traffic = answer.certificate, answer.communication
    fields = {field for owner in traffic.owners.values() for field in owner.fields}
    gap = abs(answer.objective - pooled.objective) / abs(pooled.objective)
    console.print(
        f"{answer.status}: {answer.reason}\n"
        f"certificate  stationarity {c.stationarity:.1e}, feasibility {c.feasibility:.1e}, violation {c.violation:.1e} "
        f"(asked: {answer.tol[0]:g})\n"
        f"objective    {gap:.1e} from the pooled optimum (relative)\n"
        f"cost         {answer.rounds} exchanges, {traffic.bytes / 1e6:.2f} MB over {len(owners)} hospitals, "
        f"{seconds:.1f} s, {answer.method}\n"
        f"left a site  {', '.join(sorted({f.split('.')[1] for f in fields}))}",
        highlight=False,
        soft_wrap=True,
    )


def _losses(owners: dict[str, Rows], w: Vector) -> tuple[float, float]:
    """Mean benign loss over hospitals, and the largest mean malignant loss of any."""
    benign = [LogisticLoss(X[y == 0], y[y == 0]).value(w) for X, y in owners.values()]
    malignant = [LogisticLoss(X[y == 1], y[y == 1]).value(w) for X, y in owners.values()]
    return float(np.mean(benign)), max(malignant)


def _found(owners: dict[str, Rows], w: Vector) -> tuple[float, float]:
    """Shares of benign and of malignant patients classified as such."""
    X = np.vstack([X for X, _ in owners.values()])
    y = np.concatenate([y for _, y in owners.values()])
    return float(np.mean(X[y == 0] @ w <= 0)), float(np.mean(X[y == 1] @ w > 0))
