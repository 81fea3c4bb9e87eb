"""`fedpact demo`: the main job on data that ships with scikit-learn, in process, without a network."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

import click
from rich.table import Table

from fedpact import data
from fedpact.fitting import Fit, fit
from fedpact.problem import FederatedProblem, Share
from fedpact.report.tables import print_table, table
from fedpact.report.what_left import tell_what_left
from fedpact.report.wording import GOOD, state
from fedpact.solve import solve
from fedpact.solvers import METHODS, Solution
from fedpact.tasks import NeymanPearson, Rows


@click.command()
@click.option("--hospitals", default=10, show_default=True, type=click.IntRange(1, 40), help="How many owners.")
@click.option("--bound", default=0.05, show_default=True, help="Mean loss allowed on malignant cases at each hospital.")
@click.option("--weight", default=0.01, show_default=True, help="Weight of the squared-L2 regularizer.")
@click.option("--tol", default=1e-3, show_default=True, help="Tolerance of the certificate.")
@click.option("--method", default="auto", show_default=True, type=click.Choice(["auto", *METHODS]), help="Solver.")
@click.option("--seed", default=0, show_default=True, help="Seed of the split into hospitals.")
def demo(hospitals: int, bound: float, weight: float, tol: float, method: str, seed: int) -> None:
    """Train a breast-cancer classifier at ten hospitals that never pool their patients.

    Neyman-Pearson classification: the least loss on benign cases, while the mean loss on malignant cases stays below
    --bound at every single hospital. Compared with training without the constraint and with the optimum on pooled data.
    The data is the Wisconsin Diagnostic set of scikit-learn (569 patients, 30 features), standardized by sums over the
    hospitals; without a regularizer it is separable and has no optimum.

    Exit code 0 when the certificate meets --tol, else 1.
    """
    patients = data.wdbc()
    parts = data.stratified(patients.y, hospitals, seed)
    owners = {f"hospital {i}": Rows(patients.X[rows], patients.y[rows]) for i, rows in enumerate(parts, 1)}
    task = NeymanPearson(
        label="diagnosis",
        classes=("benign", "malignant"),
        columns=patients.columns,
        bound=bound,
        standardize=True,
        regularization=weight,
    )
    began = time.perf_counter()
    found = fit(task, owners, method=method, tol=tol, seed=seed, compare=True)
    seconds = time.perf_counter() - began
    pooled = solve(_pool(found, owners), "centralized-proximal-al", tol=1e-3 * tol)
    _show(found, pooled, seconds)
    if not found.solved:
        sys.exit(1)


def _pool(found: Fit, owners: Mapping[str, Rows]) -> FederatedProblem:
    """The problem that was solved, with all rows in one process."""
    assert isinstance(found.task, NeymanPearson)
    shares = [found.task.share(name, rows) for name, rows in owners.items()]
    return FederatedProblem([share for share in shares if isinstance(share, Share)], None, found.task.regularizer())


def _show(found: Fit, pooled: Solution, seconds: float) -> None:
    print_table(_hospital_table(found))
    print_table(_model_table(found, pooled))
    answer = found.solution
    c = answer.certificate
    traffic = found.communication
    fields = [field for owner in traffic.owners.values() for field in owner.fields]
    gap = abs(answer.objective - pooled.objective) / abs(pooled.objective)
    click.echo(
        f"{answer.status}: {answer.reason}\n"
        f"certificate  stationarity {c.stationarity:.1e}, feasibility {c.feasibility:.1e}, violation {c.violation:.1e} "
        f"(asked: {answer.tol[0]:g})\n"
        f"objective    {gap:.1e} from the pooled optimum (relative)\n"
        f"cost         {traffic.rounds} exchanges with the model without constraints, {answer.rounds} for this one, "
        f"{traffic.bytes / 1e6:.2f} MB over {len(found.measures)} hospitals, {seconds:.1f} s, {answer.method}\n"
        f"left owners  {tell_what_left(fields)}",
    )


def _hospital_table(found: Fit) -> Table:
    """The constraint at every hospital, and the loss of the model without constraints."""
    rows = table("hospital", "patients", "malignant", "loss before", "loss", "bound", "price", "satisfied")
    answer = found.solution
    for name, price in zip(found.measures, answer.multipliers[1:], strict=True):
        measured = found.measures[name]
        before = found.before[name]["loss"]
        (bounded,) = found.task.bounded(name, found.values[name], price, measured)
        satisfied = "yes" if state(bounded, answer.tol[1]) in GOOD else "NO"
        counts = (f"{measured['rows']:.0f}", f"{measured['protected rows']:.0f}")
        losses = (f"{before:.4f}", f"{measured['loss']:.4f}", f"{bounded.bound:g}", f"{bounded.price:.4f}")
        rows.add_row(name, *counts, *losses, satisfied)
    return rows


def _model_table(found: Fit, pooled: Solution) -> Table:
    """The model beside the one without constraints and the optimum on pooled data."""
    rows = table("training", "worst malignant loss", "specificity", "recall", "objective")
    rows.add_row("no constraint", *_summary(found.before), "")
    rows.add_row("federated", *_summary(found.measures), f"{found.solution.objective:.6f}")
    rows.add_row("pooled optimum", "", "", "", f"{pooled.objective:.6f}")
    return rows


def _summary(measures: Mapping[str, Mapping[str, float]]) -> tuple[str, str, str]:
    """Largest loss of a hospital on malignant cases; specificity and recall over the patients of all."""
    owners = list(measures.values())
    worst = max(owner["loss"] for owner in owners)
    malignant = sum(owner["protected rows"] for owner in owners)
    benign = sum(owner["rows"] for owner in owners) - malignant
    found = sum(owner["recall"] * owner["protected rows"] for owner in owners)
    spared = sum(owner["specificity"] * (owner["rows"] - owner["protected rows"]) for owner in owners)
    return f"{worst:.4f}", f"{spared / benign:.1%}", f"{found / malignant:.1%}"
