"""What every estimator promises: scikit-learn's conventions, and a model whose certificate holds outside of it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs the extra 'sklearn'")
pytest.importorskip("cryptography", reason="needs the extra 'secure'")

from estimator_cases import ESTIMATORS, ROWS, TOL, EstimatorCase, Y
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import fedpact as fp
from fedpact.errors import DataError, FedpactError


def each(cases: Sequence[EstimatorCase]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


each_estimator = each(ESTIMATORS)
each_with_clients = each([case for case in ESTIMATORS if "client" in case.metadata])
each_with_groups = each([case for case in ESTIMATORS if "group" in case.metadata])


# -------------------------------------------------------------------------------------------------------- conventions


@pytest.mark.filterwarnings("ignore:FairClassifier.fit without group")
@each([case for case in ESTIMATORS if case.sklearn])
def test_scikit_learns_own_contract(case: EstimatorCase) -> None:
    results = check_estimator(case.kind(), on_skip=None)
    assert len(results) > 40
    # This one wants a variable of the environment that SciPy reads when it is imported.
    assert {r["check_name"] for r in results if r["status"] != "passed"} <= {"check_array_api_input"}


@each_estimator
def test_parameters_are_kept_as_given(case: EstimatorCase) -> None:
    model = case.make()
    stated = model.get_params()
    assert {"tol": TOL, **case.parameters}.items() <= stated.items()
    assert clone(model).get_params() == stated
    assert case.kind().set_params(**stated).get_params() == stated
    fitted = case.fit()
    assert fitted.get_params() == stated  # fit changes none of them


@each_estimator
def test_a_clone_is_not_fitted(case: EstimatorCase) -> None:
    with pytest.raises(NotFittedError):
        clone(case.fit()).predict(case.table)


@each_estimator
def test_a_pickled_model_is_the_model(case: EstimatorCase) -> None:
    model = case.fit()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(case.table), model.predict_proba(case.table))
    assert again.certificate_ == model.certificate_
    assert again.multipliers_ == model.multipliers_
    assert again.get_params() == model.get_params()


@each_estimator
def test_two_fits_are_equal_bit_for_bit(case: EstimatorCase) -> None:
    one, other = case.fit(), case.fit()
    assert one.solution_.w.tobytes() == other.solution_.w.tobytes()
    assert one.multipliers_ == other.multipliers_


@each_estimator
def test_labels_may_be_words(case: EstimatorCase) -> None:
    words = np.where(Y == 1, "paid", "owes")
    named = case.make().fit(case.table, words, **case.metadata)
    numbered = case.fit()
    assert list(named.classes_) == ["owes", "paid"]
    np.testing.assert_array_equal(named.predict(case.table) == "paid", numbered.predict(case.table) == 1)
    assert named.score(case.table, words) == numbered.score(case.table, Y)


@each_estimator
def test_threads_and_secure_sums_give_the_same_model(case: EstimatorCase) -> None:
    open_sums = case.fit(secure_sum=False)
    threads = case.fit(secure_sum=False, engine="threads")
    secure_sums = case.fit(secure_sum=True)
    assert threads.solution_.w.tobytes() == open_sums.solution_.w.tobytes()
    np.testing.assert_allclose(secure_sums.solution_.w, open_sums.solution_.w, atol=1e-7)
    for model, hidden in ((open_sums, False), (secure_sums, True)):
        for traffic in model.solution_.communication.owners.values():
            assert any("(masked)" in name for name in traffic.fields) == hidden


# --------------------------------------------------------------------------------------------------- what is promised


@each_estimator
def test_the_certificate_and_the_prices_hold_outside_of_the_estimator(case: EstimatorCase) -> None:
    model = case.fit()
    assert model.certificate_.meets((TOL, TOL))
    assert model.certificate_ == model.solution_.certificate
    assert model.history_.outer
    again = fp.certify(case.problem(), model.solution_.w, case.multipliers(model))
    for name in ("stationarity", "feasibility", "violation"):
        assert getattr(again, name) == pytest.approx(getattr(model.certificate_, name), rel=1e-6, abs=1e-9), name


@each_estimator
def test_a_bound_decides_and_has_its_price(case: EstimatorCase) -> None:
    """Else the contract would say little."""
    prices = [price for price in case.multipliers(case.fit()) if price is not None]
    assert max(np.max(price) for price in prices) > 1e-3


@each_estimator
def test_a_fit_that_fails_leaves_no_model(case: EstimatorCase) -> None:
    model = case.fit()
    with pytest.raises(FedpactError, match="max_rounds"):
        model.set_params(max_rounds=8, tol=1e-9).fit(case.table, Y, **case.metadata)
    assert model.solution_.status == "max_rounds"  # to look at
    with pytest.raises(NotFittedError):
        model.predict(case.table)


# ------------------------------------------------------------------------------------------------------------ metadata


@each_with_clients
@pytest.mark.parametrize(
    ("client", "facts"),
    [
        (["a"] * (ROWS - 1), rf"client.*{ROWS - 1}.*{ROWS} rows"),
        ([None] + ["a"] * (ROWS - 1), "client.*row 0"),
        (np.append(np.arange(ROWS - 1.0), np.nan), f"client.*row {ROWS - 1}"),
        (np.array([1, "b"] * (ROWS // 2), dtype=object), "client"),
        (["server"] * ROWS, "'server'"),
    ],
    ids=["too few", "none", "nan", "mixed", "server"],
)
def test_clients_that_cannot_be_used_are_told(case: EstimatorCase, client: Any, facts: str) -> None:
    with pytest.raises(DataError, match=facts):
        case.make().fit(case.table, Y, **{**case.metadata, "client": client})


@each_with_clients
def test_one_client_holds_all_where_none_is_named(case: EstimatorCase) -> None:
    others = {name: value for name, value in case.metadata.items() if name != "client"}
    alone = case.make().fit(case.table, Y, **others)
    named = case.make().fit(case.table, Y, client=np.full(ROWS, "clinic"), **others)
    np.testing.assert_array_equal(alone.coef_, named.coef_)
    assert (list(alone.measures_), list(named.measures_)) == (["client 1"], ["clinic"])


@each_with_clients
def test_the_order_in_which_clients_appear_changes_no_bit(case: EstimatorCase) -> None:
    order = np.argsort(case.metadata["client"] != "north", kind="stable")  # within clients the order stays
    moved = {name: value[order] for name, value in case.metadata.items()}
    model, other = case.fit(), case.make().fit(case.table[order], Y[order], **moved)
    np.testing.assert_array_equal(model.coef_, other.coef_)
    assert model.multipliers_ == other.multipliers_


@each_with_groups
@pytest.mark.parametrize("group", [["f"] * ROWS, ["f", "m"], ["f", "m"] * (ROWS // 2 - 1) + ["f", None]])
def test_groups_that_cannot_be_used_are_told(case: EstimatorCase, group: Any) -> None:
    with pytest.raises(DataError, match="group"):
        case.make().fit(case.table, Y, **{**case.metadata, "group": group})
