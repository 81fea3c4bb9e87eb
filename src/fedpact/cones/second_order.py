"""The second-order (Lorentz) cone: norm constraints."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedpact.cones.base import Cone, positive_int, shift_inside
from fedpact.cones.max_norm import bisect, max_norm, ray_distance
from fedpact.cones.nonnegative import Nonnegative
from fedpact.types import Matrix, Vector


@dataclass(frozen=True)
class SecondOrder(Cone):
    """K = K* = {(t, x) in R x R^(dim-1) : |x|_2 <= t}.

    Interior: with det(t, x) = t^2 - |x|^2 and the reflection R = diag(1, -1, ..., -1),

        barrier   phi(s) = -1/2 log det(s), of degree 1
        identity  e = (1, 0, ..., 0)
        inverse   s^-1 = R s / det(s)
        scaling   D = sqrt(det z / det s) (2 v v' - R),  v = (z + R s) / sqrt(2 (1 + <s, z>)),

    where v is taken at s / sqrt(det s) and z / sqrt(det z) (Nesterov and Todd 1997; Vandenberghe 2010).
    ProblemError unless dim is an integer of at least 1.
    """

    dim: int
    symmetric = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", positive_int("SecondOrder", "dim", self.dim))

    def project(self, v: Vector) -> Vector:
        """v in K, 0 in -K, else (t + |x|) / 2 times (1, x / |x|)."""
        t = v[0]
        length = np.linalg.norm(v[1:])
        if length <= t:
            return v.copy()
        if length <= -t:
            return np.zeros_like(v)
        half = 0.5 * (t + length)
        return np.concatenate([[half], (half / length) * v[1:]])

    def project_dual(self, v: Vector) -> Vector:
        """`project`: K is self-dual."""
        return self.project(v)

    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """dim x dim, in the closed form of Kanzow, Ferenczi and Fukushima (2009)."""
        t = v[0]
        length = np.linalg.norm(v[1:])
        if length <= t:
            return np.eye(self.dim)
        if length <= -t:
            return np.zeros((self.dim, self.dim))
        unit = v[1:] / length
        ratio = t / length
        jacobian = np.empty((self.dim, self.dim))
        jacobian[0, 0] = 1.0
        jacobian[0, 1:] = unit
        jacobian[1:, 0] = unit
        jacobian[1:, 1:] = (1.0 + ratio) * np.eye(self.dim - 1) - ratio * np.outer(unit, unit)
        return 0.5 * jacobian

    def face(self, exposing: Vector) -> tuple[Matrix, Cone | None] | None:
        """The ray of (t, -x) at a vector (t, x) on the boundary, {0} at one in the interior."""
        if not self._on_boundary(exposing):
            return np.zeros((0, self.dim)), None
        ray = -_normal_ray(exposing)
        return ray[None, :] / np.linalg.norm(ray), Nonnegative(1)

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """N is -K at 0, the ray of (-t, x) at a multiplier (t, x) on the boundary, {0} at one in the interior."""
        if not multiplier.any():
            return -self.project(-v)
        if not self._on_boundary(multiplier):
            return np.zeros_like(v)
        ray = _normal_ray(multiplier)
        return max(float(v @ ray), 0.0) / float(ray @ ray) * ray

    def _normal_distance(self, v: Vector, multiplier: Vector) -> float:
        if not multiplier.any():
            return _distance_to_negative(v)
        if self._on_boundary(multiplier):
            return ray_distance(v, _normal_ray(multiplier))
        return max_norm(v)

    def _on_boundary(self, multiplier: Vector) -> bool:
        depth = multiplier[0] - np.linalg.norm(multiplier[1:])
        return bool(depth <= self.rounding * np.linalg.norm(multiplier))

    @property
    def degree(self) -> int:
        """1."""
        return 1

    def identity(self) -> Vector:
        """(1, 0, ..., 0)."""
        unit = np.zeros(self.dim)
        unit[0] = 1.0
        return unit

    def move_inside(self, v: Vector, margin: Vector) -> Vector:
        """v + tau e; the smallest eigenvalue of (t, x) is t - |x|."""
        depth = float(v[0] - np.linalg.norm(v[1:]))
        return shift_inside(v, depth, margin, self.identity())

    def inverse(self, s: Vector) -> Vector:
        """(t, -x) / det(t, x)."""
        return np.asarray(_reflect(s) / _det(s))

    def scaling(self, s: Vector, z: Vector) -> Matrix:
        """D of the class docstring, dim x dim."""
        size_s = np.sqrt(_det(s))
        size_z = np.sqrt(_det(z))
        unit_s = s / size_s
        unit_z = z / size_z
        v = (unit_z + _reflect(unit_s)) / np.sqrt(2 * (1 + float(unit_s @ unit_z)))
        reflection = np.diag(_reflect(np.ones(self.dim)))
        return np.asarray((2 * np.outer(v, v) - reflection) * (size_z / size_s))

    def quadratic(self, z: Vector) -> Matrix:
        """2 z z' - det(z) diag(1, -1, ..., -1)."""
        reflection = np.diag(_reflect(np.ones(self.dim)))
        return np.asarray(2 * np.outer(z, z) - _det(z) * reflection)

    def longest_step(self, s: Vector, ds: Vector) -> float:
        """The smallest positive root of det(s + t ds) = a t^2 + 2 b t + c, with c > 0."""
        a = _det(ds)
        b = float(s[0] * ds[0] - s[1:] @ ds[1:])
        c = _det(s)
        if a > 0 and b >= 0:  # ds lies in K
            return math.inf
        # The root as c / (sqrt(b^2 - a c) - b), which also holds for a = 0.
        denominator = np.sqrt(max(b * b - a * c, 0.0)) - b
        if denominator > 0:
            return float(c / denominator)
        return math.inf


def _det(v: Vector) -> float:
    """t^2 - |x|^2, as a product of its two eigenvalues: exact near the boundary."""
    length = float(np.linalg.norm(v[1:]))
    return float((v[0] - length) * (v[0] + length))


def _reflect(v: Vector) -> Vector:
    """R v = (t, -x)."""
    return np.concatenate([v[:1], -v[1:]])


def _normal_ray(multiplier: Vector) -> Vector:
    """(-|x|, x) at a multiplier (t, x) on the boundary: t is replaced by |x|, so that the ray lies in -K."""
    return np.concatenate([[-np.linalg.norm(multiplier[1:])], multiplier[1:]])


def _distance_to_negative(v: Vector) -> float:
    """Max-norm distance to -K: the smallest delta for which the box of radius delta around v meets -K.

    The best point of the box lowers t by delta and shrinks every coordinate of x by delta.
    """
    t = v[0]
    sizes = np.abs(v[1:])

    def meets(delta: float) -> bool:
        return bool(np.linalg.norm(np.maximum(sizes - delta, 0.0)) <= delta - t)

    low = max(float(t), 0.0)
    if meets(low):
        return low
    return bisect(meets, low, max_norm(v))
