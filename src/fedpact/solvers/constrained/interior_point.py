"""Federated primal-dual interior-point method: a dozen exchanges to a certificate, whatever the number of owners.

    min_w sum_i f_i(w) + h(w)   s.t.   c_i(w) + s_i = 0, s_i in K_i  (every owner and the server, i = 0)

An owner eliminates its slack s_i and multiplier z_i from the Newton system and sends its share of what is left,

    M_i = hess f_i + z_i . hess c_i + J_i' D_i J_i,   r_i(tau) = grad f_i + J_i'(D_i (c_i + s_i) + tau s_i^-1),

the server adds, minimises d'Md / 2 + r'd + h(w + d), and sends the step d and the target tau; every owner recovers the
steps of its slack and multiplier by itself and takes its own step lengths for them. One exchange is one iteration, all
the server uses are sums, and multipliers stay with their owners until the end. An owner's private variables are
eliminated like its slack, so they cost neither exchanges nor bytes (see `condensation.py`).

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
from fedpact.federation.messages import copy_with
from fedpact.federation.secure_sum import HEADROOM
from fedpact.problem import Share, Terms, assemble, owner_evidence
from fedpact.problem.infeasibility import row_evidence
from fedpact.problem.share import Curvature, Local, evaluate, expand
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
    Look,
    Point,
    System,
    complete_step,
    condense,
    cone_of,
    first_pair,
    largest_entry,
    largest_of_arrays,
    largest_of_matrices,
    move_pair,
    unpack,
    void_system,
)
from fedpact.solvers.constrained.pace import Pace, Sums, lags
from fedpact.solvers.constrained.widths import choose_widths, rounding_of, steady_damping
from fedpact.solvers.evidence import Pull, pull
from fedpact.solvers.local.damped_model import model_step
from fedpact.solvers.run import HAND_OVER, Iterate, Run, Verdict
from fedpact.solvers.scales import check_start
from fedpact.solvers.steps import Holder, Private, point_of, returned_by
from fedpact.types import Matrix, Vector

#: Entries above this are taken for infinite where sums are secure: a sum over a thousand owners holds them, and a step
#: that leads there is shortened,
SUMMABLE = 2.0**70
#: provided that multipliers so many times the objective's slope made them so large, which are those of constraints that
#: exclude each other; a problem whose own numbers are as large has to be scaled, and the owner says so.
RUNAWAY = 1e8
#: Masked numbers of the first exchange are taken to be no larger than 2^HEADROOM times this, and else asked for again:
#: 128 bits have more than twenty digits behind the point then.
LARGEST_AT_FIRST = 2.0**10
#: A proof of conflict is sought when the miss of the constraints has not halved in this many iterations,
SUSPECT = 3
#: then after this many more, doubled each time,
WAIT = 2
#: and while this many exchanges are left.
PROOF = 4
#: An augmented Lagrangian goes on when it has not halved in this many, where the constraints may be non-convex.
MISSED = 12
#: Damping, relative to the curvature, beyond which a step is lost in rounding.
MOST_DAMPING = 1e16
#: A rescue, where there is one, is called when nothing has halved in this many.
IDLE = 25
#: A careful solve cuts steps to one length for all where nothing has halved in this many.
TIRED = 3
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

    @property
    def separator(self) -> tuple[Vector | None, Vector]:
        return None, self.weights


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
    longer: float  # w takes the step times this, slack and multiplier as it is; 0: everything stays where it is
    length: float = 0.0  # part of the step that slack and multiplier take; 0: each as much as its cone lets it
    target: float
    keep: bool  # first: the latest point becomes the kept one
    best: bool  # first: the latest multiplier becomes the best one
    back: bool  # go from the kept point; else from the latest


@client_step
def begin(share: Share, state: Any, order: Begin) -> tuple[State, System]:
    """Check the share at the start, choose the first slack and multiplier, and give their system."""
    cone = cone_of(share)
    w = point_of(share, None, order.w, -1)
    at = expand(share, w, order.coupled.size)
    check_start(share, w, at[0])
    pair = first_pair(cone, at[0], order.holders)
    point, system = condense(share, cone, w, at, pair, order)
    check_usable(system)
    if order.secure and not fits(system, order):
        system = void_system(order.w.size, order)  # it is asked again, for exact numbers
    return replace(at_start(share, point), returned=returned_by(state)), system


@client_step
def advance(share: Share, state: State, order: Advance) -> tuple[State, System]:
    """Take the step with step lengths of our own, and give the system of the new point."""
    origin = origin_of(state, order)
    cone = cone_of(share)
    w = origin.w
    slack, multiplier, too_long = (origin.slack, origin.multiplier, 0.0)
    if order.longer:
        step = complete_step(share, origin, order.step, order.longer, order.target, order.finishing)
        w = w + order.longer * step
        slack, multiplier, too_long = move_pair(cone, origin, step, order.target, order.finishing, order.length)
    at = expand(share, w, order.coupled.size)
    point, system = condense(share, cone, w, at, (slack, multiplier), order, too_long)
    if order.secure and runs_away(point) and largest_entry(system) > SUMMABLE:
        system = void_system(order.step.size, order)
    if order.secure and not fits(system, order):
        system = void_system(order.step.size, order)  # the next order asks for exact numbers
    return move_to(share, state, order, point), system


def fits(system: System, order: Look) -> bool:
    """Whether a secure sum in the width that the order asks for holds these numbers."""
    if order.coarse and largest_of_matrices(system, order.scales) > order.coarse:
        return False
    if order.arrays and largest_of_arrays(system) > order.arrays:
        return False
    return not order.largest or largest_entry(system) <= 2.0**HEADROOM * order.largest


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


def runs_away(point: Point) -> bool:
    """Whether its multiplier is far out of proportion to the slope of the objective."""
    slope = float(np.max(np.abs(point.local.gradient), initial=1.0))
    return bool(np.max(point.multiplier, initial=0.0) > RUNAWAY * slope)


def check_usable(system: System) -> None:
    """Raise DataError for the first system of a holder whose Hessian is not finite."""
    if not system.usable:
        remedy = "check the function there, or start from another w0"
        raise DataError(f"its Hessian is not finite at the start; {remedy}", code="FP-DATA-251")


def at_start(share: Share, point: Point) -> State:
    """The state at the first point, which no certificate has called the best yet."""
    return State(
        iteration=0,
        price=point.clean,
        best_iteration=-1,
        best_price=np.zeros_like(point.clean),
        private=Private.of(share, point.w),
        latest=point,
        kept=point,
    )


def origin_of(state: State, order: Advance) -> Point:
    """The point that the order's step starts from."""
    return state.kept if order.back else state.latest


def move_to(share: Share, state: State, order: Advance, point: Point) -> State:
    """The state after the step to `point`."""
    kept = state.latest if order.keep else state.kept
    moved = {
        "iteration": order.iteration,
        "price": point.clean,
        "private": Private.of(share, point.w),
        "latest": point,
        "kept": kept,
    }
    return copy_with(state.mark_best(order.best), moved)


# --------------------------------------------------------------------------------------------------- the server's half


class Coordinator:
    """The server: a holder of its own constraint and of the coupled one, and the one who adds up."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.problem = run.problem
        self.split = self.problem.server.multiplier_length  # its own rows come first, then the coupled ones
        self.cone = cone_of(self.problem.server, self.problem.coupled_cone)
        self.w = run.start
        self.state: State
        # Whether it holds nothing, so that the sums over the owners are all there is.
        self.idle = not self.problem.server.parts and not self.problem.coupled_length

    def begin(self) -> Sums:
        """One exchange: the first systems."""
        server = self.problem.server
        none = np.zeros(self.problem.coupled_length)
        largest = LARGEST_AT_FIRST if self.run.session.secured else 0.0
        order = Begin(w=self.w, holders=len(self.run.owners) + 1, coupled=none, judged_coupled=none, largest=largest)
        replies = self.run.ask(begin, order)
        if not all(replies.column("usable")):
            order = replace(order, largest=0.0)
            replies = self.run.ask(begin, order)
        if self.idle:
            point = Point(self.w, none, none, none, evaluate(server, self.w), None, None)
            self.state = at_start(server, point)
            return self._sums(None, replies, none, order)
        with named(server.label, begin.__name__):
            check_start(server, self.w, evaluate(server, self.w))
        at = self.expand_at(self.w, replies.total.coupled, replies.total.coupled_jacobian)
        # Without an objective of its own the server's multipliers are as strong as those of an owner on average.
        share_of_gradient = np.linalg.norm(replies.total.gradient) / order.holders
        pair = first_pair(self.cone, replace(at[0], gradient=np.array([share_of_gradient])), order.holders)
        point, own = condense(server, self.cone, self.w, at, pair, order)
        with named(server.label, begin.__name__):
            check_usable(own)
        self.state = at_start(server, replace(point, clean=np.append(point.clean[: self.split], none)))
        return self._sums(own, replies, none, order)

    def advance(self, order: Advance) -> Sums:
        """One exchange: everybody takes the step; the server's own multipliers are known before, so owners get them."""
        origin = origin_of(self.state, order)
        self.w = origin.w + order.longer * order.step
        if self.idle:
            replies = self.run.ask(advance, order)
            self.state = move_to(self.problem.server, self.state, order, copy_with(origin, {"w": self.w}))
            return self._sums(None, replies, order.coupled, order)
        slack, multiplier, too_long = (origin.slack, origin.multiplier, 0.0)
        if order.longer:
            slack, multiplier, too_long = move_pair(
                self.cone, origin, order.step, order.target, order.finishing, order.length
            )
        expected = self.cone.clean(multiplier, -slack, origin.local.jacobian)[self.split :]
        if order.finishing:
            expected = self.price_coupled(multiplier[self.split :])
        order = replace(order, coupled=multiplier[self.split :], judged_coupled=expected)
        replies = self.run.ask(advance, order)
        at = self.expand_at(self.w, replies.total.coupled, replies.total.coupled_jacobian)
        point, own = condense(self.problem.server, self.cone, self.w, at, (slack, multiplier), order, too_long)
        point = replace(point, clean=np.append(point.clean[: self.split], expected))  # as the owners judged it
        self.state = move_to(self.problem.server, self.state, order, point)
        return self._sums(own, replies, expected, order)

    def price_coupled(self, multiplier: Vector) -> Vector:
        """The price nearest to a multiplier of the coupled constraint; empty without one."""
        if self.problem.coupled_cone is None:
            return multiplier
        return self.problem.coupled_cone.project_dual(multiplier)

    def expand_at(self, w: Vector, coupled: Vector, coupled_jacobian: Matrix) -> tuple[Local, Curvature]:
        """The server's share at w, with the coupled constraint as further rows, whose curvature owners have."""
        with named(self.problem.server.label, "evaluating the share"):
            local, curvature = expand(self.problem.server, w, self.problem.coupled_length)
        if not self.problem.coupled_length:
            return local, curvature
        value = np.append(local.value, coupled)
        jacobian = np.vstack([local.jacobian, coupled_jacobian])
        return replace(local, value=value, jacobian=jacobian), curvature

    def _sums(self, own: System | None, replies: Answers[System], coupled: Vector, order: Look) -> Sums:
        """Add up the systems of all holders; assemble the certificate from their terms, where the order asked for it.

        own: the server's; None: it holds nothing
        """
        total = replies.total
        usable = all(replies.column("usable"))
        if own is not None:
            usable = usable and own.usable
            total = add_up([own, replies.total]).total
        if not usable:
            return Sums(usable=False, system=total)
        certificate = None
        objective = np.nan
        if order.judge:
            terms = Terms(
                objective=replies.total.objective,
                gradient=replies.total.judged,
                coupled=replies.total.coupled,
                feasibility=replies.total.feasibility,
                violation=replies.total.violation,
                private=replies.total.private,
            )
            clean = self.state.latest.clean[: self.split]
            certificate, objective = assemble(self.problem, self.w, clean, coupled, terms, replies)
        if total.lagrangian.size:
            stationarity = self.problem.regularizer.subdifferential_distance(-total.lagrangian, self.w)
        else:
            assert certificate is not None  # semismooth steps are judged
            stationarity = certificate.stationarity
        return Sums(
            usable=True,
            system=total,
            stationarity=max(stationarity, total.private_slope),
            miss=float(np.sqrt(total.miss)),
            certificate=certificate,
            objective=objective,
            rounding=rounding_of(order, len(self.run.owners)),
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
        coupled = self.at.price_coupled(coupled)
        replies = self.at.run.ask(balance, replace(order, coupled=coupled))
        local, curvature = self.at.expand_at(order.w, replies.total.coupled, replies.total.coupled_jacobian)
        self.weights = weights
        self.jacobian = local.jacobian
        held = {problem.server.label: owner_evidence(problem.server, order.w, own)}
        if coupled.size:
            rows = slice(self.at.split, None)
            held["coupled"] = row_evidence(local.value[rows], local.jacobian[rows], order.w, coupled)
        bent = replace(curvature, objective=None).lagrangian(own, np.zeros(0))
        matrix = unpack(replies.total.matrix, order.w.size) + stiffness(cone, local.jacobian, weights) + bent
        return pull(held, problem.names, replies), matrix


@dataclass
class Server:
    """The server's variables: its own point, the pace, and what was seen."""

    at: Coordinator
    pace: Pace
    now: Sums  # of the latest point
    base: Sums  # of the last accepted point of the barrier
    curvature: float  # of the Hessian there
    before: float = np.inf  # complementarity at the accepted point before that
    k: int = 0
    lowest: float = np.inf  # miss of the constraints, at the iteration where it last halved
    halved: int = 0
    priced: float = 0.0  # the largest |<z, c>| so far
    proof_at: int = 0  # iteration from which on a proof of conflict may be sought
    wait: int = WAIT
    away: float = AWAY
    judged: int = 0  # iteration of the latest certificate
    smallest: float = np.inf  # residual, at the iteration where it last halved
    eased: int = 0


@dataclass(frozen=True, kw_only=True)
class InteriorPoint(Solver[Server]):
    """Federated primal-dual interior point: a dozen exchanges of d x d matrices. Nothing to tune.

    careful: go on by steps of one length for all where steps of each holder's own length make no progress. It is for
             a rescue, and no option: it takes more exchanges where it is not needed
    """

    careful: bool = False

    name: ClassVar[str] = "interior-point"
    needs: ClassVar[Needs] = Needs(constraints=True, interior=True, coupled=True, own=True, matrices=True)
    reserve: ClassVar[int] = 2
    patience: ClassVar[int] = 60
    doubt: ClassVar[int] = 60
    progress: ClassVar[float] = 0.9

    def init(self, run: Run) -> tuple[Server, Iterate]:
        problem = run.problem
        at = Coordinator(run)
        now = at.begin()
        rows = problem.coupled_length + sum(holder.multiplier_length for holder in (problem.server, *problem.shares))
        state = Server(at, Pace(now.residual, now.size, free=not rows), now, now, now.curvature)
        return state, self._iterate(run, state)

    def step(self, run: Run, state: Server) -> Iterate:
        at = state.at
        pace = state.pace

        # 1. the Newton step of the semismooth system, when it is near, else of the barrier
        pace.choose(state.now)
        origin = at.state.kept.w if pace.back else at.state.latest.w
        known = state.now.system.near_matrix if pace.finishing else state.base.system.matrix
        stay = not known.size  # the step before was to be the last, and was not
        if stay:
            newton, damping = np.zeros_like(origin), 0.0
        else:
            newton, damping = self._newton_step(run, state, origin)
        near = pace.finishing or pace.soon(state.now)
        bends = True
        longer = 1.0
        if stay:
            longer = 0.0
        elif pace.finishing:
            near = not pace.ends(newton, state.now, run.tol)
            bends = near
            smooth = run.problem.regularizer.curvature is not None
            longer = pace.stretch(newton, lagging=smooth and lags(state.now.certificate, run.tol))
        elif pace.length:
            longer = pace.length
        elif not state.base.degree:  # equalities alone: this is Newton's method, too
            bends = near or not pace.ends(newton, state.now, run.tol)
            pace.previous = newton

        # 2. one exchange: everybody takes it
        fitted: dict[str, Any] = {}
        if state.now.usable and bends and not stay:
            fitted = choose_widths(run, state.now, pace.first, newton, near)
        order = Advance(
            iteration=run.first + state.k + 1,
            step=newton,
            longer=longer,
            length=pace.length,
            target=pace.target,
            coupled=np.zeros(0),  # the coordinator puts in its own
            judged_coupled=np.zeros(0),
            curvature=state.curvature,
            finishing=pace.finishing,
            bends=bends,
            keep=pace.keep,
            best=run.best.iteration == run.first + state.k,
            back=pace.back,
            near=near,
            **fitted,
            judge=self._worth_judging(run, state, origin + newton),
        )
        state.now = at.advance(order)
        state.k += 1

        # 3. was it good?
        pace.keep = False
        pace.back = False
        if pace.finishing:
            pace.finish(state.now)
        elif self._is_cut(run, state):
            pass
        elif pace.accept(state.base, state.now, damping):
            state.before = state.base.complementarity
            state.base = state.now
            if bends:
                state.curvature = state.now.curvature
        return self._iterate(run, state)

    def _newton_step(self, run: Run, state: Server, origin: Vector) -> tuple[Vector, float]:
        """argmin_d d'Md / 2 + r'd + h(origin + d) of the system that is in use, and the damping that M took."""
        pace = state.pace
        if pace.finishing:
            pace.target = 0.0
            sums = state.now
            matrix = sums.system.near_matrix
            slope = sums.system.near_slope
        else:
            pace.aim(state.base, state.before)
            sums = state.base
            matrix = sums.system.matrix
            slope = sums.system.slope + pace.target * sums.system.centring
        diagonal = pace.steady(sums.system.diagonal)
        damping = max(pace.damping, steady_damping(sums.rounding))
        h = run.problem.regularizer
        return model_step(unpack(matrix, origin.size), slope, diagonal, h, origin, damping, 1e-3 * run.tol[0])

    def _is_cut(self, run: Run, state: Server) -> bool:
        """Whether the same step is to be taken again, as far as all cones let everything go together.

        Where constraints exclude each other, <z, c> grows, and no length would help.
        """
        tired = self.careful and state.k - state.eased >= TIRED and not run.problem.private and not state.pace.free
        return tired and state.now.system.priced <= 0 and state.pace.cut(state.base, state.now)

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
        balancing = Balancing(state.at)
        point, found = seek_conflict(balancing.ask, regularizer, state.at.w, value, steps)
        run.balanced = (point, balancing.weights)
        return found.conflict(run, point)

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
        """An augmented Lagrangian goes on where constraints stay missed, perhaps bent; a rescue where it rests."""
        residual = state.now.residual + state.now.complementarity
        if residual <= 0.5 * state.smallest:
            state.smallest = residual
            state.eased = state.k
        if state.pace.damping > MOST_DAMPING:
            return Verdict("stalled", "steps that are too short to matter are refused", then=self.fallback(state))
        if (run.rescue is not None or self.careful) and state.k - state.eased >= IDLE:
            return Verdict("stalled", f"no progress in {IDLE} iterations", then=self.fallback(state))
        missed = state.k - state.halved >= MISSED
        if not missed or run.problem.convex or run.rounds_left <= HAND_OVER:
            return None
        plain = not run.problem.private and not run.problem.coupled_length
        return Verdict("stalled", "the constraints stay missed", then="newton-al" if plain else "proximal-al")

    def _worth_judging(self, run: Run, state: Server, w: Vector) -> bool:
        """Near the end, far out, and from time to time: the loop sees only by a certificate that nothing improves."""
        overdue = state.k - state.judged >= self.patience
        return overdue or state.pace.worth_judging(state.now, run.tol) or self._is_far(state, w)

    def _is_far(self, state: Server, w: Vector) -> bool:
        return float(np.abs(w).max()) > FARTHER * state.away
