"""The columns of a CSV or Parquet file as numbers or codes, every defect with its place; columns.py reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpact.data.columns import (
    MISSING,
    Column,
    find_delimiter,
    open_csv,
    parse,
    read_parquet,
    read_with_arrow,
    read_with_python,
)
from fedpact.errors import DataError


@dataclass(frozen=True)
class Defect:
    """Why a cell is not a finite number: the code of the error, and what else to do than to give a number.

    remedy: for a feature; otherwise: for any other column
    """

    code: str
    remedy: str
    otherwise: str


TEXT = Defect("FP-DATA-003", ", or list it under categories", ", or drop the row")
ABSENT = Defect("FP-DATA-004", ', drop the row, or impute with missing = "mean"', ", or drop the row")
INFINITE = Defect("FP-DATA-005", " that is finite, or drop the row", " that is finite, or drop the row")
#: Of a column with more unknown levels, so many are named.
MOST_DEFECTS = 10


@dataclass(frozen=True, eq=False)
class Cells:
    """Columns of a file by name.

    names: all of them, in the order of the file; a name that occurs twice is an error once it is asked for
    comma: whether numbers may have a decimal comma
    order: the row of the file that each row is; None: as they stand there
    """

    path: Path
    names: tuple[str, ...]
    columns: Mapping[str, Column]
    comma: bool = False
    order: NDArray[np.int64] | None = None

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, rows: NDArray[np.int64]) -> Cells:
        """These rows, in this order."""
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        order = rows if self.order is None else self.order[rows]
        return replace(self, columns=columns, order=order)

    def column(self, name: str) -> Column:
        """The column as it stands. Raises DataError when it is absent or double."""
        check_column(self.path, name, self.names)
        return self.columns[name]

    def numbers(self, name: str, missing: bool = False, feature: bool = True) -> NDArray[np.float64]:
        """The column as finite numbers; with `missing`, NaN where a value is absent. feature: for the message"""
        values, defects = self.find_numbers(name, missing, feature)
        for defect in defects:
            raise defect
        return values

    def find_numbers(
        self, name: str, missing: bool = False, feature: bool = True
    ) -> tuple[NDArray[np.float64], list[DataError]]:
        """The column as numbers, and what is wrong with it: an error for each kind of defect, with its first place."""
        column = self.column(name)
        values = column.numbers(self.comma)
        if values is not None and np.isfinite(values).all():
            return values, []
        cells = column.cells
        if values is None:
            values = np.array([_to_number(cell) for cell in cells])
        places: dict[Defect, list[int]] = {}
        for i in np.flatnonzero(~np.isfinite(values)).tolist():
            places.setdefault(find_defect(str(cells[i])) or TEXT, []).append(i)
        if missing:
            places.pop(ABSENT, None)
        errors = []
        for defect, rows in places.items():
            remedy = defect.remedy if feature else defect.otherwise
            others = list(dict.fromkeys(str(cells[i]) for i in rows))[1:MOST_DEFECTS]
            also = f", and {', '.join(map(repr, others))} in others" if others else ""
            found = f"{_quote(cells[rows[0]])} in {self.line(rows[0])}{also}"
            words = f"{self.path}: column {name!r} {found}; give a number{remedy}"
            errors.append(DataError(words, code=defect.code, column=name, rows=len(rows)))
        return values, errors

    def codes(self, name: str, levels: Sequence[str], what: str, missing: bool = False) -> NDArray[np.int64]:
        """The position of every cell among the levels (numbers match as numbers); with `missing`, -1 if it is absent.

        what: what the levels are, for the message: classes, groups, categories
        """
        codes, defects = self.find_codes(name, levels, what, missing)
        for defect in defects:
            raise defect
        return codes

    def find_codes(
        self, name: str, levels: Sequence[str], what: str, missing: bool = False
    ) -> tuple[NDArray[np.int64], list[DataError]]:
        """The same, -1 for what is none of the levels, and an error for each of those, with its first place."""
        distinct, which = self.column(name).codes()
        position: dict[Any, int] = {}
        for k, level in enumerate(levels):
            position[level] = k
            number = _to_exact(level)
            if isinstance(number, int) or np.isfinite(number):
                position[number] = k
        known = [position.get(cell, position.get(_to_exact(cell), -1)) for cell in distinct]
        codes = np.array(known, dtype=np.int64)[which]
        first = {int(which[i]): i for i in np.flatnonzero(codes < 0)[::-1].tolist()}
        errors = []
        for k, i in sorted(first.items(), key=lambda one: one[1]):
            if missing and find_defect(str(distinct[k])) is ABSENT:
                continue
            # No count: whoever chooses the levels could ask with it how many rows hold a value.
            words = (
                f"{self.path}: column {name!r} {_quote(distinct[k])} in {self.line(i)}, which is none of the {what} "
                f"{', '.join(map(repr, levels))}; correct it, or add it to them in the job"
            )
            errors.append(DataError(words, code="FP-DATA-006", column=name))
            if len(errors) == MOST_DEFECTS:
                break
        return codes, errors

    def line(self, row: int) -> str:
        """How to find a row: by its line in a CSV file, else by number."""
        if self.order is not None:
            row = int(self.order[row])
        if is_parquet(self.path):
            return f"row {row + 1}"
        with open_csv(self.path) as file:
            for place, (line, _) in enumerate(parse(file)):
                if place == row + 1:
                    return f"line {line}"
        return f"row {row + 1}"  # the file was changed since it was read


def check_column(path: Path, name: str, names: Sequence[str]) -> None:
    """Raise DataError unless the file has exactly one column of this name."""
    if name not in names:
        words = f"{path} has no column {name!r}; its columns are: {', '.join(names)}"
        raise DataError(words, code="FP-DATA-001", column=name)
    if names.count(name) > 1:
        words = f"{path} has more than one column {name!r}; give each a name of its own"
        raise DataError(words, code="FP-DATA-002", column=name)


def read_cells(path: str | Path, only: Sequence[str] | None = None) -> Cells:
    """Read a CSV file with a header, or a Parquet file (needs pyarrow). Raises DataError when it holds no table.

    only: the columns that will be asked for; None: all
    """
    source = Path(path)
    if not source.is_file():
        raise DataError(f"{source} does not exist; correct the path, or put the file there", code="FP-DATA-007")
    if is_parquet(source):
        return Cells(source, *read_parquet(source, only))
    names, columns = read_with_arrow(source, only) or read_with_python(source)
    return Cells(source, names, columns, comma=_delimiter_of(source) != ",")


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _delimiter_of(path: Path) -> str:
    with open_csv(path) as file:
        return find_delimiter(file.readline())


def column_names(path: str | Path) -> tuple[str, ...]:
    """The names of the columns alone."""
    source = Path(path)
    if is_parquet(source):
        return read_cells(source).names
    with open_csv(source) as file:
        header = next(parse(file), (0, []))
    names = tuple(header[1])
    if not names:
        raise DataError(f"{source} is empty; it needs a line of column names and at least one row", code="FP-DATA-008")
    return names


def find_defect(cell: str) -> Defect | None:
    """Why this cell is not a finite number; None if it is."""
    if cell.upper() in MISSING:
        return ABSENT
    number = _to_number(cell)
    if np.isnan(number):
        return TEXT
    return None if np.isfinite(number) else INFINITE


def _quote(cell: Any) -> str:
    """What the cell holds, for a message."""
    text = str(cell)
    return f"holds {text!r}" if text else "is empty"


def _to_number(cell: Any) -> float:
    """The number that the cell holds, or NaN."""
    try:
        return float(cell)
    except ValueError:
        return np.nan


def _to_exact(cell: Any) -> float | int:
    """The number that the cell holds, or NaN; a whole number as it is, however large."""
    try:
        return int(cell) if not isinstance(cell, float) else cell
    except ValueError:
        return _to_number(cell)
