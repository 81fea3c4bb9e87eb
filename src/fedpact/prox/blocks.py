"""Two regularizers on two blocks of coordinates."""

from __future__ import annotations

import numpy as np

from fedpact.prox.base import Prox, check_prox
from fedpact.types import Vector


class Blocks(Prox):
    """g(u) + h(v) on w = (u, v), where u holds the first `split` coordinates.

    With saddle=True the value is g(u) - h(v), as in min_u max_v. The proximal map and the subdifferential are those of
    g and of h, block by block, in both cases. Raises ProblemError unless both parts are a Prox.
    """

    def __init__(self, first: Prox, second: Prox, split: int, *, saddle: bool = False) -> None:
        check_prox("Blocks: the first part", first)
        check_prox("Blocks: the second part", second)
        self.first = first
        self.second = second
        self.split = split
        self.saddle = saddle
        self.indicator = first.indicator and second.indicator

    def value(self, w: Vector) -> float:
        first = self.first.value(w[: self.split])
        second = self.second.value(w[self.split :])
        if not (np.isfinite(first) and np.isfinite(second)):
            return np.inf
        if self.saddle:
            return first - second
        return first + second

    def prox(self, v: Vector, step: float) -> Vector:
        first = self.first.prox(v[: self.split], step)
        second = self.second.prox(v[self.split :], step)
        return np.concatenate([first, second])

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        first = self.first.subdifferential_distance(v[: self.split], w[: self.split])
        second = self.second.subdifferential_distance(v[self.split :], w[self.split :])
        return max(first, second)

    def descent(self, slope: Vector, w: Vector) -> tuple[float, Vector]:
        upper, left = self.first.descent(slope[: self.split], w[: self.split])
        lower, right = self.second.descent(slope[self.split :], w[self.split :])
        return upper + lower, np.concatenate([left, right])

    def defect(self, dim: int) -> str | None:
        if not 0 <= self.split <= dim:
            return f"Blocks: split = {self.split} does not lie between 0 and the {dim} coordinates"
        return self.first.defect(self.split) or self.second.defect(dim - self.split)

    def __repr__(self) -> str:
        return f"Blocks({self.first!r}, {self.second!r}, {self.split})"
