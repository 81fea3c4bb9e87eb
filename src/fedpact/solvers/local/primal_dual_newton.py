"""One semismooth Newton step on the optimality conditions of a constrained proximal step.

    g(u) + J(u)' mu = 0,    mu - P_{K*}(mu + theta c(u)) = 0,    g = grad f + weight (u - anchor)

Where it is taken from near the solution a few steps reach the limit of double precision; far away the augmented
Lagrangian of `constrained.py` takes over.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from fedpact.functions import Matrix, Vector

#: Weight of a proximal term in the multiplier, relative to theta: dependent active constraints stay solvable.
DUAL_TERM = 1e-10


def curvature_factor(curvature: Matrix) -> Matrix | None:
    """Lower Cholesky factor of the Lagrangian's Hessian; None when it is not positive definite."""
    try:
        return np.asarray(cho_factor(curvature, lower=True, check_finite=False)[0])
    except LinAlgError:
        return None


def newton_step(
    factor: Matrix, gradient: Vector, jacobian: Matrix, slope: Matrix, gap: Vector, theta: float
) -> tuple[Vector, Vector] | None:
    """(du, dmu) with H du + J' dmu = -gradient and (I - D) dmu - theta D J du = -gap; None when singular.

    factor: of H; gradient: g + J'mu; slope: D, an element of the generalized Jacobian of P_{K*} (a vector stands for a
    diagonal); gap: mu - P_{K*}(mu + theta c). H is eliminated, so the second solve is as large as the constraint.
    """
    solved = np.asarray(cho_solve((factor, True), np.column_stack([gradient, jacobian.T]), check_finite=False))
    newton = solved[:, 0]
    normals = solved[:, 1:]
    dense = np.diag(slope) if slope.ndim == 1 else slope
    matrix = (1 + DUAL_TERM) * np.eye(gap.size) - dense + theta * dense @ (jacobian @ normals)
    try:
        change = np.linalg.solve(matrix, -gap - theta * dense @ (jacobian @ newton))
    except LinAlgError:
        return None
    step = -newton - normals @ change
    return step, np.asarray(change, dtype=np.float64)
