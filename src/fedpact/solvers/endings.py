"""Ends that are not a solution: constraints that conflict, and objectives that fall forever.

Both are decided by evidence, not by patience: a weighted sum of constraints that stays positive, and a far point that
is feasible and better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedpact.federation import Answers, Reply, Summed, client_step
from fedpact.functions import Vector
from fedpact.problem import Certificate, Share, owner_terms
from fedpact.prox import Prox
from fedpact.solvers.judging import At
from fedpact.solvers.run import Run
from fedpact.solvers.solution import Status

#: How much farther than w itself the evidence must reach.
REACH, FAR, HUGE = 100.0, 1e6, 1e300
#: A far point's objective is cut off here in a secure sum, which holds numbers of limited size; downwards sooner, so
#: that one holder for whom the far point is much worse outweighs the others.
MOST, LEAST = 1e20, -1e19
GROWTH = 5.0
UNBOUNDED = (
    "the objective keeps falling without end and stays feasible: it has no minimiser (separable data without a "
    "regularizer does this); add one, for example regularizer=fp.prox.SquaredL2(1e-3), or bound w with fp.prox.Box"
)
INFEASIBLE = (
    "the constraints of {} exclude each other: the best point found misses them by {:.3g}, and (for convex constraints "
    "this is a proof) no point within a hundred times its size meets them all; loosen at least one bound"
)


@dataclass(frozen=True, kw_only=True)
class Weighed(Reply):
    value: Summed[float]  # <v_i, c_i(w)>, v_i the drift of the multiplier
    gradient: Summed[Vector]  # J_i(w)' v_i
    size: float  # |v_i|, max-norm


@dataclass(frozen=True, kw_only=True)
class Probed(Reply):
    objective: Summed[float]
    violation: float


def weighed(share: Share, w: Vector, weights: Vector) -> Weighed:
    """The constraint of one share, weighted."""
    if share.constraint is None:
        return Weighed(value=0.0, gradient=np.zeros_like(w), size=0.0)
    value, jacobian = share.constraint.function.value_and_jacobian(w)
    size = float(np.max(np.abs(weights), initial=0.0))
    return Weighed(value=float(weights @ value), gradient=jacobian.T @ weights, size=size)


def probed(share: Share, w: Vector, secure: bool = False) -> Probed:
    """Objective and violation of one share at a far point, where overflow counts as huge."""
    with np.errstate(all="ignore"):
        coupled = np.zeros(0 if share.coupled is None else share.coupled.length or 0)
        terms = owner_terms(share, w, np.zeros(share.multiplier_length), coupled)
    values = np.nan_to_num([terms.objective, terms.violation], nan=HUGE, posinf=HUGE, neginf=-HUGE)
    objective = np.clip(values[0], LEAST, MOST) if secure else values[0]
    return Probed(objective=float(objective), violation=float(values[1]))


@dataclass(frozen=True)
class Pull:
    """The weighted constraints of all holders together; `sizes` in the order server, then owners."""

    value: float
    gradient: Vector
    sizes: tuple[float, ...]


def pull(own: Sequence[Weighed], owners: Answers[Weighed] | None = None) -> Pull:
    """The parts of holders in this process, and of the owners, added up."""
    parts = [*own, owners.total] if owners is not None else own
    sizes = (*(p.size for p in own), *(p.size for p in owners or ()))
    return Pull(sum(p.value for p in parts), np.sum([p.gradient for p in parts], axis=0), sizes)


def conflict(regularizer: Prox, w: Vector, names: Sequence[str], found: Pull) -> tuple[str, ...]:
    """The holders whose constraints exclude each other; empty when nothing is proved.

    For weights v in K* and convex constraints, <v, c(u)> >= <v, c(w)> + <g, u - w> with g = J'v, while a feasible u has
    <v, c(u)> <= 0. So where the value is positive and g (nearly) vanishes, no feasible point lies within
    reach = value / |g| of w; it must exceed REACH times the scale of w. The weights are the drift of the multipliers:
    a proximal point method without a solution moves on and on along the vector that separates.
    """
    value, gradient = found.value, found.gradient
    # On a set, only the part of g that is not normal to it counts: for s in the normal cone, <s, u - w> <= 0.
    push = regularizer.subdifferential_distance(-gradient, w) if regularizer.indicator else np.max(np.abs(gradient))
    if value <= 0 or value < push * REACH * (1 + float(np.sum(np.abs(w)))):
        return ()
    return tuple(n for n, size in zip(names, found.sizes, strict=True) if size >= 0.01 * max(found.sizes))


@dataclass(frozen=True)
class Verdict:
    """How a solve ends, why, and who conflicts."""

    status: Status
    reason: str
    conflict: tuple[str, ...] = ()


SOLVED = Verdict("solved", "the certificate meets the tolerances")


@dataclass
class Lowest:
    """The lowest value seen, and since when; one that is not below `factor` times it is no progress."""

    factor: float
    value: float = np.inf
    at: int = 0

    def see(self, k: int, value: float) -> None:
        if value < self.factor * self.value:
            self.value, self.at = value, k

    def idle(self, k: int) -> int:
        """Iterations without progress."""
        return k - self.at


class Evidence(Protocol):
    """Where the evidence comes from: the owners, or the shares of a pooled problem."""

    def weighed(self, w: Vector, server_drift: Vector) -> Pull: ...

    def probed(self, w: Vector) -> Probed: ...


@client_step
def weigh(share: Share, state: Any, order: At) -> tuple[Any, Weighed]:
    return state, weighed(share, order.w, state.drift)


@client_step
def probe(share: Share, state: Any, order: At) -> tuple[Any, Probed]:
    return state, probed(share, order.w, order.secure)


@dataclass(frozen=True)
class Asking:
    """The evidence for an ending, asked from the owners: one exchange each."""

    run: Run

    def weighed(self, w: Vector, server_drift: Vector) -> Pull:
        return pull([weighed(self.run.problem.server, w, server_drift)], self.run.fleet.ask(weigh, At(w=w)))

    def probed(self, w: Vector) -> Probed:
        answers = self.run.fleet.ask(probe, At(w=w))
        return together(probed(self.run.problem.server, w), answers.total.objective, [r.violation for r in answers])


def together(server: Probed, objective: float, violations: Sequence[float]) -> Probed:
    """The far point as all holders see it: the server, and the owners' objective in sum and their violations."""
    return Probed(objective=server.objective + objective, violation=max(server.violation, *violations))


class Watch:
    """Follows the outer iterations of an augmented Lagrangian method and says when and how it ends."""

    def __init__(self, run: Run, evidence: Evidence) -> None:
        self._run, self._evidence = run, evidence
        self._names = (run.problem.server.label, *run.problem.names)
        self._changes: list[float] = []
        self._stationarities: list[float] = []
        self._grown = 1.0

    def growth(self) -> float:
        """Factor for the penalty: GROWTH while a part of the certificate is missed and falls by less than 4 a step."""
        slow = any(
            len(parts) > 1 and parts[-1] > max(tol, 0.25 * parts[-2])
            for parts, tol in ((self._changes, self._run.tol[1]), (self._stationarities, self._run.tol[0]))
        )
        factor = GROWTH if slow and self._grown < 1e4 else 1.0
        self._grown *= factor
        return factor

    def verdict(
        self,
        finished: bool,
        failure: str,
        change: float,
        certificate: Certificate,
        objective: float,
        w: Vector,
        server_drift: Vector,
    ) -> Verdict | None:
        """The end, or None to go on. Evidence is asked for only when the iterations look like its case."""
        tol = self._run.tol
        self._changes.append(change)
        self._stationarities.append(certificate.stationarity)
        if finished or _slow(self._stationarities, tol[0], 5):
            there = self._evidence.probed(far_point(w, self._run.w0))
            if escapes(self._run, w, objective, certificate, there):
                return Verdict("unbounded", UNBOUNDED)
        if finished:
            return SOLVED
        if _slow(self._changes, tol[1], 3):
            found = self._evidence.weighed(w, server_drift)
            if names := conflict(self._run.problem.regularizer, w, self._names, found):
                return Verdict("infeasible", INFEASIBLE.format(", ".join(names), certificate.violation), names)
        if failure:
            return Verdict(
                "stalled", f"{failure}; scale the columns, and check that gradients belong to their functions"
            )
        if len(self._changes) > 60 and min(self._misses(-40)) > 0.9 * min(self._misses(0, -40)):
            return Verdict(
                "stalled", "no progress over the last 40 outer iterations; is the problem convex and scaled?"
            )
        return None

    def _misses(self, start: int, stop: int | None = None) -> list[float]:
        pairs = zip(self._changes[start:stop], self._stationarities[start:stop], strict=True)
        return [max(c / self._run.tol[1], s / self._run.tol[0]) for c, s in pairs]


def _slow(values: list[float], tol: float, window: int) -> bool:
    return len(values) > window and values[-1] > tol and values[-1] > 0.5 * values[-1 - window]


def far_point(w: Vector, start: Vector) -> Vector:
    """Where the objective is probed for falling forever."""
    return w + FAR * (w - start)


def escapes(run: Run, w: Vector, objective: float, certificate: Certificate, there: Probed) -> bool:
    """Does what is found at the far point show that the objective falls forever beyond w?"""
    allowed = max(certificate.violation, run.tol[1])
    return falls_forever(run.problem.regularizer, far_point(w, run.w0), there, objective, allowed)


def falls_forever(regularizer: Prox, far: Vector, there: Probed, objective: float, violation: float) -> bool:
    """Is the far point no less feasible (violation) and better by a tenth (objective) than where we stopped?

    Then the certificate there says little: a minimiser, if there is one, lies a million times farther out.
    """
    cost = regularizer.value(far)
    if not np.isfinite(cost) or there.violation > violation:
        return False
    return there.objective + cost < objective - 0.1 * abs(objective)


def out_of_rounds(run: Run) -> Verdict:
    return Verdict("max_rounds", f"the limit of {run.max_rounds} exchanges came before the tolerances")


def interrupted(run: Run) -> Verdict:
    """The user stopped the run: what follows only looks at the owners, so that it can be resumed."""
    spent = run.fleet.ledger.rounds
    run.fleet.look()
    return Verdict("max_rounds", f"interrupted after {spent} exchanges; the best point so far is given")
