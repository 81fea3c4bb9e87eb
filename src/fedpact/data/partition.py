"""Dealing the rows of one table to n owners, for simulations."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact.errors import DataError, OptionError

Rows = NDArray[np.intp]


def stratified(y: ArrayLike, n: int, seed: int = 0, *, drop_remainder: bool = False) -> list[Rows]:
    """n disjoint folds (row numbers, ascending) with the class ratios of y.

    Every row is in a fold; the folds differ by at most one row in size and by at most one row in each class.
    With `drop_remainder` they are exactly equal, as He24 has them, and up to n - 1 rows a class are left out.

    Raises:
        DataError: a class has fewer than n rows.
    """
    labels = np.asarray(y)
    _check_owners(n)
    rng = np.random.default_rng(seed)
    order = []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        if len(rows) < n:
            raise DataError(f"class {label} has {len(rows)} rows, too few for {n} owners; use at most {len(rows)}")
        order.append(rows[: len(rows) // n * n] if drop_remainder else rows)
    return _deal(np.concatenate(order), n)


def iid(rows: int, n: int, seed: int = 0) -> list[Rows]:
    """n disjoint folds (row numbers, ascending) of a random order of range(rows); sizes differ by at most one."""
    _check_owners(n)
    if rows < n:
        raise DataError(f"{rows} rows are too few for {n} owners; use at most {rows}")
    return _deal(np.random.default_rng(seed).permutation(rows), n)


def by_label(y: ArrayLike, n: int) -> list[Rows]:
    """n consecutive parts of the rows sorted by label (rows of a label in their order); sizes differ by at most one.

    Most owners then hold one label only: as different from each other as a split can make them.
    """
    labels = np.asarray(y)
    _check_owners(n)
    if len(labels) < n:
        raise DataError(f"{len(labels)} rows are too few for {n} owners; use at most {len(labels)}")
    return np.array_split(np.argsort(labels, kind="stable"), n)


def dirichlet(y: ArrayLike, n: int, alpha: float, seed: int = 0) -> list[Rows]:
    """n disjoint folds (row numbers, ascending); each label's rows are dealt in shares drawn from Dirichlet(alpha).

    Small alpha gives a label to few owners, large alpha to all alike. An owner that drew nothing gets one row of the
    owner with most, so that none is empty.

    Raises:
        DataError: fewer rows than owners.
        OptionError: alpha is not positive.
    """
    labels = np.asarray(y)
    _check_owners(n)
    if not 0 < alpha < np.inf:
        raise OptionError(f"alpha is {alpha}; it must be a positive number")
    if len(labels) < n:
        raise DataError(f"{len(labels)} rows are too few for {n} owners; use at most {len(labels)}")
    rng = np.random.default_rng(seed)
    folds: list[list[int]] = [[] for _ in range(n)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        ends = np.round(np.cumsum(rng.dirichlet(np.full(n, alpha))) * len(rows)).astype(np.intp)
        for fold, part in zip(folds, np.split(rows, ends[:-1]), strict=True):
            fold.extend(part)
    for fold in folds:
        if not fold:
            fold.append(max(folds, key=len).pop())
    return [np.sort(np.array(fold, dtype=np.intp)) for fold in folds]


def _deal(order: Rows, n: int) -> list[Rows]:
    """Like cards, one after the other: equal shares of every run of the order."""
    return [np.sort(order[owner::n]) for owner in range(n)]


def _check_owners(n: int) -> None:
    if n < 1:
        raise OptionError(f"n is {n}; the number of owners must be at least 1")
