"""Calibrated equalized odds: tiny tables whose rates are fractions, and misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from raising import raises_code

from fedpact.postprocess import calibrated_equalized_odds

# Both groups are calibrated and have base rate 1/2.
# a: false positive rate (0 + 1/2) / 2 = 1/4, false negative rate (1/2 + 0) / 2 = 1/4
# b: false positive rate (3 * 1/4 + 3/4) / 4 = 3/8, false negative rate (3/4 + 3 * 1/4) / 4 = 3/8
Y = np.array([0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1])
SCORES = np.array([0, 0.5, 0.5, 1, 0.25, 0.25, 0.25, 0.25, 0.75, 0.75, 0.75, 0.75])
GROUP = np.array(["a"] * 4 + ["b"] * 8)


@pytest.mark.parametrize(
    ("costs", "cost_a", "cost_b"), [((1, 0), 1 / 4, 3 / 8), ((0, 1), 1 / 4, 3 / 8), ((2, 1), 3 / 4, 9 / 8)]
)
def test_rates_by_hand(costs: tuple[float, float], cost_a: float, cost_b: float) -> None:
    """The trivial score 1/2 costs (2/4, 2/4, 6/4), so a's scores are withheld half of the time."""
    predictor = calibrated_equalized_odds(Y, SCORES, GROUP, false_positive_cost=costs[0], false_negative_cost=costs[1])
    assert predictor.better_off == "a"
    assert predictor.rate == pytest.approx(1 / 2)
    assert predictor.base_rate == 1 / 2
    assert predictor.costs == pytest.approx({"a": cost_a, "b": cost_b})
    assert predictor.costs_after == pytest.approx({"a": cost_b, "b": cost_b})


def test_costs_are_equal_and_scores_calibrated_in_expectation() -> None:
    predictor = calibrated_equalized_odds(Y, SCORES, GROUP)
    draws = np.array([predictor.withhold(SCORES, GROUP, seed) for seed in range(4000)])
    np.testing.assert_array_equal(draws[:, GROUP == "b"], np.tile(SCORES[GROUP == "b"], (4000, 1)))
    missed = {g: 1 - draws[:, (g == GROUP) & (Y == 1)].mean() for g in ("a", "b")}
    assert missed["a"] == pytest.approx(missed["b"], abs=0.01)
    for score in (0.0, 0.5, 1.0):
        there = draws[:, GROUP == "a"] == score
        share = (there * Y[GROUP == "a"]).sum() / there.sum()
        assert share == pytest.approx(score, abs=0.02)


def test_base_rates_that_differ() -> None:
    """a: base rate 3/4, scores 1, 1, 1, 0, no error. b: all 2/5 of 5 rows, false positive rate 2/5, missed 3/5."""
    y, scores = [1, 1, 1, 0, 1, 1, 0, 0, 0], [1, 1, 1, 0] + [0.4] * 5
    group = [0] * 4 + [1] * 5
    predictor = calibrated_equalized_odds(y, scores, group, false_positive_cost=1, false_negative_cost=0)
    assert predictor.better_off == 0
    assert predictor.rate == pytest.approx((2 / 5) / (3 / 4))
    with raises_code("FP-DATA-434", "group 1 has cost 0.6, group 0 0, and 0.25"):
        calibrated_equalized_odds(y, scores, group)  # missed: 3/5 in group 1, and group 0 misses no more than 1/4
    all_withheld = calibrated_equalized_odds(y, scores, group, on_infeasible="withhold")
    assert all_withheld.rate == 1
    assert all_withheld.costs_after == pytest.approx({0: 1 / 4, 1: 3 / 5})
    np.testing.assert_array_equal(all_withheld.withhold(scores, group, seed=0), [0.75] * 4 + [0.4] * 5)


def test_scores_worse_than_the_base_rate_are_not_withheld() -> None:
    """Group 0 misses 3/5 with its scores and 1/2 without: withholding would only widen the gap to group 1."""
    y, scores, group = [0, 1, 0, 1], [0.5, 0.4, 0.5, 0.2], [0, 0, 1, 1]
    with raises_code("FP-DATA-434", "group 1 "):
        calibrated_equalized_odds(y, scores, group)
    assert calibrated_equalized_odds(y, scores, group, on_infeasible="withhold").rate == 0


def test_equal_costs_withhold_nothing() -> None:
    predictor = calibrated_equalized_odds(np.tile(Y[:4], 2), np.tile(SCORES[:4], 2), np.repeat([0, 1], 4))
    assert predictor.rate == 0
    np.testing.assert_array_equal(predictor.withhold(SCORES[:4], [0, 0, 1, 1], seed=1), SCORES[:4])
    np.testing.assert_array_equal(predictor.predict(SCORES[:4], [0, 0, 1, 1], seed=1), [0, 1, 1, 1])


@pytest.mark.parametrize(
    ("changed", "code", "facts"),
    [
        ({"scores": SCORES + 0.5}, "FP-DATA-435", ["scores ", "[0, 1]", "1.5 in row 3"]),
        ({"scores": np.where(SCORES > 0.9, np.nan, SCORES)}, "FP-DATA-426", ["scores have 1 ", "row 3"]),
        ({"group": np.repeat([0, 1, 2], 4)}, "FP-DATA-433", ["group has 3 ", "[0, 1, 2]"]),
        ({"group": ["a"] * 12}, "FP-DATA-428", ["", "'a'"]),
        ({"y": [0] * 4 + [0, 1] * 4}, "FP-DATA-429", ["group 'a'", "4 rows", "y = 1"]),
        ({"y": [0, 1]}, "FP-DATA-421", ["y ", "(2,)", "12 rows"]),
    ],
)
def test_bad_rows_are_named(changed: dict[str, Any], code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        calibrated_equalized_odds(**({"y": Y, "scores": SCORES, "group": GROUP} | changed))


def test_other_misuse() -> None:
    with raises_code("FP-OPTION-431", ""):
        calibrated_equalized_odds(Y, SCORES, GROUP, false_negative_cost=0)
    with raises_code("FP-OPTION-432", "on_infeasible is 'clip'"):
        calibrated_equalized_odds(Y, SCORES, GROUP, on_infeasible="clip")  # type: ignore[arg-type]
    predictor = calibrated_equalized_odds(Y, SCORES, GROUP)
    with raises_code("FP-DATA-424", "group 'c' (row 0)"):
        predictor.predict([0.5], ["c"], seed=0)
