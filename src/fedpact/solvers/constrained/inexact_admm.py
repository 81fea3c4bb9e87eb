"""Inexact ADMM for min_w sum_{i=0..n} F_i(w) + h(w): Algorithm 2 of He24 and He24-conic, both halves.

Owner i holds F_i, the server F_0 and h. The proximal AL method runs it on its subproblems; by itself it trains without
constraints (`method="inexact-admm"`).

An owner's function may have slacks s_i of a coupled constraint behind w (`coupling.py`): variables of (14) and (15)
like w, of which the server knows the sum. And private variables v behind those: they are minimised in (15) too, without
a consensus that would tie them, and their gradient counts in eps~.

Notation (He24-conic numbering)
    u, lambda   an owner's copy of w and the multiplier of u = w            Consensus.u, .multiplier
    rho_i       the consensus penalty: r_i rho, by default r_i = 1          Consensus.penalty, .weight
    u~          u + lambda / rho, what an owner proposes to the server      proposal
    eps         accuracy of the subproblems, eps_{t+1} = q^t                accuracy
    eps~        an owner's share of the stationarity of w                   stationarity
    tau         the target: eps + sum_i eps~_i <= tau                       tolerance
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fedpact.federation import Answers, Order, Reply, Summed, client_step, skippable
from fedpact.functions import Function
from fedpact.problem import Share
from fedpact.prox import Prox, Zero
from fedpact.solvers.base import Solver, option
from fedpact.solvers.constrained.coupling import for_server
from fedpact.solvers.local import Constant, anchored, keep_factor, minimize
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.scales import default_consensus_penalty, look
from fedpact.solvers.solution import InnerRecord
from fedpact.solvers.steps import Judged, certificate_of, judge_point, judged_terms
from fedpact.types import Matrix, Vector

#: The penalty moves when primal and dual residual differ by more than this factor,
IMBALANCE = 3.0
#: by this factor,
PENALTY_FACTOR = 2.0
#: at first after this many rounds, then one round later each time,
PATIENCE = 4
#: and no more after this many: from there on Theorem 4.2 applies.
ADAPT_UNTIL = 2000
#: Rounds without a halved residual after which the iteration is given up.
STAGNATION = 5000
#: Rounds in a row in which someone fails to solve a subproblem and the residual does not halve, likewise.
STUCK = 20
#: The part of the target below which the accuracy of a subproblem does not matter any more.
FINEST = 0.02

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True)
class Consensus:
    """State of one owner inside one call of Algorithm 2."""

    u: Vector  # followed by the slacks and the private variables
    multiplier: Vector
    penalty: float  # rho_i
    weight: float  # r_i
    slack: Vector  # s_i, as the server placed it last
    factor: Matrix | None = None  # of the constant Hessian of (15), when F_i is quadratic


@dataclass(frozen=True, kw_only=True)
class Round(Order):
    """Solve the owner's subproblem (15) around w to this accuracy."""

    w: Vector
    push: Vector  # of the slacks, see `coupling.py`; empty without a coupled constraint
    accuracy: float
    next_penalty: float


@dataclass(frozen=True, kw_only=True)
class Updated(Reply):
    """What an owner proposes to the server, and the residuals of its round."""

    proposal: Summed[Vector]
    stationarity: Summed[float]
    primal: Summed[float]  # |u_new - w|^2
    dual: Summed[float]  # |u_new - u_old|^2
    converged: bool
    indefinite: bool
    gradients: Summed[int]
    hessians: Summed[int]


def begin(
    function: Function, point: Vector, penalty: float, weight: float = 1.0, slack: int = 0, private: int = 0
) -> tuple[Consensus, Vector]:
    """The owner's start: (u, lambda, u~) = (w, -grad F_i(w), w - grad F_i(w) / rho_i), and that u~.

    point: (w, s_i, v_i) with so many slacks and private variables; penalty: rho
    """
    tied = point.size - private
    rho = weight * penalty
    multiplier = -function.gradient(point)[:tied]
    fresh = Consensus(point, multiplier, rho, weight, slack=point[tied - slack : tied])
    return _with_factor(function, fresh), point[:tied] + multiplier / rho


def update(function: Function, state: Consensus, order: Round) -> tuple[Consensus, Updated]:
    """The owner's round: solve (15), then (16), (17), (18)."""
    rho = state.penalty
    proposed = state.u[: state.multiplier.size] + state.multiplier / rho
    slack = proposed[order.w.size :]
    if slack.size:
        slack = slack - order.push / rho
    w = np.concatenate([order.w, slack])  # slacks are tied like w
    subproblem = _tie(function, state, w - state.multiplier / rho)
    found = minimize(subproblem, state.u, order.accuracy, kept=state.factor)
    u, private = np.split(found.w, [w.size])
    before = state.u[: w.size]
    multiplier = state.multiplier + rho * (u - w)  # (16)
    # (18): grad phi(w) - rho (w - u^t), where u^t is the copy from before this round's solve. The bound holds for any
    # private variables, if their part of grad phi counts: these are the ones that the outer iteration takes.
    pull = np.append(state.multiplier - rho * (w - before), np.zeros_like(private))
    stationarity = function.gradient(np.append(w, private)) + pull
    next_rho = state.weight * order.next_penalty
    after = replace(state, u=found.w, multiplier=multiplier, penalty=next_rho, slack=slack)
    if next_rho != rho:
        after = _with_factor(function, after)
    proposal = u + multiplier / next_rho  # (17), with the penalty of the next round
    return after, Updated(
        proposal=for_server(proposal, order.w.size, order.push.size, state.weight),
        stationarity=float(np.max(np.abs(stationarity))),
        primal=float((u - w) @ (u - w)),
        dual=float((u - before) @ (u - before)),
        converged=found.converged,
        indefinite=found.indefinite,
        gradients=found.gradients + 1,
        hessians=found.hessians,
    )


def _tie(function: Function, state: Consensus, target: Vector) -> Function:
    """F_i(u) + rho/2 |u - target|^2, where private variables of u are free."""
    private = state.u.size - target.size
    if not private:
        return anchored(function, state.penalty, target)
    weight = np.append(np.full(target.size, state.penalty), np.zeros(private))
    return anchored(function, weight, np.append(target, np.zeros(private)))


def _with_factor(function: Function, state: Consensus) -> Consensus:
    return replace(state, factor=keep_factor(_tie(function, state, state.u[: state.multiplier.size])))


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass
class Admm:
    """The server's side of one call of Algorithm 2, from w and the sum of the owners' first proposals r_i u~_i^0.

    server:   F_0; a quadratic regularizer becomes part of it
    weight:   sum of the owners' r_i
    slacks:   sum of the owners' s_i; those of their proposals follow w's in `proposals`
    place:    (sum of proposed slacks, rho) -> the push that minimises the server's function of their sum, and the sum
              of the slacks after it
    decay:    q
    adapt:    let the penalty follow the residuals. differs from He24, where rho is fixed
    residual: the left side of (19)
    failure:  why it cannot get any further; empty while it can
    """

    server: Function
    regularizer: Prox
    w: Vector
    proposals: Vector
    weight: float
    tolerance: float
    decay: float
    penalty: float
    adapt: bool
    slacks: Vector = field(default_factory=lambda: np.zeros(0))
    place: Callable[[Vector, float], tuple[Vector, Vector]] = lambda proposed, penalty: (proposed, proposed)
    rounds: int = 0
    residual: float = np.inf
    failure: str = ""
    _kept: Matrix | None = None
    _replies: Answers[Updated] | None = None
    _patience: int = PATIENCE
    _wait: int = PATIENCE
    _lowest: float = np.inf
    _halved: int = 0  # round in which the residual last halved
    _stuck: int = 0

    def __post_init__(self) -> None:
        if self.regularizer.curvature is not None:
            self.server = anchored(self.server, self.regularizer.curvature, np.zeros_like(self.w))
            self.regularizer = Zero()

    @property
    def finished(self) -> bool:
        return self.residual <= self.tolerance or bool(self.failure)

    def exchange(self, run: Run, step: Callable[[Any, Any, Round], tuple[Any, Updated]]) -> Updated:
        """One round: the server's subproblem (14), then the owners' (15)-(18). Returns the owners' sums."""
        # differs from He24: accuracies below this no longer matter to (19), and rounding forbids them anyway.
        accuracy = max(self.decay**self.rounds, FINEST * self.tolerance / (len(run.owners) + 1))
        proposals, proposed_slacks = np.split(self.proposals, [self.w.size])
        # (14), up to a constant: in w, and in closed form in the slacks
        subproblem = anchored(self.server, self.weight * self.penalty, proposals / self.weight)
        push, self.slacks = self.place(proposed_slacks, self.penalty)
        if self._kept is None and self.regularizer.curvature is not None:
            self._kept = keep_factor(subproblem)
        at_server = minimize(subproblem, self.w, accuracy, regularizer=self.regularizer, kept=self._kept)
        self.w = at_server.w
        next_penalty = self._next_penalty()
        order = Round(w=self.w, push=push, accuracy=accuracy, next_penalty=next_penalty)
        replies = run.ask(step, order)
        self.penalty = next_penalty
        self.proposals = replies.total.proposal
        # (19); it bounds the stationarity of w only with what the server really reached, should it miss the accuracy
        self.residual = max(accuracy, at_server.residual) + replies.total.stationarity
        failed = [owner for owner, reply in zip(run.owners, replies, strict=True) if not reply.converged]
        if not at_server.converged:
            failed.insert(0, "the server")
        self._replies = replies
        self._watch(failed, accuracy)
        self.rounds += 1
        return replies.total

    def _next_penalty(self) -> float:
        """rho of the next round: |u - w| against |u - u_old|, both lengths of vectors of the same kind.

        Their ratio times rho is the curvature of the F_i along the last step (the change of lambda over the change of
        u), and a penalty near that curvature is what ADMM likes. Where a subproblem was not convex, rho must grow.
        """
        if not self.adapt or self._replies is None or not self._wait <= self.rounds < ADAPT_UNTIL:
            return self.penalty
        total = self._replies.total
        ratio = np.sqrt(total.primal / max(total.dual, 1e-300))
        if ratio > IMBALANCE or any(reply.indefinite for reply in self._replies):
            factor = PENALTY_FACTOR
        elif ratio < 1 / IMBALANCE:
            factor = 1 / PENALTY_FACTOR
        else:
            return self.penalty
        self._patience += 1
        self._wait = self.rounds + self._patience
        self._kept = None
        return self.penalty * factor

    def _watch(self, failed: list[str], accuracy: float) -> None:
        """Note when the residual halves, and give up when it does not for long."""
        if self.residual < 0.5 * self._lowest:
            self._lowest = self.residual
            self._halved = self.rounds
        idle = self.rounds - self._halved
        self._stuck = self._stuck + 1 if failed else 0
        if self.residual <= self.tolerance:
            return
        if idle >= STAGNATION:
            self.failure = f"the inner residual stays at {self.residual:.1e}, above its target {self.tolerance:.1e}"
        elif self._stuck >= STUCK and idle >= STUCK:
            self.failure = f"{', '.join(failed)} could not solve the subproblem to {accuracy:.1e}"

    def record(self, run: Run, iteration: int) -> InnerRecord:
        return InnerRecord(iteration, run.rounds, self.residual, self.tolerance, self.penalty)


# ------------------------------------------------------------------------- by itself: min_w sum_i f_i(w) + h(w), no c_i


@dataclass(frozen=True, kw_only=True)
class Begin(Order):
    w: Vector
    penalty: float


@dataclass(frozen=True, kw_only=True)
class Begun(Judged):
    proposal: Summed[Vector]


@client_step
def begin_alone(share: Share, state: Any, order: Begin) -> tuple[Consensus, Begun]:
    function = share.objective or Constant(order.w.size)
    consensus, proposal = begin(function, order.w, order.penalty)
    return consensus, Begun(proposal=proposal, **judged_terms(share, order.w, np.zeros(0), np.zeros(0)))


@skippable
@client_step
def update_alone(share: Share, state: Consensus, order: Round) -> tuple[Consensus, Updated]:
    return update(share.objective or Constant(order.w.size), state, order)


@dataclass(frozen=True, kw_only=True)
class InexactADMM(Solver[Admm]):
    """Algorithm 2 of He24 as a method for problems without constraints."""

    name: ClassVar[str] = "inexact-admm"

    consensus_penalty: float | None = option(
        None, "penalty of the consensus; by default from the owners' curvature, and adapted", letter="rho", above=0
    )
    inner_decay: float = option(0.1, "decay of the subproblems' accuracies", letter="q", above=0, below=1)

    def init(self, run: Run) -> tuple[Admm, Iterate]:
        rho = self.consensus_penalty
        if rho is None:
            rho = default_consensus_penalty(look(run), len(run.owners))
        begun = run.ask(begin_alone, Begin(w=run.start, penalty=rho))
        admm = Admm(
            server=run.problem.server.objective or Constant(run.start.size),
            regularizer=run.problem.regularizer,
            w=run.start,
            proposals=begun.total.proposal,
            weight=len(run.owners),
            tolerance=run.tol[0],
            decay=self.inner_decay,
            penalty=rho,
            adapt=self.consensus_penalty is None,
        )
        judged = certificate_of(run.problem, run.start, np.zeros(0), begun)
        return admm, Iterate(number=run.first, w=run.start, judged=judged, consensus_penalty=rho)

    def step(self, run: Run, state: Admm) -> Iterate:
        sums = state.exchange(run, update_alone)
        iterate = Iterate(
            number=run.first + state.rounds,
            w=state.w,
            inner=state.rounds,
            consensus_penalty=state.penalty,
            gradients=int(sums.gradients),
            hessians=int(sums.hessians),
            record=state.record(run, 0),
        )
        if not state.finished:
            return iterate
        judged = judge_point(run, state.w)
        if state.failure:
            return replace(iterate, judged=judged, end=Verdict("stalled", state.failure))
        state.tolerance *= 0.3  # (19) is met; should the certificate ask for more, go on
        return replace(iterate, judged=judged)
