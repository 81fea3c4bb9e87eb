"""What holders of one consensus differ in: the slacks of a coupled constraint, and penalties by owner.

He24 (3)-(4) give owner i a slack s_i, with scale c~_i(w) - s_i <=_K 0 at the owner (`problem/coupled.py`) and
sum_i s_i <=_K 0 at the server. A method proposes slacks t_i and the server corrects them. What it minimises depends on
their sum only, so the correction is the same vector for all, a price, and owner i moves by its own penalty:

    s_i = t_i - push / rho_i,       rho_i = r_i rho,       sum_i r_i = n

So slacks are never told, only their sum: nobody learns an owner's part of the constraint.

differs from He24, where the server holds all slacks as variables: the iterates are the same, d + m numbers travel in
place of d + n m, and sums may be masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedpact.cones import Cone
from fedpact.problem import FederatedProblem
from fedpact.solvers.base import each_owner
from fedpact.solvers.run import Run
from fedpact.types import Vector


@dataclass(frozen=True)
class Coupling:
    """The coupled constraint as the server knows it.

    cone:      K; None without a coupled constraint: then every vector here is empty
    scale:     of the maps, which brings their slopes to that of the slacks
    looseness: sum of 1 / r_i over the owners that hold a part
    """

    cone: Cone | None
    scale: float
    looseness: float

    @classmethod
    def of(cls, problem: FederatedProblem, scale: float, weights: Vector) -> Coupling:
        """weights: r_i of every owner, in order; empty: 1."""
        holds = [share.coupled is not None for share in problem.shares]
        if not weights.size:
            weights = np.ones(len(holds))
        return cls(problem.coupled_cone, scale, float(np.sum(1 / weights[holds])))

    def first_slacks(self, coupled: Vector) -> Vector:
        """sum_i s_i where every s_i = scale c~_i(w), from the value of the coupled constraint."""
        if self.cone is None:  # a problem that was decoupled before is judged by that constraint all the same
            return np.zeros(0)
        return self.scale * coupled

    def project_dual(self, v: Vector) -> Vector:
        """P_{K*}(v)"""
        if self.cone is None:
            return v
        return self.cone.project_dual(v)

    def project(self, proposed: Vector, penalty: float) -> Vector:
        """The push for argmin_s sum_i rho_i/2 |s_i - t_i|^2  s.t.  sum_i s_i <=_K 0, where sum_i t_i is proposed."""
        if self.cone is None:
            return proposed
        return self.project_dual(proposed) * penalty / self.looseness

    def penalize(self, proposed: Vector, price: Vector, beta: float, penalty: float) -> Vector:
        """The push for argmin_s dist^2(price + beta sum_i s_i, -K) / (2 beta) + sum_i rho_i/2 |s_i - t_i|^2."""
        return self.project_dual(price + beta * proposed) / (1 + beta * self.looseness / penalty)

    def moved(self, proposed: Vector, push: Vector, penalty: float) -> Vector:
        """sum_i s_i after the push."""
        return proposed - self.looseness / penalty * push


def for_server(vector: Vector, dim: int, coupled: int, weight: float = 1.0) -> Vector:
    """What an owner adds to the server's sums: its copy of w by its weight, and its slacks, zero without a part.

    vector: (w, s) of the owner; coupled: rows of the coupled constraint
    """
    slack = vector[dim:]
    if not slack.size:
        slack = np.zeros(coupled)
    return np.concatenate([weight * vector[:dim], slack])


def divide_penalty(
    given: float | Mapping[str, float] | Sequence[float] | None, run: Run
) -> tuple[float | None, Vector]:
    """rho and the r_i of a penalty that may be given by owner; no r_i where it is one for all, no rho where it is None.

    Raises OptionError when an owner has none.
    """
    if given is None or isinstance(given, float):
        return given, np.zeros(0)
    each = each_owner("consensus_penalty", given, run.owners)
    rho = float(np.mean(each))
    return rho, each / rho
