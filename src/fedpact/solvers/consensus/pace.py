"""How iFedDR chooses by itself: gamma, the local work, which points are judged, and when there is no zero."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedpact.prox import Zero
from fedpact.solvers.consensus.rounds import AT_LEAST
from fedpact.solvers.run import Run, Verdict
from fedpact.solvers.steps import At, judge
from fedpact.types import Vector

# ---------------------------------------------------------------------------------------------------------------- gamma

#: gamma is looked at after so many rounds at first ...
FIRST = 6
#: ... after so many where rounds are accelerated, since every change makes them forget what they know of the map ...
LATE = 60
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

    def follow(self, k: int, moved: float, turned: float, disagreement: float, distance: float) -> None:
        """Choose gamma after round k.

        moved, turned: squares of the changes of x and of F over all owners in this round
        disagreement:  rms |F_i|;  distance: |p - w0|
        """
        if moved > 0 and turned > 0:
            self.ratios.append(float(np.sqrt(moved / turned)))
        final = self.fixed or self.changes >= CHANGES
        too_soon = k - self.last < self.wait or len(self.ratios) < WINDOW // 2
        if final or too_soon:
            return
        inverse_curvature = float(np.exp(np.mean(np.log(self.ratios[-WINDOW:]))))
        correction = 1.0
        if disagreement > 0:
            correction = float(np.clip(np.sqrt(distance / disagreement / inverse_curvature), 1 / TRUST, TRUST))
        factor = float(np.clip(inverse_curvature * correction / self.value, 1 / LEAP, LEAP))
        if 1 / BAND < factor < BAND:
            return
        self.last = k
        self.wait = int(WAIT * self.wait) + 1
        self.changes += 1
        self.ratios = []
        self.value *= factor


#: On functions that are not convex, gamma is at most this part of 1 / L ...
SAFE = 0.5
#: ... where L is the largest curvature seen along moves, of which a round without it forgets this little.
FORGET = 0.98
#: It grows by this factor ...
GROW = 1.5
#: ... after so many rounds in a row in which the merit fell and the curvature allowed it,
CALM = 5
#: and is divided by this where the merit rose, or a subproblem could not be solved.
SHRINK = 4.0


@dataclass
class CarefulGamma(Gamma):
    """Keeps gamma below 1 / L where functions are not convex, as the theory of FedDR asks (Tran-Dinh et al. 2021).

    Below it the subproblems are strongly convex, and the Douglas-Rachford envelope falls. L is not known: it is the
    largest |change of F| / |change of x| of the last rounds, over all owners together. The objective at p, the envelope
    up to a term that vanishes at stationary points, is the merit that tells where this was too little.
    """

    steepest: float = 0.0
    merit: float = np.inf
    calm: int = 0

    def follow(self, k: int, moved: float, turned: float, disagreement: float, distance: float) -> None:
        self.steepest *= FORGET
        if moved > 0:
            self.steepest = max(self.steepest, float(np.sqrt(turned / moved)))
        limit = SAFE / max(self.steepest, np.finfo(float).tiny)
        if self.value > limit:
            self.value = limit
            self.calm = 0
        elif self.calm >= CALM:
            self.value = min(GROW * self.value, limit)
            self.calm = 0

    def weigh(self, merit: float) -> None:
        """Note the merit at the p of this round."""
        self.calm += 1
        if merit > self.merit:
            self.shrink()
        self.merit = merit

    def shrink(self) -> None:
        self.value /= SHRINK
        self.calm = 0


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
#: Refinement requests in one round after which the method gives up.
MOST_REFINEMENTS = 40
#: A request helps when it leaves less than this part of the error ...
HELPS = 0.9
#: ... and after so many in a row that do not help it is given up too.
USELESS = 10

#: The gap relative to |F| that an owner leaves where rounds are accelerated: the extrapolation amplifies errors.
PRECISE = 1e-3

POLICIES = ("adaptive", "repeat", "total", "double")


@dataclass
class Work:
    """How much the owners do in a round, before and after the test asks them to refine.

    policy:  "adaptive", each owner for itself: it stops when its gap is at most a part of what the test allows all of
             them together, going by the round before. The part grows while the test is passed at once and shrinks when
             it is not. Those of the paper, the same for all: "repeat" (always tau), "total" (tau times the number of
             all refinements so far), "double" (twice as much after every refinement)
    tau:     steps of a round before refinement
    error:   sigma
    largest: max(xi, zeta) as last measured
    refined: requests to refine in this round; useless: of no help, in a row; least: the error so far
    precise: are rounds accelerated?
    """

    policy: str
    tau: int
    holders: int
    error: float
    largest: float = 0.0
    part: float = PART
    steps: int = 0
    total: int = 0
    refined: int = 0
    useless: int = 0
    least: float = np.inf
    precise: bool = False

    @property
    def stuck(self) -> bool:
        return self.refined >= MOST_REFINEMENTS or self.useless >= USELESS

    @property
    def target(self) -> float:
        """The gap at which an owner may stop."""
        if self.policy != "adaptive":
            return 0.0
        relative = self.error * np.sqrt(self.part)
        if self.precise:
            relative = min(relative, PRECISE)
        return float(relative * np.sqrt(self.largest / self.holders))

    def start(self) -> int:
        """Begin a round; its steps."""
        self.refined = 0
        self.useless = 0
        self.least = np.inf
        if self.policy == "total":
            return min(self.tau * max(self.total, 1), MOST_STEPS)
        if self.policy == "double":
            self.steps = self.steps or self.tau
            return self.steps
        return self.tau

    def refine(self) -> int:
        """Begin a refinement; its steps."""
        self.refined += 1
        self.total += 1
        self.part = max(self.part / LESS, LEAST)
        if self.policy != "double":
            return self.tau
        self.steps = min(2 * self.steps, MOST_STEPS)
        return max(self.steps // 2, 1)

    def weigh(self, error: float, largest: float) -> None:
        """Note what the work of an exchange brought: the error it left, and max(xi, zeta)."""
        self.largest = largest
        if error < HELPS * self.least:
            self.useless = 0
        else:
            self.useless += 1
        self.least = min(self.least, error)

    def accept(self) -> None:
        """The round passed the test."""
        if not self.refined:
            self.part = min(self.part * MORE, float(self.holders))


# -------------------------------------------------------------------------------------------------------------- judging

#: p is judged when its certificate is expected within this factor of the tolerance.
NEAR = 10.0


@dataclass
class Judging:
    """When owners are asked to judge p, which costs a gradient there: where it may be solved, and now and then.

    always:    in every round, because that gradient is evaluated anyway, or is one of many
    tolerance: of the stationarity
    expected:  stationarity of p over |G| = sqrt(xi / N) / gamma, as last judged
    near:      is the certificate expected to be met soon?
    """

    always: bool
    tolerance: float
    judged_at: int = 0
    expected: float = np.inf
    near: bool = False

    def wants(self, k: int) -> bool:
        """Whether the round after round k judges the p it begins with."""
        return self.always or self.near or k - self.judged_at >= AT_LEAST

    def follow(self, k: int, norm: float, stationarity: float | None) -> None:
        """Note |G| of round k, and the stationarity of its p where that was judged."""
        if stationarity is not None:
            self.judged_at = k
            self.expected = stationarity / max(norm, np.finfo(float).tiny)
        self.near = norm * self.expected <= NEAR * self.tolerance


# -------------------------------------------------------------------------------------------------------------- no zero

#: How far the iterates must have gone, relative to the start, before a zero is given up.
REACH = 100.0

#: How much farther out than the iterates an operator is looked at for a proof that it has no zero,
FARTHER = 1e12
#: and the part of its size there with which it must point back along the way.
BACK = 0.1
#: Entries of the way below this part of the largest are rounding of what has converged.
STILL = 1e-9

NO_ZERO = (
    "the iterates leave and come no nearer to a zero: the operators have none in common closer than {:.3g}, by their "
    "images far out; bound w, for example with fp.prox.Box"
)
PERHAPS = (
    "the iterates leave and come no nearer to a zero: the operators may have none in common, or only one farther away "
    "than {:.3g}; bound w, for example with fp.prox.Box, or scale it"
)


def look_for_no_zero(run: Run, w: Vector, distance: float) -> Verdict:
    """One exchange: is it proved that monotone operators have no common zero?

    At x = w + t z the sum F has <F(x), x - u> >= 0 for each of its zeros u, so that |w - u| is at least
    t <F(x), -z> / |F(x)|. A zero that is as far away as doubles reach is none.
    """
    way = run.way(w)
    largest = float(np.max(np.abs(way), initial=0.0))
    if largest > 0 and run.rounds_left > 1 and isinstance(run.problem.regularizer, Zero):
        z = np.where(np.abs(way) > STILL * largest, way, 0.0)
        z = z / np.linalg.norm(z)
        far = FARTHER * (1 + float(np.max(np.abs(w))))
        replies = run.ask(judge, At(w=w + far * z))
        image = replies.total.gradient
        if run.problem.server.objective is not None:
            image = image + run.problem.server.objective.gradient(w + far * z)
        if np.all(np.isfinite(image)) and -float(image @ z) >= BACK * float(np.linalg.norm(image)) > 0:
            return Verdict("infeasible", NO_ZERO.format(BACK * far))
    return Verdict("stalled", PERHAPS.format(distance))


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
