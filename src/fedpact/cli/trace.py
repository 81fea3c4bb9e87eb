"""Where a method was after every round, and what its owners had spent until then: read off the messages of the server.

A method shows its points only in what it sends down, so an engine that listens sees every one of them, judged or not,
and the counts are evaluations that took place, not those that a method reports about itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedpact.cli.bench_measure import Counts, counted
from fedpact.engines import InProcess
from fedpact.federation import Fleet, Order
from fedpact.functions import Vector
from fedpact.problem import FederatedProblem
from fedpact.solve import solve
from fedpact.solvers import Solution
from fedpact.solvers.consensus.local_steps import LocalSteps

#: Exchanges that no method of a trace comes near: other limits end it.
ENDLESS = 10**9
#: Tolerance that no method of a trace comes near.
TINY = 1e-15


@dataclass(frozen=True)
class Point:
    """The server's point after some rounds. gradients, hessians: evaluations by owner until then, in owner order."""

    rounds: int
    exchanges: int
    gradients: tuple[int, ...]
    hessians: tuple[int, ...]
    measured: float


@dataclass(frozen=True, eq=False)
class Trace:
    """points: the start and the point after every round; over: was its time over?"""

    points: Sequence[Point]
    solution: Solution | None
    seconds: float
    over: bool

    def first(self, target: float) -> Point | None:
        """The first point that measures at most this."""
        return next((point for point in self.points if point.measured <= target), None)


@dataclass
class Listening:
    """An engine as `InProcess`, which notes the point of every round before it is sent."""

    measure: Callable[[Vector], float]
    counts: Sequence[Counts]
    enough: Callable[[Sequence[Point]], bool]
    budget: float
    points: list[Point] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    stopped: bool = False
    over: bool = False

    def open(self, shares: Any, folder: Path | None = None) -> Fleet:
        fleet = InProcess().open(shares, folder)
        ask = fleet.ask

        def listened(step: Any, orders: Any, owners: Any = None) -> Any:
            sent = _point(orders)
            if sent is not None and not self.stopped:
                self._note(sent, fleet.ledger.rounds)
            return ask(step, orders, owners)

        setattr(fleet, "ask", listened)  # noqa: B010 - one fleet listens, not the class
        return fleet

    def _note(self, sent: Vector, exchanges: int) -> None:
        gradients, hessians = ([getattr(c, name) for c in self.counts] for name in ("gradients", "hessians"))
        point = Point(len(self.points), exchanges, tuple(gradients), tuple(hessians), self.measure(sent))
        self.points.append(point)
        self.over = time.perf_counter() - self.began > self.budget
        if self.over or self.enough(self.points):
            self.stopped = True
            raise KeyboardInterrupt  # as the user would: the method ends with what it has


def traced(
    problem: FederatedProblem,
    method: str,
    measure: Callable[[Vector], float],
    enough: Callable[[Sequence[Point]], bool],
    *,
    tol: float = TINY,
    budget: float = np.inf,
    **options: Any,
) -> Trace:
    """Run a method until its points are enough, it ends by itself, or its seconds are over. Ctrl-C is raised again."""
    asked, counts = counted(problem)
    engine = Listening(measure, counts, enough, budget)
    answer: Solution | None = None
    try:
        answer = solve(asked, method, engine=engine, tol=tol, max_rounds=ENDLESS, **options)
    except KeyboardInterrupt:
        if not engine.stopped:
            raise
    if answer is not None and answer.reason.startswith("interrupted") and not engine.stopped:
        raise KeyboardInterrupt
    return Trace(engine.points, answer, time.perf_counter() - engine.began, engine.over)


def announced(
    label: str, say: Callable[[str], None], enough: Callable[[Sequence[Point]], bool], every: float = 30.0
) -> Callable[[Sequence[Point]], bool]:
    """`enough`, which says where the run is at its beginning and about every so many seconds."""
    say(label)
    told = time.monotonic()

    def asked(points: Sequence[Point]) -> bool:
        nonlocal told
        if time.monotonic() - told >= every:
            told = time.monotonic()
            say(f"{label}: round {points[-1].rounds}, {points[-1].measured:.4g}")
        return enough(points)

    return asked


def natural_residual(problem: FederatedProblem) -> Callable[[Vector], float]:
    """|w - prox_h(w - sum_i F_i(w))|, zero at solutions only."""

    def measure(w: Vector) -> float:
        image = np.sum([share.objective.gradient(w) for share in problem.shares if share.objective], axis=0)
        return float(np.linalg.norm(w - problem.regularizer.prox(w - image, 1.0)))

    return measure


def gap(problem: FederatedProblem, optimum: float) -> Callable[[Vector], float]:
    """sum_i f_i(w) + h(w) less the optimum."""

    def measure(w: Vector) -> float:
        values = [share.objective.value(w) for share in problem.shares if share.objective]
        return sum(values) + problem.regularizer.value(w) - optimum

    return measure


def _point(orders: Order | Sequence[Order]) -> Vector | None:
    """The server's point in an order of a round; None in all other orders."""
    order = orders if isinstance(orders, Order) else orders[0]
    found = order.w if isinstance(order, LocalSteps) else getattr(order, "p", None)
    return found if isinstance(found, np.ndarray) else None
