"""Functions and maps of some coordinates of a longer vector, for reformulations with slack variables."""

from __future__ import annotations

from copy import copy
from typing import overload

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import ProblemError
from fedpact.functions.base import Function, Indices, Map
from fedpact.types import Matrix, Vector

#: Coordinates of a longer vector.
Part = slice | NDArray[np.intp]


@overload
def extend(
    inner: Function, dim: int, start: int = 0, inner_dim: int | None = None, last: int = 0
) -> ExtendedFunction: ...
@overload
def extend(inner: Map, dim: int, start: int = 0, inner_dim: int | None = None, last: int = 0) -> ExtendedMap: ...
def extend(
    inner: Function | Map, dim: int, start: int = 0, inner_dim: int | None = None, last: int = 0
) -> ExtendedFunction | ExtendedMap:
    """`inner` on the coordinates [start, start + inner.dim) of vectors of length dim.

    `inner_dim` replaces inner.dim when that is None; the `last` coordinates of inner are the last of the longer vector
    too. Raises ProblemError when the length is not known, when two differ, or when the range does not fit into dim.
    """
    if isinstance(inner, Function):
        return ExtendedFunction(inner, dim, start, inner_dim, last)
    return ExtendedMap(inner, dim, start, inner_dim, last)


class ExtendedFunction(Function):
    """f(w[start : start + f.dim]); derivatives are zero in the other coordinates. Made by `extend`."""

    def __init__(self, inner: Function, dim: int, start: int = 0, inner_dim: int | None = None, last: int = 0) -> None:
        self.inner = inner
        self.dim = dim
        self.part = _coordinates(inner, dim, start, inner_dim, last)
        self.has_hessian = inner.has_hessian
        self.constant_hessian = inner.constant_hessian
        self.convex = inner.convex
        self.rows = inner.rows
        self.rounding = inner.rounding

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        value, gradient = self.inner.value_and_gradient(w[self.part])
        return value, _pad(gradient, w.size, self.part)

    def value(self, w: Vector) -> float:
        return self.inner.value(w[self.part])

    def hessian(self, w: Vector) -> Matrix:
        return _embed(self.inner.hessian(w[self.part]), w.size, self.part)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return _pad(self.inner.hessian_product(w[self.part], v[self.part]), w.size, self.part)

    def batch(self, indices: Indices) -> ExtendedFunction:
        chosen = copy(self)
        chosen.inner = self.inner.batch(indices)
        chosen.rows = chosen.inner.rows
        return chosen

    def defect(self) -> str | None:
        return self.inner.defect()


class ExtendedMap(Map):
    """c(w[start : start + c.dim]); derivatives are zero in the other coordinates. Made by `extend`."""

    def __init__(self, inner: Map, dim: int, start: int = 0, inner_dim: int | None = None, last: int = 0) -> None:
        self.inner = inner
        self.dim = dim
        self.length = inner.length
        self.part = _coordinates(inner, dim, start, inner_dim, last)
        self.has_hessian = inner.has_hessian
        self.affine = inner.affine
        self.convex = inner.convex
        self.rows = inner.rows
        self.rounding = inner.rounding
        self.stands_in = inner.stands_in

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        value, jacobian = self.inner.value_and_jacobian(w[self.part])
        return value, _pad(jacobian, w.size, self.part)

    def value(self, w: Vector) -> Vector:
        return self.inner.value(w[self.part])

    def pull_back(self, w: Vector, weights: Vector) -> Vector:
        return _pad(self.inner.pull_back(w[self.part], weights), w.size, self.part)

    def batch(self, indices: Indices) -> ExtendedMap:
        chosen = copy(self)
        chosen.inner = self.inner.batch(indices)
        return chosen

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        return _embed(self.inner.weighted_hessian(w[self.part], weights), w.size, self.part)

    def weighted_hessian_product(self, w: Vector, weights: Vector, v: Vector) -> Vector:
        return _pad(self.inner.weighted_hessian_product(w[self.part], weights, v[self.part]), w.size, self.part)

    def defect(self) -> str | None:
        return self.inner.defect()


def _coordinates(inner: Function | Map, dim: int, start: int, inner_dim: int | None, last: int) -> Part:
    """The coordinates that `inner` takes: a range, and the last ones."""
    known = {size for size in (inner.dim, inner_dim) if size is not None}
    if len(known) != 1:
        remedy = "pass inner_dim" if not known else f"inner_dim = {inner_dim} contradicts it"
        raise ProblemError(
            f"extend: {inner!r} must know how many coordinates it takes; {remedy}", code="FP-PROBLEM-163"
        )
    size = known.pop()
    if start < 0 or start + size > dim:
        raise ProblemError(
            f"extend: coordinates [{start}, {start + size}) of {inner!r} do not fit into dim = {dim}; raise dim",
            code="FP-PROBLEM-164",
        )
    if not last:
        return slice(start, start + size)
    return np.concatenate([np.arange(start, start + size - last), np.arange(dim - last, dim)])


def _pad(array: Vector, dim: int, part: Part) -> Vector:
    """`array` padded with zeros to length dim along its last axis."""
    wide = np.zeros((*array.shape[:-1], dim))
    wide[..., part] = array
    return wide


def _embed(hessian: Matrix, dim: int, part: Part) -> Matrix:
    """`hessian` as the diagonal block `part` of a dim x dim matrix of zeros."""
    wide = np.zeros((dim, dim))
    rows = np.arange(dim)[part]
    wide[np.ix_(rows, rows)] = hessian
    return wide
