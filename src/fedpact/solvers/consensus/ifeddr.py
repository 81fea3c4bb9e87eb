"""iFedDR: inexact federated Douglas-Rachford splitting that decides by itself how much local work is enough.

For 0 in (1/N) sum_i F_i(x) + G(x), with F_i = N grad f_i and G = dh for the problem min sum_i f_i + h:

    x_i ~ (id + gamma F_i)^-1(s_i)                              owner i, to whatever accuracy
    p   = prox_{gamma h}(mean_i (x_i - gamma F_i(x_i)))         the server
    v_i = s_i - gamma F_i(x_i)
    xi = sum |x_i - p|^2,  zeta = sum |v_i - p|^2,  mu = sum <x_i - p, v_i - p>
    accept when sum |v_i - x_i|^2 <= sigma^2 max(xi, zeta); else the owners refine x_i
    s_i <- s_i - lambda alpha (x_i - p),   alpha = mu / xi

Sources: iFedDR (Algorithm I), Douglas-Rachford by Eckstein and Bertsekas (1992), the relative error by Solodov and
Svaiter (1999). The printed algorithm has errors, marked where the code differs.

The owner's half is `ifeddr_owner.py`. The server needs sums over the owners only (`sums.py`); how it chooses gamma and
the local work is in `pace.py`.

The start needs no round of its own: s_i = w0 + gamma F_i(w0) has the exact resolvent w0, so p and alpha follow at once.
The paper's s^0, any vectors, can be stated instead (`s0`); w0 is then where local solvers begin.

For operators the rounds are accelerated (`memory.py`): on rotations, such as bilinear games, plain ones gain little.
p, alpha and the test of the relative error are those of Algorithm I in every round; what it proves about the s_i (they
come nearer to a solution in every round) holds for memory = 0, and from some round on, as the safeguards of
`constrained/anderson.py` leave the plain iteration in charge.

With participation below 1 only a sample of the owners moves in a round: randomized block coordinates, which the paper
leaves for later. p, alpha and the test are those of all owners, at the x_i and s_i they have; the owners drawn send by
how much their part of the sums changes. Drawn uniformly, the expected |s - s*|^2 falls by the share asked times what it
falls by in the proof of Theorem 3.1, so the s_i still come nearer on average (stochastic Fejer monotonicity, Combettes
and Pesquet 2015). When the test fails everybody is asked to refine. gamma stays: it is part of what the others sent.

Functions that are not convex have no monotone gradients. Where an owner sees that along its way, gamma goes below 1 / L
and stays there, lambda is 1 at most, every p is judged, and gamma is divided where the objective rose (`CarefulGamma`):
the setting of FedDR's theory. What is reached is a stationary point.

Notation
    gamma    step of the resolvents                                     gamma
    lambda   relaxation, in (0, 2)                                      relaxation
    sigma    relative error allowed, in (0, 1)                          error
    tau      steps of an owner's local solver in a round                steps
    s_i, x_i, F_i(x_i)                                                  State.s, .x, .image
    p, xi, zeta, mu, alpha                                              Measured
    q        p of the round before                                      Server.p
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fedpact.errors import OptionError
from fedpact.federation import Answers
from fedpact.solvers.base import Needs, Solver, option
from fedpact.solvers.consensus.ifeddr_owner import Count, Refine, Resolved, Round, advance, count, refine
from fedpact.solvers.consensus.memory import Acceleration
from fedpact.solvers.consensus.pace import (
    FIRST,
    LATE,
    MOST_STEPS,
    POLICIES,
    CarefulGamma,
    Departure,
    Gamma,
    Judging,
    Work,
    look_for_no_zero,
)
from fedpact.solvers.consensus.rounds import AT_LEAST, Seen, sample_owners, sample_size, see
from fedpact.solvers.consensus.splitting import LOCAL_SOLVER, SOLVERS, START, STARTS, Begin, begin
from fedpact.solvers.consensus.sums import Measured, Sums, measure, recenter
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.scales import default_gamma
from fedpact.solvers.solution import LocalRecord
from fedpact.types import Vector

#: Squared errors below this, relative to |s|^2, are rounding, and cannot be refined.
ROUNDING = 1e-28
#: Rounds that the acceleration looks back on, for operators.
MEMORY = 40
#: Local solvers beside whose gradients the one that judges p is not worth saving.
FIRST_ORDER = ("gradient", "agd", "extragradient")

NOT_MONOTONE = "{}: the operator is not monotone, which this method needs"
ROTATION = (
    'operators that rotate, as those of bilinear games, let a round gain little; use "monotone-newton", or memory'
)
STUCK = "refining does not help; check that gradients (and Hessians) belong to their functions, and scale the columns"


@dataclass
class Server:
    """The server's variables, and how the round goes.

    p, sums:    the point of the round, and the sums over all owners around it, with s as it is after the next move
    step:       lambda alpha
    next_gamma: the gamma of the next round, and how it is chosen
    relaxation: lambda
    sampled:    is only a sample of the owners asked?
    seen:       the p of this round, when it was judged
    refused:    do the owners have to refine?
    spent:      gradients of this round by owner
    doubtful:   owners that were seen not to be monotone
    """

    p: Vector
    sums: Sums
    gamma: float
    next_gamma: Gamma
    relaxation: float
    work: Work
    judging: Judging
    departure: Departure
    acceleration: Acceleration
    sampled: bool
    seen: Seen | None
    k: int = 0
    step: float = 0.0
    refused: bool = False
    spent: dict[str, int] = field(default_factory=dict)
    doubtful: list[str] = field(default_factory=list)

    def begin_round(self, run: Run) -> None:
        self.k += 1
        self.seen = None
        self.spent = dict.fromkeys(run.owners, 0)
        if self.next_gamma.value != self.gamma:
            self.gamma = self.next_gamma.value
            run.note(f"round {self.k}: gamma = {self.gamma:.3g}")

    def hear(self, run: Run, asked: Sequence[str], replies: Answers[Resolved]) -> None:
        """Count what the owners did, and note who was seen not to be monotone."""
        for owner, reply in zip(asked, replies, strict=True):
            self.spent[owner] += reply.gradients
            if not reply.monotone and owner not in self.doubtful:
                self.doubtful.append(owner)
                run.note(f"not monotone along the way: {owner}; {self._take_care(run)}")

    def _take_care(self, run: Run) -> str:
        """A function that is not convex was met: FedDR's theory applies where gamma may move. Returns what is done."""
        if self.next_gamma.fixed or run.problem.monotone:
            return "the theory does not apply"
        if not self.careful:
            self.next_gamma = CarefulGamma(self.gamma, fixed=False)
            self.relaxation = min(self.relaxation, 1.0)
            self.judging.always = True
        return "gamma is kept below 1 / L, and the objective at p must fall"

    @property
    def careful(self) -> bool:
        return isinstance(self.next_gamma, CarefulGamma)

    def replace_sums(self, total: Resolved) -> None:
        """Take the sums of all owners anew; they send s_i only where the server cannot follow its sum."""
        sums = total.sums
        if not self.sampled:
            sums = replace(sums, s=self.sums.s)
        self.sums = sums


@dataclass(frozen=True, kw_only=True)
class IFedDR(Solver[Server]):
    """Algorithm I, for functions and for operators."""

    name: ClassVar[str] = "ifeddr"
    needs: ClassVar[Needs] = Needs(operators=True)

    gamma: float | None = option(
        None,
        "step of the resolvents, fixed when given; by default from the owners' curvature, and adapted",
        letter="gamma",
        above=0,
    )
    relaxation: float = option(
        1.8, "relaxation; at most 1 where functions prove not to be convex", letter="lambda", above=0, below=2
    )
    error: float = option(0.95, "relative error allowed", letter="sigma", above=0, below=1)
    steps: int = option(
        0,
        "of the local solver in a round, before refinement; 0: as many as are needed, or in the paper's policies of "
        "refinement one for newton and two for others",
        letter="tau",
        least=0,
    )
    local_solver: str = option("", LOCAL_SOLVER, choices=SOLVERS)
    start: str = option("", START, choices=STARTS)
    refinement: str = option(
        "adaptive", "how local work follows the refinements; the paper's policies are the others", choices=POLICIES
    )
    memory: int | None = option(
        None,
        "rounds that Anderson's acceleration looks back on; by default 40 for operators, and none for functions or "
        "with participation below 1",
        least=0,
        most=100,
    )
    s0: Mapping[str, list[float]] | None = option(
        None, "where the s_i start, a vector by owner; by default w0 + gamma F_i(w0)", letter="s^0"
    )
    participation: float = option(
        1.0,
        "share of the owners that a round asks, drawn anew for every round; below 1 gamma is not adapted",
        above=0,
        most=1,
    )

    def check(self, run: Run) -> None:
        """OptionError unless s0 is a vector of the length of w for every owner, all of whom are asked."""
        if self.s0 is None:
            return
        fits = set(self.s0) == set(run.owners) and {len(s) for s in self.s0.values()} == {run.start.size}
        if not fits or self.participation < 1:
            raise OptionError(
                f"s0: give a vector of length {run.start.size} for each of {', '.join(run.owners)}, and leave "
                "participation at 1",
                code="FP-OPTION-204",
            )

    def init(self, run: Run) -> tuple[Server, Iterate]:
        """One exchange: all x_i are at w0, which is judged, and where the resolvents are exact."""
        w = run.start
        holders = len(run.owners)
        begun = run.ask(begin, Begin(w=w, holders=holders, ridge=np.zeros(0)))
        gamma = self.gamma or default_gamma(begun.total.curvature)
        run.note(f"gamma = {gamma:.3g} at the start")
        newton = all(reply.newton for reply in begun)
        sampled = sample_size(run, self.participation) < holders
        image = holders * begun.total.gradient
        seen = see(run, w, begun)
        memory = self._memory(run, sampled)
        state = Server(
            p=w,
            sums=Sums(np.zeros_like(w), image, holders * w + gamma * image, np.zeros(4)),
            gamma=gamma,
            next_gamma=Gamma(gamma, fixed=sampled or self.gamma is not None, wait=LATE if memory else FIRST),
            relaxation=self.relaxation,
            work=Work(
                self.refinement,
                self.steps or self._default_steps(newton),
                holders,
                self.error,
                precise=memory > 0,
            ),
            judging=Judging(not newton or self.local_solver in FIRST_ORDER, run.tol[0]),
            departure=Departure(self.doubt),
            acceleration=Acceleration.of(memory, holders, holders * w + gamma * image),
            sampled=sampled,
            seen=seen,
        )
        if self.s0 is None:
            state.work.accept()
            self._move_on(run, state, self._measure(run, state), np.zeros(0))
        else:
            state.sums = replace(state.sums, s=np.sum([self.s0[owner] for owner in run.owners], axis=0))
        return state, Iterate(number=0, w=w, judged=seen.judged, penalty=gamma, consensus_penalty=1 / gamma)

    def _memory(self, run: Run, sampled: bool) -> int:
        if sampled:
            return 0
        if self.memory is None:
            return MEMORY if run.problem.monotone else 0
        return self.memory

    def _default_steps(self, newton: bool) -> int:
        if self.refinement == "adaptive":
            return MOST_STEPS
        if newton and not self.local_solver:
            return 1
        return 2

    def step(self, run: Run, state: Server) -> Iterate:
        """One exchange of Algorithm I."""
        # I.1: the owners move s_i and solve for x_i; or I.4: they refine the x_i that failed the test
        if state.refused:
            replies = self._refine(run, state)
            news = None
        else:
            replies = self._advance(run, state)
            news = state.seen
        iterate = Iterate(
            number=state.k,
            w=state.p,
            judged=None if news is None else news.judged,
            inner=state.work.refined,
            penalty=state.gamma,
            consensus_penalty=1 / state.gamma,
            gradients=sum(reply.gradients for reply in replies),
            hessians=sum(reply.hessians for reply in replies),
        )

        # I.2: the next p, and (3.4)
        found = self._measure(run, state)
        state.work.weigh(found.error, found.largest)

        # I.3: the test of the relative error
        passes = found.passes(self.error, ROUNDING * (1 + float(state.sums.s @ state.sums.s)))
        state.refused = not passes and self._may_refine(run, state)
        if state.refused:
            return iterate

        # accepted: on to the next p
        state.work.accept()
        self._adapt_gamma(run, state, found, replies.total)
        self._move_on(run, state, found, replies.total.tracked)
        if state.sampled and state.k > AT_LEAST and state.k % AT_LEAST == 1:
            news = self._count(run, state)
        record = self._record(run, state, found)
        end = self._end(run, state, passes)
        if news is None:
            return replace(iterate, w=state.p, record=record, end=end)
        return replace(iterate, w=news.w, judged=news.judged, record=record, end=end)

    def excuse(self, run: Run, state: Server) -> str:
        if state.doubtful and not state.careful:
            return NOT_MONOTONE.format(", ".join(state.doubtful))
        if not run.problem.monotone:
            return ""
        return ROTATION

    def _advance(self, run: Run, state: Server) -> Answers[Resolved]:
        """One exchange: the owners asked move s_i and solve for x_i."""
        wanted = not state.sampled and state.judging.wants(state.k)
        state.begin_round(run)
        order = Round(
            p=state.p,
            step=state.step,
            gamma=state.gamma,
            holders=len(run.owners),
            solver=self.local_solver,
            start=self.start,
            steps=state.work.start(),
            target=state.work.target,
            judge=wanted and run.rounds_left > self.reserve + 1,  # the loop judges what the last round finds
            sampled=state.sampled,
            mix=state.acceleration.mix,
            remember=state.acceleration.remember,
            s=np.zeros(0),
        )
        asked = sample_owners(run, self.participation, state.k)
        replies = run.ask(advance, self._place(run, state, order), asked)
        state.hear(run, asked, replies)
        if order.judge:
            state.seen = see(run, state.p, replies)
        if state.sampled:
            state.sums = state.sums.plus(replies.total.sums)
        else:
            state.replace_sums(replies.total)
        return replies

    def _place(self, run: Run, state: Server, order: Round) -> Round | list[Round]:
        """The order; in the first round each owner's own where the caller states its s_i."""
        if self.s0 is None or state.k > 1:
            return order
        return [replace(order, s=np.array(self.s0[owner])) for owner in run.owners]

    def _refine(self, run: Run, state: Server) -> Answers[Resolved]:
        """One exchange: all owners go on with their subproblems."""
        order = Refine(
            q=state.p,
            gamma=state.gamma,
            holders=len(run.owners),
            solver=self.local_solver,
            steps=state.work.refine(),
            target=state.work.target,
            sampled=state.sampled,
        )
        replies = run.ask(refine, order)
        state.hear(run, run.owners, replies)
        state.replace_sums(replies.total)
        return replies

    def _count(self, run: Run, state: Server) -> Seen:
        """One exchange: the certificate of p, and its sums anew, as rounding adds up where they are kept by changes."""
        counted = run.ask(count, Count(q=state.p, gamma=state.gamma))
        state.replace_sums(counted.total)
        state.seen = see(run, state.p, counted)
        return state.seen

    def _measure(self, run: Run, state: Server) -> Measured:
        return measure(state.sums, state.p, state.gamma, len(run.owners), run.problem.regularizer)

    def _may_refine(self, run: Run, state: Server) -> bool:
        """Whether more local work is worth an exchange."""
        solved = state.seen is not None and state.seen.judged[0].meets(run.tol)
        return not solved and not state.work.stuck and run.rounds_left > self.reserve

    def _adapt_gamma(self, run: Run, state: Server, found: Measured, total: Resolved) -> None:
        disagreement = float(np.sqrt(total.size / len(run.owners)))
        distance = float(np.linalg.norm(found.p - run.w0))
        state.next_gamma.follow(state.k, total.moved, total.turned, disagreement, distance)
        if isinstance(state.next_gamma, CarefulGamma):
            if state.seen is not None:
                state.next_gamma.weigh(state.seen.judged[1])
            if state.work.stuck:
                state.next_gamma.shrink()

    def _move_on(self, run: Run, state: Server, found: Measured, tracked: Vector) -> None:
        """Take the p that was found; the owners move s_i, and take on a new gamma, with the next order."""
        holders = len(run.owners)
        norm = float(np.sqrt(found.xi / holders)) / state.gamma
        stationarity = None
        if state.seen is not None:
            stationarity = state.seen.judged[0].stationarity
        state.judging.follow(state.k, norm, stationarity)

        state.step = state.relaxation * found.alpha(self.error)
        acceleration = state.acceleration
        if acceleration.on:
            plain = bool(state.doubtful)  # an extrapolation may end in a zero that is no equilibrium
            acceleration.take(state.sums, tracked, found.p, state.p, found.xi, plain=plain)
        sums = recenter(state.sums, found, state.p, holders)
        s = sums.s
        if acceleration.on:
            s = acceleration.next_sum(state.step)
        elif not state.sampled:
            s = s - state.step * sums.shift
        ratio = state.next_gamma.value / state.gamma
        if ratio != 1:
            s = holders * found.p + ratio * (s - holders * found.p)
            acceleration.forget()
        state.work.largest = found.largest * min(ratio, 1.0) ** 2
        state.sums = replace(sums, s=s)
        state.p = found.p

    def _record(self, run: Run, state: Server, found: Measured) -> LocalRecord:
        residual = np.nan
        if state.seen is not None:
            residual = state.seen.residual
        return LocalRecord(
            iteration=state.k,
            rounds=run.rounds,
            refinements=state.work.refined,
            gradients=tuple(state.spent.values()),
            alpha=found.alpha(self.error),
            residual=residual,
            gamma=state.gamma,
        )

    def _end(self, run: Run, state: Server, passes: bool) -> Verdict | None:
        if state.work.stuck and not passes and not state.careful:
            doubt = NOT_MONOTONE.format(", ".join(state.doubtful)) if state.doubtful else STUCK
            return Verdict("stalled", doubt)
        if state.seen is None or not run.problem.monotone:
            return None
        distance = float(np.max(np.abs(state.seen.w - run.w0)))
        size = float(np.max(np.abs(run.w0)))
        if not state.departure.see(state.k, state.seen.judged[0].stationarity, distance, size):
            return None
        if state.doubtful:
            return Verdict("stalled", NOT_MONOTONE.format(", ".join(state.doubtful)))
        return look_for_no_zero(run, state.seen.w, distance)
