"""Sums and multiples of functions and of maps: what `0.5 * f + g - 0.2` builds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import ProblemError
from fedpact.functions.arrays import as_numbers, first_of
from fedpact.functions.base import ROUNDING, Function, Indices, Map
from fedpact.functions.contributions import Contributions
from fedpact.types import Matrix, Vector

Part = TypeVar("Part", Function, Map)


class FunctionSum(Function):
    """f(w) = constant + sum_k factor_k f_k(w). Nested sums are flattened, so no f_k is a sum itself."""

    def __init__(self, terms: Sequence[tuple[float, Function]], constant: float = 0.0) -> None:
        self.terms = _flatten(terms)
        self.constant = constant
        for factor, function in terms:
            if isinstance(function, FunctionSum):
                self.constant += factor * function.constant
        parts = [function for _, function in self.terms]
        if not all(part.gradient_field for part in parts):
            raise ProblemError("an operator cannot be added or scaled; do that inside its fun", code="FP-PROBLEM-159")
        self.dim = common_dim(parts)
        self.start = first_start(parts)
        self.has_hessian = all(part.has_hessian for part in parts)
        self.constant_hessian = all(part.constant_hessian for part in parts)
        self.convex = all(factor >= 0 and part.convex for factor, part in self.terms)
        self.rows = sum(part.rows for part in parts)
        self.rounding = max((part.rounding for part in parts), default=ROUNDING)

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        value, gradient, _ = self.expand(w)
        return value, gradient

    def expand(self, w: Vector) -> tuple[float, Vector, Callable[[], Matrix]]:
        value = self.constant
        gradients = []
        curvatures = []
        for factor, function in self.terms:
            part_value, gradient, curvature = function.expand(w)
            value += factor * part_value
            gradients.append(factor * gradient)
            curvatures.append((factor, curvature))
        return float(value), _add(gradients), lambda: _add([factor * hessian() for factor, hessian in curvatures])

    def value(self, w: Vector) -> float:
        value = self.constant  # in the order of `expand`
        for factor, function in self.terms:
            value += factor * function.value(w)
        return float(value)

    def hessian(self, w: Vector) -> Matrix:
        return np.asarray(sum(factor * function.hessian(w) for factor, function in self.terms))

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return np.asarray(sum(factor * function.hessian_product(w, v) for factor, function in self.terms))

    def batch(self, indices: Indices) -> FunctionSum:
        """Rows are numbered through the terms, one term after another; terms without rows stay whole."""
        if self.rows == 0:
            super().batch(indices)
        terms = []
        start = 0
        for factor, function in self.terms:
            if function.rows == 0:
                terms.append((factor, function))
                continue
            chosen = indices[(start <= indices) & (indices < start + function.rows)] - start
            start += function.rows
            if chosen.size:
                # The batch holds this share of the term's rows, relative to its share of all rows.
                share = (chosen.size / function.rows) / (indices.size / self.rows)
                terms.append((factor * share, function.batch(chosen)))
        return FunctionSum(terms, self.constant)

    def contributions(self, w: Vector) -> list[Contributions] | None:
        found = []
        for factor, function in self.terms:
            each = function.contributions(w)
            if each is None:
                return None
            found += [one.scale(factor) for one in each]
        return found

    def information(self, w: Vector) -> Matrix | None:
        """Of a multiple of one likelihood; terms of the same rows vary together, and are no likelihood."""
        if len(self.terms) > 1:
            return None
        ((factor, function),) = self.terms
        found = function.information(w)
        return None if found is None else factor**2 * found

    def squares(self, w: Vector) -> float | None:
        if len(self.terms) > 1:
            return None
        return self.terms[0][1].squares(w)

    def defect(self) -> str | None:
        return first_of([_number_defect(self.terms, self.constant), *(part.defect() for _, part in self.terms)])


class MapSum(Map):
    """c(w) = constant + sum_k factor_k c_k(w); the constant is a number or a vector of the maps' length."""

    def __init__(self, terms: Sequence[tuple[float, Map]], constant: float | Vector = 0.0) -> None:
        self.terms = _flatten(terms)
        self.constant = constant
        for factor, inner in terms:
            if isinstance(inner, MapSum):
                _check_lengths([_size(self.constant), _size(inner.constant)])
                self.constant = self.constant + factor * inner.constant
        parts = [part for _, part in self.terms]
        self.dim = common_dim(parts)
        self.start = first_start(parts)
        self.length = _check_lengths([_size(self.constant), *(part.length for part in parts)])
        self.has_hessian = all(part.has_hessian for part in parts)
        self.affine = all(part.affine for part in parts)
        self.convex = all(part.affine or (factor >= 0 and part.convex) for factor, part in self.terms)
        self.rows = max(part.rows for part in parts)
        self.rounding = max(part.rounding for part in parts)
        self.stands_in = any(part.stands_in for part in parts)

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        value, jacobian, _ = self.expand(w)
        return value, jacobian

    def expand(self, w: Vector) -> tuple[Vector, Matrix, Callable[[Vector], Matrix]]:
        factors = [factor for factor, _ in self.terms]
        values, jacobians, curvatures = zip(*(part.expand(w) for _, part in self.terms), strict=True)

        def curvature(weights: Vector) -> Matrix:
            pairs = zip(factors, curvatures, strict=True)
            return _add([factor * hessian(weights) for factor, hessian in pairs])

        jacobian = _add([factor * jacobian for factor, jacobian in zip(factors, jacobians, strict=True)])
        return self._total(values), jacobian, curvature

    def value(self, w: Vector) -> Vector:
        return self._total([part.value(w) for _, part in self.terms])

    def pull_back(self, w: Vector, weights: Vector) -> Vector:
        return np.asarray(sum(factor * part.pull_back(w, weights) for factor, part in self.terms))

    def batch(self, indices: Indices) -> MapSum:
        """Terms that are means over equally many rows are batched together; terms without rows stay whole."""
        sizes = {part.rows for _, part in self.terms if part.rows}
        if len(sizes) != 1:
            super().batch(indices)
        terms = [(factor, part.batch(indices) if part.rows else part) for factor, part in self.terms]
        return MapSum(terms, self.constant)

    def _total(self, values: Sequence[Vector]) -> Vector:
        # Lengths that were not known before this call would otherwise broadcast silently.
        _check_lengths([_size(self.constant), *(value.size for value in values)])
        total = sum(factor * value for (factor, _), value in zip(self.terms, values, strict=True))
        return np.asarray(self.constant + total)

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        return np.asarray(sum(factor * part.weighted_hessian(w, weights) for factor, part in self.terms))

    def weighted_hessian_product(self, w: Vector, weights: Vector, v: Vector) -> Vector:
        return np.asarray(sum(factor * part.weighted_hessian_product(w, weights, v) for factor, part in self.terms))

    def contributions(self, w: Vector) -> list[list[Contributions]] | None:
        found: list[list[Contributions]] = [[] for _ in self.value(w)]
        for factor, part in self.terms:
            rows = part.contributions(w)
            if rows is None:
                return None
            for own, each in zip(found, rows, strict=True):
                own += [one.scale(factor) for one in each]
        return found

    def defect(self) -> str | None:
        return first_of([_number_defect(self.terms, self.constant), *(part.defect() for _, part in self.terms)])


def _add(arrays: Sequence[Matrix]) -> Matrix:
    """Their sum, one after the other; an array alone as it is."""
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return np.asarray(total)


def add(function: Function, other: Function | float) -> Function:
    """function + other."""
    if isinstance(other, Function):
        return FunctionSum([(1.0, function), (1.0, other)])
    return FunctionSum([(1.0, function)], _number(function, other, "a Function or a number can be added to"))


def scale(function: Function, factor: float) -> Function:
    """factor * function."""
    return FunctionSum([(_number(function, factor, "a number can multiply"), function)])


def add_maps(map_: Map, other: Map | ArrayLike) -> Map:
    """map_ + other."""
    if isinstance(other, Map):
        return MapSum([(1.0, map_), (1.0, other)])
    if isinstance(other, np.ndarray | list | tuple):
        vector = as_numbers(f"the constant beside {map_!r}", other)
        if vector.ndim == 1:
            return MapSum([(1.0, map_)], np.array(vector, dtype=np.float64))
    return MapSum([(1.0, map_)], _number(map_, other, "a Map, a vector or a number can be added to"))


def scale_map(map_: Map, factor: float) -> Map:
    """factor * map_."""
    return MapSum([(_number(map_, factor, "a number can multiply"), map_)])


def _number(operand: Function | Map, given: object, allowed: str) -> float:
    """`given` as a float; TypeError when it is not a real number, ProblemError when it is too large for one."""
    real = isinstance(given, Real)
    if real or (isinstance(given, np.ndarray) and given.ndim == 0 and given.dtype.kind in "biuf"):
        try:
            return float(given)  # type: ignore[arg-type]
        except OverflowError as error:  # a whole number with hundreds of digits
            raise ProblemError(
                f"a number beside {operand!r} is too large for a float; scale the problem", code="FP-PROBLEM-160"
            ) from error
    # Returning NotImplemented instead would show numpy's message about its arrays, which misleads.
    raise TypeError(f"only {allowed} {operand!r}, not {type(given).__name__}")


def common_dim(parts: Iterable[Function | Map]) -> int | None:
    """The `dim` of the parts, None if no part knows its own; ProblemError when they differ."""
    known = [part for part in parts if part.dim is not None]
    if len({part.dim for part in known}) > 1:
        listing = ", ".join(repr(part) for part in known)
        raise ProblemError(
            f"these take vectors of different lengths: {listing}; give all of them the same dim",
            code="FP-PROBLEM-161",
        )
    return known[0].dim if known else None


def first_start(parts: Iterable[Function | Map]) -> Vector | None:
    """The first start that is not None."""
    return next((part.start for part in parts if part.start is not None), None)


def _check_lengths(lengths: Sequence[int | None]) -> int | None:
    """The common length, None if none is known; ProblemError when they differ."""
    known = sorted({length for length in lengths if length is not None})
    if len(known) > 1:
        raise ProblemError(
            f"maps and constants of lengths {known} cannot be added; make their lengths equal", code="FP-PROBLEM-162"
        )
    return known[0] if known else None


def _flatten(terms: Sequence[tuple[float, Part]]) -> list[tuple[float, Part]]:
    """The terms, with every sum replaced by its own terms."""
    flat = []
    for factor, part in terms:
        if isinstance(part, FunctionSum | MapSum):
            flat += [(factor * inner, leaf) for inner, leaf in part.terms]
        else:
            flat.append((factor, part))
    return flat


def _size(constant: float | Vector) -> int | None:
    """The length of a vector; None for a number, which fits any length."""
    if isinstance(constant, np.ndarray):
        return constant.size
    return None


def _number_defect(terms: Sequence[tuple[float, object]], constant: float | Vector) -> str | None:
    """Which kind of number in the sum is not finite; None when all are."""
    if not np.all(np.isfinite([factor for factor, _ in terms])):
        return "a factor in this sum is NaN or infinite; scale by finite numbers"
    if not np.all(np.isfinite(constant)):
        return "a constant in this sum is NaN or infinite; add finite numbers"
    return None
