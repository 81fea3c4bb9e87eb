"""Rates of a network's decisions: beside its outputs, counted by hand, and derivatives beside differences."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from raising import raises_code

from fedpact.functions import CountedRates, SmoothedRates, decisions_from_torch

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.extras

rng = np.random.default_rng(5)
X = rng.standard_normal((30, 4))


def network(outputs: int) -> Any:
    torch.manual_seed(0)
    layers = (torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, outputs))
    return torch.nn.Sequential(*layers)


def outputs_of(module: Any) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(module.double()(torch.tensor(X)).numpy())


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_counts_and_smoothed_rates_are_those_of_the_outputs(outputs: int, dtype: str) -> None:
    module = network(outputs)
    shape = (2, 30) if outputs == 1 else (2, 30, 3)
    weights = rng.standard_normal(shape)
    decisions = decisions_from_torch(module, X, width=0.5, dtype=dtype)
    scores = outputs_of(module)
    if outputs == 1:
        hard = (scores[:, 0] > 0).astype(float)
        soft = 1 / (1 + np.exp(-scores[:, 0] / 0.5))
    else:
        hard = np.eye(3)[scores.argmax(axis=1)]
        powers = np.exp(scores / 0.5)
        soft = powers / powers.sum(axis=1, keepdims=True)
    axes = tuple(range(1, weights.ndim))
    counted = CountedRates(decisions, weights, [0.5, 0.0])
    smoothed = SmoothedRates(decisions, weights, [0.5, 0.0])
    close = {"float64": 1e-12, "float32": 1e-5}[dtype]
    constant = np.array([0.5, 0.0])
    np.testing.assert_allclose(counted.value(decisions.start), np.sum(weights * hard, axes) + constant, atol=1e-12)
    np.testing.assert_allclose(smoothed.value(decisions.start), np.sum(weights * soft, axes) + constant, atol=close)
    np.testing.assert_array_equal(counted.jacobian(decisions.start), smoothed.jacobian(decisions.start))


def test_derivatives_batches_and_copies() -> None:
    rates = SmoothedRates(decisions_from_torch(network(3), X), rng.standard_normal((2, 30, 3)), [0.0, 0.0])
    w = rates.start + 0.1 * rng.standard_normal(rates.dim)
    along = rng.standard_normal(w.size)
    step = 1e-6
    slope = (rates.value(w + step * along) - rates.value(w - step * along)) / (2 * step)
    np.testing.assert_allclose(rates.jacobian(w) @ along, slope, rtol=1e-6, atol=1e-9)
    parts = [rates.batch(np.arange(first, 30, 3)).pull_back(w, np.array([1.0, -2.0])) for first in range(3)]
    np.testing.assert_allclose(np.mean(parts, axis=0), rates.jacobian(w).T @ [1.0, -2.0], atol=1e-13)
    again = pickle.loads(pickle.dumps(rates))
    np.testing.assert_array_equal(again.value(w), rates.value(w))


def test_what_is_no_score_of_rows_is_refused() -> None:
    with raises_code("FP-PROBLEM-263"):
        decisions_from_torch(network(3), X, width=0.0)
    with raises_code("FP-PROBLEM-264"):
        decisions_from_torch(torch.nn.Sequential(network(3), torch.nn.Unflatten(1, (3, 1))), X)
    with raises_code("FP-PROBLEM-180"):  # dropout in training mode
        decisions_from_torch(torch.nn.Sequential(network(3), torch.nn.Dropout()), X)
    decisions_from_torch(torch.nn.Sequential(network(3), torch.nn.Dropout()).eval(), X)
    with raises_code("FP-PROBLEM-181"):  # batch normalisation in training mode
        decisions_from_torch(torch.nn.Sequential(network(3), torch.nn.BatchNorm1d(3)), X)
