"""The interior of symmetric cones, as a primal-dual interior-point method needs it.

With the Nesterov-Todd scaling W of a pair s, z in the interior (W z = W^-1 s), the linearized complementarity reads

    dz = tau s^-1 - z - D ds,   D = W^-2,

the same formula for numbers (D = z / s), second-order cones and matrices; s^-1 is the inverse of the Jordan algebra.
References: Nesterov and Todd (1997); Vandenberghe (2010), "The CVXOPT linear and quadratic cone program solvers".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from scipy.linalg import block_diag

from fedpact.cones import PSD, Cone, Nonnegative, Product, SecondOrder, Zero, smat, svec
from fedpact.functions import Matrix, Vector


class Orthant:
    """The positive orthant, and what the other kinds of rows share with it."""

    #: Do the rows have a slack? Equalities have none, and their multipliers are free.
    bound = True

    def __init__(self, cone: Cone) -> None:
        self.cone, self.dim, self.degree = cone, cone.dim, cone.dim

    @property
    def bounds(self) -> Vector:
        """1 for every row with a slack, 0 for an equality."""
        return np.full(self.dim, float(self.bound))

    def inside(self, v: Vector, room: Vector) -> Vector:
        """A point inside the cone: v where it is, else as far inside as v is outside, at least by `room`."""
        return np.maximum(np.abs(v), room)

    def unit(self) -> Vector:
        return np.ones(self.dim)

    def inverse(self, s: Vector) -> Vector:
        return 1 / s

    def scaling(self, s: Vector, z: Vector) -> Matrix:
        """D, as a diagonal (length dim) or a matrix."""
        return z / s

    def longest_step(self, s: Vector, ds: Vector) -> float:
        """The largest t for which s + t ds lies in the cone; inf when there is none."""
        shrinking = ds < 0
        return float(np.min(-s[shrinking] / ds[shrinking], initial=np.inf))

    def sensitivity(self, jacobian: Matrix) -> Vector:
        """theta: what a change of c is worth in multipliers, 1 / slope; one number where a cone ties rows together."""
        return _reciprocal(np.max(np.abs(jacobian), axis=1, initial=0.0))

    def cleaned(self, multiplier: Vector, value: Vector, jacobian: Matrix) -> Vector:
        """P_{K*}(z + theta c): z where the constraint binds, and exactly zero where it does not.

        A barrier's multipliers are never zero, and the certificate rightly asks c_j = 0 of every positive one. Zeroing
        z_j adds |J_j| z_j to the stationarity and removes |c_j| from the feasibility: theta = 1 / |J_j| takes the less.
        """
        shifted = multiplier + self.sensitivity(jacobian) * value
        return np.where(shifted > 0, np.maximum(multiplier, 0.0), 0.0)

    def projected(self, v: Vector) -> tuple[Vector, Matrix]:
        """P_{K*}(v) and an element of its generalized Jacobian (a diagonal, or a matrix)."""
        return self.cone.project_dual(v), self.cone.project_dual_jacobian(v)


class Tied(Orthant, ABC):
    """Rows that only together have a meaning."""

    @abstractmethod
    def depth(self, v: Vector) -> float:
        """How far inside v is: the smallest eigenvalue of the Jordan algebra."""

    def inside(self, v: Vector, room: Vector) -> Vector:
        depth, least = self.depth(v), float(np.max(room))
        return v + (max(abs(depth), least) - depth) * self.unit()

    def sensitivity(self, jacobian: Matrix) -> Vector:
        return np.full(self.dim, _reciprocal(np.max(np.abs(jacobian), initial=0.0)))

    def cleaned(self, multiplier: Vector, value: Vector, jacobian: Matrix) -> Vector:
        return self.cone.project_dual(multiplier + self.sensitivity(jacobian) * value)


class Equalities(Orthant):
    """No slack (degree 0): nothing to keep inside."""

    bound = False

    def __init__(self, cone: Cone) -> None:
        super().__init__(cone)
        self.degree = 0

    def inside(self, v: Vector, room: Vector) -> Vector:
        return np.zeros(self.dim)

    def unit(self) -> Vector:
        return np.zeros(self.dim)

    def inverse(self, s: Vector) -> Vector:
        return np.zeros(self.dim)

    def scaling(self, s: Vector, z: Vector) -> Matrix:
        return np.zeros(self.dim)

    def longest_step(self, s: Vector, ds: Vector) -> float:
        return np.inf

    def cleaned(self, multiplier: Vector, value: Vector, jacobian: Matrix) -> Vector:
        return multiplier


class Lorentz(Tied):
    """{(t, x) : |x| <= t}, with det(t, x) = t^2 - |x|^2 and inverse (t, -x) / det."""

    def __init__(self, cone: SecondOrder) -> None:
        super().__init__(cone)
        self.degree = 1

    def depth(self, v: Vector) -> float:
        return float(v[0] - np.linalg.norm(v[1:]))

    def unit(self) -> Vector:
        return np.asarray(np.eye(1, self.dim)[0])

    def inverse(self, s: Vector) -> Vector:
        return np.asarray(_reflected(s) / _det(s))

    def scaling(self, s: Vector, z: Vector) -> Matrix:
        # for s, z of determinant 1: W^-2 = 2 v v' - diag(1, -1, ...) with v = (z + reflected s) / |.|
        size_s, size_z = np.sqrt(_det(s)), np.sqrt(_det(z))
        s, z = s / size_s, z / size_z
        v = (z + _reflected(s)) / np.sqrt(2 * (1 + float(s @ z)))
        return np.asarray((2 * np.outer(v, v) - np.diag(_reflected(np.ones(self.dim)))) * (size_z / size_s))

    def longest_step(self, s: Vector, ds: Vector) -> float:
        # det(s + t ds) = a t^2 + 2 b t + c: its smallest positive root, if it has one
        a, b, c = _det(ds), float(s[0] * ds[0] - s[1:] @ ds[1:]), _det(s)
        if a > 0 and b >= 0:  # ds points into the cone
            return np.inf
        bottom = np.sqrt(max(b * b - a * c, 0.0)) - b
        return float(c / bottom) if bottom > 0 else np.inf


class Semidefinite(Tied):
    """svec of positive definite matrices; W^-1 = R R' with R = L_s^-T V sqrt(sigma), from L_z' L_s = U sigma V'."""

    def __init__(self, cone: PSD) -> None:
        super().__init__(cone)
        self.degree = cone.order

    def depth(self, v: Vector) -> float:
        return float(np.linalg.eigvalsh(smat(v))[0])

    def unit(self) -> Vector:
        return svec(np.eye(self.degree))

    def inverse(self, s: Vector) -> Vector:
        return svec(np.asarray(np.linalg.inv(smat(s)), dtype=np.float64))

    def scaling(self, s: Vector, z: Vector) -> Matrix:
        lower_s, lower_z = np.linalg.cholesky(smat(s)), np.linalg.cholesky(smat(z))
        _, values, right = np.linalg.svd(lower_z.T @ lower_s)
        root = np.linalg.solve(lower_s.T, right.T * np.sqrt(values))
        inverse = root @ root.T
        return np.array([svec(inverse @ smat(e) @ inverse) for e in np.eye(self.dim)])

    def longest_step(self, s: Vector, ds: Vector) -> float:
        lower = np.linalg.cholesky(smat(s))
        half = np.linalg.solve(lower, smat(ds))
        lowest = float(np.linalg.eigvalsh(np.linalg.solve(lower, half.T))[0])
        return -1 / lowest if lowest < 0 else np.inf


class Rows:
    """All rows of a holder: blocks of the kinds above, none of them when it has no constraint."""

    def __init__(self, blocks: Sequence[Orthant]) -> None:
        self.blocks = blocks
        self.dim, self.degree = sum(b.dim for b in blocks), sum(b.degree for b in blocks)
        self.bounds = _joined([b.bounds for b in blocks])
        self._slices = [
            slice(end - b.dim, end) for b, end in zip(blocks, accumulate(b.dim for b in blocks), strict=True)
        ]

    def inside(self, v: Vector, room: Vector) -> Vector:
        return _joined([b.inside(v[at], room[at]) for b, at in self._each])

    def unit(self) -> Vector:
        return _joined([b.unit() for b in self.blocks])

    def inverse(self, s: Vector) -> Vector:
        return _joined([b.inverse(s[at]) for b, at in self._each])

    def scaling(self, s: Vector, z: Vector) -> Matrix:
        return _diagonal([b.scaling(s[at], z[at]) for b, at in self._each])

    def longest_step(self, s: Vector, ds: Vector) -> float:
        return min((b.longest_step(s[at], ds[at]) for b, at in self._each), default=np.inf)

    def sensitivity(self, jacobian: Matrix) -> Vector:
        return _joined([b.sensitivity(jacobian[at]) for b, at in self._each])

    def cleaned(self, multiplier: Vector, value: Vector, jacobian: Matrix) -> Vector:
        return _joined([b.cleaned(multiplier[at], value[at], jacobian[at]) for b, at in self._each])

    def projected(self, v: Vector) -> tuple[Vector, Matrix]:
        found = [b.projected(v[at]) for b, at in self._each]
        return _joined([p for p, _ in found]), _diagonal([derivative for _, derivative in found])

    @property
    def _each(self) -> zip[tuple[Orthant, slice]]:
        return zip(self.blocks, self._slices, strict=True)


def rows_of(*cones: Cone | None) -> Rows | None:
    """The rows of constraints in these cones (None: no rows); None when one of the cones is not symmetric."""
    blocks: list[Orthant] = []
    for cone in cones:
        if isinstance(cone, Product):
            inner = rows_of(*cone.cones)
            if inner is None:
                return None
            blocks += inner.blocks
        elif isinstance(cone, Zero):
            blocks.append(Equalities(cone))
        elif isinstance(cone, Nonnegative):
            blocks.append(Orthant(cone))
        elif isinstance(cone, SecondOrder):
            blocks.append(Lorentz(cone))
        elif isinstance(cone, PSD):
            blocks.append(Semidefinite(cone))
        elif cone is not None:
            return None
    return Rows(blocks)


def _joined(parts: Sequence[Vector]) -> Vector:
    return np.concatenate([np.zeros(0), *parts])


def _diagonal(parts: Sequence[Matrix]) -> Matrix:
    if all(part.ndim == 1 for part in parts):
        return _joined(parts)
    return np.asarray(block_diag(*(np.diag(part) if part.ndim == 1 else part for part in parts)))


def _reciprocal(slopes: Vector) -> Vector:
    return 1 / np.where(slopes > 0, slopes, 1.0)


def _det(v: Vector) -> float:
    length = float(np.linalg.norm(v[1:]))
    return float((v[0] - length) * (v[0] + length))


def _reflected(v: Vector) -> Vector:
    return np.concatenate([v[:1], -v[1:]])
