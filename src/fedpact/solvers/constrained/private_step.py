"""How an owner of `interior_point.py` keeps its private variables v to itself: it eliminates them from its system.

Its condensed system is one of (w, v), with the blocks A, B, E of the matrix and the parts r_w, r_v of the slope:

    A dw + B dv = -r_w,    B' dw + E dv = -r_v.

It sends what is left for w (Schur complement), A - B E^-1 B' and r_w - B E^-1 r_v, and recovers dv from the dw that the
server found. Nothing that is sent tells that, or how many, private variables there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedpact.types import Matrix, Vector

#: Eigenvalues of E, its diagonal scaled to one, are at least this.
LEAST_EIGENVALUE = 1e-8
#: How often a step is halved at most.
HALVINGS = 30
#: Relative to the values compared: a rise that is no more than rounding is none.
ROUNDING = 1e-10


@dataclass(frozen=True)
class PrivateStep:
    """dv = -(slope + tau centring + coupling dw); each of the three is multiplied by E^-1 already."""

    slope: Vector
    centring: Vector
    coupling: Matrix

    def at(self, step: Vector, target: float) -> Vector:
        """The step of v that answers a step of w, for the target tau."""
        return -(self.slope + target * self.centring + self.coupling @ step)


def keep_private(
    matrix: Matrix, slope: Vector, centring: Vector, dim: int
) -> tuple[Matrix, Vector, Vector, PrivateStep]:
    """Matrix, slope and d slope / d tau of the first `dim` variables, and how all others answer.

    A server that makes the first positive definite makes the whole so, since E is: the steps of w and v together then
    lead downhill on the function whose model this is.
    """
    B = matrix[:dim, dim:]
    inverse = positive_inverse(matrix[dim:, dim:])
    answer = PrivateStep(inverse @ slope[dim:], inverse @ centring[dim:], inverse @ B.T)
    return (
        matrix[:dim, :dim] - B @ answer.coupling,
        slope[:dim] - B @ answer.slope,
        centring[:dim] - B @ answer.centring,
        answer,
    )


def positive_inverse(matrix: Matrix) -> Matrix:
    """E^-1; where E is not positive definite, negative eigenvalues change their sign and tiny ones are raised.

    Eigenvalues are those of E with its diagonal scaled to one, so variables may have any units. NaN for an E that is
    not finite.
    """
    diagonal = np.abs(np.diagonal(matrix))
    typical = float(np.mean(diagonal)) or 1.0
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, typical))
    scaled = matrix * np.outer(scale, scale)
    if not np.all(np.isfinite(scaled)):
        return np.full_like(matrix, np.nan)
    eigenvalues, vectors = np.linalg.eigh(scaled)
    raised = np.maximum(np.abs(eigenvalues), LEAST_EIGENVALUE)
    return np.asarray((vectors / raised) @ vectors.T * np.outer(scale, scale))


@np.errstate(over="ignore", invalid="ignore")
def shorten(step: Vector, value: Callable[[Vector], float]) -> Vector:
    """The step, halved until value(step) is at most value(0); nearly zero when it never is.

    The server's damping shortens dw only, and dv = -E^-1 r_v remains when dw vanishes. It is Newton's step for v then,
    and a short one leads downhill.
    """
    most = value(np.zeros_like(step))
    most += ROUNDING * (1 + abs(most))
    for _ in range(HALVINGS):
        if value(step) <= most:
            break
        step = 0.5 * step
    return step
