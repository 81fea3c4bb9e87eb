"""The cone {0}: equality constraints."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpact.cones.base import Cone, positive_int, sensitivity_by_row
from fedpact.cones.max_norm import max_norm
from fedpact.types import Matrix, Vector


@dataclass(frozen=True)
class Zero(Cone):
    """K = {0} in R^dim, K* = R^dim: c(w) = 0, with free multipliers.

    An equality has no slack, so its degree is 0 and there is nothing to keep inside.
    ProblemError unless dim is an integer of at least 1.
    """

    dim: int
    symmetric = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", positive_int("Zero", "dim", self.dim))

    def project(self, v: Vector) -> Vector:
        """0."""
        return np.zeros_like(v)

    def project_dual(self, v: Vector) -> Vector:
        """v."""
        return v.copy()

    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """The identity, as a diagonal."""
        return np.ones_like(v)

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """0: N = {0} at every multiplier."""
        return np.zeros_like(v)

    def _normal_distance(self, v: Vector, multiplier: Vector) -> float:
        return max_norm(v)

    @property
    def degree(self) -> int:
        """0."""
        return 0

    @property
    def has_slack(self) -> NDArray[np.bool_]:
        """False in every row."""
        return np.zeros(self.dim, dtype=np.bool_)

    def identity(self) -> Vector:
        """0."""
        return np.zeros(self.dim)

    def move_inside(self, v: Vector, margin: Vector) -> Vector:
        """0, the only point."""
        return np.zeros(self.dim)

    def inverse(self, s: Vector) -> Vector:
        """0: an equality has no barrier."""
        return np.zeros(self.dim)

    def scaling(self, s: Vector, z: Vector) -> Matrix:
        """0, as a diagonal."""
        return np.zeros(self.dim)

    def quadratic(self, z: Vector) -> Matrix:
        """z^2, as a diagonal."""
        return z * z

    def longest_step(self, s: Vector, ds: Vector) -> float:
        """inf: nothing limits the step."""
        return math.inf

    def sensitivity(self, jacobian: Matrix) -> Vector:
        """Row by row."""
        return sensitivity_by_row(jacobian)

    def clean(self, multiplier: Vector, value: Vector, jacobian: Matrix) -> Vector:
        """The multiplier itself: an equality always binds."""
        return multiplier
