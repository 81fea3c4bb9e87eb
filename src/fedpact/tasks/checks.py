"""What the tables of the owners must satisfy before a problem is built. Every message names owner, finding, remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fedpact.errors import DataError, OptionError
from fedpact.functions.arrays import Data

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]


def features(owner: str, X: ArrayLike, columns: Sequence[str] | None = None) -> Matrix:
    """X as a finite matrix; `columns` are names for the messages, if there are any."""
    try:
        matrix = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"owner {owner!r}: X is not a dense table of numbers ({error}); encode text columns") from error
    if matrix.ndim != 2:
        raise DataError(f"owner {owner!r}: X has shape {matrix.shape}; give a matrix, one row a sample")
    if columns is not None and len(columns) != matrix.shape[1]:
        raise DataError(f"owner {owner!r}: X has {matrix.shape[1]} columns, but {len(columns)} column names were given")
    bad = ~np.isfinite(matrix)
    for j in np.flatnonzero(bad.any(axis=0)):
        column = f"column {j}" if columns is None else f"column {columns[int(j)]!r}"
        raise DataError(
            f"owner {owner!r}: {column} has {bad[:, j].sum()} missing or infinite values "
            f"({_rows(bad[:, j])}); impute them or drop the rows"
        )
    return matrix


def data(owner: str, X: ArrayLike | sp.sparray | sp.spmatrix, columns: Sequence[str] | None = None) -> Data:
    """X as `features` has it, or as a sparse matrix by rows when it is sparse."""
    if not isinstance(X, sp.sparray | sp.spmatrix):
        return features(owner, X, columns)
    given: Any = X  # the stubs of SciPy know no matrix whose kind is open
    matrix: sp.csr_array = sp.csr_array(given, dtype=np.float64)
    if bad := int(np.sum(~np.isfinite(matrix.data))):
        raise DataError(f"owner {owner!r}: the sparse X has {bad} missing or infinite values; impute them")
    return matrix


def whole(owner: str, name: str, values: ArrayLike, rows: int, classes: int) -> Labels:
    """`values` as a vector of the whole numbers 0 to classes - 1, one a row."""
    vector = np.asarray(values)
    if vector.shape != (rows,):
        raise DataError(f"owner {owner!r}: {name} has shape {vector.shape}, X has {rows} rows; give one {name} a row")
    wrong = ~np.isin(vector, np.arange(classes))
    if wrong.any():
        raise DataError(
            f"owner {owner!r}: {name} has {wrong.sum()} values other than the whole numbers 0 to {classes - 1}, the "
            f"first is {vector[wrong][0]!s} ({_rows(wrong)}); code the classes so"
        )
    return vector.astype(np.int64)


def coded(owner: str, name: str, values: ArrayLike, rows: int, levels: int) -> Labels:
    """One number a row: 0 or 1, or a whole one below `levels` when there are more than two."""
    return binary(owner, name, values, rows, both=False) if levels == 2 else whole(owner, name, values, rows, levels)


def binary(owner: str, name: str, values: ArrayLike, rows: int, *, both: bool = True) -> Labels:
    """`values` as a vector of 0 and 1, one a row; with `both`, each of the two must occur."""
    vector = np.asarray(values)
    if vector.shape != (rows,):
        raise DataError(f"owner {owner!r}: {name} has shape {vector.shape}, X has {rows} rows; give one {name} a row")
    wrong = ~np.isin(vector, (0, 1))
    if wrong.any():
        found = vector[wrong][0]
        raise DataError(
            f"owner {owner!r}: {name} has {wrong.sum()} values other than 0 and 1, the first is {found!s} "
            f"({_rows(wrong)}); code {name} as 0 and 1"
        )
    codes = vector.astype(np.int64)
    some_of_each(owner, name, codes, (0, 1) if both else ())
    return codes


def some_of_each(owner: str, name: str, codes: Labels, needed: Iterable[int], levels: Sequence[str] = ()) -> None:
    """Every needed value occurs; `levels` has the words for the values, where there are any."""
    for value in needed:
        if not np.any(codes == value):
            level = levels[value] if levels else value
            raise DataError(
                f"owner {owner!r}: no row has {name} = {level} among {len(codes)}; its mean loss is undefined: "
                "give this owner more data, merge it with another, or leave it out"
            )


def same_columns(matrices: Mapping[str, Data]) -> None:
    """All owners have as many columns as the first."""
    (first, reference), *others = matrices.items()
    for owner, matrix in others:
        if matrix.shape[1] != reference.shape[1]:
            raise DataError(
                f"owner {owner!r}: X has {matrix.shape[1]} columns, owner {first!r} has {reference.shape[1]}; "
                "all owners must use the same columns in the same order"
            )


def owner_tables(owners: Mapping[str, object], parts: Sequence[str]) -> None:
    """There is an owner, none is called 'server', and each has a tuple of these parts."""
    if not owners:
        raise DataError("there are no owners; give a mapping with at least one, name -> table")
    for name, table in owners.items():
        if name == "server":
            raise DataError("an owner is called 'server', the name of the server itself; give it another name")
        tuple_of(name, table, parts)


def tuple_of(name: str, table: object, parts: Sequence[str]) -> None:
    if not isinstance(table, tuple) or len(table) != len(parts):
        found = f"{len(table)} items" if isinstance(table, tuple) else type(table).__name__
        raise DataError(f"owner {name!r}: expected a tuple ({', '.join(parts)}), got {found}")


def positive(name: str, value: float) -> float:
    if not (isfinite(value) and value > 0):
        raise OptionError(f"{name} is {value}; it must be a positive number")
    return float(value)


def bound_of_each(what: str, bound: float | Mapping[str, float], owners: Iterable[str]) -> dict[str, float]:
    """One positive number for every owner, from one for all or from a mapping with an entry for each."""
    names = list(owners)
    if not isinstance(bound, Mapping):
        return dict.fromkeys(names, positive(what, bound))
    for name in names:
        if name not in bound:
            raise OptionError(
                f"{what} has no entry for owner {name!r}; give one for every owner, or one number for all"
            )
    for name in bound:
        if name not in names:
            raise OptionError(
                f"{what} has an entry for {name!r}, which is no owner; the owners are: {', '.join(names)}"
            )
    return {name: positive(f"{what} of owner {name!r}", bound[name]) for name in names}


def nonnegative(name: str, value: float) -> float:
    if not (isfinite(value) and value >= 0):
        raise OptionError(f"{name} is {value}; it must be a number of at least 0")
    return float(value)


def _rows(mask: NDArray[np.bool_], shown: int = 5) -> str:
    numbers = np.flatnonzero(mask)
    listed = ", ".join(str(row) for row in numbers[:shown])
    return f"row{'s' if len(numbers) > 1 else ''} {listed}{', ...' if len(numbers) > shown else ''}"
