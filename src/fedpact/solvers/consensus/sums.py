"""iFedDR's quantities (3.4) from sums over the owners, so that the server sees no single x_i.

With q the p of the round before, and v_i = s_i - gamma F_i(x_i), owners send x_i - q, F_i(x_i), and the squares and
products of x_i - q and v_i - q. Expanding around p = q + (p - q) gives xi, zeta and mu.

differs from iFedDR (Remark D.3), which expands around 0: around q little cancels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedpact.prox import Prox
from fedpact.solvers.consensus.splitting import State
from fedpact.types import Vector


@dataclass(frozen=True)
class Sums:
    """What one owner adds to the sums around q, or what all of them together do.

    shift:    x_i - q
    image:    F_i(x_i)
    s:        s_i
    products: |x-q|^2, <x-q, v-q>, |v-q|^2, |v-x|^2
    """

    shift: Vector
    image: Vector
    s: Vector
    products: Vector

    def plus(self, other: Sums) -> Sums:
        return Sums(
            shift=self.shift + other.shift,
            image=self.image + other.image,
            s=self.s + other.s,
            products=self.products + other.products,
        )

    def minus(self, other: Sums) -> Sums:
        return Sums(
            shift=self.shift - other.shift,
            image=self.image - other.image,
            s=self.s - other.s,
            products=self.products - other.products,
        )

    def without_s(self) -> Sums:
        """The part of an owner whose s_i the server knows in sum, because all owners moved as it said."""
        return replace(self, s=np.zeros(0))


def part_of(state: State, q: Vector) -> Sums:
    """One owner's part of the sums around q."""
    v = state.s - state.gamma * state.image
    x_from_q = state.x - q
    v_from_q = v - q
    gap = v - state.x
    products = [x_from_q @ x_from_q, x_from_q @ v_from_q, v_from_q @ v_from_q, gap @ gap]
    return Sums(x_from_q, state.image, state.s, np.array(products))


@dataclass(frozen=True)
class Measured:
    """The server's p and the quantities of its test, iFedDR (3.4).

    differs from iFedDR: zeta without 1 / gamma^2, which is right only for gamma = 1; and G is 1/N of the sum's, so p is
    prox_{gamma h} of the mean, not prox_{gamma h / N} (Lemma D.2 is about another B).
    """

    p: Vector
    xi: float
    zeta: float
    mu: float
    error: float  # sum |v_i - x_i|^2

    @property
    def largest(self) -> float:
        return max(self.xi, self.zeta)

    def passes(self, sigma: float, rounding: float) -> bool:
        """The test of the relative error; what is rounding passes too, since no work would make it smaller."""
        return self.error <= sigma**2 * self.largest or self.error <= rounding

    def alpha(self, sigma: float) -> float:
        """mu / xi; where the test holds it lies between these bounds, and outside it is a ratio of rounding errors."""
        if self.xi == 0:
            return 1.0
        return float(np.clip(self.mu / self.xi, 1 - sigma, 1 / (1 - sigma)))


def measure(sums: Sums, q: Vector, gamma: float, holders: int, regularizer: Prox) -> Measured:
    """p and (3.4) from the sums over all owners around q."""
    mean = q + sums.shift / holders - gamma * sums.image / holders
    p = regularizer.prox(mean, gamma)
    offset = p - q
    square = holders * float(offset @ offset)
    pull = sums.s - gamma * sums.image - holders * q  # sum of v_i - q
    xx, xv, vv, error = (float(product) for product in sums.products)
    return Measured(
        p=p,
        xi=max(xx - 2 * float(sums.shift @ offset) + square, 0.0),
        zeta=max(vv - 2 * float(pull @ offset) + square, 0.0),
        mu=xv - float(offset @ (sums.shift + pull)) + square,
        error=error,
    )


def recenter(sums: Sums, found: Measured, q: Vector, holders: int) -> Sums:
    """The same sums around p instead of q."""
    shift = sums.shift - holders * (found.p - q)
    return replace(sums, shift=shift, products=np.array([found.xi, found.mu, found.zeta, found.error]))
