"""SciPy's methods for functions without a (cheap) Hessian: Newton-CG on products, L-BFGS on gradients."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from fedpact.functions import Function, Vector
from fedpact.solvers.local.base import Minimum


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
    result = minimize(
        function.value_and_gradient,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"gtol": tolerance, "ftol": 0.0, "maxiter": max_iterations, "maxfun": 2 * max_iterations, "maxcor": 20},
    )
    residual = float(np.max(np.abs(result.jac)))
    return Minimum(np.asarray(result.x, dtype=np.float64), residual, residual <= tolerance, int(result.nfev))
