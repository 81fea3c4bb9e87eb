"""The probability simplex, scaled."""

from __future__ import annotations

import numpy as np

from fedpact.errors import ProblemError
from fedpact.prox.base import ROUNDING, Prox
from fedpact.prox.weights import as_weight
from fedpact.types import Vector


class Simplex(Prox):
    """h = indicator of {w : w >= 0, sum_j w_j = total}, total > 0.

    prox(v) = max(v - t, 0) with the t for which the sum is `total`, from a sort (Held, Wolfe and Crowder 1974).
    Raises ProblemError when total is not a number.
    """

    indicator = True

    def __init__(self, total: float = 1.0) -> None:
        given = as_weight("Simplex", "total", total)
        if isinstance(given, np.ndarray):
            raise ProblemError(
                f"Simplex: total is a vector of {given.size} entries; give one number", code="FP-PROBLEM-192"
            )
        self.total = given

    def value(self, w: Vector) -> float:
        allowance = ROUNDING * max(1.0, self.total)
        # NaN fails both comparisons.
        nonnegative = bool(np.all(w >= -allowance))
        complete = bool(abs(np.sum(w) - self.total) <= allowance)
        return 0.0 if nonnegative and complete else np.inf

    def prox(self, v: Vector, step: float) -> Vector:
        # Shifting v by a constant changes t only. With the largest entry at 0, every entry that stays positive is
        # within `total` of 0, so nothing is lost to cancellation.
        shifted = v - np.max(v)
        ordered = np.sort(shifted)[::-1]
        levels = (np.cumsum(ordered) - self.total) / np.arange(1, v.size + 1)
        support = max(int(np.count_nonzero(ordered > levels)), 1)
        w = np.maximum(shifted - levels[support - 1], 0.0)
        # Over 1e5 entries the cumulative sum drifts by more than the domain allows.
        return np.asarray(w * (self.total / np.sum(w)))

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        if not self.contains(w):
            return np.inf
        # Normal cone: {s : s_j = t where w_j > 0, s_j <= t elsewhere, t free}. A distance delta needs
        # max_j v_j - delta <= t <= min_{w_j > 0} v_j + delta.
        return float(np.max(v) - np.min(v[w > 0])) / 2

    def descent(self, slope: Vector, w: Vector) -> tuple[float, Vector]:
        """Down to the corner with the least slope."""
        return float(slope @ w) - self.total * float(np.min(slope)), np.zeros_like(slope)

    def defect(self, dim: int) -> str | None:
        if not (np.isfinite(self.total) and self.total > 0):
            return f"Simplex: total is {self.total:g}; it must be positive and finite"
        return None

    def __repr__(self) -> str:
        return f"Simplex({self.total:g})"
