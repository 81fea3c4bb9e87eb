"""Accelerated proximal gradient for smooth + simple: first order, any h of the prox room."""

from __future__ import annotations

import numpy as np

from fedpact.functions import Function, Vector
from fedpact.prox import Prox
from fedpact.solvers.local.base import Minimum

#: The step grows by this factor with every iteration, and is halved until the descent lemma holds.
GROWTH = 1.25
#: A shorter step leads nowhere.
SHORTEST = 1e-18


def proximal_gradient(
    function: Function, regularizer: Prox, start: Vector, tolerance: float, max_iterations: int = 50_000
) -> Minimum:
    """Minimise function + regularizer until the max-norm distance to stationarity is at most tolerance.

    FISTA (Beck and Teboulle 2009) with a backtracked step that may grow again, so a locally Lipschitz gradient is
    enough, and the gradient restart of O'Donoghue and Candes (2015), so strong convexity is used without knowing it.
    """
    w = start
    if regularizer.indicator:
        w = regularizer.prox(start, 0.0)
    gradient = function.gradient(w)
    residual = regularizer.subdifferential_distance(-gradient, w)
    gradients = 1
    best = Minimum(w, residual, residual <= tolerance, gradients)
    point = w
    momentum = 1.0
    step = 1.0 / max(float(np.linalg.norm(gradient)), 1.0)
    for _ in range(max_iterations):
        if best.converged:
            break
        gradient = function.gradient(point)
        trial, trial_gradient, step, evaluations = _backtrack(function, regularizer, point, gradient, GROWTH * step)
        gradients += 1 + evaluations
        if step == 0:
            return Minimum(best.w, best.residual, False, gradients)
        residual = regularizer.subdifferential_distance(-trial_gradient, trial)
        if not np.isfinite(residual):  # it would never count as better
            break
        if residual < best.residual:
            best = Minimum(trial, residual, residual <= tolerance, gradients)
        if float((point - trial) @ (trial - w)) > 0:  # momentum points uphill: restart
            momentum = 1.0
            point = trial
        else:
            following = 0.5 * (1 + np.sqrt(1 + 4 * momentum**2))
            point = trial + (momentum - 1) / following * (trial - w)
            momentum = following
        w = trial
    return Minimum(best.w, best.residual, best.converged, gradients)


def _backtrack(
    function: Function, regularizer: Prox, point: Vector, gradient: Vector, step: float
) -> tuple[Vector, Vector, float, int]:
    """A proximal step, halved until the descent lemma holds.

    Where it leads, the gradient there, its length (0: none is short enough), and the evaluations it took.
    """
    evaluations = 0
    while True:
        trial = regularizer.prox(point - step * gradient, step)
        move = trial - point
        value, trial_gradient = function.value_and_gradient(trial)
        evaluations += 1
        # Descent lemma, in the form that stays meaningful when values agree to rounding.
        curved = float((trial_gradient - gradient) @ move)
        squared = float(move @ move)
        if np.isfinite(value) and step * curved <= squared:
            return trial, trial_gradient, step, evaluations
        step *= 0.5
        if not step >= SHORTEST:  # also when the gradient is not a number, and the step with it
            return trial, trial_gradient, 0.0, evaluations
