"""Fair vertical learning in tens of exchanges: an augmented Lagrangian whose L-BFGS steps are found at the coordinator.

    A(theta) = L(theta) + sum_j S_j(lambda_j + beta D_j)^2 / (2 beta),  S_j(t) = sign(t) max(|t| - beta eps_j, 0)

is the augmented Lagrangian of |D_j| <= eps_j with one net price lambda_j a gap (the price of D_j <= eps_j less that of
-D_j <= eps_j): its gradient is that of the Lagrangian at net_j = S_j(lambda_j + beta D_j), which is also the next
lambda_j. In one exchange

    down: r = weights(net) * l'(z) (n numbers), and the last step as coefficients of vectors that the parties hold
    up:   X_k g_k (n numbers), g_k = X_k' r + grad h_k, and inner products of the party's vectors

are enough for a whole iteration: directions are combinations of earlier steps, changes of gradients and the gradient
(Chen, Wang and Zhou 2014), so their scores are combinations of scores the coordinator has, and the line search along
them costs no exchange. Everything that comes up is only ever summed; for the certificate on the way, so are the squares
of the largest entries of all g_k, the root of which is no less than the largest. The last exchange has that itself.

Notation
    theta_k  coefficients of party k, which stay there          theta
    z        scores of all people                               scores
    lambda   net prices                                         prices
    beta     penalty                                            penalty
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from fedpact.federation import Largest, Order, Reply, Summed, client_step
from fedpact.problem import VerticalProblem
from fedpact.solvers.base import Needs, option
from fedpact.solvers.run import MARGIN, Iterate, Run
from fedpact.solvers.vertical.shared import Placed, Reached, VerticalSolver, certificate_of, gradient_of
from fedpact.types import Vector

#: Pairs of steps and changes that are kept.
MEMORY = 20
#: beta at the start, relative to one over the mean loss at theta = 0 (losses have a unit, prices have none).
START = 5.0
#: Prices move when the gradient has come down to this part of what it was when they last did,
ENOUGH = 0.3
#: after at least so many steps,
FEWEST = 3
#: and after so many in any case.
MOST = 15
#: beta grows by this factor
GROWTH = 2.0
#: when more than this part of the violation is left since the prices last moved.
SLOW = 0.25
#: A pair of step and change whose cosine is below this has no curvature that could be trusted.
STRAIGHT = 1e-12

# ---------------------------------------------------------------------------------------------------- the party's half


@dataclass(frozen=True)
class Block(Placed):
    """What a party keeps: its gradient at theta, and its part of the last steps and changes of it, one a row."""

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
    """The gradient after the step, as scores and inner products."""

    scores: Summed[Vector]  # X_k g_k
    products: Summed[Vector]  # of all vectors
    curvatures: Summed[Vector]  # of all vectors, in the metric of h_k
    stationarity: Largest[float]  # of g_k


@client_step
def advance(share: Any, state: Block | None, order: Advance) -> tuple[Block, Advanced]:
    """Take the step, and answer with the gradient there."""
    X = share.X
    none = np.zeros((0, X.shape[1]))
    zero = np.zeros(X.shape[1])
    before = state or Block(0, zero, zero, zero, none, none)
    step = zero
    if order.combination.size:
        step = order.combination @ before.vectors[:-1]
    theta = before.theta + step
    gradient = gradient_of(share, theta, order.slopes)
    steps = before.steps
    changes = before.changes
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
        """The scores of a combination of steps, changes and the gradient."""
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
    among = products[:-1, :-1]
    squares = np.diag(products)
    every = [(j, kept + j) for j in range(kept)]
    pairs = [(s, y) for s, y in every if among[s, y] > STRAIGHT * np.sqrt(squares[s] * squares[y]) > 0]
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
    low = 0.0
    high = 1.0
    for _ in range(40):
        if slope(high) >= 0:
            return float(brentq(slope, low, high, xtol=1e-12, rtol=1e-10, maxiter=60))
        low = high
        high *= 4.0
    return low


@dataclass
class Prices:
    """lambda and beta, and when they move."""

    problem: VerticalProblem
    prices: Vector
    penalty: float
    count: int = 0
    slope: float = np.inf
    violation: float = np.inf

    def net(self, gaps: Vector) -> Vector:
        """S(lambda + beta D): the net prices at these gaps; a mean with no bound below has no price there."""
        above = np.maximum(self.prices + self.penalty * (gaps - self.problem.max_gap), 0.0)
        below = np.minimum(self.prices + self.penalty * (gaps - self.problem.least), 0.0)
        return np.asarray(above + below)

    def move(self, gaps: Vector, slope: float, tol: tuple[float, float]) -> bool:
        """Update the multipliers once the subproblem is accurate enough. Returns True if they changed.

        slope: norm of the gradient, a sum over the parties, so that it does not matter who has which columns
        """
        self.count += 1
        if self.slope == np.inf:
            self.slope = slope
        accurate = slope <= max(ENOUGH * self.slope, 0.3 * tol[0])
        due = (accurate and self.count >= FEWEST) or self.count >= MOST
        if not len(self.prices) or not due:
            return False
        excess = np.maximum(gaps - self.problem.max_gap, self.problem.least - gaps)
        violation = float(np.max(np.maximum(excess, 0.0)))
        self.prices = self.net(gaps)
        if violation > max(SLOW * self.violation, MARGIN * tol[1]):
            self.penalty *= GROWTH
        self.count = 0
        self.slope = slope
        self.violation = violation
        return True


@dataclass
class Coordinator:
    """The coordinator's variables; `combination`, `step` and `keep` say how the next point is reached."""

    prices: Prices
    z: Vector
    memory: Memory
    net: Vector
    own: Block | None = None
    products: Vector | None = None
    curvatures: Vector | None = None
    combination: Vector = field(default_factory=lambda: np.zeros(0))
    step: Vector | None = None
    keep: bool = False
    k: int = 0


@dataclass(frozen=True, kw_only=True)
class VerticalAL(VerticalSolver[Coordinator]):
    """Augmented Lagrangian with L-BFGS formed from inner products: one vector down and one up an iteration."""

    name: ClassVar[str] = "vertical-al"
    needs: ClassVar[Needs] = replace(VerticalSolver.needs, loss_bounds=True, own_losses=True)
    patience: ClassVar[int] = 500
    doubt: ClassVar[int] = 500

    penalty: float | None = option(None, "at the start; by default from the loss", letter="beta", above=0)

    def init(self, run: Run) -> tuple[Coordinator, Iterate]:
        problem: Any = run.problem
        scored = problem.scored
        z = np.zeros(scored.y.size)
        loss = float(np.mean(scored.losses(z)))
        gaps = np.zeros(len(problem.gap_names))
        prices = Prices(problem, gaps, self.penalty or START / max(loss, 1e-300))
        none = np.zeros((0, z.size))
        state = Coordinator(prices, z, Memory(none, none, z), gaps)
        return state, self._exchange(run, state, z)

    def step(self, run: Run, state: Coordinator) -> Iterate:
        """A step along the L-BFGS direction, as far as the line search says; then one exchange."""
        assert state.products is not None
        assert state.curvatures is not None
        gaps = state.prices.problem.scored.gaps(state.z)
        slope = float(np.sqrt(max(state.products[-2, -2], 0.0)))  # of steps, changes, gradient, theta
        changed = state.prices.move(gaps, slope, run.tol)
        combination, length = find_step(state.prices, state.z, state.memory, state.products, state.curvatures)
        state.combination = length * combination
        state.step = state.memory.of(state.combination)
        state.keep = not changed and length > 0  # a pair is of one function; prices that moved make it another
        return self._exchange(run, state, state.z + state.step)

    def reached(self, run: Run, state: Coordinator) -> Reached:
        own = np.zeros(state.prices.problem.server.width) if state.own is None else state.own.theta
        return Reached([state.k], state.z, state.net, own)

    def _exchange(self, run: Run, state: Coordinator, z: Vector) -> Iterate:
        """The parties take the step to where the scores are z, and answer with their gradient there."""
        problem = state.prices.problem
        scored = problem.scored
        net = state.prices.net(scored.gaps(z))
        slopes = problem.slopes(z, net)
        order = Advance(slopes=slopes, combination=state.combination, keep=state.keep)
        replies = run.ask(advance, order)
        state.own, mine = advance(problem.server, state.own, order)
        state.z = z
        state.net = net
        state.k += 1
        kept = state.step if state.keep else None
        state.memory.receive(replies.total.scores + mine.scores, kept)
        state.products = replies.total.products + mine.products
        state.curvatures = replies.total.curvatures + mine.curvatures
        objective = float(np.mean(scored.losses(z)) + 0.5 * state.curvatures[-1, -1])
        each = [mine.stationarity, replies.total.stationarity]
        certificate = certificate_of(problem, z, net, each)
        return Iterate(
            number=state.k - 1,  # the first order only looks at the start
            w=np.zeros(0),
            multiplier=problem.multiplier(net),
            judged=(certificate, objective),
            inner=state.prices.count,
            penalty=state.prices.penalty,
            gradients=len(run.owners),
        )


def find_step(state: Prices, z: Vector, memory: Memory, products: Vector, curvatures: Vector) -> tuple[Vector, float]:
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
