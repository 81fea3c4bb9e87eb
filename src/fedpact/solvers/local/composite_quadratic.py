"""A linear model plus any simple convex h, solved to high accuracy: semismooth Newton on Douglas-Rachford.

With x = (M + rho)^-1 (rho z - q) and y = prox_{h/rho}(2 x - z), a zero of R(z) = x - y solves 0 in M x + q + dh(x): for
a symmetric M the minimiser of x'Mx / 2 + q'x + h(x), for other monotone M (games) its equilibrium. R has a generalized
Jacobian made of those of the two resolvents, so Newton's method applies where plain Douglas-Rachford would need
thousands of steps; where a Newton step does not pay, plain steps (which never move away from the solution) are taken.
After Xiao, Li, Wen and Zhang (2018), J. Sci. Comput. 76.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpact.functions import Matrix, Vector
from fedpact.prox import Prox
from fedpact.solvers.local.base import Minimum
from fedpact.solvers.local.quadratic_program import solve_polyhedral

#: Parts of a Newton step that are tried; the residual must shrink by a tenth of the part.
LENGTHS = (1.0, 0.5, 0.2, 0.05)
#: Plain steps after a Newton step that did not pay.
PLAIN = 20
#: Newton steps before another rho is tried.
TURNS = 30
#: The rho to try, as multiples of the typical size of M.
RHOS = (1.0, 10.0, 0.1, 100.0, 0.01)
#: Relative step of the differences that stand for the Jacobian of a prox.
DIFFERENCE = 1e-7
#: Added to the Jacobian of R, which may be singular where h has kinks.
SHIFT = 1e-12
#: Residuals below this, relative to the terms of M x + q, are rounding.
ROUNDING = 1e-15
#: The same for the quadratic program, whose solution is that of one linear system.
PROGRAM_ROUNDING = 1e-13

#: M counts as symmetric up to this part of its largest entry.
SYMMETRIC = 1e-12


@dataclass(frozen=True)
class _Splitting:
    """The two resolvents for one rho."""

    rho: float
    resolvent: Matrix  # rho (M + rho)^-1
    shift: Vector  # (M + rho)^-1 q
    regularizer: Prox

    def at(self, z: Vector) -> tuple[Vector, Vector, Vector]:
        """x, y and 2 x - z."""
        x = self.resolvent @ z - self.shift
        reflected = 2 * x - z
        y = self.regularizer.prox(reflected, 1 / self.rho)
        return x, y, reflected

    def newton(self, z: Vector) -> Vector:
        """Newton's step for R(z) = x - y."""
        x, y, reflected = self.at(z)
        identity = np.eye(z.size)
        outer = _prox_jacobian(self.regularizer, reflected, y, 1 / self.rho)
        jacobian = self.resolvent - outer @ (2 * self.resolvent - identity)
        return np.asarray(np.linalg.solve(jacobian + SHIFT * identity, y - x))

    def residual(self, z: Vector) -> float:
        x, y, _ = self.at(z)
        return float(np.linalg.norm(x - y))

    def advance(self, z: Vector) -> Vector:
        """The next z: a Newton step if one pays, else some plain ones."""
        size = self.residual(z)
        direction = self.newton(z)
        for length in LENGTHS:
            trial = z + length * direction
            if self.residual(trial) <= (1 - 0.1 * length) * size:
                return trial
        for _ in range(PLAIN):
            x, y, _ = self.at(z)
            z = z - (x - y)
        return z


def composite_quadratic(matrix: Matrix, slope: Vector, regularizer: Prox, start: Vector, tolerance: float) -> Minimum:
    """argmin_x (x - start)'M(x - start) / 2 + slope'(x - start) + h(x), M positive definite.

    Where M is not symmetric: the x with 0 in M (x - start) + slope + dh(x). Stops when the max-norm distance to
    stationarity is at most tolerance, or at the rounding of M x.
    """
    typical = _typical_size(matrix)
    linear = slope - matrix @ start
    best = Minimum(start, np.inf, False, 0)
    steps = 0
    for number, factor in enumerate(RHOS):
        if number == 1:  # the first rho did not do: M is badly conditioned
            best = _program_minimum(matrix, linear, regularizer, tolerance, best)
            if best.converged:
                return best
        rho = factor * typical
        inverse: Matrix = np.linalg.inv(matrix + rho * np.eye(start.size)).astype(np.float64)
        splitting = _Splitting(rho, rho * inverse, inverse @ linear, regularizer)
        z = best.w + (matrix @ best.w + linear) / rho
        for _ in range(TURNS):
            steps += 1
            z = splitting.advance(z)
            _, y, _ = splitting.at(z)
            miss = regularizer.subdifferential_distance(-(matrix @ y + linear), y)
            if not np.isfinite(miss):  # a prox that returns NaN does so for every rho
                return best
            if miss < best.residual:
                best = Minimum(y, miss, miss <= tolerance, steps)
            rounding = ROUNDING * float(np.max(np.abs(matrix) @ np.abs(y) + np.abs(linear)))
            if best.residual <= max(tolerance, rounding):
                return best
    return best


def _program_minimum(matrix: Matrix, linear: Vector, regularizer: Prox, tolerance: float, best: Minimum) -> Minimum:
    """The better of `best` and, where h is polyhedral, the solution of the quadratic program."""
    found = solve_polyhedral(matrix, linear, regularizer)
    if found is None:
        return best
    inside = found
    if not regularizer.contains(found):
        inside = regularizer.prox(found, 1.0)
    miss = regularizer.subdifferential_distance(-(matrix @ inside + linear), inside)
    rounding = PROGRAM_ROUNDING * float(np.max(np.abs(matrix) @ np.abs(inside) + np.abs(linear)))
    if not miss < best.residual:
        return best
    return Minimum(inside, miss, miss <= max(tolerance, rounding), best.gradients)


def _typical_size(matrix: Matrix) -> float:
    """The geometric mean of the eigenvalues; their root mean square where M is not symmetric, as some may vanish."""
    if np.allclose(matrix, matrix.T, rtol=0, atol=SYMMETRIC * np.max(np.abs(matrix))):
        values = np.maximum(np.linalg.eigvalsh(matrix), 1e-300)
        return float(np.exp(np.mean(np.log(values))))
    return float(np.linalg.norm(matrix) / np.sqrt(len(matrix)))


def _prox_jacobian(regularizer: Prox, v: Vector, at_v: Vector, step: float) -> Matrix:
    """One-sided differences: exact up to rounding where the prox is piecewise linear, which most are."""
    jacobian = np.empty((v.size, v.size))
    for j in range(v.size):
        moved = v.copy()
        moved[j] += DIFFERENCE * max(1.0, abs(v[j]))
        jacobian[:, j] = (regularizer.prox(moved, step) - at_v) / (moved[j] - v[j])
    return jacobian
