"""Runs of iFedDR's experiments: what was measured after every round, and what the owners had spent until then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fedpact.functions import Vector
from fedpact.problem import FederatedProblem
from fedpact.report import figures
from fedpact_experiments.replications.findings import Verdict
from fedpact_experiments.replications.runner import Run
from fedpact_experiments.trace import Enough, Point, announce_progress, record_trace

WEIGHT = 1e-5  # of the squared norm, Tables 2 to 4
SIGMA = float(np.sqrt(0.99))
#: f - f* at which a run has arrived: what the tables count to, and what "converges" needs.
ARRIVED = 1e-4
#: f - f* below which a run may end: rounding is near.
DONE = 1e-10
#: Trend of a run that ended before it arrived or stalled: what it shows is not what it would come to.
FALLING = "still falling"
#: A run has stalled, and ends, if in so many rounds ...
PATIENCE = 100
#: ... f - f* does not fall below this fraction of what it was.
PROGRESS = 0.99
#: The series of a run that ends it, and by which runs are compared.
GAP = "f - f*"
#: The part of the row that holds f* and what is measured there.
OPTIMUM = "optimum"

#: Table 2: gamma = lambda = 1, sigma^2 = 0.99, 10 gradient steps of length 1 / (L_i + 1 / gamma) before refinement.
PAPER_IFEDDR: dict[str, Any] = {
    "gamma": 1.0,
    "memory": 0,
    "relaxation": 1.0,
    "error": SIGMA,
    "steps": 10,
    "local_solver": "gradient",
    "start": "s",
    "refinement": "repeat",
}
#: FedDR with the same settings; steps and start are the experiment's.
FEDDR: dict[str, Any] = {"gamma": 1.0, "relaxation": 1.0, "local_solver": "gradient"}


@dataclass(frozen=True)
class Curve:
    """One run; lists have one entry a round, the start first.

    part, data, label, setting: which run of which part of the experiment
    gradients: per owner, mean, so far                    seen: what was measured -> its values
    """

    part: str
    data: str
    label: str
    setting: str
    owners: int
    dim: int
    exchanges: list[int]
    gradients: list[float]
    seen: dict[str, list[float]]

    @property
    def title(self) -> str:
        return f"{self.label} ({self.setting})"

    @property
    def rounds(self) -> int:
        return len(self.exchanges) - 1

    @property
    def spent(self) -> float:
        """Gradients per owner, in all."""
        return self.gradients[-1]

    @property
    def work(self) -> float:
        """Gradients per owner and round."""
        return self.spent / max(self.rounds, 1)

    @property
    def requests(self) -> int:
        """Exchanges that only asked iFedDR's owners to refine; one exchange is the first look."""
        return self.exchanges[-1] - self.rounds - 1

    @property
    def last(self) -> float:
        """f - f* at the end; infinite where the run left for infinity."""
        value = self.seen[GAP][-1]
        return value if np.isfinite(value) else np.inf

    def first(self, reached: Callable[[float], bool], series: str = GAP) -> int | None:
        """The first round in which the series is there; None: never."""
        return next((k for k, value in enumerate(self.seen[series]) if reached(value)), None)

    @property
    def arrived(self) -> int | None:
        return self.first(lambda gap: gap <= ARRIVED)

    @property
    def stalled(self) -> bool:
        return self.last > DONE and idle(self.seen[GAP])

    @property
    def converges(self) -> Verdict:
        """True where it arrived, False where it stalled before, None where it ended earlier than either."""
        if self.arrived is not None:
            return True
        return False if self.stalled else None

    @property
    def trend(self) -> str:
        if self.last <= DONE:
            return "arrived"
        return "stalled" if self.stalled else FALLING

    @property
    def has_stalled(self) -> str:
        return "yes" if self.stalled else "no"

    @property
    def reached(self) -> tuple[str, str, str]:
        """Rounds, exchanges and gradients per owner until it arrived."""
        if self.arrived is None:
            return "never", "", ""
        return str(self.arrived), str(self.exchanges[self.arrived]), f"{self.gradients[self.arrived]:.0f}"

    @property
    def to_target(self) -> str:
        return f"not in {self.rounds}" if self.arrived is None else str(self.arrived)

    @property
    def rank(self) -> tuple[float, float]:
        """Runs compare by the rounds to ARRIVED, and where they never do by how near they came."""
        return (np.inf if self.arrived is None else self.arrived, self.last)

    def end(self, series: str) -> float:
        """Mean over the last quarter of the rounds."""
        values = self.seen[series]
        return float(np.mean(values[-max(len(values) // 4, 1) :]))


def idle(gaps: Sequence[float]) -> bool:
    """No progress over the last PATIENCE rounds, and not because it only began?"""
    return len(gaps) > PATIENCE and not gaps[-1] < PROGRESS * gaps[-1 - PATIENCE]


def until(rounds: int, work: float) -> Enough:
    """When a run ends: arrived, stalled, or after so many rounds or gradients per owner."""

    def enough(points: Sequence[Point]) -> bool:
        last = points[-1]
        if last.rounds >= rounds or np.mean(last.gradients) >= work or last.measured <= DONE:
            return True
        return idle([point.measured for point in points[-1 - PATIENCE :]])

    return enough


# ---------------------------------------------------------------------------------------------------------- making runs


@dataclass(frozen=True, eq=False)
class Setup:
    """A problem, and what is measured after every round; the first series decides when a run ends."""

    data: str
    problem: FederatedProblem
    measures: Mapping[str, Callable[[Vector], float]]

    def found(self, part: str, values: Mapping[str, float]) -> Curve:
        """Numbers that no run of the comparison gives."""
        return self.curve(part, "", "", [], {name: [value] for name, value in values.items()})

    def curve(
        self, part: str, label: str, setting: str, points: Sequence[Point], seen: dict[str, list[float]]
    ) -> Curve:
        dim = self.problem.dim
        assert dim is not None
        gradients = [float(np.mean(point.gradients)) for point in points]
        exchanges = [point.exchanges for point in points]
        return Curve(part, self.data, label, setting, len(self.problem.shares), dim, exchanges, gradients, seen)


class Method(NamedTuple):
    """A method with options, and what the tables call it."""

    label: str
    method: str
    setting: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Runs:
    """Runs on one problem.

    set_up: the problem, and what is found at its optimum; called when a run is made, so that a page can be written
            from finished runs without it
    data:   stands before the names of the runs
    """

    set_up: Callable[[], tuple[Setup, Curve]]
    say: Callable[[str], None]
    data: str = ""

    def reference(self) -> Run[Curve]:
        return Run(self._name(OPTIMUM), lambda: [self.set_up()[1]])

    def of(self, methods: Iterable[Method], enough: Enough, part: str = "") -> Iterator[Run[Curve]]:
        for one in methods:
            name = self._name(part, one.label, one.setting)
            yield Run(name, partial(self._make, one, part, announce_progress(name, self.say, enough)))

    def _name(self, *parts: str) -> str:
        return ", ".join(text for text in (self.data, *parts) if text)

    def _make(self, one: Method, part: str, enough: Enough) -> list[Curve]:
        setup, _ = self.set_up()
        seen: dict[str, list[float]] = {series: [] for series in setup.measures}

        def look(w: Vector) -> float:
            for series, measure in setup.measures.items():
                seen[series].append(measure(w))
            deciding = next(iter(seen.values()))
            return deciding[-1]

        trace = record_trace(setup.problem, one.method, look, enough, **one.options)
        return [setup.curve(part, one.label, one.setting, trace.points, seen)]


def grid(methods: Iterable[str], steps: Iterable[int], lengths: Mapping[str, dict[str, Any]]) -> Iterator[Method]:
    """Baselines with every number of steps and every step length (what it is called -> its options)."""
    for method, tau, (length, options) in product(methods, steps, lengths.items()):
        gamma = {"gamma": 1.0} if method == "fedprox" else {}
        yield Method(method, method, f"tau {tau}, eta {length}", {"steps": tau} | options | gamma)


def parts_of_l(factors: Iterable[float]) -> dict[str, dict[str, Any]]:
    """Step lengths factor / L_i."""
    names = {factor: "1/L" if factor == 1 else f"1/{1 / factor:.0f}L" for factor in factors}
    return {name: {"step_rule": "own", "step_factor": factor} for factor, name in names.items()}


# -------------------------------------------------------------------------------------------------------------- drawing

ROUNDS = "rounds (server steps)"
GRADIENTS = "gradients per owner (client steps)"


def panel(title: str, x: str, series: str, runs: Mapping[str, Curve], first: int = 0, **scales: Any) -> figures.Panel:
    """A series of some runs, by label, against rounds or gradients per owner, from a round on."""

    def line(run: Curve) -> tuple[Sequence[float], Sequence[float]]:
        by = range(run.rounds + 1) if x == ROUNDS else run.gradients
        return by[first:], run.seen[series][first:]

    return figures.Panel(title, x, series, {label: line(run) for label, run in runs.items()}, **scales)
