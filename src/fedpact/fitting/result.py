"""What a fit gives: the model, how it was judged, and what everyone measured."""

from __future__ import annotations

from dataclasses import dataclass

from fedpact.federation import Communication
from fedpact.solvers import Solution
from fedpact.tasks import Model, NeymanPearson, TableTask, Task
from fedpact.types import Vector


@dataclass(frozen=True, eq=False)
class Fit:
    """A task's answer.

    task:          as it was at last: with its scaling, and with the bounds that were found for a recall
    solution:      of the last solve
    values:        of everyone's constraint at the model, as `Constraint.function` gives them; "server" among them
    measures:      what everyone tells about the model, by name; empty when an owner was lost before it could
    before:        the same about the model without constraints; empty when it was not asked for
    communication: of all exchanges together
    trials:        solves that were made
    """

    task: Task
    solution: Solution
    values: dict[str, Vector]
    measures: dict[str, dict[str, float]]
    before: dict[str, dict[str, float]]
    communication: Communication
    trials: int

    @property
    def solved(self) -> bool:
        return self.solution.solved and not self.short

    @property
    def short(self) -> list[str]:
        """Owners whose recall is below the one asked for."""
        if not isinstance(self.task, NeymanPearson):
            return []
        least = self.task.min_recall
        return [name for name, told in self.measures.items() if told.get("recall", 1.0) < least]

    @property
    def model(self) -> Model | None:
        """The model in the units of the columns; None for a task without one."""
        if isinstance(self.task, TableTask) and self.task.comparable:
            return self.task.model(self.solution.w)
        return None
