"""NeymanPearsonClassifier: scikit-learn's contract, the direct solve, a weighted regression, recall, bad input."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

pytest.importorskip("sklearn", reason="needs the extra 'sklearn'")

import sklearn
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import fedpact as fp
from fedpact import data, tasks
from fedpact.errors import FedpactError, OptionError
from fedpact.estimators import NeymanPearsonClassifier
from fedpact_experiments import datasets

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def people(rows: int = 600, classes: int = 2, seed: int = 0) -> Rows:
    """Columns in units of their own, labels that they tell in part, and three clients of different size and kind."""
    rng = np.random.default_rng(seed)
    client = rng.choice(["c", "a", "b"], rows, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(rows, 4)) + 0.4 * (client == "b")[:, None]
    score = X @ [1.5, -1.0, 0.5, 0.0] + rng.logistic(size=rows)
    y = np.digitize(score, np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1] ** 0.7))
    return X * [1, 100, 0.01, 5] + [0, 1000, 3, -2], y, client


def standardized(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def test_it_is_the_direct_solve_of_the_task() -> None:
    X, y, client = people()
    model = NeymanPearsonClassifier(0.3, regularization=0.01, tol=1e-8).fit(X, y, client=client)
    Z = data.with_intercept(standardized(X))
    owners = {name: (Z[client == name], y[client == name]) for name in ("a", "b", "c")}
    problem = tasks.neyman_pearson(owners, 0.3, fp.prox.SquaredL2(np.array([0.01] * 4 + [0.0])))
    answer = fp.solve(problem, tol=1e-8)
    assert answer.solved
    np.testing.assert_allclose(model.solution_.w, answer.w, rtol=1e-10)
    np.testing.assert_allclose(model.decision_function(X), Z @ answer.w, rtol=1e-9, atol=1e-9)
    assert list(model.multipliers_) == ["a", "b", "c"]
    np.testing.assert_allclose(list(model.multipliers_.values()), [m[0] for m in answer.multipliers[1:]], atol=1e-8)
    assert model.certificate_ == model.solution_.certificate
    assert model.history_.outer
    again = fp.certify(problem, model.solution_.w, model.solution_.multipliers)
    assert max(again.stationarity, again.feasibility) <= 1e-7


@pytest.mark.parametrize("classes", [2, 3])
def test_prices_as_weights_give_it_by_logistic_regression(classes: int) -> None:
    """At the optimum the Lagrangian is a logistic regression in which the price weighs the protected rows."""
    X, y, client = people(classes=classes)
    model = NeymanPearsonClassifier(0.4, protected=0, regularization=0.01, tol=1e-8).fit(X, y, client=client)
    assert max(model.multipliers_.values()) > 0.1
    weight = np.zeros(len(y))
    for name, price in model.multipliers_.items():
        protected, other = (client == name) & (y == 0), (client == name) & (y != 0)
        weight[protected] = price / protected.sum()
        weight[other] = 1 / 3 / other.sum()
    Z = standardized(X)
    reference = LogisticRegression(C=1 / 0.01, tol=1e-10, max_iter=10_000).fit(Z, y, sample_weight=weight)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(Z), atol=1e-4)
    assert model.coef_.shape == reference.coef_.shape
    assert model.intercept_.shape == reference.intercept_.shape
    if classes == 2:
        np.testing.assert_allclose(model.coef_ * X.std(axis=0), reference.coef_, atol=1e-3)
    score = model.decision_function(X)
    np.testing.assert_allclose(score, (X @ model.coef_.T + model.intercept_).reshape(score.shape), atol=1e-9)
    np.testing.assert_array_equal(model.predict(X), np.argmax(model.predict_proba(X), axis=1))


def test_bounds_hold_at_every_client_in_its_own_measure() -> None:
    X, y, client = people()
    bounds = {"a": 0.2, "b": 0.4, "c": 0.3}
    model = NeymanPearsonClassifier(bounds, tol=1e-6).fit(X, y, client=client)
    assert model.bounds_ == bounds
    for name, told in model.measures_.items():
        rows = (client == name) & (y == 1)
        loss = -np.log(model.predict_proba(X[rows])[:, 1]).mean()
        assert loss == pytest.approx(told["loss"], abs=1e-9)
        assert loss <= bounds[name] + 1e-6
        assert (model.multipliers_[name] > 1e-3) == (loss > bounds[name] - 1e-3)  # paid for where it binds
        assert told["rows"] == np.sum(client == name)
        assert told["protected rows"] == np.sum(rows)
        assert told["recall"] == np.mean(model.predict(X[rows]))
        assert told["specificity"] == pytest.approx(np.mean(model.predict(X[(client == name) & (y == 0)]) == 0))
        assert not {"recall low", "recall high"} & told.keys()  # these rows were trained on


@pytest.mark.parametrize("classes", [2, 3])
def test_a_demanded_recall_is_met_at_every_client(classes: int) -> None:
    X, y, client = people(classes=classes)
    model = NeymanPearsonClassifier(min_recall=0.9).fit(X, y, client=client)
    found = model.predict(X) == classes - 1
    for name, told in model.measures_.items():
        mine = client == name
        assert recall_score(y[mine] == classes - 1, found[mine]) == told["recall"] >= 0.9
        assert "bound for recall" not in told
    assert min(told["recall"] for told in model.before_.values()) < 0.85
    # and no more than that is paid: some client has hardly more than it asked for
    assert min(told["recall"] for told in model.measures_.values()) < 0.95


# -------------------------------------------------------------------------------------------- promises for rows to come


def test_a_promise_by_one_threshold() -> None:
    X, y, client = people(rows=1500)
    model = NeymanPearsonClassifier(min_recall=0.85, confidence=0.9).fit(X, y, client=client)
    assert model.thresholds_ == {"a": 0.0, "b": 0.0, "c": 0.0}  # the intercept has it
    score = model.decision_function(X)
    np.testing.assert_array_equal(model.predict(X), score > 0)
    np.testing.assert_array_equal(model.predict(X, client=client), model.predict(X))
    # more than what is asked for is found among all rows, of which half of those with y = 1 were held out
    assert min(np.mean(score[(client == name) & (y == 1)] > 0) for name in "abc") >= 0.85


def test_a_promise_by_thresholds_of_the_clients_own() -> None:
    X, y, client = people(rows=1500)
    asked = NeymanPearsonClassifier(min_recall=0.85, confidence=0.9, threshold="own")
    model = asked.fit(X, y, client=client)
    plain = X @ model.coef_[0] + model.intercept_[0]
    assert len(set(model.thresholds_.values())) == 3
    found = model.predict(X, client=client)
    for name, threshold in model.thresholds_.items():
        mine = client == name
        np.testing.assert_array_equal(found[mine], plain[mine] > threshold)
        assert np.mean(found[mine & (y == 1)]) >= 0.85
    with raises_code("FP-DATA-806", "predict", "client="):
        model.predict(X)
    with raises_code("FP-DATA-807", "predict", "'d'", "a, b, c"):
        model.predict(X, client=np.where(client == "a", "d", client))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X, client=client), found)


def test_too_few_rows_for_a_promise_are_told() -> None:
    X, y, client = people(rows=100)
    with raises_code("FP-DATA-803", "owner 'a'", "(y) = 1"):
        NeymanPearsonClassifier(min_recall=0.95, confidence=0.95).fit(X, y, client=client)


def test_a_search_over_the_recall() -> None:
    X, y, client = people()
    with sklearn.config_context(enable_metadata_routing=True):
        asked = NeymanPearsonClassifier().set_fit_request(client=True)
        recalls = [0.6, 0.8]
        search = GridSearchCV(asked, {"min_recall": recalls}, scoring="recall", cv=3, error_score="raise")
        search.fit(X, y, client=client)
    assert search.best_params_ == {"min_recall": 0.8}
    scores = search.cv_results_["mean_test_score"]
    assert list(scores) == sorted(scores)


def test_a_demanded_recall_on_adult(data_folder: Path) -> None:
    table = datasets.adult_a(data_folder, "codes")  # fewer columns; examples/recall_adult.py has them all
    X, y = table.X, table.y
    client = np.empty(len(y), dtype=int)
    for number, rows in enumerate(data.stratified(y, 10, seed=0)):
        client[rows] = number
    model = NeymanPearsonClassifier(min_recall=0.9).fit(X, y, client=client)
    found = model.predict(X)
    recalls = [found[(client == number) & (y == 1)].mean() for number in range(10)]
    assert min(recalls) >= 0.9
    assert max(told["recall"] for told in model.before_.values()) < 0.6
    assert np.mean(found[y == 0] == 0) > 0.5  # far from finding all by calling everyone rich


def test_clients_and_labels_of_any_kind() -> None:
    X, y, client = people()
    numbers = np.array([{"a": 2, "b": 10, "c": 1}[one] for one in client])
    words = np.where(y == 1, "ill", "well")
    model = NeymanPearsonClassifier({1: 0.3, 2: 0.2, 10: 0.4}, protected="ill").fit(X, words, client=numbers)
    plain = NeymanPearsonClassifier({"c": 0.3, "a": 0.2, "b": 0.4}).fit(X, y, client=client)
    assert list(model.bounds_) == ["1", "2", "10"]
    np.testing.assert_array_equal(model.predict(X) == "ill", plain.predict(X) == 1)
    assert model.score(X, words) == plain.score(X, y)


def test_a_search_over_the_bound_of_a_pipeline_with_clients() -> None:
    X, y, client = people()
    with sklearn.config_context(enable_metadata_routing=True):
        steps = make_pipeline(
            PolynomialFeatures(2, include_bias=False), NeymanPearsonClassifier().set_fit_request(client=True)
        )
        bounds = [0.1, 0.3, 0.6]
        search = GridSearchCV(
            steps, {"neymanpearsonclassifier__bound": bounds}, scoring="recall", cv=3, error_score="raise"
        )
        search.fit(X, y, client=client)
    assert search.best_params_ == {"neymanpearsonclassifier__bound": 0.1}  # the least loss on class 1 finds most of it
    scores = search.cv_results_["mean_test_score"]
    assert list(scores) == sorted(scores, reverse=True)
    last = search.best_estimator_[-1]
    assert list(last.multipliers_) == ["a", "b", "c"]
    assert last.n_features_in_ == 14


def test_names_of_the_columns() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, y, client = people()
    frame = pandas.DataFrame(X, columns=["y", "age", "group", "(group)"])  # none of them is taken for something else
    model = NeymanPearsonClassifier(0.3).fit(frame, y, client=pandas.Series(client))
    assert list(model.feature_names_in_) == list(frame.columns)
    assert model.model_.encoding.columns == tuple(frame.columns)
    np.testing.assert_array_equal(model.coef_, NeymanPearsonClassifier(0.3).fit(X, y, client=client).coef_)
    first, second = np.flatnonzero(client == "b")[:2]
    frame.loc[[first, second], "age"] = [np.nan, np.inf]
    with raises_code("FP-DATA-043", "owner 'b'", "'age'", f"rows {first}, {second}"):
        model.fit(frame, y, client=client)
    frame["age"] = "old"
    with raises_code("FP-DATA-474", "column 'age'", "'old'"):
        model.fit(frame, y)


# ------------------------------------------------------------------------------------------------------------ bad input


def test_bounds_that_conflict_give_no_model() -> None:
    """Without an intercept opposite clients cannot both have a small loss."""
    X, y = np.array([[1.0], [-1.0], [-1.0], [1.0]]), np.array([1, 0, 1, 0])
    model = NeymanPearsonClassifier(0.1, fit_intercept=False, standardize=False)
    with raises_code("FP-475", "", "infeasible", "solution_"):
        model.fit(X, y, client=["a", "a", "b", "b"])
    assert model.solution_.status == "infeasible"
    assert set(model.solution_.conflict) == {"a", "b"}
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_recall_that_cannot_be_had_gives_no_model() -> None:
    X, y = np.array([[1.0], [-1.0], [-1.0], [1.0]]), np.array([1, 0, 1, 0])
    model = NeymanPearsonClassifier(min_recall=0.9, fit_intercept=False, standardize=False)
    with pytest.raises(FedpactError) as caught:
        model.fit(X, y, client=["a", "a", "b", "b"])
    assert caught.value.code in ("FP-475", "FP-476")


@pytest.mark.parametrize(
    ("parameters", "changes", "code", "facts"),
    [
        ({"bound": 0.0}, {}, "FP-OPTION-057", ["bound", "0.0"]),
        ({"bound": {"a": 0.2, "b": 0.2}}, {}, "FP-OPTION-053", ["bound", "'c'"]),
        ({"bound": {"a": 1, "b": 1, "c": 1, "d": 1}}, {}, "FP-OPTION-032", ["bound", "'d'"]),
        ({"min_recall": 1.0}, {}, "FP-OPTION-050", ["min_recall", "1.0"]),
        ({"protected": 2}, {}, "FP-OPTION-047", ["protected", "'2'", "0, 1"]),
        ({"regularization": -1.0}, {}, "FP-OPTION-033", ["regularization"]),
        ({}, {"client": np.where(people(100)[1] == 1, "p", "q")}, "FP-DATA-047", ["owner 'p'", "(y) = 0"]),
        (
            {"min_recall": 0.5},
            {"client": np.where(people(100)[1] == 1, "z", "q")},
            "FP-DATA-047",
            ["owner 'q'", "(y) = 1"],
        ),
        ({}, {"y": np.ones(100)}, "FP-DATA-471", ["y", "1"]),
        ({}, {"client": ["server"] * 100}, "FP-DATA-050", ["", "'server'"]),
    ],
)
def test_bad_input_is_told(parameters: dict[str, Any], changes: dict[str, Any], code: str, facts: list[str]) -> None:
    X, y, client = people(rows=100)
    given: dict[str, Any] = {"X": X, "y": y, "client": client} | changes
    with raises_code(code, *facts):
        NeymanPearsonClassifier(**parameters).fit(**given)


def test_an_unknown_method_is_told() -> None:
    X, y, client = people(rows=100)
    with pytest.raises(OptionError, match="'magic'"):
        NeymanPearsonClassifier(method="magic").fit(X, y, client=client)


def test_the_protected_class_may_be_given_as_another_kind_of_number() -> None:
    X, y, client = people(rows=100)
    model = NeymanPearsonClassifier(0.3, protected=0).fit(X, y.astype(float), client=client)
    assert model.measures_["a"]["protected rows"] == np.sum((client == "a") & (y == 0))
