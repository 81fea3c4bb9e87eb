"""Classification under a list of constraints on what is decided: rates, gaps between groups, losses.

Rates are not smooth, so a fit solves a sequence of problems (`fedpact.fitting.sharpening`) in which decisions are
smoothed less and less: `width` is that of the smoothing, and at `centre`, the model before, every smoothed rate is
corrected by what the decisions there really count:

    smoothed(w) + counted(centre) - smoothed(centre) <= bound,

so that at a model that reproduces itself the bound is on the counts. An owner finds the correction from its own rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import DataError, OptionError
from fedpact.problem import Share
from fedpact.prox import Prox, SquaredL2
from fedpact.tasks import checks
from fedpact.tasks.base import SERVER, Bounded, key
from fedpact.tasks.checks import Labels
from fedpact.tasks.decisions import Decisions, Holding
from fedpact.tasks.model import Model
from fedpact.tasks.requirements import (
    LOSS,
    Levels,
    Requirement,
    count_cells,
    counted_rows,
    outline,
    read_requirements,
    recall_of,
    row_of,
)
from fedpact.tasks.tables import ClassTask, GroupedTask, Rows
from fedpact.tasks.weights import row_weights
from fedpact.types import Matrix, Vector

#: What is minimised: losses, or errors (smoothed); "auto" takes what the constraints are about.
Objective = Literal["auto", "loss", "errors"]
Threshold = Literal["common", "own"]
#: Only the direction of a model matters to rates: a squared norm keeps it finite, this much of what a loss gets.
RATE_RIDGE = 0.1


@dataclass(frozen=True, kw_only=True)
class Classification(ClassTask, GroupedTask):
    """A linear classifier under a list of constraints on its decisions or losses.

    Keys of a job first; then what a fit finds on its way:

    width:     of the smoothing of decisions; 0: rates are left out, which gives the start
    centre:    model at which smoothed rates are corrected by the counts; empty: nowhere
    tighter:   rows by which every owner tightens its rates, since the models before missed them
    cells:     rows of every cell at all owners together, for constraints that all hold together
    relaxed:   number of the constraint whose least relaxation is sought, counted from 1; 0: none
    strictness: part of every bound that the models for a promise have to meet; 1: the bounds themselves
    decide_at: score above which the last class is decided: found for a promise about new rows
    decide_own: whether every owner decides at a threshold of its own, found from its held-out rows
    proven:    whether the held-out rows of all owners bear out the promises
    split:     seed of which rows are held out
    """

    name: ClassVar[str] = "classification"
    title: ClassVar[str] = "a list of constraints: rates of decisions, gaps between groups, losses; or none"
    has_server_data: ClassVar[bool] = True

    constraints: tuple[Requirement, ...] = key(
        (), "the list of constraints; each is a table [[constraint]]", "constraints", name="constraint", shown="none"
    )
    objective: Objective = key(  # noqa: RUF009 - a field
        "auto", "what is minimised: the loss, or errors on rows that no constraint is about", "text",
        choices=("auto", "loss", "errors"),
    )  # fmt: skip
    confidence: float = key(
        0.0, "confidence of all promises for rows not yet seen, where a constraint states none; 0: training rows",
        "number", example="0.95",
    )  # fmt: skip
    threshold: Threshold = key(  # noqa: RUF009 - a field
        "common", "one threshold for all owners, or one of each owner's own, where a promise is made", "text",
        choices=("common", "own"),
    )  # fmt: skip
    holdout: float = key(0.5, "part of the rows that a promise is about, kept out of training to test it", "number")

    width: float = 0.0
    centre: tuple[float, ...] = ()
    tighter: float = 0.0
    cells: Mapping[str, float] | None = None
    relaxed: int = 0
    strictness: float = 1.0
    decide_at: float = 0.0
    decide_own: bool = False
    proven: bool = False
    split: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "constraints", read_requirements(self.constraints))
        object.__setattr__(self, "centre", tuple(self.centre))
        super().__post_init__()
        self._check_constraints()
        if not 0 < self.holdout < 1:
            raise OptionError(
                f"holdout = {self.holdout:g}: give the part of the rows that is kept out of training, above 0 and "
                "below 1",
                code="FP-OPTION-820",
                key="holdout",
            )

    def _check_constraints(self) -> None:
        if self.confidence and not any(one.confidence for one in self.requirements):
            raise OptionError(
                f"confidence = {self.confidence:g}, but no constraint is about decisions at the owners",
                code="FP-OPTION-821",
                key="confidence",
            )
        for one in self.requirements:
            self.levels.class_of(one)
            if one.is_gap and not self.group and self.constrained:
                raise OptionError(
                    f"{one.words}: it is between groups; state group = ..., the column of the groups",
                    code="FP-OPTION-822",
                    key="group",
                )
        if self.promised and not self.intercept:
            raise OptionError(
                "a promise for new rows is kept by moving the threshold; let the model have an intercept",
                code="FP-OPTION-823",
                key="intercept",
            )

    # ------------------------------------------------------------------------------------------------- what is asked

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """All constraints, with the confidence of the task where they state none of their own."""
        found = []
        for one in (*self.own_requirements(), *self.constraints):
            promised = self.confidence and one.kind != LOSS and one.held_by != "server" and not one.confidence
            found.append(replace(one, confidence=self.confidence) if promised else one)
        return tuple(found)

    def own_requirements(self) -> tuple[Requirement, ...]:
        """Those that the keys of a kind of task state, besides the list."""
        return ()

    @property
    def levels(self) -> Levels:
        groups = self.groups if self.group else ()
        return Levels(self.classes, groups, self.label, self.group)

    @property
    def rates(self) -> tuple[Requirement, ...]:
        """The constraints on decisions."""
        return tuple(one for one in self.requirements if one.rates)

    @property
    def sharpened(self) -> bool:
        """Whether decisions are constrained: then a sequence of smoothed problems is solved."""
        return bool(self.rates) and self.constrained

    @property
    def promised(self) -> tuple[Requirement, ...]:
        """The constraints that shall hold on rows not yet seen."""
        return tuple(one for one in self.requirements if one.confidence)

    @property
    def promised_class(self) -> int | None:
        """The class whose recall is all that is promised, of two: then moving the threshold keeps the promise."""
        found = {recall_of(one, self.levels) for one in self.rates}
        if len(self.classes) != 2 or len(self.promised) != len(self.rates) or len(found) != 1:
            return None
        only = found.pop()
        return None if only is None else only[0]

    def miss_rate(self, one: Requirement) -> float:
        """How often the promise of one owner may fail: thresholds of the owners' own share what all may."""
        delta = 1 - one.confidence
        return delta / self.owners if self.threshold == "own" else delta

    @property
    def coupled(self) -> bool:
        """Whether a constraint is about all owners' rows together."""
        return any(one.held_by == "all" for one in self.requirements)

    @property
    def guarded_class(self) -> int | None:
        """The class that all one-sided constraints are about, where the errors on the others are what is minimised.

        None: the constraints are about several classes, or about groups only.
        """
        found = set()
        for one in self.requirements:
            if one.is_gap:
                continue
            k = self.levels.class_of(one)
            if one.kind in ("specificity", "false_positive_rate") and len(self.classes) == 2:
                k = 1 - k
            elif one.kind != "recall" and not (one.kind == LOSS and one.of):
                return None
            found.add(k)
        if len(found) != 1:
            return None
        return found.pop()

    @property
    def aims_at_errors(self) -> bool:
        """Whether errors are minimised in the end, and not a loss."""
        if not self.rates or self.objective == "loss":
            return False
        return self.objective == "errors" or self.guarded_class is not None

    @property
    def minimises_errors(self) -> bool:
        """Whether the objective is a rate of errors: once decisions are smoothed."""
        return bool(self.width) and self.aims_at_errors

    def sentence(self) -> str:
        if not self.requirements:
            return "Least loss on all rows, without constraints."
        asked = [self._describe(one) for one in self.requirements]
        return f"{'; '.join(asked)}; {self._aim()}."

    def _describe(self, one: Requirement) -> str:
        k = self.levels.class_of(one)
        of_class = f" of {self.label} = {self.classes[k]}" if one.rates and not one.is_gap else ""
        if one.kind == LOSS and one.of:
            of_class = f" on {self.label} = {self.classes[k]}"
        between = f" between groups of {self.group}" if one.is_gap else ""
        where = {"each": self.everyone(), "all": "over all owners together", "server": "at the coordinator"}
        promised = f", on rows not yet seen with confidence {one.confidence:g}" if one.confidence else ""
        words = f"{one.words}{of_class}{between} {one.bounds_in_words()} {where[one.held_by]}{promised}"
        return words[0].upper() + words[1:]

    def _aim(self) -> str:
        about = "errors" if self.aims_at_errors else "loss"
        if self.guarded_class is None:
            return f"least {about} on all rows"
        return f"least {about} on the others"

    # ------------------------------------------------------------------------------------------------- at the owner

    def build(self, owner: str, rows: Rows) -> Share:
        labels = checks.check_codes(owner, "label", rows.y, len(rows.X), len(self.classes))
        group = rows.group
        if group is not None:
            group = checks.check_codes(owner, "group", group, len(rows.X), len(self.groups))
        held = self.held_out(owner, labels, group)
        weight = row_weights(self, rows)
        factor = self.weight_of(owner, rows) if owner != SERVER else 0.0
        everyone = Holding(self, owner, rows.X, labels, group, weight, factor)
        trained = everyone.select(~held)
        decisions = Decisions(trained, everyone.select(held))
        constraint = None
        coupled = None
        if self.constrained:
            constraint = trained.constraint()
            coupled = trained.coupled()
            decisions.check_promises()
        objective = None if owner == SERVER else trained.objective()
        return Share(objective, constraint, coupled, name=owner, measures=decisions)

    def held_out(self, owner: str, y: Labels, group: Labels | None) -> NDArray[np.bool_]:
        """Which rows are kept out of training to test promises: a part of every class and group that one is about."""
        chosen = np.zeros(len(y), dtype=bool)
        about = np.zeros(len(y), dtype=bool)
        for one in self.promised:
            for rate in one.rates:
                about |= counted_rows(rate, self.levels.class_of(one), y)
        kinds = np.zeros(len(y), dtype=np.int64) if group is None else group
        draw = np.random.default_rng([self.split, zlib.crc32(owner.encode())])
        for k in range(len(self.classes)):
            for g in np.unique(kinds):
                cell = np.flatnonzero(about & (y == k) & (kinds == g))
                taken = draw.permutation(cell)[: round(self.holdout * len(cell))]
                chosen[taken] = True
        if about.any() and chosen.all():
            raise DataError(
                f"owner {owner!r}: all of its {len(y)} rows are held out, so that none is left to train on; lower "
                "holdout, or give this owner more rows",
                code="FP-DATA-802",
            )
        return chosen

    def count(self, held: Any) -> Any:
        counts = super().count(held)
        if held.group is None:
            return counts
        # Constraints between groups are about means over the rows of a class of each group, too.
        cells = count_cells(held.y, held.group, self.levels)
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

    def design(self, X: Matrix) -> Matrix:
        matrix = super().design(X)
        if self.relaxed:  # one more variable, which no row depends on
            matrix = np.column_stack([matrix, np.zeros(len(matrix))])
        return matrix

    def regularizer(self) -> Prox | None:
        found = super().regularizer()
        if self.relaxed:
            ridge = np.full(self.parameters, RATE_RIDGE * max(self.regularization, self.l1))
            return SquaredL2(np.append(ridge, 0.0))
        if self.minimises_errors and isinstance(found, SquaredL2):
            return SquaredL2(RATE_RIDGE * np.asarray(found.weight))
        return found

    def model(self, w: Vector) -> Model:
        found = super().model(w)
        if not self.decide_at:
            return found
        return replace(found, intercept=found.intercept - self.decide_at)

    def bounded(self, owner: str, values: Vector, price: Vector, told: Mapping[str, float]) -> Iterator[Bounded]:
        row = 0
        for one in self._held_by(owner):
            for bound in outline(one, self.levels, owner):
                rows = slice(row, row + bound.rows)
                row += bound.rows
                paid = float(price[rows].max()) if price[rows].size else float("nan")
                if one.rates:
                    value = told.get(bound.what, float("nan"))
                else:
                    value = float(values[rows].max() + bound.bound) if values[rows].size else float("nan")
                yield Bounded(
                    owner,
                    bound.what,
                    value,
                    bound.bound,
                    paid,
                    least=bound.least,
                    allowed=told.get(row_of(bound.what), 0.0),
                    promise=self._promise(one),
                )

    def _promise(self, one: Requirement) -> str:
        if not one.confidence:
            return ""
        return "kept" if self.proven else "not kept"

    def _held_by(self, owner: str) -> list[Requirement]:
        """The constraints of a holder, in the order of their rows: those on decisions first."""
        wanted = "server" if owner == SERVER else "each"
        own = [one for one in self.requirements if one.held_by == wanted]
        if not self.width:
            return [one for one in own if not one.rates]
        return [one for one in own if one.rates] + [one for one in own if not one.rates]
