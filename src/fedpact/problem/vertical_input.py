"""What a vertical problem is given: choices, names, labels, regularizers and constraints on scores, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from fedpact.errors import DataError, OptionError, ProblemError
from fedpact.functions import ScoredMean
from fedpact.problem.gaps import Gap
from fedpact.problem.scored import OF_CLASSES, Loss, mean_loss
from fedpact.problem.share import Constraint
from fedpact.prox import Prox, SquaredL2
from fedpact.types import Vector, to_real

#: The name of the coordinator as a holder of the intercept; no party may have it.
COORDINATOR = "coordinator"


def check_options(loss: object, gap: str) -> None:
    if not (isinstance(loss, type) and issubclass(loss, ScoredMean)):
        _check_choice("loss", loss, get_args(Loss))
    _check_choice("gap", gap, get_args(Gap))
    if loss not in OF_CLASSES and gap != "all":
        raise OptionError(
            f'gap = {gap!r} needs classes, which loss={loss!r} has not; use gap="all"', code="FP-OPTION-103"
        )


def _check_choice(option: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise OptionError(f"{option} = {value!r}: choose {', '.join(map(repr, allowed))}", code="FP-OPTION-102")


def name_parties(parties: Mapping[str, ArrayLike] | Sequence[ArrayLike]) -> dict[str, ArrayLike]:
    """Name -> columns; a list of tables is numbered."""
    if isinstance(parties, Mapping):
        named = dict(parties)
    else:
        named = {f"party {number}": X for number, X in enumerate(parties, 1)}
    check_names(list(named))
    return named


def count_outputs(labels: Vector, loss: object, classes: int = 0) -> int:
    """Scores of each person: with softmax one for each class, of which there may be more than in these labels."""
    if loss == "softmax":
        return classes or int(np.max(labels)) + 1
    return 1


def check_constraint(number: int, one: object, rows: int, outputs: int) -> None:
    if outputs > 1:
        raise ProblemError(
            "constraints: they are on one score for each person, and softmax has one for each class; bound mean losses "
            "by max_gap or max_loss",
            code="FP-PROBLEM-981",
        )
    if not isinstance(one, Constraint):
        raise ProblemError(
            f"constraints: number {number} is of type {type(one).__name__}; give fp.Constraint(map of scores, cone)",
            code="FP-PROBLEM-142",
        )
    if one.function.dim not in (None, rows):
        raise ProblemError(
            f"constraints: number {number} takes {one.function.dim} numbers, and there are {rows} scores; give a "
            "map of all people's scores",
            code="FP-PROBLEM-143",
        )
    if one.function.length not in (None, one.cone.dim):
        raise ProblemError(
            f"constraints: number {number} gives {one.function.length} numbers for a cone of {one.cone.dim}; give a "
            "cone of that length",
            code="FP-PROBLEM-144",
        )


def check_names(names: Sequence[object]) -> None:
    if not names:
        raise ProblemError("a vertical problem needs at least one party; give name -> columns", code="FP-PROBLEM-126")
    for name in names:
        if not isinstance(name, str):
            raise ProblemError(
                f"party {name!r}: the name must be a string; call it 'party {name}'", code="FP-PROBLEM-127"
            )
        if name == COORDINATOR:
            raise ProblemError(
                f"a party is called {name!r}, the name of the coordinator itself; give it another name",
                code="FP-PROBLEM-130",
            )


def read_labels(y: ArrayLike, loss: str | type[ScoredMean], classes: int = 0) -> Vector:
    """The labels: -1 and 1 for the logistic loss, numbers of the classes for softmax, as they are for others.

    classes: their number, where some may have no row
    """
    try:
        labels = to_real(y)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"y is not a vector of numbers ({error}); code the classes as 0 and 1", code="FP-DATA-102"
        ) from error
    if labels.ndim != 1 or labels.size == 0:
        raise DataError(f"y has shape {labels.shape}; give one label per row", code="FP-DATA-103")
    finite = np.isfinite(labels)
    if not finite.all():
        raise DataError(
            f"y has {np.sum(~finite)} missing or infinite values; drop these rows everywhere", code="FP-DATA-104"
        )
    if loss == "softmax":
        _check_classes(labels, classes)
        return labels
    if loss != "logistic":
        if defect := mean_loss(loss, np.zeros((labels.size, 0)), labels).defect():
            raise DataError(f"loss = {loss!r}: {defect}", code="FP-DATA-119")
        return labels
    values = set(np.unique(labels))
    if not (values <= {0.0, 1.0} or values <= {-1.0, 1.0}):
        wrong = next(label for label in labels if label not in (0.0, 1.0))
        raise DataError(
            f'y has values other than 0 and 1, such as {wrong:g}; code two classes so, use loss="softmax" for '
            'several, or "squared" for numbers',
            code="FP-DATA-105",
        )
    return np.where(labels > 0, 1.0, -1.0)


def _check_classes(labels: Vector, classes: int) -> None:
    """DataError unless they are the numbers of two classes or more, each of which some row has if none are known."""
    found = np.unique(labels)
    if classes and np.isin(found, np.arange(classes)).all():
        return
    if found.size < 2 or not np.array_equal(found, np.arange(found.size)):
        raise DataError(
            "softmax: y must have the numbers 0, 1, ... of two classes or more, and a row of each of them; recode the "
            "classes, and leave out those without rows",
            code="FP-DATA-980",
        )


def list_regularizers(regularizer: Prox | Sequence[Prox] | None, parties: int, rows: int) -> list[Prox]:
    """One regularizer for each party."""
    if regularizer is None:
        return [SquaredL2(2.0 / rows)] * parties  # the paper's (1/n) |theta|^2
    if not isinstance(regularizer, Sequence):
        return [regularizer] * parties
    if len(regularizer) != parties:
        raise ProblemError(
            f"regularizer: {len(regularizer)} for {parties} parties; give one fp.prox.SquaredL2, or one per party",
            code="FP-PROBLEM-132",
        )
    return list(regularizer)
