"""The contract of a cone: projections, distances to normal cones, and the interior of a symmetric cone."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedpact.cones.max_norm import all_finite, max_norm, splitting_distance
from fedpact.errors import ProblemError
from fedpact.types import Matrix, Vector


class Cone(ABC):
    """A closed convex cone K in R^dim; `c(w) <=_K 0` means that -c(w) lies in K.

    A multiplier mu lies in the dual cone K* = {mu : <mu, k> >= 0 for all k in K}. Complementarity asks the
    constraint value to lie in its normal cone `N_{K*}(mu) = {s in -K : <s, mu> = 0}`.

    A subclass implements `project`, `project_dual_jacobian` and `project_normal`; the dual projection and the
    distances follow from them. Vectors have length `dim` and are not modified. Projections expect finite input;
    `violation` and `normal_distance`, which enter the certificate, are infinite when an entry is not finite.

    A symmetric cone (`symmetric = True`) also implements its interior: `degree`, `identity`, `move_inside`,
    `inverse`, `scaling` and `longest_step`. An interior-point method keeps a slack s and a multiplier z in the
    interior of K. With the Nesterov-Todd scaling W of the pair, W z = W^-1 s, complementarity s o z = tau e has
    the linearization

        z + dz = tau s^-1 - D ds,   D = W^-2,

    in the Jordan algebra of the cone: numbers, second-order cones and matrices alike. A cone that is not symmetric may
    have an interior too (`has_interior`, as `Exponential`): with a barrier phi, s^-1 = -grad phi(s) in K*, a D with
    D s = z, and a `longest_dual_step` of its own. References: Nesterov and
    Todd (1997); Vandenberghe (2010), "The CVXOPT linear and quadratic cone program solvers".
    """

    dim: int
    #: True when the cone is its own dual and implements its interior.
    symmetric: bool = False
    #: Relative size below which the distance of a multiplier to a face of K* counts as rounding.
    rounding: ClassVar[float] = 1e-12

    @property
    def blocks(self) -> tuple[Cone, ...]:
        """The cones of which this one is a product: itself alone, unless it is a `Product`."""
        return (self,)

    @property
    def has_interior(self) -> bool:
        """Whether the cone implements its interior: all that are symmetric do, and some that are not."""
        return self.symmetric

    # Projections.

    @abstractmethod
    def project(self, v: Vector) -> Vector:
        """Euclidean projection of v onto K."""

    @abstractmethod
    def project_dual_jacobian(self, v: Vector) -> Matrix:
        """One element of the generalized Jacobian of `project_dual` at v.

        A dim x dim matrix, or its diagonal as a vector; the same of the two for every v.
        """

    @abstractmethod
    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        """Euclidean projection of v onto N_{K*}(multiplier), for a multiplier in K*.

        A multiplier within `rounding` (relative to its norm) of a face of K* is taken to lie on that face.
        """

    def project_dual(self, v: Vector) -> Vector:
        """Euclidean projection of v onto K*, by Moreau's identity v = P_{K*}(v) - P_K(-v).

        The difference leaves rounding where the projection is zero; a cone that can project directly overrides it.
        """
        return v + self.project(-v)

    def face(self, exposing: Vector) -> tuple[Matrix, Cone | None] | None:
        """The face {s in K : <exposing, s> = 0} of a nonzero vector of K*: s in it has coordinates rows @ s in a cone.

        The rows are orthonormal, the face lies in their span; no rows and None for the face {0}. None: not known.
        """
        return None

    # Distances.

    def distance(self, v: Vector) -> float:
        """Euclidean distance from v to K."""
        return float(np.linalg.norm(v - self.project(v)))

    def violation(self, v: Vector) -> float:
        """Violation of v <=_K 0 in the max-norm: |v - P_{-K}(v)|_inf, which is |P_{K*}(v)|_inf by Moreau."""
        if not all_finite(v):
            return math.inf
        return max_norm(self.project_dual(v))

    def normal_distance(self, v: Vector, multiplier: Vector) -> float:
        """Max-norm distance from v to N_{K*}(multiplier), or a tight upper bound; never less, up to rounding.

        N is empty outside K*. There the distance is taken at the projection of the multiplier onto K*, and the
        result is at least |multiplier - projection|_inf.
        """
        if not (all_finite(v) and all_finite(multiplier)):
            return math.inf
        nearest = self.project_dual(multiplier)
        outside = max_norm(multiplier - nearest)
        size = max_norm(v)
        if size == 0.0:  # N is a cone: it contains 0
            return outside
        # N depends on the direction of the multiplier only, and the distance is homogeneous in v.
        price = max_norm(nearest)
        direction = nearest / price if price > 0.0 else nearest
        return max(outside, size * self._normal_distance(v / size, direction))

    def _normal_distance(self, v: Vector, multiplier: Vector) -> float:
        """`normal_distance` for |v|_inf = 1 and a multiplier in K* with max-norm 1 or 0."""
        return splitting_distance(lambda w: self.project_normal(w, multiplier), v)

    # Interior, of a symmetric cone only: s, z and ds are a slack, a multiplier and a step of either.

    @property
    def degree(self) -> int:
        """Degree of the barrier phi of K: <s, s^-1> for every s; 0 for equalities, which have no slack."""
        raise self._no_interior()

    @property
    def has_slack(self) -> NDArray[np.bool_]:
        """For each row, whether its constraint has a slack; an equality has none, and its multiplier is free."""
        return all_rows(self.dim)

    def identity(self) -> Vector:
        """The identity element e of the Jordan algebra, s o e = s; 0 in rows without slack."""
        raise self._no_interior()

    def move_inside(self, v: Vector, margin: Vector) -> Vector:
        """A point of the interior near v: as deep inside as v is inside or outside, and by `margin` (> 0) at least.

        Depth is the smallest eigenvalue of the Jordan algebra; `margin` holds one number for each row.
        """
        raise self._no_interior()

    def inverse(self, s: Vector) -> Vector:
        """s^-1 in the Jordan algebra, which is -grad phi(s) for the barrier phi of K; 0 in rows without slack."""
        raise self._no_interior()

    def scaling(self, s: Vector, z: Vector) -> Matrix:
        """D = W^-2 of the pair, so that D s = z: a dim x dim matrix, or its diagonal as a vector."""
        raise self._no_interior()

    def quadratic(self, z: Vector) -> Matrix:
        """Quadratic representation of z: z + quadratic(z) y stays inside for small y of the size of z^-1.

        A dim x dim matrix, or its diagonal as a vector; z may lie on the boundary.
        """
        return self.scaling(self.inverse(z), z)

    def longest_step(self, s: Vector, ds: Vector) -> float:
        """The largest t for which s + t ds lies in K; inf when there is none."""
        raise self._no_interior()

    def longest_dual_step(self, z: Vector, dz: Vector) -> float:
        """The same in K*, which is K where the cone is symmetric."""
        return self.longest_step(z, dz)

    def sensitivity(self, jacobian: Matrix) -> Vector:
        """theta = 1 / max |J|: the change of the multiplier that weighs as much as a change of c by 1.

        One number for all rows: a cone that ties its rows together does not allow a scale for each of them.
        """
        steepest = np.max(np.abs(jacobian), initial=0.0)
        return np.full(self.dim, _reciprocal(steepest))

    def clean(self, multiplier: Vector, value: Vector, jacobian: Matrix) -> Vector:
        """P_{K*}(z + theta c): sets a multiplier to exactly zero where its constraint does not bind.

        Multipliers of a barrier are never zero, but the certificate asks for c_j = 0 wherever z_j > 0. Setting z_j to
        zero adds |J_j| z_j to the stationarity residual and removes |c_j| from the feasibility residual;
        theta_j = 1 / |J_j| takes the smaller of the two.
        """
        return self.project_dual(multiplier + self.sensitivity(jacobian) * value)

    def _no_interior(self) -> TypeError:
        return TypeError(f"{self!r} has no symmetric interior")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim})"


@lru_cache(maxsize=64)
def all_rows(dim: int) -> NDArray[np.bool_]:
    """True for each of so many rows, read-only."""
    rows = np.ones(dim, dtype=np.bool_)
    rows.setflags(write=False)
    return rows


def sensitivity_by_row(jacobian: Matrix) -> Vector:
    """theta_j = 1 / max_k |J_jk|, for cones in which every row is a constraint of its own."""
    return _reciprocal(np.maximum.reduce(np.abs(jacobian), axis=-1, initial=0.0))


def shift_inside(v: Vector, depth: float, margin: Vector, identity: Vector) -> Vector:
    """v + t e with t such that the smallest eigenvalue, `depth` at v, becomes max(|depth|, max margin)."""
    wanted = max(abs(depth), float(np.max(margin)))
    return v + (wanted - depth) * identity


def _reciprocal(slopes: Vector) -> Vector:
    """1 / slopes, and 1 where a slope is zero."""
    if not slopes.all():
        slopes = np.where(slopes > 0, slopes, 1.0)
    return 1 / slopes


def positive_int(owner: str, argument: str, value: object) -> int:
    """value as an int; ProblemError unless it is an integer of at least 1."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise ProblemError(
            f"{owner}: {argument} must be an integer of at least 1, found {value!r}", code="FP-PROBLEM-198"
        )
    return number
