"""Max-norm distances for the optimality certificate: exact, or upper bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fedpact.types import Vector

#: Halvings of an interval: 60 exhaust the floats unless the result is nearly 0.
HALVINGS = 200
#: Relative to |v|_inf, a distance below this is rounding.
ROUNDING = 1e-12
#: Relative to |v|_inf, bounds that agree to this cannot come closer.
SMALLEST_GAP = 1e-14
#: First step of the splitting in Euclidean distances: by trial, 1 to 4 serve both large and small distances well.
FIRST_STEP = 3.0
#: Iterations of the splitting between two looks at the balance of primal and dual progress.
BALANCED_EVERY = 50


def max_norm(v: Vector) -> float:
    """max_j |v_j|; 0 for an empty vector."""
    return float(np.abs(v).max(initial=0.0))


def all_finite(v: Vector) -> bool:
    """Whether no entry is NaN or infinite. A finite sum of squares proves it, without an array of answers."""
    return math.isfinite(np.vdot(v, v)) or bool(np.isfinite(v).all())


def bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest float in (low, high] at which a monotone condition holds.

    `holds(high)` is assumed, and the result always satisfies the condition.
    """
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def ray_distance(v: Vector, direction: Vector) -> float:
    """min over t >= 0 of |v - t direction|_inf: the minimum of an upper envelope of lines.

    Keeps two lines, one falling and one rising at the minimum; the highest line where they meet replaces one of
    them. This ends after finitely many exchanges of O(dim) each.
    """
    intercepts = np.concatenate([v, -v])
    slopes = np.concatenate([-direction, direction])

    def top(t: float) -> int:
        heights = intercepts + t * slopes
        # Among lines of equal height take the steepest: a rising one proves that t = 0 is optimal.
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
    """Projection of v onto {|u|_1 <= radius}: soft thresholding, the threshold from a sort (Held et al. 1974)."""
    sizes = np.abs(v)
    if sizes.sum() <= radius:
        return v
    ordered = np.sort(sizes)[::-1]
    thresholds = (np.cumsum(ordered) - radius) / np.arange(1, len(v) + 1)
    # When the radius is lost in the rounding of v, no entry is above its threshold, and the projection rounds to 0.
    support = max(int(np.count_nonzero(ordered > thresholds)), 1)
    threshold = thresholds[support - 1]
    return np.asarray(np.sign(v) * np.maximum(sizes - threshold, 0.0))


def splitting_distance(
    project: Callable[[Vector], Vector], v: Vector, gap: float = 1e-9, iterations: int = 2000
) -> float:
    """min over s in N of |v - s|_inf, for a closed convex cone N given by its Euclidean projection.

    Douglas-Rachford splitting (Lions and Mercier 1979) on |v - s|_inf + indicator of N. Every s in N gives the upper
    bound |v - s|_inf; every y in the polar of N with |y|_1 = 1 gives the lower bound <y, v>. Returns the upper bound
    when the two agree to a relative `gap` or to SMALLEST_GAP |v|_inf, when it is ROUNDING, or after `iterations`. In
    the last case it may exceed the distance: by a relative 1e-4 or less in trials with matrices of order up to 10.
    """
    size = max_norm(v)
    s = project(v)
    polar = v - s
    step = FIRST_STEP * float(np.linalg.norm(polar))
    upper = size
    for iteration in range(1, iterations + 1):
        upper = min(upper, max_norm(v - s))
        tolerance = max(gap * upper, SMALLEST_GAP * size)
        if upper <= ROUNDING * size:
            break
        if upper - _lower_bound(project, v, polar, upper - tolerance) <= tolerance:
            break
        gradient = project_l1_ball(v - s + polar, step)
        w = s + gradient
        previous = s
        s = project(w)
        factor = 1.0
        if iteration % BALANCED_EVERY == 0:
            factor = _balance(primal_change=s - previous, dual_change=gradient - polar)
        step = factor * step
        polar = factor * (w - s)
    return upper


def _balance(primal_change: Vector, dual_change: Vector) -> float:
    """Factor for the step size that balances primal and dual progress (Boyd et al. 2011, 3.4.1)."""
    primal = np.linalg.norm(primal_change)
    dual = np.linalg.norm(dual_change)
    if primal > 10.0 * dual:
        return 3.0
    if dual > 10.0 * primal:
        return 1.0 / 3.0
    return 1.0


def _lower_bound(project: Callable[[Vector], Vector], v: Vector, polar: Vector, wanted: float) -> float:
    """<y, v> / |y|_1 for the y nearest to `polar` in the polar of N; 0 when it cannot reach `wanted`."""
    weight = float(np.abs(polar).sum())
    if weight == 0.0 or float(polar @ v) < wanted * weight:
        return 0.0
    # w - P_N(w) inherits rounding of the size of w, which may exceed it: a second projection restores membership.
    y = polar / weight
    y = y - project(y)
    return float(y @ v) / float(np.abs(y).sum())
