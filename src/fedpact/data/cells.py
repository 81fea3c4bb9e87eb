"""The columns of a CSV or Parquet file as they stand there, and as numbers or codes; every defect with its place."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import DataError, FedpactError

#: How an absent value is written, in capitals.
MISSING = ("", "NA", "NAN", "NULL", "NONE", "?")
#: What a cell can be instead of a finite number, the code of the error, and what else to do about it than to give one.
TEXT, ABSENT, INFINITE = "text", "absent", "infinite"
DEFECTS = {
    TEXT: ("FP-DATA-003", ", or list it under categories"),
    ABSENT: ("FP-DATA-004", ', drop the row, or impute with missing = "mean"'),
    INFINITE: ("FP-DATA-005", " that is finite, or drop the row"),
}


@dataclass(frozen=True, eq=False)
class Cells:
    """Columns by name: float64 with NaN for absent values where the file has numbers, else text without outer blanks.

    names: all of them, in the order of the file; doubles are told when they are asked for
    lines: of the file in which the rows end; empty where it has none
    """

    path: Path
    names: tuple[str, ...]
    columns: dict[str, NDArray[Any]]
    lines: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def column(self, name: str) -> NDArray[Any]:
        known = f"its columns are: {', '.join(self.names)}"
        if name not in self.names:
            raise DataError(f"{self.path} has no column {name!r}; {known}", code="FP-DATA-001", column=name)
        if self.names.count(name) > 1:
            raise DataError(f"{self.path} has more than one column {name!r}; {known}", code="FP-DATA-002", column=name)
        return self.columns[name]

    def numbers(self, name: str, missing: bool = False) -> NDArray[np.float64]:
        """The column as finite numbers; with `missing`, NaN where a value is absent."""
        column = self.column(name)
        if column.dtype.kind == "f":
            values = column
        else:
            try:
                values = column.astype(np.float64)  # one call where all is well
            except ValueError:
                values = np.array([_number(cell) for cell in column])
        defects = {i: _defect(str(column[i])) for i in np.flatnonzero(~np.isfinite(values)).tolist()}
        for i, defect in defects.items():
            if defect != ABSENT or not missing:
                code, remedy = DEFECTS[defect]
                raise DataError(
                    f"{self.path}: column {name!r} {_found(column[i])} in {self.line(i)}; give a number{remedy}",
                    code=code,
                    column=name,
                    rows=list(defects.values()).count(defect),
                )
        return values

    def codes(self, name: str, levels: Sequence[str], what: str, missing: bool = False) -> NDArray[np.int64]:
        """The place of every cell among the levels (numbers match as numbers); with `missing`, -1 where it has none."""
        column = self.column(name)
        place: dict[Any, int] = {level: k for k, level in enumerate(levels)}
        place |= {number: k for k, level in enumerate(levels) if np.isfinite(number := _number(level))}
        known = {cell: place.get(cell, place.get(_number(cell), -1)) for cell in dict.fromkeys(column.tolist())}
        codes = np.array([known[cell] for cell in column.tolist()], dtype=np.int64)
        for i in np.flatnonzero(codes < 0).tolist():
            if not (missing and _defect(str(column[i])) == ABSENT):
                # No count: whoever chooses the levels could ask with it how many rows hold a value.
                raise DataError(
                    f"{self.path}: column {name!r} {_found(column[i])} in {self.line(i)}, which is none of the {what} "
                    f"{', '.join(map(repr, levels))}; correct it, or add it to them in the job",
                    code="FP-DATA-006",
                    column=name,
                )
        return codes

    def line(self, row: int) -> str:
        """How to find a row: by its line in a CSV file, else by number."""
        return f"line {self.lines[row]}" if self.lines else f"row {row + 1}"


def read_cells(path: str | Path) -> Cells:
    """The table in a CSV file with a header, or in a Parquet file (needs pyarrow). DataError when there is none."""
    source = Path(path)
    if not source.is_file():
        raise DataError(f"{source} does not exist; correct the path, or put the file there", code="FP-DATA-007")
    return _read_parquet(source) if source.suffix.lower() == ".parquet" else _read_csv(source)


def column_names(path: str | Path) -> tuple[str, ...]:
    """The names of the columns alone."""
    source = Path(path)
    if source.suffix.lower() == ".parquet":
        return read_cells(source).names
    with _csv(source) as lines:
        names = tuple(next(lines, (0, []))[1])
    if not names:
        raise DataError(f"{source} is empty; it needs a line of column names and at least one row", code="FP-DATA-008")
    return names


@contextmanager
def _csv(path: Path) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """The rows of a CSV file that are not empty, as cells without outer blanks, with the line in which they end."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            yield ((reader.line_num, [cell.strip() for cell in row]) for row in reader if row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        words = f"{path} cannot be read as a CSV file: {error}; save it as CSV in UTF-8"
        raise DataError(words, code="FP-DATA-009") from error


def _read_csv(path: Path) -> Cells:
    with _csv(path) as given:
        lines = list(given)
    if len(lines) < 2:
        raise DataError(
            f"{path} needs a line of column names and at least one row, it has {len(lines)} lines", code="FP-DATA-010"
        )
    (_, names), *numbered = lines
    for number, row in numbered:
        if len(row) != len(names):
            raise DataError(
                f"{path}: line {number} has {len(row)} cells, the header has {len(names)}; correct it",
                code="FP-DATA-011",
            )
    columns = {name: np.array([row[j] for _, row in numbered], dtype=np.str_) for j, name in enumerate(names)}
    return Cells(path, tuple(names), columns, tuple(number for number, _ in numbered))


def _read_parquet(path: Path) -> Cells:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        words = "Parquet files need pyarrow; install it with: pip install 'fedpact[parquet]'"
        raise FedpactError(words, code="FP-001") from error
    try:
        table = parquet.read_table(path)
    except (OSError, ArrowException) as error:
        raise DataError(f"{path} cannot be read as a Parquet file: {error}", code="FP-DATA-012") from error
    if not table.num_rows:
        raise DataError(f"{path} has no rows; give this owner data, or leave it out", code="FP-DATA-013")
    columns: dict[str, NDArray[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.to_pylist()
        if all(value is None or isinstance(value, int | float) for value in values):
            columns[name] = np.array([np.nan if value is None else float(value) for value in values])
        else:
            columns[name] = np.array(["" if value is None else str(value).strip() for value in values], dtype=np.str_)
    return Cells(path, tuple(table.column_names), columns)


def _defect(cell: str) -> str:
    """What a cell is that is no finite number."""
    if cell.upper() in MISSING:
        return ABSENT
    return TEXT if np.isnan(_number(cell)) else INFINITE


def _found(cell: Any) -> str:
    return f"holds {str(cell)!r}" if str(cell) else "is empty"


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except ValueError:
        return np.nan
