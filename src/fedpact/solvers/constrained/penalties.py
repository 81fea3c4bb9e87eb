"""A penalty of the consensus for each owner, by the curvature of its own Lagrangian f_i + mu_i'c_i.

With one penalty for all, exchanges grow with the number n of owners: the objectives are means over all owners, so that
of each has curvature O(1 / n), while the few constraints that bind carry multipliers that sum to O(1), and their owners
the curvature that goes with them. A common rho is then too stiff for the many, or so soft for the few that bind that
each round moves their multiplier by O(1 / n) of its way. (`accelerated`, synthetic Neyman-Pearson, 100 rows an owner:
the best common rho takes 27, 44 and 92 rounds to 1e-3 at n = 20, 100 and 300 and is 6, 20 and 200 times the mean
curvature of the objectives; with rho_i known from the solution it takes 27, 24, 41, and 42 at n = 1000.)

Multipliers are not known in advance. So owners measure now and then, and those whose constraint bound in the meantime
get an equal share of the whole curvature at least: one whose multiplier is still small could not raise it otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpact.problem import Share
from fedpact.prox import Prox
from fedpact.prox.rescaled import even_columns
from fedpact.solvers.local import DENSE_LIMIT
from fedpact.solvers.scales import difference
from fedpact.types import Vector

#: The least penalty of a holder, relative to the mean.
LEAST = 0.1
#: rho_i is a misfit when it is so many times larger or smaller than the curvature asks for.
MISFIT = 3.0
#: Columns are rescaled when some bend so many times as much as others,
UNEVEN = 100.0
#: Columns that bend less than this part of the mean count as bending that much.
FLATTEST = 1e-3


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What an order says about penalties.

    penalty:     rho, of which an owner's is r_i rho
    stiffness:   what rho_i should be over the curvature of the owner's Lagrangian
    measure:     tell that curvature, and whether rho_i is far from it
    adjust:      set rho_i by the curvature that was measured before,
    least:       with at least this rho_i,
    least_bound: and this one where the constraint bound
    """

    penalty: float
    stiffness: float = 0.0
    measure: bool = False
    adjust: bool = False
    least: float = 0.0
    least_bound: float = 0.0

    def choose_weight(self, weight: float, curvature: float, bound: bool) -> float:
        """An owner's r_i: as it was, or by the curvature that it measured; bound: did its constraint bind?"""
        if not self.adjust:
            return weight
        least = self.least_bound if bound else self.least
        return max(self.stiffness * curvature, least) / self.penalty

    def is_misfit(self, penalty: float, curvature: float, bound: bool) -> bool:
        """Whether an owner's rho_i is far from what the curvature asks for; one that binds may be stiffer."""
        wanted = self.stiffness * curvature
        return wanted > MISFIT * penalty or (wanted < penalty / MISFIT and not bound)


def share_out(curvature: float, bound: float, holders: int) -> dict[str, Any]:
    """The fields of a `Plan` that adjusts; curvature: of all holders, by the stiffness; bound: how many bind."""
    return {"adjust": True, "least": LEAST * curvature / holders, "least_bound": curvature / max(bound, 1.0)}


def column_curvature(share: Share, w: Vector, dim: int) -> Vector:
    """Diagonal of the objective's Hessian at w, in its first dim variables; zeros where no Hessian is at hand."""
    if share.objective is None or not share.objective.has_hessian or w.size > DENSE_LIMIT:
        return np.zeros(dim)
    return np.diag(share.objective.hessian(w))[:dim].copy()


def find_columns(regularizer: Prox, bends: Vector) -> Vector:
    """Units of the columns in which all bend alike: powers of two, one where nothing bends or where h allows no other.

    bends: diagonal of the Hessian of all objectives
    """
    mean = float(np.mean(bends))
    bent = bends[bends > 0]
    if not bent.size or np.max(bent) < UNEVEN * np.min(bent):
        return np.ones_like(bends)
    relative = np.where(bends > 0, np.clip(bends / mean, FLATTEST, 1 / FLATTEST), 1.0)
    return even_columns(regularizer, 2.0 ** np.round(-np.log2(relative) / 2))


def lagrangian_curvature(share: Share, u: Vector, multiplier: Vector, dim: int) -> float:
    """Mean diagonal of the Hessian of f + mu'c at u, in its first dim variables: |v'Hv| / d for one v of signs."""

    def gradient(at: Vector) -> Vector:
        total = np.zeros_like(at)
        if share.objective is not None:
            total = total + share.objective.gradient(at)
        if share.constraint is not None:
            total = total + share.constraint.function.jacobian(at).T @ multiplier
        return total

    v = np.zeros_like(u)
    v[:dim] = np.random.default_rng(0).choice([-1.0, 1.0], dim)
    return abs(float(v @ difference(gradient, u, v))) / dim
