"""The server's point after every round, and the evaluations until then, recorded from the messages of the server.

The session sees every point that a method sends to the owners, certified or not; evaluations are counted in the
functions, not taken from the method's own reports.
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
from fedpact_experiments.counting import Counts, count_evaluations

#: A limit of exchanges that is never reached: other limits end a trace.
ENDLESS = 10**9
#: A tolerance that is never reached.
TINY = 1e-15


class Watched(Session):
    """An in-process session that calls `look` with every order, and the exchanges so far, before sending it."""

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
    """points: the start and the point after every round; over: whether the time was up."""

    points: Sequence[Point]
    solution: Solution | None
    seconds: float
    over: bool

    def first(self, target: float) -> Point | None:
        """The first point whose measure is at most the target; None if there is none."""
        return next((point for point in self.points if point.measured <= target), None)


@dataclass
class _Notebook:
    """Records the point of every round; interrupts the run when `enough` is true or the time is up."""

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


def record_trace(
    problem: FederatedProblem,
    method: str,
    measure: Callable[[Vector], float],
    enough: Enough,
    *,
    tol: float = TINY,
    budget: float = np.inf,
    **options: Any,
) -> Trace:
    """Run a method until `enough` is true, it ends, or the budget of seconds is spent. Ctrl-C is raised."""
    asked, counts = count_evaluations(problem)
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


def announce_progress(label: str, say: Callable[[str], None], enough: Enough, every: float = 30.0) -> Enough:
    """`enough`, which also reports the progress about every so many seconds."""
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
