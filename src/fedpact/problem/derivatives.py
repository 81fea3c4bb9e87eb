"""Whether derivatives belong to their functions: a wrong gradient certifies a point that is not stationary."""

from __future__ import annotations

import numpy as np

from fedpact.functions import Function, Map
from fedpact.problem.share import Share
from fedpact.types import Vector

#: Half the length of the segment over which values and slopes are compared, relative to w.
STEP = 1e-5
#: Relative error beyond which a slope does not belong to its function.
WRONG = 1e-2
#: Rounding in a value, relative to it: generous, since a function may add up and subtract much larger numbers.
VALUE_ROUNDING = 1e-12
#: Rounding in a slope, relative to the sum of the sizes of its terms.
SLOPE_ROUNDING = 1e-7


def find_wrong_parts(share: Share, w: Vector) -> list[str]:
    """Roles of the functions of this share whose derivatives at w are not theirs, such as "objective"."""
    return [role for role, part in share.parts.items() if has_wrong_slope(part, w)]


def has_wrong_slope(part: Function | Map, w: Vector) -> bool:
    """Compare derivatives with values over a short segment around w, in one direction: three evaluations.

    The mean slope over a segment, (f(end) - f(begin)) / length, lies between the smallest and the largest slope on it.
    Of a convex function these are the slopes at its ends, kinks or not; of others they are at most about the second
    difference of the slopes away from them. A slope that is wrong by a factor only is not seen where it vanishes, which
    is a stationary point all the same.
    """
    if isinstance(part, Function) and not part.gradient_field:
        return False  # an operator has no value
    direction = np.random.default_rng(0).standard_normal(w.size)
    direction /= np.max(np.abs(direction), initial=1e-300)
    step = STEP * (1 + float(np.max(np.abs(w), initial=0.0)))
    with np.errstate(all="ignore"):
        value_behind, slope_behind, _ = _slopes(part, w - step * direction, direction)
        _, slope, terms = _slopes(part, w, direction)
        value_ahead, slope_ahead, _ = _slopes(part, w + step * direction, direction)
        mean = (value_ahead - value_behind) / (2 * step)
        slopes = np.array([slope_behind, slope, slope_ahead])
        beyond = np.maximum(slopes.min(axis=0) - mean, mean - slopes.max(axis=0))
        size = np.maximum(np.abs(mean), np.abs(slopes).max(axis=0))
        bend = np.abs(slope_behind - 2 * slope + slope_ahead)
        rounding = VALUE_ROUNDING * (np.abs(value_ahead) + np.abs(value_behind)) / step + SLOPE_ROUNDING * terms
        return bool(np.any(beyond > WRONG * size + bend + rounding))


def _slopes(part: Function | Map, w: Vector, direction: Vector) -> tuple[Vector, Vector, Vector]:
    """Value and slope of every component, and the sum of the sizes of the terms that make up the slope."""
    if isinstance(part, Function):
        value, gradient = part.value_and_gradient(w)
        values = np.array([value])
        derivative = gradient[None, :]
    else:
        values, derivative = part.value_and_jacobian(w)
    terms = np.asarray(abs(derivative) @ np.abs(direction))
    return values, np.asarray(derivative @ direction), terms
