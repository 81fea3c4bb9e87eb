"""What a simple convex function h offers to the solvers."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Prox(ABC):
    """A closed convex h: R^d -> (-inf, inf] whose proximal map is cheap."""

    #: a when h(w) = a/2 |w|^2 (so 0 for h = 0), None otherwise: solvers then treat h as smooth.
    curvature: float | None = None
    #: True when h is the indicator of a set: it has no cost, only a domain.
    indicator: bool = False

    @abstractmethod
    def value(self, w: Vector) -> float:
        """h(w); inf outside dom(h)."""

    @abstractmethod
    def prox(self, v: Vector, step: float) -> Vector:
        """argmin_w step * h(w) + |w - v|^2 / 2."""

    @abstractmethod
    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        """Max-norm distance from v to the subdifferential of h at w; inf when w is outside dom(h)."""

    def contains(self, w: Vector) -> bool:
        """Is w in dom(h)?"""
        return bool(np.isfinite(self.value(w)))

    def defect(self, dim: int) -> str | None:
        """What makes this h unusable for vectors of length dim, with the remedy; None when nothing does."""
        return None
