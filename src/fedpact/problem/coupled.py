"""Coupled constraints sum_i c~_i(w) <=_K 0 without coupling: He24 (3)-(4), there for <= 0.

Owner i gets a slack s_i of its own: `c~_i(w) - s_i <=_K 0` at the owner, `sum_i s_i <=_K 0` at the server, which holds
no data. At a solution the gradient in s_i vanishes, so every owner's multiplier of its slack row equals the server's:
that one is the price of the coupled constraint.

`add_slack` is the owner's half, which an owner does to its own share: the server needs nothing but the sum of the
slacks, and a method tells owners how far to move theirs (`Coupling`). `decouple` rewrites a whole problem in one
process, with (w, s_1, ..., s_n) as its variables.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import overload

import numpy as np

from fedpact.cones import Cone
from fedpact.errors import DataError
from fedpact.functions import Affine, Function, Map, Quadratic, extend
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Constraint, Share, combine
from fedpact.prox import Blocks, Prox, Zero
from fedpact.types import Vector


@dataclass(frozen=True, eq=False)
class SlackShare(Share):
    """A share over (w, s_i) or (w, s_1, ..., s_n), private variables behind them, that remembers the user's."""

    original: Share = field(default_factory=Share)
    original_dim: int = 0
    own_slack: int = 0

    @property
    def slack(self) -> int:
        return self.own_slack

    @property
    def first_private(self) -> Vector:
        return self.original.first_private

    def own(self, w: Vector, multiplier: Vector) -> tuple[Share, Vector, Vector]:
        private = w[w.size - self.private :]
        own_w = np.concatenate([w[: self.original_dim], private])
        return self.original, own_w, multiplier[: self.original.multiplier_length]


class SlackProblem(FederatedProblem):
    """The problem over (w, s_1, ..., s_n); `own` gives the user's back."""

    def __init__(
        self, shares: list[Share], server: Share, original: FederatedProblem, original_dim: int, scale: float
    ) -> None:
        total = next(part.dim for part in server.parts.values())
        super().__init__(shares, server, OnFirst(original.regularizer, original_dim, total or 0))
        self.original = original
        self.original_dim = original_dim
        self.scale = scale
        self.convex = original.convex

    def own(self, w: Vector, server_multiplier: Vector) -> tuple[FederatedProblem, Vector, Vector, Vector]:
        split = self.original.server.multiplier_length
        coupled = self.scale * server_multiplier[split:]  # the price of the map itself, not of its scaled rows
        return self.original, w[: self.original_dim], server_multiplier[:split], coupled


class OnFirst(Blocks):
    """h of the first `dim` of `total` coordinates; the slacks are free."""

    def __init__(self, inner: Prox, dim: int, total: int) -> None:
        super().__init__(inner, Zero(), dim)
        self.indicator = inner.indicator
        if inner.curvature is not None:
            self.curvature = np.concatenate([np.broadcast_to(inner.curvature, dim), np.zeros(total - dim)])


def coupled_scale(problem: FederatedProblem, w: Vector) -> float:
    """The factor that brings the steepest row of the coupled maps at w to slope 1, the slope of the slacks.

    Without it the augmented Lagrangian methods need many more rounds when the maps are flat. Raises DataError, naming
    the owner, when a map is not finite at w.
    """
    steepest = 0.0
    for share in problem.shares:
        if share.coupled is None:
            continue
        value, jacobian = share.coupled.value_and_jacobian(np.concatenate([w, share.first_private]))
        if not (np.all(np.isfinite(value)) and np.all(np.isfinite(jacobian))):
            raise DataError(
                f"{share.label}: its coupled map is not finite at the start; check its data, or change w0",
                code="FP-DATA-101",
            )
        steepest = max(steepest, float(np.max(np.linalg.norm(jacobian, axis=1))))
    if steepest == 0:
        return 1.0
    return 1 / steepest


def decouple(problem: FederatedProblem, dim: int, scale: float = 1.0) -> FederatedProblem:
    """The equivalent problem without coupled constraints (the problem itself if it has none).

    dim: the length of the user's w; scale: multiplies the coupled maps, so that slacks and maps have one slope.
    """
    length = problem.coupled_length
    if not length:
        return problem
    parts = sum(share.coupled is not None for share in problem.shares)
    total = dim + parts * length
    shares: list[Share] = []
    start = dim  # of the slack of the next owner that has one
    for share in problem.shares:
        if share.coupled is None:
            shares.append(_lift(share, dim, total))
            continue
        minus_slack = np.zeros((length, total + share.private))
        minus_slack[:, start : start + length] = -np.eye(length)
        start += length
        rows = scale * _widen(share, share.coupled, dim, total) + Affine(minus_slack)
        shares.append(_lift(share, dim, total, _constrain(rows, share.coupled_cone)))
    sum_of_slacks = Affine(np.hstack([np.zeros((length, dim)), *[np.eye(length)] * parts]))
    server = _lift(problem.server, dim, total, _constrain(sum_of_slacks, problem.coupled_cone))
    return SlackProblem(shares, server, problem, dim, scale)


def expose(problem: FederatedProblem, dim: int) -> FederatedProblem:
    """The constraints of the problem in one process, with all private variables behind w: owner after owner's.

    For proofs that they exclude each other. dim: the length of the user's w
    """
    total = dim + sum(share.private for share in problem.shares)
    nothing = Quadratic(np.zeros((total, total)))  # a share has to hold something
    start = dim
    shares = []
    for share in problem.shares:
        coordinates = np.concatenate([np.arange(dim), np.arange(start, start + share.private)])
        start += share.private
        constraint = None
        if share.constraint is not None:
            function = extend(share.constraint.function, total, inner_dim=coordinates.size)
            function.part = coordinates
            constraint = Constraint(function, share.constraint.cone)
        shares.append(Share(nothing, constraint, name=share.name))
    server = None
    if problem.server.constraint is not None:
        rows = extend(problem.server.constraint.function, total, inner_dim=dim)
        server = Share(None, Constraint(rows, problem.server.constraint.cone), name=problem.server.name)
    return FederatedProblem(shares, server, OnFirst(problem.regularizer, dim, total))


def add_slack(share: Share, dim: int, scale: float) -> Share:
    """The share over (w, s, v) with scale c~(w, v) - s <=_K 0 for its part of the coupled constraint.

    dim: the length of w. A share without a part has no slack, and stays as it is.
    """
    if share.coupled is None or share.coupled_cone is None:
        return share
    length = share.coupled_cone.dim
    minus_slack = np.zeros((length, dim + length + share.private))
    minus_slack[:, dim : dim + length] = -np.eye(length)
    rows = scale * _widen(share, share.coupled, dim, dim + length) + Affine(minus_slack)
    return _lift(share, dim, dim + length, _constrain(rows, share.coupled_cone), slack=length)


def insert_slack(share: Share, point: Vector, scale: float) -> Vector:
    """(w, s, v) from (w, v), where `add_slack` is met with equality: s = scale c~(w, v)."""
    if share.coupled is None:
        return point
    w, private = np.split(point, [point.size - share.private])
    return np.concatenate([w, scale * share.coupled.value(point), private])


def _constrain(rows: Map, cone: Cone | None) -> Constraint:
    assert cone is not None  # there is a coupled map, and its length is known
    return Constraint(rows, cone)


def _lift(share: Share, dim: int, total: int, rows: Constraint | None = None, slack: int = 0) -> Share:
    """The share over vectors of length total, of which w holds the first dim, with the constraint `rows` added.

    Private variables come behind the slacks.
    """
    objective = None
    constraints: list[Constraint] = []
    if share.objective is not None:
        objective = _widen(share, share.objective, dim, total)
    if share.constraint is not None:
        function = _widen(share, share.constraint.function, dim, total)
        constraints.append(Constraint(function, share.constraint.cone))
    if rows is not None:
        constraints.append(rows)
    return SlackShare(
        objective,
        combine(constraints),
        name=share.name,
        private=share.private,
        original=share,
        original_dim=dim,
        own_slack=slack,
    )


@overload
def _widen(share: Share, part: Function, dim: int, total: int) -> Function: ...
@overload
def _widen(share: Share, part: Map, dim: int, total: int) -> Map: ...
def _widen(share: Share, part: Function | Map, dim: int, total: int) -> Function | Map:
    """A function of (w, v) as one of (w, s_1, ..., s_n, v)."""
    return extend(part, total + share.private, inner_dim=dim + share.private, last=share.private)
