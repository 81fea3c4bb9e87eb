"""Newton's method with a Cholesky factor and backtracking: few iterations, for up to some hundred variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from fedpact.functions import Function, Matrix, Vector
from fedpact.solvers.local.base import Minimum

#: A step is taken when the value falls by this part of what its slope promises (Armijo).
SUFFICIENT_DECREASE = 1e-4
#: Differences of values below this, relative to them, are rounding.
ROUNDING = 1e-14
#: Steps shorter than this part of Newton's are not tried, nor those whose promise is less than a value can show.
SHORTEST = 1e-12
EPSILON = 1e-16
#: A kept factor serves while every step leaves no more than this of the residual.
HALF = 0.5
#: So much farther out than the start, a function with negative curvature counts as unbounded below.
FAR = 1e4


@dataclass(frozen=True)
class _Point:
    w: Vector
    value: float
    gradient: Vector
    residual: float  # max-norm of the gradient
    curvature: Callable[[], Matrix]  # gives the Hessian


def newton(
    function: Function, start: Vector, tolerance: float, kept: Matrix | None = None, max_iterations: int = 200
) -> Minimum:
    """Minimise a function with a Hessian until the max-norm of its gradient is at most tolerance.

    kept: lower Cholesky factor of a Hessian from an earlier call; it serves while its steps halve the residual.

    Where the Hessian is indefinite its eigenvalues are taken by their size, so every direction descends; a path that
    leads away is left, so that whoever asked can say so.
    """
    point = _evaluate(function, start)
    gradients = 1
    hessians = 0
    indefinite = False
    factor = kept
    reach = FAR * (1 + float(np.max(np.abs(start))))
    while point.residual > tolerance and hessians < max_iterations:
        if factor is not None:
            gradients += 1
            trial = _try_kept(function, point, factor)
            if trial is not None:
                point = trial
                continue
        direction, negative, factor = _descent(point.curvature(), point.gradient)
        indefinite |= negative
        hessians += 1
        slope = float(point.gradient @ direction)
        if not slope < 0:  # the Hessian is not finite, or so large that no step is left
            break
        after, evaluations = _search(function, point, direction, slope)
        gradients += evaluations
        if after is None:
            converged = _at_precision(point.residual, slope, point.value)
            return Minimum(point.w, point.residual, converged, gradients, hessians, indefinite, factor)
        point = after
        if indefinite and np.max(np.abs(point.w)) > reach:
            break
    return Minimum(point.w, point.residual, point.residual <= tolerance, gradients, hessians, indefinite, factor)


def _evaluate(function: Function, w: Vector) -> _Point:
    value, gradient, curvature = function.expand(w)
    residual = float(np.max(np.abs(gradient))) if np.isfinite(value) else np.inf
    return _Point(w, value, gradient, residual, curvature)


def _try_kept(function: Function, point: _Point, factor: Matrix) -> _Point | None:
    """A full step with the kept factor, if it descends and halves the residual."""
    direction = -np.asarray(cho_solve((factor, True), point.gradient, check_finite=False))
    after = _evaluate(function, point.w + direction)
    slope = float(point.gradient @ direction)
    descends = after.value <= point.value + SUFFICIENT_DECREASE * slope
    # Half of infinity is no progress: values that are not finite would be halved without end.
    halves = np.isfinite(after.residual) and after.residual <= HALF * point.residual
    return after if descends and halves else None


def _search(function: Function, point: _Point, direction: Vector, slope: float) -> tuple[_Point | None, int]:
    """Halve Newton's step until it descends: where it leads (None: no step helps), and the evaluations it took."""
    step = 1.0
    evaluations = 0
    shortest = max(SHORTEST, EPSILON * (1 + abs(point.value)) / abs(slope))
    while step >= min(shortest, 1.0):
        after = _evaluate(function, point.w + step * direction)
        evaluations += 1
        if after.value <= point.value + SUFFICIENT_DECREASE * step * slope:
            return after, evaluations
        # Near the minimum the decrease drowns in rounding; a smaller gradient then still shows progress.
        if after.value - point.value <= ROUNDING * (1 + abs(point.value)) and after.residual < 0.9 * point.residual:
            return after, evaluations
        step *= 0.5
    return None, evaluations


def _at_precision(residual: float, slope: float, value: float) -> bool:
    """No representable decrease is left: the predicted one is below the rounding of the value."""
    return bool(np.isfinite(residual)) and abs(slope) <= 1e3 * ROUNDING * (1 + abs(value))


def _descent(hessian: Matrix, gradient: Vector) -> tuple[Vector, bool, Matrix | None]:
    """The Newton direction, with negative eigenvalues turned positive; were there any? And the factor, if not."""
    try:
        lower = np.asarray(cho_factor(hessian, lower=True, check_finite=False)[0])
        return -np.asarray(cho_solve((lower, True), gradient, check_finite=False)), False, lower
    except LinAlgError:
        values, vectors = np.linalg.eigh(hessian)
        size = np.abs(values)
        size = np.maximum(size, 1e-10 * float(np.max(size)) or 1.0)
        direction = -np.asarray(vectors @ ((vectors.T @ gradient) / size))
        return direction, bool(values[0] < -ROUNDING * np.max(size)), None
