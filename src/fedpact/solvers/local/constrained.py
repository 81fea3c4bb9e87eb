"""One owner's proximal step under its own constraint: min_u f(u) + weight/2 |u - anchor|^2  s.t.  c(u) <=_K 0.

Primal-dual semismooth Newton steps while they halve the residual, else one stage of the augmented Lagrangian method:
minimise it, then mu <- P_{K*}(mu + theta c(u)). The quadratic term makes the stages converge fast and each of them well
posed. Without Hessians, or with too many variables to factor one, there are only stages.

The residual of (u, mu) is taken at the multiplier that is given back, nu = P_{K*}(mu + theta c(u)): stationarity
|grad f(u) + weight (u - anchor) + J' nu|, and |mu - nu| / theta, which bounds the distance from c(u) to N_{K*}(nu),
because mu + theta c(u) - nu is a normal of K* at nu. Both in the max-norm, the second in units of the first.

Private variables, the last of u, are tied by LOOSE times the weight only, to what they were: enough to make each step
well posed, and so little that one step nearly minimises over them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedpact.functions import Matrix, Vector
from fedpact.problem import Constraint, Share
from fedpact.solvers.constrained.augmented_lagrangian import augmented_lagrangian
from fedpact.solvers.local import CONSTANT_LIMIT, DENSE_LIMIT, anchored, keep_factor, minimize
from fedpact.solvers.local.primal_dual_newton import curvature_factor, newton_step

#: theta relative to weight / slope^2 at first ...
STIFFNESS = 30.0
#: ... it grows by this factor when a stage leaves more than a quarter of the complementarity ...
GROWTH = 5.0
#: ... up to this one.
STIFFEST = 1e8
#: Stages of the augmented Lagrangian method after which the step is given up.
MAX_STAGES = 40
#: Weight of private variables, relative to that of the common ones.
LOOSE = 1e-5
#: Residuals below this, relative to the terms they are made of, cannot be told from zero.
ROUNDING = 1e-14
#: Curvature above minus this part of the weight counts as none.
FLAT = 0.01


@dataclass(frozen=True)
class Warm:
    """What one solve hands to the next."""

    u: Vector
    multiplier: Vector
    stiffness: float = STIFFNESS
    weight: float = 0.0  # of the factor
    factor: Matrix | None = None  # of the Lagrangian's Hessian, where that is constant


@dataclass(frozen=True)
class Proximal:
    """Where the proximal step stopped.

    converged: whether the residual met the tolerance
    dip:       how far below zero the curvature of f + mu'c is, near the end, in variables that are not private
    drift:     P_{K*} of the last change of the multiplier: when no u meets the constraint it tends to a proof of that
    """

    u: Vector
    multiplier: Vector
    residual: float
    converged: bool
    gradients: int
    hessians: int
    dip: float
    drift: Vector
    warm: Warm


@dataclass(frozen=True)
class _Point:
    """A pair (u, mu) and all that is needed there."""

    u: Vector
    multiplier: Vector
    nearest: Vector  # P_{K*}(mu + theta c)
    shifted: Vector  # mu + theta c
    gradient: Vector  # of f and of the quadratic term
    jacobian: Matrix
    stationarity: float
    miss: float  # of complementarity, in units of stationarity
    rounding: float

    @property
    def residual(self) -> float:
        return max(self.stationarity, self.miss)


class _Step:
    """One proximal step under a constraint: its data, and what was evaluated."""

    def __init__(self, share: Share, constraint: Constraint, weight: float, anchor: Vector, warm: Warm) -> None:
        self.share = share
        self.weight = weight
        self.weights = weights_of(share, weight, anchor.size)
        self.anchor = anchor
        self.warm = warm
        self.function = constraint.function
        self.cone = constraint.cone
        self.gradients = 0
        self.hessians = 0
        self.indefinite = False
        self.curvature: Matrix | None = None  # of the Lagrangian, where it was last factored
        quadratic = share.objective is None or share.objective.constant_hessian
        self.constant = quadratic and self.function.affine
        limit = CONSTANT_LIMIT if self.constant else DENSE_LIMIT
        self.dense = share.has_hessian and anchor.size <= limit
        self.slope = self._slope(warm.u)
        self.stiffness = warm.stiffness

    def _slope(self, u: Vector) -> float:
        """How steep c is at u; its size over the way it may need guards where the Jacobian vanishes."""
        value, jacobian = self.function.value_and_jacobian(u)
        steep = float(np.linalg.norm(jacobian) / np.sqrt(self.cone.dim))
        slope = max(steep, _size(value) / (1 + _size(u)))
        if 1e-100 < slope < 1e100:  # its square is a number other than zero
            return slope
        return 1.0

    @property
    def theta(self) -> float:
        return self.stiffness * self.weight / self.slope**2

    def at(self, u: Vector, multiplier: Vector) -> _Point:
        """Evaluate everything at (u, mu)."""
        self.gradients += 1
        gradient = self.weights * (u - self.anchor)
        rounding = self.weight * (_size(u) + _size(self.anchor))
        if self.share.objective is not None:
            own = self.share.objective.gradient(u)
            gradient = gradient + own
            rounding = rounding + _size(own)
        value, jacobian = self.function.value_and_jacobian(u)
        shifted = multiplier + self.theta * value
        nearest = self.cone.project_dual(shifted)
        push = jacobian.T @ nearest
        return _Point(
            u=u,
            multiplier=multiplier,
            nearest=nearest,
            shifted=shifted,
            gradient=gradient,
            jacobian=jacobian,
            stationarity=_size(gradient + push),
            miss=_size(multiplier - nearest) / self.theta * self.weight / self.slope,
            rounding=ROUNDING * (rounding + _size(push)),
        )

    def newton(self, point: _Point) -> _Point | None:
        """The primal-dual Newton step; None where the Lagrangian is not convex or the system is singular."""
        factor = self._factor(point)
        if factor is None:
            return None
        step = newton_step(
            factor,
            point.gradient + point.jacobian.T @ point.multiplier,
            point.jacobian,
            self.cone.project_dual_jacobian(point.shifted),
            point.multiplier - point.nearest,
            self.theta,
        )
        if step is None:
            return None
        du, change = step
        return self.at(point.u + du, point.multiplier + change)

    def _factor(self, point: _Point) -> Matrix | None:
        """Cholesky factor of the Lagrangian's Hessian, kept while that is constant; None when it is not positive."""
        if self.warm.factor is not None and self.warm.weight == self.weight:
            return self.warm.factor
        self.curvature = self._hessian(point)
        factor = curvature_factor(self.curvature)
        if factor is not None and self.constant:
            self.warm = replace(self.warm, factor=factor, weight=self.weight)
        return factor

    def _hessian(self, point: _Point) -> Matrix:
        """Of the Lagrangian with the quadratic term, at the nearest multiplier."""
        self.hessians += 1
        hessian = np.zeros((self.anchor.size, self.anchor.size))
        if self.share.objective is not None:
            hessian += self.share.objective.hessian(point.u)
        if not self.function.affine:
            hessian += self.function.weighted_hessian(point.u, point.nearest)
        hessian[np.diag_indices_from(hessian)] += self.weights
        return hessian

    def measure_dip(self) -> float:
        """`Proximal.dip`; without Hessians the weight itself, where the last stage met negative curvature."""
        if self.curvature is None:
            return self.weight * float(self.indefinite)
        tied = self.anchor.size - self.share.private
        own = self.curvature[:tied, :tied] - self.weight * np.eye(tied)
        if curvature_factor(own + FLAT * self.weight * np.eye(tied)) is not None:
            return 0.0
        return max(-float(np.linalg.eigvalsh(own)[0]), 0.0)

    def stage(self, point: _Point, tolerance: float) -> tuple[_Point, Vector]:
        """One stage of the augmented Lagrangian method, and P_{K*} of the multiplier's change."""
        inner = augmented_lagrangian(self.share, point.multiplier, self.theta, self.anchor.size)
        found = minimize(anchored(inner, self.weights, self.anchor), point.u, max(tolerance, 0.1 * point.residual))
        self.gradients += found.gradients
        self.hessians += found.hessians
        self.indefinite = found.indefinite
        multiplier = self.cone.project_dual(point.multiplier + self.theta * self.function.value(found.w))
        after = self.at(found.w, multiplier)
        if after.miss > max(0.25 * point.miss, tolerance) and self.stiffness < STIFFEST:
            self.stiffness *= GROWTH
            after = self.at(found.w, multiplier)
        return after, self.cone.project_dual(multiplier - point.multiplier)


def constrained(share: Share, weight: float, anchor: Vector, warm: Warm, tolerance: float) -> Proximal:
    """Solve the proximal step of a share until its residual is at most tolerance, or cannot fall any more."""
    if share.constraint is None:
        return _unconstrained(share, weight, anchor, warm, tolerance)
    step = _Step(share, share.constraint, weight, anchor, warm)
    point = step.at(warm.u, warm.multiplier)
    drift = np.zeros_like(warm.multiplier)
    stages = 0
    while point.residual > max(tolerance, point.rounding) and stages < MAX_STAGES:
        trial = step.newton(point) if step.dense else None
        if trial is not None and trial.residual <= 0.5 * point.residual:
            point = trial
            continue
        if point.residual <= 100 * point.rounding:  # no digits left to gain
            break
        stages += 1
        point, drift = step.stage(point, tolerance)
    return Proximal(
        u=point.u,
        multiplier=point.nearest,
        residual=point.residual,
        converged=point.residual <= max(tolerance, 100 * point.rounding),
        gradients=step.gradients,
        hessians=step.hessians,
        dip=step.measure_dip(),
        drift=drift,
        warm=replace(step.warm, u=point.u, multiplier=point.nearest, stiffness=step.stiffness),
    )


def _unconstrained(share: Share, weight: float, anchor: Vector, warm: Warm, tolerance: float) -> Proximal:
    """The proximal step of a share without a constraint; keeps the factor of a constant Hessian."""
    weights = weights_of(share, weight, anchor.size)
    function = anchored(augmented_lagrangian(share, warm.multiplier, 1.0, anchor.size), weights, anchor)
    if warm.weight != weight:
        warm = replace(warm, factor=keep_factor(function), weight=weight)
    found = minimize(function, warm.u, tolerance, kept=warm.factor)
    return Proximal(
        u=found.w,
        multiplier=warm.multiplier,
        residual=found.residual,
        converged=found.converged,
        gradients=found.gradients,
        hessians=found.hessians,
        dip=weight * float(found.indefinite),
        drift=warm.multiplier,
        warm=replace(warm, u=found.w),
    )


def weights_of(share: Share, weight: float, size: int) -> float | Vector:
    """The weight of the quadratic term, by variable where a share has private ones."""
    if not share.private:
        return weight
    return np.append(np.full(size - share.private, weight), np.full(share.private, LOOSE * weight))


def _size(vector: Vector) -> float:
    return float(np.max(np.abs(vector), initial=0.0))
