"""Maps built from functions and from other maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedpact.errors import ProblemError
from fedpact.functions.affine import Affine
from fedpact.functions.arithmetic import common_dim, first_start
from fedpact.functions.arrays import first_of
from fedpact.functions.base import Function, Indices, Map
from fedpact.functions.contributions import Contributions
from fedpact.types import Matrix, Vector


def as_map(given: Function | Map) -> Map:
    """A map unchanged, a function as a map of length 1. Raises ProblemError for anything else."""
    if isinstance(given, Map):
        return given
    if isinstance(given, Function):
        if not given.gradient_field:
            raise ProblemError(
                f"{given!r} is an operator and cannot be a constraint; give a Function or a Map",
                code="FP-PROBLEM-165",
            )
        return Single(given)
    raise ProblemError(
        f"expected a Function or a Map, got {type(given).__name__}; wrap callables in Smooth or SmoothMap",
        code="FP-PROBLEM-166",
    )


class Single(Map):
    """The map w -> (f(w),)."""

    length = 1

    def __init__(self, function: Function) -> None:
        self.function = function
        self.dim = function.dim
        self.has_hessian = function.has_hessian
        self.start = function.start
        self.convex = function.convex
        self.rows = function.rows
        self.rounding = function.rounding

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        value, jacobian, _ = self.expand(w)
        return value, jacobian

    def expand(self, w: Vector) -> tuple[Vector, Matrix, Callable[[Vector], Matrix]]:
        value, gradient, hessian = self.function.expand(w)
        return np.array([value]), gradient[None, :], lambda weights: float(weights[0]) * hessian()

    def value(self, w: Vector) -> Vector:
        return np.array([self.function.value(w)])

    def pull_back(self, w: Vector, weights: Vector) -> Vector:
        return float(weights[0]) * self.function.gradient(w)

    def batch(self, indices: Indices) -> Single:
        return Single(self.function.batch(indices))

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        return float(weights[0]) * self.function.hessian(w)

    def weighted_hessian_product(self, w: Vector, weights: Vector, v: Vector) -> Vector:
        return float(weights[0]) * self.function.hessian_product(w, v)

    def contributions(self, w: Vector) -> list[list[Contributions]] | None:
        rows = self.function.contributions(w)
        return None if rows is None else [rows]

    def defect(self) -> str | None:
        return self.function.defect()


class TwoSided(Map):
    """c(w) = (f(w) - upper, lower - f(w)), so that c(w) <= 0 exactly when lower <= f(w) <= upper.

    f is evaluated once for both rows. Raises ProblemError when lower > upper.
    """

    length = 2

    def __init__(self, function: Function, lower: float, upper: float) -> None:
        if not isinstance(function, Function):
            raise ProblemError(
                f"TwoSided: expected a Function, got {type(function).__name__}; wrap a callable in Smooth",
                code="FP-PROBLEM-167",
            )
        if lower > upper:
            raise ProblemError(
                f"TwoSided: lower = {lower:g} is above upper = {upper:g}; no value lies between, so exchange them",
                code="FP-PROBLEM-168",
            )
        self.function = function
        self.lower = float(lower)
        self.upper = float(upper)
        self.dim = function.dim
        self.has_hessian = function.has_hessian
        self.start = function.start
        self.rows = function.rows
        self.rounding = function.rounding

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        value, jacobian, _ = self.expand(w)
        return value, jacobian

    def expand(self, w: Vector) -> tuple[Vector, Matrix, Callable[[Vector], Matrix]]:
        value, gradient, hessian = self.function.expand(w)
        rows = np.stack([gradient, -gradient])
        return self._rows(value), rows, lambda weights: float(weights[0] - weights[1]) * hessian()

    def value(self, w: Vector) -> Vector:
        return self._rows(self.function.value(w))

    def pull_back(self, w: Vector, weights: Vector) -> Vector:
        return float(weights[0] - weights[1]) * self.function.gradient(w)

    def batch(self, indices: Indices) -> TwoSided:
        return TwoSided(self.function.batch(indices), self.lower, self.upper)

    def _rows(self, value: float) -> Vector:
        return np.array([value - self.upper, self.lower - value])

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        return float(weights[0] - weights[1]) * self.function.hessian(w)

    def weighted_hessian_product(self, w: Vector, weights: Vector, v: Vector) -> Vector:
        return float(weights[0] - weights[1]) * self.function.hessian_product(w, v)

    def contributions(self, w: Vector) -> list[list[Contributions]] | None:
        rows = self.function.contributions(w)
        return None if rows is None else [rows, [one.scale(-1.0) for one in rows]]

    def defect(self) -> str | None:
        if not np.isfinite([self.lower, self.upper]).all():
            bounds = f"lower = {self.lower:g} and upper = {self.upper:g}"
            return f"TwoSided: {bounds} must be finite; for one side only use f - upper or lower - f"
        return self.function.defect()


class Stack(Map):
    """c(w) = (c_1(w), ..., c_n(w)); functions are taken as maps of length 1."""

    def __init__(self, parts: Sequence[Function | Map]) -> None:
        if not parts:
            raise ProblemError("Stack: no maps given; give at least one", code="FP-PROBLEM-169")
        self.parts = [as_map(part) for part in parts]
        self.dim = common_dim(self.parts)
        self.start = first_start(self.parts)
        lengths = [part.length for part in self.parts if part.length is not None]
        if len(lengths) == len(self.parts):
            self.length = sum(lengths)
        self.has_hessian = all(part.has_hessian for part in self.parts)
        self.affine = all(part.affine for part in self.parts)
        self.convex = all(part.convex for part in self.parts)
        self.rows = sum(part.rows for part in self.parts)
        self.rounding = max(part.rounding for part in self.parts)
        self.stands_in = any(part.stands_in for part in self.parts)

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        value, jacobian, _ = self.expand(w)
        return value, jacobian

    def expand(self, w: Vector) -> tuple[Vector, Matrix, Callable[[Vector], Matrix]]:
        values, jacobians, curvatures = zip(*(part.expand(w) for part in self.parts), strict=True)
        ends = np.cumsum([value.size for value in values])[:-1]

        def curvature(weights: Vector) -> Matrix:
            pieces = zip(curvatures, np.split(weights, ends), strict=True)
            return np.asarray(sum(hessian(piece) for hessian, piece in pieces))

        return np.concatenate(values), np.concatenate(jacobians), curvature

    def value(self, w: Vector) -> Vector:
        return np.concatenate([part.value(w) for part in self.parts])

    def pull_back(self, w: Vector, weights: Vector) -> Vector:
        total = np.zeros_like(w)
        for part, piece in zip(self.parts, self._split(w, weights), strict=True):
            if np.any(piece):
                total += part.pull_back(w, piece)
        return total

    def batch(self, indices: Indices) -> Stack:
        """Rows are numbered through the parts, one part after another; parts without rows stay whole."""
        if self.rows == 0:
            super().batch(indices)
        parts: list[Function | Map] = []
        start = 0
        for part in self.parts:
            if part.rows == 0:
                parts.append(part)
                continue
            chosen = indices[(start <= indices) & (indices < start + part.rows)] - start
            start += part.rows
            share = (chosen.size / part.rows) / (indices.size / self.rows)
            if chosen.size:
                parts.append(share * part.batch(chosen))
            else:
                assert part.length is not None
                assert self.dim is not None
                parts.append(Affine(np.zeros((part.length, self.dim))))
        return Stack(parts)

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        pieces = zip(self.parts, self._split(w, weights), strict=True)
        return np.asarray(sum(part.weighted_hessian(w, piece) for part, piece in pieces))

    def weighted_hessian_product(self, w: Vector, weights: Vector, v: Vector) -> Vector:
        pieces = zip(self.parts, self._split(w, weights), strict=True)
        return np.asarray(sum(part.weighted_hessian_product(w, piece, v) for part, piece in pieces))

    def _split(self, w: Vector, weights: Vector) -> list[Vector]:
        """The weights of each part; a part of unknown length is evaluated to learn it."""
        lengths = [part.length if part.length is not None else part.value(w).size for part in self.parts]
        return np.split(weights, np.cumsum(lengths)[:-1])

    def contributions(self, w: Vector) -> list[list[Contributions]] | None:
        found: list[list[Contributions]] = []
        for part in self.parts:
            rows = part.contributions(w)
            if rows is None:
                return None
            found += rows
        return found

    def defect(self) -> str | None:
        return first_of(part.defect() for part in self.parts)
