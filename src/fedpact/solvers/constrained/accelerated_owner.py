"""The owner's half of accelerated consensus (`accelerated.py`): one proximal step a round, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from fedpact.federation import Order, Summed, client_step
from fedpact.problem import Share, add_slack, insert_slack
from fedpact.problem.units import rescale_columns
from fedpact.solvers.constrained.anderson import Part, mix_next
from fedpact.solvers.constrained.coupling import for_server
from fedpact.solvers.constrained.penalties import Plan, column_curvature, lagrangian_curvature
from fedpact.solvers.local.constrained import Proximal, Warm, constrained
from fedpact.solvers.scales import Introduce, introduce
from fedpact.solvers.steps import (
    Holder,
    Judged,
    Private,
    judged_terms,
    no_terms,
    point_of,
    price_of,
    returned_by,
    weight_of,
)
from fedpact.types import Vector

#: A tie is this many times the negative curvature that it makes up for,
ROOM = 1.5
#: and is lowered, by half at most, when it is more than this many times as large.
MOST_ROOM = 4.0
#: Ties tried in one round: another step may end where the curvature is more negative.
TRIES = 4
#: A tie below this part of the penalty is none.
LEAST_TIE = 0.01


@dataclass(frozen=True, kw_only=True)
class State(Holder):
    """What a holder keeps between rounds; `price` is mu_i."""

    z: Vector
    residual: Vector  # F_i
    pull: Vector  # rho_i (v - u): the gradient of f_i + mu_i' c_i at u
    penalty: float  # rho_i
    scale: float  # of its part of the coupled constraint
    slack: int  # entries of z behind w that are slacks
    warm: Warm
    drift: Vector  # P_{K*} of the last change of the multiplier
    curvature: float = 0.0  # of its Lagrangian, as last measured
    bound: bool = False  # did its constraint bind since rho_i was last set?
    tie: float = 0.0  # weight of |u - w|^2, which makes up for negative curvature
    columns: Vector = field(default_factory=lambda: np.zeros(0))  # units of z and u: columns * u is one of w
    steps: tuple[Vector, ...] = ()
    changes: tuple[Vector, ...] = ()

    def in_units(self, columns: Vector) -> Self:
        """The start in the units that the server chose: w = columns * z."""
        warm = replace(self.warm, u=self.warm.u / columns)
        return replace(self, z=self.z / columns, pull=columns * self.pull, warm=warm, columns=columns)

    @property
    def separator(self) -> tuple[Vector | None, Vector]:
        """The drifts of owners in conflict balance at their own u_i, which stay a fixed way from w."""
        u = self.columns * self.warm.u
        return u[: u.size - self.slack], self.drift


@dataclass(frozen=True, kw_only=True)
class Begin(Order):
    """Start at w."""

    w: Vector
    coupled: Vector
    scale: float  # of the coupled maps
    iteration: int
    warm: int  # iteration of another method whose price is mu_i at the start; -1: zero
    weighted: bool  # owners differ in r_i, and know theirs


@dataclass(frozen=True, kw_only=True)
class Begun(Judged):
    """Judged at the start; what rho and the first z are made of."""

    curvature: Summed[float]
    pull: Summed[Vector]  # grad f(w) + J'mu
    bends: Summed[Vector]  # diagonal of the objective's Hessian
    doubtful: Summed[float]  # 1 for those whose constraints are not known to be convex


@dataclass(frozen=True, kw_only=True)
class Round(Plan, Order):
    """Mix the next z, and take the proximal step around 2 w - z."""

    w: Vector
    columns: Vector  # units of z and u: columns * u is one of w; empty: all are one
    push: Vector  # of the slacks; empty without a coupled constraint
    mix: Vector  # gamma; empty for a plain step
    remember: int  # differences to keep, this round's included
    accuracy: float
    iteration: int
    best: bool  # the multiplier of the round before is the best so far
    judge: bool
    coupled: Vector


@dataclass(frozen=True, kw_only=True)
class Moved(Part, Judged):
    """The round of one holder, judged when asked."""

    moved: Summed[float]  # rho_i |change of u|^2
    turned: Summed[float]  # |change of the pull|^2 / rho_i
    weight: Summed[float]  # r_i
    looseness: Summed[float]  # 1 / r_i of those that hold a part of the coupled constraint
    curvature: Summed[float]  # of the Lagrangian, when it was measured
    bound: Summed[float]  # 1 for those whose constraint bound since rho_i was last set
    misfits: Summed[float]  # 1 for those whose rho_i is far from the curvature, when it was measured
    converged: bool
    indefinite: bool
    gradients: Summed[int]
    hessians: Summed[int]


#: What is added up over all holders, the server among them.
MIXED = (
    "residual",
    "squared",
    "products",
    "against",
    "stepped",
    "moved",
    "turned",
    "weight",
    "looseness",
    "curvature",
    "bound",
    "misfits",
)


@client_step
def begin(share: Share, state: Any, order: Begin) -> tuple[State, Begun]:
    """Look at the share, and start from z = w - (grad f(w) + J'mu) / rho once rho is known."""
    seen = introduce(share, None, Introduce(w=order.w))[1]
    own_w = point_of(share, state, order.w, order.warm)
    price = price_of(share, state, order.warm)
    with_slack = add_slack(share, order.w.size, order.scale)
    w = insert_slack(share, own_w, order.scale)
    multiplier = price
    if with_slack.slack:
        multiplier = np.concatenate([price, order.coupled / order.scale])
    gradient = np.zeros_like(w)
    if with_slack.objective is not None:
        gradient = with_slack.objective.gradient(w)
    if with_slack.constraint is not None and order.warm >= 0:
        gradient = gradient + with_slack.constraint.function.value_and_jacobian(w)[1].T @ multiplier
    tied = w.size - share.private
    gradient = np.append(gradient[:tied], np.zeros(share.private))  # private variables start at their z
    private = Private.of(share, own_w)
    fresh = State(
        iteration=order.iteration,
        price=price,
        best_iteration=order.warm,
        best_price=price,
        private=private,
        best_private=private,
        returned=returned_by(state),
        z=w,
        residual=np.zeros_like(w),
        pull=gradient,
        penalty=0.0,
        weight=weight_of(state, order.weighted),
        scale=order.scale,
        slack=with_slack.slack,
        warm=Warm(w, multiplier),
        drift=np.zeros_like(price),
        columns=np.ones_like(w),
    )
    terms = judged_terms(share, own_w, price, order.coupled)
    dim = order.w.size
    bends = column_curvature(share, own_w, dim)
    doubtful = float(not share.constraints_convex)
    return fresh, Begun(curvature=seen.curvature, pull=gradient[:dim], bends=bends, doubtful=doubtful, **terms)


@client_step
def advance(share: Share, state: State, order: Round) -> tuple[State, Moved]:
    """z as the server mixed it, the proximal step there, and what the server needs to mix the next one."""
    dim = order.w.size
    tied = dim + state.slack
    state = state.mark_best(order.best)
    posed = add_slack(share, dim, state.scale)
    columns = np.ones_like(state.z)
    if order.columns.size:
        columns[:dim] = order.columns
        posed = rescale_columns(posed, columns)
    weight = order.choose_weight(state.weight, state.curvature, state.bound)
    penalty = weight * order.penalty

    # 1. the next z; a new rho keeps lambda_i
    first = state.penalty == 0
    if first:
        state = state.in_units(columns)
    z = mix_next(state, order.mix)
    if first:
        z = state.z - state.pull / penalty
    slacks = z[dim:tied]
    if state.slack:
        slacks = slacks - order.push / (state.penalty or penalty)  # the push is a price, which a new rho keeps
    w = np.concatenate([order.w / columns[:dim], slacks, z[tied:]])  # of private variables nobody else has a copy
    if not first and penalty != state.penalty:
        z = w + state.penalty / penalty * (z - w)

    # 2. the proximal step under the constraint
    anchor = 2 * w - z
    # Errors of all holders then count alike in the norm of the iteration, which sums rho_i |z_i|^2.
    accuracy = np.sqrt(weight) * order.accuracy
    found, pull, tie = step_near(posed, state, penalty, anchor, w, accuracy)
    residual = found.u - w
    drift = found.drift[: share.multiplier_length]
    own_point = np.concatenate([order.w, found.u[tied:]])
    price = found.multiplier[: share.multiplier_length]
    if share.constraint is not None and found.converged:
        drift = share.constraint.cone.project_dual(price - state.price)

    # 3. differences for the acceleration
    steps: tuple[Vector, ...] = ()
    changes: tuple[Vector, ...] = ()
    if order.remember:
        steps = (*state.steps, z - state.z)[-order.remember :]
        changes = (*state.changes, residual - state.residual)[-order.remember :]

    curvature = 0.0
    if order.measure:
        curvature = lagrangian_curvature(posed, found.u, found.multiplier, dim)
    binds = bool(np.any(price))
    after = replace(
        state,
        curvature=curvature,
        bound=binds or (state.bound and not order.adjust),
        tie=tie,
        columns=columns,
        weight=weight,
        iteration=order.iteration,
        price=price,
        private=Private.of(share, own_point),
        z=z,
        residual=residual,
        pull=pull,
        penalty=penalty,
        warm=found.warm,
        drift=drift,
        steps=steps,
        changes=changes,
    )
    terms = no_terms()
    if order.judge:
        terms = judged_terms(share, own_point, price, order.coupled)
    return after, report_round(state, after, found, terms, order)


def step_near(
    posed: Share, state: State, penalty: float, anchor: Vector, w: Vector, accuracy: float
) -> tuple[Proximal, Vector, float]:
    """The proximal step, the gradient of the Lagrangian there, and the tie of the next one.

    A tie adds tie/2 |u - w|^2 to the step. It vanishes where u = w, so solutions stay what they are, and nobody else
    needs to know of it; where f_i + mu_i'c_i has negative curvature, the step has one solution with it, which moves
    little when the anchor does. A penalty as large would make the whole consensus stiff.
    """
    tie = state.tie
    warm = state.warm
    for _ in range(TRIES):
        weight = penalty + tie
        center = (penalty * anchor + tie * w) / weight
        found = constrained(posed, weight, center, warm, accuracy)
        pull = weight * (center - found.u)
        if found.dip <= tie:
            break
        tie = ROOM * found.dip
        warm = found.warm
    if found.dip < tie / MOST_ROOM:
        tie = max(ROOM * found.dip, tie / 2)
    if tie < LEAST_TIE * penalty:
        tie = 0.0
    return found, pull, tie


def report_round(before: State, after: State, found: Proximal, terms: dict[str, Any], order: Round) -> Moved:
    """What the server needs of a holder's round to mix the next z and to choose rho.

    Norms and products are of w and the slacks alone: beside the vector F_i they would tell how far v_i went. They are
    weighed by r_i, since the iteration is nonexpansive in the norm that sums rho_i |z_i|^2.
    """
    dim = order.w.size
    tied = dim + after.slack
    r = after.weight
    residual = after.residual[:tied]
    changes = [change[:tied] for change in after.changes]
    stepped = 0.0
    if after.steps:
        step = after.steps[-1][:tied]
        stepped = r * float(step @ step)
    moved = 0.0
    turned = 0.0
    if before.penalty != 0:  # not in the first round
        moved = after.penalty * float(np.sum((found.u - before.warm.u)[:dim] ** 2))
        turned = float(np.sum((after.pull - before.pull)[:dim] ** 2)) / after.penalty
    return Moved(
        residual=for_server(residual, dim, order.push.size, r),
        squared=r * float(residual @ residual),
        products=np.array([r * float(changes[-1] @ change) for change in changes]),
        against=np.array([r * float(change @ residual) for change in changes]),
        stepped=stepped,
        moved=moved,
        turned=turned,
        weight=r,
        looseness=1 / r if after.slack else 0.0,
        curvature=after.curvature,
        bound=float(after.bound),
        misfits=float(order.measure and order.is_misfit(after.penalty, after.curvature, after.bound)),
        converged=found.converged,
        indefinite=after.tie > 0,
        gradients=found.gradients,
        hessians=found.hessians,
        **terms,
    )
