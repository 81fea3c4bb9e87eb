"""From a loss to decisions: a few solves in which decisions are smoothed less and less, each from the model before.

The first solves follow the smoothed rates alone. The last ones correct them at the model before by what was counted
there (`fedpact.tasks.classification`), until the counts meet every bound: then what is certified and what is decided
agree. Owners tell by sums how many of them miss a bound; who they are, and by how much, they keep to themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpact.federation import Order, Reply, Session, Summed, client_step
from fedpact.fitting.promises import PATH, common_threshold, keeps_promises
from fedpact.problem import Share
from fedpact.solvers import Solution
from fedpact.statistics import rows_needed_for_gap
from fedpact.tasks import Classification
from fedpact.tasks.decisions import Decisions
from fedpact.tasks.requirements import count_cells
from fedpact.types import Vector

#: Widths of the smoothing where errors are minimised, in deviations of the first scores; then that of corrected rates.
ERROR_WIDTHS = (0.5, 0.25)
LAST_ERROR_WIDTH = 0.12
#: Widths where a loss is minimised, which sets the scale of the scores.
LOSS_WIDTHS = (1.0, 0.3, 0.1)
LAST_LOSS_WIDTH = 0.1
#: Thresholds that are tried before the first solve where errors are minimised, closer together in the middle.
THRESHOLDS = 20 * np.linspace(-1, 1, 201) ** 3
#: Solves with corrected rates, at most.
CORRECTIONS = 8
#: Rows by which owners tighten their rates after each solve whose counts miss a bound.
TIGHTER = 1.0
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


@dataclass(frozen=True, kw_only=True)
class Shift(Order):
    """w: a model; thresholds: scores above which the last class would be decided"""

    w: Vector
    thresholds: Vector


@dataclass(frozen=True, kw_only=True)
class Shifted(Reply):
    """missed: 1 for every threshold with which the owner misses one of its own bounds"""

    missed: Summed[Vector]


@client_step
def try_thresholds(share: Share, state: Any, order: Shift) -> tuple[Any, Shifted]:
    """With which thresholds the owner's bounds are missed on its training rows."""
    assert isinstance(share.measures, Decisions)
    missed = [not share.measures.tally(order.w, at)[0] for at in order.thresholds]
    return state, Shifted(missed=np.array(missed, dtype=float))


@dataclass(frozen=True, kw_only=True)
class Cells(Reply):
    """rows: in every cell that a rate may be counted on"""

    rows: Summed[Vector]


@client_step
def count_rows(share: Share, state: Any, order: Order) -> tuple[Any, Cells]:
    """Rows of every class and group, among those trained on."""
    assert isinstance(share.measures, Decisions)
    return state, Cells(rows=np.array(list(share.measures.rows.cells.values())))


def agree_on_cells(session: Session, task: Classification) -> Classification:
    """One exchange: the task with the rows of all owners together in every class and group."""
    session.pose(replace(task, constrained=False))
    rows = session.ask(count_rows, Order()).total.rows
    names = count_cells(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), task.levels)
    return replace(task, cells=dict(zip(names, rows.tolist(), strict=True)))


# ----------------------------------------------------------------------------------------------------------------- path


@dataclass(frozen=True, eq=False)
class Sharpened:
    """A model on the path.

    task:   with the width and the centre that it was found with
    missed: holders whose counted rates miss a bound, or who cannot promise them; errors: counted, in all
    advice: what could be had where the bounds cannot
    """

    task: Classification
    solution: Solution
    missed: int
    errors: float
    advice: str = ""

    @property
    def holds(self) -> bool:
        """Whether the model is certified, and its counts meet every bound."""
        return self.solution.solved and self.missed == 0

    def better_than(self, other: Sharpened) -> bool:
        """Fewer holders that miss a bound, then certified, then fewer errors."""
        mine = (self.missed, not self.solution.solved, self.errors)
        theirs = (other.missed, not other.solution.solved, other.errors)
        return mine < theirs


#: Statuses after which nothing more can be asked.
OVER = ("interrupted", "client_lost")


@dataclass(frozen=True, eq=False)
class Path:
    """Where models of decisions are sought.

    solve:  solves a task from a start; server: the coordinator's own share of a task, or None
    """

    session: Session
    solve: Callable[[Classification, Vector | None], Solution]
    server: Callable[[Any], Share | None]

    def sharpen(self, task: Classification, start: Vector | None) -> Sharpened:
        """The best model: certified, and within its bounds by count, if there is one. start: of the first solve"""
        w = start
        for stage in stages_of(task):
            widths: tuple[float, ...] = LOSS_WIDTHS
            last = LAST_LOSS_WIDTH
            if stage.aims_at_errors:
                widths = ERROR_WIDTHS
                last = LAST_ERROR_WIDTH
                if w is not None:
                    w = self.prepare(stage, w)
            for width in widths:
                smoothed = replace(stage, width=width)
                solution = self.solve(smoothed, w)
                w = solution.w
                if solution.status in OVER:
                    return Sharpened(smoothed, solution, -1, np.inf)
        assert w is not None
        found = self.correct(replace(task, width=last), w)
        if found.missed > 0:
            return self.relax(found)
        return found

    def prepare(self, task: Classification, w: Vector) -> Vector:
        """Scores of deviation 1 and, where one class is guarded, an intercept with which its bounds are met by count.

        From a model that misses them a solver may run off to where all rows are decided alike.
        """
        w = w / measure_spread(self.session, task, w)
        if task.guarded_class is None or not task.intercept or len(task.classes) != 2:
            return w
        self.session.pose(task)
        missed = self.session.ask(try_thresholds, Shift(w=w, thresholds=THRESHOLDS)).total.missed
        fewest = np.flatnonzero(np.round(missed) == np.round(missed).min())
        nearest = fewest[np.argmin(np.abs(THRESHOLDS[fewest]))]
        w[-1] -= THRESHOLDS[nearest]
        return w

    def correct(self, task: Classification, w: Vector) -> Sharpened:
        """Solve with rates that are corrected at the model before, until the counts meet every bound."""
        best: Sharpened | None = None
        tighter = 0.0
        for _ in range(CORRECTIONS):
            centred = replace(task, centre=tuple(w.tolist()), tighter=tighter)
            solution = self.solve(centred, w)
            w = solution.w
            if solution.status in OVER:
                return best or Sharpened(centred, solution, -1, np.inf)
            found = Sharpened(centred, solution, *self.count(centred, w))
            if best is None or found.better_than(best):
                best = found
            if found.holds:
                break
            tighter += TIGHTER
        assert best is not None
        return best

    def count(self, task: Classification, w: Vector) -> tuple[int, float]:
        """One exchange: how many holders miss a bound by count, and the counted errors in all.

        Owners together count as one holder for the bounds that they meet together.
        """
        self.session.pose(task)
        counted = self.session.ask(tally, Decide(w=w)).total
        missed = round(counted.missed)
        missed += int(np.any(counted.together > ROUNDING))
        server = self.server(task)
        if server is not None:
            assert isinstance(server.measures, Decisions)
            missed += int(not server.measures.tally(w)[0])
        return missed, float(counted.errors)

    def relax(self, found: Sharpened) -> Sharpened:
        """The same, with the least relaxation of its last constraint that lets the others hold, in words."""
        task = found.task
        last = len(task.requirements)
        relaxable = last > 1 and len(task.classes) == 2 and task.requirements[-1].held_by == "each"
        if not relaxable or task.requirements[-1].kind == "precision" or found.solution.status in OVER:
            return found
        loosened = replace(task, relaxed=last, centre=(), tighter=0.0)
        excess = self.solve(loosened, np.append(found.solution.w, 1.0))
        if not excess.solved:
            return found
        best = self.correct(replace(loosened, width=task.width), excess.w)
        if not best.holds:
            return found
        return replace(found, advice=describe_relaxation(task, float(best.solution.w[-1])))

    # ---------------------------------------------------------------------------------------------- promises

    def move_threshold(self, found: Sharpened) -> Sharpened:
        """The model with the threshold, or thresholds of the owners' own, that keep its promise for new rows."""
        task = found.task
        if task.threshold == "own":
            return replace(found, task=replace(task, decide_own=True, proven=True))
        w = found.solution.w
        limit = common_threshold(self.session, task, w, measure_spread(self.session, task, w))
        return replace(found, task=replace(task, decide_at=limit, proven=True))

    def promise(self, task: Classification, start: Vector | None) -> Sharpened:
        """Models from strict bounds to loose ones, tested on held-out rows; the last one before a test fails."""
        passed: Sharpened | None = None
        for part in PATH:
            strict = replace(task, strictness=part)
            if passed is None:
                found = self.sharpen(strict, start)
            else:
                found = self.correct(replace(strict, width=passed.task.width), passed.solution.w)
            if found.solution.status in OVER:
                return passed or found
            if not found.holds:
                if passed is None:
                    continue  # bounds this strict cannot be met; nothing was tested yet
                break
            if not keeps_promises(self.session, found.task, found.solution.w):
                break
            passed = found
        if passed is not None:
            return replace(passed, task=replace(passed.task, proven=True))
        return replace(found, missed=max(found.missed, 1), advice=describe_shortage(task))


def stages_of(task: Classification) -> list[Classification]:
    """What is solved one after the other.

    Errors that only gaps between groups bound are few where all rows are decided alike, and gaps are none: the model of
    least loss comes first, from which such a point is not reached.
    """
    if task.aims_at_errors and task.guarded_class is None:
        return [replace(task, objective="loss"), task]
    return [task]


def describe_relaxation(task: Classification, excess: float) -> str:
    """\"with recall of at least 0.9, a false-positive rate of at most 0.2 is not possible; at 0.34 it is\"."""
    *others, last = task.requirements
    kept = " and ".join(f"{one.words} {one.bounds_in_words()}" for one in others)
    _, sign, bound = last.sides[-1]
    least = 0.0
    if not isinstance(bound, Mapping):
        least = bound + sign * excess
    reachable = f"at {least:.3g} it is" if least else f"with {excess:.3g} more room it is"
    return f"with {kept}, {last.words} {last.bounds_in_words()} is not possible; {reachable}"


def describe_shortage(task: Classification) -> str:
    """How many held-out rows promises of gaps need."""
    gaps = [one for one in task.promised if one.is_gap]
    if not gaps:
        return "the held-out rows do not bear out the promises; give the owners more rows, or ask for less"
    one = gaps[0]
    bounds = one.at_most.values() if isinstance(one.at_most, Mapping) else [one.at_most or 0.0]
    needed = rows_needed_for_gap(min(bounds), 1 - one.confidence)
    return (
        f"the held-out rows of an owner do not bear out a {one.words} {one.bounds_in_words()} with confidence "
        f"{one.confidence:g}: about {needed} held-out rows of each group are needed where half of them are hits; give "
        "the owners more rows, or ask for less"
    )


def measure_spread(session: Session, task: Classification, w: Vector) -> float:
    """One exchange: the deviation of the scores of all rows; 1 where they are all alike."""
    session.pose(replace(task, constrained=False))
    moments = session.ask(spread, Decide(w=w)).total
    mean = moments.total / moments.count
    variance = moments.squares / moments.count - mean**2
    return float(np.sqrt(max(variance, 0.0))) or 1.0
