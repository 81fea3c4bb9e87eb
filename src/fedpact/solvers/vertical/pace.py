"""How long the steps of fair-vfl are: eta of the parties' descent, beta and c of the prices' ascent.

Nobody knows constants of the whole data. So by default eta_k = scale * K * (curvature of party k's part of f), which
descends for any scale >= 1 however the parties' columns are related; scale falls while f falls as predicted, and rises
when it does not. beta is damped, gap by gap, where the gap passes its bound to and fro.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpact.problem import Scored
from fedpact.types import Vector

#: When f falls by at least this part of what the steps predict,
GOOD = 0.5
#: eta shrinks by this factor;
SHRINK = 0.9
#: when it falls by less than this part of it,
BAD = 0.1
#: eta grows by this one.
GROW = 1.5
#: The ascent of a gap that passed its bound to and fro is damped by this factor,
DAMPED = 0.7
#: that of one which stays on a side is freed by this one,
FREED = 1.1
#: and damped no further than this.
LOWEST = 1e-4
#: beta, in units of (the smallest group's share of the rows) / (the mean loss at zero).
ASCENT = 0.3
#: tau of Theorem 2, which must be above 8.
TAU = 9.0


@dataclass(frozen=True)
class Theory:
    """The schedules of Theorem 2: c_t = beta t^(-1/4) / 2, and the smallest eta_t it allows.

    lipschitz, cross: L and L_12 of Assumption 2
    updates:          K Q
    """

    dual_step: float
    lipschitz: float
    cross: float
    updates: int

    @classmethod
    def of(cls, scored: Scored, dual_step: float, size: float, curvature: float, updates: int) -> Theory:
        """L and L_12 bounded by sums over the parties: |X|^2 is at most that of |X_k|^2."""
        lipschitz = scored.smoothness(np.zeros(scored.length)) * size / scored.y.size + curvature
        cross = float(
            np.sqrt(2 * size) * np.linalg.norm(scored.rows) * scored.steepness()
        )  # of D - eps and of -D - eps
        return cls(dual_step, lipschitz, cross, updates)

    def regularization(self, t: int) -> float:
        return float(self.dual_step * max(t, 1) ** -0.25 / 2)

    def eta(self, t: int) -> float:
        L = self.lipschitz
        m = self.updates
        primal = (L**2 * (m + 2) * (m - 1) + 2 * (L + 1)) / 4
        return float(primal + self.cross**2 * m * (1 + 32 * TAU * np.sqrt(max(t, 1))) / (2 * self.dual_step))


@dataclass
class Pace:
    """Steps of a run.

    fixed_eta:      as the user gave it; 0: learned
    dual_step:      beta
    concavity:      c
    theory:         Theorem 2 in their place
    adaptive:       is the ascent damped?
    damping, sense: of the ascent by gap, and where the gap was: above eps, between -eps and eps, below
    scale:          of the learned eta
    """

    fixed_eta: float
    dual_step: float
    concavity: float
    theory: Theory | None
    adaptive: bool
    damping: Vector
    sense: Vector
    scale: float = 1.0

    @property
    def learns(self) -> bool:
        """Is eta learned?"""
        return not self.fixed_eta and self.theory is None

    def eta(self, t: int) -> float:
        """Of all parties in step t; 0: each has its own, by its curvature."""
        return self.theory.eta(t) if self.theory else self.fixed_eta

    def regularization(self, t: int) -> float:
        """c of step t."""
        return self.theory.regularization(t) if self.theory else self.concavity

    def learn(self, fall: float, predicted: float, least: float) -> None:
        """Shorter or longer steps, by how f fell."""
        if not fall >= BAD * predicted:
            self.scale *= GROW
        elif fall >= GOOD * predicted:
            self.scale = max(SHRINK * self.scale, least)

    def ascent(self, gaps: Vector, most: Vector, least: Vector) -> Vector:
        """beta by gap: one that passes its bound to and fro was overshot, one that stays on a side can move faster."""
        if self.adaptive:
            sense = np.sign(gaps - most) + np.sign(gaps - least)
            self.damping = np.clip(self.damping * np.where(sense != self.sense, DAMPED, FREED), LOWEST, 1.0)
            self.sense = sense
        return self.dual_step * self.damping


def default_dual_step(scored: Scored) -> float:
    """beta by the smallest group: above its share of the rows a price makes its losses count less than nothing."""
    groups = [row > 0 for row in scored.rows] + [row < 0 for row in scored.rows]
    sizes = [np.count_nonzero(group) for group in groups if group.any()]
    smallest = min(sizes, default=scored.y.size) / scored.y.size
    loss = float(np.mean(scored.losses(np.zeros(scored.length))))
    return ASCENT * smallest / max(loss, 1e-300)
