"""The one loop: runs any solver to its end, and certifies at the door.

    the start, then steps, until        the certificate is met (with a margin), evidence says that it cannot be,
                                        nothing improves any more, the exchanges are spent, or somebody stops it;
    then the fallback, if one is named, from the best point and prices;
    then one last exchange:             the owners' prices, and the certificate of exactly the pair that is returned.

`solved` is given here and nowhere else, by that last certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpact.errors import OUT_OF_RANGE, FedpactError, OwnerError, OwnerLost
from fedpact.federation import NotFinite
from fedpact.federation.messages import copy_with
from fedpact.problem import Certificate
from fedpact.problem.ray import NEARLY
from fedpact.solvers.base import Solver
from fedpact.solvers.evidence import ASTRAY, UNBOUNDED, find_ray, infeasible
from fedpact.solvers.run import HAND_OVER, SOLVED, Best, Iterate, Run, Stop, Verdict
from fedpact.solvers.solution import Solution
from fedpact.solvers.steps import equip_all, judge_point
from fedpact.types import Vector

#: Where nothing improves any more and the method knows no better reason.
HINT = "is the problem well scaled?"
#: How a solve ends that no other method need go on with.
DECIDED = ("solved", "infeasible", "unbounded")


@dataclass
class Course:
    """Which method is at work, and what the server keeps for it (None before its first step)."""

    solver: Solver[Any]
    state: Any = None


def run_solver(run: Run, solver: Solver[Any], hidden: bool) -> Solution:
    """Solve with this method, and with the fallback it names; `hidden`: owners agree on keys for secure sums first."""
    try:
        if hidden:
            run.session.secure()
        course = Course(solver)
        verdict = _search(run, course)
        try:
            answer = _conclude(run, course, verdict)
        except KeyboardInterrupt:  # all is there but the owners' last word: ask once more
            run.session.look()
            answer = _conclude(run, course, verdict)
        run.session.confirm()  # all of a resumed run may be on record: is it true of the data that there are now?
        return answer
    except OwnerLost as lost:
        return _give_up(run, str(lost))


def _search(run: Run, course: Course) -> Verdict:
    """Steps, a rescue, and methods that go on, until the end: whoever stops one of these stops all."""
    try:
        verdict = _iterate(run, course)
        if run.rescue is not None and verdict.status == "stalled":
            verdict = _rescue(run, course.solver, verdict)
        while (following := _fallback(run, course.solver, verdict)) is not None:
            run.note(
                f"{course.solver.name}, iteration {run.best.iteration}: {verdict.reason}; {following.name} goes on"
            )
            _hand_over(run)
            before = verdict
            course.solver = following
            course.state = None
            verdict = _iterate(run, course)
            if verdict.status in ("stalled", "max_rounds"):
                verdict = replace(verdict, reason=f"{verdict.reason} (before that: {before.reason})")
        return verdict
    except KeyboardInterrupt:
        return _interrupted(run, "interrupted")
    except Stop:
        return _interrupted(run, "stopped by a callback")


def _rescue(run: Run, solver: Solver[Any], verdict: Verdict) -> Verdict:
    """What the feasibility problem says: no point exists, the objective falls forever, or the end of another solve."""
    assert run.rescue is not None
    found = run.rescue(run.start)
    run.note(f"{solver.name}: {verdict.reason}; a feasibility problem was solved in between")
    if found.answer is not None:
        run.elsewhere = found.answer
        run.history.outer.extend(found.answer.history.outer)
    if found.interrupted:
        raise KeyboardInterrupt
    best = run.best.certificate
    if found.conflict and best is not None:
        return replace(infeasible(found.conflict, best), proof=found.proof)
    if found.ray is not None:
        return Verdict("unbounded", UNBOUNDED, ray=found.ray)
    if found.answer is not None and found.answer.status in DECIDED:
        return Verdict(found.answer.status, found.answer.reason)
    return verdict


def _iterate(run: Run, course: Course) -> Verdict:
    """Steps of one method until its end."""
    solver = course.solver
    run.best.latest_only = solver.needs.columns
    run.best.feasible_first = solver.feasible_first
    if not solver.needs.columns and not run.problem.convex:
        free = all(share.constraint is None and share.coupled is None for share in run.problem.holders)
        run.best.by_objective = free or solver.feasible_first
    try:
        equip_all(run, solver.weights(run))
        course.state, iterate = solver.init(run)
        if run.started is None and not solver.one_by_one:  # one by one, somebody has moved already
            run.started = iterate
        watch = Watch(run, solver)
        while True:
            run.follow(iterate)
            if verdict := watch.verdict(iterate, course.state):
                return verdict
            if run.rounds_left <= solver.reserve:
                _judge_latest(run, solver, iterate)
                reason = f"the limit of {run.max_rounds} exchanges came first"
                if excuse := solver.excuse(run, course.state):
                    reason = f"{reason}; {excuse}"
                return Verdict("max_rounds", reason)
            iterate = solver.step(run, course.state)
    except NotFinite as error:
        if run.best.certificate is None:
            raise
        following = "" if course.state is None else solver.fallback(course.state)
        return Verdict("stalled", str(error), then=following)
    except OwnerError as error:
        if error.code not in OUT_OF_RANGE or solver.needs.columns:
            raise
        return _diverged(run, course, error)


def _diverged(run: Run, course: Course, error: OwnerError) -> Verdict:
    """Stalled, where a point is known at which all numbers are in range; else the data are at fault: the error."""
    if run.best.certificate is None:
        prices = np.zeros(run.problem.server.multiplier_length + run.problem.coupled_length)
        try:
            judged = judge_point(run, run.start)
        except FedpactError:
            raise error from None
        run.best.offer(Iterate(number=-1, w=run.start, multiplier=prices, judged=judged))
    following = ""
    if course.state is not None and not run.session.looking:  # to be resumed: owners remember nothing more
        following = course.solver.fallback(course.state)
    return Verdict("stalled", f"numbers grew out of range: {error}", then=following)


def _interrupted(run: Run, how: str) -> Verdict:
    """Somebody stopped the run: what follows only looks at the owners, so that it can be resumed."""
    spent = run.rounds
    run.halted = True
    run.session.look()
    return Verdict("interrupted", f"{how} after {spent} exchanges; the best point so far is given")


def _judge_latest(run: Run, solver: Solver[Any], iterate: Iterate) -> None:
    """One exchange about the latest point, where a method without prices has not judged it."""
    if iterate.judged is None and not solver.needs.constraints and not solver.needs.columns:
        judged = judge_point(run, iterate.w)
        run.follow(replace(iterate, judged=judged, gradients=0, hessians=0, record=None))


class Watch:
    """Sees when a method is done, when nothing improves any more, and when evidence is worth an exchange."""

    def __init__(self, run: Run, solver: Solver[Any]) -> None:
        self.run = run
        self.solver = solver
        self.lowest = np.inf  # certificate relative to the tolerances
        self.since = run.first  # iteration of the last progress
        self.asks = solver.doubt  # idle iterations after which evidence is asked for next

    def verdict(self, iterate: Iterate, state: Any) -> Verdict | None:
        """Final verdict, or None to continue."""
        doubtful = iterate.end is not None
        if iterate.judged is not None:
            certificate = iterate.judged[0]
            if self.run.contradiction is not None:
                names, proof = self.run.contradiction
                return replace(infeasible(names, certificate), proof=proof)
            if self.run.accepts(certificate):
                return SOLVED
            doubtful = self._is_idle(iterate, certificate) or doubtful
        if (doubtful or iterate.conflict) and (found := self._conflict(iterate, state)):
            return found
        if (doubtful or iterate.escape) and (ray := self._escape(iterate)) is not None:
            return Verdict("unbounded", UNBOUNDED, ray=ray)
        return iterate.end or self._stalled(iterate, state)

    def _is_idle(self, iterate: Iterate, certificate: Certificate) -> bool:
        """Note progress, and tell whether there was none for so long that evidence should be asked for."""
        if iterate.number == self.run.first:  # without prices the start may look better than what leads to the solution
            return False
        missed = certificate.missed(self.run.tol)
        if missed < self.solver.progress * self.lowest:
            self.lowest = missed
            self.since = iterate.number
            self.asks = self.solver.doubt
        if iterate.number - self.since < self.asks:
            return False
        self.asks *= 2
        return True

    def _stalled(self, iterate: Iterate, state: Any) -> Verdict | None:
        """Stalled, when a certificate shows that nothing has improved for the method's patience."""
        idle = iterate.number - self.since
        if iterate.judged is None or idle < self.solver.patience:
            return None
        excuse = self.solver.excuse(self.run, state) or HINT
        reason = f"no progress in {idle} iterations; {excuse}"
        return Verdict("stalled", reason, then=self.solver.fallback(state))

    def _escape(self, iterate: Iterate) -> Vector | None:
        """A few exchanges at most: a ray from here along which the objective falls forever."""
        run = self.run
        if self.solver.needs.columns or run.problem.monotone or run.rounds_left <= self.solver.reserve:
            return None
        if iterate.judged is None or np.array_equal(iterate.w, run.w0):
            return None
        return find_ray(run, iterate.w, *iterate.judged)

    def _conflict(self, iterate: Iterate, state: Any) -> Verdict | None:
        """Infeasible, when it can be proved that no point meets all constraints: a few exchanges at most.

        Where constraints may not be convex, the same weights say so of the points around here only: stalled.
        """
        run = self.run
        best = run.best.certificate
        if not self.solver.needs.constraints or run.rounds_left <= self.solver.reserve or best is None:
            return None
        if best.violation <= run.tol[1]:  # a point that meets them is known
            return None
        if run.problem.private:  # a proof would have to balance at every owner's private variables too
            return None
        if iterate.judged is not None and iterate.judged[0].violation <= run.tol[1]:
            return None
        names = self.solver.conflict(run, state, iterate.w)
        if not names:
            return None
        if run.problem.convex or all(share.constraints_convex for share in run.problem.holders):
            return infeasible(names, best)
        return Verdict("stalled", ASTRAY.format(", ".join(names), best.violation), names)


# ------------------------------------------------------------------------------------------------------------ hand-over


def _fallback(run: Run, solver: Solver[Any], verdict: Verdict) -> Solver[Any] | None:
    """The method that goes on, when one is named, takes the problem, and has exchanges left."""
    from fedpact.solvers import METHODS  # the list of methods imports the methods, which import this

    if not run.fallback or not verdict.then or run.rounds_left <= HAND_OVER or run.best.certificate is None:
        return None
    name = run.fallback if isinstance(run.fallback, str) else verdict.then
    if name == solver.name:
        return None
    following: Solver[Any] = METHODS[name]()
    takes_coupled = following.needs.coupled or not run.problem.coupled_length
    if not takes_coupled or following.needs.refusal(run.problem):
        return None
    return following


def _hand_over(run: Run) -> None:
    """The next method starts from the best point, and its owners from the prices they had there."""
    run.start = run.best.w
    run.warm = run.best.iteration
    run.first = run.latest + 1
    run.balanced = None


# -------------------------------------------------------------------------------------------------------------- the end


def _conclude(run: Run, course: Course, verdict: Verdict) -> Solution:
    """One last exchange, and the status that its certificate carries; or the answer from elsewhere, if it is better."""
    elsewhere = run.elsewhere
    if elsewhere is None:
        return _conclude_here(run, course, verdict)
    if elsewhere.status not in DECIDED:
        here = _conclude_here(run, course, verdict)
        if here.status in DECIDED or here.certificate.missed(run.tol) <= elsewhere.certificate.missed(run.tol):
            return here
        elsewhere = replace(elsewhere, status=here.status, reason=here.reason)
    return replace(elsewhere, history=run.history, communication=run.communication)


def _conclude_here(run: Run, course: Course, verdict: Verdict) -> Solution:
    """One exchange about the best point of this run's own methods."""
    best = run.best
    if best.certificate is None:  # stopped before anything was judged
        _return_start(run, best)
    ending = course.solver.finish(run, course.state)
    met = ending.certificate.meets(run.tol)
    if met and verdict.status in ("solved", "max_rounds", "stalled", "interrupted"):
        verdict = SOLVED
    elif verdict.status == "solved":
        verdict = Verdict("stalled", "the certificate of the returned pair misses the tolerances")
    elif verdict.status == "max_rounds" and _keeps_bounds(run, course.solver, ending.certificate):
        verdict = Verdict("feasible", FEASIBLE.format(ending.certificate.stationarity))
    if verdict.status == "solved" and ending.afar <= NEARLY:
        ray = ending.ray
        if ending.afar > 0 and not course.solver.needs.columns:
            ray = find_ray(run, best.w, ending.certificate, ending.objective, ray)
        if ending.afar == 0 or ray is not None:
            verdict = Verdict("unbounded", UNBOUNDED, ray=ray)
    if ending.wrong:
        verdict = _doubt(verdict, ending.wrong)
    answer = run.solution(verdict, ending.certificate, ending.objective, ending.prices, best.w, best.multiplier)
    return copy_with(answer, {"scores": ending.scores, "inference": ending.inference})


def _keeps_bounds(run: Run, solver: Solver[Any], certificate: Certificate) -> bool:
    """Whether there are bounds and all of them hold, where no certificate is expected."""
    if not solver.feasible_first or run.problem.convex or certificate.violation > run.tol[1]:
        return False
    return any(share.constraint is not None or share.coupled is not None for share in run.problem.holders)


#: Why a run is "feasible".
FEASIBLE = (
    "all rounds are done and every bound is met on all rows; the point is stationary to {:.2g}, which is no "
    "certificate: there may be better models"
)


def _doubt(verdict: Verdict, wrong: str) -> Verdict:
    """Nothing is proved by derivatives that do not belong to their functions."""
    if verdict.status in DECIDED:
        return Verdict("stalled", f"{wrong}; else it would end {verdict.status}")
    return replace(verdict, reason=f"{wrong}; {verdict.reason}")


def _return_start(run: Run, best: Best) -> None:
    """The start, without prices, is what will be returned."""
    best.w = run.w0
    best.multiplier = np.zeros(run.problem.server.multiplier_length + run.problem.coupled_length)


def _give_up(run: Run, reason: str) -> Solution:
    """The best point so far, without the owners' prices: somebody cannot be asked any more."""
    folder = run.session.folder
    if folder is not None:
        reason += f"; the run is kept in {folder}, resume=True goes on with it"
    best = run.best
    if best.latest_only:  # parties keep where they are: only the start is known
        best = Best(run.tol)
        if run.started is not None and run.started.judged is not None:
            best.offer(replace(run.started, w=run.w0))
    certificate = best.certificate
    if certificate is None:
        certificate = Certificate(stationarity=np.inf, feasibility=np.inf, violation=np.inf)
        _return_start(run, best)
    asked = run.problem.own(best.w, best.multiplier)[0]
    prices = [np.full(share.multiplier_length, np.nan) for share in asked.shares]
    verdict = Verdict("client_lost", reason)
    return run.solution(verdict, certificate, best.objective, prices, best.w, best.multiplier)
