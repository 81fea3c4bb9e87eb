"""iFedDR on networks: gamma below 1 / L, a merit that falls, and no stall where FedAvg goes on."""

from __future__ import annotations

import numpy as np
import pytest

import fedpact as fp
from fedpact.solvers.consensus.pace import SAFE, SHRINK, CarefulGamma

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.extras
torch.set_num_threads(1)
OWNERS = 3
RIDGE = 1e-3


def loss(outputs, targets):
    return torch.nn.functional.binary_cross_entropy_with_logits(outputs.squeeze(-1), targets)


def tables() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    found = []
    for _ in range(OWNERS):
        X = 1.2 * rng.standard_normal((100, 2)) + 0.2 * rng.standard_normal(2)
        inside = 1 / (1 + np.exp(6 * (np.hypot(X[:, 0], X[:, 1]) - 1.2)))
        found.append((X, (rng.random(100) < inside).astype(float)))
    return found


def network(activation):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 8), activation(), torch.nn.Linear(8, 1)).double()


def problem(activation, hessian: bool) -> fp.FederatedProblem:
    net = network(activation)
    shares = [fp.Share(fp.functions.from_torch(net, loss, rows, hessian=hessian) / OWNERS) for rows in tables()]
    return fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(RIDGE))


def slope(activation, w: np.ndarray) -> float:
    """The largest entry of the gradient at w, by torch alone."""
    net = network(activation)
    fp.functions.parameters_to_torch(w, net)
    total = 0.5 * RIDGE * sum((p**2).sum() for p in net.parameters())
    for X, y in tables():
        total = total + loss(net(torch.tensor(X)), torch.tensor(y)) / OWNERS
    total.backward()
    return max(float(p.grad.abs().max()) for p in net.parameters())


@pytest.mark.parametrize("activation", [torch.nn.Tanh, torch.nn.ReLU])
def test_it_goes_on_where_fedavg_does(activation) -> None:
    made = problem(activation, hessian=False)
    found = fp.solve(made, "ifeddr", tol=1e-5, max_rounds=120)
    rival = fp.solve(made, "fedavg", steps=5, tol=1e-5, max_rounds=120)
    assert found.status == rival.status == "max_rounds"
    judged = [record.objective for record in found.history.outer]
    assert judged[-1] < judged[len(judged) // 2] < judged[0]  # it moves until the end
    fallen, theirs = judged[0] - found.objective, judged[0] - rival.objective
    assert fallen >= 0.75 * theirs
    assert any("below 1 / L" in note for note in found.history.notes)


def test_a_smooth_network_is_brought_to_a_stationary_point() -> None:
    found = fp.solve(problem(torch.nn.Tanh, hessian=True), "ifeddr", tol=1e-3, max_rounds=300)
    assert found.solved, found.reason
    assert slope(torch.nn.Tanh, found.w) == pytest.approx(found.certificate.stationarity, rel=1e-6)
    assert found.certificate.stationarity <= 1e-3


def test_gamma_follows_the_curvature_and_the_merit() -> None:
    gamma = CarefulGamma(10.0, fixed=False)
    gamma.follow(1, moved=1.0, turned=4.0, disagreement=1.0, distance=1.0)  # curvature 2
    assert gamma.value == pytest.approx(SAFE / 2)
    gamma.weigh(1.0)
    gamma.weigh(0.5)
    assert gamma.value == pytest.approx(SAFE / 2)
    gamma.weigh(0.6)
    assert gamma.value == pytest.approx(SAFE / 2 / SHRINK)
    for k in range(2, 200):
        gamma.follow(k, moved=1.0, turned=4.0, disagreement=1.0, distance=1.0)
        gamma.weigh(-float(k))
    assert gamma.value == pytest.approx(SAFE / 2)  # it grows again, and no farther
