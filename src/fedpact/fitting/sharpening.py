"""From a loss to decisions: a few solves in which decisions are smoothed less and less, each from the model before.

The first solves follow the smoothed rates alone. The last ones correct them at the model before by what was counted
there (`fedpact.tasks.classification`), until the counts meet every bound: then what is certified and what is decided
agree. Owners tell by sums how many of them miss a bound; who they are, and by how much, they keep to themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from fedpact.errors import OwnerLost
from fedpact.federation import Order, Reply, Session, Summed, client_step
from fedpact.fitting.promises import PATH, common_threshold, keeps_promises
from fedpact.problem import Measure, Share
from fedpact.solvers import Solution
from fedpact.solvers.steps import model_of
from fedpact.statistics import rows_needed_for_gap
from fedpact.tasks import Classification
from fedpact.tasks.decisions import Decisions
from fedpact.tasks.requirements import Requirement, count_cells
from fedpact.types import Vector

#: Widths of the smoothing where errors are minimised, in deviations of the first scores.
ERROR_WIDTHS = (0.5, 0.25, 0.12)
#: The first width where intercepts are the owners' own: from a sharper start they may run away to where all decisions
#: are certain.
SOFTEST = 1.0
#: The width with which errors are saved after a loss was minimised: sharper ones are fitted to single rows.
GENTLE = 0.5
#: Training errors for each coefficient that fewer errors owe to overfitting (docs/benchmarks/decisions.md: about three
#: on adult and on COMPAS). Only a model that saves more of them is kept.
OVERFITTED = 3.0
#: Widths where a loss is minimised, in units of the scores, or in their deviations where these are less.
LOSS_WIDTHS = (1.0, 0.3, 0.1)
#: The width of the smoothing of a network, in units of its scores.
NETWORK_WIDTH = 1.0
#: A rate of errors from which on a model is right about hardly any of the rows that it minimises errors on.
ALL_WRONG = 0.999
#: Solves with corrected rates, at most.
CORRECTIONS = 24
#: Rows by which owners tighten their rates after each solve whose counts miss a bound.
TIGHTER = 0.5
#: So much tighter they begin anew, from the model they have come to: bounds of few rows are met by some model near by.
TIGHTEST = 4.0
#: By how much the smoothing changes after a solve: less of it is nearer to the counts, more is easier to certify.
NARROWER = 0.6
NARROWEST = 0.3
WIDER = 2.0
#: With less smoothing the objective may be so many times as large as before; else the solve went astray.
WORSE = 1.25
#: Where a constraint holds, in words.
HOLDING = {"each": "at every owner", "all": "over all owners together", "server": "at the coordinator"}
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
    score = share.measures.score(model_of(share, state, order.w))
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
    point = model_of(share, state, order.w)
    met, together = share.measures.tally(point)
    errors = share.measures.count_errors(point)
    return state, Tallied(missed=float(not met), errors=errors, together=together)


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


@dataclass(frozen=True, kw_only=True)
class Together(Reply):
    """hits, rows: the owner's, in every cell of the constraints that all owners hold together"""

    hits: Summed[Vector]
    rows: Summed[Vector]


@client_step
def count_together(share: Share, state: Any, order: Decide) -> tuple[Any, Together]:
    """Count the owner's part of the values that all owners bound together."""
    assert isinstance(share.measures, Decisions)
    hits, rows = share.measures.count_together(order.w)
    return state, Together(hits=hits, rows=rows)


def measure_together(session: Session, task: Classification, w: Vector) -> dict[str, Measure]:
    """One exchange: the values of the constraints that all owners hold together, over the rows of all."""
    session.pose(task)
    counted = session.ask(count_together, Decide(w=w)).total
    return task.tell_together(counted.hits, counted.rows)


# ----------------------------------------------------------------------------------------------------------------- path


@dataclass(frozen=True, eq=False)
class Sharpened:
    """A model on the path.

    task:   with the width and the centre that it was found with
    missed: holders whose counted rates miss a bound; errors: counted, in all
    advice: what could be had where the bounds cannot
    """

    task: Classification
    solution: Solution
    missed: int
    errors: float
    advice: str = ""

    @property
    def holds(self) -> bool:
        """Whether the model is certified, or a network that is trained, and its counts meet every bound."""
        return self.task.is_trained(self.solution.status) and self.missed == 0

    def better_than(self, other: Sharpened) -> bool:
        """Fewer holders that miss a bound, then certified, then fewer errors."""
        mine = (self.missed, not self.solution.solved, self.errors)
        theirs = (other.missed, not other.solution.solved, other.errors)
        return mine < theirs

    def stopped(self, solution: Solution) -> Sharpened:
        """The same model, where a later solve was stopped."""
        return replace(self, solution=replace(self.solution, status=solution.status, reason=solution.reason))


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
        """The best model; where it misses a bound, with what could be had instead. start: of the first solve"""
        found = self.seek(task, start)
        if task.is_network:
            return found
        if found.missed > 0:
            return self.relax(found)
        if found.holds and task.objective == "auto" and task.bounds_gaps_only:
            return self.save_errors(found)
        return found

    def save_errors(self, found: Sharpened) -> Sharpened:
        """The same, or a model with so many fewer errors that they are not owed to overfitting alone.

        Least loss is not fewest errors where a gap keeps many rows on the other side of the threshold.
        """
        task = replace(found.task, objective="errors", centre=(), tighter=0.0)
        w = found.solution.w
        saving = self.narrow(task, w, (GENTLE,))
        if saving.solution.status in OVER:
            return found.stopped(saving.solution)
        if not saving.holds:
            return found
        try:
            _, errors = self.count(task, w)
            rows = ask_spread(self.session, task, w).count
        except (OwnerLost, KeyboardInterrupt) as stop:
            return found.stopped(uncounted(saving.solution, stop))
        if (errors - saving.errors) * rows > OVERFITTED * w.size:
            return saving
        return found

    def seek(self, task: Classification, start: Vector | None) -> Sharpened:
        """The best model: certified, and within its bounds by count, if there is one."""
        if task.is_network:
            return self.train(task, start)
        if not task.aims_at_errors:
            return self.narrow(task, start, LOSS_WIDTHS)
        widths: tuple[float, ...] = ERROR_WIDTHS
        if task.own_intercept:
            widths = (SOFTEST, *ERROR_WIDTHS)
        if task.guarded_class is not None:
            return self.narrow(task, start, widths)
        # Where only gaps bound them, errors are few and gaps none where all rows are decided alike: the model of
        # least loss comes first, from which such a point is not reached.
        first = self.seek(replace(task, objective="loss"), start)
        if first.solution.status in OVER:
            return first
        w = first.solution.w
        found = self.narrow(task, w, widths)
        if found.solution.status in OVER or not first.holds:
            return found
        _, errors = self.count(replace(first.task, objective=task.objective), w)
        if found.better_than(replace(first, errors=errors)):
            return found
        return first

    def train(self, task: Classification, start: Vector | None) -> Sharpened:
        """A network, in one solve: its rates are counted, and only their slopes are smoothed."""
        counted = replace(task, width=NETWORK_WIDTH)
        solution = self.solve(counted, start)
        if solution.status in OVER:
            return Sharpened(counted, solution, -1, np.inf)
        try:
            return Sharpened(counted, solution, *self.count(counted, solution.w))
        except (OwnerLost, KeyboardInterrupt) as stop:
            return Sharpened(counted, uncounted(solution, stop), -1, np.inf)

    def narrow(self, task: Classification, w: Vector | None, widths: tuple[float, ...]) -> Sharpened:
        """Solve with less and less smoothing from w on, then with corrected rates."""
        errors = task.aims_at_errors
        if errors and w is not None:
            task = replace(task, spread=measure_spread(self.session, task, w))
        smoothed = task
        sharpest: Solution | None = None
        for width in widths:
            if w is not None and not errors:  # where a loss is minimised, scores may shrink, and decisions with them
                task = replace(task, spread=min(1.0, measure_spread(self.session, task, w)))
            narrower = replace(task, width=width)
            solution = self.solve(narrower, w)
            if sharpest is not None and sharpest.solved and astray(sharpest, solution):
                halfway = np.sqrt(narrower.smoothing * smoothed.smoothing) / task.spread
                narrower = replace(task, width=float(halfway))
                solution = self.solve(narrower, w)
            if solution.status in OVER:
                return Sharpened(narrower, solution, -1, np.inf)
            if sharpest is not None and sharpest.solved and astray(sharpest, solution):
                break  # so narrow it is too hard; the width before will do
            smoothed = narrower
            sharpest = solution
            w = solution.w
        assert w is not None
        assert sharpest is not None
        if task.own_intercept:  # its own threshold keeps an owner's bound, by count
            kept = replace(smoothed, decide_own=True, proven=bool(task.promised))
            return Sharpened(kept, sharpest, *self.count(kept, w))
        return self.correct(smoothed, sharpest)

    def correct(self, task: Classification, before: Solution) -> Sharpened:
        """Solve with rates that are corrected at the model before, until the counts meet every bound."""
        best: Sharpened | None = None
        certified = Sharpened(task, before, -1, np.inf) if before.solved else None
        uncorrected = task
        w = before.w
        tighter = 0.0
        narrowest = NARROWEST * task.width
        for _ in range(CORRECTIONS):
            centred = replace(task, centre=tuple(w.tolist()), tighter=tighter)
            solution = self.solve(centred, w)
            if solution.status in OVER:
                return best.stopped(solution) if best else Sharpened(centred, solution, -1, np.inf)
            try:
                found = Sharpened(centred, solution, *self.count(centred, solution.w))
            except (OwnerLost, KeyboardInterrupt) as stop:
                return (best or Sharpened(centred, solution, -1, np.inf)).stopped(uncounted(solution, stop))
            lost = before.solved and not task.relaxed and is_worse(before, solution)
            if not lost:
                if solution.solved:  # else the next one, with more smoothing, had better start where this one did
                    w = solution.w
                if best is None or found.better_than(best):
                    best = found
                if solution.solved:
                    certified = found
            conflict = bool(solution.conflict) and found.missed > 0
            if (found.holds and not lost) or (conflict and not tighter):
                break
            if found.missed:
                tighter = (tighter + TIGHTER) % TIGHTEST
            if conflict:  # which tightening alone may have made
                tighter = 0.0
            if lost or not solution.solved:
                task = replace(task, width=WIDER * task.width)
            elif not task.minimises_errors:  # whose widths are narrow already
                task = replace(task, width=max(NARROWER * task.width, narrowest))
        best = best or found
        if task.promised_class is not None and before.solved and not best.solution.solved:
            # The threshold will be moved, and what is decided then counted: all this model needs is its certificate.
            return Sharpened(uncorrected, before, *self.count(uncorrected, before.w))
        if not best.holds and certified is not None and can_move(task):
            return self.meet_by_threshold(best, certified)
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
        loosened = replace(task, relaxed=last, width=0.0, spread=1.0, centre=(), tighter=0.0)
        best = self.seek(loosened, np.append(found.solution.w, 1.0))  # the relaxation is one more variable
        if not best.holds:
            return found
        return replace(found, advice=describe_relaxation(task, float(best.solution.w[-1])))

    def meet_by_threshold(self, best: Sharpened, certified: Sharpened) -> Sharpened:
        """The last certified model at the threshold with which the counts of all owners hold; else the best.

        For counts that miss by a few rows: with three rows of a class no bound is near to where one of them is decided.
        """
        w = certified.solution.w
        try:
            spread = measure_spread(self.session, certified.task, w)
            moved = replace(certified.task, decide_at=common_threshold(self.session, certified.task, w, spread))
            found = Sharpened(moved, certified.solution, *self.count(moved, w))
        except (OwnerLost, KeyboardInterrupt) as stop:
            return best.stopped(uncounted(best.solution, stop))
        if not found.holds:
            return best
        found.solution.history.notes.append(
            "no certified model met all bounds by count: the threshold of all owners was moved until the counts of the "
            "last one held; its certificate is of the smoothed rates, before that"
        )
        return found

    # ---------------------------------------------------------------------------------------------- promises

    def move_threshold(self, found: Sharpened) -> Sharpened:
        """The model with the threshold, or thresholds of the owners' own, that keep its promise for new rows.

        Where its decisions missed a bound they are counted again: those at the new threshold are what matters.
        """
        task = found.task
        w = found.solution.w
        if task.has_own_thresholds:
            moved = replace(task, decide_own=True, proven=True)
        else:
            limit = common_threshold(self.session, task, w, measure_spread(self.session, task, w))
            moved = replace(task, decide_at=limit, proven=True)
        missed = found.missed
        if missed or task.promise_for:
            missed, _ = self.count(moved, w)
        return replace(found, task=moved, missed=missed)

    def promise(self, task: Classification, start: Vector | None) -> Sharpened:
        """Models from strict bounds to loose ones, tested on held-out rows; the last one before a test fails."""
        passed: Sharpened | None = None
        for part in PATH:
            strict = replace(task, strictness=part)
            if passed is None:
                found = self.seek(strict, start)
            elif task.is_network:
                found = self.train(strict, passed.solution.w)
            else:
                found = self.correct(
                    replace(strict, width=passed.task.width, spread=passed.task.spread), passed.solution
                )
            if found.solution.status in OVER:
                if passed is None:
                    return found
                passed = passed.stopped(found.solution)
                break
            if not found.holds:
                if passed is None:
                    continue  # bounds this strict cannot be met; nothing was tested yet
                break
            if not keeps_promises(self.session, found.task, found.solution.w):
                break
            passed = found
        if passed is not None:
            return replace(passed, task=replace(passed.task, proven=True))
        if found.holds:  # on the rows it was trained on, not on those held out
            return replace(found, advice=describe_shortage(task))
        if found.missed > 0 and not task.is_network:
            return self.relax(found)
        return found


def can_move(task: Classification) -> bool:
    """Whether one threshold for all owners meets every bound on decisions by itself, on the rows trained on."""
    return task.recalled_class is not None and not task.promised and not task.relaxed and task.common_intercept


def uncounted(solution: Solution, stop: BaseException) -> Solution:
    """A solution whose decisions nobody counted, since an owner was lost or the run was stopped."""
    if isinstance(stop, OwnerLost):
        return replace(
            solution, status="client_lost", reason=f"{stop}; the decisions of the last model are not counted"
        )
    return replace(
        solution, status="interrupted", reason="interrupted before the decisions of the last model were counted"
    )


def is_worse(before: Solution, now: Solution) -> bool:
    """Whether a solve ended at a far worse point than the one before, such as no model at all."""
    return now.objective > WORSE * abs(before.objective)


def astray(before: Solution, now: Solution) -> bool:
    """Whether a solve with less smoothing ended there, or without a certificate; one that was stopped did not."""
    if now.status in OVER:
        return False
    return not now.solved or is_worse(before, now)


def describe_relaxation(task: Classification, excess: float) -> str:
    """\"with a recall of at least 0.9, a false-positive rate of at most 0.2 is not possible ...; at 0.34 it is\"."""
    *others, last = task.requirements
    kept = " and ".join(f"{_ask(one)} {HOLDING[one.held_by]}" for one in others)
    _, sign, bound = last.sides[-1]
    room = ceil(1000 * excess) / 1000  # what is told must be possible, too
    reachable = f"with {room:.3f} more room it is"
    if not isinstance(bound, Mapping):
        reachable = f"at {bound + sign * room:.3f} it is"
    return f"with {kept}, {_ask(last)} is not possible; {reachable}"


def _ask(one: Requirement) -> str:
    """\"a recall of at least 0.9\"."""
    article = "an" if one.words.startswith("a") else "a"
    return f"{article} {one.words} {one.bounds_in_words()}"


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


def ask_spread(session: Session, task: Classification, w: Vector) -> Spread:
    """One exchange: moments of the scores of all rows."""
    session.pose(replace(task, constrained=False))
    return session.ask(spread, Decide(w=w)).total


def measure_spread(session: Session, task: Classification, w: Vector) -> float:
    """One exchange: the deviation of the scores of all rows; 1 where they are all alike."""
    moments = ask_spread(session, task, w)
    mean = moments.total / moments.count
    variance = moments.squares / moments.count - mean**2
    return float(np.sqrt(max(variance, 0.0))) or 1.0
