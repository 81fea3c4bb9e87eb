"""Distances in the max-norm, each an upper bound of the truth: they feed an optimality certificate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def max_norm(v: Vector) -> float:
    """max_j |v_j|; 0 for an empty vector."""
    return float(np.abs(v).max(initial=0.0))


def bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest float in (low, high] where `holds`, which is false below some point and true above it.

    `holds(high)` is taken for granted, so the answer lies on the true side.
    """
    for _ in range(200):  # 60 halvings exhaust the floats unless the answer is nearly 0
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def ray_distance(v: Vector, direction: Vector) -> float:
    """min over t >= 0 of |v - t direction|_inf: the lowest point of an upper envelope of lines.

    Two lines are kept, one falling and one rising at the minimum; the line on top where they meet
    replaces one of them. That ends after finitely many exchanges, each costing O(dim).
    """
    intercepts = np.concatenate([v, -v])
    slopes = np.concatenate([-direction, direction])

    def top(t: float) -> int:
        heights = intercepts + t * slopes
        # of the lines that touch, a rising one proves that t = 0 is optimal
        return int(np.lexsort((slopes, heights))[-1])

    falling = top(0.0)
    best = float(intercepts[falling])
    if slopes[falling] >= 0.0:
        return best
    rising = int(np.argmax(slopes))
    for _ in range(2 * len(intercepts)):
        t = (intercepts[rising] - intercepts[falling]) / (slopes[falling] - slopes[rising])
        highest = top(t)
        best = min(best, float(intercepts[highest] + t * slopes[highest]))
        if highest in (falling, rising) or slopes[highest] == 0.0:
            break
        if slopes[highest] < 0.0:
            falling = highest
        else:
            rising = highest
    return best


def project_l1_ball(v: Vector, radius: float) -> Vector:
    """The point nearest to v with |.|_1 <= radius (Held, Wolfe and Crowder 1974: one threshold from a sort)."""
    sizes = np.abs(v)
    if sizes.sum() <= radius:
        return v
    ordered = np.sort(sizes)[::-1]
    thresholds = (np.cumsum(ordered) - radius) / np.arange(1, len(v) + 1)
    # none is above its threshold when the radius is lost in the rounding of v: then the nearest point rounds to 0
    threshold = thresholds[max(int(np.count_nonzero(ordered > thresholds)) - 1, 0)]
    return np.asarray(np.sign(v) * np.maximum(sizes - threshold, 0.0))


def splitting_distance(
    project: Callable[[Vector], Vector], v: Vector, gap: float = 1e-9, iterations: int = 2000
) -> float:
    """min over s in N of |v - s|_inf, for a closed convex cone N known by its Euclidean projection.

    Douglas-Rachford splitting (Lions and Mercier 1979) on |v - s|_inf + indicator of N. Every s is in N,
    so |v - s|_inf bounds the distance from above; every y in the polar of N with |y|_1 = 1 bounds it from
    below by <y, v>. Returns the upper bound once the two are within `gap` relatively or 1e-14 |v|_inf absolutely,
    once the upper bound is rounding (1e-12 |v|_inf), or after `iterations`: then it may exceed the distance,
    by a relative 1e-4 or less in our trials with matrices of order up to 10.
    """
    size = max_norm(v)
    s = project(v)
    polar = v - s
    # by trial, 1 to 4 Euclidean distances serve both large and small distances (relative to |v|) well
    step = 3.0 * float(np.linalg.norm(polar))
    upper = size
    for iteration in range(1, iterations + 1):
        upper = min(upper, max_norm(v - s))
        tolerance = max(gap * upper, 1e-14 * size)
        if upper <= 1e-12 * size or upper - _lower_bound(project, v, polar, upper - tolerance) <= tolerance:
            break
        gradient = project_l1_ball(v - s + polar, step)
        w = s + gradient
        s, previous = project(w), s
        if iteration % 50 == 0:  # balance how fast s and its polar partner still move (Boyd et al. 2011, 3.4.1)
            moved, turned = np.linalg.norm(s - previous), np.linalg.norm(gradient - polar)
            factor = 3.0 if moved > 10.0 * turned else 1.0 / 3.0 if turned > 10.0 * moved else 1.0
        else:
            factor = 1.0
        step, polar = factor * step, factor * (w - s)
    return upper


def _lower_bound(project: Callable[[Vector], Vector], v: Vector, polar: Vector, wanted: float) -> float:
    """<y, v> / |y|_1 for the y nearest to `polar` in the polar of N; 0 when it cannot reach `wanted`."""
    weight = float(np.abs(polar).sum())
    if weight == 0.0 or float(polar @ v) < wanted * weight:
        return 0.0
    # w - P_N(w) inherits rounding of the size of w, which may dwarf it: a second projection restores membership
    y = polar / weight
    y = y - project(y)
    return float(y @ v) / float(np.abs(y).sum())
