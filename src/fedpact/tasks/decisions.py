"""One owner's rows under a classification task: what they add to the problem, and what a model decides about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedpact.cones import Nonnegative
from fedpact.errors import OptionError
from fedpact.functions import Function, Map, Stack, TwoSided, as_map
from fedpact.functions.rates import SmoothedRate, SmoothedRates
from fedpact.problem import Constraint, Measure
from fedpact.problem.share import combine
from fedpact.tasks import checks
from fedpact.tasks.base import SERVER
from fedpact.tasks.checks import Labels
from fedpact.tasks.regression import losses, mean_loss, scores
from fedpact.tasks.requirements import (
    Line,
    Requirement,
    check_rows,
    count_cells,
    counted_rows,
    outline,
    rate_lines,
)
from fedpact.types import Matrix, Vector

if TYPE_CHECKING:
    from fedpact.tasks.classification import Classification

#: Counts are compared up to rounding.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Holding:
    """Rows of one holder, and what they add to the problem of a task."""

    task: Classification
    owner: str
    X: Matrix
    y: Labels
    group: Labels | None

    @property
    def classes(self) -> int:
        return len(self.task.classes)

    @cached_property
    def cells(self) -> dict[str, float]:
        return count_cells(self.y, self.group, self.task.levels)

    def objective(self) -> Function:
        """The owner's part of what is minimised."""
        task = self.task
        factor = 1 / task.owners
        others = self._minimised_rows()
        if not task.minimises_errors:
            return factor * mean_loss(self.X[others], self.y[others], self.classes)
        wrong = np.ones((int(others.sum()), self.classes)) / others.sum()
        wrong[np.arange(len(wrong)), self.y[others]] = 0.0
        weights, constant = fold(wrong)
        return SmoothedRate(self.X[others], factor * weights, task.width, self.classes) + factor * constant

    def count_errors(self, w: Vector) -> float:
        """Its part of the objective at w; errors are counted where they are minimised."""
        if not self.task.minimises_errors:
            return self.objective().value(w)
        others = self._minimised_rows()
        return float(np.mean(self.decide(w)[others] != self.y[others])) / self.task.owners

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
        for one in self.task.rates:
            if one.held_by == held_by:
                found += rate_lines(one, self.task.levels, self.owner, self.y, self.group, cells)
        return found

    def _smooth(self, lines: Sequence[Line]) -> Map:
        """The lines with smoothed decisions, corrected where the centre is known."""
        folded = [fold(line.weights) for line in lines]
        weights = np.stack([each for each, _ in folded])
        constant = np.array([line.constant + extra for line, (_, extra) in zip(lines, folded, strict=True)])
        tighter = np.array([min(self.task.tighter * line.row, line.room) for line in lines])
        smooth = SmoothedRates(self.X, weights, constant, self.task.width, self.classes)
        if not self.task.centre:
            return smooth
        centre = np.array(self.task.centre)
        correction = self.count(lines, centre) - smooth.value(centre)
        return SmoothedRates(self.X, weights, constant + correction + tighter, self.task.width, self.classes)

    def count(self, lines: Sequence[Line], w: Vector) -> Vector:
        """The lines with the decisions themselves."""
        decided = np.eye(self.classes)[self.decide(w)]
        return np.array([float(np.sum(line.weights * decided)) + line.constant for line in lines])

    def scores(self, w: Vector) -> Matrix:
        """(rows, classes); those of class 0 are zero with two classes."""
        return scores(w, self.X, self.classes)

    def decide(self, w: Vector) -> Labels:
        """The class that every row is given."""
        score = self.scores(w)
        score[:, -1] -= self.task.decide_at
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
        told = describe_decisions(self.rows, w)
        return told

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

    def tally(self, w: Vector) -> tuple[bool, Vector]:
        """Whether the holder's own constraints on decisions are met, counted; and its part of those all hold."""
        wanted = "server" if self.rows.owner == SERVER else "each"
        lines = self.rows.lines(wanted)
        excess = self.rows.count(lines, w) - [line.allowed for line in lines] if lines else np.zeros(0)
        part = np.zeros(0)
        if self.rows.task.coupled and wanted == "each":
            together = self.rows.lines("all")
            part = self.rows.count(together, w) - [line.allowed / self.rows.task.owners for line in together]
        return bool(np.all(excess <= ROUNDING)), np.asarray(part)


def describe_decisions(rows: Holding, w: Vector) -> dict[str, Measure]:
    """Rates of a model's decisions, with the rows they rest on."""
    task = rows.task
    score = rows.scores(w)
    decided = rows.decide(w)
    y = rows.y
    number = len(y)
    told = {"rows": Measure.count(number)}
    if task.guarded_class is not None or (rows.classes == 2 and rows.group is None):
        k = rows.classes - 1 if task.guarded_class is None else task.guarded_class
        told |= _class_measures(score, decided, y, k)
    told["accuracy"] = Measure(float(np.mean(decided == y)), number)
    if rows.group is not None and task.group:
        told |= _group_measures(decided, y, rows.group, len(task.groups), rows.classes)
    return told | _constrained_measures(rows, decided, score)


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


def _constrained_measures(rows: Holding, decided: Labels, score: Matrix) -> dict[str, Measure]:
    """The value of every constraint on decisions of this holder, counted, by the words for it."""
    told: dict[str, Measure] = {}
    wanted = "server" if rows.owner == SERVER else "each"
    for one in rows.task.rates:
        if one.held_by != wanted:
            continue
        k = rows.task.levels.class_of(one)
        values = [value for rate in one.rates for value in _rate_values(rows, one, rate, k, decided)]
        for bound, measure in zip(_distinct(one, rows), values, strict=True):
            told[bound] = measure
    return told


def _distinct(one: Requirement, rows: Holding) -> list[str]:
    return list(dict.fromkeys(bound.what for bound in outline(one, rows.task.levels, rows.owner)))


def _rate_values(rows: Holding, one: Requirement, rate: str, k: int, decided: Labels) -> Iterator[Measure]:
    """The rate, or its gap between every two groups."""
    inside = counted_rows(rate, k, rows.y)
    hit = {"accuracy": decided == rows.y, "specificity": decided != k}.get(rate, decided == k)
    if rate == "precision":
        inside = decided == k
        hit = rows.y == k
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


def _mean(values: Vector | NDArray[np.bool_] | Labels) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
