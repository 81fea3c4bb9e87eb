"""A quadratic model plus any simple convex h, solved to high accuracy: semismooth Newton on Douglas-Rachford.

With x = (M + rho)^-1 (rho z - q) and y = prox_{h/rho}(2 x - z), a zero of R(z) = x - y is the minimiser of
x'Mx / 2 + q'x + h(x). R has a generalized Jacobian made of those of the two resolvents, so Newton's method applies
where plain Douglas-Rachford would need thousands of steps; where a Newton step does not pay, plain steps (which never
move away from the solution) are taken. After Xiao, Li, Wen and Zhang (2018), J. Sci. Comput. 76.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpact.functions import Matrix, Vector
from fedpact.prox import Prox
from fedpact.solvers.local.base import Minimum

#: Parts of a Newton step that are tried; the residual must shrink by a tenth of the part.
LENGTHS = (1.0, 0.5, 0.2, 0.05)
#: Plain steps after a Newton step that did not pay, and Newton steps before another rho is tried.
PLAIN, TURNS = 20, 30
#: The rho to try, as multiples of the geometric mean of the eigenvalues.
RHOS = (1.0, 10.0, 0.1, 100.0, 0.01)
DIFFERENCE = 1e-7


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
        return x, self.regularizer.prox(2 * x - z, 1 / self.rho), 2 * x - z

    def newton(self, z: Vector) -> Vector:
        """Newton's step for R(z) = x - y."""
        x, y, v = self.at(z)
        outer = _prox_jacobian(self.regularizer, v, y, 1 / self.rho)
        jacobian = self.resolvent - outer @ (2 * self.resolvent - np.eye(z.size))
        return np.asarray(np.linalg.solve(jacobian + 1e-12 * np.eye(z.size), y - x))

    def residual(self, z: Vector) -> float:
        x, y, _ = self.at(z)
        return float(np.linalg.norm(x - y))

    def after(self, z: Vector) -> Vector:
        """The next z: a Newton step if one pays, else some plain ones."""
        size, direction = self.residual(z), self.newton(z)
        for length in LENGTHS:
            if self.residual(z + length * direction) <= (1 - 0.1 * length) * size:
                return z + length * direction
        for _ in range(PLAIN):
            x, y, _ = self.at(z)
            z = z - (x - y)
        return z


def composite_quadratic(matrix: Matrix, slope: Vector, regularizer: Prox, start: Vector, tolerance: float) -> Minimum:
    """argmin_x (x - start)'M(x - start) / 2 + slope'(x - start) + h(x), M positive definite.

    Stops when the max-norm distance to stationarity is at most tolerance, or at the rounding of M x.
    """
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-300)
    middle = float(np.exp(np.mean(np.log(values))))
    linear = slope - matrix @ start
    best = Minimum(start, np.inf, False, 0)
    steps = 0
    for factor in RHOS:
        rho = factor * middle
        scaled = vectors / (values + rho)
        now = _Splitting(rho, rho * (scaled @ vectors.T), scaled @ (vectors.T @ linear), regularizer)
        z = best.w + (matrix @ best.w + linear) / rho
        for _ in range(TURNS):
            steps += 1
            z = now.after(z)
            y = now.at(z)[1]
            miss = regularizer.subdifferential_distance(-(matrix @ y + linear), y)
            if not np.isfinite(miss):  # a prox that returns NaN does so for every rho
                return best
            if miss < best.residual:
                best = Minimum(y, miss, miss <= tolerance, steps)
            if best.residual <= max(tolerance, 1e-15 * float(np.max(np.abs(matrix) @ np.abs(y) + np.abs(linear)))):
                return best
    return best


def _prox_jacobian(regularizer: Prox, v: Vector, at_v: Vector, step: float) -> Matrix:
    """One-sided differences: exact up to rounding where the prox is piecewise linear, which most are."""
    jacobian = np.empty((v.size, v.size))
    for j in range(v.size):
        moved = v.copy()
        moved[j] += DIFFERENCE * max(1.0, abs(v[j]))
        jacobian[:, j] = (regularizer.prox(moved, step) - at_v) / (moved[j] - v[j])
    return jacobian
