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

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedpact.errors import OptionError, OwnerLost
from fedpact.federation import Order, Reply, Summed, Ticket, client_step
from fedpact.functions import Vector
from fedpact.problem import Party, Scored, VerticalProblem
from fedpact.solvers.endings import SOLVED, Verdict, interrupted, out_of_rounds
from fedpact.solvers.run import MARGIN, Run
from fedpact.solvers.solution import Solution
from fedpact.solvers.vertical import certificate_of, finished

#: f must fall by GOOD of what the steps predict for scale to shrink by SHORTER, and by BAD of it not to grow by LONGER.
GOOD, BAD, SHORTER, LONGER = 0.5, 0.1, 0.9, 1.5
#: The ascent of a gap that passed its bound is damped by DAMPED, that of one that did not freed by FREED.
DAMPED, FREED, LOWEST = 0.7, 1.1, 1e-4
#: Where the others have moved on, steps cannot be taken back: the smallest scale, and the part of the ascent, there.
LEAST, ASCENT = 1.0, 0.2
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
    """A party's theta, and that of before its last updates; the labels and gaps it was told; its largest |X_k v|^2."""

    theta: Vector
    before: Vector
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

    back: the last updates were too long, begin again from before them
    """

    scores: Vector
    net: Vector
    updates: int
    eta: float
    scale: float
    holders: int
    back: bool
    noise: float


@dataclass(frozen=True, kw_only=True)
class Updated(Reply):
    scores: Summed[Vector]  # X_k theta_k, after the updates
    penalty: Summed[float]  # h_k(theta_k), after the updates
    predicted: Summed[float]  # by how much f falls at least, if its curvature is eta
    stationarity: float  # largest entry of the gradient, before the updates


@client_step
def begin(share: Party, state: Any, order: Begin) -> tuple[Place, Begun]:
    size = float(np.linalg.norm(share.X, 2) ** 2) if share.X.size else 0.0
    zero = np.zeros(share.X.shape[1])
    place = Place(zero, zero, Scored(order.loss, order.y, order.rows), size)
    return place, Begun(size=size, curvature=float(np.max(share.curvature, initial=0.0)))


@client_step
def update(share: Party, state: Place, order: Update) -> tuple[Place, Updated]:
    """Lines 4 to 7 of Algorithm 1, up to Q times with the same scores of the others; with updates = 0 only a look."""
    told, z = state.told, order.scores
    theta = start = state.before if order.back else state.theta
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
    after = replace(state, theta=theta, before=start)
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


@dataclass
class Descent:
    """Where a run is: what the coordinator knows of the parties, and the prices."""

    problem: VerticalProblem
    eta: float
    dual_step: float
    regularization: float
    theory: Theory | None
    noise: float
    adaptive_ascent: bool
    damping: Vector  # of the ascent, by gap
    sense: Vector  # on which side of its bound a gap was
    scale: float = 1.0
    step: int = 0
    prices: Vector = field(default_factory=lambda: np.zeros(0))  # lambda_1 and lambda_2, (2, gaps)
    scores: dict[str, Vector] = field(default_factory=dict)
    penalties: dict[str, float] = field(default_factory=dict)
    slopes: dict[str, float] = field(default_factory=dict)

    @property
    def z(self) -> Vector:
        return np.asarray(np.sum(list(self.scores.values()), axis=0))

    @property
    def net(self) -> Vector:
        return np.asarray(self.prices[0] - self.prices[1])

    def ascend(self, z: Vector, part: float = 1.0) -> None:
        """(9), with the scores just received; part: of the parties that sent some."""
        self.step += 1
        gaps, eps = self.problem.scored.gaps(z), self.problem.max_gap
        c = self.theory.regularization(self.step) if self.theory else self.regularization
        if self.adaptive_ascent:
            sense = np.sign(np.abs(gaps) - eps)
            # A gap that passes its bound to and fro has been overshot; one that stays on a side can move faster.
            self.damping = np.clip(self.damping * np.where(sense != self.sense, DAMPED, FREED), LOWEST, 1.0)
            self.sense = sense
        slope = np.stack([gaps - eps, -gaps - eps]) - c * self.prices
        self.prices = np.maximum(self.prices + part * self.dual_step * self.damping * slope, 0.0)

    def order(self, z: Vector, updates: int, holders: int, back: bool = False) -> Update:
        eta = self.theory.eta(self.step) if self.theory else self.eta
        return Update(
            scores=z,
            net=self.net,
            updates=updates,
            eta=eta,
            scale=self.scale,
            holders=holders,
            back=back,
            noise=self.noise,
        )

    def lagrangian(self, z: Vector, net: Vector) -> float:
        return self.objective(z) + float(net @ self.problem.scored.gaps(z))

    def objective(self, z: Vector) -> float:
        return float(np.mean(self.problem.scored.losses(z))) + sum(self.penalties.values())

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

    eta: fixed when given (the paper has 100); by default adapted. dual_step (beta): 0.1 in the paper; by default one
    over the mean loss at zero, a fifth of that asynchronously. dual_regularization (c): 1e-3 in the paper; by default
    none, as it moves the answer.
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
    beta = dual_step or (ASCENT if asynchronous else 1.0) / max(float(np.mean(scored.losses(zero))), 1e-300)
    holders = len(fleet.owners) + (1 if problem.intercept else 0)
    schedule = None
    if theory:
        schedule = _theory(problem, begun.total, mine, beta, holders * updates)
    gaps = len(problem.gap_names)
    state = Descent(
        problem,
        eta or 0.0,
        beta,
        regularization,
        schedule,
        noise,
        adaptive_ascent=dual_step is None and not theory,
        damping=np.ones(gaps),
        sense=np.zeros(gaps),
        prices=np.zeros((2, gaps)),
    )
    state.scores = {"all": zero, server.name: zero}
    state.penalties = {"all": 0.0}
    coordinator = Coordinator(server, own)
    end = (_asynchronously if asynchronous else _in_rounds)(run, state, coordinator, updates, holders)
    return finished(run, problem, state.net, coordinator.place.theta, end, reveal)


def _theory(problem: VerticalProblem, parties: Begun, own: Begun, beta: float, updates: int) -> Theory:
    """L and L_12 bounded by sums over the parties: |X|^2 is at most that of |X_k|^2."""
    scored = problem.scored
    size = parties.size + own.size
    lipschitz = scored.smoothness * size / scored.y.size + parties.curvature
    largest = 1.0 if scored.loss == "logistic" else float(np.max(np.abs(scored.y), initial=0.0))
    cross = float(np.sqrt(size) * np.linalg.norm(scored.rows) * largest)
    return Theory(beta, lipschitz, cross, updates)


@dataclass
class Watch:
    """Judges points as they come by, and sees when nothing improves any more."""

    run: Run
    state: Descent
    lowest: float = np.inf
    lowest_at: int = 0

    def met(self, k: int, z: Vector, net: Vector, slopes: Sequence[float]) -> bool:
        run, problem = self.run, self.state.problem
        certificate = certificate_of(problem, z, net, slopes)
        objective = self.state.objective(z)
        run.best.certificate = None  # the parties hold one point, and this is it
        run.best.offer(k, np.zeros(0), np.zeros(0), certificate, objective)
        run.record(
            k,
            certificate,
            objective,
            inner_rounds=1,
            penalty=self.state.dual_step,
            consensus_penalty=self.state.scale,
            gradients=len(slopes),
            hessians=0,
        )
        run.report(k, 0, run.best)
        miss = max(certificate.stationarity / run.tol[0], certificate.feasibility / run.tol[1])
        if miss < 0.9 * self.lowest:
            self.lowest, self.lowest_at = miss, k
        return certificate.meets((run.tol[0], MARGIN * run.tol[1]))

    def idle(self, k: int) -> bool:
        return k - self.lowest_at >= STAGNATION


@dataclass
class Coordinator:
    """The coordinator's own column, the intercept, which it updates like a party."""

    share: Party
    place: Place

    def update(self, order: Update) -> Updated:
        self.place, reply = update(self.share, self.place, replace(order, noise=0.0))
        return reply


def _in_rounds(run: Run, state: Descent, own: Coordinator, updates: int, holders: int) -> Verdict:
    """The synchronous form: in every round all parties update at once."""
    watch, z, k = Watch(run, state), state.z, 0
    highest, adaptive = FAR * (1 + abs(state.objective(z))), not state.eta and state.theory is None
    end, back = out_of_rounds(run), False
    try:
        for k in range(1, run.max_rounds):
            if not back:
                state.ascend(z)
            before, order = state.lagrangian(z, state.net), state.order(z, updates, holders, back)
            replies = run.fleet.ask(update, order)
            mine = own.update(order)
            near = watch.met(k, z, state.net, [mine.stationarity, *(r.stationarity for r in replies)])
            known = state.scores, state.penalties
            state.scores = {"all": replies.total.scores, own.share.name: mine.scores}
            state.penalties = {"all": replies.total.penalty}
            fall = before - state.lagrangian(state.z, state.net)
            if adaptive:
                state.learn(fall, replies.total.predicted + mine.predicted, 0.0)
            back = adaptive and not fall >= 0 and not near  # f rose: nobody keeps what they did
            if back:
                state.scores, state.penalties = known
            z = state.z
            if not before < highest:
                end = Verdict("stalled", DIVERGED.format(order.eta))
                break
            if near and _judged(run, state, own, watch, k, holders):
                return SOLVED
            if watch.idle(k):
                end = Verdict("stalled", STALLED.format(STAGNATION))
                break
            if run.rounds_left <= RESERVE:
                break
    except KeyboardInterrupt:
        end = interrupted(run)
    return SOLVED if _judged(run, state, own, watch, k, holders, back) else end


def _judged(run: Run, state: Descent, own: Coordinator, watch: Watch, k: int, holders: int, back: bool = False) -> bool:
    """One exchange in which nobody moves: the certificate of where the parties are now."""
    order = state.order(state.z, 0, holders, back)
    replies = run.fleet.ask(update, order)
    slopes = [own.update(order).stationarity, *(r.stationarity for r in replies)]
    return watch.met(k, state.z, state.net, slopes)


# ------------------------------------------------------------------------------------------------------ asynchronously


@dataclass(frozen=True)
class Waiting:
    """An order under way at a party, since when, and how often it was sent."""

    ticket: Ticket
    order: Update
    since: float
    attempt: int


def _asynchronously(run: Run, state: Descent, own: Coordinator, updates: int, holders: int) -> Verdict:
    """The coordinator takes a step whenever any party has answered; it never waits for the slowest."""
    fleet, watch, k = run.fleet, Watch(run, state), 0
    none = state.scores["all"]
    state.scores = {own.share.name: none, **dict.fromkeys(fleet.owners, none)}
    state.penalties = dict.fromkeys(fleet.owners, 0.0)
    highest = FAR * (1 + abs(state.objective(none)))
    slopes: dict[str, float] = {}
    end = out_of_rounds(run)
    waiting = {owner: _sent(run, owner, state.order(none, updates, holders)) for owner in fleet.owners}
    z = none
    try:
        for k in range(1, run.max_rounds):
            replies = _answered(run, waiting)
            net, before = state.net, state.lagrangian(z, state.net)
            predicted = 0.0
            for owner, reply in replies.items():
                state.scores[owner], state.penalties[owner] = reply.scores, reply.penalty
                slopes[owner] = reply.stationarity
                predicted += reply.predicted
            mine = own.update(state.order(z, 1, holders))
            state.scores[own.share.name], slopes[own.share.name] = mine.scores, mine.stationarity
            z = state.z
            after = state.lagrangian(z, net)
            if not after < highest:
                end = Verdict("stalled", DIVERGED.format(state.eta))
                break
            if not state.eta and state.theory is None:
                state.learn(before - after, predicted + mine.predicted, LEAST)
            state.ascend(z, len(replies) / len(fleet.owners))
            near = len(slopes) == len(state.scores) and watch.met(k, z, state.net, list(slopes.values()))
            if near:
                _drained(run, state, waiting)
                if _judged_apart(run, state, own, watch, k, holders):
                    return SOLVED
                z = state.z
            if watch.idle(k):
                end = Verdict("stalled", STALLED.format(STAGNATION))
                break
            if run.rounds_left <= RESERVE:
                break
            for owner in [o for o in fleet.owners if o not in waiting]:
                waiting[owner] = _sent(run, owner, state.order(z, updates, holders))
    except KeyboardInterrupt:
        end = interrupted(run)
    _drained(run, state, waiting)
    return SOLVED if _judged_apart(run, state, own, watch, k, holders) else end


def _judged_apart(run: Run, state: Descent, own: Coordinator, watch: Watch, k: int, holders: int) -> bool:
    """As `_judged`, with every party's scores kept apart afterwards."""
    order = state.order(state.z, 0, holders)
    tickets = {owner: run.fleet.submit(owner, update, order) for owner in run.fleet.owners}
    slopes = [own.update(order).stationarity]
    while tickets:
        for ticket in run.fleet.wait_any(list(tickets.values())):
            slopes.append(ticket.reply().stationarity)
            del tickets[ticket.owner]
    return watch.met(k, state.z, state.net, slopes)


def _sent(run: Run, owner: str, order: Update, attempt: int = 0) -> Waiting:
    return Waiting(run.fleet.submit(owner, update, order), order, time.monotonic(), attempt)


def _answered(run: Run, waiting: dict[str, Waiting]) -> dict[str, Updated]:
    """Replies of at least one party, taken out of `waiting`. Lost and overdue orders are sent again.

    An order that was lost is sent again as a new one: a party that did get it has moved, and moves once more.
    """
    policy = run.fleet.policy
    answers: dict[str, Updated] = {}
    while not answers:
        done = run.fleet.wait_any([w.ticket for w in waiting.values()], policy.deadline)
        lost: dict[str, str] = {}
        for ticket in done:
            try:
                answers[ticket.owner] = ticket.reply()
            except OwnerLost as error:
                lost[ticket.owner] = str(error)
        for owner, sent in waiting.items():
            late = policy.deadline is not None and time.monotonic() - sent.since > policy.deadline
            if late and owner not in answers:
                lost.setdefault(owner, f"{owner}: no reply within {policy.deadline:g} s")
        for owner in answers:
            del waiting[owner]
        for owner, why in lost.items():
            sent = waiting.pop(owner)
            if policy.on_failure == "stop" or sent.attempt >= policy.retries:
                raise OwnerLost(why)
            waiting[owner] = _sent(run, owner, sent.order, sent.attempt + 1)
    return answers


def _drained(run: Run, state: Descent, waiting: dict[str, Waiting]) -> None:
    """Wait for what is under way, so that the coordinator knows where everybody is."""
    while waiting:
        for owner, reply in _answered(run, waiting).items():
            state.scores[owner], state.penalties[owner] = reply.scores, reply.penalty
