"""FairClassifier: scikit-learn's contract, the direct solve, gaps at every client, no groups, bad input."""

from __future__ import annotations

import pickle
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from raising import raises_code

pytest.importorskip("sklearn", reason="needs the extra 'sklearn'")

import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import fedpact as fp
from fedpact import data, tasks
from fedpact.estimators import FairClassifier

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def people(rows: int = 600, groups: int = 2, classes: int = 2, seed: int = 0) -> Rows:
    """Columns in units of their own, labels, groups for which columns and labels differ, and two banks."""
    rng = np.random.default_rng(seed)
    group, client = rng.integers(0, groups, rows), rng.choice(["north", "east"], rows, p=[0.7, 0.3])
    X = rng.normal(size=(rows, 4)) + 0.7 * group[:, None]
    score = X @ [1.0, -1.0, 0.5, 0.7] + 0.8 * group + (1 + group) * rng.logistic(size=rows)
    y = np.digitize(score, np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1]))
    return X * [1, 100, 0.01, 5] + [0, 1000, 3, -2], y, np.array(["f", "m", "x"])[group], client


def standardized(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def gaps(model: FairClassifier, rows: Rows, name: str) -> dict[str, float]:
    """Of one bank, written apart from the library."""
    X, y, group, client = rows
    if model.parity == "loss":
        told = -np.log(model.predict_proba(X)[np.arange(len(y)), y])
    else:
        told = model.predict(X) == y.max()
    mine = client == name
    positive = mine & (y == y.max())
    if model.parity == "equal_opportunity":
        return _differences(told, positive, group)
    if model.parity == "equalized_odds":
        recalls = _differences(told, positive, group)
        alarms = _differences(told, mine & ~positive, group)
        both = {f"recall: {pair}": gap for pair, gap in recalls.items()}
        return both | {f"false-positive rate: {pair}": gap for pair, gap in alarms.items()}
    return _differences(told, mine, group)


def _differences(told: np.ndarray, counted: np.ndarray, group: np.ndarray) -> dict[str, float]:
    mean = {g: told[counted & (group == g)].mean() for g in np.unique(group)}
    return {f"{a} - {b}": abs(mean[a] - mean[b]) for a, b in combinations(mean, 2)}


def smallest_cell(rows: Rows, name: str) -> int:
    """Rows of the smallest group of a bank, of either class."""
    _, y, group, client = rows
    last = y == y.max()
    return min(np.sum((client == name) & (group == g) & (last == k)) for g in np.unique(group) for k in (True, False))


def test_it_is_the_direct_solve_of_the_task() -> None:
    X, y, group, client = people()
    model = FairClassifier(0.05, regularization=0.01, tol=1e-7).fit(X, y, group=group, client=client)
    Z = data.with_intercept(standardized(X))
    codes = (group == "m").astype(int)
    owners = {name: tuple(part[client == name] for part in (Z, y, codes)) for name in ("east", "north")}
    problem = tasks.group_fairness(owners, max_gap=0.05, regularizer=fp.prox.SquaredL2(np.array([0.01] * 4 + [0.0])))
    answer = fp.solve(problem, tol=1e-7)
    assert answer.solved
    np.testing.assert_allclose(model.solution_.w, answer.w, rtol=1e-9)
    np.testing.assert_allclose(model.decision_function(X), Z @ answer.w, rtol=1e-8, atol=1e-8)
    prices = [prices["f - m"] for prices in model.multipliers_.values()]
    np.testing.assert_allclose(prices, [m.max() for m in answer.multipliers[1:]], rtol=1e-6)
    again = fp.certify(problem, model.solution_.w, model.solution_.multipliers)
    assert max(again.stationarity, again.feasibility) <= 1e-6


@pytest.mark.parametrize(
    ("parity", "groups", "classes"),
    [
        ("loss", 2, 2),
        ("loss", 3, 2),
        ("loss", 2, 3),
        ("demographic_parity", 2, 2),
        ("demographic_parity", 3, 2),
        ("demographic_parity", 2, 3),
        ("equal_opportunity", 2, 2),
        ("equalized_odds", 2, 2),
        ("equalized_odds", 3, 2),
    ],
)
def test_gaps_hold_at_every_bank_and_would_not_otherwise(parity: Any, groups: int, classes: int) -> None:
    rows = people(groups=groups, classes=classes)
    X, y, group, client = rows
    bounds = {"north": 0.03, "east": 0.05}
    fair = FairClassifier(bounds, parity=parity, tol=1e-5).fit(X, y, group=group, client=client)
    wide = 10.0 if parity == "loss" else 1.0
    free = FairClassifier(wide, parity=parity, tol=1e-5).fit(X, y, group=group, client=client)
    assert fair.bounds_ == bounds
    for name, bound in bounds.items():
        own = gaps(fair, rows, name)
        assert len(own) == groups * (groups - 1) / 2 * (2 if parity == "equalized_odds" else 1)
        assert own == pytest.approx(fair.gaps_[name], abs=1e-9)
        if parity == "loss":
            assert max(own.values()) <= bound + 1e-5
            for pair, price in fair.multipliers_[name].items():
                assert price <= 1e-3 or own[pair] >= bound - 1e-4  # paid only where it binds
        else:
            assert max(own.values()) <= bound + 1 / smallest_cell(rows, name)  # one row's worth more
    assert max(max(prices.values()) for prices in fair.multipliers_.values()) > 1e-3
    assert max(max(gaps(free, rows, name).values()) for name in bounds) > 0.07
    assert max(max(prices.values()) for prices in free.multipliers_.values()) == 0


@pytest.mark.parametrize("parity", ["demographic_parity", "equal_opportunity"])
def test_a_gap_that_is_promised_for_rows_to_come(parity: Any) -> None:
    """It holds on rows that were drawn apart, too: far within a bound that is wide for so many rows."""
    rows = people(rows=3000)
    X, y, group, client = rows
    asked = FairClassifier(0.2, parity=parity, confidence=0.9)
    model = asked.fit(X, y, group=group, client=client)
    unseen = people(rows=20_000, seed=1)
    for name in ("north", "east"):
        assert max(gaps(model, unseen, name).values()) <= 0.2
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_gap_that_cannot_be_promised_gives_no_model() -> None:
    X, y, group, client = people(rows=200)
    with raises_code("FP-476", "", "held-out rows"):
        FairClassifier(0.03, parity="demographic_parity", confidence=0.95).fit(X, y, group=group, client=client)


def test_rates_are_told_by_bank_and_group() -> None:
    X, y, group, client = people()
    model = FairClassifier(0.05).fit(X, y, group=group, client=client)
    assert list(model.groups_) == ["f", "m"]
    chosen = model.predict(X)
    for name, told in model.measures_.items():
        for g in ("f", "m"):
            mine = (client == name) & (group == g)
            assert told[f"rows of group {g}"] == mine.sum()
            assert told[f"positive rate of group {g}"] == pytest.approx(chosen[mine].mean())
            assert told[f"recall of group {g}"] == pytest.approx(chosen[mine & (y == 1)].mean())
        assert told["accuracy"] == pytest.approx(model.score(X[client == name], y[client == name]))


@pytest.mark.parametrize("classes", [2, 3])
def test_without_group_it_is_logistic_regression_and_says_so(classes: int) -> None:
    X, y, group, client = people(classes=classes)
    parameters = {"regularization": 0.01, "tol": 1e-8}
    with pytest.warns(UserWarning, match="without group: no gap is bounded"):
        plain = FairClassifier(**parameters).fit(X, y, client=client)
    weight = np.where(client == "north", 0.5 / np.sum(client == "north"), 0.5 / np.sum(client == "east"))
    Z = standardized(X)
    reference = LogisticRegression(C=1 / 0.01, tol=1e-10, max_iter=10_000).fit(Z, y, sample_weight=weight)
    np.testing.assert_allclose(plain.predict_proba(X), reference.predict_proba(Z), atol=1e-5)
    wide = FairClassifier(10.0, **parameters).fit(X, y, group=group, client=client)
    np.testing.assert_allclose(wide.predict_proba(X), plain.predict_proba(X), atol=1e-5)
    assert (plain.multipliers_, plain.gaps_, plain.bounds_) == ({}, {}, {})
    told = {"protected rows", "loss", "recall", "specificity"}
    if classes > 2:
        told = {f"decided as class {k}" for k in range(classes)}
    assert set(plain.measures_["north"]) == {"rows", "accuracy"} | told


def test_a_bank_of_one_class_is_no_obstacle() -> None:
    X, y, group, client = people()
    client = np.where(y == 1, client, "north")  # all of east have class 1
    model = FairClassifier(0.1).fit(X, y, group=group, client=client)
    assert model.gaps_["east"]["f - m"] <= 0.101
    with pytest.warns(UserWarning, match="without group"):
        plain = clone(model).fit(X, y, client=client)
    assert plain.measures_["east"]["rows"] == np.sum(client == "east")


def test_a_search_over_the_gap_of_a_pipeline_with_groups_and_banks() -> None:
    X, y, group, client = people()
    with sklearn.config_context(enable_metadata_routing=True):
        last = FairClassifier(parity="demographic_parity").set_fit_request(group=True, client=True)
        steps = make_pipeline(PolynomialFeatures(2, include_bias=False), last)
        search = GridSearchCV(steps, {"fairclassifier__max_gap": [0.01, 0.5]}, cv=3, error_score="raise")
        search.fit(X, y, group=group, client=client)
    # what is fair costs accuracy here, as groups differ in their labels
    assert search.best_params_ == {"fairclassifier__max_gap": 0.5}
    assert list(search.best_estimator_[-1].gaps_) == ["east", "north"]


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("parameters", "changes", "code", "facts"),
    [
        ({"max_gap": -1.0}, {}, "FP-OPTION-057", ["max_gap", "-1.0"]),
        ({"max_gap": {"north": 0.1}}, {}, "FP-OPTION-053", ["max_gap", "'east'"]),
        ({"parity": "equality"}, {}, "FP-OPTION-034", ["parity", "'equality'", "loss"]),
        ({}, {"group": ["f"] * 100}, "FP-DATA-472", ["group", "group f"]),
        ({}, {"group": ["f", "m"]}, "FP-DATA-421", ["group", "(2,)", "100 rows"]),
        ({}, {"group": ["f", "m"] * 49 + ["f", None]}, "FP-DATA-422", ["group", "1 rows", "row 99"]),
        ({}, {"group": np.array(["f", 1] * 50, dtype=object)}, "FP-DATA-423", ["group"]),
        (
            {},
            {"group": ["f", "m"] * 50, "client": ["a", "b"] * 50},
            "FP-DATA-047",
            ["owner 'a'", "(group) = m", "50"],
        ),
        (
            {"parity": "equal_opportunity"},
            {"group": ["f", "m"] * 50, "y": [0, 1] * 50},
            "FP-DATA-053",
            ["owner 'east'", "(y) = 1", "(group) = f"],
        ),
    ],
)
def test_bad_input_is_told(parameters: dict[str, Any], changes: dict[str, Any], code: str, facts: list[str]) -> None:
    X, y, group, client = people(rows=100)
    given: dict[str, Any] = {"X": X, "y": y, "group": group, "client": client} | changes
    with raises_code(code, *facts):
        FairClassifier(**parameters).fit(**given)
