"""Proof that an objective falls without end: a direction that every constraint admits and along which it only falls.

Along a ray w + t r a convex objective has slopes that never decrease with t. So where

    <grad f(w), r> + (h(far) - h(w)) / t  <  0,      <grad f(far), r> + (h(far) - h(w)) / t  <=  0,      far = w + t r,

and the far point is feasible, it falls from w to far, and t is so large (`REACH`) that no double tells it from
infinity: the slope there is that of the recession function. What must vanish there is compared with slopes as far out
in another direction, so units of rows and columns do not matter. The work is cut where the federation is cut, as for
the certificate: `holder_terms` runs where the data is, `judge_ray` reads sums.

For quadratic objectives with sum H, affine constraints with slopes A_i, and a positively homogeneous h, a ray with

    <g, r> + h(r) < 0,      H r = 0,      A_i r <=_K 0 for every holder,

leads from any feasible point to feasible points of any objective, however low. `RayProblem` looks for the steepest of
them. `check_ray` judges any ray of any problem.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedpact.cones import Cone, Nonnegative
from fedpact.functions import Affine, Quadratic
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Constraint, Share, combine
from fedpact.prox import L1, GroupL2, Prox, Zero
from fedpact.types import Matrix, Vector

#: How much more bending counts than falling, so that a ray does not bend.
STIFF = 1e8
#: What must vanish may be this part of its terms: rounding.
ROUNDING = 1e-9
#: The fall must be this part of the terms of the slope.
MARGIN = 1e-6
#: So many times farther out than the point itself a function has the slope that it keeps.
REACH = 1e16
#: The same for private variables alone.
ALONE = 1e20
#: What must vanish at the far point may be this part of what does not vanish beside the ray.
FLAT = 1e-12
#: A ray with less than this part may be near one that is none yet only by rounding of its direction.
NEARLY = 1e-2
#: Slopes far out beyond this are those of functions that overflow, which say nothing of how near to a ray a way is:
#: then one may be that was at least this part of the size of w.
STEEPEST = 1e20
LATE = 1e-2
#: Where the slope far out is zero, the fall at a certified point must be this part of the terms of the slope, more
#: than rounding,
STRICT = 1e-13
#: and, as far before the point as the point is large, this part of the slopes far out beside the ray: what does not
#: fall has slopes of rounding there.
STEEP = 1e-9
#: What is not finite counts as this much.
HUGE = 1e300


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

    From a feasible point of a convex problem this is a proof.
    """
    if not np.all(np.isfinite(ray)) or not np.any(ray):
        return False
    return (has_rays(problem) and _is_straight(problem, w, ray)) or _falls(problem, w, ray)


def _falls(problem: FederatedProblem, w: Vector, ray: Vector) -> bool:
    """Whether it does by its slopes at w and far out."""
    if not problem.convex or problem.private:
        return False
    reach = reach_of(w, ray)
    terms = [holder_terms(share, w, ray, problem.coupled_length, reach) for share in problem.holders]
    return judge_ray(add_rays(terms), problem.regularizer, problem.coupled_cone, w, ray) == 0


def _is_straight(problem: FederatedProblem, w: Vector, ray: Vector) -> bool:
    """The same for quadratic objectives and affine constraints, by their matrices."""
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


# ---------------------------------------------------------------------------------------------------- slopes far out


@dataclass(frozen=True, kw_only=True)
class RayTerms:
    """What one holder adds to the check of a ray r: the slopes along it at w and far out.

    back_slope: that before w, as far as w is large
    terms, far_terms: sum_j |r_j| times the size of the gradient's entries at w, and as far out beside the ray
    far_violation: by how much the holder's constraint is missed far out, beyond rounding
    far_coupled, side_coupled: its part of the coupled constraint far out, along the ray and beside it
    """

    slope: float
    terms: float
    back_slope: float
    far_slope: float
    far_terms: float
    far_objective: float
    far_violation: float
    far_coupled: Vector
    side_coupled: Vector


def reach_of(w: Vector, ray: Vector) -> float:
    """How many times the ray is walked. Where it is zero, private variables go alone, and leave no digit of theirs."""
    longest = float(np.max(np.abs(ray), initial=0.0))
    if longest == 0:
        return ALONE
    return REACH * max(1.0, float(np.max(np.abs(w), initial=0.0))) / longest


def recede(regularizer: Prox, w: Vector, ray: Vector) -> Vector:
    """What is left of the ray where a curved h, or the set that h allows, ends it."""
    if regularizer.curvature is not None:
        return np.where(np.broadcast_to(regularizer.curvature, ray.shape) > 0, 0.0, ray)
    if not regularizer.indicator:
        return ray
    reach = reach_of(w, ray)
    left = (regularizer.prox(w + reach * ray, 1.0) - w) / reach
    longest = float(np.max(np.abs(ray), initial=0.0))
    return np.where(np.abs(left) > 1e-9 * longest, left, 0.0)


def aside(ray: Vector) -> Vector:
    """The ray with signs turned in turns, the largest entry first: a direction that nothing makes flat."""
    signs = np.ones_like(ray)
    signs[np.argsort(-np.abs(ray), kind="stable")[::2]] = -1.0
    return np.asarray(signs * ray)


@np.errstate(all="ignore")
def holder_terms(share: Share, w: Vector, ray: Vector, coupled_length: int, reach: float) -> RayTerms:
    """The terms of one share; private variables follow w, and those of the ray the ray."""
    far = w + reach * ray
    beside = w + reach * aside(ray)
    slope = terms = back_slope = far_slope = far_terms = far_objective = far_violation = 0.0
    coupled = side = np.zeros(coupled_length)
    if share.objective is not None:
        gradient = share.objective.gradient(w)
        slope = float(gradient @ ray)
        terms = float(np.abs(gradient) @ np.abs(ray))
        back_slope = float(share.objective.gradient(w - reach / REACH * ray) @ ray)
        far_objective, gradient = share.objective.value_and_gradient(far)
        far_slope = float(gradient @ ray)
        far_terms = float(np.abs(share.objective.gradient(beside)) @ np.abs(ray))
        if not math.isfinite(far_terms):
            far_terms = terms + abs(back_slope)
    if share.constraint is not None:
        function = share.constraint.function
        far_violation = miss_afar(share.constraint.cone, function.value(far), function.value(beside))
    if share.coupled is not None:
        coupled = share.coupled.value(far)
        side = share.coupled.value(beside)
    return RayTerms(
        slope=finite(slope, HUGE),
        terms=finite(terms, HUGE),
        back_slope=finite(back_slope, HUGE),
        far_slope=finite(far_slope, HUGE),
        far_terms=finite(far_terms, 0.0),
        far_objective=finite(far_objective, HUGE),
        far_violation=finite(far_violation, HUGE),
        far_coupled=np.nan_to_num(coupled, nan=HUGE, posinf=HUGE, neginf=-HUGE),
        side_coupled=np.nan_to_num(side, nan=0.0, posinf=HUGE, neginf=-HUGE),
    )


def finite(value: float, instead: float) -> float:
    """The number; what stands for NaN, and for infinity with its sign, where it is none."""
    return float(np.nan_to_num(value, nan=instead, posinf=instead, neginf=-instead))


def miss_afar(cone: Cone, value: Vector, beside: Vector) -> float:
    """By how much this value far out misses -K, beyond the rounding of one as far out beside the ray."""
    if not np.all(np.isfinite(value)):
        return math.inf
    worst = 0.0
    sizes = np.nan_to_num(np.abs(beside), nan=0.0)
    start = 0
    for block in cone.blocks:
        rows = slice(start, start + block.dim)
        start += block.dim
        if isinstance(block, Nonnegative):
            left = float(np.max(value[rows] - FLAT * sizes[rows], initial=0.0))
        else:
            left = block.violation(value[rows]) - FLAT * float(np.max(sizes[rows], initial=0.0))
        worst = max(worst, left)
    return worst


def add_rays(terms: Sequence[RayTerms]) -> RayTerms:
    """Of several holders as of one."""
    return RayTerms(
        slope=sum(t.slope for t in terms),
        terms=sum(t.terms for t in terms),
        back_slope=sum(t.back_slope for t in terms),
        far_slope=sum(t.far_slope for t in terms),
        far_terms=sum(t.far_terms for t in terms),
        far_objective=sum(t.far_objective for t in terms),
        far_violation=max(t.far_violation for t in terms),
        far_coupled=np.sum([t.far_coupled for t in terms], axis=0),
        side_coupled=np.sum([t.side_coupled for t in terms], axis=0),
    )


def judge_ray(
    total: RayTerms,
    regularizer: Prox,
    coupled_cone: Cone | None,
    w: Vector,
    ray: Vector,
    tol: float = 0.0,
    certified: bool = True,
    convex: bool = True,
) -> float:
    """How far the ray is from one along which everything falls forever: 0 where it is one, else above; inf: no ray.

    total: of all holders
    tol: by how much constraints may be missed
    certified: w meets a certificate, which is overruled only where the fall is beyond the rounding of the gradient
    convex: whether all functions are
    """
    missed = total.far_violation
    if coupled_cone is not None:
        missed = max(missed, miss_afar(coupled_cone, total.far_coupled, total.side_coupled))
    reach = reach_of(w, ray)
    with np.errstate(all="ignore"):
        risen = regularizer.value(w + reach * ray) - regularizer.value(w)
    if missed > tol or not math.isfinite(risen):
        return math.inf
    if convex and total.far_slope < total.slope - MARGIN * (total.terms + total.far_terms):
        return math.inf  # slopes of a convex function do not decrease: these are rounded away, far out
    growth = risen / reach
    rise = total.far_slope + growth
    scale = total.far_terms + abs(growth)
    if rise >= STEEPEST:
        return NEARLY if np.max(np.abs(ray), initial=0.0) >= LATE * np.max(np.abs(w), initial=0.0) else math.inf
    if scale <= 0 or rise > NEARLY * scale:
        return math.inf
    if rise > FLAT * scale:
        return rise / scale
    if rise < -MARGIN * scale:  # it falls at this rate at least, however far out
        return 0.0
    part = STRICT if certified else MARGIN
    falls = total.slope + growth < 0 and -total.slope - growth >= part * (total.terms + abs(growth))
    steep = not certified or -total.back_slope - growth >= STEEP * scale
    return 0.0 if falls and steep else math.inf


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
