"""FedDR: federated Douglas-Rachford splitting with a fixed amount of local work; and FedSplit, its full reflection.

    s_i <- s_i - lambda (x_i - p)                               owner i, when it is asked
    x_i ~ (id + gamma F_i)^-1(s_i)                              by a fixed number of steps
    p_i = 2 x_i - s_i
    p   = prox_{gamma h}(mean_i p_i)                            the server; owners that are not asked keep their p_i

Sources: FedDR by Tran Dinh, Pham, Phan and Nguyen (2021), Algorithm 1, as in iFedDR, Appendix E; FedSplit by Pathak and
Wainwright (2020), Algorithm 1, which is lambda = 2 without h and with all owners. With exact resolvents and all owners
it is iFedDR. With inexact ones it converges only where the errors vanish: started at p, they do, since x_i - p does;
started at s_i, as in the papers, they do not, and it stops away from the optimum (`start="s"` shows it).

The server keeps the sum of the p_i and owners send the change of theirs, so it needs sums only, whoever is asked.

differs from Tran Dinh et al. and from Pathak and Wainwright: s_i begins at w0 + gamma F_i(w0), not at w0, so that the
first resolvent is known (it is w0), and x_i - p is small from the start when the owners are alike.

Notation
    gamma    step of the resolvents, eta of Tran Dinh et al.            gamma
    lambda   relaxation, in (0, 2); alpha there                         relaxation
    tau      steps of an owner's local solver in a round                steps
    s, x, p_i   y, x, x^ there                                          State
    p        x-bar there; x of Pathak and Wainwright                    p
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from fedpact.solvers.averaging import (
    Course,
    Worked,
    check_options,
    check_problem,
    first_gamma,
    judged_at,
    judged_fields,
    split,
)

from fedpact.errors import OptionError
from fedpact.federation import Order, Reply, Summed, client_step
from fedpact.functions import Function, Vector
from fedpact.problem import Share
from fedpact.prox import Prox
from fedpact.solvers.endings import interrupted
from fedpact.solvers.local import anchored
from fedpact.solvers.local.resolvent import (
    DENSE_LIMIT,
    NAMES,
    Subproblem,
    default_solver,
    default_start,
    estimated_lipschitz,
    resolvent,
)
from fedpact.solvers.run import Run
from fedpact.solvers.solution import Solution

#: A local solver stops before its steps are used up when its gap is this small, relative to |s_i|.
EXACT = 1e-14
STALL = (
    "{} with a fixed number of local steps stops where the errors of its resolvents leave it; give more steps, "
    'start="p" or a smaller gamma, or take "ifeddr", which asks for more work where it is needed'
)
REFUSED = "FedSplit is about smooth functions"

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True)
class State:
    s: Vector
    x: Vector
    image: Vector  # F_i(x_i)
    gamma: float
    lipschitz: float

    @property
    def reflected(self) -> Vector:
        """p_i"""
        return 2 * self.x - self.s


@dataclass(frozen=True, kw_only=True)
class Begin(Order):
    w: Vector
    gamma: float
    holders: int
    ridge: Vector  # curvature of the h that owners take in parts; empty: none


@dataclass(frozen=True, kw_only=True)
class Begun(Reply):
    reflected: Summed[Vector]


@dataclass(frozen=True, kw_only=True)
class Round(Order):
    p: Vector
    relaxation: float
    holders: int
    ridge: Vector
    solver: str  # empty: the owner's default
    start: str  # "p", "last", "s", or empty: the solver's default
    steps: int
    judge: bool


@dataclass(frozen=True, kw_only=True)
class Resolved(Worked):
    change: Summed[Vector]  # of p_i
    way: Summed[float]  # its square


@client_step
def begin(share: Share, state: Any, order: Begin) -> tuple[State, Begun]:
    """s_i such that x_i = w is its resolvent."""
    function, w = _function(share, order, order.w.size), order.w
    image = order.holders * function.gradient(w)
    lipschitz = estimated_lipschitz(function, order.holders, w)
    fresh = State(w + order.gamma * image, w, image, order.gamma, lipschitz)
    return fresh, Begun(reflected=fresh.reflected)


@client_step
def advance(share: Share, state: State, order: Round) -> tuple[State, Resolved]:
    """I.1 of Algorithm I in Appendix E of iFedDR; the local update of Tran Dinh et al."""
    function, p = _function(share, order, order.p.size), order.p
    s = state.s - order.relaxation * (state.x - p)
    solver = order.solver or default_solver(function, p.size)
    problem = Subproblem(function, order.holders, s, state.gamma, state.lipschitz)
    start = order.start or default_start(solver)
    x, image, judged = {"p": p, "last": state.x, "s": s}[start], state.image, None
    if order.judge:
        assert share.objective is not None
        problem.gradients += 1
        judged = judged_at(share.objective, p)
    if start == "p" and judged is not None:
        image = order.holders * judged[1] + (order.ridge * p if order.ridge.size else 0.0)
    elif start != "last":
        image = problem.image(x)
    found = resolvent(problem, x, image, solver, order.steps, EXACT * float(np.linalg.norm(s)))
    after = replace(state, s=s, x=found.x, image=found.image, lipschitz=found.lipschitz)
    change = after.reflected - state.reflected
    return after, Resolved(
        **judged_fields(order.judge, judged, p.size),
        gradients=found.gradients,
        lost=order.judge and judged is None,
        change=change,
        way=float(change @ change),
    )


def _function(share: Share, order: Begin | Round, dim: int) -> Function:
    """f_i with its part of h."""
    function = share.objective
    assert function is not None
    return anchored(function, order.ridge / order.holders, np.zeros(dim)) if order.ridge.size else function


# --------------------------------------------------------------------------------------------------- the server's half


def feddr(
    run: Run,
    *,
    gamma: float | None = None,
    relaxation: float = 1.0,
    steps: int = 10,
    local_solver: str = "",
    start: str = "",
    participation: float = 1.0,
) -> Solution:
    """FedDR.

    gamma; when None the inverse of the owners' mean curvature at w0
    relaxation (lambda) in (0, 2)
    steps (tau) of the local solver in a round, fewer only where it is exact before
    local_solver: gradient, agd, lbfgs, newton, extragradient; by default as the owner's functions allow
    start: of the local solver: "p", "last" (its x of the time before) or "s" (the papers'); by default "last" for
        newton and lbfgs, "p" for the others
    participation: max(participation N, 1) owners are drawn anew for every round
    """
    if not 0 < relaxation < 2:
        raise OptionError(f"relaxation = {relaxation!r}: give a number between 0 and 2")
    check_problem(run)
    return _splitting(
        run, "FedDR", gamma, relaxation, steps, local_solver, start, participation, np.zeros(0), run.problem.regularizer
    )


def fedsplit(
    run: Run, *, gamma: float | None = None, steps: int = 10, local_solver: str = "", start: str = ""
) -> Solution:
    """FedSplit: FedDR with relaxation 2, for smooth functions and all owners. Options as there.

    A quadratic h is taken in equal parts by the owners. It converges where the f_i (with h) are strongly convex; else
    it may go around the optimum forever.
    """
    check_problem(run, REFUSED)
    ridge, server_h = split(run.problem)
    return _splitting(run, "FedSplit", gamma, 2.0, steps, local_solver, start, 1.0, ridge, server_h)


def _splitting(
    run: Run,
    name: str,
    gamma: float | None,
    relaxation: float,
    steps: int,
    solver: str,
    start: str,
    participation: float,
    ridge: Vector,
    server_h: Prox,
) -> Solution:
    check_options(run, participation, steps=steps)
    for option, value, allowed in (("local_solver", solver, NAMES), ("start", start, ("p", "last", "s"))):
        if value and value not in allowed:
            raise OptionError(f"{option} = {value!r}: choose {', '.join(allowed)}")
    fleet, holders = run.fleet, len(run.fleet.owners)
    gamma = gamma or first_gamma(run)
    run.history.notes.append(f"gamma = {gamma:.3g}")
    newton = not solver and run.problem.has_hessian and run.w0.size <= DENSE_LIMIT
    at_p = start == "p" or (not start and not newton and default_start(solver) == "p")
    course = Course(run, participation=participation, free=at_p, excuse=STALL.format(name))
    begun = fleet.ask(begin, Begin(w=run.w0, gamma=gamma, holders=holders, ridge=ridge))
    mean = begun.total.reflected / holders  # of all p_i
    p = server_h.prox(mean, gamma)
    try:
        for k in course.rounds():
            asked = course.asked(k)
            order = Round(
                p=p,
                relaxation=relaxation,
                holders=holders,
                ridge=ridge,
                solver=solver,
                start=start,
                steps=int(steps),
                judge=course.judging(k),
            )
            replies = fleet.ask(advance, order, asked)
            mean = mean + replies.total.change / holders
            following = server_h.prox(mean, gamma)
            course.follow(k, asked, p, following, replies, gamma, moved=float(np.sqrt(replies.total.way)))
            p = following
    except KeyboardInterrupt:
        course.end = interrupted(run)
    return course.solution(p)
