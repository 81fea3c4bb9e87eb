"""Inexact ADMM for min_w sum_{i=0..n} F_i(w) + h(w): Algorithm 2 of He24 and He24-conic, both halves.

Owner i holds F_i, the server F_0 and h. The proximal AL method calls it for its subproblems; by itself it trains
without constraints (`method="inexact-admm"`).

Notation (He24-conic numbering)
    u, lambda   an owner's copy of w and the multiplier of u = w            Consensus.u, .multiplier
    rho         the consensus penalty, here the same for all owners         penalty
    u~          u + lambda / rho, what an owner proposes to the server      proposal
    eps         accuracy of the subproblems, eps_{t+1} = q^t                accuracy
    eps~        an owner's share of the stationarity of w                   stationarity
    tau         the target: eps + sum_i eps~_i <= tau                       tolerance
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpact.errors import OptionError
from fedpact.federation import Answers, Fleet, Order, Reply, Summed, client_step, skippable
from fedpact.functions import Function, Matrix, Vector
from fedpact.problem import Certificate, Share, owner_terms
from fedpact.prox import Prox, Zero
from fedpact.solvers.endings import Asking, Lowest, Watch, interrupted, out_of_rounds
from fedpact.solvers.judging import Judged, at, certificate_of, judge, term_fields
from fedpact.solvers.local import Constant, anchored, keep_factor, minimize
from fedpact.solvers.run import Run
from fedpact.solvers.scales import default_consensus_penalty, look
from fedpact.solvers.solution import InnerRecord, Solution

#: The penalty moves by PENALTY_FACTOR when primal and dual residual differ by IMBALANCE, after PATIENCE rounds or more.
IMBALANCE, PENALTY_FACTOR, PATIENCE, ADAPT_UNTIL = 3.0, 2.0, 4, 2000
#: Rounds without a halved residual after which the inner iteration is given up.
STAGNATION = 5000
#: Rounds in a row in which someone fails to solve a subproblem and the residual does not halve, likewise.
STUCK = 20


@dataclass(frozen=True)
class Consensus:
    """State of one owner inside one call of Algorithm 2."""

    u: Vector
    multiplier: Vector
    penalty: float
    factor: Matrix | None = None  # of the constant Hessian of (15), when F_i is quadratic


@dataclass(frozen=True, kw_only=True)
class Round(Order):
    w: Vector
    accuracy: float
    next_penalty: float


@dataclass(frozen=True, kw_only=True)
class Updated(Reply):
    proposal: Summed[Vector]
    stationarity: Summed[float]
    primal: Summed[float]  # |u_new - w|^2
    dual: Summed[float]  # |u_new - u_old|^2
    converged: bool
    indefinite: bool
    gradients: Summed[int]
    hessians: Summed[int]


def begin(function: Function, w: Vector, penalty: float) -> tuple[Consensus, Vector]:
    """The owner's start: (u, lambda, u~) = (w, -grad F_i(w), w - grad F_i(w) / rho)."""
    multiplier = -function.gradient(w)
    return _with_factor(function, Consensus(w, multiplier, penalty)), w + multiplier / penalty


def update(function: Function, state: Consensus, order: Round) -> tuple[Consensus, Updated]:
    """The owner's round: solve (15), then (16), (17), (18)."""
    rho, w = state.penalty, order.w
    subproblem = anchored(function, rho, w - state.multiplier / rho)
    found = minimize(subproblem, state.u, order.accuracy, kept=state.factor)
    multiplier = state.multiplier + rho * (found.w - w)  # (16)
    # (18): grad phi(w) - rho (w - u^t), where u^t is the copy from before this round's solve.
    stationarity = function.gradient(w) + state.multiplier - rho * (w - state.u)
    after = Consensus(found.w, multiplier, order.next_penalty, state.factor)
    if order.next_penalty != rho:
        after = _with_factor(function, after)
    return after, Updated(
        proposal=found.w + multiplier / order.next_penalty,  # (17), with the penalty of the next round
        stationarity=float(np.max(np.abs(stationarity))),
        primal=float((found.w - w) @ (found.w - w)),
        dual=float((found.w - state.u) @ (found.w - state.u)),
        converged=found.converged,
        indefinite=found.indefinite,
        gradients=found.gradients + 1,
        hessians=found.hessians,
    )


def _with_factor(function: Function, state: Consensus) -> Consensus:
    return replace(state, factor=keep_factor(anchored(function, state.penalty, state.u)))


@dataclass(frozen=True)
class AdmmResult:
    """Where Algorithm 2 stopped; `residual` is the left side of (19)."""

    w: Vector
    residual: float
    rounds: int
    penalty: float
    failure: str  # why it cannot get any further; empty when it converged or ran out of rounds
    gradients: int
    hessians: int


def inexact_admm(
    fleet: Fleet,
    server: Function,
    regularizer: Prox,
    w: Vector,
    proposals: Vector,
    *,
    step: Callable[[Any, Any, Round], tuple[Any, Updated]],
    tolerance: float,
    decay: float,
    penalty: float,
    adapt: bool,
    max_rounds: int,
    notify: Callable[[int, Vector, float, float], None] = lambda t, w, residual, penalty: None,
) -> AdmmResult:
    """The server's half of Algorithm 2, from w and the sum of the owners' first proposals u~^0.

    server: F_0
    step:   the owner's round as a fleet step; it calls `update` with its F_i
    adapt:  let the penalty follow the residuals. differs from He24, where rho is fixed: it changes at most every
            PATIENCE rounds and less and less often, and no more after ADAPT_UNTIL, so Theorem 4.2 applies from there.
    notify: called after every round with (t, w, residual, penalty)

    Stops at (19), at max_rounds, when the residual has not halved for STAGNATION rounds, or when someone is STUCK.
    """
    n = len(fleet.owners)
    if regularizer.curvature is not None:
        server, regularizer = anchored(server, regularizer.curvature, np.zeros_like(w)), Zero()
    gradients = hessians = 0
    # differs from He24: accuracies below this no longer matter to (19), and rounding forbids them anyway.
    floor = 0.02 * tolerance / (n + 1)
    kept: Matrix | None = None
    replies: Answers[Updated] | None = None
    wait = patience = PATIENCE
    residual, lowest = np.inf, Lowest(0.5)
    t = stuck = 0
    failure = ""
    for t in range(max_rounds):
        accuracy = max(decay**t, floor)
        subproblem = anchored(server, n * penalty, proposals / n)  # (14), up to a constant
        if kept is None and regularizer.curvature is not None:
            kept = keep_factor(subproblem)
        at_server = minimize(subproblem, w, accuracy, regularizer=regularizer, kept=kept)
        w = at_server.w
        next_penalty = penalty
        if adapt and replies is not None and wait <= t < ADAPT_UNTIL:
            next_penalty = penalty * _balance(replies)
            if next_penalty != penalty:
                patience, wait = patience + 1, t + patience + 1
                kept = None
        replies = fleet.ask(step, Round(w=w, accuracy=accuracy, next_penalty=next_penalty))
        penalty = next_penalty
        proposals = replies.total.proposal
        gradients += int(replies.total.gradients)
        hessians += int(replies.total.hessians)
        # (19); it bounds the stationarity of w only with what the server really reached, should it miss the accuracy
        residual = max(accuracy, at_server.residual) + replies.total.stationarity
        notify(t, w, residual, penalty)
        if residual <= tolerance:
            break
        lowest.see(t, residual)
        if lowest.idle(t) >= STAGNATION:
            failure = f"the inner residual stays at {residual:.1e}, above its target {tolerance:.1e}"
            break
        failed = [] if at_server.converged else ["the server"]
        failed += [owner for owner, r in zip(fleet.owners, replies, strict=True) if not r.converged]
        stuck = stuck + 1 if failed else 0
        if stuck >= STUCK and lowest.idle(t) >= STUCK:
            failure = f"{', '.join(failed)} could not solve the subproblem to {accuracy:.1e}"
            break
    return AdmmResult(w, residual, t + 1, penalty, failure, gradients, hessians)


def _balance(replies: Answers[Updated]) -> float:
    """The factor for the penalty: |u - w| against |u - u_old|, both lengths of vectors of the same kind.

    Their ratio times rho is the curvature of the F_i along the last step (the change of lambda over the change of u),
    and a penalty near that curvature is what ADMM likes. Where a subproblem was not convex, rho must grow.
    """
    ratio = np.sqrt(replies.total.primal / max(replies.total.dual, 1e-300))
    if ratio > IMBALANCE or any(r.indefinite for r in replies):
        return PENALTY_FACTOR
    return 1 / PENALTY_FACTOR if ratio < 1 / IMBALANCE else 1.0


# ------------------------------------------------------------------------- by itself: min_w sum_i f_i(w) + h(w), no c_i


@dataclass(frozen=True, kw_only=True)
class Begin(Order):
    w: Vector
    penalty: float


@dataclass(frozen=True, kw_only=True)
class Begun(Judged):
    """Judged at the start."""

    proposal: Summed[Vector]


@client_step
def begin_alone(share: Share, state: None, order: Begin) -> tuple[Consensus, Begun]:
    none = np.zeros(0)
    consensus, proposal = begin(share.objective or Constant(order.w.size), order.w, order.penalty)
    return consensus, Begun(proposal=proposal, **term_fields(owner_terms(share, order.w, none, none)))


@skippable
@client_step
def update_alone(share: Share, state: Consensus, order: Round) -> tuple[Consensus, Updated]:
    return update(share.objective or Constant(order.w.size), state, order)


def inexact_admm_alone(run: Run, *, consensus_penalty: float | None = None, inner_decay: float = 0.1) -> Solution:
    """Algorithm 2 as a method for problems without constraints; consensus_penalty (rho) is fixed when given."""
    problem, fleet = run.problem, run.fleet
    for holder in (problem.server, *problem.shares):
        if holder.constraint is not None:
            raise OptionError(f'{holder.label} has a constraint; method="inexact-admm" takes none, use "proximal-al"')
    scales = look(problem, fleet, run.w0)
    rho = consensus_penalty if consensus_penalty is not None else default_consensus_penalty(scales, len(fleet.owners))
    begun = fleet.ask(begin_alone, Begin(w=run.w0, penalty=rho))
    best, none = run.new_best(), np.zeros(0)
    found = AdmmResult(run.w0, np.inf, 0, rho, "", len(fleet.owners), 0)

    def judged(iteration: int, certificate: Certificate, objective: float) -> None:
        best.offer(iteration, found.w, none, certificate, objective)
        run.record(
            iteration,
            certificate,
            objective,
            inner_rounds=found.rounds,
            penalty=0.0,
            consensus_penalty=found.penalty,
            gradients=found.gradients,
            hessians=found.hessians,
        )

    def notify(t: int, w: Vector, residual: float, penalty: float) -> None:
        nonlocal found
        found = replace(found, w=w, residual=residual, rounds=t + 1, penalty=penalty)
        run.history.inner.append(InnerRecord(0, fleet.ledger.rounds, residual, run.tol[0], penalty))
        run.report(0, t, best)

    judged(0, *certificate_of(problem, found.w, none, begun))
    end = out_of_rounds(run)
    try:
        found = inexact_admm(
            fleet,
            problem.server.objective or Constant(run.w0.size),
            problem.regularizer,
            run.w0,
            begun.total.proposal,
            step=update_alone,
            tolerance=run.tol[0],
            decay=inner_decay,
            penalty=rho,
            adapt=consensus_penalty is None,
            max_rounds=run.rounds_left - 2,  # to judge and to probe
            notify=notify,
        )
    except KeyboardInterrupt:
        end = interrupted(run)
    certificate, objective = certificate_of(problem, found.w, none, fleet.ask(judge, at(problem, found.w)))
    judged(1, certificate, objective)
    finished = found.residual <= run.tol[0] and certificate.meets(run.tol)
    verdict = Watch(run, Asking(run)).verdict(finished, found.failure, 0.0, certificate, objective, found.w, none)
    end = verdict or end
    return best.solution(run, end.status, end.reason, [none for _ in problem.shares])
