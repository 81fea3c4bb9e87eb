"""Weights that are one number or a vector with one entry for each coordinate."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import ProblemError
from fedpact.prox.base import Vector


def as_weight(owner: str, name: str, given: ArrayLike) -> float | Vector:
    """`given` as a float or as a float64 vector; ProblemError when it is neither."""
    array = np.asarray(given)
    if array.dtype.kind not in "biuf" or array.ndim > 1:
        found = f"an array of shape {array.shape} and type {array.dtype}"
        raise ProblemError(f"{owner}: {name} must be a number or a vector of numbers; got {found}")
    return np.array(array, dtype=np.float64) if array.ndim else float(array)


def length_defect(what: str, weight: float | Vector, length: int, why: str) -> str | None:
    if isinstance(weight, np.ndarray) and weight.size != length:
        return f"{what} has {weight.size} entries; expected one number or {length} entries, {why}"
    return None


def sign_defect(what: str, weight: float | Vector) -> str | None:
    values = np.atleast_1d(weight)
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if bad.size == 0:
        return None
    place = f" at position {bad[0]}" if isinstance(weight, np.ndarray) else ""
    return f"{what} is {values[bad[0]]:g}{place}; it must be finite and at least 0"


def weight_defect(what: str, weight: float | Vector, dim: int) -> str | None:
    """What is wrong with a weight on the coordinates of w."""
    return length_defect(what, weight, dim, "one for each coordinate") or sign_defect(what, weight)


def shown(weight: float | Vector) -> str:
    return f"<{weight.size} values>" if isinstance(weight, np.ndarray) else f"{weight:g}"


def largest(values: Vector) -> float:
    """max(values, 0) that lets NaN through."""
    return float(np.max(values, initial=0.0))
