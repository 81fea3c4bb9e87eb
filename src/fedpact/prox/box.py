"""Bounds on the coordinates."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedpact.prox.base import ROUNDING, Prox
from fedpact.prox.weights import as_weight, format_weight, largest, length_defect
from fedpact.types import Vector


class Box(Prox):
    """h = indicator of {w : lo <= w <= hi}; prox(v) = min(max(v, lo), hi).

    lo, hi: a number or a vector with one entry for each coordinate; entries may be infinite.
    """

    indicator = True

    def __init__(self, lo: ArrayLike, hi: ArrayLike) -> None:
        self.lo = as_weight("Box", "lo", lo)
        self.hi = as_weight("Box", "hi", hi)

    def value(self, w: Vector) -> float:
        lowest = self.lo - ROUNDING * np.maximum(1.0, np.abs(self.lo))
        highest = self.hi + ROUNDING * np.maximum(1.0, np.abs(self.hi))
        inside = np.isfinite(w) & (w >= lowest) & (w <= highest)
        return 0.0 if inside.all() else np.inf

    def prox(self, v: Vector, step: float) -> Vector:
        return np.clip(v, self.lo, self.hi)

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        if not self.contains(w):
            return np.inf
        # The normal cone holds the directions that point outward at an active bound.
        outward = ((v < 0) & (w <= self.lo)) | ((v > 0) & (w >= self.hi))
        return largest(np.where(outward, 0.0, np.abs(v)))

    def descent(self, slope: Vector, w: Vector) -> tuple[float, Vector]:
        """Down to the bound on its side in every coordinate, where there is one."""
        end = np.where(slope > 0, self.lo, self.hi)
        bounded = np.isfinite(end)
        fall = float(np.sum(slope[bounded] * (w[bounded] - end[bounded])))
        return fall, np.where(bounded, 0.0, np.abs(slope))

    def defect(self, dim: int) -> str | None:
        for what, bound in (("Box: lo", self.lo), ("Box: hi", self.hi)):
            wrong_length = length_defect(what, bound, dim, "one for each coordinate")
            if wrong_length is not None:
                return wrong_length
        lo = np.broadcast_to(self.lo, dim)
        hi = np.broadcast_to(self.hi, dim)
        # Negated as a whole, so that NaN counts as wrong.
        bad = np.flatnonzero(~((lo <= hi) & (lo < np.inf) & (hi > -np.inf)))
        if bad.size == 0:
            return None
        at = bad[0]
        return f"Box: no number lies between lo = {lo[at]:g} and hi = {hi[at]:g} at position {at}; raise hi or lower lo"

    def __repr__(self) -> str:
        return f"Box({format_weight(self.lo)}, {format_weight(self.hi)})"
