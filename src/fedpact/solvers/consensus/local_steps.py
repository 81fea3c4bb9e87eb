"""What the methods that average their owners' local work have in common: the local steps, who takes part, how it ends.

FedAvg, FedProx and SCAFFOLD take y <- y - step * slope(y) from the server's w, and differ in the slope. FedDR takes
steps of another kind; it uses `Course` only. As in "ifeddr", F_i = N grad f_i, because the papers minimise means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from fedpact.errors import OptionError
from fedpact.federation import Answers, Order, Reply, Summed, client_step
from fedpact.functions import Function, Vector
from fedpact.problem import Certificate, FederatedProblem, Share
from fedpact.prox import Prox, Zero
from fedpact.solvers.endings import SOLVED, UNBOUNDED, Asking, Lowest, Verdict, escapes, far_point, out_of_rounds
from fedpact.solvers.judging import Judged, at, certificate_of, judge
from fedpact.solvers.local.resolvent import estimated_lipschitz
from fedpact.solvers.run import Run
from fedpact.solvers.scales import look
from fedpact.solvers.solution import LocalRecord, Solution

#: The certificate is asked for at least every so many rounds.
AT_LEAST = 5
#: Rounds in which the certificate does not fall by a tenth before a far point is looked at, and before giving up.
PATIENCE, STAGNATION = 300, 3000
#: A method has arrived when w moves by less than this, relatively, in so many rounds one after the other.
STILL, LONG = 1e-13, 20
#: How far local steps may lead, relative to where they start, and w relative to w0, before they count as diverging.
FAR = 1e12
#: Exchanges kept back for the end.
RESERVE = 3

DIVERGED = (
    "the steps of {} lead away without end: they are too long for this problem; give a smaller step_size or gamma"
)
NO_PROGRESS = "no progress; check that gradients belong to their functions, and scale the columns"

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True)
class Member:
    """index: the owner's number, from 1 (0: not needed); lipschitz: of F_i, with the owner's part of h."""

    index: int
    lipschitz: float


@dataclass(frozen=True, kw_only=True)
class Join(Order):
    w: Vector
    index: int
    holders: int
    ridge: Vector
    minibatches: bool


@dataclass(frozen=True, kw_only=True)
class Joined(Reply):
    lipschitz: float


@dataclass(frozen=True, kw_only=True)
class LocalSteps(Order):
    """Take local steps from w.

    iteration, seed: what minibatches are drawn with, besides the owner's number
    step_size:       0: step_factor / L_i, by the owner's own L_i
    ridge:           curvature of a quadratic h, of which every owner takes its part; empty: none
    """

    w: Vector
    iteration: int
    seed: int
    holders: int
    steps: int
    step_size: float
    step_factor: float
    batch_size: int  # 0: all rows
    ridge: Vector
    judge: bool


@dataclass(frozen=True, kw_only=True)
class Worked(Judged):
    """Judged at the w of the order, when asked.

    lost:     is f_i or its gradient infinite at w?
    diverged: have the steps run away?
    """

    gradients: int
    lost: bool = False
    diverged: bool = False


@dataclass(frozen=True, kw_only=True)
class Moved(Worked):
    moved: Summed[Vector]  # y - w after the last step
    step: Summed[float]


@client_step
def join(share: Share, state: Any, order: Join) -> tuple[Member, Joined]:
    """The owner learns its number, and says how long its steps may be."""
    function = share.objective
    assert function is not None
    if order.minibatches and function.rows == 0:
        raise OptionError(f"batch_size needs rows to draw from, and {function!r} is no mean over rows; leave it out")
    lipschitz = estimated_lipschitz(function, order.holders, order.w) + float(np.max(order.ridge, initial=0.0))
    return Member(order.index, lipschitz), Joined(lipschitz=lipschitz)


class Slope:
    """F_i + its part of grad h, at every call over a fresh minibatch where those are asked for; counts the calls."""

    def __init__(self, share: Share, member: Member, order: LocalSteps) -> None:
        assert share.objective is not None
        self._function, self._order = share.objective, order
        self._rng = np.random.default_rng([order.seed, order.iteration, member.index])
        self._size = min(order.batch_size, self._function.rows)
        self._known: Vector | None = None
        self.judged: tuple[float, Vector] | None = None
        self.gradients = 0
        if order.judge:
            self.gradients += 1
            self.judged = judged_at(self._function, order.w)
            if self.judged is not None and not self._size:
                self._known = self.judged[1]  # the first step is taken from w

    @property
    def lost(self) -> bool:
        return self._order.judge and self.judged is None

    def __call__(self, y: Vector) -> Vector:
        gradient, self._known = self._known, None
        if gradient is None:
            self.gradients += 1
            function = self._function
            if self._size:
                function = function.batch(self._rng.choice(function.rows, self._size, replace=False))
            gradient = function.gradient(y)
        image = self._order.holders * gradient
        return image + self._order.ridge * y if self._order.ridge.size else image


def local_step(member: Member, order: LocalSteps, more: float = 0.0) -> float:
    """The step size at this owner; `more` is what the method adds to the curvature of F_i."""
    return order.step_size or order.step_factor / (member.lipschitz + more)


def descended(order: LocalSteps, step: float, slope: Callable[[Vector], Vector]) -> Vector:
    """order.steps times y <- y - step * slope(y), from w; stops where it has run away."""
    y = order.w
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(order.steps):
            y = y - step * slope(y)
            if away(y, order.w):
                break
    return y


def moved_to(y: Vector, order: LocalSteps, step: float, slope: Slope) -> Moved:
    diverged = away(y, order.w)
    return Moved(
        **judged_fields(order.judge, slope.judged, order.w.size),
        gradients=slope.gradients,
        lost=slope.lost,
        diverged=diverged,
        moved=np.zeros(y.size) if diverged else y - order.w,
        step=step,
    )


def away(y: Vector, w: Vector) -> bool:
    """Is y infinitely far from w, for all practical purposes?"""
    return not np.max(np.abs(y), initial=0.0) <= FAR * (1 + float(np.max(np.abs(w), initial=0.0)))


def judged_at(function: Function, w: Vector) -> tuple[float, Vector] | None:
    """Value and gradient; None where they are not finite, as they may be after steps that are too long."""
    with np.errstate(over="ignore", invalid="ignore"):
        value, gradient = function.value_and_gradient(w)
    return (value, gradient) if np.isfinite(value) and np.all(np.isfinite(gradient)) else None


def judged_fields(asked: bool, judged: tuple[float, Vector] | None, dim: int) -> dict[str, Any]:
    """The fields of `Judged` for an owner without constraints."""
    value, gradient = judged or (0.0, np.zeros(dim if asked else 0))
    return {"objective": value, "gradient": gradient, "feasibility": 0.0, "violation": 0.0, "coupled": np.zeros(0)}


# --------------------------------------------------------------------------------------------------- the server's half


def check_options(run: Run, participation: float, **whole: float | None) -> None:
    """OptionError for what `fp.solve` cannot know; `whole` are options that are whole numbers."""
    if participation > 1:
        raise OptionError(f"participation = {participation!r}: give the share of the owners that a round asks, up to 1")
    if not isinstance(run.seed, int | np.integer) or run.seed < 0:
        raise OptionError(f"seed = {run.seed!r}: give a whole number of at least 0")
    for name, value in whole.items():
        if value is not None and (value != int(value) or value < 1):
            raise OptionError(f"{name} = {value!r}: give a whole number of at least 1")


def check_problem(run: Run, regularizer: str = "") -> None:
    """OptionError where there is more than objectives of owners; `regularizer`: why only a quadratic h is taken."""
    problem = run.problem
    for holder in (*problem.shares, problem.server):  # a coupled constraint shows at both; name the owner
        if holder.constraint is not None or (holder is problem.server and holder.parts):
            raise OptionError(
                f'{holder.label}: method="{run.method}" takes objectives of owners and a regularizer only'
            )
    if regularizer and problem.regularizer.curvature is None:
        raise OptionError(
            f'method="{run.method}" takes no {problem.regularizer!r}: {regularizer}; use "feddr" or "ifeddr"'
        )


def split(problem: FederatedProblem) -> tuple[Vector, Prox]:
    """h as a quadratic of which every owner takes its part (its curvature), or as the server's own.

    The papers have no h. A quadratic one in parts at the owners is what their experiments do.
    """
    curvature = problem.regularizer.curvature
    if curvature is None:
        return np.zeros(0), problem.regularizer
    return (np.atleast_1d(np.asarray(curvature, dtype=np.float64)) if np.any(curvature) else np.zeros(0)), Zero()


@dataclass
class Steps:
    """The local steps that an order asks for, as the options say; for FedAvg, FedProx and SCAFFOLD.

    server_h: h, where it is the server's own
    """

    run: Run
    participation: float
    steps: int
    step_size: float | None
    step_factor: float
    step_rule: str
    batch_size: int | None
    more: float = 0.0  # curvature that the method adds to F_i
    ridge: Vector = field(init=False)
    server_h: Prox = field(init=False)

    def __post_init__(self) -> None:
        if self.step_rule not in ("common", "own"):
            raise OptionError(f"step_rule = {self.step_rule!r}: choose common, own")
        self.ridge, self.server_h = split(self.run.problem)

    def joined(self) -> None:
        """One exchange: every owner says how long its steps may be, and gets the number it draws minibatches with."""
        fleet, holders = self.run.fleet, len(self.run.fleet.owners)
        draws = self.batch_size is not None
        order = Join(w=self.run.w0, index=0, holders=holders, ridge=self.ridge, minibatches=draws)
        # a number for each is an order for each, which secure sums forbid: only where it is needed
        each = [replace(order, index=i) for i in range(1, holders + 1)]
        replies = fleet.ask(join, each if draws else order)
        if self.step_size is None and self.step_rule == "common":
            self.step_size = self.step_factor / (max(r.lipschitz for r in replies) + self.more)
        if self.step_size is not None:
            self.run.history.notes.append(f"local steps of length {self.step_size:.3g}")

    def order(self, k: int, w: Vector, judging: bool) -> dict[str, Any]:
        """The fields of `LocalSteps`."""
        return {
            "w": w,
            "iteration": k,
            "seed": int(self.run.seed),
            "holders": len(self.run.fleet.owners),
            "steps": int(self.steps),
            "step_size": self.step_size or 0.0,
            "step_factor": self.step_factor,
            "batch_size": int(self.batch_size or 0),
            "ridge": self.ridge,
            "judge": judging,
        }

    def course(self, excuse: str) -> Course:
        full = self.batch_size is None
        return Course(self.run, participation=self.participation, free=full, steady=full, excuse=excuse)

    def bias(self, excuse: str) -> str:
        """The excuse of a method without corrections: it names what keeps it from the optimum; empty: nothing does."""
        causes = {
            f"{self.steps} local steps": self.steps > 1,
            "unequal step sizes": self.step_size is None,
            "another sample of the owners every round": self.participation < 1,
            "minibatches under a fixed step size": self.batch_size is not None,
        }
        found = [cause for cause, there in causes.items() if there]
        return excuse.format(" and ".join(found)) if found else ""


W = TypeVar("W", bound=Worked)


class Course:
    """One run: who is asked in a round, which points are judged, what is written down, and how it ends.

    participation: share of the owners asked in a round, a fresh sample of this size every time
    free:          do all owners evaluate their gradient at w anyway? Then every w is judged, else every AT_LEAST rounds
    steady:        is a round the same map every time? Then the method has arrived where w no longer moves
    excuse:        why it may stop elsewhere than at the optimum; empty when it should not
    look:          how a point is judged when a round does not ask everyone; by default one exchange
    """

    def __init__(
        self,
        run: Run,
        *,
        participation: float = 1.0,
        free: bool = True,
        steady: bool = True,
        excuse: str = "",
        look: Callable[[Vector], Answers[Any]] | None = None,
    ) -> None:
        self.run, self.best = run, run.new_best()
        self.end: Verdict | None = None
        self._count = max(1, round(participation * len(run.fleet.owners)))
        self._everyone = self._count == len(run.fleet.owners)
        self._free, self._steady, self._excuse = free and self._everyone, steady and self._everyone, excuse
        self._look = look or self._judge
        self._lowest, self._judged_at, self._spent, self._still = Lowest(0.9), 0, 0, 0

    def _judge(self, w: Vector) -> Answers[Judged]:
        return self.run.fleet.ask(judge, at(self.run.problem, w))

    def rounds(self) -> Iterator[int]:
        """The numbers of the rounds, until it is over."""
        k = 0
        while self.end is None and self.run.rounds_left > RESERVE:
            k += 1
            yield k

    def asked(self, k: int) -> tuple[str, ...]:
        """The owners of round k, drawn with the seed of the run: `participation` of them, one at least."""
        owners = self.run.fleet.owners
        if self._everyone:
            return owners
        # numpy pads seeds with zeros, and owners count from 1, so no owner draws its minibatches from this stream
        chosen = np.random.default_rng([self.run.seed, k]).choice(len(owners), self._count, replace=False)
        return tuple(owners[i] for i in sorted(chosen))

    def judging(self, k: int) -> bool:
        """Shall the owners judge the w that round k begins with?"""
        return self._everyone and (self._free or self._due(k))

    def _due(self, k: int) -> bool:
        return k == 1 or k - self._judged_at >= AT_LEAST

    def follow(
        self,
        k: int,
        asked: Sequence[str],
        w: Vector,
        following: Vector,
        replies: Answers[W],
        step: float,
        *,
        moved: float | None = None,
        alpha: float = 1.0,
        refinements: Sequence[Answers[W]] = (),
    ) -> None:
        """Write down round k, which began with w and gave `following`, and see whether it is the last.

        moved:       how far, by default from w to `following`; where owners remember more than w, that counts
        refinements: what everybody answered to requests for more
        """
        run, none = self.run, np.zeros(0)
        by_owner = dict.fromkeys(run.fleet.owners, 0)
        for who, answers in ((asked, replies), *((run.fleet.owners, more) for more in refinements)):
            for owner, reply in zip(who, answers, strict=True):
                by_owner[owner] += reply.gradients
        self._spent += sum(by_owner.values())
        residual, judged = np.nan, None
        gone = [owner for owner, r in zip(asked, replies, strict=True) if r.lost or r.diverged]
        if any(r.lost for r in replies):
            self.end = Verdict("stalled", DIVERGED.format(", ".join(gone)))
        elif self.judging(k):
            judged = (w, certificate_of(run.problem, w, none, replies), replies.total.gradient)
        elif self._due(k) and not self._everyone:
            if k == 1:  # nobody could have judged the start in this round
                point, seen = w, self._judge(w)
            else:
                point, seen = following, self._look(following)
            judged = (point, certificate_of(run.problem, point, none, seen), seen.total.gradient)
        if judged is not None:
            point, (certificate, objective), gradient = judged
            residual = float(np.linalg.norm(point - run.problem.regularizer.prox(point - gradient, 1.0)))
            self._note(k, point, certificate, objective, step)
            self.end = self._verdict(k, point, certificate, objective) or self.end
        counts, rounds = tuple(by_owner.values()), run.fleet.ledger.rounds
        run.history.local.append(LocalRecord(k, rounds, len(refinements), counts, alpha, residual, step))
        run.report(k, len(refinements), self.best)
        if self.end is None:
            self.end = self._ran_away(following, gone)
        if self.end is None and self._steady:
            way = float(np.max(np.abs(following - w), initial=0.0)) if moved is None else moved
            self._still = self._still + 1 if way <= STILL * float(np.max(np.abs(w), initial=0.0)) else 0
            if self._still >= LONG:
                self.end = Verdict("stalled", f"it does not move any more; {self._excuse or NO_PROGRESS}")

    def solution(self, w: Vector) -> Solution:
        """The best certified point; w is the latest one."""
        run, none = self.run, np.zeros(0)
        end = self.end or out_of_rounds(run)
        if self.best.certificate is None or end.status == "max_rounds":  # the latest point has not been judged
            certificate, objective = certificate_of(run.problem, w, none, self._judge(w))
            self.best.offer(10**9, w, none, certificate, objective)
            if certificate.meets(run.tol):
                end = self._solved(w, certificate, objective)
            elif self._excuse and self.end is None:
                end = Verdict(end.status, f"{end.reason}; {self._excuse}")
        return self.best.solution(run, end.status, end.reason, [none for _ in run.problem.shares])

    def _note(self, k: int, w: Vector, certificate: Certificate, objective: float, step: float) -> None:
        self.best.offer(k, w, np.zeros(0), certificate, objective)
        self.run.record(
            k,
            certificate,
            objective,
            inner_rounds=k - self._judged_at,
            penalty=step,
            consensus_penalty=1 / step,
            gradients=self._spent,
            hessians=0,
        )
        self._judged_at, self._spent = k, 0

    def _verdict(self, k: int, w: Vector, certificate: Certificate, objective: float) -> Verdict | None:
        run = self.run
        if certificate.meets(run.tol):
            return self._solved(w, certificate, objective)
        self._lowest.see(k, certificate.stationarity)
        idle = self._lowest.idle(k)
        if idle and idle % PATIENCE == 0 and np.any(w != run.w0) and self._escapes(w, certificate, objective):
            return Verdict("unbounded", UNBOUNDED)
        if idle >= STAGNATION:
            return Verdict("stalled", self._excuse or NO_PROGRESS)
        return None

    def _solved(self, w: Vector, certificate: Certificate, objective: float) -> Verdict:
        return Verdict("unbounded", UNBOUNDED) if self._escapes(w, certificate, objective) else SOLVED

    def _escapes(self, w: Vector, certificate: Certificate, objective: float) -> bool:
        run = self.run
        if run.problem.monotone:
            return False  # there is no objective
        return escapes(run, w, objective, certificate, Asking(run).probed(far_point(w, run.w0)))

    def _ran_away(self, w: Vector, diverged: list[str]) -> Verdict | None:
        if not diverged and away(w, self.run.w0):
            diverged = ["all owners together"]
        return Verdict("stalled", DIVERGED.format(", ".join(diverged))) if diverged else None


def first_gamma(run: Run) -> float:
    """The inverse of the mean curvature of an owner's F_i, from a first look at all shares: one exchange."""
    curvature = look(run.problem, run.fleet, run.w0).curvature
    return 1 / curvature if curvature > 0 else 1.0
