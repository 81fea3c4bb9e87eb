"""Counts of scores by bins: the ROC curve of pooled rows; and models for other bounds, next to those asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import fedpact as fp
from fedpact import data
from fedpact.fitting.curves import Binned, merge_small
from fedpact.fitting.trade_off import ALLOWANCES, EXCHANGES, Decided
from fedpact.report.quality import area, roc, tenths
from fedpact.tasks import NeymanPearson, Rows
from fedpact_experiments.datasets import adult_a

COLUMNS = tuple(f"x{j}" for j in range(6))
#: No scaling, so that scores of the model are those of the rows.
TASK = NeymanPearson(bound=0.5, label="ill", columns=COLUMNS)


def rows() -> dict[str, Rows]:
    tables = data.neyman_pearson(4, 150, 6)
    return {f"clinic {i}": Rows.of(X, y) for i, (X, y) in enumerate(tables.values())}


def pooled() -> Rows:
    parts = rows().values()
    return Rows(np.vstack([one.X for one in parts]), np.concatenate([one.y for one in parts]))


@pytest.mark.parametrize("secure", [False, True])
def test_the_curve_is_that_of_the_pooled_rows(secure: bool) -> None:
    with fp.Session(secure_sum=secure) as session:
        found = fp.fit(TASK, rows(), session, curves=True)
    together = pooled()
    model = found.model
    assert isinstance(model, fp.tasks.Model)
    score = model.scores(together.X)[:, 0]
    assert found.curves is not None
    curves = found.curves
    assert (sum(curves.negative), sum(curves.positive)) == tuple(np.bincount(together.y))
    assert area(*roc(curves)) == pytest.approx(roc_auc_score(together.y, score), abs=2e-3)  # ties within a bin
    binned = np.bincount(np.searchsorted(curves.edges, score[together.y == 1]), minlength=len(curves.positive))
    assert list(curves.positive) == binned.tolist()
    probability = 1 / (1 + np.exp(-score))
    for given, hits, count in tenths(curves):
        inside = np.floor(10 * probability) == np.floor(10 * given)
        assert count == pytest.approx(inside.sum(), abs=12)  # a bin across the edge of a tenth belongs to one of them
        assert hits <= count
    total = [count for _, _, count in tenths(curves)]
    assert sum(total) <= len(together.y)


def test_small_cells_are_counted_with_their_neighbours() -> None:
    counts = np.array([0.0, 2, 9, 0, 1, 1, 0, 3, 0, 2])
    merged = merge_small(counts, 5)
    assert merged.tolist() == [0, 0, 11, 0, 0, 0, 0, 7, 0, 0]
    assert merged.sum() == counts.sum()
    assert merge_small(counts, 0).tolist() == counts.tolist()
    assert merge_small(np.array([1.0, 2.0]), 5).tolist() == [0, 0]  # too few in all: nothing is told
    assert Binned(counts=np.concatenate([counts, counts])).withhold(5).counts.tolist() == [*merged, *merged]


def test_an_owner_with_too_few_of_a_class_is_left_out() -> None:
    counted = Decided(counts=np.array([40.0, 3, 1, 2]))
    assert counted.withhold(5).counts.tolist() == [0, 0, 0, 0]
    assert counted.withhold(3) == counted


def test_models_for_other_bounds() -> None:
    """Each is the model of a fit that asks for that bound, in a budget of exchanges for all of them together."""
    plain = fp.fit(TASK, rows(), curves=False)
    found = fp.fit(TASK, rows(), trade_off=True)
    assert found.communication.rounds - plain.communication.rounds <= EXCHANGES
    assert np.array_equal(found.solution.w, plain.solution.w)
    assert [one.allowance for one in found.trade_off] == list(ALLOWANCES)
    together = pooled()
    for one in found.trade_off:
        asked = fp.fit(replace(TASK, bound=one.allowance * TASK.bound), rows(), tol=1e-6)
        assert one.status == "solved"
        assert one.objective == pytest.approx(asked.solution.objective, abs=5e-3)
        decided = asked.model.predict(together.X)  # type: ignore[union-attr]
        assert one.rates["accuracy"] == pytest.approx(np.mean(decided == together.y), abs=0.02)
        assert one.rates["recall"] == pytest.approx(np.mean(decided[together.y == 1]), abs=0.02)
    objectives = [one.objective for one in found.trade_off]
    assert objectives == sorted(objectives, reverse=True)


def test_models_of_a_regression_for_other_bounds() -> None:
    """The bound on the loss of one owner binds; each point is the fit that asks for that bound."""
    draw = np.random.default_rng(3)
    owners = {}
    for name, effect in (("north", 1.0), ("south", -0.5)):
        X = draw.standard_normal((80, 2))
        owners[name] = Rows(X, effect * X[:, 0] + X[:, 1] + draw.standard_normal(80))
    bounds = {"north": 9.0, "south": 0.7}
    task = fp.tasks.Regression(label="y", columns=("a", "b"), max_loss=bounds, regularization=0.0)
    plain = fp.fit(task, owners)
    found = fp.fit(task, owners, trade_off=True)
    assert found.communication.rounds - plain.communication.rounds <= EXCHANGES
    assert [one.allowance for one in found.trade_off] == list(ALLOWANCES)
    X = np.vstack([one.X for one in owners.values()])
    y = np.concatenate([one.y for one in owners.values()])
    for one in found.trade_off:
        asked = fp.fit(
            replace(task, max_loss={name: one.allowance * bound for name, bound in bounds.items()}), owners, tol=1e-7
        )
        assert one.status == asked.solution.status
        if one.status == "infeasible":  # so strict that no model has it
            continue
        assert one.objective == pytest.approx(asked.solution.objective, abs=5e-3)
        error = asked.model.predict(X) - y  # type: ignore[union-attr]
        assert one.rates["mean absolute error"] == pytest.approx(np.mean(np.abs(error)), abs=1e-2)
        assert one.rates["root mean squared error"] == pytest.approx(np.sqrt(np.mean(error**2)), abs=1e-2)
    assert sum(one.status == "solved" for one in found.trade_off) >= 5
    fixed = fp.tasks.Regression(label="y", columns=("a", "b"), coefficients={"a": {"at_least": 0.0}})
    assert fp.fit(fixed, owners, trade_off=True).trade_off == ()  # nothing at an owner to allow more of


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "certified"), [({"bound": 0.5}, 7), ({"min_recall": 0.85}, 7)])
def test_adult_has_seven_points_in_sixty_exchanges(asked: dict[str, float], certified: int, data_folder: Path) -> None:
    table = adult_a(data_folder, "codes")
    parts = data.stratified(table.y, 6)
    owners = {f"owner {i}": Rows.of(table.X[part], table.y[part]) for i, part in enumerate(parts)}
    task = NeymanPearson(label="income", columns=table.columns, standardize=True, **asked)
    plain = fp.fit(task, owners)
    found = fp.fit(task, owners, trade_off=True)
    assert found.communication.rounds - plain.communication.rounds <= 60
    assert len(found.trade_off) == 7
    assert sum(one.status == "solved" for one in found.trade_off) >= certified
    recalls = [one.rates["recall"] for one in found.trade_off]
    specificities = [one.rates["specificity"] for one in found.trade_off]
    assert recalls == sorted(recalls, reverse=True)
    assert specificities == sorted(specificities)


def test_a_task_without_bounds_has_no_trade_off() -> None:
    free = fp.tasks.Classification(label="ill", columns=COLUMNS)
    found = fp.fit(free, rows(), trade_off=True, curves=True)
    assert found.trade_off == ()
    assert found.curves is not None
