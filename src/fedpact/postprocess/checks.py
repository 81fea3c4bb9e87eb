"""What labels, scores and groups must satisfy. Every message names the argument or group, the finding, a remedy."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact.errors import DataError, OptionError
from fedpact.types import to_array, to_real

Scores = NDArray[np.float64]
Labels = NDArray[np.int64]


def read_array(what: str, given: ArrayLike) -> NDArray[Any]:
    """`given` as an array. Raises DataError when it is ragged, or when some of its values are masked."""
    try:
        return to_array(given)
    except ValueError as error:
        raise DataError(f"{what} is not an array ({error})", code="FP-DATA-420") from error


def read_vector(what: str, given: ArrayLike, rows: int | None = None) -> NDArray[Any]:
    """`given` as a vector with one entry per row; rows=None takes any number of them."""
    vector = read_array(what, given)
    if vector.ndim != 1 or rows not in (None, len(vector)):
        found = "" if rows is None else f", but there are {rows} rows"
        raise DataError(f"{what} has shape {vector.shape}{found}; give one entry per row", code="FP-DATA-421")
    return vector


def find_levels(what: str, given: ArrayLike, rows: int | None = None) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The distinct labels of the rows, sorted, and the position of each row's label among them.

    Raises:
        DataError: a label is missing, or labels of kinds that cannot be compared.
    """
    labels = read_vector(what, given, rows)
    # The missing values of pandas are equal to nothing, not even False.
    missing = [row for row, label in enumerate(labels.tolist()) if label is None or (label == label) is not True]
    if missing:
        raise DataError(
            f"{what} is missing in {len(missing)} rows, the first is row {missing[0]}; fill them in, or drop the rows",
            code="FP-DATA-422",
        )
    try:
        levels, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise DataError(
            f"{what} mixes kinds that have no order ({error}); give only texts or only numbers", code="FP-DATA-423"
        ) from error
    return levels, codes


def rows_by_group(group: ArrayLike, known: Iterable[Hashable] | None = None) -> dict[Hashable, NDArray[np.intp]]:
    """Group -> its row numbers; groups are sorted, or with `known` exactly those, in that order.

    Raises:
        DataError: a missing group, labels of kinds that cannot be compared, or a group that is not known.
    """
    levels, codes = find_levels("group", group)
    found = {level: np.flatnonzero(codes == code) for code, level in enumerate(levels.tolist())}
    if known is None:
        return found
    order = list(known)
    for level, rows in found.items():
        if level not in order:
            raise DataError(
                f"group {level!r} (row {rows[0]}) was not there when the predictor was derived; known groups: "
                f"{', '.join(map(repr, order))}",
                code="FP-DATA-424",
            )
    return {level: found.get(level, np.zeros(0, dtype=np.intp)) for level in order}


def finite_scores(scores: ArrayLike, rows: int) -> Scores:
    """The scores as a vector of finite numbers, one per row."""
    try:
        vector = to_real(scores)
    except (TypeError, ValueError) as error:
        raise DataError(f"scores are not real numbers ({error})", code="FP-DATA-425") from error
    vector = read_vector("scores", vector, rows)
    bad = np.flatnonzero(~np.isfinite(vector))
    if bad.size:
        raise DataError(
            f"scores have {bad.size} missing or infinite values, the first in row {bad[0]}; drop these rows",
            code="FP-DATA-426",
        )
    return vector


def labels_of_groups(y: ArrayLike, rows: dict[Hashable, NDArray[np.intp]]) -> Labels:
    """y as a vector of 0 and 1, both in each of two groups or more."""
    vector = read_vector("y", y, sum(map(len, rows.values())))
    wrong = np.flatnonzero(~np.isin(vector, (0, 1)))
    if wrong.size:
        raise DataError(f"y is {vector[wrong[0]]!s} in row {wrong[0]}; code the classes as 0 and 1", code="FP-DATA-427")
    if len(rows) < 2:
        raise DataError(
            f"all rows are of one group, {list(rows)}; there is nothing to equalize: give two or more",
            code="FP-DATA-428",
        )
    for level, members in rows.items():
        for value, rate in ((1, "true"), (0, "false")):
            if not np.any(vector[members] == value):
                raise DataError(
                    f"group {level!r}: none of its {len(members)} rows has y = {value}, so its {rate} positive rate is "
                    "undefined; give it more rows, merge it with another group, or leave it out",
                    code="FP-DATA-429",
                )
    return vector.astype(np.int64)


def check_costs(false_positive: float, false_negative: float) -> tuple[float, float]:
    """Both costs as floats. Raises OptionError when one is negative or not finite, or both are 0."""
    for name, value in (("false positive", false_positive), ("false negative", false_negative)):
        if not (isfinite(value) and value >= 0):
            raise OptionError(
                f"the cost of a {name} is {value}; it must be a number of at least 0", code="FP-OPTION-430"
            )
    if false_positive == false_negative == 0:
        raise OptionError(
            "both costs are 0: every predictor would be optimal; make one of them positive", code="FP-OPTION-431"
        )
    return float(false_positive), float(false_negative)
