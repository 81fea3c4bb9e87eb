"""Inexact ADMM for min_w sum_{i=0..n} F_i(w) + h(w): Algorithm 2 of He24 and He24-conic, both halves.

Owner i holds F_i, the server F_0 and h. The proximal AL method runs it on its subproblems; by itself it trains without
constraints (`method="inexact-admm"`).

An owner's function may have slacks s_i of a coupled constraint behind w (`coupling.py`): variables of (14) and (15)
like w, of which the server knows the sum. And private variables v behind those: they are minimised in (15) too, without
a consensus that would tie them, and their gradient counts in eps~.

With participation below 1 a round asks a sample of the owners, whose proposals change by what they send; those of the
others stay in the server's sum (random block coordinates of Douglas-Rachford splitting, Combettes and Pesquet 2015).
All are asked when penalties change, and when the sample suggests that tau is met, which only all of them can tell.

Notation (He24-conic numbering)
    u, lambda   an owner's copy of w and the multiplier of u = w            Consensus.u, .multiplier
    rho_i       the consensus penalty: r_i rho, by default r_i = 1          Consensus.penalty, .weight
    u~          u + lambda / rho, what an owner proposes to the server      proposal
    eps         accuracy of the subproblems, eps_{t+1} = q^t                accuracy
    eps~        an owner's share of the stationarity of w                   stationarity
    tau         the target: eps + sum_i eps~_i <= tau                       tolerance
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fedpact.federation import Largest, Order, Reply, Summed, client_step, skippable
from fedpact.functions import Function
from fedpact.problem import Share
from fedpact.prox import Prox, Zero
from fedpact.solvers.base import Solver, option
from fedpact.solvers.consensus.rounds import sample_owners
from fedpact.solvers.constrained.augmented_lagrangian import gradient_between
from fedpact.solvers.constrained.coupling import for_server
from fedpact.solvers.local import Constant, Minimum, anchored, minimize
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.scales import default_consensus_penalty, look
from fedpact.solvers.solution import InnerRecord
from fedpact.solvers.steps import Judged, certificate_of, judge_point, judged_terms
from fedpact.types import Matrix, Vector

#: Owners balance their penalties at first after so many rounds,
PATIENCE = 2.0
#: each time so many times later,
LATER = 1.1
#: by at most this factor,
MOST = 4.0
#: and no more after this many rounds: from there on the theory of fixed penalties applies.
ADAPT_UNTIL = 2000
#: By this factor where the owner's subproblem is not convex.
RAISE = 2.0
#: Over-relaxation: the owners' copies meet w + (RELAXATION - 1) (w - u). Between 0 and 2 the iteration converges
#: (Eckstein and Bertsekas 1992); here it takes up to a third fewer rounds than with 1.
RELAXATION = 1.6
#: Residual of a local solve over |u - w|, both in units of sqrt(rho_i); and of the server's over that of l_k.
FRACTION = 0.01
#: Rounds without a halved residual after which the iteration is given up.
STAGNATION = 5000
#: Rounds in a row in which someone fails to solve a subproblem and the residual does not halve, likewise.
STUCK = 20
#: The part of the target below which the accuracy of a subproblem does not matter any more.
FINEST = 0.02

#: q of He24's experiments.
PAPER_DECAY = 0.1
#: What the option `inner_decay` says.
DECAY = (
    "decay of the subproblems' accuracies; by default they follow the residuals, and beside a given penalty it is 0.1"
)

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True)
class Consensus:
    """State of one owner inside one call of Algorithm 2."""

    u: Vector  # followed by the slacks and the private variables
    multiplier: Vector
    penalty: float  # rho_i
    weight: float  # r_i
    slack: Vector  # s_i, as the server placed it last
    factor: Matrix | None = None  # of the Hessian of (15), as last formed

    @property
    def proposal(self) -> Vector:
        """u~: (17)"""
        return self.u[: self.multiplier.size] + self.multiplier / self.penalty


@dataclass(frozen=True, kw_only=True)
class Round(Order):
    """Solve the owner's subproblem (15) around w to this accuracy, or to relative sqrt(rho_i) where that is larger."""

    w: Vector
    push: Vector  # of the slacks, see `coupling.py`; empty without a coupled constraint
    accuracy: float
    relative: float = 0.0
    relaxation: float = 1.0
    balance: bool = False  # choose rho_i of the next round anew
    at_copy: bool = False  # measure with the constraint's multiplier at the owner's copy, not at w


@dataclass(frozen=True, kw_only=True)
class Updated(Reply):
    """What an owner proposes to the server, and the residuals of its round."""

    proposal: Summed[Vector]
    stationarity: Summed[float]  # eps~
    gradient: Summed[Vector]  # what eps~ is the size of, of w's variables
    apart: Summed[float]  # sum of its squares in the owner's slacks and private variables
    gap: Largest[float]  # between the constraint's values at w and at the copy, max-norm
    primal: Summed[float]  # rho_i |u_new - w|^2
    weight: Summed[float]  # r_i of the next round
    looseness: Summed[float]  # 1 / r_i of those that hold a part of the coupled constraint
    converged: bool
    indefinite: bool
    gradients: Summed[int]
    hessians: Summed[int]


def begin(
    function: Function,
    point: Vector,
    penalty: float,
    weight: float = 1.0,
    slack: int = 0,
    private: int = 0,
    factor: Matrix | None = None,
) -> Consensus:
    """The owner's start: (u, lambda, u~) = (w, -grad F_i(w), w - grad F_i(w) / rho_i).

    point: (w, s_i, v_i) with so many slacks and private variables; penalty: rho; factor: of a Hessian like that of (15)
    """
    tied = point.size - private
    rho = weight * penalty
    multiplier = -function.gradient(point)[:tied]
    if function.constant_hessian:  # then it must be exact
        factor = None
    return Consensus(point, multiplier, rho, weight, slack=point[tied - slack : tied], factor=factor)


def resume(function: Function, state: Consensus) -> Consensus:
    """The owner's start on a function that differs from the last in its multiplier, centre and penalty: where it was.

    differs from He24, where every call begins with `begin`: lambda_i ends as minus the gradient of the owner's
    Lagrangian with the new multiplier, which it will be in the end, too. That of the augmented Lagrangian is farther
    off by beta c(w), as if the multiplier were to change once more by as much as it just did.
    """
    if function.constant_hessian:  # the factor must be exact
        return replace(state, factor=None)
    return state


@np.errstate(over="ignore", invalid="ignore")  # a reply that is not finite is refused
def update(function: Function, state: Consensus, order: Round) -> tuple[Consensus, Updated]:
    """The owner's round: solve (15), then (16), (17), (18)."""
    # 1. where it shall meet the server
    rho = state.penalty
    before = state.u[: state.multiplier.size]
    slack = before[order.w.size :]
    if slack.size:
        slack = slack + (state.multiplier[order.w.size :] - order.push) / rho
    w = np.concatenate([order.w, slack])  # slacks are tied like w
    target = order.relaxation * w + (1 - order.relaxation) * before

    # 2. the copy and its multiplier
    accuracy = order.accuracy
    if not function.constant_hessian:  # else one solve is exact
        accuracy = max(accuracy, order.relative * float(np.sqrt(rho)))
    found = minimize(_tie(function, state, target - state.multiplier / rho), state.u, accuracy, kept=state.factor)
    u, private = np.split(found.w, [w.size])
    multiplier = state.multiplier + rho * (u - target)  # (16)

    # 3. (18): grad phi(w) - rho (w - u^t), where u^t is the copy from before this round's solve. The bound holds for
    # any private variables, if their part of grad phi counts: these are the ones that the outer iteration takes.
    pull = np.append(state.multiplier - rho * (w - before), np.zeros_like(private))
    point = np.append(w, private)
    gap = 0.0
    if order.at_copy:
        gradient, gap = gradient_between(function, point, found.w)
    else:
        gradient = function.gradient(point)
    stationarity = gradient + pull
    apart = stationarity[order.w.size :]

    # 4. the next penalty, and the proposal (17) with it
    weight = state.weight
    if order.balance:
        weight *= _balance(u - target, u - before, found.indefinite)
    next_rho = rho * (weight / state.weight)
    factor = found.factor
    if weight != state.weight and function.constant_hessian:
        factor = None
    after = Consensus(found.w, multiplier, next_rho, weight, slack, factor)
    return after, Updated(
        proposal=for_server(after.proposal, order.w.size, order.push.size, weight),
        stationarity=float(np.max(np.abs(stationarity))),
        gradient=stationarity[: order.w.size],
        apart=float(apart @ apart),
        gap=gap,
        primal=rho * float((u - w) @ (u - w)),
        weight=weight,
        looseness=1 / weight if slack.size else 0.0,
        converged=found.converged,
        indefinite=found.indefinite,
        gradients=found.gradients + 1,
        hessians=found.hessians,
    )


def update_part(function: Function, state: Consensus, order: Round) -> tuple[Consensus, Updated]:
    """The same where a sample is asked: the reply tells by how much the proposal changed, at a penalty that stays."""
    after, reply = update(function, state, order)
    proposed = for_server(state.proposal, order.w.size, order.push.size, state.weight)
    return after, replace(reply, proposal=reply.proposal - proposed)


def _balance(pulled: Vector, moved: Vector, indefinite: bool) -> float:
    """The factor for rho_i: the root of |change of lambda| / rho_i over |change of u|.

    Their ratio is the curvature of F_i along the last step over rho_i, and a penalty near that curvature is what ADMM
    likes. differs from He24, where the rho_i are fixed: curvatures of owners differ by orders of magnitude, since few
    constraints bind, and are not known before.
    """
    if indefinite:
        return RAISE
    ratio = (float(np.linalg.norm(pulled)) + 1e-300) / (float(np.linalg.norm(moved)) + 1e-300)
    return float(np.clip(np.sqrt(ratio), 1 / MOST, MOST))


def _tie(function: Function, state: Consensus, target: Vector) -> Function:
    """F_i(u) + rho/2 |u - target|^2, where private variables of u are free."""
    private = state.u.size - target.size
    if not private:
        return anchored(function, state.penalty, target)
    weight = np.append(np.full(target.size, state.penalty), np.zeros(private))
    return anchored(function, weight, np.append(target, np.zeros(private)))


# --------------------------------------------------------------------------------------------------- the server's half

Step = Callable[[Any, Any, Round], tuple[Any, Updated]]


@dataclass
class Admm:
    """The server's side of one call of Algorithm 2, from w and the sum of the owners' first proposals r_i u~_i^0.

    server:   F_0; a quadratic regularizer becomes part of it
    weight:   sum of the owners' r_i
    slacks:   sum of the owners' s_i; those of their proposals follow w's in `proposals`
    looseness: sum of 1 / r_i of the owners that hold a part of the coupled constraint
    place:    (sum of proposed slacks, sum of 1 / rho_i) -> the push that minimises the server's function of their sum,
              and the sum of the slacks after it
    decay:    q; None: accuracies follow the residuals
    adapt:    owners balance their penalties, over-relax, and take their multipliers at their copies; else Algorithm 2
              as it is printed
    residual: the left side of (19), or what it bounds; estimated where a sample was asked
    gap:      between the constraints' values at w and at the owners' copies, the largest; most_gap: its target
    failure:  why it cannot get any further; empty while it can
    participation: share of the owners that a round asks; drawn: rounds of the calls before this one
    certain:  were all owners asked in the last round?
    """

    server: Function
    regularizer: Prox
    w: Vector
    proposals: Vector
    weight: float
    tolerance: float
    decay: float | None
    penalty: float
    owners: int
    adapt: bool
    most_gap: float = np.inf
    looseness: float = 0.0
    slacks: Vector = field(default_factory=lambda: np.zeros(0))
    place: Callable[[Vector, float], tuple[Vector, Vector]] = lambda proposed, looseness: (proposed, proposed)
    participation: float = 1.0
    drawn: int = 0
    rounds: int = 0
    residual: float = np.inf
    gap: float = 0.0
    failure: str = ""
    certain: bool = False
    _kept: Matrix | None = None
    _missed: float = np.inf  # sum_i rho_i |u_i - w|^2
    _patience: float = PATIENCE
    _wait: float = PATIENCE
    _lowest: float = np.inf
    _halved: int = 0  # round in which the residual last halved
    _stuck: int = 0

    def __post_init__(self) -> None:
        if self.regularizer.curvature is not None:
            self.server = anchored(self.server, self.regularizer.curvature, np.zeros_like(self.w))
            self.regularizer = Zero()

    @property
    def arrived(self) -> bool:
        """Whether the owners that were asked last meet both targets."""
        return self.residual <= self.tolerance and self.gap <= self.most_gap

    @property
    def finished(self) -> bool:
        return (self.arrived and self.certain) or bool(self.failure)

    @property
    def mean_penalty(self) -> float:
        """Mean of the rho_i over the owners."""
        return self.penalty * self.weight / self.owners

    def exchange(self, run: Run, step: Step, step_of_part: Step | None = None) -> Updated:
        """One round: the server's subproblem (14), then the owners' (15)-(18). Returns the owners' sums.

        step_of_part: what a sample of the owners is asked for
        """
        # 1. (14), up to a constant: in w, and in closed form in the slacks
        accuracy = self._accuracy()
        proposals, proposed_slacks = np.split(self.proposals, [self.w.size])
        subproblem = anchored(self.server, self.weight * self.penalty, proposals / self.weight)
        push, self.slacks = self.place(proposed_slacks, self.looseness / self.penalty)
        at_server = minimize(subproblem, self.w, accuracy, regularizer=self.regularizer, kept=self._kept)
        way = at_server.w - self.w
        self.w = at_server.w
        self._kept = at_server.factor

        # 2. the owners
        order = self._order(push, accuracy, way)
        asked = self._choose_owners(run, order)
        self.certain = asked == run.owners
        part = len(asked) / len(run.owners)
        if self.certain:
            replies = run.ask(step, order)
            total = replies.total
            self.proposals = total.proposal
            if total.weight != self.weight and self.server.constant_hessian:
                self._kept = None
            self.weight = total.weight
            self.looseness = total.looseness
        else:
            assert step_of_part is not None
            replies = run.ask(step_of_part, order, asked)
            total = replies.total
            self.proposals = self.proposals + total.proposal
        self._missed = total.primal / part

        # 3. how far w is from the minimum
        self.residual = self._measure(at_server, total, accuracy, part)
        self.gap = total.gap
        failed = [owner for owner, reply in zip(asked, replies, strict=True) if not reply.converged]
        if not at_server.converged:
            failed.insert(0, "the server")
        self._watch(failed, accuracy)
        self.rounds += 1
        return total

    def _choose_owners(self, run: Run, order: Round) -> tuple[str, ...]:
        """A sample; all owners where they balance their penalties, or where only they can tell that tau is met."""
        if order.balance or self.arrived:
            return run.owners
        return sample_owners(run, self.participation, self.drawn + self.rounds)

    def _accuracy(self) -> float:
        """Of the server's subproblem, and of the owners' without `relative`.

        differs from He24: accuracies below the finest no longer matter to (19), and rounding forbids them anyway.
        """
        finest = FINEST * self.tolerance / (self.owners + 1)
        if self.decay is not None:
            return max(self.decay**self.rounds, finest)
        return max(FRACTION * min(self.residual, 1.0), finest)

    def _order(self, push: Vector, accuracy: float, way: Vector) -> Round:
        relative = 0.0
        if self.decay is None:
            # differs from He24, where accuracies are q^t: with that of the last round every local solve takes about one
            # Newton step, and errors stay summable as the residuals are (Eckstein and Yao 2018).
            accuracy = FINEST * self.tolerance / (self.owners + 1)
            missed = self._missed
            if missed == np.inf:  # every u_i is where w was
                missed = self.weight * self.penalty * float(way @ way)
            relative = FRACTION * float(np.sqrt(missed / (self.owners * self.w.size)))
        if not self.adapt:
            return Round(w=self.w, push=push, accuracy=accuracy, relative=relative)
        balance = self._wait <= self.rounds < ADAPT_UNTIL
        if balance:
            self._patience *= LATER
            self._wait = self.rounds + self._patience
        return Round(
            w=self.w,
            push=push,
            accuracy=accuracy,
            relative=relative,
            relaxation=RELAXATION,
            balance=balance,
            at_copy=True,
        )

    def _measure(self, at_server: Minimum, total: Updated, accuracy: float, part: float) -> float:
        """The left side of (19); it bounds the stationarity of w only with what the server really reached.

        part: of the owners that were asked; as much as they miss, on average the others do

        differs from He24 (19) where penalties adapt: that adds up the sizes of the owners' parts, which cancel; the
        size of their sum bounds the stationarity as well, and does not grow with the number of owners.
        """
        if not self.adapt:
            return max(accuracy, at_server.residual) + total.stationarity / part
        common = at_server.residual + float(np.max(np.abs(total.gradient))) / part
        return max(common, math.sqrt(total.apart / part))

    def _watch(self, failed: list[str], accuracy: float) -> None:
        """Note when the residual halves, and give up when it does not for long."""
        if self.residual < 0.5 * self._lowest:
            self._lowest = self.residual
            self._halved = self.rounds
        idle = self.rounds - self._halved
        self._stuck = self._stuck + 1 if failed else 0
        if self.arrived:  # or seems to be, after a sample
            return
        if idle >= STAGNATION:
            self.failure = f"the inner residual stays at {self.residual:.1e}, above its target {self.tolerance:.1e}"
        elif self._stuck >= STUCK and idle >= STUCK:
            self.failure = f"{', '.join(failed)} could not solve the subproblem to {accuracy:.1e}"

    def record(self, run: Run, iteration: int) -> InnerRecord:
        return InnerRecord(iteration, run.rounds, self.residual, self.tolerance, self.mean_penalty)


def decay_of(given: float | None, adapt: bool) -> float | None:
    """q as it was given; that of the paper's experiments beside a given penalty; else None."""
    if given is None and not adapt:
        return PAPER_DECAY
    return given


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
    consensus = begin(function, order.w, order.penalty)
    return consensus, Begun(proposal=consensus.proposal, **judged_terms(share, order.w, np.zeros(0), np.zeros(0)))


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
    inner_decay: float | None = option(None, DECAY, letter="q", above=0, below=1)

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
            decay=decay_of(self.inner_decay, self.consensus_penalty is None),
            penalty=rho,
            owners=len(run.owners),
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
            consensus_penalty=state.mean_penalty,
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
