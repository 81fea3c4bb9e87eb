"""Federated primal-dual interior-point method: a dozen exchanges to a certificate, whatever the number of owners.

    min_w sum_i f_i(w) + h(w)   s.t.   c_i(w) + s_i = 0, s_i in K_i  (every owner and the server, i = 0)

An owner eliminates its slack s_i and multiplier z_i from the Newton system and sends its share of what is left,

    M_i = hess f_i + z_i . hess c_i + J_i' D_i J_i,   r_i(tau) = grad f_i + J_i'(D_i (c_i + s_i) + tau s_i^-1),

the server adds, minimises d'Md / 2 + r'd + h(w + d), and sends the step d and the target tau; every owner recovers the
steps of its slack and multiplier by itself and takes its own step lengths for them. One exchange is one iteration, all
the server uses are sums, and multipliers stay with their owners until the end.

Near the solution the owners know which constraints bind; then the same exchange carries the semismooth Newton system of
z = P_{K*}(z + theta c(w)), which converges faster than any barrier. It is left again when it does not pay.

Notation
    tau     complementarity the next step aims at            target
    D       scaling of a slack-multiplier pair (z / s)       Model.weight
    s, z    slack and multiplier                             Point.slack, .multiplier
    M, r    the condensed system                             System.matrix, .slope and .centring
    lambda  multiple of the Hessian's diagonal added to M    damping

Sources: Mehrotra (1992) and Waechter and Biegler (2006) for the method, Nesterov and Todd (1997) for the scaling, Qi
and Sun (1993) for the semismooth step; the condensation by owner is our own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fedpact.errors import DataError
from fedpact.federation import Answers, add_up, client_step, named
from fedpact.problem import Certificate, Share, Terms, assemble, owner_evidence
from fedpact.problem.infeasibility import row_evidence
from fedpact.solvers.base import Needs, Solver
from fedpact.solvers.constrained.balancing import (
    Balance,
    Balanced,
    correct_weights,
    gather_evidence,
    seek_conflict,
    stiffness,
)
from fedpact.solvers.constrained.condensation import (
    Local,
    Look,
    Point,
    System,
    condense,
    cone_of,
    evaluate,
    first_pair,
    lagrangian_hessian,
    move_pair,
    unpack,
)
from fedpact.solvers.evidence import Pull, pull
from fedpact.solvers.local.damped_model import model_step
from fedpact.solvers.run import HAND_OVER, Iterate, Run, Verdict
from fedpact.solvers.scales import Introduce, introduce
from fedpact.solvers.steps import Holder
from fedpact.types import Matrix, Vector

# The target tau.
#: Part of the complementarity that the first step aims at: nothing is known yet of how steps succeed.
FIRST_TARGET = 0.1
#: ... and that any later step aims at, at most; less after good progress (Mehrotra's rule has the third power).
MOST_TARGET = 0.3
#: The target never falls below this part of the residual, so complementarity does not run ahead of it.
BEHIND = 0.003

# The damping lambda.
#: Added to M as a multiple of the Hessian's diagonal, so that directions without curvature do not move.
LEAST_DAMPING = 1e-9
#: Damping after a step that was dropped, at least: less would hardly change the next one.
DROPPED_DAMPING = 1e-4
#: Damping is multiplied by this when a step was dropped, and divided by it when one was kept.
RELAX = 10.0
#: In a column that has become flat the diagonal counts as this part of the largest it was: it does not run away.
FLAT = 0.01

# Which barrier steps are kept.
#: Residuals below this part of the first one may grow.
SMALL = 1e-3
#: A step is dropped when it misses the constraints this many times more than before ...
LEFT = 10.0
#: ... unless that is little: this many times less than their values at the start.
SIZE = 0.1
#: Relative to the objective: a rise that is no more than its rounding is none.
ROUNDING = 1e-10

# The semismooth steps.
#: They are tried when the certificate has come down to this part of the first residual,
NEAR = 0.007
#: their system is asked for a little before that,
SOON = 5.0
#: and they are left when the certificate has not halved in this many steps,
PATIENCE = 5
#: or has grown by this factor;
WORSE = 10.0
#: then the barrier goes on for at least this many steps.
REST = 2
#: Steps that differ by this part of their length keep their direction ...
EVEN = 0.05
#: ... and are made longer, up to this factor.
LONGEST = 4.0

# When something is asked for that costs the owners work, or exchanges.
#: Certificates: when the residual is within this factor of the tolerance,
JUDGED = 1e3
#: or within this factor of where the semismooth steps begin.
JUDGED_NEAR = 20.0
#: A proof of conflict: when the miss of the constraints has not halved in this many iterations,
SUSPECT = 3
#: then after this many more, doubled each time,
WAIT = 2
#: and while this many exchanges are left.
PROOF = 4
#: Algorithm 1 goes on when it has not halved in this many, where the constraints may be non-convex.
MISSED = 12
#: A point this many times farther out than AWAY may have no end; it is asked again when it is as much farther still.
FARTHER = 1e3
AWAY = 1e4

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True, kw_only=True)
class State(Holder):
    """What a holder keeps: the latest point, whose `price` it is, and the last accepted point of the barrier."""

    latest: Point
    kept: Point
    weights: Vector = field(default_factory=lambda: np.zeros(0))  # proposed for a proof that constraints conflict


@dataclass(frozen=True, kw_only=True)
class Begin(Look):
    """Start at w; holders: the owners and the server."""

    w: Vector
    holders: int


@dataclass(frozen=True, kw_only=True)
class Advance(Look):
    """Take a step, and say what is found there."""

    iteration: int
    step: Vector
    longer: float  # w takes the step times this, slack and multiplier as it is
    target: float
    keep: bool  # first: the latest point becomes the kept one
    best: bool  # first: the latest multiplier becomes the best one
    back: bool  # go from the kept point; else from the latest


@client_step
def begin(share: Share, state: Any, order: Begin) -> tuple[State, System]:
    """Check the share at the start, choose the first slack and multiplier, and give their system."""
    introduce(share, None, Introduce(w=order.w))
    cone = cone_of(share)
    local = evaluate(share, order.w, order.coupled.size)
    slack, multiplier = first_pair(cone, local, order.holders)
    point, system = condense(share, cone, order.w, local, slack, multiplier, order)
    check_usable(system)
    return at_start(point), system


@client_step
def advance(share: Share, state: State, order: Advance) -> tuple[State, System]:
    """Take the step with step lengths of our own, and give the system of the new point."""
    origin = origin_of(state, order)
    cone = cone_of(share)
    w = origin.w + order.longer * order.step
    slack, multiplier = move_pair(cone, origin, order.step, order.target, order.finishing)
    local = evaluate(share, w, order.coupled.size)
    point, system = condense(share, cone, w, local, slack, multiplier, order)
    return move_to(state, order, point), system


@client_step
def balance(share: Share, state: State, order: Balance) -> tuple[State, Balanced]:
    """Correct the weights for the step of w, and give their evidence and what the next step needs."""
    cone = cone_of(share)
    if order.scale:
        weights = order.scale * state.latest.multiplier
    else:
        jacobian = evaluate(share, order.w - order.step).jacobian
        weights = correct_weights(cone, jacobian, state.weights, order.step)
    if share.constraint is not None:
        weights = share.constraint.cone.project_dual(weights)
    return replace(state, weights=weights), gather_evidence(share, cone, order.w, weights, order.coupled)


def check_usable(system: System) -> None:
    """Raise DataError for the first system of a holder whose Hessian is not finite."""
    if not system.usable:
        remedy = "check the function there, or start from another w0"
        raise DataError(f"its Hessian is not finite at the start; {remedy}", code="FP-DATA-251")


def at_start(point: Point) -> State:
    """The state at the first point, which no certificate has called the best yet."""
    return State(
        iteration=0,
        price=point.clean,
        best_iteration=-1,
        best_price=np.zeros_like(point.clean),
        latest=point,
        kept=point,
    )


def origin_of(state: State, order: Advance) -> Point:
    """The point that the order's step starts from."""
    return state.kept if order.back else state.latest


def move_to(state: State, order: Advance, point: Point) -> State:
    """The state after the step to `point`."""
    kept = state.latest if order.keep else state.kept
    state = state.mark_best(order.best)
    return replace(state, iteration=order.iteration, price=point.clean, latest=point, kept=kept)


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass(frozen=True)
class Sums:
    """The systems of all holders added up, and what the server reads off them.

    usable:       False when a value of some holder is not finite here: then all else is void
    stationarity: distance of 0 from grad f + J'z + the subdifferential of h
    miss:         |c + s| over all holders
    certificate:  of w and the clean multipliers, with the objective, when it was asked for
    """

    usable: bool
    system: System
    stationarity: float = np.inf
    miss: float = np.inf
    certificate: Certificate | None = None
    objective: float = np.nan

    @property
    def residual(self) -> float:
        return max(self.stationarity, self.miss)

    @property
    def size(self) -> float:
        """|c| over all holders."""
        return float(np.sqrt(self.system.size))

    @property
    def degree(self) -> int:
        return int(self.system.degree)

    @property
    def complementarity(self) -> float:
        """Mean of <s, z> over the degree of all cones."""
        return self.system.complementarity / max(self.degree, 1)

    @property
    def curvature(self) -> float:
        return float(np.mean(self.system.diagonal))


class Coordinator:
    """The server: a holder of its own constraint and of the coupled one, and the one who adds up."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.problem = run.problem
        self.split = self.problem.server.multiplier_length  # its own rows come first, then the coupled ones
        self.cone = cone_of(self.problem.server, self.problem.coupled_length)
        self.w = run.start
        self.state: State

    def begin(self) -> Sums:
        """One exchange: the first systems."""
        server = self.problem.server
        none = np.zeros(self.problem.coupled_length)
        order = Begin(w=self.w, holders=len(self.run.owners) + 1, coupled=none, judged_coupled=none)
        replies = self.run.ask(begin, order)
        with named(server.label, begin.__name__):
            introduce(server, None, Introduce(w=self.w))
        local = self.local_at(self.w, replies.total.coupled, replies.total.coupled_jacobian)
        # Without an objective of its own the server's multipliers are as strong as those of an owner on average.
        share_of_gradient = np.linalg.norm(replies.total.gradient) / order.holders
        slack, multiplier = first_pair(self.cone, replace(local, gradient=np.array([share_of_gradient])), order.holders)
        point, own = condense(server, self.cone, self.w, local, slack, multiplier, order)
        with named(server.label, begin.__name__):
            check_usable(own)
        self.state = at_start(replace(point, clean=np.append(point.clean[: self.split], none)))
        return self._sums(own, replies, none, judged=True)

    def advance(self, order: Advance) -> Sums:
        """One exchange: everybody takes the step; the server's own multipliers are known before, so owners get them."""
        origin = origin_of(self.state, order)
        slack, multiplier = move_pair(self.cone, origin, order.step, order.target, order.finishing)
        expected = self.cone.clean(multiplier, -slack, origin.local.jacobian)[self.split :]
        if order.finishing:
            expected = np.maximum(multiplier[self.split :], 0.0)
        order = replace(order, coupled=multiplier[self.split :], judged_coupled=expected)
        self.w = origin.w + order.longer * order.step
        replies = self.run.ask(advance, order)
        local = self.local_at(self.w, replies.total.coupled, replies.total.coupled_jacobian)
        point, own = condense(self.problem.server, self.cone, self.w, local, slack, multiplier, order)
        point = replace(point, clean=np.append(point.clean[: self.split], expected))  # as the owners judged it
        self.state = move_to(self.state, order, point)
        return self._sums(own, replies, expected, order.judge)

    def local_at(self, w: Vector, coupled: Vector, coupled_jacobian: Matrix) -> Local:
        """The server's share at w, with the coupled constraint as further rows."""
        with named(self.problem.server.label, "evaluating the share"):
            local = evaluate(self.problem.server, w, self.problem.coupled_length)
        if not self.problem.coupled_length:
            return local
        return replace(
            local,
            value=np.append(local.value, coupled),
            jacobian=np.vstack([local.jacobian, coupled_jacobian]),
        )

    def _sums(self, own: System, replies: Answers[System], coupled: Vector, judged: bool) -> Sums:
        """Add up the systems of all holders; with `judged`, assemble the certificate from their terms."""
        if not own.usable or not all(reply.usable for reply in replies):
            return Sums(usable=False, system=own)
        total = add_up([own, replies.total]).total
        slope = total.gradient + total.price
        certificate = None
        objective = np.nan
        if judged:
            terms = Terms(
                objective=replies.total.objective,
                gradient=replies.total.judged,
                coupled=replies.total.coupled,
                feasibility=0.0,
                violation=0.0,
            )
            clean = self.state.latest.clean[: self.split]
            certificate, objective = assemble(self.problem, self.w, clean, coupled, terms, replies)
        return Sums(
            usable=True,
            system=total,
            stationarity=self.problem.regularizer.subdifferential_distance(-slope, self.w),
            miss=float(np.sqrt(total.miss)),
            certificate=certificate,
            objective=objective,
        )


class Balancing:
    """The server in a search for a proof of conflict: the holder of its own and of the coupled weights."""

    def __init__(self, at: Coordinator) -> None:
        self.at = at
        self.weights = at.state.latest.multiplier
        self.jacobian = at.state.latest.local.jacobian

    def ask(self, order: Balance) -> tuple[Pull, Matrix]:
        """One exchange: the evidence of all holders, the coupled constraint as one of them, and J' Q_v J + H."""
        problem = self.at.problem
        cone = self.at.cone
        weights = correct_weights(cone, self.jacobian, self.weights, order.step)
        if order.scale:
            weights = order.scale * self.weights
        own, coupled = np.split(weights, [self.at.split])
        coupled = np.maximum(coupled, 0.0)
        replies = self.at.run.ask(balance, replace(order, coupled=coupled))
        local = self.at.local_at(order.w, replies.total.coupled, replies.total.coupled_jacobian)
        self.weights = weights
        self.jacobian = local.jacobian
        held = {problem.server.label: owner_evidence(problem.server, order.w, own)}
        if coupled.size:
            rows = slice(self.at.split, None)
            held["coupled"] = row_evidence(local.value[rows], local.jacobian[rows], order.w, coupled)
        bent = lagrangian_hessian(replace(problem.server, objective=None), order.w, own, np.zeros(0))
        matrix = unpack(replies.total.matrix, order.w.size) + stiffness(cone, local.jacobian, weights) + bent
        return pull(held, problem.names, replies), matrix


@dataclass
class Pace:
    """What the server decides between two exchanges: barrier or semismooth step, target, damping."""

    first: float  # the residual at the start
    size: float  # of the constraints there
    free: bool = False  # nobody has a constraint: the objective tells whether a step was good
    finishing: bool = False
    target: float = 0.0
    damping: float = LEAST_DAMPING
    back: bool = False  # the next step starts from the kept point
    keep: bool = False  # the latest point is to be kept
    rest: int = 0  # barrier steps before the semismooth step is tried again
    slow: int = 0  # semismooth steps in a row that did not halve the certificate
    lowest: float = np.inf  # certificate of the semismooth steps
    previous: Vector | None = None  # the last semismooth step
    longer: float = 1.0
    entry: float = np.inf  # certificate before the first of them
    steepest: Vector | float = 0.0  # the largest diagonal of the Hessian so far, by column

    def steady(self, diagonal: Vector) -> Vector:
        """The diagonal that damping is measured by."""
        self.steepest = np.maximum(self.steepest, diagonal)
        return np.maximum(diagonal, FLAT * self.steepest)

    def aim(self, base: Sums, before: float) -> None:
        """The complementarity to aim at: much less than now after good progress, but never ahead of the residual.

        before: complementarity at the accepted point before the base; infinite at the start
        """
        if not base.degree:
            self.target = 0.0
            return
        part = FIRST_TARGET
        if np.isfinite(before):
            ratio = base.complementarity / before if before > 0 else 1.0
            part = min(MOST_TARGET, ratio**2)
        least = min(BEHIND * base.residual, base.complementarity)
        self.target = max(part * base.complementarity, least)

    def choose(self, now: Sums) -> None:
        """Start with semismooth steps when they are near."""
        asked = now.system.near_matrix.size > 0
        if not self.keep or self.rest or not asked or not self.near(now, 1.0):
            return
        assert now.certificate is not None
        self.finishing = True
        self.slow = 0
        self.longer = 1.0
        self.entry = now.certificate.worst
        self.lowest = now.certificate.worst
        self.previous = None

    def finish(self, now: Sums) -> None:
        """After a semismooth step: does it pay? Else back to the barrier."""
        worst = np.inf if now.certificate is None else now.certificate.worst
        if worst <= 0.5 * self.lowest:
            self.slow = 0
        else:
            self.slow += 1
        pays = now.usable and self.slow <= PATIENCE and worst <= WORSE * self.entry
        self.lowest = min(worst, self.lowest)
        if not pays:
            self.finishing = False
            self.back = True
            self.rest = REST

    def stretch(self, step: Vector, lagging: bool) -> float:
        """How much longer than Newton's step w may go: more than 1 only on an exponential tail.

        There (a class that a rare column separates, and the minimiser far out) Newton's steps keep direction and length
        while the gradient falls by e; a step k times longer makes it fall by e^k. It also misses constraints that bind
        k - 1 times as much as before, so it must be stationarity that lags behind.
        """
        before = self.previous
        self.previous = step
        even = before is not None and float(np.linalg.norm(step - before)) <= EVEN * float(np.linalg.norm(before))
        self.longer = min(2 * self.longer, LONGEST) if even and lagging else 1.0
        return self.longer

    def accept(self, base: Sums, now: Sums, used: float) -> bool:
        """After a barrier step: whether to keep it, and the damping of the next one. used: damping of this one."""
        good = now.usable and (self._descends(base, now) if self.free else self._stays_near(base, now))
        if good:
            self.damping = max(LEAST_DAMPING, used / RELAX)
        else:
            self.damping = max(RELAX * used, DROPPED_DAMPING)
        self.keep = good
        self.back = not good
        self.rest = max(self.rest - 1, 0)
        return good

    def _descends(self, base: Sums, now: Sums) -> bool:
        """Without constraints the objective tells."""
        return now.objective <= base.objective + ROUNDING * (1 + abs(base.objective))

    def _stays_near(self, base: Sums, now: Sums) -> bool:
        """Not both residuals more than doubled, nor were the constraints left by far. What is small anyway may grow."""
        small = max(base.complementarity, SMALL * self.first)
        doubled = now.stationarity > 2 * max(base.stationarity, small) and now.miss > 2 * max(base.miss, small)
        return not doubled and now.miss <= LEFT * max(base.miss, small, SIZE * self.size)

    def worth_judging(self, now: Sums, tol: tuple[float, float]) -> bool:
        close = now.residual <= max(JUDGED * max(tol), JUDGED_NEAR * NEAR * self.first)
        return self.free or self.finishing or close

    def near(self, now: Sums, factor: float) -> bool:
        """Whether the certificate is within this factor of where semismooth steps begin."""
        return now.certificate is not None and now.certificate.worst <= factor * NEAR * self.first


def lags(certificate: Certificate | None, tol: tuple[float, float]) -> bool:
    """Whether stationarity is farther from its tolerance than feasibility is."""
    return certificate is not None and certificate.stationarity * tol[1] > certificate.feasibility * tol[0]


@dataclass
class Server:
    """The server's variables: its own point, the pace, and what was seen."""

    at: Coordinator
    pace: Pace
    now: Sums  # of the latest point
    base: Sums  # of the last accepted point of the barrier
    before: float = np.inf  # complementarity at the accepted point before that
    k: int = 0
    lowest: float = np.inf  # miss of the constraints, at the iteration where it last halved
    halved: int = 0
    priced: float = 0.0  # the largest |<z, c>| so far
    proof_at: int = 0  # iteration from which on a proof of conflict may be sought
    wait: int = WAIT
    away: float = AWAY
    judged: int = 0  # iteration of the latest certificate


@dataclass(frozen=True, kw_only=True)
class InteriorPoint(Solver[Server]):
    """Federated primal-dual interior point: a dozen exchanges of d x d matrices. Nothing to tune."""

    name: ClassVar[str] = "interior-point"
    needs: ClassVar[Needs] = Needs(constraints=True, symmetric=True, coupled=True, matrices=True)
    reserve: ClassVar[int] = 2
    patience: ClassVar[int] = 60
    doubt: ClassVar[int] = 60
    progress: ClassVar[float] = 0.9

    def init(self, run: Run) -> tuple[Server, Iterate]:
        problem = run.problem
        at = Coordinator(run)
        now = at.begin()
        rows = problem.coupled_length + sum(holder.multiplier_length for holder in (problem.server, *problem.shares))
        state = Server(at, Pace(now.residual, now.size, free=not rows), now, now)
        return state, self._iterate(run, state)

    def step(self, run: Run, state: Server) -> Iterate:
        at = state.at
        pace = state.pace

        # 1. the Newton step of the semismooth system, when it is near, else of the barrier
        pace.choose(state.now)
        origin = at.state.kept.w if pace.back else at.state.latest.w
        newton, damping = self._newton_step(run, state, origin)
        longer = 1.0
        if pace.finishing:
            smooth = run.problem.regularizer.curvature is not None
            longer = pace.stretch(newton, lagging=smooth and lags(state.now.certificate, run.tol))

        # 2. one exchange: everybody takes it
        order = Advance(
            iteration=run.first + state.k + 1,
            step=newton,
            longer=longer,
            target=pace.target,
            coupled=np.zeros(0),  # the coordinator puts in its own
            judged_coupled=np.zeros(0),
            curvature=state.base.curvature,
            finishing=pace.finishing,
            keep=pace.keep,
            best=run.best.iteration == run.first + state.k,
            back=pace.back,
            near=pace.finishing or pace.near(state.now, SOON),
            judge=self._worth_judging(run, state, origin + newton),
        )
        state.now = at.advance(order)
        state.k += 1

        # 3. was it good?
        pace.keep = False
        pace.back = False
        if pace.finishing:
            pace.finish(state.now)
        elif pace.accept(state.base, state.now, damping):
            state.before = state.base.complementarity
            state.base = state.now
        return self._iterate(run, state)

    def _newton_step(self, run: Run, state: Server, origin: Vector) -> tuple[Vector, float]:
        """argmin_d d'Md / 2 + r'd + h(origin + d) of the system that is in use, and the damping that M took."""
        pace = state.pace
        if pace.finishing:
            pace.target = 0.0
            system = state.now.system
            matrix = system.near_matrix
            slope = system.near_slope
        else:
            pace.aim(state.base, state.before)
            system = state.base.system
            matrix = system.matrix
            slope = system.slope + pace.target * system.centring
        diagonal = pace.steady(system.diagonal)
        h = run.problem.regularizer
        return model_step(unpack(matrix, origin.size), slope, diagonal, h, origin, pace.damping, 1e-3 * run.tol[0])

    def fallback(self, state: Server) -> str:
        return "accelerated"

    def conflict(self, run: Run, state: Server, w: Vector) -> tuple[str, ...]:
        """Balance the latest multipliers, from sums, until they prove a conflict or it does not pay any more."""
        value = state.now.system.priced
        if not state.now.usable or value <= 0:
            return ()
        state.proof_at = state.k + state.wait
        state.wait *= 2
        regularizer = run.problem.regularizer
        steps = run.rounds_left - PROOF
        point, found = seek_conflict(Balancing(state.at).ask, regularizer, state.at.w, value, steps)
        return found.conflict(regularizer, point)

    def _iterate(self, run: Run, state: Server) -> Iterate:
        """The latest point, and which evidence is worth asking for."""
        now = state.now
        owners = len(run.owners)
        judged = None
        missed = now.miss
        gradients = owners
        if now.certificate is not None:
            judged = (now.certificate, now.objective)
            missed = now.certificate.violation
            gradients += owners  # one more each, to judge
            state.judged = state.k
        if missed <= max(0.5 * state.lowest, run.tol[1]):
            state.lowest = missed
            state.halved = state.k
        suspect = self._suspects(run, state) and missed > run.tol[1]
        escape = judged is not None and self._is_far(state, state.at.w)
        if escape:
            state.away = float(np.max(np.abs(state.at.w)))
        return Iterate(
            number=run.first + state.k,
            w=state.at.w,
            multiplier=state.at.state.latest.clean,
            judged=judged,
            penalty=state.pace.target,
            consensus_penalty=state.pace.damping,
            gradients=gradients,
            hessians=owners,
            conflict=suspect,
            escape=escape,
            end=self._end(run, state),
        )

    def _suspects(self, run: Run, state: Server) -> bool:
        """Whether to seek a proof that constraints conflict: where they do, <z, c> grows without end."""
        before = state.priced
        if not state.now.usable:
            return False
        priced = state.now.system.priced
        state.priced = max(before, abs(priced))
        grows = priced > 0 and priced >= before
        waited = state.k - state.halved >= SUSPECT and state.k >= state.proof_at
        return grows and waited and run.rounds_left > PROOF

    def _end(self, run: Run, state: Server) -> Verdict | None:
        """Algorithm 1 goes on where the constraints stay missed and may be non-convex."""
        missed = state.k - state.halved >= MISSED
        if not missed or run.problem.convex or run.rounds_left <= HAND_OVER or run.problem.coupled_length:
            return None
        return Verdict("stalled", "the constraints stay missed", then="proximal-al")

    def _worth_judging(self, run: Run, state: Server, w: Vector) -> bool:
        """Near the end, far out, and from time to time: the loop sees only by a certificate that nothing improves."""
        overdue = state.k - state.judged >= self.patience
        return overdue or state.pace.worth_judging(state.now, run.tol) or self._is_far(state, w)

    def _is_far(self, state: Server, w: Vector) -> bool:
        return bool(np.max(np.abs(w)) > FARTHER * state.away)
