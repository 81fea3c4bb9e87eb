"""FedProx: FedAvg whose owners are held near the server's w by a proximal term.

    y <- w,  then tau times  y <- y - eta (F_i(y) + (y - w) / gamma)        owner i: roughly (id + gamma F_i)^-1(w)
    w <- w + lambda (mean_i y_i - w)                                        the server, over the owners asked

Source: Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith (2020), Algorithm 2, with gradient steps as the local solver, as
in iFedDR (E.2). With tau -> infinity it iterates the mean of the owners' proximal maps, whose fixed point is not the
optimum when the owners differ (Pathak and Wainwright 2020, Proposition 2): gamma -> 0 removes the bias, and the speed.

differs from Li et al.: owners that are asked count the same, and all of them take tau steps (there: drawn by their
rows, and to an accuracy that may differ by owner). Minibatches and h are as in FedAvg, see there; the server's proximal
step of h is as long as the owners' way, lambda gamma (1 - (1 - eta / gamma)^tau).

Notation
    gamma    step of the proximal term, 1 / mu of Li et al.             gamma
    tau      local steps in a round                                     steps
    eta      local step size                                            step_size
    lambda   step of the server                                         relaxation
    K / N    share of the owners that a round asks                      participation
"""

from __future__ import annotations

from dataclasses import dataclass

from fedpact.solvers.averaging import (
    LocalSteps,
    Member,
    Moved,
    Slope,
    Steps,
    check_options,
    check_problem,
    descended,
    first_gamma,
    local_step,
    moved_to,
)

from fedpact.federation import client_step
from fedpact.functions import Vector
from fedpact.problem import Share
from fedpact.solvers.endings import interrupted
from fedpact.solvers.run import Run
from fedpact.solvers.solution import Solution

BIAS = (
    "FedProx with {} stops at a point that is not the optimum when owners differ; take a smaller gamma, or a method "
    'without this bias: "ifeddr", "feddr", "scaffold"'
)

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True, kw_only=True)
class Round(LocalSteps):
    gamma: float


@client_step
def advance(share: Share, state: Member, order: Round) -> tuple[Member, Moved]:
    """Gradient steps on f_i^gamma, iFedDR (3.1) with s = w."""
    slope, step = Slope(share, state, order), local_step(state, order, 1 / order.gamma)  # (E.3)

    def held(y: Vector) -> Vector:
        return slope(y) + (y - order.w) / order.gamma

    return state, moved_to(descended(order, step, held), order, step, slope)


# --------------------------------------------------------------------------------------------------- the server's half


def fedprox(
    run: Run,
    *,
    gamma: float | None = None,
    steps: int = 10,
    step_size: float | None = None,
    step_factor: float = 1.0,
    step_rule: str = "common",
    relaxation: float = 1.0,
    participation: float = 1.0,
    batch_size: int | None = None,
) -> Solution:
    """Algorithm 2.

    gamma (1 / mu); when None the inverse of the owners' mean curvature at w0
    steps (tau) of every owner in a round
    step_size (eta); when None step_factor / (L + 1 / gamma), L as in FedAvg; step_rule: "common" or "own", likewise
    relaxation (lambda) of the server
    participation, batch_size: as in FedAvg
    """
    check_options(run, participation, steps=steps, batch_size=batch_size)
    check_problem(run)
    gamma = gamma or first_gamma(run)
    work = Steps(run, participation, steps, step_size, step_factor, step_rule, batch_size, more=1 / gamma)
    work.joined()
    run.history.notes.append(f"gamma = {gamma:.3g}")
    course = work.course(work.bias(BIAS))
    w = run.w0
    try:
        for k in course.rounds():
            asked = course.asked(k)
            replies = run.fleet.ask(advance, Round(**work.order(k, w, course.judging(k)), gamma=gamma), asked)
            eta = replies.total.step / len(asked)
            mean = w + relaxation * replies.total.moved / len(asked)
            following = work.server_h.prox(mean, relaxation * gamma * (1 - (1 - eta / gamma) ** steps))
            course.follow(k, asked, w, following, replies, gamma)
            w = following
    except KeyboardInterrupt:
        course.end = interrupted(run)
    return course.solution(w)
