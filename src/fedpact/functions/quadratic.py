"""1/2 w'Aw + b'w."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from fedpact.errors import ProblemError
from fedpact.functions.arrays import Data, as_data, as_vector, dense, first_of, frozen, non_finite
from fedpact.functions.base import Function, Matrix, Vector

#: Largest |A - A'| relative to the largest |A| that passes for rounding.
SYMMETRY = 1e-10
#: Above this many variables A is not factored just to learn whether it is positive semidefinite.
FACTORED = 1000


class Quadratic(Function):
    """f(w) = 1/2 w'Aw + b'w for a symmetric A (dim x dim, dense or scipy sparse) and b (dim,), zero when None.

    A need not be positive semidefinite. Raises ProblemError when A is not square, not symmetric up to rounding, or
    b has another length.
    """

    has_hessian = True
    constant_hessian = True

    def __init__(self, A: ArrayLike | sp.sparray | sp.spmatrix, b: ArrayLike | None = None) -> None:
        given = as_data("Quadratic", "A", A)
        if given.shape[0] != given.shape[1]:
            raise ProblemError(f"Quadratic: A must be square; its shape is {given.shape}")
        self.dim = int(given.shape[0])
        _check_symmetric(given)
        self.A: Data = sp.csr_array(0.5 * (given + given.T)) if sp.issparse(given) else frozen(0.5 * (given + given.T))
        self.convex = _is_convex(self.A)
        self.b: Vector = np.zeros(self.dim) if b is None else as_vector("Quadratic", "b", b, self.dim, "as A has rows")

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        product = self.A @ w
        return float(0.5 * (w @ product) + self.b @ w), product + self.b

    def hessian(self, w: Vector) -> Matrix:
        return dense(self.A)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return np.asarray(self.A @ v)

    def defect(self) -> str | None:
        return first_of([non_finite("A", self.A), non_finite("b", self.b)])


def _is_convex(A: Data) -> bool:
    """Is A known to be positive semidefinite, up to rounding?"""
    if A.shape[0] > FACTORED or not np.all(np.isfinite(matrix := dense(A))):
        return False
    shift = SYMMETRY * float(np.max(np.abs(matrix), initial=0.0)) or 1.0
    try:
        np.linalg.cholesky(matrix + shift * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return False
    return True


def _check_symmetric(A: Data) -> None:
    entries, skew = (A.data, (A - A.T).tocsr().data) if isinstance(A, sp.csr_array) else (A, A - A.T)
    if not np.all(np.isfinite(entries)):
        return  # reported by defect(), with the owner's name
    gap = float(np.max(np.abs(skew), initial=0.0))
    if gap > SYMMETRY * float(np.max(np.abs(entries), initial=0.0)):
        raise ProblemError(f"Quadratic: A is not symmetric (entries differ by up to {gap:.3g}); pass (A + A.T) / 2")
