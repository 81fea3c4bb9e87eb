"""Batches of rows: over all single rows their mean is the function, and a batch is what its rows alone would give."""

import numpy as np
import pytest
import scipy.sparse as sp

from fedpact.functions import (
    Function,
    HuberLoss,
    LogisticLoss,
    Map,
    MeanProbability,
    Operator,
    PoissonLoss,
    Quadratic,
    Smooth,
    SmoothedRate,
    SmoothedRates,
    SoftmaxLoss,
    SquaredLoss,
    Stack,
    TwoSided,
    as_map,
    extend,
)
from fedpact.functions.rescaled import rescale_map

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3))
y = (RNG.standard_normal(12) > 0).astype(float)
WEIGHT = RNG.uniform(0.0, 4.0, 12)
OTHER = LogisticLoss(RNG.standard_normal((7, 3)), np.arange(7) % 2)
CLASSES = np.arange(12) % 3
w3, w9, w5 = (np.random.default_rng(1).standard_normal(n) for n in (3, 9, 5))
ridge = Quadratic(0.3 * np.eye(3), [1.0, 2.0, 3.0])

CASES: dict[str, tuple[Function, np.ndarray, int]] = {
    "logistic": (LogisticLoss(X, y), w3, 12),
    "logistic, weighted": (LogisticLoss(X, y, WEIGHT), w3, 12),
    "logistic, sparse": (LogisticLoss(sp.csr_array(X), y, WEIGHT), w3, 12),
    "squared": (SquaredLoss(X, X[:, 0] - 1, WEIGHT, X[:, 1]), w3, 12),
    "huber": (HuberLoss(X, X[:, 0] - 1, 0.7, WEIGHT), w3, 12),
    "poisson": (PoissonLoss(X, CLASSES, None, X[:, 1]), w3, 12),
    "softmax": (SoftmaxLoss(X, CLASSES, 3), w9, 12),
    "softmax, weighted": (SoftmaxLoss(X, CLASSES, 3, WEIGHT), w9, 12),
    "softmax, sparse": (SoftmaxLoss(sp.csr_array(X), CLASSES, 3), w9, 12),
    "mean probability": (MeanProbability(X), w3, 12),
    "smoothed rate": (SmoothedRate(X, WEIGHT, 0.7), w3, 12),
    "smoothed rate, three classes": (SmoothedRate(X, RNG.standard_normal((12, 3)), 0.7, 3), w9, 12),
    "scaled": (0.25 * LogisticLoss(X, y), w3, 12),
    "sum with a ridge": (2 * LogisticLoss(X, y) + ridge - 1.5, w3, 12),
    "sum of two losses": (0.3 * LogisticLoss(X, y, WEIGHT) - 2 * OTHER + ridge, w3, 19),
    "sum of the same rows": (LogisticLoss(X, y) + LogisticLoss(X, 1 - y), w3, 24),
    "extended": (extend(LogisticLoss(X, y) + ridge, 5, 1), w5, 12),
}


@pytest.mark.parametrize("name", CASES)
def test_the_mean_over_single_rows_is_the_function(name: str) -> None:
    function, w, rows = CASES[name]
    assert function.rows == rows
    singles = [function.batch(np.array([i])) for i in range(rows)]
    np.testing.assert_allclose(np.mean([f.value(w) for f in singles]), function.value(w), rtol=1e-13)
    np.testing.assert_allclose(np.mean([f.gradient(w) for f in singles], axis=0), function.gradient(w), atol=1e-14)
    np.testing.assert_allclose(np.mean([f.hessian(w) for f in singles], axis=0), function.hessian(w), atol=1e-14)
    # so the batches differ among each other
    assert np.std([f.gradient(w) for f in singles], axis=0).max() > 1e-3


@pytest.mark.parametrize("name", CASES)
def test_a_batch_is_the_mean_of_its_rows(name: str) -> None:
    function, w, rows = CASES[name]
    chosen = np.random.default_rng(2).choice(rows, 5, replace=False)
    singles = [function.batch(np.array([i])).gradient(w) for i in chosen]
    np.testing.assert_allclose(function.batch(chosen).gradient(w), np.mean(singles, axis=0), atol=1e-14)
    everything = function.batch(np.arange(rows))
    np.testing.assert_allclose(everything.gradient(w), function.gradient(w), atol=1e-15)
    assert everything.value(w) == pytest.approx(function.value(w), rel=1e-14)


def test_a_batch_is_the_loss_of_these_rows_alone() -> None:
    chosen = np.array([3, 0, 7])
    np.testing.assert_array_equal(
        LogisticLoss(X, y).batch(chosen).gradient(w3), LogisticLoss(X[chosen], y[chosen]).gradient(w3)
    )
    np.testing.assert_array_equal(
        SoftmaxLoss(X, CLASSES, 3).batch(chosen).gradient(w9),
        SoftmaxLoss(X[chosen], CLASSES[chosen], 3).gradient(w9),
    )


def test_parts_without_rows_stay_whole() -> None:
    total = LogisticLoss(X, y) + ridge
    chosen = np.array([4, 9])
    expected = LogisticLoss(X[chosen], y[chosen]).gradient(w3) + ridge.gradient(w3)
    np.testing.assert_allclose(total.batch(chosen).gradient(w3), expected, rtol=1e-14)


@pytest.mark.parametrize(
    "function",
    [ridge, ridge + 2 * ridge, Smooth(lambda w: (0.0, w)), Operator(lambda w: w), extend(ridge, 5)],
    ids=["quadratic", "sum", "smooth", "operator", "extended"],
)
def test_what_is_no_mean_has_no_batches(function: Function) -> None:
    assert function.rows == 0
    with pytest.raises(TypeError, match="not a mean over rows"):
        function.batch(np.array([0]))


RATES = SmoothedRates(X, RNG.standard_normal((2, 12)), [0.1, -0.2])
MAPS: dict[str, tuple[Map, np.ndarray, int]] = {
    "single": (as_map(LogisticLoss(X, y) - 0.3), w3, 12),
    "two-sided": (TwoSided(LogisticLoss(X, y), 0.1, 0.4), w3, 12),
    "stack": (Stack([LogisticLoss(X, y) - 0.3, ridge, OTHER]), w3, 19),
    "rates": (RATES, w3, 12),
    "shifted and scaled": (2 * RATES - [0.1, 0.2], w3, 12),
    "extended": (extend(RATES, 5, 1), w5, 12),
    "rescaled": (rescale_map(RATES, np.array([1.0, 2.0, 0.5]), np.array([3.0, 0.1])), w3, 12),
}


@pytest.mark.parametrize("name", MAPS)
def test_the_mean_of_a_map_over_single_rows_is_the_map(name: str) -> None:
    whole, w, rows = MAPS[name]
    weights = np.array([1.5, -0.5, 0.25])[: whole.length]
    assert whole.rows == rows
    singles = [whole.batch(np.array([i])) for i in range(rows)]
    np.testing.assert_allclose(whole.pull_back(w, weights), whole.jacobian(w).T @ weights, rtol=1e-13, atol=1e-14)
    mean = np.mean([one.pull_back(w, weights) for one in singles], axis=0)
    np.testing.assert_allclose(mean, whole.pull_back(w, weights), atol=1e-13)
    np.testing.assert_allclose(np.mean([one.value(w) for one in singles], axis=0), whole.value(w), atol=1e-13)
    assert np.std([one.pull_back(w, weights) for one in singles], axis=0).max() > 1e-3


def test_a_map_that_is_no_mean_has_no_batches() -> None:
    with pytest.raises(TypeError, match="not a mean over rows"):
        as_map(ridge).batch(np.array([0]))
