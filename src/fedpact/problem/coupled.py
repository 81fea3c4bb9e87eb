"""Coupled constraints sum_i c~_i(w) <= 0 without coupling: He24 (3)-(4).

Owner i gets a slack s_i of its own: `c~_i(w) - s_i <= 0` at the owner, `sum_i s_i <= 0` at the server, which holds no
data. The variables become (w, s_1, ..., s_n). At a solution the gradient in s_i vanishes, so every owner's multiplier
of its slack row equals the server's: that one is the price of the coupled constraint.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedpact.cones import Nonnegative
from fedpact.functions import Affine, extend
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Constraint, Share, all_of
from fedpact.prox import Prox

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SlackShare(Share):
    """A share over (w, s_1, ..., s_n) that remembers the user's."""

    original: Share = field(default_factory=Share)
    original_dim: int = 0

    def own(self, w: Vector, multiplier: Vector) -> tuple[Share, Vector, Vector]:
        return self.original, w[: self.original_dim], multiplier[: self.original.multiplier_length]


class SlackProblem(FederatedProblem):
    """The problem over (w, s_1, ..., s_n); `own` gives the user's back."""

    def __init__(self, shares: list[Share], server: Share, original: FederatedProblem, original_dim: int) -> None:
        total = next(part.dim for part in server.parts.values())
        super().__init__(shares, server, OnFirst(original.regularizer, original_dim, total or 0))
        self.original, self.original_dim = original, original_dim

    def own(self, w: Vector, server_multiplier: Vector) -> tuple[FederatedProblem, Vector, Vector, Vector]:
        split = self.original.server.multiplier_length
        return self.original, w[: self.original_dim], server_multiplier[:split], server_multiplier[split:]


class OnFirst(Prox):
    """h of the first `dim` coordinates; the slacks are free."""

    def __init__(self, inner: Prox, dim: int, total: int) -> None:
        self.inner, self.dim, self.indicator = inner, dim, inner.indicator
        if inner.curvature is not None:
            self.curvature = np.concatenate([np.broadcast_to(inner.curvature, dim), np.zeros(total - dim)])

    def value(self, w: Vector) -> float:
        return self.inner.value(w[: self.dim])

    def prox(self, v: Vector, step: float) -> Vector:
        return np.concatenate([self.inner.prox(v[: self.dim], step), v[self.dim :]])

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        free = float(np.max(np.abs(v[self.dim :]), initial=0.0))
        return max(self.inner.subdifferential_distance(v[: self.dim], w[: self.dim]), free)


def decouple(problem: FederatedProblem, dim: int) -> FederatedProblem:
    """The equivalent problem without coupled constraints (the problem itself if it has none); dim is that of w."""
    length = problem.coupled_length
    if not length:
        return problem
    owners = [share.label for share in problem.shares if share.coupled is not None]
    total = dim + len(owners) * length
    identity = np.eye(length)

    def lifted(share: Share, extra: Constraint | None) -> Share:
        constraints = (
            []
            if share.constraint is None
            else [Constraint(extend(share.constraint.function, total, inner_dim=dim), share.constraint.cone)]
        )
        if extra is not None:
            constraints.append(extra)
        objective = None if share.objective is None else extend(share.objective, total, inner_dim=dim)
        return SlackShare(objective, all_of(constraints), name=share.name, original=share, original_dim=dim)

    shares: list[Share] = []
    for share in problem.shares:
        extra = None
        if share.coupled is not None:
            slack = np.zeros((length, total))
            start = dim + owners.index(share.label) * length
            slack[:, start : start + length] = -identity
            extra = Constraint(extend(share.coupled, total, inner_dim=dim) + Affine(slack), Nonnegative(length))
        shares.append(lifted(share, extra))
    sum_of_slacks = Affine(np.hstack([np.zeros((length, dim)), *[identity] * len(owners)]))
    server = lifted(problem.server, Constraint(sum_of_slacks, Nonnegative(length)))
    return SlackProblem(shares, server, problem, dim)
