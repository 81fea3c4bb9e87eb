"""Ends that are not a solution, decided by evidence and not by patience.

Infeasible: a weighted sum of convex constraints that stays positive.
Unbounded: a far point that is feasible and better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpact.federation import Reply, Summed, client_step
from fedpact.problem import Certificate, Share
from fedpact.solvers.run import Run, Verdict
from fedpact.solvers.steps import At, Holder, far_point, is_better_afar, probe
from fedpact.types import Vector

if TYPE_CHECKING:
    from fedpact.solvers.base import Solver

UNBOUNDED = (
    "the objective keeps falling without end and stays feasible: it has no minimiser (separable data without a "
    "regularizer does this); add one, for example regularizer=fp.prox.SquaredL2(1e-3), or bound w with fp.prox.Box"
)
INFEASIBLE = (
    "the constraints of {} exclude each other: the best point found misses them by {:.3g}, and (for convex constraints "
    "this is a proof) no point within a hundred times its size meets them all; loosen at least one bound"
)

# ------------------------------------------------------------------------------------------------------------ unbounded


def falls_forever(run: Run, w: Vector, certificate: Certificate, objective: float) -> bool:
    """One exchange: is a far point beyond w as feasible as w, and better by a tenth?"""
    far = far_point(run, w)
    asked = run.problem.own(w, np.zeros(run.problem.server.multiplier_length))[0]
    replies = run.ask(probe, At(w=far, coupled_length=asked.coupled_length))
    return is_better_afar(run, far, replies, certificate, objective)


# ----------------------------------------------------------------------------------------------------------- infeasible


@dataclass(frozen=True, kw_only=True)
class Weighed(Reply):
    """A constraint weighted by v in K*: <v, c(u)> and J(u)'v, linear from the owner's own point u to the order's w.

    size: |v|, max-norm; concave: does it bend down at u? Then it proves nothing about points elsewhere
    """

    value: Summed[float]
    gradient: Summed[Vector]
    size: float
    concave: bool


def weigh_share(share: Share, w: Vector, point: Vector | None, weights: Vector) -> Weighed:
    u = w if point is None else point
    if share.constraint is None:
        return Weighed(value=0.0, gradient=np.zeros_like(w), size=0.0, concave=False)
    weights = share.constraint.cone.project_dual(weights)
    value, jacobian = share.constraint.function.value_and_jacobian(u)
    gradient = jacobian.T @ weights
    return Weighed(
        value=float(weights @ value + gradient @ (w - u)),
        gradient=gradient,
        size=float(np.max(np.abs(weights), initial=0.0)),
        concave=_bends_down(share, u, weights),
    )


def _bends_down(share: Share, u: Vector, weights: Vector) -> bool:
    """Has the constraint, so weighted, negative curvature here? Convex ones have none anywhere."""
    assert share.constraint is not None
    function = share.constraint.function
    if function.affine or function.convex or not function.has_hessian:
        return False
    curvatures = np.linalg.eigvalsh(function.weighted_hessian(u, weights))
    return bool(curvatures[0] < -1e-9 * max(curvatures[-1], -curvatures[0]))


@client_step
def weigh(share: Share, state: Any, order: At) -> tuple[Any, Weighed]:
    point, weights = state.separator if isinstance(state, Holder) else (None, np.zeros(share.multiplier_length))
    return state, weigh_share(share, order.w, point, weights)


def conflicting_owners(
    run: Run, solver: Solver[Any], state: Any, w: Vector, certificate: Certificate
) -> Verdict | None:
    """One exchange: "infeasible" with the holders whose constraints exclude each other, when that is proved.

    For weights v in K* and convex constraints, <v, c(u)> >= <v, c(w)> + <g, u - w> with g = J'v, while a feasible u has
    <v, c(u)> <= 0. So where the value is positive and g (nearly) vanishes, no feasible point lies within
    reach = value / |g| of w.
    """
    own = weigh_share(run.problem.server, w, *solver.separator(run, state))
    replies = run.ask(weigh, At(w=w))
    if own.concave or any(reply.concave for reply in replies):
        return None
    value = own.value + replies.total.value
    gradient = own.gradient + replies.total.gradient
    regularizer = run.problem.regularizer
    # On a set, only the part of g that is not normal to it counts: for s in the normal cone, <s, u - w> <= 0.
    push = regularizer.subdifferential_distance(-gradient, w) if regularizer.indicator else np.max(np.abs(gradient))
    if value <= 0 or value < push * 100.0 * (1 + float(np.sum(np.abs(w)))):
        return None
    names = (run.problem.server.label, *run.problem.names)
    sizes = (own.size, *(reply.size for reply in replies))
    found = tuple(name for name, size in zip(names, sizes, strict=True) if size >= 0.01 * max(sizes))
    return Verdict("infeasible", INFEASIBLE.format(", ".join(found), certificate.violation), found)
