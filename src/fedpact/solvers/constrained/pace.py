"""What the server of `interior_point.py` decides between two exchanges: barrier or semismooth step, target, damping."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpact.problem import Certificate
from fedpact.solvers.constrained.condensation import System
from fedpact.types import Vector

# The target tau.
#: Part of the complementarity that the first step aims at: nothing is known yet of how steps succeed.
FIRST_TARGET = 0.1
#: ... and that any later step aims at, at most; less after good progress (Mehrotra's rule has the third power).
MOST_TARGET = 0.3
#: The target never falls below this part of the residual, so complementarity does not run ahead of it.
BEHIND = 0.003

# The damping lambda.
#: Added to M as a multiple of the Hessian's diagonal, so that directions without curvature do not move.
LEAST_DAMPING = 1e-9
#: Damping after a step that was dropped, at least: less would hardly change the next one.
DROPPED_DAMPING = 1e-4
#: Damping is multiplied by this when a step was dropped, and divided by it when one was kept.
RELAX = 10.0
#: In a column that has become flat the diagonal counts as this part of the largest it was: it does not run away.
FLAT = 0.01

# Which barrier steps are kept.
#: Residuals below this part of the first one may grow.
SMALL = 1e-3
#: A step is dropped when it misses the constraints this many times more than before,
LEFT = 10.0
#: and this many times more than this part of their values at the start.
SIZE = 0.1
#: ... or when the slope is this many times larger than before, and than at the start.
BLOWN_UP = 1e3
#: Relative to the objective: a rise that is no more than its rounding is none.
ROUNDING = 1e-10

#: A step that boundaries shortened is cut unless the residual fell by this part of what it falls by then.
ENOUGH = 0.5


# The semismooth steps.
#: They are tried when the certificate has come down to this part of the first residual,
NEAR = 0.007
#: their system is asked for a little before that,
SOON = 5.0
#: and they are left when the certificate has not halved in this many steps,
PATIENCE = 5
#: or has grown by this factor;
WORSE = 10.0
#: then the barrier goes on for at least this many steps.
REST = 2
#: A step no longer than this part of the one before it shows Newton's convergence, which squares what is left:
SHRUNK = 0.1
#: it is taken for the last when it promises a certificate this many times below the tolerance.
SURE = 5.0
#: Steps that differ by this part of their length keep their direction ...
EVEN = 0.05
#: ... and are made longer, up to this factor.
LONGEST = 4.0

# When owners are asked for certificates, which cost them a gradient.
#: When the residual is within this factor of the tolerance,
JUDGED = 1e3
#: or within this factor of where the semismooth steps begin.
JUDGED_NEAR = 20.0


@dataclass(frozen=True)
class Sums:
    """The systems of all holders added up, and what the server reads off them.

    usable:       False when a value of some holder is not finite here: then all else is void
    stationarity: distance of 0 from grad f + J'z + the subdifferential of h, and from grad f + J'z in private variables
    miss:         |c + s| over all holders
    certificate:  of w and the clean multipliers, with the objective, when it was asked for
    rounding:     of the sums of matrices as they travelled, relative to the diagonal of the Hessian
    """

    usable: bool
    system: System
    stationarity: float = np.inf
    miss: float = np.inf
    certificate: Certificate | None = None
    objective: float = np.nan
    rounding: float = 0.0

    @property
    def residual(self) -> float:
        return max(self.stationarity, self.miss)

    @property
    def size(self) -> float:
        """|c| over all holders."""
        return float(np.sqrt(self.system.size))

    @property
    def degree(self) -> int:
        return int(self.system.degree)

    @property
    def complementarity(self) -> float:
        """Mean of <s, z> over the degree of all cones."""
        return self.system.complementarity / max(self.degree, 1)

    @property
    def curvature(self) -> float:
        return float(self.system.diagonal.sum()) / self.system.diagonal.size


@dataclass
class Pace:
    """What the server decides between two exchanges: barrier or semismooth step, target, damping."""

    first: float  # the residual at the start
    size: float  # of the constraints there
    free: bool = False  # nobody has a constraint: the objective tells whether a step was good
    finishing: bool = False
    target: float = 0.0
    damping: float = LEAST_DAMPING
    back: bool = False  # the next step starts from the kept point
    keep: bool = False  # the latest point is to be kept
    rest: int = 0  # barrier steps before the semismooth step is tried again
    slow: int = 0  # semismooth steps in a row that did not halve the certificate
    lowest: float = np.inf  # certificate of the semismooth steps
    previous: Vector | None = None  # the last Newton step
    longer: float = 1.0
    length: float = 0.0  # of the next step, which is the last one cut; 0: as far as each cone lets it go
    entry: float = np.inf  # certificate before the first of them
    steepest: Vector | float = 0.0  # the largest diagonal of the Hessian so far, by column

    def steady(self, diagonal: Vector) -> Vector:
        """The diagonal that damping is measured by."""
        self.steepest = np.maximum(self.steepest, diagonal)
        return np.maximum(diagonal, FLAT * self.steepest)

    def aim(self, base: Sums, before: float) -> None:
        """The complementarity to aim at: much less than now after good progress, but never ahead of the residual.

        before: complementarity at the accepted point before the base; infinite at the start
        """
        if not base.degree:
            self.target = 0.0
            return
        part = FIRST_TARGET
        if np.isfinite(before):
            ratio = base.complementarity / before if before > 0 else 1.0
            part = min(MOST_TARGET, ratio**2)
        least = min(BEHIND * base.residual, base.complementarity)
        self.target = max(part * base.complementarity, least)

    def choose(self, now: Sums) -> None:
        """Start with semismooth steps when they are near."""
        asked = now.system.near_matrix.size > 0
        if not self.keep or self.rest or not asked or not self.near(now, 1.0):
            return
        assert now.certificate is not None
        self.finishing = True
        self.slow = 0
        self.longer = 1.0
        self.entry = now.certificate.worst
        self.lowest = now.certificate.worst
        self.previous = None

    def finish(self, now: Sums) -> None:
        """After a semismooth step: does it pay? Else back to the barrier."""
        worst = np.inf if now.certificate is None else now.certificate.worst
        if worst <= 0.5 * self.lowest:
            self.slow = 0
        else:
            self.slow += 1
        self.damping = max(LEAST_DAMPING, self.damping / RELAX)  # what the barrier left would make them linear
        pays = now.usable and self.slow <= PATIENCE and worst <= WORSE * self.entry
        self.lowest = min(worst, self.lowest)
        if not pays:
            self.finishing = False
            self.back = True
            self.rest = REST

    def ends(self, step: Vector, now: Sums, tol: tuple[float, float]) -> bool:
        """Whether this Newton step is expected to be the last, so that no system is needed where it leads."""
        if self.previous is None:
            return False
        worst = now.residual if now.certificate is None else now.certificate.worst
        shrunk = float(np.linalg.norm(step)) / (float(np.linalg.norm(self.previous)) or 1.0)
        return shrunk <= SHRUNK and SURE * shrunk**2 * worst <= min(tol)

    def stretch(self, step: Vector, lagging: bool) -> float:
        """How much longer than Newton's step w may go: more than 1 only on an exponential tail.

        There (a class that a rare column separates, and the minimiser far out) Newton's steps keep direction and length
        while the gradient falls by e; a step k times longer makes it fall by e^k. It also misses constraints that bind
        k - 1 times as much as before, so it must be stationarity that lags behind.
        """
        before = self.previous
        self.previous = step
        even = before is not None and float(np.linalg.norm(step - before)) <= EVEN * float(np.linalg.norm(before))
        self.longer = min(2 * self.longer, LONGEST) if even and lagging else 1.0
        return self.longer

    def cut(self, base: Sums, now: Sums) -> bool:
        """Whether a step that boundaries of cones shortened here and there goes back, to be taken at one length by all.

        Linear residuals fall by that part then. Where every holder goes as far as its own cones let it, and w all the
        way, they may grow instead, step after step.
        """
        too_long = now.system.too_long
        if self.length or not too_long or not now.usable:
            return False
        length = 1 / too_long
        if now.residual <= (1 - ENOUGH * length) * base.residual:
            return False
        self.length = length
        self.keep = False
        self.back = True
        return True

    def accept(self, base: Sums, now: Sums, used: float) -> bool:
        """After a barrier step: whether to keep it, and the damping of the next one. used: damping of this one."""
        self.length = 0.0
        good = now.usable and (self._descends(base, now) if self.free else self._stays_near(base, now))
        if good:
            self.damping = max(LEAST_DAMPING, used / RELAX)
        else:
            raised = RELAX**2 if self._blows_up(base, now) else RELAX
            self.damping = max(raised * used, DROPPED_DAMPING)
        self.keep = good
        self.back = not good
        self.rest = max(self.rest - 1, 0)
        return good

    def _descends(self, base: Sums, now: Sums) -> bool:
        """Without constraints the objective tells."""
        return now.objective <= base.objective + ROUNDING * (1 + abs(base.objective))

    def _stays_near(self, base: Sums, now: Sums) -> bool:
        """Not both residuals more than doubled, nor were the constraints left by far. What is small anyway may grow."""
        small = max(base.complementarity, SMALL * self.first)
        doubled = now.stationarity > 2 * max(base.stationarity, small) and now.miss > 2 * max(base.miss, small)
        if doubled or self._blows_up(base, now):
            return False
        return now.miss <= LEFT * max(base.miss, small, SIZE * self.size)

    def _blows_up(self, base: Sums, now: Sums) -> bool:
        """Whether the slope became huge, as that of an exponential does where a step is too long."""
        return now.stationarity > BLOWN_UP * max(base.stationarity, self.first)

    def worth_judging(self, now: Sums, tol: tuple[float, float]) -> bool:
        close = now.residual <= max(JUDGED * max(tol), JUDGED_NEAR * NEAR * self.first)
        return self.free or self.finishing or close

    def soon(self, now: Sums) -> bool:
        """Whether the next point may be near enough for semismooth steps."""
        return self.near(now, SOON)

    def near(self, now: Sums, factor: float) -> bool:
        """Whether the certificate is within this factor of where semismooth steps begin."""
        return now.certificate is not None and now.certificate.worst <= factor * NEAR * self.first


def lags(certificate: Certificate | None, tol: tuple[float, float]) -> bool:
    """Whether stationarity is farther from its tolerance than feasibility is."""
    return certificate is not None and certificate.stationarity * tol[1] > certificate.feasibility * tol[0]
