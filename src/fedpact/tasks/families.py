"""Families of regression: what each minimises, how its score becomes a prediction, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpact.functions import (
    CoxLoss,
    Function,
    HuberLoss,
    LogisticLoss,
    NegativeBinomialDeviance,
    PoissonDeviance,
    ScoredMean,
    SquaredLoss,
)
from fedpact.problem import Measure
from fedpact.tasks.checks import Labels
from fedpact.tasks.model import LINKS
from fedpact.tasks.weights import effective_rows
from fedpact.types import Vector

if TYPE_CHECKING:
    from fedpact.tasks.generalized_linear import Regression
    from fedpact.tasks.tables import Rows


@dataclass(frozen=True)
class Family:
    """A kind of regression.

    words: what it minimises
    link:  of its scores, see `fedpact.tasks.model.LINKS`
    loss:  the mean loss of an owner's rows, from (task, rows)
    """

    words: str
    link: str
    loss: Callable[[Regression, Rows], Function]


def _numbered(loss: ScoredMean, rows: Rows) -> ScoredMean:
    """The loss, which knows which of the owner's rows these are."""
    return loss if rows.numbers is None else loss.of_rows(rows.numbers)


def _squared(task: Regression, rows: Rows) -> Function:
    return _numbered(SquaredLoss(rows.X, rows.y, rows.weight, rows.offset), rows)


def _huber(task: Regression, rows: Rows) -> Function:
    return _numbered(HuberLoss(rows.X, rows.y, task.delta, rows.weight, rows.offset), rows)


def _poisson(task: Regression, rows: Rows) -> Function:
    return _numbered(PoissonDeviance(rows.X, rows.y, rows.weight, rows.offset), rows)


def _negative_binomial(task: Regression, rows: Rows) -> Function:
    return _numbered(NegativeBinomialDeviance(rows.X, rows.y, task.dispersion, rows.weight, rows.offset), rows)


def _logistic(task: Regression, rows: Rows) -> Function:
    return _numbered(LogisticLoss(rows.X, rows.y, rows.weight, rows.offset), rows)


def _cox(task: Regression, rows: Rows) -> Function:
    time, event = rows.y.T
    return CoxLoss(rows.X, time, event, rows.weight, task.ties)


FAMILIES: dict[str, Family] = {
    "squared": Family("squared error", "identity", _squared),
    "huber": Family("Huber loss", "identity", _huber),
    "poisson": Family("Poisson deviance", "log", _poisson),
    "negative_binomial": Family("negative binomial deviance", "log", _negative_binomial),
    "logistic": Family("log loss", "logit", _logistic),
    "cox": Family("negative log partial likelihood, stratified by owner", "log", _cox),
}

# ------------------------------------------------------------------------------------------------------------- measures


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of a model on the owner's rows: their mean, mean size and root of the mean square, and by group the mean.

    Means are weighted like the loss; they tell of as many rows as their weights carry.
    """

    rows: Rows
    loss: Function
    link: str
    groups: int

    def __call__(self, w: Vector) -> dict[str, Measure]:
        error = self._predict(w) - self.rows.y
        weight = self.rows.weight
        rows = len(error)
        carried = effective_rows(rows, weight)
        told = {
            "rows": Measure.count(rows),
            "mean error": Measure(np.average(error, weights=weight), carried),
            "mean absolute error": Measure(np.average(np.abs(error), weights=weight), carried),
            "root mean squared error": Measure(np.sqrt(np.average(error**2, weights=weight)), carried),
            "mean loss": Measure(self.loss.value(w), carried),
        }
        if self.rows.group is not None:
            told |= self._by_group(error, self.rows.group)
        return told

    def add_up(self, w: Vector) -> Vector:
        """Rows that the weights carry, their sum, and weighted sums of the errors' sizes and squares."""
        error = self._predict(w) - self.rows.y
        weight = np.ones(len(error)) if self.rows.weight is None else self.rows.weight
        carried = effective_rows(len(error), self.rows.weight)
        return np.array([carried, weight.sum(), weight @ np.abs(error), weight @ error**2])

    def _predict(self, w: Vector) -> Vector:
        score = self.rows.X @ w
        if self.rows.offset is not None:
            score = score + self.rows.offset
        with np.errstate(over="ignore"):  # a model that was stopped early may predict infinity
            return LINKS[self.link](np.asarray(score))

    def _by_group(self, error: Vector, group: Labels) -> dict[str, Measure]:
        weight = np.ones(len(error)) if self.rows.weight is None else self.rows.weight
        members = [group == g for g in range(self.groups)]
        carried = [effective_rows(int(inside.sum()), weight[inside]) for inside in members]
        cell = min(carried)  # what is told of all groups but one, beside all rows, tells of that one
        told = {}
        for g, inside in enumerate(members):
            mean = float(np.average(error[inside], weights=weight[inside])) if carried[g] else np.nan
            told[f"rows of group {g}"] = Measure.count(int(inside.sum()), cell)
            told[f"mean error of group {g}"] = Measure(mean, carried[g], cell)
        return told


@dataclass(frozen=True, eq=False)
class Survival:
    """What is told of a proportional hazards model: rows, events, and the mean loss, which rests on the events.

    No time of an event is among it; where there are fewer events than a site's policy tells, it withholds them.
    """

    rows: Rows
    loss: Function

    def __call__(self, w: Vector) -> dict[str, Measure]:
        events = int(np.sum(self.rows.y[:, 1]))
        cell = min(events, len(self.rows.y) - events) or events  # beside the rows, events tell who is censored
        return {
            "rows": Measure.count(len(self.rows.y)),
            "events": Measure.count(events, cell),
            "mean loss": Measure(self.loss.value(w), events, cell),
        }
