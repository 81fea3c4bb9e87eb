"""`fedpact bench networks`: networks under constraints at every owner, counted on all rows, beside pooled training."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

import fedpact as fp
from fedpact import data, tasks
from fedpact.data.partition import dirichlet
from fedpact.errors import DataError
from fedpact.functions import CountedRates, decisions_from_torch, from_torch
from fedpact.types import Matrix, Vector
from fedpact_experiments import datasets
from fedpact_experiments.bench.cooper import train_pooled
from fedpact_experiments.bench.output import PAGE, Output, Table, cell, printing
from fedpact_experiments.options import COUNT, DATA, among

TITLE = "Networks under constraints"
INTRODUCTION = """\
`stochastic-al` takes minibatch steps at the owners. Every bound is counted on all training rows of every owner, after
the solve, by the network itself. fedavg and the method without its constraints say what the bounds cost. Cooper
(Gallego-Posada et al. 2025) has all rows in one place: minibatch steps with momentum on the loss and the smoothed
rates, multipliers that follow the counted rates by gradient ascent.
"""
CAPTION = """\
worst: the lowest recall of a class, or the largest gap, at an owner; missed: bounds that do not hold by count, of all.
accuracy: of all training rows, of all test rows.
stationarity, violation: of the certificate, over all rows. gradients: of minibatches, of all owners together, that of
the objective and of the constraint counted as one. s: of CPU time.
"""
CONVEX_CAPTION = """\
Neyman-Pearson classification, whose optimum interior-point gives to 1e-9. distance: (objective - optimum) / optimum.
"""
#: Recall of every class at every owner that has so many rows of it.
RECALL = 0.72
FEWEST = 50
#: Gap in the recall of class 1 between men and women.
GAP = 0.02
#: What is counted holds or does not: no rate may be violated by a part of a row.
COUNTED = (1e-3, 1e-9)
ALPHA = 1.0
OWNERS = 10
FASHION_LAYERS = (784, 128, 10)
ADULT_HIDDEN = (64, 32)
SHARE = "{:.4f}".format
SMALL = "{:.1e}".format


@dataclass(frozen=True)
class Row:
    problem: str
    owners: int
    method: str
    status: str
    worst: float | None = None
    missed: str = ""
    train: float | None = None
    test: float | None = None
    stationarity: float | None = None
    violation: float | None = None
    distance: float | None = None
    exchanges: int | None = None
    gradients: int | None = None
    seconds: float | None = None
    note: str = ""


COLUMNS = {
    "problem": cell("problem"),
    "method": cell("method"),
    "worst": cell("worst", SHARE),
    "missed": cell("missed"),
    "accuracy, train": cell("train", SHARE),
    "accuracy, test": cell("test", SHARE),
    "stationarity": cell("stationarity", SMALL),
    "violation": cell("violation", SMALL),
    "exchanges": cell("exchanges"),
    "gradients": cell("gradients"),
    "s": cell("seconds", "{:.0f}".format),
    "status": cell("status"),
}
CONVEX_COLUMNS = {
    "problem": cell("problem"),
    "method": cell("method"),
    "distance": cell("distance", SMALL),
    "stationarity": cell("stationarity", SMALL),
    "violation": cell("violation", SMALL),
    "exchanges": cell("exchanges"),
    "s": cell("seconds", "{:.1f}".format),
    "status": cell("status"),
}


@dataclass(frozen=True, eq=False)
class Owner:
    """Rows of one owner and the rates it bounds: weights of decisions and constants, as `CountedRates` takes them."""

    X: Matrix
    y: NDArray[np.int64]
    weights: NDArray[np.float64]
    constant: Vector


@dataclass(frozen=True, eq=False)
class Setting:
    """A problem: owners, test rows, a module, and what a bounded value is in terms of its constraint."""

    name: str
    owners: dict[str, Owner]
    X: Matrix
    y: NDArray[np.int64]
    module: Any
    bound: float
    sign: int

    @property
    def rows(self) -> int:
        return sum(len(owner.y) for owner in self.owners.values())

    def problem(self, bounded: bool) -> fp.FederatedProblem:
        """The mean loss of all rows; the rates of every owner."""
        shares = []
        for name, owner in self.owners.items():
            part = len(owner.y) / self.rows
            objective = part * from_torch(self.module, loss, (owner.X, owner.y), hessian=False, dtype="float32")
            constraint = None
            if bounded:
                decisions = decisions_from_torch(self.module, owner.X, dtype="float32")
                rates = CountedRates(decisions, owner.weights, owner.constant)
                constraint = fp.Constraint(rates, fp.cones.Nonnegative(owner.constant.size))
            shares.append(fp.Share(objective, constraint, name=name))
        return fp.FederatedProblem(shares)

    def judge(self, w: Vector, **about: Any) -> Row:
        """Counted by the network itself."""
        excess = []
        right = 0.0
        missed = 0
        for owner in self.owners.values():
            decided = decisions_from_torch(self.module, owner.X, dtype="float32").count(w)
            axes = tuple(range(1, owner.weights.ndim))
            found = np.sum(owner.weights * decided, axis=axes) + owner.constant
            excess.append(found.max())
            missed += int(np.sum(found > 1e-9))
            right += float(np.sum(as_classes(decided) == owner.y))
        test = decisions_from_torch(self.module, self.X, dtype="float32").count(w)
        bounds = sum(owner.constant.size for owner in self.owners.values())
        return Row(
            problem=self.name,
            owners=len(self.owners),
            worst=self.bound + self.sign * float(max(excess)),
            missed=f"{missed} of {bounds}",
            train=right / self.rows,
            test=float(np.mean(as_classes(test) == self.y)),
            **about,
        )


def as_classes(decided: NDArray[np.float64]) -> NDArray[np.int64]:
    if decided.ndim == 1:
        return decided.astype(np.int64)
    return np.asarray(decided.argmax(axis=1))


def loss(outputs: Any, targets: Any) -> Any:
    from torch.nn import functional

    if outputs.shape[1] > 1:
        return functional.cross_entropy(outputs, targets)
    return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.to(outputs.dtype))


def network(layers: Sequence[int]) -> Any:
    """A ReLU network, started from a fixed seed."""
    import torch

    torch.manual_seed(0)
    parts: list[Any] = []
    for before, after in pairwise(layers):
        parts += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1])


def fashion(folder: str | None) -> Setting:
    """Fashion-MNIST among ten owners, each class dealt in shares of Dirichlet(1); recalls bounded from below."""
    held = datasets.fashion_mnist(folder)
    X = np.concatenate([rows for rows, _ in held.owners.values()])
    y = np.concatenate([labels for _, labels in held.owners.values()]).astype(np.int64)
    owners = {}
    for number, fold in enumerate(dirichlet(y, OWNERS, ALPHA, seed=0), 1):
        labels = y[fold]
        bounded = [k for k in range(10) if np.sum(labels == k) >= FEWEST]
        weights = np.zeros((len(bounded), len(fold), 10))
        for line, k in zip(weights, bounded, strict=True):
            line[labels == k, k] = -1 / np.sum(labels == k)
        constant = np.full(len(bounded), RECALL)
        owners[f"owner {number}"] = Owner(X[fold], labels, weights, constant)
    return Setting("fashion", owners, held.test.X, held.test.y, network(FASHION_LAYERS), RECALL, -1)


def adult(folder: str | None, hidden: Sequence[int]) -> Setting:
    """Adult among six owners by workclass; the gap in recall between men and women bounded."""
    held = datasets.adult_by_workclass(folder)
    everyone = np.concatenate([table.X for table in held.train.values()])
    owners = {}
    for name, table in held.train.items():
        assert table.group is not None
        means = []
        for group in (0, 1):
            members = (table.y == 1) & (table.group == group)
            means.append(members / members.sum())
        gap = means[1] - means[0]
        X = data.standardize(table.X, like=everyone)
        owners[name] = Owner(X, table.y.astype(np.int64), np.stack([gap, -gap]), np.full(2, -GAP))
    X = np.concatenate([data.standardize(table.X, like=everyone) for table in held.test.values()])
    y = np.concatenate([table.y for table in held.test.values()])
    name = "adult" if hidden else "adult, linear"
    return Setting(name, owners, X, y, network((X.shape[1], *hidden, 1)), GAP, 1)


def federated(setting: Setting, passes: int) -> Iterator[Row]:
    """With and without the bounds; FedAvg with as many minibatch gradients."""
    spent = 0
    for method, bounded in (("stochastic-al", True), ("the same, unbounded", False)):
        begun = time.process_time()
        answer = fp.solve(setting.problem(bounded), "stochastic-al", tol=COUNTED, passes=passes, max_rounds=10**5)
        seconds = time.process_time() - begun
        spent = sum(record.gradients for record in answer.history.outer)
        yield setting.judge(
            answer.w,
            method=method,
            status=answer.status,
            stationarity=answer.certificate.stationarity,
            violation=answer.certificate.violation,
            exchanges=answer.rounds,
            gradients=spent,
            seconds=seconds,
        )
    begun = time.process_time()
    steps = 20
    limit = spent // (steps * len(setting.owners)) + 4
    answer = fp.solve(
        setting.problem(False), "fedavg", steps=steps, batch_size=64, step_size=0.1, max_rounds=limit, tol=1e-9
    )
    yield setting.judge(
        answer.w,
        method="fedavg",
        status=answer.status,
        stationarity=answer.certificate.stationarity,
        exchanges=answer.rounds,
        gradients=limit * steps * len(setting.owners),
        seconds=time.process_time() - begun,
    )


def pooled(setting: Setting, passes: int) -> Row:
    begun = time.process_time()
    rates = [(owner.X, owner.y, owner.weights, owner.constant) for owner in setting.owners.values()]
    w = train_pooled(setting.module, loss, rates, passes)
    return setting.judge(w, method="Cooper, pooled rows", status="", seconds=time.process_time() - begun)


def networks_rows(names: Sequence[str], passes: int, output: Output) -> Iterator[Row]:
    for name in names:
        try:
            settings = {
                "fashion": lambda: [fashion(output.folder)],
                "adult": lambda: [adult(output.folder, ADULT_HIDDEN), adult(output.folder, ())],
            }[name]()
        except DataError as error:
            output.skip(name, error)
            continue
        for setting in settings:
            yield from federated(setting, passes)
        yield pooled(settings[0], passes)


def convex_rows() -> Iterator[Row]:
    problem = tasks.neyman_pearson(data.neyman_pearson(n=5, seed=0), bound=0.2)
    optimum = fp.solve(problem, "interior-point", tol=1e-9).objective
    for participation in (1.0, 0.6):
        begun = time.process_time()
        answer = fp.solve(problem, "stochastic-al", tol=1e-3, passes=100, batch_size=16, participation=participation)
        yield Row(
            problem="neyman-pearson",
            owners=5,
            method=f"{participation:.0%} of the owners a round",
            status=answer.status,
            distance=abs(answer.objective - optimum) / optimum,
            stationarity=answer.certificate.stationarity,
            violation=answer.certificate.violation,
            exchanges=answer.rounds,
            seconds=time.process_time() - begun,
        )


@click.command()
@among("--problems", ["convex", "adult", "fashion"])
@click.option("--passes", type=COUNT, default=25, show_default=True, help="Over all rows, of every method.")
@printing(Row, PAGE, DATA)
def networks(problems: Sequence[str], passes: int, output: Output) -> None:
    """Networks of up to 1e5 parameters under counted bounds at every owner, and a convex problem with minibatches.

    \b
    fedpact bench networks --data DIR --page networks.md
    fedpact bench networks --problems convex
    """
    if missing := [name for name in ("torch", "cooper") if importlib.util.find_spec(name) is None]:
        raise click.ClickException(f"this needs {' and '.join(missing)}: pip install -e 'experiments[networks]'")
    import torch

    torch.set_num_threads(1)
    tables = []
    if "convex" in problems:
        tables.append(Table(convex_rows(), CONVEX_COLUMNS, CONVEX_CAPTION, title="A convex problem with minibatches"))
    if named := [name for name in problems if name != "convex"]:
        rows = networks_rows(named, passes, output)
        tables.append(Table(rows, COLUMNS, CAPTION, text=("method", "missed", "status"), title="Networks"))
    output.report(*tables, title=TITLE, introduction=INTRODUCTION)
