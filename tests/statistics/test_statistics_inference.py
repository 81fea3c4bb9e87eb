"""Tables of estimates: tests and intervals against scipy, text, HTML, CSV; covariances of estimating equations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedpact.statistics import Estimate, Summary, estimates, estimates_of_draws, sandwich


def test_tests_and_intervals_are_those_of_normal_and_student() -> None:
    normal = Estimate.of("a", 1.0, 0.4, 0.95, np.inf)
    assert normal.p == pytest.approx(2 * stats.norm.sf(2.5))
    assert (normal.low, normal.high) == pytest.approx(stats.norm.interval(0.95, 1.0, 0.4))
    student = Estimate.of("a", 1.0, 0.4, 0.9, 7.0)
    assert student.p == pytest.approx(2 * stats.t.sf(2.5, 7))
    assert (student.low, student.high) == pytest.approx(stats.t.interval(0.9, 7, 1.0, 0.4))


def test_what_is_fixed_or_not_known_has_no_test() -> None:
    fixed = Estimate.of("a", 1.0, 0.0, 0.95, np.inf)
    assert np.isnan(fixed.p)
    assert (fixed.low, fixed.high) == (1.0, 1.0)
    unknown = Estimate.of("a", 1.0, np.nan, 0.95, np.inf)
    assert np.isnan([unknown.z, unknown.p, unknown.low, unknown.high]).all()


def test_the_covariance_is_that_of_the_equations_whatever_their_units() -> None:
    draw = np.random.default_rng(0)
    system = draw.standard_normal((4, 4))
    system = system @ system.T + np.eye(4)
    system[3, 3] = 0.0  # a price
    root = draw.standard_normal((4, 4))
    units = np.diag([1.0, 1e4, 1e-5, 1.0])
    inverse = np.linalg.inv(system)
    found = sandwich(units @ system @ units, units @ root @ root.T @ units).covariance
    expected = np.linalg.inv(units) @ inverse @ root @ root.T @ inverse.T @ np.linalg.inv(units)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_equations_that_determine_nothing_are_refused() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        sandwich(np.ones((2, 2)), np.eye(2))


def test_draws_give_deviation_and_percentiles() -> None:
    draws = np.random.default_rng(0).normal(size=(4000, 1)) * 2 + 1
    (one,) = estimates_of_draws(["a"], np.array([1.0]), draws, 0.9)
    assert one.se == pytest.approx(2, rel=0.05)
    assert (one.low, one.high) == pytest.approx(np.quantile(draws, [0.05, 0.95]))


def test_a_table_shows_names_notes_and_ratios() -> None:
    found = estimates(["dose", "a < b"], np.array([0.5, -1.0]), np.diag([0.01, 0.0]), 0.95, np.inf)
    summary = Summary(found[:1], found[1:], "sandwich", 0.95, ("a note",))
    text = str(summary)
    for words in ("dose", "a < b", "price of", "95 %", "note: a note", "sandwich"):
        assert words in text
    assert "a &lt; b" in summary._repr_html_()
    assert summary.to_csv().splitlines()[0] == "kind,name,estimate,se,z,p,low,high"
    ratio = summary.ratios()["dose"]
    assert ratio.estimate == pytest.approx(np.exp(0.5))
    assert ratio.p == summary["dose"].p
    assert ratio.high == pytest.approx(np.exp(summary["dose"].high))
    with pytest.raises(KeyError):
        summary["other"]


def test_a_bent_interval_is_that_of_one_over_a_root() -> None:
    """A price 1 / sqrt(room), room 4 with standard error 0.5 or 3: the ends are those of the interval of the room."""
    for error in (0.5, 3.0):
        for sign in (1, -1):
            se = 0.5 * 4**-1.5 * error
            one = Estimate.of("price", sign * 0.5, se, 0.95, np.inf, error / (2 * 4))
            far = 1.959963984540054 * error
            ends = [(4 + far) ** -0.5, (4 - far) ** -0.5 if far < 4 else np.inf]
            assert [one.low, one.high] == pytest.approx(sorted(sign * end for end in ends), rel=1e-12)
    straight = Estimate.of("price", 0.5, 0.1, 0.95, np.inf, 1e-9)
    assert straight.high == pytest.approx(Estimate.of("price", 0.5, 0.1, 0.95, np.inf).high, rel=1e-8)
