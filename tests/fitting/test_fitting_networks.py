"""Networks in fits: what is bounded is counted by the network's decisions, and everything follows from its scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code
from scipy.stats import binom

import fedpact as fp
from fedpact import data
from fedpact.tasks import Classification, GroupFairness, Model, NeymanPearson, Requirement, Rows, load_model

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")

pytestmark = pytest.mark.extras

PATIENTS = data.wdbc()
HOSPITALS = {
    f"hospital {i}": Rows(PATIENTS.X[rows], PATIENTS.y[rows])
    for i, rows in enumerate(data.stratified(PATIENTS.y, 3, 0), 1)
}
RECALL = Requirement(kind="recall", at_least=0.95)
ABOUT: dict[str, Any] = {
    "label": "diagnosis",
    "columns": PATIENTS.columns,
    "standardize": True,
    "model": "mlp",
    "layers": (8,),
}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def task(*constraints: Requirement, **more: Any) -> Classification:
    return Classification(constraints=constraints, **{**ABOUT, **more})


def circles(owners: int = 3, rows: int = 300) -> dict[str, Rows]:
    """Class 1 inside a circle, which no linear model finds; groups that differ in where they are."""
    made = {}
    for k in range(owners):
        rng = np.random.default_rng([9, k])
        group = rng.integers(0, 2, rows)
        X = 1.2 * rng.standard_normal((rows, 2)) + 0.3 * group[:, None]
        inside = np.linalg.norm(X, axis=1) + 0.3 * rng.standard_normal(rows) < 1.2
        made[f"owner {k + 1}"] = Rows(X, inside.astype(int), group)
    return made


def circle_task(*constraints: Requirement, **more: Any) -> Classification:
    about = {"label": "y", "columns": ("a", "b"), "group": "sex", "standardize": True}
    return Classification(constraints=constraints, model="mlp", layers=(16,), **about, **more)


def decide(found: fp.Fit, rows: Rows) -> np.ndarray:
    assert isinstance(found.model, Model)
    return found.model.predict(rows.X)


def recall(found: fp.Fit, rows: Rows, k: int = 1) -> float:
    return float(np.mean(decide(found, rows)[rows.y == k] == k))


def test_the_recall_of_every_hospital_is_counted() -> None:
    found = fp.fit(task(RECALL), HOSPITALS, compare=True, curves=True)
    assert found.solution.method == "stochastic-al"
    assert found.trained or found.solved
    for name, rows in HOSPITALS.items():
        assert recall(found, rows) >= 0.95
        told = found.measures[name]
        assert told["recall"] == pytest.approx(recall(found, rows))
        assert told["accuracy"] == pytest.approx(np.mean(decide(found, rows) == rows.y))
        assert found.before[name]["accuracy"] > 0.9
    assert found.curves is not None
    assert sum(found.curves.positive) == np.sum(PATIENTS.y == 1)


def test_a_network_finds_what_no_linear_model_does() -> None:
    rows = circles()
    found = fp.fit(circle_task(Requirement(kind="recall", at_least=0.85)), rows)
    linear = fp.fit(replace(circle_task(), model="linear", layers=()), rows)
    right = [np.mean(decide(found, own) == own.y) for own in rows.values()]
    plain = [np.mean(decide(linear, own) == own.y) for own in rows.values()]
    assert found.trained
    assert min(recall(found, own) for own in rows.values()) >= 0.85
    assert np.mean(right) > np.mean(plain) + 0.15


def test_a_gap_between_groups_holds_up_to_one_row() -> None:
    rows = circles()
    found = fp.fit(circle_task(Requirement(kind="equal_opportunity", at_most=0.05)), rows)
    assert found.trained
    for own in rows.values():
        assert own.group is not None
        cells = [(own.y == 1) & (own.group == g) for g in (0, 1)]
        rates = [np.mean(decide(found, own)[cell] == 1) for cell in cells]
        assert abs(rates[1] - rates[0]) <= 0.05 + 1 / min(cell.sum() for cell in cells) + 1e-9
        assert np.mean(decide(found, own) == own.y) > 0.7  # not by giving all of them one class


def test_recalls_of_three_classes() -> None:
    rows = {}
    for k in range(3):
        rng = np.random.default_rng([4, k])
        X = rng.standard_normal((240, 2))
        radius = np.linalg.norm(X, axis=1) + 0.1 * rng.standard_normal(240)
        rows[f"owner {k}"] = Rows(X, np.digitize(radius, [0.8, 1.5]))
    bounds = [Requirement(kind="recall", of=name, at_least=0.8) for name in ("near", "middle", "far")]
    about = {"label": "ring", "columns": ("a", "b"), "classes": ("near", "middle", "far")}
    asked = Classification(constraints=tuple(bounds), model="mlp", layers=(16, 16), **about)
    found = fp.fit(asked, rows, passes=60, method="stochastic-al")
    assert found.trained
    assert min(recall(found, own, k) for own in rows.values() for k in range(3)) >= 0.8


def test_a_bound_on_the_loss_is_one_on_the_loss() -> None:
    asked = NeymanPearson(**{**ABOUT, "bound": 0.2})
    found = fp.fit(asked, HOSPITALS)
    assert found.solved or found.trained
    assert isinstance(found.model, Model)
    for rows in HOSPITALS.values():
        score = found.model.scores(rows.X[rows.y == 1])[:, 0]
        assert np.mean(np.logaddexp(0, -score)) <= 0.2 + found.solution.tol[1] + 1e-6


@pytest.mark.parametrize("passes", [1, 10])
def test_a_promise_is_kept_by_a_threshold(passes: int) -> None:
    """The held-out rows below the threshold are as few as an exact binomial test demands, however good the network."""
    promised = Requirement(kind="recall", at_least=0.8, confidence=0.9)
    found = fp.fit(task(promised, calibrate=True), HOSPITALS, method="stochastic-al", passes=passes)
    asked = found.task
    assert isinstance(asked, Classification)
    assert asked.proven
    assert found.trained
    assert found.calibration is not None
    for name, rows in HOSPITALS.items():
        kept = asked.held_out(name, rows.y, None)
        assert np.sum(kept & (rows.y == 1)) > 20
        missed = int(np.sum(decide(found, rows)[kept & (rows.y == 1)] == 0))
        assert binom.cdf(missed, int(np.sum(kept & (rows.y == 1))), 0.2) <= 0.1 + 1e-9


def test_a_promise_about_a_gap_is_tested_on_a_sequence_of_networks() -> None:
    rows = circles(owners=2, rows=1200)
    promised = Requirement(kind="demographic_parity", at_most=0.3, confidence=0.9)
    found = fp.fit(circle_task(promised), rows, passes=10, method="stochastic-al")
    assert found.trained
    assert found.trials > 1
    for own in rows.values():
        assert own.group is not None
        positive = [np.mean(decide(found, own)[own.group == g] == 1) for g in (0, 1)]
        assert abs(positive[1] - positive[0]) <= 0.3


def test_the_model_is_that_of_its_seed_whatever_is_compared(tmp_path: Path) -> None:
    short: dict[str, Any] = {"method": "stochastic-al", "passes": 4}
    first = fp.fit(task(RECALL), HOSPITALS, seed=3, **short)
    second = fp.fit(task(RECALL), HOSPITALS, seed=3, compare=True, **short)
    other = fp.fit(task(RECALL), HOSPITALS, seed=4, **short)
    assert first.solution.w.tobytes() == second.solution.w.tobytes()
    assert first.solution.w.tobytes() != other.solution.w.tobytes()
    assert first.model is not None
    first.model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, Model)
    assert loaded.scores(PATIENTS.X).tobytes() == first.model.scores(PATIENTS.X).tobytes()


def test_an_evaluation_counts_on_other_rows() -> None:
    trained = {name: rows.select(np.arange(len(rows.y)) % 4 > 0) for name, rows in HOSPITALS.items()}
    unseen = {name: rows.select(np.arange(len(rows.y)) % 4 == 0) for name, rows in HOSPITALS.items()}
    found = fp.fit(task(RECALL), trained, method="stochastic-al", passes=5)
    told = found.evaluate(unseen)
    for name, rows in unseen.items():
        assert told.measures[name]["recall of diagnosis = 1"] == pytest.approx(recall(found, rows))


def test_a_fit_that_is_stopped_is_interrupted() -> None:
    found = fp.fit(task(RECALL), HOSPITALS, callbacks=[lambda progress: progress.rounds > 10])
    assert found.solution.status == "interrupted"
    assert not found.trained


def test_what_cannot_be_had_of_a_network() -> None:
    with raises_code("FP-OPTION-908"):
        fp.fit(task(RECALL), HOSPITALS, inference="sandwich")
    with raises_code("FP-OPTION-909"):
        fp.fit(task(RECALL), HOSPITALS, trade_off=True)
    with raises_code("FP-OPTION-110"):
        fp.fit(task(RECALL), HOSPITALS, method="interior-point")


def test_the_other_kinds_of_classification_take_networks() -> None:
    rows = circles(rows=200)
    asked = GroupFairness(
        label="y", columns=("a", "b"), group="sex", bound=0.1, model="mlp", layers=(8,), activation="tanh"
    )
    found = fp.fit(asked, rows)
    assert found.trained or found.solved
