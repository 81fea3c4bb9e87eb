"""Probabilities from the scores of a finished classifier, by sums over the owners (Platt scaling).

A constraint moves scores: what a constrained classifier calls 0.9 is not met nine times in ten. Two numbers mend that,

    P(label = 1 | score) = 1 / (1 + exp(-(slope score + intercept))),

fitted by maximum likelihood to smoothed labels, (N1 + 1) / (N1 + 2) for the N1 rows of class 1 and 1 / (N0 + 2) for
the others, so that the fit is finite where the scores separate the classes (Platt, 1999, Probabilistic outputs for
support vector machines; Lin, Lin, Weng, 2007, A note on Platt's probabilistic outputs). Newton's method needs six sums
per exchange. Use rows that the model was not trained on where there are some: on its own rows it is too sure of itself.

differs from Platt: scores far beyond the usual size count as that far only. A row with a category that training has
not seen may score a thousand times what others do, and without a limit this one row would flatten the line for all.

Isotonic regression on counts in bins of the score was measured beside it and is not here, for reasons that
docs/benchmarks/calibration.md gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy.special import expit, logit

from fedpact.errors import OptionError
from fedpact.federation import Order, Reply, Session, Summed, client_step
from fedpact.problem import Share
from fedpact.tasks import Calibration
from fedpact.types import Matrix, Vector

#: Exchanges of Newton's method at most; four to six are usual, and more where scores separate the classes.
EXCHANGES = 60
#: Newton's method has arrived when its next step would gain this much of the loss per row. That step is still taken:
#: it squares the error, so what is left is rounding.
SETTLED = 1e-12
#: A step must gain this part of what the slope promises, else it is halved.
SUFFICIENT = 1e-4
#: A slope of the loss that is smaller, relative to rows and scores, is zero but for rounding.
ROUNDING = 1e-12
#: Scores count up to so many times their usual size: seven deviations of a normal distribution about 0.
FAR = 10.0


@runtime_checkable
class Scored(Protocol):
    """What `Share.measures` of a classifier for two classes has: labels of 0 and 1, and the scores of a model."""

    @property
    def labels(self) -> Vector:
        """One of 0 and 1 per row."""

    def score(self, w: Vector) -> Vector:
        """The score of every row, above 0 where class 1 is decided."""


# ------------------------------------------------------------------------------------------------------- owners' half


@dataclass(frozen=True, kw_only=True)
class Model(Order):
    """w: the finished model"""

    w: Vector


@dataclass(frozen=True, kw_only=True)
class Scores(Reply):
    """How many rows of class 0 and of class 1 there are, and the sum of the roots of all absolute scores."""

    count: Summed[Vector]
    roots: Summed[float]


@dataclass(frozen=True, kw_only=True)
class Line(Order):
    """A line through the scores of a model, to be judged.

    w:       the finished model
    limit:   scores beyond it, either way, count as this
    line:    slope and intercept
    targets: smoothed labels of class 0 and of class 1
    """

    w: Vector
    limit: float
    line: Vector
    targets: Vector


@dataclass(frozen=True, kw_only=True)
class LogLoss(Reply):
    """Log loss of a line over the owner's rows, its gradient, and its Hessian, of which the upper triangle."""

    loss: Summed[float]
    gradient: Summed[Vector]
    curvature: Summed[Vector]


@client_step
def describe_scores(share: Share, state: Any, order: Model) -> tuple[Any, Scores]:
    """The owner's rows by class, and the usual size of their scores."""
    scored = _scored(share)
    count = np.array([np.sum(scored.labels == label) for label in (0, 1)], dtype=np.float64)
    roots = np.sqrt(np.abs(scored.score(order.w)))
    return state, Scores(count=count, roots=float(roots.sum()))


@client_step
def judge_line(share: Share, state: Any, order: Line) -> tuple[Any, LogLoss]:
    """Log loss of a line on the owner's rows, with smoothed labels, and its derivatives."""
    scored = _scored(share)
    score = np.clip(scored.score(order.w), -order.limit, order.limit)
    target = np.where(scored.labels == 1, order.targets[1], order.targets[0])
    slope, intercept = order.line
    log_odds = slope * score + intercept
    probability = expit(log_odds)
    excess = probability - target
    weight = probability * (1 - probability)
    reply = LogLoss(
        loss=float(np.sum(np.logaddexp(0, log_odds) - target * log_odds)),
        gradient=np.array([excess @ score, excess.sum()]),
        curvature=np.array([weight @ score**2, weight @ score, weight.sum()]),
    )
    return state, reply


def _scored(share: Share) -> Scored:
    if not isinstance(share.measures, Scored):
        raise OptionError(
            f"{share.label}: this task has no scores of two classes, so none can become probabilities; calibrate a "
            "classifier for two classes",
            code="FP-OPTION-701",
        )
    return share.measures


# -------------------------------------------------------------------------------------------------- coordinator's half


def calibrate(session: Session, w: Vector) -> Calibration | None:
    """Fit the line that makes the scores of the model w probabilities: six to eight exchanges.

    None when there is no rising line, which is so unless the mean score of class 1 is above that of class 0: then they
    are scores, and should be called so.

    Raises:
        OptionError: the shares have no scores of two classes (`Scored`).
    """
    scores = session.ask(describe_scores, Model(w=w)).total
    none, some = scores.count
    if none == 0 or some == 0:
        return None
    rows = none + some
    limit = FAR * (scores.roots / rows) ** 2  # a mean of roots, which one row far away does not move much
    targets = np.array([1 / (none + 2), (some + 1) / (some + 2)])

    def judge(line: Vector) -> LogLoss:
        return session.ask(judge_line, Line(w=w, limit=limit, line=line, targets=targets)).total

    # The best line without a slope. The loss is convex: if it does not fall with the slope here, the best slope is not
    # above zero.
    line = np.array([0.0, logit(scores.count @ targets / rows)])
    here = judge(line)
    if here.gradient[0] >= -ROUNDING * rows * limit:
        return None
    length = 1.0
    for _ in range(EXCHANGES):
        step = -np.linalg.solve(_hessian(here), here.gradient)
        gain = -float(here.gradient @ step)
        if gain <= SETTLED * rows:
            slope, intercept = (line + step).tolist()
            return Calibration(slope, intercept, float(limit))
        ahead = judge(line + length * step)
        if ahead.loss > here.loss - SUFFICIENT * length * gain:
            length /= 2
            continue
        line = line + length * step
        here = ahead
        length = 1.0
    return None


def _hessian(terms: LogLoss) -> Matrix:
    return terms.curvature[[[0, 1], [1, 2]]]
