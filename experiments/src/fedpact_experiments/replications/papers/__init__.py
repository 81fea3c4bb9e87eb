"""The tables that the papers print, as they print them: one CSV file a table."""

from __future__ import annotations

import csv
from pathlib import Path

Printed = dict[tuple[str | int, ...], dict[str, str]]


def table(name: str, keys: int) -> Printed:
    """A table by the cells of its first columns (whole numbers where they are), each row as header -> cell."""
    with Path(__file__).with_name(f"{name}.csv").open(newline="") as file:
        headers, *rows = csv.reader(file)
    return {
        tuple(int(cell) if cell.isdigit() else cell for cell in row[:keys]): dict(
            zip(headers[keys:], row[keys:], strict=True)
        )
        for row in rows
    }


def mean(cell: str) -> float:
    """The mean of a cell 'mean (deviation)'."""
    return float(cell.split()[0])
