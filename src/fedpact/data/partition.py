"""Dealing the rows, or the columns, of one table to n owners, for simulations. The same seed deals the same."""

from __future__ import annotations

from collections.abc import Sequence

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
        _check_class(label, len(rows), n)
        if drop_remainder:
            rows = rows[: len(rows) // n * n]
        order.append(rows)
    return _deal(np.concatenate(order), n)


def iid(rows: int, n: int, seed: int = 0) -> list[Rows]:
    """n disjoint folds (row numbers, ascending) of a random order of range(rows); sizes differ by at most one."""
    _check_owners(n)
    _check_enough(rows, n)
    return _deal(np.random.default_rng(seed).permutation(rows), n)


def by_label(y: ArrayLike, n: int) -> list[Rows]:
    """n consecutive parts of the rows sorted by label (rows of a label in their order); sizes differ by at most one.

    Most owners then hold one label only: as different from each other as a split can make them.
    """
    labels = np.asarray(y)
    _check_owners(n)
    _check_enough(len(labels), n)
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
    _check_alpha(alpha)
    _check_enough(len(labels), n)
    rng = np.random.default_rng(seed)
    folds: list[list[int]] = [[] for _ in range(n)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        ends = _draw_ends(rng, len(rows), n, alpha)
        for fold, part in zip(folds, np.split(rows, ends[:-1]), strict=True):
            fold.extend(part)
    for fold in folds:
        if not fold:
            fold.append(max(folds, key=len).pop())
    return [np.sort(np.array(fold, dtype=np.intp)) for fold in folds]


def by_classes(y: ArrayLike, n: int, per_owner: int, seed: int = 0) -> list[Rows]:
    """n disjoint folds (row numbers, ascending) with exactly `per_owner` labels each.

    Every label is somewhere, at as many owners as any other (or one more or less), who share its rows evenly.

    Raises:
        DataError: a label has fewer rows than owners that are to hold it.
        OptionError: more labels an owner than there are, or so few that some label would be nowhere.
    """
    labels, codes = np.unique(np.asarray(y), return_inverse=True)
    _check_owners(n)
    if not 1 <= per_owner <= len(labels):
        raise OptionError(
            f"per_owner is {per_owner}; with {len(labels)} labels, 1 to {len(labels)}", code="FP-OPTION-441"
        )
    if n * per_owner < len(labels):
        raise OptionError(
            f"per_owner is {per_owner}: {n} owners would hold {n * per_owner} of {len(labels)} labels; use at least "
            f"{-(-len(labels) // n)}",
            code="FP-OPTION-442",
        )
    rng = np.random.default_rng(seed)
    # Owners draw one after the other from a pack that is dealt again and again in one order: no owner draws a label
    # twice, and no label is drawn twice more than another.
    pack = rng.permutation(len(labels))
    owners = rng.permutation(n)
    folds: list[list[Rows]] = [[] for _ in range(n)]
    for place, label in enumerate(pack):
        holders = owners[np.arange(place, n * per_owner, len(labels)) // per_owner]
        rows = rng.permutation(np.flatnonzero(codes == label))
        _check_class(labels[label], len(rows), len(holders))
        for owner, part in zip(holders, np.array_split(rows, len(holders)), strict=True):
            folds[owner].append(part)
    return [np.sort(np.concatenate(fold)) for fold in folds]


def by_quantity(rows: int, n: int, alpha: float, seed: int = 0) -> list[Rows]:
    """n disjoint folds (row numbers, ascending) of random rows, their sizes in shares drawn from Dirichlet(alpha).

    Small alpha gives most rows to few owners, large alpha the same number to all. Every owner has one row at least.

    Raises:
        DataError: fewer rows than owners.
        OptionError: alpha is not positive.
    """
    _check_owners(n)
    _check_alpha(alpha)
    _check_enough(rows, n)
    rng = np.random.default_rng(seed)
    more = _draw_ends(rng, rows - n, n, alpha)  # beyond the one row that every owner has
    ends = more + np.arange(1, n + 1)
    return [np.sort(part) for part in np.split(rng.permutation(rows), ends[:-1])]


def by_column(values: ArrayLike) -> dict[str, Rows]:
    """An owner for each value of a column, by name in the order of the values, with its rows. Nothing is drawn.

    Raises:
        DataError: a value is missing (NaN, None or empty text).
    """
    column = np.asarray(values)
    missing = np.flatnonzero((column != column) | (column == None) | (column == ""))  # noqa: E711 - of every entry
    if len(missing):
        raise DataError(
            f"{len(missing)} values are missing, the first is row {missing[0]}; fill them in, or drop the rows",
            code="FP-DATA-443",
        )
    levels, codes = np.unique(column, return_inverse=True)
    return {str(level): np.flatnonzero(codes == code) for code, level in enumerate(levels)}


def deal_columns(columns: int, n: int, seed: int | None = 0, *, sizes: Sequence[int] | None = None) -> list[Rows]:
    """n disjoint sets of column numbers, ascending; random ones, or with seed None consecutive ones.

    sizes: how many columns each owner has; None: their numbers differ by at most one.

    Raises:
        DataError: fewer columns than owners.
        OptionError: sizes are not n positive numbers that add up to the number of columns.
    """
    _check_owners(n)
    _check_enough(columns, n, "columns")
    if sizes is not None and (len(sizes) != n or min(sizes) < 1 or sum(sizes) != columns):
        raise OptionError(
            f"sizes are {', '.join(map(str, sizes))}; give {n} positive numbers that add up to {columns}, the columns",
            code="FP-OPTION-444",
        )
    order = np.arange(columns) if seed is None else np.random.default_rng(seed).permutation(columns)
    cuts = n if sizes is None else np.cumsum(sizes)[:-1]
    return [np.sort(part) for part in np.array_split(order, cuts)]


def _deal(order: Rows, n: int) -> list[Rows]:
    """Like cards, one after the other: equal shares of every run of the order."""
    return [np.sort(order[owner::n]) for owner in range(n)]


def _draw_ends(rng: np.random.Generator, rows: int, n: int, alpha: float) -> Rows:
    """Where each of n consecutive parts of the rows ends, in shares drawn from Dirichlet(alpha)."""
    shares = rng.dirichlet(np.full(n, alpha))
    return np.round(np.cumsum(shares) * rows).astype(np.intp)


def _check_owners(n: int) -> None:
    if n < 1:
        raise OptionError(f"n is {n}; the number of owners must be at least 1", code="FP-OPTION-445")


def _check_enough(count: int, n: int, what: str = "rows") -> None:
    if count < n:
        raise DataError(f"{count} {what} are too few for {n} owners; use at most {count}", code="FP-DATA-446")


def _check_class(label: object, rows: int, holders: int) -> None:
    if rows < holders:
        raise DataError(
            f"class {label} has {rows} rows, too few for {holders} owners; use at most {rows}", code="FP-DATA-440"
        )


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < np.inf:
        raise OptionError(f"alpha is {alpha}; it must be a positive number", code="FP-OPTION-447")
