"""When accelerated consensus (`accelerated.py`) changes its penalties, and to what.

Every holder has its own, near the curvature of its Lagrangian (`penalties.py` says why).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fedpact.solvers.constrained.accelerated_owner import Moved
from fedpact.solvers.constrained.penalties import Plan, share_out

#: What rho_i is at first over the curvature of the owner's Lagrangian.
STIFFNESS = 2.0
#: Penalties are looked at after so many rounds at first, and each time
WAIT = 6
#: so many times later: every change costs the memory of the acceleration, and the method converges once they stay;
LATER = 1.5
#: but not while so many rounds
WINDOW = 4
#: leave no more than this part of the residual.
FAST = 0.3
#: The curvature seen, |change of the pulls| / |change of the u_i|, is off when it is this many times the penalties',
RISE = 3.0
#: or this part of them,
FALL = 1 / 30.0
#: in flat directions, while so many rounds leave more than this of the residual.
STILL = 0.95
#: The stiffness follows its root, by at most this factor; and where nothing is curved, as in linear programs,
CHANGE = 2.0
#: the penalties follow it by at most this one.
LEAP = 10.0
#: Where constraints exclude each other multipliers grow without end, and with them the curvature: penalties that
#: followed would make them grow by factors. They stay where they are once it is this many times what it was at first.
MOST_GROWTH = 1e4


def first_stiffness(holders: int, doubtful: bool) -> float:
    """What rho is at first over the mean curvature of the objectives; doubtful: constraints may not be convex.

    Multipliers sum to as much with many owners as with few, while objectives are means. If one constraint binds, its
    owner's Lagrangian bends n times as much as an objective, if all do, as much: sqrt(n) is between. Convex steps find
    their penalties on the way; others, with too small ones, first go far, to where constraints are flat and
    multipliers large.
    """
    if not doubtful:
        return STIFFNESS
    return max(STIFFNESS, float(np.sqrt(holders)))


@dataclass
class Pace:
    """Follows the residual and the curvature seen on the way."""

    fixed: bool  # were the penalties given?
    residuals: list[float] = field(default_factory=list)  # since a penalty last changed
    curvatures: list[float] = field(default_factory=list)  # relative to the penalties
    wait: float = WAIT
    stiffness: float = STIFFNESS
    measured: bool = False
    first: float = 0.0  # curvature of all holders when it was first measured

    def plan(self, everyone: Moved, penalty: float, holders: int) -> Plan:
        """The penalties of the next round."""
        self.residuals.append(float(np.sqrt(everyone.squared)))
        if everyone.moved > 0:  # a straight objective has none, and would not move rho
            self.curvatures.append(max(float(np.sqrt(everyone.turned / everyone.moved)), 1e-15))
        measured = self.measured
        self.measured = False
        plan = Plan(penalty=penalty, stiffness=self.stiffness)
        if measured:
            return self._adjust(plan, everyone, holders)
        self.measured = not self.fixed and self._is_due()
        return replace(plan, measure=self.measured)

    @property
    def left(self) -> float:
        """The part of the residual that the last rounds left."""
        return self.residuals[-1] / max(self.residuals[-1 - WINDOW], 1e-300)

    def _is_due(self) -> bool:
        """Whether it is time to look at the penalties."""
        return len(self.residuals) > max(self.wait - 1, WINDOW) and self.left > FAST

    def _adjust(self, plan: Plan, everyone: Moved, holders: int) -> Plan:
        """By the curvature of the Lagrangians; where there is none, by that seen along the last steps."""
        self.wait *= LATER
        seen = float(np.exp(np.mean(np.log(self.curvatures[-WINDOW:] or [1.0]))))
        off = seen > RISE or (seen < FALL and self.left > STILL)
        if everyone.misfits and everyone.curvature > 0:
            off = True
        self.first = self.first or everyone.curvature
        if not off or everyone.curvature > MOST_GROWTH * self.first > 0:
            return plan
        self._restart()
        if not everyone.curvature > 0:
            return replace(plan, penalty=plan.penalty * float(np.clip(seen, 1 / LEAP, LEAP)))
        self.stiffness *= float(np.clip(np.sqrt(seen), 1 / CHANGE, CHANGE))
        total = self.stiffness * everyone.curvature
        return replace(plan, stiffness=self.stiffness, **share_out(total, everyone.bound, holders))

    def _restart(self) -> None:
        self.residuals = []
        self.curvatures = []
