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


def rows_by_group(group: ArrayLike, known: Iterable[Hashable] | None = None) -> dict[Hashable, NDArray[np.intp]]:
    """Group -> its row numbers; groups are sorted, or with `known` exactly those, in that order.

    Raises:
        DataError: a missing group, labels of kinds that cannot be compared, or a group that is not known.
    """
    labels = _array("group", group)
    if labels.ndim != 1:
        raise DataError(f"group has shape {labels.shape}; give a vector, one label a row")
    if missing := [row for row, label in enumerate(labels.tolist()) if label is None or label != label]:
        raise DataError(f"group has {len(missing)} missing labels, the first in row {missing[0]}; drop these rows")
    try:
        levels, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise DataError(f"group has labels that cannot be compared ({error}); use numbers or text, not both") from error
    found = {level: np.flatnonzero(codes == code) for code, level in enumerate(levels.tolist())}
    if known is None:
        return found
    order = list(known)
    for level, rows in found.items():
        if level not in order:
            raise DataError(
                f"group {level!r} (row {rows[0]}) was not there when the predictor was derived; known groups: "
                f"{', '.join(map(repr, order))}"
            )
    return {level: found.get(level, np.zeros(0, dtype=np.intp)) for level in order}


def finite_scores(scores: ArrayLike, rows: int) -> Scores:
    """The scores as a vector of finite numbers, one a row."""
    try:
        vector = to_real(scores)
    except (TypeError, ValueError) as error:
        raise DataError(f"scores are not real numbers ({error})") from error
    if vector.shape != (rows,):
        raise DataError(f"scores have shape {vector.shape}, group has {rows} rows; give one score a row")
    if (bad := np.flatnonzero(~np.isfinite(vector))).size:
        raise DataError(
            f"scores have {bad.size} missing or infinite values, the first in row {bad[0]}; drop these rows"
        )
    return vector


def labels_of_groups(y: ArrayLike, rows: dict[Hashable, NDArray[np.intp]]) -> Labels:
    """y as a vector of 0 and 1, both in each of two groups or more."""
    vector, count = _array("y", y), sum(map(len, rows.values()))
    if vector.shape != (count,):
        raise DataError(f"y has shape {vector.shape}, group has {count} rows; give one label a row")
    if (wrong := np.flatnonzero(~np.isin(vector, (0, 1)))).size:
        raise DataError(f"y is {vector[wrong[0]]!s} in row {wrong[0]}; code the classes as 0 and 1")
    if len(rows) < 2:
        raise DataError(f"group has {len(rows)} different labels, {list(rows)}; there is nothing to equalize")
    for level, members in rows.items():
        for value, rate in ((1, "true"), (0, "false")):
            if not np.any(vector[members] == value):
                raise DataError(
                    f"group {level!r}: none of its {len(members)} rows has y = {value}, so its {rate} positive rate is "
                    "undefined; give it more rows, merge it with another group, or leave it out"
                )
    return vector.astype(np.int64)


def costs(false_positive: float, false_negative: float) -> tuple[float, float]:
    for name, value in (("false positive", false_positive), ("false negative", false_negative)):
        if not (isfinite(value) and value >= 0):
            raise OptionError(f"the cost of a {name} is {value}; it must be a number of at least 0")
    if false_positive == false_negative == 0:
        raise OptionError("both costs are 0: every predictor would be optimal; make one of them positive")
    return float(false_positive), float(false_negative)


def _array(what: str, given: ArrayLike) -> NDArray[Any]:
    try:
        return to_array(given)
    except ValueError as error:  # ragged lists, masks
        raise DataError(f"{what} is not a vector ({error})") from error
