"""Probabilities from scores by sums over the owners: the fit of pooled rows, finite where the classes separate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest
from raising import raises_code
from scipy.optimize import minimize
from scipy.special import expit

import fedpact as fp
from fedpact.federation import Session
from fedpact.fitting.calibration import Calibration, calibrate
from fedpact.types import Matrix, Vector

W = np.array([1.5, -0.5])


@dataclass(frozen=True, eq=False)
class Table:
    """What `Share.measures` of a classifier for two classes has."""

    X: Matrix
    labels: Vector

    def score(self, w: Vector) -> Vector:
        return self.X @ w

    def __call__(self, w: Vector) -> dict[str, float]:
        return {"rows": float(len(self.X))}


def draw(rows: int = 600, seed: int = 0) -> Table:
    """Rows whose labels have log odds 0.4 score - 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2)) * 2
    labels = rng.uniform(size=rows) < expit(0.4 * (X @ W) - 1)
    return Table(X, labels.astype(np.float64))


@contextmanager
def opened(table: Table, sizes: Sequence[int], secure: bool = False) -> Iterator[Session]:
    """A session of owners that hold so many rows of the table each."""
    parts = np.split(np.arange(len(table.X)), np.cumsum(sizes)[:-1])
    tables = {f"clinic {i}": Table(table.X[part], table.labels[part]) for i, part in enumerate(parts)}
    shares = {name: fp.Share(name=name, measures=one) for name, one in tables.items()}
    with fp.Session(secure_sum=secure) as session:
        session.open(shares)
        if secure:
            session.secure()
        yield session


def smooth(labels: Vector) -> Vector:
    """Platt's targets."""
    some = labels.sum()
    none = len(labels) - some
    return np.where(labels == 1, (some + 1) / (some + 2), 1 / (none + 2))


def pooled(table: Table) -> Calibration:
    """scikit-learn's logistic regression of the score: each row once as class 1 and once as class 0, weighted."""
    linear_model = pytest.importorskip("sklearn.linear_model", reason="needs the extra 'sklearn'")
    score = table.score(W)
    target = smooth(table.labels)
    model = linear_model.LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-13, max_iter=1000)
    twice = np.concatenate([score, score])[:, None]
    model.fit(twice, np.repeat([1, 0], len(score)), sample_weight=np.concatenate([target, 1 - target]))
    return Calibration(float(model.coef_[0, 0]), float(model.intercept_[0]))


@pytest.mark.parametrize("secure", [False, True], ids=["open", "secure"])
@pytest.mark.parametrize("sizes", [[200, 200, 200], [590, 7, 3]], ids=["even", "uneven"])
def test_the_fit_is_that_of_pooled_rows(sizes: list[int], secure: bool) -> None:
    table = draw()
    expected = pooled(table)
    with opened(table, sizes, secure) as session:
        found = calibrate(session, W)
    assert found is not None
    assert np.abs(table.score(W)).max() < found.limit
    np.testing.assert_allclose([found.slope, found.intercept], [expected.slope, expected.intercept], atol=1e-8, rtol=0)


@pytest.mark.parametrize(("factor", "shift"), [(1e6, 0.0), (1e-6, 0.0), (1.0, 1e4), (1.0, -30.0)])
def test_units_of_the_score_do_not_matter(factor: float, shift: float) -> None:
    table = draw()
    moved = Table(np.column_stack([factor * table.score(W), np.ones(600)]), table.labels)
    with opened(table, [400, 200]) as session:
        expected = calibrate(session, W)
    with opened(moved, [400, 200]) as session:
        found = calibrate(session, np.array([1.0, shift]))
    assert expected is not None
    assert found is not None
    given = moved.score(np.array([1.0, shift]))
    np.testing.assert_allclose(found.probabilities(given), expected.probabilities(table.score(W)), atol=1e-8)


@pytest.mark.parametrize("gap", [0.0, 1.0, 1e4])
def test_classes_that_separate_have_finite_probabilities(gap: float) -> None:
    """Against SciPy's minimum of the same loss."""
    table = draw()
    order = np.sign(table.X[:, 0])
    apart = Table(np.column_stack([table.X[:, 0] + gap * order, np.zeros(600)]), (order > 0).astype(np.float64))
    with opened(apart, [300, 300]) as session:
        found = calibrate(session, W)
    assert found is not None
    score = apart.score(W)
    target = smooth(apart.labels)

    def loss(line: Vector) -> float:
        log_odds = line[0] * score / np.std(score) + line[1]
        return float(np.sum(np.logaddexp(0, log_odds) - target * log_odds))

    best = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000})
    assert loss(np.array([found.slope * np.std(score), found.intercept])) <= best.fun + 1e-9
    assert np.all(np.isfinite(found.probabilities(score)))


def test_a_row_far_away_does_not_flatten_the_line() -> None:
    """As of a category not seen in training; the fit is that of pooled rows with its score cut to the limit."""
    table = draw()
    far = Table(np.vstack([table.X, [3000.0, 0.0]]), np.append(table.labels, 0.0))
    with opened(table, [300, 300]) as session:
        expected = calibrate(session, W)
    with opened(far, [300, 301]) as session:
        found = calibrate(session, W)
    assert expected is not None
    assert found is not None
    assert found.limit < 100
    cut = Table(np.clip(far.score(W), -found.limit, found.limit)[:, None] * [1 / W[0], 0.0], far.labels)
    assert found.slope == pytest.approx(pooled(cut).slope, abs=1e-8)
    score = table.score(W)
    assert np.abs(found.probabilities(score) - expected.probabilities(score)).max() < 0.1
    assert found.probabilities(1e300) == found.probabilities(found.limit)


def test_probabilities_are_met_and_keep_the_order_of_the_scores() -> None:
    """With an intercept the mean probability is the mean target: a condition of the optimum."""
    table = draw(5000, seed=4)
    with opened(table, [2000, 3000]) as session:
        found = calibrate(session, W)
    assert found is not None
    score = np.sort(table.score(W))
    given = found.probabilities(score)
    assert given.mean() == pytest.approx(smooth(table.labels).mean(), abs=1e-10)
    assert np.all(np.diff(given) > 0)
    assert (found.slope, found.intercept) == pytest.approx((0.4, -1.0), abs=0.1)  # the model the labels are drawn from


@pytest.mark.parametrize("case", ["falling", "one class", "equal scores", "no rows"])
def test_scores_that_do_not_rise_stay_scores(case: str) -> None:
    table = draw()
    if case == "falling":
        table = replace(table, labels=1 - table.labels)
    elif case == "one class":
        table = replace(table, labels=np.ones(600))
    elif case == "equal scores":
        table = replace(table, X=np.full((600, 2), 0.1))
    else:
        table = Table(np.zeros((0, 2)), np.zeros(0))
    half = len(table.X) // 2
    with opened(table, [half, half]) as session:
        assert calibrate(session, W) is None
        assert session.ledger.read().rounds <= 2


def test_an_owner_without_rows_changes_nothing() -> None:
    table = draw()
    with opened(table, [300, 300]) as session:
        expected = calibrate(session, W)
    with opened(table, [300, 300, 0]) as session:
        assert calibrate(session, W) == expected


def test_a_task_without_scores_is_named() -> None:
    with fp.Session() as session:
        session.open({"north": fp.Share(fp.functions.Quadratic(np.eye(2)), name="north")})
        with raises_code("FP-OPTION-701", "north"):
            calibrate(session, W)
