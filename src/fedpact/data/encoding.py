"""From the columns of a file to a matrix of features, the same at every owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact.data.cells import Cells
from fedpact.types import Matrix, Vector

#: What happens to absent values.
Missing = Literal["error", "mean"]


@dataclass(frozen=True)
class Encoding:
    """columns: the features, in this order; categories: of those that are text, all levels they may have.

    A column of categories becomes one column of 0 and 1 a level, called `column=level`, all others are numbers.
    missing:    "error" refuses absent values; "mean" leaves them to `Scaling`, as NaN
    references: of columns of categories, the level that has no column: coefficients are differences from it
    """

    columns: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: Missing = "error"
    references: Mapping[str, str] = field(default_factory=dict)

    def levels(self, column: str) -> tuple[str, ...]:
        """The levels that have a column of the matrix."""
        return tuple(level for level in self.categories[column] if level != self.references.get(column))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns of the matrix."""
        names: list[str] = []
        for column in self.columns:
            if column in self.categories:
                names += [f"{column}={level}" for level in self.levels(column)]
            else:
                names.append(column)
        return tuple(names)

    @property
    def numeric(self) -> NDArray[np.bool_]:
        """Which columns of the matrix are numbers, not levels."""
        numeric: list[bool] = []
        for column in self.columns:
            if column in self.categories:
                numeric += [False] * len(self.levels(column))
            else:
                numeric.append(True)
        return np.array(numeric)

    def matrix(self, cells: Cells) -> Matrix:
        """The features of a file, rows x names."""
        return np.column_stack([self._block(cells, column) for column in self.columns])

    def _block(self, cells: Cells, column: str) -> Matrix:
        absent = self.missing == "mean"
        if column not in self.categories:
            return cells.numbers(column, absent)[:, None]
        levels = self.categories[column]
        codes = cells.codes(column, levels, "categories", absent)
        kept = [levels.index(level) for level in self.levels(column)]
        return np.where(codes[:, None] < 0, np.nan, np.eye(len(levels))[:, kept][codes])


@dataclass(frozen=True)
class Scaling:
    """x -> (x - shift) / scale, with `mean` in the place of NaN; every field has a number a column."""

    mean: tuple[float, ...]
    shift: tuple[float, ...]
    scale: tuple[float, ...]

    @classmethod
    def of(cls, mean: ArrayLike, deviation: ArrayLike, scaled: ArrayLike) -> Scaling:
        """Columns that are `scaled` get mean 0 and deviation 1 (constant ones become 0); the others stay."""
        chosen = np.asarray(scaled, dtype=bool)
        spread = np.asarray(deviation, dtype=np.float64)
        shift = np.where(chosen, mean, 0.0)
        scale = np.where(chosen & (spread > 0), spread, 1.0)
        return cls(tuple(np.asarray(mean).tolist()), tuple(shift.tolist()), tuple(scale.tolist()))

    def apply(self, X: Matrix) -> Matrix:
        """The scaled columns, without absent values."""
        scaled = np.where(np.isnan(X), self.mean, X)
        scaled -= self.shift
        scaled /= self.scale
        return scaled

    def compare(self, X: Matrix) -> tuple[tuple[float, ...], float]:
        """Deviations of these columns in units of the scales, of those that vary; and how far the farthest value is."""
        if X.shape[1] != len(self.scale) or not len(self.mean) == len(self.shift) == len(self.scale):
            return (float("inf"),), float("inf")
        scale = np.abs(self.scale)
        with np.errstate(all="ignore"):
            filled = np.where(np.isnan(X), self.mean, X)
            deviation = filled.std(axis=0)
            reach = np.max(np.abs(filled - self.shift) / scale, initial=0.0)
            spans = (deviation / scale)[deviation > 0]
        return tuple(spans.tolist()), float(np.nan_to_num(reach, nan=np.inf))

    def undo(self, coefficients: Vector) -> tuple[Vector, Vector]:
        """Coefficients (..., columns) of a model of scaled columns in the columns' own units, and its intercept."""
        own = coefficients / np.asarray(self.scale)
        return own, np.asarray(-(own @ np.asarray(self.shift)))


def categories_from(stated: Mapping[str, Sequence[Any] | Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Levels as texts, whatever the job writes them as; of {levels = [...], reference = ...} the levels."""
    found = {column: one["levels"] if isinstance(one, Mapping) else one for column, one in stated.items()}
    return {column: tuple(str(level) for level in levels) for column, levels in found.items()}


def references_from(stated: Mapping[str, Sequence[Any] | Mapping[str, Any]]) -> dict[str, str]:
    """The reference levels of {levels = [...], reference = ...}, as texts."""
    tables = {column: one for column, one in stated.items() if isinstance(one, Mapping)}
    return {column: str(one["reference"]) for column, one in tables.items() if "reference" in one}
