"""Promises about rows not yet seen, kept on rows that were held out of training.

Recall of one class, at every owner: the threshold is an order statistic of the owner's held-out scores
(`fedpact.statistics.promised_threshold`), exact for any distribution. One threshold for all is the lowest of the
owners', each at the level delta: for it to be too high, one given owner's own test must have failed
(intersection-union, Berger 1982), so nothing is lost to the number of owners. Thresholds of the owners' own fail
together at most delta when each is at delta / n. Scores stay where they are: the coordinator proposes thresholds, and
learns how many owners each one fails.

Anything else (gaps, several rates at once): models from strict bounds to loose ones, tested on the held-out rows in
this order until the first failure (fixed-sequence testing); the last that passed is returned. All owners must pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpact.federation import Order, Reply, Session, Summed, client_step
from fedpact.problem import Share
from fedpact.solvers.steps import model_of
from fedpact.tasks import Classification
from fedpact.tasks.decisions import Decisions
from fedpact.types import Vector

#: Thresholds that are proposed in one exchange.
PROPOSED = 200
#: Exchanges that narrow the threshold down, after the first.
NARROWED = 3
#: The first thresholds reach this many deviations of the scores to either side; as often as no one passes, WIDER more.
FAR = 40.0
WIDER = 100.0
#: Bounds of the models that are tested, as parts of the bounds asked for, from strict to loose.
PATH = (0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, kw_only=True)
class Propose(Order):
    """w: the model; thresholds: scores above which the last class would be decided"""

    w: Vector
    thresholds: Vector


@dataclass(frozen=True, kw_only=True)
class Proposed(Reply):
    """failed: 1 for every threshold with which this owner could not keep its promise"""

    failed: Summed[Vector]


@client_step
def propose(share: Share, state: Any, order: Propose) -> tuple[Any, Proposed]:
    """With which thresholds the promise would fail."""
    assert isinstance(share.measures, Decisions)
    return state, Proposed(
        failed=share.measures.fails_at(model_of(share, state, order.w), order.thresholds).astype(float)
    )


@dataclass(frozen=True, kw_only=True)
class Tested(Reply):
    """failed: 1 when the owner's held-out rows do not bear out its promises

    hits, rows: held-out ones in every cell of what all owners promise together
    """

    failed: Summed[float]
    hits: Summed[Vector]
    rows: Summed[Vector]


@client_step
def test(share: Share, state: Any, order: Propose) -> tuple[Any, Tested]:
    """Test the promises of a model on the held-out rows."""
    assert isinstance(share.measures, Decisions)
    point = model_of(share, state, order.w)
    hits, rows = share.measures.count_together(point, held_out=True)
    return state, Tested(failed=float(not share.measures.keeps_promises(point)), hits=hits, rows=rows)


def common_threshold(session: Session, task: Classification, w: Vector, deviation: float) -> float:
    """A few exchanges: the best threshold with which no owner's bound on the recall fails, promised or counted.

    deviation: of the scores
    """
    session.pose(task)
    rising = task.recalled_class == len(task.classes) - 1  # a higher threshold finds fewer rows of the class
    steps = np.linspace(-1.0, 1.0, PROPOSED)
    thresholds = FAR * deviation * steps * np.abs(steps)  # closer together in the middle
    if not rising:
        thresholds = thresholds[::-1]
    passing = count_passing(session, w, thresholds)
    while passing == 0:  # scores of an owner that lie far from all others
        thresholds = WIDER * thresholds
        passing = count_passing(session, w, thresholds)
    for _ in range(NARROWED):
        following = thresholds[min(passing, PROPOSED - 1)]
        thresholds = np.linspace(thresholds[passing - 1], following, PROPOSED)
        passing = count_passing(session, w, thresholds)
    return float(thresholds[passing - 1])


def count_passing(session: Session, w: Vector, thresholds: Vector) -> int:
    """One exchange: how many thresholds, from the first, keep the promises of all owners."""
    failed = session.ask(propose, Propose(w=w, thresholds=thresholds)).total.failed
    return int(np.sum(np.cumsum(failed > 0.5) == 0))  # the first failure ends it


def keeps_promises(session: Session, task: Classification, w: Vector) -> bool:
    """One exchange: whether the held-out rows of all owners bear out the promises.

    What all promise together is tested on the rows of all: their hits vary no more than if all owners had the same rate
    (Hoeffding 1956), so that exact bounds of a single rate hold.
    """
    session.pose(task)
    tested = session.ask(test, Propose(w=w, thresholds=np.zeros(0))).total
    return tested.failed < 0.5 and task.promises_hold_together(tested.hits, tested.rows)
