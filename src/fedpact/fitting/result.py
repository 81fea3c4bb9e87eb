"""What a fit gives: the model, how it was judged, and what everyone measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedpact.federation import Communication
from fedpact.fitting.evidence import Evidence
from fedpact.solvers import Solution
from fedpact.solvers.solution import Status
from fedpact.tasks import Model, NeymanPearson, TableTask, Task
from fedpact.types import Vector


@dataclass(frozen=True, eq=False)
class Fit:
    """A task's answer.

    task:          as it was at last: with its scaling, and with the bounds that were found for a recall
    solution:      of the model's own solve
    values:        of everyone's constraint at the model, as `Constraint.function` gives them; "server" among them
    measures:      what everyone tells about the model, by name; empty when an owner was lost before it could
    before:        the same about the model without constraints; empty when it was not asked for
    communication: of all exchanges together
    trials:        solves that were made
    evidence:      what the owners signed about all this; None where they have no keys
    """

    task: Task
    solution: Solution
    values: dict[str, Vector]
    measures: dict[str, dict[str, float]]
    before: dict[str, dict[str, float]]
    communication: Communication
    trials: int
    evidence: Evidence | None = None

    @property
    def solved(self) -> bool:
        """Whether the model is certified, and has the recall asked for everywhere."""
        return self.solution.solved and not self.short

    @property
    def short(self) -> list[str]:
        """Owners whose recall is below the one asked for."""
        if not isinstance(self.task, NeymanPearson):
            return []
        least = self.task.min_recall
        return [name for name, told in self.measures.items() if told.get("recall", 1.0) < least]

    def better_than(self, other: Fit) -> bool:
        """Whether it is solved and the other is not, or both are and it has the lower objective."""
        if not other.solved:
            return True
        return self.solved and self.solution.objective < other.solution.objective

    def stopped(self, status: Status, reason: str) -> Fit:
        """The same model, of a fit that ended before its time."""
        return replace(self, solution=replace(self.solution, status=status, reason=reason))

    @property
    def model(self) -> Model | None:
        """The model in the units of the columns; None for a task without one."""
        if isinstance(self.task, TableTask) and self.task.comparable:
            return self.task.model(self.solution.w)
        return None
