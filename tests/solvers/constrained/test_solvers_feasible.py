"""Status "feasible": bounds that all hold, of a problem that is not convex, without a certificate of the best model."""

from __future__ import annotations

import numpy as np
import pytest

import fedpact as fp
from fedpact.functions import LogisticLoss, Smooth, SmoothedRate


def problem(most: float) -> fp.FederatedProblem:
    """A stand-in for a network: a loss of rows and a wavy term, and a bound on a smoothed rate at every owner."""
    draw = np.random.default_rng(0)
    wavy = Smooth(lambda w: (float(np.sum(np.cos(3 * w))), -3 * np.sin(3 * w)), dim=3)
    shares = []
    for name in ("north", "south"):
        X = draw.standard_normal((120, 3))
        y = (X @ [1.0, -0.5, 0.2] + draw.logistic(size=120) > 0).astype(float)
        rate = fp.Constraint(SmoothedRate(X, np.ones(120) / 120, 0.5) - most, fp.cones.Nonnegative(1))
        shares.append(fp.Share(LogisticLoss(X, y) + 0.1 * wavy, rate, name=name))
    return fp.FederatedProblem(shares)


def test_bounds_that_hold_without_a_certificate_are_feasible() -> None:
    found = fp.solve(problem(0.7), "stochastic-al", tol=1e-9, passes=20, batch_size=20)
    assert found.status == "feasible", found.reason
    assert not found.solved
    again = fp.certify(problem(0.7), found.w, found.multipliers)
    assert again.violation <= found.tol[1]
    assert again.stationarity > found.tol[0]
    assert f"{found.certificate.stationarity:.2g}" in found.reason
    assert "nearer" not in found.reason


def test_a_bound_that_is_missed_is_not() -> None:
    found = fp.solve(problem(-1.0), "stochastic-al", tol=1e-9, passes=2, batch_size=20)
    assert found.status not in ("feasible", "solved")
    assert found.certificate.violation > 0.1


@pytest.mark.parametrize("tol", [1e-9])
def test_neither_is_a_problem_without_bounds(tol: float) -> None:
    free = fp.FederatedProblem([fp.Share(share.objective, name=share.name) for share in problem(0.7).shares])
    assert fp.solve(free, "stochastic-al", tol=tol, passes=2, batch_size=20).status == "max_rounds"


def test_a_convex_problem_is_solved_or_it_is_not() -> None:
    shares = [
        fp.Share(
            LogisticLoss(np.eye(3), [1.0, 0.0, 1.0]),
            fp.Constraint(fp.functions.Affine(np.eye(3), -9 * np.ones(3)), fp.cones.Nonnegative(3)),
        )
    ]
    assert fp.solve(fp.FederatedProblem(shares), "stochastic-al", tol=1e-9, passes=1).status == "max_rounds"
