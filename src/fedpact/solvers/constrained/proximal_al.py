"""Proximal augmented Lagrangian method for federated learning with constraints: Algorithm 1 of He24 and He24-conic.

Every outer iteration k minimises, by the inexact ADMM of `inexact_admm.py`,

    l_k(w) = sum_{i=0..n} P_{i,k}(w) + h(w),
    P_{i,k}(w) = f_i(w) + (dist^2(mu_i^k + beta c_i(w), -K_i) - |mu_i^k|^2) / (2 beta) + |w - w^k|^2 / (2 (n+1) beta)

and then every holder of a constraint updates its own multiplier, mu_i^{k+1} = P_{K_i*}(mu_i^k + beta c_i(w^{k+1})).
Multipliers stay at their owners until the end. (He24-conic prints mu_i^0 in K_i; it must be K_i*.)

An owner's private variables v_i are variables of its P_{i,k} alone. The paper's proximal term in all variables,
|(w, v_1, ..., v_n) - (w^k, v_1^k, ..., v_n^k)|^2 / (2 beta), is a sum in which every holder has its part of w's, and an
owner all of its own v_i's, with weight 1 / beta: so Algorithm 1 and its theory hold as they are. The same is true of an
owner's slacks s_i of a coupled constraint, He24 (3)-(4): the server's part of l_k has their sum alone (`coupling.py`).

Notation (He24-conic numbering)
    beta    penalty of the constraints, and 1 / weight of the proximal term    penalty
    rho_i   penalty of the consensus inside Algorithm 2                        consensus_penalty
    nu      multiplier of the coupled constraint sum_i s_i <=_K 0              Server.coupled
    q       decay of the subproblems' accuracies inside Algorithm 2            inner_decay
    s       tau_k = s / (k+1)^2, accuracy of the outer subproblems             accuracy

differs from He24, unless the consensus penalty is given: an owner updates its multiplier at its own copy u_i of
w^{k+1}, which is as near to the constraint as the subproblem wants it. mu_i^k + beta c_i(w) is off by beta times what
w and u_i still differ by, so w would have to be beta times as accurate. And Algorithm 2 goes on from the copies that it
ended with (`inexact_admm.resume`).

differs from He24 (8), which stops when w and the multipliers hardly move: by Theorem 3.1 that implies the certificate,
and the certificate itself is checked after every outer iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedpact.federation import Largest, Order, Summed, client_step, skippable
from fedpact.functions import Function
from fedpact.problem import Share, add_slack, insert_slack
from fedpact.solvers.base import Needs, Solver, option
from fedpact.solvers.consensus.rounds import PARTICIPATION
from fedpact.solvers.constrained import inexact_admm as admm
from fedpact.solvers.constrained.augmented_lagrangian import augmented_lagrangian
from fedpact.solvers.constrained.coupling import Coupling, divide_penalty, for_server
from fedpact.solvers.constrained.proximal_al_pace import Pace, default_accuracy, default_gap, outer_accuracy
from fedpact.solvers.local import anchored
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.scales import default_consensus_penalty, default_penalty, look
from fedpact.solvers.steps import (
    Holder,
    Judged,
    Private,
    certificate_of,
    first_prices,
    judged_terms,
    point_of,
    price_of,
    returned_by,
    weight_of,
)
from fedpact.types import Vector

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True, kw_only=True)
class State(Holder):
    """What an owner keeps between rounds; `price` is mu_i^k."""

    centre: Vector  # w^k, and s_i^k and v_i^k behind it
    multiplier: Vector  # mu_i^k, and that of the slacks' rows behind it
    scale: float  # of its part of the coupled constraint
    penalty: float
    holders: int  # n + 1
    drift: Vector  # P_{K*}(mu_i^k - mu_i^{k-1}): where the multiplier is heading
    consensus: admm.Consensus

    @property
    def separator(self) -> tuple[Vector | None, Vector]:
        """With conflicting constraints the drift tends to a vector that proves the conflict."""
        return None, self.drift


@dataclass(frozen=True, kw_only=True)
class Start(Order):
    """Set up the first subproblem around w^0."""

    w: Vector
    penalty: float
    consensus_penalty: float
    holders: int
    coupled: Vector
    coupled_length: int  # rows of the coupled constraint whose slacks owners have; 0: none
    scale: float  # of the coupled maps
    iteration: int
    warm: int  # iteration of another method whose price is mu_i^0; -1: zero
    weighted: bool  # owners differ in r_i, and know theirs


@dataclass(frozen=True, kw_only=True)
class Started(Judged):
    proposal: Summed[Vector]


@dataclass(frozen=True, kw_only=True)
class Conclude(Order):
    """Update the multiplier at w^{k+1}, and set up the next subproblem around it."""

    w: Vector
    coupled: Vector
    coupled_length: int  # as in `Start`
    iteration: int
    best: bool  # the multiplier of the iteration before is the best so far
    penalty: float  # for the next subproblem
    consensus_penalty: float
    at_copy: bool  # take the multiplier at the owner's copy, and go on from there


@dataclass(frozen=True, kw_only=True)
class Repriced(Judged):
    change: Largest[float]  # |mu^{k+1} - mu^k| / beta, max-norm
    proposal: Summed[Vector]


@client_step
def start(share: Share, state: Any, order: Start) -> tuple[State, Started]:
    """Set up P_{i,0} around w^0, with the multiplier that another method left here, or zero."""
    price = price_of(share, state, order.warm)
    own_point = point_of(share, state, order.w, order.warm)
    dim = order.w.size
    weight = weight_of(state, order.weighted)
    with_slack = add_slack(share, dim, order.scale)
    multiplier = price
    if with_slack.slack:
        multiplier = np.concatenate([price, order.coupled / order.scale])
    point = insert_slack(share, own_point, order.scale)
    function = local_function(with_slack, multiplier, order.penalty, order.holders, point)
    consensus = admm.begin(function, point, order.consensus_penalty, weight, with_slack.slack, share.private)
    private = Private.of(share, own_point)
    fresh = State(
        iteration=order.iteration,
        price=price,
        best_iteration=order.warm,
        best_price=price,
        private=private,
        best_private=private,
        returned=returned_by(state),
        centre=point,
        multiplier=multiplier,
        scale=order.scale,
        weight=weight,
        penalty=order.penalty,
        holders=order.holders,
        drift=np.zeros_like(price),
        consensus=consensus,
    )
    proposal = for_server(consensus.proposal, dim, order.coupled_length, weight)
    return fresh, Started(proposal=proposal, **judged_terms(share, own_point, price, order.coupled))


@skippable
@client_step
def inner(share: Share, state: State, order: admm.Round) -> tuple[State, admm.Updated]:
    """One round of Algorithm 2 on P_{i,k}."""
    with_slack = add_slack(share, order.w.size, state.scale)
    function = local_function(with_slack, state.multiplier, state.penalty, state.holders, state.centre)
    consensus, reply = admm.update(function, state.consensus, order)
    return replace(state, consensus=consensus), reply


@client_step  # not skippable: an old difference would be added twice
def inner_of_part(share: Share, state: State, order: admm.Round) -> tuple[State, admm.Updated]:
    """One round of Algorithm 2 that asks a sample of the owners."""
    with_slack = add_slack(share, order.w.size, state.scale)
    function = local_function(with_slack, state.multiplier, state.penalty, state.holders, state.centre)
    consensus, reply = admm.update_part(function, state.consensus, order)
    return replace(state, consensus=consensus), reply


@client_step
def conclude(share: Share, state: State, order: Conclude) -> tuple[State, Repriced]:
    """Update the multiplier at w^{k+1}, give the terms of its certificate, and start the next subproblem."""
    state = state.mark_best(order.best)
    dim = order.w.size
    with_slack = add_slack(share, dim, state.scale)
    point = np.concatenate([order.w, state.consensus.slack, state.consensus.u[dim + with_slack.slack :]])
    held = state.consensus
    meeting = point
    if order.at_copy:
        meeting = held.u
    multiplier, change = next_multiplier(with_slack, meeting, state.multiplier, state.penalty)
    own_point = np.concatenate([order.w, point[dim + with_slack.slack :]])
    price = multiplier[: share.multiplier_length]
    function = local_function(with_slack, multiplier, order.penalty, state.holders, point)
    if order.at_copy:
        consensus = admm.resume(function, held)
    else:
        consensus = admm.begin(
            function, point, order.consensus_penalty, held.weight, with_slack.slack, share.private, held.factor
        )
    after = replace(
        state,
        iteration=order.iteration,
        price=price,
        private=Private.of(share, own_point),
        centre=point,
        multiplier=multiplier,
        penalty=order.penalty,
        drift=drift_of(share, state.price, price),
        consensus=consensus,
    )
    terms = judged_terms(share, own_point, price, order.coupled)
    proposal = for_server(consensus.proposal, dim, order.coupled_length, held.weight)
    return after, Repriced(change=change, proposal=proposal, **terms)


# ------------------------------------------------------------------------------------------------------- both halves


def local_function(share: Share, multiplier: Vector, penalty: float, holders: int, centre: Vector) -> Function:
    """P_{i,k}: (10) and (11); slacks and private variables, of one holder, have the whole of the proximal term."""
    weight: float | Vector = 1 / (holders * penalty)
    alone = share.slack + share.private
    if alone:
        weight = np.append(np.full(centre.size - alone, weight), np.full(alone, 1 / penalty))
    return anchored(augmented_lagrangian(share, multiplier, penalty, centre.size), weight, centre)


def next_multiplier(share: Share, w: Vector, multiplier: Vector, penalty: float) -> tuple[Vector, float]:
    """mu^{k+1} = P_{K*}(mu^k + beta c(w)), and |mu^{k+1} - mu^k| / beta in the max-norm."""
    if share.constraint is None:
        return multiplier, 0.0
    value = share.constraint.function.value(w)
    after = share.constraint.cone.project_dual(multiplier + penalty * value)
    return after, float(np.max(np.abs(after - multiplier), initial=0.0)) / penalty


def drift_of(share: Share, before: Vector, after: Vector) -> Vector:
    """P_{K*}(mu^{k+1} - mu^k)."""
    if share.constraint is None:
        return before
    return share.constraint.cone.project_dual(after - before)


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass
class Server:
    """The server's variables: w^k, its own multiplier and drift, the penalties, and Algorithm 2 on l_k.

    coupled: nu^k, in the units of the slacks; drifts of the coupled constraint follow the server's own
    """

    w: Vector
    multiplier: Vector
    coupled: Vector
    drift: Vector
    coupling: Coupling
    penalty: float
    pace: Pace
    subproblem: admm.Admm = field(init=False)
    first: tuple[float, float] = (0.0, 0.0)  # stationarity and feasibility of the start
    k: int = 0

    @property
    def prices(self) -> Vector:
        """Its own multiplier, and that of the coupled constraint in the user's units."""
        return np.append(self.multiplier, self.coupling.scale * self.coupled)


class Penalties(NamedTuple):
    """Those of the consensus: rho, sum r_i, and sum 1 / r_i of the owners with a part of the coupled constraint."""

    rho: float
    weight: float
    looseness: float


@dataclass(frozen=True, kw_only=True)
class ProximalAL(Solver[Server]):
    """Algorithm 1 over Algorithm 2: proximal augmented Lagrangian, any cones, d numbers a message.

    Penalties are fixed when given, as in the paper; by default they are chosen from the owners' curvature and adapted.
    """

    name: ClassVar[str] = "proximal-al"
    needs: ClassVar[Needs] = Needs(constraints=True, coupled=True, own=True, own_coupled=True, prices=True)
    patience: ClassVar[int] = 60
    doubt: ClassVar[int] = 60
    progress: ClassVar[float] = 0.9

    penalty: float | None = option(None, "penalty of the constraints", letter="beta", above=0)
    consensus_penalty: float | Mapping[str, float] | Sequence[float] | None = option(
        None, "penalty of the consensus, or one for each owner", letter="rho", above=0, by_owner=True
    )
    inner_decay: float | None = option(None, admm.DECAY, letter="q", above=0, below=1)
    accuracy: float | None = option(
        None,
        "of the outer subproblems; by default from the stationarity of the start, and beside a given penalty the asked "
        "stationarity, as in the paper",
        letter="s",
        above=0,
    )
    participation: float = option(1.0, PARTICIPATION, above=0, most=1)

    def weights(self, run: Run) -> Vector:
        return divide_penalty(self.consensus_penalty, run)[1]

    def init(self, run: Run) -> tuple[Server, Iterate]:
        scales = look(run)
        beta = self.penalty
        if beta is None:
            beta = default_penalty(scales)
        asked, weights = divide_penalty(self.consensus_penalty, run)
        rho = asked or default_consensus_penalty(scales, len(run.owners))
        run.note(f"penalty beta = {beta:.3g}, consensus penalty rho = {rho:.3g} at the start")
        prices = first_prices(run)
        order = Start(
            w=run.start,
            penalty=beta,
            consensus_penalty=rho,
            holders=len(run.owners) + 1,
            coupled=run.problem.own(run.start, prices)[3],
            coupled_length=run.problem.coupled_length,
            scale=scales.coupled_scale,
            iteration=run.first,
            warm=run.warm,
            weighted=weights.size > 0,
        )
        replies = run.ask(start, order)
        own, coupled = np.split(prices, [run.problem.server.multiplier_length])
        state = Server(
            w=run.start,
            multiplier=own,
            coupled=coupled / scales.coupled_scale,
            drift=np.zeros_like(prices),
            coupling=Coupling.of(run.problem, scales.coupled_scale, weights),
            penalty=beta,
            pace=Pace(run.tol),
        )
        slacks = state.coupling.first_slacks(replies.total.coupled)
        judged = certificate_of(run.problem, run.start, prices, replies)
        state.first = (judged[0].stationarity, judged[0].feasibility)
        weight = float(len(run.owners))
        penalties = Penalties(rho, weight, state.coupling.looseness)
        state.subproblem = self._subproblem(run, state, penalties, replies.total.proposal, slacks)
        return state, Iterate(
            number=run.first,
            w=run.start,
            multiplier=prices,
            judged=judged,
            penalty=beta,
            consensus_penalty=rho,
        )

    def step(self, run: Run, state: Server) -> Iterate:
        """One round of Algorithm 2; when it has arrived, the outer iteration is concluded instead."""
        if state.subproblem.finished or run.rounds_left <= self.reserve + 1:
            return self._conclude(run, state)
        sums = state.subproblem.exchange(run, inner, inner_of_part)
        return Iterate(
            number=run.first + state.k,
            w=state.subproblem.w,
            multiplier=state.prices,
            inner=state.subproblem.rounds,
            gradients=int(sums.gradients),
            hessians=int(sums.hessians),
            record=state.subproblem.record(run, state.k),
        )

    def separator(self, run: Run, state: Server) -> tuple[Vector | None, Vector]:
        return None, state.drift

    def _conclude(self, run: Run, state: Server) -> Iterate:
        """The multipliers of w^{k+1}, its certificate, and the next subproblem."""
        found = state.subproblem
        beta = state.penalty
        before = state.prices
        state.multiplier, server_change = next_multiplier(run.problem.server, found.w, state.multiplier, beta)
        coupled = state.coupling.project_dual(state.coupled + beta * found.slacks)
        coupled_change = float(np.max(np.abs(coupled - state.coupled), initial=0.0)) / beta
        state.coupled = coupled
        next_beta = beta
        if self.penalty is None:
            next_beta = beta * state.pace.growth()
        order = Conclude(
            w=found.w,
            coupled=run.problem.own(found.w, state.prices)[3],
            coupled_length=run.problem.coupled_length,
            iteration=run.first + state.k + 1,
            best=run.best.iteration == run.first + state.k,
            penalty=next_beta,
            consensus_penalty=found.penalty,
            at_copy=found.adapt,
        )
        replies = run.ask(conclude, order)
        judged = certificate_of(run.problem, found.w, state.prices, replies)
        change = max(server_change, coupled_change, replies.total.change)
        state.pace.see(judged[0], change, found.tolerance)
        state.drift = state.prices - before
        state.w = found.w
        state.penalty = next_beta
        state.k += 1
        penalties = Penalties(found.penalty, found.weight, found.looseness)
        drawn = found.drawn + found.rounds
        state.subproblem = self._subproblem(run, state, penalties, replies.total.proposal, found.slacks, drawn)
        end = None
        if found.failure:
            end = Verdict("stalled", found.failure)
        return Iterate(
            number=run.first + state.k,
            w=state.w,
            multiplier=state.prices,
            judged=judged,
            inner=found.rounds,
            penalty=beta,
            consensus_penalty=found.mean_penalty,
            conflict=state.pace.conflict,
            escape=state.pace.escape,
            end=end,
        )

    def _subproblem(
        self, run: Run, state: Server, penalties: Penalties, proposals: Vector, slacks: Vector, drawn: int = 0
    ) -> admm.Admm:
        """Algorithm 2 on l_k, to the accuracy tau_k; drawn: its rounds before."""
        coupling = state.coupling
        beta = state.penalty
        price = state.coupled
        adapt = self.consensus_penalty is None

        def place(proposed: Vector, looseness: float) -> tuple[Vector, Vector]:
            now = replace(coupling, looseness=looseness)
            push = now.penalize(proposed, price, beta, 1.0)
            return push, now.moved(proposed, push, 1.0)

        return admm.Admm(
            server=local_function(run.problem.server, state.multiplier, beta, len(run.owners) + 1, state.w),
            regularizer=run.problem.regularizer,
            w=state.w,
            proposals=proposals,
            weight=penalties.weight,
            looseness=penalties.looseness,
            owners=len(run.owners),
            slacks=slacks,
            place=place,
            tolerance=self._tolerance(run, state),
            decay=admm.decay_of(self.inner_decay, adapt),
            penalty=penalties.rho,
            adapt=adapt,
            most_gap=default_gap(state.first[1], state.k, run.tol),
            participation=self.participation,
            drawn=drawn,
        )

    def _tolerance(self, run: Run, state: Server) -> float:
        """tau_k"""
        if self.accuracy is not None:
            return outer_accuracy(self.accuracy, state.k, run.tol)
        if self.penalty is not None:
            return outer_accuracy(run.tol[0], state.k, run.tol)
        return default_accuracy(state.first[0], state.k, run.tol)
