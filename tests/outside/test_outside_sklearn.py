"""scikit-learn's own checks of estimators. FairVerticalClassifier is none: its X is a table for each party."""

from __future__ import annotations

import pytest

pytest.importorskip("sklearn", minversion="1.6", reason="needs the extra 'sklearn'")

from sklearn.utils.estimator_checks import check_estimator

import fedpact as fp

pytestmark = pytest.mark.outside

#: Checks that ask nothing of X: what `clone`, `GridSearchCV` and `repr` rest on.
WITHOUT_ROWS = {
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
}


@pytest.mark.parametrize("kind", [fp.NeymanPearsonClassifier, fp.FairClassifier])
def test_every_check_of_an_estimator_passes(kind: type) -> None:
    results = check_estimator(kind(), on_skip=None, on_fail=None)
    assert len(results) > 40
    assert [one["check_name"] for one in results if one["status"] not in ("passed", "skipped")] == []


def test_the_estimator_of_several_tables_says_that_it_is_none() -> None:
    results = check_estimator(fp.FairVerticalClassifier(), on_skip=None, on_fail=None)
    passed = {one["check_name"] for one in results if one["status"] == "passed"}
    assert passed >= WITHOUT_ROWS
    assert "not an estimator of scikit-learn" in " ".join((fp.FairVerticalClassifier.__doc__ or "").split())
