"""What FedAvg, FedProx and SCAFFOLD share: an owner's local steps, and the options and messages that go with them.

Owners take y <- y - eta * slope(y) from the server's w; the methods differ in the slope. As in "ifeddr",
F_i = N grad f_i, because the papers minimise means.

Notation
    tau      local steps in a round                                     steps
    eta      local step size                                            step_size
    lambda   step of the server                                         relaxation
    L        largest curvature of the F_i, as the owners estimate it    Joined.lipschitz
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from fedpact.errors import OptionError
from fedpact.federation import Answers, Order, Summed, client_step
from fedpact.problem import Share
from fedpact.prox import Prox
from fedpact.solvers.base import Solver, option
from fedpact.solvers.consensus.rounds import (
    Rounds,
    Worked,
    add_ridge,
    divide_regularizer,
    evaluate,
    has_run_away,
    objective_of,
    terms_of,
    terms_where_asked,
)
from fedpact.solvers.local.resolvent import estimate_lipschitz
from fedpact.solvers.run import Iterate, Run
from fedpact.solvers.steps import Judged, certificate_of
from fedpact.types import Vector

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True)
class Member:
    """index: the owner's number, from 1 (0: not needed); lipschitz: of F_i, with the owner's part of h."""

    index: int
    lipschitz: float


@dataclass(frozen=True, kw_only=True)
class Join(Order):
    """ridge: curvature of a quadratic h, of which every owner takes its part; empty: none."""

    w: Vector
    index: int
    holders: int
    ridge: Vector
    minibatches: bool


@dataclass(frozen=True, kw_only=True)
class Joined(Judged):
    """Judged at the start."""

    lipschitz: float


@dataclass(frozen=True, kw_only=True)
class LocalSteps(Order):
    """Take local steps from w.

    iteration, seed: what minibatches are drawn with, besides the owner's number
    step_size:       0: step_factor / L_i, by the owner's own L_i
    batch_size:      0: all rows
    """

    w: Vector
    iteration: int
    seed: int
    holders: int
    steps: int
    step_size: float
    step_factor: float
    batch_size: int
    ridge: Vector
    judge: bool


@dataclass(frozen=True, kw_only=True)
class Moved(Worked):
    """moved: y - w after the last step; step: eta at this owner."""

    moved: Summed[Vector]
    step: Summed[float]


@client_step
def join(share: Share, state: Any, order: Join) -> tuple[Member, Joined]:
    """The owner learns its number, judges the start, and says how long its steps may be."""
    function = objective_of(share)
    if order.minibatches and function.rows == 0:
        raise OptionError(
            f"batch_size needs rows to draw from, and {function!r} is no mean over rows; leave batch_size out",
            code="FP-OPTION-200",
        )
    ridge = float(np.max(order.ridge, initial=0.0))
    lipschitz = estimate_lipschitz(function, order.holders, order.w) + ridge
    terms = terms_of(function.value_and_gradient(order.w))
    return Member(order.index, lipschitz), Joined(**terms, lipschitz=lipschitz)


class Slope:
    """F_i plus its part of grad h; over a fresh minibatch at every call, where those are asked for.

    evaluated: f_i and its gradient at w, over all rows, when the order asks to judge w (None: not finite there)
    gradients: how many were evaluated so far
    """

    def __init__(self, share: Share, member: Member, order: LocalSteps) -> None:
        self.function = objective_of(share)
        self.order = order
        self.rows = min(order.batch_size, self.function.rows)
        self.rng = np.random.default_rng([order.seed, order.iteration, member.index])
        self.gradients = 0
        self.evaluated: tuple[float, Vector] | None = None
        if order.judge:
            self.gradients = 1
            self.evaluated = evaluate(self.function, order.w)
        self.known: Vector | None = None
        if self.evaluated is not None and not self.rows:
            self.known = self.evaluated[1]  # the first step is taken from w, where the gradient is known by now

    @property
    def lost(self) -> bool:
        return self.order.judge and self.evaluated is None

    def __call__(self, y: Vector) -> Vector:
        gradient = self.known
        self.known = None
        if gradient is None:
            gradient = self._gradient(y)
        return add_ridge(self.order.holders * gradient, self.order.ridge, y)

    def _gradient(self, y: Vector) -> Vector:
        self.gradients += 1
        if not self.rows:
            return self.function.gradient(y)
        drawn = self.rng.choice(self.function.rows, self.rows, replace=False)
        return self.function.batch(drawn).gradient(y)


def local_step_size(member: Member, order: LocalSteps, more: float = 0.0) -> float:
    """eta at this owner; `more` is what the method adds to the curvature of F_i."""
    return order.step_size or order.step_factor / (member.lipschitz + more)


def descend(order: LocalSteps, step: float, slope: Callable[[Vector], Vector]) -> Vector:
    """tau times y <- y - eta slope(y), from w; stops where it has run away."""
    y = order.w
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(order.steps):
            y = y - step * slope(y)
            if has_run_away(y, order.w):
                break
    return y


def report_move(y: Vector, order: LocalSteps, step: float, slope: Slope) -> Moved:
    """The reply of an owner whose local steps led to y."""
    diverged = has_run_away(y, order.w)
    return Moved(
        **terms_where_asked(order.judge, slope.evaluated, y.size),
        gradients=slope.gradients,
        lost=slope.lost,
        diverged=diverged,
        moved=np.zeros(y.size) if diverged else y - order.w,
        step=step,
    )


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass
class Server:
    """w, eta (0: the owners' own), the owners' part of h, and what is left of h to the server."""

    w: Vector
    step_size: float
    ridge: Vector
    regularizer: Prox
    rounds: Rounds


S = TypeVar("S", bound=Server)
J = TypeVar("J", bound=Joined)


@dataclass(frozen=True, kw_only=True)
class LocalStepSolver(Solver[S]):
    """Options of the methods whose owners take gradient steps.

    bias: why the method may stop away from the optimum; {} stands for the causes
    """

    progress: ClassVar[float] = 0.9
    bias: ClassVar[str] = ""

    steps: int = option(10, "local steps of every owner in a round", letter="tau", least=1)
    step_size: float | None = option(
        None, "local step size; by default step_factor / L, L the largest curvature of the F_i", letter="eta", above=0
    )
    step_factor: float = option(1.0, "of the default step size", above=0)
    step_rule: str = option(
        "common",
        'of the default step size: one for all, or each owner its "own", by its own L_i',
        choices=("common", "own"),
    )
    relaxation: float = option(1.0, "step of the server", letter="lambda", above=0)
    participation: float = option(
        1.0, "share of the owners that a round asks, drawn anew for every round", above=0, most=1
    )
    batch_size: int | None = option(None, "rows of a minibatch; by default all", letter="B", least=1)

    def join_all(self, run: Run, step: Callable[[Any, Any, Any], tuple[Any, J]]) -> Answers[J]:
        """One exchange: owners say how long their steps may be, and get the number they draw minibatches with."""
        holders = len(run.owners)
        ridge, _ = divide_regularizer(run.problem)
        draws = self.batch_size is not None
        order = Join(w=run.start, index=0, holders=holders, ridge=ridge, minibatches=draws)
        if not draws:
            return run.ask(step, order)
        # A number for each is an order for each, which secure sums forbid: only where it is needed.
        return run.ask(step, [replace(order, index=i) for i in range(1, holders + 1)])

    def begin(self, run: Run, joined: Answers[J], more: float = 0.0) -> tuple[Server, Iterate]:
        """The server before the first round, and the start as the owners judged it when they joined.

        more: what the method adds to the curvature of the F_i
        """
        step_size = self.step_size
        if step_size is None and self.step_rule == "common":
            step_size = self.step_factor / (max(reply.lipschitz for reply in joined) + more)
        if step_size is not None:
            run.note(f"local steps of length {step_size:.3g}")
        ridge, regularizer = divide_regularizer(run.problem)
        full = self.batch_size is None
        rounds = Rounds(run, self.participation, free=full, steady=full, reserve=self.reserve)
        state = Server(run.start, step_size or 0.0, ridge, regularizer, rounds)
        judged = certificate_of(run.problem, run.start, np.zeros(0), joined)
        return state, Iterate(number=0, w=run.start, judged=judged)

    def local_steps(self, run: Run, state: Server) -> dict[str, Any]:
        """The fields of `LocalSteps` in this round."""
        return {
            "w": state.w,
            "iteration": state.rounds.k,
            "seed": int(run.seed),
            "holders": len(run.owners),
            "steps": self.steps,
            "step_size": state.step_size,
            "step_factor": self.step_factor,
            "batch_size": self.batch_size or 0,
            "ridge": state.ridge,
            "judge": state.rounds.judging,
        }

    def follow(self, run: Run, state: S, following: Vector, replies: Answers[Any], *, step: float) -> Iterate:
        """End a round: go on with the point that it gave."""
        iterate = state.rounds.follow(state.w, following, replies, step=step, excuse=self.excuse(run, state))
        state.w = following
        return iterate

    def excuse(self, run: Run, state: S) -> str:
        """What keeps a method without corrections from the optimum; empty when nothing does."""
        causes = []
        if self.steps > 1:
            causes.append(f"{self.steps} local steps")
        if not state.step_size:
            causes.append("unequal step sizes")
        if self.participation < 1:
            causes.append("another sample of the owners every round")
        if self.batch_size is not None:
            causes.append("minibatches under a fixed step size")
        if not causes:
            return ""
        return self.bias.format(" and ".join(causes))
