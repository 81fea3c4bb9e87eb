"""newton-al on non-convex problems, beside SLSQP on pooled functions; it goes on where interior-point loses its way."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import fedpact as fp
from fedpact.functions import Smooth, SmoothMap


def rosenbrock(w: np.ndarray) -> tuple[float, np.ndarray]:
    bend = w[1] - w[0] ** 2
    value = (1 - w[0]) ** 2 + 100 * bend**2
    return value, np.array([-2 * (1 - w[0]) - 400 * w[0] * bend, 200 * bend])


def rosenbrock_hessian(w: np.ndarray) -> np.ndarray:
    return np.array([[2 - 400 * (w[1] - 3 * w[0] ** 2), -400 * w[0]], [-400 * w[0], 200.0]])


def outside(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """1.5 - |w|^2 <= 0, which bends down."""
    return np.array([1.5 - w @ w]), -2 * w[None, :]


def beside(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """w_0 + w_1^2 / 2 - 0.9 <= 0"""
    return np.array([w[0] + w[1] ** 2 / 2 - 0.9]), np.array([[1.0, w[1]]])


def valley() -> fp.FederatedProblem:
    """A banana between two bounds, one of which is not convex."""
    away = SmoothMap(outside, lambda w, weights: -2 * weights[0] * np.eye(2), 1, 2)
    near = SmoothMap(beside, lambda w, weights: weights[0] * np.diag([0.0, 1.0]), 1, 2)
    first = fp.Share(Smooth(rosenbrock, rosenbrock_hessian, 2), fp.Constraint(away, fp.cones.Nonnegative(1)))
    return fp.FederatedProblem([first, fp.Share(None, fp.Constraint(near, fp.cones.Nonnegative(1)))])


def test_a_banana_between_two_bounds() -> None:
    start = np.array([-1.2, 1.0])
    answer = fp.solve(valley(), "newton-al", w0=start, tol=1e-7)
    assert answer.solved, answer.reason
    again = fp.certify(valley(), answer.w, answer.multipliers)
    assert max(again.stationarity, again.feasibility) <= 1e-7
    bounds = [{"type": "ineq", "fun": lambda w, c=c: -c(w)[0]} for c in (outside, beside)]
    expected = minimize(
        rosenbrock, answer.w + 0.01, jac=True, constraints=bounds, method="SLSQP", options={"ftol": 1e-14}
    )
    assert expected.success
    np.testing.assert_allclose(answer.w, expected.x, atol=1e-4)
    assert max(float(price[0]) for price in answer.multipliers[1:]) > 0.01  # a bound is active


def test_every_step_that_is_taken_lowers_the_augmented_lagrangian() -> None:
    """What keeps Newton's method on the way where it would leave it: the objective, without constraints, only falls."""
    seen: list[float] = []
    problem = fp.FederatedProblem([fp.Share(Smooth(rosenbrock, rosenbrock_hessian, 2))])
    best = {"value": np.inf}

    def follow(progress: fp.Progress) -> None:
        value = rosenbrock(progress.w)[0]
        best["value"] = min(best["value"], value)
        seen.append(value)

    answer = fp.solve(problem, "newton-al", w0=[-1.2, 1.0], tol=1e-9, callbacks=[follow])
    assert answer.solved
    np.testing.assert_allclose(answer.w, [1.0, 1.0], atol=1e-6)
    assert rosenbrock(answer.w)[0] <= best["value"] + 1e-12
    assert len(seen) < 80


@pytest.mark.extras
def test_a_network_that_interior_point_does_not_keep_is_solved() -> None:
    """`auto` hands over, and the certificate is that of gradients taken by torch itself."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1)).double()

    def loss(outputs, targets):
        return torch.nn.functional.binary_cross_entropy_with_logits(outputs.squeeze(-1), targets)

    rows = []
    for _ in range(3):
        X = rng.standard_normal((60, 6))
        rows.append(
            (X, (rng.random(60) < 1 / (1 + np.exp(4 * (np.linalg.norm(X[:, :2], axis=1) - 1.2)))).astype(float))
        )

    def of(table, label: int) -> fp.functions.Function:
        X, y = table
        return fp.functions.from_torch(net, loss, (X[y == label], y[y == label]), hessian="gauss-newton")

    shares = [fp.Share(of(t, 0) / 3, fp.Constraint(of(t, 1) - 0.3, fp.cones.Nonnegative(1))) for t in rows]
    answer = fp.solve(fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1e-2)), "newton-al", tol=1e-3)
    assert answer.solved, answer.reason
    assert "not known to be globally optimal" in answer.reason

    fp.functions.parameters_to_torch(answer.w, net)
    total = 0.005 * sum((p**2).sum() for p in net.parameters())
    for (X, y), price in zip(rows, answer.multipliers[1:], strict=True):
        part = [loss(net(torch.tensor(X[y == label])), torch.tensor(y[y == label])) for label in (0, 1)]
        total = total + part[0] / 3 + float(price[0]) * part[1]
        assert part[1].item() <= 0.3 + 1e-3
    total.backward()
    assert max(float(p.grad.abs().max()) for p in net.parameters()) <= 1e-3
