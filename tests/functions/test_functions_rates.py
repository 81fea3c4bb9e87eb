"""Smoothed rates: what they tend to as the smoothing goes, beside decisions that are counted; and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from raising import raises_code

from fedpact.functions import SmoothedRate, SmoothedRates

rng = np.random.default_rng(3)


def decide(X: np.ndarray, w: np.ndarray, classes: int) -> list[int]:
    """The class with the largest score, row by row."""
    if classes == 2:
        return [int(x @ w > 0) for x in X]
    return [int(np.argmax(w.reshape(classes, -1) @ x)) for x in X]


@pytest.mark.parametrize("classes", [2, 3])
def test_without_smoothing_it_counts_decisions(classes: int) -> None:
    X = rng.normal(size=(40, 3))
    w = rng.normal(size=3 if classes == 2 else 9)
    weights = rng.normal(size=(40, classes))  # of either sign
    found = decide(X, w, classes)
    counted = sum(float(weights[i, k]) for i, k in enumerate(found))
    # With two classes a row that is not given class 1 is given class 0.
    given = weights[:, 1] - weights[:, 0] if classes == 2 else weights
    constant = float(weights[:, 0].sum()) if classes == 2 else 0.0
    assert SmoothedRate(X, given, 1e-5, classes).value(w) + constant == pytest.approx(counted, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_narrower_it_is_the_nearer_to_the_decisions(classes: int) -> None:
    X = rng.normal(size=(40, 3))
    w = rng.normal(size=3 if classes == 2 else 9)
    found = decide(X, w, classes)
    right = np.array(found, dtype=float) if classes == 2 else np.eye(classes)[found]
    sign = 1 - 2 * right  # every row's miss counts, and none against another's
    misses = [float(np.sum(right)) + SmoothedRate(X, sign, width, classes).value(w) for width in (1.0, 0.3, 0.1, 1e-5)]
    assert misses == sorted(misses, reverse=True)
    assert misses[-1] == pytest.approx(0.0, abs=1e-12)


def test_with_width_one_and_equal_weights_it_is_a_mean_probability() -> None:
    X = rng.normal(size=(30, 4))
    w = rng.normal(size=4)
    mean = sum(1 / (1 + np.exp(-x @ w)) for x in X) / 30
    assert SmoothedRate(X, np.full(30, 1 / 30)).value(w) == pytest.approx(mean, rel=1e-14)


def test_far_scores_leave_no_warning_and_no_slope() -> None:
    rate = SmoothedRate(np.array([[1e5], [-1e5]]), [1.0, 1.0], 1e-3)
    value, gradient = rate.value_and_gradient(np.ones(1))
    assert value == 1.0
    assert gradient == [0.0]
    assert rate.hessian(np.ones(1)) == [[0.0]]


def test_several_rates_are_the_single_ones() -> None:
    X = rng.normal(size=(20, 2))
    w = rng.normal(size=6)
    weights = rng.normal(size=(3, 20, 3))
    together = SmoothedRates(X, weights, [0.5, -1.0, 0.0], 0.4, 3)
    alone = [SmoothedRate(X, one, 0.4, 3) for one in weights]
    np.testing.assert_allclose(together.value(w), [one.value(w) for one in alone] + np.array([0.5, -1.0, 0.0]))
    np.testing.assert_allclose(together.jacobian(w), [one.gradient(w) for one in alone])


X = np.ones((4, 2))


@pytest.mark.parametrize(
    ("make", "code", "facts"),
    [
        (lambda: SmoothedRate(X, np.ones(4), 0.0), "FP-PROBLEM-260", ["rates", "width = 0.0"]),
        (lambda: SmoothedRate(X, np.ones(4), np.inf), "FP-PROBLEM-260", ["rates", "width = inf"]),
        (lambda: SmoothedRate(X, np.ones(3)), "FP-PROBLEM-261", ["rates", "(3,)", "(4,)"]),
        (lambda: SmoothedRate(X, np.ones(4), 1.0, 3), "FP-PROBLEM-261", ["rates", "(4,)", "(4, 3)"]),
        (lambda: SmoothedRates(X, np.ones((2, 4)), [0.0]), "FP-PROBLEM-262", ["rates", "2 weights", "1 constants"]),
    ],
)
def test_wrong_shapes_are_told(make: Any, code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        make()


def test_numbers_that_are_none_are_defects() -> None:
    assert "weights" in (SmoothedRate(X, [1.0, np.nan, 0.0, 0.0]).defect() or "")
    assert "constant" in (SmoothedRates(X, np.ones((1, 4)), [np.inf]).defect() or "")
    assert "no rows" in (SmoothedRate(np.zeros((0, 2)), []).defect() or "")
    assert SmoothedRate(X, np.ones(4)).defect() is None
