"""The cone of positive semidefinite matrices, in coordinates that keep the inner product."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedpact.cones.base import Cone, positive_int, shift_inside
from fedpact.cones.max_norm import ROUNDING, max_norm, ray_distance
from fedpact.cones.nonnegative import Nonnegative
from fedpact.errors import ProblemError
from fedpact.types import Matrix, Vector

# The max-norm distance from a face.
#: An upper bound that exceeds it by less than this part is taken for it.
GAP = 1e-7
#: A step aims at this part of the complementarity,
AIM = 0.1
#: and goes this part of the way to the boundary at most.
FRACTION = 0.95
#: Steps at most; a dozen are usual.
STEPS = 50


def svec(matrix: Matrix) -> Vector:
    """A symmetric k x k matrix as a vector of length k(k+1)/2 with <A, B> = <svec(A), svec(B)>.

    The lower triangle column by column, off-diagonal entries times sqrt(2); the upper triangle is not read.
    ProblemError unless the matrix is square.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ProblemError(f"svec: the matrix must be k x k, found shape {matrix.shape}", code="FP-PROBLEM-194")
    rows, columns, weights = _lower(len(matrix))
    return matrix[rows, columns] * weights


def smat(vector: Vector) -> Matrix:
    """The symmetric matrix whose svec is the vector. ProblemError unless the length is k(k+1)/2."""
    order = (math.isqrt(8 * vector.size + 1) - 1) // 2
    if vector.ndim != 1 or order < 1 or order * (order + 1) // 2 != vector.size:
        raise ProblemError(
            f"smat: the vector must have length k(k+1)/2 (1, 3, 6, 10, ...), found shape {vector.shape}",
            code="FP-PROBLEM-195",
        )
    rows, columns, weights = _lower(order)
    entries = vector / weights
    matrix = np.empty((order, order))
    matrix[rows, columns] = entries
    matrix[columns, rows] = entries
    return matrix


@lru_cache(maxsize=64)
def _lower(order: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Vector]:
    """Row and column indices of the lower triangle, column by column, and the weights of its entries in `svec`."""
    columns, rows = np.triu_indices(order)
    return rows, columns, np.where(rows == columns, 1.0, np.sqrt(2.0))


@lru_cache(maxsize=16)
def _units(order: int) -> NDArray[np.float64]:
    """The matrices whose svec are the unit vectors, one after the other."""
    return np.array([smat(unit) for unit in np.eye(order * (order + 1) // 2)])


def _congruence(left: Matrix) -> Matrix:
    """X -> L X L' in svec coordinates; L may have more rows than columns."""
    images = left @ _units(left.shape[1]) @ left.T
    rows, columns, weights = _lower(len(left))
    return images[:, rows, columns].T * weights[:, None]


@dataclass(frozen=True)
class PSD(Cone):
    """K = K* = {svec(M) : M symmetric order x order, M >= 0}.

    Interior, for positive definite S = smat(s) and Z = smat(z):

        barrier   phi(S) = -log det S, of degree `order`
        identity  I
        inverse   S^-1
        scaling   D: M -> V M V  with  V = S^-1/2 (S^1/2 Z S^1/2)^1/2 S^-1/2,  so that V S V = Z.

    V is computed from Cholesky factors, S = L_s L_s' and Z = L_z L_z': with the singular value decomposition
    L_z' L_s = P diag(sigma) Q' it is V = R R' with R = L_s^-T Q diag(sigma)^1/2 (Nesterov and Todd 1997;
    Vandenberghe 2010). ProblemError unless order is an integer of at least 1.
    """

    order: int
    dim: int = field(init=False, repr=False)
    symmetric = True

    def __post_init__(self) -> None:
        order = positive_int("PSD", "order", self.order)
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "dim", order * (order + 1) // 2)

    def project(self, v: Vector) -> Vector:
        """Negative eigenvalues set to 0."""
        values, vectors = np.linalg.eigh(smat(v))
        return svec((vectors * np.maximum(values, 0.0)) @ vectors.T)

    def project_dual(self, v: Vector) -> Vector:
        """`project`: K is self-dual."""
        return self.project(v)

    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """dim x dim: divided differences of max(., 0) in the eigenbasis (Malick and Sendov 2006)."""
        values, vectors = np.linalg.eigh(smat(v))
        rows, columns, _ = _lower(self.order)
        on_diagonal = rows == columns
        # Column (i, j) of the basis: svec of the unit symmetric matrix of eigenvectors i and j.
        left = vectors[:, rows]
        right = vectors[:, columns]
        products = left[:, None, :] * right[None, :, :]
        symmetric = (products + products.transpose(1, 0, 2)) * np.where(on_diagonal, 0.5, np.sqrt(0.5))
        basis = symmetric[rows, columns] * np.where(on_diagonal, 1.0, np.sqrt(2.0))[:, None]
        # (p_i - p_j) / (l_i - l_j) is 1 or 0 for equal signs, p / (|l_i| + |l_j|) for opposite ones.
        positive = np.maximum(values, 0.0)
        sums = positive[rows] + positive[columns]
        sizes = np.abs(values[rows]) + np.abs(values[columns])
        weights = np.divide(sums, sizes, out=np.zeros(self.dim), where=sizes > 0.0)
        return np.asarray((basis * weights) @ basis.T)

    def face(self, exposing: Vector) -> tuple[Matrix, Cone | None] | None:
        """{U X U' : X >= 0}, U the null space of the vector; its coordinates are X."""
        null = self._null_space(exposing)
        rank = null.shape[1]
        if not rank:
            return np.zeros((0, self.dim)), None
        return _congruence(null.T), PSD(rank) if rank > 1 else Nonnegative(1)

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """N = {-U X U' : X >= 0}, U an orthonormal basis of the null space of the multiplier."""
        return _project_face(v, self._null_space(multiplier))

    def _normal_distance(self, v: Vector, multiplier: Vector) -> float:
        null = self._null_space(multiplier)
        nullity = null.shape[1]
        if nullity == 0:
            return max_norm(v)
        if nullity == 1:
            return ray_distance(v, -svec(null @ null.T))
        return _face_distance(v, null)

    def _null_space(self, multiplier: Vector) -> Matrix:
        values, vectors = np.linalg.eigh(smat(multiplier))
        return vectors[:, values <= self.rounding * np.linalg.norm(multiplier)]

    @property
    def degree(self) -> int:
        """order."""
        return self.order

    def identity(self) -> Vector:
        """svec of the identity matrix."""
        return svec(np.eye(self.order))

    def move_inside(self, v: Vector, margin: Vector) -> Vector:
        """smat(v) + tau I, by its smallest eigenvalue."""
        depth = float(np.linalg.eigvalsh(smat(v))[0])
        return shift_inside(v, depth, margin, self.identity())

    def inverse(self, s: Vector) -> Vector:
        """svec of the inverse matrix."""
        return svec(np.asarray(np.linalg.inv(smat(s)), dtype=np.float64))

    def scaling(self, s: Vector, z: Vector) -> Matrix:
        """D of the class docstring in svec coordinates, dim x dim."""
        lower_s = np.linalg.cholesky(smat(s))
        lower_z = np.linalg.cholesky(smat(z))
        _, values, right = np.linalg.svd(lower_z.T @ lower_s)
        root = np.linalg.solve(lower_s.T, right.T * np.sqrt(values))
        return _congruence(root @ root.T)

    def quadratic(self, z: Vector) -> Matrix:
        """X -> Z X Z in svec coordinates, dim x dim."""
        return _congruence(smat(z))

    def longest_step(self, s: Vector, ds: Vector) -> float:
        """-1 / lambda for the smallest eigenvalue lambda < 0 of L^-1 smat(ds) L^-T, S = L L'."""
        lower = np.linalg.cholesky(smat(s))
        half = np.linalg.solve(lower, smat(ds))
        smallest = float(np.linalg.eigvalsh(np.linalg.solve(lower, half.T))[0])
        if smallest < 0:
            return -1 / smallest
        return math.inf


def _project_face(v: Vector, null: Matrix) -> Vector:
    """Euclidean projection of v onto {-U X U' : X >= 0}, where U = null has orthonormal columns."""
    values, vectors = np.linalg.eigh(null.T @ smat(v) @ null)
    frame = null @ vectors
    return svec((frame * np.minimum(values, 0.0)) @ frame.T)


def _face_distance(v: Vector, null: Matrix) -> float:
    """min over X >= 0 of |v + U X U'|_inf, U = null: an upper bound that is tight to GAP.

    A primal-dual interior-point method on min t, -t <= r <= t, X >= 0 with r = v + B x, x = svec(X): its steps do not
    mind the conditioning of the face, as those of a splitting do, which takes thousands. Slacks s = (t - r, t + r, x)
    are exact at every step, so each gives an upper bound; z are multipliers, with G'z = (0, 1) at the solution.
    """
    nearest = _project_face(v, null)
    best = max_norm(v - nearest)
    if best <= ROUNDING:
        return best
    nullity = null.shape[1]
    size = v.size
    basis = _congruence(null)
    x = svec(-null.T @ smat(nearest) @ null + best * np.eye(nullity))
    t = 2 * max_norm(v + basis @ x)
    face = PSD(nullity)
    one = np.ones((size, 1))
    bounds = np.vstack([np.hstack([-basis, one]), np.hstack([basis, one])])
    falls = np.append(np.zeros(x.size), 1.0)
    z = np.full(2 * size, 0.5 / size)
    Z = t / (2 * size) * face.inverse(x)
    for _ in range(STEPS):
        r = v + basis @ x
        s = np.concatenate([t - r, t + r])
        best = min(best, max_norm(r))
        complementarity = float(s @ z + x @ Z)
        missed = falls - bounds.T @ z
        missed[:-1] -= Z
        if complementarity <= GAP * best and max_norm(missed) <= GAP:
            break
        target = AIM * complementarity / (2 * size + nullity)
        try:
            D = face.scaling(x, Z)
            X_inverse = face.inverse(x)
            matrix = (bounds.T * (z / s)) @ bounds
            matrix[:-1, :-1] += D
            slope = target * (bounds.T @ (1 / s)) - falls
            slope[:-1] += target * X_inverse
            step = np.linalg.solve(matrix, slope)
            change = bounds @ step
            dz = target / s - z - (z / s) * change
            dZ = target * X_inverse - Z - D @ step[:-1]
            primal = min(_longest(s, change), face.longest_step(x, step[:-1]))
            dual = min(_longest(z, dz), face.longest_step(Z, dZ))
        except np.linalg.LinAlgError:  # at the rounding of v
            break
        x = x + min(1.0, FRACTION * primal) * step[:-1]
        t = t + min(1.0, FRACTION * primal) * float(step[-1])
        z = z + min(1.0, FRACTION * dual) * dz
        Z = Z + min(1.0, FRACTION * dual) * dZ
    return best


def _longest(s: Vector, ds: Vector) -> float:
    """The longest step that keeps s + step ds positive."""
    return float(1 / max(np.max(-ds / s), 1e-300))
