"""The server's model of one Newton step: a quadratic, made positive definite, plus h."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from fedpact.functions import Matrix, Vector
from fedpact.prox import Prox
from fedpact.solvers.local.composite_quadratic import composite_quadratic
from fedpact.solvers.local.refinement import refine_step

#: The damping is at least so large that rounding of M, relative to the diagonal, does not move anything.
ROUNDING = 1e-14
#: Where M is not positive definite the damping grows by this factor until it is ...
RAISE = 10.0
#: ... and then once by this one, since M is nearly singular there.
SAFE = 3.0
#: In a column where the Hessian is flatter than this part of M's own diagonal, that part stands for it:
FLAT = 1e-8
#: more where there is none at all and a step was dropped, as this much damping says: less would not shorten the next.
NO_CURVATURE = 1e-2
DROPPED = 1e-4
#: No step is left of a model that needs more damping than this.
MOST = 1e30


@np.errstate(over="ignore", invalid="ignore")
def model_step(
    matrix: Matrix, slope: Vector, diagonal: Vector, regularizer: Prox, w: Vector, damping: float, tolerance: float
) -> tuple[Vector, float]:
    """argmin_d d'Md / 2 + slope'd + h(w + d), M made positive definite; and the damping this took.

    The damping is a multiple of the Hessian's own diagonal, so columns may have any scale.
    """
    own = matrix.diagonal()
    smooth = regularizer.curvature
    if smooth is not None:
        own = own + smooth
        slope = slope + smooth * w
        diagonal = diagonal + smooth
    typical = float(diagonal.sum()) / w.size or float(np.abs(own).sum()) / w.size or 1.0
    flat: Vector | float = FLAT
    if damping >= DROPPED:
        flat = np.where(diagonal > 0, FLAT, NO_CURVATURE)
    diagonal = np.maximum(diagonal, flat * np.where(own > 0, own, typical))
    damping = max(damping, ROUNDING * float((own / diagonal).max()))
    if not damping <= MOST:
        return np.zeros_like(w), damping
    damped = matrix.copy()
    raised = False
    while True:
        raised_diagonal = own + damping * diagonal
        damped.flat[:: w.size + 1] = raised_diagonal
        scale = 1 / np.sqrt(np.maximum(raised_diagonal, 1e-300))
        factor, failed = dpotrf(scale[:, None] * damped * scale, lower=True, clean=False)
        if failed:
            damping = max(RAISE * damping, ROUNDING)
            raised = True
            if damping > MOST or not np.isfinite(damping * np.max(diagonal)):  # none makes this matrix positive
                return np.zeros_like(w), damping
            continue
        if not raised:
            break
        damping = SAFE * damping
        raised = False
    if smooth is None:
        found = composite_quadratic(damped, slope, regularizer, w, tolerance)
        return refine_step(damped, slope, regularizer, w, found.w - w), damping
    step = -scale * dpotrs(factor, scale * slope, lower=True)[0]
    refined = step - scale * dpotrs(factor, scale * (damped @ step + slope), lower=True)[0]
    return np.asarray(refined), damping
