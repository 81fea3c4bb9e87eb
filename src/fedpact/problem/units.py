"""A problem in units of its own: columns, rows and objective scaled so that all derivatives are of size one.

Residuals of a certificate depend on the units of the data: a tolerance of 1e-6 asks for everything where losses are
counted in millions, and for nothing where they are counted in millionths. In the units here,

    w = columns * v,      f~ = objective * f,      c~_i = rows_i * c_i,

the largest entry in every column and every row of the derivatives at the start is about one (Ruiz 2001, "A scaling
algorithm to equilibrate both rows and columns norms in matrices"), rows that one cone ties together having one factor.
All factors are powers of two, so nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedpact.cones import Cone, Nonnegative, Zero
from fedpact.functions.rescaled import RescaledFunction, rescale_map
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Constraint, Share
from fedpact.prox.rescaled import even_columns, rescale_prox
from fedpact.types import Matrix, Vector

#: Passes of the equilibration; it converges like a half, then a quarter, ...
PASSES = 12
#: No factor is beyond this, or below its inverse: what is that small is zero up to rounding.
MOST = 2.0**40
#: Hessians of this many owners say how the objective bends.
OWNERS = 32


@dataclass(frozen=True)
class Units:
    """Factors of the columns, of every holder's rows (server first), of the coupled rows and of the objective."""

    columns: Vector
    rows: tuple[Vector, ...]
    coupled: Vector
    objective: float

    @property
    def spread(self) -> float:
        """The largest factor, or the inverse of the smallest."""
        factors = np.concatenate([self.columns, *self.rows, self.coupled, [self.objective]])
        return float(2.0 ** np.max(np.abs(np.log2(factors))))

    def rescale(self, problem: FederatedProblem) -> FederatedProblem:
        """The problem in these units."""
        server, *owners = (
            self._rescale_share(share, rows) for share, rows in zip(problem.holders, self.rows, strict=True)
        )
        regularizer = rescale_prox(problem.regularizer, self.columns, self.objective)
        return FederatedProblem(owners, server if server.parts else None, regularizer)

    def _rescale_share(self, share: Share, rows: Vector) -> Share:
        objective = None
        constraint = None
        coupled = None
        if share.objective is not None:
            objective = RescaledFunction(share.objective, self.columns, self.objective)
        if share.constraint is not None:
            constraint = Constraint(rescale_map(share.constraint.function, self.columns, rows), share.constraint.cone)
        if share.coupled is not None:
            coupled = rescale_map(share.coupled, self.columns, self.coupled)
        return replace(share, objective=objective, constraint=constraint, coupled=coupled)

    def tighten(self, tol: tuple[float, float]) -> tuple[float, float]:
        """Tolerances in these units that meet `tol` in the user's."""
        stationarity = tol[0] * self.objective * float(np.min(self.columns))
        every = np.concatenate([*self.rows, self.coupled, [MOST]])
        return stationarity, tol[1] * float(np.min(every))

    def prices(self, multipliers: Sequence[Vector]) -> list[Vector]:
        """Multipliers of the user's problem from those of the rescaled one, by holder."""
        return [rows * given / self.objective for rows, given in zip(self.rows, multipliers, strict=True)]


def rescale_columns(share: Share, columns: Vector) -> Share:
    """The share as one of v, where w = columns * v; its values and multipliers stay what they are."""
    objective = None
    constraint = None
    if share.objective is not None:
        objective = RescaledFunction(share.objective, columns, 1.0)
    if share.constraint is not None:
        rows = np.ones(share.constraint.cone.dim)
        constraint = Constraint(rescale_map(share.constraint.function, columns, rows), share.constraint.cone)
    return replace(share, objective=objective, constraint=constraint)


def measure_units(problem: FederatedProblem, w: Vector) -> Units:
    """Units in which the derivatives at w are of size one, and so are the constraints in the middle."""
    bent, slope = _curvature(problem, w)
    held = [_rows_at(share, w) for share in problem.holders]
    held.append(_coupled_rows_at(problem, w))
    columns = np.ones_like(w)
    for _ in range(PASSES):
        steepest = _objective_factor(bent, slope, columns) * np.max(bent * np.outer(columns, columns), axis=0)
        for rows in held:
            scaled = rows.factors(columns)[:, None] * rows.jacobian * columns
            steepest = np.maximum(steepest, np.max(scaled, axis=0, initial=0.0))
        columns = even_columns(problem.regularizer, _clip(columns / np.sqrt(np.where(steepest > 0, steepest, 1.0))))
    columns = columns * _length(bent, slope, held, columns)
    columns = even_columns(problem.regularizer, _power(columns))
    *factors, coupled = [_power(rows.factors(columns)) for rows in held]
    objective = float(_power(np.array([_objective_factor(bent, slope, columns)]))[0])
    return Units(columns, tuple(factors), coupled, objective)


@dataclass(frozen=True)
class _Rows:
    """One holder's constraint at w: |c|, |J|, and the rows that need one factor."""

    value: Vector
    jacobian: Matrix
    groups: list[slice]

    def factors(self, columns: Vector) -> Vector:
        """The inverse of the largest slope in these units of the columns, for every row; 1 where all are zero."""
        heights = np.max(self.jacobian * columns, axis=1, initial=0.0)
        for group in self.groups:
            heights[group] = np.max(heights[group])
        return _clip(1 / np.where(heights > 0, heights, 1.0))


def _objective_factor(bent: Matrix, slope: Vector, columns: Vector) -> float:
    largest = max(float(np.max(bent * np.outer(columns, columns))), float(np.max(slope * columns)))
    return 1 / largest if largest > 0 else 1.0


def _length(bent: Matrix, slope: Vector, held: list[_Rows], columns: Vector) -> float:
    """How far away things are in these units: constraints, and the minimum of the objective; in the middle of all."""
    distances = [rows.factors(columns) * rows.value for rows in held]
    curved = float(np.max(bent * np.outer(columns, columns)))
    if curved > 0:
        distances.append(np.array([np.max(slope * columns) / curved]))
    found = np.concatenate(distances)
    found = found[found > 0]
    if not found.size:
        return 1.0
    return float(np.median(found))


def _curvature(problem: FederatedProblem, w: Vector) -> tuple[Matrix, Vector]:
    """The sum of |Hessians| over at most OWNERS owners, and |sum of gradients| at w; h with them where it is smooth."""
    bent = np.zeros((w.size, w.size))
    slope = np.zeros_like(w)
    holders = [share for share in problem.holders if share.objective is not None]
    part = holders[:OWNERS]
    for share in part:
        assert share.objective is not None
        slope += share.objective.gradient(w)
        if share.objective.has_hessian:
            bent += np.abs(share.objective.hessian(w))
    many = len(holders) / max(len(part), 1)
    bent *= many
    if problem.regularizer.curvature is not None:
        bent += np.diag(np.broadcast_to(problem.regularizer.curvature, w.size))
    return bent, many * np.abs(slope)


def _rows_at(share: Share, w: Vector) -> _Rows:
    if share.constraint is None:
        return _Rows(np.zeros(0), np.zeros((0, w.size)), [])
    value, jacobian = share.constraint.function.value_and_jacobian(w)
    return _Rows(np.abs(value), np.abs(jacobian), _row_groups(share.constraint.cone))


def _coupled_rows_at(problem: FederatedProblem, w: Vector) -> _Rows:
    value = np.zeros(problem.coupled_length)
    jacobian = np.zeros((problem.coupled_length, w.size))
    for share in problem.shares:
        if share.coupled is not None:
            own, slopes = share.coupled.value_and_jacobian(w)
            value = value + own
            jacobian = jacobian + slopes
    return _Rows(np.abs(value), np.abs(jacobian), _row_groups(problem.coupled_cone))


def _row_groups(cone: Cone | None) -> list[slice]:
    """Rows that one cone ties together; the others have factors of their own."""
    groups: list[slice] = []
    start = 0
    for block in () if cone is None else cone.blocks:
        if not isinstance(block, Nonnegative | Zero):
            groups.append(slice(start, start + block.dim))
        start += block.dim
    return groups


def _clip(factors: Vector) -> Vector:
    return np.clip(factors, 1 / MOST, MOST)


def _power(factors: Vector) -> Vector:
    """The nearest powers of two."""
    return np.asarray(2.0 ** np.round(np.log2(_clip(factors))))
