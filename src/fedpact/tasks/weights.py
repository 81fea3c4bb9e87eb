"""How much owners, rows and classes count in an objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedpact.data.cells import Cells
from fedpact.errors import DataError, OptionError
from fedpact.federation.digest import digest
from fedpact.tasks import checks
from fedpact.types import Matrix, Vector

if TYPE_CHECKING:
    from fedpact.tasks.tables import ClassTask, Rows

#: Every owner's mean loss counts the same.
EQUAL = "equal"
#: Every row counts the same, wherever it is; with weights of rows, owners count by their sum.
BY_ROWS = "rows"
#: At every owner the rows of each class weigh the same together.
BALANCED = "balanced"


def check_owners_weigh(stated: str | Mapping[str, float]) -> None:
    """Raise OptionError unless it is "equal", "rows" or a table of positive weights."""
    if isinstance(stated, Mapping):
        checks.check_bounds(stated, "owners_weigh")
    elif stated not in (EQUAL, BY_ROWS):
        raise OptionError(
            f'owners_weigh = {stated!r} is unknown; choose "{EQUAL}", "{BY_ROWS}", or give a table owner = weight',
            code="FP-OPTION-710",
            key="owners_weigh",
        )


def check_class_weight(stated: str | Mapping[str, float], classes: Sequence[str]) -> None:
    """Raise OptionError unless it is "balanced", or a table of positive weights with one for each class, or empty."""
    if stated in ({}, BALANCED):
        return
    if not isinstance(stated, Mapping) or set(stated) != set(classes):
        raise OptionError(
            f'class_weight = {stated!r}: give "{BALANCED}", or a weight for each of {", ".join(classes)}',
            code="FP-OPTION-711",
            key="class_weight",
        )
    for level, weight in stated.items():
        checks.check_positive(f"class_weight of {level!r}", weight)


def read_weights(cells: Cells, column: str) -> Vector | None:
    """The weight of every row; None without a column of them. Raises DataError for a negative one, or none above 0."""
    if not column:
        return None
    weights = cells.numbers(column, feature=False)
    if np.any(weights < 0) or not np.any(weights > 0):
        first = cells.line(int(np.argmin(weights)))
        raise DataError(
            f"{cells.path}: column {column!r} holds {weights.min():g} in {first}; weights of rows are at least 0, "
            "and some are above",
            code="FP-DATA-710",
            column=column,
        )
    return weights


def row_weights(task: ClassTask, held: Rows) -> Vector | None:
    """The weight of every row in the owner's means: its own times that of its class; None when all are the same."""
    if not task.class_weight:
        return held.weight
    own = np.ones(len(held.y)) if held.weight is None else held.weight
    by_class = _class_weights(task, held, own)
    return np.asarray(own * by_class[held.y])


def _class_weights(task: ClassTask, held: Rows, own: Vector) -> Vector:
    """The weight of each class; "balanced" gives the rows of all classes together the same."""
    if isinstance(task.class_weight, Mapping):
        return np.array([task.class_weight[level] for level in task.classes])
    totals = np.bincount(held.y, own, minlength=len(task.classes))
    return np.divide(1.0, totals, out=np.zeros(totals.size), where=totals > 0)


def total_weight(X: Matrix, weight: Vector | None) -> float:
    """By how much an owner counts when every row counts the same: its rows, or the sum of their weights."""
    if weight is None:
        return float(len(X))
    return float(np.sum(weight))


def draw_factors(rows: Rows, number: int) -> Vector:
    """Factors of the rows' weights that keep their sum: one exponential draw of the Bayesian bootstrap.

    The rows themselves seed the generator, so that nobody else can repeat the draw.
    """
    own = np.ones(len(rows.y)) if rows.weight is None else rows.weight
    generator = np.random.default_rng([number, int(digest(rows), 16)])
    drawn = generator.exponential(size=len(own))
    return np.asarray(drawn * (own.sum() / (own @ drawn)))


def effective_rows(rows: int, weight: Vector | None) -> int:
    """How many rows a weighted mean rests on (Kish): all of them when the weights are equal, 1 when one has it all."""
    if weight is None:
        return rows
    squares = float(weight @ weight)
    if squares == 0:
        return 0
    return int(np.sum(weight) ** 2 / squares * (1 + 1e-12))  # equal weights give all rows in spite of rounding
