"""The exponential cone: relative entropies, log-sum-exp and logistic constraints."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fedpact.cones.base import Cone, shift_inside
from fedpact.cones.exponential_barrier import CENTRE, curvature, scale, shadow, slope
from fedpact.cones.max_norm import bisect, max_norm, ray_distance
from fedpact.cones.nonnegative import Nonnegative
from fedpact.types import Matrix, Vector

#: Entries below this part of the largest are taken as 0, so that squared ratios stay finite.
NEGLIGIBLE = 1e-150
#: Beyond this ratio v / u of a multiplier (u, v, w) in K*, w >= e^699 |u|: u is rounding next to w.
STEEPEST = 700.0
#: A step this long has no end.
LONG = 1e15


@dataclass(frozen=True)
class Exponential(Cone):
    """K = closure{(x, y, z) : y > 0, y exp(x/y) <= z} in R^3; it is not symmetric, see `exponential_barrier.py`.

    Its dual is K* = {(u, v, w) : u < 0, -u exp(v/u - 1) <= w} together with {(0, v, w) : v, w >= 0}.

    Off the flat faces, v = P_K(v) + P_{-K*}(v) splits v along two orthogonal rays with one parameter rho: a ray
    a = (rho, 1, e^rho) on the boundary of K and its normal b = (1, 1 - rho, -e^-rho). A projection is therefore the
    root of one equation in rho (Friberg 2023, "Projection onto the exponential cone: a univariate root-finding
    problem").
    """

    dim: int = field(default=3, init=False, repr=False)

    def project(self, v: Vector) -> Vector:
        """P_K(v), up to a few rounding errors of |v|."""
        return _split(v)[0]

    def project_dual(self, v: Vector) -> Vector:
        """P_{K*}(v) = -P_{-K*}(-v)."""
        return -_split(-v)[1]

    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """3 x 3: the identity minus the Jacobian of `project` at -v.

        On the curved boundary -v = alpha a + beta b with unit rays a, b. As rho changes, both turn towards c = a x b,
        so the Jacobian of `project` is a a' + theta c c' with theta the share of a in the turning.
        """
        x, y, z = _unit_scale(-v)[0]
        if _in_primal(x, y, z):
            return np.zeros((3, 3))
        if _in_polar(x, y, z):
            return np.eye(3)
        if x <= 0.0 and y <= 0.0:
            return np.diag([0.0, 1.0, float(z <= 0.0)])
        rho = _root(x, y, z)
        a, b = _rays(rho)
        c = np.cross(a, b)
        primal_turn, polar_turn = _turns(rho)
        primal_turn *= max(float(-v @ a), 0.0)
        polar_turn *= max(float(-v @ b), 0.0)
        share = 0.0
        if primal_turn > 0.0:
            share = primal_turn / (primal_turn + polar_turn)
        return np.eye(3) - np.outer(a, a) - share * np.outer(c, c)

    def face(self, exposing: Vector) -> tuple[Matrix, Cone | None] | None:
        """The quadrant {(x, 0, z) : x <= 0 <= z}, a ray or {0}."""
        if self._exposes_quadrant(exposing):
            return np.array([[-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), Nonnegative(2)
        ray = -self._normal_ray(exposing)
        if not ray.any():
            return np.zeros((0, 3)), None
        return ray[None, :], Nonnegative(1)

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """N is -K at 0; elsewhere minus the face of K that the multiplier exposes: a quadrant, a ray or {0}."""
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
        """Whether mu = (0, v, 0): then <k, mu> = 0 holds for all k = (x, 0, z), x <= 0 <= z."""
        return bool(max(-multiplier[0], multiplier[2]) <= self.rounding * np.linalg.norm(multiplier))

    def _normal_ray(self, multiplier: Vector) -> Vector:
        """Unit direction of N at a nonzero multiplier that exposes no quadrant; 0 at one in the interior of K*.

        The curved surface is tried first: near (0, 0, w) its rays approach the ray of the flat face only like
        1 / |log u|, so a multiplier on the surface keeps its own ray however small u is.
        """
        u, v, w = multiplier
        tolerance = self.rounding * np.linalg.norm(multiplier)
        if u < 0.0 and v / u < STEEPEST:
            rho = 1.0 - v / u
            slope = math.exp(-rho)
            # First-order distance to the surface w + u e^-rho = 0, whose gradient is (rho e^-rho, e^-rho, 1).
            if w + u * slope <= tolerance * math.hypot(rho * slope, slope, 1.0):
                return -_rays(rho)[0]
        if u >= -tolerance:  # mu = (0, v, w), w > 0: <k, mu> = 0 holds for k = (x, 0, 0), x <= 0
            return np.array([1.0, 0.0, 0.0])
        return np.zeros(3)

    @property
    def has_interior(self) -> bool:
        """True: it has a barrier, though it is not symmetric."""
        return True

    @property
    def degree(self) -> int:
        """3."""
        return 3

    def identity(self) -> Vector:
        """The point that is its own -grad phi."""
        return CENTRE.copy()

    def move_inside(self, v: Vector, margin: Vector) -> Vector:
        """v + t e, by the t at which it enters the cone."""
        return shift_inside(v, -_entry(v), margin, CENTRE)

    def inverse(self, s: Vector) -> Vector:
        """-grad phi(s)."""
        return slope(s)

    def scaling(self, s: Vector, z: Vector) -> Matrix:
        """D of `exponential_barrier`, 3 x 3."""
        return scale(s, z)

    def quadratic(self, z: Vector) -> Matrix:
        """hess phi at the shadow of z; z z', its limit, where z lies on the boundary."""
        found = curvature(shadow(z))
        if np.all(np.isfinite(found)):
            return found
        return np.outer(z, z)

    def longest_step(self, s: Vector, ds: Vector) -> float:
        """By bisection: the cone has no closed form for it."""
        return _longest(lambda t: _in_primal(*(s + t * ds).tolist()))

    def longest_dual_step(self, z: Vector, dz: Vector) -> float:
        """The same in K* = -(polar cone)."""
        return _longest(lambda t: _in_polar(*(-z - t * dz).tolist()))


def _longest(inside: Callable[[float], bool]) -> float:
    """The largest t whose point is inside; inf beyond LONG."""
    end = 1.0
    while inside(end):
        end *= 4.0
        if end > LONG:
            return math.inf
    return bisect(lambda t: not inside(t), 0.0, end)


def _entry(v: Vector) -> float:
    """The t at which v + t e enters K: negative where v lies inside."""

    def inside(t: float) -> bool:
        return _in_primal(*(v + t * CENTRE).tolist())

    reach = max_norm(v) or 1.0
    low = -2.0 * reach
    while inside(low):
        low *= 2.0
    high = 2.0 * reach
    while not inside(high):
        high *= 2.0
    return bisect(inside, low, high)


def _unit_scale(v: Vector) -> tuple[tuple[float, float, float], float]:
    """v over its max-norm (over 1 if v = 0) without negligible entries, and that norm."""
    scale = max_norm(v) or 1.0
    kept = np.where(np.abs(v) < NEGLIGIBLE * scale, 0.0, v / scale)
    return (float(kept[0]), float(kept[1]), float(kept[2])), scale


def _split(v: Vector) -> tuple[Vector, Vector]:
    """(P_K(v), P_{-K*}(v))."""
    zero = np.zeros(3)
    (x, y, z), scale = _unit_scale(v)
    if _in_primal(x, y, z):
        return v.copy(), zero
    if _in_polar(x, y, z):
        return zero, v.copy()
    if x <= 0.0 and y <= 0.0:
        return scale * np.array([x, 0.0, max(z, 0.0)]), scale * np.array([0.0, y, min(z, 0.0)])
    # Differs from Friberg 2023, who recovers both parts from two coordinates: inner products with the two rays avoid
    # a division by a difference that may cancel, and both parts are off by at most <v, c>, the residual of the root.
    a, b = _rays(_root(x, y, z))
    unit = np.array([x, y, z])
    primal = scale * max(float(unit @ a), 0.0) * a
    polar = scale * max(float(unit @ b), 0.0) * b
    return primal, polar


def _in_primal(x: float, y: float, z: float) -> bool:
    """Whether (x, y, z) lies in K; in logarithms, so that nothing overflows."""
    if y > 0.0 and z > 0.0:
        return x <= y * math.log(z / y)
    return y == 0.0 and x <= 0.0 <= z


def _in_polar(x: float, y: float, z: float) -> bool:
    """Whether (x, y, z) lies in -K*; in logarithms, so that nothing overflows."""
    if x > 0.0 and z < 0.0:
        return y - x <= x * math.log(-z / x)
    return x == 0.0 and y <= 0.0 and z <= 0.0


def _rays(rho: float) -> tuple[Vector, Vector]:
    """Unit vectors along a = (rho, 1, e^rho) and b = (1, 1 - rho, -e^-rho)."""
    small = math.exp(-abs(rho))
    if rho > 0.0:
        a = np.array([rho * small, small, 1.0])
        b = np.array([1.0, 1.0 - rho, -small])
    else:
        a = np.array([rho, 1.0, small])
        b = np.array([small, (1.0 - rho) * small, -1.0])
    return a / np.linalg.norm(a), b / np.linalg.norm(b)


def _turns(rho: float) -> tuple[float, float]:
    """Rates at which the unit rays along a and b turn towards c = a x b as rho grows, up to one common factor.

    These are <a', c> / |a| and <b', c> / |b|, where -<a', c> = e^rho (rho^2 - 2 rho + 2) + e^-rho and
    -<b', c> = e^rho + e^-rho (rho^2 + 1).
    """
    small, up, down = _scaled_exponentials(rho)
    primal = up * (rho * rho - 2.0 * rho + 2.0) + down
    polar = up + down * (rho * rho + 1.0)
    if rho > 0.0:
        return primal * small / math.hypot(rho * small, small, 1.0), polar / math.hypot(1.0, 1.0 - rho, small)
    return primal / math.hypot(rho, 1.0, small), polar * small / math.hypot(small, (1.0 - rho) * small, 1.0)


def _scaled_exponentials(rho: float) -> tuple[float, float, float]:
    """(1, e^rho, e^-rho) times e^-|rho|, so that none of them overflows."""
    small = math.exp(-abs(rho))
    if rho > 0.0:
        return small, 1.0, small * small
    return small, small * small, 1.0


def _root(x: float, y: float, z: float) -> float:
    """The rho whose rays a and b span (x, y, z): the sign change of <(x, y, z), a x b>.

    Needs x > 0 or y > 0, and a point in neither K nor -K*. Both parts are nonnegative for (rho - 1) x + y >= 0 and
    x - rho y >= 0; the search starts at that end of this interval which is of order 1.
    """

    def beyond(rho: float) -> bool:
        small, up, down = _scaled_exponentials(rho)
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
    """Projection of v onto {(x, 0, z) : z <= 0 <= x}."""
    return np.array([max(v[0], 0.0), 0.0, min(v[2], 0.0)])


def _distance_to_negative(v: Vector) -> float:
    """Max-norm distance to -K: the smallest delta for which the box of radius delta around -v meets K.

    The best point of the box has the lowest x, the highest z and the y nearest to x, where y exp(x/y) is smallest.
    """
    x, y, z = (float(entry) for entry in -v)

    def meets(delta: float) -> bool:
        lowest = max(y - delta, 0.0)
        highest = y + delta
        if highest < 0.0:
            return False
        best = min(max(x - delta, lowest), highest)
        return _in_primal(x - delta, best, z + delta)

    if meets(0.0):
        return 0.0
    return bisect(meets, 0.0, max_norm(v))
