"""One owner's table from a CSV file with a header."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpact.data.table import Table
from fedpact.errors import DataError


def read_csv(path: str | Path, label: str, columns: Sequence[str] | None = None, group: str | None = None) -> Table:
    """The named columns as features, in the order given, whatever their order in the file; all others are ignored.

    columns: None takes every column but label and group, in the order of the file
    label, group: columns of 0 and 1

    DataError, with file, column and line, when a column is absent or double, or a value is missing or no number.
    """
    names, rows = _read(Path(path))
    wanted = [name for name in names if name not in (label, group)] if columns is None else list(columns)
    if not wanted:
        raise DataError(f"{path} has no columns beside {label!r}; give it some features")
    for name in [*wanted, label, *([] if group is None else [group])]:
        if names.count(name) != 1:
            problem = "no" if name not in names else "more than one"
            raise DataError(f"{path} has {problem} column {name!r}; its columns are: {', '.join(names)}")
    table = {name: _numbers(path, name, [row[names.index(name)] for row in rows]) for name in {*wanted, label}}
    groups = None if group is None else _whole(_numbers(path, group, [row[names.index(group)] for row in rows]))
    return Table(np.column_stack([table[name] for name in wanted]), _whole(table[label]), tuple(wanted), groups)


def write_csv(path: str | Path, table: Table, label: str = "label") -> Path:
    """The table as a CSV file that `read_csv` reads back to the same numbers."""
    with Path(path).open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow([*table.columns, label])
        out.writerows([*map(repr, row.tolist()), int(y)] for row, y in zip(table.X, table.y, strict=True))
    return Path(path)


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a CSV file: {error}") from error
    if len(lines) < 2:
        raise DataError(f"{path} needs a line of column names and at least one row, it has {len(lines)} lines")
    names, *rows = lines
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise DataError(f"{path}: line {number} has {len(row)} cells, the header has {len(names)}")
    return names, rows


def _numbers(path: str | Path, column: str, cells: Sequence[str]) -> NDArray[np.float64]:
    values = np.empty(len(cells))
    for i, cell in enumerate(cells):
        try:
            values[i] = float(cell)
        except ValueError:
            values[i] = np.nan
        if not np.isfinite(values[i]):
            found = "is empty" if not cell else f"holds {cell!r}"
            raise DataError(f"{path}: column {column!r} {found} in line {i + 2}; give a number, or drop the row")
    return values


def _whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Labels as whole numbers where they are; others stay, for the task to name."""
    return values.astype(np.int64) if np.array_equal(values, np.floor(values)) else values  # type: ignore[return-value]
