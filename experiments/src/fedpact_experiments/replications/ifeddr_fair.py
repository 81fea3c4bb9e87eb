"""iFedDR, Figure 4: fair classification as a game, on features of CIFAR-10; accuracy on the worst class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

from fedpact import tasks
from fedpact.report import figures
from fedpact.solve import solve
from fedpact_experiments import datasets
from fedpact_experiments.replications import ifeddr, softmax
from fedpact_experiments.replications.findings import Claim, Findings, Verdict
from fedpact_experiments.replications.ifeddr import GRADIENTS, OPTIMUM, PAPER_IFEDDR, ROUNDS, WEIGHT, Curve, Method
from fedpact_experiments.replications.page import Page
from fedpact_experiments.replications.rows import Rows
from fedpact_experiments.replications.runner import Asked, Replication, Run
from fedpact_experiments.trace import natural_residual

PAGE = Page("ifeddr-fair")
SMOOTHING = 0.1  # Table 4
#: Table 4, with our corrections; local steps are extragradient ones: gradient steps need not converge in a game.
LOCAL: dict[str, Any] = {"local_solver": "extragradient"}
FEDDR: dict[str, Any] = {"gamma": 1.0} | LOCAL
#: Algorithm I itself: its rounds are not accelerated.
PLAIN: dict[str, Any] = {"memory": 0}
#: Series of a run, and of the model that minimises the mean loss of the owners: no fairness.
WORST = "worst-class accuracy"
RESIDUAL = "residual"
MEAN = "mean accuracy"
#: What one test image of a class is worth.
IMAGE = 0.01
#: The residual of the game at which a run has arrived.
ARRIVED = 1e-3


@dataclass(frozen=True)
class Size:
    """rounds: server steps (K of Table 4); directions: of the features that are kept; feddr, fedprox: grids of tau

    tol: of the model without fairness
    """

    rounds: int
    directions: int
    feddr: tuple[int, ...]
    fedprox: tuple[int, ...]
    factors: tuple[float, ...]
    tol: float


FULL = Size(100, 50, (10, 100, 1000), (10, 100), (1.0, 0.1, 0.01), 1e-4)
QUICK = Size(2, 8, (10,), (10,), (1.0,), 1e-2)


@cache
def _set_up(size: Size, folder: str | None) -> tuple[ifeddr.Setup, Curve]:
    given = datasets.cifar10_features(folder)
    owners, test = softmax.reduce_dimension(given, size.directions)
    classes = len(given.classes)
    game = tasks.fair_classification(owners, classes, weight=WEIGHT, smoothing=SMOOTHING)
    measures = {
        WORST: lambda w: tasks.worst_class_accuracy(w, test, given.test.y, classes),
        RESIDUAL: natural_residual(game),
    }
    setup = ifeddr.Setup("CIFAR-10 features", game, measures)
    usual = solve(tasks.softmax_regression(owners, classes, WEIGHT), "ifeddr", tol=size.tol)
    by_class = tasks.class_accuracies(usual.w, test, given.test.y, classes)
    return setup, setup.found(OPTIMUM, {WORST: float(by_class.min()), MEAN: float(by_class.mean())})


def plan(asked: Asked, size: Size) -> Iterator[Run[Curve]]:
    runs = ifeddr.Runs(partial(_set_up, size, asked.folder), asked.say)
    yield runs.reference()
    yield from runs.of(_methods(size), lambda points: points[-1].rounds >= size.rounds)


def _methods(size: Size) -> Iterator[Method]:
    for tau, factor in product(size.fedprox, size.factors):
        options = {"gamma": 1.0, "steps": tau, "step_factor": factor}
        yield Method("fedprox", "fedprox", f"tau {tau}, eta {factor:g}/(L + 1)", options)
    for start, tau in product(("s", "p"), size.feddr):
        yield Method(f"feddr, start {start}", "feddr", f"tau {tau}", FEDDR | {"steps": tau, "start": start})
    yield Method("ifeddr, paper", "ifeddr", "tau 10, start s", PAPER_IFEDDR | LOCAL)
    yield Method("ifeddr, extragradient", "ifeddr", "automatic", PLAIN | LOCAL)
    yield Method("ifeddr", "ifeddr", "automatic", PLAIN)


@dataclass(frozen=True, eq=False)
class Fair:
    """A run. best: the highest accuracy on the worst class of all runs"""

    run: Curve
    best: float

    @property
    def worst(self) -> float:
        return self.run.end(WORST)

    @property
    def highest(self) -> float:
        return max(self.run.seen[WORST])

    @property
    def residual(self) -> float:
        return self.run.seen[RESIDUAL][-1]

    @property
    def exchanges(self) -> int:
        return self.run.exchanges[-1]

    @property
    def needed(self) -> str:
        """Rounds to 95 % of the best."""
        there = self.run.first(lambda accuracy: accuracy >= 0.95 * self.best, WORST)
        return "never" if there is None else str(there)


def read(size: Size, rows: Rows[Curve]) -> Findings:
    seen = rows.where(part="")
    best = max(run.end(WORST) for run in seen)
    runs = [Fair(run, best) for run in seen]
    average = rows.one(part=OPTIMUM).seen
    return Findings(
        [PAGE.table("compared", runs, size=size, worst=average[WORST][0], mean=average[MEAN][0])],
        list(_claims(runs)),
        PAGE.differences(size=size),
        {"ifeddr-fair": _figure(runs)},
    )


def _claims(runs: list[Fair]) -> Iterator[Claim]:
    from_s, from_p = ([each for each in runs if each.run.label == f"feddr, start {start}"] for start in ("s", "p"))
    best = max([*from_s, *from_p], key=lambda each: each.worst)
    paper, _, automatic = runs[-3:]
    matches = min(automatic.worst, paper.worst) >= best.worst - IMAGE
    yield PAGE.claim("matches", matches, automatic=automatic, paper=paper, best=best, image=IMAGE)

    def told(feddr: list[Fair]) -> str:
        return ", ".join(f"{each.run.setting}: {each.worst:.3f} (residual {each.residual:.0e})" for each in feddr)

    arrived = _only_the_last_arrived(from_s, best.worst)
    yield PAGE.claim("thousand", arrived, from_s=told(from_s), from_p=told(from_p), arrived=ARRIVED)


def _only_the_last_arrived(feddr: list[Fair], best: float) -> Verdict:
    """Has the longest number of steps, and no other, arrived, with the best accuracy up to an image?

    None where none has arrived: runs that ended early neither show the claim nor refute it.
    """
    if len(feddr) < 3 or all(each.residual > ARRIVED for each in feddr):
        return None
    *shorter, longest = feddr
    return all(each.residual > ARRIVED for each in shorter) and longest.worst >= best - IMAGE


def _figure(runs: list[Fair]) -> object:
    best = max((each for each in runs if each.run.label == "fedprox"), key=lambda each: each.worst)
    shown = [best.run, *(each.run for each in runs if each.run.label != "fedprox")]
    lines = {run.title: run for run in shown}
    return figures.panels(
        [
            ifeddr.panel("fair classification", x, WORST, lines, log_x=x == GRADIENTS, log_y=False)
            for x in (ROUNDS, GRADIENTS)
        ]
    )


REPLICATION = Replication(PAGE, Curve, FULL, QUICK, plan, read)
