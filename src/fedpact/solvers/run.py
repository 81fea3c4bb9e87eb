"""One solve under way: what every method is given, what its steps tell the loop, and the best certified point."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from fedpact.federation import Answers, Communication, Order, Reply, Session, add_up, named
from fedpact.problem import Certificate, FederatedProblem, Proof
from fedpact.problem.ray import recede
from fedpact.solvers.solution import History, InnerRecord, LocalRecord, OuterRecord, Solution, Status
from fedpact.types import Vector

R = TypeVar("R", bound=Reply)

#: While exchanges are left, `Certificate.average_miss` must come down to this part of the tolerance: the objective errs
#: by <mu, c(w)>, a sum over all holders of constraints whose terms have either sign, and users expect it to be as good
#: as the tolerance says. With 0.3 proximal-al misses that on a quadratic program of the paper. To ask it of every
#: single holder would cost exchanges that the sum does not need.
MARGIN = 0.2
#: Exchanges that must be left for a hand-over to be worth it.
HAND_OVER = 20

#: A record of the history lists the violations of at most so many holders, the largest: it must not grow with owners
#: times iterations. The certificate of the answer lists all.
LISTED = 1000

#: Added to the reason of a solved problem that is not known to be convex.
STATIONARY = ": the point is stationary and feasible, not known to be globally optimal (the problem may not be convex)"


@dataclass(frozen=True)
class Verdict:
    """How a solve ends and why; who conflicts when infeasible; the method that may go on from here, if any."""

    status: Status
    reason: str
    conflict: tuple[str, ...] = ()
    then: str = ""
    proof: Proof | None = None
    ray: Vector | None = None


SOLVED = Verdict("solved", "the certificate meets the tolerances")


@dataclass(frozen=True, kw_only=True)
class Iterate:
    """What one step of a method tells the loop.

    number:            of the iteration
    w:                 the point
    multiplier:        the server's, the coupled constraint's behind it where the method takes those as they are
    judged:            certificate and objective of the point, or None
    inner:             exchanges of an inner solver, or refinements, in this iteration so far
    penalty, consensus_penalty: as in `OuterRecord`
    gradients, hessians: evaluated by all owners in this step
    record:            for the history, besides the outer record that a judged point gets
    conflict, escape:  ask for evidence: the constraints seem to exclude each other, the objective to fall forever
    end:               no further step would help, and why
    """

    number: int
    w: Vector
    multiplier: Vector = field(default_factory=lambda: np.zeros(0))
    judged: tuple[Certificate, float] | None = None
    inner: int = 0
    penalty: float = 0.0
    consensus_penalty: float = 0.0
    gradients: int = 0
    hessians: int = 0
    record: InnerRecord | LocalRecord | None = None
    conflict: bool = False
    escape: bool = False
    end: Verdict | None = None


@dataclass(frozen=True)
class Progress:
    """Where a solve is; handed to every callback after every step. A callback that returns True stops the solve.

    stationarity, feasibility, objective: of the best certified point so far
    w:      the current point, in the user's variables (parties that hold columns keep theirs: then it is empty)
    choice: why "auto" took this method
    """

    method: str
    iteration: int
    inner: int
    rounds: int
    bytes: int
    stationarity: float
    feasibility: float
    objective: float
    choice: str = ""
    w: Vector = field(default_factory=lambda: np.zeros(0))


class Stop(Exception):
    """A callback asked to stop."""


@dataclass
class Best:
    """The best certified point so far: the one with the smallest ratio of certificate to tolerance.

    latest_only: parties that hold columns cannot go back, so theirs is the latest one
    feasible_first: what is violated beyond the tolerance counts before the rest; any point is better than the start
    by_objective: of points that miss the tolerances the one with the lowest objective is best: where the problem is not
        convex, the untrained start may be nearer to stationary than all that follows
    """

    tol: tuple[float, float]
    latest_only: bool = False
    feasible_first: bool = False
    by_objective: bool = False
    iteration: int = -1
    certificate: Certificate | None = None
    objective: float = np.nan
    w: Vector = field(default_factory=lambda: np.zeros(0))
    multiplier: Vector = field(default_factory=lambda: np.zeros(0))

    def offer(self, iterate: Iterate) -> None:
        """Take a judged iterate if it is at least as good."""
        assert iterate.judged is not None
        certificate, objective = iterate.judged
        first = self.certificate is None or self.latest_only
        rank = self._rank(iterate.number, certificate, objective)
        if first or rank <= self._rank(self.iteration, self.judged, self.objective):
            self.iteration = iterate.number
            self.w = iterate.w
            self.multiplier = iterate.multiplier
            self.certificate = certificate
            self.objective = objective

    def _rank(self, iteration: int, certificate: Certificate, objective: float) -> tuple[float, ...]:
        """The lower, the better."""
        last: tuple[float, ...] = (certificate.missed(self.tol),)
        if self.by_objective:
            last = (not certificate.meets(self.tol), objective)
        if not self.feasible_first:
            return last
        return iteration == 0, max(certificate.violation - self.tol[1], 0.0), *last

    @property
    def judged(self) -> Certificate:
        """The certificate, once a point was offered."""
        assert self.certificate is not None
        return self.certificate

    @property
    def residuals(self) -> tuple[float, float]:
        """(stationarity, feasibility); infinite before a point was offered."""
        if self.certificate is None:
            return np.inf, np.inf
        return self.certificate.stationarity, self.certificate.feasibility


@dataclass(frozen=True)
class Given:
    """Multipliers to start from: of the server, the owners in order, and the coupled constraint."""

    server: Vector
    owners: tuple[Vector, ...]
    coupled: Vector


@dataclass(frozen=True)
class Rescue:
    """What became of a stalled solve: a proof that constraints conflict, a ray without end, or an answer.

    ray:         a direction that all constraints admit and along which the objective falls
    answer:      of a solve from another start, which may have ended early
    interrupted: by a user, or a callback
    """

    conflict: tuple[str, ...] = ()
    proof: Proof | None = None
    ray: Vector | None = None
    answer: Solution | None = None
    interrupted: bool = False


@dataclass
class Run:
    """One solve.

    problem: without coupled constraints, unless the method takes them as they are
    begun:   what had passed in the session before this solve
    start:   inside dom(h); after a hand-over the best point of the method before
    first:   number of this method's first iteration; methods before it had the smaller ones
    warm:    iteration whose prices the owners start with; -1: zero
    """

    problem: FederatedProblem
    session: Session
    begun: Communication
    method: str
    start: Vector
    tol: tuple[float, float]
    max_rounds: int
    seed: int = 0
    listeners: Sequence[Callable[[Progress], Any]] = ()
    choice: str = ""  # why "auto" took this method
    fallback: bool | str = True  # whether the method that this one names may go on; a name: that one, and no other
    given: Given | None = None  # multipliers that the first method starts from
    rescue: Callable[[Vector], Rescue] | None = None  # asked once, when interior-point stalls
    aside: Communication | None = None  # what a rescue took, in sessions of its own
    elsewhere: Solution | None = None  # what a rescue found
    balanced: tuple[Vector, Vector] | None = None  # of a proof of conflict: w, and the server's and coupled weights
    contradiction: tuple[tuple[str, ...], Proof] | None = None  # known before the first exchange, and who holds it
    history: History = field(default_factory=History)
    first: int = 0
    warm: int = -1
    best: Best = field(init=False)
    started: Iterate | None = None  # the start, as the first method judged it
    latest: int = -1  # number of the latest iterate
    passed: list[tuple[int, Vector]] = field(default_factory=list)  # points on the way, a fifth of it apart
    halted: bool = False  # by a user or a callback
    _judged_at: int = 0
    _gradients: int = 0
    _hessians: int = 0

    def __post_init__(self) -> None:
        self.best = Best(self.tol)
        self.w0 = self.start

    def ask(
        self,
        step: Callable[[Any, Any, Any], tuple[Any, R]],
        order: Order | Sequence[Order],
        owners: Sequence[str] | None = None,
    ) -> Answers[R]:
        """One exchange with the owners; the only way for a method to reach them."""
        return self.session.ask(step, order, owners)

    @property
    def owners(self) -> tuple[str, ...]:
        return self.session.owners

    @property
    def rounds(self) -> int:
        """Exchanges of this solve so far, a rescue included."""
        aside = 0 if self.aside is None else self.aside.rounds
        return self.session.ledger.rounds - self.begun.rounds + aside

    @property
    def bytes(self) -> int:
        aside = 0 if self.aside is None else self.aside.bytes
        return self.session.ledger.bytes - self.begun.bytes + aside

    @property
    def rounds_left(self) -> int:
        return self.max_rounds - self.rounds

    @property
    def communication(self) -> Communication:
        """All that passed in this solve, a rescue included."""
        passed = self.session.ledger.read(since=self.begun)
        if self.aside is None:
            return passed
        return passed + self.aside

    def accepts(self, certificate: Certificate) -> bool:
        """Whether a certificate ends the solve: it meets the tolerances, and over all holders together the margin."""
        missed = certificate.average_miss
        if missed is None:
            missed = certificate.feasibility
        return certificate.meets(self.tol) and missed <= MARGIN * self.tol[1]

    def way(self, w: Vector | None = None) -> Vector:
        """The change of w in the last iterations before the best one (or this latest one); zero where there were none.

        Private variables are known from their start only, so w then counts as at rest while they go on.
        """
        number = self.best.iteration if w is None else self.latest
        end = self.best.w if w is None else w
        before = [point for when, point in self.passed if when < number and point.size == end.size]
        if not before or self.problem.private:
            return np.zeros_like(end)
        return recede(self.problem.regularizer, end, end - before[-1])

    def note(self, text: str) -> None:
        """A choice made on the way, for the history."""
        self.history.notes.append(text)

    def follow(self, iterate: Iterate) -> None:
        """Write an iterate down, remember it if it is the best, and tell the callbacks, who may say Stop."""
        self.latest = iterate.number
        if not self.passed or iterate.number > 1.25 * self.passed[-1][0]:
            self.passed.append((iterate.number, iterate.w))
        self._gradients += iterate.gradients
        self._hessians += iterate.hessians
        if isinstance(iterate.record, InnerRecord):
            self.history.inner.append(iterate.record)
        elif iterate.record is not None:
            self.history.local.append(iterate.record)
        if iterate.judged is not None:
            self.best.offer(iterate)
            self._record(iterate, *iterate.judged)
        self._report(iterate)

    def _record(self, iterate: Iterate, certificate: Certificate, objective: float) -> None:
        """Write a judged iterate into the history, with what was evaluated since the last one."""
        self.history.outer.append(
            OuterRecord(
                iteration=iterate.number,
                objective=objective,
                stationarity=certificate.stationarity,
                feasibility=certificate.feasibility,
                violations=_largest(certificate.violations, LISTED),
                inner_rounds=max(iterate.number - self._judged_at, iterate.inner),
                rounds=self.rounds,
                bytes=self.bytes,
                penalty=iterate.penalty,
                consensus_penalty=iterate.consensus_penalty,
                gradients=self._gradients,
                hessians=self._hessians,
            )
        )
        self._judged_at = iterate.number
        self._gradients = 0
        self._hessians = 0

    def _report(self, iterate: Iterate) -> None:
        """Tell the callbacks of an iterate."""
        if not self.listeners:
            return
        stationarity, feasibility = self.best.residuals
        self._tell(
            Progress(
                method=self.method,
                iteration=iterate.number,
                inner=iterate.inner,
                rounds=self.rounds,
                bytes=self.bytes,
                stationarity=stationarity,
                feasibility=feasibility,
                objective=self.best.objective,
                choice=self.choice,
                w=self.problem.own(iterate.w, iterate.multiplier)[1],
            )
        )

    def report_aside(self, progress: Progress, first: int, before: Communication) -> None:
        """Tell the callbacks of a step of a rescue, whose iterations begin at `first`, after what had passed before."""
        self.latest = first + progress.iteration
        w = self.start
        if self.best.certificate is not None:
            w = self.problem.own(self.best.w, self.best.multiplier)[1]
        stationarity, feasibility = self.best.residuals
        self._tell(
            replace(
                progress,
                iteration=self.latest,
                rounds=before.rounds + progress.rounds,
                bytes=before.bytes + progress.bytes,
                stationarity=stationarity,
                feasibility=feasibility,
                objective=self.best.objective,
                choice=self.choice,
                w=w,
            )
        )

    def _tell(self, progress: Progress) -> None:
        """Call every callback; raise Stop when one of them returns True."""
        answers = [listener(progress) for listener in self.listeners]
        if any(answer is True for answer in answers):
            raise Stop

    def solution(
        self,
        verdict: Verdict,
        certificate: Certificate,
        objective: float,
        prices: list[Vector],
        w: Vector,
        multiplier: Vector,
    ) -> Solution:
        """The answer in the user's variables; `prices` are the owners', in owner order and in those variables."""
        reason = verdict.reason
        if verdict.status == "solved" and not self.problem.convex:
            reason += STATIONARY
        _, user_w, server_price, coupled = self.problem.own(w, multiplier)
        ray = None if verdict.ray is None else self.problem.own(verdict.ray, multiplier)[1]
        return Solution(
            w=user_w,
            multipliers=[server_price, *prices],
            coupled_multiplier=coupled,
            status=verdict.status,
            reason=reason,
            certificate=certificate,
            objective=objective,
            tol=self.tol,
            method=self.method,
            history=self.history,
            communication=self.communication,
            conflict=verdict.conflict,
            proof=verdict.proof,
            ray=ray,
            convex=self.problem.convex,
        )


def _largest(violations: dict[str, float], most: int) -> dict[str, float]:
    """The largest so many of them, in their order; all where there are no more."""
    if len(violations) <= most:
        return violations
    kept = set(heapq.nlargest(most, violations, key=violations.__getitem__))
    return {name: value for name, value in violations.items() if name in kept}


@dataclass
class PooledRun(Run):
    """A run whose shares are all in this process: steps are plain calls, and no message is exchanged."""

    states: dict[str, Any] = field(default_factory=dict)

    def ask(
        self,
        step: Callable[[Any, Any, Any], tuple[Any, R]],
        order: Order | Sequence[Order],
        owners: Sequence[str] | None = None,
    ) -> Answers[R]:
        replies = []
        for share in self.problem.shares:
            with named(share.label, step.__name__):
                self.states[share.label], reply = step(share, self.states.get(share.label), order)
            replies.append(reply)
        return add_up(replies)
