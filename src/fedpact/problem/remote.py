"""Shares that only their owners hold: what the server knows of them, and stand-ins for the rest.

The server's half of a method needs an owner's name, the length of w, whether there are Hessians, and the kind of cone;
it never evaluates an owner's function. So a share elsewhere is an ordinary Share made of stand-ins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fedpact.cones import PSD, Cone, Exponential, Nonnegative, Product, SecondOrder, Zero
from fedpact.errors import ProblemError
from fedpact.functions import Function, Map
from fedpact.notebook import show
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.monotone import MonotoneProblem, check_splits, split_of
from fedpact.problem.share import Constraint, Share
from fedpact.prox import Prox
from fedpact.types import Matrix, Vector


class Stated(Protocol):
    """A task that owners build their share from, on its way to them."""

    def stated(self) -> dict[str, Any]: ...


class RemoteProblem:
    """A problem whose shares are built at their owners. It is solved like any other: fp.solve(problem, engine=...).

    sources:     owner name -> what the engine hands to that owner. On Ray and in process that is the Share, or a
                 function that returns it (it runs at the owner, and is given the task where there is one); a Flower
                 site has its own data, and builds its share from the task
    server:      as in FederatedProblem
    regularizer: as in FederatedProblem; for saddle functions f(u, v) fp.prox.Blocks(g, h, split, saddle=True)
    task:        what owners build their share from, or None

    Shares may hold operators, as those of MonotoneProblem and MinimaxProblem do. Raises ProblemError when there are no
    sources.
    """

    def __init__(
        self,
        sources: Mapping[str, object],
        server: Share | None = None,
        regularizer: Prox | None = None,
        task: Stated | None = None,
    ) -> None:
        if not sources:
            raise ProblemError(
                "a problem needs at least one owner; give RemoteProblem({name: function, ...})", code="FP-PROBLEM-124"
            )
        self.sources = dict(sources)
        self.server = server
        self.regularizer = regularizer
        self.task = task

    def _repr_html_(self) -> str:
        facts = [f"{len(self.sources)} owners, whose shares are built where their data are"]
        return show("Remote problem", facts, ("owner",), [(name,) for name in self.sources])

    def assemble(self, descriptions: Mapping[str, Description]) -> FederatedProblem:
        """The problem as the server sees it, from what the owners say about their shares."""
        shares = [stand_in(name, descriptions[name]) for name in self.sources]
        if any(description.operator for description in descriptions.values()):
            return self._assemble_operators(shares)
        problem = FederatedProblem(shares, self.server, self.regularizer)
        owners_convex = all(description.convex for description in descriptions.values())
        problem.convex = problem.server.convex and owners_convex
        return problem

    def _assemble_operators(self, shares: Sequence[Share]) -> MonotoneProblem:
        if self.server is not None:
            raise ProblemError(
                "the owners hold operators, for which the server has no share; state the set that w must lie in as a "
                "regularizer, for example fp.prox.Box",
                code="FP-PROBLEM-148",
            )
        problem = MonotoneProblem(shares, self.regularizer)
        check_splits(problem)
        return problem


@dataclass(frozen=True)
class Description:
    """What an owner says about its share.

    dim:       length of w; -1 when its functions do not know it
    objective: whether there is one
    cone:      of its constraint, as JSON; empty when there is none
    coupled:   cone of its part of the coupled constraint, as JSON; empty when there is none
    hessian:   whether all its functions have second derivatives
    convex:    whether its objective and its constraints are known to be convex
    private:   whether it has variables that it keeps for itself; how many is its own business
    operator:  whether its objective is an operator, not a function; `hessian` is then about its Jacobian
    split:     length of u where the operator is that of a saddle function f(u, v); -1 elsewhere
    stands_in: whether derivatives of its constraint are those of a smooth stand-in (`CountedRates`)
    """

    dim: int
    objective: bool
    cone: str
    coupled: str
    hessian: bool
    convex: bool
    private: bool
    operator: bool = False
    split: int = -1
    stands_in: bool = False


def describe(share: Share) -> Description:
    """Check the share as FederatedProblem or MonotoneProblem does, and say what the server must know."""
    # What a source gives may be anything; FederatedProblem says what it should be.
    objective = share.objective if isinstance(share, Share) else None
    operator = objective is not None and not objective.gradient_field
    problem = MonotoneProblem([share]) if operator else FederatedProblem([share])
    cone = ""
    stands_in = False
    if share.constraint is not None:
        cone = json.dumps(cone_to_json(share.constraint.cone))
        stands_in = share.constraint.function.stands_in
    coupled = ""
    if share.coupled_cone is not None:
        coupled = json.dumps(cone_to_json(share.coupled_cone))
    return Description(
        dim=-1 if problem.dim is None else problem.dim,
        objective=share.objective is not None,
        cone=cone,
        coupled=coupled,
        hessian=share.has_hessian,
        convex=share.convex,
        private=problem.private,
        operator=operator,
        split=split_of(share.objective),
        stands_in=stands_in,
    )


def stand_in(name: str, said: Description) -> Share:
    """A share for the server: it has the shape of the owner's, and cannot be evaluated.

    One private variable stands for any number of them.
    """
    private = int(said.private)
    dim = said.dim + private if said.dim >= 0 else None
    objective = None
    constraint = None
    coupled = None
    coupled_cone = None
    if said.objective:
        objective = Elsewhere(name, dim, said.hessian, operator=said.operator, split=said.split)
    if said.cone:
        cone = cone_from_json(json.loads(said.cone))
        constraint = Constraint(MapElsewhere(name, dim, cone.dim, said.hessian, said.stands_in), cone)
    if said.coupled:
        coupled_cone = cone_from_json(json.loads(said.coupled))
        coupled = MapElsewhere(name, dim, coupled_cone.dim, said.hessian)
    return Share(objective, constraint, coupled, name, private=private, coupled_cone=coupled_cone)


def _unknown_here(what: str) -> ProblemError:
    return ProblemError(f"{what} is known to its owner only; use a federated method", code="FP-PROBLEM-125")


class Elsewhere(Function):
    """Stands for a function or an operator that only its owner can evaluate."""

    def __init__(
        self, owner: str, dim: int | None, has_hessian: bool, *, operator: bool = False, split: int = -1
    ) -> None:
        self.owner = owner
        self.dim = dim
        self.has_hessian = has_hessian
        self.gradient_field = not operator
        self.split = split

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        raise _unknown_here(f"{self.owner}: its objective")


class MapElsewhere(Map):
    """Stands for a map that only its owner can evaluate."""

    def __init__(self, owner: str, dim: int | None, length: int, has_hessian: bool, stands_in: bool = False) -> None:
        self.owner = owner
        self.dim = dim
        self.length = length
        self.has_hessian = has_hessian
        self.stands_in = stands_in

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        raise _unknown_here(f"{self.owner}: its constraint")


class OtherCone(Cone):
    """Stands for a cone of the owner's own making."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def project(self, v: Vector) -> Vector:
        raise _unknown_here("this cone")

    def project_dual_jacobian(self, v: Vector) -> Matrix:
        return self.project(v)

    def project_normal(self, v: Vector, multiplier: Vector) -> Vector:
        return self.project(v)


def cone_to_json(cone: Cone) -> Any:
    """[kind, size]; the kind is empty for a cone of the owner's own making."""
    if isinstance(cone, Product):
        return ["Product", [cone_to_json(part) for part in cone.cones]]
    if isinstance(cone, PSD):
        return ["PSD", cone.order]
    kind = type(cone).__name__
    if kind not in CONES:
        kind = ""
    return [kind, cone.dim]


def cone_from_json(written: Any) -> Cone:
    """The cone that `cone_to_json` wrote."""
    kind, size = written
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
