"""Intercepts that owners keep for themselves, and promises that all owners make together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact import tasks
from fedpact.tasks import Classification, Requirement, Rows

COLUMNS = ("a", "b", "c")


def federation(rows: int = 300, seed: int = 0) -> dict[str, Rows]:
    """Three owners whose scores are shifted against each other: one threshold for all costs specificity."""
    rng = np.random.default_rng(seed)
    owners = {}
    for k, name in enumerate(("east", "north", "west")):
        X = rng.normal(size=(rows, 3))
        score = X @ [1.5, -1.0, 0.5] + 2.0 * (k - 1)
        y = (score + rng.logistic(size=rows) > 2.0 * (k - 1)).astype(int)
        owners[name] = Rows.of(X + np.array([0.0, 0.0, 1.5 * (k - 1)]), y)
    return owners


def asked(**changes: Any) -> Classification:
    stated: dict[str, Any] = {
        "label": "y",
        "columns": COLUMNS,
        "constraints": (Requirement(kind="recall", at_least=0.9),),
    }
    return Classification(**{**stated, **changes})


def decisions(found: fp.Fit, owners: dict[str, Rows]) -> dict[str, np.ndarray]:
    """What every owner decides about its rows, from the returned w and thresholds found anew by sorting."""
    decided = {}
    for name, rows in owners.items():
        score = rows.X @ found.solution.w
        positives = np.sort(score[rows.y == 1])
        needed = int(np.ceil(0.9 * len(positives) - 1e-9))
        decided[name] = score >= positives[len(positives) - needed]
    return decided


def test_with_intercepts_of_their_own_every_owner_has_its_recall_and_specificity_rises() -> None:
    owners = federation()
    one = fp.fit(asked(), owners)
    own = fp.fit(asked(own_intercept=True), owners)
    assert one.solved
    assert own.solved
    decided = decisions(own, owners)
    for name, rows in owners.items():
        told = own.measures[name]
        assert told["recall"] == pytest.approx(np.mean(decided[name][rows.y == 1]), abs=1e-12)
        assert told["specificity"] == pytest.approx(1 - np.mean(decided[name][rows.y == 0]), abs=1e-12)
        assert told["recall"] >= 0.9
    means = [np.mean([told["specificity"] for told in found.measures.values()]) for found in (one, own)]
    assert means[1] > means[0] + 0.02


def test_the_record_of_the_coordinator_has_no_private_value(tmp_path: Path) -> None:
    owners = federation(rows=120)
    with fp.Session(record=tmp_path / "messages.log", checkpoint=tmp_path / "run") as session:
        found = fp.fit(asked(own_intercept=True), owners, session)
    task = found.task
    assert isinstance(task, Classification)
    text = (tmp_path / "messages.log").read_bytes() + (tmp_path / "run" / "rounds.log").read_bytes()
    for name, rows in owners.items():
        share = task.share(name, rows)
        assert isinstance(share, fp.Share)
        threshold = share.measures.decide_at(found.solution.w)  # type: ignore[union-attr]
        assert abs(threshold) > 1e-3  # not found by chance
        assert np.float64(threshold).tobytes() not in text
        assert repr(float(threshold)).encode() not in text


def test_other_rates_do_not_go_with_intercepts_of_their_own() -> None:
    gap = Requirement(kind="equal_opportunity", at_most=0.1)
    with raises_code("FP-OPTION-825", "own_intercept"):
        asked(own_intercept=True, constraints=(gap,), group="g")


def test_an_estimator_predicts_by_client() -> None:
    owners = federation()
    X = np.concatenate([rows.X for rows in owners.values()])
    y = np.concatenate([rows.y for rows in owners.values()])
    client = np.repeat(list(owners), [len(rows.y) for rows in owners.values()])
    model = fp.NeymanPearsonClassifier(min_recall=0.9, own_intercept=True).fit(X, y, client=client)
    predicted = model.predict(X, client=client)
    for name in owners:
        recall = np.mean(predicted[(client == name) & (y == 1)])
        assert recall >= 0.9
        assert recall == pytest.approx(model.measures_[name]["recall"], abs=1e-12)
    with raises_code("FP-DATA-806", "predict", "client="):
        model.predict(X)


def test_what_all_owners_promise_together_is_tested_on_the_rows_of_all() -> None:
    owners = federation(rows=800)
    promise = Requirement(kind="recall", at_least=0.8, held_by="all", confidence=0.9)
    found = fp.fit(asked(constraints=(promise,)), owners)
    assert found.solved
    task = found.task
    assert isinstance(task, Classification)
    hits = rows_held = 0
    for name, rows in owners.items():
        held = task.held_out(name, rows.y, None) & (rows.y == 1)
        score = tasks.scores(found.solution.w, np.column_stack([rows.X, np.ones(len(rows.y))]), 2)[:, 1]
        hits += int(np.sum(score[held] > 0))
        rows_held += int(np.sum(held))
    from scipy.stats import binomtest

    assert binomtest(hits, rows_held, 0.8, alternative="greater").pvalue <= 0.1


def test_a_point_that_meets_the_constraints_is_never_called_infeasible() -> None:
    """A coupled rate whose solver runs far out after it has met the bound."""
    owners = federation(rows=200)
    together = Requirement(kind="recall", at_least=0.9, held_by="all")
    found = fp.fit(asked(constraints=(together,), objective="errors"), owners, max_rounds=60)
    assert found.solution.status != "infeasible"
