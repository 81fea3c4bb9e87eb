"""What "auto" does when interior-point stalls, where all shares are in this process: it asks whether a point exists.

The feasibility problem (`problem/elastic.py`) has interior points whatever the problem is. Its solution is either a
proof that the constraints exclude each other, checked by `prove_infeasible`, or a point to start from again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedpact.errors import DataError
from fedpact.problem import FederatedProblem, Proof
from fedpact.problem.elastic import ElasticProblem
from fedpact.problem.ray import RayProblem, check_ray, has_rays
from fedpact.solvers import Solution
from fedpact.solvers.loop import DECIDED
from fedpact.solvers.run import Rescue
from fedpact.types import Vector

#: Weights of the proximal term, one solve each, from the solution before: at a solution it moves nothing any more.
WEIGHTS = (1e-4, 1e-7, 1e-8)
#: Accuracy of the feasibility problem.
ACCURACY = 1e-9
#: Exchanges of one such solve at most.
ROUNDS = 60


def can_rescue(problem: object, method: str) -> bool:
    """Whether the feasibility problem can be posed: all shares are here, convex, and have no private variables."""
    if type(problem) is not FederatedProblem or method != "interior-point":
        return False
    return problem.convex and not problem.private and problem.has_hessian


class Spent(Exception):
    """No exchanges are left for another solve."""


class Interrupted(Exception):
    """A user, or a callback, stopped a solve on the way; `answer`: the best point of the problem itself, if any."""

    def __init__(self, answer: Solution | None = None) -> None:
        self.answer = answer


@dataclass
class Rescuer:
    """Solves the feasibility problem of `problem`, and then the problem from where that has room.

    loosened, again: how to solve the one and the other, from a start, the other also by careful steps; they
                     raise Spent and Interrupted
    tol: by how much constraints may be missed
    """

    problem: FederatedProblem
    loosened: Callable[[FederatedProblem, Vector], Solution]
    again: Callable[[Vector, bool], Solution]
    tol: float = 0.0

    def __call__(self, w: Vector) -> Rescue:
        try:
            return self._seek(w)
        except (Spent, DataError):  # what was found to start from may be so far out that numbers overflow there
            return Rescue()
        except Interrupted as stopped:
            return Rescue(answer=stopped.answer, interrupted=True)

    def _seek(self, w: Vector) -> Rescue:
        near = w
        for weight in WEIGHTS:
            elastic = ElasticProblem(self.problem, near, weight)
            found = self.loosened(elastic, elastic.start_at(near))
            if not np.all(np.isfinite(found.w)):
                return Rescue()
            near = found.w[:-1]
            if found.w[-1] <= 0:  # there is room
                break
            weights, coupled = elastic.read_weights(found.multipliers, found.coupled_multiplier)
            proof = Proof(near, tuple(weights), coupled)
            if names := proof.check(self.problem, self.tol):
                return Rescue(names, proof)
        if has_rays(self.problem):
            found = self.loosened(RayProblem(self.problem, near), np.zeros_like(near))
            if check_ray(self.problem, near, found.w):
                return Rescue(ray=found.w)
        return Rescue(answer=self._solve_again(near, w))

    def _solve_again(self, near: Vector, w: Vector) -> Solution:
        """The answer from where there is room, else by careful steps from the first start."""
        answer = self.again(near, False)
        if answer.status in DECIDED:
            return answer
        try:
            careful = self.again(w, True)
        except Spent:
            return answer
        return careful if careful.status in DECIDED else answer
