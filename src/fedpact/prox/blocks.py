"""Two simple functions side by side: one on the first coordinates, one on the others."""

from __future__ import annotations

import numpy as np

from fedpact.errors import ProblemError
from fedpact.prox.base import Prox, Vector


class Blocks(Prox):
    """(g, h) on (u, v), u the first `split` coordinates: prox and subdifferential block by block.

    saddle: the value is g(u) - h(v), as in min_u max_v; else g(u) + h(v).
    """

    def __init__(self, first: Prox, second: Prox, split: int, *, saddle: bool = False) -> None:
        for part in (first, second):
            if not isinstance(part, Prox):
                raise ProblemError(f"Blocks: both parts must be ones of fedpact.prox, got {type(part).__name__}")
        self.first, self.second, self.split, self.saddle = first, second, split, saddle
        self.indicator = first.indicator and second.indicator

    def value(self, w: Vector) -> float:
        upper, lower = self.first.value(w[: self.split]), self.second.value(w[self.split :])
        if not (np.isfinite(upper) and np.isfinite(lower)):
            return np.inf  # outside the domain
        return upper - lower if self.saddle else upper + lower

    def prox(self, v: Vector, step: float) -> Vector:
        return np.concatenate([self.first.prox(v[: self.split], step), self.second.prox(v[self.split :], step)])

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        return max(
            self.first.subdifferential_distance(v[: self.split], w[: self.split]),
            self.second.subdifferential_distance(v[self.split :], w[self.split :]),
        )

    def defect(self, dim: int) -> str | None:
        if not 0 <= self.split <= dim:
            return f"Blocks: split = {self.split} does not lie between 0 and the {dim} coordinates"
        return self.first.defect(self.split) or self.second.defect(dim - self.split)

    def __repr__(self) -> str:
        return f"Blocks({self.first!r}, {self.second!r}, {self.split})"
