"""What a local solver returns, and the quadratic anchor that all subproblems of the federated solvers carry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedpact.functions import Function, Matrix, Vector

#: Above this many variables forming and factoring a Hessian costs more than products with it ...
DENSE_LIMIT = 600
#: ... and above this many where it is constant, and so factored once.
CONSTANT_LIMIT = 4 * DENSE_LIMIT


@dataclass(frozen=True)
class Minimum:
    """Where a local solver stopped.

    residual:   max-norm of the gradient (composite problems: of the distance to stationarity)
    converged:  whether the residual met the tolerance or the limit of double precision
    gradients, hessians: numbers of evaluations
    indefinite: whether negative curvature was seen on the way
    factor:     lower Cholesky factor of the last Hessian that was formed; None where there is none to keep
    """

    w: Vector
    residual: float
    converged: bool
    gradients: int
    hessians: int = 0
    indefinite: bool = False
    factor: Matrix | None = None


class Constant(Function):
    """The function that is zero everywhere."""

    has_hessian = constant_hessian = True

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        return 0.0, np.zeros_like(w)

    def hessian(self, w: Vector) -> Matrix:
        return np.zeros((w.size, w.size))


class Anchored(Function):
    """f(w) + weight/2 |w - anchor|^2; the weight is a number, or one for each coordinate."""

    def __init__(self, function: Function, weight: float | Vector, anchor: Vector) -> None:
        self.function = function
        self.weight = weight
        self.anchor = anchor
        self.dim = anchor.size
        self.has_hessian = function.has_hessian
        self.constant_hessian = function.constant_hessian

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        return self._with_pull(w, *self.function.value_and_gradient(w))

    def expand(self, w: Vector) -> tuple[float, Vector, Callable[[], Matrix]]:
        value, gradient, curvature = self.function.expand(w)
        return *self._with_pull(w, value, gradient), lambda: self._with_weight(curvature())

    def hessian(self, w: Vector) -> Matrix:
        return self._with_weight(self.function.hessian(w))

    def _with_pull(self, w: Vector, value: float, gradient: Vector) -> tuple[float, Vector]:
        offset = w - self.anchor
        pull = self.weight * offset
        return value + 0.5 * float(pull @ offset), gradient + pull

    def _with_weight(self, hessian: Matrix) -> Matrix:
        total = np.array(hessian)
        total.flat[:: total.shape[0] + 1] += self.weight
        return total

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return self.function.hessian_product(w, v) + self.weight * v


def anchored(function: Function, weight: float | Vector, anchor: Vector) -> Function:
    """f(w) + weight/2 |w - anchor|^2 up to a constant; an anchor on an anchor becomes one."""
    if not np.any(weight):
        return function
    if not isinstance(function, Anchored):
        return Anchored(function, weight, anchor)
    total = function.weight + weight
    middle = (function.weight * function.anchor + weight * anchor) / total
    return Anchored(function.function, total, middle)
