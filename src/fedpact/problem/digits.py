"""How many digits the coefficients of a certified pair have: small residuals are not digits where columns nearly agree.

The error of w is H^-1 r to first order, H the Hessian of the Lagrangian on the directions that binding constraints
leave and r what is left of the gradient. Its parts along the eigenvectors are added up by size, so none cancels. What
H does not determine at all has no error: it is free.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpact.cones import Nonnegative, Zero
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import evaluate
from fedpact.types import Matrix, Vector

#: Curvature below this part of the largest is rounding.
ROUNDING = 1e-14
#: More digits than a double has are not claimed.
MOST = 16.0


def count_digits(problem: FederatedProblem, w: Vector, multipliers: Sequence[Vector]) -> float | None:
    """About how many digits of the largest coefficient are right; None where it is not known.

    problem: in units in which derivatives are of size one, so that coefficients compare. Not known are cones other than
    the orthant and equalities, kinks of a regularizer, coupled constraints and private variables.
    """
    curvature = problem.regularizer.curvature
    if curvature is None or problem.coupled_length or problem.private or not problem.has_hessian:
        return None
    diagonal = np.broadcast_to(curvature, w.shape)
    hessian = np.diag(diagonal).astype(np.float64)
    gradient = diagonal * w
    binding: list[Matrix] = [np.zeros((0, w.size))]
    for share, price in zip(problem.holders, multipliers, strict=True):
        local = evaluate(share, w)
        gradient = gradient + local.gradient
        if share.objective is not None:
            hessian = hessian + share.objective.hessian(w)
        if share.constraint is None:
            continue
        if not all(isinstance(block, Nonnegative | Zero) for block in share.constraint.cone.blocks):
            return None
        gradient = gradient + local.jacobian.T @ price
        hessian = hessian + share.constraint.function.weighted_hessian(w, price)
        equal = np.concatenate([np.full(block.dim, isinstance(block, Zero)) for block in share.constraint.cone.blocks])
        binding.append(local.jacobian[equal | (price != 0)])
    free = _null_space(np.vstack(binding))
    values, vectors = np.linalg.eigh(free.T @ hessian @ free)
    known = np.abs(values) > ROUNDING * np.max(np.abs(values), initial=0.0)
    directions = free @ vectors[:, known]
    errors = np.abs(directions) @ (np.abs(directions.T @ gradient) / np.abs(values[known]))
    error = float(np.max(errors, initial=0.0))
    size = max(1.0, float(np.max(np.abs(w))))
    return MOST if error == 0 else float(min(MOST, np.log10(size / error)))


def _null_space(rows: Matrix) -> Matrix:
    """Orthonormal columns that these rows do not see."""
    _, values, right = np.linalg.svd(rows, full_matrices=True)
    rank = int(np.count_nonzero(values > 1e-12 * np.max(values, initial=0.0)))
    return np.asarray(right[rank:].T)
