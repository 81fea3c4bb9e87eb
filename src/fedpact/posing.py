"""The problem as it is solved: in units of its own and on faces of its cones, where that helps; and the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from fedpact.preparation import Problem, Start
from fedpact.problem import FederatedProblem, Proof
from fedpact.problem.faces import Reduced
from fedpact.reduction import find_contradiction, find_faces, restore
from fedpact.rescaling import Rescaling, choose_units
from fedpact.solvers import Progress, Solution


@dataclass(frozen=True)
class Posed:
    """What is solved in place of a problem.

    problem, start, tol: of the solve
    wanted:    the tolerances of the caller
    rescaling: None where the units are the caller's
    whole:     the problem before it was reduced; reduced: None where it was not
    """

    problem: Problem
    start: Start
    tol: tuple[float, float]
    wanted: tuple[float, float]
    rescaling: Rescaling | None
    whole: Problem
    reduced: Reduced | None

    def listeners(self, callbacks: Iterable[Callable[[Progress], Any]]) -> list[Callable[[Progress], Any]]:
        """Callbacks that see the solve as the caller posed it."""
        return list(callbacks) if self.rescaling is None else self.rescaling.listeners(callbacks)

    def contradiction(self) -> tuple[tuple[str, ...], Proof] | None:
        """The holders of constraints that no point meets, and the proof, where faces alone tell so."""
        return None if self.reduced is None else find_contradiction(self.reduced)

    def restore(self, answer: Solution) -> Solution:
        """The answer to the problem of the caller, judged there."""
        if self.reduced is not None:
            assert isinstance(self.whole, FederatedProblem)
            answer = restore(self.whole, self.reduced, answer)
        return answer if self.rescaling is None else self.rescaling.restore(answer, self.wanted)


def pose(problem: Problem, start: Start, tol: tuple[float, float], *, auto: bool, relative: bool) -> Posed:
    """How to solve a problem; auto: the method is left to us, and so are units and faces."""
    wanted = tol
    rescaling = choose_units(problem, auto, relative, start.w0, start.priced)
    if rescaling is not None:
        problem = rescaling.units.rescale(rescaling.problem)
        tol = rescaling.tolerances(wanted)
        if start.w0 is not None:
            start = replace(start, w0=rescaling.problem.start(start.w0) / rescaling.units.columns)
    whole = problem
    reduced = find_faces(problem, start.priced) if auto else None
    if reduced is not None:
        problem = reduced.problem
    return Posed(problem, start, tol, wanted, rescaling, whole, reduced)
