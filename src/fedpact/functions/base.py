"""The contracts of a smooth function and of a smooth map, with their arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact.functions.contributions import Contributions
from fedpact.types import Matrix, Vector

Indices = NDArray[np.intp]

# Arithmetic operators import `arithmetic` when they are called, since that module imports this one.


class Function(ABC):
    """A continuously differentiable f: R^dim -> R.

    Functions add, subtract and scale: `0.5 * f + g - 0.2`, `sum([f, g])`. Evaluating a function does not change it.
    """

    #: Number of variables; None when it is not known before a call.
    dim: int | None = None
    #: Whether `hessian` is implemented.
    has_hessian: bool = False
    #: False for an operator that is not the gradient of a function; see `Operator`.
    gradient_field: bool = True
    #: True when the Hessian is the same everywhere (quadratics): solvers may factor it once.
    constant_hessian: bool = False
    #: True when the function is known to be convex; a stationary point is then reported as a minimiser.
    convex: bool = False
    #: Starting point when the caller gives no w0; None means zero.
    start: Vector | None = None
    #: Number of data rows over which the function is a mean; 0 when it is not a mean and has no `batch`.
    rows: int = 0
    # Makes `np.float64(2) * f` call f instead of building an array of objects.
    __array_ufunc__ = None

    @abstractmethod
    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        """f(w) and its gradient, of shape (dim,)."""

    def value(self, w: Vector) -> float:
        """f(w)."""
        return self.value_and_gradient(w)[0]

    def gradient(self, w: Vector) -> Vector:
        """The gradient at w."""
        return self.value_and_gradient(w)[1]

    def hessian(self, w: Vector) -> Matrix:
        """The dense dim x dim Hessian, only when `has_hessian`. It may be read-only: copy it before writing."""
        raise TypeError(f"{self!r} has no Hessian")

    def expand(self, w: Vector) -> tuple[float, Vector, Callable[[], Matrix]]:
        """f(w), its gradient, and a call that gives the Hessian at w.

        A function whose Hessian needs what its gradient needs, such as scores, computes that once.
        """
        value, gradient = self.value_and_gradient(w)
        return value, gradient, partial(self.hessian, w)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """Hessian times v, without forming the Hessian where that is cheaper."""
        return np.asarray(self.hessian(w) @ v)

    def batch(self, indices: Indices) -> Function:
        """The function on the rows with these indices, scaled so that its mean over all batches is the function."""
        raise TypeError(f"{self!r} is not a mean over rows: there are no batches of it")

    def of_rows(self, numbers: Indices) -> Self:
        """The same; a mean over rows then knows that they are these of the owner's: for standard errors."""
        return self

    def contributions(self, w: Vector) -> list[Contributions] | None:
        """What single rows add, one entry per mean over rows; empty for a function that depends on no rows.

        None when it is not known, as for a function of one's own: then there are no standard errors.
        """
        return None

    def information(self, w: Vector) -> Matrix | None:
        """Covariance of the gradient under the model whose likelihood this is, at dispersion 1; None: it is none."""
        return None

    def squares(self, w: Vector) -> float | None:
        """Sum of squared residuals where the model has a dispersion of its own to be estimated; None: it has none."""
        return None

    def defect(self) -> str | None:
        """Why the data of this function cannot be used, with the remedy; None if it can.

        FederatedProblem asks for it before the first round and adds the owner's name.
        """
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim})"

    def __add__(self, other: Function | float) -> Function:
        from fedpact.functions import arithmetic

        return arithmetic.add(self, other)

    __radd__ = __add__

    def __mul__(self, factor: float) -> Function:
        from fedpact.functions import arithmetic

        return arithmetic.scale(self, factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Function:
        return self * (1 / divisor)

    def __neg__(self) -> Function:
        return self * -1.0

    def __sub__(self, other: Function | float) -> Function:
        return self + (-other)

    def __rsub__(self, other: float) -> Function:
        return -self + other


class Map(ABC):
    """A continuously differentiable c: R^dim -> R^length.

    Maps add, subtract and scale like functions; a constant is a number or a vector of the map's length.
    """

    #: Number of variables; None when it is not known before a call.
    dim: int | None = None
    #: Number of components; None when it is not known before a call.
    length: int | None = None
    #: Whether `weighted_hessian` is implemented.
    has_hessian: bool = False
    #: True when the Jacobian is the same everywhere.
    affine: bool = False
    #: True when every component is known to be convex.
    convex: bool = False
    #: Starting point when the caller gives no w0; None means zero.
    start: Vector | None = None
    __array_ufunc__ = None

    @abstractmethod
    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        """c(w) of shape (length,) and its Jacobian of shape (length, dim), which may be read-only."""

    def value(self, w: Vector) -> Vector:
        """c(w)."""
        return self.value_and_jacobian(w)[0]

    def jacobian(self, w: Vector) -> Matrix:
        """The Jacobian at w."""
        return self.value_and_jacobian(w)[1]

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        """sum_j weights_j hess c_j(w), dense, only when `has_hessian`. It may be read-only."""
        raise TypeError(f"{self!r} has no Hessian")

    def expand(self, w: Vector) -> tuple[Vector, Matrix, Callable[[Vector], Matrix]]:
        """c(w), its Jacobian, and a call that gives the Hessian at w for weights; as `Function.expand`."""
        value, jacobian = self.value_and_jacobian(w)
        return value, jacobian, partial(self.weighted_hessian, w)

    def weighted_hessian_product(self, w: Vector, weights: Vector, v: Vector) -> Vector:
        """weighted_hessian(w, weights) @ v, without forming the matrix where that is cheaper."""
        return np.asarray(self.weighted_hessian(w, weights) @ v)

    def contributions(self, w: Vector) -> list[list[Contributions]] | None:
        """What single rows add to each component, as `Function.contributions`; None when it is not known."""
        return None

    def defect(self) -> str | None:
        """Why the data of this map cannot be used, with the remedy; None if it can."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(length={self.length}, dim={self.dim})"

    def __add__(self, other: Map | ArrayLike) -> Map:
        from fedpact.functions import arithmetic

        return arithmetic.add_maps(self, other)

    __radd__ = __add__

    def __mul__(self, factor: float) -> Map:
        from fedpact.functions import arithmetic

        return arithmetic.scale_map(self, factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Map:
        return self * (1 / divisor)

    def __neg__(self) -> Map:
        return self * -1.0

    def __sub__(self, other: Map | ArrayLike) -> Map:
        if isinstance(other, Map):
            return self + (-other)
        return self + (np.negative(other))

    def __rsub__(self, other: ArrayLike) -> Map:
        return -self + other
