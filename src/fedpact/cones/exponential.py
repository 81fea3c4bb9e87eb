"""The exponential cone: relative entropies, log-sum-exp and logistic constraints."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fedpact.cones.base import Cone, Matrix, Vector
from fedpact.cones.max_norm import bisect, max_norm, ray_distance


@dataclass(frozen=True)
class Exponential(Cone):
    """K = closure{(x, y, z) : y > 0, y exp(x/y) <= z} in R^3.

    Its dual is K* = {(u, v, w) : u < 0, -u exp(v/u - 1) <= w} together with {(0, v, w) : v, w >= 0}.

    Away from the flat faces, v = P_K(v) + P_{-K*}(v) splits v along two orthogonal rays that share one
    parameter rho: a = (rho, 1, e^rho) on the boundary of K and b = (1, 1 - rho, -e^-rho), its normal.
    So a projection is one scalar root (Friberg 2021).
    """

    dim: int = field(default=3, init=False, repr=False)

    def project(self, v: Vector) -> Vector:
        """The part of v in K; the error is a few rounding errors of |v|."""
        return _split(v)[0]

    def project_dual(self, v: Vector) -> Vector:
        """The part of v in K*."""
        return -_split(-v)[1]

    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """3 x 3: the identity minus the Jacobian of `project` at -v.

        On the curved boundary, differentiate -v = alpha a + beta b along unit rays a, b. Both turn towards
        c = a x b, so the Jacobian of `project` is a a' + theta c c' with theta the share of a's turn.
        """
        x, y, z = _unit_scale(-v)[0]
        in_primal, in_polar = _membership(x, y, z)
        if in_primal:
            return np.zeros((3, 3))
        if in_polar:
            return np.eye(3)
        if x <= 0.0 and y <= 0.0:
            return np.diag([0.0, 1.0, float(z <= 0.0)])
        rho = _root(x, y, z)
        a, b = _rays(rho)
        c = np.cross(a, b)
        primal_turn, polar_turn = _turns(rho)
        primal_turn *= max(float(-v @ a), 0.0)
        polar_turn *= max(float(-v @ b), 0.0)
        share = primal_turn / (primal_turn + polar_turn) if primal_turn > 0.0 else 0.0
        return np.eye(3) - np.outer(a, a) - share * np.outer(c, c)

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """-K at 0; else the negative of the face of K that the multiplier exposes: a quadrant, a ray or {0}."""
        if not multiplier.any():
            return -self.project(-v)
        if self._exposes_quadrant(multiplier):
            return _project_quadrant(v)
        ray = self._normal_ray(multiplier)
        return max(float(v @ ray), 0.0) * ray

    def _normal_distance(self, v: Vector, multiplier: Vector) -> float:
        if not multiplier.any():
            return _distance_to_negative(v)
        if self._exposes_quadrant(multiplier):
            return max_norm(v - _project_quadrant(v))  # separable: one point is nearest in both norms
        return ray_distance(v, self._normal_ray(multiplier))

    def _exposes_quadrant(self, multiplier: Vector) -> bool:
        """Whether mu = (0, v, 0): then <k, mu> = 0 leaves all k = (x, 0, z), x <= 0 <= z."""
        return bool(max(-multiplier[0], multiplier[2]) <= self.rounding * np.linalg.norm(multiplier))

    def _normal_ray(self, multiplier: Vector) -> Vector:
        """Unit direction of N at a nonzero multiplier that exposes no quadrant; 0 when it is interior.

        The curved surface is tried first: near (0, 0, w) its rays approach that of the flat face only like
        1 / |log u|, so a multiplier on it must keep its own ray however small u is.
        """
        u, v, w = multiplier
        tolerance = self.rounding * np.linalg.norm(multiplier)
        if u < 0.0 and v / u < 700.0:  # beyond, w >= e^699 |u|: u is rounding next to w
            rho = 1.0 - v / u
            slope = math.exp(-rho)
            # distance to the surface w + u e^-rho = 0 to first order: its gradient is (rho e^-rho, e^-rho, 1)
            if w + u * slope <= tolerance * math.hypot(rho * slope, slope, 1.0):
                return -_rays(rho)[0]
        if u >= -tolerance:  # mu = (0, v, w), w > 0: <k, mu> = 0 leaves the k = (x, 0, 0), x <= 0
            return np.array([1.0, 0.0, 0.0])
        return np.zeros(3)


def _unit_scale(v: Vector) -> tuple[tuple[float, float, float], float]:
    """v over its max-norm (over 1 if v = 0), and that norm.

    Entries below 1e-150 become 0, so that squared ratios stay finite.
    """
    scale = max_norm(v) or 1.0
    x, y, z = (0.0 if abs(entry) < 1e-150 * scale else float(entry / scale) for entry in v)
    return (x, y, z), scale


def _split(v: Vector) -> tuple[Vector, Vector]:
    """(P_K(v), P_{-K*}(v))."""
    zero = np.zeros(3)
    (x, y, z), scale = _unit_scale(v)
    in_primal, in_polar = _membership(x, y, z)
    if in_primal:
        return v.copy(), zero
    if in_polar:
        return zero, v.copy()
    if x <= 0.0 and y <= 0.0:
        return scale * np.array([x, 0.0, max(z, 0.0)]), scale * np.array([0.0, y, min(z, 0.0)])
    # Differs from Friberg 2021, who recovers both parts from two coordinates: projecting v on the two rays does
    # not divide by what may cancel, and both parts are then off by at most <v, c>, the residual of the root.
    a, b = _rays(_root(x, y, z))
    unit = np.array([x, y, z])
    return scale * max(float(unit @ a), 0.0) * a, scale * max(float(unit @ b), 0.0) * b


def _membership(x: float, y: float, z: float) -> tuple[bool, bool]:
    """Whether the point lies in K, and in the polar -K*, in logarithms so that nothing overflows."""
    in_primal = x <= y * math.log(z / y) if y > 0.0 and z > 0.0 else y == 0.0 and x <= 0.0 <= z
    in_polar = y - x <= x * math.log(-z / x) if x > 0.0 and z < 0.0 else x == 0.0 and y <= 0.0 and z <= 0.0
    return in_primal, in_polar


def _rays(rho: float) -> tuple[Vector, Vector]:
    """Unit vectors along a = (rho, 1, e^rho) and b = (1, 1 - rho, -e^-rho)."""
    small = math.exp(-abs(rho))
    if rho > 0.0:
        a, b = np.array([rho * small, small, 1.0]), np.array([1.0, 1.0 - rho, -small])
    else:
        a, b = np.array([rho, 1.0, small]), np.array([small, (1.0 - rho) * small, -1.0])
    return a / np.linalg.norm(a), b / np.linalg.norm(b)


def _turns(rho: float) -> tuple[float, float]:
    """How fast the unit rays along a and b turn towards c = a x b as rho grows, up to one common factor.

    These are <a', c> / |a| and <b', c> / |b|, where -<a', c> = e^rho (rho^2 - 2 rho + 2) + e^-rho and
    -<b', c> = e^rho + e^-rho (rho^2 + 1).
    """
    small = math.exp(-abs(rho))
    up, down = (1.0, small * small) if rho > 0.0 else (small * small, 1.0)
    primal = up * (rho * rho - 2.0 * rho + 2.0) + down
    polar = up + down * (rho * rho + 1.0)
    if rho > 0.0:
        return primal * small / math.hypot(rho * small, small, 1.0), polar / math.hypot(1.0, 1.0 - rho, small)
    return primal / math.hypot(rho, 1.0, small), polar * small / math.hypot(small, (1.0 - rho) * small, 1.0)


def _root(x: float, y: float, z: float) -> float:
    """The rho whose rays a and b span (x, y, z): the sign change of <(x, y, z), a x b>.

    Needs x > 0 or y > 0, and a point in neither K nor the polar. The search starts at the end of the
    interval where both parts are nonnegative, (rho - 1) x + y >= 0 and x - rho y >= 0, that is of order 1.
    """

    def beyond(rho: float) -> bool:
        small = math.exp(-abs(rho))  # the whole product is scaled by it
        up, down = (1.0, small * small) if rho > 0.0 else (small * small, 1.0)
        product = ((rho - 1.0) * x + y) * up - (x - rho * y) * down - (rho * (rho - 1.0) + 1.0) * z * small
        return product >= 0.0

    if x > 0.0 and x >= y:
        low = 1.0 - y / x
        limit = x / y if y > 0.0 else math.inf
        step = max(1.0, math.ulp(low))
        while low + step < limit and not beyond(low + step):
            step *= 2.0
        return bisect(beyond, low, min(low + step, limit))
    high = x / y
    limit = 1.0 - y / x if x > 0.0 else -math.inf
    step = max(1.0, math.ulp(high))
    while high - step > limit and beyond(high - step):
        step *= 2.0
    return bisect(beyond, max(high - step, limit), high)


def _project_quadrant(v: Vector) -> Vector:
    """The nearest (x, 0, z) with z <= 0 <= x."""
    return np.array([max(v[0], 0.0), 0.0, min(v[2], 0.0)])


def _distance_to_negative(v: Vector) -> float:
    """Max-norm distance to -K: the smallest delta for which the box of radius delta around -v meets K.

    In that box the lowest x and the highest z are best; y exp(x/y) is convex in y with its minimum at y = x.
    """
    x, y, z = (float(entry) for entry in -v)

    def meets(delta: float) -> bool:
        lowest, highest = max(y - delta, 0.0), y + delta
        if highest < 0.0:
            return False
        return _membership(x - delta, min(max(x - delta, lowest), highest), z + delta)[0]

    return 0.0 if meets(0.0) else bisect(meets, 0.0, max_norm(v))
