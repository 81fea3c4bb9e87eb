"""The front door: problem + session + method -> Solution."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import OptionError
from fedpact.federation import Engine, Session
from fedpact.posing import Posed, pose
from fedpact.preparation import Problem, Start, build_solver, check_problem, prepare
from fedpact.problem import FederatedProblem, Proof
from fedpact.problem.coupled import expose
from fedpact.problem.elastic import ElasticProblem
from fedpact.rescue import ACCURACY, ROUNDS, WEIGHTS, Interrupted, Rescuer, Spent, can_rescue
from fedpact.solvers import PooledRun, Progress, Run, Solution, Solver, run_solver, steps_of
from fedpact.solvers.constrained.interior_point import InteriorPoint
from fedpact.solvers.evidence import infeasible
from fedpact.solvers.steps import private_of
from fedpact.types import Vector

#: Exchanges after which a solve ends with status max_rounds when the caller names no limit.
DEFAULT_MAX_ROUNDS = 100_000
#: The fewest with which every method can start, judge and hand out its answer.
LEAST_ROUNDS = 8
UNPROVED = "constraints seemed to exclude each other, and the proof of it does not hold; is the problem well scaled?"


def solve(
    problem: Problem,
    method: str | Solver[Any] = "auto",
    *,
    tol: float | tuple[float, float] = 1e-3,
    relative: bool = False,
    w0: ArrayLike | None = None,
    multipliers0: Sequence[ArrayLike | None] | None = None,
    coupled_multiplier0: ArrayLike | None = None,
    engine: Engine | str | None = None,
    session: Session | None = None,
    max_rounds: int | None = None,
    callbacks: Iterable[Callable[[Progress], Any]] = (),
    seed: int = 0,
    fallback: bool | str = True,
    secure_sum: bool | None = None,
    on_failure: Literal["retry", "stale", "stop"] = "retry",
    deadline: float | None = None,
    retries: int = 8,
    max_staleness: int = 3,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    resume: bool = False,
    record: str | Path | None = None,
    **options: Any,
) -> Solution:
    """Solve a federated problem; the answer carries its checked certificate.

    method:     "auto", a name in `fedpact.solvers.METHODS`, or a solver: IFedDR(gamma=2.0), or one of your own
    tol:        of the certificate: one number, or (stationarity, feasibility), each in (0, 1)
    relative:   whether tol is relative to the size of the problem's numbers: it then bounds the residuals in units in
                which columns, rows and objective have derivatives of size one at the start, and the certificate is
                given in these. Without it "auto" may solve in such units, and judges in yours
    w0:         start, inside the domain of the regularizer; zero (or the nearest point of that domain) when None
    multipliers0, coupled_multiplier0: to start from, as in `fp.certify` ([server, client 1, ...]) and in the `Solution`
                of a problem that differs in a bound; of methods with multipliers of their own all but "interior-point"
    engine:     None or "in-process", "threads", "ray", or an engine such as fp.engines.Ray(address=...)
    max_rounds: exchanges with the owners after which the best point so far is returned as `max_rounds`; it bounds
                `Solution.rounds`: keys, iterations of this method and of those that go on, a rescue, the last exchange
    callbacks:  called with a Progress after every step; one that returns True stops the solve (`interrupted`)
    fallback:   whether the method that a stalled one names goes on from its best point; a name: that one, and no other
    options:    of the method, e.g. penalty=300 for "proximal-al"; None means its default

    session:    one that is open or to be opened, `fp.Session`; else one is made of engine and the next line:
    secure_sum, on_failure, deadline, retries, max_staleness, checkpoint, checkpoint_every, resume, record: see
                `fp.Session`; an owner that stays away ends the solve with status `client_lost`

    In a terminal, or a notebook, a live line shows where the solve is; Ctrl-C returns the best certified point so far.
    Raises OptionError, ProblemError, DataError, OwnerError or CheckpointError for misuse; not converging is a status.
    """
    check_problem(problem)
    limit = _read_whole("max_rounds", DEFAULT_MAX_ROUNDS if max_rounds is None else max_rounds, LEAST_ROUNDS)
    seed = _read_whole("seed", seed, 0)
    asked = build_solver(method, options)
    start = Start(w0, multipliers0, coupled_multiplier0)
    posed = pose(problem, start, _read_tolerances(tol), auto=asked is None, relative=relative)
    about = {
        "method": "auto" if asked is None else asked.name,
        "tol": posed.tol,
        "max_rounds": limit,
        "seed": seed,
        "fallback": fallback,
        "options": options if isinstance(method, str) else asdict(method),
    }
    settings: dict[str, Any] = {
        "engine": engine,
        "secure_sum": secure_sum,
        "on_failure": on_failure,
        "deadline": deadline,
        "retries": retries,
        "max_staleness": max_staleness,
        "checkpoint": checkpoint,
        "checkpoint_every": checkpoint_every,
        "resume": resume,
        "record": record,
    }
    # A rescue reads shares and has a session of its own: only where both are this process's.
    plain = session is None and engine in (None, "in-process") and checkpoint is None and not secure_sum
    with ExitStack() as stack:
        if session is None:
            session = stack.enter_context(Session(**settings))
        else:
            _check_session(session, settings)
        begun = session.ledger.read()
        prepared = prepare(posed.problem, asked, options, posed.start, session, about)
        listeners = posed.listeners(callbacks)
        if sys.stderr.isatty() or "ipykernel" in sys.modules:
            from fedpact.report.progress import open_line

            line = open_line(posed.tol)
            stack.enter_context(line)
            listeners.append(line)
        solver = prepared.solver
        reformulated: Any = prepared.problem  # vertical methods know that theirs is a VerticalProblem
        run_type = PooledRun if solver.needs.pooled else Run
        run = run_type(
            reformulated,
            session,
            begun,
            solver.name,
            prepared.start,
            posed.tol,
            limit,
            seed,
            listeners,
            prepared.choice,
            fallback,
            prepared.given,
        )
        if asked is None and fallback and plain and can_rescue(posed.problem, solver.name):
            assert isinstance(posed.problem, FederatedProblem)
            run.rescue = _rescuer(posed.problem, run, seed)
        run.contradiction = posed.contradiction()
        if prepared.choice:
            run.note(f"auto chose {solver.name}: {prepared.choice}")
        answer = _carry_out(run, solver, session)
        try:
            return _finish(posed, session, run, answer)
        except KeyboardInterrupt:  # the answer is there: bring it into the user's terms once more
            return _finish(posed, session, run, answer)


def _finish(posed: Posed, session: Session, run: Run, answer: Solution) -> Solution:
    """The answer to the problem of the user, judged there."""
    found = posed.restore(_complete(posed.problem, session, run, answer))
    if run.halted and answer.status == "solved" and found.status == "stalled":  # there, more steps might have helped
        return replace(found, status="interrupted", reason=f"interrupted; {found.reason}")
    return found


def _carry_out(run: Run, solver: Solver[Any], session: Session) -> Solution:
    """Solve, where the method and the owners allow it."""
    solver.check(run)
    if session.fleet.steps:
        session.require(solver.name, steps_of(type(solver)))
    hidden = _hides_replies(solver, session)
    if solver.needs.private and not hidden:
        run.note("the coordinator sees the replies of every single owner")
    return run_solver(run, solver, hidden)


def _complete(problem: Problem, session: Session, run: Run, answer: Solution) -> Solution:
    """The answer with what only the owners' memories know: a proof of infeasibility, private variables."""
    if not isinstance(problem, FederatedProblem):
        return answer
    if type(problem) is FederatedProblem and answer.status == "infeasible":
        answer = _keep_proof(problem, session, run, answer)
    if problem.private and answer.status == "stalled" and run.fallback:
        answer = _find_private_conflict(problem, session, run, answer)
    if problem.private:
        answer = replace(answer, private=_private_variables(problem, session, answer))
    return answer


def _rescuer(problem: FederatedProblem, run: Run, seed: int) -> Rescuer:
    """A rescue by interior-point alone, in sessions of its own; its exchanges and callbacks are those of the run."""

    def aside(
        posed: FederatedProblem, start: Vector, most: int, tol: tuple[float, float], careful: bool = False
    ) -> tuple[Solution, bool]:
        """Solve as a part of the run; was it interrupted? Raises Spent."""
        left = min(run.rounds_left - 1, most)  # one for the end
        if left < LEAST_ROUNDS:
            raise Spent
        first = run.latest + 1
        before = run.communication
        told = partial(run.report_aside, first=first, before=before)
        solver = InteriorPoint(careful=careful)
        with Session() as session:
            prepared = prepare(posed, solver, {}, Start(start), session, {})
            own = Run(
                problem=posed,
                session=session,
                begun=session.ledger.read(),
                method=solver.name,
                start=prepared.start,
                tol=tol,
                max_rounds=left,
                seed=seed,
                listeners=[told],
                fallback=False,
            )
            found = _complete(posed, session, own, _carry_out(own, solver, session))
        run.aside = found.communication if run.aside is None else run.aside + found.communication
        history = found.history.moved(first, before.rounds, before.bytes)
        return replace(found, history=history), own.halted

    def loosened(elastic: FederatedProblem, start: Vector) -> Solution:
        found, halted = aside(elastic, start, ROUNDS, (ACCURACY, ACCURACY))
        if halted:
            raise Interrupted
        return found

    def again(start: Vector, careful: bool) -> Solution:
        if careful and run.rounds_left < run.max_rounds // 2:  # methods that go on need them more
            raise Spent
        inside = problem.regularizer.prox(start, 1.0) if not problem.regularizer.contains(start) else start
        found, halted = aside(problem, inside, run.max_rounds, run.tol, careful)
        if halted:
            raise Interrupted(found)
        return found

    return Rescuer(problem, loosened, again, run.tol[1])


def _find_private_conflict(problem: FederatedProblem, session: Session, run: Run, answer: Solution) -> Solution:
    """Infeasible, where owners in this process have constraints whose private variables leave no point either."""
    missed = answer.certificate.violation
    here = session.fleet.states() is not None and problem.convex and problem.has_hessian and not problem.coupled_length
    if not here or missed <= run.tol[1] or run.rounds_left <= ROUNDS:
        return answer
    exposed = expose(problem, answer.w.size)
    near = np.concatenate([answer.w, *(share.first_private for share in problem.shares)])
    elastic = ElasticProblem(exposed, near, WEIGHTS[0])
    found = solve(elastic, "interior-point", tol=ACCURACY, w0=elastic.start_at(near), max_rounds=ROUNDS, fallback=False)
    weights, coupled = elastic.read_weights(found.multipliers, found.coupled_multiplier)
    proof = Proof(found.w[:-1], tuple(weights), coupled)
    answer = replace(answer, communication=answer.communication + found.communication)
    names = proof.check(problem, run.tol[1])
    if not names:
        return answer
    verdict = infeasible(names, answer.certificate)
    return replace(answer, status="infeasible", reason=verdict.reason, conflict=names, proof=proof)


def _keep_proof(problem: FederatedProblem, session: Session, run: Run, answer: Solution) -> Solution:
    """The answer with its proof of infeasibility, checked again from the problem alone; stalled where it fails."""
    proof = answer.proof
    states = session.fleet.states()
    if proof is None and run.balanced is not None and states is not None:
        w, held = run.balanced
        server, coupled = np.split(held, [problem.server.multiplier_length])
        owners = tuple(states[share.label].separator[1] for share in problem.shares)
        proof = Proof(w, (server, *owners), coupled)
    if proof is None:
        return answer
    if proof.check(problem, run.tol[1]):
        return replace(answer, proof=proof)
    return replace(answer, status="stalled", reason=UNPROVED, conflict=(), proof=None)


def _read_tolerances(tol: float | tuple[float, float]) -> tuple[float, float]:
    """(stationarity, feasibility) from one number or two. OptionError unless both lie in (0, 1)."""
    pair = tuple(tol) if isinstance(tol, tuple | list) else (tol, tol)
    if len(pair) != 2 or not all(isinstance(t, int | float) and 0 < t < 1 for t in pair):
        raise OptionError(
            f"tol = {tol!r}: give a number in (0, 1), or two: (stationarity, feasibility)", code="FP-OPTION-113"
        )
    return float(pair[0]), float(pair[1])


def _read_whole(name: str, value: object, least: int) -> int:
    """`value` as an int. OptionError unless it is a whole number of at least `least`."""
    if not isinstance(value, int | np.integer) or value < least:
        raise OptionError(f"{name} = {value!r}: give a whole number of at least {least}", code="FP-OPTION-104")
    return int(value)


def _check_session(session: Session, settings: dict[str, Any]) -> None:
    """OptionError when the session cannot run a solve, or when settings of a session were given beside it."""
    known = inspect.signature(Session).parameters
    beside = [name for name, value in settings.items() if value != known[name].default]
    if beside:
        raise OptionError(
            f"{', '.join(beside)}: belong to the session; give them to fp.Session(...)", code="FP-OPTION-106"
        )
    if session.looking:
        raise OptionError(
            f"this session was interrupted or lost an owner; go on with fp.Session(checkpoint={str(session.folder)!r}, "
            "resume=True)",
            code="FP-OPTION-107",
        )


def _private_variables(problem: FederatedProblem, session: Session, answer: Solution) -> list[Vector] | None:
    """From the memory of owners in this process; None where they are elsewhere, or have lost it. Nothing is sent."""
    states = session.fleet.states()
    if states is None:
        return None
    found = []
    for share in problem.shares:
        values = private_of(share, states[share.label], answer.w)
        if values is None:
            return None
        found.append(values)
    return found


def _hides_replies(solver: Solver[Any], session: Session) -> bool:
    """Whether sums are masked: what the session says, or else the default of the method.

    A single owner's gradients and Hessians tell a lot about its rows, so between organisations they are not shown by
    default. Scores of single parties tell their columns, so vertical methods never show them unless asked to, as by
    asynchronous=True.
    """
    if session.secure_sum is not None:
        return session.secure_sum
    telling = solver.needs.private or session.networked
    return telling and not solver.one_by_one and len(session.owners) > 1
