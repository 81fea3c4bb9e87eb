"""The task of iFedDR (6.1) on pooled rows: scipy and cvxpy find the same model and votes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import fedpact as fp
from fedpact import data, tasks
from fedpact.errors import OptionError
from fedpact.tasks import Minimax, Rows

NAMES = ("north", "south", "west")
COLUMNS = ("age", "dose")


def made() -> dict[str, Rows]:
    """Owners whose classes lie in different directions, so that no model serves all."""
    rng = np.random.default_rng(5)
    tables = {}
    for angle, name in zip((0.0, 0.9, 2.0), NAMES, strict=True):
        X = rng.normal(size=(70, 2))
        score = X @ [np.cos(angle), np.sin(angle)]
        tables[name] = Rows(X, (score + 0.7 * rng.normal(size=70) > 0).astype(int))
    return tables


TABLES = made()
TASK = Minimax(label="ill", columns=COLUMNS, standardize=False, regularization=0.01)


def worst_of(w: np.ndarray) -> list[float]:
    """Mean logistic losses by owner, from the rows."""
    return [float(np.mean(np.logaddexp(0, -(2 * r.y - 1) * (r.X @ w[:2] + w[2])))) for r in TABLES.values()]


def test_without_smoothing_it_is_the_model_with_the_least_largest_loss_and_votes_are_its_prices() -> None:
    """min t + ridge with every owner's mean loss at most t, by a conic solver, and the prices of these bounds."""
    found = fp.fit(replace(TASK, smoothing=0.0, penalty=1e6), TABLES, tol=1e-8)
    assert found.solved
    u, t = cp.Variable(3), cp.Variable()
    bounds = []
    for rows in TABLES.values():
        sign = 2 * rows.y - 1
        bounds.append(cp.sum(cp.logistic(-cp.multiply(sign, rows.X @ u[:2] + u[2]))) / len(sign) <= t)
    ridge = 0.005 * cp.sum_squares(u[:2])
    cp.Problem(cp.Minimize(t + ridge), bounds).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(found.solution.w[:3], u.value, atol=1e-4)
    assert isinstance(found.task, Minimax)
    votes = np.array([*found.task.votes(found.solution.w).values()])
    np.testing.assert_allclose(votes / 3, [float(bound.dual_value) for bound in bounds], atol=1e-4)
    assert max(worst_of(found.solution.w)) == pytest.approx(float(t.value), abs=1e-5)


def test_the_worst_owner_does_better_than_under_the_mean_loss() -> None:
    found = fp.fit(TASK, TABLES, compare=True, tol=1e-7)
    assert found.solved
    assert max(told["mean loss"] for told in found.measures.values()) < max(
        told["mean loss"] for told in found.before.values()
    )
    assert {told["vote"] for told in found.before.values()} == {1.0}
    votes = [told["vote"] for told in found.measures.values()]
    assert np.mean(votes) == pytest.approx(1.0)
    losses = [told["mean loss"] for told in found.measures.values()]
    assert np.argmax(votes) == np.argmax(losses)
    np.testing.assert_allclose(losses, worst_of(found.solution.w), rtol=1e-9)
    assert found.model is not None
    assert found.model.coefficients.shape == (1, 2)


def test_files_and_methods_give_the_same(tmp_path: Path) -> None:
    files = {}
    for name, rows in TABLES.items():
        table = data.Table(rows.X, rows.y, COLUMNS)
        files[name] = data.write_csv(tmp_path / f"{name}.csv", table, "ill")
    plain = fp.fit(TASK, TABLES, tol=1e-8)
    read = fp.fit(TASK, files, tol=1e-8)
    np.testing.assert_array_equal(read.solution.w, plain.solution.w)
    other = fp.fit(TASK, TABLES, method="ifeddr", tol=1e-8)
    np.testing.assert_allclose(other.solution.w, plain.solution.w, atol=1e-6)


def test_a_model_is_measured_on_rows_that_nobody_trained_on() -> None:
    found = fp.fit(TASK, TABLES, tol=1e-6)
    seen = found.evaluate({name: Rows(rows.X[:40], rows.y[:40]) for name, rows in TABLES.items()})
    model = found.model
    assert isinstance(model, tasks.Model)
    for name, rows in TABLES.items():
        right = np.mean(model.predict(rows.X[:40]) == rows.y[:40])
        assert seen.measures[name]["accuracy"] == pytest.approx(right)


def test_three_classes() -> None:
    rng = np.random.default_rng(1)
    tables = {name: Rows(rng.normal(size=(60, 2)), rng.integers(0, 3, 60)) for name in NAMES}
    found = fp.fit(replace(TASK, classes=("0", "1", "2")), tables, tol=1e-7)
    assert found.solved
    assert found.solution.w.size == 9 + 3


@pytest.mark.parametrize(
    ("about", "code"),
    [({"owners_weigh": "rows"}, "FP-OPTION-740"), ({"smoothing": -1.0}, None), ({"penalty": 0.0}, None)],
    ids=["weights", "smoothing", "penalty"],
)
def test_keys_that_make_no_sense(about: dict[str, object], code: str | None) -> None:
    with pytest.raises(OptionError) as caught:
        replace(TASK, **about)
    if code is not None:
        assert caught.value.code == code
    assert caught.value.key == next(iter(about))


def test_an_owner_without_a_vote_is_refused() -> None:
    with pytest.raises(OptionError) as caught:
        TASK.among(("north", "south")).share("west", TABLES["west"])
    assert caught.value.code == "FP-OPTION-741"
