"""Turning what the user gives into float64 arrays, and saying in one sentence what is wrong with their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fedpact.errors import ProblemError
from fedpact.functions.base import Matrix, Vector

#: A matrix of data: dense, or sparse by rows.
Data = Matrix | sp.csr_array


def as_data(owner: str, name: str, given: object) -> Data:
    """`given` as a float64 matrix, dense or CSR; not copied when it is one already, since data may be large.

    Raises ProblemError when it is not two-dimensional or does not hold real numbers.
    """
    array: Any = given if sp.issparse(given) else _dense(owner, name, given)
    if array.dtype.kind not in "biuf":
        raise ProblemError(f"{owner}: {name} holds {array.dtype} values, not real numbers; encode them as numbers")
    if array.ndim != 2:
        raise ProblemError(f"{owner}: {name} must be a matrix (two dimensions); its shape is {array.shape}")
    if sp.issparse(given):
        sparse: sp.csr_array = sp.csr_array(array, dtype=np.float64)
        return sparse
    return np.asarray(array, dtype=np.float64)


def as_vector(owner: str, name: str, given: object, length: int, why: str) -> Vector:
    """A float64 copy of `given`, a vector of that length; `why` tells in the error where the length comes from."""
    array = _dense(owner, name, given)
    if array.dtype.kind not in "biuf":
        raise ProblemError(f"{owner}: {name} holds {array.dtype} values, not real numbers; encode them as numbers")
    if array.shape != (length,):
        raise ProblemError(f"{owner}: {name} has shape {array.shape}; expected ({length},), {why}")
    return np.array(array, dtype=np.float64)


def _dense(owner: str, name: str, given: object) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError as error:  # ragged lists
        raise ProblemError(f"{owner}: {name} is no array of numbers ({error})") from error


def frozen(array: Matrix) -> Matrix:
    """A copy of `array` that nobody can write into, so that it may be handed out again and again."""
    copy = np.array(array, dtype=np.float64)
    copy.setflags(write=False)
    return copy


def dense(data: Data) -> Matrix:
    return data.toarray() if isinstance(data, sp.csr_array) else data


def gram(data: Data, weight: Vector) -> Matrix:
    """X' diag(weight) X for weight >= 0, dense and exactly symmetric."""
    root = np.sqrt(weight)
    if isinstance(data, sp.csr_array):
        scaled = sp.csr_array(sp.diags_array(root) @ data)
        return np.asarray((scaled.T @ scaled).toarray(), dtype=np.float64)
    half = root[:, None] * data
    return half.T @ half


def non_finite(name: str, data: Data | Vector) -> str | None:
    """How many entries are NaN or infinite and where the first one is, or None."""
    if isinstance(data, sp.csr_array):
        bad = np.flatnonzero(~np.isfinite(data.data))
        if bad.size == 0:
            return None
        row = int(np.searchsorted(data.indptr, bad[0], side="right")) - 1
        place = f"row {row}, column {data.indices[bad[0]]}"
    else:
        bad = np.flatnonzero(~np.isfinite(data))
        if bad.size == 0:
            return None
        where = np.unravel_index(bad[0], data.shape)
        place = f"row {where[0]}, column {where[1]}" if data.ndim == 2 else f"position {where[0]}"
    return f"{name} has {count(bad.size, 'value')} NaN or infinite, first at {place}; impute or remove such values"


def listed(values: ArrayLike, limit: int = 4) -> str:
    """A few distinct values, for error messages."""
    distinct = np.unique(np.asarray(values))
    shown = ", ".join(f"{value:g}" for value in distinct[:limit])
    return shown + (", ..." if distinct.size > limit else "")


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_of(defects: Iterable[str | None]) -> str | None:
    return next((defect for defect in defects if defect is not None), None)
