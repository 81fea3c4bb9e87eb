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

FedBCD (Liu, Kang, Zhang, Li, Cheng, Chen, Hong, Yang 2019) is the same without the constraint: the gap is neither
looked at nor bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fedpact.errors import OptionError
from fedpact.federation import Answers, Order, Reply, Summed, Ticket, client_step
from fedpact.problem import Certificate, Party, Scored, VerticalProblem
from fedpact.solvers.base import option
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.vertical.shared import Placed, Reached, VerticalSolver, certificate_of, gradient_of, theta_at
from fedpact.types import Vector

#: When f falls by at least this part of what the steps predict,
GOOD = 0.5
#: eta shrinks by this factor;
SHRINK = 0.9
#: when it falls by less than this part of it,
BAD = 0.1
#: eta grows by this one.
GROW = 1.5
#: The ascent of a gap that passed its bound to and fro is damped by this factor,
DAMPED = 0.7
#: that of one which stays on a side is freed by this one,
FREED = 1.1
#: and damped no further than this.
LOWEST = 1e-4
#: The smallest scale where steps cannot be taken back, because the others have moved on.
LEAST = 1.0
#: beta, in units of (the smallest group's share of the rows) / (the mean loss at zero).
ASCENT = 0.3
#: f at which a run counts as diverging, relative to the start.
FAR = 1e3
#: tau of Theorem 2, which must be above 8.
TAU = 9.0
DIVERGED = "the steps lead away: eta = {:g} is too small for these columns; give a larger one, or leave it out"

# ---------------------------------------------------------------------------------------------------- the party's half


@dataclass(frozen=True)
class Place(Placed):
    """What a party keeps.

    scored: the labels and groups that all parties share
    size:   largest eigenvalue of X_k' X_k
    """

    scored: Scored
    size: float


@dataclass(frozen=True, kw_only=True)
class Begin(Order):
    """What all parties share by assumption: labels, and who is in which group."""

    loss: str
    y: Vector
    rows: Vector


@dataclass(frozen=True, kw_only=True)
class Begun(Reply):
    """How large a party's columns are; what eta is made of."""

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
    """Where a party is after its updates."""

    scores: Summed[Vector]  # X_k theta_k, after the updates
    penalty: Summed[float]  # h_k(theta_k), after the updates
    predicted: Summed[float]  # by how much f falls at least, if its curvature is eta
    stationarity: float  # largest entry of the gradient, before the updates

    def known(self, order: Update) -> Known:
        """What the coordinator knows of the party by this reply."""
        return Known(self.scores, self.penalty, order.number)


@client_step
def begin(share: Party, state: Any, order: Begin) -> tuple[Place, Begun]:
    """The party's start, theta = 0, and the size of its columns."""
    size = 0.0
    if share.X.size:
        size = float(np.linalg.norm(share.X, 2) ** 2)
    zero = np.zeros(share.width)
    place = Place(0, zero, zero, Scored(order.loss, order.y, order.rows), size)
    return place, Begun(size=size, curvature=float(np.max(share.curvature, initial=0.0)))


@client_step
def update(share: Party, state: Place, order: Update) -> tuple[Place, Updated]:
    """Lines 4 to 7 of Algorithm 1, up to Q times with the same scores of the others; with updates = 0 only a look."""
    scored = state.scored
    weights = scored.weights(order.net)
    eta = order.eta or default_eta(share, state, order, weights)
    z = order.scores
    start = theta_at(state, order.base, share.width)
    theta = start
    gradient = gradient_of(share, theta, weights * scored.slopes(z))
    stationarity = float(np.max(np.abs(gradient), initial=0.0))
    predicted = 0.0
    for k in range(order.updates):
        if k > 0:
            gradient = gradient_of(share, theta, weights * scored.slopes(z))
        step = -gradient / eta  # (8), and (11) for k > 0
        theta = theta + step
        z = z + share.X @ step
        predicted += 0.5 * eta * float(step @ step)
    after = state
    if order.updates:
        after = replace(state, number=order.number, before=start, theta=theta)
    scores = share.X @ theta
    if order.noise:  # from the system's entropy: whoever knows a seed can take it off again
        scores = scores + order.noise * np.random.default_rng().standard_normal(scores.size)
    return after, Updated(
        scores=scores,
        penalty=0.5 * float(share.curvature @ theta**2),
        predicted=predicted,
        stationarity=stationarity,
    )


def default_eta(share: Party, state: Place, order: Update, weights: Vector) -> float:
    """scale * K * (curvature of the party's part of f)."""
    steepest = state.scored.smoothness * float(np.max(np.abs(weights)))
    own = steepest * state.size + float(np.max(share.curvature, initial=0.0))
    return order.scale * order.holders * max(own, 1e-300)


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
        gaps = self.problem.scored.gaps(z)
        eps = self.problem.max_gap
        c = self.regularization
        if self.theory:
            c = self.theory.regularization(self.step)
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
        eta = self.eta
        if self.theory:
            eta = self.theory.eta(self.step)
        return Update(
            number=self.sent,
            base=self.known[who].number,
            scores=z,
            net=self.net,
            updates=updates,
            eta=eta,
            scale=self.scale,
            holders=self.holders,
            noise=self.noise,
        )

    def learn(self, fall: float, predicted: float, least: float) -> None:
        """Shorter or longer steps, by how f fell."""
        if not fall >= BAD * predicted:
            self.scale *= GROW
        elif fall >= GOOD * predicted:
            self.scale = max(SHRINK * self.scale, least)


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
        L = self.lipschitz
        m = self.updates
        primal = (L**2 * (m + 2) * (m - 1) + 2 * (L + 1)) / 4
        return float(primal + self.cross**2 * m * (1 + 32 * TAU * np.sqrt(max(t, 1))) / (2 * self.dual_step))


def _smallest_group(scored: Scored) -> float:
    """Its share of the rows: with a net price above it, losses of its rows begin to count less than nothing."""
    sizes = [np.count_nonzero(row > 0) for row in scored.rows]
    sizes += [np.count_nonzero(row < 0) for row in scored.rows]
    return min(sizes, default=scored.y.size) / scored.y.size


def _theory(problem: VerticalProblem, parties: Begun, own: Begun, beta: float, updates: int) -> Theory:
    """L and L_12 bounded by sums over the parties: |X|^2 is at most that of |X_k|^2."""
    scored = problem.scored
    size = parties.size + own.size
    lipschitz = scored.smoothness * size / scored.y.size + parties.curvature
    largest = 1.0  # slope of a row's logistic loss
    if scored.loss != "logistic":
        largest = float(np.max(np.abs(scored.y), initial=0.0))
    cross = float(np.sqrt(2 * size) * np.linalg.norm(scored.rows) * largest)  # of D - eps and of -D - eps
    return Theory(beta, lipschitz, cross, updates)


@dataclass
class Coordinator:
    """The coordinator's variables: the descent, its own column (the intercept), and what is under way."""

    descent: Descent
    share: Party
    place: Place
    highest: float  # f at which the run counts as diverging
    k: int = 0
    pending: tuple[Answers[Updated], Updated, Update, float] | None = None  # replies, own, order, f before
    back: bool = False  # f rose: nobody keeps what they did
    waiting: dict[str, Ticket] = field(default_factory=dict)
    slopes: dict[str, float] = field(default_factory=dict)

    def update(self, order: Update) -> Updated:
        """The intercept is updated as a party's columns are."""
        self.place, reply = update(self.share, self.place, replace(order, noise=0.0))
        return reply

    def certificate(self, slopes: Sequence[float]) -> tuple[Certificate, float]:
        """Certificate and objective, given the largest entry of every holder's gradient."""
        descent = self.descent
        return certificate_of(descent.problem, descent.z, descent.net, slopes), descent.objective


@dataclass(frozen=True, kw_only=True)
class CoordinateDescent(VerticalSolver[Coordinator]):
    """What Fair VFL and FedBCD share: all parties update at once, up to Q times between two messages."""

    patience: ClassVar[int] = 3000
    doubt: ClassVar[int] = 3000
    progress: ClassVar[float] = 0.9

    eta: float | None = option(None, "inverse step, fixed when given; by default adapted", letter="eta", above=0)
    local_updates: int = option(1, "of a party between two messages", letter="Q", least=1)

    def descent(self, problem: VerticalProblem, parties: Begun, own: Begun, owners: Sequence[str]) -> Descent:
        """The start of the descent; without a constraint nothing ascends."""
        scored = problem.scored
        zero = np.zeros(scored.y.size)
        beta = ASCENT * _smallest_group(scored) / max(float(np.mean(scored.losses(zero))), 1e-300)
        gaps = len(problem.gap_names)
        return Descent(
            problem,
            eta=self.eta or 0.0,
            dual_step=beta,
            regularization=0.0,
            theory=None,
            noise=0.0,
            holders=len(owners) + int(problem.intercept),
            known={name: Known(zero, 0.0, 0) for name in ("all", problem.server.name)},
            prices=np.zeros((2, gaps)),
            adaptive_ascent=True,
            damping=np.ones(gaps),
            sense=np.zeros(gaps),
        )

    def init(self, run: Run) -> tuple[Coordinator, Iterate]:
        state = self.begin(run)
        return state, self.step(run, state)  # every round judges the point before it: the first one the start

    def begin(self, run: Run) -> Coordinator:
        """One exchange: labels and groups go down, the sizes of the columns come up."""
        problem: Any = run.problem
        scored = problem.scored
        order = Begin(loss=scored.loss, y=scored.y, rows=scored.rows)
        begun = run.ask(begin, order)
        place, mine = begin(problem.server, None, order)
        descent = self.descent(problem, begun.total, mine, run.owners)
        return Coordinator(descent, problem.server, place, FAR * (1 + abs(descent.objective)))

    def step(self, run: Run, state: Coordinator) -> Iterate:
        """The synchronous form: in every round all parties update at once, and the point before is judged."""
        descent = state.descent
        self._absorb(state)
        if not state.back:
            descent.ascend(descent.z)
        before = descent.lagrangian(descent.net)
        order = descent.order("all", descent.z, self.local_updates)
        if not before < state.highest:
            return self._iterate(run, state, None, end=Verdict("stalled", DIVERGED.format(order.eta)))
        replies = run.ask(update, order)
        mine = state.update(order)
        state.pending = (replies, mine, order, before)
        iterate = self._iterate(run, state, [mine.stationarity, *(reply.stationarity for reply in replies)])
        state.k += 1
        return iterate

    def _absorb(self, state: Coordinator) -> None:
        """What the parties did in the last round counts, unless f rose."""
        if state.pending is None:
            return
        replies, mine, order, before = state.pending
        state.pending = None
        descent = state.descent
        known = descent.known
        together = Known(replies.total.scores, replies.total.penalty, order.number)
        descent.known = {"all": together, state.share.name: mine.known(order)}
        fall = before - descent.lagrangian(descent.net)
        if descent.adaptive:
            descent.learn(fall, replies.total.predicted + mine.predicted, 0.0)
        state.back = descent.adaptive and not fall >= 0
        if state.back:
            descent.known = known

    def _iterate(
        self, run: Run, state: Coordinator, slopes: Sequence[float] | None, end: Verdict | None = None
    ) -> Iterate:
        """Where the run is; judged when the largest entry of every holder's gradient is given."""
        descent = state.descent
        judged = None
        if slopes is not None:
            judged = state.certificate(slopes)
        return Iterate(
            number=state.k,
            w=np.zeros(0),
            multiplier=descent.problem.multiplier(descent.net),
            judged=judged,
            penalty=descent.dual_step,
            consensus_penalty=descent.scale,
            gradients=len(run.owners),
            end=end,
        )

    def reached(self, run: Run, state: Coordinator) -> Reached:
        descent = state.descent
        names = ("all",) if "all" in descent.known else run.owners
        numbers = [descent.known[name].number for name in names]
        own = theta_at(state.place, descent.known[state.share.name].number, state.share.width)
        return Reached(numbers, descent.z, descent.net, own)


@dataclass(frozen=True, kw_only=True)
class FedBCD(CoordinateDescent):
    """Parallel block coordinate descent with local updates; for problems without a constraint."""

    name: ClassVar[str] = "fedbcd"

    def check(self, run: Run) -> None:
        problem: Any = run.problem
        if problem.gap_names:
            remedy = 'leave group and max_gap out, or use "fair-vfl"'
            raise OptionError(f'"fedbcd" has no constraint: {remedy}', code="FP-OPTION-254")


@dataclass(frozen=True, kw_only=True)
class FairVFL(CoordinateDescent):
    """Algorithms 1 and 2 of Liu et al.: descent of the parties, ascent of the prices.

    With asynchronous=True the coordinator takes a step whenever any party has answered, with the last scores of the
    others. Parties then answer one by one, so their scores are not hidden from the coordinator.
    """

    name: ClassVar[str] = "fair-vfl"

    dual_step: float | None = option(
        None,
        "of the ascent, fixed when given (the paper has 0.1); by default from the smallest group and the loss, adapted",
        letter="beta",
        above=0,
    )
    dual_regularization: float = option(
        0.0, "strong concavity, 1e-3 in the paper; none by default, as it moves the answer", letter="c", least=0
    )
    schedule: str = option("constant", "theory: c_t and eta_t of Theorem 2", choices=("constant", "theory"))
    asynchronous: bool = option(False, "take a step whenever any party has answered")
    noise: float = option(
        0.0, "deviation of the Gaussian noise that every party adds to every score it sends; runs then differ", least=0
    )

    @property
    def one_by_one(self) -> bool:
        return self.asynchronous

    def descent(self, problem: VerticalProblem, parties: Begun, own: Begun, owners: Sequence[str]) -> Descent:
        descent = super().descent(problem, parties, own, owners)
        descent.noise = self.noise
        descent.regularization = self.dual_regularization
        if self.dual_step is not None:
            descent.dual_step = self.dual_step
            descent.adaptive_ascent = False
        if self.schedule == "theory":
            updates = descent.holders * self.local_updates
            descent.theory = _theory(problem, parties, own, descent.dual_step, updates)
            descent.adaptive_ascent = False
        if self.asynchronous:
            zero = descent.known["all"]
            descent.known = dict.fromkeys((*owners, problem.server.name), zero)
        return descent

    def init(self, run: Run) -> tuple[Coordinator, Iterate]:
        if not self.asynchronous:
            return super().init(run)
        state = self.begin(run)
        return state, self._iterate(run, state, None)

    def step(self, run: Run, state: Coordinator) -> Iterate:
        if not self.asynchronous:
            return super().step(run, state)
        descent = state.descent

        # 1. everybody who is free gets an order; the coordinator goes on with the first who answer
        z = descent.z
        for owner in run.owners:
            if owner not in state.waiting:
                order = descent.order(owner, z, self.local_updates)
                state.waiting[owner] = run.session.submit(owner, update, order)
        net = descent.net
        before = descent.lagrangian(net)
        replies = self._receive(run, state)
        own_order = descent.order(state.share.name, z, 1)
        mine = state.update(own_order)
        descent.known[state.share.name] = mine.known(own_order)
        state.slopes[state.share.name] = mine.stationarity
        state.k += 1

        # 2. steps and prices follow
        after = descent.lagrangian(net)
        if not after < state.highest:
            return self._iterate(run, state, None, end=Verdict("stalled", DIVERGED.format(own_order.eta)))
        if descent.adaptive:
            predicted = mine.predicted + sum(reply.predicted for reply in replies.values())
            descent.learn(before - after, predicted, LEAST)
        descent.ascend(descent.z, len(replies) / len(run.owners))

        # 3. slopes of different moments only hint at the certificate: where they are small, all are asked anew
        if len(state.slopes) < len(descent.known):
            return self._iterate(run, state, None)
        slopes = list(state.slopes.values())
        if run.accepts(state.certificate(slopes)[0]):
            if run.rounds_left <= self.reserve + len(state.waiting) + 1:
                return self._iterate(run, state, None)
            slopes = self._look(run, state)
        return self._iterate(run, state, slopes)

    def _receive(self, run: Run, state: Coordinator) -> dict[str, Updated]:
        """Replies of at least one party, which is then no longer waited for, and known to be where it says."""
        replies: dict[str, Updated] = {}
        for ticket in run.session.wait_any(list(state.waiting.values())):
            order = ticket.order
            assert isinstance(order, Update)
            reply = ticket.reply()
            replies[ticket.owner] = reply
            state.descent.known[ticket.owner] = reply.known(order)
            state.slopes[ticket.owner] = reply.stationarity
            del state.waiting[ticket.owner]
        return replies

    def _look(self, run: Run, state: Coordinator) -> list[float]:
        """Wait for what is under way; then an exchange in which nobody moves: the slopes of where the parties are."""
        while state.waiting:
            self._receive(run, state)
        descent = state.descent
        replies = run.ask(update, [descent.order(owner, descent.z, 0) for owner in run.owners])
        mine = state.update(descent.order(state.share.name, descent.z, 0))
        return [mine.stationarity, *(reply.stationarity for reply in replies)]
