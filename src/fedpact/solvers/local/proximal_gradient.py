"""Accelerated proximal gradient for smooth + simple: first order, any h of the prox room."""

from __future__ import annotations

import numpy as np

from fedpact.functions import Function, Vector
from fedpact.prox import Prox
from fedpact.solvers.local.base import Minimum


def proximal_gradient(
    function: Function, regularizer: Prox, start: Vector, tolerance: float, max_iterations: int = 50_000
) -> Minimum:
    """Minimise function + regularizer until the max-norm distance to stationarity is at most tolerance.

    FISTA (Beck and Teboulle 2009) with a backtracked step that may grow again, so a locally Lipschitz gradient is
    enough, and the gradient restart of O'Donoghue and Candes (2015), so strong convexity is used without knowing it.
    """
    w = regularizer.prox(start, 0.0) if regularizer.indicator else start
    gradient = function.gradient(w)
    residual = regularizer.subdifferential_distance(-gradient, w)
    gradients = 1
    best = Minimum(w, residual, residual <= tolerance, gradients)
    point, momentum = w, 1.0
    step = 1.0 / max(float(np.linalg.norm(gradient)), 1.0)
    for _ in range(max_iterations):
        if best.converged:
            break
        gradient = function.gradient(point)
        gradients += 1
        step *= 1.25
        while True:
            trial = regularizer.prox(point - step * gradient, step)
            move = trial - point
            trial_value, trial_gradient = function.value_and_gradient(trial)
            gradients += 1
            # Descent lemma, in the form that stays meaningful when values agree to rounding.
            curved = float((trial_gradient - gradient) @ move)
            squared = float(move @ move)
            if np.isfinite(trial_value) and step * curved <= squared:
                break
            step *= 0.5
            if not step >= 1e-18:  # also when the gradient is not a number, and the step with it
                return Minimum(best.w, best.residual, False, gradients)
        residual = regularizer.subdifferential_distance(-trial_gradient, trial)
        if not np.isfinite(residual):  # it would never count as better
            break
        if residual < best.residual:
            best = Minimum(trial, residual, residual <= tolerance, gradients)
        if float((point - trial) @ (trial - w)) > 0:  # momentum points uphill: restart
            momentum, point = 1.0, trial
        else:
            following = 0.5 * (1 + np.sqrt(1 + 4 * momentum**2))
            point = trial + (momentum - 1) / following * (trial - w)
            momentum = following
        w = trial
    return Minimum(best.w, best.residual, best.converged, gradients)
