"""How iFedDR chooses by itself: gamma, the local work of a round, and when there is no zero to be found."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

# ---------------------------------------------------------------------------------------------------------------- gamma

#: gamma is looked at after so many rounds at first ...
FIRST = 6
#: ... and then ever more rarely: the wait grows by this factor with every change.
WAIT = 1.5
#: It moves when it is off by this factor, since a smaller change is not worth the disturbance ...
BAND = 2.0
#: ... by at most this factor at a time, because estimates from few rounds err ...
LEAP = 10.0
#: ... and so many times in all: after that the theory's fixed gamma applies.
CHANGES = 15
#: Rounds over which the inverse curvature is averaged; half of them are the fewest to trust.
WINDOW = 6
#: The distance from the start may move the estimate by this factor, and no more: it is of no use where w0 is far away.
TRUST = 3.0


@dataclass
class Gamma:
    """Moves gamma to where the iteration is fast, and then leaves it alone.

    Two estimates of a good gamma are at hand: |p - w0| / rms |F_i|, the distance over the disagreement that must be
    built up, and |change of x| / |change of F|, the inverse curvature along the last moves. Their geometric mean is
    taken, within TRUST of the second.
    """

    value: float
    fixed: bool
    last: int = -1  # round of the last change; the start counts as one more round
    wait: int = FIRST
    changes: int = 0
    ratios: list[float] = field(default_factory=list)

    def follow(self, k: int, moved: float, turned: float, disagreement: float, distance: float) -> float:
        """gamma after round k.

        moved, turned: squares of the changes of x and of F over all owners in this round
        disagreement:  rms |F_i|;  distance: |p - w0|
        """
        if moved > 0 and turned > 0:
            self.ratios.append(float(np.sqrt(moved / turned)))
        settled = self.fixed or self.changes >= CHANGES
        if settled or k - self.last < self.wait or len(self.ratios) < WINDOW // 2:
            return self.value
        seen = float(np.exp(np.mean(np.log(self.ratios[-WINDOW:]))))
        correction = 1.0
        if disagreement > 0:
            correction = float(np.clip(np.sqrt(distance / disagreement / seen), 1 / TRUST, TRUST))
        factor = float(np.clip(seen * correction / self.value, 1 / LEAP, LEAP))
        if 1 / BAND < factor < BAND:
            return self.value
        self.last = k
        self.wait = int(WAIT * self.wait) + 1
        self.changes += 1
        self.ratios = []
        self.value *= factor
        return self.value


# ----------------------------------------------------------------------------------------------------------------- work

#: Local steps an order asks for at most.
MOST_STEPS = 500
#: The part of the error allowed to all that an owner takes, at first ...
PART = 0.25
#: ... it grows by this factor with every round that passes the test at once ...
MORE = 1.1
#: ... and shrinks by this one with every refinement, which costs an exchange and so must stay rare ...
LESS = 2.0
#: ... down to this one.
LEAST = 1e-4

POLICIES = ("adaptive", "repeat", "total", "double")


@dataclass
class Work:
    """How much the owners do in a round.

    policy: "adaptive", each owner for itself: it stops when its gap is at most a part of what the test allows all of
            them together, going by the round before. The part grows while the test is passed at once and shrinks when
            it is not. Those of the paper, the same for all: "repeat" (always tau), "total" (tau times the number of all
            refinements so far), "double" (twice as much after every refinement)
    tau:    steps of a round before refinement
    """

    policy: str
    tau: int
    holders: int
    error: float  # sigma
    part: float = PART
    steps: int = 0
    total: int = 0

    def start(self) -> int:
        """Steps of a round."""
        if self.policy == "total":
            return min(self.tau * max(self.total, 1), MOST_STEPS)
        if self.policy == "double":
            self.steps = self.steps or self.tau
            return self.steps
        return self.tau

    def target(self, largest: float) -> float:
        """The gap at which an owner may stop, where max(xi, zeta) will be about so large."""
        if self.policy != "adaptive":
            return 0.0
        return self.error * float(np.sqrt(self.part * largest / self.holders))

    def refine(self) -> int:
        """Steps of a refinement."""
        self.total += 1
        self.part = max(self.part / LESS, LEAST)
        if self.policy != "double":
            return self.tau
        self.steps = min(2 * self.steps, MOST_STEPS)
        return max(self.steps // 2, 1)

    def accept(self, refinements: int) -> None:
        """The round passed the test after so many refinements."""
        if not refinements:
            self.part = min(self.part * MORE, float(self.holders))


# -------------------------------------------------------------------------------------------------------------- no zero

#: How far the iterates must have gone, relative to the start, before a zero is given up.
REACH = 100.0


@dataclass
class Departure:
    """Sees operators without a common zero: iterates that go far away and come no nearer to one.

    doubt: rounds without a halved certificate before the distance is looked at, then twice as many, and so on
    """

    doubt: int
    lowest: float = np.inf
    since: int = 0
    looks: int = 0  # in vain, since the certificate was last halved

    def see(self, k: int, stationarity: float, distance: float, start: float) -> bool:
        """Is a zero to be given up? distance: of p from the start; start: its size; both in the max-norm."""
        if stationarity < 0.5 * self.lowest:
            self.lowest = stationarity
            self.since = k
            self.looks = 0
        if k - self.since < self.doubt * 2**self.looks:
            return False
        self.looks += 1
        return distance > REACH * (1 + start)
