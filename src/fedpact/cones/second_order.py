"""The second-order (Lorentz) cone: norm constraints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpact.cones.base import Cone, Matrix, Vector, positive_int
from fedpact.cones.max_norm import bisect, max_norm, ray_distance


@dataclass(frozen=True)
class SecondOrder(Cone):
    """K = K* = {(t, x) in R x R^(dim-1) : |x|_2 <= t}. ProblemError unless dim is an integer >= 1."""

    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", positive_int("SecondOrder", "dim", self.dim))

    def project(self, v: Vector) -> Vector:
        """v inside K, 0 inside -K, else a multiple of (|x|, x)."""
        t, length = v[0], np.linalg.norm(v[1:])
        if length <= t:
            return v.copy()
        if length <= -t:
            return np.zeros_like(v)
        half = 0.5 * (t + length)
        return np.concatenate([[half], (half / length) * v[1:]])

    def project_dual(self, v: Vector) -> Vector:
        """The same: K is self-dual."""
        return self.project(v)

    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """dim x dim. Closed form as in Kanzow, Ferenczi and Fukushima 2009."""
        t, length = v[0], np.linalg.norm(v[1:])
        if length <= t:
            return np.eye(self.dim)
        if length <= -t:
            return np.zeros((self.dim, self.dim))
        unit, ratio = v[1:] / length, t / length
        jacobian = np.empty((self.dim, self.dim))
        jacobian[0, 0] = 1.0
        jacobian[0, 1:] = jacobian[1:, 0] = unit
        jacobian[1:, 1:] = (1.0 + ratio) * np.eye(self.dim - 1) - ratio * np.outer(unit, unit)
        return 0.5 * jacobian

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """-K at 0, the ray of (-t, x) at a boundary multiplier (t, x), {0} inside K*."""
        if not multiplier.any():
            return -self.project(-v)
        if not self._on_boundary(multiplier):
            return np.zeros_like(v)
        ray = _opposite(multiplier)
        return max(float(v @ ray), 0.0) / float(ray @ ray) * ray

    def _normal_distance(self, v: Vector, multiplier: Vector) -> float:
        if not multiplier.any():
            return _distance_to_negative(v)
        return ray_distance(v, _opposite(multiplier)) if self._on_boundary(multiplier) else max_norm(v)

    def _on_boundary(self, multiplier: Vector) -> bool:
        slack = multiplier[0] - np.linalg.norm(multiplier[1:])
        return bool(slack <= self.rounding * np.linalg.norm(multiplier))


def _opposite(multiplier: Vector) -> Vector:
    """(-t, x) from (t, x), with t made equal to |x| so that the ray lies in -K."""
    return np.concatenate([[-np.linalg.norm(multiplier[1:])], multiplier[1:]])


def _distance_to_negative(v: Vector) -> float:
    """Max-norm distance to -K: the smallest delta for which the box of radius delta around v meets -K.

    The box offers t down to v_0 - delta, and x shrunk by delta in every coordinate; more delta, more room.
    """
    t, sizes = v[0], np.abs(v[1:])

    def meets(delta: float) -> bool:
        return bool(np.linalg.norm(np.maximum(sizes - delta, 0.0)) <= delta - t)

    low = max(float(t), 0.0)
    return low if meets(low) else bisect(meets, low, max_norm(v))
