"""Whether derivatives belong to their functions: a wrong gradient certifies a point that is not stationary."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fedpact.functions import Function, Map
from fedpact.functions.arithmetic import FunctionSum
from fedpact.functions.many import LOSSES
from fedpact.functions.maps import Single, Stack
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
    if _is_ours(part):
        return False
    with np.errstate(all="ignore"):
        direction, step, behind, ahead = _segment_ends(w, part.rounding)
        value_behind, slope_behind = _slopes(part, behind, direction)
        value_ahead, slope_ahead = _slopes(part, ahead, direction)
        values = (value_behind, derivative, value_ahead)
        slopes = (slope_behind, np.asarray(derivative @ direction), slope_ahead)
        return _slopes_are_wrong(values, slopes, direction, step, part.rounding)


def _is_ours(part: Function | Map) -> bool:
    """Whether it is made of losses of this library alone, whose derivatives its tests compare with differences."""
    if type(part) is FunctionSum:
        return all(_is_ours(term) for _, term in part.terms)
    if type(part) is Single:
        return _is_ours(part.function)
    if type(part) is Stack:
        return all(_is_ours(one) for one in part.parts)
    return type(part) in LOSSES


def _segment_ends(w: Vector, rounding: float) -> tuple[Vector, float, Vector, Vector]:
    """The direction, half the length of the segment in units of it, and the ends of the segment.

    Values are rounded, so the segment that shows their slope best is as long as the root of that rounding.
    """
    direction = _direction(w.size)
    step = max(STEP, math.sqrt(rounding)) * (1 + float(np.max(np.abs(w), initial=0.0)))
    return direction, step, w - step * direction, w + step * direction


def _slopes_are_wrong(
    at: tuple[Matrix, Matrix, Matrix],
    slopes: tuple[Matrix, Matrix, Matrix],
    direction: Vector,
    step: float,
    rounding: float,
) -> bool:
    """Whether any component has slopes that are not its own.

    at:       the values behind, the derivatives (one axis more) and the values ahead
    slopes:   along the direction, behind, at the point and ahead
    rounding: of the values, relatively
    """
    value_behind, derivative, value_ahead = at
    slope_behind, slope, slope_ahead = slopes
    terms = np.asarray(abs(derivative) @ np.abs(direction))
    mean = (value_ahead - value_behind) / (2 * step)
    lowest = np.minimum(np.minimum(slope_behind, slope), slope_ahead)
    highest = np.maximum(np.maximum(slope_behind, slope), slope_ahead)
    beyond = np.maximum(lowest - mean, mean - highest)
    size = np.maximum(np.abs(mean), np.maximum(np.abs(lowest), np.abs(highest)))
    bend = np.abs(slope_behind - 2 * slope + slope_ahead)
    of_values = rounding * (np.abs(value_ahead) + np.abs(value_behind)) / step
    of_slopes = max(SLOPE_ROUNDING, rounding) * terms
    return bool(np.any(beyond > WRONG * size + bend + of_values + of_slopes))


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
