"""A quadratic model plus h as a quadratic program, where h is polyhedral: bounds, the simplex, the l1 norm.

    min_x x'Mx / 2 + q'x + h(x)   =   min_y y'Py / 2 + p'y   s.t.   G y <= g,  A y = b,

y being x, or (x, t) with |x| <= t for the l1 norm. A primal-dual interior-point method (Mehrotra 1992) finds which
bounds and kinks hold; with these the solution is one linear system, and exactly on them. It does not mind a badly
conditioned M, which first-order splittings do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpact.prox import L1, Box, ElasticNet, Prox, Simplex
from fedpact.prox.rescaled import Times
from fedpact.types import Matrix, Vector

#: Iterations at most: thirty are rare.
ITERATIONS = 60
#: The method ends when complementarity is this part of what it was at the start, and residuals are rounding.
ACCURACY = 1e-12
#: Residuals below this, relative to their terms, are rounding.
ROUNDING = 1e-12
#: Part of the way to the boundary that a step goes at most.
FRACTION = 0.995
#: Nothing that must stay positive falls below this.
TINY = 1e-300


@dataclass(frozen=True)
class Program:
    """P, p, G, g, A, b of the module docstring."""

    P: Matrix
    p: Vector
    G: Matrix
    g: Vector
    A: Matrix
    b: Vector


def is_polyhedral(regularizer: Prox) -> bool:
    """Whether `solve_polyhedral` takes it."""
    if isinstance(regularizer, Times):
        return isinstance(regularizer.inner, Simplex)
    return isinstance(regularizer, Box | Simplex | L1 | ElasticNet)


def solve_polyhedral(M: Matrix, q: Vector, regularizer: Prox) -> Vector | None:
    """argmin x'Mx / 2 + q'x + h(x), exactly on its bounds and kinks; None for an h that is not polyhedral."""
    if not is_polyhedral(regularizer):
        return None
    if isinstance(regularizer, Times):
        regularizer = regularizer.inner
    if isinstance(regularizer, ElasticNet):
        ridge = np.diag(np.broadcast_to(regularizer.l2, q.size))
        return solve_polyhedral(M + ridge, q, L1(regularizer.l1))
    program = write_program(M, q, regularizer)
    if program is None:
        return None
    try:
        y, prices = solve_program(program)
        return _polish(M, q, regularizer, y[: q.size], prices, program)
    except np.linalg.LinAlgError:
        return None


def write_program(M: Matrix, q: Vector, regularizer: Prox) -> Program | None:
    """The quadratic program; None for an h that is none of these."""
    d = q.size
    identity = np.eye(d)
    none = np.zeros((0, d))
    if isinstance(regularizer, Box):
        lo = np.broadcast_to(regularizer.lo, d)
        hi = np.broadcast_to(regularizer.hi, d)
        above = np.isfinite(hi)
        below = np.isfinite(lo)
        G = np.vstack([identity[above], -identity[below]])
        return Program(M, q, G, np.concatenate([hi[above], -lo[below]]), none, np.zeros(0))
    if isinstance(regularizer, Simplex):
        return Program(M, q, -identity, np.zeros(d), np.ones((1, d)), np.array([regularizer.total]))
    if isinstance(regularizer, L1):
        weight = np.broadcast_to(regularizer.weight, d)
        P = np.zeros((2 * d, 2 * d))
        P[:d, :d] = M
        G = np.block([[identity, -identity], [-identity, -identity]])
        return Program(P, np.append(q, weight), G, np.zeros(2 * d), np.zeros((0, 2 * d)), np.zeros(0))
    return None


@dataclass
class _Iterate:
    """A point of the method: y, the slack of G y <= g, its multiplier, and that of A y = b."""

    program: Program
    y: Vector
    slack: Vector
    price: Vector
    free: Vector

    @property
    def complementarity(self) -> float:
        return float(self.slack @ self.price) / max(self.slack.size, 1)

    @property
    def dual(self) -> Vector:
        """The slope of the Lagrangian."""
        program = self.program
        return program.P @ self.y + program.p + program.G.T @ self.price + program.A.T @ self.free

    def direction(self, target: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        """Newton's step of y, slack, price and free for slack * price = target."""
        program = self.program
        weight = self.price / self.slack
        centred = target / self.slack - self.price
        primal = program.G @ self.y + self.slack - program.g
        matrix = program.P + (program.G.T * weight) @ program.G
        rows = program.b.size
        left = np.block([[matrix, program.A.T], [program.A, np.zeros((rows, rows))]])
        scale = 1 / np.sqrt(np.maximum(np.diagonal(matrix), TINY))
        scale = np.append(scale, np.ones(rows))
        slope = self.dual + program.G.T @ (weight * primal + centred)
        right = -np.append(slope, program.A @ self.y - program.b)
        found = scale * np.linalg.solve(left * np.outer(scale, scale), scale * right)
        step, free = np.split(found, [self.y.size])
        slack = -primal - program.G @ step
        return step, slack, centred - weight * slack, free

    def advance(self) -> None:
        """Mehrotra's predictor, then the corrected step."""
        mean = self.complementarity
        _, slack, price, _ = self.direction(np.zeros_like(self.slack))
        length = self.longest(slack, price)
        ahead = float((self.slack + length * slack) @ (self.price + length * price)) / max(slack.size, 1)
        shrunk = ahead / mean if mean else 0.0  # no rows that could bind, or all is rounding
        target = mean * min(shrunk**3, 1.0) - length * slack * price
        step, slack, price, free = self.direction(target)
        if not np.all(np.isfinite(step)):
            raise np.linalg.LinAlgError("the step is not finite")
        length = self.longest(slack, price)
        self.y = self.y + length * step
        self.free = self.free + length * free
        self.slack = np.maximum(self.slack + length * slack, TINY)
        self.price = np.maximum(self.price + length * price, TINY)

    def longest(self, slack: Vector, price: Vector) -> float:
        """One length for both steps, so that the residuals shrink together."""
        return min(_longest(self.slack, slack), _longest(self.price, price))


@np.errstate(all="ignore")
def solve_program(program: Program) -> tuple[Vector, Vector]:
    """y, and for each row of G y <= g a number near one where it binds and near zero where it does not."""
    y = np.zeros(program.p.size)
    size = float(np.max(np.abs(program.p), initial=0.0)) or 1.0
    slack = np.maximum(program.g - program.G @ y, 1.0)
    at = _Iterate(program, y, slack, np.full(slack.size, size), np.zeros(program.b.size))
    first = at.complementarity
    for _ in range(ITERATIONS):
        rounding = ROUNDING * (float(np.max(np.abs(program.P) @ np.abs(at.y))) + size)
        if at.complementarity <= ACCURACY * first and np.max(np.abs(at.dual)) <= rounding:
            break
        try:
            at.advance()
        except np.linalg.LinAlgError:  # as near as numbers allow
            break
    return at.y, at.price / (at.slack + at.price)


def _longest(values: Vector, step: Vector) -> float:
    falling = step < 0
    return min(1.0, FRACTION * float(np.min(-values[falling] / step[falling], initial=np.inf)))


def _polish(M: Matrix, q: Vector, regularizer: Prox, x: Vector, binding: Vector, program: Program) -> Vector:
    """The minimiser on the face that the binding rows say: the others are free, these exactly at their bounds."""
    d = q.size
    fixed = np.zeros(d, dtype=bool)
    value = np.zeros(d)
    slope = q.copy()
    if isinstance(regularizer, L1):
        # of |x_j| <= t_j both rows bind at zero, one elsewhere
        fixed = (binding[:d] > 0.5) & (binding[d:] > 0.5)
        slope = q + np.broadcast_to(regularizer.weight, d) * np.sign(x)
    else:
        for row, bound, holds in zip(program.G, program.g, binding > 0.5, strict=True):
            if holds:
                at = int(np.argmax(np.abs(row)))
                fixed[at] = True
                value[at] = bound / row[at]
    free = ~fixed
    found = np.where(fixed, value, x)
    if not free.any():
        return found
    matrix = M[np.ix_(free, free)]
    right = -(slope[free] + M[np.ix_(free, fixed)] @ value[fixed])
    scale = 1 / np.sqrt(np.maximum(np.diagonal(matrix), TINY))
    ends = np.zeros((0, int(free.sum())))
    total = np.zeros(0)
    if isinstance(regularizer, Simplex):
        ends = scale[None, :]
        total = np.array([regularizer.total - float(np.sum(value[fixed]))])
    scaled = matrix * np.outer(scale, scale)
    left = np.block([[scaled, ends.T], [ends, np.zeros((len(total), len(total)))]])
    right = np.concatenate([scale * right, total])
    step = np.linalg.solve(left, right)
    step = step + np.linalg.solve(left, right - left @ step)
    found[free] = scale * step[: scale.size]
    return found
