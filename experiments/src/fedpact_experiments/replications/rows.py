"""The measured rows of runs: selection, and mean and deviation of their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from fedpact.functions import Vector

Row = TypeVar("Row")


class Rows(list[Row]):
    """A list of measured rows, selected by the values of their fields."""

    def where(self, **fields: object) -> Rows[Row]:
        """The rows whose fields have these values."""
        return Rows(row for row in self if all(getattr(row, name) == value for name, value in fields.items()))

    def one(self, **fields: object) -> Row:
        """The first row whose fields have these values."""
        return self.where(**fields)[0]

    def by(self, *fields: str) -> dict[tuple[Any, ...], Rows[Row]]:
        """The rows by the values of these fields, in the order in which the values appear."""
        groups: dict[tuple[Any, ...], Rows[Row]] = {}
        for row in self:
            groups.setdefault(tuple(getattr(row, name) for name in fields), Rows()).append(row)
        return groups

    def of(self, field: str) -> list[Any]:
        """This field of every row."""
        return [getattr(row, field) for row in self]

    def spread(self, field: str) -> Spread:
        """This field over all rows."""
        return Spread(self.of(field))


class Spread:
    """Mean and standard deviation; formatted as in the papers, "mean (deviation)", with the format of the mean."""

    def __init__(self, values: Sequence[float] | Vector) -> None:
        self.mean = float(np.mean(values))
        self.deviation = float(np.std(values))
        self.several = np.size(values) > 1

    def __format__(self, form: str) -> str:
        deviation = f" ({self.deviation:.1e})" if self.several else ""  # one run has none
        return f"{self.mean:{form}}{deviation}"
