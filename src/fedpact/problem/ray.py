"""Proof that an objective falls without end: a direction that every constraint admits and along which it only falls.

For quadratic objectives with sum H, g at any point, affine constraints with slopes A_i, and a positively homogeneous h,
a direction r with

    <g, r> + h(r) < 0,      H r = 0,      A_i r <=_K 0 for every holder,

leads from any feasible point to feasible points of any objective, however low. `RayProblem` looks for the steepest of
them, `check_ray` judges any.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedpact.cones import Nonnegative
from fedpact.functions import Affine, Quadratic
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Constraint, Share, combine
from fedpact.prox import L1, GroupL2, Zero
from fedpact.types import Matrix, Vector

#: How much more bending counts than falling, so that a ray does not bend.
STIFF = 1e8
#: What must vanish may be this part of its terms: rounding.
ROUNDING = 1e-9
#: The fall must be this part of the terms of the slope.
MARGIN = 1e-6


def has_rays(problem: FederatedProblem) -> bool:
    """Whether `RayProblem` can be posed."""
    objectives = [share.objective for share in problem.holders if share.objective is not None]
    maps = [share.constraint.function for share in problem.holders if share.constraint is not None]
    maps += [share.coupled for share in problem.shares if share.coupled is not None]
    quadratic = all(f.constant_hessian and f.convex for f in objectives)
    affine = all(c.affine for c in maps)
    return quadratic and affine and isinstance(problem.regularizer, Zero | L1 | GroupL2)


class RayProblem(FederatedProblem):
    """min_r <g, r> + h(r) + STIFF/2 r'Hr with A_i r <=_K 0 and |r_j| <= 1."""

    def __init__(self, problem: FederatedProblem, w: Vector) -> None:
        shares = [_at_infinity(share, w) for share in problem.shares]
        identity = np.eye(w.size)
        bounded = Constraint(Affine(np.vstack([identity, -identity]), -np.ones(2 * w.size)), Nonnegative(2 * w.size))
        own = _at_infinity(problem.server, w)
        constraints = [bounded]
        if own.constraint is not None:
            constraints.append(own.constraint)
        server = replace(own, constraint=combine(constraints))
        super().__init__(shares, server, problem.regularizer)
        self.convex = True


def _at_infinity(share: Share, w: Vector) -> Share:
    """The share of a problem about directions."""
    objective = None
    constraint = None
    coupled = None
    if share.objective is not None:
        objective = Quadratic(STIFF * share.objective.hessian(w), share.objective.gradient(w))
    if share.constraint is not None:
        constraint = Constraint(Affine(share.constraint.function.jacobian(w)), share.constraint.cone)
    if share.coupled is not None:
        coupled = Affine(share.coupled.jacobian(w))
    return replace(share, objective=objective, constraint=constraint, coupled=coupled)


def check_ray(problem: FederatedProblem, w: Vector, ray: Vector) -> bool:
    """Whether the objective falls along the ray without end and every constraint admits it, beyond rounding.

    False where `has_rays` is. From a feasible point this is a proof.
    """
    if not has_rays(problem) or not np.all(np.isfinite(ray)):
        return False
    slope = np.zeros_like(w)
    terms = np.zeros_like(w)
    bend = np.zeros_like(w)
    bends = np.zeros_like(w)
    coupled: Matrix | None = None
    for share in problem.holders:
        if share.objective is not None:
            gradient = share.objective.gradient(w)
            hessian = share.objective.hessian(w)
            slope += gradient
            terms += np.abs(gradient)
            bend += hessian @ ray
            bends += np.abs(hessian) @ np.abs(ray)
        if share.constraint is not None and not _admits(share.constraint, share.constraint.function.jacobian(w), ray):
            return False
        if share.coupled is not None:
            jacobian = share.coupled.jacobian(w)
            coupled = jacobian if coupled is None else coupled + jacobian
    cone = problem.coupled_cone
    if coupled is not None and cone is not None and not _admits(Constraint(Affine(coupled), cone), coupled, ray):
        return False
    h = problem.regularizer.value(ray)
    straight = bool(np.all(np.abs(bend) <= ROUNDING * bends))
    change = float(slope @ ray) + h
    return straight and change < 0 and change <= -MARGIN * (float(terms @ np.abs(ray)) + h)


def _admits(constraint: Constraint, jacobian: Matrix, ray: Vector) -> bool:
    """Whether A r <=_K 0, up to rounding, in every block of the cone."""
    change = jacobian @ ray
    sizes = np.abs(jacobian) @ np.abs(ray)
    start = 0
    for block in constraint.cone.blocks:
        rows = slice(start, start + block.dim)
        start += block.dim
        if isinstance(block, Nonnegative):
            if np.any(change[rows] > ROUNDING * sizes[rows]):
                return False
        elif block.violation(change[rows]) > ROUNDING * float(np.max(sizes[rows])):
            return False
    return True
