"""What one owner holds: an objective, a constraint, and a part of a coupled constraint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpact.cones import Cone, Nonnegative, Product
from fedpact.errors import ProblemError
from fedpact.functions import Function, Map, Stack, as_map
from fedpact.types import Matrix, Vector


@dataclass(frozen=True, eq=False)
class Constraint:
    """function(w) <=_cone 0, that is: -function(w) lies in the cone.

    function: a Map, or a scalar Function (a map of length one)
    cone:     a Cone of the same length, which FederatedProblem checks since it knows the owner's name

    Raises ProblemError when either is of another type.
    """

    function: Map
    cone: Cone

    def __post_init__(self) -> None:
        object.__setattr__(self, "function", as_map(self.function))
        if not isinstance(self.cone, Cone):
            raise ProblemError(f"a constraint needs a cone of fedpact.cones, got {self.cone!r}", code="FP-PROBLEM-100")

    @property
    def convex(self) -> bool:
        """Whether the set of feasible points is known to be convex."""
        return _is_convex(self.function, self.cone)


@dataclass(frozen=True, eq=False)
class Share:
    """One owner's part of a problem; it never leaves the owner.

    objective:  a smooth Function, or None
    constraint: a Constraint, a sequence of them (all must hold), or None
    coupled:    a Map whose sum over all owners must be <= 0, or None
    name:       how messages call the owner; by default its number, as in 'client 3'
    measures:   what this owner reports about a finished model, by name (its rows, the recall on them, ...), or None;
                numbers that are a `Measure` know their rows, and others a site with a rule for small cells withholds
    private:    how many variables the owner keeps for itself, such as an intercept of its own. Its functions (and
                measures) take (w, v): the common variables first, then the private ones, which never leave the owner
    coupled_cone: K of the coupled constraint, sum_i coupled_i(w) <=_K 0, the same at all owners that hold a part of it;
                <= 0 in every row when None

    Raises ProblemError when a part is of another type.
    """

    objective: Function | None = None
    constraint: Constraint | None = None
    coupled: Map | None = None
    name: str | None = None
    measures: Callable[[Vector], Mapping[str, float]] | None = None
    private: int = 0
    coupled_cone: Cone | None = None

    def __post_init__(self) -> None:
        if isinstance(self.private, bool) or not isinstance(self.private, int | np.integer) or self.private < 0:
            raise ProblemError(
                f"{self.label}: private = {self.private!r}; give how many variables it keeps for itself, 0 or more",
                code="FP-PROBLEM-137",
            )
        if self.objective is not None and not isinstance(self.objective, Function):
            raise ProblemError(
                f"{self.label}: the objective must be one of fedpact.functions, got {type(self.objective).__name__}; "
                "wrap a Python callable as fp.functions.Smooth(fun)",
                code="FP-PROBLEM-101",
            )
        object.__setattr__(self, "constraint", combine(self._list_constraints()))
        if self.coupled is not None:
            try:
                object.__setattr__(self, "coupled", as_map(self.coupled))
            except ProblemError as error:
                raise error.within(f"{self.label}: the coupled constraint") from error
        self._check_coupled_cone()

    def _check_coupled_cone(self) -> None:
        """The cone of the coupled constraint: of the length of its map, the orthant where none is given."""
        cone = self.coupled_cone
        length = None if self.coupled is None else self.coupled.length
        if cone is None and length is not None:
            object.__setattr__(self, "coupled_cone", Nonnegative(length))
        elif cone is not None and (not isinstance(cone, Cone) or length not in (None, cone.dim)):
            raise ProblemError(
                f"{self.label}: coupled_cone = {cone!r}, its coupled map has length {length}; give a cone of "
                "fedpact.cones of that dimension",
                code="FP-PROBLEM-254",
            )
        elif cone is not None and self.coupled is None:
            raise ProblemError(
                f"{self.label}: coupled_cone = {cone!r} without a coupled map; give coupled as well, or leave it out",
                code="FP-PROBLEM-255",
            )

    def _list_constraints(self) -> list[Constraint]:
        """The constraints as they were given: none, one, or a sequence of them."""
        given: Any = self.constraint
        if given is None:
            return []
        if not isinstance(given, Sequence) or isinstance(given, str):
            given = [given]
        for constraint in given:
            if not isinstance(constraint, Constraint):
                raise ProblemError(
                    f"{self.label}: the constraint must be fp.Constraint(function, cone), got "
                    f"{type(constraint).__name__}",
                    code="FP-PROBLEM-102",
                )
        return list(given)

    @property
    def label(self) -> str:
        """How messages call the owner."""
        return self.name or "a share"

    @property
    def parts(self) -> dict[str, Function | Map]:
        """The functions this share is made of, by their role."""
        parts: dict[str, Function | Map] = {}
        if self.objective is not None:
            parts["objective"] = self.objective
        if self.constraint is not None:
            parts["constraint"] = self.constraint.function
        if self.coupled is not None:
            parts["coupled constraint"] = self.coupled
        return parts

    @property
    def multiplier_length(self) -> int:
        """Length of the multiplier of its constraint; 0 without one."""
        return 0 if self.constraint is None else self.constraint.cone.dim

    @property
    def has_hessian(self) -> bool:
        """Whether all parts have second derivatives."""
        if self.objective is not None and not self.objective.has_hessian:
            return False
        if self.constraint is not None and not self.constraint.function.has_hessian:
            return False
        return self.coupled is None or self.coupled.has_hessian

    @property
    def convex(self) -> bool:
        """Whether its objective and its constraints are known to be convex."""
        parts = all(part is None or part.convex for part in (self.objective, self.constraint))
        return parts and self.coupled_convex

    @property
    def coupled_convex(self) -> bool:
        """Whether its part of the coupled constraint, as a constraint with that cone, is known to be convex."""
        if self.coupled is None:
            return True
        return self.coupled_cone is not None and _is_convex(self.coupled, self.coupled_cone)

    @property
    def constraints_convex(self) -> bool:
        """Whether its constraints, its part of the coupled one included, are known to be convex."""
        return (self.constraint is None or self.constraint.convex) and self.coupled_convex

    @property
    def slack(self) -> int:
        """Slack variables of its own that a reformulation put between w and the private variables."""
        return 0

    @property
    def first_private(self) -> Vector:
        """Where the private variables start: where the first function that suggests a start has them, else at zero."""
        suggested = [part.start for part in self.parts.values() if part.start is not None]
        if self.private and suggested:
            return np.array(suggested[0][-self.private :])
        return np.zeros(self.private)

    def own(self, w: Vector, multiplier: Vector) -> tuple[Share, Vector, Vector]:
        """This share, w and multiplier in the variables of the user; a reformulated share translates them back.

        w: followed by the private variables, where there are some
        """
        return self, w, multiplier


@dataclass(frozen=True, eq=False)
class Unscaled:
    """An owner's rows before there is a share: scaling and total are agreed on first.

    X: NaN where a value is absent; weight: of each row, None: 1
    """

    X: Matrix
    weight: Vector | None = None


@dataclass(frozen=True)
class Local:
    """A share evaluated at w, that is at (w, v) where it has private variables."""

    objective: float
    gradient: Vector
    value: Vector  # c(w)
    jacobian: Matrix
    coupled: Vector
    coupled_jacobian: Matrix


@dataclass(frozen=True)
class Curvature:
    """Second derivatives of a share at the w where it was evaluated, from what was computed there; None: zero."""

    dim: int
    objective: Callable[[], Matrix] | None = None
    constraint: Callable[[Vector], Matrix] | None = None
    coupled: Callable[[Vector], Matrix] | None = None

    def lagrangian(self, multiplier: Vector, coupled_multiplier: Vector) -> Matrix:
        """hess f + sum_k multiplier_k hess c_k + sum_k coupled_k hess (coupled part)_k."""
        hessian = None
        if self.objective is not None:
            hessian = self.objective()
        if self.constraint is not None and multiplier.any():
            bent = self.constraint(multiplier)
            hessian = bent if hessian is None else hessian + bent
        if self.coupled is not None and coupled_multiplier.any():
            bent = self.coupled(coupled_multiplier)
            hessian = bent if hessian is None else hessian + bent
        if hessian is None:
            return np.zeros((self.dim, self.dim))
        return hessian


def expand(share: Share, w: Vector, coupled_length: int = 0) -> tuple[Local, Curvature]:
    """Values, first and second derivatives of all parts of a share at w; zero for a part that it does not have.

    coupled_length: rows of the coupled constraint, in which not every owner has a part
    """
    bends: dict[str, Any] = {}
    if share.objective is None:
        objective = 0.0
        gradient = np.zeros(w.size)
    else:
        objective, gradient, bends["objective"] = share.objective.expand(w)
    if share.constraint is None:
        value = np.zeros(0)
        jacobian = np.zeros((0, w.size))
    else:
        value, jacobian, bend = share.constraint.function.expand(w)
        if not share.constraint.function.affine:
            bends["constraint"] = bend
    if share.coupled is None:
        coupled = np.zeros(coupled_length)
        coupled_jacobian = np.zeros((coupled_length, w.size))
    else:
        coupled, coupled_jacobian, bend = share.coupled.expand(w)
        if not share.coupled.affine:
            bends["coupled"] = bend
    local = Local(objective, gradient, value, jacobian, coupled, coupled_jacobian)
    return local, Curvature(w.size, **bends)


def evaluate(share: Share, w: Vector, coupled_length: int = 0) -> Local:
    """`expand` without second derivatives."""
    return expand(share, w, coupled_length)[0]


def combine(constraints: Sequence[Constraint]) -> Constraint | None:
    """One constraint that holds when all of them do; None for an empty sequence."""
    if not constraints:
        return None
    if len(constraints) == 1:
        return constraints[0]
    functions = Stack([constraint.function for constraint in constraints])
    cones = Product([constraint.cone for constraint in constraints])
    return Constraint(functions, cones)


def _is_convex(function: Map, cone: Cone) -> bool:
    """Whether {w : function(w) <=_cone 0} is known to be convex.

    It is for affine maps with any cone, and for convex rows with the orthant. A stack is judged part by part where its
    parts are those of a product of cones.
    """
    if isinstance(function, Stack) and isinstance(cone, Product):
        pairs = zip(function.parts, cone.cones, strict=False)
        return all(part.length == factor.dim and _is_convex(part, factor) for part, factor in pairs)
    return function.affine or (function.convex and isinstance(cone, Nonnegative))
