"""iFedDR, Figure 7: Fashion-MNIST where every owner has the images of one class, by softmax regression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

from fedpact_experiments import datasets
from fedpact_experiments.replications import ifeddr, softmax
from fedpact_experiments.replications.findings import Findings, Verdict
from fedpact_experiments.replications.ifeddr import FALLING, OPTIMUM, Curve, Method
from fedpact_experiments.replications.page import Page
from fedpact_experiments.replications.rows import Rows
from fedpact_experiments.replications.runner import Asked, Replication, Run

PAGE = Page("ifeddr-fashion")
BASELINES = ("fedavg", "fedprox")
#: Local steps of iFedDR before refinement, Table 5.
STEPS = 50


@dataclass(frozen=True)
class Size:
    """images: of a class; most: rounds and gradients per owner of a run; steps, etas: grids (Table 5)"""

    images: int
    directions: int
    most: tuple[int, int]
    steps: tuple[int, ...]
    etas: tuple[float, ...]


FULL = Size(300, 50, (40, 12_000), (50, 100, 200), (0.5, 0.1, 0.01))
QUICK = Size(30, 8, (3, 300), (50,), (0.1,))


@cache
def _set_up(size: Size, folder: str | None) -> tuple[ifeddr.Setup, Curve]:
    given = datasets.fashion_mnist(folder)
    owners = {name: (X[: size.images], y[: size.images]) for name, (X, y) in given.owners.items()}
    few = datasets.OwnersAndTest(owners, given.test, given.classes)
    return softmax.set_up("Fashion-MNIST", few, size.directions)


def plan(asked: Asked, size: Size) -> Iterator[Run[Curve]]:
    runs = ifeddr.Runs(partial(_set_up, size, asked.folder), asked.say)
    yield runs.reference()
    yield from runs.of(_methods(size), ifeddr.until(*size.most))


def _methods(size: Size) -> Iterator[Method]:
    """Every method with its grid (Table 5)."""
    yield from ifeddr.grid(BASELINES, size.steps, {f"{eta:g}": {"step_size": eta} for eta in size.etas})
    for start, tau in (*(("s", tau) for tau in size.steps), ("p", STEPS)):
        yield Method(f"feddr, start {start}", "feddr", f"tau {tau}", ifeddr.FEDDR | {"steps": tau, "start": start})
    yield Method("ifeddr, paper", "ifeddr", f"tau {STEPS}, start s", ifeddr.PAPER_IFEDDR | {"steps": STEPS})
    yield Method("ifeddr", "ifeddr", "automatic", {})


def read(size: Size, rows: Rows[Curve]) -> Findings:
    runs = softmax.read_runs(rows.where(part=""), BASELINES)
    *others, paper, automatic = runs
    matches: Verdict = min(paper.tested, automatic.tested) >= max(other.tested for other in others) - softmax.NEAR
    if any(run.run.trend == FALLING for run in runs):
        matches = None
    return Findings(
        [softmax.table(PAGE, rows.one(part=OPTIMUM), runs, size.most)],
        [PAGE.claim("accuracy", matches, runs, size=size), PAGE.claim("gap", None, runs)],
        PAGE.differences(size=size),
        {"ifeddr-fashion": softmax.figure("Fashion-MNIST", runs)},
    )


REPLICATION = Replication(PAGE, Curve, FULL, QUICK, plan, read)
