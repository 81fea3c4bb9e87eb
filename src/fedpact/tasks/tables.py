"""Tasks that train a linear classifier on tables: columns by name, text as categories, a common scale."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from fedpact.data import with_intercept
from fedpact.data.cells import Cells, column_names, read_cells
from fedpact.data.encoding import Encoding, Missing, Scaling, categories_from
from fedpact.errors import DataError, OptionError
from fedpact.federation.policy import Counts
from fedpact.problem import RemoteProblem, Share, Unscaled
from fedpact.prox import Prox, SquaredL2
from fedpact.tasks import checks
from fedpact.tasks.base import FileSource, Task, find_task, key
from fedpact.tasks.checks import Labels
from fedpact.tasks.model import Model
from fedpact.types import Matrix, Vector, to_array, to_real


@dataclass(frozen=True, eq=False)
class Rows:
    """One owner's rows: features, NaN where a value is absent, and the numbers of their class and group."""

    X: Matrix
    y: Labels
    group: Labels | None = None

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
    """A linear classifier of rows with named columns.

    scaling: of the columns, once it is agreed on; the other fields are keys of a job
    """

    comparable: ClassVar[bool] = True

    label: str = key("", "the column to predict", "text", example='"ill"')
    classes: tuple[str, ...] = key(("0", "1"), "what it may be; more than two are fine", "list")
    columns: tuple[str, ...] = key(
        (), "columns of the model", "texts", name="features", shown="all other columns", example='["age", "dose"]'
    )
    categories: Mapping[str, tuple[str, ...]] = key(
        dict, "columns of text, and all they may hold; agreed, so that no owner tells its own", "levels"
    )
    missing: Missing = key(  # noqa: RUF009 - a field
        "error", "absent values are an error, or the mean over all owners", "text", choices=("error", "mean")
    )
    standardize: bool = key(
        False, "numeric columns get mean 0 and deviation 1 over all owners, from sums only", "bool", shown="true"
    )
    intercept: bool = key(True, "does the model have an intercept?", "bool")
    regularization: float = key(1e-3, "weight of the squared norm of the model, intercepts free", "number")
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        self._freeze()
        self._check_columns()
        for column, levels in self.categories.items():
            check_distinct("categories", levels, 1, column)
        check_distinct("classes", self.classes, 2)
        checks.check_nonnegative("regularization", self.regularization)
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
        for name in ("columns", "classes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "categories", categories_from(self.categories))
        if isinstance(self.scaling, Mapping):
            parts = {name: tuple(values) for name, values in self.scaling.items()}
            object.__setattr__(self, "scaling", Scaling(**parts))

    # ------------------------------------------------------------------------------------------------- at the owner

    @property
    def columns_read(self) -> tuple[str, ...]:
        """Columns besides the features."""
        return (self.label,) if self.label else ()

    @property
    def reading(self) -> object:
        levels = tuple((column, tuple(own)) for column, own in self.categories.items())
        return self.columns, levels, self.missing, self.columns_read, self.classes

    def read(self, path: Path) -> Rows:
        cells = read_cells(path)
        X = self.encoding.matrix(cells)
        y = cells.codes(self.label, self.classes, "classes")
        return Rows(X, y, self.read_groups(cells))

    def read_groups(self, cells: Cells) -> Labels | None:
        """The number of every row's group; None where there are none."""
        return None

    def share(self, owner: str, held: Rows) -> Share | Unscaled:
        if self.needs_scaling:
            return Unscaled(held.X)
        matrix = held.X
        if self.scaling is not None:
            matrix = self.scaling.apply(matrix)
        if self.intercept:
            matrix = with_intercept(matrix)
        return self.share_of_rows(owner, matrix, held.y, held.group)

    def count(self, held: Rows) -> Counts:
        classes = count_codes(held.y, len(self.classes))
        return Counts(len(held.y), classes, parameters=self.parameters)

    @abstractmethod
    def share_of_rows(self, owner: str, X: Matrix, y: Labels, group: Labels | None) -> Share:
        """The share of scaled rows, with its constraint unless the task is not `constrained`."""

    # ---------------------------------------------------------------------------------------------------- for all

    @property
    def encoding(self) -> Encoding:
        """From the columns of a file to features."""
        return Encoding(self.columns, self.categories, self.missing)

    @property
    def parameters(self) -> int:
        """Numbers of the model."""
        columns = len(self.encoding.names) + self.intercept
        if len(self.classes) > 2:
            return columns * len(self.classes)
        return columns

    @property
    def needs_scaling(self) -> bool:
        """Whether means and deviations over all owners must be agreed on before there is a share."""
        return self.scaling is None and (self.standardize or self.missing == "mean")

    def scaled(self, scaling: Scaling) -> Self:
        return replace(self, scaling=scaling)

    def regularizer(self) -> Prox | None:
        """regularization/2 |w|^2 over everything but the intercepts."""
        if not self.regularization:
            return None
        weights = np.full(len(self.encoding.names), self.regularization)
        if self.intercept:
            weights = np.append(weights, 0.0)
        if len(self.classes) > 2:
            weights = np.tile(weights, len(self.classes))
        return SquaredL2(weights)

    def model(self, w: Vector) -> Model:
        """The model that w is, freed of the scaling of the columns."""
        return Model.of(w, self.encoding, self.classes, scaling=self.scaling, intercept=self.intercept)

    def everyone(self) -> str:
        """Where the constraints hold, in words."""
        return f"at each of {self.owners} owners"


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
