"""Regression with constraints: of numbers, counts, two classes or times, with errors, losses, coefficients bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedpact.cones import Nonnegative
from fedpact.data.cells import Cells
from fedpact.errors import DataError, OptionError
from fedpact.federation.rules import Counts
from fedpact.functions import (
    Function,
    Map,
    MeanError,
    MeanExponential,
    Stack,
    TwoSided,
    as_map,
)
from fedpact.functions.cox import TIES, Ties
from fedpact.problem import Constraint, Share
from fedpact.tasks import checks
from fedpact.tasks.base import SERVER, Bounded, found, key
from fedpact.tasks.checks import Labels
from fedpact.tasks.coefficients import Coefficients
from fedpact.tasks.families import FAMILIES, Errors, Survival
from fedpact.tasks.model import RegressionModel
from fedpact.tasks.tables import GroupedTask, Measures, Rows
from fedpact.tasks.weights import effective_rows
from fedpact.types import Vector

FamilyName = Literal["squared", "huber", "poisson", "negative_binomial", "logistic", "cox"]
#: Keys that a family has no use for.
UNFIT = {"cox": ("max_gap", "max_mean_error", "offset"), "logistic": ("max_mean_error",)}


@dataclass(frozen=True, kw_only=True)
class Regression(GroupedTask):
    """A linear, log-linear, logistic or proportional hazards model, with constraints at owners and on coefficients.

    min_w sum_i weight_i loss_i(w) + h(w), loss_i the mean loss of owner i's rows: half the squared error, Huber's loss,
    half the Poisson or negative binomial deviance, the log loss, so that zero is a perfect prediction; or the negative
    log partial likelihood of Cox's model, whose baseline hazards are each owner's own (stratified by owner). A bound
    that is an empty table is none.

    allowance: multiple of what every bound at an owner allows, for models around the asked one; 1: as it was asked
    """

    name: ClassVar[str] = "regression"
    title: ClassVar[str] = "a number is predicted; its errors at every owner, and the coefficients, are bounded"

    family: FamilyName = key(  # noqa: RUF009
        "squared", "loss: of squares, robust, of counts, of 0 and 1, or of times to an event", "text",
        choices=tuple(FAMILIES),
    )  # fmt: skip
    event: str = key(
        "", "cox: column that is 1 where the event was seen, 0 where the row is censored", "text", example='"died"'
    )
    ties: Ties = key("efron", "cox: how events at one time count", "text", choices=TIES)  # noqa: RUF009
    dispersion: float = key(
        1.0, "negative_binomial: variance of a count with mean m is m + dispersion * m^2; it is not estimated", "number"
    )
    delta: float = key(1.0, "huber: errors above it, in units of the label, count by their size only", "number")
    offset: str = key(
        "",
        "column that is added to the score; for counts, the logarithm of the exposure",
        "text",
        example='"log_years"',
    )
    max_loss: float | Mapping[str, float] = key(
        dict, "mean loss allowed at every owner; or in a table, at those that it names", "bound", example="0.5"
    )
    max_mean_error: float | Mapping[str, float] = key(
        dict,
        "mean of prediction less label allowed at every owner, either way, in each group; or at those in a table",
        "bound",
        example="0.1",
    )
    max_gap: float | Mapping[str, float] = key(
        dict,
        "gap in mean loss between groups allowed at every owner; or in a table, at those that it names",
        "bound",
        example="0.1",
    )
    coefficients: Mapping[str, Mapping[str, float]] = key(
        dict, "bounds on coefficients, in the units of the columns", "ranges", example="{dose = {at_least = 0}}"
    )
    monotone: Mapping[str, str] = key(
        dict,
        "columns with which the prediction only grows or falls; of categories, in the order of their levels",
        "directions",
        example='{dose = "increasing"}',
    )

    equal: Mapping[str, tuple[str, ...]] = key(
        dict, "features that have one coefficient, by a name for it: equal effects in groups", "columns",
        example='{dose = ["dose_f", "dose_m"]}',
    )  # fmt: skip

    allowance: float = found(1.0, least=0.01, most=100.0, when=("trade_off", (True,)))

    def __post_init__(self) -> None:
        object.__setattr__(self, "equal", {name: tuple(features) for name, features in self.equal.items()})
        super().__post_init__()
        if self.family not in FAMILIES:
            raise OptionError(
                f"family = {self.family!r} is unknown; choose {', '.join(FAMILIES)}", code="FP-OPTION-718", key="family"
            )
        checks.check_positive("delta", self.delta)
        checks.check_positive("dispersion", self.dispersion)
        self._check_bounds()
        if self.family == "cox":
            self._check_cox()
        elif self.event:
            raise OptionError(
                f'event = {self.event!r} goes with family = "cox"; leave it out', code="FP-OPTION-987", key="event"
            )
        for kind in KINDS.values():
            checks.check_bounds(getattr(self, kind.key), kind.key)
        if self.max_gap != {} and not self.group:
            raise OptionError(
                "max_gap compares groups; add group=, the name of their column", code="FP-OPTION-719", key="group"
            )
        self._coefficients.check()

    def _check_bounds(self) -> None:
        """Raise OptionError for what the family does not have."""
        for name in UNFIT.get(self.family, ()):
            if getattr(self, name):
                raise OptionError(
                    f'family = "{self.family}" has no {name}; leave it out', code="FP-OPTION-988", key=name
                )

    def _check_cox(self) -> None:
        """Raise OptionError for what a model of times cannot have; its intercept is in the owners' baselines."""
        object.__setattr__(self, "intercept", False)
        if not self.event:
            raise OptionError(
                'family = "cox" needs event=, the column that is 1 where the event was seen',
                code="FP-OPTION-989",
                key="event",
            )
        if self.ties not in TIES:
            raise OptionError(
                f"ties = {self.ties!r} is unknown; choose {', '.join(TIES)}", code="FP-OPTION-990", key="ties"
            )

    @property
    def _coefficients(self) -> Coefficients:
        return Coefficients(self.coefficients, self.monotone, self.equal, self.encoding, self.scaling, self.parameters)

    @property
    def link(self) -> str:
        """From scores to predictions."""
        return FAMILIES[self.family].link

    # ------------------------------------------------------------------------------------------------- at the owner

    @property
    def has_baseline(self) -> bool:
        return self.intercept or self.family == "cox"

    @property
    def features_named(self) -> frozenset[str]:
        return frozenset([*self.coefficients, *(feature for features in self.equal.values() for feature in features)])

    @property
    def columns_read(self) -> tuple[str, ...]:
        more = (self.offset, self.event)
        return (*super().columns_read, *(column for column in more if column))

    @property
    def reading(self) -> object:
        return super().reading, self.offset, self.event, self.family

    def read_label(self, cells: Cells) -> Vector:
        values = cells.numbers(self.label, feature=False)
        if self.link == "log":
            what = "times" if self.family == "cox" else "counts"
            self._refuse(cells, self.label, values, values < 0, f"{what} are at least 0")
        if self.family == "logistic":
            self._refuse(cells, self.label, values, ~np.isin(values, (0, 1)), "the label is 0 or 1")
        if self.family != "cox":
            return values
        event = cells.numbers(self.event, feature=False)
        self._refuse(cells, self.event, event, ~np.isin(event, (0, 1)), "an event is 1, a row without one 0")
        return np.column_stack([values, event])

    def _refuse(self, cells: Cells, column: str, values: Vector, wrong: NDArray[np.bool_], words: str) -> None:
        """Raise DataError where some values of a column are wrong, with the first of them."""
        rows = np.flatnonzero(wrong)
        if rows.size:
            raise DataError(
                f"{cells.path}: column {column!r} holds {values[rows[0]]:g} in {cells.line(int(rows[0]))}; {words}: "
                "correct it, or use another family",
                code="FP-DATA-711",
                column=column,
                rows=len(rows),
            )

    def read_offset(self, cells: Cells) -> Vector | None:
        if not self.offset:
            return None
        return cells.numbers(self.offset, feature=False)

    def build(self, owner: str, rows: Rows) -> Share:
        X = checks.features(owner, rows.X)
        label = _check_label(owner, rows.y, (len(X), 2) if self.family == "cox" else (len(X),))
        rows = replace(rows, X=X, y=label)
        rows = replace(rows, group=self._check_groups(owner, rows))
        rows = replace(rows, weight=rows.weight_drawn)
        loss = self.loss(rows)
        return Share(
            self.weight_of(owner, rows) * loss,
            self._constraint(owner, rows),
            name=owner,
            measures=self._measures(rows, loss),
        )

    def _measures(self, rows: Rows, loss: Function) -> Measures:
        if self.family == "cox":
            return Survival(rows, loss)
        return Errors(rows, loss, self.link, len(self.groups))

    def _check_groups(self, owner: str, rows: Rows) -> Labels | None:
        """The groups of the rows; those that the job does not name are left out."""
        if not self.group or rows.group is None:
            return None
        return checks.check_codes(owner, "group", rows.group, len(rows.X), len(self.groups))

    def loss(self, rows: Rows) -> Function:
        """The mean loss of these rows; zero is a perfect prediction, where there can be one."""
        return FAMILIES[self.family].loss(self, rows)

    def mean_error(self, rows: Rows, limit: float) -> Map:
        """(mean of prediction - label) - limit and -(mean of prediction - label) - limit."""
        if self.link == "log":
            mean = MeanExponential(rows.X, rows.y, rows.weight, rows.offset)
            return TwoSided(mean if rows.numbers is None else mean.of_rows(rows.numbers), -limit, limit)
        known = -rows.y if rows.offset is None else rows.offset - rows.y
        return MeanError(rows.X, known, limit, rows.weight, rows.numbers)

    def parts(self, owner: str, rows: Rows) -> list[Rows]:
        """The rows of each group; all rows where there are no groups. Raises DataError for a group without rows."""
        if rows.group is None:
            return [rows]
        counted = rows.group if rows.weight is None else rows.group[rows.weight > 0]
        checks.some_of_each(owner, self.group, counted, range(len(self.groups)), self.groups)
        return [rows.select(rows.group == g) for g in range(len(self.groups))]

    def _constraint(self, owner: str, rows: Rows) -> Constraint | None:
        if not self.constrained:
            return None
        maps: list[Map] = []
        for kind, limit in self.required(owner):
            maps += kind.build(self, owner, rows, limit)
        if not maps:
            return None
        together = maps[0] if len(maps) == 1 else Stack(maps)
        assert together.length is not None
        return Constraint(together, Nonnegative(together.length))

    def among(self, names: Sequence[str]) -> Self:
        for kind in KINDS.values():
            stated = getattr(self, kind.key)
            checks.check_owners(kind.key, stated if isinstance(stated, Mapping) else (), names)
        return super().among(names)

    @property
    def bounds_owners(self) -> bool:
        """Whether there are constraints at owners, and not only on coefficients."""
        return any(getattr(self, kind.key) != {} for kind in KINDS.values())

    def required(self, owner: str) -> Iterator[tuple[Kind, float]]:
        """The kinds of constraints that are asked for, and the owner's bound of each."""
        for kind in KINDS.values():
            stated = getattr(self, kind.key)
            if stated != {} and (not isinstance(stated, Mapping) or owner in stated):
                yield kind, self.allowance * checks.bound_for(stated, owner, kind.key)

    def server_share(self) -> Share | None:
        if not self.constrained:
            return None
        return self._coefficients.share()

    def count(self, held: Rows) -> Counts:
        counts = super().count(held)
        if self.family == "cox":  # a partial likelihood rests on the rows with an event
            return replace(counts, classes=(int(np.sum(held.y[:, 1])),))
        if held.group is None or held.weight is None:
            return counts
        groups = [held.weight[held.group == g] for g in range(len(self.groups))]
        return replace(counts, groups=tuple(effective_rows(len(own), own) for own in groups))

    # ---------------------------------------------------------------------------------------------------- for all

    def make_model(self, w: Vector) -> RegressionModel:
        return RegressionModel.of(
            w, self.encoding, scaling=self.scaling, intercept=self.intercept, link=self.link, offset=self.offset
        )

    def sentence(self) -> str:
        asked = [f"Regression of {self.label} with the least {FAMILIES[self.family].words}"]
        for kind in KINDS.values():
            stated = getattr(self, kind.key)
            if stated != {}:
                limit, where = "its own bound", self.everyone()
                if not isinstance(stated, Mapping):
                    limit = f"{stated:g}"
                elif len(stated) < self.owners:
                    where = f"at {', '.join(stated)}"
                asked.append(f"{kind.asked(self)} of at most {limit} {where}")
        if bounds := len(list(self._coefficients.rows())):
            asked.append(f"{bounds} constraints on coefficients")
        return "; ".join(asked) + "."

    def bounded(self, owner: str, values: Vector, price: Vector, told: Mapping[str, float]) -> Iterator[Bounded]:
        if owner == SERVER:
            yield from self._coefficients.bounded(values, price)
            return
        start = 0
        for kind, limit in self.required(owner):
            for what in kind.words(self):
                part = slice(start, start + kind.sides)
                start += kind.sides
                yield Bounded(owner, what, float(values[part].max() + limit), limit, float(price[part].max()))


def _check_label(owner: str, y: NDArray[Any], shape: tuple[int, ...]) -> Vector:
    """y as finite numbers, one per row, or time and event; those of a file are checked as it is read."""
    try:
        values = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        words = f"owner {owner!r}: the label is not a vector of numbers ({error}); give one number a row"
        raise DataError(words, code="FP-DATA-712") from error
    if values.shape != shape or not np.all(np.isfinite(values)):
        raise DataError(
            f"owner {owner!r}: the label has shape {values.shape}, or is missing or infinite in a row; give finite "
            f"numbers of shape {shape} (of times to an event: time and event)",
            code="FP-DATA-713",
        )
    return values


# ------------------------------------------------------------------------------------------------- kinds of constraint


@dataclass(frozen=True)
class Kind:
    """A kind of constraint at an owner.

    key:   of the job, that states its bound
    sides: components of each of its maps: 1 for an upper bound, 2 for both ways
    build: its maps at an owner, from (task, owner, rows, bound)
    words: what each of them bounds
    asked: the same in one phrase
    """

    key: str
    sides: int
    build: Callable[[Regression, str, Rows, float], Sequence[Map]]
    words: Callable[[Regression], Sequence[str]]
    asked: Callable[[Regression], str]


def _loss_maps(task: Regression, owner: str, rows: Rows, limit: float) -> list[Map]:
    return [as_map(task.loss(rows) - limit)]


def _error_maps(task: Regression, owner: str, rows: Rows, limit: float) -> list[Map]:
    return [task.mean_error(part, limit) for part in task.parts(owner, rows)]


def _error_words(task: Regression) -> list[str]:
    if not task.group:
        return ["size of the mean error"]
    return [f"size of the mean error on {task.group} = {level}" for level in task.groups]


def _gap_maps(task: Regression, owner: str, rows: Rows, limit: float) -> list[Map]:
    means = [task.loss(part) for part in task.parts(owner, rows)]
    return [TwoSided(second - first, -limit, limit) for first, second in combinations(means, 2)]


def _gap_words(task: Regression) -> list[str]:
    return [f"gap in mean loss between {task.group} = {a} and {b}" for a, b in combinations(task.groups, 2)]


#: What can be asked for at every owner, by name.
KINDS: dict[str, Kind] = {
    "mean_loss": Kind("max_loss", 1, _loss_maps, lambda task: ["mean loss"], lambda task: "mean loss"),
    "mean_error": Kind(
        "max_mean_error",
        2,
        _error_maps,
        _error_words,
        lambda task: f"mean error in each group of {task.group}" if task.group else "mean error",
    ),
    "loss_gap": Kind(
        "max_gap", 2, _gap_maps, _gap_words, lambda task: f"gap in mean loss between groups of {task.group}"
    ),
}
