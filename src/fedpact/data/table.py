"""A table of features and labels, and two operations that most models need."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]


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
