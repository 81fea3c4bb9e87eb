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

import numpy as np
from fedpact.solvers.averaging import (
    LocalSteps,
    Member,
    Moved,
    Slope,
    Steps,
    check_options,
    check_problem,
    descended,
    local_step,
    moved_to,
)

from fedpact.errors import OptionError
from fedpact.federation import Summed, client_step
from fedpact.functions import Vector
from fedpact.problem import Share
from fedpact.solvers.endings import interrupted
from fedpact.solvers.run import Run
from fedpact.solvers.solution import Solution

REFUSED = "its corrections leave no bias only where h is smooth"
UNEQUAL = (
    "owners with unequal step sizes may lead SCAFFOLD around or away from the optimum; leave out step_rule, or give a "
    "smaller step_factor"
)
RESTLESS = "SCAFFOLD does not come to rest under a fixed step size with minibatches; give a smaller step_size"
LONG_STEPS = "no progress; SCAFFOLD needs local steps of about 1 / (steps L) at most: give a smaller step_size"

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True)
class Controlled(Member):
    variate: Vector


@dataclass(frozen=True, kw_only=True)
class Round(LocalSteps):
    variate: Vector  # c
    option: str


@dataclass(frozen=True, kw_only=True)
class Corrected(Moved):
    change: Summed[Vector]  # of c_i


@client_step
def advance(share: Share, state: Member, order: Round) -> tuple[Controlled, Corrected]:
    """Lines 7 to 14 of Algorithm 1."""
    before = state.variate if isinstance(state, Controlled) else np.zeros_like(order.w)
    slope, step = Slope(share, state, order), local_step(state, order)
    first = slope(order.w) if order.option == "I" else before

    def corrected(y: Vector) -> Vector:
        return slope(y) - before + order.variate

    y = descended(order, step, corrected)
    reply = moved_to(y, order, step, slope)
    variate = first if order.option == "I" else before - order.variate - reply.moved / (order.steps * step)
    if reply.diverged or not np.all(np.isfinite(variate)):
        variate = before
    after = Controlled(state.index, state.lipschitz, variate)
    return after, Corrected(**vars(reply), change=variate - before)


# --------------------------------------------------------------------------------------------------- the server's half


def scaffold(
    run: Run,
    *,
    steps: int = 10,
    step_size: float | None = None,
    step_factor: float = 1.0,
    step_rule: str = "common",
    relaxation: float = 1.0,
    participation: float = 1.0,
    batch_size: int | None = None,
    option: str = "II",
) -> Solution:
    """Algorithm 1.

    steps (tau, K there) of every owner in a round
    step_size (eta); when None step_factor / L, L as in FedAvg. The theory asks for 1 / (81 tau L lambda), which is as
        safe as it is slow; step_factor=1/tau is fast when owners are alike
    step_rule: "common" or "own", as in FedAvg; owners with steps of their own may make it diverge
    relaxation (lambda) of the server
    participation, batch_size: as in FedAvg
    option: of the control variates, "II" or "I" (one more gradient a round)
    """
    check_options(run, participation, steps=steps, batch_size=batch_size)
    if option not in ("I", "II"):
        raise OptionError(f"option = {option!r}: choose I, II")
    check_problem(run, REFUSED)
    work = Steps(run, participation, steps, step_size, step_factor, step_rule, batch_size)
    work.joined()
    own = work.step_size is None
    course = work.course(RESTLESS if batch_size is not None else UNEQUAL if own else LONG_STEPS if steps > 1 else "")
    holders = len(run.fleet.owners)
    w, variate = run.w0, np.zeros_like(run.w0)
    try:
        for k in course.rounds():
            asked = course.asked(k)
            order = Round(**work.order(k, w, course.judging(k)), variate=variate, option=option)
            replies = run.fleet.ask(advance, order, asked)
            following = w + relaxation * replies.total.moved / len(asked)
            course.follow(k, asked, w, following, replies, replies.total.step / len(asked))
            w = following
            variate = variate + replies.total.change / holders
    except KeyboardInterrupt:
        course.end = interrupted(run)
    return course.solution(w)
