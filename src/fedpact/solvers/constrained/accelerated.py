"""Accelerated consensus: Douglas-Rachford splitting with every constraint inside its holder's proximal step.

    w   = prox_{h / (rho N)}(mean_i z_i)                                              the server
    u_i = argmin_u f_i(u) + rho_i/2 |u - (2 w - z_i)|^2   s.t.  c_i(u) <=_{K_i} 0     holder i, gives mu_i
    z_i <- z_i + beta F_i,  F_i = u_i - w,  accelerated by  - sum_j gamma_j (dz_ij + beta dF_ij)

over the holders: the owners, and the server when it has a share. It is a nonexpansive map in z = (z_1, ..., z_N), so
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

Where a constraint is not convex, mu_i'c_i may bend f_i + mu_i'c_i downwards, and its proximal step has several
solutions between which it jumps, or one that moves more than its anchor. Then owner i adds tie_i/2 |u - w|^2, which
vanishes where u = w and so changes no solution, and tells nobody (`accelerated_owner.py`). A larger penalty would do
the same, but it would make w stiff for all owners along all directions.

All of this is in units of the columns: w = columns * prox(mean_i z_i), where objectives bend alike along every column
(`penalties.py`), as one penalty cannot fit a column that is zero in all but a few rows and one that never is.

Safeguards: a step that triples the residual is taken back; the memory is halved when the residual is far from what a
linear map would give, and when that happens again and again the acceleration rests for longer and longer; and it rests
while the residual is above the bound of A2DR (Fu, Zhang and Boyd 2020, Algorithm 2). So the iteration converges
wherever the plain one does, once the penalties stay: they change less and less often (`accelerated_pace.py`, which also
says why every owner has its own). The owners' half is in `accelerated_owner.py`.

With participation below 1 a round asks a sample of the owners, and all of them where the certificate or new penalties
are due. The others keep their z_i, which stay in the server's sum: random block coordinates of a nonexpansive map,
which converge as the map does (Combettes and Pesquet 2015). Acceleration rests then, since differences of F would be of
different owners.

Notation
    rho_i       penalty of u_i = w, r_i rho; lambda_i = rho_i (z_i - w) is kept when it changes          penalty, weight
    N           sum_i r_i, and means are weighed by r_i                                                  holders
    F           residual of the fixed point                                                              residual
    beta        relaxation                                                                               RELAXATION
    dz, dF      differences of the last rounds                                                           steps, changes
    gamma       coefficients of the differences                                                          mix
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fedpact.federation import Answers, named
from fedpact.problem import Certificate
from fedpact.prox import Prox
from fedpact.prox.rescaled import rescale_prox
from fedpact.solvers.base import Needs, Solver, option
from fedpact.solvers.consensus.rounds import PARTICIPATION, sample_owners, sample_size
from fedpact.solvers.constrained.accelerated_owner import (
    MIXED,
    Begin,
    Moved,
    Round,
    State,
    advance,
    begin,
)
from fedpact.solvers.constrained.accelerated_pace import STIFFNESS, Pace, first_stiffness
from fedpact.solvers.constrained.anderson import Memory, mix_next
from fedpact.solvers.constrained.coupling import Coupling, divide_penalty
from fedpact.solvers.constrained.penalties import Plan, find_columns
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.scales import find_coupled_scale
from fedpact.solvers.solution import InnerRecord
from fedpact.solvers.steps import Holder, certificate_of, first_prices
from fedpact.types import Vector

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
ELSEWHERE = 'method "proximal-al" or "interior-point" may do better; scale the columns'


@dataclass(frozen=True)
class Outcome:
    """One round: the owners' replies, the sums over all holders that the acceleration needs, and who failed."""

    replies: Answers[Moved]
    everyone: Moved
    failed: list[str]
    indefinite: bool  # was a subproblem not convex?
    part: float  # of the owners that were asked

    @property
    def norm(self) -> float:
        """|F| over all holders, estimated where a sample was asked."""
        return float(np.sqrt(self.everyone.squared))


@dataclass
class Server:
    """The server's variables.

    number:    of holders
    holders:   sum of their r_i
    columns:   units of the common variables: w = columns * prox(mean of z)
    z:         sum_i r_i z_i over all holders, and the sum of their slacks' z behind it
    price:     of the coupled constraint, in the user's units; drift: its last change
    expected:  certificate relative to the tolerances over residual, as last judged
    idle:      rounds since the certificate was last halved; one that asks a sample counts as that part of a round
    sampled:   does a round ask a sample of the owners?
    asked_at:  iteration in which an owner was last asked
    """

    number: int
    holders: float
    own: State  # the server as a holder of its own share
    shared: bool  # has it one?
    coupling: Coupling
    price: Vector
    drift: Vector
    columns: Vector
    regularizer: Prox  # in these units
    z: Vector
    penalty: float
    accuracy: float
    floor: float
    anderson: Memory
    pace: Pace
    plan: Plan
    sampled: bool
    asked_at: dict[str, int]
    k: int = 0
    mix: Vector = field(default_factory=lambda: np.zeros(0))
    remember: int = 0
    judge: bool = True
    judged_at: int = 0
    expected: float = np.inf
    lowest: float = np.inf
    idle: float = 0
    stuck: int = 0  # rounds in a row in which a holder failed to solve its subproblem
    bent: bool = False  # was a proximal step not convex?
    violated: bool = False  # did the latest judged point miss a constraint?

    @property
    def prices(self) -> Vector:
        """Of its own constraint, and of the coupled one."""
        return np.append(self.own.price, self.price)

    @property
    def told_columns(self) -> Vector:
        """The units as an order has them: none where all are one."""
        return self.columns if np.any(self.columns != 1) else np.zeros(0)

    def see(self, outcome: Outcome, judged: tuple[Certificate, float] | None, tol: tuple[float, float]) -> None:
        """Note who failed, and how the certificate compares with the residual."""
        self.stuck = self.stuck + 1 if outcome.failed else 0
        self.bent |= outcome.indefinite
        self.idle += outcome.part
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
        "penalty of the consensus, or one for each owner; fixed when given; "
        "by default from the owners' curvature, and adapted",
        letter="rho",
        above=0,
        by_owner=True,
    )
    memory: int = option(60, "how many differences the acceleration uses", least=1)
    participation: float = option(1.0, f"{PARTICIPATION}; below 1 rounds are not accelerated", above=0, most=1)

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
        holders = len(begun)
        shared = bool(problem.server.parts)
        if shared:
            pull = pull + at_server.pull
            curvature += at_server.curvature
            holders += 1
        columns = np.ones_like(run.start)
        if asked is None:
            columns = find_columns(problem.regularizer, begun.total.bends + at_server.bends)
        doubtful = begun.total.doubtful + at_server.doubtful > 0
        penalty = asked or first_stiffness(holders, doubtful) * (curvature or 1.0) / holders
        run.note(f"consensus penalty rho = {penalty:.3g} at the start")
        coupling = Coupling.of(problem, scale, weights)
        slacks = coupling.moved(coupling.first_slacks(begun.total.coupled), -coupled / scale, penalty)
        z = np.append(holders * run.start / columns - columns * pull / penalty, slacks)
        floor = 0.01 * run.tol[0] / holders * float(np.min(columns))
        server = Server(
            number=holders,
            holders=float(holders),
            own=own,
            shared=shared,
            coupling=coupling,
            price=coupled,
            drift=np.zeros_like(coupled),
            columns=columns,
            regularizer=rescale_prox(problem.regularizer, columns, 1.0),
            z=z,
            penalty=penalty,
            accuracy=max(FRACTION * float(np.max(np.abs(pull))) / holders, floor),
            floor=floor,
            anderson=Memory(self.memory, z),
            pace=Pace(self.consensus_penalty is not None),
            plan=Plan(penalty=penalty, stiffness=STIFFNESS),
            sampled=sample_size(run, self.participation) < len(run.owners),
            asked_at=dict.fromkeys(run.owners, 0),
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
            columns=state.told_columns,
            push=push,
            mix=state.mix,
            remember=state.remember,
            **vars(state.plan),
            accuracy=state.accuracy,
            iteration=run.first + state.k,
            best=run.best.iteration == run.first + state.k - 1,
            judge=state.judge,
            coupled=np.zeros(0),
        )
        asked = self._choose_owners(run, state)
        outcome = self._exchange(run, state, order, asked)
        if state.remember == 0 and asked == run.owners:  # there are new penalties
            self._reweigh(run, state, order, outcome.everyone)

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

    def _choose_owners(self, run: Run, state: Server) -> tuple[str, ...]:
        """The owners of this round: all for a certificate, for new penalties and for the first z; else a sample."""
        plan = state.plan
        adapting = plan.measure or plan.adjust or plan.penalty != state.penalty
        if not state.sampled or state.judge or adapting:
            return run.owners
        return sample_owners(run, self.participation, state.k)

    def _exchange(self, run: Run, state: Server, order: Round, asked: tuple[str, ...]) -> Outcome:
        """One exchange: the proximal steps of the holders; the server takes its own first, as it knows the prices."""
        problem = run.problem
        own: list[Moved] = []
        if state.shared:
            state.own, mine = advance(problem.server, state.own, replace(order, judge=False))
            own = [mine]
        coupled = problem.own(order.w, state.prices)[3]
        replies = self._ask(run, state, replace(order, coupled=coupled), asked)
        everyone = replies.total
        for mine in own:
            everyone = replace(everyone, **{name: getattr(everyone, name) + getattr(mine, name) for name in MIXED})
        part = len(asked) / len(run.owners)
        everyone = replace(everyone, squared=everyone.squared / part)
        holders = [*replies, *own]
        names = (*asked, problem.server.label)
        failed = [name for name, reply in zip(names, holders, strict=False) if not reply.converged]
        return Outcome(replies, everyone, failed, indefinite=any(reply.indefinite for reply in holders), part=part)

    def _ask(self, run: Run, state: Server, order: Round, asked: tuple[str, ...]) -> Answers[Moved]:
        """The order; to owners that missed rounds each its own, which says whether its latest price is the best."""
        before = [state.asked_at[owner] for owner in asked]
        state.asked_at |= dict.fromkeys(asked, state.k)
        if not state.sampled:
            return run.ask(advance, order)
        orders = [replace(order, best=run.best.iteration == run.first + k) for k in before]
        return run.ask(advance, orders, asked)

    def fallback(self, state: Server) -> str:
        """Algorithm 1 goes on where the subproblems are not convex."""
        return "proximal-al" if state.bent else ""

    def separator(self, run: Run, state: Server) -> tuple[Vector | None, Vector]:
        return state.own.columns * state.own.warm.u, np.append(state.own.drift, state.drift)

    def _point(self, run: Run, state: Server) -> tuple[Vector, Vector]:
        """w = prox_{h / (rho N)}(mean_i z_i), and the push of the slacks."""
        z, slacks = np.split(state.z, [run.start.size])
        nearest = state.regularizer.prox(z / state.holders, 1 / (state.penalty * state.holders))
        push = state.coupling.project(slacks, state.penalty)
        before = state.price
        state.price = state.coupling.scale * push
        state.drift = state.price - before
        return state.columns * nearest, push

    def _reweigh(self, run: Run, state: Server, order: Round, everyone: Moved) -> None:
        """The sum of z with the penalties that the owners took in this round: every lambda_i is kept, and so is w."""
        z, slacks = np.split(state.z, [run.start.size])
        w = order.w / state.columns
        multipliers = state.penalty * (z - state.holders * w)  # sum_i lambda_i
        placed = state.coupling.moved(slacks, order.push, state.penalty)
        state.penalty = order.penalty
        state.holders = everyone.weight
        state.coupling = replace(state.coupling, looseness=everyone.looseness)
        moved = state.holders * w + multipliers / state.penalty
        state.z = np.append(moved, placed + state.coupling.looseness / state.penalty * order.push)

    def _mix(self, run: Run, state: Server, outcome: Outcome) -> None:
        """The sum of the next z, accelerated or plain, and the penalties; new ones begin without a memory."""
        drifting = state.idle // PLAIN_AFTER % 2 == 1 and not state.bent
        plain = state.sampled or drifting
        state.mix, state.remember = state.anderson.take(state.z, outcome.everyone, state.remember, plain=plain)
        state.z = mix_next(state.anderson, state.mix)
        state.plan = state.pace.plan(outcome.everyone, state.penalty, state.number)
        if state.sampled or state.plan.adjust or state.plan.penalty != state.penalty:
            state.remember = 0

    def _plan(self, run: Run, state: Server, norm: float) -> None:
        """Accuracy of the next proximal steps, and whether the next round asks for the certificate."""
        length = FRACTION * state.penalty * norm / np.sqrt(state.number * run.start.size)
        state.accuracy = max(length, state.floor)
        near = norm * state.expected <= NEAR
        due = state.k - state.judged_at >= AT_LEAST
        doubtful = state.idle + 1 >= self.doubt or state.stuck > 0
        last = run.rounds_left <= self.reserve + 1
        if state.sampled:  # a certificate asks all owners
            near = False
            doubtful = False
        state.judge = near or due or doubtful or last

    def _end(self, state: Server, failed: list[str]) -> Verdict | None:
        """Given up when someone keeps failing, or the constraints stay missed: Algorithm 1 may prove a conflict.

        Prices grow without end where a constraint touches zero and has no multiplier; Algorithm 1 bears it longest.
        """
        if state.violated and state.idle >= MISSED:
            return Verdict("stalled", "the constraints stay missed", then="proximal-al")
        if state.stuck < STUCK:
            return None
        reason = f"{', '.join(failed)} could not solve the proximal step; {ELSEWHERE}"
        return Verdict("stalled", reason, then="proximal-al")
