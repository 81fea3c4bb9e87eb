"""Conversion of user input to float64 arrays, and one-sentence descriptions of invalid values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fedpact.errors import ProblemError
from fedpact.types import Matrix, Vector, to_numbers

#: A matrix of data, dense or CSR.
Data = Matrix | sp.csr_array


# Below, `what` is the subject of the error, such as "Quadratic: A".


def as_numbers(what: str, given: object) -> NDArray[Any]:
    """`given` as an array of real numbers, of any shape and precision. Raises ProblemError when it is none."""
    try:
        return to_numbers(given)
    except ValueError as error:  # ragged lists, masks, text, complex numbers
        raise ProblemError(f"{what} is not an array of real numbers ({error})", code="FP-PROBLEM-150") from error


def as_data(what: str, given: object) -> Data:
    """`given` as a float64 matrix, dense or CSR; not copied when it is one already, since data may be large.

    Raises ProblemError when it is not two-dimensional or does not hold real numbers.
    """
    if sp.issparse(given):
        sparse: Any = given
        as_numbers(what, np.empty(0, dtype=sparse.dtype))  # the type alone is checked: data may be large
        csr: sp.csr_array = sp.csr_array(sparse, dtype=np.float64)
        return csr
    array = as_numbers(what, given)
    if array.ndim != 2:
        raise ProblemError(f"{what} has shape {array.shape}; give a matrix, with two axes", code="FP-PROBLEM-151")
    return np.asarray(array, dtype=np.float64)


def as_square(what: str, given: object) -> Data:
    """`given` as by `as_data`. Raises ProblemError when it is not square."""
    matrix = as_data(what, given)
    if matrix.shape[0] != matrix.shape[1]:
        raise ProblemError(f"{what} has shape {matrix.shape}; give a square matrix", code="FP-PROBLEM-152")
    return matrix


def as_vector(what: str, given: object, length: int, why: str) -> Vector:
    """A float64 copy of `given`, a vector of this length; `why` explains the expected length in the error."""
    array = as_numbers(what, given)
    if array.shape != (length,):
        raise ProblemError(f"{what} has shape {array.shape}; expected ({length},), {why}", code="FP-PROBLEM-153")
    return np.array(array, dtype=np.float64)


def freeze(array: Matrix) -> Matrix:
    """A read-only copy of `array`, safe to return from every call."""
    copy = np.array(array, dtype=np.float64)
    copy.setflags(write=False)
    return copy


def to_dense(data: Data) -> Matrix:
    """`data` as a dense matrix; not copied when it is one already."""
    if isinstance(data, sp.csr_array):
        return np.asarray(data.toarray())
    return data


#: Products of this many terms and more are left to BLAS's syrk, which does half of them; in smaller ones it loses that,
#: and more, to what surrounds its inner loop.
MANY_TERMS = 500_000


def gram(data: Data, weight: Vector) -> Matrix:
    """X' diag(weight) X for weight >= 0, dense and exactly symmetric."""
    if isinstance(data, np.ndarray) and is_small(data.shape):
        part = data.T @ ((0.5 * weight)[:, None] * data)
        return part + part.T
    root = np.sqrt(weight)
    if isinstance(data, sp.csr_array):
        scaled = sp.csr_array(sp.diags_array(root) @ data)
        return np.asarray((scaled.T @ scaled).toarray(), dtype=np.float64)
    half = root[:, None] * data
    return half.T @ half  # NumPy calls syrk where both are one array


def is_small(shape: tuple[int, ...]) -> bool:
    """Whether X'X of such an X, (rows, d), is a small product."""
    return shape[0] * shape[1] ** 2 < MANY_TERMS


def non_finite_defect(name: str, data: Data | Vector) -> str | None:
    """How many entries are NaN or infinite and where the first one is; None when all are finite."""
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
        first = np.unravel_index(bad[0], data.shape)
        place = f"row {first[0]}, column {first[1]}" if data.ndim == 2 else f"position {first[0]}"
    found = count(bad.size, "NaN or infinite value")
    return f"{name} has {found}, first at {place}; impute or remove such values"


def list_distinct(values: ArrayLike, limit: int = 4) -> str:
    """The first few distinct values, for error messages."""
    distinct = np.unique(np.asarray(values))
    text = ", ".join(f"{value:g}" for value in distinct[:limit])
    if distinct.size > limit:
        return f"{text}, ..."
    return text


def count(number: int, noun: str) -> str:
    """\"1 label\", \"2 labels\"."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}s"


def first_of(defects: Iterable[str | None]) -> str | None:
    """The first defect that is not None."""
    return next((defect for defect in defects if defect is not None), None)
