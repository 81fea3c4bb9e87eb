"""What a solve does before its first exchange: choose the method, reformulate the problem, open the session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import OptionError, ProblemError
from fedpact.federation import Session
from fedpact.problem import FederatedProblem, RemoteProblem, VerticalProblem, coupled_scale, decouple
from fedpact.solvers import METHODS, Solver, describe_problem
from fedpact.types import Vector

#: What fp.solve takes.
Problem = FederatedProblem | RemoteProblem | VerticalProblem
#: Above this many bytes a message "auto" prefers more exchanges of vectors to a few of matrices: about 1000 variables.
LARGEST_MESSAGE = 4_000_000


@dataclass(frozen=True)
class Prepared:
    """A problem ready to run: reformulated problem, start, solver, and why "auto" chose it, if it did."""

    problem: FederatedProblem | VerticalProblem
    start: Vector
    solver: Solver[Any]
    choice: str = ""


def check_problem(problem: object) -> None:
    """Raises ProblemError unless fp.solve takes it."""
    if not isinstance(problem, Problem):
        raise ProblemError(
            f"got {type(problem).__name__}; give an fp.FederatedProblem, fp.RemoteProblem or fp.VerticalProblem",
            code="FP-PROBLEM-199",
        )


def build_solver(method: str | Solver[Any], options: dict[str, Any]) -> Solver[Any] | None:
    """The method with its options; None for "auto". Raises OptionError when one of them is unknown."""
    if isinstance(method, Solver):
        if options:
            raise OptionError(
                f"{', '.join(options)}: give options to the solver itself, {type(method).__name__}(...)",
                code="FP-OPTION-111",
            )
        return method
    if method == "auto":
        return None
    if method not in METHODS:
        raise OptionError(
            f"method {method!r} is unknown; choose auto, {', '.join(METHODS)}, or give a solver", code="FP-OPTION-112"
        )
    return METHODS[method].build(options)


def prepare(
    problem: Problem,
    solver: Solver[Any] | None,
    options: dict[str, Any],
    w0: ArrayLike | None,
    session: Session,
    about: Mapping[str, Any],
) -> Prepared:
    """Choose the method where solver is None, open the session, and refuse what the method cannot take."""
    if isinstance(problem, VerticalProblem):
        if w0 is not None:
            raise OptionError(
                "w0: vertical methods start at zero, as no one holds a whole w; leave it out", code="FP-OPTION-108"
            )
        choice = ""
        if solver is None:
            name, choice = choose_vertical(problem)
            solver = METHODS[name].build(options)
        _refuse(solver, problem)
        _open(problem.sources, problem.task, session, about)
        return Prepared(problem, np.zeros(problem.dim), solver, choice)
    if isinstance(problem, RemoteProblem):
        return _prepare_remote(problem, solver, options, w0, session, about)
    w = problem.start(w0)
    solver, choice = _choose_solver(problem, w.size, solver, options)
    if not solver.needs.coupled or problem.couples_private:  # the server's rows would tie the private variables
        problem = decouple(problem, w.size, coupled_scale(problem, w))
    _refuse(solver, problem)
    session.open({share.label: share for share in problem.shares}, about)
    slacks = np.zeros((problem.dim or w.size) - w.size)
    return Prepared(problem, np.concatenate([w, slacks]), solver, choice)


def _prepare_remote(
    problem: RemoteProblem,
    solver: Solver[Any] | None,
    options: dict[str, Any],
    w0: ArrayLike | None,
    session: Session,
    about: Mapping[str, Any],
) -> Prepared:
    """The session is opened first, since only the owners know their shares."""
    _open(problem.sources, problem.task, session, about)
    described = describe_problem(problem, session)
    w = described.start(w0)
    solver, choice = _choose_solver(described, w.size, solver, options)
    _refuse(solver, described)
    if described.couples_private:
        raise OptionError(
            "a coupled constraint with private variables is rewritten with slacks, for which shares must be in this "
            "process; use fp.FederatedProblem, or a coupled map without private variables",
            code="FP-OPTION-114",
        )
    if solver.needs.pooled or (described.coupled_length and not solver.needs.coupled):
        raise OptionError(
            f'method "{solver.name}" reads shares, which only their owners hold; use "interior-point"',
            code="FP-OPTION-109",
        )
    return Prepared(described, w, solver, choice)


def _open(sources: Mapping[str, object], task: Any, session: Session, about: Mapping[str, Any]) -> None:
    """Give the owners what they hold, or the task from which they build it."""
    if task is None:
        session.open(sources, about)
    else:
        session.open(sources, {**task.stated(), **about})
        session.pose(task)


def _refuse(solver: Solver[Any], problem: FederatedProblem | VerticalProblem) -> None:
    why = solver.needs.refusal(problem)
    if why:
        raise OptionError(f'method "{solver.name}" {why}', code="FP-OPTION-110")


def _choose_solver(
    problem: FederatedProblem, dim: int, solver: Solver[Any] | None, options: dict[str, Any]
) -> tuple[Solver[Any], str]:
    """The solver and why it was chosen; no reason when the caller named it."""
    if solver is not None:
        return solver, ""
    name, choice = choose(problem, dim)
    return METHODS[name].build(options), choice


def choose_vertical(problem: VerticalProblem) -> tuple[str, str]:
    """What "auto" takes for parties that hold columns, and why: what tells the coordinator less, not what is faster.

    The same in one process as between organisations, so that what was tried out is what is run.
    """
    for name in ("vertical-al", "fair-vfl"):
        if not METHODS[name].needs.refusal(problem):
            return (
                name,
                "vertical-exact takes fewer exchanges, and tells the coordinator more at once: ask for it by name",
            )
    refusal = METHODS["vertical-al"].needs.refusal(problem)
    return "vertical-exact", f"vertical-al {refusal}; vertical-exact tells the coordinator more at once"


def choose(problem: FederatedProblem, dim: int) -> tuple[str, str]:
    """What "auto" takes for w of length dim, and why."""
    if problem.monotone:
        return _choose_for_operators(problem, dim)
    refusal = METHODS["interior-point"].needs.refusal(problem)
    if refusal:
        return "accelerated", f"interior-point {refusal}"
    message = 8 * dim * (dim + 1) // 2
    size = f"a matrix of {dim} variables is {message / 1e6:.2g} MB a message"
    if message > LARGEST_MESSAGE:
        return "accelerated", f"{size}, more than {LARGEST_MESSAGE / 1e6:.0f}"
    return "interior-point", f"Hessians exist, and {size}"


def _choose_for_operators(problem: FederatedProblem, dim: int) -> tuple[str, str]:
    refusal = METHODS["monotone-newton"].needs.refusal(problem)
    if refusal:
        return "ifeddr", f"monotone-newton {refusal}"
    message = 8 * dim**2
    size = f"a matrix of {dim} variables is {message / 1e6:.2g} MB a message"
    if message > LARGEST_MESSAGE:
        return "ifeddr", f"{size}, more than {LARGEST_MESSAGE / 1e6:.0f}"
    return "monotone-newton", f"Jacobians exist, and {size}"
