"""The party's half of `vertical-exact`: its part of the sketch, and its moves. vertical_exact.py has the method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpact.errors import OwnerError
from fedpact.federation import Largest, Order, Reply, Summed, client_step
from fedpact.problem import Party
from fedpact.solvers.vertical.shared import Placed, judge_piece, theta_at
from fedpact.types import Matrix, Vector

#: Numbers in a block of Y: 60 MB where they are masked.
BLOCK = 2_500_000


@dataclass(frozen=True)
class Shaded(Placed):
    """What a party keeps: where it is, and its columns as seen through Omega."""

    shadow: Matrix


@dataclass(frozen=True, kw_only=True)
class Sketch(Order):
    """length, free_length: columns of Omega for columns that are shrunk, and for the others; first, last: rows of Y

    noise: that every party adds to every number of Y, relative to their root mean square
    """

    seed: int
    length: int
    free_length: int = 0
    first: int = 0
    last: int = 0
    noise: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Sketched(Reply):
    """A party's part of the sketch."""

    products: Summed[Matrix]  # rows of Y
    gram: Summed[Matrix]  # G
    free: Summed[float]  # how many columns are not shrunk


@dataclass(frozen=True, kw_only=True)
class Move(Order):
    """Judge the point after the order `base` by the slopes there, and go to that of these weights; empty: stay."""

    number: int
    base: int
    slopes: Vector
    mix: Matrix
    weights: Vector


@dataclass(frozen=True, kw_only=True)
class Moved(Reply):
    """Where a party is after its move, and how good the point before it was."""

    scores: Summed[Vector]  # X_k theta_k, after the move
    penalty: Summed[float]  # h_k(theta_k), after the move
    gram: Summed[Matrix]  # V_k' V_k
    pull: Summed[Vector]  # V_k' D_k^-1/2 X_k' slopes: the gradient of the losses by the weights, before the move
    stationarity: Largest[float]  # before the move


def omega(seed: int, rows: int, length: int) -> Matrix:
    """Uniform in [-1, 1), from raw bits: the same in every process and version of NumPy.

    With as many columns as rows it is the identity: a random one would only cost digits.
    """
    if length == rows:
        return np.eye(rows)
    raw = np.random.PCG64(seed).random_raw(rows * length)
    return ((raw >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0).reshape(rows, length)


def roots_of(share: Party) -> Vector:
    """The roots of the curvatures by which columns are divided; 1 for columns that are not shrunk."""
    curvature = share.curvature[: share.width]  # the same for every score of a person
    return np.sqrt(np.where(curvature > 0, curvature, 1.0))


def basis_of(share: Party, state: Shaded, mix: Matrix) -> Matrix:
    """B_k = D_k^-1/2 V_k, (d_k, r): the party's coefficients are B_k times the weights of the features."""
    return state.shadow @ mix / roots_of(share)[:, None]


@client_step
def sketch(share: Party, state: Any, order: Sketch) -> tuple[Shaded, Sketched]:
    """Some rows of the party's part of K Omega. OwnerError when more are asked for than a message should hold."""
    asked = (order.length + order.free_length) * (order.last - order.first)
    if asked > BLOCK and order.last - order.first > 1:
        raise OwnerError(f"{asked} numbers are asked for at once, more than {BLOCK}", code="FP-OWNER-340")
    X = share.X / roots_of(share)
    if order.first == 0:
        zero = np.zeros(share.size)
        shrunk = share.curvature[: share.width] > 0
        by_shrunk = X.T @ omega(order.seed, len(X), order.length) * shrunk[:, None]
        by_free = X.T @ omega(order.seed + 1, len(X), order.free_length) * ~shrunk[:, None]
        state = Shaded(0, zero, zero, np.hstack([by_shrunk, by_free]))
    products = X[order.first : order.last] @ state.shadow
    if order.noise:  # from the system's entropy: whoever knows a seed can take it off again
        size = order.noise * np.sqrt(np.mean(products**2))
        products = products + size * np.random.default_rng().standard_normal(products.shape)
    return state, Sketched(
        products=products,
        gram=state.shadow.T @ state.shadow,
        free=float(np.sum(share.curvature[: share.width] == 0)),
    )


@client_step
def move(share: Party, state: Shaded, order: Move) -> tuple[Shaded, Moved]:
    """Judge where the party is, and go where the weights say."""
    here = theta_at(state, order.base, share.size)
    roots = roots_of(share)
    basis = state.shadow @ order.mix
    theta = here
    if order.weights.size:
        theta = np.asarray(order.weights.reshape(share.outputs, -1) @ basis.T / roots).ravel()
    before = judge_piece(share, here, order.slopes)
    return replace(state, number=order.number, before=here, theta=theta), Moved(
        scores=share.score(theta),
        penalty=share.h.value(theta),
        gram=basis.T @ basis,
        pull=np.asarray(share.pull(order.slopes).reshape(share.outputs, -1) / roots @ basis).ravel(),
        stationarity=before.stationarity,
    )
