"""Constraints on the coefficients of a linear model: bounds, signs, equal ones, and the order of a category's levels.

They need no data, so the coordinator holds them. A bound is stated in the units of its column; the constraint is about
the coefficient of the scaled column, whose size is that of the others, so that one tolerance suits all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np

from fedpact.cones import Cone, Nonnegative, Product, Zero
from fedpact.data.encoding import Encoding, Scaling
from fedpact.errors import OptionError
from fedpact.functions import Affine
from fedpact.problem import Constraint, Share
from fedpact.tasks.base import SERVER, Bounded
from fedpact.types import Vector

#: column or feature -> {at_least = ..., at_most = ...}
Ranges = Mapping[str, Mapping[str, float]]
#: column -> "increasing" or "decreasing"
Orders = Mapping[str, str]
#: The factor that turns "at least" or "increasing" into an upper bound.
DIRECTIONS = {"increasing": -1.0, "decreasing": 1.0}
SIDES = {"at_least": -1.0, "at_most": 1.0}


@dataclass(frozen=True)
class Row:
    """sum_j factor_j coefficient_j <= limit, or = limit, in the units of the columns.

    what:    the left side, in words
    factors: by name of the feature
    exact:   whether it is an equation
    """

    what: str
    factors: Mapping[str, float]
    limit: float
    exact: bool = False


@dataclass(frozen=True)
class Coefficients:
    """Bounds on the coefficients of a model with these features.

    equal:      lists of columns that have one coefficient, by a name for it
    scaling:    of the columns; None: they are not scaled
    parameters: of the model, an intercept among them
    """

    ranges: Ranges
    orders: Orders
    equal: Mapping[str, Sequence[str]]
    encoding: Encoding
    scaling: Scaling | None = None
    parameters: int = 0

    def check(self) -> None:
        """Raise OptionError for a column that is no feature, or for bounds that cannot be met."""
        for name, stated in self.ranges.items():
            self._check_name("coefficients", name, (*self.encoding.names, *self.encoding.categories))
            _check_range(name, stated)
        for name, features in self.equal.items():
            if len(set(features)) < 2 or len(set(features)) < len(features):
                raise OptionError(
                    f"equal: {name} lists {list(features)}; give two features or more, all different",
                    code="FP-OPTION-994",
                    key="equal",
                )
            for feature in features:
                self._check_name("equal", feature, self.encoding.names)
        for column, direction in self.orders.items():
            self._check_name("monotone", column, self.encoding.columns)
            if direction not in DIRECTIONS:
                raise OptionError(
                    f"monotone: {column} = {direction!r} is unknown; choose {', '.join(DIRECTIONS)}",
                    code="FP-OPTION-714",
                    key="monotone",
                )

    def _check_name(self, key: str, name: str, known: tuple[str, ...]) -> None:
        if name not in known:
            raise OptionError(
                f"{key} names {name!r}, which is no feature of the model; known are: {', '.join(known)}",
                code="FP-OPTION-715",
                key=key,
            )

    def rows(self) -> Iterator[Row]:
        """All bounds, each as an upper one; then the equations."""
        for name, stated in self.ranges.items():
            for feature in self._of(dict.fromkeys(self._features(name), 1.0)):
                for side, bound in stated.items():
                    yield _bound(feature, SIDES[side], bound)
        for column, direction in self.orders.items():
            factor = DIRECTIONS[direction]
            if column not in self.encoding.categories:
                yield _bound(column, factor, 0.0)
                continue
            for lower, upper in pairwise(self._features(column)):
                first, second = (lower, upper) if factor < 0 else (upper, lower)
                factors = self._of({first: 1.0, second: -1.0})
                yield Row(f"coefficient of {first} less that of {second}", factors, 0.0)
        for features in self.equal.values():
            for first, second in pairwise(features):
                what = f"coefficient of {first} less that of {second}"
                yield Row(what, {first: 1.0, second: -1.0}, 0.0, exact=True)

    def _features(self, name: str) -> tuple[str, ...]:
        """The features that a name of the job stands for: itself, or all levels of a category."""
        if name not in self.encoding.categories:
            return (name,)
        return tuple(f"{name}={level}" for level in self.encoding.categories[name])

    def _of(self, factors: Mapping[str, float]) -> dict[str, float]:
        """Without the coefficients of references, which are zero."""
        return {feature: factor for feature, factor in factors.items() if feature in self.encoding.names}

    def _unit(self, row: Row) -> float:
        """What one unit of the row's left side is for the scaled columns: that of the first."""
        return self._scale(next(iter(row.factors)))

    def _scale(self, feature: str) -> float:
        if self.scaling is None:
            return 1.0
        return self.scaling.scale[self.encoding.names.index(feature)]

    def share(self) -> Share | None:
        """The coordinator's share; None without bounds."""
        rows = list(self.rows())
        if not rows:
            return None
        matrix = np.zeros((len(rows), self.parameters))
        for i, row in enumerate(rows):
            for feature, factor in row.factors.items():
                matrix[i, self.encoding.names.index(feature)] = factor * self._unit(row) / self._scale(feature)
        limits = np.array([row.limit * self._unit(row) for row in rows])
        return Share(None, Constraint(Affine(matrix, -limits), _cone_of(rows)), name=SERVER)

    def bounded(self, values: Vector, price: Vector) -> Iterator[Bounded]:
        """The bounds in the units of the columns, from values and prices of the scaled ones."""
        for row, value, paid in zip(self.rows(), values, price, strict=True):
            unit = self._unit(row)
            found = float(value / unit + row.limit)
            if row.exact:
                found = abs(found)
            yield Bounded(SERVER, row.what, found, row.limit, float(paid * unit))


def _cone_of(rows: Sequence[Row]) -> Cone:
    """<= 0 for the bounds, = 0 for the equations behind them."""
    equations = sum(row.exact for row in rows)
    if not equations:
        return Nonnegative(len(rows))
    if equations == len(rows):
        return Zero(equations)
    return Product([Nonnegative(len(rows) - equations), Zero(equations)])


def _bound(feature: str, factor: float, bound: float) -> Row:
    what = f"coefficient of {feature}" if factor > 0 else f"minus the coefficient of {feature}"
    return Row(what, {feature: factor}, factor * bound)


def _check_range(name: str, stated: Mapping[str, Any]) -> None:
    known = bool(stated) and stated.keys() <= SIDES.keys()
    if not known or not all(isfinite(bound) for bound in stated.values()):
        raise OptionError(
            f"coefficients: {name} = {dict(stated)}; give at_least, at_most or both, as finite numbers",
            code="FP-OPTION-716",
            key="coefficients",
        )
    if len(stated) == 2 and not stated["at_least"] < stated["at_most"]:
        raise OptionError(
            f"coefficients: {name} has at_least = {stated['at_least']:g} and at_most = {stated['at_most']:g}; "
            "give at_least below at_most",
            code="FP-OPTION-717",
            key="coefficients",
        )
