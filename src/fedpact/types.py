"""Types that every room uses, and the way from what a user gives to one of them without losing a value."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
#: Bytes, or a view of bytes that are elsewhere.
Buffer = bytes | memoryview


def to_array(given: Any) -> NDArray[Any]:
    """`given` as an array. ValueError when it is ragged, or when a mask hides values, which an array would show."""
    parts = given if isinstance(given, list | tuple) else [given]
    masks = [np.ma.getmaskarray(part) for part in parts if isinstance(part, np.ma.MaskedArray)]
    hidden = sum(int(np.count_nonzero(mask)) for mask in masks)
    if hidden:
        raise ValueError(f"{hidden} of its values are masked; fill them in, or drop their rows")
    return np.asarray(given)


def to_numbers(given: Any) -> NDArray[Any]:
    """`given` as an array of booleans, integers or floats. ValueError when it is ragged, masked, or of another type."""
    array = to_array(given)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"it is a {type(given).__name__} of type {array.dtype}; encode it as numbers")
    return array


def to_real(given: Any) -> NDArray[np.float64]:
    """`given` as float64. ValueError or TypeError when values are masked, complex, text, or too large."""
    array = to_array(given)
    if array.dtype.kind == "c":
        raise ValueError("it holds complex numbers; give real ones, such as .real or abs(...)")
    try:
        return np.asarray(array, dtype=np.float64)
    except OverflowError as error:
        raise ValueError("it holds a whole number that is too large") from error
