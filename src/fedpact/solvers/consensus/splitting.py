"""The owner's half of Douglas-Rachford splitting, as far as iFedDR, FedDR and FedSplit share it.

An owner keeps s_i and x_i ~ (id + gamma F_i)^-1(s_i) with F_i = N grad f_i, because the papers minimise means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fedpact.federation import Order, Summed, client_step
from fedpact.functions import Function
from fedpact.problem import Share
from fedpact.solvers.consensus.rounds import add_ridge, objective_of, terms_of
from fedpact.solvers.local import anchored
from fedpact.solvers.local.resolvent import (
    NAMES,
    Resolved,
    Subproblem,
    default_solver,
    default_start,
    estimate_lipschitz,
    resolvent,
)
from fedpact.solvers.scales import mean_curvature
from fedpact.solvers.steps import Judged
from fedpact.types import Vector

#: Values of the option `local_solver`; empty: as the owner's functions allow.
SOLVERS = ("", *NAMES)
#: Values of the option `start`: where local solvers start; empty: "last" for newton and lbfgs, "p" for the others.
STARTS = ("", "p", "last", "s")
LOCAL_SOLVER = "of the owners; by default as their functions allow"
START = (
    'of the local solver: the server\'s "p", the owner\'s "last" x or, as in the papers, its "s"; by default "last" '
    'for newton and lbfgs, "p" for the others'
)


@dataclass(frozen=True)
class State:
    """gamma: 0 before the first round, when s_i is not yet known."""

    s: Vector
    x: Vector
    image: Vector  # F_i(x_i)
    gamma: float
    lipschitz: float

    def place_s(self, gamma: float) -> Self:
        """Give the state its first s_i, such that x_i is its exact resolvent; later states stay as they are."""
        if self.gamma:
            return self
        return replace(self, s=self.x + gamma * self.image, gamma=gamma)


@dataclass(frozen=True, kw_only=True)
class Begin(Order):
    """ridge: curvature of a quadratic h, of which every owner takes its part; empty: none."""

    w: Vector
    holders: int
    ridge: Vector


@dataclass(frozen=True, kw_only=True)
class Begun(Judged):
    """Judged at the start; newton: is that this owner's default solver?"""

    curvature: Summed[float]  # mean diagonal of the Hessian of f_i, estimated
    newton: bool


@dataclass(frozen=True, kw_only=True)
class Resolve(Order):
    """The server's point, and how an owner solves its subproblem."""

    p: Vector
    holders: int
    solver: str  # of SOLVERS
    start: str  # of STARTS
    steps: int
    judge: bool


@client_step
def begin(share: Share, state: Any, order: Begin) -> tuple[State, Begun]:
    """Start at x_i = w."""
    w = order.w
    objective = objective_of(share)
    value, gradient = objective.value_and_gradient(w)
    image = add_ridge(order.holders * gradient, order.ridge, w)
    function = with_ridge(objective, order.ridge, order.holders, w.size)
    fresh = State(s=w, x=w, image=image, gamma=0.0, lipschitz=estimate_lipschitz(function, order.holders, w))
    return fresh, Begun(
        **terms_of((value, gradient)),
        curvature=mean_curvature(objective, w),
        newton=default_solver(objective, w.size) == "newton",
    )


def with_ridge(objective: Function, ridge: Vector, holders: int, dim: int) -> Function:
    """f_i with its part of h."""
    if not ridge.size:
        return objective
    return anchored(objective, ridge / holders, np.zeros(dim))


def solve_resolvent(
    function: Function, before: State, s: Vector, gamma: float, order: Resolve, at_p: Vector | None, target: float
) -> Resolved:
    """x_i for this s_i, from where the order says; at_p: F_i(p), where it is known."""
    solver = order.solver or default_solver(function, s.size)
    start = order.start or default_start(solver)
    problem = Subproblem(function, order.holders, s, gamma, before.lipschitz)
    if start == "last":
        return resolvent(problem, before.x, before.image, solver, order.steps, target)
    if start == "p" and at_p is not None:
        return resolvent(problem, order.p, at_p, solver, order.steps, target)
    x = order.p if start == "p" else s
    return resolvent(problem, x, problem.image(x), solver, order.steps, target)
