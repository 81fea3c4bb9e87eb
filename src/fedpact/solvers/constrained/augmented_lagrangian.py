"""The augmented Lagrangian of one share, as a smooth function: He24-conic (10)-(11) without the proximal term."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from fedpact.cones import Zero
from fedpact.functions import Function, Matrix, Vector
from fedpact.problem import Share
from fedpact.solvers.constrained.condensation import apply
from fedpact.solvers.local import Anchored, Constant


def augmented_lagrangian(share: Share, multiplier: Vector, penalty: float, dim: int) -> Function:
    """The augmented Lagrangian of a share; zero for the empty share of a server without a constraint."""
    if share.objective is None and share.constraint is None:
        return Constant(dim)
    return AugmentedLagrangian(share, multiplier, penalty, dim)


class AugmentedLagrangian(Function):
    """f(w) + (dist^2(mu + beta c(w), -K) - |mu|^2) / (2 beta)

    dist(z, -K) = |P_{K*}(z)|, so the gradient is grad f(w) + J(w)' P_{K*}(mu + beta c(w)) (He24-conic (56)), and
    beta J' D J + hess f + sum_j P_j hess c_j is an element of its generalized Hessian, D one of P_{K*}.
    """

    def __init__(self, share: Share, multiplier: Vector, penalty: float, dim: int) -> None:
        self.share = share
        self.multiplier = multiplier
        self.penalty = penalty
        self.dim = dim
        self.has_hessian = share.has_hessian
        constraint = share.constraint
        quadratic = share.objective is None or share.objective.constant_hessian
        linear = constraint is None or (constraint.function.affine and isinstance(constraint.cone, Zero))
        self.constant_hessian = quadratic and linear

    def shifted(self, value: Vector) -> Vector:
        """P_{K*}(mu + beta c): the multiplier that the classical update would take next."""
        assert self.share.constraint is not None
        return self.share.constraint.cone.project_dual(self.multiplier + self.penalty * value)

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        value, gradient, _ = self.expand(w)
        return value, gradient

    def expand(self, w: Vector) -> tuple[float, Vector, Callable[[], Matrix]]:
        value = 0.0
        gradient = np.zeros_like(w)
        curvatures: list[Callable[[], Matrix]] = []
        if self.share.objective is not None:
            value, gradient, curvature = self.share.objective.expand(w)
            curvatures.append(curvature)
        constraint = self.share.constraint
        if constraint is not None:
            c, jacobian, bend = constraint.function.expand(w)
            shifted = self.shifted(c)
            value += (float(shifted @ shifted) - float(self.multiplier @ self.multiplier)) / (2 * self.penalty)
            gradient = gradient + jacobian.T @ shifted
            if not constraint.function.affine:
                curvatures.append(partial(bend, shifted))
            curvatures.append(lambda: self.penalty * jacobian.T @ apply(self._slope(c), jacobian))
        return value, gradient, lambda: np.asarray(sum(curvature() for curvature in curvatures))

    def hessian(self, w: Vector) -> Matrix:
        return self.expand(w)[2]()

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        product = np.zeros_like(w)
        if self.share.objective is not None:
            product = self.share.objective.hessian_product(w, v)
        constraint = self.share.constraint
        if constraint is not None:
            c, jacobian = constraint.function.value_and_jacobian(w)
            if not constraint.function.affine:
                product = product + constraint.function.weighted_hessian_product(w, self.shifted(c), v)
            product = product + self.penalty * jacobian.T @ apply(self._slope(c), jacobian @ v)
        return np.asarray(product)

    def _slope(self, value: Vector) -> Matrix:
        assert self.share.constraint is not None
        return self.share.constraint.cone.project_dual_jacobian(self.multiplier + self.penalty * value)


def gradient_between(function: Function, w: Vector, copy: Vector) -> tuple[Vector, float]:
    """Gradient at w of the Lagrangian whose multiplier P_{K*}(mu + beta c) is that of a copy of w; |c(w) - c(copy)|.

    The gradient of the augmented Lagrangian itself is beta times as sensitive to w along the constraint's gradients.
    Functions of other kinds have no multiplier: their gradient at w, and 0.
    """
    if isinstance(function, Anchored):
        gradient, gap = gradient_between(function.function, w, copy)
        return gradient + function.weight * (w - function.anchor), gap
    if not isinstance(function, AugmentedLagrangian) or function.share.constraint is None:
        return function.gradient(w), 0.0
    constraint = function.share.constraint.function
    there = constraint.value(copy)
    here, jacobian = constraint.value_and_jacobian(w)
    gradient = jacobian.T @ function.shifted(there)
    if function.share.objective is not None:
        gradient = gradient + function.share.objective.gradient(w)
    return gradient, float(np.max(np.abs(here - there), initial=0.0))
