"""What every cone offers: projections, their generalized Jacobian, and distances to normal cones."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedpact.cones.max_norm import max_norm, splitting_distance
from fedpact.errors import ProblemError

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Cone(ABC):
    """A closed convex cone K in R^dim; `c(w) <=_K 0` means that -c(w) lies in K.

    A multiplier lives in the dual cone K*. Its normal cone is
    `N_{K*}(mu) = {s in -K : <s, mu> = 0}`: where the constraint may be when its price is mu.

    A new cone writes the three abstract methods; the others follow from them. Vectors have length
    `dim` and are not modified. Non-finite entries make the two certificate numbers (`violation`,
    `normal_distance`) infinite; the projections expect finite input.
    """

    dim: int
    #: Relative size below which a multiplier's distance to a face of K* counts as rounding.
    rounding: ClassVar[float] = 1e-12

    @abstractmethod
    def project(self, v: Vector) -> Vector:
        """The point of K nearest to v (Euclidean)."""

    @abstractmethod
    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """One element of the generalized Jacobian of `project_dual` at v.

        Either dim x dim, or its diagonal as a vector of length dim; always the same kind for one cone.
        """

    @abstractmethod
    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """The point of N_{K*}(multiplier) nearest to v (Euclidean); the multiplier is taken to lie in K*.

        A multiplier within `rounding` (relative to its norm) of a face of K* is taken to lie on it.
        """

    def project_dual(self, v: Vector) -> Vector:
        """The point of K* nearest to v: Moreau's identity v = P_{K*}(v) - P_K(-v)."""
        return v + self.project(-v)

    def distance(self, v: Vector) -> float:
        """Euclidean distance from v to K."""
        return float(np.linalg.norm(v - self.project(v)))

    def violation(self, v: Vector) -> float:
        """By how much a constraint value v misses -K: |v - P_{-K}(v)|_inf, which is |P_{K*}(v)|_inf by Moreau."""
        return max_norm(self.project_dual(v)) if np.isfinite(v).all() else math.inf

    def normal_distance(self, v: Vector, multiplier: Vector) -> float:
        """Max-norm distance from v to N_{K*}(multiplier); never smaller than the truth, up to rounding.

        N is empty outside K*, so there the distance is taken at the multiplier's projection onto K*, and
        the result is at least the miss |multiplier - projection|_inf.
        """
        if not (np.isfinite(v).all() and np.isfinite(multiplier).all()):
            return math.inf
        nearest = self.project_dual(multiplier)
        miss = max_norm(multiplier - nearest)
        size, price = max_norm(v), max_norm(nearest)
        if size == 0.0:  # N is a cone: it contains 0
            return miss
        # N depends on the direction of mu only, and the distance is homogeneous in v
        return max(miss, size * self._normal_distance(v / size, nearest / price if price > 0 else nearest))

    def _normal_distance(self, v: Vector, multiplier: Vector) -> float:
        """`normal_distance` for a multiplier in K*; both arguments have max-norm 1, or the multiplier is 0."""
        return splitting_distance(lambda w: self.project_normal(w, multiplier), v)


def positive_int(owner: str, argument: str, value: object) -> int:
    """value as an int; ProblemError when it is not an integer of at least 1."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise ProblemError(f"{owner}: {argument} must be an integer of at least 1, found {value!r}")
    return number
