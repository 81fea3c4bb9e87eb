"""Exact bounds of a rate, against SciPy's and against the binomial sums that define them."""

from __future__ import annotations

import numpy as np
import pytest
from raising import raises_code
from scipy.stats import binom, binomtest

from fedpact.statistics import interval, lower, upper

COUNTS = [(0, 1), (1, 1), (0, 29), (3, 10), (17, 17), (50, 100), (999, 1000), (4321, 100_000)]


@pytest.mark.parametrize(("hits", "rows"), COUNTS)
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_bounds_are_those_of_scipy(hits: int, rows: int, level: float) -> None:
    both = binomtest(hits, rows).proportion_ci(level, method="exact")
    at_least = binomtest(hits, rows, alternative="greater").proportion_ci(level, method="exact")
    at_most = binomtest(hits, rows, alternative="less").proportion_ci(level, method="exact")
    np.testing.assert_allclose(interval(hits, rows, level), (both.low, both.high), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(lower(hits, rows, level), at_least.low, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(upper(hits, rows, level), at_most.high, rtol=1e-9)


def test_a_bound_makes_what_was_found_just_possible() -> None:
    """Clopper and Pearson's definition: at the bound, as many hits have probability 1 - level."""
    assert binom.sf(6, 40, lower(7, 40, 0.95)) == pytest.approx(0.05, rel=1e-10)
    assert binom.cdf(7, 40, upper(7, 40, 0.95)) == pytest.approx(0.05, rel=1e-10)


def test_no_hit_on_n_rows_is_the_rule_of_three() -> None:
    assert upper(0, 100, 0.95) == pytest.approx(1 - 0.05 ** (1 / 100), rel=1e-12)
    assert lower(100, 100, 0.95) == pytest.approx(0.05 ** (1 / 100), rel=1e-12)


def test_without_rows_nothing_is_known() -> None:
    assert interval(0, 0) == (0.0, 1.0)
    assert (lower(0, 0, 0.99), upper(0, 0, 0.99)) == (0.0, 1.0)


def test_bounds_of_several_rates_are_those_of_each() -> None:
    hits = [3, 0, 7]
    rows = [10, 0, 7]
    assert lower(hits, rows, 0.9).tolist() == [lower(h, n, 0.9) for h, n in zip(hits, rows, strict=True)]
    assert upper(hits, rows, 0.9).tolist() == [upper(h, n, 0.9) for h, n in zip(hits, rows, strict=True)]


@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("rows", [5, 40])
def test_bounds_cover_the_rate_at_their_level(p: float, rows: int) -> None:
    """The probability that they do not, summed over everything that may be found."""
    hits = np.arange(rows + 1)
    chance = binom.pmf(hits, rows, p)
    assert chance[lower(hits, rows, 0.9) > p].sum() <= 0.1
    assert chance[upper(hits, rows, 0.9) < p].sum() <= 0.1


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, float("nan")])
def test_a_level_is_between_0_and_1(level: float) -> None:
    with raises_code("FP-OPTION-700", "level"):
        upper(1, 2, level)
    with raises_code("FP-OPTION-700", "level"):
        interval(1, 2, level)


@pytest.mark.parametrize(("hits", "rows"), [(3, 2), (-1, 2), (0.5, 2), (1, 2.5), (float("nan"), 2)])
def test_hits_are_some_of_the_rows(hits: float, rows: float) -> None:
    with raises_code("FP-DATA-700", str(float(hits)), str(float(rows))):
        lower(hits, rows, 0.9)
