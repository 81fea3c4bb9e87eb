"""Accelerated consensus: Douglas-Rachford splitting with every constraint inside its holder's proximal step.

    w   = prox_{h / (rho N)}(mean_i z_i)                                              the server
    u_i = argmin_u f_i(u) + rho/2 |u - (2 w - z_i)|^2   s.t.  c_i(u) <=_{K_i} 0       holder i, gives mu_i
    z_i <- z_i + beta F_i,  F_i = u_i - w,  accelerated by  - sum_j gamma_j (dz_ij + beta dF_ij)

over the N holders: the owners, and the server when it has a share. It is a nonexpansive map in z = (z_1, ..., z_N), so
Anderson's acceleration (type II) applies: gamma minimises |F - sum_j gamma_j dF_j|, where dz_j and dF_j are the last
differences. Owners keep their own and send F_i and inner products. The server needs only sums over the owners: the sum
of the next z follows from the sums it has, so one exchange a round is enough. Multipliers stay at their owners until
the end, and the certificate of (w, mu) comes with the round when the residual says that it may be met.

A coupled constraint is the server's: owner i has slacks s_i behind w, with scale c~_i(u) - s_i <=_K 0 in its proximal
step, and the server's prox puts sum_i s_i into -K. It needs the sum of the z_i alone, and gives one push to all:
s_i = z_i - push / rho_i (`coupling.py`). The push is the price.

Private variables v_i of an owner are one more block of its z_i, u_i and F_i. No consensus ties them, which in the
splitting means that the server's prox is the identity on them: their w is their own z, and the proximal step has the
anchor 2 z - z = z. So they take relaxed steps of the proximal point method, and the iteration stays that of a map that
is nonexpansive, in a norm that weighs v by LOOSE (`local/constrained.py`): one step nearly minimises over v, and the
term |v - z|^2 vanishes at the solution. The owner mixes them with the server's gamma, which is found from the common
variables: inner products of v would tell how far it moved.

Safeguards: a step that triples the residual is taken back; the memory is halved when the residual is far from what a
linear map would give, and when that happens again and again the acceleration rests for longer and longer; and it rests
while the residual is above the bound of A2DR (Fu, Zhang and Boyd 2020, Algorithm 2). So the iteration converges
wherever the plain one does, once rho stays: it changes less and less often.

Notation
    rho_i       penalty of u_i = w, r_i rho; lambda_i = rho_i (z_i - w) is kept when it changes          penalty, weight
    F           residual of the fixed point                                                              residual
    beta        relaxation                                                                               RELAXATION
    dz, dF      differences of the last rounds                                                           steps, changes
    gamma       coefficients of the differences                                                          mix
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fedpact.federation import Answers, Order, Summed, client_step, named
from fedpact.problem import Certificate, Share, add_slack, insert_slack
from fedpact.solvers.base import Needs, Solver, option
from fedpact.solvers.constrained.anderson import Memory, Part, mix_next
from fedpact.solvers.constrained.coupling import Coupling, divide_penalty, for_server
from fedpact.solvers.local.constrained import Proximal, Warm, constrained
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.scales import Introduce, find_coupled_scale, introduce
from fedpact.solvers.solution import InnerRecord
from fedpact.solvers.steps import (
    Holder,
    Judged,
    Private,
    certificate_of,
    first_prices,
    judged_terms,
    no_terms,
    point_of,
    price_of,
    returned_by,
    weight_of,
)
from fedpact.types import Vector

#: rho at the start, relative to the mean curvature of one holder's objective.
START = 2.0
#: rho is looked at every so many rounds, and half as often after each change.
WAIT = 8
#: It moves when the curvature seen, averaged over so many rounds,
WINDOW = 4
#: is this many times larger,
RISE = 3.0
#: or this many times smaller;
FALL = 30.0
#: by at most this factor;
LEAP = 10.0
#: and only while WAIT rounds leave more than this part of the residual (to rise)
SLOW = 0.2
#: or than this (to fall).
SLOWER = 0.9
#: Local solves reach this part of the residual, as a length.
FRACTION = 0.1
#: The certificate is asked for when it is expected within this factor of the tolerances,
NEAR = 10.0
#: and at least every so many rounds.
AT_LEAST = 5
#: Rounds without a halved certificate before as many plain steps: so that the multipliers of owners in conflict drift
#: evenly.
PLAIN_AFTER = 60
#: Rounds in a row in which someone fails to solve its subproblem, after which evidence is asked for,
DOUBT = 3
#: and after which it is given up.
STUCK = 10
#: Rounds without a halved certificate, the constraints missed, after which Algorithm 1 goes on.
MISSED = 240
#: rho is raised by this factor because a subproblem is not convex,
RAISE = 4.0
#: and at most so many times.
RAISES = 8

ELSEWHERE = 'method "proximal-al" or "interior-point" may do better; scale the columns'

# ---------------------------------------------------------------------------------------------------- the owner's half


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
    steps: tuple[Vector, ...] = ()
    changes: tuple[Vector, ...] = ()

    @property
    def separator(self) -> tuple[Vector | None, Vector]:
        """The drifts of owners in conflict balance at their own u_i, which stay a fixed way from w."""
        return self.warm.u[: self.warm.u.size - self.slack], self.drift


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


@dataclass(frozen=True, kw_only=True)
class Round(Order):
    """Mix the next z, and take the proximal step around 2 w - z."""

    w: Vector
    push: Vector  # of the slacks; empty without a coupled constraint
    mix: Vector  # gamma; empty for a plain step
    remember: int  # differences to keep, this round's included
    penalty: float
    accuracy: float
    iteration: int
    best: bool  # the multiplier of the round before is the best so far
    judge: bool
    coupled: Vector


@dataclass(frozen=True, kw_only=True)
class Moved(Part, Judged):
    """The round of one holder, judged when asked."""

    moved: Summed[float]  # |change of u|^2
    turned: Summed[float]  # |change of the pull|^2
    converged: bool
    indefinite: bool
    gradients: Summed[int]
    hessians: Summed[int]


#: What the acceleration needs of the server too, when it is a holder.
MIXED = ("residual", "squared", "products", "against", "stepped", "moved", "turned")


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
    )
    terms = judged_terms(share, own_w, price, order.coupled)
    return fresh, Begun(curvature=seen.curvature, pull=gradient[: order.w.size], **terms)


@client_step
def advance(share: Share, state: State, order: Round) -> tuple[State, Moved]:
    """z as the server mixed it, the proximal step there, and what the server needs to mix the next one."""
    dim = order.w.size
    tied = dim + state.slack
    state = state.mark_best(order.best)
    with_slack = add_slack(share, dim, state.scale)
    penalty = state.weight * order.penalty

    # 1. the next z; a new rho keeps lambda_i
    first = state.penalty == 0
    z = mix_next(state, order.mix)
    if first:
        z = state.z - state.pull / penalty
    slacks = z[dim:tied]
    if state.slack:
        slacks = slacks - order.push / (state.penalty or penalty)  # the push is a price, which a new rho keeps
    w = np.concatenate([order.w, slacks, z[tied:]])  # of private variables nobody else has a copy
    if not first and penalty != state.penalty:
        z = w + state.penalty / penalty * (z - w)

    # 2. the proximal step under the constraint
    anchor = 2 * w - z
    found = constrained(with_slack, penalty, anchor, state.warm, order.accuracy)
    residual = found.u - w
    pull = penalty * (anchor - found.u)
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

    after = replace(
        state,
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
        moved = float(np.sum((found.u - before.warm.u)[:dim] ** 2))
        turned = float(np.sum((after.pull - before.pull)[:dim] ** 2))
    return Moved(
        residual=for_server(residual, dim, order.push.size, r),
        squared=r * float(residual @ residual),
        products=np.array([r * float(changes[-1] @ change) for change in changes]),
        against=np.array([r * float(change @ residual) for change in changes]),
        stepped=stepped,
        moved=moved,
        turned=turned,
        converged=found.converged,
        indefinite=found.indefinite,
        gradients=found.gradients,
        hessians=found.hessians,
        **terms,
    )


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass
class Pace:
    """Follows the residual and the curvature seen on the way, and moves rho."""

    fixed: bool
    residuals: list[float] = field(default_factory=list)  # since rho last changed
    curvatures: list[float] = field(default_factory=list)
    wait: int = WAIT
    raises: int = 0

    def factor(self, round: Moved, indefinite: bool, penalty: float) -> float:
        """What to multiply rho by after this round.

        |change of the pulls| / |change of the u_i| is the curvature along the last step, and rho near it is best.
        A non-convex subproblem needs a larger rho, whoever chose it.
        """
        self.residuals.append(float(np.sqrt(round.squared)))
        if round.moved > 0:  # a straight objective has none, and would not move rho
            self.curvatures.append(max(float(np.sqrt(round.turned / round.moved)), 1e-15 * penalty))
        if indefinite and self.raises < RAISES and len(self.residuals) > 1:
            self.raises += 1
            return self._changed(RAISE)
        if self.fixed or len(self.residuals) < self.wait or len(self.curvatures) < WINDOW:
            return 1.0
        before = self.residuals[-WAIT]
        if before == 0:  # at rest but for rounding
            return 1.0
        left = self.residuals[-1] / before
        seen = float(np.exp(np.mean(np.log(self.curvatures[-WINDOW:])))) / penalty
        if (seen > RISE and left > SLOW) or (seen < 1 / FALL and left > SLOWER):
            self.wait *= 2
            return self._changed(min(max(seen, 1 / LEAP), LEAP))
        return 1.0

    def _changed(self, factor: float) -> float:
        self.residuals = []
        self.curvatures = []
        return factor


@dataclass(frozen=True)
class Outcome:
    """One round: the owners' replies, the sums over all holders that the acceleration needs, and who failed."""

    replies: Answers[Moved]
    everyone: Moved
    failed: list[str]
    indefinite: bool  # was a subproblem not convex?

    @property
    def norm(self) -> float:
        """|F| over all holders."""
        return float(np.sqrt(self.everyone.squared))


@dataclass
class Server:
    """The server's variables.

    holders:   sum of the r_i of all holders, of which the server has 1
    z:         sum_i r_i z_i over all holders, and the sum of their slacks' z behind it
    price:     of the coupled constraint, in the user's units; drift: its last change
    following: rho of the next round
    expected:  certificate relative to the tolerances over residual, as last judged
    idle:      rounds since the certificate was last halved
    """

    holders: float
    own: State  # the server as a holder of its own share
    shared: bool  # has it one?
    coupling: Coupling
    price: Vector
    drift: Vector
    z: Vector
    penalty: float
    following: float
    accuracy: float
    floor: float
    anderson: Memory
    pace: Pace
    k: int = 0
    mix: Vector = field(default_factory=lambda: np.zeros(0))
    remember: int = 0
    judge: bool = True
    judged_at: int = 0
    expected: float = np.inf
    lowest: float = np.inf
    idle: int = 0
    stuck: int = 0  # rounds in a row in which a holder failed to solve its subproblem
    violated: bool = False  # did the latest judged point miss a constraint?

    @property
    def prices(self) -> Vector:
        """Of its own constraint, and of the coupled one."""
        return np.append(self.own.price, self.price)

    def see(self, outcome: Outcome, judged: tuple[Certificate, float] | None, tol: tuple[float, float]) -> None:
        """Note who failed, and how the certificate compares with the residual."""
        self.stuck = self.stuck + 1 if outcome.failed else 0
        self.idle += 1
        if judged is None:
            return
        certificate = judged[0]
        missed = certificate.missed(tol)
        self.expected = missed / max(outcome.norm, 1e-300)
        self.judged_at = self.k
        self.violated = certificate.violation > tol[1]
        if missed < 0.5 * self.lowest:
            self.lowest = missed
            self.idle = 0


@dataclass(frozen=True, kw_only=True)
class Accelerated(Solver[Server]):
    """Douglas-Rachford consensus with Anderson acceleration: any function, any cone, d numbers a message."""

    name: ClassVar[str] = "accelerated"
    needs: ClassVar[Needs] = Needs(constraints=True, coupled=True, own=True, own_coupled=True, prices=True)
    patience: ClassVar[int] = 1500
    doubt: ClassVar[int] = 30

    consensus_penalty: float | Mapping[str, float] | Sequence[float] | None = option(
        None,
        "penalty of the consensus, or one for each owner; fixed when given (a non-convex subproblem still raises it); "
        "by default from the owners' curvature, and adapted",
        letter="rho",
        above=0,
        by_owner=True,
    )
    memory: int = option(30, "how many differences the acceleration uses", least=1)

    def weights(self, run: Run) -> Vector:
        return divide_penalty(self.consensus_penalty, run)[1]

    def init(self, run: Run) -> tuple[Server, Iterate]:
        problem = run.problem
        prices = first_prices(run)
        price, coupled = np.split(prices, [problem.server.multiplier_length])
        asked, weights = divide_penalty(self.consensus_penalty, run)
        scale = find_coupled_scale(run)
        order = Begin(
            w=run.start,
            coupled=problem.own(run.start, prices)[3],
            scale=scale,
            iteration=run.first,
            warm=run.warm,
            weighted=weights.size > 0,
        )
        held = Holder(iteration=run.warm, price=price, best_iteration=run.warm, best_price=price)
        with named(problem.server.label, begin.__name__):
            own, at_server = begin(problem.server, held, order)
        begun = run.ask(begin, order)
        pull = begun.total.pull
        curvature = begun.total.curvature
        holders = float(len(begun))
        shared = bool(problem.server.parts)
        if shared:
            pull = pull + at_server.pull
            curvature += at_server.curvature
            holders += 1
        penalty = asked or START * (curvature or 1.0) / holders
        run.note(f"consensus penalty rho = {penalty:.3g} at the start")
        coupling = Coupling.of(problem, scale, weights)
        slacks = coupling.moved(coupling.first_slacks(begun.total.coupled), -coupled / scale, penalty)
        z = np.append(holders * run.start - pull / penalty, slacks)
        floor = 0.01 * run.tol[0] / holders
        server = Server(
            holders=holders,
            own=own,
            shared=shared,
            coupling=coupling,
            price=coupled,
            drift=np.zeros_like(coupled),
            z=z,
            penalty=penalty,
            following=penalty,
            accuracy=max(FRACTION * float(np.max(np.abs(pull))) / holders, floor),
            floor=floor,
            anderson=Memory(self.memory, z),
            pace=Pace(self.consensus_penalty is not None),
        )
        judged = certificate_of(problem, run.start, prices, begun)
        start = Iterate(number=run.first, w=run.start, multiplier=prices, judged=judged, consensus_penalty=penalty)
        return server, start

    def step(self, run: Run, state: Server) -> Iterate:
        # 1. w, and everybody's proximal step around it
        w, push = self._point(run, state)
        state.k += 1
        order = Round(
            w=w,
            push=push,
            mix=state.mix,
            remember=state.remember,
            penalty=state.penalty,
            accuracy=state.accuracy,
            iteration=run.first + state.k,
            best=run.best.iteration == run.first + state.k - 1,
            judge=state.judge,
            coupled=np.zeros(0),
        )
        outcome = self._exchange(run, state, order)

        # 2. what it says
        judged = None
        if order.judge:
            judged = certificate_of(run.problem, w, state.prices, outcome.replies)
        state.see(outcome, judged, run.tol)
        target = 1 / state.expected if state.expected > 0 else outcome.norm
        iterate = Iterate(
            number=run.first + state.k,
            w=w,
            multiplier=state.prices,
            judged=judged,
            penalty=state.penalty,
            consensus_penalty=state.penalty,
            gradients=int(outcome.replies.total.gradients),
            hessians=int(outcome.replies.total.hessians),
            record=InnerRecord(run.first + state.k, run.rounds, outcome.norm, target, state.penalty),
            conflict=state.stuck == DOUBT,
            escape=state.stuck == DOUBT,
            end=self._end(state, outcome.failed),
        )

        # 3. the next z and rho, and what the next round asks for
        self._mix(run, state, outcome)
        self._plan(run, state, outcome.norm)
        return iterate

    def _exchange(self, run: Run, state: Server, order: Round) -> Outcome:
        """One exchange: the proximal steps of all holders; the server takes its own first, as it knows the prices."""
        problem = run.problem
        own: list[Moved] = []
        if state.shared:
            state.own, mine = advance(problem.server, state.own, replace(order, judge=False))
            own = [mine]
        coupled = problem.own(order.w, state.prices)[3]
        replies = run.ask(advance, replace(order, coupled=coupled))
        everyone = replies.total
        for mine in own:
            everyone = replace(everyone, **{name: getattr(everyone, name) + getattr(mine, name) for name in MIXED})
        holders = [*replies, *own]
        names = (*problem.names, problem.server.label)
        failed = [name for name, reply in zip(names, holders, strict=False) if not reply.converged]
        return Outcome(replies, everyone, failed, indefinite=any(reply.indefinite for reply in holders))

    def fallback(self, state: Server) -> str:
        """Algorithm 1 goes on where the subproblems are not convex."""
        return "proximal-al" if state.pace.raises else ""

    def separator(self, run: Run, state: Server) -> tuple[Vector | None, Vector]:
        return state.own.warm.u, np.append(state.own.drift, state.drift)

    def _point(self, run: Run, state: Server) -> tuple[Vector, Vector]:
        """w = prox_{h / (rho N)}(mean_i z_i), and the push of the slacks; a new rho keeps every lambda_i."""
        coupling = state.coupling
        z, slacks = np.split(state.z, [run.start.size])
        w = run.problem.regularizer.prox(z / state.holders, 1 / (state.penalty * state.holders))
        push = coupling.project(slacks, state.penalty)
        before = state.price
        state.price = coupling.scale * push
        state.drift = state.price - before
        if state.following != state.penalty:
            placed = np.append(state.holders * w, coupling.moved(slacks, push, state.penalty))
            state.z = placed + state.penalty / state.following * (state.z - placed)
            state.penalty = state.following
        return w, push

    def _mix(self, run: Run, state: Server, outcome: Outcome) -> None:
        """The sum of the next z, accelerated or plain, and rho; a new rho begins without a memory."""
        plain = state.idle // PLAIN_AFTER % 2 == 1
        state.mix, state.remember = state.anderson.take(state.z, outcome.everyone, state.remember, plain=plain)
        state.z = mix_next(state.anderson, state.mix)
        factor = state.pace.factor(outcome.everyone, outcome.indefinite, state.penalty)
        if factor != 1:
            state.following = factor * state.penalty
            state.remember = 0
            run.note(f"round {state.k}: consensus penalty rho = {state.following:.3g}")

    def _plan(self, run: Run, state: Server, norm: float) -> None:
        """Accuracy of the next proximal steps, and whether the next round asks for the certificate."""
        length = FRACTION * state.penalty * norm / np.sqrt(state.holders * run.start.size)
        state.accuracy = max(length, state.floor)
        near = norm * state.expected <= NEAR
        due = state.k - state.judged_at >= AT_LEAST
        doubtful = state.idle + 1 >= self.doubt or state.stuck > 0
        last = run.rounds_left <= self.reserve + 1
        state.judge = near or due or doubtful or last

    def _end(self, state: Server, failed: list[str]) -> Verdict | None:
        """Given up when someone keeps failing, or the constraints stay missed: Algorithm 1 may prove a conflict."""
        if state.violated and state.idle >= MISSED:
            return Verdict("stalled", "the constraints stay missed", then="proximal-al")
        if state.stuck < STUCK:
            return None
        reason = f"{', '.join(failed)} could not solve the proximal step; {ELSEWHERE}"
        return Verdict("stalled", reason, then=self.fallback(state))
