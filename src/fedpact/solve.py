"""The front door: assemble problem, engine and method, and run."""

from __future__ import annotations

import inspect
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedpact.engines import InProcess
from fedpact.errors import OptionError, OwnerLost, ProblemError
from fedpact.federation import Checkpoint, Fleet, Policy
from fedpact.functions import Vector
from fedpact.problem import FederatedProblem, RemoteProblem, VerticalProblem, coupled_scale, decouple
from fedpact.solvers import COUPLES, METHODS, MONOTONE, POOLED, VERTICAL, Progress, Run, Solution, described, refusal

#: Exchanges after which a solve ends with status max_rounds when the caller names no limit.
DEFAULT_MAX_ROUNDS = 100_000
#: Above this many bytes a message "auto" prefers more exchanges of vectors to a few of matrices: about 1000 variables.
LARGEST_MESSAGE = 4_000_000
#: The fewest with which every method can start, judge and hand out its answer.
LEAST_ROUNDS = 8


class Engine(Protocol):
    """Where owners run: anything that opens a fleet over shares (or what builds them) by owner name.

    folder: where owners on this machine keep their memory, when the solve has a checkpoint
    """

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet: ...


def solve(
    problem: FederatedProblem | RemoteProblem | VerticalProblem,
    method: str = "auto",
    *,
    tol: float | tuple[float, float] = 1e-3,
    w0: ArrayLike | None = None,
    engine: Engine | str | None = None,
    max_rounds: int | None = None,
    callbacks: Iterable[Callable[[Progress], None]] = (),
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

    method:     "auto", or a name in `fedpact.solvers.METHODS`
    tol:        of the certificate: one number, or (stationarity, feasibility), each in (0, 1)
    w0:         start, inside the domain of the regularizer; zero (or the nearest point of that domain) when None
    engine:     None or "in-process", "threads", "ray", or an engine such as fp.engines.Ray(address=...)
    max_rounds: exchanges with the owners after which the best point so far is returned as `max_rounds`
    callbacks:  called with a Progress after every exchange of the inner solver
    options:    of the method, e.g. penalty=300 for "proximal-al"; None means its default

    secure_sum: the server sees sums over the owners, and nobody's own vectors and matrices; None: for vertical methods,
                and for "interior-point" between organisations (Flower). Two more exchanges, two owners or more.
    on_failure, deadline, retries, max_staleness: what happens when an owner does not answer, see
                `fedpact.federation.Policy`; an owner that stays away ends the solve with status `client_lost`
    checkpoint: folder in which the run is kept, every `checkpoint_every` exchanges and when it ends, is interrupted
                (Ctrl-C, SIGTERM) or loses an owner; `resume=True` goes on from there, to the same bits
    record:     file to which every message is written, for an auditor; `fedpact.federation.read_record` reads it

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
    if not isinstance(checkpoint_every, int) or checkpoint_every < 1:
        raise OptionError(f"checkpoint_every = {checkpoint_every!r}: give a whole number of at least 1")
    if resume and checkpoint is None:
        raise OptionError("resume=True needs checkpoint=, the folder of the run to go on with")
    policy = Policy(on_failure, deadline, retries, max_staleness)
    where = the_engine(engine)
    if method != "auto":
        _method(method, options)
    if secure_sum and on_failure == "stale":
        raise OptionError('on_failure="stale" needs replies of single owners, which secure_sum=True hides; use "retry"')
    about = {"method": method, "tol": tolerances, "max_rounds": int(limit), "seed": int(seed), "options": options}
    with ExitStack() as stack:

        def opened(sources: Mapping[str, object]) -> Fleet:
            folder = None if checkpoint is None else Path(checkpoint)
            fleet = where.open(sources, None if folder is None else folder / "owners")
            stack.enter_context(fleet)
            fleet.policy = policy
            fleet.ledger.record = None if record is None else Path(record)
            if folder is not None:
                stack.enter_context(_terminable())
                fleet.keep(Checkpoint(folder, {**about, "owners": list(sources)}, checkpoint_every, resume))
            return fleet

        posed = _posed(problem, method, w0, options, opened)
        run_method = _checked(posed.problem, posed.method, options)
        listeners = list(callbacks)
        if sys.stderr.isatty():
            from fedpact.report.progress import ProgressLine

            listeners.append(stack.enter_context(ProgressLine(tolerances)))

        def notify(progress: Progress) -> None:
            for listener in listeners:
                listener(progress)

        asked: Any = posed.problem  # vertical methods know that theirs is a VerticalProblem
        fleet = posed.fleet
        run = Run(asked, fleet, posed.method, posed.start, tolerances, int(limit), seed, notify, posed.choice)
        if posed.choice:
            run.history.notes.append(f"auto chose {posed.method}: {posed.choice}")
        try:
            # A single owner's Hessian tells a lot about its rows, so between organisations it is not shown by default.
            # Scores of single parties tell their columns, so vertical methods never show them unless asked to.
            one_by_one = bool(options.get("asynchronous"))
            matrices = fleet.networked and posed.method == "interior-point"
            telling = matrices or (posed.method in VERTICAL and not one_by_one)
            if secure_sum or (secure_sum is None and telling and len(fleet.owners) > 1):
                fleet.secure()
            elif one_by_one:
                run.history.notes.append("asynchronous: the coordinator sees the scores of every single party")
            answer = run_method(run, **{option: value for option, value in options.items() if value is not None})
            fleet.confirm()  # all of a resumed run may be on record: is it true of the data that there are now?
            return answer
        except OwnerLost as lost:
            kept = f"; the run is kept in {checkpoint}, resume=True goes on with it" if checkpoint is not None else ""
            return run.lost(f"{lost}{kept}")


@dataclass(frozen=True)
class _Posed:
    """The problem as the method takes it, the fleet of those who hold it, where to start, and why this method."""

    problem: FederatedProblem | VerticalProblem
    fleet: Fleet
    start: Vector
    method: str
    choice: str


def _posed(
    problem: FederatedProblem | RemoteProblem | VerticalProblem,
    method: str,
    w0: ArrayLike | None,
    options: Mapping[str, Any],
    opened: Callable[[Mapping[str, object]], Fleet],
) -> _Posed:
    """Choose the method, if it is "auto", and open the fleet; refuses what the method cannot take."""
    if isinstance(problem, VerticalProblem):
        if w0 is not None:
            raise OptionError("w0: vertical methods start at zero, as no one holds a whole w; leave it out")
        name = "vertical-al" if method == "auto" else method
        if name not in VERTICAL:
            raise OptionError(f'method "{name}" needs all columns at every owner; use {", ".join(VERTICAL)}')
        fleet = opened({party.name: party for party in problem.shares})
        return _Posed(problem, fleet, np.zeros(problem.dim), name, "")
    if isinstance(problem, RemoteProblem):
        fleet = opened(problem.sources)
        asked = described(problem, fleet)
        w = asked.start(w0)
        name, choice = choose(asked, w.size) if method == "auto" else (method, "")
        if name in POOLED or (asked.coupled_length and name not in COUPLES):
            raise OptionError(f'method "{name}" reads shares, which only their owners hold; use "interior-point"')
        return _Posed(asked, fleet, w, name, choice)
    w = problem.start(w0)
    name, choice = choose(problem, w.size) if method == "auto" else (method, "")
    _method(name, options)
    asked = problem if name in COUPLES else decouple(problem, w.size, coupled_scale(problem, w))
    fleet = opened({share.label: share for share in asked.shares})
    start = np.concatenate([w, np.zeros((asked.dim or w.size) - w.size)])
    return _Posed(asked, fleet, start, name, choice)


def _checked(
    problem: FederatedProblem | VerticalProblem, name: str, options: Mapping[str, Any]
) -> Callable[..., Solution]:
    """The method, which takes problems of this kind."""
    run_method = _method(name, options)
    if name in VERTICAL and not isinstance(problem, VerticalProblem):
        raise OptionError(f'method "{name}" is for an fp.VerticalProblem, whose parties hold different columns')
    if problem.monotone and name not in MONOTONE:
        raise OptionError(f'method "{name}" minimises; for operators use {" or ".join(sorted(MONOTONE))}')
    return run_method


def choose(problem: FederatedProblem, dim: int) -> tuple[str, str]:
    """What "auto" takes for w of length dim, and why."""
    if problem.monotone:
        return "ifeddr", "the problem is about operators"
    if why := refusal(problem):
        return "accelerated", why
    message = 8 * dim * (dim + 1) // 2
    size = f"a matrix of {dim} variables is {message / 1e6:.2g} MB a message"
    if message > LARGEST_MESSAGE:
        return "accelerated", f"{size}, more than {LARGEST_MESSAGE / 1e6:.0f}"
    return "interior-point", f"Hessians exist, and {size}"


def _method(name: str, options: Mapping[str, Any]) -> Callable[..., Solution]:
    if name not in METHODS:
        raise OptionError(f"method {name!r} is unknown; choose auto, {', '.join(METHODS)}")
    parameters = inspect.signature(METHODS[name]).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    allowed = list(defaults)
    for option, value in options.items():
        if option not in allowed:
            takes = f"it takes {', '.join(allowed)}" if allowed else "it takes none: there is nothing to tune"
            raise OptionError(f"method {name!r} has no option {option!r}; {takes}")
        if isinstance(defaults[option], bool):
            if value is not None and not isinstance(value, bool):
                raise OptionError(f"{option} = {value!r}: give True or False")
        elif isinstance(defaults[option], str):
            if value is not None and not isinstance(value, str):
                raise OptionError(f"{option} = {value!r}: give a name")
        elif value is not None and (not isinstance(value, int | float) or not 0 < value < np.inf):
            raise OptionError(f"{option} = {value!r}: give a positive number")
    if not 0 < (options.get("inner_decay") or 0.5) < 1:
        raise OptionError(f"inner_decay = {options['inner_decay']!r}: give a number between 0 and 1")
    return METHODS[name]


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the solve as Ctrl-C does: with a checkpoint and the best point so far."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tolerances(tol: float | tuple[float, float]) -> tuple[float, float]:
    pair = tuple(tol) if isinstance(tol, tuple | list) else (tol, tol)
    if len(pair) != 2 or not all(isinstance(t, int | float) and 0 < t < 1 for t in pair):
        raise OptionError(f"tol = {tol!r}: give a number in (0, 1), or two: (stationarity, feasibility)")
    return float(pair[0]), float(pair[1])


def the_engine(engine: Engine | str | None) -> Engine:
    if engine is None or engine == "in-process":
        return InProcess()
    if engine == "threads":
        return InProcess(threads=2)
    if engine == "ray":
        from fedpact.engines import Ray

        return Ray()
    if isinstance(engine, str | type) or not hasattr(engine, "open"):
        raise OptionError(
            f"engine {engine!r} is unknown; use 'in-process', 'threads', 'ray', or an engine of fp.engines such as "
            "fp.engines.InProcess()"
        )
    return engine
