"""Tasks that train a linear model on tables: columns by name, text as categories, a common scale."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact.data import with_intercept
from fedpact.data.cells import Cells, column_names, read_cells
from fedpact.data.columns import free_unused
from fedpact.data.encoding import Encoding, Missing, Scaling, categories_from, references_from
from fedpact.errors import DataError, OptionError
from fedpact.federation.rules import Counts
from fedpact.problem import RemoteProblem, Share, Unscaled
from fedpact.prox import L1, ElasticNet, Prox, SquaredL2
from fedpact.tasks import checks
from fedpact.tasks.base import FileSource, Task, find_task, found, key
from fedpact.tasks.checks import Labels
from fedpact.tasks.model import Model, RegressionModel
from fedpact.tasks.weights import (
    BY_ROWS,
    EQUAL,
    check_class_weight,
    check_owners_weigh,
    draw_factors,
    effective_rows,
    read_weights,
    total_weight,
)
from fedpact.types import Matrix, Vector, to_array, to_real

#: What an owner tells about a model, by name.
Measures = Callable[[Vector], Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class Rows:
    """One owner's rows.

    X:      features, NaN where a value is absent
    y:      the number of each row's class, or what is to be predicted
    group:  the number of its group
    weight: of the row in means over rows; None: all the same
    offset: known part of its score; None: zero
    numbers: which of the owner's rows these are; None: all of them, in order
    drawn:  factor of its weight, and of what it counts for in constraints, in a bootstrap; None: 1
    cluster: number of the cluster that it belongs to, such as a patient; None: rows are independent of each other
    """

    X: Matrix
    y: NDArray[Any]
    group: Labels | None = None
    weight: Vector | None = None
    offset: Vector | None = None
    numbers: NDArray[np.intp] | None = None
    drawn: Vector | None = None
    cluster: NDArray[np.intp] | None = None

    def select(self, chosen: NDArray[np.bool_]) -> Rows:
        """Some of the rows; nothing is copied where these are all."""
        if chosen.all():
            return self
        group = None if self.group is None else self.group[chosen]
        weight = None if self.weight is None else self.weight[chosen]
        offset = None if self.offset is None else self.offset[chosen]
        numbers = np.arange(len(self.X)) if self.numbers is None else self.numbers
        drawn = None if self.drawn is None else self.drawn[chosen]
        cluster = None if self.cluster is None else self.cluster[chosen]
        return Rows(self.X[chosen], self.y[chosen], group, weight, offset, numbers[chosen], drawn, cluster)

    @property
    def weight_drawn(self) -> Vector | None:
        """The weights, times what was drawn."""
        if self.drawn is None or self.weight is None:
            return self.weight if self.drawn is None else self.drawn
        return self.weight * self.drawn

    @classmethod
    def of(cls, X: ArrayLike, y: ArrayLike, group: ArrayLike | None = None) -> Rows:
        """Raises DataError when they are no arrays of numbers, or when some of their values are masked."""
        try:
            kinds = None if group is None else to_array(group)
            return cls(to_real(X), to_array(y), kinds)
        except (TypeError, ValueError) as error:
            raise DataError(f"rows are not arrays of numbers ({error})", code="FP-DATA-057") from error


@dataclass(frozen=True, kw_only=True)
class TableTask(Task):
    """A linear model of rows with named columns.

    scaling:    of the columns, once it is agreed on
    total_rows: rows of all owners, or the sum of their weights, once it is agreed on and where it is needed
    resample:   number of a draw of the rows' weights, for a bootstrap; 0: they are as they are
    The other fields are keys of a job.
    """

    comparable: ClassVar[bool] = True

    label: str = key("", "the column to predict", "text", example='"ill"')
    columns: tuple[str, ...] = key(
        (), "columns of the model", "texts", name="features", shown="all other columns", example='["age", "dose"]'
    )
    categories: Mapping[str, tuple[str, ...]] = key(
        dict,
        "columns of text, and all they may hold; agreed, so that no owner tells its own; a reference has none",
        "categories",
        example='{grade = {levels = ["I", "II"], reference = "I"}}',
    )
    missing: Missing = key(  # noqa: RUF009 - a field
        "error", "absent values are an error, or the mean over all owners", "text", choices=("error", "mean")
    )
    standardize: bool = key(
        False, "numeric columns get mean 0 and deviation 1 over all owners, from sums only", "bool", shown="true"
    )
    intercept: bool = key(True, "does the model have an intercept?", "bool")
    regularization: float = key(1e-3, "weight of the squared norm of the model, intercepts free", "number")
    l1: float = key(0.0, "weight of the sum of absolute values of the model, intercepts free", "number", example="0.01")
    owners_weigh: str | Mapping[str, float] = key(
        EQUAL, 'how owners count in the objective: "equal", by their "rows", or a weight each in a table', "weights"
    )
    sample_weight: str = key("", "column of the weights of rows", "text", example='"exposure"')
    scaling: Scaling | None = found(None, least=-1e300, most=1e300)  # noqa: RUF009 - a field
    total_rows: float = found(0.0, least=0.0, when=("owners_weigh", (BY_ROWS,)))
    references: Mapping[str, str] = field(default_factory=dict)
    resample: int = found(0, least=0, most=1000, whole=True, when=("inference", ("bootstrap",)))

    def __post_init__(self) -> None:
        self._freeze()
        self._check_columns()
        for column, levels in self.categories.items():
            check_distinct("categories", levels, 1, column)
        for column, level in self.references.items():
            if level not in self.categories.get(column, ()):
                raise OptionError(
                    f"the reference {level!r} of {column!r} is none of its levels; choose one of "
                    f"{', '.join(self.categories.get(column, ()))}",
                    code="FP-OPTION-280",
                    key="categories",
                    column=column,
                )
        checks.check_nonnegative("regularization", self.regularization)
        checks.check_nonnegative("l1", self.l1)
        check_owners_weigh(self.owners_weigh)
        if self.missing not in ("error", "mean"):
            raise OptionError(
                f'missing = {self.missing!r} is unknown; choose "error" or "mean"', code="FP-OPTION-049", key="missing"
            )

    def _check_columns(self) -> None:
        """Raise OptionError unless there are features, each listed once, and none is the label or the group."""
        if not self.columns:
            raise OptionError(
                "a job needs columns=, the names of the features that every owner has",
                code="FP-OPTION-043",
                key="columns",
            )
        for column in self.columns_read:
            if column in self.columns:
                raise OptionError(
                    f"{column!r} is a feature and the label or group as well; take it out of the columns",
                    code="FP-OPTION-044",
                    column=column,
                )
        if twice := [column for column in self.columns if self.columns.count(column) > 1]:
            raise OptionError(
                f"column {twice[0]!r} is listed twice; list every feature once", code="FP-OPTION-045", column=twice[0]
            )
        if unknown := [column for column in self.categories if column not in self.columns]:
            raise OptionError(
                f"categories are given for {unknown[0]!r}, which is no feature; list it, or drop them",
                code="FP-OPTION-046",
                column=unknown[0],
            )

    def _freeze(self) -> None:
        """Lists, as messages and files have them, become tuples."""
        object.__setattr__(self, "columns", tuple(self.columns))
        check_categories(self.categories)
        object.__setattr__(self, "references", {**self.references, **references_from(self.categories)})
        object.__setattr__(self, "categories", categories_from(self.categories))
        if isinstance(self.scaling, Mapping):
            parts = {name: tuple(values) for name, values in self.scaling.items()}
            object.__setattr__(self, "scaling", Scaling(**parts))

    # ------------------------------------------------------------------------------------------------- at the owner

    @property
    def columns_read(self) -> tuple[str, ...]:
        """Columns besides the features."""
        return tuple(column for column in (self.label, self.sample_weight) if column)

    @property
    def reading(self) -> object:
        levels = tuple((column, tuple(own)) for column, own in self.categories.items())
        return self.columns, levels, tuple(self.references.items()), self.missing, self.columns_read

    def read(self, path: Path) -> Rows:
        cells = read_cells(path, (*self.columns, *self.columns_read))
        X = self.encoding.matrix(cells)
        y = self.read_label(cells)
        weight = read_weights(cells, self.sample_weight)
        rows = Rows(X, y, self.read_groups(cells), weight, self.read_offset(cells), cluster=self.read_clusters(cells))
        del cells
        free_unused()
        return rows

    @abstractmethod
    def read_label(self, cells: Cells) -> NDArray[Any]:
        """What is to be predicted, row by row."""

    def read_groups(self, cells: Cells) -> Labels | None:
        """The number of every row's group; None where there are none."""
        return None

    def read_clusters(self, cells: Cells) -> NDArray[np.intp] | None:
        """The number of every row's cluster; None where rows are independent of each other."""
        return None

    def read_offset(self, cells: Cells) -> Vector | None:
        """The known part of every row's score; None where there is none."""
        return None

    def share(self, owner: str, held: Rows) -> Share | Unscaled:
        if self.needs_scaling or self.needs_total:
            return Unscaled(held.X, held.weight)
        if self.resample:  # before rows are scaled: rounding of the scales must not change the draw
            held = replace(held, drawn=draw_factors(held, self.resample))
        return self.build(owner, replace(held, X=self.design(held.X)))

    def design(self, X: Matrix) -> Matrix:
        """The features as the model takes them: scaled, and with a column of ones for the intercept."""
        matrix = X
        if self.scaling is not None:
            matrix = self.scaling.apply(matrix)
        if self.intercept:
            matrix = with_intercept(matrix)
        return matrix

    @abstractmethod
    def build(self, owner: str, rows: Rows) -> Share:
        """The share of rows whose features are those of `design`."""

    def evaluation(self, owner: str, unseen: Rows, held: Callable[[], Rows]) -> Share:
        if not self.comparable:
            return super().evaluation(owner, unseen, held)
        if self.needs_scaling or self.needs_total:
            raise OptionError(
                "a model is measured on other rows after it was trained; state the scaling and weights it came with",
                code="FP-OPTION-835",
                key="scaling",
            )
        rows = replace(unseen, X=self.design(unseen.X))
        return Share(name=owner, measures=self.measures_of(owner, rows, held))

    def measures_of(self, owner: str, rows: Rows, held: Callable[[], Rows]) -> Measures:
        """What is told of a model on rows that nobody trains on. held: see `evaluation`"""
        measures = replace(self, constrained=False, evaluating=False).build(owner, rows).measures
        assert measures is not None  # tasks that are comparable have some
        return measures

    def count(self, held: Rows) -> Counts:
        levels = max((len(levels) for levels in self.categories.values()), default=0)
        found = Counts(effective_rows(len(held.y), held.weight), parameters=self.parameters, levels=levels)
        if self.total_rows:
            found = replace(found, total=(total_weight(held.X, held.weight), self.total_rows))
        if self.scaling is None:
            return found
        spans, reach = self.scaling.compare(held.X)
        return replace(found, spans=spans, reach=reach)

    def weight_of(self, owner: str, rows: Rows) -> float:
        """The weight of the owner's mean loss in the objective; over all owners they sum to one."""
        if isinstance(self.owners_weigh, Mapping):
            own = checks.bound_for(self.owners_weigh, owner, "owners_weigh")
            return own / sum(self.owners_weigh.values())
        if self.owners_weigh == BY_ROWS:
            return total_weight(rows.X, rows.weight) / self.total_rows
        return 1 / self.owners

    # ---------------------------------------------------------------------------------------------------- for all

    @property
    def encoding(self) -> Encoding:
        """From the columns of a file to features."""
        return Encoding(self.columns, self.categories, self.missing, self.references)

    def with_references(self) -> Self:
        """With a reference, the first level, for every column of categories that states none.

        All levels of a column add up to the intercept, or to Cox's baseline: without a reference no coefficient of
        theirs has a standard error. A column whose levels the job names one by one keeps all of them.
        """
        if not self.has_baseline:
            return self
        named = self.features_named
        first = {
            column: levels[0]
            for column, levels in self.categories.items()
            if len(levels) > 1 and not any(f"{column}={level}" in named for level in levels)
        }
        return replace(self, references={**first, **self.references})

    @property
    def has_baseline(self) -> bool:
        """Whether the model has something that all levels of a category add up to."""
        return self.intercept

    @property
    def features_named(self) -> frozenset[str]:
        """Features that the job names beside its columns, such as those with bounds on their coefficients."""
        return frozenset()

    @property
    def parameters(self) -> int:
        """Numbers of the model."""
        return self.scores * (len(self.encoding.names) + self.common_intercept)

    @property
    def common_intercept(self) -> bool:
        """Whether the model that all share has an intercept."""
        return self.intercept

    @property
    def scores(self) -> int:
        """Numbers that the model gives a row; w lists the coefficients of one after the other."""
        return 1

    @property
    def needs_scaling(self) -> bool:
        """Whether means and deviations over all owners must be agreed on before there is a share."""
        return self.scaling is None and (self.standardize or self.missing == "mean")

    @property
    def needs_total(self) -> bool:
        """Whether the rows of all owners must be summed before there is a share."""
        return self.owners_weigh == BY_ROWS and not self.total_rows

    def scaled(self, scaling: Scaling) -> Self:
        return replace(self, scaling=scaling)

    def regularizer(self) -> Prox | None:
        """l1 |w|_1 + regularization/2 |w|^2 over everything but the intercepts."""
        penalized = np.ones(len(self.encoding.names))
        if self.common_intercept:
            penalized = np.append(penalized, 0.0)
        return penalty(self.l1, self.regularization, np.tile(penalized, self.scores))

    @abstractmethod
    def make_model(self, w: Vector) -> Model | RegressionModel:
        """The model that w is, freed of the scaling of the columns."""

    def everyone(self) -> str:
        """Where the constraints hold, in words."""
        if self.owners == 1:
            return "at its one owner"
        return f"at each of {self.owners} owners"


@dataclass(frozen=True, kw_only=True)
class ClassTask(TableTask):
    """A linear classifier of rows with named columns."""

    classes: tuple[str, ...] = key(("0", "1"), "what the label may be; more than two are fine", "list")
    class_weight: str | Mapping[str, float] = key(
        dict,
        'weights of rows by class, in a table; or "balanced": at each owner all classes weigh the same',
        "weights",
        example='"balanced"',
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))
        super().__post_init__()
        check_distinct("classes", self.classes, 2)
        check_class_weight(self.class_weight, self.classes)

    @property
    def reading(self) -> object:
        return super().reading, self.classes

    def read_label(self, cells: Cells) -> Labels:
        return cells.codes(self.label, self.classes, "classes")

    def count(self, held: Rows) -> Counts:
        return replace(super().count(held), classes=count_codes(held.y, len(self.classes)))

    @property
    def scores(self) -> int:
        if len(self.classes) > 2:
            return len(self.classes)
        return 1

    def make_model(self, w: Vector) -> Model:
        return Model.of(w, self.encoding, self.classes, scaling=self.scaling, intercept=self.common_intercept)


@dataclass(frozen=True, kw_only=True)
class GroupedTask(TableTask):
    """A task about tables whose rows belong to groups."""

    group: str = key("", "column of the groups", "text", example='"sex"')
    groups: tuple[str, ...] = key(("0", "1"), "what it may be", "list")

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        super().__post_init__()
        check_distinct("groups", self.groups, 2)

    @property
    def columns_read(self) -> tuple[str, ...]:
        if not self.group:
            return super().columns_read
        return (*super().columns_read, self.group)

    @property
    def reading(self) -> object:
        return super().reading, self.groups

    def read_groups(self, cells: Cells) -> Labels | None:
        if not self.group:
            return None
        return cells.codes(self.group, self.groups, "groups")

    def count(self, held: Rows) -> Counts:
        counts = super().count(held)
        if held.group is None:
            return counts
        return replace(counts, groups=count_codes(held.group, len(self.groups)))

    def measure_name(self, name: str) -> str:
        for g, level in enumerate(self.groups):
            old = f"group {g}"
            if name == old or name.endswith(f" {old}"):
                return name.removesuffix(old) + f"{self.group} = {level}"
        return name


def penalty(l1: float, l2: float, coordinates: float | Vector) -> Prox | None:
    """l1 |w|_1 + l2/2 |w|^2 over these coordinates (1; 0 is left out); None when both weights are zero."""
    if l1 and l2:
        return ElasticNet(l1 * coordinates, l2 * coordinates)
    if l1:
        return L1(l1 * coordinates)
    if l2:
        return SquaredL2(l2 * coordinates)
    return None


def count_codes(codes: Labels, levels: int) -> tuple[int, ...]:
    """Rows of each level."""
    return tuple(int(np.sum(codes == level)) for level in range(levels))


def from_files(
    files: Mapping[str, str | Path],
    task: str = "neyman_pearson",
    *,
    bound: float | Mapping[str, float],
    label: str,
    columns: Sequence[str] | None = None,
    group: str = "",
    intercept: bool = True,
    regularizer: Prox | None = None,
) -> RemoteProblem:
    """A problem over CSV files, owner name -> path; each is read by its owner alone, in the owner's process.

    task:    "neyman_pearson" or "group_fairness"
    columns: the features; None takes those of the first file, which must then be readable here
    """
    if columns is None:
        first = next(iter(files.values()))
        columns = [name for name in column_names(first) if name not in (label, group)]
    about: dict[str, Any] = {
        "label": label,
        "columns": tuple(columns),
        "owners": len(files),
        "bound": bound,
        "intercept": intercept,
    }
    if group:
        about["group"] = group
    asked = find_task(task)(**about)
    sources = {name: FileSource(name, path) for name, path in files.items()}
    return RemoteProblem(sources, regularizer=regularizer, task=asked)


def check_categories(stated: Mapping[str, Any]) -> None:
    """Raise OptionError unless each is a list of levels, or a table of them with a reference."""
    for column, one in stated.items():
        if isinstance(one, Mapping) and ("levels" not in one or set(one) - {"levels", "reference"}):
            raise OptionError(
                f"categories of {column!r} are {dict(one)}; give a list of levels, or {{levels = [...], reference = "
                '"..."}',
                code="FP-OPTION-281",
                key="categories",
                column=column,
            )


def check_distinct(what: str, levels: Sequence[str], least: int, column: str = "") -> None:
    """Raise OptionError unless there are `least` levels or more, all different."""
    if len(levels) < least or len(set(levels)) < len(levels):
        of = f"{what} of {column!r}" if column else what
        raise OptionError(
            f"{of} are {list(levels)}; give {least} or more, all different",
            code="FP-OPTION-054",
            key=what,
            column=column,
        )
