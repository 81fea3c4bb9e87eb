"""Group lasso: Euclidean norms of groups of coordinates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import norm

from fedpact.errors import ProblemError
from fedpact.prox.base import Prox
from fedpact.prox.weights import as_weight, format_weight, largest, length_defect, sign_defect
from fedpact.types import Vector


class GroupL2(Prox):
    """h(w) = sum_g weight_g |w_g|_2 over disjoint groups of coordinates (Yuan and Lin 2006).

    prox(v, t)_g = max(1 - t weight_g / |v_g|_2, 0) v_g, so a group is zero as a whole or not at all.

    groups: arrays of integer indices; coordinates in no group are not penalized. weight >= 0: one number, or one for
    each group. Raises ProblemError when a group is not a list of integers.
    """

    def __init__(self, groups: Sequence[ArrayLike], weight: ArrayLike) -> None:
        self.groups = [_indices(number, group) for number, group in enumerate(groups)]
        self.weight = as_weight("GroupL2", "weight", weight)
        self._weights = np.asarray(self.weight)
        if self._weights.ndim == 0:
            self._weights = np.broadcast_to(self.weight, len(self.groups))

    def value(self, w: Vector) -> float:
        return float(sum(weight * _norm(w[group]) for group, weight in self._weighted_groups()))

    def prox(self, v: Vector, step: float) -> Vector:
        w = v.copy()
        for group, weight in self._weighted_groups():
            size = _norm(v[group])
            threshold = step * weight
            if size <= threshold:
                w[group] *= 0.0
            else:
                w[group] *= 1.0 - threshold / size
        return w

    def subdifferential_distance(self, v: Vector, w: Vector) -> float:
        distance = np.abs(v)
        for group, weight in self._weighted_groups():
            size = _norm(w[group])
            if size == 0:
                distance[group] = ball_distance(v[group], weight)
            else:
                distance[group] = np.abs(v[group] - weight * (w[group] / size))
        return largest(distance)

    def _weighted_groups(self) -> list[tuple[NDArray[np.intp], float]]:
        return list(zip(self.groups, self._weights.tolist(), strict=True))

    def defect(self, dim: int) -> str | None:
        group_of = np.full(dim, -1)
        for number, group in enumerate(self.groups):
            if group.size == 0:
                return f"GroupL2: group {number} is empty; leave it out"
            outside = group[(group < 0) | (group >= dim)]
            if outside.size:
                return f"GroupL2: group {number} has index {outside[0]}; indices go from 0 to {dim - 1}"
            if np.unique(group).size < group.size:
                return f"GroupL2: group {number} names an index twice; name each once"
            shared = group[group_of[group] >= 0]
            if shared.size:
                other = group_of[shared[0]]
                return f"GroupL2: index {shared[0]} is in groups {other} and {number}; groups must be disjoint"
            group_of[group] = number
        wrong_length = length_defect("GroupL2: weight", self.weight, len(self.groups), "one for each group")
        return wrong_length or sign_defect("GroupL2: weight", self.weight)

    def __repr__(self) -> str:
        return f"GroupL2({len(self.groups)} groups, {format_weight(self.weight)})"


def ball_distance(v: Vector, radius: float) -> float:
    """Max-norm distance from v to the Euclidean ball of this radius around 0.

    It is the smallest delta >= 0 with sum_j max(|v_j| - delta, 0)^2 <= radius^2.
    """
    if _norm(v) <= radius:
        return 0.0
    # With a the largest |v_j|, gaps b_j = a - |v_j| in increasing order and x = a - delta, solve
    # sum_j max(x - b_j, 0)^2 = radius^2. The first k gaps are active and at most x <= radius, so the root
    # x = mean + sqrt(radius^2 / k - variance) of the quadratic is free of cancellation.
    size = np.sort(np.abs(v))[::-1]
    gaps = size[0] - size
    counts = np.arange(1, v.size + 1)
    mean = np.cumsum(gaps) / counts
    variance = np.maximum(np.cumsum(gaps**2) / counts - mean**2, 0.0)
    # At x = b_k the left side is k ((b_k - mean_k)^2 + variance_k), which increases with k.
    at_gap = counts * ((gaps - mean) ** 2 + variance)
    last = max(int(np.count_nonzero(at_gap < radius**2)), 1) - 1
    x = mean[last] + np.sqrt(max(radius**2 / counts[last] - variance[last], 0.0))
    return float(size[0] - x)


def _norm(v: Vector) -> float:
    """|v|_2; scipy's norm scales its argument, so that the norm of a tiny nonzero vector is not 0."""
    return float(norm(v, check_finite=False))


def _indices(number: int, group: ArrayLike) -> NDArray[np.intp]:
    array = np.asarray(group)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        found = f"shape {array.shape} and type {array.dtype}"
        raise ProblemError(
            f"GroupL2: group {number} must be a list of integer indices; got {found}", code="FP-PROBLEM-193"
        )
    return array.astype(np.intp)
