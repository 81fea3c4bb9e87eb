"""Weights: one number, or a vector with one entry for each coordinate."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import ProblemError
from fedpact.types import Vector, to_numbers


def as_weight(owner: str, name: str, given: ArrayLike) -> float | Vector:
    """`given` as a float or a float64 vector; ProblemError when it is neither."""
    try:
        array = to_numbers(given)
    except ValueError as error:  # ragged lists, masks, text, complex numbers
        raise ProblemError(
            f"{owner}: {name} must be a number or a vector of numbers ({error})", code="FP-PROBLEM-190"
        ) from error
    if array.ndim > 1:
        raise ProblemError(
            f"{owner}: {name} has shape {array.shape}; give a number or a vector of numbers", code="FP-PROBLEM-191"
        )
    if array.ndim == 0:
        return float(array)
    return np.array(array, dtype=np.float64)


def length_defect(what: str, weight: float | Vector, length: int, why: str) -> str | None:
    """What is wrong with the length of a weight, or None; `why` says where the expected length comes from."""
    if isinstance(weight, np.ndarray) and weight.size != length:
        return f"{what} has {weight.size} entries; expected one number or {length} entries, {why}"
    return None


def sign_defect(what: str, weight: float | Vector) -> str | None:
    """The first entry that is negative or not finite, in a sentence, or None."""
    values = np.atleast_1d(weight)
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if bad.size == 0:
        return None
    place = f" at position {bad[0]}" if isinstance(weight, np.ndarray) else ""
    return f"{what} is {values[bad[0]]:g}{place}; it must be finite and at least 0"


def weight_defect(what: str, weight: float | Vector, dim: int) -> str | None:
    """What is wrong with a weight on the coordinates of w, or None."""
    return length_defect(what, weight, dim, "one for each coordinate") or sign_defect(what, weight)


def format_weight(weight: float | Vector) -> str:
    """The weight in a repr: the number, or how many entries the vector has."""
    if isinstance(weight, np.ndarray):
        return f"<{weight.size} values>"
    return f"{weight:g}"


def largest(values: Vector) -> float:
    """max(values, 0); NaN if a value is NaN."""
    return float(np.maximum.reduce(values, initial=0.0))
