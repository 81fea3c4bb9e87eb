"""What a solve does before its first exchange: choose the method, reformulate the problem, open the session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import OptionError, ProblemError
from fedpact.federation import Session
from fedpact.problem import FederatedProblem, RemoteProblem, VerticalProblem, coupled_scale, decouple
from fedpact.problem.certificate import check_multipliers, read_price
from fedpact.solvers import METHODS, Solver, describe_problem
from fedpact.solvers.run import Given
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
    given: Given | None = None


@dataclass(frozen=True)
class Start:
    """Where the caller wants to start: w0 and multipliers, as `fp.solve` takes them."""

    w0: ArrayLike | None = None
    multipliers: Sequence[ArrayLike | None] | None = None
    coupled_multiplier: ArrayLike | None = None

    @property
    def priced(self) -> bool:
        return self.multipliers is not None or self.coupled_multiplier is not None

    def read(self, problem: FederatedProblem, w: Vector, solver: Solver[Any]) -> Given | None:
        """The multipliers, checked; None where none are given. OptionError when the method starts from none."""
        if not self.priced:
            return None
        if not solver.needs.prices:
            raise OptionError(
                f'multipliers0: method "{solver.name}" starts from no multipliers; use "accelerated" or "proximal-al"',
                code="FP-OPTION-115",
            )
        given = [None] * len(problem.holders) if self.multipliers is None else self.multipliers
        _, (server, *owners), coupled = check_multipliers(problem, w, given, self.coupled_multiplier)
        prices = [
            read_price(holder.label, None if holder.constraint is None else holder.constraint.cone, price)
            for holder, price in zip(problem.holders, (server, *owners), strict=True)
        ]
        coupled = read_price("coupled constraint", problem.coupled_cone, coupled)
        return Given(prices[0], tuple(prices[1:]), coupled)


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
    first: Start,
    session: Session,
    about: Mapping[str, Any],
) -> Prepared:
    """Choose the method where solver is None, open the session, and refuse what the method cannot take."""
    if isinstance(problem, VerticalProblem):
        if first.w0 is not None or first.priced:
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
        return _prepare_remote(problem, solver, options, first, session, about)
    w = problem.start(first.w0)
    solver, choice = _choose_solver(problem, w.size, solver, options, first)
    given = first.read(problem, w, solver)
    _refuse(solver, problem)
    if solver.needs.decoupled(problem):
        problem = decouple(problem, w.size, coupled_scale(problem, w))
    _refuse(solver, problem)
    session.open({share.label: share for share in problem.shares}, about)
    slacks = np.zeros((problem.dim or w.size) - w.size)
    return Prepared(problem, np.concatenate([w, slacks]), solver, choice, given)


def _prepare_remote(
    problem: RemoteProblem,
    solver: Solver[Any] | None,
    options: dict[str, Any],
    first: Start,
    session: Session,
    about: Mapping[str, Any],
) -> Prepared:
    """The session is opened first, since only the owners know their shares."""
    _open(problem.sources, problem.task, session, about)
    described = describe_problem(problem, session)
    w = described.start(first.w0)
    solver, choice = _choose_solver(described, w.size, solver, options, first, elsewhere=True)
    _refuse(solver, described)
    if solver.needs.decoupled(described) and not solver.needs.pooled:
        raise OptionError(
            f'method "{solver.name}" takes no such coupled constraint of shares that only their owners hold; use '
            '"accelerated" or "proximal-al"',
            code="FP-OPTION-114",
        )
    if solver.needs.pooled:
        raise OptionError(
            f'method "{solver.name}" reads shares, which only their owners hold; use "proximal-al"',
            code="FP-OPTION-109",
        )
    return Prepared(described, w, solver, choice, first.read(described, w, solver))


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
    problem: FederatedProblem,
    dim: int,
    solver: Solver[Any] | None,
    options: dict[str, Any],
    first: Start,
    elsewhere: bool = False,
) -> tuple[Solver[Any], str]:
    """The solver and why it was chosen; no reason when the caller named it."""
    if solver is not None:
        return solver, ""
    name, choice = choose(problem, dim, elsewhere)
    if first.priced and not METHODS[name].needs.prices and not problem.monotone:
        name = "accelerated"
        choice = "interior-point starts from no multipliers"
    return METHODS[name].build(options), choice


def choose_vertical(problem: VerticalProblem) -> tuple[str, str]:
    """What "auto" takes for parties that hold columns, and why: what tells the coordinator less, not what is faster.

    The same in one process as between organisations, so that what was tried out is what is run.
    """
    for name in ("vertical-al", "fair-vfl"):
        if not METHODS[name].needs.refusal(problem):
            why = "vertical-exact takes fewer exchanges, and tells the coordinator more at once: ask for it by name"
            return name, why
    refusal = METHODS["vertical-al"].needs.refusal(problem)
    return "vertical-exact", f"vertical-al {refusal}; vertical-exact tells the coordinator more at once"


def choose(problem: FederatedProblem, dim: int, elsewhere: bool = False) -> tuple[str, str]:
    """What "auto" takes for w of length dim, and why; elsewhere: only the owners hold their shares."""
    if problem.monotone:
        return _choose_for_operators(problem, dim)
    if any(holder.constraint is not None and holder.constraint.function.stands_in for holder in problem.holders):
        return "stochastic-al", "rates are counted, with slopes of smoothed ones"
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


def _choose_for_operators(problem: FederatedProblem, dim: int) -> tuple[str, str]:
    refusal = METHODS["monotone-newton"].needs.refusal(problem)
    if refusal:
        return "ifeddr", f"monotone-newton {refusal}"
    message = 8 * dim**2
    size = f"a matrix of {dim} variables is {message / 1e6:.2g} MB a message"
    if message > LARGEST_MESSAGE:
        return "ifeddr", f"{size}, more than {LARGEST_MESSAGE / 1e6:.0f}"
    return "monotone-newton", f"Jacobians exist, and {size}"
