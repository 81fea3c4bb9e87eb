"""One owner's table of numbers from a CSV (or Parquet) file with column names."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpact.data.cells import read_cells
from fedpact.data.table import Table
from fedpact.errors import DataError


def read_csv(path: str | Path, label: str, columns: Sequence[str] | None = None, group: str | None = None) -> Table:
    """The named columns as features, in the order given, whatever their order in the file; all others are ignored.

    columns: None takes every column but label and group, in the order of the file
    label, group: columns of 0 and 1

    DataError, with file, column and line, when a column is absent or double, or a value is missing or no number.
    """
    cells = read_cells(path)
    wanted = [name for name in cells.names if name not in (label, group)] if columns is None else list(columns)
    if not wanted:
        raise DataError(f"{path} has no columns beside {label!r}; give it some features", code="FP-DATA-014")
    features = [cells.numbers(name) for name in wanted]
    groups = None if group is None else _whole(cells.numbers(group))
    return Table(np.column_stack(features), _whole(cells.numbers(label)), tuple(wanted), groups)


def write_csv(path: str | Path, table: Table, label: str = "label") -> Path:
    """The table as a CSV file that `read_csv` reads back to the same numbers."""
    with Path(path).open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow([*table.columns, label])
        out.writerows([*map(repr, row.tolist()), int(y)] for row, y in zip(table.X, table.y, strict=True))
    return Path(path)


def _whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Labels as whole numbers where they are; others stay, for the task to name."""
    return values.astype(np.int64) if np.array_equal(values, np.floor(values)) else values  # type: ignore[return-value]
