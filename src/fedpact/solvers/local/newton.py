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

    Indefinite Hessians are shifted until they factor, so every direction descends.
    """
    w = start
    value, gradient = function.value_and_gradient(w)
    gradients, hessians = 1, 0
    residual = float(np.max(np.abs(gradient)))
    while residual > tolerance and hessians < max_iterations:
        direction = -_solve_shifted(function.hessian(w), gradient)
        hessians += 1
        slope = float(gradient @ direction)
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
                return Minimum(w, residual, _at_precision(residual, slope, value), gradients, hessians)
        w, value, gradient, residual = trial, trial_value, trial_gradient, trial_residual
    return Minimum(w, residual, residual <= tolerance, gradients, hessians)


def _at_precision(residual: float, slope: float, value: float) -> bool:
    """No representable decrease is left: the predicted one is below the rounding of the value."""
    return bool(np.isfinite(residual)) and abs(slope) <= 1e3 * ROUNDING * (1 + abs(value))


def _solve_shifted(hessian: Matrix, gradient: Vector) -> Vector:
    scale = float(np.max(np.abs(np.diagonal(hessian)), initial=0.0)) or 1.0
    shift = 0.0
    while True:
        try:
            shifted = hessian if shift == 0.0 else hessian + shift * np.eye(gradient.size)
            return np.asarray(cho_solve(cho_factor(shifted, lower=True, check_finite=False), gradient))
        except LinAlgError:
            shift = max(10 * shift, 1e-10 * scale)
