"""A solve in the problem's own units: the problem goes in rescaled, the answer comes out as the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import OptionError
from fedpact.problem import FederatedProblem, certify
from fedpact.problem.digits import count_digits
from fedpact.problem.units import Units, measure_units
from fedpact.solvers import Progress, Solution
from fedpact.types import Vector

#: Units of the problem's own are used by "auto" where a factor among them is at least this large.
UNEVEN = 1e4
#: A tolerance in those units is never below this: rounding in the sums would not let it be met.
FLOOR = 1e-11
#: A matrix of more variables is not formed for this.
MOST_COLUMNS = 1000
OUT_OF_REACH = (
    "the certificate meets the tolerances relative to the size of the problem's numbers, and misses them in the units "
    "given: for these sizes they are near rounding; ask for relative=True, or scale the data"
)

NO_DIGIT = (
    "the certificate meets the relative tolerances, and columns agree so nearly that not even the first digit of the "
    "coefficients is sure: ask for a smaller tol, centre and scale the columns, or add a regularizer"
)


@dataclass(frozen=True)
class Rescaling:
    """The units of one solve; relative: whether the tolerances are meant in them."""

    problem: FederatedProblem  # the user's
    units: Units
    relative: bool

    def tolerances(self, tol: tuple[float, float]) -> tuple[float, float]:
        """What to ask of the rescaled problem."""
        if self.relative:
            return tol
        tight = self.units.tighten(tol)
        return max(min(tol[0], tight[0]), FLOOR), max(min(tol[1], tight[1]), FLOOR)

    def listeners(self, callbacks: Iterable[Callable[[Progress], Any]]) -> list[Callable[[Progress], Any]]:
        """Callbacks that see w and the objective in the user's units."""
        return [self._translated(callback) for callback in callbacks]

    def _count_digits(self, answer: Solution) -> Solution:
        """The answer, in units of the problem's own, with its digits; stalled where not even the first is sure."""
        digits = count_digits(self.units.rescale(self.problem), answer.w, answer.multipliers)
        if digits is None:
            return answer
        answer = replace(answer, certificate=replace(answer.certificate, digits=digits))
        return answer if digits >= 1 else replace(answer, status="stalled", reason=NO_DIGIT)

    def _translated(self, callback: Callable[[Progress], Any]) -> Callable[[Progress], Any]:
        def call(progress: Progress) -> Any:
            w = self.units.columns * progress.w
            return callback(replace(progress, w=w, objective=progress.objective / self.units.objective))

        return call

    def restore(self, answer: Solution, tol: tuple[float, float]) -> Solution:
        """The answer in the user's units, judged there unless the tolerances are relative."""
        if self.relative and answer.status == "solved":
            answer = self._count_digits(answer)
        units = self.units
        history = answer.history
        outer = [replace(record, objective=record.objective / units.objective) for record in history.outer]
        note = f"residuals are in units of the problem's own: factors of up to {units.spread:.2g}"
        answer = replace(
            answer,
            history=replace(history, outer=outer, notes=[*history.notes, note]),
            w=units.columns * answer.w,
            multipliers=units.prices(answer.multipliers),
            coupled_multiplier=units.coupled * answer.coupled_multiplier / units.objective,
            objective=answer.objective / units.objective,
            tol=tol,
        )
        if answer.proof is not None:
            weights = tuple(rows * held for rows, held in zip(units.rows, answer.proof.weights, strict=True))
            coupled = units.coupled * answer.proof.coupled
            proof = replace(answer.proof, w=units.columns * answer.proof.w, weights=weights, coupled=coupled)
            answer = replace(answer, proof=proof)
        if answer.ray is not None:
            answer = replace(answer, ray=units.columns * answer.ray)
        if self.relative or not all(np.all(np.isfinite(price)) for price in answer.multipliers):
            return answer
        judged = certify(self.problem, answer.w, answer.multipliers, answer.coupled_multiplier)
        answer = replace(answer, certificate=judged)
        if answer.status == "solved" and not judged.meets(tol):
            return replace(answer, status="stalled", reason=OUT_OF_REACH)
        if answer.status in ("stalled", "max_rounds") and judged.meets(tol):
            return replace(answer, status="solved", reason="the certificate meets the tolerances")
        return answer


def choose_units(problem: object, auto: bool, relative: bool, w0: ArrayLike | None, priced: bool) -> Rescaling | None:
    """The units to solve in; None for the user's. OptionError where relative tolerances cannot be had.

    auto: the caller left the method to us; priced: multipliers to start from are given
    """
    if not auto and not relative:
        return None
    able = type(problem) is FederatedProblem and not priced and problem.has_hessian and not problem.private
    if not able:
        if relative:
            raise OptionError(
                "relative=True: takes a problem whose functions are in this process and have Hessians, without private "
                "variables, and starts from no multipliers; scale the data instead",
                code="FP-OPTION-968",
            )
        return None
    assert isinstance(problem, FederatedProblem)
    start = problem.start(w0)
    if start.size > MOST_COLUMNS:
        return None
    units = _measured(problem, start)
    if units is None or (not relative and units.spread < UNEVEN):
        return None
    return Rescaling(problem, units, relative)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def _measured(problem: FederatedProblem, start: Vector) -> Units | None:
    """None where a derivative is not finite, which the solve will say with the owner's name."""
    try:
        units = measure_units(problem, start)
    except Exception:  # whatever is wrong with a function is for the first exchange to say
        return None
    if not np.isfinite(units.spread):
        return None
    return units
