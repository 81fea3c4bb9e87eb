"""Which point a solve returns when its certificate is not met: the best one by what a user asked for."""

from __future__ import annotations

import numpy as np
import pytest

import fedpact as fp
from fedpact.functions import from_torch
from fedpact.problem import Certificate
from fedpact.solvers.run import Best, Iterate

TOL = (1e-3, 1e-3)


def offered(best: Best, *points: tuple[float, float, float]) -> int:
    """The number of the best of points (stationarity, violation, objective); the first of them is the start."""
    for number, (stationarity, violation, objective) in enumerate(points):
        certificate = Certificate(stationarity=stationarity, feasibility=violation, violation=violation)
        best.offer(Iterate(number=number, w=np.zeros(1), judged=(certificate, objective)))
    return best.iteration


@pytest.mark.parametrize(
    ("by_objective", "feasible_first", "expected"),
    [
        (False, False, 0),  # the smallest residuals
        (True, False, 2),  # the lowest objective
        (True, True, 3),  # the lowest objective of those that violate nothing, the start left out
    ],
)
def test_the_best_point(by_objective: bool, feasible_first: bool, expected: int) -> None:
    best = Best(TOL, by_objective=by_objective, feasible_first=feasible_first)
    points = [(0.01, 0.0, 9.0), (0.3, 0.0, 4.0), (0.2, 0.2, 1.0), (0.4, 0.0, 2.0), (0.1, 0.0, 3.0)]
    assert offered(best, *points) == expected


def test_a_point_that_meets_the_tolerances_comes_before_a_lower_objective() -> None:
    assert offered(Best(TOL, by_objective=True), (0.5, 0.0, 1.0), (1e-4, 0.0, 2.0), (0.5, 0.0, 1.5)) == 1


@pytest.mark.extras
def test_fedavg_returns_a_trained_network_though_its_start_is_nearer_to_stationary() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter *= 0.01
    rng = np.random.default_rng(0)
    shares = []
    for name in ("north", "south"):
        X = rng.standard_normal((100, 2))
        y = (np.prod(X, axis=1) > 0).astype(float)[:, None]
        loss = torch.nn.functional.binary_cross_entropy_with_logits
        shares.append(fp.Share(from_torch(module, loss, (X, y), hessian=False), name=name))
    found = fp.solve(fp.FederatedProblem(shares), "fedavg", steps=20, batch_size=20, step_size=0.3, max_rounds=12)
    course = found.history.outer
    assert course[0].stationarity == min(record.stationarity for record in course)
    assert found.objective == pytest.approx(min(record.objective for record in course))
    assert found.objective < 0.8 * course[0].objective
