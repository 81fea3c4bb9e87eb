"""How well the scores of a classifier tell two classes apart, and how often they are right, from counts in score bins.

One exchange: every owner counts its rows of either class in the bins that the coordinator states, and only the sums
over the owners are seen. The curves of the report, ROC and calibration, are drawn from these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedpact.federation import Order, Reply, Session, Summed, client_step
from fedpact.fitting.calibration import Scored
from fedpact.problem import Share
from fedpact.solvers.steps import model_of
from fedpact.statistics import ScoreCounts
from fedpact.tasks import Calibration
from fedpact.types import Vector

#: Inner edges of the bins, in log-odds, or in units of the usual size of scores that are none. Beyond them is one bin.
EDGES = np.linspace(-8.0, 8.0, 81)


@dataclass(frozen=True, kw_only=True)
class Bins(Order):
    """w: the finished model; edges: between the bins of its scores"""

    w: Vector
    edges: Vector


@dataclass(frozen=True, kw_only=True)
class Binned(Reply):
    """The owner's rows of class 0, then of class 1, in every bin."""

    counts: Summed[Vector]

    def withhold(self, least: int) -> Binned:
        """A bin with fewer rows than `least` is counted with its neighbours; the totals stay."""
        by_class = [merge_small(counts, least) for counts in np.split(self.counts, 2)]
        return replace(self, counts=np.concatenate(by_class))


def merge_small(counts: Vector, least: int) -> Vector:
    """Counts in which no bin has some rows and yet fewer than `least`: they move up to the next bin that is enough.

    What is left at the top moves down to the last such bin; nothing is told where all rows together are too few.
    """
    merged = np.zeros(counts.size)
    carried = 0.0
    for place, count in enumerate(counts):
        carried += count
        if carried >= max(least, 1):
            merged[place] = carried
            carried = 0.0
    filled = np.flatnonzero(merged)
    if carried and filled.size:
        merged[filled[-1]] += carried
    return merged


@client_step
def count_scores(share: Share, state: Any, order: Bins) -> tuple[Any, Binned]:
    """Count the owner's rows by class and score."""
    assert isinstance(share.measures, Scored)
    score = share.measures.score(model_of(share, state, order.w))
    bins: NDArray[np.int64] = np.searchsorted(order.edges, score)
    label = share.measures.labels == 1
    each = [np.bincount(bins[label == one], minlength=order.edges.size + 1) for one in (False, True)]
    return state, Binned(counts=np.concatenate(each).astype(float))


def draw_scores(
    session: Session, w: Vector, scale: float = 1.0, calibration: Calibration | None = None, log_odds: bool = True
) -> ScoreCounts:
    """One exchange: the scores of the model w, by class.

    scale: usual size of its scores; calibration, log_odds: what makes probabilities of them, if anything does
    """
    edges = scale * EDGES
    counts = session.ask(count_scores, Bins(w=w, edges=edges)).total.counts
    step = edges[1] - edges[0]
    middles = np.append(edges, edges[-1] + step) - step / 2
    probabilities = np.zeros(0)
    if calibration is not None:
        probabilities = calibration.probabilities(middles)
    elif log_odds:
        probabilities = expit(middles)
    negative, positive = np.split(counts, 2)
    return ScoreCounts(*(tuple(one.tolist()) for one in (edges, negative, positive, probabilities)))
