"""Operators that need not be gradients, for saddle points and games; they take the place of a function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedpact.errors import ProblemError
from fedpact.functions.arrays import as_square, as_vector, first_of, freeze, non_finite_defect, to_dense
from fedpact.functions.base import Function
from fedpact.functions.callables import to_shape, unpack
from fedpact.types import Matrix, Vector


class Operator(Function):
    """F: R^d -> R^d from `fun(x) -> F(x)` and, optionally, `jac(x) -> (d, d)` matrix; F should be monotone.

    `gradient` is F, `hessian` is its Jacobian (not symmetric in general), and `value` is zero.
    """

    gradient_field = False

    def __init__(
        self,
        fun: Callable[[Vector], object],
        jac: Callable[[Vector], object] | None = None,
        dim: int | None = None,
    ) -> None:
        self.fun = fun
        self.jac = jac
        self.dim = dim
        self.has_hessian = jac is not None

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        return 0.0, to_shape(self.fun(w.copy()), w.shape, f"{type(self).__name__}: the value of fun")

    def hessian(self, w: Vector) -> Matrix:
        if self.jac is None:
            return super().hessian(w)
        return to_shape(self.jac(w.copy()), (w.size, w.size), f"{type(self).__name__}: the Jacobian")

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return self.hessian(w) @ v


class Linear(Operator):
    """F(x) = M x + q, monotone when M + M' is positive semidefinite."""

    constant_hessian = True

    def __init__(self, M: Matrix, q: Vector | None = None) -> None:
        self.M: Matrix = freeze(to_dense(as_square("Linear: M", M)))
        self.dim = len(self.M)
        self.q: Vector = np.zeros(self.dim)
        if q is not None:
            self.q = as_vector("Linear: q", q, self.dim, "as M has rows")
        self.has_hessian = True

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        return 0.0, self.M @ w + self.q

    def hessian(self, w: Vector) -> Matrix:
        return self.M

    def defect(self) -> str | None:
        return first_of([non_finite_defect("M", self.M), non_finite_defect("q", self.q)])


class Saddle(Operator):
    """f(u, v), convex in u and concave in v, as the operator (grad_u f, -grad_v f) of x = (u, v).

    fun:   fun(u, v) -> (value, grad_u, grad_v)
    split: the length of u
    jac:   jac(x) -> the Jacobian of the operator, a (d, d) matrix
    """

    def __init__(
        self,
        fun: Callable[[Vector, Vector], tuple[object, object, object]],
        split: int,
        jac: Callable[[Vector], object] | None = None,
        dim: int | None = None,
    ) -> None:
        most = "" if dim is None else f" of at most {dim}"
        whole = isinstance(split, int | np.integer)
        if not whole or split < 0 or (dim is not None and split > dim):
            raise ProblemError(
                f"Saddle: split = {split!r}; give the length of u, a whole number{most}", code="FP-PROBLEM-156"
            )
        self.saddle = fun
        self.split = int(split)
        self.jac = jac
        self.dim = dim
        self.has_hessian = jac is not None

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        u = w[: self.split].copy()
        v = w[self.split :].copy()
        parts = unpack("Saddle", self.saddle(u, v), ("value", "gradient in u", "gradient in v"))
        value = float(to_shape(parts[0], (), "Saddle: the value"))
        gradient_u = to_shape(parts[1], u.shape, "Saddle: the gradient in u")
        gradient_v = to_shape(parts[2], v.shape, "Saddle: the gradient in v")
        return value, np.concatenate([gradient_u, -gradient_v])
