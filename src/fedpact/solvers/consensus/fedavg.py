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

from fedpact.federation import client_step
from fedpact.problem import Share
from fedpact.solvers.endings import interrupted
from fedpact.solvers.run import Run
from fedpact.solvers.solution import Solution

BIAS = (
    "FedAvg with {} stops at a point that is not the optimum when owners differ; take steps=1 and one step size for "
    'all, or a method without this bias: "ifeddr", "feddr", "scaffold"'
)

# ---------------------------------------------------------------------------------------------------- the owner's half


@client_step
def advance(share: Share, state: Member, order: LocalSteps) -> tuple[Member, Moved]:
    """ClientUpdate."""
    slope, step = Slope(share, state, order), local_step(state, order)
    return state, moved_to(descended(order, step, slope), order, step, slope)


# --------------------------------------------------------------------------------------------------- the server's half


def fedavg(
    run: Run,
    *,
    steps: int = 10,
    step_size: float | None = None,
    step_factor: float = 1.0,
    step_rule: str = "common",
    relaxation: float = 1.0,
    participation: float = 1.0,
    batch_size: int | None = None,
) -> Solution:
    """Algorithm 1.

    steps (tau) of every owner in a round
    step_size (eta); when None step_factor / L, L the largest curvature of the F_i, as the owners estimate it at w0
    step_rule: "common", or "own": step_factor / L_i at owner i (iFedDR's tables; even steps=1 is then biased)
    relaxation (lambda) of the server
    participation (C): max(C N, 1) owners are drawn anew for every round
    batch_size (B): rows of a minibatch; None: all
    """
    check_options(run, participation, steps=steps, batch_size=batch_size)
    check_problem(run)
    work = Steps(run, participation, steps, step_size, step_factor, step_rule, batch_size)
    work.joined()
    course = work.course(work.bias(BIAS))
    w = run.w0
    try:
        for k in course.rounds():
            asked = course.asked(k)
            replies = run.fleet.ask(advance, LocalSteps(**work.order(k, w, course.judging(k))), asked)
            eta = replies.total.step / len(asked)
            mean = w + relaxation * replies.total.moved / len(asked)
            following = work.server_h.prox(mean, relaxation * steps * eta)
            course.follow(k, asked, w, following, replies, eta)
            w = following
    except KeyboardInterrupt:
        course.end = interrupted(run)
    return course.solution(w)
