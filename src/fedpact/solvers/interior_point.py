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

from dataclasses import dataclass, replace

import numpy as np

from fedpact.errors import DataError, OptionError
from fedpact.federation import Answers, Order, Reply, Summed, client_step, named
from fedpact.functions import Vector
from fedpact.problem import Certificate, FederatedProblem, Share, Terms, assemble
from fedpact.solvers.accelerated import accelerated, missed
from fedpact.solvers.condensation import (
    Local,
    Look,
    Point,
    System,
    cone_of,
    first_pair,
    measured,
    moved,
    settled,
    unpack,
)
from fedpact.solvers.endings import (
    INFEASIBLE,
    SOLVED,
    UNBOUNDED,
    Pull,
    Verdict,
    conflict,
    escapes,
    far_point,
    interrupted,
    out_of_rounds,
    probed,
    together,
)
from fedpact.solvers.local.damped_model import model_step
from fedpact.solvers.proximal_al import proximal_al
from fedpact.solvers.run import MARGIN, Best, Run
from fedpact.solvers.scales import Introduce, introduce
from fedpact.solvers.solution import Solution

#: The target never falls below this part of the residual, so complementarity does not run ahead of it.
BEHIND = 0.003
#: Added to M as a multiple of the Hessian's diagonal, so that directions without curvature do not move;
#: times or over RELAX when a step was dropped or kept.
LEAST_DAMPING, RELAX = 1e-9, 10.0
#: Certificates are asked for when the residual is within this factor of the tolerance, or the semismooth step is near.
JUDGED = 1e3
#: The semismooth step is tried when the certificate has come down to this part of the first residual ...
NEAR = 0.007
#: ... and left when it has not halved the certificate in this many steps, or made it grow by this factor.
PATIENCE, WORSE = 5, 10.0
#: Newton steps that keep their direction are made longer, up to this factor.
LONGEST, EVEN = 4.0, 0.05
#: A barrier step is dropped when it misses the constraints LEFT times more than before, and than SIZE of their values.
LEFT, SIZE = 10.0, 0.1
#: Relative to the objective: a rise that is no more than its rounding is none.
ROUNDING = 1e-10
#: Iterations in which the miss of the constraints does not halve before Algorithm 1 is asked whether they conflict.
SUSPECT, HAND_OVER = 12, 20  # the second: exchanges it is worth handing over for
#: A point farther out than FARTHER * AWAY may have no end; asked again when it is FARTHER times farther.
FARTHER, AWAY = 1e3, 1e4
#: Iterations without a certificate better by a tenth after which the method gives up.
STALLED = 60

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True)
class State:
    """What a holder keeps: the latest point, the last accepted point of the barrier, and the best multiplier."""

    latest: Point
    iteration: int
    kept: Point
    best: Vector
    best_iteration: int


@dataclass(frozen=True, kw_only=True)
class Begin(Look):
    w: Vector
    holders: int


@dataclass(frozen=True, kw_only=True)
class Advance(Look):
    iteration: int
    step: Vector
    longer: float  # w takes the step times this, slack and multiplier as it is
    target: float
    keep: bool  # first: the latest point becomes the kept one
    best: bool  # first: the latest multiplier becomes the best one
    back: bool  # go from the kept point; else from the latest


@dataclass(frozen=True, kw_only=True)
class Conclude(Order):
    iteration: int  # the best one; -1: the multiplier is not asked for
    far: Vector
    coupled_length: int


@dataclass(frozen=True, kw_only=True)
class Concluded(Reply):
    multiplier: Vector
    size: float  # of the latest multiplier, max-norm
    concave: bool  # does the constraint, so weighted, bend down? Then it proves nothing about points elsewhere
    objective: Summed[float]  # at the far point, as the following
    violation: float
    coupled: Summed[Vector]


@client_step
def begin(share: Share, state: None, order: Begin) -> tuple[State, System]:
    """Check the share at the start, choose the first slack and multiplier, and give their system."""
    introduce(share, None, Introduce(w=order.w))
    local, cone = measured(share, order.w), cone_of(share)
    point, system = settled(share, cone, order.w, local, *first_pair(cone, local, order.holders), order)
    if not system.usable:
        raise DataError("its Hessian is not finite at the start; check the function there, or start from another w0")
    return at_start(point), system


@client_step
def advance(share: Share, state: State, order: Advance) -> tuple[State, System]:
    """Take the step with step lengths of our own, and give the system of the new point."""
    origin, cone = from_where(state, order), cone_of(share)
    w = origin.w + order.longer * order.step
    pair = moved(cone, origin, order.step, order.target, order.finishing)
    point, system = settled(share, cone, w, measured(share, w), *pair, order)
    return after(state, order, point), system


@client_step
def conclude(share: Share, state: State, order: Conclude) -> tuple[State, Concluded]:
    """Hand out the price of this owner's constraint, and look at the far point."""
    far = probed(share, order.far, order.secure)
    held = {-1: np.zeros(0), state.best_iteration: state.best, state.iteration: state.latest.clean}
    return state, Concluded(
        multiplier=held[order.iteration],
        size=float(np.max(np.abs(state.latest.multiplier), initial=0.0)),
        concave=bends_down(share, state.latest),
        objective=far.objective,
        violation=far.violation,
        coupled=np.zeros(order.coupled_length) if share.coupled is None else share.coupled.value(order.far),
    )


def bends_down(share: Share, point: Point) -> bool:
    """Has the constraint, weighted by its multiplier, negative curvature here? Convex ones have none anywhere."""
    if share.constraint is None or share.constraint.function.affine:
        return False
    values = np.linalg.eigvalsh(
        share.constraint.function.weighted_hessian(point.w, point.multiplier[: share.multiplier_length])
    )
    return bool(values[0] < -1e-9 * max(values[-1], -values[0]))


def at_start(point: Point) -> State:
    return State(point, 0, point, point.clean, 0)


def from_where(state: State, order: Advance) -> Point:
    """The point that the order's step starts from."""
    return state.kept if order.back else state.latest


def after(state: State, order: Advance, point: Point) -> State:
    """The state after the step to `point`."""
    return State(
        latest=point,
        iteration=order.iteration,
        kept=state.latest if order.keep else state.kept,
        best=state.latest.clean if order.best else state.best,
        best_iteration=state.iteration if order.best else state.best_iteration,
    )


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass(frozen=True)
class Sums:
    """The systems of all holders added up, and what the server reads off them."""

    usable: bool
    matrix: Vector
    slope: Vector
    centring: Vector
    near_matrix: Vector
    near_slope: Vector
    diagonal: Vector
    stationarity: float
    miss: float
    size: float
    complementarity: float  # mean over the degree of all cones
    degree: int
    conflict: bool  # do the weighted constraints prove that no point meets them all?
    certificate: Certificate | None
    objective: float

    @property
    def residual(self) -> float:
        return max(self.stationarity, self.miss)

    @property
    def curvature(self) -> float:
        return float(np.mean(self.diagonal))


class Coordinator:
    """The server: a holder of its own constraint and of the coupled one, and the one who adds up."""

    def __init__(self, run: Run) -> None:
        self.run, self.problem = run, run.problem
        server = self.problem.server
        self.split = server.multiplier_length
        self.cone = cone_of(server, self.problem.coupled_length)
        self.w = run.w0
        self.state: State

    def begin(self) -> Sums:
        """One exchange: the first systems."""
        run, server = self.run, self.problem.server
        none = np.zeros(self.problem.coupled_length)
        order = Begin(w=self.w, holders=len(run.fleet.owners) + 1, coupled=none, judged_coupled=none)
        replies = run.fleet.ask(begin, order)
        with named(server.label, begin.__name__):
            introduce(server, None, Introduce(w=self.w))
        local = self._local(replies)
        # Without an objective of its own the server's multipliers are as strong as those of an owner on average.
        share_of_gradient = np.linalg.norm(replies.total.gradient) / order.holders
        slack, multiplier = first_pair(self.cone, replace(local, gradient=np.array([share_of_gradient])), order.holders)
        point, own = settled(server, self.cone, self.w, local, slack, multiplier, order)
        self.state = at_start(replace(point, clean=np.append(point.clean[: self.split], none)))
        return self._sums(own, replies, none, judged=True)

    def advance(self, order: Advance) -> Sums:
        """One exchange: everybody takes the step; the server's own multipliers are known before, so owners get them."""
        origin = from_where(self.state, order)
        slack, multiplier = moved(self.cone, origin, order.step, order.target, order.finishing)
        expected = self.cone.clean(multiplier, -slack, origin.local.jacobian)[self.split :]
        if order.finishing:
            expected = np.maximum(multiplier[self.split :], 0.0)
        order = replace(order, coupled=multiplier[self.split :], judged_coupled=expected)
        self.w = origin.w + order.longer * order.step
        replies = self.run.fleet.ask(advance, order)
        local = self._local(replies)
        point, own = settled(self.problem.server, self.cone, self.w, local, slack, multiplier, order)
        point = replace(point, clean=np.append(point.clean[: self.split], expected))  # as the owners judged it
        self.state = after(self.state, order, point)
        return self._sums(own, replies, expected, order.judge)

    def _local(self, replies: Answers[System]) -> Local:
        """The server's share, with the coupled constraint as further rows."""
        with named(self.problem.server.label, "evaluating the share"):
            local = measured(self.problem.server, self.w)
        if not self.problem.coupled_length:
            return local
        return replace(
            local,
            value=np.append(local.value, replies.total.coupled),
            jacobian=np.vstack([local.jacobian, replies.total.coupled_jacobian]),
        )

    def _sums(self, own: System, replies: Answers[System], coupled: Vector, judged: bool) -> Sums:
        problem, h, owners = self.problem, self.problem.regularizer, replies.total
        if not (own.usable and all(r.usable for r in replies)):
            void = np.zeros(0)
            return Sums(False, void, void, void, void, void, void, np.inf, np.inf, np.inf, 0.0, 0, False, None, np.inf)
        price, degree = own.price + owners.price, int(own.degree + owners.degree)
        certificate, objective = None, np.nan
        if judged:
            terms = Terms(
                objective=owners.objective,
                gradient=owners.judged,
                coupled=owners.coupled,
                feasibility=0.0,
                violation=0.0,
            )
            clean = self.state.latest.clean[: self.split]
            certificate, objective = assemble(problem, self.w, clean, coupled, terms, replies)
        return Sums(
            usable=True,
            matrix=own.matrix + owners.matrix,
            slope=own.slope + owners.slope,
            centring=own.centring + owners.centring,
            near_matrix=own.near_matrix + owners.near_matrix,
            near_slope=own.near_slope + owners.near_slope,
            diagonal=own.diagonal + owners.diagonal,
            stationarity=h.subdifferential_distance(-(own.gradient + owners.gradient + price), self.w),
            miss=float(np.sqrt(own.miss + owners.miss)),
            size=float(np.sqrt(own.size + owners.size)),
            complementarity=(own.complementarity + owners.complementarity) / max(degree, 1),
            degree=degree,
            conflict=bool(conflict(h, self.w, ("all",), Pull(own.priced + owners.priced, price, (1.0,)))),
            certificate=certificate,
            objective=objective,
        )


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

    def aim(self, base: Sums, before: float) -> None:
        """The complementarity to aim at: much less than now after good progress, but never ahead of the residual."""
        ratio = base.complementarity / before if before > 0 else 1.0
        centring = min(0.3, ratio**2) if np.isfinite(before) else 0.1
        least = min(BEHIND * base.residual, base.complementarity)
        self.target = max(centring * base.complementarity, least) if base.degree else 0.0

    def choose(self, now: Sums) -> None:
        """Start with semismooth steps when they are near."""
        if not self.keep or self.rest or not now.near_matrix.size or not self.near(now, 1.0):
            return
        assert now.certificate is not None
        self.finishing, self.slow, self.longer = True, 0, 1.0
        self.entry = self.lowest = now.certificate.worst
        self.previous = None

    def finish(self, now: Sums) -> None:
        """After a semismooth step: does it pay? Else back to the barrier."""
        worst = now.certificate.worst if now.certificate is not None else np.inf
        self.slow = 0 if worst <= 0.5 * self.lowest else self.slow + 1
        pays = now.usable and self.slow <= PATIENCE and worst <= WORSE * self.entry
        self.lowest = min(worst, self.lowest)
        if not pays:
            self.finishing, self.back, self.rest = False, True, 2

    def stretch(self, step: Vector, smooth: bool) -> float:
        """How much longer than Newton's step w may go: more than 1 only on an exponential tail.

        There (a class that a rare column separates, and the minimiser far out) Newton's steps keep direction and length
        while the gradient falls by e; a step k times longer makes it fall by e^k.
        """
        before, self.previous = self.previous, step
        even = before is not None and float(np.linalg.norm(step - before)) <= EVEN * float(np.linalg.norm(before))
        self.longer = min(2 * self.longer, LONGEST) if even and smooth else 1.0
        return self.longer

    def accept(self, base: Sums, now: Sums, used: float) -> bool:
        """After a barrier step: keep it unless both residuals more than doubled, or the constraints were left by far.

        What is small anyway may grow. Without constraints: keep it unless the objective rose.
        """
        small = max(base.complementarity, 1e-3 * self.first)
        doubled = now.stationarity > 2 * max(base.stationarity, small) and now.miss > 2 * max(base.miss, small)
        good = now.usable and not doubled and now.miss <= LEFT * max(base.miss, small, SIZE * self.size)
        if self.free:
            good = now.usable and now.objective <= base.objective + ROUNDING * (1 + abs(base.objective))
        self.damping = max(LEAST_DAMPING, used / RELAX) if good else max(RELAX * used, 1e-4)
        self.keep, self.back = good, not good
        self.rest = max(self.rest - 1, 0)
        return good

    def worth_judging(self, now: Sums, tol: tuple[float, float]) -> bool:
        return self.free or self.finishing or now.residual <= max(JUDGED * max(tol), 20 * NEAR * self.first)

    def near(self, now: Sums, factor: float) -> bool:
        return now.certificate is not None and now.certificate.worst <= factor * NEAR * self.first


@dataclass
class Ending:
    """Writes down what was judged, and says when and how the iteration ends."""

    run: Run
    iteration: int = 0
    gained: int = 0  # that of the last certificate better by a tenth
    judged: int = -1  # iteration of the last certificate
    lowest: float = np.inf  # miss of the constraints, at the iteration where it last halved
    halved: int = 0
    proves: bool = True  # until a constraint is seen to be non-convex
    away: float = AWAY

    def see(self, k: int, at: Coordinator, now: Sums, pace: Pace, best: Best) -> None:
        """Record the point if it was judged, and remember it if it is the best."""
        self.iteration = k
        if now.certificate is None:
            return
        seen = np.inf if best.certificate is None else best.certificate.worst
        best.offer(k, at.w, at.state.latest.clean, now.certificate, now.objective)
        if now.certificate.worst < 0.9 * seen:
            self.gained = k
        owners, iterations = len(self.run.fleet.owners), k - self.judged
        self.run.record(
            k,
            now.certificate,
            now.objective,
            inner_rounds=iterations,
            penalty=pace.target,
            consensus_penalty=pace.damping,
            gradients=owners * (iterations + 1),  # one each, and one more to judge
            hessians=owners * iterations,
        )
        self.judged = k

    @property
    def suspects(self) -> bool:
        """Do the constraints seem to exclude each other, without a proof?"""
        return self.iteration - self.halved >= SUSPECT

    def verdict(self, k: int, w: Vector, own: Point, now: Sums) -> Verdict | None:
        tol, certificate = self.run.tol, now.certificate
        if certificate is not None and certificate.meets((tol[0], MARGIN * tol[1])):
            return SOLVED
        missed = now.miss if certificate is None else certificate.violation
        if missed <= max(0.5 * self.lowest, tol[1]):
            self.lowest, self.halved = missed, k
        if now.conflict and missed > tol[1] and self.proves and self.run.rounds_left > 2:
            replies, _ = _conclusion(self.run, w, now.objective, None)
            self.proves = not (any(r.concave for r in replies) or bends_down(self.run.problem.server, own))
            if self.proves:
                return Verdict("infeasible", "")  # the owners' names come with the last exchange
        if k - self.gained >= STALLED:
            asked = "is the problem convex and scaled, and do gradients and Hessians belong to their functions?"
            return Verdict("stalled", f"no progress in {STALLED} iterations; {asked}")
        if certificate is not None and self.far(w) and self.run.rounds_left > 2:
            self.away = float(np.max(np.abs(w)))
            if _conclusion(self.run, w, now.objective, certificate)[1]:
                return Verdict("unbounded", UNBOUNDED)
        return None

    def far(self, w: Vector) -> bool:
        return bool(np.max(np.abs(w)) > FARTHER * self.away)


def interior_point(run: Run) -> Solution:
    """The method of this file; nothing to tune."""
    problem, h = run.problem, run.problem.regularizer
    if why := refusal(problem):
        raise OptionError(f'{why}, which method="interior-point" needs; use method="accelerated" or "proximal-al"')
    best, at = run.new_best(), Coordinator(run)
    now = base = at.begin()
    held = problem.coupled_length + sum(holder.multiplier_length for holder in (problem.server, *problem.shares))
    pace, ending = Pace(base.residual, base.size, free=not held), Ending(run)
    end, k, before = out_of_rounds(run), 0, np.inf
    try:
        while True:
            ending.see(k, at, now, pace, best)
            run.report(k, 0, best)
            if verdict := ending.verdict(k, at.w, at.state.latest, now):
                end = verdict
                break
            if run.rounds_left <= 2:
                break
            if ending.suspects and run.rounds_left > HAND_OVER:
                run.history.notes.append(f"iteration {k}: the constraints stay missed; Algorithm 1 goes on")
                return proximal_al(run)
            pace.choose(now)
            origin = at.state.kept.w if pace.back else at.state.latest.w
            if pace.finishing:
                matrix, slope, diagonal = now.near_matrix, now.near_slope, now.diagonal
                pace.target = 0.0
            else:
                pace.aim(base, before)
                matrix, slope, diagonal = base.matrix, base.slope + pace.target * base.centring, base.diagonal
            step, used = model_step(
                unpack(matrix, origin.size), slope, diagonal, h, origin, pace.damping, 1e-3 * run.tol[0]
            )
            longer = pace.stretch(step, h.curvature is not None) if pace.finishing else 1.0
            order = Advance(
                iteration=k + 1,
                step=step,
                longer=longer,
                target=pace.target,
                coupled=np.zeros(0),  # the coordinator puts in its own
                judged_coupled=np.zeros(0),
                curvature=base.curvature,
                finishing=pace.finishing,
                keep=pace.keep,
                best=best.iteration == k,
                back=pace.back,
                near=pace.finishing or pace.near(now, 5),
                judge=pace.worth_judging(now, run.tol) or ending.far(origin + step),
            )
            now = at.advance(order)
            k += 1
            pace.keep = pace.back = False
            if pace.finishing:
                pace.finish(now)
            elif pace.accept(base, now, used):
                before, base = base.complementarity, now
    except KeyboardInterrupt:
        end = interrupted(run)
    found = _end(run, best, at, end)
    if found.status == "stalled" and not problem.coupled_length and run.rounds_left > HAND_OVER:
        run.history.notes.append(f"iteration {k}: {found.reason}; consensus goes on")
        return _better(run, found, accelerated(run))
    return found


def _better(run: Run, found: Solution, later: Solution) -> Solution:
    """What the second method found, unless it ran out as well, and farther away."""
    if later.status not in ("stalled", "max_rounds"):
        return later
    point = min(later, found, key=lambda one: missed(one.certificate, run.tol))
    reason = f"{later.reason} (before that, interior-point: {found.reason})"
    return replace(point, status=later.status, reason=reason, communication=later.communication)


def _conclusion(
    run: Run, w: Vector, objective: float, certificate: Certificate | None, iteration: int = -1
) -> tuple[Answers[Concluded], bool]:
    """One exchange: the owners' prices, and whether a far point is as feasible as w and much better."""
    problem = run.problem
    far = far_point(w, run.w0)
    order = Conclude(iteration=iteration, far=far, coupled_length=problem.coupled_length)
    replies = run.fleet.ask(conclude, order)
    violations = [*(r.violation for r in replies), float(np.max(replies.total.coupled, initial=0.0))]
    there = together(probed(problem.server, far), replies.total.objective, violations)
    return replies, certificate is not None and escapes(run, w, objective, certificate, there)


def _end(run: Run, best: Best, at: Coordinator, end: Verdict) -> Solution:
    """The answer, after one last exchange."""
    problem = run.problem
    assert best.certificate is not None  # the start is always judged
    replies, falls = _conclusion(run, best.w, best.objective, best.certificate, best.iteration)
    multipliers = [r.multiplier for r in replies]
    if end.status in ("max_rounds", "stalled") and best.certificate.meets(run.tol):
        end = SOLVED  # without the margin
    if end.status == "solved" and falls:
        end = Verdict("unbounded", UNBOUNDED)
    if end.status == "infeasible":
        own = float(np.max(np.abs(at.state.latest.multiplier), initial=0.0))
        sizes = {problem.server.label: own, **{name: r.size for name, r in zip(problem.names, replies, strict=True)}}
        names = tuple(name for name, size in sizes.items() if size >= 0.01 * max(sizes.values()))
        end = Verdict("infeasible", INFEASIBLE.format(", ".join(names), best.certificate.violation), names)
    found = best.solution(run, end.status, end.reason, multipliers, end.conflict)
    server, coupled = np.split(best.server_multiplier, [at.split])
    return replace(found, multipliers=[server, *multipliers], coupled_multiplier=coupled)


def refusal(problem: FederatedProblem) -> str:
    """Why this method cannot take the problem, with the owner's name; empty when it can."""
    for holder in (problem.server, *problem.shares):
        if not holder.has_hessian:
            return f"{holder.label}: a function has no Hessian"
        for block in cone_of(holder).blocks:
            if not block.symmetric:
                return f"{holder.label}: its cone {block!r} has no symmetric interior"
    return ""
