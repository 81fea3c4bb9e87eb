"""The party's half of Fair VFL (Liu et al., Algorithm 1): up to Q steps with the scores of the others as they were.

theta_k <- theta_k - (1 / eta) grad_k f(theta, lambda)                          (8), (11): h_k is quadratic
theta_k <- prox_{h_k / eta}(theta_k - (1 / eta) grad_k (f - h_k))               h_k is any other
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpact.errors import ProblemError
from fedpact.federation import Largest, Order, Reply, Summed, client_step
from fedpact.problem import Party, Scored, score_losses
from fedpact.solvers.vertical.shared import Placed, theta_at
from fedpact.types import Vector

#: Seconds, for time budgets; tests have their own.
clock = time.monotonic


@dataclass(frozen=True)
class Work:
    """How much a party does between two messages: at least one update and at most so many (Q of Assumption 1).

    seconds: after which it begins none any more; 0: as long as it takes
    """

    updates: int = 1
    seconds: float = 0.0


@dataclass(frozen=True)
class Place(Placed):
    """What a party keeps.

    scored: the labels and groups that all parties share
    size:   largest eigenvalue of X_k' X_k
    work:   how much it does at an order
    """

    scored: Scored
    size: float
    work: Work


@dataclass(frozen=True, kw_only=True)
class Begin(Order):
    """What all parties share by assumption: labels, and who is in which group; and who does how much.

    work: JSON, by name of the party: the fields of `Work`
    """

    loss: str
    y: Vector
    rows: Vector
    work: str


@dataclass(frozen=True, kw_only=True)
class Begun(Reply):
    """How large a party's columns are; what eta is made of."""

    size: Summed[float]  # largest eigenvalue of X_k' X_k
    curvature: Summed[float]  # largest of h_k


@dataclass(frozen=True, kw_only=True)
class Update(Order):
    """scores: of all parties together; net: lambda_1 - lambda_2; eta: 0 means scale * holders * own curvature

    number: of this order; base: of the order whose outcome it goes on from, the party's last or the one before
    move:   whether to update; else it is only a look
    """

    number: int
    base: int

    scores: Vector
    net: Vector
    move: bool
    eta: float
    scale: float
    holders: int
    noise: float


@dataclass(frozen=True, kw_only=True)
class Updated(Reply):
    """Where a party is after its updates."""

    scores: Summed[Vector]  # X_k theta_k, after the updates
    penalty: Summed[float]  # h_k(theta_k), after the updates
    predicted: Summed[float]  # by how much f falls at least, if its curvature is eta
    stationarity: Largest[float]  # distance of -grad_k (f - h_k) from the subdifferential of h_k, before the updates


@client_step
def begin(share: Party, state: Any, order: Begin) -> tuple[Place, Begun]:
    """The party's start, theta = 0, and the size of its columns."""
    zero = np.zeros(share.size)
    if not share.h.contains(zero):
        raise ProblemError(
            f"{share.label}: its regularizer {share.h!r} excludes zero, where this method starts; move its domain",
            code="FP-PROBLEM-253",
        )
    size = 0.0
    if share.X.size:
        size = float(np.linalg.norm(share.X, 2) ** 2)
    work = Work(**json.loads(order.work).get(share.name, {}))
    place = Place(0, zero, zero, score_losses(order.loss, order.y, order.rows, share.outputs), size, work)
    return place, Begun(size=size, curvature=_curvature(share))


@client_step
def update(share: Party, state: Place, order: Update) -> tuple[Place, Updated]:
    """Lines 4 to 7 of Algorithm 1, at least once and at most Q times with the same scores of the others."""
    scored = state.scored
    eta = order.eta or default_eta(share, state, order)
    start = theta_at(state, order.base, share.size)
    slope = share.pull(scored.pull(order.scores, order.net))
    stationarity = share.h.subdifferential_distance(-slope, start)
    theta = start
    predicted = 0.0
    after = state
    if order.move:
        z = order.scores
        until = clock() + (state.work.seconds or np.inf)
        for k in range(state.work.updates):
            if k > 0:
                if clock() >= until:
                    break
                slope = share.pull(scored.pull(z, order.net))
            moved = descend(share, theta, slope, eta)
            step = moved - theta
            theta = moved
            z = z + share.score(step)
            predicted += 0.5 * eta * float(step @ step)
        after = replace(state, number=order.number, before=start, theta=theta)
    scores = share.score(theta)
    if order.noise:  # from the system's entropy: whoever knows a seed can take it off again
        scores = scores + order.noise * np.random.default_rng().standard_normal(scores.size)
    return after, Updated(
        scores=scores,
        penalty=share.h.value(theta),
        predicted=predicted,
        stationarity=stationarity,
    )


def descend(share: Party, theta: Vector, slope: Vector, eta: float) -> Vector:
    """One step of length 1 / eta, given the gradient of f - h_k."""
    if share.quadratic:
        return np.asarray(theta - (slope + share.curvature * theta) / eta)  # (8), and (11) for later ones
    # differs from (8): h_k need not have a gradient, and its proximal step falls by as much, eta / 2 |step|^2
    return share.h.prox(theta - slope / eta, 1.0 / eta)


def default_eta(share: Party, state: Place, order: Update) -> float:
    """scale * K * (curvature of the party's part of f)."""
    weights = state.scored.weights(order.net)
    steepest = state.scored.smoothness(order.scores) * float(np.max(np.abs(weights)))
    own = steepest * state.size + _curvature(share)
    return order.scale * order.holders * max(own, 1e-300)


def _curvature(share: Party) -> float:
    """The largest of h_k; 0 where it is not followed by its gradient."""
    if not share.quadratic:
        return 0.0
    return float(np.max(share.curvature, initial=0.0))
