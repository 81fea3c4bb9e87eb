"""Proof that no point meets all constraints, checked from the problem alone, whatever proposed it.

Proposed are weights v in the dual cones and a point w. For convex constraints and every u

    <v, c(u)>  >=  value + <g, u - w>,       value = <v, c(w)>,   g = J(w)'v,

while <v, c(u)> <= 0 wherever u is feasible. So value > 0 and g = 0 exclude every u (Farkas). In floating point g is
never quite zero, and how small is small must not depend on the units of a row, a column or the objective. Therefore
every entry of g is compared with what cancels in it, and the value with the terms of the constraints at w:

    spread_j = sum_k |v_k J_kj|,        size = sum_k |v_k| (|c_k - J_k w| + sum_j |J_kj w_j|).

The largest |g_j| / spread_j is the smallest relative change of the entries of J that makes g vanish (Oettli and Prager
1964). Called eps, a feasible u all the same has sum_j spread_j |u_j - w_j| >= value / eps. It counts as proved that
there is none when this is a million times the size: the terms of a feasible point would be that much larger than all
terms at w. A curved constraint has no slope at all where it is smallest; so sqrt(bend_j size) is added to spread_j, the
slope at a distance over which it gains `size`.

A point that misses its constraints by no more than the tolerance counts as feasible. So the value must be more than
what the weights make of such a miss, tol sum_k |v_k|: where constraints only touch zero, it is rounding of c(w).

The work is cut where the federation is cut, as for the certificate: `owner_evidence` runs where the data is, `conflict`
reads sums at the server, and `prove_infeasible` does both in one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedpact.functions import Map
from fedpact.problem.certificate import check_multipliers
from fedpact.problem.coupled import expose
from fedpact.problem.faces import reduce_faces
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Share
from fedpact.prox import Prox
from fedpact.types import Matrix, Vector

#: A feasible point would need terms 1 / SMALL times as large as those at w. Slopes in single precision pass it.
SMALL = 1e-6
#: Added to the relative change of J, so that the value is at least ROUNDING / SMALL of the size: less may be rounding.
ROUNDING = 1e-12
#: A holder is named when it has at least this part of the size of the largest.
NAMED = 0.01
#: Curvature below this part of the largest, with the other sign, is rounding.
FLAT = 1e-9
#: Where nothing cancels there is nothing to divide by.
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Proof:
    """Weights of all holders, [server, client 1, ...] and coupled, and the point w at which they balance.

    on_faces: the weights are of the dual cones of the faces that `problem/faces.py` finds, and prove it there
    """

    w: Vector
    weights: tuple[Vector, ...]
    coupled: Vector
    on_faces: bool = False

    def check(self, problem: FederatedProblem, tol: float = 0.0) -> tuple[str, ...]:
        """The holders whose constraints exclude each other, recomputed from the problem alone; empty: no proof.

        tol: by how much a point may miss constraints and still meet them
        """
        if not self.on_faces:
            return prove_infeasible(problem, self.w, self.weights, self.coupled, tol)
        reduced = reduce_faces(problem, self.w.size)
        if reduced is None:
            return ()
        return prove_infeasible(reduced.problem, self.w, reduced.gather(self.weights), self.coupled, tol)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What one holder of constraints adds to a proof; all but `concave` is summed."""

    value: float  # <v, c(w)>
    gradient: Vector  # J'v
    spread: Vector  # sum_k |v_k J_kj|
    bend: Vector  # diagonal of sum_k v_k hess c_k; zero where there is no Hessian
    size: float  # sum_k |v_k| (|c_k - J_k w| + sum_j |J_kj w_j|)
    weight: float  # sum_k |v_k|
    concave: bool  # weighted like this, the constraint bends down: it proves nothing about points elsewhere


def owner_evidence(share: Share, w: Vector, weights: Vector, tangent: Vector | None = None) -> Evidence:
    """The evidence of one share at w; weights are projected onto the dual cone, block by block.

    tangent: where the constraint is linearized, w when None. For convex constraints any point will do.
    """
    if share.constraint is None:
        return row_evidence(np.zeros(0), np.zeros((0, w.size)), w, np.zeros(0))
    function = share.constraint.function
    at = w if tangent is None else tangent
    value, jacobian = function.value_and_jacobian(at)
    projected = share.constraint.cone.project_dual(weights)
    bend, concave = bending(function, share.constraint.convex, at, projected)
    return row_evidence(value + jacobian @ (w - at), jacobian, w, projected, bend, concave)


def row_evidence(
    value: Vector, jacobian: Matrix, w: Vector, weights: Vector, bend: Vector | None = None, concave: bool = False
) -> Evidence:
    """The evidence of rows with these values and slopes at w, and weights in their dual cone.

    bend, concave: as in Evidence; no curvature by default
    """
    terms = np.abs(value - jacobian @ w) + np.abs(jacobian) @ np.abs(w)
    sizes = np.abs(weights)
    if bend is None:
        bend = np.zeros_like(w)
    return Evidence(
        value=float(weights @ value),
        gradient=jacobian.T @ weights,
        spread=np.abs(jacobian).T @ sizes,
        bend=bend,
        size=float(sizes @ terms),
        weight=float(np.sum(sizes)),
        concave=concave,
    )


def bending(function: Map, convex: bool, w: Vector, weights: Vector) -> tuple[Vector, bool]:
    """Diagonal of the Hessian of <weights, c> at w, and whether it has negative curvature.

    convex: the constraint is known to be convex, and has none anywhere.
    """
    if function.affine or not function.has_hessian:
        return np.zeros_like(w), False
    hessian = function.weighted_hessian(w, weights)
    if not np.all(np.isfinite(hessian)):  # it says nothing, so nothing is proved
        return np.zeros_like(w), True
    diagonal = np.abs(np.diagonal(hessian))
    if convex:
        return diagonal, False
    curvatures = np.linalg.eigvalsh(hessian)
    return diagonal, bool(curvatures[0] < -FLAT * max(curvatures[-1], -curvatures[0]))


def add(evidence: Sequence[Evidence]) -> Evidence:
    """The evidence of several holders as that of one."""
    return Evidence(
        value=sum(e.value for e in evidence),
        gradient=np.sum([e.gradient for e in evidence], axis=0),
        spread=np.sum([e.spread for e in evidence], axis=0),
        bend=np.sum([e.bend for e in evidence], axis=0),
        size=sum(e.size for e in evidence),
        weight=sum(e.weight for e in evidence),
        concave=any(e.concave for e in evidence),
    )


def gap(regularizer: Prox, w: Vector, total: Evidence, tol: float = 0.0) -> float:
    """How far the evidence of all holders together is from a proof, which has at most SMALL.

    The relative change of J that makes g vanish, rounding included, over the part of `size` that `value` is; the better
    of what holds in the whole space and in dom(h).
    """
    everywhere = (0.0, np.abs(total.gradient))
    inside = regularizer.descent(total.gradient, w)
    scale = total.spread + np.sqrt(total.bend * total.size)
    smallest = np.inf
    for fall, free in (everywhere, inside):
        left = total.value - fall - tol * total.weight
        if left <= 0:
            continue
        counts = free > 0
        uncancelled = float(np.max(free[counts] / np.maximum(scale[counts], TINY), initial=0.0))
        smallest = min(smallest, (uncancelled + ROUNDING) * total.size / left)
    return smallest


def conflict(
    regularizer: Prox, w: Vector, total: Evidence, sizes: Mapping[str, float], tol: float = 0.0
) -> tuple[str, ...]:
    """The holders whose constraints exclude each other; empty when nothing is proved.

    total: the evidence of all holders; sizes: that of each, by name; tol: as in `Proof.check`
    """
    if total.concave or gap(regularizer, w, total, tol) > SMALL:
        return ()
    least = NAMED * max(sizes.values())
    return tuple(name for name, size in sizes.items() if size >= least)


def prove_infeasible(
    problem: FederatedProblem,
    w: ArrayLike,
    weights: Sequence[ArrayLike | None],
    coupled_weights: ArrayLike | None = None,
    tol: float = 0.0,
) -> tuple[str, ...]:
    """The holders whose constraints exclude each other, by these weights = [server, client 1, ...]; empty: no proof.

    It is a proof for convex constraints. Private variables, which have to balance at every owner, follow w in owner
    order; without them nothing is proved. Raises ProblemError when lengths do not fit, as `certify` does.
    """
    if problem.private:
        point = np.asarray(w, dtype=np.float64)
        dim = point.size - sum(share.private for share in problem.shares)
        if problem.coupled_length or dim < 1 or dim != problem.dim:
            return ()
        problem = expose(problem, dim)
    point, each, coupled = check_multipliers(problem, w, weights, coupled_weights)
    pairs = zip(problem.holders, each, strict=True)
    found = {holder.label: owner_evidence(holder, point, weight) for holder, weight in pairs}
    if problem.coupled_cone is not None:
        found["coupled"] = _coupled_evidence(problem, point, problem.coupled_cone.project_dual(coupled))
    sizes = {name: evidence.size for name, evidence in found.items()}
    return conflict(problem.regularizer, point, add(list(found.values())), sizes, tol)


def _coupled_evidence(problem: FederatedProblem, w: Vector, weights: Vector) -> Evidence:
    """The evidence of the coupled constraint by weights of its dual cone: its value is the sum of all owners' parts."""
    parts = [share for share in problem.shares if share.coupled is not None]
    maps = [share.coupled for share in parts if share.coupled is not None]
    bends = [coupled_bending(share, w, weights) for share in parts]
    return row_evidence(
        np.sum([part.value(w) for part in maps], axis=0),
        np.sum([part.jacobian(w) for part in maps], axis=0),
        w,
        weights,
        np.sum([bend for bend, _ in bends], axis=0),
        any(concave for _, concave in bends),
    )


def coupled_bending(share: Share, w: Vector, weights: Vector) -> tuple[Vector, bool]:
    """`bending` of the share's part of the coupled constraint; none where it has no part."""
    if share.coupled is None:
        return np.zeros_like(w), False
    return bending(share.coupled, share.coupled_convex, w, weights)


def coupled_evidence(share: Share, w: Vector, weights: Vector, tangent: Vector | None = None) -> Evidence:
    """The evidence of one share's part of the coupled constraint, by weights of its dual cone that all owners share.

    tangent: as in `owner_evidence`
    """
    if share.coupled is None:
        return row_evidence(np.zeros(0), np.zeros((0, w.size)), w, np.zeros(0))
    at = w if tangent is None else tangent
    value, jacobian = share.coupled.value_and_jacobian(at)
    bend, concave = coupled_bending(share, at, weights)
    return row_evidence(value + jacobian @ (w - at), jacobian, w, weights, bend, concave)
