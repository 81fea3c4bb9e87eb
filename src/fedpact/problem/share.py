"""What one owner holds: an objective, a constraint, and a part of a coupled constraint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpact.cones import Cone, Nonnegative, Product
from fedpact.errors import ProblemError
from fedpact.functions import Function, Map, Stack, as_map

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Constraint:
    """function(w) <=_cone 0, that is: -function(w) lies in the cone.

    `function` is a Map, or a scalar Function (a map of length one). That its length is the cone's is checked by
    FederatedProblem, which knows the owner's name.
    """

    function: Map
    cone: Cone

    def __post_init__(self) -> None:
        object.__setattr__(self, "function", as_map(self.function))
        if not isinstance(self.cone, Cone):
            raise ProblemError(f"a constraint needs a cone of fedpact.cones, got {self.cone!r}")

    @property
    def convex(self) -> bool:
        """Is the set of points that meet it known to be convex?"""
        return _convex(self.function, self.cone)


@dataclass(frozen=True, eq=False)
class Share:
    """One owner's part of a problem; it never leaves the owner.

    objective:  a smooth Function, or None
    constraint: a Constraint, a sequence of them (all must hold), or None
    coupled:    a Map whose sum over all owners must be <= 0, or None
    name:       how messages call the owner; by default its number, as in 'client 3'
    measures:   what this owner tells about a finished model, by name (its rows, the recall on them, ...), or None
    """

    objective: Function | None = None
    constraint: Constraint | None = None
    coupled: Map | None = None
    name: str | None = None
    measures: Callable[[Vector], Mapping[str, float]] | None = None

    def __post_init__(self) -> None:
        if self.objective is not None and not isinstance(self.objective, Function):
            raise ProblemError(
                f"{self.label}: the objective must be one of fedpact.functions, got {type(self.objective).__name__}; "
                "wrap a Python callable as fp.functions.Smooth(fun)"
            )
        given: Any = self.constraint
        several = isinstance(given, Sequence) and not isinstance(given, str)
        constraints = list(given) if several else [] if given is None else [given]
        for one in constraints:
            if not isinstance(one, Constraint):
                raise ProblemError(
                    f"{self.label}: the constraint must be fp.Constraint(function, cone), got {type(one).__name__}"
                )
        object.__setattr__(self, "constraint", all_of(constraints))
        if self.coupled is not None:
            try:
                object.__setattr__(self, "coupled", as_map(self.coupled))
            except ProblemError as error:
                raise error.within(f"{self.label}: the coupled constraint") from error

    @property
    def label(self) -> str:
        return self.name or "a share"

    @property
    def parts(self) -> dict[str, Function | Map]:
        """The functions this share is made of, by their role."""
        constraint = None if self.constraint is None else self.constraint.function
        roles = {"objective": self.objective, "constraint": constraint, "coupled constraint": self.coupled}
        return {role: part for role, part in roles.items() if part is not None}

    @property
    def multiplier_length(self) -> int:
        return 0 if self.constraint is None else self.constraint.cone.dim

    @property
    def has_hessian(self) -> bool:
        """Do all parts of this share have second derivatives?"""
        return all(part.has_hessian for part in self.parts.values())

    @property
    def convex(self) -> bool:
        """Are its objective and its constraints known to be convex?"""
        return all(part is None or part.convex for part in (self.objective, self.constraint, self.coupled))

    def own(self, w: Vector, multiplier: Vector) -> tuple[Share, Vector, Vector]:
        """This share, w and multiplier in the variables of the user; a reformulated share translates them back."""
        return self, w, multiplier


@dataclass(frozen=True, eq=False)
class Unscaled:
    """An owner's rows before the scaling of their columns is agreed on; NaN where a value is absent."""

    X: Vector


def all_of(constraints: Sequence[Constraint]) -> Constraint | None:
    """One constraint that holds when all of them do; None for an empty sequence."""
    if len(constraints) < 2:
        return constraints[0] if constraints else None
    return Constraint(Stack([c.function for c in constraints]), Product([c.cone for c in constraints]))


def _convex(function: Map, cone: Cone) -> bool:
    """Is {w : function(w) <=_cone 0} known to be convex? Straight maps suit every cone, convex rows the orthant."""
    if isinstance(function, Stack) and isinstance(cone, Product):
        pairs = list(zip(function.parts, cone.cones, strict=False))
        return all(part.length == one.dim and _convex(part, one) for part, one in pairs)
    return function.affine or (function.convex and isinstance(cone, Nonnegative))
