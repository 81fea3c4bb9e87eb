"""A solve on faces: where slacks are known to lie in a face of their cone, the problem goes in without the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedpact.problem import FederatedProblem, Proof, certify
from fedpact.problem.faces import Reduced, reduce_faces
from fedpact.solvers import Solution

OFF_THE_FACE = "solved on the faces of its cones that the constraints leave, but not up to the tolerances as posed"


def find_faces(problem: object, priced: bool) -> Reduced | None:
    """The problem on the faces of its cones; None where it stays as posed. priced: multipliers are given."""
    if type(problem) is not FederatedProblem or priced or problem.private or problem.dim is None:
        return None
    return reduce_faces(problem, problem.dim)


def find_contradiction(reduced: Reduced) -> tuple[tuple[str, ...], Proof] | None:
    """The holders of equalities on their faces that no point meets, and the proof; None where there are none."""
    weights = reduced.contradiction()
    if weights is None:
        return None
    problem = reduced.problem
    proof = Proof(problem.start(None), tuple(weights), np.zeros(problem.coupled_length))
    names = proof.check(problem)
    return (names, proof) if names else None


def restore(problem: FederatedProblem, reduced: Reduced, answer: Solution) -> Solution:
    """The answer for the problem as posed, judged there."""
    if answer.proof is not None:
        weights = tuple(reduced.spread(answer.proof.weights))
        answer = replace(answer, proof=replace(answer.proof, weights=weights, on_faces=True))
    if not all(np.all(np.isfinite(price)) for price in answer.multipliers):
        return answer
    prices = reduced.lift(answer.multipliers, answer.w)
    judged = certify(problem, answer.w, prices, answer.coupled_multiplier)
    answer = replace(answer, multipliers=prices, certificate=judged)
    if answer.status == "solved" and not judged.meets(answer.tol):
        return replace(answer, status="stalled", reason=OFF_THE_FACE)
    return answer
