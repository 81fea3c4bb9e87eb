"""The columns of a CSV or Parquet file as they stand there, and as numbers or codes; every defect with its place."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import DataError, FedpactError

#: How an absent value is written, in capitals.
MISSING = ("", "NA", "NAN", "NULL", "NONE", "?")


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


@dataclass(frozen=True, eq=False)
class Cells:
    """Columns by name: float64 with NaN for absent values where the file has numbers, else text without outer blanks.

    names: all of them, in the order of the file; a name that occurs twice is an error once it is asked for
    lines: the line of the file in which each row ends; empty where it has none
    """

    path: Path
    names: tuple[str, ...]
    columns: dict[str, NDArray[Any]]
    lines: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, rows: NDArray[np.int64]) -> Cells:
        """These rows, in this order."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return replace(self, columns=columns, lines=tuple(self.lines[row] for row in rows) if self.lines else ())

    def column(self, name: str) -> NDArray[Any]:
        """The column as it stands. Raises DataError when it is absent or double."""
        check_column(self.path, name, self.names)
        return self.columns[name]

    def numbers(self, name: str, missing: bool = False, feature: bool = True) -> NDArray[np.float64]:
        """The column as finite numbers; with `missing`, NaN where a value is absent. feature: for the message"""
        column = self.column(name)
        try:
            values = column.astype(np.float64)  # one call where all is well
        except ValueError:
            values = np.array([_to_number(cell) for cell in column])
        defects = {i: _find_defect(str(column[i])) for i in np.flatnonzero(~np.isfinite(values)).tolist()}
        for i, defect in defects.items():
            if defect is ABSENT and missing:
                continue
            remedy = defect.remedy if feature else defect.otherwise
            raise DataError(
                f"{self.path}: column {name!r} {_quote(column[i])} in {self.line(i)}; give a number{remedy}",
                code=defect.code,
                column=name,
                rows=list(defects.values()).count(defect),
            )
        return values

    def codes(self, name: str, levels: Sequence[str], what: str, missing: bool = False) -> NDArray[np.int64]:
        """The position of every cell among the levels (numbers match as numbers); with `missing`, -1 if it is absent.

        what: what the levels are, for the message: classes, groups, categories
        """
        cells = self.column(name).tolist()
        position: dict[Any, int] = {}
        for k, level in enumerate(levels):
            position[level] = k
            number = _to_number(level)
            if np.isfinite(number):
                position[number] = k
        known = {cell: position.get(cell, position.get(_to_number(cell), -1)) for cell in dict.fromkeys(cells)}
        codes = np.array([known[cell] for cell in cells], dtype=np.int64)
        for i in np.flatnonzero(codes < 0).tolist():
            if missing and _find_defect(str(cells[i])) is ABSENT:
                continue
            # No count: whoever chooses the levels could ask with it how many rows hold a value.
            raise DataError(
                f"{self.path}: column {name!r} {_quote(cells[i])} in {self.line(i)}, which is none of the {what} "
                f"{', '.join(map(repr, levels))}; correct it, or add it to them in the job",
                code="FP-DATA-006",
                column=name,
            )
        return codes

    def line(self, row: int) -> str:
        """How to find a row: by its line in a CSV file, else by number."""
        if self.lines:
            return f"line {self.lines[row]}"
        return f"row {row + 1}"


def check_column(path: Path, name: str, names: Sequence[str]) -> None:
    """Raise DataError unless the file has exactly one column of this name."""
    if name not in names:
        words = f"{path} has no column {name!r}; its columns are: {', '.join(names)}"
        raise DataError(words, code="FP-DATA-001", column=name)
    if names.count(name) > 1:
        words = f"{path} has more than one column {name!r}; give each a name of its own"
        raise DataError(words, code="FP-DATA-002", column=name)


def read_cells(path: str | Path) -> Cells:
    """Read a CSV file with a header, or a Parquet file (needs pyarrow). Raises DataError when it holds no table."""
    source = Path(path)
    if not source.is_file():
        raise DataError(f"{source} does not exist; correct the path, or put the file there", code="FP-DATA-007")
    if source.suffix.lower() == ".parquet":
        return _read_parquet(source)
    return _read_csv(source)


def column_names(path: str | Path) -> tuple[str, ...]:
    """The names of the columns alone."""
    source = Path(path)
    if source.suffix.lower() == ".parquet":
        return read_cells(source).names
    with open_csv(source) as file:
        header = next(_parse(file), (0, []))
    names = tuple(header[1])
    if not names:
        raise DataError(f"{source} is empty; it needs a line of column names and at least one row", code="FP-DATA-008")
    return names


@contextmanager
def open_csv(path: Path) -> Iterator[TextIO]:
    """Open a CSV file. Raises DataError when it cannot be opened, or what is done inside cannot read it."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield file
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        words = f"{path} cannot be read as a CSV file in UTF-8: {error}; save it as one"
        raise DataError(words, code="FP-DATA-009") from error


def check_rows(path: Path, lines: Sequence[int], rows: Sequence[Sequence[str]]) -> None:
    """Raise DataError unless there are a header and a row, and every row has as many cells as the header.

    lines: the number of the line of each row, for the message
    """
    if len(rows) < 2:
        raise DataError(
            f"{path} needs a line of column names and at least one row; it has {len(rows)} lines", code="FP-DATA-010"
        )
    width = len(rows[0])
    for line, row in zip(lines, rows, strict=True):
        if len(row) != width:
            raise DataError(
                f"{path}: line {line} has {len(row)} cells, the header has {width}; correct it", code="FP-DATA-011"
            )


def _parse(file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, as cells without outer blanks, with the line in which each ends."""
    reader = csv.reader(file)
    for row in reader:
        if row:
            yield reader.line_num, [cell.strip() for cell in row]


def _read_csv(path: Path) -> Cells:
    with open_csv(path) as file:
        numbered = list(_parse(file))
    lines = tuple(line for line, _ in numbered)
    rows = [row for _, row in numbered]
    check_rows(path, lines, rows)
    names = tuple(rows[0])
    columns = {name: np.array([row[j] for row in rows[1:]], dtype=np.str_) for j, name in enumerate(names)}
    return Cells(path, names, columns, lines[1:])


def _read_parquet(path: Path) -> Cells:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        words = "Parquet files need pyarrow; install it with: pip install 'fedpact[parquet]'"
        raise FedpactError(words, code="FP-001") from error
    try:
        table = parquet.read_table(path)
    except (OSError, ArrowException) as error:
        words = f"{path} cannot be read as a Parquet file: {error}; write it again"
        raise DataError(words, code="FP-DATA-012") from error
    if not table.num_rows:
        raise DataError(f"{path} has no rows; give this owner data, or leave it out", code="FP-DATA-013")
    columns = {
        name: _from_parquet(column.to_pylist()) for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return Cells(path, tuple(table.column_names), columns)


def _from_parquet(values: list[Any]) -> NDArray[Any]:
    """Numbers with NaN for null, or texts with "" for null."""
    if all(value is None or isinstance(value, int | float) for value in values):
        return np.array([np.nan if value is None else float(value) for value in values])
    return np.array(["" if value is None else str(value).strip() for value in values], dtype=np.str_)


def _find_defect(cell: str) -> Defect:
    """Why this cell is not a finite number."""
    if cell.upper() in MISSING:
        return ABSENT
    if np.isnan(_to_number(cell)):
        return TEXT
    return INFINITE


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
