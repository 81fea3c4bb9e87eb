"""What a smooth function and a smooth map offer, and their arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

# The operators below import `arithmetic` when called: it needs the classes of this file first.


class Function(ABC):
    """A continuously differentiable f: R^dim -> R. `dim` is None when only a call can tell.

    Functions add, subtract and scale: `0.5 * f + g - 0.2`, `sum([f, g])`. They hold no state that a call changes.
    """

    dim: int | None = None
    has_hessian: bool = False
    #: False for operators that are no gradient of anything; see `Operator`.
    gradient_field: bool = True
    #: True when the Hessian is the same everywhere (quadratics): solvers may factor it once.
    constant_hessian: bool = False
    #: True when the function is known to be convex; then a stationary point is a minimiser, and a Solution says so.
    convex: bool = False
    #: Where to begin when the caller names no w0; None: at zero.
    start: Vector | None = None
    #: Rows of data over which the function is a mean; 0 when it is not one, and then it has no `batch`.
    rows: int = 0
    # Makes `np.float64(2) * f` ask f instead of building an array of objects.
    __array_ufunc__ = None

    @abstractmethod
    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]: ...

    def value(self, w: Vector) -> float:
        return self.value_and_gradient(w)[0]

    def gradient(self, w: Vector) -> Vector:
        return self.value_and_gradient(w)[1]

    def hessian(self, w: Vector) -> Matrix:
        """The dim x dim Hessian, dense; only when `has_hessian`. It may be read-only: copy before writing into it."""
        raise TypeError(f"{self!r} has no Hessian")

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """Hessian times v without forming the Hessian where that is cheaper."""
        return np.asarray(self.hessian(w) @ v)

    def batch(self, indices: Indices) -> Function:
        """The function over these of its rows only, 0 ... rows - 1, scaled so that the mean over all rows is itself."""
        raise TypeError(f"{self!r} is not a mean over rows: there are no batches of it")

    def defect(self) -> str | None:
        """What makes the data of this function unusable, with the remedy; None when nothing does.

        Asked by FederatedProblem, which knows the owner's name, before any round.
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
    """A continuously differentiable c: R^dim -> R^length. `length` and `dim` are None when only a call can tell.

    Maps add, subtract and scale like functions; a constant is a number or a vector of the map's length.
    """

    dim: int | None = None
    length: int | None = None
    has_hessian: bool = False
    #: True when the Jacobian is the same everywhere.
    affine: bool = False
    #: True when every component is known to be convex.
    convex: bool = False
    #: As for Function.
    start: Vector | None = None
    __array_ufunc__ = None

    @abstractmethod
    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        """c(w) of shape (length,) and its Jacobian of shape (length, dim), which may be read-only."""

    def value(self, w: Vector) -> Vector:
        return self.value_and_jacobian(w)[0]

    def jacobian(self, w: Vector) -> Matrix:
        return self.value_and_jacobian(w)[1]

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        """sum_j weights_j hess c_j(w), dense; only when `has_hessian`. It may be read-only."""
        raise TypeError(f"{self!r} has no Hessian")

    def weighted_hessian_product(self, w: Vector, weights: Vector, v: Vector) -> Vector:
        return np.asarray(self.weighted_hessian(w, weights) @ v)

    def defect(self) -> str | None:
        """As for Function."""
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
        return self + (-other if isinstance(other, Map) else -np.asarray(other))

    def __rsub__(self, other: ArrayLike) -> Map:
        return -self + other
