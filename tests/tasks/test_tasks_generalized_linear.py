"""Regression over several owners beside scikit-learn, SciPy and CVXPY on the pooled rows, prices included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from raising import raises_code
from scipy.optimize import minimize
from sklearn.linear_model import ElasticNet, PoissonRegressor, Ridge

import fedpact as fp
from fedpact.fitting import Fit, fit
from fedpact.jobs.running import list_bounded
from fedpact.tasks import NeymanPearson, Regression, Rows
from fedpact.tasks.base import Bounded
from fedpact.tasks.weights import effective_rows, row_weights

NAMES = ("north", "south", "west")
COLUMNS = ("age", "dose", "weight")
TRUE = np.array([0.5, -0.3, 0.2])


def made(seed: int = 0, sizes: tuple[int, ...] = (40, 60, 80)) -> dict[str, Rows]:
    """Owners of different sizes, whose columns have different units; the label is a number."""
    rng = np.random.default_rng(seed)
    units = np.array([10.0, 1.0, 0.1])
    owners = {}
    for name, size in zip(NAMES, sizes, strict=True):
        Z = rng.normal(size=(size, 3))
        group = rng.integers(0, 2, size)
        y = Z @ TRUE + 0.4 * group + 1.0 + 0.5 * rng.standard_t(3, size)
        owners[name] = Rows(Z * units + [50.0, 2.0, 0.0], y, group, rng.uniform(0.5, 2.0, size))
    return owners


def counted(owners: Mapping[str, Rows]) -> dict[str, Rows]:
    """The same people with counts for labels, and logarithms of exposures."""
    rng = np.random.default_rng(5)
    found = {}
    for name, rows in owners.items():
        offset = np.log(rng.uniform(0.5, 3.0, len(rows.y)))
        mean = np.exp(0.4 * (rows.X - [50.0, 2.0, 0.0]) / [10.0, 1.0, 0.1] @ TRUE + offset)
        found[name] = Rows(rows.X, rng.poisson(mean).astype(float), rows.group, None, offset)
    return found


NUMBERS = {name: Rows(rows.X, rows.y, rows.group) for name, rows in made().items()}
WEIGHTED = {name: Rows(rows.X, rows.y, None, rows.weight) for name, rows in made().items()}
COUNTS = counted(made())


def trained(owners: Mapping[str, Rows], tol: float = 1e-9, **asked: Any) -> Fit:
    about = {"columns": COLUMNS, "label": "y", "owners": len(owners), "regularization": 0.0, **asked}
    found = fit(Regression(**about), owners, tol=tol)
    assert found.solved, found.solution.reason
    return found


def pooled(owners: Mapping[str, Rows]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All rows, their labels, and weights in the objective with which every owner counts the same; they sum to one."""
    X = np.vstack([rows.X for rows in owners.values()])
    y = np.concatenate([rows.y for rows in owners.values()])
    share = np.concatenate([np.full(len(rows.y), 1 / (len(owners) * len(rows.y))) for rows in owners.values()])
    return X, y, share


def standardized(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def predicted(found: Fit, X: np.ndarray, offset: np.ndarray | None = None) -> np.ndarray:
    model = found.model
    assert isinstance(model, fp.tasks.RegressionModel)
    return model.predict(X, offset)


# ---------------------------------------------------------------------------------------------- without constraints


def test_ridge_regression_is_that_of_sklearn() -> None:
    X, y, share = pooled(NUMBERS)
    theirs = Ridge(alpha=0.3, tol=1e-12).fit(standardized(X), y, sample_weight=share)
    ours = trained(NUMBERS, regularization=0.3, standardize=True)
    np.testing.assert_allclose(ours.solution.w[:3], theirs.coef_, atol=1e-8)
    np.testing.assert_allclose(predicted(ours, X), theirs.predict(standardized(X)), atol=1e-8)


def test_owners_that_weigh_by_rows_give_the_model_of_all_rows() -> None:
    """Ordinary least squares, with no owner in sight."""
    X, y, _ = pooled(NUMBERS)
    expected, *_ = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)
    ours = trained(NUMBERS, owners_weigh="rows")
    np.testing.assert_allclose(ours.solution.w, expected, rtol=1e-7)
    assert ours.task.total_rows == 180  # type: ignore[attr-defined]
    assert ours.solution.objective == pytest.approx(np.mean((X @ expected[:3] + expected[3] - y) ** 2) / 2, rel=1e-9)


def test_weights_of_rows_count_at_their_owner_and_among_owners() -> None:
    X, y, _ = pooled(WEIGHTED)
    weight = np.concatenate([rows.weight for rows in WEIGHTED.values()])
    theirs = Ridge(alpha=0.2 * weight.sum(), tol=1e-12).fit(standardized(X), y, sample_weight=weight)
    ours = trained(WEIGHTED, owners_weigh="rows", regularization=0.2, standardize=True)
    np.testing.assert_allclose(predicted(ours, X), theirs.predict(standardized(X)), atol=1e-8)


def test_weights_of_owners_are_those_of_a_table() -> None:
    X, y, _ = pooled(NUMBERS)
    stated = {"north": 2.0, "south": 1.0, "west": 5.0}
    share = np.concatenate([np.full(len(rows.y), stated[name] / 8 / len(rows.y)) for name, rows in NUMBERS.items()])
    theirs = Ridge(alpha=0.3, tol=1e-12).fit(standardized(X), y, sample_weight=share)
    ours = trained(NUMBERS, owners_weigh=stated, regularization=0.3, standardize=True)
    np.testing.assert_allclose(ours.solution.w[:3], theirs.coef_, atol=1e-8)


@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_elastic_net_and_lasso_are_those_of_sklearn(l2: float) -> None:
    X, y, _ = pooled(NUMBERS)
    alpha = 0.25 + l2
    theirs = ElasticNet(alpha=alpha, l1_ratio=0.25 / alpha, tol=1e-14, max_iter=100_000).fit(standardized(X), y)
    ours = trained(NUMBERS, owners_weigh="rows", l1=0.25, regularization=l2, standardize=True)
    np.testing.assert_allclose(ours.solution.w[:3], theirs.coef_, atol=1e-7)
    assert np.sum(theirs.coef_ == 0) > 0  # so that the test is about the corner too
    np.testing.assert_array_equal(ours.solution.w[:3] == 0, theirs.coef_ == 0)


def test_poisson_regression_is_that_of_sklearn() -> None:
    """Exposures as an offset of the score are, for scikit-learn, weights of rates."""
    X, y, share = pooled(COUNTS)
    exposure = np.exp(np.concatenate([rows.offset for rows in COUNTS.values()]))
    theirs = PoissonRegressor(alpha=0.05, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    weight = share * exposure
    theirs.set_params(alpha=0.05 / weight.sum()).fit(standardized(X), y / exposure, sample_weight=weight)
    ours = trained(COUNTS, family="poisson", regularization=0.05, standardize=True, offset="log_years")
    np.testing.assert_allclose(ours.solution.w[:3], theirs.coef_, atol=1e-7)
    np.testing.assert_allclose(
        predicted(ours, X, np.log(exposure)), theirs.predict(standardized(X)) * exposure, rtol=1e-6
    )


def test_huber_regression_is_the_minimum_that_scipy_finds() -> None:
    X, y, share = pooled(NUMBERS)
    Z = np.column_stack([standardized(X), np.ones(len(X))])

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        error = Z @ w - y
        small = np.abs(error) <= 0.4
        loss = np.where(small, error**2 / 2, 0.4 * (np.abs(error) - 0.2))
        slope = np.where(small, error, 0.4 * np.sign(error))
        return float(share @ loss + 0.1 * w[:3] @ w[:3] / 2), Z.T @ (share * slope) + 0.1 * np.append(w[:3], 0.0)

    best = minimize(objective, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-11})
    ours = trained(NUMBERS, family="huber", delta=0.4, regularization=0.1, standardize=True)
    np.testing.assert_allclose(ours.solution.w, best.x, atol=1e-6)
    assert ours.solution.objective == pytest.approx(best.fun, rel=1e-10)


# ---------------------------------------------------------------------------------------------- with constraints


class Pooled:
    """The convex problem in one place: CVXPY's variables are the coefficients in the units of the columns."""

    def __init__(self, owners: Mapping[str, Rows], family: str = "squared", weight: float = 0.0) -> None:
        X, _, _ = pooled(owners)
        self.owners = owners
        self.family = family
        self.v = cp.Variable(X.shape[1])
        self.c = cp.Variable()
        self.penalty = weight / 2 * cp.sum_squares(cp.multiply(X.std(axis=0), self.v))
        self.constraints: list[cp.Constraint] = []

    def score(self, rows: Rows, inside: np.ndarray | slice = slice(None)) -> cp.Expression:
        score = rows.X[inside] @ self.v + self.c
        return score if rows.offset is None else score + rows.offset[inside]

    def loss(self, rows: Rows) -> cp.Expression:
        score = self.score(rows)
        if self.family == "squared":
            return cp.sum_squares(score - rows.y) / (2 * len(rows.y))
        positive = rows.y[rows.y > 0]
        least = np.sum(positive - positive * np.log(positive))
        return (cp.sum(cp.exp(score) - cp.multiply(rows.y, score)) - least) / len(rows.y)

    def error(self, rows: Rows, inside: np.ndarray | slice = slice(None)) -> cp.Expression:
        return cp.sum(self.score(rows, inside) - rows.y[inside]) / rows.y[inside].size

    def require(self, constraint: cp.Constraint) -> None:
        self.constraints.append(constraint)

    def solve(self) -> tuple[np.ndarray, list[float], float]:
        """Coefficients with the intercept last, the prices, and the objective."""
        losses = [self.loss(rows) for rows in self.owners.values()]
        objective = sum(losses) / len(losses) + self.penalty
        problem = cp.Problem(cp.Minimize(objective), self.constraints)
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
        prices = [float(np.squeeze(one.dual_value)) for one in self.constraints]
        return np.append(self.v.value, self.c.value), prices, float(problem.value)


def agrees(found: Fit, theirs: Pooled, rtol: float = 1e-5) -> list[float]:
    """The model, the objective and all prices are those of the pooled problem; the prices."""
    w, prices, value = theirs.solve()
    model = found.model
    assert model is not None
    np.testing.assert_allclose(np.append(model.coefficients, model.intercept), w, rtol=rtol, atol=1e-6)
    assert found.solution.objective == pytest.approx(value, rel=1e-7)
    told = [one.price for one in bounded(found)]
    np.testing.assert_allclose(told, prices, rtol=1e-4, atol=1e-6)
    return prices


def bounded(found: Fit) -> list[Bounded]:
    return list(list_bounded(found))


@pytest.mark.parametrize("standardize", [True, False])
def test_signs_and_bounds_of_coefficients_and_their_prices(standardize: bool) -> None:
    asked = {"dose": {"at_least": 0.0}, "age": {"at_most": 0.03, "at_least": -1.0}}
    owners = NUMBERS
    if not standardize:  # units that are alike, so that the same tolerance means the same
        owners = {name: Rows(standardized(rows.X), rows.y) for name, rows in NUMBERS.items()}
        asked["age"]["at_most"] = 0.3
    found = trained(owners, coefficients=asked, standardize=standardize)
    theirs = Pooled(owners)
    theirs.require(theirs.v[1] >= 0.0)
    theirs.require(theirs.v[0] <= asked["age"]["at_most"])
    theirs.require(theirs.v[0] >= -1.0)
    prices = agrees(found, theirs)
    assert prices[0] > 0.01
    assert prices[1] > 0.01
    lower, upper, slack = bounded(found)
    assert (lower.owner, lower.what, lower.bound) == ("server", "minus the coefficient of dose", 0.0)
    assert upper.value == pytest.approx(upper.bound, abs=1e-7)
    assert slack.slack > 0.5


def test_mean_errors_by_group_are_bounded_at_every_owner() -> None:
    found = trained(NUMBERS, max_mean_error=0.15, group="g", standardize=True, regularization=0.1)
    theirs = Pooled(NUMBERS, weight=0.1)
    for rows in NUMBERS.values():
        for g in (0, 1):
            theirs.require(cp.abs(theirs.error(rows, rows.group == g)) <= 0.15)
    prices = agrees(found, theirs)
    assert sum(price > 1e-4 for price in prices) >= 2
    for one, rows in zip(bounded(found)[::2], NUMBERS.values(), strict=True):
        own = rows.group == 0
        error = predicted(found, rows.X[own]) - rows.y[own]
        assert one.value == pytest.approx(abs(error.mean()), abs=1e-9)
        assert found.measures[one.owner]["mean error of group 0"] == pytest.approx(error.mean(), abs=1e-9)


def test_the_mean_loss_is_bounded_with_one_bound_for_each_owner() -> None:
    limits = {"north": 0.9, "south": 0.9, "west": 0.3}
    free = trained(NUMBERS).measures["west"]["mean loss"]
    alone = trained({"west": NUMBERS["west"]}).measures["west"]["mean loss"]
    limits["west"] = (free + alone) / 2
    found = trained(NUMBERS, max_loss=limits, standardize=True)
    theirs = Pooled(NUMBERS)
    for name, rows in NUMBERS.items():
        theirs.require(theirs.loss(rows) <= limits[name])
    prices = agrees(found, theirs, rtol=1e-4)
    assert prices[2] > 1e-3
    assert found.measures["west"]["mean loss"] == pytest.approx(limits["west"], rel=1e-7)


def test_counts_with_bounded_deviance_and_a_sign() -> None:
    about: dict[str, Any] = {"family": "poisson", "offset": "log_years", "standardize": True}
    about["monotone"] = {"dose": "increasing"}
    free = trained(COUNTS, **about).measures["north"]["mean loss"]
    alone = trained({"north": COUNTS["north"]}, **about).measures["north"]["mean loss"]
    limits = {"north": (free + alone) / 2, "south": 2.0, "west": 2.0}
    found = trained(COUNTS, max_loss=limits, regularization=0.01, **about)
    theirs = Pooled(COUNTS, "poisson", 0.01)
    theirs.require(theirs.v[1] >= 0)
    for name, rows in COUNTS.items():
        theirs.require(theirs.loss(rows) <= limits[name])
    prices = agrees(found, theirs, rtol=1e-4)
    assert prices[0] > 1e-3
    assert prices[1] > 1e-3


def test_levels_of_a_category_are_in_order() -> None:
    rng = np.random.default_rng(2)
    owners, tables = {}, {}
    for name in NAMES:
        level = rng.integers(0, 4, 50)
        y = np.array([0.0, 0.8, 0.5, 1.0])[level] + 0.3 * rng.normal(size=50)  # the middle is the other way round
        tables[name] = Rows(np.eye(4)[level], y)
        owners[name] = Rows(np.eye(4)[level], y)
    task = {"columns": ("stage",), "categories": {"stage": ("I", "II", "III", "IV")}, "regularization": 0.05}
    found = trained(owners, monotone={"stage": "increasing"}, **task)
    theirs = Pooled(tables)
    theirs.penalty = 0.025 * cp.sum_squares(theirs.v)
    for k in range(3):
        theirs.require(theirs.v[k] <= theirs.v[k + 1])
    prices = agrees(found, theirs)
    assert [price > 1e-4 for price in prices] == [False, True, False]
    falling = trained({n: Rows(r.X, -r.y) for n, r in owners.items()}, monotone={"stage": "decreasing"}, **task)
    np.testing.assert_allclose(falling.solution.w, -found.solution.w, atol=1e-7)


def test_the_gap_in_mean_loss_between_groups_is_closed() -> None:
    """It is not convex, so the certificate is about stationarity: the gap is met, and costs something."""
    free = trained(NUMBERS, group="g", standardize=True)
    gaps = {}
    for name, rows in NUMBERS.items():
        half = (predicted(free, rows.X) - rows.y) ** 2 / 2
        gaps[name] = abs(half[rows.group == 1].mean() - half[rows.group == 0].mean())
    widest = max(gaps, key=lambda name: gaps[name])
    limits = dict.fromkeys(NAMES, 2.0)
    limits[widest] = 0.9 * gaps[widest]
    found = trained(NUMBERS, tol=1e-7, max_gap=limits, group="g", standardize=True)
    rows = NUMBERS[widest]
    half = (predicted(found, rows.X) - rows.y) ** 2 / 2
    gap = abs(half[rows.group == 1].mean() - half[rows.group == 0].mean())
    assert gap == pytest.approx(limits[widest], abs=1e-6)
    one = next(one for one in bounded(found) if one.owner == widest)
    assert one.price > 0
    # the price is what the objective gains by a little more room
    more = trained(NUMBERS, tol=1e-7, max_gap={**limits, widest: limits[widest] + 1e-4}, group="g", standardize=True)
    gained = found.solution.objective - more.solution.objective
    assert gained == pytest.approx(1e-4 * one.price, rel=0.02)


def test_mean_errors_of_counts_are_bounded_too() -> None:
    """Not convex; the values are checked by the predictions, and the price by what more room gains."""
    about: dict[str, Any] = {"family": "poisson", "standardize": True, "offset": "log_years", "tol": 1e-7}
    found = trained(COUNTS, max_mean_error=0.02, **about)
    for one, (name, rows) in zip(bounded(found), COUNTS.items(), strict=True):
        error = np.mean(predicted(found, rows.X, rows.offset) - rows.y)
        assert one.value == pytest.approx(abs(error), abs=1e-9)
        assert abs(error) <= 0.02 + 1e-6
        assert found.measures[name]["mean error"] == pytest.approx(error, abs=1e-9)
    more = trained(COUNTS, max_mean_error=0.02 + 1e-4, **about)
    gained = found.solution.objective - more.solution.objective
    assert gained == pytest.approx(1e-4 * sum(one.price for one in bounded(found)), rel=0.02)


# ---------------------------------------------------------------------------------------------- weights and bad input


def test_weights_of_classes_are_those_of_sklearn() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    y = np.array([0, 0, 0, 1, 2, 2])
    held = Rows(np.zeros((6, 1)), y)

    class Weighing(NeymanPearson):
        weighs_rows = True

    about: dict[str, Any] = {"columns": ("a",), "bound": 1.0, "classes": ("0", "1", "2")}
    assert row_weights(NeymanPearson(**about), held) is None
    balanced = row_weights(Weighing(**about, class_weight="balanced"), held)
    theirs = compute_class_weight("balanced", classes=np.arange(3), y=y)[y]
    np.testing.assert_allclose(balanced / balanced.sum(), theirs / theirs.sum())
    stated = row_weights(Weighing(**about, class_weight={"0": 1.0, "1": 3.0, "2": 2.0}), held)
    np.testing.assert_array_equal(stated, [1, 1, 1, 3, 2, 2])
    own = Rows(held.X, y, None, np.array([1.0, 2.0, 1.0, 1.0, 1.0, 0.0]))
    np.testing.assert_allclose(row_weights(Weighing(**about, class_weight="balanced"), own), [0.25, 0.5, 0.25, 1, 1, 0])


def test_a_weighted_mean_tells_of_as_many_rows_as_its_weights_carry() -> None:
    """A column that is 1 in one row and 0 in the others would tell of that row alone."""
    assert effective_rows(30, None) == 30
    assert effective_rows(30, np.full(30, 0.3)) == 30
    assert effective_rows(30, np.eye(30)[4]) == 1
    assert effective_rows(30, np.append(1.0, np.full(29, 1e-9))) == 1
    assert effective_rows(3, np.zeros(3)) == 0
    rows = NUMBERS["north"]
    task = Regression(columns=COLUMNS, label="y", owners=1, group="g")
    alone = Rows(rows.X, rows.y, rows.group, np.eye(40)[4])
    share = task.share("north", alone)
    assert isinstance(share, fp.Share)
    assert share.measures is not None
    told = share.measures(np.zeros(4))
    assert {name for name, one in told.items() if one.cell > 1} == {"rows"}  # type: ignore[attr-defined]
    assert task.count(alone).rows == 1
    assert max(task.count(alone).groups) == 1


def test_owners_agree_on_their_rows_in_secret() -> None:
    pytest.importorskip("cryptography", reason="needs the extra 'secure'")
    task = Regression(columns=COLUMNS, label="y", owners=3, owners_weigh="rows", standardize=True)
    with fp.Session(secure_sum=True) as session:
        found = fit(task, NUMBERS, session)
    here = fit(task, NUMBERS)
    assert found.solved
    np.testing.assert_allclose(found.solution.w, here.solution.w, atol=1e-6)
    for one in found.communication.owners.values():
        assert "Weighed.total (masked)" in one.fields
        assert "Weighed.total" not in one.fields


GOOD: dict[str, Any] = {"columns": COLUMNS, "label": "y", "owners": 3}
MISUSES: list[tuple[dict[str, Any], str, str]] = [
    ({"family": "gamma"}, "FP-OPTION-718", "'gamma'"),
    ({"delta": 0.0}, "FP-OPTION-057", "delta"),
    ({"max_loss": -1.0}, "FP-OPTION-057", "max_loss"),
    ({"max_mean_error": {"north": 0.0}}, "FP-OPTION-057", "max_mean_error of owner 'north'"),
    ({"max_gap": 0.1}, "FP-OPTION-719", "group="),
    ({"coefficients": {"height": {"at_least": 0.0}}}, "FP-OPTION-715", "'height'"),
    ({"coefficients": {"age": {}}}, "FP-OPTION-716", "age"),
    ({"coefficients": {"age": {"least": 1.0}}}, "FP-OPTION-716", "age"),
    ({"coefficients": {"age": {"at_most": np.inf}}}, "FP-OPTION-716", "age"),
    ({"coefficients": {"age": {"at_least": 1.0, "at_most": 1.0}}}, "FP-OPTION-717", "age"),
    ({"monotone": {"height": "increasing"}}, "FP-OPTION-715", "'height'"),
    ({"monotone": {"age": "up"}}, "FP-OPTION-714", "'up'"),
    ({"l1": -0.1}, "FP-OPTION-033", "l1"),
    ({"owners_weigh": "size"}, "FP-OPTION-710", "'size'"),
    ({"owners_weigh": {"north": 0.0}}, "FP-OPTION-057", "owners_weigh of owner 'north'"),
    ({"offset": "age"}, "FP-OPTION-044", "'age'"),
    ({"sample_weight": "age"}, "FP-OPTION-044", "'age'"),
]


@pytest.mark.parametrize(("asked", "code", "fact"), MISUSES, ids=[str(asked) for asked, _, _ in MISUSES])
def test_misuse_is_told(asked: dict[str, Any], code: str, fact: str) -> None:
    with raises_code(code, "", fact):
        Regression(**GOOD, **asked)


def test_weights_of_classes_are_for_all_of_them() -> None:
    with raises_code("FP-OPTION-711", "", "0, 1"):
        NeymanPearson(**GOOD, bound=1.0, class_weight={"0": 1.0})


@pytest.mark.parametrize(
    ("y", "code"), [([1.0, 2.0], "FP-DATA-713"), ([1.0, np.nan, 2.0], "FP-DATA-713"), (["a", "b", "c"], "FP-DATA-712")]
)
def test_labels_that_are_no_numbers(y: list[Any], code: str) -> None:
    with raises_code(code, "owner 'north'"):
        Regression(**GOOD).share("north", Rows(np.ones((3, 3)), np.array(y)))


def test_a_group_without_rows_is_told() -> None:
    rows = NUMBERS["north"]
    for held in (
        Rows(rows.X, rows.y, np.zeros(40, dtype=int)),
        Rows(rows.X, rows.y, rows.group, (rows.group == 0).astype(float)),
    ):
        with raises_code("FP-DATA-047", "owner 'north'", "g = 1"):
            Regression(**GOOD, group="g", max_mean_error=0.1).share("north", held)
