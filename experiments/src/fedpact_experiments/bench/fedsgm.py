"""FedSGM, the switching gradient method for owners with constraints: no multipliers, no penalties, no inner solvers.

    G(w) = mean_i g_i(w),    s = switch(G(w) - eps)
    y <- w,  then E times  y <- y - eta F_i(y),    z <- w,  then E times  z <- z - eta grad g_i(z)       owner i
    w <- w + (1 - s) mean_i (y_i - w) + s mean_i (z_i - w)                                              the server

with switch(x) = 1 for x > 0 and 0 otherwise (hard), or min(1, max(0, 1 + beta x)) (soft): the constraints are stepped
down while they are missed, the objective elsewhere. The answer is the mean of all w, weighted with 1 - s.

Source: Upadhyay, Moon and Hashemi, "FedSGM: a unified framework for constraint aware, bidirectionally compressed,
multi-step federated optimization" (arXiv:2601.16897, 2026), without compression and with all owners.

differs from FedSGM:
- F_i = n grad f_i, since our objective is the sum of the f_i;
- every owner (and the server) has constraints c_i of its own here, where the paper bounds the mean of scalar ones:
  g_i(w) = |P_K*(c_i(w))|, which is zero exactly where c_i holds, so that G = 0 is all of them;
- owners send both moves, and the server takes what the switch says: one exchange a round, where the paper first asks
  for G and then for the move;
- multipliers can be read off, so that the answer has a certificate like any other: a step down g_i pulls along
  grad c_i' u with u = P_K*(c_i) / |P_K*(c_i)|, and the sum of these pulls, over the steps of the objective, is the
  price (the sums of both telescope to (w_0 - w_T) / eta).

Notation
    E      local steps in a round                               steps
    eta    length of a local step                               step_size
    eps    how far G may be missed                              slack
    beta   slope of the soft switch, 2 / eps or more; 0: hard    softness
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedpact.federation import Order, Summed, client_step
from fedpact.problem import Share
from fedpact.solvers.base import Needs, Solver, option
from fedpact.solvers.run import Iterate, Run
from fedpact.solvers.steps import Holder, Judged, certificate_of, judged_terms
from fedpact.types import Vector

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True, kw_only=True)
class Puller(Holder):
    """pull: of the last round's steps down g_i, on the constraint; pulls: of all rounds whose steps were taken."""

    pull: Vector
    pulls: Vector


@dataclass(frozen=True, kw_only=True)
class Switch(Order):
    """Take both kinds of steps from w, and judge the mean point with the price so far.

    switched: s of the round before;  taken: sum of (1 - s) E over all rounds before
    best:     first, the latest price becomes the best one
    """

    iteration: int
    w: Vector
    mean: Vector
    switched: float
    taken: float
    holders: int
    steps: int
    step_size: float
    best: bool


@dataclass(frozen=True, kw_only=True)
class Moves(Judged):
    """y - w, z - w and g at w; and what the certificate of the mean point needs."""

    objective_move: Summed[Vector]
    constraint_move: Summed[Vector]
    missed: Summed[float]


@client_step
def switch(share: Share, state: Any, order: Switch) -> tuple[Puller, Moves]:
    """E steps down the objective and E steps down the constraint, both from w."""
    none = np.zeros(share.multiplier_length)
    if not isinstance(state, Puller):
        state = Puller(iteration=-1, price=none, best_iteration=-1, best_price=none, pull=none, pulls=none)
    state = state.mark_best(order.best)
    pulls = state.pulls + order.switched * state.pull
    price = pulls / max(order.taken, 1.0)
    y = order.w
    z = order.w
    pull = none
    for _ in range(order.steps):
        if share.objective is not None:
            y = y - order.step_size * order.holders * share.objective.gradient(y)
        slope, direction = slope_of_miss(share, z)
        z = z - order.step_size * slope
        pull = pull + direction / order.holders
    moves = Moves(
        **judged_terms(share, order.mean, price, np.zeros(0)),
        objective_move=y - order.w,
        constraint_move=z - order.w,
        missed=miss_of(share, order.w),
    )
    return replace(state, iteration=order.iteration, price=price, pull=pull, pulls=pulls), moves


def miss_of(share: Share, w: Vector) -> float:
    """g: how far the constraint is from being met."""
    if share.constraint is None:
        return 0.0
    return float(np.linalg.norm(share.constraint.cone.project_dual(share.constraint.function.value(w))))


def slope_of_miss(share: Share, w: Vector) -> tuple[Vector, Vector]:
    """A subgradient of g, and u, along which it pulls on the constraint; zero where the constraint holds."""
    if share.constraint is None:
        return np.zeros_like(w), np.zeros(0)
    excess = share.constraint.cone.project_dual(share.constraint.function.value(w))
    size = float(np.linalg.norm(excess))
    if size == 0:
        return np.zeros_like(w), excess
    direction = excess / size
    return share.constraint.function.jacobian(w).T @ direction, direction


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass
class Server:
    """w, the weighted mean of all w so far, and what the next order says of the last round."""

    w: Vector
    mean: Vector
    own: Puller  # its own constraint: it takes part like an owner
    switched: float = 0.0
    taken: float = 0.0
    k: int = 0


@dataclass(frozen=True, kw_only=True)
class FedSGM(Solver[Server]):
    """The switching gradient method. Rate 1 / sqrt(T), of the mean point."""

    name: ClassVar[str] = "fedsgm"
    needs: ClassVar[Needs] = Needs(constraints=True)

    step_size: float = option(0.3, "length of a local step", letter="eta", above=0)
    steps: int = option(1, "local steps in a round", letter="E", least=1)
    slack: float = option(5e-4, "how far the constraints may be missed", letter="eps", least=0)
    softness: float = option(0.0, "slope of the soft switch, 2 / slack or more; 0: hard", letter="beta", least=0)

    def init(self, run: Run) -> tuple[Server, Iterate]:
        none = np.zeros(run.problem.server.multiplier_length)
        own = Puller(iteration=-1, price=none, best_iteration=-1, best_price=none, pull=none, pulls=none)
        state = Server(run.start, run.start, own)
        return state, self.step(run, state)

    def step(self, run: Run, state: Server) -> Iterate:
        # 1. one exchange: both moves from w; the certificate of the mean point
        holders = len(run.owners)
        number = run.first + state.k
        order = Switch(
            iteration=number,
            w=state.w,
            mean=state.mean,
            switched=state.switched,
            taken=state.taken,
            holders=holders,
            steps=self.steps,
            step_size=self.step_size,
            best=run.best.iteration == number - 1,
        )
        replies = run.ask(switch, order)
        state.own, own = switch(run.problem.server, state.own, order)
        judged = certificate_of(run.problem, state.mean, state.own.price, replies)

        # 2. which of the moves to take
        total = replies.total
        state.switched = self._switch((total.missed + own.missed) / holders - self.slack)
        down = (total.objective_move + own.objective_move) / holders
        back = (total.constraint_move + own.constraint_move) / holders

        # 3. w counts in the mean as far as the objective was stepped down from it
        weight = (1 - state.switched) * self.steps
        if weight:
            before = state.taken
            state.mean = (before * state.mean + weight * state.w) / (before + weight)
            state.taken = before + weight
        w = state.w + (1 - state.switched) * down + state.switched * back
        state.w = run.problem.regularizer.prox(w, weight * self.step_size)
        state.k += 1
        return Iterate(number=number, w=order.mean, multiplier=state.own.price, judged=judged, gradients=3 * holders)

    def _switch(self, excess: float) -> float:
        if self.softness:
            return min(1.0, max(0.0, 1 + self.softness * excess))
        return float(excess > 0)
