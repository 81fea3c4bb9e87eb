"""The contract of a regularizer: value, proximal map, distance to the subdifferential."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fedpact.errors import ProblemError
from fedpact.types import Vector

#: Points outside a bounded domain by at most this much, relative to max(1, bound), count as lying on its boundary.
#: A point inside is never moved to the boundary: subdifferentials are those of the exact point.
ROUNDING = 1e-12


class Prox(ABC):
    """A closed convex function h: R^d -> (-inf, inf] whose proximal map is cheap to evaluate."""

    #: a when h(w) = 1/2 sum_j a_j w_j^2, else None: one number when all a_j are equal (0 for h = 0), or a vector of
    #: length d. Solvers may then treat h as smooth, with gradient a * w and Hessian diag(a).
    curvature: float | Vector | None = None
    #: True when h is the indicator of a set: 0 on it, inf elsewhere.
    indicator: bool = False

    @abstractmethod
    def value(self, w: Vector) -> float:
        """h(w); inf outside dom(h)."""

    @abstractmethod
    def prox(self, v: Vector, step: float) -> Vector:
        """argmin_w step * h(w) + 1/2 |w - v|^2."""

    @abstractmethod
    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        """Max-norm distance from v to the subdifferential of h at w; inf when w is outside dom(h)."""

    def descent(self, slope: Vector, w: Vector) -> tuple[float, Vector]:
        """(fall, free): <slope, u - w> >= -fall - sum_j free_j |u_j - w_j| for every u in dom(h); free_j >= 0.

        How much dom(h) limits a linear descent. By default only its normal cone at w is used: <s, u - w> <= 0 for
        every s in it, so no more than the rest of -slope counts.
        """
        if not self.indicator:
            return 0.0, np.abs(slope)
        return 0.0, np.full_like(slope, self.subdifferential_distance(-slope, w))

    def contains(self, w: Vector) -> bool:
        """Whether w lies in dom(h), up to `ROUNDING`."""
        return bool(np.isfinite(self.value(w)))

    def defect(self, dim: int) -> str | None:
        """Why h cannot be used for vectors of length dim, with the remedy; None if it can."""
        return None


def check_prox(what: str, given: object, dim: int | None = None) -> None:
    """Raises ProblemError unless `given` is a Prox that takes vectors of length dim, where dim is known.

    what: the subject of the error, such as "the regularizer"
    """
    if not isinstance(given, Prox):
        raise ProblemError(f"{what} must be one of fedpact.prox, got {type(given).__name__}", code="FP-PROBLEM-185")
    defect = None if dim is None else given.defect(dim)
    if defect is not None:
        raise ProblemError(f"{what}: {defect}", code="FP-PROBLEM-186")
