"""Fair vertical learning in tens of exchanges: an augmented Lagrangian, minimised over all that was sent so far.

    A(theta) = L(theta) + sum_j S_j(lambda_j + beta D_j)^2 / (2 beta),  S_j(t) = sign(t) max(|t| - beta eps_j, 0)

is the augmented Lagrangian of |D_j| <= eps_j with one net price lambda_j a gap (the price of D_j <= eps_j less that of
-D_j <= eps_j): its gradient is that of the Lagrangian at net_j = S_j(lambda_j + beta D_j), which is also the next
lambda_j. In one exchange

    down: r, the slopes of the Lagrangian by score (n numbers), and the last step as coefficients of vectors v_1, ...,
          v_m that the parties hold: the gradients so far
    up:   X_k g_k (n numbers), g_k = X_k' r + grad h_k, and the products of g_k with the party's vectors in the metric
          of h_k; g becomes one more vector

The scores of a combination of vectors are the combination of scores that the coordinator has, and so is h there: A on
theta + span(v_1, ..., v_m) is known to it. So it minimises A there by Newton steps, moves the prices, and does both
again until the constrained problem is solved on that space, without an exchange (a sequential subspace method: Narkiss
and Zibulevsky 2005; for a quadratic A these are conjugate gradients). Everything that comes up is only ever summed; for
the certificate on the way, so are the squares of the largest entries of all g_k, the root of which is no less than the
largest. The last exchange has that itself.

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
from fedpact.solvers.run import Iterate, Run
from fedpact.solvers.vertical.shared import Placed, Reached, VerticalSolver, certificate_of, gradient_of
from fedpact.types import Matrix, Vector

#: Vectors that are kept: of n people the coordinator holds so many times n numbers.
MEMORY = 60
#: Vectors that are combinations of others up to this part of their square are left out.
DEPENDENT = 1e-13
#: The problem on the space of the vectors is solved better than the tolerance by this factor,
CLOSER = 1e-2
#: but not better than rounding allows,
CLOSEST = 1e-13
#: with at most so many Newton steps between two moves of the prices,
NEWTON_STEPS = 30
#: and so many moves between two exchanges.
MOVES = 30
#: beta at the start, relative to one over the mean loss at theta = 0 (losses have a unit, prices have none).
START = 5.0
#: beta grows by this factor
GROWTH = 2.0
#: when more than this part of the miss is left since the prices last moved,
SLOW = 0.25
#: up to this multiple of where it began: on a small space the constraints may be out of reach.
MOST = 1e4

# ---------------------------------------------------------------------------------------------------- the party's half


@dataclass(frozen=True)
class Block(Placed):
    """What a party keeps: its part of the vectors, one a row."""

    vectors: Matrix


@dataclass(frozen=True, kw_only=True)
class Advance(Order):
    """combination: the step, of the vectors; empty: stay"""

    slopes: Vector
    combination: Vector


@dataclass(frozen=True, kw_only=True)
class Advanced(Reply):
    """The gradient after the step, as scores and products."""

    scores: Summed[Vector]  # X_k g_k
    curvatures: Summed[Vector]  # of g_k with all vectors, itself and theta_k, in the metric of h_k
    stationarity: Largest[float]  # of g_k


def survivors(combination: Vector) -> Matrix:
    """What is kept of the vectors once a step was taken, as combinations of them.

    All, while there is room; then the step in the place of the two oldest, so that what they were good for stays.
    """
    everything = np.eye(combination.size)
    if combination.size < MEMORY:
        return everything
    return np.vstack([combination, everything[2:]])


@client_step
def advance(share: Any, state: Block | None, order: Advance) -> tuple[Block, Advanced]:
    """Take the step, and answer with the gradient there."""
    zero = np.zeros(share.size)
    before = state or Block(0, zero, zero, np.zeros((0, share.size)))
    theta = before.theta + order.combination @ before.vectors
    gradient = gradient_of(share, theta, order.slopes)
    vectors = np.vstack([survivors(order.combination) @ before.vectors, gradient])
    return Block(before.number + 1, before.theta, theta, vectors), Advanced(
        scores=share.score(gradient),
        curvatures=np.vstack([vectors, theta]) @ (share.curvature * gradient),
        stationarity=float(np.max(np.abs(gradient), initial=0.0)),
    )


# ---------------------------------------------------------------------------------------------- the coordinator's half


@dataclass
class Space:
    """What the coordinator knows of the parties' vectors, and of theta.

    scores:     of every vector, one a row
    curvatures: products of the vectors in the metric of h
    pull:       their products with theta, likewise; penalty: h(theta)
    """

    scores: Matrix
    curvatures: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    pull: Vector = field(default_factory=lambda: np.zeros(0))
    penalty: float = 0.0

    def take(self, combination: Vector) -> None:
        """theta moves by this combination, as the parties know; some vectors may go."""
        across = self.curvatures @ combination
        self.penalty += float(combination @ (self.pull + 0.5 * across))
        self.pull = self.pull + across
        if combination.size == MEMORY:
            kept = survivors(combination)
            self.scores = kept @ self.scores
            self.curvatures = kept @ self.curvatures @ kept.T
            self.pull = kept @ self.pull

    def add(self, scores: Vector, curvatures: Vector) -> None:
        """One more vector. curvatures: with all vectors, itself and theta"""
        among = curvatures[:-2, None]
        self.scores = np.vstack([self.scores, scores])
        self.curvatures = np.block([[self.curvatures, among], [among.T, curvatures[-2]]])
        self.pull = np.append(self.pull, curvatures[-1])

    def basis(self) -> Matrix:
        """Combinations of the vectors, one a row, that are orthonormal in the metric of mean squared score and h."""
        gram = self.scores @ self.scores.T / self.scores.shape[1] + self.curvatures
        sizes = np.sqrt(np.maximum(np.diag(gram), 1e-300))
        values, directions = np.linalg.eigh(gram / np.outer(sizes, sizes))
        kept = values > DEPENDENT * values[-1]
        return np.asarray((directions[:, kept] / np.sqrt(values[kept])).T / sizes)


@dataclass
class Prices:
    """lambda and beta, and when they move."""

    problem: VerticalProblem
    prices: Vector
    penalty: float
    most: float
    miss: float = np.inf

    def net(self, gaps: Vector) -> Vector:
        """S(lambda + beta D): the net prices at these gaps; a mean with no bound below has no price there."""
        above = np.maximum(self.prices + self.penalty * (gaps - self.problem.max_gap), 0.0)
        below = np.minimum(self.prices + self.penalty * (gaps - self.problem.least), 0.0)
        return np.asarray(above + below)

    def move(self, gaps: Vector, enough: float) -> bool:
        """Update the multipliers; whether they were off by so much that A should be minimised again."""
        net = self.net(gaps)
        miss = float(np.max(np.abs(net - self.prices), initial=0.0)) / self.penalty
        self.prices = net
        if miss > max(SLOW * self.miss, enough):
            self.penalty = min(GROWTH * self.penalty, self.most)
        self.miss = miss
        return miss > enough


@dataclass
class Coordinator:
    """The coordinator's variables; `combination` says how the next point is reached."""

    prices: Prices
    z: Vector
    space: Space
    net: Vector
    own: Block | None = None
    combination: Vector = field(default_factory=lambda: np.zeros(0))
    newton_steps: int = 0
    k: int = 0


@dataclass(frozen=True, kw_only=True)
class VerticalAL(VerticalSolver[Coordinator]):
    """Augmented Lagrangian over the space of all gradients so far: one vector down and one up an iteration."""

    name: ClassVar[str] = "vertical-al"
    needs: ClassVar[Needs] = replace(VerticalSolver.needs, loss_bounds=True, own_losses=True)
    patience: ClassVar[int] = 500
    doubt: ClassVar[int] = 500

    penalty: float | None = option(None, "at the start; by default from the loss", letter="beta", above=0)

    def init(self, run: Run) -> tuple[Coordinator, Iterate]:
        problem: Any = run.problem
        z = np.zeros(problem.scored.length)
        loss = float(np.mean(problem.scored.losses(z)))
        gaps = np.zeros(len(problem.gap_names))
        penalty = self.penalty or START / max(loss, 1e-300)
        prices = Prices(problem, gaps, penalty, MOST * penalty)
        state = Coordinator(prices, z, Space(np.zeros((0, z.size))), gaps)
        return state, self._exchange(run, state, z)

    def step(self, run: Run, state: Coordinator) -> Iterate:
        """Solve the problem on the space of the vectors; then one exchange."""
        accuracy = max(CLOSER * min(run.tol), CLOSEST)
        state.combination, state.newton_steps = solve_within(state.space, state.prices, state.z, accuracy)
        z = state.z + state.combination @ state.space.scores
        state.space.take(state.combination)
        return self._exchange(run, state, z)

    def reached(self, run: Run, state: Coordinator) -> Reached:
        own = np.zeros(state.prices.problem.server.size) if state.own is None else state.own.theta
        return Reached([state.k], state.z, state.net, own)

    def _exchange(self, run: Run, state: Coordinator, z: Vector) -> Iterate:
        """The parties take the step to where the scores are z, and answer with their gradient there."""
        problem = state.prices.problem
        net = state.prices.net(problem.scored.gaps(z))
        order = Advance(slopes=problem.slopes(z, net), combination=state.combination)
        replies = run.ask(advance, order)
        state.own, mine = advance(problem.server, state.own, order)
        state.z = z
        state.net = net
        state.k += 1
        state.space.add(replies.total.scores + mine.scores, replies.total.curvatures + mine.curvatures)
        objective = float(np.mean(problem.scored.losses(z))) + state.space.penalty
        certificate = certificate_of(problem, z, net, [mine.stationarity, replies.total.stationarity])
        return Iterate(
            number=state.k - 1,  # the first order only looks at the start
            w=np.zeros(0),
            multiplier=problem.multiplier(net),
            judged=(certificate, objective),
            inner=state.newton_steps,
            penalty=state.prices.penalty,
            gradients=len(run.owners),
        )


@dataclass
class Within:
    """A on theta + span of the vectors, by coordinates in a basis of it.

    F: scores of the basis, one a row; Q: its products in the metric of h; q: those with theta
    """

    prices: Prices
    F: Matrix
    Q: Matrix
    q: Vector

    def slopes(self, z: Vector) -> Vector:
        """The derivatives of A - h by the scores."""
        scored = self.prices.problem.scored
        return scored.pull(z, self.prices.net(scored.gaps(z)))

    def newton_step(self, z: Vector, gradient: Vector) -> Vector:
        """A descent direction: rows whose loss counts against the sum add no curvature, so that A seems convex."""
        scored = self.prices.problem.scored
        net = self.prices.net(scored.gaps(z))
        steep = self.F @ scored.pulls(z)[net != 0].T
        hessian = scored.curve(self.F, z, np.maximum(scored.weights(net), 0.0)) + self.Q
        hessian += self.prices.penalty * steep @ steep.T
        tiny = np.finfo(np.float64).eps * np.trace(hessian) + 1e-300
        return -np.linalg.solve(hessian + tiny * np.eye(len(hessian)), gradient)

    def minimize(self, z: Vector, at: Vector, accuracy: float) -> tuple[Vector, Vector, int]:
        """Newton's method with exact line search, from scores z and coordinates `at`: where it ends, and its steps."""
        for number in range(NEWTON_STEPS):
            across = self.Q @ at + self.q
            gradient = self.F @ self.slopes(z) + across
            if np.max(np.abs(gradient), initial=0.0) <= accuracy:
                return z, at, number
            step = self.newton_step(z, gradient)
            u = step @ self.F
            falls = float(step @ across)
            bends = float(step @ self.Q @ step)

            def slope(length: float, z: Vector = z, u: Vector = u, falls: float = falls, bends: float = bends) -> float:
                return float(self.slopes(z + length * u) @ u) + falls + length * bends

            if not slope(0.0) < 0:
                return z, at, number  # as good as rounding allows
            length = line_search(slope)
            z = z + length * u
            at = at + length * step
        return z, at, NEWTON_STEPS


def solve_within(space: Space, prices: Prices, z: Vector, accuracy: float) -> tuple[Vector, int]:
    """Solve the constrained problem on the space of the vectors: the step, as their combination, and Newton steps."""
    basis = space.basis()
    within = Within(prices, basis @ space.scores, basis @ space.curvatures @ basis.T, basis @ space.pull)
    at = np.zeros(len(basis))
    steps = 0
    prices.miss = np.inf  # on a larger space it begins anew
    for _ in range(MOVES):
        z, at, more = within.minimize(z, at, accuracy)
        steps += more
        if not prices.move(prices.problem.scored.gaps(z), accuracy):
            break
    return at @ basis, steps


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
