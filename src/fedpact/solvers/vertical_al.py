"""Fair vertical learning in tens of exchanges: an augmented Lagrangian whose L-BFGS steps are found at the coordinator.

    A(theta) = L(theta) + sum_j S_j(lambda_j + beta D_j)^2 / (2 beta),  S_j(t) = sign(t) max(|t| - beta eps_j, 0)

is the augmented Lagrangian of |D_j| <= eps_j with one net price lambda_j a gap (the price of D_j <= eps_j less that of
-D_j <= eps_j): its gradient is that of the Lagrangian at net_j = S_j(lambda_j + beta D_j), which is also the next
lambda_j. In one exchange

    down: r = weights(net) * l'(z) (n numbers), and the last step as coefficients of vectors that the parties hold
    up:   X_k g_k (n numbers), g_k = X_k' r + grad h_k, and inner products of the party's vectors

are enough for a whole iteration: directions are combinations of earlier steps, changes of gradients and the gradient
(Chen, Wang and Zhou 2014), so their scores are combinations of scores the coordinator has, and the line search along
them costs no exchange. Everything that comes up is only ever summed. What leaves a party alone is one number, the
largest entry of g_k, for the certificate.

Notation
    theta_k  coefficients of party k, which stay there          theta
    z        scores of all people                               scores
    lambda   net prices                                         prices
    beta     penalty                                            penalty
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from fedpact.federation import Order, Reply, Summed, client_step
from fedpact.functions import Vector
from fedpact.problem import VerticalProblem
from fedpact.solvers.endings import Lowest, Verdict, interrupted, out_of_rounds
from fedpact.solvers.run import MARGIN, Best, Run
from fedpact.solvers.solution import Solution
from fedpact.solvers.vertical import finished, judged, solved

#: Pairs of steps and changes that are kept.
MEMORY = 20
#: beta at the start, relative to one over the mean loss at theta = 0 (losses have a unit, prices have none).
START = 5.0
#: Prices move when the gradient has fallen by ENOUGH since they last did, after at least FEWEST and at most MOST steps.
ENOUGH, FEWEST, MOST = 0.3, 3, 15
#: beta grows by GROWTH when the violation has not fallen by SLOW since the prices last moved.
GROWTH, SLOW = 2.0, 0.25
#: Exchanges in which the certificate does not halve before giving up.
STAGNATION = 500
#: Exchanges kept back for the end.
RESERVE = 3
STALLED = (
    "no progress in {} exchanges; a gap that cannot be this small, or columns of very different sizes: try a larger "
    "max_gap, or standardize=True"
)

# ---------------------------------------------------------------------------------------------------- the party's half


@dataclass(frozen=True)
class Block:
    """A party's theta, its gradient there, and its part of the last steps and changes of the gradient, one a row.

    number, before: how many orders it has obeyed, and theta before the last of them
    """

    number: int
    before: Vector
    theta: Vector
    gradient: Vector
    steps: Vector
    changes: Vector

    @property
    def vectors(self) -> Vector:
        """What directions and inner products are made of, one a row: steps, changes, gradient, theta."""
        return np.vstack([self.steps, self.changes, self.gradient, self.theta])


@dataclass(frozen=True, kw_only=True)
class Advance(Order):
    """combination: the step, of steps, changes and the gradient; empty: stay. keep: remember it as a pair?"""

    slopes: Vector
    combination: Vector
    keep: bool


@dataclass(frozen=True, kw_only=True)
class Advanced(Reply):
    scores: Summed[Vector]  # X_k g_k
    products: Summed[Vector]  # of all vectors
    curvatures: Summed[Vector]  # of all vectors, in the metric of h_k
    stationarity: float


@client_step
def advance(share: Any, state: Block | None, order: Advance) -> tuple[Block, Advanced]:
    """Take the step, and answer with the gradient there."""
    X = share.X
    none = np.zeros((0, X.shape[1]))
    zero = np.zeros(X.shape[1])
    before = state or Block(0, zero, zero, zero, none, none)
    step = order.combination @ before.vectors[:-1] if order.combination.size else zero
    theta = before.theta + step
    gradient = X.T @ order.slopes + share.curvature * theta
    steps, changes = before.steps, before.changes
    if order.keep:
        steps = np.vstack([steps, step])[-MEMORY:]
        changes = np.vstack([changes, gradient - before.gradient])[-MEMORY:]
    after = Block(before.number + 1, before.theta, theta, gradient, steps, changes)
    vectors = after.vectors
    return after, Advanced(
        scores=X @ gradient,
        products=vectors @ vectors.T,
        curvatures=vectors * share.curvature @ vectors.T,
        stationarity=float(np.max(np.abs(gradient), initial=0.0)),
    )


# ---------------------------------------------------------------------------------------------- the coordinator's half


@dataclass
class Memory:
    """The scores of the parties' vectors: what X times a combination of them is."""

    steps: Vector
    changes: Vector
    gradient: Vector

    def of(self, combination: Vector) -> Vector:
        return np.asarray(combination @ np.vstack([self.steps, self.changes, self.gradient]))

    def receive(self, gradient: Vector, step: Vector | None) -> None:
        """A new gradient's scores; with a step, the pair was kept."""
        if step is not None:
            self.steps = np.vstack([self.steps, step])[-MEMORY:]
            self.changes = np.vstack([self.changes, gradient - self.gradient])[-MEMORY:]
        self.gradient = gradient


def direction(products: Vector) -> Vector:
    """Minus the L-BFGS inverse Hessian times the gradient, as coefficients of [steps, changes, gradient].

    products: of [steps, changes, gradient, theta]. The two loops of Nocedal (1980), on coefficients; pairs along which
    A is not convex are left out.
    """
    kept = (len(products) - 2) // 2
    among, diagonal = products[:-1, :-1], np.diag(products)
    pairs = [
        (j, kept + j) for j in range(kept) if among[j, kept + j] > 1e-12 * np.sqrt(diagonal[j] * diagonal[kept + j]) > 0
    ]
    found = np.zeros(2 * kept + 1)
    found[-1] = -1.0
    first = {}
    for step, change in reversed(pairs):
        first[step] = among[step] @ found / among[step, change]
        found[change] -= first[step]
    if pairs:
        step, change = pairs[-1]
        found *= among[step, change] / among[change, change]
    for step, change in pairs:
        found[step] += first[step] - among[change] @ found / among[step, change]
    return found


def line_search(slope: Callable[[float], float]) -> float:
    """Where the derivative along a descent direction first comes up to zero; where it does not, the last length."""
    low, high = 0.0, 1.0
    for _ in range(40):
        if slope(high) >= 0:
            return float(brentq(slope, low, high, xtol=1e-12, rtol=1e-10, maxiter=60))
        low, high = high, 4.0 * high
    return low


@dataclass
class Prices:
    """lambda and beta, and when they move."""

    problem: VerticalProblem
    prices: Vector
    penalty: float
    count: int = 0
    stationarity: float = np.inf
    violation: float = np.inf

    def net(self, gaps: Vector) -> Vector:
        shifted = self.prices + self.penalty * gaps
        return np.sign(shifted) * np.maximum(np.abs(shifted) - self.penalty * self.problem.max_gap, 0.0)

    def move(self, gaps: Vector, stationarity: float, tol: tuple[float, float]) -> bool:
        """Take the net prices of this point for lambda when it is good enough; has A changed?"""
        self.count += 1
        if self.stationarity == np.inf:
            self.stationarity = stationarity
        settled = stationarity <= max(ENOUGH * self.stationarity, 0.3 * tol[0]) and self.count >= FEWEST
        if not len(self.prices) or not (settled or self.count >= MOST):
            return False
        violation = float(np.max(np.maximum(np.abs(gaps) - self.problem.max_gap, 0.0)))
        self.prices = self.net(gaps)
        if violation > max(SLOW * self.violation, MARGIN * tol[1]):
            self.penalty *= GROWTH
        self.count, self.stationarity, self.violation = 0, stationarity, violation
        return True


@dataclass
class Reached:
    """The last point that was judged: how many orders led to it, the coordinator's own block there, its certificate."""

    number: int = 0
    own: Block | None = None
    best: Best | None = None


def vertical_al(run: Run, *, penalty: float | None = None, reveal: bool = True) -> Solution:
    """Augmented Lagrangian and L-BFGS.

    penalty (beta) at the start; by default from the loss. reveal: does the answer hold the parties' coefficients? If
    not, each party has its own only (`VerticalProblem(keep=...)`).
    """
    problem: Any = run.problem
    run.new_best()
    reached = Reached()
    loss = float(np.mean(problem.scored.losses(np.zeros(problem.scored.y.size))))
    state = Prices(problem, np.zeros(len(problem.gap_names)), penalty or START / max(loss, 1e-300))
    try:
        end = _iterate(run, problem, state, reached)
    except KeyboardInterrupt:
        if reached.own is None:  # stopped before anything was known
            raise
        end = interrupted(run)
    assert reached.own is not None
    assert reached.best is not None
    return finished(run, problem, reached.best, [reached.number], reached.own.theta, end, reveal)


def _iterate(run: Run, problem: VerticalProblem, state: Prices, reached: Reached) -> Verdict:
    """One exchange a step, until the certificate, the limit or patience ends it."""
    scored, server, fleet = problem.scored, problem.server, run.fleet
    z = np.zeros(scored.y.size)
    none = np.zeros((0, z.size))
    memory = Memory(none, none, z)
    own: Block | None = None
    combination, step, keep = np.zeros(0), None, False
    lowest = Lowest(0.5)
    for k in range(1, run.max_rounds):
        z = z if step is None else z + step
        net = state.net(scored.gaps(z))
        order = Advance(slopes=scored.weights(net) * scored.slopes(z), combination=combination, keep=keep)
        replies = fleet.ask(advance, order)
        own, mine = advance(server, own, order)
        memory.receive(replies.total.scores + mine.scores, step if keep else None)
        products = replies.total.products + mine.products
        curvatures = replies.total.curvatures + mine.curvatures
        objective = float(np.mean(scored.losses(z)) + 0.5 * curvatures[-1, -1])
        slopes = [mine.stationarity, *(r.stationarity for r in replies)]
        reached.number = k
        reached.own = own
        reached.best = judged(run, problem, k, z, net, slopes, objective)
        certificate = reached.best.judged
        run.record(
            k,
            certificate,
            objective,
            inner_rounds=state.count,
            penalty=state.penalty,
            consensus_penalty=0.0,
            gradients=len(fleet.owners),
            hessians=0,
        )
        run.report(k, state.count, reached.best)
        if certificate.meets((run.tol[0], MARGIN * run.tol[1])):
            return solved(problem, z, 0.5 * float(curvatures[-1, -1]), max(certificate.violation, run.tol[1]))
        miss = max(certificate.stationarity / run.tol[0], certificate.feasibility / run.tol[1])
        lowest.see(k, miss)
        if lowest.idle(k) >= STAGNATION:
            return Verdict("stalled", STALLED.format(STAGNATION))
        if run.rounds_left <= RESERVE:
            break
        changed = state.move(scored.gaps(z), certificate.stationarity, run.tol)
        combination, length = _step(state, z, memory, products, curvatures)
        combination = length * combination
        step = memory.of(combination)
        keep = not changed and length > 0  # a pair is of one function; prices that moved make it another
    return out_of_rounds(run)


def _step(state: Prices, z: Vector, memory: Memory, products: Vector, curvatures: Vector) -> tuple[Vector, float]:
    """A descent direction of A and how far to go along it."""
    scored = state.problem.scored
    newton = direction(products)
    for combination in (newton, np.append(np.zeros(newton.size - 1), -1.0)):
        u = memory.of(combination)
        across = float(combination @ curvatures[:-1, -1])
        along = float(combination @ curvatures[:-1, :-1] @ combination)

        def slope(length: float, u: Vector = u, across: float = across, along: float = along) -> float:
            ahead = z + length * u
            weights = scored.weights(state.net(scored.gaps(ahead)))
            return float(weights * scored.slopes(ahead) @ u + across + length * along)

        if slope(0.0) < 0:
            return combination, line_search(slope)
    return newton, 0.0
