"""Regression with constraints: least squared, Huber or Poisson loss, with errors, losses and coefficients bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedpact.cones import Nonnegative
from fedpact.data.cells import Cells
from fedpact.errors import DataError, OptionError
from fedpact.federation.policy import Counts
from fedpact.functions import (
    Affine,
    Function,
    HuberLoss,
    Map,
    MeanExponential,
    PoissonLoss,
    SquaredLoss,
    Stack,
    TwoSided,
    as_map,
)
from fedpact.problem import Constraint, Measure, Share
from fedpact.tasks import checks
from fedpact.tasks.base import SERVER, Bounded, key
from fedpact.tasks.checks import Labels
from fedpact.tasks.coefficients import Coefficients
from fedpact.tasks.model import RegressionModel
from fedpact.tasks.tables import GroupedTask, Rows
from fedpact.tasks.weights import effective_rows
from fedpact.types import Vector

Family = Literal["squared", "huber", "poisson"]
FAMILIES: tuple[str, ...] = get_args(Family)
#: What each family minimises, in words.
LOSSES = {"squared": "squared error", "huber": "Huber loss", "poisson": "Poisson deviance"}


@dataclass(frozen=True, kw_only=True)
class Regression(GroupedTask):
    """A linear (or, for counts, log-linear) model of a number, with constraints at every owner and on coefficients.

    min_w sum_i weight_i loss_i(w) + h(w), loss_i the mean loss of owner i's rows: half the squared error, Huber's loss,
    or half the Poisson deviance, so that zero is a perfect prediction. A bound that is an empty table is none.
    """

    name: ClassVar[str] = "regression"
    title: ClassVar[str] = "a number is predicted; its errors at every owner, and the coefficients, are bounded"

    family: Family = key("squared", "loss: of squares, robust, or of counts", "text", choices=FAMILIES)  # noqa: RUF009
    delta: float = key(1.0, "huber: errors above it, in units of the label, count by their size only", "number")
    offset: str = key(
        "",
        "column that is added to the score; for counts, the logarithm of the exposure",
        "text",
        example='"log_years"',
    )
    max_loss: float | Mapping[str, float] = key(
        dict, "mean loss allowed at every owner; or one each in a table", "bound", example="0.5"
    )
    max_mean_error: float | Mapping[str, float] = key(
        dict,
        "mean of prediction less label allowed at every owner, either way, in each group; or one each in a table",
        "bound",
        example="0.1",
    )
    max_gap: float | Mapping[str, float] = key(
        dict, "gap in mean loss between groups allowed at every owner; or one each in a table", "bound", example="0.1"
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.family not in FAMILIES:
            raise OptionError(
                f"family = {self.family!r} is unknown; choose {', '.join(FAMILIES)}", code="FP-OPTION-718", key="family"
            )
        checks.check_positive("delta", self.delta)
        for kind in KINDS.values():
            checks.check_bounds(getattr(self, kind.key), kind.key)
        if self.max_gap != {} and not self.group:
            raise OptionError(
                "max_gap compares groups; add group=, the name of their column", code="FP-OPTION-719", key="group"
            )
        self._coefficients.check()

    @property
    def _coefficients(self) -> Coefficients:
        return Coefficients(self.coefficients, self.monotone, self.encoding, self.scaling, self.parameters)

    @property
    def log(self) -> bool:
        """Whether the model is log-linear."""
        return self.family == "poisson"

    # ------------------------------------------------------------------------------------------------- at the owner

    @property
    def columns_read(self) -> tuple[str, ...]:
        if not self.offset:
            return super().columns_read
        return (*super().columns_read, self.offset)

    @property
    def reading(self) -> object:
        return super().reading, self.offset, self.log

    def read_label(self, cells: Cells) -> Vector:
        values = cells.numbers(self.label, feature=False)
        negative = np.flatnonzero(values < 0)
        if self.log and negative.size:
            raise DataError(
                f"{cells.path}: column {self.label!r} holds {values[negative[0]]:g} in {cells.line(int(negative[0]))}; "
                'counts are at least 0: correct it, or use family = "squared"',
                code="FP-DATA-711",
                column=self.label,
                rows=len(negative),
            )
        return values

    def read_offset(self, cells: Cells) -> Vector | None:
        if not self.offset:
            return None
        return cells.numbers(self.offset, feature=False)

    def build(self, owner: str, rows: Rows) -> Share:
        X = checks.features(owner, rows.X)
        rows = replace(rows, X=X, y=_check_label(owner, rows.y, len(X)))
        rows = replace(rows, group=self._check_groups(owner, rows))
        loss = self.loss(rows)
        return Share(
            self.weight_of(owner, rows) * loss,
            self._constraint(owner, rows),
            name=owner,
            measures=Errors(rows, loss, self.log, len(self.groups)),
        )

    def _check_groups(self, owner: str, rows: Rows) -> Labels | None:
        """The groups of the rows; those that the job does not name are left out."""
        if not self.group or rows.group is None:
            return None
        return checks.check_codes(owner, "group", rows.group, len(rows.X), len(self.groups))

    def loss(self, rows: Rows) -> Function:
        """The mean loss of these rows; zero is a perfect prediction."""
        if self.family == "huber":
            return HuberLoss(rows.X, rows.y, self.delta, rows.weight, rows.offset)
        if self.family == "squared":
            return SquaredLoss(rows.X, rows.y, rows.weight, rows.offset)
        counts = PoissonLoss(rows.X, rows.y, rows.weight, rows.offset)
        return counts - counts.least

    def mean_error(self, rows: Rows, limit: float) -> Map:
        """(mean of prediction - label) - limit and -(mean of prediction - label) - limit."""
        if self.log:
            return TwoSided(MeanExponential(rows.X, rows.y, rows.weight, rows.offset), -limit, limit)
        known = -rows.y if rows.offset is None else rows.offset - rows.y
        slope = np.average(rows.X, axis=0, weights=rows.weight)
        constant = np.average(known, weights=rows.weight)
        return Affine(np.stack([slope, -slope]), np.array([constant - limit, -constant - limit]))

    def parts(self, owner: str, rows: Rows) -> list[Rows]:
        """The rows of each group; all rows where there are no groups. Raises DataError for a group without rows."""
        if rows.group is None:
            return [rows]
        counted = rows.group if rows.weight is None else rows.group[rows.weight > 0]
        checks.some_of_each(owner, self.group, counted, range(len(self.groups)), self.groups)
        return [select(rows, rows.group == g) for g in range(len(self.groups))]

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

    def required(self, owner: str) -> Iterator[tuple[Kind, float]]:
        """The kinds of constraints that are asked for, and the owner's bound of each."""
        for kind in KINDS.values():
            stated = getattr(self, kind.key)
            if stated != {}:
                yield kind, checks.bound_for(stated, owner, kind.key)

    def server_share(self) -> Share | None:
        if not self.constrained:
            return None
        return self._coefficients.share()

    def count(self, held: Rows) -> Counts:
        counts = super().count(held)
        if held.group is None or held.weight is None:
            return counts
        groups = [held.weight[held.group == g] for g in range(len(self.groups))]
        return replace(counts, groups=tuple(effective_rows(len(own), own) for own in groups))

    # ---------------------------------------------------------------------------------------------------- for all

    def model(self, w: Vector) -> RegressionModel:
        return RegressionModel.of(
            w, self.encoding, scaling=self.scaling, intercept=self.intercept, log=self.log, offset=self.offset
        )

    def sentence(self) -> str:
        asked = [f"Regression of {self.label} with the least {LOSSES[self.family]}"]
        for kind in KINDS.values():
            stated = getattr(self, kind.key)
            if stated != {}:
                limit = "its own bound" if isinstance(stated, Mapping) else f"{stated:g}"
                asked.append(f"{kind.asked(self)} of at most {limit} {self.everyone()}")
        if bounds := len(list(self._coefficients.rows())):
            asked.append(f"{bounds} bounds on coefficients")
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


def _check_label(owner: str, y: NDArray[Any], rows: int) -> Vector:
    """y as finite numbers, one per row; those of a file are checked as it is read."""
    try:
        values = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        words = f"owner {owner!r}: the label is not a vector of numbers ({error}); give one number a row"
        raise DataError(words, code="FP-DATA-712") from error
    if values.shape != (rows,) or not np.all(np.isfinite(values)):
        raise DataError(
            f"owner {owner!r}: the label has shape {values.shape}, or is missing or infinite in a row; give one finite "
            f"number for each of {rows} rows",
            code="FP-DATA-713",
        )
    return values


def select(rows: Rows, inside: NDArray[np.bool_]) -> Rows:
    """Some of the rows."""
    weight = None if rows.weight is None else rows.weight[inside]
    offset = None if rows.offset is None else rows.offset[inside]
    return Rows(rows.X[inside], rows.y[inside], None, weight, offset)


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

# ------------------------------------------------------------------------------------------------------------- measures


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of a model on the owner's rows: their mean, mean size and root of the mean square, and by group the mean.

    Means are weighted like the loss; they tell of as many rows as their weights carry.
    """

    rows: Rows
    loss: Function
    log: bool
    groups: int

    def __call__(self, w: Vector) -> dict[str, Measure]:
        error = self._predict(w) - self.rows.y
        weight = self.rows.weight
        rows = len(error)
        carried = effective_rows(rows, weight)
        told = {
            "rows": Measure.count(rows),
            "mean error": Measure(np.average(error, weights=weight), carried),
            "mean absolute error": Measure(np.average(np.abs(error), weights=weight), carried),
            "root mean squared error": Measure(np.sqrt(np.average(error**2, weights=weight)), carried),
            "mean loss": Measure(self.loss.value(w), carried),
        }
        if self.rows.group is not None:
            told |= self._by_group(error, self.rows.group)
        return told

    def _predict(self, w: Vector) -> Vector:
        score = self.rows.X @ w
        if self.rows.offset is not None:
            score = score + self.rows.offset
        if not self.log:
            return np.asarray(score)
        with np.errstate(over="ignore"):  # a model that was stopped early may predict infinity
            return np.exp(score)

    def _by_group(self, error: Vector, group: Labels) -> dict[str, Measure]:
        weight = np.ones(len(error)) if self.rows.weight is None else self.rows.weight
        members = [group == g for g in range(self.groups)]
        carried = [effective_rows(int(inside.sum()), weight[inside]) for inside in members]
        cell = min(carried)  # what is told of all groups but one, beside all rows, tells of that one
        told = {}
        for g, inside in enumerate(members):
            mean = float(np.average(error[inside], weights=weight[inside])) if carried[g] else np.nan
            told[f"rows of group {g}"] = Measure.count(int(inside.sum()), cell)
            told[f"mean error of group {g}"] = Measure(mean, carried[g], cell)
        return told
