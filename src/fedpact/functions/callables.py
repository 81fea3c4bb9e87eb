"""Functions and maps given by the user as Python callables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedpact.errors import ProblemError
from fedpact.functions.base import Function, Map
from fedpact.types import Matrix, Vector, to_array


class Smooth(Function):
    """f from `fun(w) -> (value, gradient)` and, optionally, `hess(w) -> (dim, dim) matrix`.

    `convex=True` asserts that f is convex: a solution is then reported as optimal, not only as stationary.
    Return values are copied to float64, and a wrong shape raises ProblemError. Infinite and NaN values are accepted,
    since a line search may meet them.
    """

    def __init__(
        self,
        fun: Callable[[Vector], tuple[object, object]],
        hess: Callable[[Vector], object] | None = None,
        dim: int | None = None,
        *,
        convex: bool = False,
    ) -> None:
        self.fun = fun
        self.hess = hess
        self.dim = dim
        self.convex = convex
        self.has_hessian = hess is not None

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        value, gradient = _as_pair(self.fun(w.copy()), "Smooth", "(value, gradient)")
        number = float(to_shape(value, (), "Smooth: the value"))
        return number, to_shape(gradient, w.shape, "Smooth: the gradient")

    def hessian(self, w: Vector) -> Matrix:
        if self.hess is None:
            return super().hessian(w)
        return to_shape(self.hess(w.copy()), (w.size, w.size), "Smooth: the Hessian")


class SmoothMap(Map):
    """c from `fun(w) -> (value of shape (length,), Jacobian of shape (length, dim))` and, optionally,
    `hess(w, weights) -> sum_j weights_j hess c_j(w)`, a (dim, dim) matrix.

    Return values are converted and checked as in Smooth. With length=None any length is accepted. `convex=True`
    asserts that every component is convex.
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
        self.fun = fun
        self.hess = hess
        self.length = length
        self.dim = dim
        self.convex = convex
        self.has_hessian = hess is not None

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        given, jacobian = _as_pair(self.fun(w.copy()), "SmoothMap", "(value, Jacobian)")
        value = to_shape(given, (self.length,), "SmoothMap: the value")
        return value, to_shape(jacobian, (value.size, w.size), "SmoothMap: the Jacobian")

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        if self.hess is None:
            return super().weighted_hessian(w, weights)
        hessian = self.hess(w.copy(), weights.copy())
        return to_shape(hessian, (w.size, w.size), "SmoothMap: the weighted Hessian")


def _as_pair(returned: object, owner: str, expected: str) -> tuple[object, object]:
    """What a callable returned, which must be a tuple or list of two."""
    if not isinstance(returned, tuple | list):
        raise ProblemError(f"{owner}: fun returned {type(returned).__name__}; expected the pair {expected}")
    if len(returned) != 2:
        raise ProblemError(f"{owner}: fun returned {len(returned)} items; expected the pair {expected}")
    return returned[0], returned[1]


def to_shape(given: object, shape: tuple[int | None, ...], what: str) -> Vector:
    """A float64 copy of `given`, which must have this shape; None in `shape` accepts any length.

    It is a copy since the callable may reuse its buffer. Raises ProblemError, with `what` as the subject.
    """
    expected = _describe(shape)
    plain: Any = given
    if sp.issparse(given):
        plain = plain.toarray()
    try:
        array = to_array(plain)
    except ValueError as error:  # ragged lists, masks
        raise ProblemError(f"{what} is not an array of numbers ({error}); expected {expected}") from error
    if array.dtype.kind not in "biuf":
        found = f"{type(given).__name__} of type {array.dtype}"
        raise ProblemError(f"{what} is a {found}; expected real numbers, {expected}")
    fits = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
    if not fits:
        raise ProblemError(f"{what} has shape {array.shape}; expected {expected}")
    return np.array(array, dtype=np.float64)


def _describe(shape: tuple[int | None, ...]) -> str:
    """A shape in words."""
    if shape == ():
        return "a single number"
    lengths = ["any" if n is None else str(n) for n in shape]
    if len(lengths) == 1:
        return f"shape ({lengths[0]},)"
    return f"shape ({', '.join(lengths)})"
