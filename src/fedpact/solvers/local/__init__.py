"""Solvers of one owner's subproblem, and the choice among them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
from scipy.linalg import LinAlgError

from fedpact.functions import Function, Matrix, Vector
from fedpact.prox import Prox, Zero
from fedpact.solvers.local.base import CONSTANT_LIMIT, DENSE_LIMIT, Anchored, Constant, Minimum, anchored
from fedpact.solvers.local.exact import exact, factor
from fedpact.solvers.local.first_order import lbfgs, newton_cg
from fedpact.solvers.local.newton import newton
from fedpact.solvers.local.proximal_gradient import proximal_gradient

#: Steps of the proximal gradient method where L-BFGS gave up near the end.
LAST_STEPS = 2000

__all__ = [
    "CONSTANT_LIMIT",
    "DENSE_LIMIT",
    "Anchored",
    "Constant",
    "Minimum",
    "anchored",
    "exact",
    "factor",
    "keep_factor",
    "lbfgs",
    "minimize",
    "newton",
    "newton_cg",
    "proximal_gradient",
]


def minimize(
    function: Function, start: Vector, tolerance: float, *, regularizer: Prox | None = None, kept: Matrix | None = None
) -> Minimum:
    """Minimise function (+ regularizer) to a max-norm stationarity of tolerance, from start.

    Exact for constant Hessians, Newton for small dense ones, Newton-CG for large ones, L-BFGS without any; with a
    regularizer that is not smooth, accelerated proximal gradient. `kept` comes from `keep_factor` or from an earlier
    `Minimum`: where the Hessian is constant it must be its factor, else any factor that may still fit.
    """
    if regularizer is not None and regularizer.curvature is not None:
        function = anchored(function, regularizer.curvature, np.zeros_like(start))
        regularizer = None
    if isinstance(function, Anchored) and isinstance(function.function, Constant):
        return _minimize_anchor(function, regularizer)
    if regularizer is not None:
        return proximal_gradient(function, regularizer, start, tolerance)
    if not function.has_hessian:
        return _minimize_by_gradients(function, start, tolerance)
    if function.constant_hessian and start.size <= CONSTANT_LIMIT:
        with suppress(LinAlgError):  # not convex: Newton's method says so, and descends all the same
            return exact(function, start, tolerance, kept)
    if start.size <= DENSE_LIMIT:
        return newton(function, start, tolerance, kept)
    return newton_cg(function, start, tolerance)


def _minimize_anchor(function: Anchored, regularizer: Prox | None) -> Minimum:
    """Nothing but weight/2 |w - anchor|^2 + h(w): the anchor itself, or one prox."""
    if regularizer is None:
        return Minimum(function.anchor, 0.0, True, 0)
    w = regularizer.prox(function.anchor, 1 / float(function.weight))
    return Minimum(w, regularizer.subdifferential_distance(-function.gradient(w), w), True, 0)


def _minimize_by_gradients(function: Function, start: Vector, tolerance: float) -> Minimum:
    """L-BFGS; near rounding, where its line searches give up, proximal gradient, which compares no values."""
    found = lbfgs(function, start, tolerance)
    if found.converged:
        return found
    if not np.all(np.isfinite(found.w)):
        return replace(found, w=start, residual=np.inf)
    last = proximal_gradient(function, Zero(), found.w, tolerance, LAST_STEPS)
    return replace(last, gradients=found.gradients + last.gradients, indefinite=found.indefinite)


def keep_factor(function: Function) -> Matrix | None:
    """The factor to pass as `kept` to later calls of `minimize`; None where they would not use one."""
    only_anchor = isinstance(function, Anchored) and isinstance(function.function, Constant)
    if function.constant_hessian and not only_anchor and (function.dim or 0) <= CONSTANT_LIMIT:
        with suppress(LinAlgError):  # not convex
            return factor(function)
    return None
