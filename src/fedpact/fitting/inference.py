"""The table of a fit: coefficients in the units of the columns, prices in the user's terms, each with its error."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedpact.errors import OptionError
from fedpact.problem.certificate import TOGETHER
from fedpact.solvers import Inference
from fedpact.statistics import Summary
from fedpact.tasks import Model, RegressionModel, TableTask, Vertical
from fedpact.tasks.base import SERVER
from fedpact.types import Matrix, Vector

if TYPE_CHECKING:
    from fedpact.fitting.result import Fit

#: The intercept, among the names of the columns.
INTERCEPT = "intercept"
#: What is special about the table of a vertical fit.
IN_PIECES = (
    "each party keeps the table of its own coefficients beside its piece of the model; the intercept is that of "
    "columns as the parties scale them"
)
TOLD = "coefficients are in the units in which each party scales its columns, as the parties handed them out"


def summarize(found: Fit, level: float) -> Summary:
    """Standard errors, tests and intervals of a fit that was made with `inference=...`.

    A bound at an owner depends on its rows, and so do the scales of the columns; the coefficients in the units of the
    columns do not depend on the scales, which are therefore taken as given.
    """
    inference = found.inference
    task = found.task
    if isinstance(task, Vertical) and inference is not None:
        return _summarize_parties(found, task, inference, level)
    if inference is None or not isinstance(task, TableTask):
        raise OptionError(
            'this fit has no standard errors: ask for them with fit(..., inference="sandwich"), for a model of rows',
            code="FP-OPTION-991",
            key="inference",
        )
    prices = [describe_price(found, holder, row) for holder, row in inference.binding]
    units = np.array([unit for _, unit in prices])
    names = list_names(task)
    known = _flatten(task, np.zeros(task.parameters))  # a threshold that a promise moved
    return inference.describe(to_units(task), names, units, [words for words, _ in prices], level, known)


def _summarize_parties(found: Fit, task: Vertical, inference: Inference, level: float) -> Summary:
    """What the coordinator knows: its intercept and the prices, and the parties' part where they hand it out."""
    prices = []
    for holder, row in inference.binding:
        prices.append(describe_price(found, holder, row) if holder == SERVER else (holder, 1.0))
    names = [INTERCEPT] * int(task.intercept)
    note = IN_PIECES
    if inference.w.size > len(names) * task.outputs:
        note = TOLD
        names = [f"{party}: {column}" for party, columns in found.columns.items() for column in columns] + names
    if task.outputs > 1:
        names = [f"{one}: {name}" for one in task.classes for name in names]
    units = np.array([unit for _, unit in prices])
    table = inference.describe(np.eye(inference.w.size), names, units, [words for words, _ in prices], level)
    return replace(table, notes=(*table.notes, note))


def list_names(task: TableTask) -> list[str]:
    """Of the coefficients: the columns of a score, then its intercept; of several classes, against the first one."""
    own = list(task.encoding.names)
    if task.common_intercept:
        own.append(INTERCEPT)
    if task.scores == 1:
        return own
    base, *others = getattr(task, "classes", range(task.scores))
    return [f"{level} against {base}: {name}" for level in others for name in own]


def to_units(task: TableTask) -> Matrix:
    """The matrix that turns w into the coefficients of `list_names`, in the units of the columns.

    Of several classes these are contrasts with the first: what all classes share in their coefficients is set by the
    penalty alone.
    """
    size = task.parameters
    offset = _flatten(task, np.zeros(size))
    return np.column_stack([_flatten(task, unit) - offset for unit in np.eye(size)])


def list_undetermined(task: TableTask) -> Matrix:
    """Directions of w that no row determines, one a row: one step of all classes leaves probabilities as they are."""
    if task.scores == 1:
        return np.zeros((0, task.parameters))
    width = task.parameters // task.scores
    return np.asarray(np.tile(np.eye(width), task.scores) / np.sqrt(task.scores))


def _flatten(task: TableTask, w: Vector) -> Vector:
    model = task.make_model(w)
    assert isinstance(model, Model | RegressionModel)
    by_score = model.coefficients
    if task.common_intercept:
        by_score = np.column_stack([by_score, model.intercept])
    if task.scores > 1:
        by_score = by_score[1:] - by_score[0]
    return np.asarray(by_score).ravel()


def describe_price(found: Fit, holder: str, row: int) -> tuple[str, float]:
    """What a constraint bounds, in the user's words, and its price there per unit of price here."""
    lengths = dict(zip((SERVER, *found.owners), found.solution.multipliers, strict=True))
    coupled = found.solution.coupled_multiplier
    size = coupled.size if holder == TOGETHER else lengths[holder].size
    values = found.values.get(holder, np.zeros(size))
    told = found.together if holder == TOGETHER else found.measures.get(holder, {})
    price = np.zeros(size)
    price[row] = 1.0
    for one in found.task.bounded(holder, values, price, told):
        if one.price:
            return f"{holder}: {one.what}", one.price
    return f"{holder}[{row}]", 1.0
