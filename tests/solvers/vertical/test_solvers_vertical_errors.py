"""Standard errors of vertical models against statsmodels and against inference on pooled columns; who learns what."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code
from vertical_cases import CUTS, rows, small

import fedpact as fp
from fedpact.federation import read_record
from fedpact.statistics import Summary

LOSSES = {"squared": "OLS", "logistic": "Logit", "poisson": "Poisson"}


def solve(asked: fp.VerticalProblem, kind: str = "sandwich", **options: Any) -> fp.Solution:
    found = fp.solve(asked, "vertical-exact", tol=1e-10, inference=kind, **options)
    assert found.solved, found.reason
    return found


def errors_of(table: Summary) -> np.ndarray:
    return np.array([one.se for one in (*table.coefficients, *table.prices)])


def horizontal(asked: fp.VerticalProblem, kind: str) -> Summary:
    """The same with all columns at one owner, by the inference of horizontal problems."""
    posed = asked.pooled()
    whole = replace(posed.shares[0], constraint=posed.server.constraint)
    problem = fp.FederatedProblem([whole], regularizer=posed.regularizer)
    found = fp.solve(problem, "interior-point", tol=1e-10)
    assert found.solved
    return found.summary(problem, covariance=kind)


@pytest.mark.parametrize("ridge", [0.0, 1e-12])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("kind", "reference"), [("model", "nonrobust"), ("hc0", "HC0")])
def test_without_constraints_they_are_those_of_statsmodels(loss: Any, kind: str, reference: str, ridge: float) -> None:
    sm = pytest.importorskip("statsmodels.api")
    made = rows(n=400)
    draw = np.random.default_rng(3)
    X = made.X / 4
    y = made.y.astype(float)
    if loss == "poisson":
        y = draw.poisson(np.exp(X @ np.linspace(-0.5, 0.5, 8))).astype(float)
    if loss == "squared":
        y = X @ np.linspace(-1, 1, 8) + draw.normal(size=len(X))
    parties = {name: X[:, cut] for name, cut in CUTS.items()}
    asked = fp.VerticalProblem(parties, y, loss=loss, gap="all", regularizer=fp.prox.SquaredL2(ridge))
    table = solve(asked, kind).summary(asked)
    pooled = np.column_stack([X, np.ones(len(X))])
    options = {} if loss == "squared" else {"disp": 0, "tol": 1e-14, "method": "newton"}
    expected = getattr(sm, LOSSES[loss])(y, pooled).fit(cov_type=reference, **options)
    assert table.notes == ()
    np.testing.assert_allclose([one.estimate for one in table.coefficients], expected.params, rtol=1e-6)
    np.testing.assert_allclose(errors_of(table), expected.bse, rtol=1e-7)
    np.testing.assert_allclose([one.low for one in table.coefficients], expected.conf_int()[:, 0], rtol=1e-6)


@pytest.mark.parametrize("kind", ["sandwich", "hc0"])
def test_under_a_gap_that_binds_they_are_those_of_the_pooled_columns(kind: str) -> None:
    asked = small()
    found = solve(asked, kind)
    table = found.summary(asked)
    expected = horizontal(asked, kind)
    assert len(table.prices) == 1
    np.testing.assert_allclose(errors_of(table), errors_of(expected), rtol=1e-9)
    assert table.prices[0].estimate == pytest.approx(expected.prices[0].estimate, rel=1e-6)
    free = errors_of(solve(small(max_gap=None), kind).summary(small(max_gap=None)))
    assert np.max(np.abs(free / errors_of(table)[: free.size] - 1)) > 0.01  # the constraint matters


def test_several_attributes_bounded_losses_and_curvatures_of_each_column() -> None:
    made = rows(n=300)
    group = {"sex": made.group, "age": (made.X[:, 0] > 0).astype(int)}
    weights = [fp.prox.SquaredL2(np.linspace(0.01, 0.1, made.X[:, cut].shape[1])) for cut in CUTS.values()]
    parties = {name: made.X[:, cut] for name, cut in CUTS.items()}
    asked = fp.VerticalProblem(parties, made.y, group, 0.01, max_loss={0: 0.4}, regularizer=weights)
    table = solve(asked).summary(asked)
    assert len(table.prices) >= 2
    expected = errors_of(horizontal(asked, "sandwich"))
    told = np.isfinite(expected)  # one coefficient is refused there, beside a bound close to the least attainable loss
    assert told.sum() == len(told) - 1
    np.testing.assert_allclose(errors_of(table)[told], expected[told], rtol=1e-8)


def test_collinear_columns_have_the_errors_of_the_penalised_model_and_a_note() -> None:
    made = rows()
    parties = {"bank": made.X[:, :4], "shop": np.column_stack([made.X[:, 4:], made.X[:, 0] + made.X[:, 5]])}
    asked = fp.VerticalProblem(parties, made.y, regularizer=fp.prox.SquaredL2(0.01))
    table = solve(asked).summary(asked)
    np.testing.assert_allclose(errors_of(table), errors_of(horizontal(asked, "sandwich")), rtol=1e-8)
    assert any("collinear (8 of 9" in note for note in table.notes)
    asked = fp.VerticalProblem(parties, made.y, regularizer=fp.prox.Zero())
    found = fp.solve(asked, "vertical-exact", tol=1e-6, inference="sandwich")
    table = found.summary(asked)
    assert np.isnan(errors_of(table)).all()
    assert any(note.startswith("no standard errors") for note in table.notes)


def test_a_party_keeps_its_table_and_the_coordinator_gets_two_masked_numbers_more(tmp_path: Path) -> None:
    """The errors of a party's coefficients, in units of its columns, are in its own file and in no message."""
    record = tmp_path / "messages.log"
    columns = {name: [f"{name} {j}" for j in range(cut.stop - cut.start)] for name, cut in CUTS.items()}
    asked = small(keep=tmp_path / "pieces", standardize=True, columns=columns)
    expected = solve(asked).summary(asked)
    found = solve(asked, reveal=False, record=record)
    assert [one.name for one in found.summary(asked).coefficients] == ["intercept"]
    assert found.summary(asked)["intercept"].se == pytest.approx(expected["intercept"].se, rel=1e-9)
    assert found.summary(asked).prices[0].se == pytest.approx(expected.prices[0].se, rel=1e-9)
    for party in asked.shares:
        with (tmp_path / "pieces" / f"{party.name}.csv").open() as file:
            kept = {row["name"]: row for row in csv.DictReader(file)}
        assert list(kept) == columns[party.name]
        for column, scale in zip(columns[party.name], party.scale, strict=True):
            one = expected[f"{party.name}: {column}"]
            assert float(kept[column]["se"]) == pytest.approx(one.se / scale, rel=1e-9)
            assert float(kept[column]["low"]) == pytest.approx(one.low / scale, rel=1e-9)
    told = [message for message in read_record(record) if "from" in message][-len(CUTS) :]
    for message in told:
        assert message["content"]["sums"].dtype == np.uint64
        assert message["content"]["kept"] == {"by_penalty": None, "by_tolerance": None}


def test_notes_are_those_of_the_parties_own_columns() -> None:
    """A ridge that moves a coefficient by more than a tenth of its error is named, as by the pooled columns."""
    asked = small()
    bare = solve(asked, secure_sum=False).summary(asked)
    words = [note for note in bare.notes if "penalty is not tiny" in note]
    assert words
    assert words == [note for note in horizontal(asked, "sandwich").notes if "penalty is not tiny" in note]


def test_several_classes_say_that_they_have_none() -> None:
    made = rows(n=90)
    asked = fp.VerticalProblem([made.X[:, :4], made.X[:, 4:]], made.y + made.group, loss="softmax")
    table = solve(asked).summary(asked)
    assert np.isnan(errors_of(table)).all()
    assert any(note.startswith("no standard errors") for note in table.notes)


@pytest.mark.parametrize(
    ("options", "code"),
    [({"inference": "clustered"}, "FP-OPTION-251"), ({"inference": "sandwich", "noise": 0.1}, "FP-OPTION-937")],
)
def test_misuse(options: dict[str, Any], code: str) -> None:
    with raises_code(code, "", "inference"):
        fp.solve(small(), "vertical-exact", **options)


def test_other_methods_have_none_and_say_which_has() -> None:
    asked = small()
    with raises_code("FP-OPTION-936", "", "vertical-exact"):
        fp.solve(asked, "vertical-al", tol=1e-3).summary(asked)
    with raises_code("FP-OPTION-253", "", "inference"):
        fp.solve(asked, "vertical-al", inference="sandwich")
