"""A map of the scores of rows, as a map of the coefficients that the scores are linear in."""

from __future__ import annotations

import numpy as np

from fedpact.functions.base import Map
from fedpact.types import Matrix, Vector


class OfScores(Map):
    """c(X w + offset), for a map c of as many scores as X has rows.

    Its Hessian needs products with that of c only: one of people by people is never formed.
    """

    def __init__(self, inner: Map, X: Matrix, offset: Vector | None = None) -> None:
        self.inner = inner
        self.X = X
        self.offset = offset
        self.dim = int(X.shape[1])
        self.length = inner.length
        self.has_hessian = inner.has_hessian
        self.affine = inner.affine
        self.convex = inner.convex

    def scores(self, w: Vector) -> Vector:
        """X w + offset."""
        z = np.asarray(self.X @ w)
        if self.offset is None:
            return z
        return z + self.offset

    def value(self, w: Vector) -> Vector:
        return self.inner.value(self.scores(w))

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        value, jacobian = self.inner.value_and_jacobian(self.scores(w))
        return value, np.asarray(jacobian @ self.X)

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        z = self.scores(w)
        columns = [self.inner.weighted_hessian_product(z, weights, column) for column in self.X.T]
        found = np.asarray(self.X.T @ np.stack(columns, axis=1))
        return np.asarray(0.5 * (found + found.T))

    def weighted_hessian_product(self, w: Vector, weights: Vector, v: Vector) -> Vector:
        along = self.inner.weighted_hessian_product(self.scores(w), weights, np.asarray(self.X @ v))
        return np.asarray(self.X.T @ along)

    def defect(self) -> str | None:
        return self.inner.defect()
