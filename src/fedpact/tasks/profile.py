"""What owners' tables hold, before anything is trained: the task behind `fedpact profile`.

A column is described as the job means it: numbers by their moments and quantiles, categories by their agreed levels.
Every defect is found, not only the first; its words, which may quote a cell, stay with the owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from fedpact.data.cells import TEXT, Cells, find_defect, read_cells
from fedpact.data.encoding import Encoding, categories_from
from fedpact.errors import DataError
from fedpact.federation.rules import Counts
from fedpact.problem import Unscaled
from fedpact.tasks.base import Bounded, Task
from fedpact.tasks.suspicions import find_scarcity, find_suspicions
from fedpact.tasks.tables import TableTask
from fedpact.types import Vector


@dataclass(frozen=True)
class Survey(Unscaled):
    """One owner's table: X has NaN where a cell is absent, or is not what its column should hold.

    defects: of every column, one error for each kind
    levels:  what columns of text hold for which no levels were agreed, with counts
    suspicions, scarce: what looks wrong although it can be read, see `find_suspicions` and `find_scarcity`
    classes: rows of each class of the label
    """

    defects: tuple[DataError, ...] = ()
    levels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    suspicions: tuple[DataError, ...] = ()
    scarce: tuple[DataError, ...] = ()
    classes: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Profile(Task):
    """columns: to be described; label, group: two more, under the roles that a site allows them in

    categories: of the columns that are text, all levels they may have
    """

    name: ClassVar[str] = "profile"
    title: ClassVar[str] = "what the tables hold, by sums"

    columns: tuple[str, ...] = ()
    label: str = ""
    group: str = ""
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "categories", categories_from(self.categories))

    @classmethod
    def of(cls, task: TableTask) -> Self:
        """Of the columns that a task is about."""
        group = getattr(task, "group", "")
        categories = dict(task.categories)
        for column, role in ((task.label, "classes"), (group, "groups")):
            if column and hasattr(task, role):
                categories[column] = getattr(task, role)
        others = tuple(column for column in task.columns_read if column not in (task.label, group))
        return cls(columns=(*task.columns, *others), label=task.label, group=group, categories=categories)

    @property
    def encoding(self) -> Encoding:
        """All columns as a matrix, levels as columns of 0 and 1."""
        roles = tuple(column for column in (self.label, self.group) if column)
        return Encoding((*self.columns, *roles), self.categories, missing="mean")

    @property
    def reading(self) -> object:
        return self.encoding.columns, tuple(self.categories.items())

    def read(self, path: Path) -> Survey:
        columns = self.encoding.columns
        cells = read_cells(path, columns)
        blocks = []
        defects: list[DataError] = []
        levels = {}
        for column in columns:
            block, found = self._describe(cells, column)
            blocks.append(block)
            defects += found
            if column not in self.categories and any(one.code == TEXT.code for one in found):
                levels[column] = _count_texts(cells, column)
        by_name = dict(zip(columns, blocks, strict=True))
        classes = self.categories.get(self.label, ())
        suspicions = find_suspicions(path, by_name, self.label, classes)
        counts: dict[str, int] = {}
        if classes:
            counts = dict(zip(classes, map(int, np.nansum(by_name[self.label], axis=0)), strict=True))
        scarce = find_scarcity(path, cells.rows, self.label, counts)
        looked = (tuple(defects), levels, tuple(suspicions), tuple(scarce), tuple(counts.values()))
        return Survey(np.column_stack(blocks), None, *looked)

    def _describe(self, cells: Cells, column: str) -> tuple[Any, list[DataError]]:
        """The column, NaN where it is of no use, and what is wrong with it."""
        width = len(self.categories.get(column, ("",)))
        try:
            if column in self.categories:
                codes, defects = cells.find_codes(column, self.categories[column], "levels", missing=True)
                return np.where(codes[:, None] < 0, np.nan, np.eye(width)[codes]), defects
            values, defects = cells.find_numbers(column, missing=True)
            return np.where(np.isfinite(values), values, np.nan)[:, None], defects
        except DataError as error:  # there is no such column
            return np.full((cells.rows, width), np.nan), [error]

    def share(self, owner: str, held: Survey) -> Survey:
        return held

    def count(self, held: Survey) -> Counts:
        return Counts(len(held.X))

    def sentence(self) -> str:
        return f"What {len(self.encoding.columns)} columns hold."

    def bounded(self, owner: str, values: Vector, price: Vector, told: Mapping[str, float]) -> Iterator[Bounded]:
        return iter(())


def _count_texts(cells: Cells, column: str) -> dict[str, int]:
    """How often each text of the column occurs, numbers among them left out."""
    distinct, which = cells.column(column).codes()
    counts = np.bincount(which, minlength=len(distinct)).tolist()
    return {text: count for text, count in zip(distinct, counts, strict=True) if find_defect(text) is TEXT}
