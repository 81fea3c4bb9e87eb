"""What a smooth function and a smooth map offer, and their arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Function(ABC):
    """A continuously differentiable f: R^dim -> R. `dim` is None when only a call can tell."""

    dim: int | None = None
    has_hessian: bool = False
    #: True when the Hessian is the same everywhere (quadratics): solvers may factor it once.
    constant_hessian: bool = False

    @abstractmethod
    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]: ...

    def value(self, w: Vector) -> float:
        return self.value_and_gradient(w)[0]

    def gradient(self, w: Vector) -> Vector:
        return self.value_and_gradient(w)[1]

    def hessian(self, w: Vector) -> Matrix:
        """The dim x dim Hessian, dense; only when `has_hessian`."""
        raise TypeError(f"{type(self).__name__} has no Hessian")

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """Hessian times v without forming the Hessian where that is cheaper."""
        return np.asarray(self.hessian(w) @ v)

    def defect(self) -> str | None:
        """What makes the data of this function unusable, with the remedy; None when nothing does.

        Asked by FederatedProblem, which knows the owner's name, before any round.
        """
        return None


class Map(ABC):
    """A continuously differentiable c: R^dim -> R^length. `length` and `dim` are None when only a call can tell."""

    dim: int | None = None
    length: int | None = None
    has_hessian: bool = False
    #: True when the Jacobian is the same everywhere.
    affine: bool = False

    @abstractmethod
    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        """c(w) of shape (length,) and its Jacobian of shape (length, dim)."""

    def value(self, w: Vector) -> Vector:
        return self.value_and_jacobian(w)[0]

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        """sum_j weights_j hess c_j(w), dense; only when `has_hessian`."""
        raise TypeError(f"{type(self).__name__} has no Hessian")

    def weighted_hessian_product(self, w: Vector, weights: Vector, v: Vector) -> Vector:
        return np.asarray(self.weighted_hessian(w, weights) @ v)

    def defect(self) -> str | None:
        return None
