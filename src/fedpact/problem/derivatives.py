"""Whether derivatives belong to their functions: a wrong gradient certifies a point that is not stationary."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fedpact.functions import Function, Map
from fedpact.problem.share import Local, Share, evaluate
from fedpact.types import Matrix, Vector

#: Half the length of the segment over which values and slopes are compared, relative to w.
STEP = 1e-5
#: Relative error beyond which a slope does not belong to its function.
WRONG = 1e-2
#: Rounding in a slope, relative to the sum of the sizes of its terms.
SLOPE_ROUNDING = 1e-7


def find_wrong_parts(share: Share, w: Vector, at: Local | None = None) -> list[str]:
    """Roles of the functions of this share whose derivatives at w are not theirs, such as "objective".

    at: the share evaluated at w, where that was done already
    """
    if at is None:
        at = evaluate(share, w)
    derivatives = {
        "objective": at.gradient[None, :],
        "constraint": at.jacobian,
        "coupled constraint": at.coupled_jacobian,
    }
    return [role for role, part in share.parts.items() if has_wrong_slope(part, w, derivatives[role])]


def has_wrong_slope(part: Function | Map, w: Vector, derivative: Matrix) -> bool:
    """Compare derivatives with values over a short segment around w, in one direction: two evaluations more.

    The mean slope over a segment, (f(end) - f(begin)) / length, lies between the smallest and the largest slope on it.
    Of a convex function these are the slopes at its ends, kinks or not; of others they are at most about the second
    difference of the slopes away from them. A slope that is wrong by a factor only is not seen where it vanishes, which
    is a stationary point all the same.
    """
    if isinstance(part, Function) and not part.gradient_field:
        return False  # an operator has no value
    if isinstance(part, Map) and part.stands_in:
        return False  # by declaration: counts have no slopes
    direction = _direction(w.size)
    # Values are rounded, so the segment that shows their slope best is as long as the root of that rounding.
    step = max(STEP, math.sqrt(part.rounding)) * (1 + float(np.max(np.abs(w), initial=0.0)))
    with np.errstate(all="ignore"):
        value_behind, slope_behind = _slopes(part, w - step * direction, direction)
        slope = np.asarray(derivative @ direction)
        terms = np.asarray(abs(derivative) @ np.abs(direction))
        value_ahead, slope_ahead = _slopes(part, w + step * direction, direction)
        mean = (value_ahead - value_behind) / (2 * step)
        slopes = np.array([slope_behind, slope, slope_ahead])
        beyond = np.maximum(slopes.min(axis=0) - mean, mean - slopes.max(axis=0))
        size = np.maximum(np.abs(mean), np.abs(slopes).max(axis=0))
        bend = np.abs(slope_behind - 2 * slope + slope_ahead)
        values = np.abs(value_ahead) + np.abs(value_behind)
        rounding = part.rounding * values / step + max(SLOPE_ROUNDING, part.rounding) * terms
        return bool(np.any(beyond > WRONG * size + bend + rounding))


def _slopes(part: Function | Map, w: Vector, direction: Vector) -> tuple[Vector, Vector]:
    """Value and slope of every component."""
    if isinstance(part, Function):
        value, gradient = part.value_and_gradient(w)
        return np.array([value]), np.array([gradient @ direction])
    values, jacobian = part.value_and_jacobian(w)
    return values, np.asarray(jacobian @ direction)


@lru_cache(maxsize=8)
def _direction(dim: int) -> Vector:
    """Random, the same for all functions, the largest entry 1."""
    direction = np.random.default_rng(0).standard_normal(dim)
    direction /= np.max(np.abs(direction), initial=1e-300)
    direction.setflags(write=False)
    return direction
