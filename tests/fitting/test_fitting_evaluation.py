"""A model on rows that nobody trained on: counts of pooled rows, SciPy's exact intervals, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from raising import raises_code
from scipy.stats import binomtest

import fedpact as fp
from fedpact.fitting import Evaluation, Fit, evaluate
from fedpact.statistics import gap_interval
from fedpact.statistics.evaluation import Outcome, give_verdicts, holm, p_values_of_gap, p_values_of_rate
from fedpact.tasks import Classification, LinearQP, Regression, Requirement, Rows

COLUMNS = ("age", "dose")
OWNERS = ("north", "south", "coast")


def rows(seed: int, number: int = 240) -> Rows:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, number)
    group = rng.integers(0, 2, number)
    X = rng.normal(size=(number, 2)) + 0.9 * y[:, None] + 0.3 * group[:, None]
    return Rows(X, y, group)


TRAINED = {name: rows(seed) for seed, name in enumerate(OWNERS)}
UNSEEN = {name: rows(10 + seed, 150 + 20 * seed) for seed, name in enumerate(OWNERS)}


def task(*constraints: Requirement, **stated: Any) -> Classification:
    return Classification(label="ill", columns=COLUMNS, group="sex", constraints=constraints, owners=3, **stated)


def score(fit: Fit, held: Rows) -> np.ndarray:
    """Of class 1, by the model in the units of the columns."""
    assert fit.model is not None
    return held.X @ fit.model.coefficients[0] + fit.model.intercept[0]


def decide(fit: Fit, held: Rows) -> np.ndarray:
    return (score(fit, held) > 0).astype(int)


def exact(hits: int, number: int) -> tuple[float, float]:
    """SciPy's Clopper-Pearson interval."""
    found = binomtest(hits, number).proportion_ci(0.95, method="exact")
    return found.low, found.high


RECALL = Requirement(kind="recall", at_least=0.7)


@pytest.fixture(scope="module")
def fitted() -> Fit:
    constraints = (
        RECALL,
        Requirement(kind="specificity", at_least=0.3, held_by="all"),
        Requirement(kind="equal_opportunity", at_most=0.4),
        Requirement(kind="demographic_parity", at_most=0.5, held_by="all"),
        Requirement(kind="loss", at_most=2.0),
    )
    return fp.fit(task(*constraints), TRAINED)


@pytest.fixture(scope="module")
def found(fitted: Fit) -> Evaluation:
    return fitted.evaluate(UNSEEN)


def outcome(found: Evaluation, owner: str, words: str) -> Outcome:
    (one,) = [one for one in found.bounds if one.owner == owner and one.what.startswith(words)]
    return one


def test_rates_are_counts_of_the_new_rows(fitted: Fit, found: Evaluation) -> None:
    for name, held in UNSEEN.items():
        decided = decide(fitted, held)
        for rate, inside, hit in (
            ("accuracy", np.ones(len(held.y), dtype=bool), decided == held.y),
            ("recall", held.y == 1, decided == 1),
        ):
            if rate not in found.rates[name]:
                continue
            told = found.rates[name][rate]
            hits = int(np.sum(hit & inside))
            assert told.rows == inside.sum()
            assert told.value == pytest.approx(hits / inside.sum(), abs=1e-12)
            np.testing.assert_allclose((told.low, told.high), exact(hits, int(inside.sum())), atol=1e-9)


def test_each_owner_has_its_own_bound_judged(fitted: Fit, found: Evaluation) -> None:
    for name, held in UNSEEN.items():
        one = outcome(found, name, "recall of ill = 1")
        ill = held.y == 1
        hits = int(np.sum(decide(fitted, held)[ill]))
        assert (one.rows, one.bound, one.least) == (ill.sum(), 0.7, True)
        assert one.value == pytest.approx(hits / ill.sum(), abs=1e-12)
        np.testing.assert_allclose((one.low, one.high), exact(hits, int(ill.sum())), atol=1e-9)


def test_what_owners_meet_together_is_counted_on_pooled_rows(fitted: Fit, found: Evaluation) -> None:
    pooled = Rows(*(np.concatenate([getattr(held, part) for held in UNSEEN.values()]) for part in ("X", "y", "group")))
    decided = decide(fitted, pooled)
    well = pooled.y == 0
    one = outcome(found, "together", "specificity")
    hits = int(np.sum(decided[well] == 0))
    assert one.value == pytest.approx(hits / well.sum(), abs=1e-12)
    np.testing.assert_allclose((one.low, one.high), exact(hits, int(well.sum())), atol=1e-9)
    gap = outcome(found, "together", "gap in selection rate")
    rates = [np.mean(decided[pooled.group == g]) for g in (0, 1)]
    assert gap.value == pytest.approx(abs(rates[1] - rates[0]), abs=1e-12)
    accuracy = found.rates["together"]["accuracy"]
    assert accuracy.value == pytest.approx(np.mean(decided == pooled.y), abs=1e-12)
    np.testing.assert_allclose(
        (accuracy.low, accuracy.high), exact(int(np.sum(decided == pooled.y)), len(pooled.y)), atol=1e-9
    )


def test_a_gap_has_the_interval_of_both_groups(fitted: Fit, found: Evaluation) -> None:
    for name, held in UNSEEN.items():
        one = outcome(found, name, "gap in recall")
        decided = decide(fitted, held)
        cells = [(held.y == 1) & (held.group == g) for g in (0, 1)]
        hits = [int(decided[cell].sum()) for cell in cells]
        sizes = [int(cell.sum()) for cell in cells]
        each = [binomtest(h, n).proportion_ci(0.975, method="exact") for h, n in zip(hits, sizes, strict=True)]
        low = max(0.0, each[0].low - each[1].high, each[1].low - each[0].high)
        high = max(each[0].high - each[1].low, each[1].high - each[0].low)
        np.testing.assert_allclose((one.low, one.high), (low, high), atol=1e-9)
        assert one.value == pytest.approx(abs(hits[1] / sizes[1] - hits[0] / sizes[0]), abs=1e-12)
        assert one.rows == min(sizes)


def test_a_loss_has_a_value_and_no_interval(fitted: Fit, found: Evaluation) -> None:
    """New rows may have any loss: no interval is claimed. The scores are the model's, not probabilities."""
    held = UNSEEN["south"]
    signs = 2 * held.y - 1
    own = score(fitted, held) + fitted.task.decide_at
    one = outcome(found, "south", "mean loss")
    assert one.value == pytest.approx(np.mean(np.logaddexp(0, -signs * own)), abs=1e-9)
    assert math.isnan(one.low)
    assert one.verdict == ""


def test_the_gap_interval_covers() -> None:
    """Of 2000 draws at most 5 % miss the gap, up to the error of a simulation: three deviations."""
    rng = np.random.default_rng(0)
    hits = np.stack([rng.binomial(60, 0.5, 2000), rng.binomial(40, 0.7, 2000)], axis=1)
    held = [low <= 0.2 <= high for low, high in (gap_interval(pair, [60, 40]) for pair in hits)]
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 2000)


def of_rate(owner: str, hits: int, number: int, bound: float, least: bool = True) -> Outcome:
    p_met, p_missed = p_values_of_rate(hits, number, bound, least)
    low, high = exact(hits, number)
    return Outcome(owner, "recall", hits / number, bound, low, high, number, least, p_met=p_met, p_missed=p_missed)


@pytest.mark.parametrize("least", [True, False])
@pytest.mark.parametrize("hits", range(0, 41, 4))
def test_of_one_bound_the_verdict_is_that_of_its_interval(hits: int, least: bool) -> None:
    one = of_rate("a", hits, 40, 0.7, least)
    for alternative, p in (("less", one.p_met), ("greater", one.p_missed)):
        swapped = alternative if least else {"less": "greater", "greater": "less"}[alternative]
        assert p == pytest.approx(binomtest(hits, 40, 0.7, alternative=swapped).pvalue, rel=1e-9)
    expected = "open"
    if one.low >= 0.7 if least else one.high <= 0.7:
        expected = "borne out"
    if one.high < 0.7 if least else one.low > 0.7:
        expected = "contradicted"
    assert give_verdicts([one], 0.95)[0].verdict == expected


def test_verdicts_are_corrected_for_the_number_of_bounds() -> None:
    """With p = 0.01 alone a bound is contradicted, beside four that are open it is not; one without rows has none."""
    low = of_rate("a", 8, 20, 0.7)
    assert 0.005 < low.p_met < 0.0125
    assert give_verdicts([low], 0.95)[0].verdict == "contradicted"
    others = [of_rate(name, 14, 20, 0.7) for name in "bcde"]
    silent = Outcome("f", "recall", math.nan, 0.7, math.nan, math.nan, 0, True)
    assert [one.verdict for one in give_verdicts([silent, low, *others], 0.95)] == ["", *5 * ["open"]]


def test_holm_is_that_of_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = np.random.default_rng(0).uniform(size=40) ** 3
    np.testing.assert_allclose(holm(p), multitest.multipletests(p, method="holm")[1], rtol=1e-12)


def test_hardly_any_evaluation_of_bounds_that_hold_contradicts_one() -> None:
    """Twenty owners exactly at their bound: of 1000 evaluations at most 5 % have a wrong verdict, by the binomial."""
    rng = np.random.default_rng(3)
    draws = rng.binomial(100, 0.8, size=(1000, 20))
    tests = {hits: of_rate("a", hits, 100, 0.8) for hits in np.unique(draws).tolist()}
    wrong = sum(
        any(one.verdict == "contradicted" for one in give_verdicts([tests[hit] for hit in row], 0.95))
        for row in draws.tolist()
    )
    assert binomtest(wrong, 1000, 0.05, alternative="greater").pvalue > 0.001
    alone = np.mean([any(tests[hit].p_met <= 0.025 for hit in row) for row in draws.tolist()])
    assert alone > 0.15  # what each owner's interval by itself would have done


@pytest.mark.parametrize(("hits", "bound"), [([30, 12], 0.2), ([30, 28], 0.3), ([36, 8], 0.2)])
def test_the_p_values_of_a_gap_are_where_its_interval_leaves_the_bound_out(hits: list[int], bound: float) -> None:
    p_met, p_missed = p_values_of_gap(hits, [40, 40], bound)
    for p, side in ((p_met, 0), (p_missed, 1)):
        if p < 0.5:
            assert gap_interval(hits, [40, 40], 1 - 2 * p)[side] == pytest.approx(bound, abs=1e-8)
    assert min(p_met, p_missed) <= 0.5


def test_a_table_that_was_trained_on_is_refused(fitted: Fit) -> None:
    """Of whatever owner: it would confirm what the model was fitted to."""
    with raises_code("FP-DATA-316", "owner 'north'"):
        fitted.evaluate({**UNSEEN, "north": TRAINED["south"]})
    with raises_code("FP-DATA-316"):
        evaluate(fitted.task, fitted.solution.w, {"north": TRAINED["north"]}, trained=TRAINED)


def test_an_evaluation_survives_its_file(found: Evaluation) -> None:
    again = Evaluation.from_json(found.to_json())
    assert again.to_json() == found.to_json()
    assert again.rates == found.rates


# ------------------------------------------------------------------------------------------------------- thresholds


def test_a_common_threshold_decides_about_new_rows() -> None:
    fit = fp.fit(task(replace(RECALL, confidence=0.9)), TRAINED)
    assert fit.task.decide_at
    one = outcome(fit.evaluate(UNSEEN), "north", "recall")
    held = UNSEEN["north"]
    assert one.value == pytest.approx(np.mean(decide(fit, held)[held.y == 1]), abs=1e-12)


def test_thresholds_of_the_owners_own_come_from_their_training_rows() -> None:
    """The threshold is an order statistic of scores that were held out there; the new rows are not looked at."""
    fit = fp.fit(task(replace(RECALL, confidence=0.9), threshold="own"), TRAINED)
    assert fit.task.decide_own
    with raises_code("FP-OPTION-836", "owner 'north'"):
        fit.evaluate(UNSEEN)
    found = fit.evaluate(UNSEEN, trained=TRAINED)
    for name, held in UNSEEN.items():
        seen = TRAINED[name]
        kept = fit.task.held_out(name, seen.y, seen.group)
        tested = np.sort(score(fit, seen)[kept & (seen.y == 1)])
        one = outcome(found, name, "recall")
        scores = score(fit, held)[held.y == 1]
        possible = [np.mean(scores > limit) for limit in tested]
        assert np.min(np.abs(np.array(possible) - one.value)) < 1e-12 or one.value == 1.0
        alone = fit.evaluate({name: held}, trained=TRAINED)
        assert outcome(alone, name, "recall") == one
        assert "together" not in alone.rates


# ------------------------------------------------------------------------------------------------------ what is refused


def test_an_owner_without_rows_of_a_class_has_no_rate(fitted: Fit) -> None:
    held = UNSEEN["north"]
    well = held.select(held.y == 0)
    one = outcome(fitted.evaluate({"north": well}), "north", "recall")
    assert math.isnan(one.value)
    assert not one.withheld


def test_a_task_without_a_model_cannot_be_evaluated() -> None:
    with raises_code("FP-OPTION-834", "", "'linear_qp'"):
        evaluate(LinearQP(owners=1), np.zeros(2), {"a": UNSEEN["north"]})


def test_a_regression_is_measured_too() -> None:
    """Errors of the predictions, which a pooled least squares fit gives as well."""
    X = np.random.default_rng(0).normal(size=(3, 80, 2))
    y = X @ [1.0, -2.0] + 0.5
    owners = {name: Rows(X[i, :40], y[i, :40]) for i, name in enumerate(OWNERS)}
    asked = Regression(label="cost", columns=COLUMNS, owners=3, regularization=0.0)
    fit = fp.fit(asked, owners, tol=1e-9)
    unseen = {name: Rows(X[i, 40:], y[i, 40:] + 1.0) for i, name in enumerate(OWNERS)}
    found = fit.evaluate(unseen)
    for told in found.measures.values():
        assert told["mean error"] == pytest.approx(-1.0, abs=1e-6)
    assert found.bounds == ()
