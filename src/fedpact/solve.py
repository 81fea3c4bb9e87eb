"""The front door: assemble problem, engine and method, and run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import OptionError, ProblemError
from fedpact.federation import Engine, Session
from fedpact.problem import FederatedProblem, RemoteProblem, VerticalProblem, coupled_scale, decouple
from fedpact.solvers import METHODS, PooledRun, Progress, Run, Solution, Solver, describe_problem, run_solver
from fedpact.types import Vector

#: Exchanges after which a solve ends with status max_rounds when the caller names no limit.
DEFAULT_MAX_ROUNDS = 100_000
#: Above this many bytes a message "auto" prefers more exchanges of vectors to a few of matrices: about 1000 variables.
LARGEST_MESSAGE = 4_000_000
#: The fewest with which every method can start, judge and hand out its answer.
LEAST_ROUNDS = 8


def solve(
    problem: FederatedProblem | RemoteProblem | VerticalProblem,
    method: str | Solver[Any] = "auto",
    *,
    tol: float | tuple[float, float] = 1e-3,
    w0: ArrayLike | None = None,
    engine: Engine | str | None = None,
    session: Session | None = None,
    max_rounds: int | None = None,
    callbacks: Iterable[Callable[[Progress], Any]] = (),
    seed: int = 0,
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
    w0:         start, inside the domain of the regularizer; zero (or the nearest point of that domain) when None
    engine:     None or "in-process", "threads", "ray", or an engine such as fp.engines.Ray(address=...)
    max_rounds: exchanges with the owners after which the best point so far is returned as `max_rounds`
    callbacks:  called with a Progress after every step; one that returns True stops the solve (`interrupted`)
    options:    of the method, e.g. penalty=300 for "proximal-al"; None means its default

    session:    one that is open or to be opened, `fp.Session`; else one is made of engine and the next line:
    secure_sum, on_failure, deadline, retries, max_staleness, checkpoint, checkpoint_every, resume, record: see
                `fp.Session`; an owner that stays away ends the solve with status `client_lost`

    In a terminal a live line shows where the solve is; Ctrl-C returns the best certified point so far. Raises
    OptionError, ProblemError, DataError, OwnerError or CheckpointError for misuse; not converging is a status.
    """
    if not isinstance(problem, FederatedProblem | RemoteProblem | VerticalProblem):
        raise ProblemError(
            "fp.solve takes an fp.FederatedProblem, fp.RemoteProblem or fp.VerticalProblem, got "
            f"{type(problem).__name__}"
        )
    tolerances = _tolerances(tol)
    limit = DEFAULT_MAX_ROUNDS if max_rounds is None else max_rounds
    if not isinstance(limit, int | np.integer) or limit < LEAST_ROUNDS:
        raise OptionError(f"max_rounds = {max_rounds!r}: give a whole number of at least {LEAST_ROUNDS}")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise OptionError(f"seed = {seed!r}: give a whole number of at least 0")
    asked = _solver(method, options)
    name = "auto" if asked is None else asked.name
    stated = options if isinstance(method, str) else asdict(method)
    about = {"method": name, "tol": tolerances, "max_rounds": int(limit), "seed": int(seed), "options": stated}
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
    with ExitStack() as stack:
        if session is None:
            session = stack.enter_context(Session(**settings))
        else:
            _check_session(session, settings)
        begun = session.ledger.read()
        prepared = _prepare(problem, asked, options, w0, session, about)
        listeners = list(callbacks)
        if sys.stderr.isatty():
            from fedpact.report.progress import ProgressLine

            listeners.append(stack.enter_context(ProgressLine(tolerances)))

        solver = prepared.solver
        posed: Any = prepared.problem  # vertical methods know that theirs is a VerticalProblem
        run_type = PooledRun if solver.needs.pooled else Run
        run = run_type(
            posed,
            session,
            begun,
            solver.name,
            prepared.start,
            tolerances,
            int(limit),
            int(seed),
            listeners,
            prepared.choice,
        )
        if prepared.choice:
            run.note(f"auto chose {solver.name}: {prepared.choice}")
        solver.check(run)
        hidden = _hides(solver, session) if session.secure_sum is None else session.secure_sum
        if solver.needs.private and not hidden:
            run.note("the coordinator sees the replies of every single owner")
        return run_solver(run, solver, hidden)


def _check_session(session: Session, settings: dict[str, Any]) -> None:
    """OptionError when the session cannot run a solve, or when settings of a session were given beside it."""
    known = inspect.signature(Session).parameters
    if beside := [name for name, value in settings.items() if value != known[name].default]:
        raise OptionError(f"{', '.join(beside)}: belong to the session; give them to fp.Session(...)")
    if session.looking:
        raise OptionError(
            f"this session was interrupted or lost an owner; go on with fp.Session(checkpoint={str(session.folder)!r}, "
            "resume=True)"
        )


def _hides(solver: Solver[Any], session: Session) -> bool:
    """Are sums masked by default?

    A single owner's Hessian tells a lot about its rows, so between organisations it is not shown by default. Scores of
    single parties tell their columns, so vertical methods never show them unless asked to, as by asynchronous=True.
    """
    telling = solver.needs.private or (solver.needs.matrices and session.networked)
    return telling and not solver.one_by_one and len(session.owners) > 1


@dataclass(frozen=True)
class _Prepared:
    """A problem ready to run: reformulated problem, start, solver, and why it was chosen."""

    problem: FederatedProblem | VerticalProblem
    start: Vector
    solver: Solver[Any]
    choice: str = ""


def _prepare(
    problem: FederatedProblem | RemoteProblem | VerticalProblem,
    solver: Solver[Any] | None,
    options: dict[str, Any],
    w0: ArrayLike | None,
    session: Session,
    about: Mapping[str, Any],
) -> _Prepared:
    """Choose the method if there is none, open the session, and refuse what the method cannot take."""
    if isinstance(problem, VerticalProblem):
        if w0 is not None:
            raise OptionError("w0: vertical methods start at zero, as no one holds a whole w; leave it out")
        solver = solver or METHODS["vertical-al"].build(options)
        _refuse(solver, problem)
        session.open({party.name: party for party in problem.shares}, about)
        return _Prepared(problem, np.zeros(problem.dim), solver)
    if isinstance(problem, RemoteProblem):
        session.open(problem.sources, about)
        if problem.task is not None:
            session.pose(problem.task)
        described = describe_problem(problem, session)
        w = described.start(w0)
        solver, choice = _choose(described, w.size, solver, options)
        _refuse(solver, described)
        if solver.needs.pooled or (described.coupled_length and not solver.needs.coupled):
            raise OptionError(
                f'method "{solver.name}" reads shares, which only their owners hold; use "interior-point"'
            )
        return _Prepared(described, w, solver, choice)
    w = problem.start(w0)
    solver, choice = _choose(problem, w.size, solver, options)
    if not solver.needs.coupled:
        problem = decouple(problem, w.size, coupled_scale(problem, w))
    _refuse(solver, problem)
    session.open({share.label: share for share in problem.shares}, about)
    start = np.concatenate([w, np.zeros((problem.dim or w.size) - w.size)])
    return _Prepared(problem, start, solver, choice)


def _refuse(solver: Solver[Any], problem: FederatedProblem | VerticalProblem) -> None:
    if why := solver.needs.refusal(problem):
        raise OptionError(f'method "{solver.name}" {why}')


def _choose(
    problem: FederatedProblem, dim: int, solver: Solver[Any] | None, options: dict[str, Any]
) -> tuple[Solver[Any], str]:
    if solver is not None:
        return solver, ""
    name, choice = choose(problem, dim)
    return METHODS[name].build(options), choice


def choose(problem: FederatedProblem, dim: int) -> tuple[str, str]:
    """What "auto" takes for w of length dim, and why."""
    if problem.monotone:
        return "ifeddr", "the problem is about operators"
    if why := METHODS["interior-point"].needs.refusal(problem):
        return "accelerated", f"interior-point {why}"
    message = 8 * dim * (dim + 1) // 2
    size = f"a matrix of {dim} variables is {message / 1e6:.2g} MB a message"
    if message > LARGEST_MESSAGE:
        return "accelerated", f"{size}, more than {LARGEST_MESSAGE / 1e6:.0f}"
    return "interior-point", f"Hessians exist, and {size}"


def _solver(method: str | Solver[Any], options: dict[str, Any]) -> Solver[Any] | None:
    """The method with its options; None for "auto"."""
    if isinstance(method, Solver):
        if options:
            raise OptionError(f"{', '.join(options)}: give options to the solver itself, {type(method).__name__}(...)")
        return method
    if method == "auto":
        return None
    if method not in METHODS:
        raise OptionError(f"method {method!r} is unknown; choose auto, {', '.join(METHODS)}, or give a solver")
    return METHODS[method].build(options)


def _tolerances(tol: float | tuple[float, float]) -> tuple[float, float]:
    pair = tuple(tol) if isinstance(tol, tuple | list) else (tol, tol)
    if len(pair) != 2 or not all(isinstance(t, int | float) and 0 < t < 1 for t in pair):
        raise OptionError(f"tol = {tol!r}: give a number in (0, 1), or two: (stationarity, feasibility)")
    return float(pair[0]), float(pair[1])
