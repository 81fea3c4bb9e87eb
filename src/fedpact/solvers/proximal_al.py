"""Proximal augmented Lagrangian method for federated learning with constraints: Algorithm 1 of He24 and He24-conic.

Every outer iteration k minimises, by the inexact ADMM of `inexact_admm.py`,

    l_k(w) = sum_{i=0..n} P_{i,k}(w) + h(w),
    P_{i,k}(w) = f_i(w) + (dist^2(mu_i^k + beta c_i(w), -K_i) - |mu_i^k|^2) / (2 beta) + |w - w^k|^2 / (2 (n+1) beta)

and then every holder of a constraint updates its own multiplier, mu_i^{k+1} = P_{K_i*}(mu_i^k + beta c_i(w^{k+1})).
Multipliers stay at their owners until the end. (He24-conic prints mu_i^0 in K_i; it must be K_i*.)

Notation (He24-conic numbering)
    beta    penalty of the constraints, and 1 / weight of the proximal term    penalty
    rho     penalty of the consensus inside Algorithm 2                        consensus_penalty
    q       decay of the subproblems' accuracies inside Algorithm 2            inner_decay
    s       tau_k = s / (k+1)^2, accuracy of the outer subproblems             accuracy
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fedpact.federation import Order, Reply, Summed, client_step, skippable
from fedpact.functions import Function, Vector
from fedpact.problem import Share, owner_terms
from fedpact.solvers import inexact_admm as admm
from fedpact.solvers.augmented_lagrangian import augmented_lagrangian
from fedpact.solvers.endings import Asking, Watch, interrupted, out_of_rounds
from fedpact.solvers.judging import Judged, at, certificate_of, term_fields
from fedpact.solvers.local import anchored
from fedpact.solvers.run import MARGIN, Best, Run
from fedpact.solvers.scales import default_consensus_penalty, default_penalty, look
from fedpact.solvers.solution import InnerRecord, Solution

#: Exchanges kept back for the end of an outer iteration: conclude, two pieces of evidence, reveal.
RESERVE = 4

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True)
class State:
    """What an owner keeps between rounds."""

    centre: Vector  # w^k
    penalty: float
    holders: int  # n + 1
    multiplier: Vector  # mu_i^k
    iteration: int
    drift: Vector  # P_{K*}(mu_i^k - mu_i^{k-1}): where the multiplier is heading
    kept: Vector  # the multiplier of the best iteration so far
    kept_iteration: int
    consensus: admm.Consensus


@dataclass(frozen=True, kw_only=True)
class Start(Order):
    w: Vector
    coupled_length: int
    penalty: float
    consensus_penalty: float
    holders: int


@dataclass(frozen=True, kw_only=True)
class Started(Judged):
    """Judged at the start, with zero multipliers."""

    proposal: Summed[Vector]


@dataclass(frozen=True, kw_only=True)
class Conclude(Order):
    w: Vector
    coupled: Vector
    iteration: int
    keep: bool  # remember the multiplier of the iteration before: it was the best so far
    penalty: float  # for the next subproblem
    consensus_penalty: float


@dataclass(frozen=True, kw_only=True)
class Concluded(Judged):
    change: float  # |mu^{k+1} - mu^k| / beta, max-norm
    proposal: Summed[Vector]


@dataclass(frozen=True, kw_only=True)
class Reveal(Order):
    iteration: int


@dataclass(frozen=True, kw_only=True)
class Revealed(Reply):
    multiplier: Vector


@client_step
def start(share: Share, state: None, order: Start) -> tuple[State, Started]:
    """Give the terms of the certificate at w^0 with zero multipliers, and set up P_{i,0} around it."""
    none = np.zeros(share.multiplier_length)
    terms = owner_terms(*share.own(order.w, none), np.zeros(order.coupled_length))
    function = local_function(share, none, order.penalty, order.holders, order.w)
    consensus, proposal = admm.begin(function, order.w, order.consensus_penalty)
    fresh = State(order.w, order.penalty, order.holders, none, 0, none, none, 0, consensus)
    return fresh, Started(proposal=proposal, **term_fields(terms))


@skippable
@client_step
def inner(share: Share, state: State, order: admm.Round) -> tuple[State, admm.Updated]:
    """One round of Algorithm 2 on P_{i,k}."""
    function = local_function(share, state.multiplier, state.penalty, state.holders, state.centre)
    consensus, reply = admm.update(function, state.consensus, order)
    return replace(state, consensus=consensus), reply


@client_step
def conclude(share: Share, state: State, order: Conclude) -> tuple[State, Concluded]:
    """Update the multiplier at w^{k+1}, give the terms of its certificate, and start the next subproblem."""
    if order.keep:
        state = replace(state, kept=state.multiplier, kept_iteration=state.iteration)
    multiplier, change = next_multiplier(share, order.w, state.multiplier, state.penalty)
    drift = drift_of(share, state.multiplier, multiplier)
    terms = owner_terms(*share.own(order.w, multiplier), order.coupled)
    function = local_function(share, multiplier, order.penalty, state.holders, order.w)
    consensus, proposal = admm.begin(function, order.w, order.consensus_penalty)
    following = replace(
        state,
        centre=order.w,
        penalty=order.penalty,
        multiplier=multiplier,
        iteration=order.iteration,
        drift=drift,
        consensus=consensus,
    )
    return following, Concluded(change=change, proposal=proposal, **term_fields(terms))


@client_step
def reveal(share: Share, state: State, order: Reveal) -> tuple[State, Revealed]:
    """Hand out the multiplier of one iteration, in the user's variables: the price of this owner's constraint."""
    held = {state.kept_iteration: state.kept, state.iteration: state.multiplier}
    return state, Revealed(multiplier=share.own(state.centre, held[order.iteration])[2])


# ------------------------------------------------------------------------------------------------------- both halves


def local_function(share: Share, multiplier: Vector, penalty: float, holders: int, centre: Vector) -> Function:
    """P_{i,k}: (10) and (11)."""
    return anchored(augmented_lagrangian(share, multiplier, penalty, centre.size), 1 / (holders * penalty), centre)


def next_multiplier(share: Share, w: Vector, multiplier: Vector, penalty: float) -> tuple[Vector, float]:
    """mu^{k+1} = P_{K*}(mu^k + beta c(w)), and |mu^{k+1} - mu^k| / beta in the max-norm."""
    if share.constraint is None:
        return multiplier, 0.0
    cone, function = share.constraint.cone, share.constraint.function
    after = cone.project_dual(multiplier + penalty * function.value(w))
    return after, float(np.max(np.abs(after - multiplier), initial=0.0)) / penalty


def drift_of(share: Share, before: Vector, after: Vector) -> Vector:
    """P_{K*}(mu^{k+1} - mu^k). With conflicting constraints it tends to a vector that proves the conflict."""
    return before if share.constraint is None else share.constraint.cone.project_dual(after - before)


def outer_accuracy(accuracy: float, k: int, tol: tuple[float, float]) -> float:
    """tau_k = s / (k+1)^2.

    differs from He24: it stops shrinking at 1e-3 eps_1, since less cannot matter to (8) and rounding forbids it.
    """
    return max(accuracy / (k + 1) ** 2, 1e-3 * tol[0])


def stops(moved: float, tau: float, change: float, beta: float, tol: tuple[float, float]) -> bool:
    """(8), with moved = |w^{k+1} - w^k| and change = |mu^{k+1} - mu^k| / beta in the max-norm.

    differs from He24: feasibility is asked for with MARGIN.
    """
    return moved + beta * tau <= beta * tol[0] and change <= MARGIN * tol[1]


# --------------------------------------------------------------------------------------------------- the server's half


def proximal_al(
    run: Run,
    *,
    penalty: float | None = None,
    consensus_penalty: float | None = None,
    inner_decay: float = 0.1,
    accuracy: float | None = None,
) -> Solution:
    """Algorithm 1 over Algorithm 2.

    penalty (beta), consensus_penalty (rho): fixed when given, as in the paper; when None, chosen from the owners'
    curvature (`default_penalty`, `default_consensus_penalty`) and adapted. inner_decay: q. accuracy: s; when None the
    asked stationarity, the ratio of the paper's Neyman-Pearson experiments.
    """
    problem, fleet = run.problem, run.fleet
    scales = look(problem, fleet, run.w0)
    beta = penalty if penalty is not None else default_penalty(scales)
    rho = consensus_penalty if consensus_penalty is not None else default_consensus_penalty(scales, len(fleet.owners))
    run.history.notes.append(f"penalty beta = {beta:.3g}, consensus penalty rho = {rho:.3g} at the start")
    s = run.tol[0] if accuracy is None else accuracy
    holders = len(fleet.owners) + 1
    w, multiplier = run.w0, np.zeros(problem.server.multiplier_length)
    coupled_length = at(problem, w).coupled_length
    begin = Start(w=w, coupled_length=coupled_length, penalty=beta, consensus_penalty=rho, holders=holders)
    started = fleet.ask(start, begin)
    proposals = started.total.proposal
    best, watch = run.new_best(), Watch(run, Asking(run))
    judged = certificate_of(problem, w, multiplier, started)
    best.offer(0, w, multiplier, *judged)
    run.record(0, *judged, inner_rounds=0, penalty=beta, consensus_penalty=rho, gradients=holders - 1, hessians=0)
    end = out_of_rounds(run)
    try:
        for k in range(run.max_rounds):
            tau = outer_accuracy(s, k, run.tol)
            found = admm.inexact_admm(
                fleet,
                local_function(problem.server, multiplier, beta, holders, w),
                problem.regularizer,
                w,
                proposals,
                step=inner,
                tolerance=tau,
                decay=inner_decay,
                penalty=rho,
                adapt=consensus_penalty is None,
                max_rounds=run.rounds_left - RESERVE,
                notify=_reporter(run, k, best, tau),
            )
            after, server_change = next_multiplier(problem.server, found.w, multiplier, beta)
            next_beta = beta if penalty is not None else beta * watch.growth()
            order = Conclude(
                w=found.w,
                coupled=problem.own(found.w, after)[3],
                iteration=k + 1,
                keep=best.iteration == k,
                penalty=next_beta,
                consensus_penalty=found.penalty,
            )
            replies = fleet.ask(conclude, order)
            certificate, objective = certificate_of(problem, found.w, after, replies)
            change = max(server_change, *(r.change for r in replies))
            moved = float(np.max(np.abs(found.w - w)))
            drift = drift_of(problem.server, multiplier, after)
            w, multiplier, rho, proposals = found.w, after, found.penalty, replies.total.proposal
            best.offer(k + 1, w, multiplier, certificate, objective)
            run.record(
                k + 1,
                certificate,
                objective,
                inner_rounds=found.rounds,
                penalty=beta,
                consensus_penalty=found.penalty,
                gradients=found.gradients,
                hessians=found.hessians,
            )
            # By Theorem 3.1 (8) implies the certificate; that is checked, and coupled constraints may need more.
            finished = stops(moved, tau, change, beta, run.tol) and certificate.meets(run.tol)
            beta = next_beta
            if verdict := watch.verdict(finished, found.failure, change, certificate, objective, w, drift):
                end = verdict
                break
            if run.rounds_left <= RESERVE:
                break
    except KeyboardInterrupt:
        end = interrupted(run)
    prices = [r.multiplier for r in fleet.ask(reveal, Reveal(iteration=best.iteration))]
    return best.solution(run, end.status, end.reason, prices, end.conflict)


def _reporter(run: Run, k: int, best: Best, target: float) -> Callable[[int, Vector, float, float], None]:
    def report(t: int, w: Vector, residual: float, penalty: float) -> None:
        run.history.inner.append(InnerRecord(k, run.fleet.ledger.rounds, residual, target, penalty))
        run.report(k, t, best)

    return report
