"""The columns of a CSV or Parquet file: read by Arrow where it is installed, else by Python's own reader.

Both give the same numbers, bit for bit, and the same texts. What Arrow cannot read as a table is read again by Python's
reader, which knows the line of every defect.

A CSV file has a header; its cells are separated by commas, semicolons, tabs or bars, whichever the header has most of,
and may be packed (.gz). Blanks around a cell do not count. Where cells are separated by something else than commas,
numbers may have a decimal comma. A column of dates (2026-05-01, with or without a time of day) is a column of numbers:
days since 1970.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import DataError, FedpactError, install
from fedpact.types import Vector

#: How an absent value is written, in capitals.
MISSING = ("", "NA", "NAN", "NULL", "NONE", "?")
#: What may separate cells.
DELIMITERS = ",;\t|"
#: How a date begins.
DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]|$)")
#: Seconds of a day.
DAY = 86400.0


class Column(ABC):
    """One column of a file, as its cells stand there without outer blanks."""

    @property
    @abstractmethod
    def cells(self) -> Sequence[Any]:
        """All cells: texts, or numbers with NaN where a value is absent."""

    @abstractmethod
    def numbers(self, comma: bool) -> Vector | None:
        """The column as numbers, NaN where a value is absent; None where a cell is neither.

        comma: numbers may have a decimal comma
        """

    @abstractmethod
    def codes(self) -> tuple[list[Any], NDArray[np.intp]]:
        """The different cells, and which of them every cell is."""

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Column:
        """These cells, in this order."""

    def __len__(self) -> int:
        return len(self.cells)


class TextColumn(Column):
    """Texts in a list."""

    def __init__(self, cells: list[str]) -> None:
        self._cells = cells

    @property
    def cells(self) -> Sequence[str]:
        return self._cells

    def numbers(self, comma: bool) -> Vector | None:
        texts = ["nan" if cell.upper() in MISSING else cell for cell in self._cells]
        try:
            return np.array(texts, dtype=np.float64)
        except ValueError:
            pass
        if comma:
            try:
                return np.array([cell.replace(",", ".") for cell in texts], dtype=np.float64)
            except ValueError:
                pass
        return days(self._cells)

    def codes(self) -> tuple[list[Any], NDArray[np.intp]]:
        position = {cell: k for k, cell in enumerate(dict.fromkeys(self._cells))}
        return list(position), np.array([position[cell] for cell in self._cells], dtype=np.intp)

    def take(self, rows: NDArray[np.int64]) -> TextColumn:
        return TextColumn([self._cells[row] for row in rows])


class ArrowColumn(Column):
    """Texts as Arrow holds them: compact, and turned into numbers without passing through Python."""

    def __init__(self, texts: Any) -> None:
        self._texts = texts

    @property
    def cells(self) -> Sequence[str]:
        found: list[str] = self._texts.to_pylist()
        return found

    def numbers(self, comma: bool) -> Vector | None:
        import pyarrow as pa
        from pyarrow import compute

        absent = compute.is_in(compute.utf8_upper(self._texts), value_set=pa.array(MISSING))
        texts = compute.if_else(absent, pa.scalar(None, pa.string()), self._texts)
        writings = [texts]
        if comma:
            writings.append(compute.replace_substring(texts, ",", "."))
        for written in writings:
            try:
                return np.asarray(compute.cast(written, pa.float64()).to_numpy(zero_copy_only=False))
            except pa.ArrowInvalid:
                continue
        return TextColumn(list(self.cells)).numbers(comma)  # what Arrow does not read as a number Python may

    def codes(self) -> tuple[list[Any], NDArray[np.intp]]:
        encoded = self._texts.dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.intp)

    def take(self, rows: NDArray[np.int64]) -> ArrowColumn:
        return ArrowColumn(self._texts.take(rows))

    def __len__(self) -> int:
        return len(self._texts)


class NumberColumn(Column):
    """Numbers of a Parquet file, NaN where a value is absent; whole numbers without gaps stay whole: ids are exact."""

    def __init__(self, values: Vector | NDArray[np.integer[Any]]) -> None:
        self._values = values

    @property
    def cells(self) -> Sequence[float]:
        found: list[float] = self._values.tolist()
        return found

    def numbers(self, comma: bool) -> Vector | None:
        return self._values.astype(np.float64, copy=False)

    def codes(self) -> tuple[list[Any], NDArray[np.intp]]:
        distinct, codes = np.unique(self._values, return_inverse=True)
        return distinct.tolist(), codes.astype(np.intp)

    def take(self, rows: NDArray[np.int64]) -> NumberColumn:
        return NumberColumn(self._values[rows])


def days(cells: Sequence[str]) -> Vector | None:
    """Dates as days since 1970, NaN where one is absent; None where a cell is neither."""
    written = ["NaT" if cell.upper() in MISSING else cell for cell in cells]
    if not all(cell == "NaT" or DATE.match(cell) for cell in written):
        return None
    try:
        moments = np.array(written, dtype="datetime64[s]")
    except ValueError:
        return None
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / DAY)


# ----------------------------------------------------------------------------------------------------------- CSV files


def is_packed(path: Path) -> bool:
    """Whether the file is compressed by gzip."""
    return path.suffix.lower() == ".gz"


@contextmanager
def open_csv(path: Path) -> Iterator[TextIO]:
    """Open a CSV file. Raises DataError when it cannot be opened, or what is done inside cannot read it."""
    try:
        if is_packed(path):
            with gzip.open(path, "rt", newline="", encoding="utf-8-sig") as file:
                yield file
        else:
            with path.open(newline="", encoding="utf-8-sig") as file:
                yield file
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        words = f"{path} cannot be read as a CSV file in UTF-8: {error}; save it as one"
        raise DataError(words, code="FP-DATA-009") from error


def file_rows(path: Path) -> Iterator[bytes]:
    """The rows of a file as they stand there, without their order: to tell by how many two versions of it differ."""
    if path.suffix == ".parquet":
        names, columns = read_parquet(path, None)
        for row in zip(*(columns[name].cells for name in names), strict=True):
            yield repr(row).encode()
        return
    with open_csv(path) as file:
        next(file, "")
        for line in file:
            yield line.strip().encode()


def find_delimiter(header: str) -> str:
    """What separates the cells of a header: whichever it has most of, a comma where it has none."""
    return max(DELIMITERS, key=header.count)


def parse(file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, as cells without outer blanks, with the line in which each ends."""
    delimiter = find_delimiter(file.readline())
    file.seek(0)
    reader = csv.reader(file, delimiter=delimiter)
    for row in reader:
        if row:
            yield reader.line_num, [cell.strip() for cell in row]


def read_with_python(path: Path) -> tuple[tuple[str, ...], Mapping[str, Column]]:
    """Names and columns of a CSV file, every row of which is checked."""
    with open_csv(path) as file:
        numbered = list(parse(file))
    rows = [row for _, row in numbered]
    check_rows(path, [line for line, _ in numbered], rows)
    names = tuple(rows[0])
    columns = {name: TextColumn([row[j] for row in rows[1:]]) for j, name in enumerate(names)}
    return names, columns


def read_with_arrow(path: Path, only: Sequence[str] | None) -> tuple[tuple[str, ...], Mapping[str, Column]] | None:
    """The same, of these columns alone; None where Arrow is not installed, or sees no table in the file."""
    try:
        import pyarrow as pa
        from pyarrow import compute
        from pyarrow import csv as arrow_csv
    except ImportError:
        return None
    with open_csv(path) as file:
        first = file.readline()
    names = tuple(cell.strip() for cell in next(csv.reader([first], delimiter=find_delimiter(first)), []))
    numbered = [str(place) for place in range(len(names))]  # names may be there twice
    wanted = [place for place, name in zip(numbered, names, strict=True) if only is None or name in only]
    try:
        table = arrow_csv.read_csv(
            pa.input_stream(path, compression="gzip" if is_packed(path) else None),
            read_options=arrow_csv.ReadOptions(column_names=numbered, skip_rows=1),
            parse_options=arrow_csv.ParseOptions(delimiter=find_delimiter(first), newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(numbered, pa.string()),
                include_columns=wanted or numbered[:1],
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowInvalid, OSError):
        return None
    if not table.num_rows:
        return None
    columns = {
        names[int(place)]: ArrowColumn(compute.utf8_trim_whitespace(table[place].combine_chunks())) for place in wanted
    }
    return names, columns


def free_unused() -> None:
    """Hand memory of columns that are gone back to the system; Arrow would keep it for the next file."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()


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


# -------------------------------------------------------------------------------------------------------- Parquet files


def read_parquet(path: Path, only: Sequence[str] | None) -> tuple[tuple[str, ...], Mapping[str, Column]]:
    """Names and columns of a Parquet file. Raises DataError when it holds no table."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        words = f"Parquet files need pyarrow; {install('tables')}"
        raise FedpactError(words, code="FP-001") from error
    try:
        names = tuple(parquet.read_schema(path).names)
        wanted = None if only is None else [name for name in names if name in only] or names[:1]
        table = parquet.read_table(path, columns=wanted)
    except (OSError, ArrowException) as error:
        words = f"{path} cannot be read as a Parquet file: {error}; write it again"
        raise DataError(words, code="FP-DATA-012") from error
    if not table.num_rows:
        raise DataError(f"{path} has no rows; give this owner data, or leave it out", code="FP-DATA-013")
    return names, {name: _from_arrow(table[name]) for name in dict.fromkeys(table.column_names)}


def _from_arrow(column: Any) -> Column:
    """Numbers with NaN for null (whole ones as they are where none is), dates as days, or texts with "" for null."""
    import pyarrow as pa
    from pyarrow import compute

    kind = column.type
    if pa.types.is_temporal(kind) and not pa.types.is_time(kind) and not pa.types.is_duration(kind):
        seconds = compute.cast(compute.cast(column, pa.timestamp("s"), safe=False), pa.int64())
        return NumberColumn(compute.cast(seconds, pa.float64()).to_numpy(zero_copy_only=False) / DAY)
    if pa.types.is_integer(kind) and not column.null_count:
        return NumberColumn(column.to_numpy())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return NumberColumn(np.asarray(compute.cast(column, pa.float64()).to_numpy(zero_copy_only=False)))
    return TextColumn(["" if value is None else str(value).strip() for value in column.to_pylist()])
