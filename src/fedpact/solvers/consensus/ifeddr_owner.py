"""The owner's half of iFedDR (Algorithm I, I.1 and I.4), and what it sends to the server; see `ifeddr.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedpact.federation import Order, Summed, client_step
from fedpact.problem import Share
from fedpact.solvers.consensus.memory import Track
from fedpact.solvers.consensus.rounds import objective_of, terms_of
from fedpact.solvers.consensus.splitting import Resolve, State, solve_resolvent
from fedpact.solvers.consensus.sums import Sums, part_of
from fedpact.solvers.constrained.anderson import mix_next
from fedpact.solvers.local.resolvent import Resolved as Found
from fedpact.solvers.local.resolvent import Subproblem, default_solver, resolvent, seems_monotone
from fedpact.solvers.steps import Judged, no_terms
from fedpact.types import Vector


@dataclass(frozen=True, kw_only=True)
class Round(Resolve):
    """I.1 of Algorithm I, from the p of the round before.

    step:     lambda alpha of the round before
    target:   gap below which the owner may stop sooner
    sampled:  only some owners are asked: they say by how much their part of the sums changes
    mix:      coefficients of the last differences in the next s_i; empty: a plain step
    remember: differences that count in this round, its own included; 0: none
    s:        the owner's s_i where the caller states it, in the first round; empty: as above
    """

    step: float
    gamma: float
    target: float
    sampled: bool
    mix: Vector
    remember: int
    s: Vector


@dataclass(frozen=True, kw_only=True)
class Refine(Order):
    """I.4: go on with the same subproblem; the sums are around q."""

    q: Vector
    gamma: float
    holders: int
    solver: str
    steps: int
    target: float
    sampled: bool


@dataclass(frozen=True, kw_only=True)
class Count(Order):
    """Send the whole part of the sums around q, and judge q."""

    q: Vector
    gamma: float


@dataclass(frozen=True, kw_only=True)
class Resolved(Judged):
    """The fields of `Sums`, and what gamma is chosen from. Judged at q, when asked."""

    shift: Summed[Vector]
    image: Summed[Vector]
    s: Summed[Vector]  # empty where the server knows it: everyone moved as it said
    products: Summed[Vector]
    tracked: Summed[Vector]  # products of differences, for the acceleration
    moved: Summed[float]  # |change of x|^2
    turned: Summed[float]  # |change of F|^2
    size: Summed[float]  # |F|^2
    gradients: int
    hessians: int
    monotone: bool  # was F seen to be, along the last move?

    @property
    def sums(self) -> Sums:
        return Sums(self.shift, self.image, self.s, self.products)


@dataclass(frozen=True)
class Moving(State):
    """An owner's state, with what it remembers for the acceleration."""

    track: Track


def track_of(state: State) -> Track:
    return state.track if isinstance(state, Moving) else Track()


@client_step
def advance(share: Share, state: State, order: Round) -> tuple[State, Resolved]:
    """I.1: move s_i as the server found, and solve for the next x_i."""
    p = order.p
    function = objective_of(share)
    before = state.place_s(order.gamma)
    terms = no_terms()
    at_p = None
    if order.judge:
        value, gradient = function.value_and_gradient(p)
        terms = terms_of((value, gradient))
        at_p = order.holders * gradient

    track = track_of(before).complete(before, p)
    s = mix_next(track, order.mix, order.step)  # I.1, or the same accelerated
    s = p + order.gamma / before.gamma * (s - p)  # a new gamma keeps (s_i - p) / gamma, which tends to F_i
    if order.s.size:
        s = order.s
    found = solve_resolvent(function, before, s, order.gamma, order, at_p, order.target)  # (3.3)
    after = Moving(s, found.x, found.image, order.gamma, found.lipschitz, track.keep(order.remember))

    part = part_of(after, p)
    part = part.minus(part_of(before, p)) if order.sampled else part.without_s()
    reply = _reply(before, after, found, part, p)
    return after, replace(reply, **terms, gradients=found.gradients + order.judge)


@client_step
def refine(share: Share, state: State, order: Refine) -> tuple[State, Resolved]:
    """I.4: go on with the same subproblem."""
    function = objective_of(share)
    before = state.place_s(order.gamma)
    problem = Subproblem(function, order.holders, before.s, before.gamma, before.lipschitz)
    solver = order.solver or default_solver(function, before.x.size)
    found = resolvent(problem, before.x, before.image, solver, order.steps, order.target)
    after = replace(before, x=found.x, image=found.image, lipschitz=found.lipschitz)
    part = part_of(after, order.q)
    if not order.sampled:
        part = part.without_s()
    return after, _reply(before, after, found, part, order.q)


@client_step
def count(share: Share, state: State, order: Count) -> tuple[State, Resolved]:
    """All that this owner adds to the sums around q, and its terms of the certificate there."""
    function = objective_of(share)
    now = state.place_s(order.gamma)
    nothing = Found(now.x, now.image, 0.0, gradients=0, hessians=0, lipschitz=now.lipschitz)
    reply = _reply(now, now, nothing, part_of(now, order.q), order.q)
    return now, replace(reply, **terms_of(function.value_and_gradient(order.q)))


def _reply(before: State, after: State, found: Found, part: Sums, q: Vector) -> Resolved:
    moved = after.x - before.x
    turned = after.image - before.image
    return Resolved(
        **no_terms(),
        **vars(part),
        tracked=track_of(after).products(after, q),
        moved=float(moved @ moved),
        turned=float(turned @ turned),
        size=float(after.image @ after.image),
        gradients=found.gradients,
        hessians=found.hessians,
        monotone=found.monotone and seems_monotone(before.x, before.image, after.x, after.image, after.lipschitz),
    )
