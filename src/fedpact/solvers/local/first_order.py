"""SciPy's methods for functions without a (cheap) Hessian: Newton-CG on products, L-BFGS on gradients."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from fedpact.functions import Function, Vector
from fedpact.solvers.local.base import Minimum

#: A change of the gradient that is smaller, relative to the gradient, is none.
ROUNDING = 1e-9


def newton_cg(function: Function, start: Vector, tolerance: float, max_iterations: int = 1000) -> Minimum:
    """Trust-region Newton-CG: Hessian-vector products only, also where the function is not convex."""
    result = minimize(
        function.value_and_gradient,
        start,
        jac=True,
        hessp=function.hessian_product,
        method="trust-ncg",
        options={"gtol": tolerance, "maxiter": max_iterations},  # SciPy's is the 2-norm: at least as strict
    )
    residual = float(np.max(np.abs(result.jac)))
    return Minimum(result.x, residual, residual <= tolerance, int(result.nfev), int(result.nhev))


def lbfgs(function: Function, start: Vector, tolerance: float, max_iterations: int = 10_000) -> Minimum:
    """L-BFGS on gradients alone; tolerance is in the max-norm, as SciPy's."""
    watched = _Watched(function)
    result = minimize(
        watched,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"gtol": tolerance, "ftol": 0.0, "maxiter": max_iterations, "maxfun": 2 * max_iterations, "maxcor": 20},
    )
    residual = float(np.max(np.abs(result.jac)))
    w = np.asarray(result.x, dtype=np.float64)
    return Minimum(w, residual, residual <= tolerance, int(result.nfev), indefinite=watched.indefinite)


class _Watched:
    """The function, and whether its gradient ever fell along the way from one point to the next.

    That of a convex function never does, and without a Hessian there is no other sign of negative curvature.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.indefinite = False
        self.before: tuple[Vector, Vector] | None = None

    def __call__(self, w: Vector) -> tuple[float, Vector]:
        value, gradient = self.function.value_and_gradient(w)
        if self.before is not None:
            last_w, last_gradient = self.before
            step = w - last_w
            change = gradient - last_gradient
            with np.errstate(all="ignore"):  # a line search may meet huge and infinite values
                size = np.linalg.norm(step) * (np.linalg.norm(gradient) + np.linalg.norm(last_gradient))
                self.indefinite |= bool(step @ change < -ROUNDING * size)
        self.before = (w.copy(), gradient)
        return value, gradient
