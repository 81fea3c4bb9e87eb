"""Coupled constraints sum_i c~_i(w) <= 0 without coupling: He24 (3)-(4).

Owner i gets a slack s_i of its own: `c~_i(w) - s_i <= 0` at the owner, `sum_i s_i <= 0` at the server, which holds no
data. The variables become (w, s_1, ..., s_n). At a solution the gradient in s_i vanishes, so every owner's multiplier
of its slack row equals the server's: that one is the price of the coupled constraint.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import overload

import numpy as np

from fedpact.cones import Nonnegative
from fedpact.errors import DataError
from fedpact.functions import Affine, Function, Map, extend
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Constraint, Share, combine
from fedpact.prox import Blocks, Prox, Zero
from fedpact.types import Vector


@dataclass(frozen=True, eq=False)
class SlackShare(Share):
    """A share over (w, s_1, ..., s_n) that remembers the user's."""

    original: Share = field(default_factory=Share)
    original_dim: int = 0

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
        shares.append(_lift(share, dim, total, rows))
    sum_of_slacks = Affine(np.hstack([np.zeros((length, dim)), *[np.eye(length)] * parts]))
    server = _lift(problem.server, dim, total, sum_of_slacks)
    return SlackProblem(shares, server, problem, dim, scale)


def _lift(share: Share, dim: int, total: int, rows: Map | None = None) -> Share:
    """The share over vectors of length total, of which w holds the first dim, with the constraint rows <= 0 added.

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
        constraints.append(Constraint(rows, Nonnegative(rows.length or 0)))
    return SlackShare(
        objective, combine(constraints), name=share.name, private=share.private, original=share, original_dim=dim
    )


@overload
def _widen(share: Share, part: Function, dim: int, total: int) -> Function: ...
@overload
def _widen(share: Share, part: Map, dim: int, total: int) -> Map: ...
def _widen(share: Share, part: Function | Map, dim: int, total: int) -> Function | Map:
    """A function of (w, v) as one of (w, s_1, ..., s_n, v)."""
    return extend(part, total + share.private, inner_dim=dim + share.private, last=share.private)
