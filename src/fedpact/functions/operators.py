"""Operators that need not be gradients, for saddle points and games; they take the place of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from fedpact.errors import ProblemError
from fedpact.functions.base import Function
from fedpact.functions.callables import to_shape
from fedpact.types import Matrix, Vector, to_real


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

    def _no_arithmetic(self, *_: Any) -> NoReturn:
        raise ProblemError("an operator cannot be added or scaled; do that inside its fun")

    __add__ = __mul__ = __truediv__ = __neg__ = __sub__ = __rsub__ = __radd__ = __rmul__ = _no_arithmetic


class Linear(Operator):
    """F(x) = M x + q, monotone when M + M' is positive semidefinite."""

    constant_hessian = True

    def __init__(self, M: Matrix, q: Vector | None = None) -> None:
        matrix = _real("M", M)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ProblemError(f"Linear: M must be square; its shape is {matrix.shape}")
        offset = np.zeros(len(matrix)) if q is None else _real("q", q)
        if offset.shape != (len(matrix),):
            raise ProblemError(f"Linear: q has shape {offset.shape}; M has {len(matrix)} rows")
        self.M = matrix
        self.q = offset
        self.dim = len(matrix)
        self.has_hessian = True

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        return 0.0, self.M @ w + self.q

    def hessian(self, w: Vector) -> Matrix:
        return self.M

    def defect(self) -> str | None:
        if np.all(np.isfinite(self.M)) and np.all(np.isfinite(self.q)):
            return None
        return "M or q holds NaN or infinite values; check the data"


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
            raise ProblemError(f"Saddle: split = {split!r}; give the length of u, a whole number{most}")
        self.saddle = fun
        self.split = int(split)
        self.jac = jac
        self.dim = dim
        self.has_hessian = jac is not None

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        u = w[: self.split].copy()
        v = w[self.split :].copy()
        returned = self.saddle(u, v)
        if not isinstance(returned, tuple | list) or len(returned) != 3:
            raise ProblemError("Saddle: fun must return three items: the value, the gradient in u, the gradient in v")
        value = float(to_shape(returned[0], (), "Saddle: the value"))
        gradient_u = to_shape(returned[1], u.shape, "Saddle: the gradient in u")
        gradient_v = to_shape(returned[2], v.shape, "Saddle: the gradient in v")
        return value, np.concatenate([gradient_u, -gradient_v])


def _real(name: str, given: Any) -> Matrix:
    try:
        return to_real(given).copy()
    except (TypeError, ValueError) as error:
        raise ProblemError(f"Linear: {name} is not an array of real numbers ({error})") from error
