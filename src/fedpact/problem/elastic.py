"""The feasibility problem of a problem: by how much must its constraints give way to hold together?

    min_{w, t} t + weight/2 |w - near|^2   s.t.   c_i(w) <=_K t e_i,   t >= -1,

e_i the identity of the cone; an equality gives way to either side. It always has interior points, and its multipliers
are bounded (<e, v> = 1 in sum). At t > 0 they are weights that prove a conflict, up to the proximal term, which keeps w
from running away; at t < 0 its w is an interior point to start from.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedpact.cones import Cone, Nonnegative, Product, Zero
from fedpact.functions import Affine, Map, Quadratic, as_map
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Constraint, Share, combine
from fedpact.prox import Box, Prox, Simplex
from fedpact.prox import Zero as NoRegularizer
from fedpact.prox.rescaled import Times
from fedpact.types import Matrix, Vector

#: Where constraints can be met with room, more room than this is not sought.
DEEPEST = 1.0


class Elastic(Map):
    """choice c(w) - t give, for (w, t): rows of c with a sign, an equality's in both."""

    def __init__(self, inner: Map, dim: int, choice: Matrix, give: Vector) -> None:
        self.inner = inner
        self.choice = choice
        self.give = give
        self.dim = dim + 1
        self.length = len(choice)
        self.has_hessian = inner.has_hessian
        self.affine = inner.affine
        self.convex = inner.convex

    def value_and_jacobian(self, w: Vector) -> tuple[Vector, Matrix]:
        value, jacobian = self.inner.value_and_jacobian(w[:-1])
        return self.choice @ value - w[-1] * self.give, np.column_stack([self.choice @ jacobian, -self.give])

    def weighted_hessian(self, w: Vector, weights: Vector) -> Matrix:
        found = np.zeros((w.size, w.size))
        found[:-1, :-1] = self.inner.weighted_hessian(w[:-1], self.choice.T @ weights)
        return found


def loosen(cone: Cone) -> tuple[Cone, Matrix]:
    """The cone without equalities, and the rows of c (with a sign) that it takes."""
    blocks: list[Cone] = []
    rows: list[Matrix] = []
    identity = np.eye(cone.dim)
    start = 0
    for block in cone.blocks:
        own = identity[start : start + block.dim]
        start += block.dim
        if isinstance(block, Zero):
            blocks.append(Nonnegative(2 * block.dim))
            rows += [own, -own]
        else:
            blocks.append(block)
            rows.append(own)
    if len(blocks) == 1:
        return blocks[0], np.vstack(rows)
    return Product(blocks), np.vstack(rows)


class ElasticProblem(FederatedProblem):
    """The feasibility problem over (w, t)."""

    def __init__(self, problem: FederatedProblem, near: Vector, weight: float) -> None:
        dim = near.size
        parts = sum(share.coupled is not None for share in problem.shares)
        shares = [_loosen_share(share, dim, parts) for share in problem.shares]
        curvature = np.diag(np.append(np.full(dim, weight), 0.0))
        objective = Quadratic(curvature, np.append(-weight * near, 1.0))
        constraints = [Constraint(Affine(np.append(np.zeros(dim), -1.0)[None, :], [-DEEPEST]), Nonnegative(1))]
        constraints += _domain(problem.regularizer, dim)
        own = _loosen_share(problem.server, dim, parts).constraint
        if own is not None:
            constraints.append(own)
        server = Share(objective, combine(constraints), name=problem.server.name)
        super().__init__(shares, server, _bounds(problem.regularizer, dim))
        self.convex = problem.convex
        self.original = problem
        self.own_rows = 0 if own is None else own.cone.dim

    def start_at(self, w: Vector) -> Vector:
        """(w, t) with room in every constraint."""
        worst = 0.0
        coupled = np.zeros(self.original.coupled_length)
        for share in self.original.holders:
            if share.constraint is not None:
                worst = max(worst, share.constraint.cone.violation(share.constraint.function.value(w)))
            if share.coupled is not None:
                coupled = coupled + share.coupled.value(w)
        if self.original.coupled_cone is not None:
            worst = max(worst, self.original.coupled_cone.violation(coupled))
        return np.append(w, 2 * worst + DEEPEST)

    def read_weights(self, multipliers: list[Vector], coupled: Vector) -> tuple[list[Vector], Vector]:
        """The multipliers as weights of the constraints that gave way, [server, client 1, ...] and coupled."""
        held = [multipliers[0][len(multipliers[0]) - self.own_rows :], *multipliers[1:]]
        weights = []
        for share, price in zip(self.original.holders, held, strict=True):
            if share.constraint is None:
                weights.append(np.zeros(0))
            else:
                weights.append(loosen(share.constraint.cone)[1].T @ price)
        if self.original.coupled_cone is not None:
            coupled = loosen(self.original.coupled_cone)[1].T @ coupled
        return weights, coupled


def _loosen_share(share: Share, dim: int, parts: int) -> Share:
    """The share over (w, t), without its objective; of the coupled constraint every part gives way alike."""
    constraint = None
    coupled = None
    coupled_cone = None
    if share.constraint is not None:
        cone, choice = loosen(share.constraint.cone)
        constraint = Constraint(Elastic(share.constraint.function, dim, choice, cone.identity()), cone)
    if share.coupled is not None and share.coupled_cone is not None:
        coupled_cone, choice = loosen(share.coupled_cone)
        coupled = Elastic(as_map(share.coupled), dim, choice, coupled_cone.identity() / parts)
    idle = None
    if constraint is None and coupled is None:
        idle = Quadratic(np.zeros((dim + 1, dim + 1)))
    return replace(share, objective=idle, constraint=constraint, coupled=coupled, coupled_cone=coupled_cone)


def _bounds(regularizer: Prox, dim: int) -> Prox:
    """dom(h) where it is a box; t is free."""
    if isinstance(regularizer, Box):
        lo = np.append(np.broadcast_to(regularizer.lo, dim), -np.inf)
        hi = np.append(np.broadcast_to(regularizer.hi, dim), np.inf)
        return Box(lo, hi)
    return NoRegularizer()


def _domain(regularizer: Prox, dim: int) -> list[Constraint]:
    """dom(h) where it is a simplex, as constraints that do not give way."""
    if isinstance(regularizer, Times):
        regularizer = regularizer.inner
    if not isinstance(regularizer, Simplex):
        return []
    lower = np.column_stack([-np.eye(dim), np.zeros(dim)])
    total = np.append(np.ones(dim), 0.0)[None, :]
    return [
        Constraint(Affine(lower), Nonnegative(dim)),
        Constraint(Affine(total, [-regularizer.total]), Zero(1)),
    ]
