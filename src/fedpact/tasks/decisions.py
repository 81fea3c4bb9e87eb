"""What a model decides about one owner's rows: counts, thresholds and promises, on rows trained on and on others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import DataError
from fedpact.problem import Measure
from fedpact.statistics import rows_needed
from fedpact.tasks.base import SERVER
from fedpact.tasks.checks import Labels, bound_for
from fedpact.tasks.decision_measures import describe_decisions, loss_measures
from fedpact.tasks.holding import ROUNDING, Holding, count_rate, own_threshold
from fedpact.tasks.requirements import Requirement, rate_names, recall_of
from fedpact.types import Vector

#: What helps whatever an owner's rows are.
REMEDY = "give it more rows, ask for less, or leave it out of the promise: promise_for = [the other owners]"


@dataclass(frozen=True, eq=False)
class Decisions:
    """What a model decides about the owner's rows: told at the end, and counted on the way.

    rows: those it was trained on; kept: those held out to test promises
    """

    rows: Holding
    kept: Holding

    def __call__(self, w: Vector) -> dict[str, Measure]:
        w = self.common(w)
        return describe_decisions(self.rows, w, self.decide_at(w))

    def common(self, w: Vector) -> Vector:
        """The model without the owner's own intercept, where its own threshold takes the place of that."""
        if self.rows.task.decide_own and self.rows.task.own_intercept:
            return w[: self.rows.task.parameters]
        return w

    def decide_at(self, w: Vector) -> float:
        """The threshold of the last class: that of all owners, or this owner's own."""
        if self.rows.task.decide_own and self.rows.owner != SERVER:
            return self._own_threshold(w)
        return self.rows.task.decide_at

    def score(self, w: Vector) -> Vector:
        """Of the last class over the others, on the training rows: above 0 where all owners decide for it."""
        score = self.rows.scores(w)
        return np.asarray(score[:, -1] - score[:, :-1].max(axis=1) - self.rows.task.decide_at)

    @property
    def labels(self) -> Vector:
        """1 for rows of the last class."""
        return np.asarray(self.rows.y == self.rows.classes - 1, dtype=float)

    def count_errors(self, w: Vector) -> float:
        """The owner's part of the objective; errors are counted where they are minimised."""
        common = self.common(w)
        at = self.decide_at(common)
        return self.rows.count_errors(common if self.rows.task.counts_objective else w, at)

    # ------------------------------------------------------------------------------------------ promises for new rows

    def check_promises(self) -> None:
        """Raise DataError unless the held-out rows are enough for a promise to exist at all."""
        task = self.rows.task
        for one in task.promised_by(self.rows.owner):
            promised = recall_of(one, task.levels)
            if promised is None or self.rows.owner == SERVER:
                continue
            k, bound = promised
            needed = rows_needed(bound_for(bound, self.rows.owner, "at_least"), task.miss_rate(one))
            found = int(np.sum(self.kept.y == k))
            if found < needed:
                advice = advise(needed, found + int(np.sum(self.rows.y == k)))
                rows = "held-out rows"
                if task.cluster:  # each counts as one row, whose class may be another
                    advice = REMEDY
                    rows = f"held-out clusters ({task.cluster}) whose row, drawn at random, is"
                raise DataError(
                    f"owner {self.rows.owner!r}: not enough rows for a promise with confidence {one.confidence:g}: it "
                    f"needs {needed} {rows} with {task.label} = {task.classes[k]}, it has {found}; {advice}",
                    code="FP-DATA-803",
                    column=task.label,
                )

    def fails_at(self, w: Vector, thresholds: Vector) -> NDArray[np.bool_]:
        """With which thresholds the recall would be missed, or a promise of it might be."""
        limit = self._own_threshold(w)
        if self.rows.task.recalled_class == 1:
            return np.asarray(thresholds > limit)
        return np.asarray(thresholds < limit)

    def _own_threshold(self, w: Vector) -> float:
        """The threshold that keeps every bound on the recall of the class: an order statistic of its scores.

        Those of held-out rows where the owner promises the bound, else those of the rows trained on.
        """
        trained = (self.rows.scores(w)[:, 1], self.rows.y)
        kept = (self.kept.scores(w)[:, 1], self.kept.y)
        return own_threshold(self.rows.task, self.rows.owner, trained, kept)

    def keeps_promises(self, w: Vector) -> bool:
        """Whether the held-out rows bear out every promise of the owner's own."""
        return self.rows.task.promises_hold(self.rows.owner, *self.count_promises(w))

    def count_promises(self, w: Vector) -> tuple[Vector, Vector]:
        """Held-out hits and rows in every cell of the promises that each owner makes for itself."""
        kept = self.kept
        w = self.common(w)
        decided = kept.decide(w, self.decide_at(w))
        hits: list[float] = []
        sizes: list[float] = []
        for one, rate, _ in kept.task.cells_promised(kept.owner):
            inside, hit = count_rate(rate, kept.task.levels.class_of(one), kept.y, decided)
            for cell in kept.cells_of(one, inside):
                hits.append(float(hit[cell].sum()))
                sizes.append(float(cell.sum()))
        return np.array(hits), np.array(sizes)

    @property
    def unmoved(self) -> Decisions:
        """The same rows, decided at a score of zero: as the model without constraints decides."""
        task = replace(self.rows.task, decide_at=0.0, decide_own=False)
        return Decisions(replace(self.rows, task=task), replace(self.kept, task=task))

    def count_together(self, w: Vector, held_out: bool = False) -> tuple[Vector, Vector]:
        """Hits and rows in every cell of the constraints that all owners hold together, for a loss its sum.

        held_out: of the rows that test promises, in the place of those trained on
        """
        rows = self.kept if held_out else self.rows
        w = self.common(w)
        decided = rows.decide(w, self.decide_at(w))
        hits: list[float] = []
        sizes: list[float] = []
        for one, rate, _ in rows.task.cells_together():
            inside, hit = rows.count_hits(one, rate, w, decided)
            for cell in rows.cells_of(one, inside):
                hits.append(float(hit[cell].sum()))
                sizes.append(float(cell.sum()))
        return np.array(hits), np.array(sizes)

    # ------------------------------------------------------------------------------------------------- on the way

    def tally(self, w: Vector) -> tuple[bool, Vector]:
        """Whether the holder's own constraints on decisions are met, counted; and its part of those all hold."""
        lines = self.rows.lines(self.rows.held_by)
        w = self.common(w)
        at = self.decide_at(w)
        excess = self.rows.count(lines, w, at) - [line.allowed for line in lines] if lines else np.zeros(0)
        part = np.zeros(0)
        if self.rows.task.coupled and self.rows.owner != SERVER:
            together = self.rows.lines("all")
            part = self.rows.count(together, w, at) - [line.allowed / self.rows.task.owners for line in together]
        return bool(np.all(excess <= ROUNDING)), np.asarray(part)


def advise(needed: int, total: int) -> str:
    """What helps an owner that has too few held-out rows: only what its rows can do."""
    if total <= needed:  # one at least is to train on
        return f"all of its {total} would not be enough: {REMEDY}"
    part = ceil(1000 * needed / total) / 1000
    return f"hold out at least {part:g} of them (holdout_rows in a job, holdout in Python), {REMEDY}"


@dataclass(frozen=True, eq=False)
class Unseen:
    """What a model decides about rows that nobody trained on: nothing else can be asked about them.

    trained: the training rows, where the owner's threshold is found from those held out; None: all decide at the same
    """

    rows: Holding
    trained: Decisions | None

    def __call__(self, w: Vector) -> dict[str, Measure]:
        at = self.decide_at(w)
        told = describe_decisions(self.rows, w, at)
        told |= loss_measures(self.rows, w)
        for one in self.rows.task.rates:
            if one.held_by == "each" and one.is_gap:
                told |= self._group_rates(one, self.rows.decide(w, at))
        return told

    def decide_at(self, w: Vector) -> float:
        """The threshold of the last class."""
        return self.rows.task.decide_at if self.trained is None else self.trained.decide_at(w)

    def _group_rates(self, one: Requirement, decided: Labels) -> dict[str, Measure]:
        """The rates of every group, which a gap between them rests on."""
        hits, rows = self._count(one, decided)
        cell = int(min(rows))
        names = rate_names(one, self.rows.task.levels_of(one))
        each = zip(names, hits, rows, strict=True)
        return {name: Measure(hit / row if row else np.nan, int(row), cell) for name, hit, row in each}

    def count_together(self, w: Vector) -> tuple[Vector, Vector]:
        """Hits and rows of the rates that all owners bound together, in the order of `rate_names`."""
        decided = self.rows.decide(w, self.decide_at(w))
        counts = [self._count(one, decided) for one in self.rows.task.rates if one.held_by == "all"]
        hits = [hit for found, _ in counts for hit in found]
        rows = [row for _, found in counts for row in found]
        return np.array(hits), np.array(rows)

    def _count(self, one: Requirement, decided: Labels) -> tuple[list[float], list[float]]:
        """Hits and rows of the rates that it bounds; between groups, of every group."""
        rows = self.rows
        k = rows.task.levels.class_of(one)
        members = [np.ones(len(rows.y), dtype=bool)]
        if one.is_gap:
            members = rows.members(one)
        hits = []
        sizes = []
        for rate in one.rates:
            inside, hit = count_rate(rate, k, rows.y, decided)
            hits += [float(np.sum(hit & inside & member)) for member in members]
            sizes += [float(np.sum(inside & member)) for member in members]
        return hits, sizes
