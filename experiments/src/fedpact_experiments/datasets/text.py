"""Text files of data sets: their rows, and their categories as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedpact.data.table import Labels, Matrix
from fedpact.errors import DataError, OptionError

Encoding = Literal["codes", "onehot"]


def encode(
    fields: Mapping[str, NDArray[np.str_]], categorical: Sequence[str], encoding: Encoding
) -> tuple[Matrix, tuple[str, ...]]:
    """Text columns as numbers, with the names of the columns made.

    A column that is not categorical is read as numbers. A categorical one becomes, with "onehot", one 0/1 column
    `name=level` a level (all levels: they add up to 1), with "codes" the position of its level in sorted order.
    """
    if encoding not in ("codes", "onehot"):
        raise OptionError(f"encoding is {encoding!r}; allowed: 'codes', 'onehot'")
    blocks = []
    names = []
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
            raise DataError(f"data file {file}: row {number} has {len(row)} fields, expected {width}")
    return np.array(rows)
