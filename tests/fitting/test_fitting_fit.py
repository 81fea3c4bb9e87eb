"""From a task to a model: scales as on pooled rows, the same optimum as on pooled rows, and recalls that are met."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from raising import raises_code
from scipy.optimize import minimize
from scipy.special import expit

import fedpact as fp
from fedpact.tasks import GroupFairness, NeymanPearson, Rows, TableTask

Tables = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
COLUMNS = ("a", "b", "c")


BOUNDED = NeymanPearson(bound=0.5, label="y", columns=COLUMNS, standardize=True)


def rows(owners: int = 3, size: int = 120, classes: int = 2) -> Tables:
    made = {}
    for k in range(owners):
        rng = np.random.default_rng([7, k])
        X = rng.normal(size=(size, 3)) * [1.0, 50.0, 0.02] + [0.0, 2000.0, 1.0 + 0.01 * k]
        z = (X - [0.0, 2000.0, 1.0]) / [1.0, 50.0, 0.02]
        group = (z[:, 0] + rng.normal(size=size) > 0.3 * k).astype(int)
        score = z @ [1.0, -0.8, 0.3] + 0.8 * group + rng.normal(size=size)
        y = (score > 0.4).astype(int) if classes == 2 else np.digitize(score, [-0.5, 0.8])
        made[f"owner {k + 1}"] = (X, y, group)
    return made


def fit(task: TableTask, given: Tables, session: fp.Session | None = None, **options: Any) -> fp.Fit:
    grouped = isinstance(task, GroupFairness)
    owners = {name: Rows.of(X, y, g if grouped else None) for name, (X, y, g) in given.items()}
    return fp.fit(task, owners, session, tol=1e-7, **options)


def pooled(given: Tables) -> np.ndarray:
    return np.concatenate([X for X, _, _ in given.values()])


@pytest.mark.parametrize("secure", [False, True])
def test_scales_are_those_of_the_pooled_rows(secure: bool) -> None:
    if secure:
        pytest.importorskip("cryptography", reason="secure sums need cryptography")
    given = rows()
    with fp.Session(secure_sum=secure) as session:
        found = fit(BOUNDED, given, session)
    assert found.task.scaling is not None
    np.testing.assert_allclose(found.task.scaling.mean, pooled(given).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.task.scaling.scale, pooled(given).std(axis=0), rtol=1e-9)
    masked = "Moments.total (masked)" in found.communication.owners["owner 1"].fields
    assert masked == secure


def test_absent_values_are_the_mean_over_all_owners() -> None:
    given = rows()
    X, y, g = given["owner 1"]
    given["owner 1"] = (np.where(np.arange(len(X))[:, None] % 7 == [0, 1, 2], np.nan, X), y, g)
    task = replace(BOUNDED, missing="mean")
    found = fit(task, given)
    assert found.solved
    means = np.nanmean(pooled(given), axis=0)
    filled = {name: (np.where(np.isnan(X), means, X), y, g) for name, (X, y, g) in given.items()}
    again = fit(replace(task, missing="error", scaling=found.task.scaling), filled)
    np.testing.assert_allclose(again.solution.w, found.solution.w, atol=1e-9)


def test_a_constant_column_does_no_harm() -> None:
    given = {name: (np.column_stack([X[:, :2], np.full(len(X), 0.1)]), y, g) for name, (X, y, g) in rows().items()}
    found = fit(BOUNDED, given)
    assert found.solved
    assert abs(found.solution.w[2]) < 1e-9


@pytest.mark.parametrize("parity", ["loss", "demographic_parity", "equal_opportunity"])
def test_parities_are_optimal_on_pooled_rows(parity: Any) -> None:
    """SLSQP from the answer, with the same functions written by hand, finds nothing better nearby.

    Gaps of decisions are those of the last smoothed problem, corrected by the counts at the model before.
    """
    given = rows()
    task = GroupFairness(bound=0.03, label="y", columns=COLUMNS, group="g", standardize=True, parity=parity)
    found = fit(task, given, compare=True)
    assert found.solved, found.solution.reason
    assert found.task.scaling is not None
    tables = [(np.column_stack([found.task.scaling.apply(X), np.ones(len(X))]), y, g) for X, y, g in given.values()]

    def objective(w: np.ndarray) -> float:
        losses = [np.mean(np.logaddexp(0, X @ w) - y * (X @ w)) for X, y, _ in tables]
        return float(np.mean(losses) + 0.5e-3 * w[:3] @ w[:3])

    last = found.task
    assert isinstance(last, GroupFairness)
    centre = np.array(last.centre)

    def each(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
        if parity == "loss":
            return np.logaddexp(0, X @ w) - y * (X @ w)
        corrected = (X @ centre > 0) - expit(X @ centre / last.width)
        return expit(X @ w / last.width) + corrected

    def cells(y: np.ndarray, g: np.ndarray) -> list[np.ndarray]:
        chosen = y == 1 if parity == "equal_opportunity" else np.full(len(y), True)
        return [chosen & (g == k) for k in (0, 1)]

    def gaps(w: np.ndarray) -> np.ndarray:
        made = []
        for X, y, g in tables:
            first, second = (each(X, y, w)[cell].mean() for cell in cells(y, g))
            made.append(second - first)
        return np.array(made)

    smaller = [min(cell.sum() for cell in cells(y, g)) for _, y, g in tables]
    limit = 0.03 - np.minimum(last.tighter / np.array(smaller), 0.015)
    w = found.solution.w
    assert np.all(np.abs(gaps(w)) <= limit + 1e-6)
    limits = [{"type": "ineq", "fun": lambda w, s=s: limit - s * gaps(w)} for s in (1, -1)]
    best = minimize(objective, w, constraints=limits, method="SLSQP", options={"ftol": 1e-12, "maxiter": 200})
    assert objective(w) <= best.fun + 1e-6
    assert found.before["owner 1"]["accuracy"] > 0.5
    for name, (X, _, g) in given.items():
        chosen = np.column_stack([found.task.scaling.apply(X), np.ones(len(X))]) @ w > 0
        assert found.measures[name]["positive rate of group 1"] == pytest.approx(chosen[g == 1].mean())


def test_several_classes_with_one_protected() -> None:
    given = rows(classes=3)
    found = fit(replace(BOUNDED, bound=0.4, classes=("low", "mid", "high"), protected="mid"), given)
    assert found.solved
    assert found.solution.w.size == 3 * 4
    assert found.task.scaling is not None
    for name, (X, y, _) in given.items():
        score = np.column_stack([found.task.scaling.apply(X), np.ones(len(X))]) @ found.solution.w.reshape(3, 4).T
        losses = np.log(np.exp(score).sum(axis=1)) - score[:, 1]
        assert losses[y == 1].mean() <= 0.4 + 1e-6
        assert found.values[name][0] == pytest.approx(losses[y == 1].mean() - 0.4)
        assert found.measures[name]["recall"] == np.mean(np.argmax(score[y == 1], axis=1) == 1)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_recall_is_met_everywhere_and_costs_less_than_the_safe_bound(classes: int) -> None:
    """A row that is missed has a loss of at least log 2: the bound (1 - recall) log 2 is safe, and dear."""
    given, names = rows(classes=classes), ("0", "1", "2")[:classes]
    task = replace(BOUNDED, bound={}, classes=names, min_recall=0.85)
    found = fit(task, given)
    assert found.solved
    assert min(told["recall"] for told in found.measures.values()) >= 0.85
    assert min(told["recall"] for told in found.before.values()) < 0.85
    safe = fit(replace(task, min_recall=0.0, bound=0.15 * np.log(2)), given)
    assert min(told["recall"] for told in safe.measures.values()) >= 0.85
    assert found.solution.objective < safe.solution.objective


def test_a_recall_that_cannot_be_had_is_not_called_solved() -> None:
    """Without an intercept, with rows on both sides of zero: no model finds 99 % of them."""
    rng = np.random.default_rng(0)
    given = {f"owner {k}": (rng.normal(size=(60, 3)), np.arange(60) % 2, np.zeros(60)) for k in range(2)}
    found = fit(NeymanPearson(label="y", columns=COLUMNS, intercept=False, min_recall=0.99), given)
    assert not found.solved


@pytest.mark.parametrize(
    ("changes", "code", "facts"),
    [
        ({"bound": {"owner 1": 0.3}}, "FP-OPTION-053", ["", "bound", "'owner 2'"]),
        ({"classes": ("a", "a")}, "FP-OPTION-054", ["classes", "2 or more"]),
        ({"protected": "z"}, "FP-OPTION-047", ["protected", "'z'", "0, 1"]),
        ({"columns": ("a", "a", "b")}, "FP-OPTION-045", ["", "'a'"]),
        ({"label": "a"}, "FP-OPTION-044", ["", "'a'"]),
        ({"categories": {"z": ("1",)}}, "FP-OPTION-046", ["categories", "'z'"]),
        ({"missing": "zero"}, "FP-OPTION-049", ["missing", "'zero'"]),
        ({"min_recall": 1.5}, "FP-OPTION-050", ["min_recall", "1.5"]),
        ({"bound": {}}, "FP-OPTION-056", ["", "bound=", "min_recall="]),
        ({"bound": 0.0}, "FP-OPTION-057", ["bound", "0.0"]),
        ({"bound": {"owner 1": 1.0, "owner 2": -1.0}}, "FP-OPTION-057", ["bound", "'owner 2'", "-1.0"]),
        ({"regularization": -1.0}, "FP-OPTION-033", ["regularization", "-1.0"]),
    ],
)
def test_tasks_that_contradict_themselves(changes: dict[str, Any], code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        fit(NeymanPearson(**{"bound": 0.5, "label": "y", "columns": COLUMNS, **changes}), rows())


def test_a_column_without_any_value_is_named() -> None:
    given = {name: (np.column_stack([X[:, :2], np.full(len(X), np.nan)]), y, g) for name, (X, y, g) in rows().items()}
    with raises_code("FP-OPTION-460", "column 'c'"):
        fit(NeymanPearson(bound=0.5, label="y", columns=COLUMNS, missing="mean"), given)


@pytest.mark.parametrize(
    ("changes", "y", "group", "code", "fact"),
    [
        ({"group": "g"}, None, 0, "FP-DATA-047", "g = 1 among 120"),
        ({"group": "g", "groups": ("f", "m"), "parity": "equal_opportunity"}, 0, None, "FP-DATA-053", "g = f"),
        ({"classes": ("low", "mid", "high")}, 2, None, "FP-DATA-047", "y = low among 120"),
        ({"classes": ("low", "mid", "high")}, 0, None, "FP-DATA-047", "y = high among 120"),
    ],
)
def test_an_owner_without_needed_rows_is_named(
    changes: dict[str, Any], y: Any, group: Any, code: str, fact: str
) -> None:
    given = rows(classes=len(changes.get("classes", (0, 1))))
    X, labels, kinds = given["owner 2"]
    given["owner 2"] = (
        X,
        labels if y is None else np.full(len(X), y),
        kinds if group is None else np.full(len(X), group),
    )
    kind = GroupFairness if "group" in changes else NeymanPearson
    with raises_code(code, "owner 'owner 2'", fact):
        fit(kind(bound=0.5, label="y", columns=COLUMNS, **changes), given)


# ---------------------------------------------------------------------------------------------- fits that are stopped


def stop_in_solve(number: int, stop: Any) -> Any:
    """A callback that stops the solve with this number, counted from 0, after its first iterations."""
    solves = [-1]

    def see(progress: Any) -> Any:
        if progress.iteration == 0:
            solves[0] += 1
        return stop() if solves[0] == number and progress.iteration == 2 else None

    return see


def press() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [press, lambda: True], ids=["Ctrl-C", "callback"])
def test_a_fit_that_is_stopped_in_its_last_solve_has_the_best_model_so_far(stop: Any) -> None:
    found = fit(BOUNDED, rows(), compare=True, callbacks=[stop_in_solve(1, stop)])
    assert found.solution.status == "interrupted"
    assert not found.solved
    assert found.model is not None
    assert set(found.measures) == set(found.before) == set(rows())
    assert np.isfinite(found.solution.certificate.stationarity)


@pytest.mark.parametrize("stop", [press, lambda: True], ids=["Ctrl-C", "callback"])
def test_a_fit_that_is_stopped_before_that_has_none(stop: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(BOUNDED, rows(), compare=True, callbacks=[stop_in_solve(0, stop)])


def test_a_fit_of_decisions_that_is_stopped_has_the_model_so_far() -> None:
    task = replace(BOUNDED, bound={}, min_recall=0.85)
    whole = fit(task, rows())
    found = fit(task, rows(), callbacks=[stop_in_solve(2, press)])
    assert whole.trials > found.trials == 3
    assert found.solution.status == "interrupted"
    assert "interrupted" in found.solution.reason
    assert not found.solved
    assert found.missed == -1  # its decisions were not counted
    assert set(found.measures) == set(rows())


def test_a_session_serves_one_fit_after_the_other() -> None:
    given = rows()
    alone = fit(BOUNDED, given)
    with fp.Session() as session:
        first = fit(BOUNDED, given, session)
        second = fit(replace(BOUNDED, bound=0.45), given, session)
        again = fit(BOUNDED, given, session)
    assert first.solution.w.tobytes() == alone.solution.w.tobytes() == again.solution.w.tobytes()
    assert second.solution.objective > first.solution.objective
    assert again.communication.rounds == first.communication.rounds == alone.communication.rounds
