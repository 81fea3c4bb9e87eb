"""Operators that are not gradients: saddle functions and games. They stand where a function stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from fedpact.errors import ProblemError
from fedpact.functions.base import Function, Matrix, Vector
from fedpact.functions.callables import _shaped


class Operator(Function):
    """F: R^d -> R^d from `fun(x) -> F(x)` and, optionally, `jac(x) -> (d, d)` matrix; F should be monotone.

    Its `gradient` is F, its `hessian` the Jacobian (not symmetric in general), and its value is zero.
    """

    gradient_field = False

    def __init__(
        self,
        fun: Callable[[Vector], object],
        jac: Callable[[Vector], object] | None = None,
        dim: int | None = None,
    ) -> None:
        self.fun, self.jac, self.dim = fun, jac, dim
        self.has_hessian = jac is not None

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        return 0.0, _shaped(self.fun(w.copy()), w.shape, f"{type(self).__name__}: the image")

    def hessian(self, w: Vector) -> Matrix:
        if self.jac is None:
            return super().hessian(w)
        return _shaped(self.jac(w.copy()), (w.size, w.size), f"{type(self).__name__}: the Jacobian")

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return self.hessian(w) @ v

    def _no_arithmetic(self, *_: Any) -> NoReturn:
        raise ProblemError("an operator is not added or scaled; do that inside its fun")

    __add__ = __mul__ = __truediv__ = __neg__ = __sub__ = __rsub__ = __radd__ = __rmul__ = _no_arithmetic


class Linear(Operator):
    """F(x) = M x + q, monotone when M + M' is positive semidefinite."""

    constant_hessian = True

    def __init__(self, M: Matrix, q: Vector | None = None) -> None:
        matrix = np.array(M, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ProblemError(f"Linear: M must be square; its shape is {matrix.shape}")
        offset = np.zeros(len(matrix)) if q is None else np.array(q, dtype=np.float64)
        if offset.shape != (len(matrix),):
            raise ProblemError(f"Linear: q has shape {offset.shape}; M has {len(matrix)} rows")
        self.M, self.q, self.dim, self.has_hessian = matrix, offset, len(matrix), True

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        return 0.0, self.M @ w + self.q

    def hessian(self, w: Vector) -> Matrix:
        return self.M

    def defect(self) -> str | None:
        finite = np.all(np.isfinite(self.M)) and np.all(np.isfinite(self.q))
        return None if finite else "M or q holds NaN or infinite values; check the data"


class Saddle(Operator):
    """f(u, v), convex in u and concave in v, as the operator (grad_u f, -grad_v f) of x = (u, v).

    fun(u, v) -> (value, grad_u, grad_v); `split` is the length of u. `jac(x)` is the Jacobian of the operator.
    """

    def __init__(
        self,
        fun: Callable[[Vector, Vector], tuple[object, object, object]],
        split: int,
        jac: Callable[[Vector], object] | None = None,
        dim: int | None = None,
    ) -> None:
        if not isinstance(split, int | np.integer) or not 0 <= split <= (split if dim is None else dim):
            most = "" if dim is None else f" of at most {dim}"
            raise ProblemError(f"Saddle: split = {split!r}; give the length of u, a whole number{most}")
        self.saddle, self.split, self.jac, self.dim = fun, int(split), jac, dim
        self.has_hessian = jac is not None

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        u, v = w[: self.split].copy(), w[self.split :].copy()
        returned = self.saddle(u, v)
        if not isinstance(returned, tuple | list) or len(returned) != 3:
            raise ProblemError("Saddle: fun must return three things: the value, the gradient by u, the gradient by v")
        value, by_u, by_v = returned
        upper = _shaped(by_u, u.shape, "Saddle: the gradient by u")
        lower = _shaped(by_v, v.shape, "Saddle: the gradient by v")
        return float(_shaped(value, (), "Saddle: the value")), np.concatenate([upper, -lower])
