"""The cone {0}: equality constraints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpact.cones.base import Cone, Matrix, Vector, positive_int
from fedpact.cones.max_norm import max_norm


@dataclass(frozen=True)
class Zero(Cone):
    """K = {0} in R^dim, K* = R^dim: multipliers are free. ProblemError unless dim is an integer >= 1."""

    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", positive_int("Zero", "dim", self.dim))

    def project(self, v: Vector) -> Vector:
        """Always 0."""
        return np.zeros_like(v)

    def project_dual(self, v: Vector) -> Vector:
        """v itself."""
        return v.copy()

    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """The diagonal: ones."""
        return np.ones_like(v)

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """Always 0: N = {0} at every multiplier."""
        return np.zeros_like(v)

    def _normal_distance(self, v: Vector, multiplier: Vector) -> float:
        return max_norm(v)
