"""Accelerated consensus: Douglas-Rachford splitting with every constraint inside its holder's proximal step.

    w   = prox_{h / (rho N)}(mean_i z_i)                                              the server
    u_i = argmin_u f_i(u) + rho/2 |u - (2 w - z_i)|^2   s.t.  c_i(u) <=_{K_i} 0       holder i, gives mu_i
    z_i <- z_i + F_i,  F_i = u_i - w,  accelerated by  - sum_j gamma_j (dz_ij + dF_ij)

over the N holders: the owners, and the server when it has a share. It is a nonexpansive map in z = (z_1, ..., z_N), so
Anderson's acceleration (type II) applies: gamma minimises |F - sum_j gamma_j dF_j|, where dz_j and dF_j are the last
differences. Owners keep their own and send F_i and inner products. The server needs only sums over the owners: the sum
of the next z follows from the sums it has, so one exchange a round is enough. Multipliers stay at their owners until
the end, and the certificate of (w, mu) comes with the round when the residual says that it may be met.

Safeguards: a step that doubles the residual is taken back; the memory is halved when the residual is far from what a
linear map would give, and when that happens again and again the acceleration rests for longer and longer; and it rests
while the residual is above the bound of A2DR (Fu, Zhang and Boyd 2020, Algorithm 2). So the iteration converges
wherever the plain one does, once rho stays: it changes less and less often.

Notation
    rho         penalty of u_i = w, the same for all; lambda_i = rho (z_i - w) is kept when it changes   penalty
    F           residual of the fixed point                                                              residual
    dz, dF      differences of the last rounds                                                           steps, changes
    gamma       coefficients of the differences                                                          mix
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fedpact.errors import OptionError
from fedpact.federation import Answers, Order, Reply, Summed, client_step, named
from fedpact.functions import Vector
from fedpact.problem import Certificate, Share, owner_terms
from fedpact.solvers.anderson import Memory, mixed
from fedpact.solvers.endings import (
    INFEASIBLE,
    SOLVED,
    UNBOUNDED,
    Probed,
    Verdict,
    Weighed,
    conflict,
    escapes,
    far_point,
    interrupted,
    out_of_rounds,
    probed,
    pull,
    together,
    weighed,
)
from fedpact.solvers.judging import At, Judged, at, certificate_of, term_fields
from fedpact.solvers.judging import judge as judge_start
from fedpact.solvers.local.constrained import Warm, constrained
from fedpact.solvers.proximal_al import Reveal, proximal_al, reveal
from fedpact.solvers.run import Best, Run
from fedpact.solvers.scales import Introduce, introduce
from fedpact.solvers.solution import InnerRecord, Solution

#: rho at the start, relative to the mean curvature of one holder's objective.
START = 2.0
#: rho moves when the curvature seen differs by RISE or 1/FALL from it, by at most LEAP, every WAIT rounds and then half
#: as often each time, and only while WAIT rounds reduce the residual by less than SLOW (up) or SLOWER (down).
RISE, FALL, LEAP, WAIT, WINDOW, SLOW, SLOWER = 3.0, 30.0, 10.0, 8, 4, 0.2, 0.9
#: Local solves reach this part of the residual, as a length.
FRACTION = 0.1
#: The certificate is asked for when it is expected within this factor, and at least every so many rounds.
NEAR, AT_LEAST = 10.0, 5
#: Rounds without a halved certificate before evidence for an ending is asked for, before as many plain steps (so that
#: the multipliers of owners in conflict drift evenly), and before giving up.
PATIENCE, DOUBT, STAGNATION = 30, 60, 1500
#: Rounds in a row in which someone fails to solve a subproblem, likewise; rises of rho for a non-convex one.
STUCK, RAISES = 10, 8
#: Exchanges kept back for the end: evidence and reveal.
RESERVE = 2

ELSEWHERE = 'method "proximal-al" or "interior-point" may do better; scale the columns, and check the gradients'

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True)
class State:
    """What a holder keeps between rounds."""

    centre: Vector  # w at the start
    z: Vector
    residual: Vector  # F_i
    pull: Vector  # rho (v - u): the gradient of f_i + mu_i' c_i at u
    penalty: float
    warm: Warm
    multiplier: Vector
    drift: Vector  # P_{K*} of the last change of the multiplier
    iteration: int = 0
    kept: Vector = field(default_factory=lambda: np.zeros(0))  # the multiplier of the best iteration so far
    kept_iteration: int = 0
    steps: tuple[Vector, ...] = ()
    changes: tuple[Vector, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Begun(Reply):
    curvature: Summed[float]
    gradient: Summed[Vector]


@dataclass(frozen=True, kw_only=True)
class Round(Order):
    w: Vector
    mix: Vector  # gamma; empty for a plain step
    remember: int  # differences to keep, this round's included
    penalty: float
    accuracy: float
    iteration: int
    keep: bool  # remember the multiplier of the round before: it was the best so far
    judge: bool
    coupled: Vector


@dataclass(frozen=True, kw_only=True)
class Moved(Judged):
    """F_i and, of this holder's part: |F|^2, the products of dF, |du|^2 and the same of the pull. Judged when asked."""

    residual: Summed[Vector]
    squared: Summed[float]
    products: Summed[Vector]  # <dF_last, dF_j>, j in memory
    against: Summed[Vector]  # <dF_j, F>
    stepped: Summed[float]  # |dz_last|^2
    moved: Summed[float]
    turned: Summed[float]
    far: Summed[float]  # objective and violation at the far point
    far_violation: float
    converged: bool
    indefinite: bool
    gradients: Summed[int]
    hessians: Summed[int]


#: What the acceleration needs of the server too, when it is a holder.
MIXED = ("residual", "squared", "products", "against", "stepped", "moved", "turned")


@client_step
def begin(share: Share, state: object, order: Introduce) -> tuple[State, Begun]:
    """Look at the share, and start from z = w - grad f(w) / rho once rho is known."""
    seen = introduce(share, None, order)[1]
    w, none = order.w, np.zeros(share.multiplier_length)
    gradient = np.zeros_like(w) if share.objective is None else share.objective.gradient(w)
    fresh = State(w, w, np.zeros_like(w), gradient, 0.0, Warm(w, none), none, none, kept=none)
    return fresh, Begun(curvature=seen.curvature, gradient=gradient)


@client_step
def advance(share: Share, state: State, order: Round) -> tuple[State, Moved]:
    """z as the server mixed it, the proximal step there, and what the server needs to mix the next one."""
    w, first = order.w, state.penalty == 0
    if order.keep:
        state = replace(state, kept=state.multiplier, kept_iteration=state.iteration)
    z = state.z - state.pull / order.penalty if first else mixed(state.z + state.residual, state, order.mix)
    if not first and order.penalty != state.penalty:
        z = w + state.penalty / order.penalty * (z - w)
    found = constrained(share, order.penalty, 2 * w - z, state.warm, order.accuracy)
    residual, pull = found.u - w, order.penalty * (2 * w - z - found.u)
    steps = (*state.steps, z - state.z)[-order.remember :] if order.remember else ()
    changes = (*state.changes, residual - state.residual)[-order.remember :] if order.remember else ()
    drift = found.drift
    if share.constraint is not None and found.converged:
        drift = share.constraint.cone.project_dual(found.multiplier - state.multiplier)
    terms, far = None, Probed(objective=0.0, violation=0.0)
    if order.judge:
        terms = owner_terms(*share.own(w, found.multiplier), order.coupled)
        far = probed(share, far_point(w, state.centre), order.secure)
    after = replace(
        state,
        z=z,
        residual=residual,
        pull=pull,
        penalty=order.penalty,
        warm=found.warm,
        multiplier=found.multiplier,
        drift=drift,
        iteration=order.iteration,
        steps=steps,
        changes=changes,
    )
    none = np.zeros(0)
    judged = {"objective": 0.0, "gradient": none, "feasibility": 0.0, "violation": 0.0, "coupled": none}
    return after, Moved(
        residual=residual,
        squared=float(residual @ residual),
        products=np.array([changes[-1] @ change for change in changes]),
        against=np.array([change @ residual for change in changes]),
        stepped=float(steps[-1] @ steps[-1]) if steps else 0.0,
        moved=0.0 if first else float(np.sum((found.u - state.warm.u) ** 2)),
        turned=0.0 if first else float(np.sum((pull - state.pull) ** 2)),
        far=far.objective,
        far_violation=far.violation,
        converged=found.converged,
        indefinite=found.indefinite,
        gradients=found.gradients,
        hessians=found.hessians,
        **(judged if terms is None else term_fields(terms)),
    )


@client_step
def weigh(share: Share, state: State, order: At) -> tuple[State, Weighed]:
    """The constraint weighted by its multiplier's drift: its value and slope at w, linear from this holder's own u_i.

    For a convex constraint that is below the true value everywhere, so `conflict` may use it; and the drifts balance
    there, not at w, which stays a fixed way from the u_i of owners in conflict.
    """
    part = weighed(share, state.warm.u, state.drift)
    return state, replace(part, value=part.value + float(part.gradient @ (order.w - state.warm.u)))


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
            return self._changed(4.0)
        if self.fixed or len(self.residuals) < self.wait or len(self.curvatures) < WINDOW:
            return 1.0
        progress = self.residuals[-1] / self.residuals[-WAIT]
        seen = float(np.exp(np.mean(np.log(self.curvatures[-WINDOW:])))) / penalty
        if (seen > RISE and progress > SLOW) or (seen < 1 / FALL and progress > SLOWER):
            self.wait *= 2
            return self._changed(min(max(seen, 1 / LEAP), LEAP))
        return 1.0

    def _changed(self, factor: float) -> float:
        self.residuals, self.curvatures = [], []
        return factor


def missed(certificate: Certificate, tol: tuple[float, float]) -> float:
    """The certificate relative to the tolerances: one or less when met."""
    return max(certificate.stationarity / tol[0], certificate.feasibility / tol[1])


@dataclass
class Ending:
    """Says when and how the iteration ends, by the certificate and by evidence."""

    run: Run
    lowest: float = np.inf  # of what is missed
    idle: int = 0  # rounds since the certificate was last halved
    stuck: int = 0
    patience: int = PATIENCE

    @property
    def doubtful(self) -> bool:
        """Will the next round need its certificate, for evidence?"""
        return self.idle + 1 >= self.patience or self.stuck > 0

    def verdict(
        self,
        w: Vector,
        replies: Answers[Moved],
        failed: list[str],
        seen: tuple[Certificate, float] | None,
        server: State,
    ) -> Verdict | None:
        """The end, or None to go on.

        failed: who could not solve its subproblem; seen: the certificate and the objective of a judged round
        """
        self.stuck = self.stuck + 1 if failed else 0
        self.idle += 1
        if seen is None:
            return None
        certificate, objective = seen
        finished = certificate.meets(self.run.tol)
        if (miss := missed(certificate, self.run.tol)) < 0.5 * self.lowest:
            self.lowest, self.idle = miss, 0
        evidence = self.idle >= self.patience or self.stuck in (3, STUCK)
        if finished or evidence:
            own = probed(self.run.problem.server, far_point(w, self.run.w0))
            there = together(own, replies.total.far, [r.far_violation for r in replies])
            if escapes(self.run, w, objective, certificate, there):
                return Verdict("unbounded", UNBOUNDED)
        if finished:
            return SOLVED
        if evidence and certificate.feasibility > self.run.tol[1]:
            own_part = weigh(self.run.problem.server, server, At(w=w))[1]
            parts = pull([own_part], self.run.fleet.ask(weigh, At(w=w)))
            names = (self.run.problem.server.label, *self.run.problem.names)
            if found := conflict(self.run.problem.regularizer, w, names, parts):
                return Verdict("infeasible", INFEASIBLE.format(", ".join(found), certificate.violation), found)
        if self.idle >= self.patience:
            self.patience *= 2
        if self.stuck >= STUCK:
            return Verdict("stalled", f"{', '.join(failed)} could not solve the proximal step; {ELSEWHERE}")
        if self.idle >= STAGNATION:
            return Verdict("stalled", f"no progress over the last {self.idle} rounds; {ELSEWHERE}")
        return None


def accelerated(run: Run, *, consensus_penalty: float | None = None, memory: int = 30) -> Solution:
    """Douglas-Rachford consensus with Anderson acceleration.

    consensus_penalty (rho): fixed when given (a non-convex subproblem still raises it); when None, chosen from the
    owners' curvature and adapted. memory: how many differences the acceleration uses.
    """
    if memory != int(memory):
        raise OptionError(f"memory = {memory!r}: give a whole number of at least 1")
    problem, fleet, h = run.problem, run.fleet, run.problem.regularizer
    look = Introduce(w=run.w0)
    with named(problem.server.label, begin.__name__):
        server, at_server = begin(problem.server, None, look)
    begun = fleet.ask(begin, look)
    shared = [at_server] if problem.server.parts else []  # the server is a holder when it has a share
    holders = len(begun) + len(shared)
    gradient = begun.total.gradient + sum(b.gradient for b in shared)
    curvature = begun.total.curvature + sum(b.curvature for b in shared)
    penalty = consensus_penalty or START * (curvature or 1.0) / holders
    run.history.notes.append(f"consensus penalty rho = {penalty:.3g} at the start")
    z = holders * run.w0 - gradient / penalty
    floor = 0.01 * run.tol[0] / holders
    accuracy = max(FRACTION * float(np.max(np.abs(gradient))) / holders, floor)
    anderson, pace, best = Memory(int(memory), z), Pace(consensus_penalty is not None), run.new_best()
    ending, names = Ending(run), (*problem.names, problem.server.label)
    mix, remember, judge, expected, judged_at = np.zeros(0), 0, True, np.inf, 0
    following, spent = penalty, (0, 0)
    end = out_of_rounds(run)
    try:
        for k in range(1, run.max_rounds):
            w = h.prox(z / holders, 1 / (penalty * holders))
            if following != penalty:  # keep every lambda_i
                z = holders * w + penalty / following * (z - holders * w)
                penalty = following
            order = Round(
                w=w,
                mix=mix,
                remember=remember,
                penalty=penalty,
                accuracy=accuracy,
                iteration=k,
                keep=best.iteration == k - 1,
                judge=judge,
                coupled=np.zeros(0),
            )
            own: list[Moved] = []
            if shared:
                server, mine = advance(problem.server, server, replace(order, judge=False))
                own = [mine]
            coupled = problem.own(w, server.multiplier)[3]
            replies = fleet.ask(advance, replace(order, coupled=coupled))
            everyone = replies.total
            for mine in own:
                everyone = replace(everyone, **{f: getattr(everyone, f) + getattr(mine, f) for f in MIXED})
            failed = [name for name, r in zip(names, [*replies, *own], strict=False) if not r.converged]
            norm = float(np.sqrt(everyone.squared))
            spent = (spent[0] + int(replies.total.gradients), spent[1] + int(replies.total.hessians))
            seen = None
            if judge:
                seen = certificate_of(problem, w, server.multiplier, replies)
                best.offer(k, w, server.multiplier, *seen)
                run.record(
                    k,
                    *seen,
                    inner_rounds=k - judged_at,
                    penalty=penalty,
                    consensus_penalty=penalty,
                    gradients=spent[0],
                    hessians=spent[1],
                )
                expected, judged_at, spent = missed(seen[0], run.tol) / max(norm, 1e-300), k, (0, 0)
            target = 1 / expected if expected > 0 else norm
            run.history.inner.append(InnerRecord(k, fleet.ledger.rounds, norm, target, penalty))
            run.report(k, 0, best)
            if verdict := ending.verdict(w, replies, failed, seen, server):
                end = verdict
                break
            if run.rounds_left <= RESERVE:
                break
            mix, remember = anderson.take(z, everyone, remember, plain=ending.idle // DOUBT % 2 == 1)
            z = mixed(anderson.z + anderson.residual, anderson, mix)
            factor = pace.factor(everyone, any(r.indefinite for r in (*replies, *own)), penalty)
            if factor != 1:
                following, remember = factor * penalty, 0
                run.history.notes.append(f"round {k}: consensus penalty rho = {following:.3g}")
            accuracy = max(FRACTION * penalty * norm / np.sqrt(holders * w.size), floor)
            last = run.rounds_left == RESERVE + 1
            judge = norm * expected <= NEAR or k - judged_at >= AT_LEAST or ending.doubtful or last
    except KeyboardInterrupt:
        end = interrupted(run)
    return _answer(run, best, end, nonconvex=pace.raises > 0)


def _answer(run: Run, best: Best, end: Verdict, nonconvex: bool) -> Solution:
    """The best point with its prices; where non-convex subproblems stalled, Algorithm 1 goes on."""
    problem, fleet = run.problem, run.fleet
    if best.certificate is None:  # stopped inside the first round: judge the start
        zero = np.zeros(problem.server.multiplier_length)
        best.offer(0, run.w0, zero, *certificate_of(problem, run.w0, zero, fleet.ask(judge_start, at(problem, run.w0))))
    if end.status == "stalled" and nonconvex and run.rounds_left > 10 * RESERVE:
        run.history.notes.append(f"{end.reason}; the subproblems are not convex: Algorithm 1 goes on")
        return proximal_al(run)
    prices = [r.multiplier for r in fleet.ask(reveal, Reveal(iteration=best.iteration))]
    return best.solution(run, end.status, end.reason, prices, end.conflict)
