"""An owner's part of the equations that a solution and its prices solve: `inference.py` says what they are for.

Both are in the order of the unknowns (w, coupled constraints that bind, own constraints that bind, private variables),
the last of which the owner eliminates, as `interior-point` does: they never leave it. What belongs to one owner alone,
the slopes and the spread of its own constraint, travels by itself and is counted by its policy.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fedpact.cones import Cone, Nonnegative, Product, Zero
from fedpact.federation import Order, Reply, Summed, client_step
from fedpact.functions import Contributions
from fedpact.problem import Share
from fedpact.problem.share import evaluate
from fedpact.solvers.steps import model_of
from fedpact.types import Matrix, Vector

#: Within so many standard errors of zero a price, or the room below a bound, may be zero: the bound may bind or not.
WEAK = 1.96
#: A curvature below zero by less than this part of the largest is rounding.
CONVEX = 1e-9


@dataclass(frozen=True, kw_only=True)
class Infer(Order):
    """w: the solution; prices: of everyone's constraint, one after another; lengths: by name, JSON; coupled: price"""

    w: Vector
    prices: Vector
    lengths: str
    coupled: Vector
    covariance: str


@dataclass(frozen=True, kw_only=True)
class Inferred(Reply):
    """An owner's part of K and S, in the order (w, coupled constraints that bind), and what is its own.

    scatter:    sum over rows of the outer product of what a row adds, without centring: by it is judged how far
                the solve is from where these rows put the solution
    score:      of the equations' left sides
    squares:    of residuals; dispersed: whether the model has a dispersion that they estimate
    own_system: rows of its own constraints that bind, in K: derivatives by (w, coupled, their own prices)
    own_spread: the same in S; own_score: values of these constraints
    own_curvature: how curved they are along their slopes, see `_Part.curvature`
    alone:      1 where its objective is of one row, whose spread is not known
    near:       how many of its constraints do not bind but nearly do
    cell:       rows that its own constraints rest on, at least; it stays with the owner
    uncovered:  why there are no standard errors, a word of UNCOVERED; empty: there are
    """

    system: Summed[Matrix]
    spread: Summed[Matrix]
    scatter: Summed[Matrix]
    score: Summed[Vector]
    rows: Summed[float]
    squares: Summed[float]
    alone: Summed[float]
    dispersed: bool
    own_system: Matrix
    own_spread: Matrix
    own_score: Vector
    own_curvature: Vector
    near: int = 0
    cell: int = 0
    uncovered: str = ""

    @classmethod
    def none(cls, size: int, why: str) -> Self:
        """The reply of an owner whose functions have no standard errors; `size` is that of K and S."""
        nothing = np.zeros((size, size))
        own = np.zeros((0, size))
        return cls(
            system=nothing,
            spread=nothing,
            scatter=nothing,
            score=np.zeros(size),
            rows=0.0,
            squares=0.0,
            alone=0.0,
            dispersed=False,
            own_system=own,
            own_spread=own,
            own_score=np.zeros(0),
            own_curvature=np.zeros(0),
            uncovered=why,
        )

    def withhold(self, least: int) -> Self:
        if self.own_score.size and self.cell < least:
            return self.none(self.score.size, "withheld")
        return replace(self, cell=0)


#: Why an owner's part has no standard errors, in words.
UNCOVERED = {
    "cone": "its constraint is in a cone other than <= 0 and = 0",
    "rows": "the spread of the rows of one of its functions is not known: smoothed rates, gaps in probability "
    "and functions of one's own have none",
    "hessian": "one of its functions has no second derivatives",
    "likelihood": 'its objective is not a likelihood, or its constraints depend on its rows; use "sandwich"',
    "clusters": 'its own constraint binds, which says nothing about owners not seen; use "sandwich"',
    "alone": "its own constraint binds and rests on one row, whose spread is not known",
    "withheld": "its own constraint rests on too few rows for its policy",
    "private": "its private variables are not determined by its rows",
}


@client_step
def infer_share(share: Share, state: Any, order: Infer) -> tuple[Any, Inferred]:
    """This owner's part of the equations at the solution: derivatives, spread, and how close constraints are."""
    point = model_of(share, state, order.w)
    return state, part_of(share, point, split_prices(order)[share.label], order, known=False)


def part_of(share: Share, point: Vector, price: Vector, order: Infer, known: bool) -> Inferred:
    """The reply for one share at (w, v). known: functions that have no rows are exact, as the coordinator's are."""
    size = order.w.size + int(np.count_nonzero(order.coupled))
    part = _Part(share, point, price, order, known)
    why = part.uncovered()
    if why:
        return Inferred.none(size, why)
    system = part.system()
    spread = part.spread()
    scatter = part.scatter()
    score = part.score()
    if share.private:
        kept = system.shape[0] - share.private
        inner = system[kept:, kept:]
        if np.linalg.cond(inner) > 1 / np.finfo(float).eps:
            return Inferred.none(size, "private")
        # The private variables, eliminated: what is left of the other equations once v solves its own.
        keep = np.hstack([np.eye(kept), -np.linalg.solve(inner, system[kept:, :kept]).T])
        system = keep @ system @ keep.T
        spread = keep @ spread @ keep.T
        scatter = keep @ scatter @ keep.T
        score = keep @ score
    rows, squares = part.dispersion()
    return Inferred(
        system=system[:size, :size],
        spread=spread[:size, :size],
        scatter=scatter[:size, :size],
        score=score[:size],
        rows=rows,
        squares=squares or 0.0,
        alone=float(part.alone),
        dispersed=squares is not None,
        own_system=system[size:],
        own_spread=spread[size:],
        own_score=score[size:],
        own_curvature=part.curvature(),
        near=part.count_near(),
        cell=part.cell(),
    )


def split_prices(order: Infer) -> dict[str, Vector]:
    """The price of everyone's constraint, by name."""
    lengths = json.loads(order.lengths)
    ends = np.cumsum(list(lengths.values()), dtype=int)
    return dict(zip(lengths, np.split(order.prices, ends[:-1]), strict=True))


class _Part:
    """One share at the solution; unknowns are ordered (w, coupled, own, private)."""

    def __init__(self, share: Share, point: Vector, price: Vector, order: Infer, known: bool) -> None:
        self.share = share
        self.point = point
        self.price = price
        self.order = order
        self.binding = np.flatnonzero(price)
        self.shared = np.flatnonzero(order.coupled)
        self.objective = self._rows_of(share.objective, known)
        self.constraint = self._rows_of(None if share.constraint is None else share.constraint.function, known)
        self.coupled = self._rows_of(share.coupled, known)
        # From (w, private, coupled, own), as functions and constraints have them, to the order of the unknowns.
        size = point.size + self.shared.size + self.binding.size
        self.places = np.r_[: order.w.size, point.size : size, order.w.size : point.size]

    def _rows_of(self, function: Any, known: bool) -> Any:
        """What single rows add to a function or map; None when it is not known."""
        if function is None:
            return []
        found = function.contributions(self.point)
        if found is None and known:
            return []
        return found

    def uncovered(self) -> str:
        """Why this share has no standard errors, a word of UNCOVERED; empty: it has."""
        share = self.share
        cones = [share.coupled_cone, None if share.constraint is None else share.constraint.cone]
        if not all(cone is None or is_orthant(cone) for cone in cones):
            return "cone"
        if not share.has_hessian:
            return "hessian"
        if self.objective is None or self.constraint is None or self.coupled is None:
            return "rows"
        if any(one.alone for _, rows in self._binding_rows() for one in rows):
            return "alone"
        if self.order.covariance == "clustered" and self.binding.size and any(self.constraint):
            return "clusters"
        if self.order.covariance == "model" and not self._is_likelihood():
            return "likelihood"
        return ""

    def _is_likelihood(self) -> bool:
        objective = self.share.objective
        if any(rows for _, rows in (*self._binding_rows(), *self._shared_rows())):
            return False
        return objective is None or objective.information(self.point) is not None

    def _binding_rows(self) -> list[tuple[float, list[Contributions]]]:
        """Price and rows of each of its own constraints that bind."""
        return [(self.price[j], self.constraint[j]) for j in self.binding if self.constraint]

    def _shared_rows(self) -> list[tuple[float, list[Contributions]]]:
        """The same of the coupled constraints that bind."""
        return [(self.order.coupled[j], self.coupled[j]) for j in self.shared if self.coupled]

    # ------------------------------------------------------------------------------------------------ K, S, left sides

    def system(self) -> Matrix:
        """K of this share: the Hessian of its Lagrangian, bordered by the Jacobian of what binds."""
        share = self.share
        width = self.point.size
        hessian = np.zeros((width, width))
        border = np.zeros((self.shared.size + self.binding.size, width))
        if share.objective is not None:
            hessian = hessian + share.objective.hessian(self.point)
        if share.coupled is not None:
            hessian = hessian + share.coupled.weighted_hessian(self.point, self.order.coupled)
            border[: self.shared.size] = share.coupled.jacobian(self.point)[self.shared]
        if share.constraint is not None:
            function = share.constraint.function
            hessian = hessian + function.weighted_hessian(self.point, self.price)
            border[self.shared.size :] = function.jacobian(self.point)[self.binding]
        whole = np.block([[hessian, border.T], [border, np.zeros((len(border), len(border)))]])
        return np.asarray(whole[np.ix_(self.places, self.places)])

    def score(self) -> Vector:
        """Left sides of the equations: gradient of the Lagrangian, and values of the constraints that bind."""
        here = evaluate(self.share, self.point, self.order.coupled.size)
        gradient = here.gradient + here.jacobian.T @ self.price + here.coupled_jacobian.T @ self.order.coupled
        whole = np.concatenate([gradient, here.coupled[self.shared], here.value[self.binding]])
        return np.asarray(whole[self.places])

    def spread(self) -> Matrix:
        """S of this share."""
        kind = self.order.covariance
        size = self.places.size
        if kind == "clustered":
            score = self.score()
            return np.outer(score, score)
        if kind == "model":
            found = np.zeros((size, size))
            if self.share.objective is not None:
                information = self.share.objective.information(self.point)
                found[: self.point.size, : self.point.size] = information
            return np.asarray(found[np.ix_(self.places, self.places)])
        moved = self._moved(centred=kind == "sandwich")[:, self.places]
        return np.asarray(moved.T @ moved)

    def scatter(self) -> Matrix:
        """The outer products of what single rows add, summed."""
        moved = self._moved(centred=False)[:, self.places]
        return np.asarray(moved.T @ moved)

    def curvature(self) -> Vector:
        """Of each own constraint that binds 1 / (g' H^-1 g), g its gradient, H its Hessian; 0 if straight, not convex.

        To second order that is one over twice the room between its bound and the least value it could have.
        """
        found = np.zeros(self.binding.size)
        if self.share.constraint is None:
            return found
        function = self.share.constraint.function
        jacobian = function.jacobian(self.point)
        for place, j in enumerate(self.binding):
            hessian = function.weighted_hessian(self.point, np.eye(self.price.size)[j])
            size = np.sqrt(np.abs(np.diag(hessian)))
            if not size.any():
                continue
            size[size == 0] = 1.0  # a unit of its own for every column, so that none hides behind another's
            curved, axes = np.linalg.eigh(hessian / np.outer(size, size))
            if curved[0] < -CONVEX * curved[-1]:
                continue  # a difference of losses, such as a gap, has no least value to be close to
            curved = np.maximum(curved, np.finfo(float).eps)
            room = float(np.sum((axes.T @ (jacobian[j] / size)) ** 2 / curved))
            found[place] = 1 / room if room > 0 else 0.0
        return found

    def _moved(self, centred: bool) -> Matrix:
        """By how much each row moves each left side, (rows, unknowns)."""
        width = self.point.size
        terms: list[tuple[float, int | None, Contributions]] = [(1.0, None, one) for one in self.objective]
        for column, (price, rows) in enumerate(self._shared_rows(), width):
            terms += [(price, column, one) for one in rows]
        for column, (price, rows) in enumerate(self._binding_rows(), width + self.shared.size):
            terms += [(price, column, one) for one in rows]
        count = 1 + max((int(one.numbers.max(initial=-1)) for _, _, one in terms), default=-1)
        moved = np.zeros((count, self.places.size))
        for price, place, one in terms:
            centre = one.centre()
            gradient = centre.gradient if centred else one.gradient
            moved[one.numbers, :width] += price * gradient
            if place is not None:
                moved[one.numbers, place] += centre.value
        return moved

    # ------------------------------------------------------------------------------------------------------- about them

    def dispersion(self) -> tuple[float, float | None]:
        """Rows of the objective, and the sum of squared residuals where they estimate a dispersion."""
        rows = sum(int(np.count_nonzero(one.weight)) for one in self.objective)
        objective = self.share.objective
        return float(rows), None if objective is None else objective.squares(self.point)

    @property
    def alone(self) -> bool:
        """Whether its objective is of one row."""
        return any(one.alone for one in self.objective)

    def cell(self) -> int:
        """Rows that the constraints which bind rest on, at least."""
        counts = [int(np.count_nonzero(one.weight)) for _, rows in self._binding_rows() for one in rows]
        return min(counts, default=0)

    def count_near(self) -> int:
        """Constraints of this owner that do not bind, and are so close that on other rows they might."""
        constraint = self.share.constraint
        if constraint is None or not self.constraint:
            return 0
        value = constraint.function.value(self.point)
        near = 0
        for j in np.flatnonzero(self.price == 0):
            variance = sum(float(np.sum(one.centre().value ** 2)) for one in self.constraint[j])
            near += bool(variance) and -value[j] < WEAK * math.sqrt(variance)
        return near


def is_orthant(cone: Cone) -> bool:
    """Whether every row is <= 0 or = 0 by itself."""
    if isinstance(cone, Product):
        return all(is_orthant(part) for part in cone.cones)
    return isinstance(cone, Nonnegative | Zero)
