"""FedAvg: every owner takes gradient steps from the server's w, and the server averages where they got to.

    y <- w,  then tau times  y <- y - eta F_i(y)                owner i
    w <- w + lambda (mean_i y_i - w)                            the server, over the owners asked

Source: McMahan, Moore, Ramage, Hampson and Aguera y Arcas (2017), Algorithm 1, as in iFedDR (E.2). With tau = 1, one
step size and all owners it is gradient descent. With tau > 1 it stops elsewhere than at the optimum when the owners
differ, however long it runs: at the fixed point of the averaged maps.

differs from McMahan:
- owners count the same in the mean, since how much each counts is in the sum of f_i (there: by their rows n_k);
- tau counts steps, not passes over the rows; a minibatch is drawn afresh for every step (there: rows shuffled once a
  pass and cut), so that its gradient is unbiased whatever was drawn before;
- h: a quadratic one is taken in equal parts by the owners; for any other the server takes a proximal step of it after
  averaging, as long as the owners' way (lambda tau eta). With tau = 1 that is the proximal gradient method.

Notation
    tau      local steps in a round                                     steps
    eta      local step size                                            step_size
    lambda   step of the server                                         relaxation
    C        share of the owners that a round asks                      participation
    B        rows in a minibatch                                        batch_size
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpact.federation import client_step
from fedpact.problem import Share
from fedpact.solvers.consensus.local_steps import (
    LocalSteps,
    LocalStepSolver,
    Member,
    Moved,
    Server,
    Slope,
    descend,
    join,
    local_step_size,
    report_move,
)
from fedpact.solvers.run import Iterate, Run

# ---------------------------------------------------------------------------------------------------- the owner's half


@client_step
def advance(share: Share, state: Member, order: LocalSteps) -> tuple[Member, Moved]:
    """ClientUpdate."""
    slope = Slope(share, state, order)
    eta = local_step_size(state, order)
    y = descend(order, eta, slope)
    return state, report_move(y, order, eta, slope)


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass(frozen=True, kw_only=True)
class FedAvg(LocalStepSolver[Server]):
    """Algorithm 1. With step_rule="own", as in iFedDR's tables, even steps=1 is biased."""

    name: ClassVar[str] = "fedavg"
    bias: ClassVar[str] = (
        "FedAvg with {} stops at a point that is not the optimum when owners differ; take steps=1 and one step size "
        'for all, or a method without this bias: "ifeddr", "feddr", "scaffold"'
    )

    def init(self, run: Run) -> tuple[Server, Iterate]:
        return self.begin(run, self.join_all(run, join))

    def step(self, run: Run, state: Server) -> Iterate:
        asked = state.rounds.next()
        order = LocalSteps(**self.local_steps(run, state))
        replies = run.ask(advance, order, asked)

        eta = replies.total.step / len(asked)
        mean = state.w + self.relaxation * replies.total.moved / len(asked)
        following = state.regularizer.prox(mean, self.relaxation * self.steps * eta)
        return self.follow(run, state, following, replies, step=eta)
