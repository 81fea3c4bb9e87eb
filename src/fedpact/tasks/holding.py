"""One owner's rows under a classification task: what they add to the problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from fedpact.cones import Nonnegative
from fedpact.errors import OptionError
from fedpact.functions import Affine, Function, Map, Quadratic, Stack, TwoSided, as_map
from fedpact.functions.rates import CountedRates, SmoothedRate, SmoothedRates
from fedpact.problem import Constraint
from fedpact.problem.share import combine
from fedpact.statistics import promised_threshold
from fedpact.tasks import checks
from fedpact.tasks.base import SERVER
from fedpact.tasks.checks import Labels, bound_for
from fedpact.tasks.requirements import (
    LOSS,
    Line,
    Requirement,
    check_rows,
    count_cells,
    counted_rows,
    rate_lines,
    recall_of,
)
from fedpact.types import Matrix, Vector

if TYPE_CHECKING:
    from fedpact.tasks.classification import Classification

#: An owner's own threshold is lower by so much: in the units of the columns scores are rounded differently.
MARGIN = 1e-9
#: Counts are compared up to rounding.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Holding:
    """Rows of one holder, and what they add to the problem of a task.

    weight: of the rows in the objective; None: all the same
    counts: by how much each row counts in the constraints, where a bootstrap draws it; None: once
    factor: weight of the holder in the objective
    """

    task: Classification
    owner: str
    X: Matrix
    y: Labels
    group: Labels | None
    weight: Vector | None
    factor: float
    counts: Vector | None = None

    def select(self, chosen: NDArray[np.bool_]) -> Holding:
        """The same with some of the rows; nothing is copied where these are all."""
        if chosen.all():
            return self
        group = None if self.group is None else self.group[chosen]
        weight = None if self.weight is None else self.weight[chosen]
        counts = None if self.counts is None else self.counts[chosen]
        return replace(self, X=self.X[chosen], y=self.y[chosen], group=group, weight=weight, counts=counts)

    @property
    def classes(self) -> int:
        return len(self.task.classes)

    @cached_property
    def cells(self) -> dict[str, float]:
        return count_cells(self.y, self.group, self.task.levels, self.counts)

    def members(self, one: Requirement) -> list[NDArray[np.bool_]]:
        """The rows of each group that a gap is between."""
        codes = self.task.codes_of(one, self.group)
        assert codes is not None  # `check_rows` has seen to it
        return [np.asarray(codes == g) for g in range(len(self.task.levels_of(one).groups))]

    def objective(self) -> Function:
        """The owner's part of what is minimised."""
        task = self.task
        if task.relaxed:
            return Quadratic(np.zeros((self.X.shape[1], self.X.shape[1])), self.factor * self._last_variable())
        rows = self._minimised_rows()
        chosen = self.select(rows)
        if not task.minimises_errors:
            return self.factor * task.scorer.mean_loss(chosen.X, chosen.y, chosen.weight, rows)
        wrong = np.ones((len(chosen.y), self.classes)) * chosen.parts[:, None]
        wrong[np.arange(len(wrong)), chosen.y] = 0.0
        weights, constant = fold(self.factor * wrong)
        return SmoothedRate(chosen.X, weights, task.smoothing, self.classes) + constant

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

    def count_errors(self, w: Vector, at: float = 0.0) -> float:
        """Its part of the objective at w; errors are counted where they are minimised."""
        if not self.task.counts_objective:
            return self.objective().value(w)
        chosen = self.select(self._minimised_rows())
        return self.factor * float(chosen.parts @ (chosen.decide(w, at) != chosen.y))

    def _minimised_rows(self) -> NDArray[np.bool_]:
        """The rows that the objective is about: those that no constraint guards."""
        task = self.task
        guarded = task.guarded_class
        if not task.constrained or not task.minimises_others:
            return np.ones(len(self.y), dtype=bool)
        others = np.asarray(self.y != guarded)
        if not others.any():
            unguarded = [k for k in range(self.classes) if k != guarded]
            checks.some_of_each(self.owner, task.label, self.y, unguarded, task.classes)
        return others

    @property
    def held_by(self) -> str:
        """Which constraints this holder has for itself."""
        return "server" if self.owner == SERVER else "each"

    @property
    def own(self) -> list[Requirement]:
        return [one for one in self.task.requirements if one.held_by == self.held_by]

    def check(self) -> None:
        """Raise an error unless every constraint of the holder is about some of its rows, before anything is solved."""
        for one in self.own:
            if one.is_gap and self.group is None and not self.task.constrained:
                continue  # a model without constraints needs no groups
            check_rows(one, self.task.levels_of(one), self.owner, self.y, self.task.codes_of(one, self.group))

    def constraint(self) -> Constraint | None:
        """What the holder itself must meet."""
        found: list[Constraint] = []
        lines = self.lines(self.held_by)
        if lines and self.task.width:
            found.append(Constraint(self._smooth(lines), Nonnegative(len(lines))))
        for one in self.own:
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
        found: list[Line] = []
        for number, one in enumerate(self.task.requirements, 1):
            if one.held_by != held_by:
                continue
            levels = self.task.levels_of(one)
            group = self.task.codes_of(one, self.group)
            cells = self.task.cells if held_by == "all" else self.cells
            assert cells is not None
            if levels.column != self.task.group:  # one of several attributes
                cells = count_cells(self.y, group, levels, self.counts)
            part = self.task.strictness * self.task.allowance
            for line in rate_lines(one, levels, self.owner, self.y, group, cells, part, self.counts):
                found.append(replace(line, eased=number == self.task.relaxed))
        return found

    def _smooth(self, lines: Sequence[Line]) -> Map:
        """The lines with smoothed decisions, corrected where the centre is known."""
        folded = [fold(line.weights) for line in lines]
        weights = np.stack([each for each, _ in folded])
        constant = np.array([line.constant + extra for line, (_, extra) in zip(lines, folded, strict=True)])
        tighter = np.array([min(self.task.tighter * line.row, line.room) for line in lines])
        if self.task.is_network:
            return self._counted(lines, weights, constant + tighter)
        smooth = SmoothedRates(self.X, weights, constant, self.task.smoothing, self.classes)
        if self.task.centre:
            centre = np.array(self.task.centre)
            correction = self._count(lines, centre) - smooth.value(centre)
            corrected = constant + correction + tighter
            smooth = SmoothedRates(self.X, weights, corrected, self.task.smoothing, self.classes)
        if not any(line.eased for line in lines):
            return smooth
        easing = np.zeros((len(lines), self.X.shape[1]))
        easing[:, -1] = [-float(line.eased) for line in lines]
        return smooth + Affine(easing)

    def _counted(self, lines: Sequence[Line], weights: Vector, constant: Vector) -> Map:
        """The lines of a network: counted by its decisions, with the slopes of smoothed ones."""
        decisions = self.task.scorer.decisions(self.X, self.task.smoothing)
        return CountedRates(decisions, weights, constant - [line.allowed for line in lines])

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
        """(rows, classes); those of class 0 are zero with two classes.

        w: followed by the owner's own intercept, where it has one; without it the scores are those of the common model
        """
        X = self.X
        if self.task.own_intercept and w.size < self.classes_and_columns:
            X = X[:, :-1]
        return self.task.scorer.scores(w, X)

    @property
    def classes_and_columns(self) -> int:
        """Length of a model with the owner's own intercept."""
        return int(self.X.shape[1]) * (1 if self.classes == 2 else self.classes)

    def decide(self, w: Vector, at: float = 0.0) -> Labels:
        """The class that every row is given; the last one where its score is above the others' by more than `at`."""
        score = self.scores(w)
        score[:, -1] -= at
        return np.asarray(np.argmax(score, axis=1))

    def count_hits(
        self, one: Requirement, rate: str, w: Vector, decided: Labels
    ) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Which rows a rate or loss is a mean over, and what every row adds."""
        k = self.task.levels.class_of(one)
        if rate != LOSS:
            return count_rate(rate, k, self.y, decided)
        inside = np.asarray(self.y == k) if one.of else np.ones(len(self.y), dtype=bool)
        return inside, self.losses(w)

    def losses(self, w: Vector) -> Vector:
        """The loss of every row."""
        score = self.scores(w)
        return np.asarray(logsumexp(score, axis=1) - score[np.arange(len(score)), self.y])

    def cells_of(self, one: Requirement, inside: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
        """The rows of each group where a gap is bounded; else all of them."""
        if not one.is_gap:
            return [inside]
        return [inside & member for member in self.members(one)]

    def _losses(self, one: Requirement) -> Map:
        limit = self.task.allowance * bound_of(one, self.owner)
        rows = np.ones(len(self.y), dtype=bool)
        if one.of:
            rows = self.y == self.task.levels.class_of(one)
        if not one.is_gap:
            return as_map(self._mean_loss(rows) - limit)
        means = [self._mean_loss(rows & member) for member in self.members(one)]
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
        own = float(rows.sum()) if self.counts is None else float(self.counts[rows].sum())
        return as_map(own / total * (self._mean_loss(rows) - self.task.allowance * bound_of(one, self.owner)))

    def _mean_loss(self, rows: NDArray[np.bool_]) -> Function:
        """Of some rows, as constraints count them."""
        counts = None if self.counts is None else self.counts[rows]
        return self.task.scorer.mean_loss(self.X[rows], self.y[rows], counts, rows)


def own_threshold(
    task: Classification, owner: str, trained: tuple[Vector, Labels], kept: tuple[Vector, Labels]
) -> float:
    """An owner's own threshold: it keeps every bound on the recall of one class, counted or promised.

    trained, kept: scores, in any units, and classes of the rows trained on and of those held out
    """
    k = task.recalled_class
    assert k is not None
    sign = 1.0 if k == 1 else -1.0
    limits = []
    for one in task.rates:
        about = recall_of(one, task.levels)
        assert about is not None
        rate = bound_for(about[1], owner, "at_least")
        promised = one in task.promised_by(owner)
        scores, y = kept if promised else trained
        own = sign * scores[y == k]
        if not promised:
            limits.append(counted_threshold(own, rate))
            continue
        limit = promised_threshold(own, rate, task.miss_rate(one))
        assert limit is not None  # `check_promises` has seen to it
        limits.append(limit)
    lowest = min(limits)
    return sign * (lowest - MARGIN * (1 + abs(lowest)))


def counted_threshold(scores: Vector, rate: float) -> float:
    """The score such that at least this share of the scores is not below it."""
    needed = max(ceil(rate * len(scores) - ROUNDING), 1)
    return float(np.sort(scores)[len(scores) - needed])


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


def count_rate(rate: str, k: int, y: Labels, decided: Labels) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows a rate is counted on, and which of all rows count as hits."""
    if rate == "precision":
        return np.asarray(decided == k), np.asarray(y == k)
    hits = {"accuracy": decided == y, "specificity": decided != k}
    return counted_rows(rate, k, y), np.asarray(hits.get(rate, decided == k))
