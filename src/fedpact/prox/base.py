"""What a simple convex function h offers to the solvers."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

#: How far, relative to max(1, bound), a point may be outside a bounded domain and still count as lying on its face.
#: A point inside is never moved to the face: subdifferentials are those of the exact point.
ROUNDING = 1e-12


class Prox(ABC):
    """A closed convex h: R^d -> (-inf, inf] whose proximal map is cheap."""

    #: a when h(w) = 1/2 sum_j a_j w_j^2, as one number when all a_j are equal (0 for h = 0), as a vector of length d
    #: otherwise. Solvers may then treat h as smooth, with gradient a * w and Hessian diag(a). None for every other h.
    curvature: float | Vector | None = None
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
        """Is w in dom(h)? A domain that is not all of R^d is left only by more than `ROUNDING`, see there."""
        return bool(np.isfinite(self.value(w)))

    def defect(self, dim: int) -> str | None:
        """What makes this h unusable for vectors of length dim, with the remedy; None when nothing does."""
        return None
