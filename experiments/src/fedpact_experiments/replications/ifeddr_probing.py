"""iFedDR, Figures 3 and 6: linear probing on features of CIFAR-10, and how rarely iFedDR asks for more local work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise, product

import numpy as np

from fedpact.report import figures
from fedpact_experiments import datasets
from fedpact_experiments.replications import ifeddr, softmax
from fedpact_experiments.replications.findings import Claim, Findings, Verdict
from fedpact_experiments.replications.ifeddr import OPTIMUM, PAPER_IFEDDR, ROUNDS, Curve, Method
from fedpact_experiments.replications.page import Page
from fedpact_experiments.replications.rows import Rows
from fedpact_experiments.replications.runner import Asked, Replication, Run
from fedpact_experiments.replications.softmax import Accurate

PAGE = Page("ifeddr-probing")
BASELINES = ("fedavg", "scaffold", "fedprox")
#: How the owners' first steps of a round follow the requests for more: never, as in Section 6, twice at every request.
POLICIES = ("repeat", "total", "double")
#: Requests for more local work with "total", Figure 3 (right).
PAPER_REQUESTS = 10
#: Rounds of that run, Table 3.
PAPER_ROUNDS = 500
REQUESTS = "requests"


@dataclass(frozen=True)
class Size:
    """most: rounds and gradients per owner of a run; asking: of the runs that show requests, by policy

    steps, factors: grids
    """

    directions: int
    most: tuple[int, int]
    asking: tuple[tuple[int, int], ...]
    steps: tuple[int, ...]
    factors: tuple[float, ...]


FULL = Size(50, (250, 2500), ((500, 8000), (500, 30_000), (500, 8000)), (10, 100), (1.0, 0.1, 0.01))
QUICK = Size(8, (6, 60), 3 * ((8, 80),), (10,), (1.0,))


@cache
def _set_up(directions: int, folder: str | None) -> tuple[ifeddr.Setup, Curve]:
    return softmax.set_up("CIFAR-10 features", datasets.cifar10_features(folder), directions)


def plan(asked: Asked, size: Size) -> Iterator[Run[Curve]]:
    runs = ifeddr.Runs(partial(_set_up, size.directions, asked.folder), asked.say)
    yield runs.reference()
    yield from runs.of(_methods(size), ifeddr.until(*size.most))
    for policy, most in zip(POLICIES, size.asking, strict=True):
        asking = Method("ifeddr, paper", "ifeddr", policy, PAPER_IFEDDR | {"refinement": policy})
        yield from runs.of([asking], ifeddr.until(*most), REQUESTS)


def _methods(size: Size) -> Iterator[Method]:
    """Every method with its grid (Table 3)."""
    yield from ifeddr.grid(BASELINES, size.steps, ifeddr.parts_of_l(size.factors))
    for start, tau in product(("s", "p"), size.steps):
        yield Method(f"feddr, start {start}", "feddr", f"tau {tau}", ifeddr.FEDDR | {"steps": tau, "start": start})
    yield Method("ifeddr, paper", "ifeddr", "tau 10, start s", PAPER_IFEDDR)
    yield Method("ifeddr", "ifeddr", "automatic", {})


class Asking(Accurate):
    """A run that shows how often iFedDR asks for more."""

    @property
    def by_round(self) -> list[int]:
        """Requests in every round."""
        return [after - before - 1 for before, after in pairwise(self.run.exchanges)]

    @property
    def quarters(self) -> list[float]:
        """Requests a round in the four quarters of the run."""
        return [float(np.mean(part)) if len(part) else 0.0 for part in np.array_split(self.by_round, 4)]


def read(size: Size, rows: Rows[Curve]) -> Findings:
    runs = softmax.read_runs(rows.where(part=""), BASELINES)
    asking = [Asking(run) for run in rows.where(part=REQUESTS)]
    limits = [f"{policy} {most[0]} and {most[1]}" for policy, most in zip(POLICIES, size.asking, strict=True)]
    return Findings(
        [
            softmax.table(PAGE, rows.one(part=OPTIMUM), runs, size.most),
            PAGE.table("requests", asking, limits="; ".join(limits)),
        ],
        [*_claims(runs), *_claims_of_requests(*asking)],
        PAGE.differences(size=size),
        {
            "ifeddr-probing": softmax.figure("CIFAR-10 features", runs),
            "ifeddr-probing-requests": _figure_of_requests(asking),
        },
    )


def _claims(runs: list[Accurate]) -> Iterator[Claim]:
    """Figures 3 (left) and 6."""
    *others, paper, automatic = runs
    least = min(paper.tested, automatic.tested) + softmax.NEAR
    feddr = [other.run for other in others if other.run.label.startswith("feddr")]
    best = Accurate(softmax.choose_best(feddr))
    yield PAGE.claim("feddr", least >= best.tested, best=best, paper=paper, automatic=automatic)

    baselines = [other for other in others if other.run.label in BASELINES]
    told = ", ".join(f"{each.run.label} {each.tested:.1f} % ({each.run.setting})" for each in baselines)
    matches = least >= max(each.tested for each in baselines)
    yield PAGE.claim("baselines", matches, told=told, paper=paper, automatic=automatic)

    from_s = next(run for run in feddr if run.label == "feddr, start s")
    yield PAGE.claim("gap", None, runs, run=from_s, trend="has stalled" if from_s.stalled else "is still falling")


def _claims_of_requests(repeat: Asking, total: Asking, double: Asking) -> Iterator[Claim]:
    """Figure 3 (right)."""
    yield PAGE.claim("monotone", repeat.quarters == sorted(repeat.quarters), parts=repeat.quarters)

    rarely: Verdict = total.run.requests <= PAPER_REQUESTS
    if rarely and total.run.rounds < PAPER_ROUNDS:
        rarely = None
    yield PAGE.claim("rarely", rarely, requests=PAPER_REQUESTS, rounds=PAPER_ROUNDS, total=total, repeat=repeat)

    common = min(repeat.run.rounds, total.run.rounds)
    work = [each.run.gradients[common] for each in (repeat, total)]
    yield PAGE.claim("work", work[1] <= 1.01 * work[0], common=common, work=work)

    common = min(total.run.rounds, double.run.rounds)
    requests = [sum(each.by_round[:common]) for each in (total, double)]
    yield PAGE.claim("doubling", requests[1] < requests[0], common=common, requests=requests)


def _figure_of_requests(asking: list[Asking]) -> object:
    def drawn(y: str, values: dict[str, list[float]]) -> figures.Panel:
        lines = {label: ([float(k) for k in range(len(line))], line) for label, line in values.items()}
        return figures.Panel("iFedDR with the paper's settings", ROUNDS, y, lines, log_y=False)

    requests = {each.run.setting: [0.0, *np.cumsum(each.by_round, dtype=float)] for each in asking}
    work = {each.run.setting: each.run.gradients for each in asking}
    return figures.panels([drawn("requests for more, so far", requests), drawn("gradients per owner, so far", work)])


REPLICATION = Replication(PAGE, Curve, FULL, QUICK, plan, read)
