"""From multipliers that run away to weights that prove a conflict: every holder corrects its own, from sums alone.

Where constraints exclude each other the multipliers of a primal-dual method grow along weights v with J'v ~ 0. They get
there only in the limit; the nearest (w, v) at which it holds is found sooner. With value <v, c(w)> = 1, the change of w
and the relative change of v that make

    g + H dw + J'dv = 0,      g = J'v,   H = sum_k v_k hess c_k,

and are smallest in their own metrics are

    (J' Q_v J + H) dw = -g,     dv = Q_v J dw,

where Q_v is the quadratic representation of v in its cone (v^2 for numbers). Linear constraints need one such step,
curved ones a few. Everything is invariant to the units of rows and columns, and what the server reads are sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fedpact.cones import Cone
from fedpact.federation import Order, Summed
from fedpact.problem import Share, owner_evidence
from fedpact.problem.infeasibility import SMALL, coupled_bending, gap
from fedpact.problem.share import expand
from fedpact.prox import Prox
from fedpact.solvers.constrained.condensation import apply, pack
from fedpact.solvers.evidence import Pull, Weighed, sendable
from fedpact.types import Matrix, Vector

#: Steps at most: near a proof they converge quadratically.
STEPS = 8
#: Part of the gap that a step may leave. The first step of a curved constraint often closes only a tenth of it.
PROGRESS = 0.9
#: Singular values below this part of the largest are zero: directions that no constraint sees.
RANK = 1e-13


@dataclass(frozen=True, kw_only=True)
class Balance(Order):
    """Correct the weights for a step of w, and give their evidence at the new w."""

    w: Vector  # after the step
    step: Vector
    scale: float  # positive: begin with the latest multipliers, times this; 0: go on with the weights held
    coupled: Vector  # the weights of the coupled constraint


@dataclass(frozen=True, kw_only=True)
class Balanced(Weighed):
    """An owner's evidence for its corrected weights, and its part of the system of the next step."""

    matrix: Summed[Vector]  # J' Q_v J + H, packed
    coupled: Summed[Vector]
    coupled_jacobian: Summed[Matrix]


@np.errstate(over="ignore", invalid="ignore")
def correct_weights(cone: Cone, jacobian: Matrix, weights: Vector, step: Vector) -> Vector:
    """v + Q_v J dw; v itself when that is too large for numbers."""
    found = weights + apply(cone.quadratic(weights), jacobian @ step)
    return found if np.all(np.isfinite(found)) else weights


@np.errstate(over="ignore", invalid="ignore")
def stiffness(cone: Cone, jacobian: Matrix, weights: Vector) -> Matrix:
    """J' Q_v J; zero when it is too large for numbers, as it then leads nowhere."""
    found = np.asarray(jacobian.T @ apply(cone.quadratic(weights), jacobian))
    return found if np.all(np.isfinite(found)) else np.zeros_like(found)


def gather_evidence(share: Share, cone: Cone, w: Vector, weights: Vector, coupled: Vector) -> Balanced:
    """One owner's evidence at w for its weights and those of the coupled constraint, and its part of the next step."""
    found = sendable(owner_evidence(share, w, weights))
    local, curvature = expand(replace(share, objective=None), w, coupled.size)
    bend, concave = coupled_bending(share, w, coupled)
    bent = curvature.lagrangian(weights, coupled)
    return Balanced(
        value=found.value,
        gradient=found.gradient,
        spread=found.spread,
        bend=found.bend + bend,
        size=found.size,
        weight=found.weight,
        part=found.size,
        concave=found.concave or concave,
        matrix=pack(stiffness(cone, local.jacobian, weights) + bent),
        coupled=local.coupled,
        coupled_jacobian=local.coupled_jacobian,
    )


def balancing_step(matrix: Matrix, gradient: Vector) -> Vector:
    """dw of the system above; minimal where the matrix does not decide."""
    diagonal = np.diagonal(matrix)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = matrix * np.outer(scale, scale)
    if not np.all(np.isfinite(scaled)):
        return np.zeros_like(gradient)
    return np.asarray(-scale * np.linalg.lstsq(scaled, scale * gradient, rcond=RANK)[0])


def seek_conflict(
    ask: Callable[[Balance], tuple[Pull, Matrix]], regularizer: Prox, w: Vector, value: float, steps: int
) -> tuple[Vector, Pull]:
    """Balance the latest multipliers, of value <z, c(w)>, until they prove a conflict or it does not pay any more.

    ask: one exchange, which gives the evidence of all holders and J' Q_v J + H. Returns the last w and its evidence.
    """
    none = np.zeros_like(w)
    found, matrix = ask(Balance(w=w, step=none, scale=1 / value, coupled=np.zeros(0)))
    distance = gap(regularizer, w, found.total)
    for _ in range(min(STEPS, steps) - 1):
        if distance <= SMALL or not np.isfinite(distance) or found.total.concave:
            break
        gradient = found.total.gradient
        before = distance
        free = regularizer.descent(gradient, w)[1] > 0
        step = balancing_step(matrix, np.where(free, gradient, 0.0))
        found, matrix = ask(Balance(w=w + step, step=step, scale=0.0, coupled=np.zeros(0)))
        w = w + step
        distance = gap(regularizer, w, found.total)
        if distance > PROGRESS * before:
            break
    return w, found
