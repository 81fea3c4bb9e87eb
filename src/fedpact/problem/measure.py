"""What an owner tells of a finished model: numbers that know on how many rows they rest."""

from __future__ import annotations

import math
from typing import Self


class Measure(float):
    """A number that an owner tells, and the rows behind it; in sums and comparisons a float.

    rows: how many it is a mean or a rate over, or a count of
    cell: rows of the smallest set that it would tell of, beside the other numbers of its owner: the accuracies of all
          rows and of one of two groups give that of the other. By default its own rows
    """

    rows: int
    cell: int

    def __new__(cls, value: float, rows: int, cell: int | None = None) -> Self:
        made = super().__new__(cls, value)
        made.rows = rows
        made.cell = rows if cell is None else cell
        return made

    def __getnewargs__(self) -> tuple[float, int, int]:  # type: ignore[override]  # what copies are made from
        return float(self), self.rows, self.cell

    @classmethod
    def count(cls, rows: int, cell: int | None = None) -> Self:
        return cls(rows, rows, cell)


def round_up(value: float) -> float:
    """The next number of two significant digits that is not smaller, by size: what is left of an error, told to others.

    An owner's own residual at a chosen point tells of its rows by every digit; whether it is below a tolerance of two
    digits stays the same.
    """
    if value == 0 or not math.isfinite(value):
        return value
    rounded = float(f"{value:.1e}")
    if abs(rounded) >= abs(value):
        return rounded
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return float(f"{value + math.copysign(step, value):.1e}")


def round_to_rows(value: float, rows: int) -> float:
    """The number with as many significant digits as the number of rows has, two at least.

    Counts and rates (hits / rows) stay as they are: that is all that they carry. A mean of a loss has more digits than
    its rows bear, and each digit helps whoever wants to find the rows from it.
    """
    hits = value * rows
    if math.isclose(hits, round(hits), rel_tol=0.0, abs_tol=1e-9 * max(1.0, abs(hits))):
        return float(value)
    digits = max(2, len(str(rows)))
    return float(f"{value:.{digits - 1}e}")
