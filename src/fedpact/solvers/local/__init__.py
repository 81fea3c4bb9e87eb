"""Solvers of one owner's subproblem, and the choice among them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
from scipy.linalg import LinAlgError

from fedpact.functions import Function, Matrix, Vector
from fedpact.prox import Prox, Zero
from fedpact.solvers.local.base import Anchored, Constant, Minimum, anchored
from fedpact.solvers.local.exact import exact, factor
from fedpact.solvers.local.first_order import lbfgs, newton_cg
from fedpact.solvers.local.newton import newton
from fedpact.solvers.local.proximal_gradient import proximal_gradient

#: Above this many variables forming and factoring a Hessian costs more than products with it.
DENSE_LIMIT = 600

__all__ = [
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
    regularizer that is not smooth, accelerated proximal gradient. `kept` comes from `keep_factor`.
    """
    if regularizer is not None and regularizer.curvature is not None:
        function, regularizer = anchored(function, regularizer.curvature, np.zeros_like(start)), None
    if isinstance(function, Anchored) and isinstance(function.function, Constant):
        return _anchor_only(function, regularizer)
    if regularizer is not None:
        return proximal_gradient(function, regularizer, start, tolerance)
    if not function.has_hessian:
        result = lbfgs(function, start, tolerance)
        if result.converged:
            return result
        # L-BFGS line searches give up near rounding; the plain method needs no function values there.
        if not np.all(np.isfinite(result.w)):
            return Minimum(start, np.inf, False, result.gradients, indefinite=result.indefinite)
        again = proximal_gradient(function, Zero(), result.w, tolerance, 2000)
        return replace(again, gradients=result.gradients + again.gradients, indefinite=result.indefinite)
    if function.constant_hessian and _dense(start.size, 4):
        with suppress(LinAlgError):  # not convex: Newton's method says so, and descends all the same
            return exact(function, start, tolerance, kept)
    if _dense(start.size):
        return newton(function, start, tolerance)
    return newton_cg(function, start, tolerance)


def _anchor_only(function: Anchored, regularizer: Prox | None) -> Minimum:
    """Nothing but weight/2 |w - anchor|^2 + h(w): the anchor itself, or one prox."""
    if regularizer is None:
        return Minimum(function.anchor, 0.0, True, 0)
    w = regularizer.prox(function.anchor, 1 / float(function.weight))
    return Minimum(w, regularizer.subdifferential_distance(-function.gradient(w), w), True, 0)


def keep_factor(function: Function) -> Matrix | None:
    """The factor to pass as `kept` to later calls of `minimize`; None where they would not use one."""
    pure = isinstance(function, Anchored) and isinstance(function.function, Constant)
    if function.constant_hessian and not pure and _dense(function.dim or 0, 4):
        with suppress(LinAlgError):  # not convex
            return factor(function)
    return None


def _dense(dim: int, times: int = 1) -> bool:
    return dim <= times * DENSE_LIMIT
