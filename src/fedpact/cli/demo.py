"""`fedpact demo`: the main job on data that ships with scikit-learn, in process, without a network."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

import click
from rich.markup import escape

from fedpact import data
from fedpact.fitting import Fit, fit
from fedpact.problem import FederatedProblem, Share
from fedpact.report.tables import table, terminal
from fedpact.solve import solve
from fedpact.solvers import METHODS, Solution
from fedpact.tasks import NeymanPearson, Rows


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
    pooled = solve(_pooled(found, owners), "centralized-proximal-al", tol=1e-3 * tol)
    _show(found, pooled, seconds)
    sys.exit(0 if found.solved else 1)


def _pooled(found: Fit, owners: Mapping[str, Rows]) -> FederatedProblem:
    """The same problem with all rows in one place, to compare with."""
    assert isinstance(found.task, NeymanPearson)
    shares = [found.task.share(name, rows) for name, rows in owners.items()]
    return FederatedProblem([share for share in shares if isinstance(share, Share)], None, found.task.regularizer())


def _show(found: Fit, pooled: Solution, seconds: float) -> None:
    console = terminal()
    answer = found.solution
    by_hospital = table("hospital", "patients", "malignant", "loss before", "loss", "bound", "price", "satisfied")
    for name, price in zip(found.measures, answer.multipliers[1:], strict=True):
        told = found.measures[name]
        before = found.before[name]["loss"]
        (bounded,) = found.task.bounded(name, found.values[name], price, told)
        kept = "yes" if bounded.slack >= -answer.tol[1] else "NO"
        counts = (f"{told['rows']:.0f}", f"{told['protected rows']:.0f}")
        losses = (f"{before:.4f}", f"{told['loss']:.4f}", f"{bounded.bound:g}", f"{bounded.price:.4f}")
        by_hospital.add_row(escape(name), *counts, *losses, kept)
    console.print(by_hospital)

    models = table("training", "worst malignant loss", "specificity", "recall", "objective")
    rows = (("no constraint", found.before, ""), ("federated", found.measures, f"{answer.objective:.6f}"))
    for label, measures, objective in rows:
        worst = max(told["loss"] for told in measures.values())
        specificity, recall = _rates(measures)
        models.add_row(label, f"{worst:.4f}", f"{specificity:.1%}", f"{recall:.1%}", objective)
    models.add_row("pooled optimum", "", "", "", f"{pooled.objective:.6f}")
    console.print(models)

    c, traffic = answer.certificate, found.communication
    fields = {field for owner in traffic.owners.values() for field in owner.fields}
    gap = abs(answer.objective - pooled.objective) / abs(pooled.objective)
    console.print(
        f"{answer.status}: {answer.reason}\n"
        f"certificate  stationarity {c.stationarity:.1e}, feasibility {c.feasibility:.1e}, violation {c.violation:.1e} "
        f"(asked: {answer.tol[0]:g})\n"
        f"objective    {gap:.1e} from the pooled optimum (relative)\n"
        f"cost         {traffic.rounds} exchanges with the model without constraints, {answer.rounds} for this one, "
        f"{traffic.bytes / 1e6:.2f} MB over {len(found.measures)} hospitals, {seconds:.1f} s, {answer.method}\n"
        f"left a site  {', '.join(sorted({f.split('.')[1] for f in fields}))}",
        highlight=False,
        soft_wrap=True,
    )


def _rates(measures: Mapping[str, Mapping[str, float]]) -> tuple[float, float]:
    """Shares of benign and of malignant patients, over all hospitals, classified as such."""
    malignant = sum(told["protected rows"] for told in measures.values())
    benign = sum(told["rows"] for told in measures.values()) - malignant
    found = sum(told["recall"] * told["protected rows"] for told in measures.values())
    spared = sum(told["specificity"] * (told["rows"] - told["protected rows"]) for told in measures.values())
    return spared / benign, found / malignant
