"""Where a method was after every round, and what its owners had spent until then: read off the messages of the server.

A session that listens sees every point that a method sends down, judged or not,
and the counts are evaluations that took place, not those that a method reports about itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpact.federation import Answers, Order, Session
from fedpact.functions import Vector
from fedpact.problem import FederatedProblem
from fedpact.solve import solve
from fedpact.solvers import Solution
from fedpact.solvers.consensus.local_steps import LocalSteps
from fedpact_experiments.counting import Counts, counted

#: Exchanges that no method of a trace comes near: other limits end it.
ENDLESS = 10**9
#: Tolerance that no method of a trace comes near.
TINY = 1e-15


class Watched(Session):
    """A session in this process that shows every order and the exchanges so far to `look` before it is sent."""

    def __init__(self, look: Callable[[Order, int], None]) -> None:
        super().__init__()
        self.look_at = look

    def ask(self, step: Any, orders: Order | Sequence[Order], owners: Sequence[str] | None = None) -> Answers[Any]:
        order = orders if isinstance(orders, Order) else orders[0]
        self.look_at(order, self.ledger.rounds)
        return super().ask(step, orders, owners)


@dataclass(frozen=True)
class Point:
    """The server's point after some rounds. gradients, hessians: evaluations by owner until then, in owner order."""

    rounds: int
    exchanges: int
    gradients: tuple[int, ...]
    hessians: tuple[int, ...]
    measured: float


Enough = Callable[[Sequence[Point]], bool]


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
class _Notebook:
    """Notes the point of every round, and ends the run when there are enough of them or its time is over."""

    measure: Callable[[Vector], float]
    counts: Sequence[Counts]
    enough: Enough
    budget: float
    points: list[Point] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    stopped: bool = False
    over: bool = False

    def look(self, order: Order, exchanges: int) -> None:
        w = _point(order)
        if w is None or self.stopped:
            return
        gradients = tuple(owner.gradients for owner in self.counts)
        hessians = tuple(owner.hessians for owner in self.counts)
        self.points.append(Point(len(self.points), exchanges, gradients, hessians, self.measure(w)))
        self.over = time.perf_counter() - self.began > self.budget
        if self.over or self.enough(self.points):
            self.stopped = True
            raise KeyboardInterrupt  # as the user would: the method ends with what it has


def _point(order: Order) -> Vector | None:
    """The server's point in an order of a round; None in all other orders."""
    found = order.w if isinstance(order, LocalSteps) else getattr(order, "p", None)
    return found if isinstance(found, np.ndarray) else None


def traced(
    problem: FederatedProblem,
    method: str,
    measure: Callable[[Vector], float],
    enough: Enough,
    *,
    tol: float = TINY,
    budget: float = np.inf,
    **options: Any,
) -> Trace:
    """Run a method until its points are enough, it ends by itself, or its seconds are over. Ctrl-C is raised again."""
    asked, counts = counted(problem)
    notes = _Notebook(measure, counts, enough, budget)
    answer: Solution | None = None
    try:
        with Watched(notes.look) as session:
            answer = solve(asked, method, session=session, tol=tol, max_rounds=ENDLESS, **options)
    except KeyboardInterrupt:
        if not notes.stopped:
            raise
    if answer is not None and answer.status == "interrupted" and not notes.stopped:
        raise KeyboardInterrupt
    return Trace(notes.points, answer, time.perf_counter() - notes.began, notes.over)


def announced(label: str, say: Callable[[str], None], enough: Enough, every: float = 30.0) -> Enough:
    """`enough`, which says about every so many seconds where the run is."""
    told = time.monotonic()

    def asked(points: Sequence[Point]) -> bool:
        nonlocal told
        if time.monotonic() - told >= every:
            told = time.monotonic()
            say(f"{label}: round {points[-1].rounds}, {points[-1].measured:.4g}")
        return enough(points)

    return asked


# ------------------------------------------------------------------------------------------------- what can be measured


def natural_residual(problem: FederatedProblem) -> Callable[[Vector], float]:
    """|w - prox_h(w - sum_i F_i(w))|, zero at solutions only."""

    def measure(w: Vector) -> float:
        image = np.sum([share.objective.gradient(w) for share in problem.shares if share.objective], axis=0)
        return float(np.linalg.norm(w - problem.regularizer.prox(w - image, 1.0)))

    return measure


def gap(problem: FederatedProblem, optimum: float) -> Callable[[Vector], float]:
    """sum_i f_i(w) + h(w) less the optimum."""

    def measure(w: Vector) -> float:
        return objective_at(problem, w) - optimum

    return measure


def objective_at(problem: FederatedProblem, w: Vector) -> float:
    values = [share.objective.value(w) for share in problem.shares if share.objective is not None]
    return sum(values) + problem.regularizer.value(w)
