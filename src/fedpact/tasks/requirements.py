"""Constraints on what a model decides, as a list: what is bounded, by how much, and who holds it.

A `Requirement` is one entry `[[constraint]]` of a job. A rate of decisions, or a gap between groups of one, is at every
owner a weighted sum of decisions and a constant that must be at most zero: a `Line`. The weights serve twice: with the
decisions themselves they count, with smoothed ones (`fedpact.functions.rates`) they are a constraint for a solver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from itertools import combinations
from math import ceil, floor, isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import DataError, OptionError
from fedpact.statistics import gap_holds, rate_holds
from fedpact.tasks import checks
from fedpact.tasks.base import key
from fedpact.tasks.checks import Labels, bound_for
from fedpact.types import Matrix, Vector

#: Who a constraint holds for: every owner, all owners' rows together, or the coordinator's own table.
Holder = Literal["each", "all", "server"]
HOLDERS = ("each", "all", "server")
#: Rates of decisions about one class, and which rows they are counted on.
RATES = {
    "recall": "the share of its rows that are found",
    "specificity": "the share of the other rows that are not taken for it",
    "false_positive_rate": "the share of the other rows that are taken for it",
    "selection_rate": "the share of all rows that are taken for it",
    "precision": "the share of the rows taken for it that are of it",
    "accuracy": "the share of all rows whose class is found",
}
LOSS = "loss"
#: Gaps that have a name: the rates that may differ only so much between groups.
NAMED_GAPS = {
    "demographic_parity": ("selection_rate",),
    "equal_opportunity": ("recall",),
    "equalized_odds": ("recall", "false_positive_rate"),
}
KINDS = (*RATES, LOSS, *NAMED_GAPS)
#: Rates that are written differently in a sentence.
WORDS = {"false_positive_rate": "false-positive rate", "selection_rate": "selection rate"}
#: A rate of a group is taken over so many rows or more.
FEWEST = 3
#: 0.9 times 10 is 9, whatever it is rounded to.
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One constraint of a task: a table [[constraint]] of a job, whose keys are its fields."""

    kind: str = key(
        MISSING, "what is bounded: a rate of decisions, the loss, or a gap that has a name", "text",
        example='"recall"', choices=KINDS,
    )  # fmt: skip
    at_least: float | Mapping[str, float] | None = key(
        None, "bound from below; or one each in a table, owner = number", "bound", example="0.9"
    )
    at_most: float | Mapping[str, float] | None = key(
        None, "bound from above, which every gap has; or one each in a table", "bound", example="0.1"
    )
    gap: bool = key(False, "bounds the gap between every two groups, in place of the rate or loss itself", "bool")
    between: str = key(
        "", "the protected attribute whose groups a gap is between", "text", shown="each of them", example='"sex"'
    )
    of: str = key("", "the class that it is about", "level", shown="the last one; of a loss: all rows", example='"yes"')
    held_by: Holder = key(  # noqa: RUF009 - a field
        "each", "who holds it: each owner, all owners' rows together, or the coordinator on its table", "text",
        choices=HOLDERS,
    )  # fmt: skip
    confidence: float = key(
        0.0, "of a promise for rows not yet seen, which fails with probability 1 - confidence at most", "number",
        shown="0: it holds on the training rows", example="0.95",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise OptionError(
                f"constraint kind {self.kind!r} is unknown; choose {', '.join(KINDS)}", code="FP-OPTION-800", key="kind"
            )
        if self.held_by not in HOLDERS:
            raise OptionError(
                f"held_by = {self.held_by!r} is unknown; choose {', '.join(HOLDERS)}",
                code="FP-OPTION-801",
                key="held_by",
            )
        self._check_sides()
        self._check_range()
        if not 0 <= self.confidence < 1:
            raise OptionError(
                f"confidence = {self.confidence:g}: no sample can give certainty; give a number below 1, such as 0.95",
                code="FP-OPTION-802",
                key="confidence",
            )
        if self.confidence and self.kind == LOSS:
            raise OptionError(
                "confidence for a loss: a mean loss has no bound on new rows, since one row may have any; ask for a "
                "rate instead, such as recall",
                code="FP-OPTION-803",
                key="confidence",
            )
        if self.confidence and self.held_by == "server":
            raise OptionError(
                "confidence is for constraints of owners; leave it out for the coordinator's table",
                code="FP-OPTION-804",
                key="confidence",
            )

    def _check_sides(self) -> None:
        """A gap has an upper bound, a rate one side or both that leave room between them."""
        if self.is_gap and (self.at_most is None or self.at_least is not None):
            raise OptionError(
                f"{self.kind}: a gap between groups has at_most and nothing else", code="FP-OPTION-805", key="at_most"
            )
        if self.at_least is None and self.at_most is None:
            raise OptionError(
                f"{self.kind}: no bound is stated; give at_least or at_most", code="FP-OPTION-806", key="at_least"
            )
        if self.kind == "precision" and (self.is_gap or self.at_most is not None):
            raise OptionError(
                "precision can be bounded from below only, and not between groups: nothing may be selected; use "
                "at_least, or bound the false_positive_rate",
                code="FP-OPTION-807",
                key="at_most",
            )
        if self.kind == LOSS and self.at_least is not None:
            raise OptionError("a loss is bounded from above; use at_most", code="FP-OPTION-808", key="at_least")
        if self.held_by == "all" and any(isinstance(bound, Mapping) for _, _, bound in self.sides):
            raise OptionError(
                f"{self.words}: a bound for each owner, and all owners' rows together have one; give a number",
                code="FP-OPTION-831",
                key="held_by",
            )
        names: set[str] = set()
        for side in (self.at_least, self.at_most):
            names |= set(side) if isinstance(side, Mapping) else set()
        for name in names or {""}:
            low = -np.inf if self.at_least is None else bound_for(self.at_least, name, "at_least")
            high = np.inf if self.at_most is None else bound_for(self.at_most, name, "at_most")
            if low > high:
                raise OptionError(
                    f"{self.kind}: at_least = {low:g} is above at_most = {high:g}; no value is between them",
                    code="FP-OPTION-809",
                    key="at_least",
                )

    def _check_range(self) -> None:
        """Rates are between 0 and 1, both excluded where nothing could miss them; a gap may be 0."""
        top = np.inf if self.kind == LOSS else 1.0
        for name in ("at_least", "at_most"):
            side = getattr(self, name)
            for value in side.values() if isinstance(side, Mapping) else [side]:
                if value is not None and not (isfinite(value) and 0 <= value <= top):
                    allowed = "a number of at least 0" if self.kind == LOSS else "a number between 0 and 1"
                    raise OptionError(f"{self.kind}: {name} = {value}: give {allowed}", code="FP-OPTION-810", key=name)

    @property
    def is_gap(self) -> bool:
        return self.gap or self.kind in NAMED_GAPS

    @property
    def rates(self) -> tuple[str, ...]:
        """The rates that it bounds; none where it bounds a loss."""
        if self.kind == LOSS:
            return ()
        return NAMED_GAPS.get(self.kind, (self.kind,))

    @property
    def words(self) -> str:
        """What is bounded, in a user's words."""
        what = " and ".join(WORDS.get(rate, rate) for rate in self.rates) or "mean loss"
        return f"gap in {what}" if self.is_gap else what

    def bounds_in_words(self) -> str:
        """\"of at least 0.9\", \"of at most its own bound\"."""
        shown = []
        for side, _, bound in self.sides:
            limit = "its own bound" if isinstance(bound, Mapping) else f"{bound:g}"
            shown.append(f"{side.replace('_', ' ')} {limit}")
        return f"of {' and '.join(shown)}"

    def borne_out(self, owner: str, hits: Sequence[int], rows: Sequence[int], delta: float) -> bool:
        """Whether counts on rows nobody trained on bear out the promise, at level delta; of a gap by group."""
        sides = {side: bound_for(bound, owner, side) for side, _, bound in self.sides}
        if self.is_gap:
            return gap_holds(hits, rows, sides["at_most"], delta)
        return rate_holds(hits[0], rows[0], delta=delta, **sides)

    @property
    def sides(self) -> list[tuple[str, int, float | Mapping[str, float]]]:
        """The bounds that are stated: key, sign (1 bounds from above), bound."""
        both = (("at_least", -1, self.at_least), ("at_most", 1, self.at_most))
        return [(side, sign, bound) for side, sign, bound in both if bound is not None]


def recall_of(one: Requirement, levels: Levels) -> tuple[int, float | Mapping[str, float]] | None:
    """The class whose recall it bounds from below, and the bound, with two classes; None where it is something else.

    The specificity, or one minus the false-positive rate, of a class is the recall of the other.
    """
    if one.is_gap or one.held_by != "each" or len(one.sides) != 1 or len(levels.classes) != 2:
        return None
    k = levels.class_of(one)
    side, _, bound = one.sides[0]
    if one.kind == "recall" and side == "at_least":
        return k, bound
    if one.kind == "specificity" and side == "at_least":
        return 1 - k, bound
    if one.kind == "false_positive_rate" and side == "at_most":
        if isinstance(bound, Mapping):
            return 1 - k, {owner: 1 - value for owner, value in bound.items()}
        return 1 - k, 1 - bound
    return None


def read_requirements(stated: Sequence[Requirement | Mapping[str, Any]]) -> tuple[Requirement, ...]:
    """Requirements as they are, or as a message or a job file states them. OptionError for one that cannot be right."""
    return tuple(read_requirement(number, one) for number, one in enumerate(stated, 1))


def read_requirement(number: int, stated: Requirement | Mapping[str, Any]) -> Requirement:
    """One of them. number: which one, counted from 1, for messages"""
    if isinstance(stated, Requirement):
        return stated
    known = Requirement.__dataclass_fields__
    if unknown := [name for name in stated if name not in known]:
        raise OptionError(
            f"constraint {number}: {unknown[0]!r} is unknown; known are {', '.join(known)}",
            code="FP-OPTION-811",
            key=unknown[0],
        )
    if "kind" not in stated:
        raise OptionError(
            f"constraint {number} has no kind; choose {', '.join(KINDS)}", code="FP-OPTION-812", key="kind"
        )
    return Requirement(**stated)


def check_holder(requirement: Requirement, server: object) -> None:
    """Raise OptionError when the coordinator shall hold it, and has no table (None)."""
    if requirement.held_by == "server" and server is None:
        raise OptionError(
            'held_by = "server", and the coordinator has no table; state one, or let the owners hold it',
            code="FP-OPTION-832",
            key="held_by",
        )


# ---------------------------------------------------------------------------------------------------------------- lines


@dataclass(frozen=True)
class Levels:
    """Names of the classes and groups, and of the columns that hold them."""

    classes: tuple[str, ...]
    groups: tuple[str, ...] = ()
    label: str = "label"
    column: str = "group"

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Every two groups."""
        return list(combinations(range(len(self.groups)), 2))

    def class_of(self, requirement: Requirement) -> int:
        """The number of the class that a rate is about. Raises OptionError when there is none of this name."""
        if not requirement.of:
            return len(self.classes) - 1
        if requirement.of not in self.classes:
            raise OptionError(
                f"{requirement.words} of class {requirement.of!r}: the classes are {', '.join(self.classes)}",
                code="FP-OPTION-813",
                key="of",
            )
        return self.classes.index(requirement.of)


@dataclass(frozen=True)
class Bound:
    """One bound of a requirement at one holder, in a user's words.

    what:  the value that is bounded; least: whether it is bounded from below
    bound: of the value; rows: how many rows of the constraint it takes
    """

    what: str
    least: bool
    bound: float
    rows: int


def outline(requirement: Requirement, levels: Levels, owner: str) -> Iterator[Bound]:
    """The bounds of a requirement, in the order of the rows of its constraint."""
    k = levels.class_of(requirement)
    for rate in requirement.rates or (LOSS,):
        what = describe_rate(rate, k, levels, everyone=rate == LOSS and not requirement.of)
        if requirement.is_gap:
            limit = bound_for(requirement.at_most or 0.0, owner, "at_most")
            for a, b in levels.pairs:
                yield Bound(describe_gap(what, a, b, levels), False, limit, 2)
            continue
        for side, sign, bound in requirement.sides:
            yield Bound(what, sign < 0, bound_for(bound, owner, side), 1)


@dataclass(frozen=True, eq=False)
class Line:
    """sum_ik weights_ik [row i is given class k] + constant <= 0, at one holder.

    row:     one row's worth: the most that a single decision changes it by
    allowed: excess that counts as met; one row's worth of a gap, which a count can rarely meet exactly
    room:    the most that it may be tightened by
    eased:   whether it is the one whose least relaxation is sought
    """

    weights: Matrix
    constant: float
    row: float
    allowed: float = 0.0
    room: float = np.inf
    eased: bool = False


def rate_lines(
    requirement: Requirement,
    levels: Levels,
    owner: str,
    y: Labels,
    group: Labels | None,
    cells: Mapping[str, float],
    strictness: float = 1.0,
    counts: Vector | None = None,
) -> Iterator[Line]:
    """The lines of a requirement on rates, in the order of `outline`.

    cells:      rows in every cell (`count_cells`): of this holder, or of all owners together; then the lines are this
                holder's part of the sum that all have to meet
    strictness: part of what a bound allows (a gap, or the distance of a rate from 0 or 1) that may be used
    counts:     by how much each row counts; None: once
    """
    k = levels.class_of(requirement)
    for rate in requirement.rates:
        rows = counted_rows(rate, k, y)
        decisions = decisions_for(rate, k, y, len(levels.classes))
        if counts is not None:
            decisions *= counts[:, None]
        part = sum_counts(rows, counts) / max(cells[cell_name(rate, k)], 1.0)  # of the bound, where it is divided
        if requirement.is_gap:
            assert group is not None  # `check_rows` has seen to it
            limit = strictness * bound_for(requirement.at_most or 0.0, owner, "at_most")
            sizes = [max(cells[cell_name(rate, k, g)], 1.0) for g in range(len(levels.groups))]
            means = [decisions * (rows & (group == g))[:, None] / size for g, size in enumerate(sizes)]
            for a, b in levels.pairs:
                row = 1.0 / min(sizes[a], sizes[b])
                yield Line(means[b] - means[a], -limit * part, row, allowed=row, room=limit * part / 2)
                yield Line(means[a] - means[b], -limit * part, row, allowed=row, room=limit * part / 2)
            continue
        total = max(cells[cell_name(rate, k)], 1.0)
        mean = decisions * rows[:, None] / total
        for side, sign, bound in requirement.sides:
            limit = bound_for(bound, owner, side)
            limit = 1 - strictness * (1 - limit) if sign < 0 else strictness * limit
            if rate == "precision":  # of the rows that are selected, `limit` or more are of the class
                yield Line(mean * np.where(y == k, limit - 1.0, limit)[:, None], 0.0, 1.0 / total)
            elif sign < 0:
                yield Line(-mean, part * ceil(limit * total - ROUNDING) / total, 1.0 / total)
            else:
                yield Line(mean, -part * floor(limit * total + ROUNDING) / total, 1.0 / total)


def counted_rows(rate: str, k: int, y: Labels) -> NDArray[np.bool_]:
    """Which rows the rate of class k is counted on."""
    if rate == "recall":
        return np.asarray(y == k)
    if rate in ("specificity", "false_positive_rate"):
        return np.asarray(y != k)
    return np.ones(len(y), dtype=bool)


def decisions_for(rate: str, k: int, y: Labels, classes: int) -> Matrix:
    """(rows, classes): 1 for the decisions about a row that the rate counts."""
    counted = np.zeros((len(y), classes))
    if rate == "accuracy":
        counted[np.arange(len(y)), y] = 1.0
    elif rate == "specificity":
        counted[:] = 1.0
        counted[:, k] = 0.0
    else:
        counted[:, k] = 1.0
    return counted


def cell_name(rate: str, k: int, group: int | None = None) -> str:
    """The cell of rows that the rate of class k is counted on, of one group or of all."""
    name = {"recall": f"class {k}", "specificity": f"not class {k}", "false_positive_rate": f"not class {k}"}
    rows = name.get(rate, "rows")
    return rows if group is None else f"{rows}, group {group}"


def count_cells(y: Labels, group: Labels | None, levels: Levels, counts: Vector | None = None) -> dict[str, float]:
    """Rows in every cell that a rate may be counted on, by `cell_name`. counts: of each row; None: once"""
    found: dict[str, float] = {}
    for k in range(len(levels.classes)):
        for rate in ("recall", "specificity", "selection_rate"):
            rows = counted_rows(rate, k, y)
            found[cell_name(rate, k)] = sum_counts(rows, counts)
            for g in range(len(levels.groups) if group is not None else 0):
                found[cell_name(rate, k, g)] = sum_counts(rows & (group == g), counts)
    return found


def sum_counts(rows: NDArray[np.bool_], counts: Vector | None) -> float:
    """How many rows these are; with counts, the sum of theirs."""
    return float(np.sum(rows if counts is None else counts[rows]))


def check_rows(requirement: Requirement, levels: Levels, owner: str, y: Labels, group: Labels | None) -> None:
    """Raise an error unless every rate or loss of the requirement is a mean over some rows of the owner."""
    if not requirement.is_gap:
        if requirement.of or requirement.rates:
            check_class(requirement, levels, owner, y)
        return
    if group is None:
        raise OptionError(
            f"{requirement.words}: the job names no group; state group = ..., the column of the groups",
            code="FP-OPTION-814",
            key="group",
        )
    checks.some_of_each(owner, levels.column, group, range(len(levels.groups)), levels.groups)
    k = levels.class_of(requirement)
    for rate in requirement.rates:
        rows = counted_rows(rate, k, y)
        of_class = describe_rows(rate, k, levels)
        for g, level in enumerate(levels.groups):
            number = int(np.sum(rows & (group == g)))
            if number >= FEWEST:
                continue
            found = f"only {number}" if number else "no"
            raise DataError(
                f"owner {owner!r}: {found} row{of_class} has {levels.column} = {level}, too few for a rate, which one "
                f"decision would change by {1 / max(number, 1):g}: give this owner {FEWEST} or more, merge it with "
                "another, or bound another gap",
                code="FP-DATA-053",
                column=levels.column,
            )


def check_class(requirement: Requirement, levels: Levels, owner: str, y: Labels) -> None:
    """Raise DataError unless the owner has rows that the rate of the class is counted on."""
    k = levels.class_of(requirement)
    for rate in requirement.rates or ("recall",):
        if rate in ("specificity", "false_positive_rate"):
            if np.all(y == k):
                others = [other for other in range(len(levels.classes)) if other != k]
                checks.some_of_each(owner, levels.label, y, others, levels.classes)
        elif rate in ("recall", "precision"):
            checks.some_of_each(owner, levels.label, y, [k], levels.classes)


def row_of(what: str) -> str:
    """The measure that tells one row's worth of a gap."""
    return f"one row of the {what}"


def rate_names(requirement: Requirement, levels: Levels) -> list[str]:
    """What the rates are called that a requirement bounds; of a gap, those of every group."""
    k = levels.class_of(requirement)
    names = [describe_rate(rate, k, levels) for rate in requirement.rates]
    if not requirement.is_gap:
        return names
    return [f"{name} where {levels.column} = {group}" for name in names for group in levels.groups]


def describe_rows(rate: str, k: int, levels: Levels) -> str:
    """\" with ill = yes\": the rows that a rate is counted on."""
    if rate == "recall":
        return f" with {levels.label} = {levels.classes[k]}"
    if rate in ("specificity", "false_positive_rate"):
        return f" with another {levels.label} than {levels.classes[k]}"
    return ""


def describe_gap(what: str, a: int, b: int, levels: Levels) -> str:
    """\"gap in recall of ill = yes between sex = f and m\"."""
    return f"gap in {what} between {levels.column} = {levels.groups[a]} and {levels.groups[b]}"


def describe_rate(rate: str, k: int, levels: Levels, everyone: bool = False) -> str:
    """\"recall of ill = yes\"; everyone: the rate is not of one class."""
    if rate == LOSS:
        return "mean loss" if everyone else f"mean loss on {levels.label} = {levels.classes[k]}"
    if rate == "accuracy":
        return rate
    return f"{WORDS.get(rate, rate)} of {levels.label} = {levels.classes[k]}"
