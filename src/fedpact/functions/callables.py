"""Functions and maps given by the user as Python callables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedpact.errors import ProblemError
from fedpact.functions.arrays import as_numbers
from fedpact.functions.base import Function, Map
from fedpact.types import Matrix, Vector


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
        value, gradient = unpack("Smooth", self.fun(w.copy()), ("value", "gradient"))
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
        given, jacobian = unpack("SmoothMap", self.fun(w.copy()), ("value", "Jacobian"))
        value = to_shape(given, (self.length,), "SmoothMap: the value")
        return value, to_shape(jacobian, (value.size, w.size), "SmoothMap: the Jacobian")

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        if self.hess is None:
            return super().weighted_hessian(w, weights)
        hessian = self.hess(w.copy(), weights.copy())
        return to_shape(hessian, (w.size, w.size), "SmoothMap: the weighted Hessian")


def unpack(owner: str, returned: object, names: Sequence[str]) -> Sequence[object]:
    """What a callable returned, which must be a tuple or list with one item for each name."""
    found = type(returned).__name__
    if isinstance(returned, tuple | list):
        if len(returned) == len(names):
            return returned
        found = f"{len(returned)} items"
    expected = f"({', '.join(names)})"
    raise ProblemError(f"{owner}: fun returned {found}; return the tuple {expected}", code="FP-PROBLEM-157")


def to_shape(given: object, shape: tuple[int | None, ...], what: str) -> Vector:
    """A float64 copy of `given`, which must have this shape; None in `shape` accepts any length.

    It is a copy since the callable may reuse its buffer. Raises ProblemError, with `what` as the subject.
    """
    plain: Any = given
    if sp.issparse(given):
        plain = plain.toarray()
    array = as_numbers(what, plain)
    fits = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
    if not fits:
        raise ProblemError(f"{what} has shape {array.shape}; expected {_describe(shape)}", code="FP-PROBLEM-158")
    return np.array(array, dtype=np.float64)


def _describe(shape: tuple[int | None, ...]) -> str:
    """A shape in words."""
    if shape == ():
        return "a single number"
    lengths = ["any" if n is None else str(n) for n in shape]
    if len(lengths) == 1:
        return f"shape ({lengths[0]},)"
    return f"shape ({', '.join(lengths)})"
