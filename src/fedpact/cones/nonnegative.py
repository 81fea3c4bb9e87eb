"""The nonnegative orthant: inequality constraints c(w) <= 0, one per coordinate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpact.cones.base import Cone, Matrix, Vector, positive_int
from fedpact.cones.max_norm import max_norm


@dataclass(frozen=True)
class Nonnegative(Cone):
    """K = K* = {v in R^dim : v >= 0}. ProblemError unless dim is an integer >= 1."""

    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", positive_int("Nonnegative", "dim", self.dim))

    def project(self, v: Vector) -> Vector:
        """The positive part of v."""
        return np.maximum(v, 0.0)

    def project_dual(self, v: Vector) -> Vector:
        """The positive part of v."""
        return np.maximum(v, 0.0)

    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """The diagonal: 1 where v > 0, else 0."""
        return (v > 0.0).astype(np.float64)

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """0 where the multiplier is positive, else the negative part of v."""
        priced = multiplier > self.rounding * np.linalg.norm(multiplier)
        return np.where(priced, 0.0, np.minimum(v, 0.0))

    def _normal_distance(self, v: Vector, multiplier: Vector) -> float:
        return max_norm(v - self.project_normal(v, multiplier))  # separable: one point is nearest in both norms
