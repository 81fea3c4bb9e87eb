"""`fedpact bench constrained-network`: what owners evaluate for 661 parameters with a constraint at each of them."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

import fedpact as fp
from fedpact.errors import install
from fedpact.types import Matrix, Vector
from fedpact_experiments.bench.output import PAGE, SEED, Output, Table, cell, printing
from fedpact_experiments.counting import count_evaluations
from fedpact_experiments.options import TOLERANCE, among

CAPTION = """\
Layers 10-20-20-1, d = 661, five owners of 200 rows; the mean loss of class 0 over all owners, that of class 1 at most
0.3 at every owner, 0.001 / 2 |w|^2. Hessian: what from_torch gives. gradients, Hessians: evaluations of an owner, of
objective and constraint separately, each on all rows of its class. evaluations: in gradients, where a Gauss-Newton
matrix counts as one (the network has one output) and a product with a Hessian as two. CPU s: of this process.
"""
COLUMNS = {
    "activation": cell("activation"),
    "method": cell("method"),
    "Hessian": cell("hessian"),
    "exchanges": cell("exchanges"),
    "gradients": cell("gradients"),
    "Hessians": cell("hessians"),
    "evaluations": cell("evaluations"),
    "CPU s": cell("seconds", "{:.0f}".format),
    "stationarity": cell("stationarity", "{:.1e}".format),
    "feasibility": cell("feasibility", "{:.1e}".format),
    "objective": cell("objective", "{:.4f}".format),
    "status": cell("status"),
}
OWNERS = 5
ROWS = 200
BOUND = 0.3
RIDGE = 1e-3
ACTIVATIONS = ("Tanh", "ReLU")
#: Name of a row -> method, and the Hessian that from_torch is asked for.
WAYS: dict[str, tuple[str, bool | str | None]] = {
    "auto": ("auto", None),
    "newton-al": ("newton-al", "gauss-newton"),
    "accelerated": ("accelerated", False),
    "proximal-al": ("proximal-al", False),
}


@dataclass(frozen=True)
class Row:
    activation: str
    method: str
    hessian: str
    status: str
    exchanges: int
    gradients: int
    hessians: int
    evaluations: int
    seconds: float
    stationarity: float
    feasibility: float
    objective: float
    note: str = ""


def tables(seed: int) -> dict[str, tuple[Matrix, Vector]]:
    """Class 1 lies inside a circle of two of ten columns, bent by two others; owners differ in their means."""
    rng = np.random.default_rng(seed)
    found = {}
    for i in range(1, OWNERS + 1):
        X = rng.standard_normal((ROWS, 10)) + 0.3 * rng.standard_normal(10)
        score = 4 * (1.5 - np.linalg.norm(X[:, :2], axis=1)) + X[:, 2] * X[:, 3]
        found[f"owner {i}"] = X, (rng.random(ROWS) < 1 / (1 + np.exp(-score))).astype(float)
    return found


def build(activation: str, hessian: bool | str | None, seed: int) -> fp.FederatedProblem:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    bend = getattr(torch.nn, activation)
    layers = (torch.nn.Linear(10, 20), bend(), torch.nn.Linear(20, 20), bend(), torch.nn.Linear(20, 1))
    network = torch.nn.Sequential(*layers)

    def loss(outputs: Any, targets: Any) -> Any:
        return torch.nn.functional.binary_cross_entropy_with_logits(outputs.squeeze(-1), targets)

    def of_class(X: Matrix, y: Vector, label: int) -> fp.functions.Function:
        return fp.functions.from_torch(network, loss, (X[y == label], y[y == label]), hessian=hessian)

    def bounded(X: Matrix, y: Vector) -> fp.Constraint:
        return fp.Constraint(fp.functions.as_map(of_class(X, y, 1) - BOUND), fp.cones.Nonnegative(1))

    shares = [fp.Share(of_class(X, y, 0) / OWNERS, bounded(X, y), name=name) for name, (X, y) in tables(seed).items()]
    return fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(RIDGE))


def measure(activation: str, way: str, tol: float, most: int, seed: int) -> Row:
    method, hessian = WAYS[way]
    problem = build(activation, hessian, seed)
    counted, counts = count_evaluations(problem)
    began = time.process_time()
    found = fp.solve(counted, method, tol=tol, max_rounds=most)
    seconds = time.process_time() - began
    gradients = max(owner.gradients for owner in counts)
    hessians = max(owner.hessians for owner in counts)
    certificate = fp.certify(problem, found.w, found.multipliers)
    gauss_newton = hessian is not False
    return Row(
        activation=activation,
        method=way,
        hessian="Gauss-Newton" if gauss_newton else "none",
        status=found.status,
        exchanges=found.rounds,
        gradients=gradients,
        hessians=hessians,
        evaluations=gradients + (1 if gauss_newton else 2) * hessians,
        seconds=seconds,
        stationarity=certificate.stationarity,
        feasibility=certificate.feasibility,
        objective=found.objective,
    )


@click.command()
@among("--activations", ACTIVATIONS)
@among("--ways", tuple(WAYS), ["auto", "newton-al"])
@click.option("--tol", type=TOLERANCE, default=1e-3, show_default=True, help="Tolerance of the certificate.")
@click.option("--most", type=click.IntRange(8), default=1000, show_default=True, help="Exchanges of a solve.")
@printing(Row, SEED, PAGE)
def constrained_network(activations: Sequence[str], ways: Sequence[str], tol: float, most: int, output: Output) -> None:
    """A network of 661 parameters with a constraint at each of five owners: what an owner evaluates.

    \b
    fedpact bench constrained-network
    fedpact bench constrained-network --activations Tanh --ways auto,accelerated,proximal-al --most 5000
    """
    if importlib.util.find_spec("torch") is None:
        raise click.ClickException(f"this needs the package torch; {install('torch')}")

    def rows() -> Iterator[Row]:
        for activation in activations:
            for way in ways:
                row = measure(activation, way, tol, most, output.seed)
                click.echo(f"measured: {row}", err=True)
                yield row

    output.report(
        Table(rows(), COLUMNS, CAPTION, title="661 parameters", section=lambda row: row.activation),
        title="A network under constraints",
        introduction="What an owner evaluates until the certificate of a constrained network is met.",
    )
