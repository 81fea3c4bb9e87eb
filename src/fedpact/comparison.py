"""Several methods on one problem, side by side: `fp.compare`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedpact.errors import OptionError, ProblemError
from fedpact.notebook import frame, show
from fedpact.problem import FederatedProblem
from fedpact.report.figures import Panel, panels
from fedpact.solve import solve
from fedpact.solvers import Solution, Solver

COLUMNS = ("status", "objective", "stationarity", "feasibility", "exchanges", "megabytes")


@dataclass(frozen=True, eq=False)
class Comparison:
    """What methods made of one problem.

    solutions: by the name of the method
    refused:   why a method does not take this problem, by its name
    """

    solutions: Mapping[str, Solution]
    refused: Mapping[str, str]

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Method, then `COLUMNS`."""
        for name, one in self.solutions.items():
            certificate = one.certificate
            spent = (one.rounds, one.communication.bytes / 1e6)
            yield name, one.status, one.objective, certificate.stationarity, certificate.feasibility, *spent

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row a method. FedpactError without pandas."""
        return frame([dict(zip(("method", *COLUMNS), row, strict=True)) for row in self.rows()]).set_index("method")

    def plot(self) -> Any:
        """A matplotlib Figure: objective, stationarity and feasibility against exchanges. FedpactError without it."""
        lines: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
        for quantity in ("objective", "stationarity", "feasibility"):
            lines[quantity] = {}
            for name, one in self.solutions.items():
                judged = one.history.outer
                x = [float(step.rounds) for step in judged]
                lines[quantity][name] = (x, [getattr(step, quantity) for step in judged])
        drawn = []
        for quantity, curves in lines.items():
            log = quantity != "objective"
            drawn.append(Panel(quantity, "exchanges", quantity, curves, log_x=True, log_y=log))
        return panels(drawn, columns=3)

    def __str__(self) -> str:
        lines = [f"{'method':24}" + "".join(f"{name:>14}" for name in COLUMNS)]
        for name, *values in self.rows():
            cells = [f"{value:14.4g}" if isinstance(value, float) else f"{value!s:>14}" for value in values]
            lines.append(f"{name!s:24}" + "".join(cells))
        lines += [f"{name}: {why}" for name, why in self.refused.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = [f"{name}: {why}" for name, why in self.refused.items()]
        return show("Methods on one problem", facts, ("method", *COLUMNS), self.rows())


def compare(
    problem: FederatedProblem, methods: Sequence[str | Solver[Any]] | Mapping[str, str | Solver[Any]], **settings: Any
) -> Comparison:
    """Solve one problem by several methods, one after the other.

    methods:  their names, or solvers of your own; or a mapping that names them, such as two settings of one method
    settings: of `fp.solve`, for each

    A method that does not take the problem is listed with the reason, in the place of an answer.
    """
    named: dict[str, str | Solver[Any]]
    if isinstance(methods, Mapping):
        named = dict(methods)
    else:
        named = {one if isinstance(one, str) else one.name: one for one in methods}
    solutions = {}
    refused = {}
    for name, method in named.items():
        try:
            solutions[name] = solve(problem, method, **settings)
        except (OptionError, ProblemError) as error:
            refused[name] = str(error)
    return Comparison(solutions, refused)
