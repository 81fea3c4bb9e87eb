"""Newton's method with a Cholesky factor and backtracking: few iterations, for up to some hundred variables."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from fedpact.functions import Function, Matrix, Vector
from fedpact.solvers.local.base import Minimum

SUFFICIENT_DECREASE = 1e-4
ROUNDING = 1e-14


def newton(function: Function, start: Vector, tolerance: float, max_iterations: int = 200) -> Minimum:
    """Minimise a function with a Hessian until the max-norm of its gradient is at most tolerance.

    Where the Hessian is indefinite its eigenvalues are taken by their size, so every direction descends.
    """
    w = start
    value, gradient = function.value_and_gradient(w)
    gradients, hessians, indefinite = 1, 0, False
    residual = float(np.max(np.abs(gradient)))
    while residual > tolerance and hessians < max_iterations:
        direction, negative = _descent(function.hessian(w), gradient)
        indefinite |= negative
        hessians += 1
        slope = float(gradient @ direction)
        if not slope < 0:  # the Hessian is not finite, or so large that no step is left
            break
        step = 1.0
        while True:
            trial = w + step * direction
            trial_value, trial_gradient = function.value_and_gradient(trial)
            gradients += 1
            trial_residual = float(np.max(np.abs(trial_gradient))) if np.isfinite(trial_value) else np.inf
            if trial_value <= value + SUFFICIENT_DECREASE * step * slope:
                break
            # Near the minimum the decrease drowns in rounding; a smaller gradient then still shows progress.
            if trial_value - value <= ROUNDING * (1 + abs(value)) and trial_residual < 0.9 * residual:
                break
            step *= 0.5
            if step < 1e-12:
                return Minimum(w, residual, _at_precision(residual, slope, value), gradients, hessians, indefinite)
        w, value, gradient, residual = trial, trial_value, trial_gradient, trial_residual
    return Minimum(w, residual, residual <= tolerance, gradients, hessians, indefinite)


def _at_precision(residual: float, slope: float, value: float) -> bool:
    """No representable decrease is left: the predicted one is below the rounding of the value."""
    return bool(np.isfinite(residual)) and abs(slope) <= 1e3 * ROUNDING * (1 + abs(value))


def _descent(hessian: Matrix, gradient: Vector) -> tuple[Vector, bool]:
    """The Newton direction, with negative eigenvalues turned positive; were there any?"""
    try:
        factor = cho_factor(hessian, lower=True, check_finite=False)
        return -np.asarray(cho_solve(factor, gradient, check_finite=False)), False
    except LinAlgError:
        values, vectors = np.linalg.eigh(hessian)
        size = np.abs(values)
        size = np.maximum(size, 1e-10 * float(np.max(size)) or 1.0)
        return -np.asarray(vectors @ ((vectors.T @ gradient) / size)), bool(values[0] < -ROUNDING * np.max(size))
