"""Gaps of mean loss between groups: which groups are compared, over which rows, and how large a gap may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpact.errors import DataError, ProblemError
from fedpact.types import Matrix, Vector, to_array, to_real

#: Rows that count in a group's mean: those of the last class, all, or those of every class in a gap of its own.
Gap = Literal["positives", "all", "classes"]
Mask = NDArray[np.bool_]
#: One label per row, or several attributes: name -> labels.
Group = ArrayLike | Mapping[str, ArrayLike]
#: Pairs of groups, of one attribute or of each.
Pairs = Sequence[tuple[Any, Any]] | Mapping[str, Sequence[tuple[Any, Any]]]


def compare_groups(
    y: Vector, group: Group | None, gap: Gap, pairs: Pairs | None, classes: int = 2
) -> tuple[Matrix, tuple[str, ...]]:
    """The gaps as rows of weights, whose products with the losses they are, and their names: (gaps, n) and (gaps,).

    y: labels, as `rows_by_class` takes them; group: one label per row, or of several attributes; pairs: every two when
    None

    Raises DataError or ProblemError.
    """
    if not isinstance(group, Mapping):
        if isinstance(pairs, Mapping):
            raise ProblemError(
                "pairs are given by attribute, and group has one; give a list of pairs, or group by attribute",
                code="FP-PROBLEM-145",
            )
        return _compare(y, group, pairs, _conditions(y, gap, classes))
    chosen = _pairs_by_attribute(group, pairs)
    rows = [np.zeros((0, y.size))]
    titles: list[str] = []
    for attribute, labels in group.items():
        try:
            found, names = _compare(y, labels, chosen.get(attribute), _conditions(y, gap, classes))
        except DataError as error:
            raise error.within(str(attribute)) from error
        rows.append(found)
        titles += [f"{attribute}: {name}" for name in names]
    return np.vstack(rows), tuple(titles)


def _pairs_by_attribute(group: Mapping[str, ArrayLike], pairs: Pairs | None) -> Mapping[str, Any]:
    if pairs is None:
        return {}
    if not isinstance(pairs, Mapping) or not pairs.keys() <= group.keys():
        raise ProblemError(
            f"pairs: give them by attribute, for some of {', '.join(map(repr, group))}", code="FP-PROBLEM-146"
        )
    return pairs


def rows_by_class(y: Vector, classes: int) -> dict[str, Mask]:
    """The rows of every class by its name, the last class first. y: numbers of the classes; of two, above 0 or not"""
    if classes == 2:
        return {"y = 1": y > 0, "y = 0": y <= 0}
    return {f"y = {k}": y == k for k in reversed(range(classes))}


def bound_losses(
    y: Vector, max_loss: Mapping[int, float] | None, classes: int = 2
) -> tuple[Matrix, tuple[str, ...], Vector]:
    """Bounded mean losses of the rows of a class: rows of weights, names and bounds.

    y: labels, as `rows_by_class` takes them. Raises ProblemError for other classes and bounds, DataError for an empty
    class.
    """
    rows = [np.zeros((0, y.size))]
    names = []
    for label, bound in (max_loss or {}).items():
        number = isinstance(bound, int | float) and np.isfinite(bound) and bound > 0
        if label not in range(classes) or not number:
            raise ProblemError(
                f"max_loss: {label!r}: {bound!r}; give a positive number for some of the classes 0 to {classes - 1}",
                code="FP-PROBLEM-147",
            )
        chosen = rows_by_class(y, classes)[f"y = {label}"]
        if not chosen.any():
            raise DataError(f"max_loss: no row has y = {label}, so its mean loss is undefined", code="FP-DATA-120")
        rows.append(chosen[None, :] / chosen.sum())
        names.append(f"loss, y = {label}")
    return np.vstack(rows), tuple(names), np.array([float(bound) for bound in (max_loss or {}).values()])


def _compare(
    y: Vector, group: ArrayLike | None, pairs: Sequence[tuple[Any, Any]] | None, conditions: Mapping[str, Mask]
) -> tuple[Matrix, tuple[str, ...]]:
    """The same of one attribute, over the rows that meet each of these conditions."""
    if group is None:
        if pairs is not None:
            raise ProblemError(
                "pairs of groups are given without group; give one group label per row", code="FP-PROBLEM-133"
            )
        return np.zeros((0, y.size)), ()
    members = _read_groups(group, y)
    names = _list_groups(members)
    compared = combinations(names, 2) if pairs is None else _check_pairs(pairs, names)
    rows: list[Vector] = []
    titles: list[str] = []
    for first, second in compared:
        for condition, counted in conditions.items():
            means = [_mean_weights(members, name, counted, condition) for name in (first, second)]
            rows.append(means[0] - means[1])
            titles.append(", ".join(filter(None, [f"{first!s} - {second!s}", condition])))
    return np.array(rows), tuple(titles)


def read_bounds(max_gap: ArrayLike | None, names: Sequence[str]) -> Vector:
    """One bound for each gap, from a number or a vector. Raises ProblemError when it does not fit the gaps."""
    if not names:
        if max_gap is not None:
            raise ProblemError("max_gap is given without group; give one group label per row", code="FP-PROBLEM-135")
        return np.zeros(0)
    if max_gap is None:
        raise ProblemError(
            "groups are given without max_gap, the largest gap between them; give a number, or 0",
            code="FP-PROBLEM-129",
        )
    try:
        bounds = np.atleast_1d(to_real(max_gap))
    except (TypeError, ValueError):
        bounds = np.zeros(0)  # refused below
    fits = bounds.shape in ((1,), (len(names),))
    if not fits or not np.all(np.isfinite(bounds)) or np.any(bounds < 0):
        raise ProblemError(
            f"max_gap = {max_gap!r}: give a number of at least 0, or one for each of {', '.join(map(repr, names))}",
            code="FP-PROBLEM-136",
        )
    return np.broadcast_to(bounds, (len(names),)).copy()


def _read_groups(group: ArrayLike, y: Vector) -> NDArray[Any]:
    """The group label of every row; none may be missing."""
    try:
        members = to_array(group)
    except ValueError as error:  # ragged lists, masks
        raise DataError(f"group is not a vector ({error}); give one group label per row", code="FP-DATA-111") from error
    if members.shape != y.shape:
        raise DataError(
            f"group has shape {members.shape}, y has {y.size} rows; give one group label per row", code="FP-DATA-112"
        )
    missing = sum(member is None for member in members.flat)
    if members.dtype.kind == "f":
        missing = int(np.sum(~np.isfinite(members)))
    if missing:
        raise DataError(f"group has {missing} missing values; give every row a group", code="FP-DATA-113")
    return members


def _list_groups(members: NDArray[Any]) -> list[Any]:
    """The distinct groups in order; at least two."""
    try:
        names = list(np.unique(members))
    except TypeError as error:
        raise DataError(
            f"group has labels that cannot be compared ({error}); use text or numbers only", code="FP-DATA-114"
        ) from error
    if len(names) < 2:
        raise DataError(
            f"all rows are of group {names[0]!s}; a gap needs two groups, so leave group out", code="FP-DATA-115"
        )
    return names


def _check_pairs(pairs: Sequence[tuple[Any, Any]], names: Sequence[Any]) -> Sequence[tuple[Any, Any]]:
    if not (len(pairs) and all(len(set(pair)) == len(pair) == 2 for pair in pairs)):
        raise ProblemError(
            f"pairs = {pairs!r}: give at least one pair of two different groups, or leave it out",
            code="FP-PROBLEM-134",
        )
    for name in (name for pair in pairs for name in pair):
        if name not in names:
            raise DataError(
                f"pairs: no row is of group {name!s}; the groups are {', '.join(map(str, names))}", code="FP-DATA-116"
            )
    return pairs


def _conditions(y: Vector, gap: Gap, classes: int) -> dict[str, Mask]:
    """The rows that count in a mean, by the condition that they meet; the empty one is met by all."""
    if gap == "all":
        return {"": np.ones(y.size, dtype=np.bool_)}
    found = rows_by_class(y, classes)
    if gap == "classes":
        return found
    return dict([next(iter(found.items()))])


def _mean_weights(members: NDArray[Any], name: Any, counted: Mask, condition: str) -> Vector:
    """The weights whose product with the losses is their mean over the counted rows of a group."""
    chosen = counted & (members == name)
    if not chosen.any():
        raise DataError(
            f"group {name!s} has no row with {condition}, so its mean loss is undefined; leave the group out of pairs, "
            'or use gap="all"',
            code="FP-DATA-117",
        )
    weights = np.zeros(members.size)
    weights[chosen] = 1.0 / chosen.sum()
    return weights
