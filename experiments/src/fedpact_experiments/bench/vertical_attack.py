"""What the coordinator of a vertical run can compute from what it saw: the inner products between people's rows.

Every method tells it products B = K R of K = X X' with vectors R that it knows; K = B (R' B)^+ B' as soon as R has seen
all of K's range (Nystroem). Only the sums that came back are used and, where parties answer one by one, their replies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fedpact as fp
from fedpact.federation import Answers, Order, Ticket
from fedpact.solvers.vertical.vertical_al import survivors
from fedpact.types import Matrix, Vector

#: Parts of the largest eigenvalue below which an attacker takes one for noise; the best of them counts.
CUTS = np.logspace(-15, -1, 29)
#: Random vectors with which errors are measured.
PROBES = 20


@dataclass
class Seen:
    """What came back in one exchange: the order, and the sums over the parties, or one party's reply."""

    order: Any
    reply: Any
    owner: str = ""


class Watched(fp.Session):
    """A session that remembers what its coordinator sees."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.seen: list[Seen] = []

    def ask(self, step: Any, order: Order | Sequence[Order], owners: Sequence[str] | None = None) -> Answers[Any]:
        answers = super().ask(step, order, owners)
        if isinstance(order, Order):
            self.seen.append(Seen(order, answers.total))
        return answers

    def wait_any(self, tickets: Sequence[Ticket], timeout: float | None = None) -> list[Ticket]:
        answered = super().wait_any(tickets, timeout)
        for ticket in answered:
            self.seen.append(Seen(ticket.order, ticket.reply(), ticket.owner))
        return answered


@dataclass
class Pairs:
    """Products of K: what it was multiplied with, and what came out."""

    inputs: list[Vector] = field(default_factory=list)
    products: list[Vector] = field(default_factory=list)

    def error(self, X: Matrix) -> float:
        """Of K, relative, in the Frobenius norm; 1 where nothing was seen."""
        if not self.inputs:
            return 1.0
        R = np.array(self.inputs).T
        B = np.array(self.products).T
        core = R.T @ B
        return nystroem_error(B, 0.5 * (core + core.T), X)


def nystroem_error(B: Matrix, core: Matrix, X: Matrix) -> float:
    """|B core^+ B' - X X'| / |X X'|, with the best cut-off, without forming a matrix of people.

    The squared norm of a matrix is the mean of |A v|^2 over random v, which has no cancellation in it.
    """
    probes = np.random.default_rng(0).standard_normal((len(X), PROBES))
    true = X @ (X.T @ probes)
    within = B.T @ probes
    values, vectors = np.linalg.eigh(core)
    errors = [1.0]
    for cut in CUTS:
        kept = np.abs(values) > cut * np.abs(values).max()
        weights = vectors[:, kept] @ ((vectors[:, kept].T @ within) / values[kept][:, None])
        errors.append(float(np.linalg.norm(B @ weights - true) / np.linalg.norm(true)))
    return min(errors)


def attack(method: str, problem: fp.VerticalProblem, seen: Sequence[Seen]) -> float:
    """The relative error of X X' over all parties' columns, or over those of the party that is known worst."""
    X = np.hstack([party.X for party in problem.shares])
    weight = float(problem.shares[0].curvature[0])
    if method == "vertical-exact":
        sketches = [one.reply for one in seen if hasattr(one.reply, "products")]
        B = np.vstack([reply.products for reply in sketches])
        return nystroem_error(np.sqrt(weight) * B, sketches[-1].gram, X)  # K of the method is X X' / weight
    if method == "vertical-al":
        return _from_gradients(seen, weight).error(X)
    singles = sorted({one.owner for one in seen if one.owner})
    if not singles:
        return _from_steps(problem, [one for one in seen if hasattr(one.order, "eta")], weight).error(X)
    of = {party.name: party.X for party in problem.shares}
    return max(_from_steps(problem, [s for s in seen if s.owner == name], weight).error(of[name]) for name in singles)


def _from_gradients(seen: Sequence[Seen], weight: float) -> Pairs:
    """vertical-al: scores of gradients X (X' r + weight theta), and theta is a combination of earlier gradients."""
    found = Pairs()
    asked = [one for one in seen if hasattr(one.order, "combination")]
    z = np.zeros(asked[0].reply.scores.size)
    vectors = np.zeros((0, z.size))
    for one in asked:
        z = z + one.order.combination @ vectors
        gradient = one.reply.scores
        vectors = np.vstack([survivors(one.order.combination) @ vectors, gradient])
        found.inputs.append(one.order.slopes)
        found.products.append(gradient - weight * z)
    return found


def _from_steps(problem: fp.VerticalProblem, seen: Sequence[Seen], weight: float) -> Pairs:
    """fair-vfl and fedbcd with a fixed eta and one update: u' - u = -(X X' r + weight u) / eta."""
    found = Pairs()
    before = np.zeros(problem.scored.y.size)
    for one in seen:
        order = one.order
        if order.move:
            found.inputs.append(problem.slopes(order.scores, order.net))
            found.products.append(-order.eta * (one.reply.scores - before) - weight * before)
        before = one.reply.scores
    return found
