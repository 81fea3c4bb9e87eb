"""One owner's rows under a classification task: what they add to the problem, and what a model decides about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedpact.cones import Nonnegative
from fedpact.errors import DataError, OptionError
from fedpact.functions import Affine, Function, Map, Quadratic, Stack, TwoSided, as_map
from fedpact.functions.rates import SmoothedRate, SmoothedRates
from fedpact.problem import Constraint, Measure
from fedpact.problem.share import combine
from fedpact.statistics import gap_holds, promised_threshold, rate_holds, rows_needed
from fedpact.tasks import checks
from fedpact.tasks.base import SERVER
from fedpact.tasks.checks import Labels, bound_for
from fedpact.tasks.regression import losses, mean_loss, scores
from fedpact.tasks.requirements import (
    Line,
    Requirement,
    check_rows,
    count_cells,
    counted_rows,
    outline,
    rate_lines,
    recall_of,
    row_of,
)
from fedpact.types import Matrix, Vector

if TYPE_CHECKING:
    from fedpact.tasks.classification import Classification

#: Counts are compared up to rounding.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Holding:
    """Rows of one holder, and what they add to the problem of a task.

    weight: of the rows in the objective; None: all the same
    factor: weight of the holder in the objective
    """

    task: Classification
    owner: str
    X: Matrix
    y: Labels
    group: Labels | None
    weight: Vector | None
    factor: float

    def select(self, chosen: NDArray[np.bool_]) -> Holding:
        """The same with some of the rows."""
        group = None if self.group is None else self.group[chosen]
        weight = None if self.weight is None else self.weight[chosen]
        return replace(self, X=self.X[chosen], y=self.y[chosen], group=group, weight=weight)

    @property
    def classes(self) -> int:
        return len(self.task.classes)

    @cached_property
    def cells(self) -> dict[str, float]:
        return count_cells(self.y, self.group, self.task.levels)

    def objective(self) -> Function:
        """The owner's part of what is minimised."""
        task = self.task
        if task.relaxed:
            return Quadratic(np.zeros((self.X.shape[1], self.X.shape[1])), self.factor * self._last_variable())
        chosen = self.select(self._minimised_rows())
        if not task.minimises_errors:
            return self.factor * mean_loss(chosen.X, chosen.y, self.classes, chosen.weight)
        wrong = np.ones((len(chosen.y), self.classes)) * chosen.parts[:, None]
        wrong[np.arange(len(wrong)), chosen.y] = 0.0
        weights, constant = fold(self.factor * wrong)
        return SmoothedRate(chosen.X, weights, task.width, self.classes) + constant

    def _last_variable(self) -> Vector:
        """The relaxation that is sought, as a row: it is the last variable."""
        row = np.zeros(self.X.shape[1])
        row[-1] = 1.0
        return row

    @property
    def parts(self) -> Vector:
        """Of each row in a mean over the rows, by their weights."""
        weight = np.ones(len(self.y)) if self.weight is None else self.weight
        return np.asarray(weight / weight.sum())

    def count_errors(self, w: Vector) -> float:
        """Its part of the objective at w; errors are counted where they are minimised."""
        if self.task.relaxed or not self.task.minimises_errors:
            return self.objective().value(w)
        chosen = self.select(self._minimised_rows())
        return self.factor * float(chosen.parts @ (chosen.decide(w) != chosen.y))

    def _minimised_rows(self) -> NDArray[np.bool_]:
        """The rows that the objective is about: those that no constraint guards."""
        task = self.task
        guarded = task.guarded_class
        if not task.constrained or task.objective == "loss" or guarded is None:
            return np.ones(len(self.y), dtype=bool)
        others = np.asarray(self.y != guarded)
        if not others.any():
            unguarded = [k for k in range(self.classes) if k != guarded]
            checks.some_of_each(self.owner, task.label, self.y, unguarded, task.classes)
        return others

    def constraint(self) -> Constraint | None:
        """What the holder itself must meet."""
        wanted = "server" if self.owner == SERVER else "each"
        own = [one for one in self.task.requirements if one.held_by == wanted]
        for one in own:
            check_rows(one, self.task.levels, self.owner, self.y, self.group)
        found: list[Constraint] = []
        lines = self.lines(wanted)
        if lines and self.task.width:
            found.append(Constraint(self._smooth(lines), Nonnegative(len(lines))))
        for one in own:
            if not one.rates:
                rows = self._losses(one)
                found.append(Constraint(rows, Nonnegative(rows.length or 0)))
        return combine(found)

    def coupled(self) -> Map | None:
        """The holder's part of what all owners must meet together."""
        together = [one for one in self.task.requirements if one.held_by == "all"]
        if not together or self.owner == SERVER:
            return None
        assert self.task.cells is not None  # agreed on before any share is built
        maps = []
        lines = self.lines("all")
        if lines and self.task.width:
            maps.append(self._smooth(lines))
        maps += [self._part_of_losses(one) for one in together if not one.rates]
        if not maps:
            return None
        return maps[0] if len(maps) == 1 else Stack(maps)

    def lines(self, held_by: str) -> list[Line]:
        """Of the constraints on decisions."""
        cells = self.task.cells if held_by == "all" else self.cells
        assert cells is not None
        found: list[Line] = []
        for number, one in enumerate(self.task.requirements, 1):
            if one.held_by != held_by:
                continue
            for line in rate_lines(one, self.task.levels, self.owner, self.y, self.group, cells, self.task.strictness):
                found.append(replace(line, eased=number == self.task.relaxed))
        return found

    def _smooth(self, lines: Sequence[Line]) -> Map:
        """The lines with smoothed decisions, corrected where the centre is known."""
        folded = [fold(line.weights) for line in lines]
        weights = np.stack([each for each, _ in folded])
        constant = np.array([line.constant + extra for line, (_, extra) in zip(lines, folded, strict=True)])
        tighter = np.array([min(self.task.tighter * line.row, line.room) for line in lines])
        smooth = SmoothedRates(self.X, weights, constant, self.task.width, self.classes)
        if self.task.centre:
            centre = np.array(self.task.centre)
            correction = self._count(lines, centre) - smooth.value(centre)
            corrected = constant + correction + tighter
            smooth = SmoothedRates(self.X, weights, corrected, self.task.width, self.classes)
        if not any(line.eased for line in lines):
            return smooth
        easing = np.zeros((len(lines), self.X.shape[1]))
        easing[:, -1] = [-float(line.eased) for line in lines]
        return smooth + Affine(easing)

    def count(self, lines: Sequence[Line], w: Vector, at: float = 0.0) -> Vector:
        """The lines with the decisions themselves."""
        eased = np.array([line.eased for line in lines], dtype=float)
        relaxation = float(w[-1]) if eased.any() else 0.0
        return self._count(lines, w, at) - relaxation * eased

    def _count(self, lines: Sequence[Line], w: Vector, at: float = 0.0) -> Vector:
        """The same without the relaxation that is sought."""
        decided = np.eye(self.classes)[self.decide(w, at)]
        return np.array([float(np.sum(line.weights * decided)) + line.constant for line in lines])

    def scores(self, w: Vector) -> Matrix:
        """(rows, classes); those of class 0 are zero with two classes."""
        return scores(w, self.X, self.classes)

    def decide(self, w: Vector, at: float = 0.0) -> Labels:
        """The class that every row is given; the last one where its score is above the others' by more than `at`."""
        score = self.scores(w)
        score[:, -1] -= at
        return np.asarray(np.argmax(score, axis=1))

    def _losses(self, one: Requirement) -> Map:
        limit = bound_of(one, self.owner)
        rows = np.ones(len(self.y), dtype=bool)
        if one.of:
            rows = self.y == self.task.levels.class_of(one)
        if not one.is_gap:
            return as_map(mean_loss(self.X[rows], self.y[rows], self.classes) - limit)
        assert self.group is not None
        means = []
        for g in range(len(self.task.groups)):
            inside = rows & (self.group == g)
            means.append(mean_loss(self.X[inside], self.y[inside], self.classes))
        gaps = [TwoSided(second - first, -limit, limit) for first, second in combinations(means, 2)]
        return gaps[0] if len(gaps) == 1 else Stack(gaps)

    def _part_of_losses(self, one: Requirement) -> Map:
        if one.is_gap:
            raise OptionError(
                "a gap in mean loss over all owners together cannot be stated; let each owner hold it, or bound the "
                "gap in a rate",
                code="FP-OPTION-824",
                key="held_by",
            )
        assert self.task.cells is not None
        rows = np.ones(len(self.y), dtype=bool)
        total = self.task.cells["rows"]
        if one.of:
            k = self.task.levels.class_of(one)
            rows = self.y == k
            total = self.task.cells[f"class {k}"]
        part = float(rows.sum()) / total
        return as_map(part * (mean_loss(self.X[rows], self.y[rows], self.classes) - bound_of(one, self.owner)))


def bound_of(one: Requirement, owner: str) -> float:
    """The upper bound at an owner."""
    assert one.at_most is not None
    return checks.bound_for(one.at_most, owner, "at_most")


def fold(weights: Matrix) -> tuple[Vector, float]:
    """Weights of decisions as `fedpact.functions.rates` takes them, and a constant.

    With two classes a row that is not given class 1 is given class 0.
    """
    if weights.shape[1] > 2:
        return weights, 0.0
    first = np.asarray(weights[:, 0])
    return np.asarray(weights[:, 1] - first), float(np.sum(first))


# ------------------------------------------------------------------------------------------------------- measures


@dataclass(frozen=True, eq=False)
class Decisions:
    """What a model decides about the owner's rows: told at the end, and counted on the way.

    rows: those it was trained on; kept: those held out to test promises
    """

    rows: Holding
    kept: Holding

    def __call__(self, w: Vector) -> dict[str, Measure]:
        return describe_decisions(self.rows, w, self.decide_at(w))

    def decide_at(self, w: Vector) -> float:
        """The threshold of the last class: that of all owners, or this owner's own."""
        if self.rows.task.decide_own and self.rows.owner != SERVER:
            return self._own_threshold(w)
        return self.rows.task.decide_at

    def score(self, w: Vector) -> Vector:
        """Of the last class over the others, on the training rows."""
        score = self.rows.scores(w)
        return np.asarray(score[:, -1] - score[:, :-1].max(axis=1))

    @property
    def labels(self) -> Vector:
        """1 for rows of the last class."""
        return np.asarray(self.rows.y == self.rows.classes - 1, dtype=float)

    def count_errors(self, w: Vector) -> float:
        """The owner's part of the objective; errors are counted where they are minimised."""
        return self.rows.count_errors(w)

    # ------------------------------------------------------------------------------------------ promises for new rows

    def check_promises(self) -> None:
        """Raise DataError unless the held-out rows are enough for a promise to exist at all."""
        task = self.rows.task
        for one in task.promised:
            promised = recall_of(one, task.levels)
            if promised is None or self.rows.owner == SERVER:
                continue
            k, bound = promised
            needed = rows_needed(bound_for(bound, self.rows.owner, "at_least"), task.miss_rate(one))
            found = int(np.sum(self.kept.y == k))
            if found < needed:
                raise DataError(
                    f"owner {self.rows.owner!r}: not enough rows for a promise with confidence {one.confidence:g}: it "
                    f"needs {needed} held-out rows with {task.label} = {task.classes[k]}, it has {found}; give it "
                    "more, hold out a larger part, ask for less, or leave it out",
                    code="FP-DATA-803",
                    column=task.label,
                )

    def fails_at(self, w: Vector, thresholds: Vector) -> NDArray[np.bool_]:
        """With which thresholds the promised recall might be missed."""
        limit = self._own_threshold(w)
        if self.rows.task.promised_class == 1:
            return np.asarray(thresholds > limit)
        return np.asarray(thresholds < limit)

    def _own_threshold(self, w: Vector) -> float:
        """The threshold that keeps all promised recalls of the class: an order statistic of the held-out scores."""
        task = self.rows.task
        k = task.promised_class
        assert k is not None
        score = self.kept.scores(w)[:, 1][self.kept.y == k]
        sign = 1.0 if k == 1 else -1.0
        limits = []
        for one in task.promised:
            bound = recall_of(one, task.levels)
            assert bound is not None
            rate = bound_for(bound[1], self.rows.owner, "at_least")
            limit = promised_threshold(sign * score, rate, task.miss_rate(one))
            assert limit is not None  # `check_promises` has seen to it
            limits.append(limit)
        return sign * min(limits)

    def keeps_promises(self, w: Vector) -> bool:
        """Whether the held-out rows bear out every promise: exact tests, all of which must pass."""
        task = self.rows.task
        decided = self.kept.decide(w, self.decide_at(w))
        return all(
            self._keeps(one, rate, decided) for one in task.promised if one.held_by == "each" for rate in one.rates
        )

    def _keeps(self, one: Requirement, rate: str, decided: Labels) -> bool:
        kept = self.kept
        task = kept.task
        k = task.levels.class_of(one)
        inside, hit = count_rate(rate, k, kept.y, decided)
        delta = 1 - one.confidence
        if not one.is_gap:
            sides = {side: bound_for(bound, kept.owner, side) for side, _, bound in one.sides}
            return rate_holds(int(hit[inside].sum()), int(inside.sum()), delta=delta, **sides)
        assert kept.group is not None
        cells = [inside & (kept.group == g) for g in range(len(task.groups))]
        hits = [int(hit[cell].sum()) for cell in cells]
        return gap_holds(hits, [int(cell.sum()) for cell in cells], bound_of(one, kept.owner), delta)

    # ------------------------------------------------------------------------------------------------- on the way

    def tally(self, w: Vector, at: float = 0.0) -> tuple[bool, Vector]:
        """Whether the holder's own constraints on decisions are met, counted; and its part of those all hold.

        at: score above which the last class is decided
        """
        wanted = "server" if self.rows.owner == SERVER else "each"
        lines = self.rows.lines(wanted)
        excess = self.rows.count(lines, w, at) - [line.allowed for line in lines] if lines else np.zeros(0)
        part = np.zeros(0)
        if self.rows.task.coupled and wanted == "each":
            together = self.rows.lines("all")
            part = self.rows.count(together, w, at) - [line.allowed / self.rows.task.owners for line in together]
        return bool(np.all(excess <= ROUNDING)), np.asarray(part)


def describe_decisions(rows: Holding, w: Vector, at: float) -> dict[str, Measure]:
    """Rates of a model's decisions at a threshold, with the rows they rest on."""
    task = rows.task
    score = rows.scores(w)
    decided = rows.decide(w, at)
    y = rows.y
    number = len(y)
    told = {"rows": Measure.count(number)}
    if task.guarded_class is not None or (rows.classes == 2 and rows.group is None):
        k = rows.classes - 1 if task.guarded_class is None else task.guarded_class
        told |= _class_measures(score, decided, y, k)
    told["accuracy"] = Measure(float(np.mean(decided == y)), number)
    if rows.group is not None and task.group:
        told |= _group_measures(decided, y, rows.group, len(task.groups), rows.classes)
    return told | _constrained_measures(rows, decided)


def _class_measures(score: Matrix, decided: Labels, y: Labels, k: int) -> dict[str, Measure]:
    inside = y == k
    own = int(inside.sum())
    others = len(y) - own
    cell = min(own, others)  # what is told of one side, beside all rows, tells of the other
    found = decided == k
    return {
        "protected rows": Measure.count(own, cell),
        "loss": Measure(_mean(losses(score[inside], k)), own, cell),
        "recall": Measure(_mean(found[inside]), own, cell),
        "specificity": Measure(1 - _mean(found[~inside]), others, cell),
    }


def _group_measures(decided: Labels, y: Labels, group: Labels, groups: int, classes: int) -> dict[str, Measure]:
    told: dict[str, Measure] = {}
    members = [group == g for g in range(groups)]
    # What is told of all groups but one, beside all rows, tells of that one.
    cell = min(int(inside.sum()) for inside in members)
    positives = [inside & (y == 1) for inside in members]
    positive_cell = min(int(inside.sum()) for inside in positives)
    for g, inside in enumerate(members):
        size = int(inside.sum())
        told[f"rows of group {g}"] = Measure.count(size, cell)
        told[f"accuracy of group {g}"] = Measure(_mean(decided[inside] == y[inside]), size, cell)
        if classes != 2:
            continue
        told[f"positive rate of group {g}"] = Measure(_mean(decided[inside]), size, cell)
        told[f"recall of group {g}"] = Measure(_mean(decided[positives[g]]), int(positives[g].sum()), positive_cell)
    return told


def _constrained_measures(rows: Holding, decided: Labels) -> dict[str, Measure]:
    """The value of every constraint on decisions of this holder, counted, by the words for it."""
    told: dict[str, Measure] = {}
    wanted = "server" if rows.owner == SERVER else "each"
    for one in rows.task.rates:
        if one.held_by != wanted:
            continue
        k = rows.task.levels.class_of(one)
        values = [value for rate in one.rates for value in _rate_values(rows, one, rate, k, decided)]
        for what, measure in zip(_distinct(one, rows), values, strict=True):
            told[what] = measure
            if one.is_gap:
                told[row_of(what)] = Measure(1 / max(measure.rows, 1), measure.rows, measure.cell)
    return told


def _distinct(one: Requirement, rows: Holding) -> list[str]:
    return list(dict.fromkeys(bound.what for bound in outline(one, rows.task.levels, rows.owner)))


def _rate_values(rows: Holding, one: Requirement, rate: str, k: int, decided: Labels) -> Iterator[Measure]:
    """The rate, or its gap between every two groups."""
    inside, hit = count_rate(rate, k, rows.y, decided)
    if not one.is_gap:
        size = int(inside.sum())
        cell = min(size, len(rows.y) - size) if size < len(rows.y) else size
        yield Measure(_mean(hit[inside]), size, cell)
        return
    assert rows.group is not None
    for a, b in rows.task.levels.pairs:
        cells = [inside & (rows.group == g) for g in (a, b)]
        sizes = [int(cell.sum()) for cell in cells]
        yield Measure(abs(_mean(hit[cells[1]]) - _mean(hit[cells[0]])), min(sizes), min(sizes))


def count_rate(rate: str, k: int, y: Labels, decided: Labels) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows a rate is counted on, and which of all rows count as hits."""
    if rate == "precision":
        return np.asarray(decided == k), np.asarray(y == k)
    hits = {"accuracy": decided == y, "specificity": decided != k}
    return counted_rows(rate, k, y), np.asarray(hits.get(rate, decided == k))


def _mean(values: Vector | NDArray[np.bool_] | Labels) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
