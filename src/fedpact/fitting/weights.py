"""How much each owner counts in the objective, where that depends on the rows of all: one sum before the solve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fedpact.federation import Order, Reply, Session, Summed, client_step
from fedpact.problem import Unscaled
from fedpact.tasks import TableTask, Task
from fedpact.tasks.weights import total_weight


@dataclass(frozen=True, kw_only=True)
class Weigh(Order):
    """Asks by how much the owner counts when every row counts the same."""


@dataclass(frozen=True, kw_only=True)
class Weighed(Reply):
    """total: rows of the owner, or the sum of their weights"""

    total: Summed[float]


@client_step
def weigh_rows(share: Unscaled, state: Any, order: Weigh) -> tuple[Any, Weighed]:
    """The owner's rows, or the sum of their weights."""
    return state, Weighed(total=total_weight(share.X, share.weight))


def agree_on_weights(session: Session, task: Task) -> Task:
    """The task with the rows of all owners together, where its objective weighs owners by them."""
    if not isinstance(task, TableTask) or not task.needs_total:
        return task
    session.pose(task)
    total = session.ask(weigh_rows, Weigh()).total.total
    return replace(task, total_rows=float(total))
