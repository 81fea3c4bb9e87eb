"""Functions and maps in other units: of the variables, and of their own values."""

from __future__ import annotations

from copy import copy

import numpy as np

from fedpact.functions.base import Function, Indices, Map
from fedpact.functions.maps import Stack
from fedpact.types import Matrix, Vector


class RescaledFunction(Function):
    """factor f(columns * v)."""

    def __init__(self, inner: Function, columns: Vector, factor: float) -> None:
        self.inner = inner
        self.columns = columns
        self.factor = factor
        self.dim = columns.size
        self.has_hessian = inner.has_hessian
        self.constant_hessian = inner.constant_hessian
        self.convex = inner.convex
        self.rows = inner.rows
        self.rounding = inner.rounding

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        value, gradient = self.inner.value_and_gradient(self.columns * w)
        return self.factor * value, self.factor * self.columns * gradient

    def value(self, w: Vector) -> float:
        return self.factor * self.inner.value(self.columns * w)

    def hessian(self, w: Vector) -> Matrix:
        return self.factor * np.outer(self.columns, self.columns) * self.inner.hessian(self.columns * w)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return self.factor * self.columns * self.inner.hessian_product(self.columns * w, self.columns * v)

    def batch(self, indices: Indices) -> RescaledFunction:
        chosen = copy(self)
        chosen.inner = self.inner.batch(indices)
        chosen.rows = chosen.inner.rows
        return chosen

    def defect(self) -> str | None:
        return self.inner.defect()


class RescaledMap(Map):
    """factors * c(columns * v), factors > 0 for each row. Made by `rescale_map`."""

    def __init__(self, inner: Map, columns: Vector, factors: Vector) -> None:
        self.inner = inner
        self.columns = columns
        self.factors = factors
        self.dim = columns.size
        self.length = inner.length
        self.has_hessian = inner.has_hessian
        self.affine = inner.affine
        self.convex = inner.convex
        self.rows = inner.rows
        self.rounding = inner.rounding
        self.stands_in = inner.stands_in

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        value, jacobian = self.inner.value_and_jacobian(self.columns * w)
        return self.factors * value, self.factors[:, None] * jacobian * self.columns

    def value(self, w: Vector) -> Vector:
        return self.factors * self.inner.value(self.columns * w)

    def pull_back(self, w: Vector, weights: Vector) -> Vector:
        return self.columns * self.inner.pull_back(self.columns * w, self.factors * weights)

    def batch(self, indices: Indices) -> RescaledMap:
        chosen = copy(self)
        chosen.inner = self.inner.batch(indices)
        return chosen

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        inner = self.inner.weighted_hessian(self.columns * w, self.factors * weights)
        return np.outer(self.columns, self.columns) * inner

    def weighted_hessian_product(self, w: Vector, weights: Vector, v: Vector) -> Vector:
        weighted = self.factors * weights
        return self.columns * self.inner.weighted_hessian_product(self.columns * w, weighted, self.columns * v)

    def defect(self) -> str | None:
        return self.inner.defect()


def rescale_map(inner: Map, columns: Vector, factors: Vector) -> Map:
    """The map in other units; a stack stays one, since its parts are judged with the cones that belong to them."""
    if not isinstance(inner, Stack) or any(part.length is None for part in inner.parts):
        return RescaledMap(inner, columns, factors)
    ends = np.cumsum([part.length or 0 for part in inner.parts])
    pieces = np.split(factors, ends[:-1])
    return Stack([rescale_map(part, columns, piece) for part, piece in zip(inner.parts, pieces, strict=True)])
