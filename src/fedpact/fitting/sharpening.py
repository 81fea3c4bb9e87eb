"""From a loss to decisions: a few solves in which decisions are smoothed less and less, each from the model before.

The first solves follow the smoothed rates alone. The last ones correct them at the model before by what was counted
there (`fedpact.tasks.classification`), until the counts meet every bound: then what is certified and what is decided
agree. Owners tell by sums how many of them miss a bound; who they are, and by how much, they keep to themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpact.federation import Order, Reply, Session, Summed, client_step
from fedpact.problem import Share
from fedpact.solvers import Solution
from fedpact.tasks import Classification
from fedpact.tasks.decisions import Decisions
from fedpact.types import Vector

#: Widths of the smoothing where errors are minimised, in deviations of the first scores.
ERROR_WIDTHS = (0.5, 0.25, 0.12)
#: Widths where a loss is minimised, which sets the scale of the scores.
LOSS_WIDTHS = (1.0, 0.3, 0.1)
#: Solves with corrected rates, at most.
CORRECTIONS = 8
#: Rows by which owners tighten their rates after each solve whose counts miss a bound.
TIGHTER = 0.5
#: A total of counts that is above its bound by less is only rounded.
ROUNDING = 1e-9

# ------------------------------------------------------------------------------------------------------------ exchanges


@dataclass(frozen=True, kw_only=True)
class Decide(Order):
    """w: the model whose decisions are counted"""

    w: Vector


@dataclass(frozen=True, kw_only=True)
class Spread(Reply):
    """Moments of the scores of an owner's rows."""

    count: Summed[float]
    total: Summed[float]
    squares: Summed[float]


@client_step
def spread(share: Share, state: Any, order: Decide) -> tuple[Any, Spread]:
    """How far the scores of the owner's rows spread."""
    assert isinstance(share.measures, Decisions)
    score = share.measures.score(order.w)
    return state, Spread(count=float(score.size), total=float(score.sum()), squares=float(score @ score))


@dataclass(frozen=True, kw_only=True)
class Tallied(Reply):
    """What a model's decisions count to.

    missed:   1 where the owner misses one of its own bounds
    errors:   the owner's part of the objective, counted
    together: the owner's part of the bounds that all owners meet together
    """

    missed: Summed[float]
    errors: Summed[float]
    together: Summed[Vector]


@client_step
def tally(share: Share, state: Any, order: Decide) -> tuple[Any, Tallied]:
    """Count the decisions of the owner's training rows."""
    assert isinstance(share.measures, Decisions)
    met, together = share.measures.tally(order.w)
    errors = share.measures.count_errors(order.w)
    return state, Tallied(missed=float(not met), errors=errors, together=together)


# ----------------------------------------------------------------------------------------------------------------- path


@dataclass(frozen=True, eq=False)
class Sharpened:
    """A model on the path.

    task:   with the width and the centre that it was found with
    missed: holders whose counted rates miss a bound; errors: counted, in all
    """

    task: Classification
    solution: Solution
    missed: int
    errors: float

    @property
    def holds(self) -> bool:
        """Whether the model is certified, and its counts meet every bound."""
        return self.solution.solved and self.missed == 0

    def better_than(self, other: Sharpened) -> bool:
        """Fewer holders that miss a bound, then certified, then fewer errors."""
        mine = (self.missed, not self.solution.solved, self.errors)
        theirs = (other.missed, not other.solution.solved, other.errors)
        return mine < theirs


#: Solves a task from a start.
Solve = Callable[[Classification, Vector | None], Solution]
#: Statuses after which nothing more can be asked.
OVER = ("interrupted", "client_lost")


def sharpen(
    session: Session, solve: Solve, task: Classification, start: Vector | None, server: Callable[[Any], Share | None]
) -> Sharpened:
    """The best model on the path: certified, and within its bounds by count, if there is one.

    start: of the first solve; server: the coordinator's own share of a task
    """
    widths: tuple[float, ...] = LOSS_WIDTHS
    w = start
    if replace(task, width=1.0).minimises_errors:
        widths = ERROR_WIDTHS
        if w is not None:
            w = w / measure_spread(session, task, w)
    for width in widths:
        smoothed = replace(task, width=width)
        solution = solve(smoothed, w)
        w = solution.w
        if solution.status in OVER:
            return Sharpened(smoothed, solution, -1, np.inf)
    return correct(session, solve, smoothed, solution.w, server)


def correct(
    session: Session, solve: Solve, task: Classification, w: Vector, server: Callable[[Any], Share | None]
) -> Sharpened:
    """Solve with rates that are corrected at the model before, until the counts meet every bound."""
    best: Sharpened | None = None
    tighter = 0.0
    for _ in range(CORRECTIONS):
        centred = replace(task, centre=tuple(w.tolist()), tighter=tighter)
        solution = solve(centred, w)
        w = solution.w
        if solution.status in OVER:
            return best or Sharpened(centred, solution, -1, np.inf)
        missed, errors = count_misses(session, centred, w, server(centred))
        found = Sharpened(centred, solution, missed, errors)
        if best is None or found.better_than(best):
            best = found
        if found.holds:
            break
        tighter += TIGHTER
    assert best is not None
    return best


def measure_spread(session: Session, task: Classification, w: Vector) -> float:
    """One exchange: the deviation of the scores of all rows; 1 where they are all alike."""
    session.pose(replace(task, constrained=False))
    moments = session.ask(spread, Decide(w=w)).total
    mean = moments.total / moments.count
    variance = moments.squares / moments.count - mean**2
    return float(np.sqrt(max(variance, 0.0))) or 1.0


def count_misses(session: Session, task: Classification, w: Vector, server: Share | None) -> tuple[int, float]:
    """One exchange: how many holders miss a bound by count, and the counted errors in all.

    Owners together count as one holder for the bounds that they meet together.
    """
    session.pose(task)
    counted = session.ask(tally, Decide(w=w)).total
    missed = round(counted.missed)
    missed += int(np.any(counted.together > ROUNDING))
    if server is not None:
        assert isinstance(server.measures, Decisions)
        missed += int(not server.measures.tally(w)[0])
    return missed, float(counted.errors)
