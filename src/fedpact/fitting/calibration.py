"""Probabilities from the scores of a finished classifier, by sums over the owners (Platt scaling).

A constraint moves scores: what a constrained classifier calls 0.9 is not met nine times in ten. Two numbers mend that,

    P(label = 1 | score) = 1 / (1 + exp(-(slope score + intercept))),

fitted by maximum likelihood to smoothed labels, (N1 + 1) / (N1 + 2) for the N1 rows of class 1 and 1 / (N0 + 2) for
the others, so that the fit is finite where the scores separate the classes (Platt, 1999, Probabilistic outputs for
support vector machines; Lin, Lin, Weng, 2007, A note on Platt's probabilistic outputs). Newton's method needs six sums
per exchange. Use rows that the model was not trained on where there are some: on its own rows it is too sure of itself.

Isotonic regression on counts in bins of the score was measured beside it and is not here; docs/benchmarks/calibration.md
says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from fedpact.errors import OptionError
from fedpact.federation import Order, Reply, Session, Summed, client_step
from fedpact.problem import Share
from fedpact.types import Matrix, Vector

#: Exchanges of Newton's method at most; four or five are usual, and more where scores separate the classes.
EXCHANGES = 60
#: Newton's method has arrived when its next step would gain this much of the loss per row; that step is still taken, and
#: since it squares the error, what is left is rounding.
SETTLED = 1e-12
#: A step must gain this part of what the slope promises, else it is halved.
SUFFICIENT = 1e-4
#: Mean scores whose difference is smaller, relative to their size, are equal but for rounding.
ROUNDING = 1e-12


@runtime_checkable
class Scored(Protocol):
    """What `Share.measures` of a classifier for two classes has: labels of 0 and 1, and the scores of a model."""

    @property
    def labels(self) -> Vector:
        """One of 0 and 1 per row."""

    def score(self, w: Vector) -> Vector:
        """The score of every row, above 0 where class 1 is decided."""


@dataclass(frozen=True)
class Calibration:
    """From scores to probabilities of class 1; slope > 0, so that their order stays."""

    slope: float
    intercept: float

    def probabilities(self, score: ArrayLike) -> Vector:
        """The probability of class 1 for every score."""
        return np.asarray(expit(self.slope * np.asarray(score, dtype=np.float64) + self.intercept))


# ------------------------------------------------------------------------------------------------------- owners' half


@dataclass(frozen=True, kw_only=True)
class Model(Order):
    """w: the finished model"""

    w: Vector


@dataclass(frozen=True, kw_only=True)
class ClassScores(Reply):
    """Of the rows of class 0 and of class 1 their number and the sum of their scores; of all, the sum of squares."""

    count: Summed[Vector]
    total: Summed[Vector]
    squares: Summed[float]


@dataclass(frozen=True, kw_only=True)
class Line(Order):
    """A line through the scores of a model, to be judged.

    w:       the finished model
    line:    slope and intercept
    targets: smoothed labels of class 0 and of class 1
    """

    w: Vector
    line: Vector
    targets: Vector


@dataclass(frozen=True, kw_only=True)
class LogLoss(Reply):
    """Log loss of a line over the owner's rows, its gradient, and its Hessian, of which the upper triangle."""

    loss: Summed[float]
    gradient: Summed[Vector]
    curvature: Summed[Vector]


@client_step
def describe_scores(share: Share, state: Any, order: Model) -> tuple[Any, ClassScores]:
    """Moments of the owner's scores."""
    scored = _scored(share)
    score = scored.score(order.w)
    classes = [score[scored.labels == label] for label in (0, 1)]
    reply = ClassScores(
        count=np.array([float(len(one)) for one in classes]),
        total=np.array([one.sum() for one in classes]),
        squares=float(score @ score),
    )
    return state, reply


@client_step
def judge_line(share: Share, state: Any, order: Line) -> tuple[Any, LogLoss]:
    """Log loss of a line on the owner's rows, with smoothed labels, and its derivatives."""
    scored = _scored(share)
    score = scored.score(order.w)
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
    """Fit the line that makes the scores of the model w probabilities: five or six exchanges.

    None when there is no rising line, which is so unless the mean score of class 1 is above that of class 0: then they
    are scores, and should be called so. (The loss is convex, and its derivative along the slope, at slope 0 and the best
    intercept, has the sign of the difference of these means.)

    Raises:
        OptionError: the shares have no scores of two classes (`Scored`).
    """
    classes = session.ask(describe_scores, Model(w=w)).total
    if not _rises(classes):
        return None
    none, some = classes.count
    targets = np.array([1 / (none + 2), (some + 1) / (some + 2)])
    line, here = _without_slope(classes, targets)
    length = 1.0
    for _ in range(EXCHANGES):
        step = -np.linalg.solve(_hessian(here), here.gradient)
        gain = -float(here.gradient @ step)
        if gain <= SETTLED * (none + some):
            slope, intercept = (line + step).tolist()
            return Calibration(slope, intercept)
        ahead = session.ask(judge_line, Line(w=w, line=line + length * step, targets=targets)).total
        if ahead.loss > here.loss - SUFFICIENT * length * gain:
            length /= 2
            continue
        line = line + length * step
        here = ahead
        length = 1.0
    return None


def _rises(classes: ClassScores) -> bool:
    """Whether the mean score of class 1 is above that of class 0, by more than rounding."""
    if np.any(classes.count == 0):
        return False
    none, some = classes.total / classes.count
    return bool(some - none > ROUNDING * max(abs(none), abs(some)))


def _without_slope(classes: ClassScores, targets: Vector) -> tuple[Vector, LogLoss]:
    """The best line of slope 0, and its loss with derivatives, which the moments of the scores give."""
    rows = classes.count.sum()
    total = classes.total.sum()
    probability = classes.count @ targets / rows
    intercept = float(logit(probability))
    weight = probability * (1 - probability)
    terms = LogLoss(
        loss=float(rows * (np.logaddexp(0, intercept) - probability * intercept)),
        gradient=np.array([probability * total - targets @ classes.total, 0.0]),
        curvature=weight * np.array([classes.squares, total, rows]),
    )
    return np.array([0.0, intercept]), terms


def _hessian(terms: LogLoss) -> Matrix:
    return terms.curvature[[[0, 1], [1, 2]]]
