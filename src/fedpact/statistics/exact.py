"""Exact (Clopper-Pearson) confidence bounds for a rate.

Clopper, Pearson (1934): The use of confidence or fiducial limits illustrated in the case of the binomial. Biometrika
26. A rate p is below the lower bound only if that many hits, or more, had probability 1 - level or less: whatever p
is, that happens with probability 1 - level at most. No approximation, and no smallest number of rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from fedpact.errors import DataError, OptionError
from fedpact.types import Vector


def interval(hits: int, rows: int, level: float = 0.95) -> tuple[float, float]:
    """Two-sided interval of a rate that was `hits` times met on `rows` rows; (0, 1) without rows."""
    one_sided = (1 + check_share("level", level)) / 2
    return float(lower(hits, rows, one_sided)), float(upper(hits, rows, one_sided))


def gap_interval(hits: ArrayLike, rows: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Two-sided interval of the distance between the rates of two groups, from both of their exact intervals.

    hits, rows: of the two groups. Each interval fails with half of 1 - level at most, so that both hold with `level`.
    """
    found, asked = check_counts(hits, rows)
    each = (1 + check_share("level", level)) / 2
    first, second = [interval(int(hit), int(row), each) for hit, row in zip(found, asked, strict=True)]
    apart = max(first[0] - second[1], second[0] - first[1], 0.0)
    return apart, max(first[1] - second[0], second[1] - first[0])


def lower(hits: ArrayLike, rows: ArrayLike, level: float) -> Vector:
    """One-sided lower bound: the rate is above it with confidence `level`. Entry by entry; a number for numbers.

    Raises:
        DataError: hits that are not whole numbers between 0 and the rows.
        OptionError: a level that is not above 0 and below 1.
    """
    check_share("level", level)
    found, asked = check_counts(hits, rows)
    # P(Bin(rows, p) >= hits) = I_p(hits, rows - hits + 1) = 1 - level
    bound = betaincinv(np.maximum(found, 1), asked - found + 1, 1 - level)
    return np.asarray(np.where(found > 0, bound, 0.0))[()]


def upper(hits: ArrayLike, rows: ArrayLike, level: float) -> Vector:
    """One-sided upper bound: the rate is below it with confidence `level`. Otherwise as `lower`."""
    check_share("level", level)
    found, asked = check_counts(hits, rows)
    # P(Bin(rows, p) <= hits) = 1 - I_p(hits + 1, rows - hits) = 1 - level
    bound = betaincinv(found + 1, np.maximum(asked - found, 1), level)
    return np.asarray(np.where(found < asked, bound, 1.0))[()]


def check_share(name: str, value: float) -> float:
    """The value, if it is above 0 and below 1."""
    if not 0 < value < 1:
        raise OptionError(f"{name} is {value}; give a number above 0 and below 1", code="FP-OPTION-700", key=name)
    return float(value)


def check_counts(hits: ArrayLike, rows: ArrayLike) -> tuple[Vector, Vector]:
    """Both as arrays of one shape."""
    found, asked = np.broadcast_arrays(np.asarray(hits, dtype=np.float64), np.asarray(rows, dtype=np.float64))
    whole = np.all(found == np.floor(found)) and np.all(asked == np.floor(asked))
    if not whole or not np.all((found >= 0) & (found <= asked)):
        raise DataError(
            f"{found} hits on {asked} rows; give whole numbers, of hits as many as rows at most", code="FP-DATA-700"
        )
    return found, asked
