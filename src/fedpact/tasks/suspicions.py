"""What looks wrong in a table although every cell can be read: found where the table is, and told as defects are.

The words, which may quote cells, are for the owner's own log. A coordinator gets code, column and a coarse count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from fedpact.errors import DataError
from fedpact.types import Matrix, Vector

#: Rows of each class, without which a column that separates them says nothing; and rows of an owner that is not tiny.
FEWEST = 10
TINY = 30
#: A value is far from the rest beyond this many times the range of the middle half of the column.
FAR = 10.0
#: Copies of rows are no chance if there are so many times more than if columns were independent.
CHANCE = 3.0
#: Columns of numbers that are equal to the label up to rounding.
SAME = 1 - 1e-9
#: Names, without spaces and punctuation, under which tables hold the time until an event.
TIMES = frozenset(
    [
        *("time", "duration", "days", "months", "tte", "timetoevent", "timetodeath", "daystoevent", "daystodeath"),
        *("survival", "survivaltime", "survivaldays", "survivalmonths", "followup", "followuptime", "followupdays"),
        *("futime", "os", "ostime", "osdays", "osmonths", "pfs", "pfstime", "rfstime", "dfstime"),
    ]
)


def find_suspicions(
    source: object, columns: Mapping[str, Matrix], label: str, levels: Sequence[str]
) -> Iterator[DataError]:
    """Everything that looks wrong in one owner's table.

    columns: by name: of numbers one column, of categories one of 0 and 1 a level; NaN where a cell is absent
    label:   what is predicted, among the columns; levels: its classes, none where it is a number
    """
    features = {name: block for name, block in columns.items() if name != label}
    rows = len(next(iter(columns.values())))
    if label:
        target = columns[label]
        for name, block in features.items():
            if decides(block, target):
                yield DataError(
                    f"{source}: column {name!r} alone decides the label {label!r} in all rows: it may be written after "
                    "the label, or be the label in other words; leave it out unless it is known before",
                    code="FP-DATA-483",
                    column=name,
                )
    for name, block in features.items():
        if block.shape[1] == 1 and is_id(block[:, 0]):
            yield DataError(
                f"{source}: column {name!r} has another whole number in every row, as ids have; leave it out of the "
                "features",
                code="FP-DATA-484",
                column=name,
            )
        if levels and is_time(name):
            yield DataError(
                f"{source}: column {name!r} looks like the time until the event that the label {label!r} says; it is "
                'not known before: leave it out, or use family = "cox"',
                code="FP-DATA-485",
                column=name,
            )
        if block.shape[1] == 1 and (far := far_from_the_rest(block[:, 0])).any():
            values = ", ".join(f"{value:g}" for value in np.unique(block[far, 0])[:5])
            yield DataError(
                f"{source}: column {name!r} has values far from the rest ({values}) in {far.sum()} rows; correct them "
                "if they are mistakes, or stand for absent values",
                code="FP-DATA-486",
                column=name,
                rows=int(far.sum()),
            )
    if (copies := count_copies(np.hstack(list(columns.values())))) > rows / 100:
        yield DataError(
            f"{source}: {copies} rows are copies of others in all columns of the job; if the same people are meant, "
            "drop them, since rows count as independent",
            code="FP-DATA-489",
            rows=copies,
        )


def find_scarcity(source: object, rows: int, label: str, counts: Mapping[str, int]) -> Iterator[DataError]:
    """What there is too little of, which a policy with small cells keeps at home. counts: rows by class of the label"""
    present = [level for level, count in counts.items() if count]
    if len(present) == 1:
        yield DataError(
            f"{source}: all rows are of one class, {label} = {present[0]}; bounds of the others say nothing here",
            code="FP-DATA-487",
            column=label,
        )
    if 0 < rows < TINY:
        yield DataError(
            f"{source}: there are {rows} rows only, on which rates are hardly known; join another owner's table",
            code="FP-DATA-488",
        )


def decides(block: Matrix, target: Matrix) -> bool:
    """Whether a column alone decides the label: by a threshold, or level by level; or is the same number.

    target: classes as columns of 0 and 1, or one column of numbers
    """
    known = ~np.isnan(block).any(axis=1) & ~np.isnan(target).any(axis=1)
    block, target = block[known], target[known]
    if len(block) < 2 * FEWEST:
        return False
    if target.shape[1] == 1:
        x, y = block[:, 0], target[:, 0]
        if block.shape[1] > 1 or not np.ptp(x) or not np.ptp(y):
            return False
        return bool(abs(np.corrcoef(x, y)[0, 1]) > SAME)
    sizes = target.sum(axis=0)
    if np.count_nonzero(sizes) < 2 or sizes[sizes > 0].min() < FEWEST:
        return False
    if block.shape[1] > 1:
        return bool(np.all(np.count_nonzero(block.T @ target, axis=1) <= 1))
    classes = np.argmax(target, axis=1)
    ranges = sorted((block[classes == k, 0].min(), block[classes == k, 0].max()) for k in np.flatnonzero(sizes))
    return all(high < low for (_, high), (low, _) in pairwise(ranges))


def is_id(values: Vector) -> bool:
    """Whether every row has a whole number of its own, as numbers of people have."""
    known = values[~np.isnan(values)]
    if len(known) < 2 * FEWEST or len(known) < len(values) or np.any(known != np.round(known)):
        return False
    return len(np.unique(known)) == len(known)


def count_copies(matrix: Matrix) -> int:
    """Rows that are copies of others; 0 where columns of so few values have about as many by chance."""
    rows = len(matrix)
    matrix = np.nan_to_num(matrix, nan=np.inf)
    copies = rows - len(np.unique(matrix, axis=0))
    alike = [np.sum((np.unique(column, return_counts=True)[1] / rows) ** 2) for column in matrix.T] if copies else []
    by_chance = rows**2 / 2 * np.prod(alike)
    return copies if copies > CHANCE * by_chance else 0


def is_time(name: str) -> bool:
    """Whether a column is named as the time until an event is."""
    return "".join(letter for letter in name.lower() if letter.isalnum()) in TIMES


def far_from_the_rest(values: Vector) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which values are far outside of the middle half; none where half of them are alike."""
    low, high = np.nanquantile(values, [0.25, 0.75]) if not np.isnan(values).all() else (0.0, 0.0)
    if high <= low:
        return np.zeros(len(values), dtype=bool)
    with np.errstate(invalid="ignore"):
        return np.asarray((values < low - FAR * (high - low)) | (values > high + FAR * (high - low)))
