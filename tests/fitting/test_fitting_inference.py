"""Fits with standard errors: units of the columns, families, bounds; against references on pooled rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import fedpact as fp
from fedpact.errors import FedpactError
from fedpact.federation.policy import SitePolicy
from fedpact.federation.rules import ABOUT_TABLE, ABOUT_TASK, check
from fedpact.tasks import Regression, Rows

SIZES = (60, 90, 50)
OWNER = np.repeat(range(len(SIZES)), SIZES)
COLUMNS = ("dose", "age", "load")


def table(family: str, seed: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Columns in very different units, and labels of the family; of "cox" time and event."""
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((OWNER.size, 3)) * [1.0, 12.0, 0.02] + [0.5, 60.0, 0.1]
    score = 0.6 * X[:, 0] - 0.03 * (X[:, 1] - 60) + 10 * X[:, 2] - 1
    if family == "squared":
        return X, score + draw.standard_normal(OWNER.size)
    if family == "poisson":
        return X, draw.poisson(np.exp(score / 2)).astype(float)
    if family == "logistic":
        return X, (draw.random(OWNER.size) < 1 / (1 + np.exp(-score))).astype(float)
    time = draw.exponential(np.exp(-score) * (1 + OWNER))
    return X, np.column_stack([time, draw.random(OWNER.size) < 0.7]).astype(float)


def rows_by_owner(X: np.ndarray, y: np.ndarray) -> dict[str, Rows]:
    return {f"clinic {i}": Rows(X[i == OWNER], y[i == OWNER]) for i in range(len(SIZES))}


def task_of(family: str, **more: object) -> Regression:
    if family == "cox":
        more["event"] = "seen"
    about = {"standardize": True, "regularization": 0.0, "owners_weigh": "rows", **more}
    return Regression(label="(y)", columns=COLUMNS, family=family, **about)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["squared", "logistic", "poisson"])
def test_the_table_is_that_of_statsmodels_in_the_units_of_the_columns(family: str) -> None:
    sm = pytest.importorskip("statsmodels.api")
    X, y = table(family)
    found = fp.fit(task_of(family), rows_by_owner(X, y), tol=1e-9, inference="model")
    assert found.solved
    assert found.solution.rounds + 1 <= 12  # besides: weights and scales of the columns, and measures
    kind = {"squared": sm.OLS, "logistic": sm.Logit, "poisson": sm.Poisson}[family]
    options = {} if family == "squared" else {"disp": 0, "tol": 1e-14, "method": "newton", "maxiter": 100}
    reference = kind(y, np.column_stack([X, np.ones(len(X))])).fit(**options)
    summary = found.summary()
    assert [one.name for one in summary.coefficients] == [*COLUMNS, "intercept"]
    np.testing.assert_allclose([one.estimate for one in summary.coefficients], reference.params, rtol=1e-8)
    np.testing.assert_allclose([one.se for one in summary.coefficients], reference.bse, rtol=1e-8)
    np.testing.assert_allclose([one.p for one in summary.coefficients], reference.pvalues, rtol=1e-6, atol=1e-12)


def test_overdispersed_counts_are_those_of_statsmodels() -> None:
    """NB2 with a given dispersion and an offset; the inverse of the observed information, and its sandwich."""
    sm = pytest.importorskip("statsmodels.api")
    X, _ = table("squared")
    draw = np.random.default_rng(9)
    years = draw.uniform(0.5, 2.0, len(X))
    mean = years * np.exp(0.3 * X[:, 0] - 0.02 * (X[:, 1] - 60) + 5 * X[:, 2])
    y = draw.poisson(mean * draw.gamma(1 / 0.6, 0.6, len(X))).astype(float)
    owners = {
        name: replace(one, offset=np.log(years[i == OWNER]))
        for i, (name, one) in enumerate(rows_by_owner(X, y).items())
    }
    task = task_of("negative_binomial", dispersion=0.6, offset="log_years")
    found = fp.fit(task, owners, tol=1e-9, inference="model")
    robust = fp.fit(task, owners, tol=1e-9, inference="hc0").summary()
    family = sm.families.NegativeBinomial(alpha=0.6)
    model = sm.GLM(y, np.column_stack([X, np.ones(len(X))]), family=family, offset=np.log(years))
    reference = model.fit(tol=1e-14, maxiter=200)
    summary = found.summary()
    np.testing.assert_allclose([one.estimate for one in summary.coefficients], reference.params, rtol=1e-8)
    information = -model.hessian(reference.params, observed=True)
    inverse = np.linalg.inv(information)
    np.testing.assert_allclose([one.se for one in summary.coefficients], np.sqrt(np.diag(inverse)), rtol=1e-8)
    moved = model.score_obs(reference.params) @ inverse
    np.testing.assert_allclose([one.se for one in robust.coefficients], np.sqrt(np.sum(moved**2, axis=0)), rtol=1e-7)
    loss = sum(len(one.y) * float(found.measures[name]["mean loss"]) for name, one in owners.items())
    assert 2 * loss == pytest.approx(reference.deviance, rel=1e-9)


def test_cox_from_tables_is_that_of_lifelines() -> None:
    lifelines = pytest.importorskip("lifelines")
    pandas = pytest.importorskip("pandas")
    X, y = table("cox")
    found = fp.fit(task_of("cox"), rows_by_owner(X, y), tol=1e-9, inference="model")
    frame = pandas.DataFrame(X, columns=COLUMNS).assign(time=y[:, 0], seen=y[:, 1], owner=OWNER)
    fitter = lifelines.CoxPHFitter(strata=["owner"])
    reference = fitter.fit(frame, "time", "seen", fit_options={"precision": 1e-14}).summary
    summary = found.summary()
    np.testing.assert_allclose([one.estimate for one in summary.coefficients], reference["coef"], rtol=1e-8)
    np.testing.assert_allclose([one.se for one in summary.coefficients], reference["se(coef)"], rtol=1e-8)
    ratios = summary.ratios()
    np.testing.assert_allclose([one.estimate for one in ratios.coefficients], reference["exp(coef)"], rtol=1e-8)
    np.testing.assert_allclose([one.low for one in ratios.coefficients], reference["exp(coef) lower 95%"], rtol=1e-6)


def pooled_cox(
    X: np.ndarray, y: np.ndarray, most: float, loss_at: int, limit: float
) -> tuple[np.ndarray, float, float]:
    """w, price of the coefficient's bound, price of the loss bound, by a conic solver on all rows (no ties)."""
    cp = pytest.importorskip("cvxpy")
    w = cp.Variable(3)
    losses = []
    for i in range(len(SIZES)):
        own = i == OWNER
        score = X[own] @ w
        terms = []
        for t, row in zip(y[own, 0], range(int(own.sum())), strict=True):
            if y[own][row, 1]:
                terms.append(cp.log_sum_exp(score[np.flatnonzero(y[own, 0] >= t)]) - score[row])
        losses.append(cp.sum(cp.hstack(terms)) / int(own.sum()))
    total = sum(size / OWNER.size * loss for size, loss in zip(SIZES, losses, strict=True))
    bounds = [w[0] <= most, losses[loss_at] <= limit]
    problem = cp.Problem(cp.Minimize(total), bounds)
    problem.solve("CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return np.asarray(w.value), float(bounds[0].dual_value), float(bounds[1].dual_value)


def test_cox_under_a_coefficient_bound_and_a_loss_bound_at_one_owner_is_the_pooled_optimum() -> None:
    X, y = table("cox")
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    most = {"dose": {"at_most": 0.4}}
    free = fp.fit(task_of("cox", standardize=False, coefficients=most), rows_by_owner(X, y), tol=1e-9)
    limit = float(free.measures["clinic 0"]["mean loss"]) - 0.005
    task = task_of("cox", standardize=False, max_loss={"clinic 0": limit}, coefficients=most)
    found = fp.fit(task, rows_by_owner(X, y), tol=1e-9, inference="sandwich")
    assert found.solved
    w, price_of_bound, price_of_loss = pooled_cox(X, y, 0.4, 0, limit)
    np.testing.assert_allclose(found.solution.w, w, atol=1e-6)
    assert found.prices["server"][0] == pytest.approx(price_of_bound, abs=1e-6)
    assert found.prices["clinic 0"][0] == pytest.approx(price_of_loss, abs=1e-6)
    assert min(price_of_bound, price_of_loss) > 0.01
    summary = found.summary()
    assert summary["dose"].se == 0
    assert summary["clinic 0: mean loss"].se > 0
    # The loss bound is so close to the least loss of 0's rows that the other price follows it in no straight line.
    assert np.isnan(summary["server: coefficient of dose"].se)
    assert any("no standard error of" in note and "coefficient of dose" in note for note in summary.notes)


def test_prices_of_coefficients_are_in_the_units_of_the_columns() -> None:
    X, y = table("squared")
    least = {"age": {"at_least": 0.01}}
    scaled = fp.fit(task_of("squared", coefficients=least), rows_by_owner(X, y), tol=1e-9, inference="sandwich")
    plain = fp.fit(
        task_of("squared", coefficients=least, standardize=False), rows_by_owner(X, y), tol=1e-9, inference="sandwich"
    )
    for one, other in zip(scaled.summary().coefficients, plain.summary().coefficients, strict=True):
        assert one.se == pytest.approx(other.se, rel=1e-5, abs=1e-12)
    (one,) = scaled.summary().prices
    (other,) = plain.summary().prices
    assert one.name == other.name == "server: minus the coefficient of age"
    assert one.estimate == pytest.approx(other.estimate, rel=1e-5)
    assert one.se == pytest.approx(other.se, rel=1e-5)


def test_constraints_on_groups_know_which_rows_they_are_about() -> None:
    """Objective and constraints of one row vary together, so each must know the numbers of its rows."""
    X, y = table("squared")
    group = (np.arange(len(y)) % 3 == 0).astype(int)
    task = task_of("squared", group="sex", max_mean_error=0.2, max_gap=0.1, standardize=False, owners_weigh="equal")
    share = task.among(["clinic 0"]).share("clinic 0", Rows(X, y, group))
    rows = share.constraint.function.contributions(np.zeros(4))  # type: ignore[union-attr]
    numbers = [[one.numbers.tolist() for one in part] for part in rows]
    first = np.flatnonzero(group == 0).tolist()
    second = np.flatnonzero(group == 1).tolist()
    assert numbers == [[first], [first], [second], [second], [second, first], [second, first]]


def test_classifiers_have_a_table_and_smoothed_rates_say_that_they_have_none() -> None:
    X, y = table("logistic")
    classifier = fp.NeymanPearsonClassifier(bound=0.5, regularization=0.0, tol=1e-8, inference="sandwich")
    classifier.fit(X, y, client=OWNER)
    summary = classifier.summary()
    np.testing.assert_allclose([one.estimate for one in summary.coefficients[:3]], classifier.coef_[0], rtol=1e-9)
    assert all(one.se > 0 for one in summary.coefficients)
    assert "estimate" in str(summary)
    assert "<table>" in summary._repr_html_()
    counted = fp.NeymanPearsonClassifier(min_recall=0.8, inference="sandwich").fit(X, y, client=OWNER)
    assert any("smoothed rates" in note for note in counted.summary().notes)


def test_tables_are_saved_and_read(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = table("squared")
    summary = fp.fit(task_of("squared"), rows_by_owner(X, y), tol=1e-8, inference="sandwich").summary(level=0.9)
    summary.to_csv(tmp_path / "table.csv")
    read = pandas.read_csv(tmp_path / "table.csv").set_index("name")
    pandas.testing.assert_frame_equal(read, summary.to_frame())
    wide = fp.fit(task_of("squared"), rows_by_owner(X, y), tol=1e-8, inference="sandwich").summary()
    assert wide["dose"].low < summary["dose"].low


@pytest.mark.parametrize(
    ("about", "code"),
    [
        ({"family": "cox"}, "FP-OPTION-989"),
        ({"family": "cox", "event": "seen", "max_gap": 0.1, "group": "sex"}, "FP-OPTION-988"),
        ({"family": "cox", "event": "seen", "ties": "exact"}, "FP-OPTION-990"),
        ({"family": "logistic", "max_mean_error": 0.1}, "FP-OPTION-988"),
        ({"event": "seen"}, "FP-OPTION-987"),
    ],
)
def test_what_a_family_has_no_use_for_is_refused(about: dict[str, object], code: str) -> None:
    with pytest.raises(FedpactError) as caught:
        Regression(label="(y)", columns=COLUMNS, **about)  # type: ignore[arg-type]
    assert caught.value.code == code


def test_fits_without_standard_errors_say_how_to_ask_for_them() -> None:
    X, y = table("squared")
    with pytest.raises(FedpactError) as caught:
        fp.fit(task_of("squared"), rows_by_owner(X, y)).summary()
    assert caught.value.code == "FP-OPTION-991"
    with pytest.raises(FedpactError) as caught:
        fp.fit(task_of("squared"), rows_by_owner(X, y), inference="bayes")
    assert caught.value.code == "FP-OPTION-992"


def nearly_collinear() -> tuple[np.ndarray, np.ndarray]:
    """An independent column beside a weight in kilograms and the same in pounds, rounded to the second digit."""
    draw = np.random.default_rng(0)
    dose, kg = draw.standard_normal(2000), draw.normal(80, 12, 2000)
    return np.column_stack([dose, kg, np.round(kg * 2.20462, 2)]), 0.3 * dose + draw.standard_normal(2000)


@pytest.mark.parametrize("family", ["squared", "logistic"])
@pytest.mark.parametrize(("kind", "cov_type"), [("model", "nonrobust"), ("hc0", "HC0")])
def test_a_column_beside_two_collinear_ones_has_the_error_of_statsmodels(family: str, kind: str, cov_type: str) -> None:
    sm = pytest.importorskip("statsmodels.api")
    X, y = nearly_collinear()
    y = y if family == "squared" else (y > 0).astype(float)
    owners = {f"clinic {i}": Rows(X[i::4], y[i::4]) for i in range(4)}
    task = task_of(family)
    summary = fp.fit(task, owners, tol=1e-10, inference=kind).summary()
    centred = np.column_stack([X - X.mean(axis=0), np.ones(len(X))])
    model, options = (sm.OLS, {}) if family == "squared" else (sm.Logit, {"disp": 0, "method": "newton"})
    reference = model(y, centred).fit(cov_type=cov_type, **options)
    assert summary["dose"].se == pytest.approx(reference.bse[0], rel=1e-5)
    assert summary["dose"].p == pytest.approx(reference.pvalues[0], rel=1e-3)
    assert summary["age"].se == pytest.approx(reference.bse[1], rel=1e-3)
    # Not even a bound that fixes one of the two takes the error of the third away, and what it fixes has none.
    task = task_of(family, coefficients={"age": {"at_least": 1.0}})
    summary = fp.fit(task, owners, tol=1e-8, inference=kind).summary()
    assert summary["age"].se == 0
    assert summary["dose"].se == pytest.approx(reference.bse[0], rel=0.05)


@pytest.mark.parametrize("kind", ["model", "sandwich", "hc0"])
@pytest.mark.parametrize("tol", [1e-5, 1e-8])
def test_a_separated_column_has_no_p_and_the_others_keep_theirs(kind: str, tol: float) -> None:
    """A rare level that always has the label: its best coefficient is infinite, the others are those without it."""
    sm = pytest.importorskip("statsmodels.api")
    draw = np.random.default_rng(0)
    dose = draw.standard_normal(1200)
    rare = (np.arange(1200) % 20 == 0).astype(float)
    y = ((dose + draw.logistic(size=1200) > 0) | (rare > 0)).astype(float)
    X = np.column_stack([dose, rare])
    owners = {f"clinic {i}": Rows(X[i::3], y[i::3]) for i in range(3)}
    task = Regression(
        label="y",
        columns=("dose", "rare"),
        family="logistic",
        regularization=0.0,
        owners_weigh="rows",
        standardize=True,
    )
    summary = fp.fit(task, owners, tol=tol, inference=kind).summary()
    assert np.isnan([summary["rare"].se, summary["rare"].p, summary["rare"].low]).all()
    assert any("no standard error of rare" in note for note in summary.notes)
    rest = rare == 0
    reference = sm.Logit(y[rest], np.column_stack([dose, np.ones(1200)])[rest]).fit(disp=0)
    for k, name in enumerate(("dose", "intercept")):
        assert summary[name].se == pytest.approx(reference.bse[k], rel=0.1)


# ---------------------------------------------------------------------------------------------------------- disclosure


def policy(**more: object) -> SitePolicy:
    about = {"features": COLUMNS, "labels": ("(y)", "seen"), "tasks": ("regression",), **more}
    return SitePolicy(name="clinic 0", data=Path("t"), state=Path("s"), key=Path("k"), **about)  # type: ignore[arg-type]


def test_a_column_of_events_is_used_only_where_the_site_allows_it_as_a_label() -> None:
    task = task_of("cox").stated()
    check(policy(), ABOUT_TASK, task)
    with pytest.raises(FedpactError) as caught:
        check(policy(labels=("(y)",)), ABOUT_TASK, task)
    assert caught.value.code == "FP-REFUSED-022"


def test_too_few_events_are_refused_and_not_told() -> None:
    X, y = table("cox")
    y[:, 1] = np.arange(len(y)) < 3
    task = task_of("cox", standardize=False, owners_weigh="equal")
    with pytest.raises(FedpactError) as caught:
        check(policy(), ABOUT_TABLE, task.count(Rows(X, y)))
    assert caught.value.code == "FP-REFUSED-031"
    share = task.among(["clinic 0"]).share("clinic 0", Rows(X, y))
    told = share.measures(np.zeros(3))  # type: ignore[union-attr]
    assert {name: one.cell for name, one in told.items()} == {"rows": len(y), "events": 3, "mean loss": 3}


def test_equal_effects_are_those_of_the_sum_of_the_columns() -> None:
    """In the units of the columns, whatever their scales: one coefficient for the sum of two columns."""
    sm = pytest.importorskip("statsmodels.api")
    X, y = table("logistic")
    task = task_of("logistic", equal={"both": ["dose", "load"]}, coefficients={"age": {"at_most": 5.0}})
    found = fp.fit(task, rows_by_owner(X, y), tol=1e-9, inference="hc0")
    assert found.solved
    together = np.column_stack([X[:, 0] + X[:, 2], X[:, 1], np.ones(len(X))])
    reference = sm.Logit(y, together).fit(cov_type="HC0", disp=0, tol=1e-14)
    summary = found.summary()
    for name, k in (("dose", 0), ("load", 0), ("age", 1), ("intercept", 2)):
        assert summary[name].estimate == pytest.approx(reference.params[k], rel=1e-6)
        assert summary[name].se == pytest.approx(reference.bse[k], rel=1e-6)
    with pytest.raises(FedpactError) as caught:
        task_of("squared", equal={"both": ["dose", "dose"]})
    assert caught.value.code == "FP-OPTION-994"


def three_classes() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(8)
    X, _ = table("squared")
    scores = np.column_stack([np.zeros(len(X)), 0.5 * X[:, 0] - 0.3, 20 * X[:, 2] - 2])
    return X, np.argmax(scores + draw.gumbel(size=scores.shape), axis=1)


@pytest.mark.parametrize(("kind", "cov_type"), [("model", "nonrobust"), ("hc0", "HC0")])
def test_several_classes_are_those_of_statsmodels_against_the_first(kind: str, cov_type: str) -> None:
    sm = pytest.importorskip("statsmodels.api")
    X, y = three_classes()
    task = fp.tasks.Classification(
        label="y", columns=COLUMNS, classes=("a", "b", "c"), standardize=True, regularization=0.0, owners_weigh="rows"
    )
    summary = fp.fit(task, rows_by_owner(X, y), tol=1e-9, inference=kind).summary()
    reference = sm.MNLogit(y, np.column_stack([X, np.ones(len(X))])).fit(
        method="newton", cov_type=cov_type, disp=0, tol=1e-14, maxiter=100
    )
    names = [f"{level} against a: {column}" for level in "bc" for column in (*COLUMNS, "intercept")]
    assert [one.name for one in summary.coefficients] == names
    found = np.array([(one.estimate, one.se) for one in summary.coefficients])
    np.testing.assert_allclose(found[:, 0], np.asarray(reference.params).T.ravel(), rtol=1e-8)
    np.testing.assert_allclose(found[:, 1], np.asarray(reference.bse).T.ravel(), rtol=1e-8)
    assert summary.notes == ()


def test_several_classes_under_a_loss_bound_have_standard_errors_of_the_bootstrap() -> None:
    X, y = three_classes()
    asked = ({"kind": "loss", "of": "c", "at_most": 0.6, "held_by": "all"},)
    task = fp.tasks.Classification(
        label="y", columns=COLUMNS, classes=("a", "b", "c"), constraints=asked, standardize=True, owners_weigh="rows"
    )
    owners = rows_by_owner(X, y)
    drawn, known = (fp.fit(task, owners, tol=1e-6, inference=kind).summary() for kind in ("bootstrap", "sandwich"))
    assert len(known.prices) == 1
    for one, other in zip((*drawn.coefficients, *drawn.prices), (*known.coefficients, *known.prices), strict=True):
        assert one.name == other.name
        assert one.se == pytest.approx(other.se, rel=0.35)


@pytest.mark.slow
def test_the_bootstrap_agrees_with_the_sandwich_where_both_hold() -> None:
    """Under a bound that binds strongly: a hundred draws know a standard error to about 7 %."""
    X, y = table("squared")
    task = task_of("squared", coefficients={"age": {"at_least": 0.0}})
    drawn = fp.fit(task, rows_by_owner(X, y), tol=1e-6, inference="bootstrap").summary()
    known = fp.fit(task, rows_by_owner(X, y), tol=1e-8, inference="sandwich").summary()
    for one, other in zip((*drawn.coefficients, *drawn.prices), (*known.coefficients, *known.prices), strict=True):
        assert one.name == other.name
        assert one.se == pytest.approx(other.se, rel=0.3, abs=1e-6)
    assert drawn["dose"].low < drawn["dose"].estimate < drawn["dose"].high


def test_a_bootstrap_is_the_same_again_and_covers_an_l1_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedpact.fitting.bootstrap.REPETITIONS", 5)
    X, y = table("logistic")
    task = task_of("logistic", l1=0.01)
    first, second = (fp.fit(task, rows_by_owner(X, y), tol=1e-6, inference="bootstrap").summary() for _ in range(2))
    assert first == second
    assert first["dose"].low < first["dose"].high


def test_a_bootstrap_is_of_regressions_and_classifiers() -> None:
    X, y = table("logistic")
    task = fp.tasks.Minimax(label="(y)", columns=COLUMNS)
    with pytest.raises(FedpactError) as caught:
        fp.fit(task, rows_by_owner(X, y.astype(int)), inference="bootstrap")
    assert caught.value.code == "FP-OPTION-995"


def test_the_bootstrap_of_a_classifier_agrees_with_the_sandwich_under_a_mean_loss() -> None:
    """A bound on the mean loss of a class that binds at one owner; 100 draws know a standard error to about 7 %."""
    X, y = table("logistic")
    bounds = {"clinic 0": 9.0, "clinic 1": 9.0, "clinic 2": 0.45}
    task = fp.tasks.NeymanPearson(label="y", columns=COLUMNS, bound=bounds, standardize=True, regularization=0.0)
    owners = rows_by_owner(X, y.astype(int))
    drawn, known = (fp.fit(task, owners, tol=1e-6, inference=kind).summary() for kind in ("bootstrap", "sandwich"))
    assert len(known.prices) == 1
    assert not known.notes
    for one, other in zip((*drawn.coefficients, *drawn.prices), (*known.coefficients, *known.prices), strict=True):
        assert one.name == other.name
        assert one.se == pytest.approx(other.se, rel=0.3)


def one_column(rows: int, seed: int) -> dict[str, Rows]:
    """A column that is normal in either class, with means 0 and 1.5."""
    draw = np.random.default_rng(seed)
    y = (draw.random(rows) < 0.5).astype(int)
    return {"clinic": Rows(draw.standard_normal((rows, 1)) + 1.5 * y[:, None], y)}


@pytest.mark.parametrize("objective", ["loss", "errors"])
def test_the_threshold_under_a_recall_moves_as_a_quantile_does(objective: str) -> None:
    """With one column a recall of 0.9 sets the threshold at the lower decile of a class.

    Its standard error is sqrt(0.9 * 0.1 / rows) / density there, in closed form.
    """
    owners = one_column(2000, seed=3)
    about = {"constraints": ({"kind": "recall", "at_least": 0.9},), "regularization": 1e-4, "objective": objective}
    found = fp.fit(fp.tasks.Classification(label="y", columns=("x",), **about), owners, inference="bootstrap")
    assert found.inference is not None
    assert found.inference.draws is not None
    slope, intercept = found.inference.draws[:, :2].T
    ill = int(owners["clinic"].y.sum())
    expected = np.sqrt(0.9 * 0.1 / ill) / stats.norm.pdf(stats.norm.ppf(0.1))
    assert np.std(-intercept / slope, ddof=1) == pytest.approx(expected, rel=0.25)
    recall = found.summary()["recall"]
    assert recall.estimate == found.measures["clinic"]["recall"]
    assert recall.se == pytest.approx(np.sqrt(0.9 * 0.1 / ill), rel=0.25)


def test_a_bootstrap_is_the_same_with_secure_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a loss that all owners bound together, whose rows every draw weighs anew, and a gap between groups."""
    monkeypatch.setattr("fedpact.fitting.bootstrap.REPETITIONS", 4)
    X, y = table("logistic")
    group = (np.arange(len(y)) // 3) % 2
    owners = {
        f"clinic {i}": Rows(X[i == OWNER], y[i == OWNER].astype(int), group[i == OWNER]) for i in range(len(SIZES))
    }
    asked = (
        {"kind": "loss", "of": "1", "at_most": 0.4, "held_by": "all"},
        {"kind": "loss", "gap": True, "at_most": 0.3},
    )
    task = fp.tasks.Classification(
        label="y", columns=COLUMNS, group="sex", constraints=asked, standardize=True, regularization=1e-3
    )
    tables = []
    for secure in (False, True):
        with fp.Session(secure_sum=secure) as session:
            tables.append(fp.fit(task, owners, session, inference="bootstrap").summary())
    for one, other in zip(tables[0].coefficients, tables[1].coefficients, strict=True):
        assert one.se == pytest.approx(other.se, rel=1e-3)
        assert one.se > 0
    assert {row.split(",")[0] for row in tables[0].to_csv().splitlines()} == {"kind", "coefficient", "price", "rate"}
