"""Centralized proximal augmented Lagrangian method, cProx-AL: Algorithm 3 of He24, the twin that pools all shares.

    l_k(w) = f(w) + h(w) + (dist^2(mu^k + beta c(w), -K) - |mu^k|^2) / (2 beta) + |w - w^k|^2 / (2 beta)

The letters are those of `proximal_al.py`. It reads the shares in its own process and exchanges no message: a reference
for what federation costs, not a federated method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedpact.federation import Largest, Order, client_step, named
from fedpact.functions import Function
from fedpact.problem import Share
from fedpact.solvers.base import Needs, Solver, option
from fedpact.solvers.constrained.augmented_lagrangian import augmented_lagrangian
from fedpact.solvers.constrained.proximal_al import drift_of, next_multiplier
from fedpact.solvers.constrained.proximal_al_pace import Pace, outer_accuracy
from fedpact.solvers.local import anchored, minimize
from fedpact.solvers.run import Iterate, PooledRun, Run, Verdict
from fedpact.solvers.scales import default_penalty, look
from fedpact.solvers.steps import Holder, Judged, certificate_of, judge_point, judged_terms
from fedpact.types import Matrix, Vector

# ---------------------------------------------------------------------------------------------------- one holder's part


@dataclass(frozen=True, kw_only=True)
class State(Holder):
    """A holder's multiplier, and where it is heading."""

    drift: Vector

    @property
    def separator(self) -> tuple[Vector | None, Vector]:
        return None, self.drift


@dataclass(frozen=True, kw_only=True)
class Update(Order):
    """Update the multiplier at w^{k+1}."""

    w: Vector
    coupled: Vector
    penalty: float
    iteration: int
    best: bool


@dataclass(frozen=True, kw_only=True)
class Updated(Judged):
    """Judged with the new multiplier; change: |mu^{k+1} - mu^k| / beta, max-norm."""

    change: Largest[float]


@client_step
def update(share: Share, state: Any, order: Update) -> tuple[State, Updated]:
    """mu^{k+1}, and the terms of the certificate of (w^{k+1}, mu^{k+1})."""
    before = state or first_state(share)
    before = before.mark_best(order.best)
    price, change = next_multiplier(share, order.w, before.price, order.penalty)
    drift = drift_of(share, before.price, price)
    after = replace(before, iteration=order.iteration, price=price, drift=drift)
    return after, Updated(change=change, **judged_terms(share, order.w, price, order.coupled))


def first_state(share: Share) -> State:
    zero = np.zeros(share.multiplier_length)
    return State(iteration=0, price=zero, best_iteration=-1, best_price=zero, drift=zero)


class Named(Function):
    """A function whose errors name its holder, as they do when it runs at an owner."""

    def __init__(self, label: str, function: Function) -> None:
        self.label = label
        self.function = function
        self.dim = function.dim
        self.has_hessian = function.has_hessian
        self.constant_hessian = function.constant_hessian

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        with named(self.label, "the function"):
            return self.function.value_and_gradient(w)

    def hessian(self, w: Vector) -> Matrix:
        with named(self.label, "the Hessian"):
            return self.function.hessian(w)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        with named(self.label, "the Hessian"):
            return self.function.hessian_product(w, v)


# ----------------------------------------------------------------------------------------------------------- the method


@dataclass
class Server:
    """w^k, the server's own multiplier, the penalty, and how the certificate develops."""

    w: Vector
    own: State  # the server as a holder of its own constraint
    penalty: float
    pace: Pace
    k: int = 0


@dataclass(frozen=True, kw_only=True)
class CentralizedProximalAL(Solver[Server]):
    """Algorithm 3: all shares in one process. max_rounds bounds its outer iterations."""

    name: ClassVar[str] = "centralized-proximal-al"
    needs: ClassVar[Needs] = Needs(constraints=True, pooled=True)
    patience: ClassVar[int] = 60
    doubt: ClassVar[int] = 60
    progress: ClassVar[float] = 0.9

    penalty: float | None = option(None, "penalty of the constraints, as in proximal-al", letter="beta", above=0)
    accuracy: float | None = option(None, "of the subproblems, as in proximal-al", letter="s", above=0)

    def init(self, run: Run) -> tuple[Server, Iterate]:
        assert isinstance(run, PooledRun)
        penalty = self.penalty
        if penalty is None:
            penalty = default_penalty(look(run))
        state = Server(run.start, first_state(run.problem.server), penalty, Pace(run.tol))
        judged = judge_point(run, run.start)
        return state, Iterate(number=0, w=run.start, multiplier=state.own.price, judged=judged, penalty=penalty)

    def step(self, run: Run, state: Server) -> Iterate:
        # 1. minimise l_k
        s = self.accuracy or run.tol[0]
        tau = outer_accuracy(s, state.k, run.tol)
        beta = state.penalty
        pooled = anchored(self._augmented(run, state), 1 / beta, state.w)
        found = minimize(pooled, state.w, tau, regularizer=run.problem.regularizer)

        # 2. mu^{k+1} of all holders
        order = Update(
            w=found.w,
            coupled=np.zeros(0),
            penalty=beta,
            iteration=state.k + 1,
            best=run.best.iteration == state.k,
        )
        server = run.problem.server
        with named(server.label, update.__name__):
            price, change = next_multiplier(server, found.w, state.own.price, beta)
        state.own = replace(state.own, price=price, drift=drift_of(server, state.own.price, price))
        replies = run.ask(update, replace(order, coupled=run.problem.own(found.w, price)[3]))
        judged = certificate_of(run.problem, found.w, price, replies)
        state.pace.see(judged[0], max(change, replies.total.change), tau)
        state.w = found.w
        state.k += 1
        if self.penalty is None:
            state.penalty = beta * state.pace.growth()

        end = None
        if not found.converged:
            end = Verdict("stalled", "the pooled subproblem could not be solved to its tolerance")
        if state.k >= run.max_rounds:
            end = Verdict("max_rounds", f"the limit of {run.max_rounds} outer iterations came first")
        return Iterate(
            number=state.k,
            w=state.w,
            multiplier=price,
            judged=judged,
            penalty=beta,
            gradients=found.gradients,
            hessians=found.hessians,
            conflict=state.pace.conflict,
            escape=state.pace.escape,
            end=end,
        )

    def separator(self, run: Run, state: Server) -> tuple[Vector | None, Vector]:
        return None, state.own.drift

    def _augmented(self, run: Run, state: Server) -> Function:
        """The augmented Lagrangian of all holders together."""
        assert isinstance(run, PooledRun)
        holders = [(run.problem.server, state.own.price)]
        for share in run.problem.shares:
            held = run.states.get(share.label)
            holders.append((share, first_state(share).price if held is None else held.price))
        parts: list[Function] = [
            Named(share.label, augmented_lagrangian(share, price, state.penalty, state.w.size))
            for share, price in holders
        ]
        return sum(parts[1:], parts[0])
