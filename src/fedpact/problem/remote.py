"""Shares that only their owners hold: what the server knows of them, and stand-ins for the rest.

The server's half of a method needs an owner's name, the length of w, whether there are Hessians, and the kind of cone;
it never evaluates an owner's function. So a share elsewhere is an ordinary Share made of stand-ins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedpact.cones import PSD, Cone, Exponential, Nonnegative, Product, SecondOrder, Zero
from fedpact.errors import ProblemError
from fedpact.functions import Function, Map
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Constraint, Share
from fedpact.prox import Prox

Vector = NDArray[np.float64]


class Stated(Protocol):
    """A task that owners build their share from, on its way to them."""

    def stated(self) -> dict[str, Any]: ...


class RemoteProblem:
    """A problem whose shares are built at their owners: owner name -> what the engine hands to that owner.

    On Ray and in process that is a function that returns the Share (it runs at the owner, and is given the task where
    there is one), or the Share itself; a Flower site has its own data, and builds its share from the task. `server` and
    `regularizer` are as in FederatedProblem. It is solved like any other: fp.solve(problem, engine=...).
    """

    def __init__(
        self,
        sources: Mapping[str, object],
        server: Share | None = None,
        regularizer: Prox | None = None,
        task: Stated | None = None,
    ) -> None:
        if not sources:
            raise ProblemError("a problem needs at least one owner; give RemoteProblem({name: function, ...})")
        self.sources = dict(sources)
        self.server = server
        self.regularizer = regularizer
        self.task = task

    def described(self, descriptions: Mapping[str, Description]) -> FederatedProblem:
        """The problem as the server sees it, from what the owners say about their shares."""
        shares = [stand_in(name, descriptions[name]) for name in self.sources]
        problem = FederatedProblem(shares, self.server, self.regularizer)
        problem.convex = problem.server.convex and all(said.convex for said in descriptions.values())
        return problem


@dataclass(frozen=True)
class Description:
    """What an owner says about its share.

    dim:       length of w; -1 when its functions do not tell
    objective: is there one?
    cone:      of its constraint, as JSON; empty when there is none
    coupled:   length of its part of the coupled constraint; 0 when there is none
    hessian:   have all its functions second derivatives?
    convex:    are its objective and its constraints known to be convex?
    """

    dim: int
    objective: bool
    cone: str
    coupled: int
    hessian: bool
    convex: bool


def describe(share: Share) -> Description:
    """Checks the share as FederatedProblem does, and says what the server must know."""
    problem = FederatedProblem([share])
    cone = "" if share.constraint is None else json.dumps(cone_to_json(share.constraint.cone))
    dim = -1 if problem.dim is None else problem.dim
    return Description(dim, share.objective is not None, cone, problem.coupled_length, share.has_hessian, share.convex)


def stand_in(name: str, said: Description) -> Share:
    """A share for the server: it has the shape of the owner's, and cannot be evaluated."""
    dim = said.dim if said.dim >= 0 else None
    objective = Elsewhere(name, dim, said.hessian) if said.objective else None
    constraint = None
    if said.cone:
        cone = cone_from_json(json.loads(said.cone))
        constraint = Constraint(MapElsewhere(name, dim, cone.dim, said.hessian), cone)
    coupled = MapElsewhere(name, dim, said.coupled, said.hessian) if said.coupled else None
    return Share(objective, constraint, coupled, name)


class Elsewhere(Function):
    """Stands for a function that only its owner can evaluate."""

    def __init__(self, owner: str, dim: int | None, has_hessian: bool) -> None:
        self.owner, self.dim, self.has_hessian = owner, dim, has_hessian

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        raise ProblemError(f"{self.owner}: its objective is known to itself only; use a federated method")


class MapElsewhere(Map):
    """Stands for a map that only its owner can evaluate."""

    def __init__(self, owner: str, dim: int | None, length: int, has_hessian: bool) -> None:
        self.owner, self.dim, self.length, self.has_hessian = owner, dim, length, has_hessian

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Vector]:
        raise ProblemError(f"{self.owner}: its constraint is known to itself only; use a federated method")


class OtherCone(Cone):
    """Stands for a cone of the owner's own making."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def project(self, v: Vector) -> Vector:
        raise ProblemError("this cone is known to its owner only")

    def project_dual_jacobian(self, v: Vector) -> Vector:
        return self.project(v)

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        return self.project(v)


def cone_to_json(cone: Cone) -> Any:
    if isinstance(cone, Product):
        return ["Product", [cone_to_json(part) for part in cone.cones]]
    if isinstance(cone, PSD):
        return ["PSD", cone.order]
    name = type(cone).__name__
    return [name if name in CONES else "", cone.dim]


def cone_from_json(text: Any) -> Cone:
    kind, size = text
    if kind == "Product":
        return Product([cone_from_json(part) for part in size])
    cone: Cone = CONES[kind](size)
    return cone


CONES: dict[str, Any] = {
    "Zero": Zero,
    "Nonnegative": Nonnegative,
    "SecondOrder": SecondOrder,
    "PSD": PSD,
    "Exponential": lambda dim: Exponential(),
    "": OtherCone,
}
