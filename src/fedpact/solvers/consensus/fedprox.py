"""FedProx: FedAvg whose owners are held near the server's w by a proximal term.

    y <- w,  then tau times  y <- y - eta (F_i(y) + (y - w) / gamma)        owner i: roughly (id + gamma F_i)^-1(w)
    w <- w + lambda (mean_i y_i - w)                                        the server, over the owners asked

Source: Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith (2020), Algorithm 2, with gradient steps as the local solver, as
in iFedDR (E.2). With tau -> infinity it iterates the mean of the owners' proximal maps, whose fixed point is not the
optimum when the owners differ (Pathak and Wainwright 2020, Proposition 2): gamma -> 0 removes the bias, and the speed.
With gamma_k = gamma / (k+1)^a, 1/2 < a <= 1, it converges to the optimum (Malekmohammadi et al. 2022, Theorem 1).

differs from Li et al.: owners that are asked count the same, and all of them take tau steps (there: drawn by their
rows, and to an accuracy that may differ by owner). Minibatches and h are as in FedAvg, see there; the server's proximal
step of h is as long as the owners' way, lambda gamma (1 - (1 - eta / gamma)^tau).

Notation
    gamma    step of the proximal term, 1 / mu of Li et al.             gamma
    a        how fast gamma_k decreases; 0: not at all                  gamma_decay
    tau      local steps in a round                                     steps
    eta      local step size, by default step_factor / (L + 1 / gamma)  step_size
    lambda   step of the server                                         relaxation
    K / N    share of the owners that a round asks                      participation
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fedpact.federation import Summed, client_step
from fedpact.problem import Share
from fedpact.solvers.base import Needs, option
from fedpact.solvers.consensus import local_steps
from fedpact.solvers.consensus.local_steps import (
    Join,
    Joined,
    LocalSteps,
    LocalStepSolver,
    Member,
    Moved,
    Slope,
    descend,
    local_step_size,
    report_move,
)
from fedpact.solvers.consensus.rounds import objective_of
from fedpact.solvers.run import Iterate, Run
from fedpact.solvers.scales import default_gamma, mean_curvature
from fedpact.types import Vector

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True, kw_only=True)
class Curved(Joined):
    """curvature: mean diagonal of the Hessian of f_i, estimated."""

    curvature: Summed[float]


@dataclass(frozen=True, kw_only=True)
class Round(LocalSteps):
    """Local steps on f_i(y) + |y - w|^2 / (2 gamma)."""

    gamma: float


@client_step
def join(share: Share, state: Any, order: Join) -> tuple[Member, Curved]:
    """As in FedAvg, with what the server chooses gamma from."""
    member, joined = local_steps.join(share, state, order)
    return member, Curved(**vars(joined), curvature=mean_curvature(objective_of(share), order.w))


@client_step
def advance(share: Share, state: Member, order: Round) -> tuple[Member, Moved]:
    """Gradient steps on f_i^gamma, iFedDR (3.1) with s = w."""
    slope = Slope(share, state, order)
    eta = local_step_size(state, order, more=1 / order.gamma)  # iFedDR (E.3)

    def held(y: Vector) -> Vector:
        return slope(y) + (y - order.w) / order.gamma

    y = descend(order, eta, held)
    return state, report_move(y, order, eta, slope)


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass
class Server(local_steps.Server):
    gamma: float
    lipschitz: float  # the largest of the F_i


@dataclass(frozen=True, kw_only=True)
class FedProx(LocalStepSolver[Server]):
    """Algorithm 2."""

    name: ClassVar[str] = "fedprox"
    bias: ClassVar[str] = (
        "FedProx with {} stops at a point that is not the optimum when owners differ; take a smaller gamma, or a "
        'method without this bias: "ifeddr", "feddr", "scaffold"'
    )
    needs: ClassVar[Needs] = Needs(operators=True)

    gamma: float | None = option(
        None,
        "step of the proximal term, 1 / mu; by default the inverse of the owners' mean curvature at w0",
        letter="gamma",
        above=0,
    )
    gamma_decay: float = option(
        0.0, "round k has gamma / (k+1)^gamma_decay; above 1/2 it converges to the optimum", letter="a", least=0, most=1
    )

    def init(self, run: Run) -> tuple[Server, Iterate]:
        joined = self.join_all(run, join)
        gamma = self.gamma or default_gamma(joined.total.curvature)
        run.note(f"gamma = {gamma:.3g}")
        state, start = self.begin(run, joined, more=1 / gamma)
        if self.gamma_decay:
            state.rounds.steady = False  # another map in every round
        return Server(**vars(state), gamma=gamma, lipschitz=max(reply.lipschitz for reply in joined)), start

    def step(self, run: Run, state: Server) -> Iterate:
        asked = state.rounds.next()
        gamma = state.gamma / state.rounds.k**self.gamma_decay
        if self.gamma_decay and state.step_size:  # a step of the proximal term is at most gamma long
            longest = self.step_factor / (state.lipschitz + 1 / gamma)
            state.step_size = longest if self.step_size is None else min(self.step_size, gamma)
        order = Round(**self.local_steps(run, state), gamma=gamma)
        replies = run.ask(advance, order, asked)

        eta = replies.total.step / len(asked)
        mean = state.w + self.relaxation * replies.total.moved / len(asked)
        way = self.relaxation * gamma * (1 - (1 - eta / gamma) ** self.steps)
        following = state.regularizer.prox(mean, way)
        return self.follow(run, state, following, replies, step=gamma)
