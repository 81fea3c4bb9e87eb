"""Functions and maps written by the user as plain Python callables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedpact.errors import ProblemError
from fedpact.functions.base import Function, Map, Matrix, Vector


class Smooth(Function):
    """f from `fun(w) -> (value, gradient)` and, optionally, `hess(w) -> (dim, dim) matrix`.

    `convex=True` is your word that f is convex: an answer is then called optimal, not only stationary.
    What the callables return is copied to float64 and its shape checked: ProblemError when it does not fit. Infinite
    and NaN values pass, since a line search may meet them on its way.
    """

    def __init__(
        self,
        fun: Callable[[Vector], tuple[object, object]],
        hess: Callable[[Vector], object] | None = None,
        dim: int | None = None,
        *,
        convex: bool = False,
    ) -> None:
        self.fun, self.hess, self.dim, self.convex = fun, hess, dim, convex
        self.has_hessian = hess is not None

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        value, gradient = _pair(self.fun(w.copy()), "Smooth", "(value, gradient)")
        return (
            float(_shaped(value, (), "Smooth: the value")),
            _shaped(gradient, w.shape, "Smooth: the gradient"),
        )

    def hessian(self, w: Vector) -> Matrix:
        if self.hess is None:
            return super().hessian(w)
        return _shaped(self.hess(w.copy()), (w.size, w.size), "Smooth: the Hessian")


class SmoothMap(Map):
    """c from `fun(w) -> (value of shape (length,), Jacobian of shape (length, dim))` and, optionally,
    `hess(w, weights) -> sum_j weights_j hess c_j(w)`, a (dim, dim) matrix.

    Checked and converted like Smooth. `length` None means: as long as `fun` says. `convex=True` is your word that every
    component is convex.
    """

    def __init__(
        self,
        fun: Callable[[Vector], tuple[object, object]],
        hess: Callable[[Vector, Vector], object] | None = None,
        length: int | None = None,
        dim: int | None = None,
        *,
        convex: bool = False,
    ) -> None:
        self.fun, self.hess, self.length, self.dim, self.convex = fun, hess, length, dim, convex
        self.has_hessian = hess is not None

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        given, jacobian = _pair(self.fun(w.copy()), "SmoothMap", "(value, Jacobian)")
        value = _shaped(given, (self.length,), "SmoothMap: the value")
        return value, _shaped(jacobian, (value.size, w.size), "SmoothMap: the Jacobian")

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        if self.hess is None:
            return super().weighted_hessian(w, weights)
        return _shaped(self.hess(w.copy(), weights.copy()), (w.size, w.size), "SmoothMap: the weighted Hessian")


def _pair(returned: object, owner: str, expected: str) -> tuple[object, object]:
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        found = f"{len(returned)} items" if isinstance(returned, tuple | list) else type(returned).__name__
        raise ProblemError(f"{owner}: fun returned {found}; expected the pair {expected}")
    return returned[0], returned[1]


def _shaped(given: object, shape: tuple[int | None, ...], what: str) -> Vector:
    """A float64 copy of `given`, a copy because the callable may reuse its buffer; None in `shape` is any length."""
    plain: Any = given
    try:
        array = np.asarray(plain.toarray() if sp.issparse(given) else plain)
    except ValueError as error:  # ragged lists
        raise ProblemError(f"{what} is no array of numbers ({error}); expected {_size(shape)}") from error
    if array.dtype.kind not in "biuf":
        kind = f"{type(given).__name__} of type {array.dtype}"
        raise ProblemError(f"{what} came back as {kind}; expected real numbers, {_size(shape)}")
    if array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True)):
        raise ProblemError(f"{what} came back with shape {array.shape}; expected {_size(shape)}")
    return np.array(array, dtype=np.float64)


def _size(shape: tuple[int | None, ...]) -> str:
    if shape == ():
        return "a single number"
    return "shape (" + ", ".join("any" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
