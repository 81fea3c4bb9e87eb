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
    eps_ik   accuracy of x_i in round k, accuracy / (k+1)^2, which is   accuracy
             summable, as Theorem 3.1 of Tran Dinh et al. asks for
    s, x, p_i   y, x, x^ there                                          State
    p        x-bar there; x of Pathak and Wainwright                    p
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedpact.federation import Summed, client_step
from fedpact.problem import Share
from fedpact.prox import Prox
from fedpact.solvers.base import Needs, Solver, option
from fedpact.solvers.consensus.rounds import (
    Rounds,
    Worked,
    add_ridge,
    divide_regularizer,
    evaluate,
    objective_of,
    terms_where_asked,
)
from fedpact.solvers.consensus.splitting import (
    LOCAL_SOLVER,
    SOLVERS,
    START,
    STARTS,
    Begin,
    Resolve,
    State,
    begin,
    solve_resolvent,
    with_ridge,
)
from fedpact.solvers.local.resolvent import default_start
from fedpact.solvers.run import Iterate, Run
from fedpact.solvers.scales import default_gamma
from fedpact.solvers.steps import certificate_of
from fedpact.types import Vector

#: A local solver stops before its steps are used up when its gap is this small, relative to |s_i|.
EXACT = 1e-14
#: Local steps of a round in which the accuracy decides.
MOST_STEPS = 1000
STALL = (
    "{} with a fixed number of local steps stops where the errors of its resolvents leave it; give more steps, "
    'start="p" or a smaller gamma, or take "ifeddr", which asks for more work where it is needed'
)

VANISHING = "the errors of its resolvents vanish, so {} converges where the problem is convex; change gamma"

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True, kw_only=True)
class Round(Resolve):
    """One round, from the server's p; ridge: curvature of the h that owners take in parts, empty for none."""

    relaxation: float
    gamma: float
    ridge: Vector
    accuracy: float  # of the resolvent, as a distance; 0: as the steps give it


@dataclass(frozen=True, kw_only=True)
class Reflected(Worked):
    """change: of p_i; way: its squared length."""

    change: Summed[Vector]
    way: Summed[float]


@client_step
def advance(share: Share, state: State, order: Round) -> tuple[State, Reflected]:
    """I.1 of Algorithm I in Appendix E of iFedDR; the local update of Tran Dinh et al."""
    p = order.p
    objective = objective_of(share)
    before = state.place_s(order.gamma)
    evaluated = at_p = None
    if order.judge:
        evaluated = evaluate(objective, p)
    if evaluated is not None:
        at_p = add_ridge(order.holders * evaluated[1], order.ridge, p)

    s = before.s - order.relaxation * (before.x - p)
    function = with_ridge(objective, order.ridge, order.holders, p.size)
    enough = max(order.accuracy, EXACT * float(np.linalg.norm(s)))
    found = solve_resolvent(function, before, s, order.gamma, order, at_p, enough)
    after = replace(before, s=s, x=found.x, image=found.image, lipschitz=found.lipschitz)

    change = reflection(after) - reflection(before)
    return after, Reflected(
        **terms_where_asked(order.judge, evaluated, p.size),
        gradients=found.gradients + order.judge,
        lost=order.judge and evaluated is None,
        change=change,
        way=float(change @ change),
    )


def reflection(state: State) -> Vector:
    """p_i = 2 x_i - s_i"""
    return 2 * state.x - state.s


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass
class Server:
    """The server's variables.

    mean:        of all p_i, whoever was asked
    ridge:       curvature of the h that owners take in parts; empty: none
    regularizer: what is left of h to the server
    """

    p: Vector
    mean: Vector
    gamma: float
    relaxation: float
    ridge: Vector
    regularizer: Prox
    rounds: Rounds


@dataclass(frozen=True, kw_only=True)
class Splitting(Solver[Server]):
    """What FedDR and FedSplit share: p = prox_{gamma h}(mean of the p_i), kept up to date by the changes of p_i."""

    title: ClassVar[str]
    progress: ClassVar[float] = 0.9

    gamma: float | None = option(
        None,
        "step of the resolvents; by default the inverse of the owners' mean curvature at w0",
        letter="gamma",
        above=0,
    )
    steps: int = option(
        10, "of the local solver in a round, fewer only where it is exact before", letter="tau", least=1
    )
    accuracy: float | None = option(
        None,
        "of the first resolvents, as a distance; those of round k have accuracy / (k+1)^2, with as many local steps as "
        "that takes, up to 1000. By default `steps` decides",
        letter="eps",
        above=0,
    )
    local_solver: str = option("", LOCAL_SOLVER, choices=SOLVERS)
    start: str = option("", START, choices=STARTS)

    def begin(
        self, run: Run, relaxation: float, participation: float, ridge: Vector, regularizer: Prox
    ) -> tuple[Server, Iterate]:
        """One exchange: all x_i and the judged start are at w0; then p_i = w0 - gamma F_i(w0)."""
        w = run.start
        begun = run.ask(begin, Begin(w=w, holders=len(run.owners), ridge=ridge))
        gamma = self.gamma or default_gamma(begun.total.curvature)
        run.note(f"gamma = {gamma:.3g}")
        mean = w - gamma * add_ridge(begun.total.gradient, ridge, w)

        newton = not self.local_solver and all(reply.newton for reply in begun)
        at_p = self.start == "p" or (not self.start and not newton and default_start(self.local_solver) == "p")
        rounds = Rounds(run, participation, free=at_p, steady=True, reserve=self.reserve)
        server = Server(regularizer.prox(mean, gamma), mean, gamma, relaxation, ridge, regularizer, rounds)
        judged = certificate_of(run.problem, w, np.zeros(0), begun)
        return server, Iterate(number=0, w=w, judged=judged, penalty=gamma, consensus_penalty=1 / gamma)

    def step(self, run: Run, state: Server) -> Iterate:
        asked = state.rounds.next()
        steps = self.steps
        accuracy = 0.0
        if self.accuracy is not None:
            steps = MOST_STEPS
            accuracy = self.accuracy / state.rounds.k**2
        order = Round(
            p=state.p,
            relaxation=state.relaxation,
            gamma=state.gamma,
            holders=len(run.owners),
            ridge=state.ridge,
            solver=self.local_solver,
            start=self.start,
            steps=steps,
            accuracy=accuracy,
            judge=state.rounds.judging,
        )
        replies = run.ask(advance, order, asked)

        state.mean = state.mean + replies.total.change / len(run.owners)
        following = state.regularizer.prox(state.mean, state.gamma)

        iterate = state.rounds.follow(
            state.p,
            following,
            replies,
            step=state.gamma,
            excuse=self.excuse(run, state),
            moved=float(np.sqrt(replies.total.way)),
        )
        state.p = following
        return iterate

    def excuse(self, run: Run, state: Server) -> str:
        if self.accuracy is not None:
            return VANISHING.format(self.title)
        return STALL.format(self.title)


@dataclass(frozen=True, kw_only=True)
class FedDR(Splitting):
    """FedDR, with a fresh sample of the owners in every round where participation is below 1."""

    name: ClassVar[str] = "feddr"
    title: ClassVar[str] = "FedDR"
    needs: ClassVar[Needs] = Needs(operators=True)

    relaxation: float = option(1.0, "relaxation; alpha of Tran Dinh et al.", letter="lambda", above=0, below=2)
    participation: float = option(
        1.0, "share of the owners that a round asks, drawn anew for every round", above=0, most=1
    )

    def init(self, run: Run) -> tuple[Server, Iterate]:
        return self.begin(run, self.relaxation, self.participation, np.zeros(0), run.problem.regularizer)


@dataclass(frozen=True, kw_only=True)
class FedSplit(Splitting):
    """FedSplit: FedDR with relaxation 2, for smooth functions and all owners.

    A quadratic h is taken in equal parts by the owners. It converges where the f_i (with h) are strongly convex; else
    it may go around the optimum forever.
    """

    name: ClassVar[str] = "fedsplit"
    title: ClassVar[str] = "FedSplit"
    needs: ClassVar[Needs] = Needs(smooth="FedSplit is about smooth functions")

    def init(self, run: Run) -> tuple[Server, Iterate]:
        ridge, regularizer = divide_regularizer(run.problem)
        return self.begin(run, 2.0, 1.0, ridge, regularizer)
