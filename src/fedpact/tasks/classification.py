"""Classification under a list of constraints on what is decided: rates, gaps between groups, losses.

Rates are not smooth, so a fit solves a sequence of problems (`fedpact.fitting.sharpening`) in which decisions are
smoothed less and less: `width` is that of the smoothing, and at `centre`, the model before, every smoothed rate is
corrected by what the decisions there really count:

    smoothed(w) + counted(centre) - smoothed(centre) <= bound,

so that at a model that reproduces itself the bound is on the counts. An owner finds the correction from its own rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedpact.data import with_intercept
from fedpact.errors import DataError
from fedpact.federation.rules import Counts
from fedpact.problem import Measure, Share, Unscaled
from fedpact.problem.certificate import TOGETHER
from fedpact.prox import Prox, SquaredL2
from fedpact.tasks import checks
from fedpact.tasks.asked import AskedTask
from fedpact.tasks.base import SERVER, Bounded
from fedpact.tasks.checks import Labels
from fedpact.tasks.decisions import Decisions, Unseen
from fedpact.tasks.holding import Holding
from fedpact.tasks.model import Model
from fedpact.tasks.requirements import (
    LOSS,
    Requirement,
    count_cells,
    counted_rows,
    describe_gap,
    describe_rate,
    outline,
    row_of,
)
from fedpact.tasks.tables import Measures, Rows
from fedpact.tasks.weights import row_weights
from fedpact.types import Matrix, Vector

#: Only the direction of a model matters to rates: a squared norm keeps it finite, this much of what a loss gets.
RATE_RIDGE = 0.1


@dataclass(frozen=True, kw_only=True)
class Classification(AskedTask):
    """A classifier, linear or a network, under a list of constraints on its decisions or losses."""

    name: ClassVar[str] = "classification"
    title: ClassVar[str] = "a list of constraints: rates of decisions, gaps between groups, losses; or none"
    has_server_data: ClassVar[bool] = True

    # ------------------------------------------------------------------------------------------------- at the owner

    def share(self, owner: str, held: Rows) -> Share | Unscaled:
        if not self.promised or self.evaluating:
            return super().share(owner, held)
        agreed = super().share(owner, held)
        if not isinstance(agreed, Unscaled):
            return agreed
        # A promise is exact only if its rows had no part in the model, nor in its scales.
        return super().share(owner, self._trained(owner, held))

    def _trained(self, owner: str, rows: Rows) -> Rows:
        """The rows without those held out."""
        labels = checks.check_codes(owner, "label", rows.y, len(rows.X), len(self.classes))
        return rows.select(~self.held_out(owner, labels, rows.group, rows.cluster))

    def build(self, owner: str, rows: Rows) -> Share:
        factor = self.weight_of(owner, self._trained(owner, rows)) if owner != SERVER else 0.0
        rows = replace(rows, weight=rows.weight_drawn)
        everyone = replace(self._holding(owner, rows, row_weights(self, rows), factor), counts=rows.drawn)
        held = self.held_out(owner, everyone.y, everyone.group, rows.cluster)
        everyone = replace(everyone, weight=stand_in(held, everyone.y, everyone.group, everyone.weight))
        trained = everyone.select(~held)
        decisions = Decisions(trained, everyone.select(held & self.one_of_each(owner, len(held), rows.cluster)))
        trained.check()
        decisions.check_promises()
        constraint = None
        coupled = None
        if self.constrained:
            constraint = trained.constraint()
            coupled = trained.coupled()
        objective = None if owner == SERVER else trained.objective()
        private = int(self.own_intercept)
        return Share(objective, constraint, coupled, name=owner, measures=decisions, private=private)

    def _holding(self, owner: str, rows: Rows, weight: Vector | None, factor: float) -> Holding:
        """The rows, with the numbers of their classes and groups checked."""
        labels = checks.check_codes(owner, "label", rows.y, len(rows.X), len(self.classes))
        group = rows.group
        if group is not None:
            group = checks.check_codes(owner, "group", group, len(rows.X), len(self.groups))
        return Holding(self, owner, checks.features(owner, rows.X), labels, group, weight, factor)

    def measures_of(self, owner: str, rows: Rows, held: Callable[[], Rows]) -> Measures:
        trained: Decisions | None = None
        if self.decide_own:
            seen = held()
            measures = self.build(owner, replace(seen, X=self.design(seen.X))).measures
            assert isinstance(measures, Decisions)
            trained = measures
        rows = rows.select(self.one_of_each(owner, len(rows.y), rows.cluster))
        return Unseen(self._holding(owner, rows, None, 0.0), trained)

    def one_of_each(self, owner: str, rows: int, cluster: NDArray[np.intp] | None) -> NDArray[np.bool_]:
        """One row of every cluster, drawn without a look at its class; all rows where they are independent.

        Rows of different clusters are independent draws, so that tests of them are exact: of a row that is drawn from
        a new cluster. To draw among the rows of a class would favour clusters that have few of it.
        """
        if cluster is None:
            return np.ones(rows, dtype=bool)
        order = np.random.default_rng([self.split, zlib.crc32(owner.encode()), 1]).permutation(rows)
        first = order[np.unique(cluster[order], return_index=True)[1]]
        chosen = np.zeros(rows, dtype=bool)
        chosen[first] = True
        return chosen

    def held_out(
        self, owner: str, y: Labels, group: Labels | None, cluster: NDArray[np.intp] | None = None
    ) -> NDArray[np.bool_]:
        """Which rows are held out of training to test promises: a part of every class and group that one is about.

        cluster: of every row; then it is a part of the clusters, each with all of its rows
        """
        chosen = np.zeros(len(y), dtype=bool)
        about = np.zeros(len(y), dtype=bool)
        for one in self.promised_by(owner):
            for rate in one.rates:
                about |= counted_rows(rate, self.levels.class_of(one), y)
        kinds = np.zeros(len(y), dtype=np.int64) if group is None else group
        draw = np.random.default_rng([self.split, zlib.crc32(owner.encode())])
        if cluster is not None and about.any():
            known = np.unique(cluster)
            chosen = np.isin(cluster, draw.permutation(known)[: round(self.holdout * len(known))])
        for k in range(len(self.classes) if cluster is None else 0):
            for g in np.unique(kinds):
                cell = np.flatnonzero(about & (y == k) & (kinds == g))
                taken = draw.permutation(cell)[: round(self.holdout * len(cell))]
                chosen[taken] = True
        if about.any() and chosen.all():
            raise DataError(
                f"owner {owner!r}: all of its {len(y)} rows are held out, so that none is left to train on; lower "
                "holdout (holdout_rows in a job), or give this owner more rows",
                code="FP-DATA-802",
            )
        return chosen

    def count(self, held: Rows) -> Counts:
        # Sums rest on the rows that are trained on, which a job that holds out nearly all could make few.
        kept = self.held_out("", held.y, held.group, held.cluster)
        return self.count_unseen(held.select(~kept))

    def count_unseen(self, unseen: Rows) -> Counts:
        counts = super().count(unseen)
        if unseen.group is None:
            return counts
        # Constraints between groups are about means over the rows of a class of each group, too.
        cells = count_cells(unseen.y, unseen.group, self.levels)
        wanted = set()
        for one in self.requirements:
            k = self.levels.class_of(one)
            for rate in one.rates if one.is_gap else ():
                if rate == "recall":
                    wanted |= {f"class {k}, group {g}" for g in range(len(self.groups))}
                elif rate in ("specificity", "false_positive_rate"):
                    wanted |= {f"not class {k}, group {g}" for g in range(len(self.groups))}
        return replace(counts, groups=(*counts.groups, *(int(cells[name]) for name in sorted(wanted))))

    # ------------------------------------------------------------------------------------------------------ for all

    @property
    def common_intercept(self) -> bool:
        """Whether the model that all share has an intercept."""
        return self.intercept and not self.own_intercept

    def design(self, X: Matrix) -> Matrix:
        matrix = super().design(X)
        if self.own_intercept and not self.intercept:  # the last column is the owner's own
            matrix = with_intercept(matrix)
        if self.relaxed:  # one more variable, which no row depends on
            matrix = np.column_stack([matrix, np.zeros(len(matrix))])
        return matrix

    def regularizer(self) -> Prox | None:
        found = super().regularizer()
        if self.relaxed:
            ridge = np.full(self.parameters, RATE_RIDGE / self.spread**2 * max(self.regularization, self.l1))
            return SquaredL2(np.append(ridge, 0.0))
        if self.minimises_errors and isinstance(found, SquaredL2):
            return SquaredL2(RATE_RIDGE / self.spread**2 * np.asarray(found.weight))
        return found

    def make_model(self, w: Vector) -> Model:
        found = replace(super().make_model(w), log_odds=not self.sharpened, own_threshold=self.decide_own)
        if not self.decide_at:
            return found
        return replace(found, intercept=found.intercept - self.decide_at)

    def measure_name(self, name: str) -> str:
        if name == "protected rows":
            k = len(self.classes) - 1 if self.guarded_class is None else self.guarded_class
            return f"rows with {self._class_in_words(k)}"
        for k in range(len(self.classes)):
            if name == f"decided as class {k}":
                return f"decided as {self._class_in_words(k)}"
        of_class = self._class_in_words(self.reported_class)
        if name in ("recall", "specificity"):
            return f"{name} of {of_class}"
        found = super().measure_name(name)
        if name.startswith("recall of group "):
            return found.replace("recall of ", f"recall of {of_class} where ", 1)
        return found

    def _class_in_words(self, k: int) -> str:
        return f"{self.label} = {self.classes[k]}"

    def one_class(self, told: Mapping[str, float]) -> str:
        if told.get("accuracy", 1.0) == 1.0:  # right about all of them, if there are of one class only
            return ""
        for k in range(len(self.classes)):
            if self._gives_all(k, told):
                return self._class_in_words(k)
        return ""

    def _gives_all(self, k: int, told: Mapping[str, float]) -> bool:
        """Whether the measures show that every row is given class k."""
        if told.get(f"decided as class {k}") == 1.0:
            return True
        rates = [value for name, value in told.items() if name.startswith("positive rate of group ")]
        if rates and len(self.classes) == 2:
            return all(value == k for value in rates)
        decided = (told.get("recall"), told.get("specificity"))
        if k == self.reported_class:
            return decided == (1.0, 0.0)
        return len(self.classes) == 2 and decided == (0.0, 1.0)

    # ---------------------------------------------------------------------------------- what all owners hold together

    def cells_together(self) -> Iterator[tuple[Requirement, str, slice]]:
        """The rates or losses that all owners hold together, and where their cells are among all of these."""
        start = 0
        for one in self.requirements:
            if one.held_by != "all":
                continue
            cells = len(self.groups) if one.is_gap else 1
            for rate in one.rates or (LOSS,):
                yield one, rate, slice(start, start + cells)
                start += cells

    def tell_together(self, hits: Vector, rows: Vector) -> dict[str, Measure]:
        """The values of these constraints, by the words for them, from the sums of `Decisions.count_together`."""
        told: dict[str, Measure] = {}
        for one, rate, cells in self.cells_together():
            everyone = rate == LOSS and not one.of
            what = describe_rate(rate, self.levels.class_of(one), self.levels, everyone=everyone)
            counts = rows[cells].astype(int)
            means = hits[cells] / np.maximum(counts, 1)
            if not one.is_gap:
                told[what] = Measure(float(means[0]), int(counts[0]))
                continue
            for a, b in self.levels.pairs:
                gap = describe_gap(what, a, b, self.levels)
                fewest = int(min(counts[a], counts[b]))
                told[gap] = Measure(abs(float(means[b] - means[a])), fewest)
                told[row_of(gap)] = Measure(1 / max(fewest, 1), fewest)
        return told

    def cells_promised(self, owner: str) -> Iterator[tuple[Requirement, str, slice]]:
        """The rates that an owner promises for itself, and where their cells are among all of these."""
        start = 0
        for one in self.promised_by(owner):
            if one.held_by != "each" or owner == SERVER:
                continue
            cells = len(self.levels_of(one).groups) if one.is_gap else 1
            for rate in one.rates:
                yield one, rate, slice(start, start + cells)
                start += cells

    def promises_hold(self, owner: str, hits: Vector, rows: Vector) -> bool:
        """Whether an owner's held-out rows bear out its promises: exact tests, all of which must pass."""
        for one, _, cells in self.cells_promised(owner):
            found = hits[cells].round().astype(int).tolist()
            counts = rows[cells].round().astype(int).tolist()
            delta = self.miss_rate(one) if self.decide_own else 1 - one.confidence
            if not one.borne_out(owner, found, counts, delta):
                return False
        return True

    def promises_hold_together(self, hits: Vector, rows: Vector) -> bool:
        """Whether the held-out rows of all owners bear out what they promise together: exact tests."""
        for one, _, cells in self.cells_together():
            if not one.confidence:
                continue
            found = hits[cells].round().astype(int).tolist()
            counts = rows[cells].round().astype(int).tolist()
            if not one.borne_out(TOGETHER, found, counts, 1 - one.confidence):
                return False
        return True

    # ------------------------------------------------------------------------------------------------ in words

    def promise_in_words(self) -> str:
        """What the promises for new rows rest on; empty without any."""
        if not self.promised:
            return ""
        how = "the model was tested on them, and is the last of a fixed sequence of models that passed"
        if self.promised_class is not None:
            whose = "one threshold for all owners" if self.threshold == "common" else "every owner's own threshold"
            how = f"{whose} is set by the scores of these rows"
        if not self.proven:
            how = "what it shows does not bear the promises out"
        independent = "where many rows are of one person, doctor or day they fail more often than stated"
        if self.cluster:
            independent = f"of every {self.cluster} one row counts, and its rows are held out together"
        return (
            "Promises are about rows not yet seen, drawn as the owners' rows were, and independently of each other: "
            f"{independent}. A part of the rows "
            f"({self.holdout:g} of those concerned) was held out of training: {how}."
            + (f" They are made for {', '.join(self.promise_for)} alone." if self.promise_for else "")
        )

    def bounded(self, owner: str, values: Vector, price: Vector, told: Mapping[str, float]) -> Iterator[Bounded]:
        row = 0
        for one in self._held_by(owner):
            for bound in outline(one, self.levels_of(one), owner):
                rows = slice(row, row + bound.rows)
                row += bound.rows
                paid = float(price[rows].max()) if price[rows].size else float("nan")
                if one.rates or owner == TOGETHER:
                    value = told.get(bound.what, float("nan"))
                else:
                    value = float(values[rows].max() + bound.bound) if values[rows].size else float("nan")
                counted = 0
                if isinstance(value, Measure) and one.rates and not one.is_gap:
                    counted = value.rows
                yield Bounded(
                    owner,
                    bound.what,
                    float(value),
                    bound.bound,
                    paid,
                    least=bound.least,
                    allowed=float(told.get(row_of(bound.what), 0.0)),
                    promise=self._promise(one, owner),
                    confidence=one.confidence if self._promise(one, owner) else 0.0,
                    rows=counted,
                )

    def _promise(self, one: Requirement, owner: str) -> str:
        if one not in self.promised_by("" if owner in (SERVER, TOGETHER) else owner):
            return ""
        return "made" if self.proven else "not made"

    def _held_by(self, owner: str) -> list[Requirement]:
        """The constraints of a holder, in the order of their rows: those on decisions first."""
        wanted = {SERVER: "server", TOGETHER: "all"}.get(owner, "each")
        own = [one for one in self.requirements if one.held_by == wanted]
        if not self.width:
            return [one for one in own if not one.rates]
        return [one for one in own if one.rates] + [one for one in own if not one.rates]


def stand_in(held: NDArray[np.bool_], y: Labels, group: Labels | None, weight: Vector | None) -> Vector | None:
    """Weights of rows in the objective, with which rows trained on stand for those held out, of their class and group.

    Without them a class that is held out in part would seem rarer than it is.
    """
    if not held.any():
        return weight
    found = np.ones(len(y)) if weight is None else weight.copy()
    kinds = np.zeros(len(y), dtype=np.int64) if group is None else group
    for k in np.unique(y):
        for g in np.unique(kinds):
            cell = (y == k) & (kinds == g)
            trained = int(np.sum(cell & ~held))
            if trained:
                found[cell] *= np.sum(cell) / trained
    return found
