"""Rounds that ask a sample of the owners: the answer of all of them, under the same certificate."""

from __future__ import annotations

import numpy as np
import pytest

import fedpact as fp
from fedpact import data, tasks

OWNERS = 6
TOL = 1e-3


def problem() -> fp.FederatedProblem:
    return tasks.neyman_pearson(data.neyman_pearson(OWNERS, rows=60, d=8, seed=2), 0.3, fp.prox.SquaredL2(0.05))


@pytest.fixture(scope="module")
def whole() -> fp.Solution:
    """By interior-point, to where its error does not matter."""
    found = fp.solve(problem(), "interior-point", tol=1e-9)
    assert found.solved
    assert sum(price[0] > 1e-3 for price in found.multipliers[1:]) >= 2  # more than one constraint binds
    return found


@pytest.mark.parametrize("method", ["accelerated", "proximal-al"])
@pytest.mark.parametrize("share", [0.5, 0.34])
def test_the_answer_is_that_of_all_owners(method: str, share: float, whole: fp.Solution) -> None:
    found = fp.solve(problem(), method, tol=TOL, participation=share)
    assert found.solved, found.reason
    again = fp.certify(problem(), found.w, found.multipliers)
    assert max(again.stationarity, again.feasibility) <= TOL
    # strongly convex with modulus 0.05 or more: |w - w*| <= 2 |residual| / modulus, in the two-norm
    assert np.linalg.norm(found.w - whole.w) <= 2 * TOL * np.sqrt(found.w.size) / 0.05
    assert found.objective == pytest.approx(whole.objective, abs=5e-3)

    asked = found.communication.messages / 2
    assert asked <= (share + 0.4) * OWNERS * found.rounds  # certificates and new penalties ask all of them
    assert asked >= share * OWNERS * found.rounds / 1.2


@pytest.mark.parametrize("method", ["accelerated", "proximal-al"])
def test_who_is_asked_hangs_on_the_seed_alone(method: str) -> None:
    def run(seed: int) -> fp.Solution:
        return fp.solve(problem(), method, tol=TOL, participation=0.5, seed=seed)

    first, again, other = run(1), run(1), run(2)
    assert first.w.tobytes() == again.w.tobytes()
    assert first.w.tobytes() != other.w.tobytes()


@pytest.mark.parametrize("method", ["accelerated", "proximal-al"])
def test_a_share_of_all_owners_is_no_sample(method: str) -> None:
    plain, named = fp.solve(problem(), method, tol=TOL), fp.solve(problem(), method, tol=TOL, participation=1.0)
    assert plain.w.tobytes() == named.w.tobytes()
    assert plain.rounds == named.rounds
