"""The Gauss-Newton matrix of a network's loss, beside J' L J from differences of the outputs and closed forms of L."""

from __future__ import annotations

import numpy as np
import pytest
from networks import central, hospitals
from raising import raises_code

from fedpact.functions import LogisticLoss, from_torch, parameters_from_torch, parameters_to_torch

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.extras
torch.set_num_threads(1)


def binary(outputs, targets):
    return torch.nn.functional.binary_cross_entropy_with_logits(outputs.squeeze(-1), targets)


def network(activation, width: int = 5, outputs: int = 1):
    torch.manual_seed(3)
    layers = torch.nn.Linear(2, width), activation(), torch.nn.Linear(width, outputs)
    return torch.nn.Sequential(*layers).double()


def outputs_of(module, X: np.ndarray):
    """w -> the outputs of all rows in one vector, by the module alone."""

    def at(w: np.ndarray) -> np.ndarray:
        parameters_to_torch(w, module)
        with torch.no_grad():
            return module(torch.tensor(X)).numpy().ravel()

    return at


def test_of_a_linear_module_it_is_the_hessian() -> None:
    X, y = hospitals(1, 60)[0]
    linear = torch.nn.Linear(2, 1, bias=False)
    w = np.array([0.3, -0.8])
    found = from_torch(linear, binary, (X, y), hessian="gauss-newton")
    np.testing.assert_allclose(found.hessian(w), LogisticLoss(X, y).hessian(w), rtol=1e-12)


@pytest.mark.parametrize("activation", [torch.nn.Tanh, torch.nn.ReLU])
def test_of_a_network_with_one_output(activation) -> None:
    X, y = hospitals(1, 40)[0]
    module = network(activation)
    w = parameters_from_torch(module)
    found = from_torch(module, binary, (X, y), hessian="gauss-newton")
    J = central(outputs_of(module, X), w).T
    p = 1 / (1 + np.exp(-outputs_of(module, X)(w)))
    expected = J.T @ ((p * (1 - p) / len(y))[:, None] * J)
    np.testing.assert_allclose(found.hessian(w), expected, rtol=1e-6, atol=1e-8)
    v = np.random.default_rng(0).standard_normal(w.size)
    np.testing.assert_allclose(found.hessian_product(w, v), expected @ v, rtol=1e-6, atol=1e-8)
    assert np.linalg.eigvalsh(found.hessian(w))[0] >= -1e-12


def test_of_a_network_with_three_outputs() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((30, 2))
    labels = rng.integers(0, 3, 30)
    module = network(torch.nn.Tanh, outputs=3)
    w = parameters_from_torch(module)
    found = from_torch(module, torch.nn.functional.cross_entropy, (X, labels), hessian="gauss-newton")
    J = central(outputs_of(module, X), w).T.reshape(30, 3, w.size)
    scores = outputs_of(module, X)(w).reshape(30, 3)
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    expected = np.zeros((w.size, w.size))
    for row in range(30):
        L = (np.diag(p[row]) - np.outer(p[row], p[row])) / 30
        expected += J[row].T @ L @ J[row]
    np.testing.assert_allclose(found.hessian(w), expected, rtol=1e-6, atol=1e-8)


def test_which_hessian_is_the_default() -> None:
    """The Hessian itself for few parameters, where it is cheap; Gauss-Newton for many."""
    X, y = hospitals(1, 30)[0]
    few, many = network(torch.nn.Tanh), network(torch.nn.Tanh, width=30)
    for module, kind in ((few, True), (many, "gauss-newton")):
        w = parameters_from_torch(module)
        default = from_torch(module, binary, (X, y)).hessian(w)
        np.testing.assert_array_equal(default, from_torch(module, binary, (X, y), hessian=kind).hessian(w))
    bent = from_torch(few, binary, (X, y), hessian="gauss-newton").hessian(parameters_from_torch(few))
    assert not np.allclose(bent, from_torch(few, binary, (X, y), hessian=True).hessian(parameters_from_torch(few)))


def test_what_it_refuses() -> None:
    X, y = hospitals(1, 30)[0]
    with raises_code("FP-OPTION-883", "hessian", "newton"):
        from_torch(network(torch.nn.Tanh), binary, (X, y), hessian="newton")
    with raises_code("FP-PROBLEM-182", "from_torch", "mean over rows"):
        from_torch(network(torch.nn.Tanh), lambda o, t: binary(o, t) ** 2, (X, y), hessian="gauss-newton")
