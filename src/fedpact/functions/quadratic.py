"""The quadratic function 1/2 w'Aw + b'w."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from fedpact.errors import ProblemError
from fedpact.functions.arrays import Data, as_square, as_vector, first_of, freeze, non_finite_defect, to_dense
from fedpact.functions.base import Function
from fedpact.types import Matrix, Vector

#: Largest |A - A'| relative to the largest |A| that counts as rounding.
SYMMETRY = 1e-10
#: With more variables than this, A is not factored just to learn whether it is positive semidefinite.
FACTORED = 1000


class Quadratic(Function):
    """f(w) = 1/2 w'Aw + b'w for a symmetric A (dim x dim, dense or scipy sparse) and b (dim,), zero when None.

    A need not be positive semidefinite. Raises ProblemError when A is not square, not symmetric up to rounding, or
    b has another length.
    """

    has_hessian = True
    constant_hessian = True

    def __init__(self, A: ArrayLike | sp.sparray | sp.spmatrix, b: ArrayLike | None = None) -> None:
        given = as_square("Quadratic: A", A)
        _check_symmetric(given)
        self.A: Data
        if isinstance(given, sp.csr_array):
            self.A = sp.csr_array(0.5 * (given + given.T))
        else:
            self.A = freeze(0.5 * (given + given.T))
        self.dim = int(given.shape[0])
        self.convex = _is_convex(self.A)
        self.b: Vector = np.zeros(self.dim)
        if b is not None:
            self.b = as_vector("Quadratic: b", b, self.dim, "as A has rows")

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        product = self.A @ w
        return float(0.5 * (w @ product) + self.b @ w), product + self.b

    def hessian(self, w: Vector) -> Matrix:
        return to_dense(self.A)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return np.asarray(self.A @ v)

    def defect(self) -> str | None:
        return first_of([non_finite_defect("A", self.A), non_finite_defect("b", self.b)])


def _is_convex(A: Data) -> bool:
    """Whether A is known to be positive semidefinite, up to rounding."""
    if A.shape[0] > FACTORED:
        return False
    matrix = to_dense(A)
    if not np.all(np.isfinite(matrix)):
        return False
    shift = SYMMETRY * float(np.max(np.abs(matrix), initial=0.0)) or 1.0
    try:
        np.linalg.cholesky(matrix + shift * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return False
    return True


def _check_symmetric(A: Data) -> None:
    """ProblemError unless A = A' up to rounding; a matrix with NaN or infinite entries is left to `defect`."""
    entries: Matrix
    skew: Matrix
    if isinstance(A, sp.csr_array):
        entries = A.data
        skew = (A - A.T).tocsr().data
    else:
        entries = A
        skew = A - A.T
    if not np.all(np.isfinite(entries)):
        return
    gap = float(np.max(np.abs(skew), initial=0.0))
    if gap > SYMMETRY * float(np.max(np.abs(entries), initial=0.0)):
        raise ProblemError(
            f"Quadratic: A is not symmetric (entries differ by up to {gap:.3g}); give (A + A.T) / 2",
            code="FP-PROBLEM-155",
        )
