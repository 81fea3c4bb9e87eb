"""A table of features and labels, and the few operations every loader needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact.errors import DataError, OptionError

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]
Encoding = Literal["codes", "onehot"]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of features X (rows x columns), labels y in {0, 1} and, where there is one, a group in {0, 1}."""

    X: Matrix
    y: Labels
    columns: tuple[str, ...]
    group: Labels | None = None

    def select(self, rows: ArrayLike) -> Table:
        """The table of these rows (indices or a mask)."""
        chosen = np.asarray(rows)
        group = None if self.group is None else self.group[chosen]
        return replace(self, X=self.X[chosen], y=self.y[chosen], group=group)


def standardize(X: Matrix, like: Matrix | None = None) -> Matrix:
    """Columns with mean 0 and standard deviation 1; a constant column becomes 0.

    With `like`, the means and deviations are those of its columns: scale new rows as the old ones.
    """
    reference = X if like is None else like
    spread = reference.std(axis=0)
    return np.asarray((X - reference.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def with_intercept(X: Matrix) -> Matrix:
    """X with a last column of ones."""
    return np.column_stack([X, np.ones(len(X))])


def encode(
    fields: Mapping[str, NDArray[np.str_]], categorical: Sequence[str], encoding: Encoding
) -> tuple[Matrix, tuple[str, ...]]:
    """Text columns as numbers, with the names of the columns made.

    A column that is not categorical is read as numbers. A categorical one becomes, with "onehot", one 0/1 column
    `name=level` a level (all levels: they add up to 1), with "codes" the position of its level in sorted order.
    """
    if encoding not in ("codes", "onehot"):
        raise OptionError(f"encoding is {encoding!r}; allowed: 'codes', 'onehot'", code="FP-OPTION-020")
    blocks, names = [], []
    for name, values in fields.items():
        if name not in categorical:
            blocks.append(values.astype(np.float64)[:, None])
            names.append(name)
            continue
        levels, codes = np.unique(values, return_inverse=True)
        if encoding == "codes":
            blocks.append(codes.astype(np.float64)[:, None])
            names.append(name)
        else:
            blocks.append(np.eye(len(levels))[codes])
            names.extend(f"{name}={level}" for level in levels)
    return np.hstack(blocks), tuple(names)


def cut_classes(y: Labels, multiple: int) -> NDArray[np.intp]:
    """Row numbers that keep, of each class, the first rows up to a multiple of this number."""
    kept = [np.flatnonzero(y == label) for label in np.unique(y)]
    return np.sort(np.concatenate([rows[: len(rows) // multiple * multiple] for rows in kept]))


def read_rows(text: str, separator: str | None, width: int, file: str) -> NDArray[np.str_]:
    """The fields of a text file as an array of strings (rows x width); blank lines and lines with '|' are skipped."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("|")]
    rows = [[field.strip() for field in line.split(separator)] for line in lines]
    for number, row in enumerate(rows, start=1):
        if len(row) != width:
            raise DataError(
                f"data file {file}: row {number} has {len(row)} fields, expected {width}", code="FP-DATA-027"
            )
    return np.array(rows)
