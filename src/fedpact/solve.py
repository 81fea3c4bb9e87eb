"""The front door: assemble problem, engine and method, and run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedpact.engines import InProcess
from fedpact.errors import OptionError, ProblemError
from fedpact.federation import Fleet
from fedpact.problem import FederatedProblem, coupled_scale, decouple
from fedpact.solvers import COUPLES, METHODS, Progress, Run, Solution, refusal

#: Exchanges after which a solve ends with status max_rounds when the caller names no limit.
DEFAULT_MAX_ROUNDS = 100_000
#: Above this many bytes a message "auto" prefers more exchanges of vectors to a few of matrices: about 1000 variables.
LARGEST_MESSAGE = 4_000_000
#: The fewest with which every method can start, judge and hand out its answer.
LEAST_ROUNDS = 8


class Engine(Protocol):
    """Where owners run: anything that opens a fleet over shares by owner name."""

    def open(self, shares: Mapping[str, object]) -> Fleet: ...


def solve(
    problem: FederatedProblem,
    method: str = "auto",
    *,
    tol: float | tuple[float, float] = 1e-3,
    w0: ArrayLike | None = None,
    engine: Engine | str | None = None,
    max_rounds: int | None = None,
    callbacks: Iterable[Callable[[Progress], None]] = (),
    seed: int = 0,
    **options: Any,
) -> Solution:
    """Solve a federated problem; the answer carries its checked certificate.

    method:     "auto", or a name in `fedpact.solvers.METHODS`
    tol:        of the certificate: one number, or (stationarity, feasibility), each in (0, 1)
    w0:         start, inside the domain of the regularizer; zero (or the nearest point of that domain) when None
    engine:     None or "in-process", "threads", or an engine such as fp.engines.InProcess(threads=4)
    max_rounds: exchanges with the owners after which the best point so far is returned as `max_rounds`
    callbacks:  called with a Progress after every exchange of the inner solver
    options:    of the method, e.g. penalty=300 for "proximal-al"; None means its default

    In a terminal a live line shows where the solve is; Ctrl-C returns the best certified point so far. Raises
    OptionError, ProblemError, DataError or OwnerError for misuse; not converging is a status, never an error.
    """
    if not isinstance(problem, FederatedProblem):
        raise ProblemError(f"fp.solve takes an fp.FederatedProblem, got {type(problem).__name__}")
    tolerances = _tolerances(tol)
    limit = DEFAULT_MAX_ROUNDS if max_rounds is None else max_rounds
    if not isinstance(limit, int | np.integer) or limit < LEAST_ROUNDS:
        raise OptionError(f"max_rounds = {max_rounds!r}: give a whole number of at least {LEAST_ROUNDS}")
    w = problem.start(w0)
    name, choice = choose(problem, w.size) if method == "auto" else (method, "")
    run_method = _method(name, options)
    decoupled = problem if name in COUPLES else decouple(problem, w.size, coupled_scale(problem, w))
    start = np.concatenate([w, np.zeros((decoupled.dim or w.size) - w.size)])
    with ExitStack() as stack:
        fleet = stack.enter_context(_engine(engine).open({share.label: share for share in decoupled.shares}))
        listeners = list(callbacks)
        if sys.stderr.isatty():
            from fedpact.report.progress import ProgressLine

            listeners.append(stack.enter_context(ProgressLine(tolerances)))

        def notify(progress: Progress) -> None:
            for listener in listeners:
                listener(progress)

        run = Run(decoupled, fleet, name, start, tolerances, int(limit), seed, notify, choice)
        if choice:
            run.history.notes.append(f"auto chose {name}: {choice}")
        return run_method(run, **{option: value for option, value in options.items() if value is not None})


def choose(problem: FederatedProblem, dim: int) -> tuple[str, str]:
    """What "auto" takes for w of length dim, and why."""
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
    allowed = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    for option, value in options.items():
        if option not in allowed:
            takes = f"it takes {', '.join(allowed)}" if allowed else "it takes none: there is nothing to tune"
            raise OptionError(f"method {name!r} has no option {option!r}; {takes}")
        if value is not None and (not isinstance(value, int | float) or not 0 < value < np.inf):
            raise OptionError(f"{option} = {value!r}: give a positive number")
    if not 0 < (options.get("inner_decay") or 0.5) < 1:
        raise OptionError(f"inner_decay = {options['inner_decay']!r}: give a number between 0 and 1")
    return METHODS[name]


def _tolerances(tol: float | tuple[float, float]) -> tuple[float, float]:
    pair = tuple(tol) if isinstance(tol, tuple | list) else (tol, tol)
    if len(pair) != 2 or not all(isinstance(t, int | float) and 0 < t < 1 for t in pair):
        raise OptionError(f"tol = {tol!r}: give a number in (0, 1), or two: (stationarity, feasibility)")
    return float(pair[0]), float(pair[1])


def _engine(engine: Engine | str | None) -> Engine:
    if engine is None or engine == "in-process":
        return InProcess()
    if engine == "threads":
        return InProcess(threads=2)
    if isinstance(engine, str | type) or not hasattr(engine, "open"):
        raise OptionError(f"engine {engine!r} is unknown; use 'in-process', 'threads' or fp.engines.InProcess()")
    return engine
