"""Anderson's acceleration of iFedDR's iteration by sums: its iterate is s = (s_1, ..., s_N), its residual p - x_i.

Where the resolvents are exact, s <- s + F is Douglas-Rachford splitting, a map that hardly contracts on rotations, such
as bilinear games. Owners keep the last differences of s_i and of F_i; the inner products that `constrained/anderson.py`
needs are sums over them.

An owner does not know p when it replies, and so neither its F_i. It knows q, the p of the round before, and sends
products of x_i - q and of its own move dx_i, from which those of

    F_i  = (p - q) - (x_i - q)         dF_i = (p - q) - dx_i

follow with the sums that the server has anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from fedpact.solvers.consensus.splitting import State
from fedpact.solvers.consensus.sums import Sums
from fedpact.solvers.constrained.anderson import Memory, Part, mix_next
from fedpact.types import Vector

# ---------------------------------------------------------------------------------------------------- the owner's half


def _nothing() -> Vector:
    return np.zeros(0)


@dataclass(frozen=True)
class Track:
    """What an owner remembers of the rounds before: the last s_i and F_i, and the differences that led there.

    remember: differences that count in this round; the newest of them is complete when the next p is known
    """

    z: Vector = field(default_factory=_nothing)
    residual: Vector = field(default_factory=_nothing)
    steps: tuple[Vector, ...] = ()
    changes: tuple[Vector, ...] = ()
    remember: int = 0

    def complete(self, state: State, p: Vector) -> Self:
        """After the round whose p is now known."""
        residual = p - state.x
        steps: tuple[Vector, ...] = ()
        changes: tuple[Vector, ...] = ()
        if self.remember:
            steps = (*self.steps, state.s - self.z)[-self.remember :]
            changes = (*self.changes, residual - self.residual)[-self.remember :]
        return replace(self, z=state.s, residual=residual, steps=steps, changes=changes)

    def keep(self, remember: int) -> Self:
        """For the round that begins, in which `remember` differences count: its own, and the newest before it."""
        first = len(self.steps) - max(remember - 1, 0)
        first = max(first, 0)
        return replace(self, steps=self.steps[first:], changes=self.changes[first:], remember=remember)

    def products(self, state: State, q: Vector) -> Vector:
        """|ds|^2, <dx, x - q>, |dx|^2, and <dx, dF_j> and <x - q, dF_j> for the differences before this round."""
        if not self.remember:
            return _nothing()
        shift = state.x - q
        moved = shift + self.residual
        stepped = state.s - self.z
        own = [stepped @ stepped, moved @ shift, moved @ moved]
        along = [moved @ change for change in self.changes]
        against = [shift @ change for change in self.changes]
        return np.array([*own, *along, *against])


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass
class Acceleration:
    """The server's side: what the owners are to mix their next s_i from.

    mix:      gamma, coefficients of the differences; empty for a plain step
    remember: differences that the next round counts, its own included
    """

    memory: Memory
    holders: int
    mix: Vector = field(default_factory=_nothing)
    remember: int = 0

    @classmethod
    def of(cls, size: int, holders: int, s: Vector) -> Self:
        return cls(Memory(size, s), holders)

    @property
    def on(self) -> bool:
        return self.memory.size > 0

    def take(self, sums: Sums, tracked: Vector, p: Vector, q: Vector, squared: float, *, plain: bool) -> None:
        """Choose the next mix after a round that found p; plain: do not accelerate now.

        squared: |F|^2, tracked: the sum of the owners' products
        """
        part = self._read(sums, tracked, p - q, squared)
        self.mix, self.remember = self.memory.take(sums.s, part, self.remember, plain=plain)

    def forget(self) -> None:
        """The next round has another gamma, and so another map: what is known of this one leads to its start only."""
        self.remember = 0

    def next_sum(self, relaxation: float) -> Vector:
        """The sum of the s_i after the owners have moved."""
        return mix_next(self.memory, self.mix, relaxation)

    def _read(self, sums: Sums, tracked: Vector, offset: Vector, squared: float) -> Part:
        """The products of F and its differences around p, from those around q."""
        residual = self.holders * offset - sums.shift
        empty = np.zeros(0)
        if not self.remember:
            return Part(residual=residual, squared=squared, products=empty, against=empty, stepped=0.0)
        stepped, crossed, moved = (float(number) for number in tracked[:3])
        along, against = np.split(tracked[3:], 2)
        change = residual - self.memory.residual  # sum of dF_i = (p - q) - dx_i
        square = self.holders * float(offset @ offset)
        way = self.holders * offset - change  # sum of dx_i
        older = self.memory.changes[len(self.memory.changes) - along.size :]
        shared = np.array([offset @ one for one in older])
        newest = square - 2 * float(offset @ way) + moved
        newest_against = square - float(offset @ (way + sums.shift)) + crossed
        return Part(
            residual=residual,
            squared=squared,
            products=np.append(shared - along, max(newest, 0.0)),
            against=np.append(shared - against, newest_against),
            stepped=stepped,
        )
