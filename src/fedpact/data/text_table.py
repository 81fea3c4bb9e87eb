"""A CSV file as the text that it is: cells are read to choose rows, and rows are handed on as they were written."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

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
        if name not in self.columns:
            raise DataError(
                f"{self.path} has no column {name!r}; its columns are: {', '.join(self.columns)}",
                code="FP-DATA-020",
                column=name,
            )
        return self.columns.index(name)

    def column(self, name: str) -> list[str]:
        """Values without the blanks around them. DataError, with column and line, when it is absent or one is empty."""
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

    DataError when it cannot be read, has no rows or no header, a column twice, or a row of another length.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            text = list(file)
        records, begins, reader = [], 0, csv.reader(text)
        for cells in reader:
            if any(cell.strip() for cell in cells):
                records.append((begins + 1, cells, "".join(text[begins : reader.line_num])))
            begins = reader.line_num
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a CSV file in UTF-8: {error}", code="FP-DATA-022") from error
    if len(records) < 2:
        raise DataError(
            f"{path} needs a line of column names and at least one row; it has {len(records)} lines",
            code="FP-DATA-023",
        )
    (_, names, header), *rest = records
    columns = tuple(name.strip() for name in names)
    _check_names(path, columns)
    for number, cells, _ in rest:
        if len(cells) != len(columns):
            raise DataError(
                f"{path}: line {number} has {len(cells)} cells, the header has {len(columns)}", code="FP-DATA-024"
            )
    ending = "\r\n" if header.endswith("\r\n") else "\n"
    lines = [line if line.endswith(("\n", "\r")) else line + ending for _, _, line in rest]  # the last may have none
    return TextTable(path, columns, [cells for _, cells, _ in rest], lines, header, [number for number, _, _ in rest])


def _check_names(path: Path, columns: tuple[str, ...]) -> None:
    twice = next((name for name in columns if columns.count(name) > 1), None)
    # A header may count its columns, or name years; other numbers are a row.
    numbers = [float(name) for name in columns if _is_number(name)]
    counting = all(value.is_integer() for value in numbers) and numbers == sorted(set(numbers))
    if not counting or (twice is not None and _is_number(twice)):
        raise DataError(
            f"{path} has no header: its first line holds {columns[0]!r}, ...; put the column names there",
            code="FP-DATA-025",
        )
    if twice is not None:
        raise DataError(
            f"{path} has more than one column {twice!r}; give each a name of its own", code="FP-DATA-026", column=twice
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
