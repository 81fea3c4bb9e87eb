"""A table of features and labels, in memory and as a CSV file, and two operations that most models need."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact.data.cells import read_cells
from fedpact.errors import DataError

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of features X (rows x columns), labels y in {0, 1} and, where there is one, a group in {0, 1}."""

    X: Matrix
    y: Labels
    columns: tuple[str, ...]
    group: Labels | None = None

    def select(self, rows: ArrayLike) -> Table:
        """The table of these rows (indices or a mask)."""
        chosen = np.asarray(rows)
        group = None if self.group is None else self.group[chosen]
        return replace(self, X=self.X[chosen], y=self.y[chosen], group=group)


def standardize(X: Matrix, like: Matrix | None = None) -> Matrix:
    """Columns with mean 0 and standard deviation 1; a constant column becomes 0.

    With `like`, the means and deviations are those of its columns: scale new rows as the old ones.
    """
    reference = X if like is None else like
    spread = reference.std(axis=0)
    return np.asarray((X - reference.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def with_intercept(X: Matrix) -> Matrix:
    """X with a last column of ones."""
    return np.column_stack([X, np.ones(len(X))])


def read_csv(path: str | Path, label: str, columns: Sequence[str] | None = None, group: str | None = None) -> Table:
    """Read a table of numbers from a CSV (or Parquet) file with column names.

    label, group: columns of 0 and 1
    columns:      the features, in this order; all others are ignored. None takes every column but label and group

    Raises DataError, with file, column and line, when a column is absent or double, or a value is not a number.
    """
    cells = read_cells(path)
    if columns is None:
        columns = [name for name in cells.names if name not in (label, group)]
    wanted = list(columns)
    if not wanted:
        raise DataError(f"{path} has no columns beside {label!r}; give it some features", code="FP-DATA-014")
    features = [cells.numbers(name) for name in wanted]
    labels = _to_whole(cells.numbers(label))
    groups = None if group is None else _to_whole(cells.numbers(group))
    return Table(np.column_stack(features), labels, tuple(wanted), groups)


def write_csv(path: str | Path, table: Table, label: str = "label") -> Path:
    """Write a CSV file that `read_csv` reads back to the same numbers."""
    with Path(path).open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow([*table.columns, label])
        for row, y in zip(table.X, table.y, strict=True):
            out.writerow([*map(repr, row.tolist()), int(y)])
    return Path(path)


def _to_whole(values: NDArray[np.float64]) -> Labels:
    """Labels as whole numbers where they are; others stay, for the task to name in its error."""
    if np.array_equal(values, np.floor(values)):
        return values.astype(np.int64)
    return values  # type: ignore[return-value]
