"""Fair VFL: asynchronous gradient coordinate descent-ascent (Liu, Zhou, Shi, Pei, Chu, Zhang: Algorithms 1 and 2).

    party k, at least once and at most Q times between two messages of the coordinator, with the scores of the others
    as they were:                theta_k <- theta_k - (1 / eta) grad_k f(theta, lambda)                     (8), (11)
    coordinator, with the scores it has:  lambda <- [lambda + beta (D - eps - c lambda, -D - eps - c lambda)]_+   (9)

f = L + sum_j (lambda_j1 - lambda_j2) D_j. The scores come first and the ascent uses them, as in (9); Algorithm 2 prints
it the other way round. beta is a step here, as in (9) and (12); (25) has its inverse.

Steps by default: eta_k = scale * K * (curvature of party k's part of f), which descends for any scale >= 1 however the
parties' columns are related. scale falls while f falls as predicted, and rises when it does not (when f rises, the
updates are taken back): constants of the whole data are not known to anyone.

Notation
    eta  inverse step of the parties    eta            Q  local updates             local_updates
    beta step of the ascent             dual_step      c  strong concavity          dual_regularization
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedpact.errors import OptionError
from fedpact.federation import Order, Reply, Summed, Ticket, client_step
from fedpact.functions import Vector
from fedpact.problem import Party, Scored, VerticalProblem
from fedpact.solvers.endings import Lowest, Verdict, interrupted, out_of_rounds
from fedpact.solvers.run import MARGIN, Best, Run
from fedpact.solvers.solution import Solution
from fedpact.solvers.vertical import finished, judged, solved, theta_at

#: f must fall by GOOD of what the steps predict for scale to shrink by SHORTER, and by BAD of it not to grow by LONGER.
GOOD, BAD, SHORTER, LONGER = 0.5, 0.1, 0.9, 1.5
#: The ascent of a gap that passed its bound is damped by DAMPED, that of one that did not freed by FREED.
DAMPED, FREED, LOWEST = 0.7, 1.1, 1e-4
#: The smallest scale where steps cannot be taken back, because the others have moved on.
LEAST = 1.0
#: beta, in units of (the smallest group's share of the rows) / (the mean loss at zero).
ASCENT = 0.3
#: Rounds in which the certificate does not fall by a tenth before giving up.
STAGNATION = 3000
#: f at which a run counts as diverging, relative to the start.
FAR = 1e3
#: tau of Theorem 2, which must be above 8.
TAU = 9.0
#: Exchanges kept back for the end.
RESERVE = 3
STALLED = 'no progress in {} rounds; try "vertical-al", or standardize=True where columns have very different sizes'
DIVERGED = "the steps lead away: eta = {:g} is too small for these columns; give a larger one, or leave it out"

# ---------------------------------------------------------------------------------------------------- the party's half


@dataclass(frozen=True)
class Place:
    """A party's theta after the order of this number, and that of before it; the labels and gaps it was told.

    size: its largest |X_k v|^2
    """

    number: int
    before: Vector
    theta: Vector
    told: Scored
    size: float


@dataclass(frozen=True, kw_only=True)
class Begin(Order):
    """What all parties share by assumption: labels, and who is in which group."""

    loss: str
    y: Vector
    rows: Vector


@dataclass(frozen=True, kw_only=True)
class Begun(Reply):
    size: Summed[float]  # largest eigenvalue of X_k' X_k
    curvature: Summed[float]  # largest of h_k


@dataclass(frozen=True, kw_only=True)
class Update(Order):
    """scores: of all parties together; net: lambda_1 - lambda_2; eta: 0 means scale * holders * own curvature

    number: of this order; base: of the order whose outcome it goes on from, the party's last or the one before
    """

    number: int
    base: int

    scores: Vector
    net: Vector
    updates: int
    eta: float
    scale: float
    holders: int
    noise: float


@dataclass(frozen=True, kw_only=True)
class Updated(Reply):
    scores: Summed[Vector]  # X_k theta_k, after the updates
    penalty: Summed[float]  # h_k(theta_k), after the updates
    predicted: Summed[float]  # by how much f falls at least, if its curvature is eta
    stationarity: float  # largest entry of the gradient, before the updates

    def known(self, order: Update) -> Known:
        return Known(self.scores, self.penalty, order.number)


@client_step
def begin(share: Party, state: Any, order: Begin) -> tuple[Place, Begun]:
    size = float(np.linalg.norm(share.X, 2) ** 2) if share.X.size else 0.0
    zero = np.zeros(share.X.shape[1])
    place = Place(0, zero, zero, Scored(order.loss, order.y, order.rows), size)
    return place, Begun(size=size, curvature=float(np.max(share.curvature, initial=0.0)))


@client_step
def update(share: Party, state: Place, order: Update) -> tuple[Place, Updated]:
    """Lines 4 to 7 of Algorithm 1, up to Q times with the same scores of the others; with updates = 0 only a look."""
    told, z = state.told, order.scores
    theta = start = theta_at(state, order.base)
    weights = told.weights(order.net)
    own = told.smoothness * float(np.max(np.abs(weights))) * state.size + float(np.max(share.curvature, initial=0.0))
    eta = order.eta or order.scale * order.holders * max(own, 1e-300)
    stationarity = predicted = 0.0
    for k in range(max(order.updates, 1)):
        gradient = share.X.T @ (weights * told.slopes(z)) + share.curvature * theta
        if k == 0:
            stationarity = float(np.max(np.abs(gradient), initial=0.0))
        if order.updates == 0:
            break
        step = -gradient / eta
        theta, z = theta + step, z + share.X @ step
        predicted += 0.5 * eta * float(step @ step)
    after = replace(state, number=order.number, before=start, theta=theta) if order.updates else state
    scores = share.X @ theta
    if order.noise:  # from the system's entropy: whoever knows a seed can take it off again
        scores = scores + order.noise * np.random.default_rng().standard_normal(scores.size)
    return after, Updated(
        scores=scores,
        penalty=0.5 * float(share.curvature @ theta**2),
        predicted=predicted,
        stationarity=stationarity,
    )


# ---------------------------------------------------------------------------------------------- the coordinator's half


@dataclass(frozen=True)
class Known:
    """What the coordinator knows of a party, or of all together: X_k theta_k and h_k after the order of this number."""

    scores: Vector
    penalty: float
    number: int


@dataclass
class Descent:
    """Where a run is: what the coordinator knows of the parties, and the prices."""

    problem: VerticalProblem
    eta: float
    dual_step: float
    regularization: float
    theory: Theory | None
    noise: float
    holders: int
    known: dict[str, Known]
    prices: Vector  # lambda_1 and lambda_2, (2, gaps)
    adaptive_ascent: bool
    damping: Vector  # of the ascent, by gap
    sense: Vector  # where a gap was: above eps, between -eps and eps, below
    scale: float = 1.0
    step: int = 0
    sent: int = 0

    @property
    def z(self) -> Vector:
        return np.asarray(np.sum([known.scores for known in self.known.values()], axis=0))

    @property
    def net(self) -> Vector:
        return np.asarray(self.prices[0] - self.prices[1])

    @property
    def adaptive(self) -> bool:
        return not self.eta and self.theory is None

    @property
    def objective(self) -> float:
        return float(np.mean(self.problem.scored.losses(self.z))) + sum(k.penalty for k in self.known.values())

    def lagrangian(self, net: Vector) -> float:
        return self.objective + float(net @ self.problem.scored.gaps(self.z))

    def ascend(self, z: Vector, part: float = 1.0) -> None:
        """(9), with the scores just received; part: of the parties that sent some."""
        self.step += 1
        gaps, eps = self.problem.scored.gaps(z), self.problem.max_gap
        c = self.theory.regularization(self.step) if self.theory else self.regularization
        if self.adaptive_ascent:
            sense = np.sign(gaps - eps) + np.sign(gaps + eps)
            # A gap that passes its bound to and fro has been overshot; one that stays on a side can move faster.
            self.damping = np.clip(self.damping * np.where(sense != self.sense, DAMPED, FREED), LOWEST, 1.0)
            self.sense = sense
        slope = np.stack([gaps - eps, -gaps - eps]) - c * self.prices
        self.prices = np.maximum(self.prices + part * self.dual_step * self.damping * slope, 0.0)

    def order(self, who: str, z: Vector, updates: int) -> Update:
        """To update so often from where the coordinator knows them to be; 0: only look."""
        self.sent += 1
        return Update(
            number=self.sent,
            base=self.known[who].number,
            scores=z,
            net=self.net,
            updates=updates,
            eta=self.theory.eta(self.step) if self.theory else self.eta,
            scale=self.scale,
            holders=self.holders,
            noise=self.noise,
        )

    def learn(self, fall: float, predicted: float, least: float) -> None:
        """Shorter or longer steps, by how f fell."""
        if not fall >= BAD * predicted:
            self.scale *= LONGER
        elif fall >= GOOD * predicted:
            self.scale = max(SHORTER * self.scale, least)


@dataclass(frozen=True)
class Theory:
    """The schedules of Theorem 2: c_t = beta t^(-1/4) / 2, and the smallest eta_t it allows.

    lipschitz, cross: L and L_12 of Assumption 2, bounded by the parties' sizes
    """

    dual_step: float
    lipschitz: float
    cross: float
    updates: int  # K Q

    def regularization(self, t: int) -> float:
        return float(self.dual_step * max(t, 1) ** -0.25 / 2)

    def eta(self, t: int) -> float:
        L, m = self.lipschitz, self.updates
        primal = (L**2 * (m + 2) * (m - 1) + 2 * (L + 1)) / 4
        return float(primal + self.cross**2 * m * (1 + 32 * TAU * np.sqrt(max(t, 1))) / (2 * self.dual_step))


def fair_vfl(
    run: Run,
    *,
    eta: float | None = None,
    dual_step: float | None = None,
    dual_regularization: float | None = None,
    local_updates: int = 1,
    schedule: str = "constant",
    asynchronous: bool = False,
    noise: float | None = None,
    reveal: bool = True,
) -> Solution:
    """Algorithms 1 and 2.

    eta: fixed when given (the paper has 100); by default adapted. dual_step (beta): fixed when given (the paper has
    0.1); by default from the smallest group and the loss, and adapted. dual_regularization (c): 1e-3 in the paper; by
    default none, as it moves the answer.
    local_updates: Q. schedule: "constant", or "theory" for c_t and eta_t of Theorem 2.
    asynchronous: the coordinator takes a step whenever any party has answered, with the last scores of the others.
        Parties then answer one by one, so their scores are not hidden from the coordinator.
    noise: deviation of the Gaussian noise that every party adds to every score it sends; the gap is then that of the
        noisy scores, and runs differ from each other.
    reveal: does the answer hold the parties' coefficients?
    """
    if schedule not in ("constant", "theory"):
        raise OptionError(f"schedule = {schedule!r}: choose 'constant' or 'theory'")
    if local_updates != int(local_updates):
        raise OptionError(f"local_updates = {local_updates!r}: give a whole number of at least 1")
    if asynchronous and run.fleet.checkpoint is not None:
        raise OptionError("asynchronous runs cannot be kept: who answers first is not on record; leave checkpoint out")
    problem: Any = run.problem
    return descend(
        run,
        problem,
        eta=eta,
        dual_step=dual_step,
        regularization=dual_regularization or 0.0,
        updates=int(local_updates),
        theory=schedule == "theory",
        asynchronous=asynchronous,
        noise=noise or 0.0,
        reveal=reveal,
    )


def descend(
    run: Run,
    problem: VerticalProblem,
    *,
    eta: float | None,
    updates: int,
    reveal: bool,
    dual_step: float | None = None,
    regularization: float = 0.0,
    theory: bool = False,
    asynchronous: bool = False,
    noise: float = 0.0,
) -> Solution:
    """The whole run, with or without a constraint."""
    scored, server, fleet = problem.scored, problem.server, run.fleet
    run.new_best()
    told = Begin(loss=scored.loss, y=scored.y, rows=scored.rows)
    begun = fleet.ask(begin, told)
    own, mine = begin(server, None, told)
    zero = np.zeros(scored.y.size)
    beta = dual_step or ASCENT * _smallest_group(scored) / max(float(np.mean(scored.losses(zero))), 1e-300)
    holders = len(fleet.owners) + (1 if problem.intercept else 0)
    schedule = None
    if theory:
        schedule = _theory(problem, begun.total, mine, beta, holders * updates)
    names = fleet.owners if asynchronous else ("all",)
    gaps = len(problem.gap_names)
    state = Descent(
        problem,
        eta or 0.0,
        beta,
        regularization,
        schedule,
        noise,
        holders,
        known={name: Known(zero, 0.0, 0) for name in (*names, server.name)},
        prices=np.zeros((2, gaps)),
        adaptive_ascent=dual_step is None and not theory,
        damping=np.ones(gaps),
        sense=np.zeros(gaps),
    )
    coordinator, watch = Coordinator(server, own), Watch(run, state)
    end = (_asynchronously if asynchronous else _in_rounds)(watch, coordinator, updates)
    intercept = theta_at(coordinator.place, state.known[server.name].number)
    numbers = [state.known[name].number for name in names]
    return finished(run, problem, watch.reached, numbers, intercept, end, reveal)


def _smallest_group(scored: Scored) -> float:
    """Its share of the rows: with a net price above it, losses of its rows begin to count less than nothing."""
    sizes = [np.count_nonzero(side) for row in scored.rows for side in (row > 0, row < 0)]
    return min(sizes, default=scored.y.size) / scored.y.size


def _theory(problem: VerticalProblem, parties: Begun, own: Begun, beta: float, updates: int) -> Theory:
    """L and L_12 bounded by sums over the parties: |X|^2 is at most that of |X_k|^2."""
    scored = problem.scored
    size = parties.size + own.size
    lipschitz = scored.smoothness * size / scored.y.size + parties.curvature
    largest = 1.0 if scored.loss == "logistic" else float(np.max(np.abs(scored.y), initial=0.0))
    cross = float(np.sqrt(2 * size) * np.linalg.norm(scored.rows) * largest)  # of D - eps and of -D - eps
    return Theory(beta, lipschitz, cross, updates)


@dataclass
class Watch:
    """Judges points as they come by, and sees when nothing improves any more."""

    run: Run
    state: Descent
    reached: Best = field(init=False)  # the last point judged
    lowest: Lowest = field(default_factory=lambda: Lowest(0.9))

    def met(self, k: int, slopes: Sequence[float], *, moving: bool = True) -> bool:
        """Does the point meet the tolerances? moving: the parties went on from it, and callbacks hear of it."""
        run, state = self.run, self.state
        objective = state.objective
        self.reached = judged(run, state.problem, k, state.z, state.net, slopes, objective)
        certificate = self.reached.judged
        run.record(
            k,
            certificate,
            objective,
            inner_rounds=1,
            penalty=state.dual_step,
            consensus_penalty=state.scale,
            gradients=len(slopes),
            hessians=0,
        )
        if moving:
            run.report(k, 0, self.reached)
        miss = max(certificate.stationarity / run.tol[0], certificate.feasibility / run.tol[1])
        self.lowest.see(k, miss)
        return certificate.meets((run.tol[0], MARGIN * run.tol[1]))

    @property
    def solved(self) -> Verdict:
        penalty = sum(known.penalty for known in self.state.known.values())
        allowed = max(self.reached.judged.violation, self.run.tol[1])
        return solved(self.state.problem, self.state.z, penalty, allowed)


@dataclass
class Coordinator:
    """The coordinator's own column, the intercept, which it updates like a party."""

    share: Party
    place: Place

    def update(self, order: Update) -> Updated:
        self.place, reply = update(self.share, self.place, replace(order, noise=0.0))
        return reply


def _in_rounds(watch: Watch, own: Coordinator, updates: int) -> Verdict:
    """The synchronous form: in every round all parties update at once."""
    run, state = watch.run, watch.state
    k, back = 0, False
    highest, end = FAR * (1 + abs(state.objective)), out_of_rounds(run)
    try:
        for k in range(1, run.max_rounds):
            if not back:
                state.ascend(state.z)
            before, order = state.lagrangian(state.net), state.order("all", state.z, updates)
            if not before < highest:
                end = Verdict("stalled", DIVERGED.format(order.eta))
                break
            replies = run.fleet.ask(update, order)
            mine = own.update(order)
            if watch.met(k, [mine.stationarity, *(r.stationarity for r in replies)]):
                return watch.solved  # where they were before these updates
            together = Known(replies.total.scores, replies.total.penalty, order.number)
            known, state.known = state.known, {"all": together, own.share.name: mine.known(order)}
            fall = before - state.lagrangian(state.net)
            if state.adaptive:
                state.learn(fall, replies.total.predicted + mine.predicted, 0.0)
            back = state.adaptive and not fall >= 0  # f rose: nobody keeps what they did
            if back:
                state.known = known
            if watch.lowest.idle(k) >= STAGNATION:
                end = Verdict("stalled", STALLED.format(STAGNATION))
                break
            if run.rounds_left <= RESERVE:
                break
    except KeyboardInterrupt:
        end = interrupted(run)
    order = state.order("all", state.z, 0)
    replies = run.fleet.ask(update, order)
    slopes = [own.update(order).stationarity, *(r.stationarity for r in replies)]
    return watch.solved if watch.met(k, slopes, moving=False) else end


# ------------------------------------------------------------------------------------------------------ asynchronously


def _asynchronously(watch: Watch, own: Coordinator, updates: int) -> Verdict:
    """The coordinator takes a step whenever any party has answered; it never waits for the slowest."""
    run, state, fleet = watch.run, watch.state, watch.run.fleet
    k = 0
    highest, end = FAR * (1 + abs(state.objective)), out_of_rounds(run)
    slopes: dict[str, float] = {}
    waiting: dict[str, Ticket] = {}
    try:
        for k in range(1, run.max_rounds):
            z = state.z
            for owner in [o for o in fleet.owners if o not in waiting]:
                waiting[owner] = fleet.submit(owner, update, state.order(owner, z, updates))
            net, before = state.net, state.lagrangian(state.net)
            replies = _answered(run, state, waiting)
            slopes |= {owner: reply.stationarity for owner, reply in replies.items()}
            order = state.order(own.share.name, z, 1)
            mine = own.update(order)
            state.known[own.share.name], slopes[own.share.name] = mine.known(order), mine.stationarity
            after = state.lagrangian(net)
            if not after < highest:
                end = Verdict("stalled", DIVERGED.format(order.eta))
                break
            if state.adaptive:
                predicted = mine.predicted + sum(reply.predicted for reply in replies.values())
                state.learn(before - after, predicted, LEAST)
            state.ascend(state.z, len(replies) / len(fleet.owners))
            near = len(slopes) == len(state.known) and watch.met(k, list(slopes.values()))
            if near and _judged(run, state, own, watch, k, waiting):
                return watch.solved
            if watch.lowest.idle(k) >= STAGNATION:
                end = Verdict("stalled", STALLED.format(STAGNATION))
                break
            if run.rounds_left <= RESERVE + len(fleet.owners):  # they may answer one by one at the end
                break
    except KeyboardInterrupt:
        end = interrupted(run)
        waiting = {}  # what is under way has not happened: nothing that it changed is counted
    return watch.solved if _judged(run, state, own, watch, k, waiting) else end


def _answered(run: Run, state: Descent, waiting: dict[str, Ticket]) -> dict[str, Updated]:
    """Replies of at least one party, which is then no longer waited for, and known to be where it says."""
    replies: dict[str, Updated] = {}
    for ticket in run.fleet.wait_any(list(waiting.values())):
        replies[ticket.owner], order = ticket.reply(), ticket.order
        assert isinstance(order, Update)
        state.known[ticket.owner] = replies[ticket.owner].known(order)
        del waiting[ticket.owner]
    return replies


def _judged(run: Run, state: Descent, own: Coordinator, watch: Watch, k: int, waiting: dict[str, Ticket]) -> bool:
    """Wait for what is under way; then an exchange in which nobody moves: the certificate of where the parties are."""
    while waiting:
        _answered(run, state, waiting)
    replies = run.fleet.ask(update, [state.order(owner, state.z, 0) for owner in run.fleet.owners])
    mine = own.update(state.order(own.share.name, state.z, 0))
    return watch.met(k, [mine.stationarity, *(reply.stationarity for reply in replies)], moving=False)
