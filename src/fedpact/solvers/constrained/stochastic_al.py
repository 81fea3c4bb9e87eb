"""Stochastic augmented Lagrangian: local minibatch steps under constraints, for networks and other large models.

    mu_i <- P_{K*}(mu_i + r beta c_i(w)), z_i = P_{K*}(mu_i + beta c_i(w))  owner i, c_i over all of its rows
    y <- w,  then tau times  y <- y - eta g_i(y)                            g_i over a fresh minibatch B
    m <- momentum m + mean_i (y_i - w),  w <- w + m                         the server, over the owners asked

where g_i is N (grad f_i + J_i' z_i) with the owner's part of grad h. Owners that a round does not ask keep their
multipliers until they are asked again. The server's own constraint is in every owner's g_i.

Convex problems have exact answers, which local steps (owners differ) and minibatches (noise) miss. There steps are
corrected, without momentum, and converge to any accuracy:

    g_i(y) = G_B(y) - G_B(w) + G(w) - v_i + v                               v_i <- G(w), v = mean_i v_i

with G the owner's gradient over all rows: variance reduction as in SVRG (Johnson and Zhang 2013) inside the control
variates of SCAFFOLD (Karimireddy et al. 2020). For networks both lose to momentum at the server (Reddi et al. 2021):
docs/benchmarks/networks.md has what was tried, with numbers. Where constraints are `CountedRates`, multipliers follow
what is counted and gradients what is smoothed, a proxy-Lagrangian (Cotter et al. 2019).

Nothing has to be tuned: stochastic_al_pace.py has the lengths of steps, the penalty, the momentum, and why. Bounds are
counted at every w that a round begins with; the latest one that met them all is returned where the last one does not.

Notation
    r        how fast multipliers follow their weights, 1 - momentum    Schedule.pace
    tau      local steps in a round                                     steps
    B        rows in a minibatch                                        batch_size
    S / N    share of the owners that a round asks                      participation
    beta     penalty                                                    Schedule.penalty
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedpact.cones import Cone
from fedpact.federation import Order, Reply, Summed, client_step
from fedpact.problem import Certificate, Share, Terms
from fedpact.problem.share import evaluate
from fedpact.solvers.base import Needs, Solver, option
from fedpact.solvers.consensus.rounds import add_ridge, divide_regularizer, has_run_away, sample_owners
from fedpact.solvers.constrained.stochastic_al_pace import LOOKS, Schedule
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.steps import (
    Holder,
    Judged,
    certificate_of,
    first_prices,
    price_of,
    returned_by,
    term_fields,
)
from fedpact.types import Matrix, Vector

#: Rounds in which every owner sees all its rows once: multipliers move as often.
ROUNDS_A_PASS = 5
#: Local steps in a round where the functions are no means over rows.
FULL_STEPS = 10
#: Rows on which an owner estimates its curvature, and power iterations for that.
SAMPLE = 512
POWERS = 8
#: Second numbers of the seeds of draws: no two kinds of draws share a stream.
STEPS = 1
CURVATURE = 2
#: Order of a look that is not the first one: nothing to begin with.
GOING_ON = -2

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True)
class Multiplier:
    """mu of one holder of a constraint, and z, the weights of its gradients in the local steps."""

    value: Vector
    weights: Vector

    def move(self, cone: Cone, change: Vector, pace: float) -> Multiplier:
        """The multiplier after a change of beta c(w); z is one whole change ahead, which damps oscillations."""
        value = cone.project_dual(self.value + pace * change)
        return Multiplier(value, cone.project_dual(value + change))


@dataclass(frozen=True, kw_only=True)
class Member(Holder):
    """An owner with its multiplier mu_i and control variate v_i; `price` is mu_i at the latest look."""

    multiplier: Multiplier
    variate: Vector


@dataclass(frozen=True, kw_only=True)
class Look(Order):
    """Judge w with the present multipliers.

    iteration: its number
    warm:      in the first look, the iteration whose prices to begin with
    best:      the look before is the best so far
    """

    w: Vector
    iteration: int
    warm: int
    best: bool
    seed: int
    holders: int
    ridge: Vector


@dataclass(frozen=True, kw_only=True)
class Looked(Judged):
    """curvature: of N times the Lagrangian; reach: |J_i|^2, both on a sample of the rows; rows: how many f_i has."""

    curvature: float
    reach: Summed[float]
    rows: Summed[float]


@dataclass(frozen=True, kw_only=True)
class Round(Order):
    """Move the multiplier, then take local steps from w.

    drift:     gradient of the server's own Lagrangian at w, and v where steps are corrected
    corrected: whether they are
    """

    w: Vector
    drift: Vector
    corrected: bool
    iteration: int
    seed: int
    holders: int
    steps: int
    step_size: float
    batch_size: int
    penalty: float
    pace: float
    ridge: Vector


@dataclass(frozen=True, kw_only=True)
class Moved(Reply):
    """What became of w.

    moved:     y - w
    change:    of v_i
    missed:    square of the violation at w, over all rows
    gradients: evaluated
    diverged:  the steps ran away, and nothing was changed
    """

    moved: Summed[Vector]
    change: Summed[Vector]
    missed: Summed[float]
    gradients: int
    diverged: bool


class Slope:
    """G: N (grad f_i + J_i' z_i) and the owner's part of grad h, over all rows or over minibatches."""

    def __init__(self, share: Share, weights: Vector, order: Look | Round, size: int, draws: int) -> None:
        self.share = share
        self.weights = weights
        self.order = order
        self.size = size
        self.gradients = 0
        # The owner's name tells its draws from those of the others.
        self.rng = np.random.default_rng([order.seed, draws, order.iteration, zlib.crc32(share.label.encode())])

    def whole(self) -> Callable[[Vector], Vector]:
        """G over all rows."""
        return self._over(lambda function: function)

    def draw(self) -> Callable[[Vector], Vector]:
        """G over one minibatch."""
        return self._over(self.sample)

    def sample(self, function: Any) -> Any:
        """A Function or Map on a minibatch; whole where it is no mean over rows, or one over few."""
        if function.rows <= self.size:
            return function
        return function.batch(self.rng.choice(function.rows, self.size, replace=False))

    def _over(self, choose: Callable[[Any], Any]) -> Callable[[Vector], Vector]:
        objective = None
        constraint = None
        if self.share.objective is not None:
            objective = choose(self.share.objective)
        if self.share.constraint is not None and np.any(self.weights):
            constraint = choose(self.share.constraint.function)

        def slope(y: Vector) -> Vector:
            self.gradients += 1
            total = np.zeros_like(y)
            if objective is not None:
                total += objective.gradient(y)
            if constraint is not None:
                total += constraint.pull_back(y, self.weights)
            return add_ridge(self.order.holders * total, self.order.ridge, y)

        return slope


@client_step
def look(share: Share, state: Any, order: Look) -> tuple[Member, Looked]:
    """The terms of the certificate over all rows, and how curved the Lagrangian is."""
    if order.warm != GOING_ON:
        state = begin(share, state, order)
    state = state.mark_best(order.best)
    price = state.multiplier.value
    slope = Slope(share, price, order, SAMPLE, CURVATURE)
    reach = 0.0
    if share.constraint is not None:
        reach = square_rows(slope.sample(share.constraint.function).jacobian(order.w))
    rows = 0 if share.objective is None else share.objective.rows
    rounding = max((part.rounding for part in share.parts.values()), default=0.0)
    reply = Looked(
        **term_fields(weigh(share, order.w, price)),
        curvature=estimate_curvature(slope.draw(), order.w, rounding),
        reach=reach,
        rows=float(rows),
    )
    return replace(state, iteration=order.iteration, price=price), reply


def begin(share: Share, state: Any, order: Look) -> Member:
    price = price_of(share, state, order.warm)
    return Member(
        iteration=order.iteration,
        price=price,
        best_iteration=order.warm,
        best_price=price,
        returned=returned_by(state),
        multiplier=Multiplier(price, price),
        variate=np.zeros_like(order.w),
    )


def weigh(share: Share, w: Vector, price: Vector) -> Terms:
    """The terms of the certificate without a Jacobian, whose rows are as many gradients of a network."""
    objective = 0.0
    gradient = np.zeros_like(w)
    feasibility = 0.0
    violation = 0.0
    if share.objective is not None:
        objective, gradient = share.objective.value_and_gradient(w)
    if share.constraint is not None:
        value = share.constraint.function.value(w)
        gradient = gradient + share.constraint.function.pull_back(w, price)
        feasibility = share.constraint.cone.normal_distance(value, price)
        violation = share.constraint.cone.violation(value)
    none = np.zeros(0)
    return Terms(objective=objective, gradient=gradient, feasibility=feasibility, violation=violation, coupled=none)


def square_rows(jacobian: Matrix) -> float:
    """|J|^2: the largest square of a row."""
    return float(np.max(np.einsum("ij,ij->i", jacobian, jacobian), initial=0.0))


def estimate_curvature(slope: Callable[[Vector], Vector], w: Vector, rounding: float) -> float:
    """The largest curvature at w by power iterations on differences of slopes; 0 where there is none."""
    direction = np.random.default_rng(0).choice([-1.0, 1.0], w.size) / np.sqrt(w.size)
    step = np.sqrt(max(rounding, 1e-12)) * (1 + float(np.linalg.norm(w)))
    at = slope(w)
    size = 0.0
    for _ in range(POWERS):
        image = (slope(w + step * direction) - at) / step
        size = float(np.linalg.norm(image))
        if size == 0 or not np.isfinite(size):
            return 0.0
        direction = image / size
    return size


@client_step
def advance(share: Share, state: Member, order: Round) -> tuple[Member, Moved]:
    """The multiplier, then tau local steps."""
    multiplier = state.multiplier
    missed = 0.0
    if share.constraint is not None:
        value = share.constraint.function.value(order.w)
        missed = share.constraint.cone.violation(value) ** 2
        multiplier = multiplier.move(share.constraint.cone, order.penalty * value, order.pace)
    slope = Slope(share, multiplier.weights, order, order.batch_size, STEPS)
    variate = state.variate
    if order.corrected:
        variate = slope.whole()(order.w)
    change = variate - state.variate

    y = order.w
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(order.steps):
            along = slope.draw()
            direction = along(y) + order.drift
            if order.corrected:
                direction = direction - along(order.w) + change
            y = y - order.step_size * direction
    if has_run_away(y, order.w):
        none = np.zeros_like(y)
        return state, Moved(moved=none, change=none, missed=missed, gradients=slope.gradients, diverged=True)
    after = replace(state, multiplier=multiplier, variate=variate)
    reply = Moved(moved=y - order.w, change=change, missed=missed, gradients=slope.gradients, diverged=False)
    return after, reply


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass(kw_only=True)
class Server(Schedule):
    """Where a run is. kept: the latest w of those that missed their bounds least; missed: the sum of the squares"""

    w: Vector
    velocity: Vector
    variate: Vector
    multiplier: Multiplier
    ridge: Vector
    kept: Vector | None = None
    missed: float = np.inf

    def keep(self, w: Vector, missed: float, enough: float) -> None:
        """Remember w, unless an earlier one missed its bounds by less; below `enough` none does."""
        if missed <= max(self.missed, enough):
            self.kept = w
            self.missed = missed


@dataclass(frozen=True, kw_only=True)
class StochasticAL(Solver[Server]):
    """Local minibatch steps inside an augmented Lagrangian. It ends when its passes over the rows are done."""

    name: ClassVar[str] = "stochastic-al"
    needs: ClassVar[Needs] = Needs(
        constraints=True, slacks=False, prices=True, stands_in=True, smooth="its local steps need a gradient of h"
    )
    # Noise hides progress, so that none is waited for.
    patience: ClassVar[int] = 10**9
    doubt: ClassVar[int] = 10**9
    feasible_first: ClassVar[bool] = True

    passes: int = option(30, "passes over all rows", least=1)
    batch_size: int = option(64, "rows of a minibatch", letter="B", least=1)
    steps: int | None = option(
        None, "local steps of every owner in a round; by default a fifth of a pass", letter="tau", least=1
    )
    participation: float = option(
        1.0, "share of the owners that a round asks, drawn anew for every round", above=0, most=1
    )

    def init(self, run: Run) -> tuple[Server, Iterate]:
        ridge, _ = divide_regularizer(run.problem)
        zero = np.zeros_like(run.start)
        price = first_prices(run)
        state = Server(
            w=run.start,
            velocity=zero,
            variate=zero,
            multiplier=Multiplier(price, price),
            ridge=ridge,
            corrected=run.problem.convex,
        )
        iterate, rows = self._look(run, state, run.warm)
        state.steps, state.rounds = self._schedule(run, rows / len(run.owners))
        length = f"{state.longest_step:.3g}"
        run.note(f"{state.rounds} rounds of {state.steps} local steps, of length {length} at the beginning")
        return state, iterate

    def _schedule(self, run: Run, rows: float) -> tuple[int, int]:
        """Local steps in a round, and the rounds: as many as make the passes, and as exchanges allow.

        rows: of an owner, on average
        """
        a_pass = max(1.0, rows / self.batch_size)
        usual = max(1, round(a_pass / ROUNDS_A_PASS)) if rows else FULL_STEPS
        steps = self.steps or usual
        rounds = float(ROUNDS_A_PASS * self.passes)
        if rows:
            rounds = self.passes * a_pass / (self.participation * steps)
        allowed = run.rounds_left - self.reserve - LOOKS - 2
        return steps, max(1, min(round(rounds), allowed))

    def step(self, run: Run, state: Server) -> Iterate:
        if state.k == state.rounds:
            return self._go_back(run, state)
        asked = sample_owners(run, self.participation, state.k + 1)
        order = Round(
            w=state.w,
            drift=state.variate + self._own_slope(run, state),
            corrected=state.corrected,
            iteration=run.first + state.k + 1,
            seed=int(run.seed),
            holders=len(run.owners),
            steps=state.steps,
            step_size=state.decay * state.longest_step,
            batch_size=self.batch_size,
            penalty=state.penalty,
            pace=state.pace,
            ridge=state.ridge,
        )
        replies = run.ask(advance, order, asked)
        if len(asked) == len(run.owners) and not state.loss_first:
            state.keep(state.w, replies.total.missed + self._own_miss(run, state), run.tol[1] ** 2)
        if any(reply.diverged for reply in replies):
            state.caution /= 2
            state.velocity = np.zeros_like(state.w)
        else:
            state.velocity = state.momentum * state.velocity + replies.total.moved / len(asked)
            state.w = state.w + state.velocity
            state.variate = state.variate + replies.total.change / len(run.owners)
        state.k += 1
        gradients = sum(reply.gradients for reply in replies)
        if state.look_is_due:
            iterate, _ = self._look(run, state, GOING_ON)
            return replace(iterate, gradients=gradients, end=self._end(run, state, iterate))
        return Iterate(number=run.first + state.k, w=state.w, multiplier=state.multiplier.value, gradients=gradients)

    def _go_back(self, run: Run, state: Server) -> Iterate:
        """To the point that was kept, after the last round."""
        assert state.kept is not None
        state.w = state.kept
        state.k += 1
        iterate, _ = self._look(run, state, GOING_ON)
        return replace(iterate, end=self._end(run, state, iterate))

    def _own_miss(self, run: Run, state: Server) -> float:
        """Square of the violation of the server's own constraint at w."""
        constraint = run.problem.server.constraint
        if constraint is None:
            return 0.0
        return constraint.cone.violation(constraint.function.value(state.w)) ** 2

    def _own_slope(self, run: Run, state: Server) -> Vector:
        """Gradient of the server's own Lagrangian at w, its multiplier moved first."""
        server = run.problem.server
        if server.constraint is not None:
            change = state.penalty * server.constraint.function.value(state.w)
            state.multiplier = state.multiplier.move(server.constraint.cone, change, state.pace)
        local = evaluate(server, state.w)
        return local.gradient + local.jacobian.T @ state.multiplier.weights

    def _look(self, run: Run, state: Server, warm: int) -> tuple[Iterate, float]:
        """One exchange with all owners: the certificate of w, and how long steps may be; also the rows of all."""
        number = run.first + state.k
        order = Look(
            w=state.w,
            iteration=number,
            warm=warm,
            best=warm == GOING_ON and run.best.iteration == run.first + state.looked,
            seed=int(run.seed),
            holders=len(run.owners),
            ridge=state.ridge,
        )
        replies = run.ask(look, order)
        state.looked = state.k
        if warm != GOING_ON or state.corrected:
            state.curvature = max(1e-12, *(reply.curvature for reply in replies))
        state.reach = replies.total.reach + square_rows(evaluate(run.problem.server, state.w).jacobian)
        price = state.multiplier.value
        judged = certificate_of(run.problem, state.w, price, replies)
        return Iterate(number=number, w=state.w, multiplier=price, judged=judged), replies.total.rows

    def _end(self, run: Run, state: Server, iterate: Iterate) -> Verdict | None:
        """After the last round, unless a point that was kept misses its bounds by less than the last one."""
        if state.k < state.rounds:
            return None
        assert iterate.judged is not None
        violation = iterate.judged[0].violation
        if state.k == state.rounds and violation > run.tol[1] and state.missed < violation**2:
            return None
        return Verdict("max_rounds", f"all {state.rounds} rounds are done; {describe_best(run, iterate)}")

    def excuse(self, run: Run, state: Server) -> str:
        return "give it more exchanges, or fewer passes"


def describe_best(run: Run, latest: Iterate) -> str:
    """What a user of a network asks first: do the constraints hold on all rows? Then how stationary it is."""
    assert latest.judged is not None
    found: Certificate = latest.judged[0]
    if run.best.certificate is not None and run.best.certificate.violation <= found.violation:
        found = run.best.certificate
    held = "all constraints hold on all rows"
    if found.violation > run.tol[1]:
        held = f"constraints are violated by up to {found.violation:.2g}"
    return f"{held}, and the point is stationary to {found.stationarity:.2g}: more passes bring it nearer"
