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
        solver = solver or METHODS["vertical-al"].build(options)
        _refuse(solver, problem)
        session.open({party.name: party for party in problem.shares}, about)
        return Prepared(problem, np.zeros(problem.dim), solver)
    if isinstance(problem, RemoteProblem):
        return _prepare_remote(problem, solver, options, w0, session, about)
    w = problem.start(w0)
    solver, choice = _choose_solver(problem, w.size, solver, options)
    if solver.needs.decoupled(problem):
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
    if problem.task is None:
        session.open(problem.sources, about)
    else:
        session.open(problem.sources, {**problem.task.stated(), **about})
        session.pose(problem.task)
    described = describe_problem(problem, session)
    w = described.start(w0)
    solver, choice = _choose_solver(described, w.size, solver, options, elsewhere=True)
    _refuse(solver, described)
    if solver.needs.decoupled(described) and not solver.needs.pooled:
        raise OptionError(
            f'method "{solver.name}" takes no coupled constraint with private variables of owners elsewhere; use '
            '"accelerated" or "proximal-al"',
            code="FP-OPTION-114",
        )
    if solver.needs.pooled:
        raise OptionError(
            f'method "{solver.name}" reads shares, which only their owners hold; use "proximal-al"',
            code="FP-OPTION-109",
        )
    return Prepared(described, w, solver, choice)


def _refuse(solver: Solver[Any], problem: FederatedProblem | VerticalProblem) -> None:
    why = solver.needs.refusal(problem)
    if why:
        raise OptionError(f'method "{solver.name}" {why}', code="FP-OPTION-110")


def _choose_solver(
    problem: FederatedProblem, dim: int, solver: Solver[Any] | None, options: dict[str, Any], elsewhere: bool = False
) -> tuple[Solver[Any], str]:
    """The solver and why it was chosen; no reason when the caller named it."""
    if solver is not None:
        return solver, ""
    name, choice = choose(problem, dim, elsewhere)
    return METHODS[name].build(options), choice


def choose(problem: FederatedProblem, dim: int, elsewhere: bool = False) -> tuple[str, str]:
    """What "auto" takes for w of length dim, and why; elsewhere: only the owners hold their shares."""
    if problem.monotone:
        return "ifeddr", "the problem is about operators"
    needs = METHODS["interior-point"].needs
    refusal = needs.refusal(problem)
    if elsewhere and needs.decoupled(problem):
        refusal = "takes no coupled constraint with private variables of owners elsewhere"
    if refusal:
        return "accelerated", f"interior-point {refusal}"
    message = 8 * dim * (dim + 1) // 2
    size = f"a matrix of {dim} variables is {message / 1e6:.2g} MB a message"
    if message > LARGEST_MESSAGE:
        return "accelerated", f"{size}, more than {LARGEST_MESSAGE / 1e6:.0f}"
    return "interior-point", f"Hessians exist, and {size}"
