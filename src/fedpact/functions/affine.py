"""The affine map w -> C w + d."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from fedpact.functions.arrays import as_data, as_vector, first_of, freeze, non_finite_defect, to_dense
from fedpact.functions.base import Map
from fedpact.types import Matrix, Vector


class Affine(Map):
    """c(w) = C w + d for C (length x dim, dense or scipy sparse) and d (length,), zero when None.

    C is stored dense: it is the Jacobian that every solver asks for. Raises ProblemError on wrong shapes.
    """

    has_hessian = True
    affine = True
    convex = True

    def __init__(self, C: ArrayLike | sp.sparray | sp.spmatrix, d: ArrayLike | None = None) -> None:
        self.C: Matrix = freeze(to_dense(as_data("Affine: C", C)))
        self.length = int(self.C.shape[0])
        self.dim = int(self.C.shape[1])
        self.d: Vector = np.zeros(self.length)
        if d is not None:
            self.d = as_vector("Affine: d", d, self.length, "as C has rows")

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        return self.value(w), self.C

    def value(self, w: Vector) -> Vector:
        return self.C @ w + self.d

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        return np.zeros((self.C.shape[1], self.C.shape[1]))

    def weighted_hessian_product(self, w: Vector, weights: Vector, v: Vector) -> Vector:
        return np.zeros(self.C.shape[1])

    def defect(self) -> str | None:
        return first_of([non_finite_defect("C", self.C), non_finite_defect("d", self.d)])
