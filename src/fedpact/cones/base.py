"""What every cone offers, and the one generic algorithm: the max-norm distance to a normal cone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Cone(ABC):
    """A closed convex cone K in R^dim; `c(w) <=_K 0` means that -c(w) lies in K.

    A multiplier lives in the dual cone K*. Its normal cone is
    `N_{K*}(mu) = {s in -K : <s, mu> = 0}`: where the constraint may be when its price is mu.
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

        Either dim x dim, or its diagonal as a vector of length dim.
        """

    @abstractmethod
    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """The point of N_{K*}(multiplier) nearest to v (Euclidean); the multiplier is taken to lie in K*."""

    def project_dual(self, v: Vector) -> Vector:
        """The point of K* nearest to v: Moreau's identity v = P_{K*}(v) - P_K(-v)."""
        return v + self.project(-v)

    def distance(self, v: Vector) -> float:
        """Euclidean distance from v to K."""
        return float(np.linalg.norm(v - self.project(v)))
