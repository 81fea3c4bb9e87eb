"""In how many bits masked systems of `interior_point.py` travel: as few as the accuracy of its steps allows.

A matrix whose rounding is a part eta of the curvature along the step gives a Newton step that leaves this part of the
residual. So eta follows the residual, as in inexact Newton methods (Eisenstat and Walker, 1996), and the last steps are
as good as exact. Curvature along the step is told by the step itself: the residual that it is to remove, divided by its
length. It falls from step to step where a class is separated by a rare column, and the minimiser is far out.

Where the problem is not convex all is exact: damping follows the least eigenvalue of a matrix, and the way that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedpact.federation.messages import Fitted
from fedpact.federation.secure_sum import narrow
from fedpact.solvers.constrained.condensation import FIRM, largest_entry, largest_of_arrays, largest_of_matrices
from fedpact.solvers.constrained.pace import LEAST_DAMPING, Sums
from fedpact.solvers.run import Run
from fedpact.types import Vector

#: eta while the residual is no less than this part of the first one; it falls with the residual from there on.
SWALLOWED = 1e-4
CLOSE = 0.01
#: Rounding of other arrays is at most this part of the tolerance,
UNSEEN = 1e-3
#: this part of the first residual, where the tolerance is loose for the units of the problem,
UNSEEN_AT_FIRST = 1e-10
#: and moves a direction that has no curvature but the least damping by this much.
UNSEEN_MOVE = 1e-4
#: A column counts as flat as this part of the mean, at most.
FLATTEST = 1e-6
#: Masked numbers have room for this much growth from one exchange to the next,
GROWTH = 2.0**12
#: and matrices for less where rows that bind have their final weight, or are about to get it.
SETTLED_GROWTH = 2.0**6
#: Damping is at least this many times the rounding of a sum, so that it does not move directions without curvature,
STEADY = 16.0
#: and is far below that of a step that was dropped all the same.
MOST_STEADY = 5e-5
#: Scales of matrices are powers of two below this one, either way: they travel in single precision.
LARGEST_POWER = 120


def choose_widths(run: Run, now: Sums, first: float, step: Vector, near: bool) -> dict[str, Any]:
    """The fields of `Fitted` for the order of this step; none where nothing is masked.

    now:   where the step begins
    first: residual at the start
    near:  the semismooth system is asked for
    """
    if not run.session.secured:
        return {}
    found: dict[str, Any] = {"largest": largest_entry(now.system)}
    if not run.problem.convex:
        return found
    found["arrays"] = bound_arrays(run, now, first)
    longest = float(np.abs(step).max())
    if not now.system.diagonal.size or not first * longest * now.curvature:
        return found
    along = now.stationarity / (now.curvature * longest)
    rounding = SWALLOWED * along * min(1.0, now.residual / (CLOSE * first))
    return found | fit_matrices(run, now, rounding, near)


def bound_arrays(run: Run, now: Sums, first: float) -> float:
    """The largest entry that masked arrays may have; 0 where 64 bits are too few for them."""
    arrays = GROWTH * largest_of_arrays(now.system)
    unseen = min(UNSEEN * min(run.tol), UNSEEN_AT_FIRST * first)
    if now.system.diagonal.size:
        unseen = min(unseen, UNSEEN_MOVE * LEAST_DAMPING * now.curvature)
    if not arrays or narrow(arrays, len(run.owners)).grain > unseen:
        return 0.0
    return arrays


def fit_matrices(run: Run, now: Sums, rounding: float, near: bool) -> dict[str, Any]:
    """How matrices travel. rounding: the most, relative to the diagonal of the Hessian"""
    system = now.system
    flattest = FLATTEST * now.curvature or np.finfo(np.float32).tiny
    roots = np.sqrt(np.maximum(system.diagonal, flattest))
    powers = np.rint(np.log2(roots))  # powers of two tell owners little of the sum
    if not np.max(np.abs(powers)) < LARGEST_POWER:
        return {}
    scales = np.exp2(powers).astype(np.float32)
    coarse = largest_of_matrices(system, scales)
    if near and not system.near_matrix.size:
        coarse = max(coarse, FIRM * now.curvature / float(scales.min()) ** 2)
    coarse *= SETTLED_GROWTH if near else GROWTH
    if not coarse or narrow(coarse, len(run.owners)).grain > rounding:
        return {}
    return {"coarse": coarse, "scales": scales}


def rounding_of(order: Fitted, owners: int) -> float:
    """Of the sums of matrices that this order brings, relative to the diagonal of the Hessian.

    The errors of owners add up as those of chance do.
    """
    if not order.coarse:
        return 0.0
    return narrow(order.coarse, owners).grain * math.sqrt(owners)


def steady_damping(rounding: float) -> float:
    """The least damping of a matrix with this rounding."""
    return min(STEADY * rounding, MOST_STEADY)
