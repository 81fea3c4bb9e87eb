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
from fedpact.types import Matrix, to_array, to_real

Labels = NDArray[np.int64]

#: Row numbers in a message, at most: enough to look them up.
SHOWN = 5


def features(owner: str, X: ArrayLike, columns: Sequence[str] | None = None) -> Matrix:
    """X as a finite matrix; `columns` are names for the messages, if there are any."""
    try:
        matrix = to_real(X)
    except (TypeError, ValueError) as error:
        words = f"owner {owner!r}: X is not a dense table of numbers ({error}); encode text columns"
        raise DataError(words, code="FP-DATA-040") from error
    if matrix.ndim != 2:
        raise DataError(
            f"owner {owner!r}: X has shape {matrix.shape}; give a matrix, one row a sample", code="FP-DATA-041"
        )
    if columns is not None and len(columns) != matrix.shape[1]:
        raise DataError(
            f"owner {owner!r}: X has {matrix.shape[1]} columns, but {len(columns)} column names were given",
            code="FP-DATA-042",
        )
    check_finite(owner, matrix, columns)
    return matrix


def check_finite(
    owner: str, X: Matrix, columns: Sequence[str] | None = None, numbers: NDArray[np.intp] | None = None
) -> None:
    """Raise DataError for the first column with missing or infinite values; `numbers` are those of the rows of X."""
    bad = ~np.isfinite(X)
    for j in np.flatnonzero(bad.any(axis=0)).tolist():
        column = str(j) if columns is None else repr(columns[j])
        rows = np.flatnonzero(bad[:, j])
        # No count: a job that states a scaling could ask with it how many rows lie beyond a number.
        raise DataError(
            f"owner {owner!r}: column {column} has {len(rows)} missing or infinite values "
            f"({list_rows(rows if numbers is None else numbers[rows])}); impute them or drop the rows",
            code="FP-DATA-043",
            column="" if columns is None else columns[j],
        )


def data(owner: str, X: ArrayLike | sp.sparray | sp.spmatrix, columns: Sequence[str] | None = None) -> Data:
    """X as `features` has it, or as a sparse matrix by rows when it is sparse."""
    if not isinstance(X, sp.sparray | sp.spmatrix):
        return features(owner, X, columns)
    given: Any = X  # the stubs of SciPy know no matrix whose kind is open
    if given.dtype.kind == "c":
        raise DataError(f"owner {owner!r}: the sparse X holds complex numbers; give real ones", code="FP-DATA-054")
    matrix: sp.csr_array = sp.csr_array(given, dtype=np.float64)
    if bad := int(np.sum(~np.isfinite(matrix.data))):
        raise DataError(
            f"owner {owner!r}: the sparse X has {bad} missing or infinite values; impute them", code="FP-DATA-044"
        )
    return matrix


def check_codes(owner: str, name: str, values: ArrayLike, rows: int, levels: int) -> Labels:
    """`values` as a vector of the whole numbers 0 to levels - 1, one per row."""
    vector = _one_per_row(owner, name, values, rows)
    wrong = ~np.isin(vector, np.arange(levels))
    if wrong.any():
        raise DataError(
            f"owner {owner!r}: {name} has {wrong.sum()} values other than the whole numbers 0 to {levels - 1}, the "
            f"first is {vector[wrong][0]!s} ({list_rows(np.flatnonzero(wrong))}); code each {name} so",
            code="FP-DATA-045",
        )
    return vector.astype(np.int64)


def some_of_each(owner: str, name: str, codes: Labels, needed: Iterable[int], levels: Sequence[str] = ()) -> None:
    """Every needed value occurs; `levels` has the words for the values, where there are any."""
    for value in needed:
        if not np.any(codes == value):
            level = levels[value] if levels else value
            raise DataError(
                f"owner {owner!r}: no row has {name} = {level} among {len(codes)}; nothing can be bounded over none: "
                "give this owner more data, merge it with another, or leave it out",
                code="FP-DATA-047",
                column=name,
            )


def read_matrices(tables: Mapping[str, tuple[Any, ...]], columns: Sequence[str] | None = None) -> dict[str, Any]:
    """X, the first part of every owner's table, dense or sparse.

    Raises DataError unless all have the same number of columns.
    """
    matrices = {name: data(name, table[0], columns) for name, table in tables.items()}
    (first, reference), *others = matrices.items()
    for owner, matrix in others:
        if matrix.shape[1] != reference.shape[1]:
            raise DataError(
                f"owner {owner!r}: X has {matrix.shape[1]} columns, owner {first!r} has {reference.shape[1]}; "
                "all owners must use the same columns in the same order",
                code="FP-DATA-048",
            )
    return matrices


def owner_tables(owners: Mapping[str, object], parts: Sequence[str]) -> None:
    """There is an owner, none is called 'server', and each has a tuple of these parts."""
    if not owners:
        raise DataError("there are no owners; give a mapping with at least one, name -> table", code="FP-DATA-049")
    for name, table in owners.items():
        check_owner_name(name)
        tuple_of(name, table, parts)


def check_owner_name(name: str) -> None:
    """Raise DataError for the name of the server itself."""
    if name == "server":
        raise DataError(
            "an owner is called 'server', the name of the server itself; give it another name", code="FP-DATA-050"
        )


def tuple_of(name: str, table: object, parts: Sequence[str]) -> None:
    if not isinstance(table, tuple) or len(table) != len(parts):
        found = f"{len(table)} items" if isinstance(table, tuple) else type(table).__name__
        raise DataError(f"owner {name!r}: expected a tuple ({', '.join(parts)}), got {found}", code="FP-DATA-051")


def check_positive(name: str, value: float) -> float:
    """The number as a float. Raises OptionError unless it is positive and finite; `name` begins with its key."""
    if not (_is_finite(name, value) and value > 0):
        key = name.partition(" ")[0]
        raise OptionError(f"{name} = {value}: give a positive number", code="FP-OPTION-057", key=key)
    return float(value)


def check_nonnegative(name: str, value: float) -> float:
    """The number as a float. Raises OptionError unless it is at least 0 and finite."""
    if not (_is_finite(name, value) and value >= 0):
        raise OptionError(f"{name} is {value}; it must be a number of at least 0", code="FP-OPTION-033", key=name)
    return float(value)


def check_bounds(bound: float | Mapping[str, float], what: str = "bound") -> None:
    """Raise OptionError unless the bound, or every owner's, is positive."""
    if not isinstance(bound, Mapping):
        check_positive(what, bound)
        return
    for owner, value in bound.items():
        check_positive(f"{what} of owner {owner!r}", value)


def bound_for(bound: float | Mapping[str, float], owner: str, what: str = "bound") -> float:
    """The owner's bound, from one for all or one by owner."""
    if not isinstance(bound, Mapping):
        return bound
    if owner not in bound:
        raise OptionError(
            f"{what} has no entry for owner {owner!r}; give one for every owner, or one number for all",
            code="FP-OPTION-053",
            key=what,
        )
    return bound[owner]


def check_owners(what: str, stated: Iterable[str], owners: Sequence[str]) -> None:
    """Raise OptionError unless all that are stated are owners."""
    if unknown := [name for name in stated if name not in owners]:
        raise OptionError(
            f"{what} has an entry for {unknown[0]!r}, which is not an owner; the owners are: {', '.join(owners)}",
            code="FP-OPTION-032",
            key=what,
        )


def bound_of_each(what: str, bound: float | Mapping[str, float], owners: Iterable[str]) -> dict[str, float]:
    """One positive number for every owner, from one for all or from a mapping with an entry for each."""
    names = list(owners)
    check_owners(what, bound if isinstance(bound, Mapping) else (), names)
    bounds = {name: bound_for(bound, name, what) for name in names}
    return {name: check_positive(f"{what} of owner {name!r}", value) for name, value in bounds.items()}


def _one_per_row(owner: str, name: str, values: ArrayLike, rows: int) -> NDArray[Any]:
    try:
        vector = to_array(values)
    except ValueError as error:  # ragged lists, masks
        words = f"owner {owner!r}: {name} is not a vector ({error}); give one {name} a row"
        raise DataError(words, code="FP-DATA-055") from error
    if vector.dtype.kind == "c":
        raise DataError(f"owner {owner!r}: {name} holds complex numbers; give whole ones", code="FP-DATA-056")
    if vector.shape != (rows,):
        raise DataError(
            f"owner {owner!r}: {name} has shape {vector.shape}, X has {rows} rows; give one {name} a row",
            code="FP-DATA-052",
        )
    return vector


def _is_finite(name: str, value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError as error:  # a whole number with hundreds of digits
        raise OptionError(f"{name} is too large for a number; give a smaller one", code="FP-OPTION-070") from error


def list_rows(numbers: NDArray[np.intp]) -> str:
    """The first few row numbers, for a message."""
    more = ", ..." if len(numbers) > SHOWN else ""
    return f"rows {', '.join(map(str, numbers[:SHOWN]))}{more}"
