"""Ends that are not a solution, decided by evidence and not by patience.

Infeasible: a weighted sum of convex constraints that stays positive.
Unbounded: a ray that all constraints admit and along which the objective falls forever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpact.federation import Answers, Largest, Order, Reply, Summed, client_step
from fedpact.problem import Certificate, Evidence, Share, conflict, coupled_evidence, owner_evidence
from fedpact.problem.infeasibility import add
from fedpact.problem.ray import NEARLY, recede
from fedpact.solvers.run import Run, Verdict
from fedpact.solvers.steps import MOST, At, Holder, Ray, bend, judge_afar, probe
from fedpact.types import Matrix, Vector

UNBOUNDED = (
    "the objective keeps falling without end and stays feasible: it has no minimiser (separable data without a "
    "regularizer does this); add one, for example regularizer=fp.prox.SquaredL2(1e-3), or bound w with fp.prox.Box"
)
ASTRAY = (
    "around the best point found the constraints of {} exclude each other: it misses them by {:.3g}. They may not be "
    "convex, so that a point elsewhere may meet them: give another start w0, or loosen a bound"
)
INFEASIBLE = (
    "the constraints of {} exclude each other: the best point found misses them by {:.3g}, and (for convex constraints "
    "this is a proof) no point of any size that doubles can tell apart meets them all; loosen at least one bound"
)

# ------------------------------------------------------------------------------------------------------------ unbounded


#: How far out, in margins, an objective is looked at for directions that it is not bent in, and what counts as bent.
FLATTER = ((0.0, 1e-2), (10.0, 1e-3), (100.0, 1e-6), (1000.0, 1e-10))
#: Exchanges of that, and of a look along the ray that is found.
LOOKS = len(FLATTER) + 2
#: A matrix of more variables is not asked for this.
MOST_VARIABLES = 500


def find_ray(
    run: Run, w: Vector, certificate: Certificate, objective: float, ray: Vector | None = None
) -> Vector | None:
    """A ray from w along which the objective falls forever; None where none is found.

    ray: one that was looked along and is nearly one; otherwise two are tried: from the start to w, and the last way
    """
    if ray is not None:
        return _straighten(run, w, certificate, objective, ray)
    for way in (recede(run.problem.regularizer, w, w - run.w0), run.way(w)):
        if run.rounds_left <= 1:
            return None
        far = _look(run, w, way, certificate, objective)
        if far == 0:
            return way
        if far <= NEARLY and (found := _straighten(run, w, certificate, objective, way)) is not None:
            return found
    return None


def _look(run: Run, w: Vector, ray: Vector, certificate: Certificate, objective: float) -> float:
    """One exchange: how far from a ray along which the objective falls forever."""
    asked = run.problem.own(w, np.zeros(run.problem.server.multiplier_length))[0]
    order = Ray(w=w, coupled_length=asked.coupled_length, ray=ray)
    return judge_afar(run, w, ray, run.ask(probe, order), certificate, objective)


def _straighten(run: Run, w: Vector, certificate: Certificate, objective: float, ray: Vector) -> Vector | None:
    """What is left of the ray without directions in which the objective is bent however far out one looks.

    Rows that are tied by the ray stay bent, and those that it separates do not. A few exchanges.
    """
    problem = run.problem
    plain = problem.convex and problem.has_hessian and not problem.private and problem.own(w, np.zeros(0))[0] is problem
    if not plain or w.size > MOST_VARIABLES or run.rounds_left <= LOOKS:
        return None
    first = _bends(run, run.w0)
    diagonal = np.diagonal(first)
    units = 1 / np.sqrt(np.where(diagonal > 0, diagonal, np.max(diagonal, initial=1.0)))
    for far, least in FLATTER:
        margin = np.sqrt(max(float(ray @ first @ ray), 0.0))
        if margin == 0:
            break
        bends = _bends(run, w + far / margin * ray)
        values, vectors = np.linalg.eigh(bends * np.outer(units, units))
        flat = vectors[:, values <= least]
        ray = units * (flat @ (flat.T @ (ray / units)))
        ray = np.where(np.abs(ray / units) > 1e-14 * np.max(np.abs(ray / units), initial=0.0), ray, 0.0)
    ray = recede(problem.regularizer, w, ray)
    if not np.any(ray) or _look(run, w, ray, certificate, objective) > 0:
        return None
    return ray


def _bends(run: Run, w: Vector) -> Matrix:
    """One exchange: the Hessian of all objectives; that of the server's own is added."""
    found = run.ask(bend, At(w=w)).total.hessian
    if run.problem.server.objective is not None:
        found = found + run.problem.server.objective.hessian(w)
    return found


# ----------------------------------------------------------------------------------------------------------- infeasible


@dataclass(frozen=True, kw_only=True)
class Weighed(Reply):
    """The fields of `Evidence`, on their way to the server; part: the size again, by which an owner is named."""

    value: Summed[float]
    gradient: Summed[Vector]
    spread: Summed[Vector]
    bend: Summed[Vector]
    size: Summed[float]
    weight: Summed[float]
    part: Largest[float]
    concave: bool


@dataclass(frozen=True, kw_only=True)
class Weigh(Order):
    """Give the evidence at w; coupled: the server's weights of the coupled constraint, empty where there are none."""

    w: Vector
    coupled: Vector


@dataclass(frozen=True, kw_only=True)
class WeighedParts(Weighed):
    """The sums include the owner's part of the coupled constraint; coupled: the size of that alone."""

    coupled: Summed[float]


@client_step
def weigh(share: Share, state: Any, order: Weigh) -> tuple[Any, WeighedParts]:
    """The owner's evidence, by the weights that its method holds and the server's of the coupled constraint."""
    point, own = held_evidence(share, state, order.w)
    found = own
    coupled = 0.0
    if share.coupled is not None and order.coupled.size:
        part = sendable(coupled_evidence(share, order.w, order.coupled, point))
        found = add([own, part])
        coupled = part.size
    return state, WeighedParts(part=own.size, coupled=coupled, **vars(found))


def held_evidence(share: Share, state: Any, w: Vector) -> tuple[Vector | None, Evidence]:
    """Where constraints are linearized (None: at w), and the evidence at w by the weights that the owner holds.

    There is none in a method without weights.
    """
    point = None
    weights = np.zeros(share.multiplier_length)
    if isinstance(state, Holder):
        point, weights = state.separator
    return point, sendable(owner_evidence(share, w, weights, point))


@dataclass(frozen=True, kw_only=True)
class Named(Reply):
    """size: of an owner's evidence, told when there is a proof of conflict, to name whose constraints it rests on."""

    size: float


@client_step
def name_part(share: Share, state: Any, order: At) -> tuple[Any, Named]:
    """How large this owner's part of the proof is."""
    return state, Named(size=held_evidence(share, state, order.w)[1].size)


def sendable(found: Evidence) -> Evidence:
    """Evidence that is not finite, or too large to be added up, proves nothing, and its size says so."""
    largest = max(
        found.size, found.weight, float(np.max(found.spread, initial=0.0)), float(np.max(found.bend, initial=0.0))
    )
    if np.isfinite(found.value) and largest < MOST:
        return found
    nothing = np.zeros_like(found.gradient)
    return Evidence(
        value=0.0, gradient=nothing, spread=nothing, bend=nothing, size=MOST, weight=MOST, concave=found.concave
    )


@dataclass(frozen=True)
class Pull:
    """The weighted constraints of all holders together, and the size of each by its name.

    hidden: the owners' sizes are not among these, since sums are secure
    """

    total: Evidence
    sizes: dict[str, float]
    hidden: bool

    def conflict(self, run: Run, w: Vector) -> tuple[str, ...]:
        """Who excludes each other; empty when that is not proved. Where sizes are hidden a proof costs an exchange."""
        regularizer = run.problem.regularizer
        found = conflict(regularizer, w, self.total, self.sizes, run.tol[1])
        if not found or not self.hidden:
            return found
        if run.rounds_left <= 1:
            return run.problem.names  # one of them, or more: nobody can be asked any more
        replies = run.ask(name_part, At(w=w))
        told = {name: reply.size for name, reply in zip(run.problem.names, replies, strict=True)}
        return conflict(regularizer, w, self.total, {**self.sizes, **told}, run.tol[1])


def pull(own: Mapping[str, Evidence], names: Sequence[str], owners: Answers[Any]) -> Pull:
    """The evidence of holders in this process, and of the owners, whose replies are Weighed, added up."""
    sizes = {name: found.size for name, found in own.items()}
    hidden = any(reply.part is None for reply in owners)
    if not hidden:
        sizes |= {name: reply.part for name, reply in zip(names, owners, strict=True)}
    total = owners.total
    together = Evidence(
        value=total.value,
        gradient=total.gradient,
        spread=total.spread,
        bend=total.bend,
        size=total.size,
        weight=total.weight,
        concave=any(reply.concave for reply in owners),
    )
    return Pull(add([*own.values(), together]), sizes, hidden)


def weigh_all(run: Run, w: Vector, server_point: Vector | None, server_weights: Vector) -> tuple[str, ...]:
    """One exchange: the holders whose constraints exclude each other, by the weights they hold; empty: no proof."""
    server = run.problem.server
    weights, coupled = np.split(server_weights, [server.multiplier_length])
    if run.problem.coupled_cone is not None and coupled.size:
        coupled = run.problem.coupled_cone.project_dual(coupled)
    own = {server.label: owner_evidence(server, w, weights, server_point)}
    replies = run.ask(weigh, Weigh(w=w, coupled=coupled))
    found = pull(own, run.problem.names, replies)
    if coupled.size:
        found.sizes["coupled"] = replies.total.coupled
    return found.conflict(run, w)


def infeasible(names: tuple[str, ...], certificate: Certificate) -> Verdict:
    """The verdict that the constraints of these holders exclude each other."""
    return Verdict("infeasible", INFEASIBLE.format(", ".join(names), certificate.violation), names)
