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

The server needs sums only: with q the p of the round before, owners send x_i - q, F_i(x_i), and squares and products of
x_i - q and v_i - q, from which xi, zeta and mu follow by expanding around q, where little cancels (differs from iFedDR,
Remark D.3, which expands around 0).

The start needs no round of its own: s_i = w0 + gamma F_i(w0) has the exact resolvent w0, so p and alpha follow at once.

With participation below 1 only a sample of the owners moves in a round: randomized block coordinates, which the paper
leaves for later. p, alpha and the test are those of all owners, at the x_i and s_i they have; the owners drawn send by
how much their part of the sums changes. Drawn uniformly, the expected |s - s*|^2 falls by the share asked times what it
falls by in the proof of Theorem 3.1, so the s_i still come nearer on average (stochastic Fejer monotonicity, Combettes
and Pesquet 2015). When the test fails everybody is asked to refine. gamma stays: it is part of what the others sent.

Notation
    gamma    step of the resolvents                                     gamma
    lambda   relaxation, in (0, 2)                                      relaxation
    sigma    relative error allowed, in (0, 1)                          error
    tau      steps of an owner's local solver in a round                steps
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fedpact.federation import Answers, Order, Summed, client_step
from fedpact.problem import Share
from fedpact.solvers.base import Needs, Solver, option
from fedpact.solvers.consensus.pace import MOST_STEPS, POLICIES, Departure, Gamma, Work
from fedpact.solvers.consensus.rounds import AT_LEAST, Seen, sample_owners, sample_size, see, terms_of
from fedpact.solvers.consensus.splitting import (
    LOCAL_SOLVER,
    SOLVERS,
    START,
    STARTS,
    Begin,
    Resolve,
    State,
    begin,
    solve_resolvent,
)
from fedpact.solvers.local.resolvent import Resolved as Found
from fedpact.solvers.local.resolvent import Subproblem, default_solver, resolvent, seems_monotone
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.scales import default_gamma
from fedpact.solvers.solution import LocalRecord
from fedpact.solvers.steps import Judged, no_terms
from fedpact.types import Vector

#: Refinement requests in one round after which the method gives up.
MOST_REFINEMENTS = 40
#: A request helps when it leaves less than this part of the error ...
HELPS = 0.9
#: ... and after so many in a row that do not help it is given up too.
USELESS = 10
#: The certificate is asked for when it is expected within this factor of the tolerance.
NEAR = 10.0
#: Squared errors below this, relative to |s|^2, are rounding, and cannot be refined.
ROUNDING = 1e-28
#: Local solvers beside whose gradients the one that judges p is not worth saving.
FIRST_ORDER = ("gradient", "agd", "extragradient")

NOT_MONOTONE = "{}: the operator is not monotone, which this method needs"
STUCK = "refining does not help; check that gradients (and Hessians) belong to their functions, and scale the columns"
NO_ZERO = (
    "the iterates leave and come no nearer to a zero: the operators have none in common, or only one farther away than "
    "{:.3g}; bound w, for example with fp.prox.Box"
)

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True)
class Sums:
    """What an owner adds to the sums around q, or what all of them together do.

    products: |x-q|^2, <x-q, v-q>, |v-q|^2, |v-x|^2
    """

    shift: Vector  # x_i - q
    image: Vector  # F_i(x_i)
    s: Vector
    products: Vector

    def plus(self, other: Sums | Resolved) -> Sums:
        return Sums(
            self.shift + other.shift, self.image + other.image, self.s + other.s, self.products + other.products
        )

    def minus(self, other: Sums) -> Sums:
        return Sums(
            self.shift - other.shift, self.image - other.image, self.s - other.s, self.products - other.products
        )


@dataclass(frozen=True, kw_only=True)
class Round(Resolve):
    """p of the round before.

    step:    lambda alpha of the round before
    target:  gap below which the owner may stop sooner
    sampled: only some owners are asked: they say by how much their part of the sums changes
    """

    step: float
    gamma: float
    target: float
    sampled: bool


@dataclass(frozen=True, kw_only=True)
class Refine(Order):
    q: Vector
    gamma: float
    holders: int
    solver: str
    steps: int
    target: float
    sampled: bool


@dataclass(frozen=True, kw_only=True)
class Count(Order):
    q: Vector
    gamma: float


@dataclass(frozen=True, kw_only=True)
class Resolved(Judged):
    """The fields of `Sums`, and what gamma is chosen from. Judged at q, when asked."""

    shift: Summed[Vector]
    image: Summed[Vector]
    s: Summed[Vector]  # empty where the server knows it: everyone moved as it said
    products: Summed[Vector]
    moved: Summed[float]  # |change of x|^2
    turned: Summed[float]  # |change of F|^2
    size: Summed[float]  # |F|^2
    gradients: int
    hessians: int
    monotone: bool  # was F seen to be, along the last move?


@client_step
def advance(share: Share, state: State, order: Round) -> tuple[State, Resolved]:
    """Move s_i as the server found, and solve for the next x_i."""
    p = order.p
    function = share.objective
    assert function is not None
    before = state.begun(order.gamma)
    terms = no_terms()
    at_p = None
    if order.judge:
        value, gradient = function.value_and_gradient(p)
        terms = terms_of((value, gradient))
        at_p = order.holders * gradient

    s = before.s - order.step * (before.x - p)
    s = p + order.gamma / before.gamma * (s - p)  # a new gamma keeps (s_i - p) / gamma, which tends to F_i
    found = solve_resolvent(function, before, s, order.gamma, order, at_p, order.target)
    after = State(s, found.x, found.image, order.gamma, found.lipschitz)

    part = part_of(after, p)
    part = part.minus(part_of(before, p)) if order.sampled else without_s(part)
    reply = _reply(before, after, found, part)
    return after, replace(reply, **terms, gradients=found.gradients + order.judge)


@client_step
def refine(share: Share, state: State, order: Refine) -> tuple[State, Resolved]:
    """Go on with the same subproblem."""
    function = share.objective
    assert function is not None
    before = state.begun(order.gamma)
    problem = Subproblem(function, order.holders, before.s, before.gamma, before.lipschitz)
    solver = order.solver or default_solver(function, before.x.size)
    found = resolvent(problem, before.x, before.image, solver, order.steps, order.target)
    after = replace(before, x=found.x, image=found.image, lipschitz=found.lipschitz)
    part = part_of(after, order.q)
    return after, _reply(before, after, found, part if order.sampled else without_s(part))


@client_step
def count(share: Share, state: State, order: Count) -> tuple[State, Resolved]:
    """All that this owner adds to the sums around q, and its terms of the certificate there."""
    function = share.objective
    assert function is not None
    now = state.begun(order.gamma)
    nothing = Found(now.x, now.image, 0.0, gradients=0, hessians=0, lipschitz=now.lipschitz)
    reply = _reply(now, now, nothing, part_of(now, order.q))
    return now, replace(reply, **terms_of(function.value_and_gradient(order.q)))


def part_of(state: State, q: Vector) -> Sums:
    """This owner's part of the sums around q."""
    v = state.s - state.gamma * state.image
    x_from_q = state.x - q
    v_from_q = v - q
    gap = v - state.x
    products = [x_from_q @ x_from_q, x_from_q @ v_from_q, v_from_q @ v_from_q, gap @ gap]
    return Sums(x_from_q, state.image, state.s, np.array(products))


def without_s(part: Sums) -> Sums:
    return replace(part, s=np.zeros(0))


def _reply(before: State, after: State, found: Found, part: Sums) -> Resolved:
    moved = after.x - before.x
    turned = after.image - before.image
    return Resolved(
        **no_terms(),
        **vars(part),
        moved=float(moved @ moved),
        turned=float(turned @ turned),
        size=float(after.image @ after.image),
        gradients=found.gradients,
        hessians=found.hessians,
        monotone=found.monotone and seems_monotone(before.x, before.image, after.x, after.image, after.lipschitz),
    )


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass(frozen=True)
class Measured:
    """What the server reads off a round: p, and (3.4).

    differs from iFedDR: zeta without 1 / gamma^2, which is right only for gamma = 1; and G is 1/N of the sum's, so p is
    prox_{gamma h} of the mean, not prox_{gamma h / N} (Lemma D.2 is about another B).
    """

    p: Vector
    xi: float
    zeta: float
    mu: float
    error: float  # sum |v_i - x_i|^2

    @property
    def largest(self) -> float:
        return max(self.xi, self.zeta)

    def passes(self, sigma: float, rounding: float) -> bool:
        """The test of the relative error; what is rounding passes too, since no work would make it smaller."""
        return self.error <= sigma**2 * self.largest or self.error <= rounding

    def alpha(self, sigma: float) -> float:
        """mu / xi; where the test holds it lies between these bounds, and outside it is a ratio of rounding errors."""
        if self.xi == 0:
            return 1.0
        return float(np.clip(self.mu / self.xi, 1 - sigma, 1 / (1 - sigma)))


def measure(run: Run, sums: Sums, q: Vector, gamma: float) -> Measured:
    """p and (3.4) from the sums over all owners around q."""
    holders = len(run.owners)
    mean = q + sums.shift / holders - gamma * sums.image / holders
    p = run.problem.regularizer.prox(mean, gamma)
    offset = p - q
    square = holders * float(offset @ offset)
    pull = sums.s - gamma * sums.image - holders * q  # sum of v_i - q
    xx, xv, vv, error = (float(product) for product in sums.products)
    return Measured(
        p=p,
        xi=max(xx - 2 * float(sums.shift @ offset) + square, 0.0),
        zeta=max(vv - 2 * float(pull @ offset) + square, 0.0),
        mu=xv - float(offset @ (sums.shift + pull)) + square,
        error=error,
    )


@dataclass
class Server:
    """The server's variables, and how the round goes.

    p, sums:    the point of the round, and the sums over all owners around it, with s as it is after the next move
    step:       lambda alpha
    last_gamma: of the round before
    sampled:    is only a sample of the owners asked?
    cheap:      is p judged in every round?
    largest:    max(xi, zeta) as last measured
    expected:   stationarity of p over |G| = sqrt(xi / N) / gamma, as last judged
    near:       is the certificate expected to be met soon?
    doubtful:   owners that were seen not to be monotone
    seen:       the p of this round, when it was judged
    spent:      gradients of this round by owner
    refused:    do the owners have to refine?
    refined:    requests to refine in this round; useless: of no help, in a row; least: error so far
    """

    p: Vector
    sums: Sums
    gamma: Gamma
    last_gamma: float
    work: Work
    departure: Departure
    sampled: bool
    cheap: bool
    seen: Seen | None
    k: int = 0
    step: float = 0.0
    largest: float = 0.0
    expected: float = np.inf
    near: bool = False
    judged_at: int = 0
    doubtful: list[str] = field(default_factory=list)
    spent: dict[str, int] = field(default_factory=dict)
    refused: bool = False
    refined: int = 0
    useless: int = 0
    least: float = np.inf

    @property
    def due(self) -> bool:
        """Was no p judged for long?"""
        return self.k - self.judged_at >= AT_LEAST

    @property
    def stuck(self) -> bool:
        return self.refined >= MOST_REFINEMENTS or self.useless >= USELESS

    def begin_round(self, owners: Sequence[str]) -> None:
        self.k += 1
        self.seen = None
        self.spent = dict.fromkeys(owners, 0)
        self.refined = 0
        self.useless = 0
        self.least = np.inf

    def hear(self, run: Run, asked: Sequence[str], replies: Answers[Resolved]) -> None:
        """Count what the owners did, and note who was seen not to be monotone."""
        for owner, reply in zip(asked, replies, strict=True):
            self.spent[owner] += reply.gradients
            if not reply.monotone and owner not in self.doubtful:
                self.doubtful.append(owner)
                run.note(f"not monotone along the way: {owner}; the theory does not apply")

    def take(self, total: Resolved) -> None:
        """The sums of all owners, anew."""
        s = total.s if self.sampled else self.sums.s
        self.sums = Sums(total.shift, total.image, s, total.products)

    def weigh(self, found: Measured) -> None:
        """Note what a request to refine brought."""
        self.largest = found.largest
        if found.error < HELPS * self.least:
            self.useless = 0
        else:
            self.useless += 1
        self.least = min(self.least, found.error)


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
    relaxation: float = option(1.8, "relaxation", letter="lambda", above=0, below=2)
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
    participation: float = option(
        1.0,
        "share of the owners that a round asks, drawn anew for every round; below 1 gamma is not adapted",
        above=0,
        most=1,
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
        state = Server(
            p=w,
            sums=Sums(np.zeros_like(w), image, holders * w + gamma * image, np.zeros(4)),
            gamma=Gamma(gamma, fixed=sampled or self.gamma is not None),
            last_gamma=gamma,
            work=Work(self.refinement, self.steps or self._default_steps(newton), holders, self.error),
            departure=Departure(self.doubt),
            sampled=sampled,
            cheap=not newton or self.local_solver in FIRST_ORDER,
            seen=seen,
        )
        state.work.accept(0)
        self._move_on(run, state, measure(run, state.sums, w, gamma))
        return state, Iterate(number=0, w=w, judged=seen.judged, penalty=gamma, consensus_penalty=1 / gamma)

    def _default_steps(self, newton: bool) -> int:
        if self.refinement == "adaptive":
            return MOST_STEPS
        return 1 if newton and not self.local_solver else 2

    def step(self, run: Run, state: Server) -> Iterate:
        """One exchange: the owners move on and solve, or refine where the last test failed."""
        # 1. the sums around p
        if state.refused:
            replies = self._refine(run, state)
            news = None
        else:
            replies = self._advance(run, state)
            news = state.seen

        # 2. the next p, and the test (3.4)
        gamma = state.last_gamma
        found = measure(run, state.sums, state.p, gamma)
        state.weigh(found)
        passes = found.passes(self.error, ROUNDING * (1 + float(state.sums.s @ state.sums.s)))
        state.refused = not passes and self._may_refine(run, state)
        iterate = Iterate(
            number=state.k,
            w=state.p,
            judged=None if news is None else news.judged,
            inner=state.refined,
            penalty=gamma,
            consensus_penalty=1 / gamma,
            gradients=sum(reply.gradients for reply in replies),
            hessians=sum(reply.hessians for reply in replies),
        )
        if state.refused:
            return iterate

        # 3. accepted: on to the next p
        state.work.accept(state.refined)
        self._adapt_gamma(run, state, found, replies.total)
        self._move_on(run, state, found)
        if state.sampled and state.k > AT_LEAST and state.k % AT_LEAST == 1:
            news = self._count(run, state)
        return replace(
            iterate,
            w=state.p if news is None else news.w,
            judged=None if news is None else news.judged,
            record=LocalRecord(
                iteration=state.k,
                rounds=run.rounds,
                refinements=state.refined,
                gradients=tuple(state.spent.values()),
                alpha=found.alpha(self.error),
                residual=np.nan if state.seen is None else state.seen.residual,
                gamma=gamma,
            ),
            end=self._end(run, state, passes),
        )

    def excuse(self, run: Run, state: Server) -> str:
        if not state.doubtful:
            return ""
        return NOT_MONOTONE.format(", ".join(state.doubtful))

    def _advance(self, run: Run, state: Server) -> Answers[Resolved]:
        """One exchange: the owners asked move s_i and solve for x_i."""
        judge = not state.sampled and (state.cheap or state.near or state.due)
        state.begin_round(run.owners)
        gamma = state.gamma.value
        if gamma != state.last_gamma:
            run.note(f"round {state.k}: gamma = {gamma:.3g}")
            state.last_gamma = gamma
        asked = sample_owners(run, self.participation, state.k)
        order = Round(
            p=state.p,
            step=state.step,
            gamma=gamma,
            holders=len(run.owners),
            solver=self.local_solver,
            start=self.start,
            steps=state.work.start(),
            target=state.work.target(state.largest),
            judge=judge and run.rounds_left > self.reserve + 1,  # the loop judges what the last round finds
            sampled=state.sampled,
        )
        replies = run.ask(advance, order, asked)
        state.hear(run, asked, replies)
        if order.judge:
            state.seen = see(run, state.p, replies)
        if state.sampled:
            state.sums = state.sums.plus(replies.total)
        else:
            state.take(replies.total)
        return replies

    def _refine(self, run: Run, state: Server) -> Answers[Resolved]:
        """One exchange: all owners go on with their subproblems."""
        state.refined += 1
        order = Refine(
            q=state.p,
            gamma=state.last_gamma,
            holders=len(run.owners),
            solver=self.local_solver,
            steps=state.work.refine(),
            target=state.work.target(state.largest),
            sampled=state.sampled,
        )
        replies = run.ask(refine, order)
        state.hear(run, run.owners, replies)
        state.take(replies.total)
        return replies

    def _count(self, run: Run, state: Server) -> Seen:
        """One exchange: the certificate of p, and its sums anew, as rounding adds up where they are kept by changes."""
        counted = run.ask(count, Count(q=state.p, gamma=state.last_gamma))
        state.take(counted.total)
        state.seen = see(run, state.p, counted)
        state.judged_at = state.k
        return state.seen

    def _may_refine(self, run: Run, state: Server) -> bool:
        """Whether more local work is worth an exchange."""
        solved = state.seen is not None and state.seen.judged[0].meets(run.tol)
        return not solved and not state.stuck and run.rounds_left > self.reserve

    def _adapt_gamma(self, run: Run, state: Server, found: Measured, total: Resolved) -> None:
        disagreement = float(np.sqrt(total.size / len(run.owners)))
        distance = float(np.linalg.norm(found.p - run.w0))
        state.gamma.follow(state.k, total.moved, total.turned, disagreement, distance)

    def _move_on(self, run: Run, state: Server, found: Measured) -> None:
        """Take the p that was found; the owners move s_i, and take on a new gamma, with the next order."""
        holders = len(run.owners)
        norm = float(np.sqrt(found.xi / holders)) / state.last_gamma
        if state.seen is not None:
            state.judged_at = state.k
            state.expected = state.seen.judged[0].stationarity / max(norm, np.finfo(float).tiny)
        state.near = norm * state.expected <= NEAR * run.tol[0]

        state.step = self.relaxation * found.alpha(self.error)
        shift = state.sums.shift - holders * (found.p - state.p)
        s = state.sums.s
        ratio = state.gamma.value / state.last_gamma
        if not state.sampled:
            s = s - state.step * shift
        if ratio != 1:
            s = holders * found.p + ratio * (s - holders * found.p)
        state.largest = found.largest * min(ratio, 1.0) ** 2
        state.sums = Sums(shift, state.sums.image, s, np.array([found.xi, found.mu, found.zeta, found.error]))
        state.p = found.p

    def _end(self, run: Run, state: Server, passes: bool) -> Verdict | None:
        if state.stuck and not passes:
            return Verdict("stalled", self.excuse(run, state) or STUCK)
        if state.seen is None or not run.problem.monotone:
            return None
        distance = float(np.max(np.abs(state.seen.w - run.w0)))
        size = float(np.max(np.abs(run.w0)))
        if not state.departure.see(state.k, state.seen.judged[0].stationarity, distance, size):
            return None
        if state.doubtful:
            return Verdict("stalled", self.excuse(run, state))
        return Verdict("infeasible", NO_ZERO.format(distance))
