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

Notation
    gamma    step of the resolvents                                     gamma
    lambda   relaxation, in (0, 2)                                      relaxation
    sigma    relative error allowed, in (0, 1)                          error
    tau      steps of an owner's local solver in a round                steps
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from fedpact.solvers.averaging import Course, Worked, check_options, check_problem, judged_fields

from fedpact.errors import OptionError
from fedpact.federation import Answers, Order, Reply, Summed, client_step
from fedpact.functions import Vector
from fedpact.problem import Certificate, Share
from fedpact.solvers.endings import (
    SOLVED,
    UNBOUNDED,
    Asking,
    Lowest,
    Verdict,
    escapes,
    far_point,
    interrupted,
    out_of_rounds,
)
from fedpact.solvers.judging import Judged, at, certificate_of, judge
from fedpact.solvers.local.resolvent import (
    NAMES,
    Subproblem,
    default_solver,
    default_start,
    estimated_lipschitz,
    resolvent,
    seems_monotone,
)
from fedpact.solvers.local.resolvent import Resolved as Found
from fedpact.solvers.run import Best, Run
from fedpact.solvers.scales import mean_curvature
from fedpact.solvers.solution import LocalRecord, Solution

#: Refinement requests in one round after which the method gives up.
MOST_REFINEMENTS = 40
#: Requests in a row that bring the error down by less than a tenth, after which it is given up too.
USELESS = 10
#: Local steps an order asks for at most.
MOST_STEPS = 500
#: gamma is looked at after FIRST rounds and then ever more rarely (WAIT times longer), moved when it is off by BAND, by
#: at most LEAP, and CHANGES times in all: after that the theory's fixed gamma applies.
FIRST, WAIT, BAND, LEAP, CHANGES, WINDOW, TRUST = 6, 1.5, 2.0, 10.0, 15, 6, 3.0
#: The certificate is asked for when it is expected within this factor, and at least every so many rounds.
NEAR, AT_LEAST = 10.0, 5
#: The part of the error allowed that an owner takes: at first, the factors by which it grows and shrinks, the least.
PART, MORE, LESS, LEAST = 0.25, 1.1, 2.0, 1e-4
#: Rounds in which the certificate does not halve before a far point is looked at, and before giving up.
PATIENCE, STAGNATION = 300, 3000
#: How far the iterates must have gone, without coming nearer, before a zero is given up.
REACH = 100.0
NO_ZERO = (
    "the iterates leave and come no nearer to a zero: the operators have none in common, or only one farther away than "
    "{:.3g}; bound w, for example with fp.prox.Box"
)
#: Exchanges kept back for the end.
RESERVE = 3

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True)
class State:
    s: Vector
    x: Vector
    image: Vector  # F_i(x_i)
    gamma: float
    lipschitz: float


@dataclass(frozen=True, kw_only=True)
class Begin(Order):
    w: Vector
    holders: int


@dataclass(frozen=True, kw_only=True)
class Begun(Reply):
    image: Summed[Vector]
    size: Summed[float]  # |F_i|^2
    curvature: Summed[float]  # mean diagonal of the Jacobian, estimated
    newton: bool  # is that this owner's default solver?


@dataclass(frozen=True, kw_only=True)
class Round(Order):
    p: Vector  # of the round before
    step: float  # lambda alpha of the round before
    gamma: float
    holders: int
    solver: str  # empty: the owner's default
    start: str  # "p", "last", "s", or empty: the solver's default
    steps: int
    target: float  # gap below which the owner may stop sooner
    judge: bool


@dataclass(frozen=True, kw_only=True)
class Refine(Order):
    q: Vector
    holders: int
    solver: str
    steps: int
    target: float


@dataclass(frozen=True, kw_only=True)
class Resolved(Judged):
    """The owner's part of a round. Judged at the p of the round before, when asked."""

    shift: Summed[Vector]  # x_i - q
    image: Summed[Vector]  # F_i(x_i)
    products: Summed[Vector]  # |x-q|^2, <x-q, v-q>, |v-q|^2, |v-x|^2, |change of x|^2, |change of F|^2, |F|^2
    gradients: int
    hessians: int
    monotone: bool  # was F seen to be, along the last move?


@client_step
def begin(share: Share, state: Any, order: Begin) -> tuple[State, Begun]:
    """Start at x_i = w with s_i = x_i + gamma F_i(x_i), gamma still to come: the first resolvent is then exact."""
    w, function = order.w, share.objective
    assert function is not None
    image = order.holders * function.gradient(w)
    lipschitz = estimated_lipschitz(function, order.holders, w)
    fresh = State(w, w, image, 0.0, lipschitz)
    return fresh, Begun(
        image=image,
        size=float(image @ image),
        curvature=order.holders * mean_curvature(function, w),
        newton=default_solver(function, w.size) == "newton",
    )


@client_step
def advance(share: Share, state: State, order: Round) -> tuple[State, Resolved]:
    """Move s_i as the server found, and solve for the next x_i."""
    function, p = share.objective, order.p
    assert function is not None
    if state.gamma == 0:
        s = state.x + order.gamma * state.image
    else:
        s = state.s - order.step * (state.x - p)
        s = p + order.gamma / state.gamma * (s - p)  # a new gamma keeps (s_i - p) / gamma, which tends to F_i
    solver = order.solver or default_solver(function, p.size)
    problem = Subproblem(function, order.holders, s, order.gamma, state.lipschitz)
    start = order.start or default_start(solver)
    x, image = {"p": p, "last": state.x, "s": s}[start], state.image
    judged = None
    if order.judge:
        judged = function.value_and_gradient(p)
        problem.gradients += 1
    if start == "p" and judged is not None:
        image = order.holders * judged[1]
    elif start != "last":
        image = problem.image(x)
    found = resolvent(problem, x, image, solver, order.steps, order.target)
    after = State(s, found.x, found.image, order.gamma, found.lipschitz)
    return after, _reply(state, after, p, found, judged)


@client_step
def refine(share: Share, state: State, order: Refine) -> tuple[State, Resolved]:
    """Go on with the same subproblem."""
    function = share.objective
    assert function is not None
    problem = Subproblem(function, order.holders, state.s, state.gamma, state.lipschitz)
    solver = order.solver or default_solver(function, state.x.size)
    found = resolvent(problem, state.x, state.image, solver, order.steps, order.target)
    after = replace(state, x=found.x, image=found.image, lipschitz=found.lipschitz)
    return after, _reply(state, after, order.q, found, None)


def _reply(before: State, after: State, q: Vector, found: Found, judged: tuple[float, Vector] | None) -> Resolved:
    v = after.s - after.gamma * after.image
    x, moved, turned = after.x - q, after.x - before.x, after.image - before.image
    products = [x @ x, x @ (v - q), (v - q) @ (v - q), (v - after.x) @ (v - after.x)]
    none = np.zeros(0)
    return Resolved(
        objective=0.0 if judged is None else judged[0],
        gradient=none if judged is None else judged[1],
        feasibility=0.0,
        violation=0.0,
        coupled=none,
        shift=x,
        image=after.image,
        products=np.array([*products, moved @ moved, turned @ turned, after.image @ after.image]),
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


def measured(run: Run, sums: Resolved | Totals, total_s: Vector, q: Vector, gamma: float) -> Measured:
    """p and (3.4) from the sums over all owners around q."""
    holders = len(run.fleet.owners)
    mean = q + sums.shift / holders - gamma * sums.image / holders
    p = run.problem.regularizer.prox(mean, gamma)
    offset = p - q
    shift, pull = sums.shift, total_s - gamma * sums.image - holders * q  # sums of x_i - q and of v_i - q
    square = holders * float(offset @ offset)
    xx, xv, vv, error = (float(n) for n in sums.products[:4])
    return Measured(
        p=p,
        xi=max(xx - 2 * float(shift @ offset) + square, 0.0),
        zeta=max(vv - 2 * float(pull @ offset) + square, 0.0),
        mu=xv - float(offset @ (shift + pull)) + square,
        error=error,
    )


@dataclass
class Gamma:
    """Moves gamma to where the iteration is fast, and then leaves it alone.

    Two estimates of a good gamma are at hand: |p - w0| / rms |F_i|, the distance over the disagreement that must be
    built up, and |change of x| / |change of F|, the inverse curvature along the last moves. Their geometric mean is
    taken, within TRUST of the second: the first is of no use where w0 is far away.
    """

    fixed: bool
    value: float
    last: int = 0
    wait: float = FIRST
    changes: int = 0
    ratios: list[float] = field(default_factory=list)

    def following(self, k: int, sums: Resolved, holders: int, distance: float) -> float:
        """gamma for the next round."""
        moved, turned, size = (float(n) for n in sums.products[4:])
        if moved > 0 and turned > 0:
            self.ratios.append(np.sqrt(moved / turned))
        if self.fixed or k - self.last < self.wait or self.changes >= CHANGES or len(self.ratios) < WINDOW // 2:
            return self.value
        seen = float(np.exp(np.mean(np.log(self.ratios[-WINDOW:]))))
        ratio = np.sqrt(distance / np.sqrt(size / holders) / seen) if size > 0 else 1.0
        wanted = seen * float(np.clip(ratio, 1 / TRUST, TRUST))
        factor = float(np.clip(wanted / self.value, 1 / LEAP, LEAP))
        if 1 / BAND < factor < BAND:
            return self.value
        self.last, self.wait, self.ratios = k, int(WAIT * self.wait) + 1, []
        self.changes += 1
        self.value *= factor
        return self.value


@dataclass
class Work:
    """How much the owners do in a round.

    policy: "adaptive" (the default), each owner for itself: it stops when its gap is at most a part of what the test
    allows all of them together, going by the round before. The part grows while the test is passed at once and shrinks
    when it is not. Those of the paper, the same for all: "repeat" (always tau), "total" (tau times the number of all
    refinements so far), "double" (twice as much after every refinement)
    """

    policy: str
    tau: int
    holders: int
    error: float  # sigma
    part: float = PART
    steps: int = 0
    total: int = 0

    def start(self) -> int:
        """Steps of a round."""
        self.steps = self.steps or self.tau
        if self.policy == "repeat":
            self.steps = self.tau
        elif self.policy == "total":
            self.steps = min(self.tau * max(self.total, 1), MOST_STEPS)
        return self.steps

    def target(self, largest: float) -> float:
        """The gap at which an owner may stop, where max(xi, zeta) will be about so large."""
        if self.policy != "adaptive":
            return 0.0
        return self.error * float(np.sqrt(self.part * largest / self.holders))

    def more(self) -> int:
        """Steps of a refinement."""
        self.total += 1
        self.part = max(self.part / LESS, LEAST)
        if self.policy != "double":
            return self.tau
        self.steps = min(2 * self.steps, MOST_STEPS)
        return max(self.steps // 2, 1)

    def accepted(self, refinements: int) -> None:
        if not refinements:
            self.part = min(self.part * MORE, float(self.holders))


def ifeddr(
    run: Run,
    *,
    gamma: float | None = None,
    relaxation: float = 1.8,
    error: float = 0.95,
    steps: int = 0,
    local_solver: str = "",
    start: str = "",
    refinement: str = "adaptive",
    participation: float = 1.0,
) -> Solution:
    """Algorithm I.

    gamma: fixed when given; when None chosen from the owners' curvature and adapted (`Gamma`)
    relaxation (lambda) in (0, 2); error (sigma) in (0, 1)
    steps: of the local solver in a round, before refinement; 0: as many as are needed, or in the paper's policies of
        refinement one for Newton and two for others
    local_solver: gradient, agd, lbfgs, newton, extragradient; by default as the owner's functions allow
    start: of the local solver: "p", "last" (its x of the round before) or "s" (the paper's); by default "last" for
        newton and lbfgs, "p" for the others
    refinement: "adaptive", or the paper's "repeat", "total", "double"
    participation: max(participation N, 1) owners are drawn anew for every round; below 1 it is beyond the paper, and
        gamma is not adapted (`_sampled`)
    """
    _check_options(relaxation, error, steps, local_solver, start, refinement)
    check_options(run, participation)
    check_problem(run)
    holders = len(run.fleet.owners)
    begun = run.fleet.ask(begin, Begin(w=run.w0, holders=holders))
    pace = Gamma(gamma is not None, gamma or _first_gamma(begun, holders))
    second_order = all(b.newton for b in begun) and not local_solver
    work = Work(
        refinement, steps or (MOST_STEPS if refinement == "adaptive" else 1 if second_order else 2), holders, error
    )
    run.history.notes.append(f"gamma = {pace.value:.3g} at the start")
    order = Round(
        p=run.w0,
        step=0.0,
        gamma=pace.value,
        holders=holders,
        solver=local_solver,
        start=start,
        steps=0,
        target=0.0,
        judge=False,
    )
    if max(1, round(participation * holders)) < holders:
        return _sampled(run, begun, order, work, relaxation, error, participation)
    return _everyone(run, begun, order, work, pace, relaxation, error)


def _everyone(
    run: Run, begun: Answers[Begun], order: Round, work: Work, pace: Gamma, relaxation: float, error: float
) -> Solution:
    """All owners take part in every round. The order of a round says where it begins: p, gamma, lambda alpha."""
    best, holders, image, none = run.new_best(), order.holders, begun.total.image, np.zeros(0)
    total_s = holders * run.w0 + order.gamma * image
    largest = order.gamma**2 * max(begun.total.size - float(image @ image) / holders, 0.0)  # at w0
    first_order = not all(b.newton for b in begun) or order.solver in ("gradient", "agd", "extragradient")
    order = replace(order, judge=True)
    expected, judged_at, lowest = np.inf, 0, Lowest(0.5)
    doubtful: list[str] = []
    end = out_of_rounds(run)
    try:
        for k in range(1, run.max_rounds):
            order = replace(order, steps=work.start(), target=work.target(largest))
            done = _accepted(run, order, work, total_s, error, doubtful)
            q, found, now = order.p, done.found, order.gamma
            # Accepted, alpha lies between these; outside it is a ratio of rounding errors.
            alpha = float(np.clip(found.mu / found.xi, 1 - error, 1 / (1 - error))) if found.xi > 0 else 1.0
            _note(run, best, k, order, done, alpha, k - judged_at)
            norm = float(np.sqrt(found.xi / holders)) / now
            if done.seen is not None:
                certificate, objective, _ = done.seen
                judged_at, expected = k, certificate.stationarity / max(norm, 1e-300)
                lowest.see(k, certificate.stationarity)
                if verdict := _verdict(run, q, certificate, objective, lowest.idle(k), doubtful):
                    end = verdict
                    break
            if done.stuck:
                end = Verdict("stalled", _stuck(doubtful))
                break
            if run.rounds_left <= RESERVE:
                break
            step, p, sums = relaxation * alpha, found.p, done.replies.total
            total_s = total_s - step * (sums.shift - holders * (p - q))
            following = pace.following(k, sums, holders, float(np.linalg.norm(p - run.w0)))
            largest = found.largest
            if following != now:
                run.history.notes.append(f"round {k}: gamma = {following:.3g}")
                total_s = holders * p + following / now * (total_s - holders * p)
                largest *= min(following / now, 1.0) ** 2
            near = norm * expected <= NEAR * run.tol[0] or k - judged_at >= AT_LEAST
            judging = near or first_order or run.rounds_left <= RESERVE + 2
            order = replace(order, p=p, step=step, gamma=following, judge=judging)
    except KeyboardInterrupt:
        end = interrupted(run)
    if best.certificate is None or end.status == "max_rounds":  # the latest point has not been judged
        looked = run.fleet.ask(judge, at(run.problem, order.p))
        best.offer(10**9, order.p, none, *certificate_of(run.problem, order.p, none, looked))
        assert best.certificate is not None
        if best.certificate.meets(run.tol):
            end = SOLVED
    if doubtful:
        run.history.notes.append(f"not monotone along the way: {', '.join(doubtful)}; the theory does not apply")
    return best.solution(run, end.status, end.reason, [none for _ in run.problem.shares])


@dataclass(frozen=True)
class Accepted:
    """A round with its refinements.

    replies:    the last ones, whose sums gave `found`
    seen:       `_seen` at the p that the round began with, when it was judged
    gradients:  by owner
    stuck:      do refinements not help?
    """

    replies: Answers[Resolved]
    found: Measured
    seen: tuple[Certificate, float, float] | None
    gradients: tuple[int, ...]
    hessians: int
    refinements: int
    stuck: bool


def _accepted(run: Run, order: Round, work: Work, total_s: Vector, error: float, doubtful: list[str]) -> Accepted:
    """One round: the owners solve, and refine until the relative error of all of them together is small enough."""
    fleet, q = run.fleet, order.p
    given: list[Answers[Resolved]] = []

    def heard(replies: Answers[Resolved]) -> Measured:
        given.append(replies)
        _doubt(doubtful, fleet.owners, replies)
        return measured(run, replies.total, total_s, q, order.gamma)

    found = heard(fleet.ask(advance, order))
    seen = _seen(run, q, given[0]) if order.judge else None
    least, refinements, useless = found.error, 0, 0
    while (
        found.error > error**2 * found.largest
        and refinements < MOST_REFINEMENTS
        and useless < USELESS
        and run.rounds_left > RESERVE
    ):
        if found.error <= 1e-28 * (1 + float(total_s @ total_s)):
            break  # as exact as rounding allows
        refinements += 1
        steps = work.more()
        target = work.target(found.largest)
        more = Refine(q=q, holders=order.holders, solver=order.solver, steps=steps, target=target)
        found = heard(fleet.ask(refine, more))
        useless = 0 if found.error < 0.9 * least else useless + 1
        least = min(least, found.error)
    work.accepted(refinements)
    return Accepted(
        replies=given[-1],
        found=found,
        seen=seen,
        gradients=tuple(sum(r.gradients for r in of_one) for of_one in zip(*given, strict=True)),
        hessians=sum(r.hessians for replies in given for r in replies),
        refinements=refinements,
        stuck=refinements >= MOST_REFINEMENTS or useless >= USELESS,
    )


def _note(run: Run, best: Best, k: int, order: Round, done: Accepted, alpha: float, since: int) -> None:
    """Write round k down, and its point, when it was judged: `since` rounds after the last."""
    residual = np.nan
    if done.seen is not None:
        certificate, objective, residual = done.seen
        best.offer(k - 1, order.p, np.zeros(0), certificate, objective)
        run.record(
            k,
            certificate,
            objective,
            inner_rounds=since,
            penalty=order.gamma,
            consensus_penalty=1 / order.gamma,
            gradients=sum(done.gradients),
            hessians=done.hessians,
        )
    rounds = run.fleet.ledger.rounds
    run.history.local.append(LocalRecord(k, rounds, done.refinements, done.gradients, alpha, residual, order.gamma))
    run.report(k, done.refinements, best)


def _seen(run: Run, q: Vector, replies: Answers[Resolved]) -> tuple[Certificate, float, float]:
    """Certificate, objective and natural residual |p - prox_h(p - sum grad f_i(p))| of the p before."""
    certificate, objective = certificate_of(run.problem, q, np.zeros(0), replies)
    residual = float(np.linalg.norm(q - run.problem.regularizer.prox(q - replies.total.gradient, 1.0)))
    return certificate, objective, residual


def _verdict(
    run: Run, q: Vector, certificate: Certificate, objective: float, idle: int, doubtful: list[str]
) -> Verdict | None:
    if certificate.meets(run.tol):
        if not run.problem.monotone and escapes(
            run, q, objective, certificate, Asking(run).probed(far_point(q, run.w0))
        ):
            return Verdict("unbounded", UNBOUNDED)
        return SOLVED
    if idle and idle % PATIENCE == 0 and np.max(np.abs(q - run.w0)) > 0:
        if not run.problem.monotone:
            if escapes(run, q, objective, certificate, Asking(run).probed(far_point(q, run.w0))):
                return Verdict("unbounded", UNBOUNDED)
        elif np.max(np.abs(q - run.w0)) > REACH * (1 + np.max(np.abs(run.w0))):
            if doubtful:
                return Verdict("stalled", _stuck(doubtful))
            return Verdict("infeasible", NO_ZERO.format(np.max(np.abs(q - run.w0))))
    if idle >= STAGNATION:
        return Verdict("stalled", _stuck(doubtful))
    return None


def _doubt(doubtful: list[str], owners: Sequence[str], replies: Answers[Resolved]) -> None:
    """Note who was seen not to be monotone."""
    doubtful += [o for o, r in zip(owners, replies, strict=True) if not r.monotone and o not in doubtful]


def _stuck(doubtful: list[str]) -> str:
    if doubtful:
        return f"{', '.join(doubtful)}: the operator is not monotone, which this method needs"
    return "no progress; check that gradients (and Hessians) belong to their functions, and scale the columns"


def _first_gamma(begun: Answers[Begun], holders: int) -> float:
    """The inverse of the mean curvature of an owner's operator."""
    curvature = begun.total.curvature / holders
    return 1 / curvature if curvature > 0 else 1.0


def _check_options(relaxation: float, error: float, steps: int, solver: str, start: str, refinement: str) -> None:
    if steps != int(steps):
        raise OptionError(f"steps = {steps!r}: give a whole number of at least 1")
    if not 0 < relaxation < 2:
        raise OptionError(f"relaxation = {relaxation!r}: give a number between 0 and 2")
    if not 0 < error < 1:
        raise OptionError(f"error = {error!r}: give a number between 0 and 1")
    for name, value, allowed in (
        ("local_solver", solver, ("", *NAMES)),
        ("start", start, ("", "p", "last", "s")),
        ("refinement", refinement, ("adaptive", "repeat", "total", "double")),
    ):
        if value not in allowed:
            raise OptionError(f"{name} = {value!r}: choose {', '.join(a for a in allowed if a)}")


# ---------------------------------------------------------------------------------------------- with a sample of owners


@dataclass(frozen=True, kw_only=True)
class Changed(Worked):
    """What an owner adds to the sums: a change of it where only some are asked, all of it where everyone is."""

    shift: Summed[Vector]  # x_i - q
    image: Summed[Vector]  # F_i(x_i)
    s: Summed[Vector]
    products: Summed[Vector]  # |x-q|^2, <x-q, v-q>, |v-q|^2, |v-x|^2


@dataclass(frozen=True, kw_only=True)
class RefineAt(Refine):
    gamma: float


@dataclass(frozen=True, kw_only=True)
class Count(Order):
    q: Vector
    gamma: float


@client_step
def advance_sampled(share: Share, state: State, order: Round) -> tuple[State, Changed]:
    before = _begun(state, order.gamma)
    after, reply = advance(share, before, order)
    return after, _changed(before, after, order.p, gradients=reply.gradients)


@client_step
def refine_sampled(share: Share, state: State, order: RefineAt) -> tuple[State, Changed]:
    after, reply = refine(share, _begun(state, order.gamma), order)
    return after, _changed(None, after, order.q, gradients=reply.gradients)


@client_step
def count(share: Share, state: State, order: Count) -> tuple[State, Changed]:
    """All that this owner adds to the sums around q, and its terms of the certificate there."""
    assert share.objective is not None
    now, judged = _begun(state, order.gamma), share.objective.value_and_gradient(order.q)
    return now, replace(_changed(None, now, order.q), **judged_fields(True, judged, order.q.size))


def _begun(state: State, gamma: float) -> State:
    """The state of an owner that has not been asked before is as `begin` left it."""
    return state if state.gamma else replace(state, s=state.x + gamma * state.image, gamma=gamma)


def _changed(before: State | None, after: State, q: Vector, gradients: int = 0) -> Changed:
    def added(to: State) -> tuple[Vector, ...]:
        x, v = to.x - q, to.s - to.gamma * to.image - q
        return x, to.image, to.s, np.array([x @ x, x @ v, v @ v, (v - x) @ (v - x)])

    shift, image, s, products = added(after)
    if before is not None:
        shift, image, s, products = (a - b for a, b in zip(added(after), added(before), strict=True))
    none = judged_fields(False, None, 0)
    return Changed(**none, shift=shift, image=image, s=s, products=products, gradients=gradients)


class Totals:
    """The sums over all owners, around p: kept by changes, and taken anew where all are asked (rounding adds up)."""

    def __init__(self, run: Run, image: Vector, gamma: float) -> None:
        self.run, self.gamma, self.holders = run, gamma, len(run.fleet.owners)
        self.p, self.image, self.s = run.w0, image, self.holders * run.w0 + gamma * image
        self.shift, self.products = np.zeros_like(image), np.zeros(4)  # x_i = v_i = w0
        self.settle()

    def add(self, change: Changed) -> None:
        self.shift = self.shift + change.shift
        self.image = self.image + change.image
        self.s = self.s + change.s
        self.products = self.products + change.products

    def take(self, sums: Changed) -> None:
        self.shift, self.image, self.s, self.products = sums.shift, sums.image, sums.s, sums.products

    def measured(self) -> Measured:
        return measured(self.run, self, self.s, self.p, self.gamma)

    def settle(self) -> None:
        """Go on to the new p, around which (3.4) are the products."""
        found = self.measured()
        self.shift = self.shift - self.holders * (found.p - self.p)
        self.products = np.array([found.xi, found.mu, found.zeta, found.error])
        self.p = found.p

    def count(self, p: Vector) -> Answers[Changed]:
        """The terms of the certificate at the p of now, and the sums around it."""
        seen = self.run.fleet.ask(count, Count(q=p, gamma=self.gamma))
        self.take(seen.total)
        return seen

    @property
    def largest(self) -> float:
        return float(max(self.products[0], self.products[2]))

    @property
    def alpha(self) -> float:
        return float(self.products[1] / self.products[0]) if self.products[0] > 0 else 1.0


def _sampled(
    run: Run, begun: Answers[Begun], order: Round, work: Work, relaxation: float, error: float, participation: float
) -> Solution:
    """Only a sample of the owners moves in a round: randomized block coordinates, which the paper leaves for later.

    p, alpha and the test (3.4) are those of all owners, at the x_i and s_i they have; the owners drawn then move s_i
    and solve again. Drawn uniformly, the expected |s - s*|^2 falls by the share asked times what it falls by in the
    proof of Theorem 3.1, so the s_i still come nearer on average (stochastic Fejer monotonicity, Combettes and Pesquet
    2015). When the test fails everybody is asked to refine. gamma stays: it is part of what the others have sent.
    """
    totals = Totals(run, begun.total.image, order.gamma)
    course = Course(run, participation=participation, free=False, steady=False, look=totals.count)
    try:
        for k in course.rounds():
            asked, alpha, p = course.asked(k), totals.alpha, totals.p
            replies = run.fleet.ask(
                advance_sampled,
                replace(order, p=p, step=relaxation * alpha, steps=work.start(), target=work.target(totals.largest)),
                asked,
            )
            totals.add(replies.total)
            refinements: list[Answers[Changed]] = []
            while (found := totals.measured()).error > error**2 * found.largest and run.rounds_left > RESERVE:
                if found.error <= 1e-28 * (1 + float(totals.s @ totals.s)):
                    break  # as exact as rounding allows
                if len(refinements) >= MOST_REFINEMENTS:
                    course.end = Verdict("stalled", _stuck([]))
                    break
                more = RefineAt(
                    q=p,
                    holders=order.holders,
                    solver=order.solver,
                    steps=work.more(),
                    target=work.target(found.largest),
                    gamma=order.gamma,
                )
                refinements.append(run.fleet.ask(refine_sampled, more))
                totals.take(refinements[-1].total)
            work.accepted(len(refinements))
            totals.settle()
            course.follow(k, asked, p, totals.p, replies, order.gamma, alpha=alpha, refinements=refinements)
    except KeyboardInterrupt:
        course.end = interrupted(run)
    return course.solution(totals.p)
