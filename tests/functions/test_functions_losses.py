"""Values against other implementations and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import huber, log_softmax
from scipy.stats import poisson
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error

from fedpact.functions import (
    Affine,
    HuberLoss,
    LogisticLoss,
    PoissonLoss,
    Quadratic,
    SoftmaxLoss,
    SquaredLoss,
    TwoSided,
)

RNG = np.random.default_rng(20)
X = RNG.standard_normal((40, 3))
BINARY = RNG.integers(0, 2, 40)
CLASSES = RNG.integers(0, 4, 40)
WEIGHT = RNG.uniform(0.0, 5.0, 40)


def test_quadratic_by_hand() -> None:
    # 1/2 (2*1 + 2*3*1*2 + 4*4) + (1 - 2) = 15 - 1
    function = Quadratic([[2.0, 3.0], [3.0, 4.0]], [1.0, -1.0])
    value, gradient = function.value_and_gradient(np.array([1.0, 2.0]))
    assert value == 14.0
    np.testing.assert_array_equal(gradient, [9.0, 10.0])


def test_affine_by_hand() -> None:
    np.testing.assert_array_equal(
        Affine([[1.0, 2.0], [0.0, -1.0]], [5.0, 6.0]).value(np.array([3.0, 4.0])), [16.0, 2.0]
    )


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_logistic_is_the_log_loss_of_sklearn(weight: np.ndarray | None) -> None:
    w = np.array([0.3, -1.0, 2.0])
    chance = 1 / (1 + np.exp(-X @ w))
    expected = log_loss(BINARY, chance, sample_weight=weight)
    assert LogisticLoss(X, BINARY, weight).value(w) == pytest.approx(expected, rel=1e-12)
    assert LogisticLoss(X, BINARY.astype(bool), weight).value(w) == pytest.approx(expected, rel=1e-12)


def test_softmax_is_the_log_loss_of_sklearn_and_of_scipy() -> None:
    W = RNG.standard_normal((4, 3))
    value = SoftmaxLoss(X, CLASSES, 4).value(W.ravel())
    logarithm = log_softmax(X @ W.T, axis=1)
    assert value == pytest.approx(-np.mean(logarithm[np.arange(40), CLASSES]), rel=1e-12)
    assert value == pytest.approx(log_loss(CLASSES, np.exp(logarithm), labels=range(4)), rel=1e-12)


def test_softmax_of_two_classes_is_logistic() -> None:
    w = np.array([0.3, -1.0, 2.0])
    stacked = np.concatenate([np.zeros(3), w])
    two, one = SoftmaxLoss(X, BINARY, 2), LogisticLoss(X, BINARY)
    assert two.value(stacked) == pytest.approx(one.value(w), rel=1e-12)
    np.testing.assert_allclose(two.gradient(stacked)[3:], one.gradient(w), rtol=1e-11)
    np.testing.assert_allclose(two.hessian(stacked)[3:, 3:], one.hessian(w), rtol=1e-11)


def test_a_weight_of_two_is_a_row_twice() -> None:
    w, weight = np.array([0.3, -1.0, 2.0]), np.ones(40)
    weight[7] = 2
    twice = LogisticLoss(np.vstack([X, X[7]]), np.append(BINARY, BINARY[7]))
    np.testing.assert_allclose(LogisticLoss(X, BINARY, weight).gradient(w), twice.gradient(w), rtol=1e-12)


def test_weights_of_rows_are_those_of_sklearn_for_several_classes() -> None:
    W = RNG.standard_normal((4, 3))
    chance = np.exp(log_softmax(X @ W.T, axis=1))
    expected = log_loss(CLASSES, chance, labels=range(4), sample_weight=WEIGHT)
    assert SoftmaxLoss(X, CLASSES, 4, WEIGHT).value(W.ravel()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_losses_of_regression_are_those_of_sklearn_and_scipy(weight: np.ndarray | None) -> None:
    w = np.array([0.3, -1.0, 0.5])
    numbers, offset = RNG.standard_normal(40), RNG.uniform(-1.0, 1.0, 40)
    score = X @ w + offset
    squared = SquaredLoss(X, numbers, weight, offset).value(w)
    assert 2 * squared == pytest.approx(mean_squared_error(numbers, score, sample_weight=weight), rel=1e-12)
    robust = HuberLoss(X, numbers, 0.6, weight, offset).value(w)
    assert robust == pytest.approx(np.average(huber(0.6, score - numbers), weights=weight), rel=1e-12)
    counts = PoissonLoss(X, CLASSES, weight, offset)
    deviance = mean_poisson_deviance(CLASSES, np.exp(score), sample_weight=weight)
    assert 2 * (counts.value(w) - counts.least) == pytest.approx(deviance, rel=1e-12)
    # up to log(y!), which w does not move, it is minus the logarithm of the likelihood
    likelihood = [np.average(poisson.logpmf(CLASSES, np.exp(s)), weights=weight) for s in (score, 0 * score)]
    gained = counts.value(w) - PoissonLoss(X, CLASSES, weight).value(0 * w)
    assert gained == pytest.approx(likelihood[1] - likelihood[0], rel=1e-11)


def test_counts_beyond_the_largest_number_are_infinite_without_a_warning() -> None:
    counts = PoissonLoss([[1.0], [-1.0]], [3, 0])
    assert counts.value(np.array([800.0])) == np.inf
    assert counts.value(np.array([-800.0])) == np.inf
    assert PoissonLoss([[1.0]], [3]).value(np.array([-800.0])) == 2400.0


def test_scores_of_ten_thousand() -> None:
    rows = np.array([[1e4], [1e4], [-1e4], [-1e4]])
    one = np.ones(1)
    # Half of the rows are wrong by 1e4, the other half right.
    logistic = LogisticLoss(rows, [0, 1, 0, 1])
    value, gradient = logistic.value_and_gradient(one)
    assert logistic.value(one) == value == 5000.0
    np.testing.assert_array_equal(gradient, [5000.0])
    np.testing.assert_array_equal(logistic.hessian(one), [[0.0]])
    several = SoftmaxLoss(rows, [0, 1, 0, 1], 2)
    assert several.value(np.array([0.0, 1.0])) == 5000.0
    np.testing.assert_array_equal(several.gradient(np.array([0.0, 1.0])), [-5000.0, 5000.0])
    np.testing.assert_array_equal(several.hessian(np.array([0.0, 1.0])), np.zeros((2, 2)))


@pytest.mark.parametrize("label", [0, 1])
def test_small_losses_keep_their_digits(label: int) -> None:
    w = np.array([40.0 if label else -40.0])
    logistic = LogisticLoss([[1.0]], [label])
    small = pytest.approx(np.exp(-40), rel=1e-12, abs=0)
    value, gradient = logistic.value_and_gradient(w)
    assert logistic.value(w) == small
    assert value == small
    assert abs(gradient[0]) == small
    assert logistic.hessian(w)[0, 0] == small
    several = SoftmaxLoss([[1.0]], [label], 2)
    assert several.hessian(np.array([0.0, w[0]]))[1, 1] == small


def test_two_sided_is_feasible_exactly_between_the_bounds() -> None:
    gap = TwoSided(Quadratic([[0.0]], [1.0]), -0.1, 0.2)
    for value, feasible in ((-0.11, False), (-0.1, True), (0.0, True), (0.2, True), (0.21, False)):
        assert bool(np.all(gap.value(np.array([value])) <= 0)) is feasible
    np.testing.assert_allclose(gap.value(np.array([0.05])), [-0.15, -0.15])


def test_two_sided_evaluates_once() -> None:
    calls = []

    class Counting(Quadratic):
        def value_and_gradient(self, w: np.ndarray) -> tuple[float, np.ndarray]:
            calls.append(w)
            return super().value_and_gradient(w)

    TwoSided(Counting([[1.0]]), 0.0, 1.0).value_and_jacobian(np.ones(1))
    assert len(calls) == 1
