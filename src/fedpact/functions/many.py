"""Functions of many owners at one point, in one go: the same numbers as one by one, bit for bit, in far fewer calls.

What every owner has by itself gets a leading axis: values (n,), gradients (n, d), Hessians (n, d, d). Losses are taken
of the rows of many owners at once. Products with X stay products of each owner's own X, by the same routine of BLAS:
NumPy calls it once for every matrix of a stack. Whoever calls sees to it that overflow is not warned of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpact.functions.arithmetic import FunctionSum
from fedpact.functions.arrays import is_small
from fedpact.functions.base import Function, Map
from fedpact.functions.huber import HuberLoss
from fedpact.functions.logistic import LogisticLoss
from fedpact.functions.maps import Single, Stack
from fedpact.functions.poisson import MeanExponential, PoissonDeviance, PoissonLoss
from fedpact.functions.scored import ScoredMean
from fedpact.functions.squared import SquaredLoss
from fedpact.types import Matrix, Vector

#: Tables of as many rows are evaluated in one product while they have no more cells than this, which a cache holds.
CELLS = 131_072
#: Losses of a score, row by row, that nothing else is done with: a subclass of somebody's may do more.
LOSSES = (LogisticLoss, SquaredLoss, HuberLoss, PoissonLoss, PoissonDeviance, MeanExponential)
#: What belongs to the rows of a mean; owners of one kind have all else in common.
OF_ROWS = frozenset(("X", "y", "weight", "offset", "rows", "numbers"))


#: Gives the Hessians of those owners where the argument is True, and zero of others.
Bends = Callable[[NDArray[np.bool_]], Matrix]


class ManyFunctions(ABC):
    """One function an owner, all of one kind."""

    @abstractmethod
    def expand(self, w: Vector) -> tuple[Vector, Matrix, Bends]:
        """As `Function.expand`: values, gradients and how to get the Hessians."""

    @abstractmethod
    def value(self, w: Vector) -> Vector:
        """As `Function.value`."""


@dataclass(frozen=True)
class Block:
    """Consecutive owners with as many rows: X of each in (owners, rows, d), and one loss of the rows of all of them."""

    owners: slice
    X: Matrix
    loss: ScoredMean

    def scores(self, w: Vector) -> Vector:
        """x'w + offset of every row."""
        score = (self.X @ w).ravel()
        if self.loss.offset is None:
            return score
        return score + self.loss.offset

    def means(self, losses: Vector, out: Vector) -> None:
        """The weighted mean over each owner's rows."""
        np.matmul(self.weights, self.by_owner(losses), out=out[self.owners, None, None])

    def gradients(self, slopes: Vector, out: Matrix) -> None:
        np.matmul(self.columns, self.by_owner(self.loss.weight * slopes), out=out[self.owners, :, None])

    def hessians(self, curvatures: Vector, asked: NDArray[np.bool_], out: Matrix) -> None:
        """Of those owners that are asked; zero of others."""
        weight = self.by_owner(self.loss.weight * curvatures)
        chosen = asked[self.owners]
        if chosen.all():
            _grams(self.X, weight, out[self.owners])
            return
        out[self.owners] = 0.0
        if chosen.any():
            some = np.empty((np.count_nonzero(chosen), *out.shape[1:]))
            _grams(self.X[chosen], weight[chosen], some)
            out[self.owners][chosen] = some

    def by_owner(self, values: Vector) -> Matrix:
        """A number of every row as (owners, rows, 1)."""
        return values.reshape(len(self.X), -1, 1)

    @cached_property
    def columns(self) -> Matrix:
        """X' of each owner."""
        return self.X.transpose(0, 2, 1)

    @cached_property
    def weights(self) -> Matrix:
        """Of the rows of each owner, (owners, 1, rows)."""
        return self.by_owner(self.loss.weight).transpose(0, 2, 1)


def _grams(X: Matrix, weight: Matrix, out: Matrix) -> None:
    """`gram` of every owner's X and weight."""
    if is_small(X.shape[1:]):
        part = X.transpose(0, 2, 1) @ ((0.5 * weight) * X)
        np.add(part, part.transpose(0, 2, 1), out=out)
        return
    half = np.sqrt(weight) * X
    np.matmul(half.transpose(0, 2, 1), half, out=out)


class ManyMeans(ManyFunctions):
    """Means over rows of one loss of the score."""

    def __init__(self, functions: Sequence[ScoredMean]) -> None:
        self.count = len(functions)
        self.dim = int(functions[0].X.shape[1])
        self.blocks = list(_group(functions))

    def expand(self, w: Vector) -> tuple[Vector, Matrix, Bends]:
        values = np.empty(self.count)
        gradients = np.empty((self.count, self.dim))
        found = []
        for block in self.blocks:
            losses, slopes, curvatures = block.loss._expand(block.scores(w))
            block.means(losses, values)
            block.gradients(slopes, gradients)
            found.append(curvatures)
        return values, gradients, partial(self._hessians, found)

    def value(self, w: Vector) -> Vector:
        values = np.empty(self.count)
        for block in self.blocks:
            block.means(block.loss._losses(block.scores(w)), values)
        return values

    def _hessians(self, curvatures: Sequence[Callable[[], Vector]], asked: NDArray[np.bool_]) -> Matrix:
        hessians = np.empty((self.count, self.dim, self.dim))
        for block, found in zip(self.blocks, curvatures, strict=True):
            block.hessians(found(), asked, hessians)
        return hessians


def _group(functions: Sequence[ScoredMean]) -> Iterator[Block]:
    """Consecutive owners with as many rows, as many as a cache holds; large tables by themselves, not copied."""
    owner = 0
    for _, group in groupby(functions, key=lambda function: function.rows):
        alike = list(group)
        most = max(1, CELLS // alike[0].X.size)
        for first in range(0, len(alike), most):
            part = alike[first : first + most]
            tables: list[Any] = [one.X for one in part]
            X = tables[0] if len(part) == 1 else np.concatenate(tables)
            yield Block(slice(owner, owner + len(part)), X.reshape(len(part), *tables[0].shape), _of_all_rows(part))
            owner += len(part)


def _of_all_rows(functions: Sequence[ScoredMean]) -> ScoredMean:
    """One loss of the rows of all of these, one after the other; its X, which is nowhere used, is of the first."""
    loss = object.__new__(type(functions[0]))
    loss.__dict__.update(functions[0].__dict__)
    loss.rows = sum(function.rows for function in functions)
    loss.y = np.concatenate([function.y for function in functions])
    loss.weight = np.concatenate([function.weight for function in functions])
    if loss.offset is not None:
        loss.offset = np.concatenate([function.offset for function in functions])
    return loss


class ManySums(ManyFunctions):
    """constant + sum_k factor_k f_k, with factors and a constant of each owner's own."""

    def __init__(self, functions: Sequence[FunctionSum], parts: Sequence[ManyFunctions]) -> None:
        self.parts = parts
        self.constant = np.array([function.constant for function in functions])
        factors = np.array([factor for function in functions for factor, _ in function.terms])
        by_part = factors.reshape(len(functions), len(parts)).T
        self.factors = [None if np.all(factor == 1) else factor for factor in by_part]

    def expand(self, w: Vector) -> tuple[Vector, Matrix, Bends]:
        values, gradients, bends = zip(*[part.expand(w) for part in self.parts], strict=True)
        return self._total(values), self._add(gradients), lambda asked: self._add([bend(asked) for bend in bends])

    def value(self, w: Vector) -> Vector:
        return self._total([part.value(w) for part in self.parts])

    def _total(self, values: Sequence[Vector]) -> Vector:
        total = self.constant
        for factor, value in zip(self.factors, values, strict=True):
            total = total + (value if factor is None else factor * value)
        return total

    def _add(self, arrays: Sequence[Matrix]) -> Matrix:
        """Derivatives of the terms, which are changed in place, times their factors."""
        for factor, array in zip(self.factors, arrays, strict=True):
            if factor is not None:
                array *= factor.reshape(-1, *[1] * (array.ndim - 1))
        return add(arrays)


def add(arrays: Sequence[Matrix]) -> Matrix:
    """Their sum, one after the other."""
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total


class ManyMaps:
    """One map an owner, all of one kind: every row of it a function. Values (n, rows), Jacobians (n, rows, d)."""

    def __init__(self, rows: Sequence[ManyFunctions]) -> None:
        self.rows = rows

    def expand(self, w: Vector) -> tuple[Matrix, Matrix, Callable[[Matrix], Matrix]]:
        """As `Map.expand`: values, Jacobians and how to get the Hessians with weights (n, rows)."""
        values, gradients, bends = zip(*[row.expand(w) for row in self.rows], strict=True)

        def hessians(weights: Matrix) -> Matrix:
            found = [bend(weight != 0) for bend, weight in zip(bends, weights.T, strict=True)]
            for k, hessian in enumerate(found):
                hessian *= weights[:, k, None, None]
            return add(found)

        return _as_rows(values), _as_rows(gradients), hessians

    def value(self, w: Vector) -> Matrix:
        """As `Map.value`."""
        return _as_rows([row.value(w) for row in self.rows])


def _as_rows(arrays: Sequence[Matrix]) -> Matrix:
    """A second axis with one entry for each of these; a single one is not copied."""
    if len(arrays) == 1:
        return arrays[0][:, None]
    return np.stack(arrays, axis=1)


def join_functions(functions: Sequence[Function]) -> ManyFunctions | None:
    """These functions in one; None where they are not of one kind, or of one that is not known here."""
    kinds = set(map(type, functions))
    given: Any = functions
    if kinds == {FunctionSum}:
        return _join_sums(given)
    if len(kinds) == 1 and kinds.issubset(LOSSES) and _are_alike(given):
        return ManyMeans(given)
    return None


def _join_sums(functions: Sequence[FunctionSum]) -> ManyFunctions | None:
    lengths = {len(function.terms) for function in functions}
    if len(lengths) > 1:
        return None
    parts = []
    for k in range(lengths.pop()):
        part = join_functions([function.terms[k][1] for function in functions])
        if part is None:
            return None
        parts.append(part)
    return ManySums(functions, parts)


def _are_alike(functions: Sequence[ScoredMean]) -> bool:
    """Whether the means differ in nothing but their rows, which are dense and stored row by row."""
    first = functions[0]
    shared = attrgetter("X.__class__", *(name for name in vars(first) if name not in OF_ROWS))
    expected = shared(first)
    if expected[0] is not np.ndarray or any(shared(function) != expected for function in functions):
        return False
    if len({function.offset is None for function in functions}) > 1:
        return False
    tables: list[Any] = [function.X for function in functions]
    return all(X.flags.c_contiguous and len(X) for X in tables)


def join_maps(maps: Sequence[Map]) -> ManyMaps | None:
    """These maps in one; None where they are not of one kind, or of one that is not known here."""
    listed = [_rows_of(one) for one in maps]
    rows = []
    for functions in zip(*listed, strict=False):
        row = join_functions(functions)
        if row is None:
            return None
        rows.append(row)
    if not rows or any(len(one) != len(rows) for one in listed):
        return None
    return ManyMaps(rows)


def _rows_of(one: Map) -> list[Function]:
    """The functions that are the rows of a map; none where they are not known."""
    if isinstance(one, Single):
        return [one.function]
    if isinstance(one, Stack) and all(isinstance(part, Single) for part in one.parts):
        return [part.function for part in one.parts if isinstance(part, Single)]
    return []
