"""Euclidean norms of groups of coordinates: a group is used or left out as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import norm

from fedpact.errors import ProblemError
from fedpact.prox.base import Prox, Vector
from fedpact.prox.weights import as_weight, largest, length_defect, shown, sign_defect


class GroupL2(Prox):
    """h(w) = sum_g weight_g |w_g|_2 over disjoint groups of indices; coordinates in no group cost nothing.

    groups: integer index arrays; weight >= 0: one number or one for each group. Raises ProblemError when a group is
    not a list of integers.
    """

    def __init__(self, groups: Sequence[ArrayLike], weight: ArrayLike) -> None:
        self.groups = [_indices(number, group) for number, group in enumerate(groups)]
        self.weight = as_weight("GroupL2", "weight", weight)
        self._weights = np.broadcast_to(self.weight, len(self.groups)) if np.ndim(self.weight) == 0 else self.weight

    def value(self, w: Vector) -> float:
        return float(sum(weight * _norm(w[group]) for group, weight in self._pairs()))

    def prox(self, v: Vector, step: float) -> Vector:
        w = v.copy()
        for group, weight in self._pairs():
            size = _norm(v[group])
            w[group] *= 0.0 if size <= step * weight else 1.0 - step * weight / size
        return w

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        distance = np.abs(v)
        for group, weight in self._pairs():
            size = _norm(w[group])
            if size == 0:
                distance[group] = ball_distance(v[group], weight)
            else:
                distance[group] = np.abs(v[group] - weight * (w[group] / size))
        return largest(distance)

    def _pairs(self) -> list[tuple[NDArray[np.intp], float]]:
        return list(zip(self.groups, np.asarray(self._weights).tolist(), strict=True))

    def defect(self, dim: int) -> str | None:
        seen = np.full(dim, -1)
        for number, group in enumerate(self.groups):
            if group.size == 0:
                return f"GroupL2: group {number} is empty; leave it out"
            outside = group[(group < 0) | (group >= dim)]
            if outside.size:
                return f"GroupL2: group {number} has index {outside[0]}; indices go from 0 to {dim - 1}"
            if np.unique(group).size < group.size:
                return f"GroupL2: group {number} names an index twice; name each once"
            shared = group[seen[group] >= 0]
            if shared.size:
                other = seen[shared[0]]
                return f"GroupL2: index {shared[0]} is in groups {other} and {number}; groups must be disjoint"
            seen[group] = number
        why = "one for each group"
        return length_defect("GroupL2: weight", self.weight, len(self.groups), why) or sign_defect(
            "GroupL2: weight", self.weight
        )

    def __repr__(self) -> str:
        return f"GroupL2({len(self.groups)} groups, {shown(self.weight)})"


def ball_distance(v: Vector, radius: float) -> float:
    """Max-norm distance from v to the Euclidean ball around 0.

    It is the least delta >= 0 with sum_j max(|v_j| - delta, 0)^2 <= radius^2.
    """
    if _norm(v) <= radius:
        return 0.0
    # With a the largest |v_j|, gaps b_j = a - |v_j| in increasing order and x = a - delta, solve
    # sum_j max(x - b_j, 0)^2 = radius^2. The first k gaps are active; all are at most x <= radius, so that the root of
    # the quadratic x = mean + sqrt(radius^2 / k - variance) loses nothing to cancellation.
    size = np.sort(np.abs(v))[::-1]
    gaps = size[0] - size
    counts = np.arange(1, v.size + 1)
    mean = np.cumsum(gaps) / counts
    variance = np.maximum(np.cumsum(gaps**2) / counts - mean**2, 0.0)
    # At x = b_k the left side is k ((b_k - mean_k)^2 + variance_k), increasing in k.
    k = max(int(np.count_nonzero(counts * ((gaps - mean) ** 2 + variance) < radius**2)), 1) - 1
    x = mean[k] + np.sqrt(max(radius**2 / counts[k] - variance[k], 0.0))
    return float(size[0] - x)


def _norm(v: Vector) -> float:
    # scipy's norm scales: the norm of a tiny nonzero vector is not 0.
    return float(norm(v, check_finite=False))


def _indices(number: int, group: ArrayLike) -> NDArray[np.intp]:
    array = np.asarray(group)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        found = f"shape {array.shape} and type {array.dtype}"
        raise ProblemError(f"GroupL2: group {number} must be a list of integer indices; got {found}")
    return array.astype(np.intp)
