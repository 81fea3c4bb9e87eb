"""The nonnegative orthant: inequality constraints c(w) <= 0, one for each coordinate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedpact.cones.base import Cone, positive_int, sensitivity_by_row
from fedpact.cones.max_norm import all_finite
from fedpact.types import Matrix, Vector


@dataclass(frozen=True)
class Nonnegative(Cone):
    """K = K* = {v in R^dim : v >= 0}.

    Interior, coordinate by coordinate: barrier phi(s) = -sum_j log s_j of degree dim, identity e = (1, ..., 1),
    inverse 1 / s, scaling D = diag(z / s). ProblemError unless dim is an integer of at least 1.
    """

    dim: int
    symmetric = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", positive_int("Nonnegative", "dim", self.dim))

    def project(self, v: Vector) -> Vector:
        """max(v, 0)."""
        return np.maximum(v, 0.0)

    def project_dual(self, v: Vector) -> Vector:
        """max(v, 0): K is self-dual."""
        return np.maximum(v, 0.0)

    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """The diagonal: 1 where v > 0, else 0."""
        return (v > 0.0).astype(np.float64)

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """0 where the multiplier is positive, else min(v, 0)."""
        positive = multiplier > self.rounding * multiplier.max()
        return np.where(positive, 0.0, np.minimum(v, 0.0))

    def normal_distance(self, v: Vector, multiplier: Vector) -> float:
        """The largest of |v_j| where the multiplier is positive, max(v_j, 0) elsewhere, and -multiplier_j."""
        if not (all_finite(v) and all_finite(multiplier)):
            return math.inf
        nearest = np.maximum(multiplier, 0.0)
        positive = nearest > self.rounding * nearest.max()
        inside = np.maximum(v, np.where(positive, -v, 0.0))
        return float(max(inside.max(), (nearest - multiplier).max()))

    @property
    def degree(self) -> int:
        """dim."""
        return self.dim

    def identity(self) -> Vector:
        """(1, ..., 1)."""
        return np.ones(self.dim)

    def move_inside(self, v: Vector, margin: Vector) -> Vector:
        """max(|v|, margin)."""
        return np.maximum(np.abs(v), margin)

    def inverse(self, s: Vector) -> Vector:
        """1 / s."""
        return 1 / s

    def scaling(self, s: Vector, z: Vector) -> Matrix:
        """z / s, as a diagonal."""
        return z / s

    def quadratic(self, z: Vector) -> Matrix:
        """z^2, as a diagonal."""
        return z * z

    def longest_step(self, s: Vector, ds: Vector) -> float:
        """min of -s_j / ds_j over ds_j < 0."""
        shrinking = ds < 0
        return float((-s[shrinking] / ds[shrinking]).min(initial=math.inf))

    # Of many vectors at once, one a row: what `violation`, `normal_distance` and `longest_step` give for each of them.
    # Whoever calls sees to it that a division by zero is not warned of.

    def violations(self, v: Matrix) -> Vector:
        return np.asarray(np.maximum.reduce(v, axis=-1, initial=0.0))

    def normal_distances(self, v: Matrix, multiplier: Matrix) -> Vector:
        nearest = np.maximum(multiplier, 0.0)
        largest = np.maximum.reduce(nearest, axis=-1, initial=0.0, keepdims=True)
        inside = np.maximum(v, np.where(nearest > self.rounding * largest, -v, 0.0))
        return np.asarray(np.maximum.reduce(np.maximum(inside, nearest - multiplier), axis=-1, initial=0.0))

    def longest_steps(self, s: Matrix, ds: Matrix) -> Vector:
        return np.asarray(np.minimum.reduce(np.where(ds < 0, -s / ds, math.inf), axis=-1, initial=math.inf))

    def sensitivity(self, jacobian: Matrix) -> Vector:
        """Row by row."""
        return sensitivity_by_row(jacobian)

    def clean(self, multiplier: Vector, value: Vector, jacobian: Matrix) -> Vector:
        """z where z + theta c > 0, else 0: a multiplier that is kept is not changed by theta c."""
        shifted = multiplier + self.sensitivity(jacobian) * value
        return np.where(shifted > 0, np.maximum(multiplier, 0.0), 0.0)
