"""Augmented Lagrangian by damped Newton steps on sums: for non-convex functions with Hessians, such as networks.

    L_k(w) = sum_i f_i(w) + (dist^2(mu_i^k + beta c_i(w), -K_i) - |mu_i^k|^2) / (2 beta) + h(w)

is minimised by steps of the model r'd + d'(M + lambda D)d / 2 + h(w + d), r and M the sums of the owners' gradients and
Hessians, D their diagonal. One exchange tries one step: L_k itself decides whether it is taken and what lambda is next
(Levenberg 1944, Marquardt 1963), so that no step leads away, convex or not. Where it is nearly minimised every holder
takes mu_i^{k+1} = P_{K_i*}(mu_i^k + beta c_i(w)), Algorithm 1 of He24 without its proximal term, whose part lambda has.

Every point that is tried comes with the certificate of that multiplier: the gradient of L_k is the one of the
Lagrangian there. Functions may give any symmetric matrix near their Hessian; for networks `from_torch` has that of
Gauss and Newton, which costs one gradient, not d. Multipliers stay at their owners until the end.

Notation
    beta    penalty of the constraints            penalty
    lambda  damping                               Server.damping
    omega   accuracy of the minimisation          Server.accuracy
    r, M    gradient and Hessian of the sums      System.slope, .matrix
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedpact.federation import Summed, client_step, named
from fedpact.federation.messages import Fitted, Fitting, is_finite
from fedpact.problem import Certificate, Share
from fedpact.problem.certificate import owner_terms
from fedpact.problem.share import expand
from fedpact.solvers.base import Needs, Solver, option
from fedpact.solvers.constrained.condensation import apply, pack, unpack
from fedpact.solvers.local.damped_model import model_step
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.scales import check_start
from fedpact.solvers.steps import (
    Holder,
    Judged,
    certificate_of,
    first_prices,
    judged_terms,
    no_terms,
    price_of,
    returned_by,
    term_fields,
)
from fedpact.types import Vector

#: The penalty grows by this factor
GROWTH = 3.0
#: where an update of the multipliers leaves more than this of the miss,
FALL = 0.5
#: and to this many times the first one at most: where constraints conflict it would grow without end.
MOST_GROWTH = 1e6
#: omega is at first this part of the slope at the start,
FIRST_ACCURACY = 0.1
#: then falls by this factor with every update, down to this part of the tolerance.
FINER = 0.3
FINEST = 0.3
#: Multipliers are updated after so many steps, whether or not L_k is nearly minimised: a kink may not let it be.
STEPS = 30
#: lambda at the start, relative to the diagonal of the Hessian,
FIRST_DAMPING = 1e-2
#: never falls below this,
LEAST_DAMPING = 1e-9
#: and beyond this no step is left.
MOST_DAMPING = 1e16
#: A step that does as well as predicted divides lambda by this at most (Nielsen 1999), one that fails multiplies it by
RELAX = 5.0
#: this.
RAISE = 4.0
#: A step is taken when it brings this part of what the model predicts.
ENOUGH = 1e-4
#: Relative to L_k: a change that is no more than its rounding is none.
ROUNDING = 1e-13

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True, kw_only=True)
class State(Holder):
    """What a holder keeps; `price` is P_{K*}(mu + beta c) at the point that it looked at last."""

    multiplier: Vector  # mu^k
    drift: Vector  # P_{K*} of the last change of mu

    @property
    def separator(self) -> tuple[Vector | None, Vector]:
        """With conflicting constraints the drift tends to a vector that proves the conflict."""
        return None, self.drift


@dataclass(frozen=True, kw_only=True)
class Look(Fitted):
    """Look at w."""

    w: Vector
    penalty: float
    iteration: int
    coupled: Vector  # price of a coupled constraint, which the server holds
    best: bool  # first: the latest price is the best so far
    update: bool  # first: mu is the latest price
    warm: int  # iteration of another method whose price is mu^0, -1: zero; -2: this is not the first look


#: `Look.warm` after the first look.
GOES_ON = -2


@dataclass(frozen=True, kw_only=True)
class System(Judged):
    """A holder's part of L_k at w, judged with its price there."""

    usable: bool  # False: a value or a derivative is not finite here, all else is void
    value: Summed[float]
    slope: Summed[Vector]
    matrix: Fitting[Vector]  # packed
    diagonal: Summed[Vector]  # of the Hessian of the Lagrangian, by size
    miss: Summed[float]  # |P(mu + beta c) - mu|^2 / beta^2


@client_step
def look(share: Share, state: Any, order: Look) -> tuple[State, System]:
    """L_k, its gradient and Hessian at w, and the terms of the certificate with the price there."""
    # 1. the multiplier
    w = order.w
    if order.warm != GOES_ON:
        check_start(share, w, expand(share, w)[0])
        state = _begin(share, state, order)
    state = state.mark_best(order.best)
    multiplier = state.multiplier
    drift = state.drift
    if order.update:
        drift = state.price - multiplier
        if share.constraint is not None:
            drift = share.constraint.cone.project_dual(drift)
        multiplier = state.price

    # 2. the augmented Lagrangian
    with np.errstate(over="ignore", invalid="ignore"):
        local, curvature = expand(share, w)
        price = multiplier
        value = local.objective
        slope = local.gradient
        miss = 0.0
        if share.constraint is not None:
            shifted = multiplier + order.penalty * local.value
            if is_finite(shifted):
                price = share.constraint.cone.project_dual(shifted)
            value += float(price @ price - multiplier @ multiplier) / (2 * order.penalty)
            slope = slope + local.jacobian.T @ price
            miss = float(np.sum((price - multiplier) ** 2)) / order.penalty**2
        matrix = curvature.lagrangian(price, np.zeros(0))
        diagonal = np.abs(np.diagonal(matrix))
        if share.constraint is not None:
            weight = share.constraint.cone.project_dual_jacobian(shifted)
            matrix = matrix + order.penalty * local.jacobian.T @ apply(weight, local.jacobian)

    # 3. what is told of it
    after = replace(state, iteration=order.iteration, price=price, multiplier=multiplier, drift=drift)
    if not (np.isfinite(value) and is_finite(slope) and is_finite(matrix) and is_finite(local.value)):
        return after, _void(share, order)
    if share.own(w, price)[0] is share:
        terms = term_fields(owner_terms(share, w, price, order.coupled, local))
    else:  # a reformulated share is judged as the user stated it
        terms = judged_terms(share, w, price, order.coupled)
    return after, System(
        usable=True, value=value, slope=slope, matrix=pack(matrix), diagonal=diagonal, miss=miss, **terms
    )


def _begin(share: Share, state: Any, order: Look) -> State:
    price = price_of(share, state, order.warm)
    return State(
        iteration=order.iteration,
        price=price,
        best_iteration=order.warm,
        best_price=price,
        returned=returned_by(state),
        multiplier=price,
        drift=np.zeros_like(price),
    )


def _void(share: Share, order: Look) -> System:
    """A zero System of the shape that the order asks for, where a value is not finite."""
    zero = np.zeros_like(order.w)
    stated = share.own(order.w, np.zeros(share.multiplier_length))[1]
    terms = {**no_terms(), "gradient": np.zeros_like(stated), "coupled": np.zeros_like(order.coupled)}
    packed = pack(np.zeros((zero.size, zero.size)))
    return System(usable=False, value=0.0, slope=zero, matrix=packed, diagonal=zero, miss=0.0, **terms)


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass(frozen=True)
class Seen:
    """L_k at a point that all holders looked at, and its certificate with the prices there.

    value, slope: of all holders and h; the distance of 0 from the gradient, in the max-norm
    """

    w: Vector
    usable: bool
    system: System
    value: float
    slope: float
    judged: tuple[Certificate, float] | None


@dataclass
class Server:
    """The server's variables.

    own:      the server as a holder of its own share
    base:     the last point that was taken
    tried:    steps since mu was last updated
    missed:   by the constraints when mu was last updated
    """

    own: State
    base: Seen
    penalty: float
    most_penalty: float
    accuracy: float
    damping: float = FIRST_DAMPING
    k: int = 0
    tried: int = 0
    missed: float = np.inf


@dataclass(frozen=True, kw_only=True)
class NewtonAL(Solver[Server]):
    """Augmented Lagrangian with Newton steps on sums, each weighed by L_k: non-convex functions, any cone."""

    name: ClassVar[str] = "newton-al"
    needs: ClassVar[Needs] = Needs(constraints=True, prices=True, jacobians=True, matrices=True)
    reserve: ClassVar[int] = 2
    patience: ClassVar[int] = 200
    doubt: ClassVar[int] = 60
    progress: ClassVar[float] = 0.9

    penalty: float = option(10.0, "penalty of the constraints at the start", letter="beta", above=0)

    def init(self, run: Run) -> tuple[Server, Iterate]:
        prices = first_prices(run)
        held = Holder(iteration=run.warm, price=prices, best_iteration=run.warm, best_price=prices)
        order = Look(
            w=run.start,
            penalty=self.penalty,
            iteration=run.first,
            coupled=np.zeros(0),
            best=False,
            update=False,
            warm=run.warm,
        )
        own, seen = look_at(run, held, order)
        state = Server(
            own=own,
            base=seen,
            penalty=self.penalty,
            most_penalty=MOST_GROWTH * self.penalty,
            accuracy=FIRST_ACCURACY * seen.slope,
        )
        return state, self._iterate(run, state, seen)

    def step(self, run: Run, state: Server) -> Iterate:
        """One exchange: a step is tried, or the multipliers are updated."""
        state.k += 1
        nearly = state.base.slope <= state.accuracy
        if nearly or state.tried >= STEPS or state.damping > MOST_DAMPING:
            return self._update(run, state)
        return self._try(run, state)

    def fallback(self, state: Server) -> str:
        """Algorithm 1 goes on where the constraints are still missed."""
        missed = state.base.judged is not None and state.base.judged[0].violation > state.accuracy
        return "proximal-al" if missed else ""

    def separator(self, run: Run, state: Server) -> tuple[Vector | None, Vector]:
        return None, state.own.drift

    def _update(self, run: Run, state: Server) -> Iterate:
        """Every holder takes its price at the last point taken for mu; the penalty grows where that helped little."""
        missed = float(np.sqrt(state.base.system.miss))
        nearly = state.base.slope <= state.accuracy
        if nearly and missed > max(FALL * state.missed, FINEST * run.tol[1]) and state.penalty < state.most_penalty:
            state.penalty *= GROWTH
            run.note(f"iteration {run.first + state.k}: penalty beta = {state.penalty:.3g}")
        state.missed = missed
        stuck = state.damping > MOST_DAMPING
        state.own, state.base = look_at(run, state.own, self._order(run, state, state.base.w, update=True))
        state.accuracy = max(FINER * state.accuracy, FINEST * run.tol[0])
        if stuck:
            state.damping = FIRST_DAMPING
        state.tried = 0
        iterate = self._iterate(run, state, state.base)
        if not stuck or missed > run.tol[1]:
            return iterate
        return replace(iterate, end=Verdict("stalled", "steps that are too short to matter are refused"))

    def _try(self, run: Run, state: Server) -> Iterate:
        """A step of the damped model, taken where L_k falls as it predicts."""
        base = state.base
        matrix = unpack(base.system.matrix, base.w.size)
        h = run.problem.regularizer
        step, damping = model_step(
            matrix, base.system.slope, base.system.diagonal, h, base.w, state.damping, 1e-3 * run.tol[0]
        )
        change = h.value(base.w + step) - h.value(base.w)
        predicted = -float(base.system.slope @ step + 0.5 * step @ matrix @ step) - change
        state.own, now = look_at(run, state.own, self._order(run, state, base.w + step, update=False))
        state.tried += 1
        gained = (base.value - now.value) / max(predicted, np.finfo(float).tiny)
        still = abs(base.value - now.value) <= ROUNDING * abs(base.value) and now.slope < base.slope
        if now.usable and (gained >= ENOUGH or still):
            state.base = now
            state.damping = max(damping * max(1 / RELAX, 1 - (2 * min(gained, 1.0) - 1) ** 3), LEAST_DAMPING)
        else:
            state.damping = RAISE * damping
        return self._iterate(run, state, now)

    def _order(self, run: Run, state: Server, w: Vector, update: bool) -> Look:
        return Look(
            w=w,
            penalty=state.penalty,
            iteration=run.first + state.k,
            coupled=np.zeros(0),
            best=run.best.iteration == run.first + state.k - 1,
            update=update,
            warm=GOES_ON,
        )

    def _iterate(self, run: Run, state: Server, seen: Seen) -> Iterate:
        owners = len(run.owners)
        return Iterate(
            number=run.first + state.k,
            w=seen.w,
            multiplier=state.own.price,
            judged=seen.judged,
            penalty=state.penalty,
            consensus_penalty=state.damping,
            gradients=owners,
            hessians=owners,
        )


def look_at(run: Run, held: Holder, order: Look) -> tuple[State, Seen]:
    """One exchange: everybody looks at w, the server first, as the price of a coupled constraint is its own."""
    problem = run.problem
    with named(problem.server.label, look.__name__):
        own, mine = look(problem.server, held, order)
    replies = run.ask(look, replace(order, coupled=problem.own(order.w, own.price)[3]))
    total = replies.total
    usable = mine.usable and all(reply.usable for reply in replies)
    if problem.server.parts:
        held_by_all = ("value", "slope", "matrix", "diagonal", "miss")
        total = replace(total, **{name: getattr(total, name) + getattr(mine, name) for name in held_by_all})
    if not usable:
        return own, Seen(order.w, False, total, np.inf, np.inf, None)
    h = problem.regularizer
    return own, Seen(
        w=order.w,
        usable=True,
        system=total,
        value=total.value + h.value(order.w),
        slope=h.subdifferential_distance(-total.slope, order.w),
        judged=certificate_of(problem, order.w, own.price, replies),
    )
