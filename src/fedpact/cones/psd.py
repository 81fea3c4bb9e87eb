"""The cone of positive semidefinite matrices, in coordinates that keep the inner product."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isqrt

import numpy as np

from fedpact.cones.base import Cone, Matrix, Vector, positive_int
from fedpact.cones.max_norm import max_norm, ray_distance, splitting_distance
from fedpact.errors import ProblemError


def svec(matrix: Matrix) -> Vector:
    """A symmetric k x k matrix as a vector of length k(k+1)/2 with <A, B> = <svec(A), svec(B)>.

    The lower triangle column by column, off-diagonal entries times sqrt(2); the upper triangle is not
    read. ProblemError unless the matrix is square.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ProblemError(f"svec: the matrix must be k x k, found shape {matrix.shape}")
    rows, columns = _lower(len(matrix))
    return matrix[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0))


def smat(vector: Vector) -> Matrix:
    """The symmetric matrix whose svec is the vector. ProblemError unless the length is k(k+1)/2."""
    order = (isqrt(8 * vector.size + 1) - 1) // 2
    if vector.ndim != 1 or order < 1 or order * (order + 1) // 2 != vector.size:
        raise ProblemError(f"smat: the vector must have length k(k+1)/2 (1, 3, 6, 10, ...), found shape {vector.shape}")
    rows, columns = _lower(order)
    matrix = np.empty((order, order))
    matrix[rows, columns] = matrix[columns, rows] = vector * np.where(rows == columns, 1.0, np.sqrt(0.5))
    return matrix


def _lower(order: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.intp]], np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """Row and column indices of the lower triangle, column by column."""
    columns, rows = np.triu_indices(order)
    return rows, columns


@dataclass(frozen=True)
class PSD(Cone):
    """K = K* = {svec(M) : M symmetric order x order, M >= 0}. ProblemError unless order is an integer >= 1."""

    order: int
    dim: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        order = positive_int("PSD", "order", self.order)
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "dim", order * (order + 1) // 2)

    def project(self, v: Vector) -> Vector:
        """Negative eigenvalues set to 0."""
        values, vectors = np.linalg.eigh(smat(v))
        return svec((vectors * np.maximum(values, 0.0)) @ vectors.T)

    def project_dual(self, v: Vector) -> Vector:
        """The same: K is self-dual."""
        return self.project(v)

    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """dim x dim: divided differences of max(., 0) in the eigenbasis (Malick and Sendov 2006)."""
        values, vectors = np.linalg.eigh(smat(v))
        rows, columns = _lower(self.order)
        # column (i, j): svec of the unit symmetric matrix made of eigenvectors i and j
        left, right = vectors[:, rows], vectors[:, columns]
        products = left[:, None, :] * right[None, :, :]
        symmetric = (products + products.transpose(1, 0, 2)) * np.where(rows == columns, 0.5, np.sqrt(0.5))
        basis = symmetric[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0))[:, None]
        positive = np.maximum(values, 0.0)
        sums = positive[rows] + positive[columns]
        sizes = np.abs(values[rows]) + np.abs(values[columns])
        # (p_i - p_j) / (l_i - l_j) is 1 or 0 for equal signs, p / (|l_i| + |l_j|) for opposite ones
        weights = np.divide(sums, sizes, out=np.zeros(self.dim), where=sizes > 0.0)
        return np.asarray((basis * weights) @ basis.T)

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """-U X U' with X >= 0, U an orthonormal basis of the null space of the multiplier."""
        return _project_face(v, self._null_space(multiplier))

    def _normal_distance(self, v: Vector, multiplier: Vector) -> float:
        null = self._null_space(multiplier)
        if null.shape[1] == 0:
            return max_norm(v)
        if null.shape[1] == 1:
            return ray_distance(v, -svec(null @ null.T))
        return splitting_distance(lambda w: _project_face(w, null), v)

    def _null_space(self, multiplier: Vector) -> Matrix:
        values, vectors = np.linalg.eigh(smat(multiplier))
        return vectors[:, values <= self.rounding * np.linalg.norm(multiplier)]


def _project_face(v: Vector, null: Matrix) -> Vector:
    """The point nearest to v in {-U X U' : X >= 0}, where U = null has orthonormal columns."""
    values, vectors = np.linalg.eigh(null.T @ smat(v) @ null)
    frame = null @ vectors
    return svec((frame * np.minimum(values, 0.0)) @ frame.T)
