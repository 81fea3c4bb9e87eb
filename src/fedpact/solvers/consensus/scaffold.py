"""SCAFFOLD: FedAvg whose owners know by control variates where the others go.

    y <- w,  then tau times  y <- y - eta (F_i(y) - c_i + c)                owner i
    c_i <- c_i - c + (w - y) / (tau eta)      (option II), or  c_i <- F_i(w)      (option I)
    w <- w + lambda mean_i (y_i - w)                                        the server, over the owners asked
    c <- c + (owners asked / N) mean_i (change of c_i)

Source: Karimireddy, Kale, Mohri, Reddi, Stich and Suresh (2020), Algorithm 1. At the optimum c_i = F_i and c = 0: no
owner moves, so there is no bias, and none from asking few owners. All c_i, and c, begin at zero, as there.

With minibatches and option I the gradient F_i(w) is one over a minibatch, as there. A quadratic h is taken in equal
parts by the owners; others are refused: the correction makes local steps vanish only where the gradients do.

Notation
    tau      local steps in a round, K of the paper                     steps
    eta      local step size, eta_l                                     step_size
    lambda   step of the server, eta_g                                  relaxation
    S / N    share of the owners that a round asks                      participation
    c_i, c   control variates of an owner and of the server             Controlled.variate, variate
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedpact.federation import Summed, client_step
from fedpact.problem import Share
from fedpact.solvers.base import Needs, option
from fedpact.solvers.consensus import local_steps
from fedpact.solvers.consensus.local_steps import (
    LocalSteps,
    LocalStepSolver,
    Member,
    Moved,
    Slope,
    descend,
    join,
    local_step_size,
    report_move,
)
from fedpact.solvers.run import Iterate, Run
from fedpact.types import Vector

UNEQUAL = (
    "owners with unequal step sizes may lead SCAFFOLD around or away from the optimum; leave out step_rule, or give a "
    "smaller step_factor"
)
RESTLESS = "SCAFFOLD does not come to rest under a fixed step size with minibatches; give a smaller step_size"
LONG_STEPS = "SCAFFOLD needs local steps of about 1 / (steps L) at most: give a smaller step_size"

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True)
class Controlled(Member):
    """An owner with its control variate c_i."""

    variate: Vector


@dataclass(frozen=True, kw_only=True)
class Round(LocalSteps):
    """Local steps corrected by the server's control variate c; option: "I" or "II" of line 12."""

    variate: Vector
    option: str


@dataclass(frozen=True, kw_only=True)
class Corrected(Moved):
    """change: of c_i."""

    change: Summed[Vector]


@client_step
def advance(share: Share, state: Member, order: Round) -> tuple[Controlled, Corrected]:
    """Lines 7 to 14 of Algorithm 1."""
    before = np.zeros_like(order.w)
    if isinstance(state, Controlled):
        before = state.variate
    slope = Slope(share, state, order)
    eta = local_step_size(state, order)
    variate = before
    if order.option == "I":
        variate = slope(order.w)  # line 12, option I: before the steps

    def corrected(y: Vector) -> Vector:
        return slope(y) - before + order.variate

    y = descend(order, eta, corrected)  # lines 8 to 11
    reply = report_move(y, order, eta, slope)

    if order.option == "II":
        variate = before - order.variate - reply.moved / (order.steps * eta)  # line 12, option II
    if reply.diverged or not np.all(np.isfinite(variate)):
        variate = before
    after = Controlled(state.index, state.lipschitz, variate)
    return after, Corrected(**vars(reply), change=variate - before)


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass
class Server(local_steps.Server):
    variate: Vector  # c


@dataclass(frozen=True, kw_only=True)
class Scaffold(LocalStepSolver[Server]):
    """Algorithm 1.

    The theory asks for a step size of 1 / (81 tau L lambda), which is as safe as it is slow; step_factor=1/tau is fast
    when owners are alike. With step_rule="own" it may diverge.
    """

    name: ClassVar[str] = "scaffold"
    needs: ClassVar[Needs] = Needs(smooth="its corrections leave no bias only where h is smooth")

    option: str = option("II", 'of the control variates; "I" takes one more gradient a round', choices=("I", "II"))

    def init(self, run: Run) -> tuple[Server, Iterate]:
        state, start = self.begin(run, self.join_all(run, join))
        return Server(**vars(state), variate=np.zeros_like(run.start)), start

    def step(self, run: Run, state: Server) -> Iterate:
        asked = state.rounds.next()
        order = Round(**self.local_steps(run, state), variate=state.variate, option=self.option)
        replies = run.ask(advance, order, asked)

        following = state.w + self.relaxation * replies.total.moved / len(asked)
        state.variate = state.variate + replies.total.change / len(run.owners)

        eta = replies.total.step / len(asked)
        return self.follow(run, state, following, replies, step=eta)

    def excuse(self, run: Run, state: Server) -> str:
        if self.batch_size is not None:
            return RESTLESS
        if not state.step_size:
            return UNEQUAL
        if self.steps > 1:
            return LONG_STEPS
        return ""
