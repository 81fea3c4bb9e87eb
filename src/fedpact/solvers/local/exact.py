"""One linear solve for functions whose Hessian is constant; the factor can be kept while the Hessian stays."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from fedpact.functions import Function, Matrix, Vector
from fedpact.solvers.local.base import Minimum


def factor(function: Function) -> Matrix:
    """The lower Cholesky factor of the constant Hessian. Raises scipy.linalg.LinAlgError when it is not positive."""
    hessian = function.hessian(np.zeros(function.dim or 0))
    return np.asarray(cho_factor(hessian, lower=True, check_finite=False)[0])


def exact(function: Function, start: Vector, tolerance: float, kept: Matrix | None = None) -> Minimum:
    """The minimiser by one Newton step, refined while rounding leaves more than tolerance."""
    lower = kept
    hessians = 0
    if lower is None:
        lower = factor(function)
        hessians = 1
    w = best = start
    residual = np.inf
    gradients = 0
    while True:
        gradient = function.gradient(w)
        gradients += 1
        size = float(np.max(np.abs(gradient)))
        if not size < 0.5 * residual:  # refinement is at the limit of double precision, or met what is not a number
            return Minimum(best, residual, bool(np.isfinite(size)), gradients, hessians, factor=lower)
        best = w
        residual = size
        if residual <= tolerance:
            return Minimum(best, residual, True, gradients, hessians, factor=lower)
        w = w - np.asarray(cho_solve((lower, True), gradient, check_finite=False))
