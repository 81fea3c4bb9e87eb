"""The mean error of a linear model, bounded either way: affine in its coefficients."""

from __future__ import annotations

import numpy as np

from fedpact.functions.affine import Affine
from fedpact.functions.base import Indices
from fedpact.functions.contributions import Contributions
from fedpact.types import Matrix, Vector


class MeanError(Affine):
    """c(w) = (e - limit, -e - limit), e = sum_i p_i (x_i'w + known_i), p the weights of the rows scaled to sum one.

    known: (rows,), offset less label; weight: (rows,), all the same when None; numbers: which of the owner's rows these
    are, 0, 1, ... when None
    """

    def __init__(
        self, X: Matrix, known: Vector, limit: float, weight: Vector | None = None, numbers: Indices | None = None
    ) -> None:
        slope = np.average(X, axis=0, weights=weight)
        constant = np.average(known, weights=weight)
        super().__init__(np.stack([slope, -slope]), np.array([constant - limit, -constant - limit]))
        self.X = X
        self.known = known
        given = np.ones(len(X)) if weight is None else weight
        self.weight: Vector = given / given.sum()
        self.numbers: Indices = np.arange(len(X)) if numbers is None else numbers

    def contributions(self, w: Vector) -> list[list[Contributions]]:
        value = self.weight * (self.X @ w + self.known)
        rows = Contributions(self.numbers, self.weight, value, self.weight[:, None] * self.X)
        return [[rows], [rows.scale(-1.0)]]
