"""Promises about rows not yet seen: their error by exact sums, by simulation, and beside published numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from raising import raises_code
from scipy.stats import binom

from fedpact.statistics import (
    gap_holds,
    last_passing,
    lower,
    misses_allowed,
    promised_threshold,
    rate_holds,
    rows_needed,
    rows_needed_for_gap,
    upper,
)

# ------------------------------------------------------------------------------------------------------- one rate


@pytest.mark.parametrize("rate", [0.5, 0.8, 0.9, 0.99])
@pytest.mark.parametrize("delta", [0.01, 0.05, 0.3])
def test_as_many_misses_are_allowed_as_the_definition_says(rate: float, delta: float) -> None:
    for rows in (0, 1, 5, 28, 29, 58, 59, 100, 1000):
        chances = [math.comb(rows, k) * (1 - rate) ** k * rate ** (rows - k) for k in range(rows)]
        allowed = sum(total <= delta for total in np.cumsum(chances))
        assert misses_allowed(rows, rate, delta) == allowed - 1


def test_published_numbers_of_the_umbrella_algorithm() -> None:
    """Tong, Feng, Li (2018): with type I error and violation rate of 0.05 the class needs 59 rows."""
    assert rows_needed(0.95, 0.05) == 59
    # Their k*: the smallest k with sum_{j >= k} C(n, j) (1 - alpha)^j alpha^(n - j) <= delta; here misses = n - k*.
    for rows in (59, 100, 500):
        violation = binom.sf(np.arange(rows + 1) - 1, rows, 0.95)
        first = int(np.argmax(violation <= 0.05))
        assert rows - first == misses_allowed(rows, 0.95, 0.05)


@pytest.mark.parametrize(
    ("rate", "delta", "rows"), [(0.9, 0.05, 29), (0.99, 0.05, 299), (0.5, 1 / 32, 5), (0.1, 0.5, 1)]
)
def test_so_many_rows_and_no_fewer_carry_a_promise(rate: float, delta: float, rows: int) -> None:
    assert rows_needed(rate, delta) == rows
    assert rate**rows <= delta < rate ** (rows - 1)
    assert misses_allowed(rows, rate, delta) == 0
    assert misses_allowed(rows - 1, rate, delta) == -1


@pytest.mark.parametrize(("rows", "rate", "delta"), [(29, 0.9, 0.05), (200, 0.9, 0.05), (60, 0.7, 0.2)])
def test_a_promise_is_broken_as_often_as_the_order_statistic_says(rows: int, rate: float, delta: float) -> None:
    """For uniform scores the rate of a threshold t is 1 - t."""
    rng = np.random.default_rng(7)
    runs = 4000
    thresholds = np.array([promised_threshold(rng.uniform(size=rows), rate, delta) for _ in range(runs)])
    broken = np.mean(1 - thresholds < rate)
    exact = binom.cdf(misses_allowed(rows, rate, delta), rows, 1 - rate)
    assert exact <= delta
    assert abs(broken - exact) < 4 * math.sqrt(exact * (1 - exact) / runs)


@pytest.mark.parametrize("levels", [1, 2, 5, 30])
def test_ties_do_not_break_promises(levels: int) -> None:
    """Scores of few values, the probability over all samples' order statistics summed exactly."""
    rows, rate, delta = 40, 0.8, 0.1
    values = np.arange(levels) / levels
    misses = misses_allowed(rows, rate, delta)
    broken = 0.0
    for j, value in enumerate(values):
        # The (misses+1)-th smallest is `value`: at most `misses` scores are below, more are at or below.
        chance = binom.cdf(misses, rows, j / levels) - binom.cdf(misses, rows, (j + 1) / levels)
        threshold = promised_threshold(np.full(rows, value), rate, delta)
        assert threshold is not None
        found = np.mean(values > threshold)
        if found < rate - 1e-12:
            broken += chance
    assert broken <= delta


def test_the_threshold_is_the_largest_that_finds_the_order_statistic() -> None:
    scores = np.random.default_rng(0).permutation([*range(100), *range(100)]) - 50.0
    misses = misses_allowed(200, 0.9, 0.05)
    order_statistic = np.sort(scores)[misses]
    threshold = promised_threshold(scores, 0.9, 0.05)
    assert threshold is not None
    assert order_statistic > threshold
    assert not np.any((scores > threshold) & (scores < order_statistic))
    assert np.nextafter(threshold, np.inf) == order_statistic


def test_a_zero_score_is_found_above_its_threshold() -> None:
    threshold = promised_threshold(np.zeros(29), 0.9, 0.05)
    assert threshold is not None
    assert threshold < 0.0


def test_too_few_rows_carry_no_promise() -> None:
    assert promised_threshold(np.arange(28.0), 0.9, 0.05) is None
    assert promised_threshold(np.arange(29.0), 0.9, 0.05) is not None
    assert promised_threshold([], 0.9, 0.05) is None


def test_one_threshold_for_all_owners_needs_no_correction() -> None:
    """Intersection-union: the smallest of the owners' thresholds, each at delta; here all have one distribution."""
    rng = np.random.default_rng(3)
    rows, rate, delta, owners, runs = 60, 0.9, 0.05, 5, 2000
    broken = 0
    for _ in range(runs):
        thresholds = [promised_threshold(rng.uniform(size=rows), rate, delta) for _ in range(owners)]
        smallest = min(one for one in thresholds if one is not None)
        broken += 1 - smallest < rate
    exact = binom.cdf(misses_allowed(rows, rate, delta), rows, 1 - rate) ** owners  # all must be too large
    assert broken / runs <= exact + 4 * math.sqrt(exact / runs) + 1 / runs


def test_a_score_that_is_not_finite_is_refused() -> None:
    with raises_code("FP-DATA-701"):
        promised_threshold([0.0, np.nan], 0.9, 0.05)


@pytest.mark.parametrize("p", [0.85, 0.9, 0.95])
def test_a_rate_that_breaks_its_promise_passes_with_delta_at_most(p: float) -> None:
    rows = 60
    hits = np.arange(rows + 1)
    chance = binom.pmf(hits, rows, p)
    at_least = [rate_holds(h, rows, at_least=0.9, delta=0.05) for h in hits]
    at_most = [rate_holds(h, rows, at_most=0.9, delta=0.05) for h in hits]
    if p <= 0.9:
        assert chance[at_least].sum() <= 0.05
    if p >= 0.9:
        assert chance[at_most].sum() <= 0.05
    assert at_least == [bool(lower(h, rows, 0.95) >= 0.9) for h in hits]
    assert at_most == [bool(upper(h, rows, 0.95) <= 0.9) for h in hits]


def test_rates_of_several_owners_hold_when_each_does() -> None:
    assert rate_holds([100, 50], [100, 50], at_least=0.9, delta=0.05)
    assert not rate_holds([100, 28], [100, 28], at_least=0.9, delta=0.05)  # 29 rows are the fewest
    assert rate_holds([500, 510], [1000, 1000], at_least=0.4, at_most=0.6, delta=0.05)
    assert not rate_holds([500, 610], [1000, 1000], at_least=0.4, at_most=0.6, delta=0.05)
    assert not rate_holds(0, 0, at_least=0.1, delta=0.05)


# ------------------------------------------------------------------------------------------------------------ gaps


def passing(rows: tuple[int, int], bound: float, delta: float) -> np.ndarray:
    """Whether `gap_holds` for everything that two groups may have found."""
    pairs = [[gap_holds([a, b], rows, bound, delta) for b in range(rows[1] + 1)] for a in range(rows[0] + 1)]
    return np.array(pairs)


@pytest.mark.parametrize(
    ("rows", "bound", "delta"),
    [((30, 30), 0.3, 0.05), ((30, 30), 0.4, 0.2), ((12, 40), 0.35, 0.1), ((40, 12), 0.5, 0.05), ((8, 8), 0.8, 0.3)],
)
def test_a_gap_beyond_the_bound_passes_with_delta_at_most(rows: tuple[int, int], bound: float, delta: float) -> None:
    """The probability of a false claim, summed over the two binomials, at and beyond the bound, either way."""
    holds = passing(rows, bound, delta)
    assert holds.any()
    worst = 0.0
    for beyond in (0.0, 0.05):
        for p in np.linspace(0, 1 - bound - beyond, 141):
            low = [binom.pmf(np.arange(n + 1), n, p) for n in rows]
            high = [binom.pmf(np.arange(n + 1), n, p + bound + beyond) for n in rows]
            worst = max(worst, high[0] @ holds @ low[1], low[0] @ holds @ high[1])
    assert 0 < worst <= delta


def test_three_groups_pass_when_every_two_do() -> None:
    rows = [400, 300, 500]
    hits = [200, 155, 255]
    pairs = [gap_holds([hits[i] for i in two], [rows[i] for i in two], 0.2, 0.05) for two in ((0, 1), (0, 2), (1, 2))]
    assert all(pairs)
    assert gap_holds(hits, rows, 0.2, 0.05)
    assert not gap_holds([*hits, 30], [*rows, 100], 0.2, 0.05)


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.8])
def test_fewer_rows_are_needed_than_by_bounds_of_each_group(rate: float) -> None:
    """The other valid test: bounds at 1 - delta/2 that are no further apart than the gap allowed."""
    bound, delta = 0.1, 0.05
    rows = rows_needed_for_gap(bound, delta, rate)
    wide = np.arange(10, 600, 10)  # where all these rates are whole numbers of rows
    hits = np.rint(rate * wide)
    apart = upper(hits, wide, 1 - delta / 2) - lower(hits, wide, 1 - delta / 2)
    by_bounds = int(wide[np.argmax(apart <= bound)])
    assert 1.8 * rows < by_bounds


def test_groups_without_hits_are_equal() -> None:
    """Where the rates are at the end of their range, the rows of one group must rule the gap out: (1 - bound)^rows."""
    assert gap_holds([0, 0], [60, 60], 0.1, 0.05)
    assert gap_holds([60, 60], [60, 60], 0.1, 0.05)
    assert not gap_holds([0, 0], [20, 20], 0.1, 0.05)
    assert not gap_holds([0, 0], [0, 1000], 0.1, 0.05)


@pytest.mark.parametrize(("bound", "delta"), [(0.3, 0.05), (0.2, 0.1)])
def test_so_many_rows_and_no_fewer_show_a_gap(bound: float, delta: float) -> None:
    rows = rows_needed_for_gap(bound, delta)
    even = rows + rows % 2
    assert gap_holds([even // 2] * 2, [even] * 2, bound, delta)
    fewer = [gap_holds([n // 2] * 2, [n] * 2, bound, delta) for n in range(2, rows - 1, 2)]
    assert fewer
    assert not any(fewer)


def test_rows_for_a_gap_grow_with_its_inverse_square() -> None:
    assert rows_needed_for_gap(0.02, 0.05) / rows_needed_for_gap(0.04, 0.05) == pytest.approx(4, rel=0.1)
    assert rows_needed_for_gap(0.1, 0.05, rate=0.9) < rows_needed_for_gap(0.1, 0.05)


def test_a_gap_is_between_groups() -> None:
    with raises_code("FP-DATA-702"):
        gap_holds([1], [2], 0.1, 0.05)
    with raises_code("FP-OPTION-700", "bound"):
        gap_holds([1, 1], [2, 2], 0.0, 0.05)


# -------------------------------------------------------------------------------------------------------- sequences


@pytest.mark.parametrize(
    ("outcomes", "last"),
    [([], -1), ([False, True], -1), ([True], 0), ([True, True, False, True], 1), ([True] * 4, 3)],
)
def test_testing_ends_at_the_first_failure(outcomes: list[bool], last: int) -> None:
    assert last_passing(outcomes) == last


def test_models_after_the_first_failure_are_not_tested() -> None:
    tested = []

    def outcomes() -> Iterator[bool]:
        for model in range(5):
            tested.append(model)
            yield model < 2

    assert last_passing(outcomes()) == 1
    assert tested == [0, 1, 2]


def test_a_sequence_claims_falsely_with_delta_at_most() -> None:
    """A path of models whose rates fall below the promise at the fourth: every model is tested at the same level."""
    rng = np.random.default_rng(5)
    rates = np.array([0.97, 0.95, 0.93, 0.89, 0.89, 0.89, 0.88])
    rows, delta, runs = 200, 0.1, 3000
    hits = rng.binomial(rows, rates, size=(runs, len(rates)))
    passes = lower(hits, rows, 1 - delta) >= 0.9
    false = np.mean([last_passing(row) >= 3 for row in passes])
    assert false <= delta
    assert np.mean(passes[:, 3:].any(axis=1)) > false  # testing them all without an order would claim more
