"""A first look at every share: are its values usable, and how large are its derivatives?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpact.errors import DataError, ProblemError
from fedpact.federation import Order, Reply, Summed, client_step, named
from fedpact.functions import Function
from fedpact.problem import Share
from fedpact.problem.share import Local, evaluate
from fedpact.solvers.run import Run
from fedpact.types import Matrix, Vector

#: Step of a difference of gradients, relative to the size of w.
STEP = 1e-6
#: Squared norm of the gradient of scale c~(w) - s, on average: of either part 1.
SLACK_ROW = 2.0
#: Changes of a gradient below this part of it are rounding.
ROUNDING = 1e-13


@dataclass(frozen=True, kw_only=True)
class Introduce(Order):
    """Evaluate everything once at w."""

    w: Vector


@dataclass(frozen=True, kw_only=True)
class Introduced(Reply):
    """How large an owner's derivatives are."""

    curvature: Summed[float]  # mean diagonal of the objective's Hessian, estimated with one product
    slope: float  # mean squared norm of the constraint's gradients
    coupled: Summed[float]  # squared norms of the gradients in its part of the coupled constraint


@dataclass(frozen=True)
class Scales:
    """curvature: of the sum of all objectives; slope: the largest of any holder's constraint.

    coupled_scale: factor that brings the coupled maps to slope 1 on average, the slope of their slacks.
    Without it the augmented Lagrangian methods need many more rounds when the maps are flat.
    """

    curvature: float
    slope: float
    coupled_scale: float = 1.0


@client_step
def introduce(share: Share, state: Any, order: Introduce) -> tuple[Any, Introduced]:
    """Evaluate everything once at the start. Raises ProblemError or DataError when shapes or values are unusable."""
    curvature = 0.0
    slope = 0.0
    w = np.concatenate([order.w, share.first_private])
    at = evaluate(share, w)
    check_start(share, w, at)
    if share.objective is not None:
        curvature = mean_curvature(share.objective, w)
    if share.constraint is not None:
        slope = float(np.sum(at.jacobian**2)) / share.constraint.cone.dim
    return state, Introduced(curvature=curvature, slope=slope, coupled=float(np.sum(at.coupled_jacobian**2)))


def check_start(share: Share, w: Vector, at: Local) -> None:
    """Raise ProblemError or DataError when shapes or values of the share at the start are unusable."""
    if share.objective is not None:
        _check("objective", np.asarray(at.objective), ())
        _check("objective's gradient", at.gradient, w.shape)
    if share.constraint is not None:
        rows = share.constraint.cone.dim
        _check("constraint", at.value, (rows,))
        _check("constraint's Jacobian", at.jacobian, (rows, w.size))
    if share.coupled is not None:
        _check_coupled(share, w, at.coupled, at.coupled_jacobian)
    if share.private:
        _check_private(share, w)


def look(run: Run) -> Scales:
    """One exchange: the scales at the start. An error of the server's share names it, as one at an owner does."""
    order = Introduce(w=run.start)
    with named(run.problem.server.label, introduce.__name__):
        _, own = introduce(run.problem.server, None, order)
    seen = run.ask(introduce, order)
    slope = max(own.slope, *(s.slope for s in seen))
    if run.problem.coupled_length:
        slope = max(slope, SLACK_ROW)
    return Scales(own.curvature + seen.total.curvature, slope, _coupled_scale(run, seen.total.coupled))


@dataclass(frozen=True, kw_only=True)
class Gauged(Reply):
    coupled: Summed[float]  # as in `Introduced`


@client_step
def gauge(share: Share, state: Any, order: Introduce) -> tuple[Any, Gauged]:
    """How steep this owner's part of the coupled constraint is."""
    w = np.concatenate([order.w, share.first_private])
    return state, Gauged(coupled=_coupled_steepness(share, w))


def find_coupled_scale(run: Run) -> float:
    """`Scales.coupled_scale` alone: one exchange where there is a coupled constraint, else none."""
    if not run.problem.coupled_length:
        return 1.0
    return _coupled_scale(run, run.ask(gauge, Introduce(w=run.start)).total.coupled)


def _coupled_scale(run: Run, steepness: float) -> float:
    parts = sum(share.coupled is not None for share in run.problem.shares)
    rows = max(parts * run.problem.coupled_length, 1)
    return 1 / float(np.sqrt(steepness / rows) or 1.0)


def _coupled_steepness(share: Share, w: Vector) -> float:
    """Squared norms of the gradients of its part of the coupled constraint; 0 without one."""
    if share.coupled is None:
        return 0.0
    value, jacobian = share.coupled.value_and_jacobian(w)
    _check_coupled(share, w, value, jacobian)
    return float(np.sum(jacobian**2))


def _check_coupled(share: Share, w: Vector, value: Vector, jacobian: Matrix) -> None:
    assert share.coupled_cone is not None  # a share with a coupled map has one
    rows = share.coupled_cone.dim
    _check("coupled map", value, (rows,))
    _check("coupled map's Jacobian", jacobian, (rows, w.size))


def default_penalty(scales: Scales) -> float:
    """beta so large that the proximal term hardly slows the objective and multipliers converge in a few updates.

    The first term compares 1/beta with the curvature of f, the second beta J'J with it. Larger starts save outer
    iterations, but the non-convex subproblems of fairness gaps then cycle; the penalty grows when progress is slow.
    """
    curvature = scales.curvature or 1.0
    return max(15 / curvature, 200 * curvature / (scales.slope or 1.0))


def default_consensus_penalty(scales: Scales, owners: int) -> float:
    """rho at the mean curvature of one owner's objective; the residuals move it from there."""
    return (scales.curvature or 1.0) / owners


def default_gamma(curvature: float) -> float:
    """Step of the resolvents: the inverse of the mean curvature of the F_i = N grad f_i, which is that of sum_i f_i."""
    return 1 / curvature if curvature > 0 else 1.0


def mean_curvature(function: Function, w: Vector) -> float:
    """|v' J v| / d for one fixed vector of signs: Hutchinson's estimate of the mean diagonal of the Hessian.

    |J v| / sqrt(d) for operators, where v' J v may vanish (skew J). Changes of the size of rounding count as none.
    """
    v = np.random.default_rng(0).choice([-1.0, 1.0], w.size)
    product = function.hessian_product(w, v) if function.has_hessian else difference(function.gradient, w, v)
    if function.gradient_field:
        return abs(float(v @ product)) / w.size
    return float(np.linalg.norm(product) / np.sqrt(w.size))


def difference(gradient: Callable[[Vector], Vector], w: Vector, v: Vector) -> Vector:
    """J v by a difference of gradients; zero when the change is no more than rounding."""
    step = STEP * (1 + float(np.max(np.abs(w), initial=0.0)))
    here = gradient(w)
    change = gradient(w + step * v) - here
    if not np.linalg.norm(change) > ROUNDING * np.linalg.norm(here):
        return np.zeros_like(w)
    return change / step


def _check_private(share: Share, w: Vector) -> None:
    """Raise ProblemError for a private variable that no function depends on: neither at the start nor beside it."""
    first = w.size - share.private
    beside = w + np.random.default_rng(0).uniform(0.5, 1.0, w.size)
    used = np.zeros(share.private, dtype=bool)
    for point in (w, beside):
        if not used.all():
            used |= np.any(_slopes(share, point)[:, first:] != 0, axis=0)
    if not used.all():
        number = int(np.argmin(used)) + 1
        raise ProblemError(
            f"private variable {number} of {share.private} changes none of its functions; lower private, or let the "
            "functions use it",
            code="FP-PROBLEM-251",
        )


@np.errstate(all="ignore")
def _slopes(share: Share, w: Vector) -> Matrix:
    """The gradients of all parts of a share, one below the other."""
    rows = []
    for part in share.parts.values():
        if isinstance(part, Function):
            rows.append(part.gradient(w)[None, :])
        else:
            rows.append(part.jacobian(w))
    return np.vstack(rows)


def _check(what: str, array: Vector, shape: tuple[int, ...]) -> None:
    """Raise ProblemError for another shape, DataError for numbers that are not finite."""
    if array.shape != shape:
        found = f"its {what} has shape {array.shape} at the start, expected {shape}"
        raise ProblemError(found, code="FP-PROBLEM-250")
    if not np.all(np.isfinite(array)):
        count = np.sum(~np.isfinite(array))
        found = f"its {what} is not finite at the start ({count} NaN or infinite values)"
        remedy = "check the data and the function there, or start from another w0"
        raise DataError(f"{found}; {remedy}", code="FP-DATA-250")
