"""What the bounds of a task cost: models for bounds around those that were asked for, each from the one next to it.

A point is one solve from a model that is nearly there, and one exchange over the rows of all owners, by sums, that
counts its decisions or adds up the errors of a regression. Decisions are smoothed gently for these models, since
sharper ones take many exchanges from anywhere but where they were found; what is told of them is counted all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpact.federation import Reply, Session, Summed, client_step
from fedpact.fitting.agreement import Finished
from fedpact.fitting.sharpening import GENTLE, OVER
from fedpact.problem import Share
from fedpact.solvers import Solution
from fedpact.solvers.steps import model_of
from fedpact.statistics import BoundPrice
from fedpact.tasks import Classification, Regression, TableTask
from fedpact.tasks.decisions import Decisions
from fedpact.tasks.families import Errors
from fedpact.types import Vector

#: Multiples of what the bounds allow, around what was asked: three quarters of the misses, to half as many again.
ALLOWANCES = (0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.5)
#: Exchanges at most, of all solves and counts together; what one solve leaves over, those after it may use.
EXCHANGES = 60
#: Their tolerances are so many times those asked for: a point of a curve need not be nearer.
COARSER = 3.0
#: Exchanges that are kept for each of the solves after it: what the easy ones take.
RESERVED = 7


@dataclass(frozen=True, kw_only=True)
class Decided(Reply):
    """counts: rows of class j that are given class k, at j * classes + k; zero at an owner with too few of a class"""

    counts: Summed[Vector]

    def withhold(self, least: int) -> Decided:
        classes = round(np.sqrt(self.counts.size))
        rows = self.counts.reshape(classes, classes).sum(axis=1)
        if rows.min() >= least:
            return self
        return replace(self, counts=np.zeros(self.counts.size))


@client_step
def count_decisions(share: Share, state: Any, order: Finished) -> tuple[Any, Decided]:
    """Count the decisions of the owner's training rows, by class."""
    assert isinstance(share.measures, Decisions)
    told = share.measures
    w = told.common(model_of(share, state, order.w))
    decided = told.rows.decide(w, told.decide_at(w))
    cells = told.rows.y * told.rows.classes + decided
    return state, Decided(counts=np.bincount(cells, minlength=told.rows.classes**2).astype(float))


@dataclass(frozen=True, kw_only=True)
class Erred(Reply):
    """sums: of an owner's rows (`Errors.add_up`); zero at an owner with too few"""

    sums: Summed[Vector]

    def withhold(self, least: int) -> Erred:
        if self.sums[0] >= least:
            return self
        return replace(self, sums=np.zeros(self.sums.size))


@client_step
def add_up_errors(share: Share, state: Any, order: Finished) -> tuple[Any, Erred]:
    """Add up the errors of the owner's training rows; none are told of times to an event."""
    if not isinstance(share.measures, Errors):
        return state, Erred(sums=np.zeros(4))
    return state, Erred(sums=share.measures.add_up(model_of(share, state, order.w)))


def bounds_owners(task: TableTask) -> bool:
    """Whether the task has bounds at its owners: then there is a trade-off."""
    if isinstance(task, Regression):
        return task.bounds_owners
    return isinstance(task, Classification) and bool(task.requirements)


def measure_all(session: Session, task: TableTask, w: Vector) -> dict[str, float]:
    """One exchange: rates of a classifier's decisions, or mean errors of a regression, over the rows of all owners."""
    session.pose(task)
    if isinstance(task, Classification):
        return rates_of(session.ask(count_decisions, Finished(w=w)).total.counts)
    _, weight, sizes, squares = session.ask(add_up_errors, Finished(w=w)).total.sums.tolist()
    if not weight:
        return {}
    return {"mean absolute error": sizes / weight, "root mean squared error": float(np.sqrt(squares / weight))}


def trade_off(
    session: Session,
    task: Classification | Regression,
    solution: Solution,
    solve: Callable[[Classification | Regression, Vector, int], Solution],
    allowances: Sequence[float] = ALLOWANCES,
) -> Iterator[BoundPrice]:
    """Models for these multiples of what the bounds allow, from the asked one outwards, each from the one before.

    solution: of the task itself; solve: solves a task from a start in so many exchanges at most
    """
    near = task
    if isinstance(task, Classification) and task.sharpened:
        near = replace(task, width=max(task.width, GENTLE))
    left = EXCHANGES - len(allowances)
    unsolved = len(allowances) - 1
    below = [one for one in allowances if one < 1]
    above = [one for one in allowances if one > 1]
    for side in ([1.0, *reversed(below)], above):
        w = solution.w
        for allowance in side:
            asked = task
            answer = solution
            if allowance != 1:
                asked = replace(near, allowance=allowance)
                answer = solve(asked, w, left - RESERVED * (unsolved - 1))
                left -= answer.rounds
                unsolved -= 1
            if answer.status in OVER:
                return
            rates = measure_all(session, asked, answer.w)
            yield BoundPrice(allowance, answer.status, answer.objective, rates)
            if answer.solved:
                w = answer.w


def rates_of(counts: Vector) -> dict[str, float]:
    """Accuracy and, of two classes, recall and specificity of the last, from the counts of all owners together."""
    classes = round(np.sqrt(counts.size))
    table = counts.reshape(classes, classes)
    if not table.sum():
        return {}
    rates = {"accuracy": float(np.trace(table) / table.sum())}
    if classes == 2 and np.all(table.sum(axis=1)):
        rates["recall"] = float(table[1, 1] / table[1].sum())
        rates["specificity"] = float(table[0, 0] / table[0].sum())
    return rates
