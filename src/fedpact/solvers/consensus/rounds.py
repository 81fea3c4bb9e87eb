"""What the server follows from round to round in methods that leave local work to the owners.

Who is asked, which points are judged, whether w still moves or runs away, and what is written down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedpact.federation import Answers
from fedpact.functions import Function
from fedpact.problem import Certificate, FederatedProblem, Share
from fedpact.prox import Prox, Zero
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.solution import LocalRecord
from fedpact.solvers.steps import At, Judged, certificate_of, judge, no_terms
from fedpact.types import Vector

#: The certificate is asked for at least every so many rounds.
AT_LEAST = 5
#: A method has arrived when w moves by less than STILL, relatively, in LONG rounds one after the other.
STILL = 1e-13
LONG = 20
#: What the option says.
PARTICIPATION = "share of the owners that a round asks, drawn anew for every round; certificates ask all of them"
#: Beyond this many times the size of where it started, a point counts as having run away.
FAR = 1e12

DIVERGED = (
    "the steps of {} lead away without end: they are too long for this problem; give a smaller step_size or gamma"
)
NO_PROGRESS = "check that gradients belong to their functions, and scale the columns"

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True, kw_only=True)
class Worked(Judged):
    """An owner's reply to a round, judged at the point that the order came with, when asked.

    gradients: how many it evaluated
    lost:      is f_i or its gradient infinite at that point?
    diverged:  have its steps run away?
    """

    gradients: int
    lost: bool = False
    diverged: bool = False


def objective_of(share: Share) -> Function:
    """The owner's f_i, which every owner of these methods has."""
    assert share.objective is not None
    return share.objective


def evaluate(function: Function, w: Vector) -> tuple[float, Vector] | None:
    """Value and gradient; None where they are not finite, as they may be after steps that are too long."""
    with np.errstate(over="ignore", invalid="ignore"):
        value, gradient = function.value_and_gradient(w)
    if np.isfinite(value) and np.all(np.isfinite(gradient)):
        return value, gradient
    return None


def terms_of(evaluated: tuple[float, Vector]) -> dict[str, Any]:
    """The fields of `Judged` of an owner without constraints, from its value and gradient."""
    value, gradient = evaluated
    return {**no_terms(), "objective": value, "gradient": gradient}


def terms_where_asked(asked: bool, evaluated: tuple[float, Vector] | None, dim: int) -> dict[str, Any]:
    """The same in a round that need not ask for them; zeros where f_i is not finite."""
    if not asked:
        return no_terms()
    return terms_of(evaluated or (0.0, np.zeros(dim)))


def add_ridge(image: Vector, ridge: Vector, w: Vector) -> Vector:
    """F_i(w) with the owner's part of a quadratic h; ridge: its curvature, empty for none."""
    if not ridge.size:
        return image
    return image + ridge * w


def has_run_away(w: Vector, start: Vector) -> bool:
    """Is w infinitely far from the start, for all practical purposes? Also where w is not a number."""
    return not np.max(np.abs(w), initial=0.0) <= FAR * (1 + float(np.max(np.abs(start), initial=0.0)))


# --------------------------------------------------------------------------------------------------- the server's half


def divide_regularizer(problem: FederatedProblem) -> tuple[Vector, Prox]:
    """h as a quadratic of which every owner takes its part (its curvature, or empty), and what is left to the server.

    The papers have no h. A quadratic one in parts at the owners is what their experiments do.
    """
    curvature = problem.regularizer.curvature
    if curvature is None:
        return np.zeros(0), problem.regularizer
    if not np.any(curvature):
        return np.zeros(0), Zero()
    return np.atleast_1d(np.asarray(curvature, dtype=np.float64)), Zero()


def sample_size(run: Run, participation: float) -> int:
    """How many owners a round asks: this share of them, one at least."""
    return max(1, round(participation * len(run.owners)))


def sample_owners(run: Run, participation: float, k: int) -> tuple[str, ...]:
    """The owners of round k, drawn with the seed of the run."""
    owners = run.owners
    size = sample_size(run, participation)
    if size == len(owners):
        return owners
    # numpy pads seeds with zeros, and owners count from 1, so no owner draws its minibatches from this stream
    chosen = np.random.default_rng([run.seed, k]).choice(len(owners), size, replace=False)
    return tuple(owners[i] for i in sorted(chosen))


W = TypeVar("W", bound=Worked)


@dataclass(frozen=True)
class Seen:
    """A judged point: its certificate and objective, and the natural residual |w - prox_h(w - sum_i grad f_i(w))|."""

    w: Vector
    judged: tuple[Certificate, float]
    residual: float


def see(run: Run, w: Vector, replies: Answers[Any]) -> Seen:
    """Assemble what all owners say about w; `replies` have the fields of `Judged`."""
    judged = certificate_of(run.problem, w, np.zeros(0), replies)
    mapped = run.problem.regularizer.prox(w - replies.total.gradient, 1.0)
    return Seen(w, judged, float(np.linalg.norm(w - mapped)))


@dataclass
class Rounds:
    """The rounds of one run.

    participation: share of the owners asked in a round, a fresh sample of this size every time
    free:          owners evaluate their gradient at the server's point anyway: it is judged in every round
    steady:        a round is the same map every time: the method has arrived where it no longer moves
    reserve:       exchanges kept back for the end; the round before them leaves its new point to the loop to judge
    asked:         the owners of this round
    judging:       whether this round asks all owners for certificate terms at the point it begins with
    """

    run: Run
    participation: float
    free: bool
    steady: bool
    reserve: int
    k: int = 0
    asked: tuple[str, ...] = ()
    judging: bool = False
    judged_at: int = 1  # the start was judged before the first round
    still: int = 0  # rounds in a row without a move

    def __post_init__(self) -> None:
        self.everyone = sample_size(self.run, self.participation) == len(self.run.owners)

    def next(self) -> tuple[str, ...]:
        """Begin another round. Returns the owners it asks."""
        self.k += 1
        news = self.still == 0  # else w is where it was when it was judged last
        wanted = self.everyone and news and (self.free or self._due)
        self.judging = wanted and self.run.rounds_left > self.reserve + 1
        self.asked = sample_owners(self.run, self.participation, self.k)
        return self.asked

    @property
    def _due(self) -> bool:
        return self.k - self.judged_at >= AT_LEAST

    def follow(
        self,
        w: Vector,
        following: Vector,
        replies: Answers[W],
        *,
        step: float,
        excuse: str,
        moved: float | None = None,
    ) -> Iterate:
        """The iterate of this round, which began with w and gave `following`.

        step:   of the method, for the record
        excuse: what may keep the method from the optimum; empty: nothing known
        moved:  how far; by default from w to `following`; where owners remember more than w, that counts
        """
        run = self.run
        by_owner = dict.fromkeys(run.owners, 0)
        for owner, reply in zip(self.asked, replies, strict=True):
            by_owner[owner] = reply.gradients
        if moved is None:
            moved = float(np.max(np.abs(following - w), initial=0.0))
        seen = self._look(w, following, replies)
        record = LocalRecord(
            iteration=self.k,
            rounds=run.rounds,
            refinements=0,
            gradients=tuple(by_owner.values()),
            alpha=1.0,
            residual=np.nan,
            gamma=step,
        )
        iterate = Iterate(
            number=self.k,
            w=following,
            penalty=step,
            consensus_penalty=1 / step,
            gradients=sum(by_owner.values()),
            record=record,
            end=self._check_divergence(following, replies) or self._check_standstill(w, moved, excuse),
        )
        if seen is None:
            return iterate
        self.judged_at = self.k
        return replace(iterate, w=seen.w, judged=seen.judged, record=replace(record, residual=seen.residual))

    def _look(self, w: Vector, following: Vector, replies: Answers[W]) -> Seen | None:
        """What the round tells about w; where it asked a sample only, now and then one exchange about `following`."""
        if any(reply.lost for reply in replies):
            return None
        if self.judging:
            return see(self.run, w, replies)
        if not self.everyone and self._due:
            return see(self.run, following, self.run.ask(judge, At(w=following)))
        return None

    def _check_divergence(self, following: Vector, replies: Answers[W]) -> Verdict | None:
        """Given up where steps of owners, or all of them together, have run away."""
        gone = [owner for owner, reply in zip(self.asked, replies, strict=True) if reply.lost or reply.diverged]
        if not gone and has_run_away(following, self.run.w0):
            gone = ["all owners together"]
        if not gone:
            return None
        return Verdict("stalled", DIVERGED.format(", ".join(gone)))

    def _check_standstill(self, w: Vector, moved: float, excuse: str) -> Verdict | None:
        """Given up where a round that is the same every time does not move any more."""
        if not self.steady or not self.everyone:
            return None
        if moved <= STILL * float(np.max(np.abs(w), initial=0.0)):
            self.still += 1
        else:
            self.still = 0
        if self.still < LONG:
            return None
        return Verdict("stalled", f"it does not move any more; {excuse or NO_PROGRESS}")
