"""Anderson acceleration (type II) when the iterate is spread over holders who keep their own parts of the history.

gamma minimises |F - sum_j gamma_j dF_j|, and z + beta F - sum_j gamma_j (dz_j + beta dF_j) is the next iterate. The
inner products that gamma needs are sums over the holders, and so are the vectors the server works with: it needs
nobody's part by itself. See `accelerated.py` for the letters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedpact.federation import Reply, Summed
from fedpact.types import Matrix, Vector

#: beta: how far to go along F. Between 0 and 2 the iteration converges (Eckstein and Bertsekas 1992); here it takes
#: about a tenth fewer rounds than with 1.
RELAXATION = 1.7
#: Tikhonov term of gamma's least squares, with columns scaled to one.
TIKHONOV = 1e-10
#: Where |dF| is less than this part of |dz| the extrapolation is damped: owners in conflict drift like that forever.
SLOWEST = 1e-5
#: A step after which the residual is this many times the lowest is taken back, and the memory dropped. Over-relaxed
#: steps often double it on the way to a smaller one, and to take one back costs a round.
TRIPLED = 3.0
#: The memory is halved when the residual is this many times what a linear map gives.
SURPRISE = 2.0
#: A step is not expected to leave less than this part of the residual, whatever a linear map would.
LEAST_LEFT = 0.25
#: A2DR: accelerate while |F| <= BOUND |F_first| (1 + steps / BLOCK)^-(1 + 1e-6).
BOUND = 100.0
BLOCK = 10


class Held(Protocol):
    """The latest z and F and the newest differences, of one holder or of the sums."""

    @property
    def z(self) -> Vector: ...

    @property
    def residual(self) -> Vector: ...

    @property
    def steps(self) -> tuple[Vector, ...]: ...

    @property
    def changes(self) -> tuple[Vector, ...]: ...


@dataclass(frozen=True, kw_only=True)
class Part(Reply):
    """What a holder says of a round; the server needs the sums over all of them."""

    residual: Summed[Vector]  # F_i
    squared: Summed[float]  # |F|^2
    products: Summed[Vector]  # <dF_last, dF_j>, j in memory
    against: Summed[Vector]  # <dF_j, F>
    stepped: Summed[float]  # |dz_last|^2


def mix_next(held: Held, mix: Vector, relaxation: float = RELAXATION) -> Vector:
    """z + beta F - sum_j gamma_j (dz_j + beta dF_j) over the newest differences; relaxation: beta."""
    following = held.z + relaxation * held.residual
    oldest = len(held.steps) - mix.size
    for gamma, step, change in zip(mix, held.steps[oldest:], held.changes[oldest:], strict=True):
        following = following - gamma * (step + relaxation * change)
    return following


@dataclass
class Memory:
    """The server's side of the acceleration: sums over all holders, and the Gram matrix of the differences."""

    size: int
    z: Vector  # sum_i z_i
    residual: Vector = field(default_factory=lambda: np.zeros(0))  # sum_i F_i
    steps: tuple[Vector, ...] = ()
    changes: tuple[Vector, ...] = ()
    gram: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    squares: Vector = field(default_factory=lambda: np.zeros(0))  # |dz_j|^2
    first: float = 0.0  # |F| where the bound began: at the start, or when rho last changed
    lowest: float = np.inf  # |F| since the memory was last dropped
    predicted: float = np.inf  # |F| of the next round if the map were linear
    accelerated: int = 0
    surprises: int = 0  # in a row
    rest: int = 0  # plain steps still to take

    def take(self, z: Vector, part: Part, remember: int, plain: bool) -> tuple[Vector, int]:
        """Store the round at sum_i z_i = z, for which `remember` was ordered; gamma and `remember` for the next one.

        plain: do not accelerate now.
        """
        norm = float(np.sqrt(part.squared))
        self._store(z, part, remember, norm)
        self._watch_prediction(norm)
        if norm > TRIPLED * self.lowest:
            self._keep(1)
            if self.predicted < np.inf:  # go back: gamma = 1 for the newest difference is the plain step from before
                self.predicted = np.inf
                self.rest = max(self.rest, 1)
                return np.ones(1), 1
            self.lowest = np.inf
        self.lowest = min(self.lowest, norm)
        self.predicted = np.inf
        self.rest = max(self.rest - 1, -1)
        mix = np.zeros(0)
        if self.steps and self.rest < 0 and norm <= self._bound() and not plain:
            mix = self._accelerate(norm, part.against[-len(self.steps) :])
        return mix, min(len(self.steps) + 1, self.size)

    def _store(self, z: Vector, part: Part, remember: int, norm: float) -> None:
        """Keep the newest differences and their products; none when rho is new, which is a new beginning."""
        residual = part.residual
        if remember:
            self.steps = (*self.steps, z - self.z)[-remember:]
            self.changes = (*self.changes, residual - self.residual)[-remember:]
            row = part.products
            oldest = len(self.gram) - row.size + 1
            self.gram = np.block([[self.gram[oldest:, oldest:], row[:-1, None]], [row]])
            self.squares = np.append(self.squares, part.stepped)[-remember:]
        else:
            self._keep(0)
            self.first = norm
            self.accelerated = 0
            self.lowest = np.inf
            self.predicted = np.inf
        self.z = z
        self.residual = residual

    def _watch_prediction(self, norm: float) -> None:
        """Halve the memory, and rest for longer each time, where the residual is far from what a linear map gives."""
        if norm > SURPRISE * self.predicted:
            self.surprises += 1
            self.rest = 2**self.surprises // 4
            self._keep((len(self.steps) + 1) // 2)
        elif np.isfinite(self.predicted):
            self.surprises = 0

    def _bound(self) -> float:
        """|F| up to which A2DR accelerates: summable, so that in the end the plain iteration decides."""
        return BOUND * self.first * float((1 + self.accelerated / BLOCK) ** -(1 + 1e-6))

    def _accelerate(self, norm: float, against: Vector) -> Vector:
        """gamma, and what a linear map would leave of the residual at most: |F - sum_j gamma_j dF_j|."""
        self.accelerated += 1
        mix = self._mix(against)
        left = float(norm**2 - mix @ (2 * against - self.gram @ mix))
        self.predicted = max(float(np.sqrt(max(left, 0.0))), LEAST_LEFT * norm)
        return mix

    def _mix(self, against: Vector) -> Vector:
        """gamma by regularized least squares, every column scaled to one."""
        scale = 1 / np.sqrt(np.diag(self.gram) + SLOWEST**2 * self.squares + 1e-300)
        system = scale[:, None] * self.gram * scale
        np.fill_diagonal(system, 1 + TIKHONOV)
        return np.asarray(scale * np.linalg.solve(system, scale * against))

    def _keep(self, number: int) -> None:
        """Forget all but the newest differences."""
        first = len(self.steps) - number
        self.steps = self.steps[first:]
        self.changes = self.changes[first:]
        self.gram = self.gram[first:, first:]
        self.squares = self.squares[first:]
