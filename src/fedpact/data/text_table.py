"""A CSV file as the text that it is: cells are read to choose rows, and rows are handed on as they were written."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from fedpact.data.cells import check_column
from fedpact.data.columns import check_rows, open_csv
from fedpact.errors import DataError


@dataclass(frozen=True, eq=False)
class TextTable:
    """A header and rows.

    columns: names, without the blanks around them
    rows:    cells as in the file
    lines:   each row as it is in the file, line break included; header: the same of the first line
    numbers: in which line of the file a row begins
    """

    path: Path
    columns: tuple[str, ...]
    rows: list[list[str]]
    lines: list[str]
    header: str
    numbers: list[int]

    def position(self, name: str) -> int:
        """The number of the column. Raises DataError when there is none of this name."""
        check_column(self.path, name, self.columns)
        return self.columns.index(name)

    def column(self, name: str) -> list[str]:
        """Values without the blanks around them. Raises DataError, with the line, when one is empty."""
        where = self.position(name)
        values = [row[where].strip() for row in self.rows]
        for value, number in zip(values, self.numbers, strict=True):
            if not value:
                raise DataError(
                    f"{self.path}: column {name!r} is empty in line {number}; fill it in, or drop the row",
                    code="FP-DATA-021",
                    column=name,
                    rows=values.count(""),
                )
        return values


def read_text_table(path: str | Path) -> TextTable:
    """Read a CSV file (UTF-8, commas, a header).

    Raises DataError when it cannot be read, has no rows or no header, a column twice, or a row of another length.
    """
    path = Path(path)
    numbers: list[int] = []
    rows: list[list[str]] = []
    lines: list[str] = []
    with open_csv(path) as file:
        text = list(file)
        reader = csv.reader(text)
        begin = 0
        for cells in reader:
            if any(cell.strip() for cell in cells):
                numbers.append(begin + 1)
                rows.append(cells)
                lines.append("".join(text[begin : reader.line_num]))
            begin = reader.line_num
    check_rows(path, numbers, rows)
    header = lines[0]
    if not lines[-1].endswith(("\n", "\r")):  # the last line of a file may have no line break
        lines[-1] += "\r\n" if header.endswith("\r\n") else "\n"
    columns = tuple(name.strip() for name in rows[0])
    _check_header(path, columns)
    return TextTable(path, columns, rows[1:], lines[1:], header, numbers[1:])


def is_header(cells: tuple[str, ...]) -> bool:
    """Whether the cells of a first line are names: they may count the columns, or be years; other numbers are a row."""
    numbers = [float(name) for name in cells if _is_number(name)]
    return all(value.is_integer() for value in numbers) and numbers == sorted(set(numbers))


def _check_header(path: Path, columns: tuple[str, ...]) -> None:
    if not is_header(columns):
        raise DataError(
            f"{path} has no header: its first line holds {columns[0]!r}, ...; put the column names there",
            code="FP-DATA-025",
        )
    for name in columns:
        check_column(path, name, columns)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
