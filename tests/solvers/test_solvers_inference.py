"""Standard errors of solutions against statsmodels and lifelines on pooled rows, and under constraints."""

from __future__ import annotations

import numpy as np
import pytest

import fedpact as fp
from fedpact.errors import FedpactError
from fedpact.solvers.equations import Inferred
from fedpact.solvers.inference import infer_solution
from fedpact.statistics import Summary

SIZES = (300, 500, 200)
ROWS = sum(SIZES)
OWNER = np.repeat(range(len(SIZES)), SIZES)
TRUE = np.array([0.4, -0.3, 0.2, 0.1])
NAMES = ["a", "b", "c", "const"]
LOSSES = {
    "linear": fp.functions.SquaredLoss,
    "logistic": fp.functions.LogisticLoss,
    "poisson": fp.functions.PoissonLoss,
}


def rows_of(family: str, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    X = np.column_stack([draw.standard_normal((ROWS, 3)) + 0.2 * OWNER[:, None], np.ones(ROWS)])
    score = X @ TRUE
    if family == "linear":
        return X, score + draw.standard_normal(ROWS)
    if family == "poisson":
        return X, draw.poisson(np.exp(score)).astype(float)
    return X, (draw.random(ROWS) < 1 / (1 + np.exp(-score))).astype(float)


def pooled(family: str, X: np.ndarray, y: np.ndarray, server: fp.Share | None = None) -> fp.FederatedProblem:
    """Every row counts the same, wherever it is."""
    shares = []
    for i, rows in enumerate(SIZES):
        own = i == OWNER
        shares.append(fp.Share(rows / ROWS * LOSSES[family](X[own], y[own]), name=f"clinic {i}"))
    return fp.FederatedProblem(shares, server)


def columns_of(summary: Summary) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    found = [(one.estimate, one.se, one.p, one.low) for one in summary.coefficients]
    return tuple(np.array(found).T)  # type: ignore[return-value]


@pytest.mark.parametrize("family", LOSSES)
@pytest.mark.parametrize(("covariance", "reference"), [("model", "nonrobust"), ("hc0", "HC0")])
def test_coefficients_errors_and_p_values_are_those_of_statsmodels_on_pooled_rows(
    family: str, covariance: str, reference: str
) -> None:
    sm = pytest.importorskip("statsmodels.api")
    X, y = rows_of(family)
    problem = pooled(family, X, y)
    with fp.Session() as session:
        answer = fp.solve(problem, tol=1e-9, session=session)
        summary = answer.summary(problem, NAMES, covariance=covariance, session=session)
        assert session.ledger.read().rounds <= 12
    model = {"linear": sm.OLS, "logistic": sm.Logit, "poisson": sm.Poisson}[family](y, X)
    options = {} if family == "linear" else {"disp": 0, "tol": 1e-14, "method": "newton"}
    found = model.fit(cov_type=reference, **options)
    estimate, se, p, low = columns_of(summary)
    assert answer.solved
    assert summary.notes == ()
    np.testing.assert_allclose(estimate, found.params, rtol=1e-8)
    np.testing.assert_allclose(se, found.bse, rtol=1e-8)
    np.testing.assert_allclose(p, found.pvalues, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(low, found.conf_int()[:, 0], rtol=1e-7)


def test_errors_clustered_by_owner_are_those_of_statsmodels() -> None:
    sm = pytest.importorskip("statsmodels.api")
    X, y = rows_of("logistic")
    answer = fp.solve(pooled("logistic", X, y), tol=1e-9)
    summary = answer.summary(pooled("logistic", X, y), covariance="clustered")
    found = sm.Logit(y, X).fit(cov_type="cluster", cov_kwds={"groups": OWNER}, disp=0, tol=1e-14)
    np.testing.assert_allclose(columns_of(summary)[1], found.bse, rtol=1e-7)
    assert any("few" in note for note in summary.notes)


def test_offsets_enter_the_errors_as_in_statsmodels() -> None:
    sm = pytest.importorskip("statsmodels.api")
    draw = np.random.default_rng(5)
    X = np.column_stack([draw.standard_normal((80, 2)), np.ones(80)])
    exposure = draw.uniform(0.5, 2.0, 80)
    y = draw.poisson(exposure * np.exp(X @ [0.4, -0.2, 0.3])).astype(float)
    problem = fp.FederatedProblem([fp.Share(fp.functions.PoissonLoss(X, y, offset=np.log(exposure)))])
    summary = fp.solve(problem, tol=1e-9).summary(problem, covariance="model")
    found = sm.Poisson(y, X, exposure=exposure).fit(disp=0, tol=1e-14)
    np.testing.assert_allclose(columns_of(summary)[1], found.bse, rtol=1e-8)


def cox_rows(tied: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(2)
    X = draw.standard_normal((ROWS, 3))
    time = draw.exponential(np.exp(-X @ [0.5, -0.4, 0.2]) * (1 + OWNER))
    if tied:
        time = np.ceil(4 * time)
    return X, time, (draw.random(ROWS) < 0.7).astype(float)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("covariance", ["model", "hc0"])
def test_cox_is_that_of_lifelines_stratified_by_owner(tied: bool, covariance: str) -> None:
    lifelines = pytest.importorskip("lifelines")
    pandas = pytest.importorskip("pandas")
    if tied and covariance == "hc0":
        pytest.skip("lifelines has the score residuals of Breslow's ties there")
    X, time, event = cox_rows(tied)
    shares = []
    for i, rows in enumerate(SIZES):
        own = i == OWNER
        shares.append(fp.Share(rows / ROWS * fp.functions.CoxLoss(X[own], time[own], event[own])))
    problem = fp.FederatedProblem(shares)
    with fp.Session() as session:
        summary = fp.solve(problem, tol=1e-9, session=session).summary(problem, covariance=covariance, session=session)
        assert session.ledger.read().rounds <= 12
    table = pandas.DataFrame(X, columns=["a", "b", "c"]).assign(time=time, event=event, owner=OWNER)
    fitter = lifelines.CoxPHFitter(strata=["owner"])
    found = fitter.fit(table, "time", "event", robust=covariance == "hc0", fit_options={"precision": 1e-14}).summary
    estimate, se, p, _ = columns_of(summary)
    np.testing.assert_allclose(estimate, found["coef"], rtol=1e-8)
    np.testing.assert_allclose(se, found["se(coef)"], rtol=1e-8)
    np.testing.assert_allclose(p, found["p"], rtol=1e-6, atol=1e-12)


def test_secure_sums_give_the_same_table() -> None:
    X, y = rows_of("logistic")
    problem = pooled("logistic", X, y)
    answer = fp.solve(problem, tol=1e-9)
    plain = answer.summary(problem)
    with fp.Session(secure_sum=True) as session:
        masked = fp.solve(problem, tol=1e-9, session=session).summary(problem, session=session)
    for one, other in zip(plain.coefficients, masked.coefficients, strict=True):
        assert one.estimate == pytest.approx(other.estimate, rel=1e-9)
        assert one.se == pytest.approx(other.se, rel=1e-9)


def bounded(limit: float) -> fp.Share:
    """The coefficient of b is at least the limit."""
    row = fp.functions.Affine([[0.0, -1.0, 0.0, 0.0]], [limit])
    return fp.Share(None, fp.Constraint(row, fp.cones.Nonnegative(1)))


def test_a_bound_that_binds_gives_the_errors_of_the_model_without_that_column() -> None:
    sm = pytest.importorskip("statsmodels.api")
    X, y = rows_of("logistic")
    problem = pooled("logistic", X, y, bounded(0.0))
    answer = fp.solve(problem, tol=1e-9)
    found = sm.Logit(y, X[:, [0, 2, 3]]).fit(cov_type="HC0", disp=0, tol=1e-14)
    summary = answer.summary(problem, NAMES, covariance="hc0")
    estimate, se, _, _ = columns_of(summary)
    np.testing.assert_allclose(se[[0, 2, 3]], found.bse, rtol=1e-6)
    assert se[1] == 0
    assert np.isnan(summary["b"].p)
    assert estimate[1] == pytest.approx(0, abs=1e-7)
    # Its price is the score of the column left out, whose standard error is that of the score test.
    assert summary["server[0]"].estimate == pytest.approx(answer.multipliers[0][0])
    z = summary["server[0]"].z
    slope = X[:, 1] @ (1 / (1 + np.exp(-X[:, [0, 2, 3]] @ found.params)) - y) / ROWS
    assert summary["server[0]"].estimate == pytest.approx(abs(slope), rel=1e-5)
    assert z > 3


def test_prices_and_coefficients_under_a_loss_bound_vary_as_the_sandwich_says() -> None:
    """Against the infinitesimal jackknife: the solution's derivatives by the weights of rows, by differences."""
    draw = np.random.default_rng(3)
    X = np.column_stack([draw.standard_normal((60, 2)), np.ones(60)])
    y = X @ [1.0, -0.5, 0.3] + draw.standard_normal(60)
    own = np.repeat([0, 1], 30)
    y[own == 1] += 1.5 * X[own == 1, 0]

    def solve(weight: np.ndarray) -> tuple[fp.FederatedProblem, fp.Solution]:
        shares = []
        for i in range(2):
            rows = own == i
            loss = fp.functions.SquaredLoss(X[rows], y[rows], weight[rows])
            limit = fp.Constraint(loss - 0.6, fp.cones.Nonnegative(1)) if i == 0 else None
            shares.append(fp.Share(0.5 * loss, limit, name=f"clinic {i}"))
        problem = fp.FederatedProblem(shares)
        return problem, fp.solve(problem, tol=1e-12)

    problem, answer = solve(np.ones(60))
    covariance = infer_solution(answer, problem, "sandwich", None).covariance
    assert covariance is not None
    assert answer.multipliers[1][0] > 0.1
    moved = []
    step = 1e-4
    for r in range(60):
        ends = []
        for side in (1, -1):
            weight = np.ones(60)
            weight[r] += side * step
            found = solve(weight)[1]
            ends.append(np.append(found.w, found.multipliers[1]))
        moved.append((ends[0] - ends[1]) / (2 * step))
    errors = np.sqrt(30 / 29 * np.sum(np.square(moved), axis=0))  # unbiased at owners of 30 rows
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), errors, rtol=1e-4)


def test_private_variables_are_eliminated_as_columns_of_the_owner_would_be() -> None:
    sm = pytest.importorskip("statsmodels.api")
    X, y = rows_of("logistic")
    X = X[:, :3]
    shares = []
    for i, rows in enumerate(SIZES):
        own = i == OWNER
        wide = np.column_stack([X[own], np.ones(rows)])
        shares.append(fp.Share(rows / ROWS * fp.functions.LogisticLoss(wide, y[own]), name=f"clinic {i}", private=1))
    problem = fp.FederatedProblem(shares)
    with fp.Session() as session:
        answer = fp.solve(problem, tol=1e-9, session=session)
        summary = answer.summary(problem, covariance="hc0", session=session)
    dummies = (OWNER[:, None] == np.arange(3)).astype(float)
    found = sm.Logit(y, np.column_stack([X, dummies])).fit(cov_type="HC0", disp=0, tol=1e-14)
    np.testing.assert_allclose(columns_of(summary)[1], found.bse[:3], rtol=1e-7)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_small_owners_are_centred_without_bias(rows: int) -> None:
    """Against the covariance within strata by NumPy; owners of one row are about zero, as HC0 has them."""
    X, y = rows_of("linear")
    X, y = X[:60], y[:60]
    shares = []
    for i in range(60 // rows):
        own = slice(i * rows, (i + 1) * rows)
        shares.append(fp.Share(rows / 60 * fp.functions.SquaredLoss(X[own], y[own]), name=f"clinic {i}"))
    problem = fp.FederatedProblem(shares)
    answer = fp.solve(problem, tol=1e-10)
    summary = answer.summary(problem)
    gradients = (X * (X @ answer.w - y)[:, None]).reshape(-1, rows, 4)
    spread = np.einsum("ird,ire->de", gradients, gradients)
    if rows > 1:
        spread = sum(rows * np.cov(own.T) for own in gradients)
    inverse = np.linalg.inv(X.T @ X)
    np.testing.assert_allclose(columns_of(summary)[1], np.sqrt(np.diag(inverse @ spread @ inverse)), rtol=1e-6)
    assert any("one row" in note for note in summary.notes) == (rows == 1)


def test_prices_beside_owners_of_one_row_have_no_standard_error() -> None:
    X, y = rows_of("linear")
    shares = [fp.Share(1 / 40 * fp.functions.SquaredLoss(X[i : i + 1], y[i : i + 1])) for i in range(40)]
    problem = fp.FederatedProblem(shares, bounded(0.5))
    summary = fp.solve(problem, tol=1e-9).summary(problem)
    assert summary["w[0]"].se > 0
    assert np.isnan([summary["server[0]"].se, summary["server[0]"].p]).all()
    alone = fp.Constraint(fp.functions.SquaredLoss(X[:1], y[:1]) - 1e-3, fp.cones.Nonnegative(1))
    problem = fp.FederatedProblem([*shares[1:], fp.Share(shares[0].objective, alone, name="clinic")])
    notes = fp.solve(problem, tol=1e-9).summary(problem).notes
    assert any("clinic" in note and "one row" in note for note in notes)


def test_what_is_not_covered_is_said_in_words() -> None:
    X, y = rows_of("logistic")
    loss = fp.functions.LogisticLoss(X, y)
    cases = {
        "penalty is not tiny": fp.FederatedProblem([fp.Share(loss)], regularizer=fp.prox.SquaredL2(0.1)),
        "corners": fp.FederatedProblem([fp.Share(loss)], regularizer=fp.prox.L1(0.01)),
        "cone": fp.FederatedProblem(
            [fp.Share(loss, fp.Constraint(fp.functions.Affine(np.eye(4), [-9.0, 0, 0, 0]), fp.cones.SecondOrder(4)))]
        ),
        "not known": fp.FederatedProblem(
            [fp.Share(loss, fp.Constraint(fp.functions.MeanProbability(X) - 0.4, fp.cones.Nonnegative(1)))]
        ),
        "lower tol": fp.FederatedProblem([fp.Share(loss)]),
        "do not determine": fp.FederatedProblem(
            [fp.Share(fp.functions.LogisticLoss(np.column_stack([X, X[:, 0]]), y))], regularizer=fp.prox.Zero()
        ),
    }
    for words, problem in cases.items():
        tol = 1e-2 if words == "lower tol" else 1e-6
        answer = fp.solve(problem, tol=tol, max_rounds=100)
        assert any(words in note for note in answer.summary(problem).notes), words


def test_a_bound_that_nearly_binds_is_named_and_one_that_hardly_binds_has_a_price_that_may_be_zero() -> None:
    X, y = rows_of("logistic")
    free = fp.solve(pooled("logistic", X, y), tol=1e-9).w[1]
    problem = pooled("logistic", X, y, bounded(free - 0.01))
    assert any("does not bind" in note for note in fp.solve(problem, tol=1e-9).summary(problem).notes)
    problem = pooled("logistic", X, y, bounded(free + 0.01))
    summary = fp.solve(problem, tol=1e-9).summary(problem)
    assert summary.notes == ()
    assert summary["server[0]"].low < 0 < summary["server[0]"].high


def near_least(room: float) -> fp.FederatedProblem:
    """A loss bounded by its least value and `room`."""
    draw = np.random.default_rng(3)
    X = draw.standard_normal((60, 2))
    y = X @ [1.0, -0.5] + draw.standard_normal(60)
    loss = fp.functions.SquaredLoss(X[:30], y[:30])
    other = fp.functions.SquaredLoss(X[30:], y[30:] + 1.5 * X[30:, 0])
    least = loss.value(np.linalg.lstsq(X[:30], y[:30], rcond=None)[0].astype(float))
    bound = fp.Constraint(fp.functions.as_map(loss - (least + room)), fp.cones.Nonnegative(1))
    shares = [fp.Share(0.5 * loss, bound, name="clinic 0"), fp.Share(0.5 * other, name="clinic 1")]
    return fp.FederatedProblem(shares)


@pytest.mark.parametrize("room", [0.002, 0.02, 0.1])
def test_curvature_is_one_over_twice_the_room_that_a_bound_leaves(room: float) -> None:
    problem = near_least(room)
    answer = fp.solve(problem, tol=1e-10)
    found = infer_solution(answer, problem, "sandwich", None)
    assert found.doubts is not None
    # Against prices of bounds a little apart: their slope, and how it changes within one standard error.
    step = 1e-3 * room
    prices = [fp.solve(near_least(room + far), tol=1e-12).multipliers[1][0] for far in (-step, 0.0, step)]
    slope = (prices[2] - prices[0]) / (2 * step)
    change = (prices[2] - 2 * prices[1] + prices[0]) / step**2
    noise = np.sqrt(np.diag(found.doubts.vary.covariance))[-1] / abs(slope)
    assert found.doubts.bends[0] == pytest.approx(noise / (2 * room), rel=1e-3)
    assert -change / slope * noise == pytest.approx(3 * found.doubts.bends[0], rel=0.1)


def test_a_bound_close_to_the_least_attainable_loss_bends_the_interval_of_its_price() -> None:
    problem = near_least(0.005)
    summary = fp.solve(problem, tol=1e-9).summary(problem)
    price = summary["clinic 0[0]"]
    assert 0 < price.low < price.estimate
    assert price.high == np.inf
    assert any("clinic 0 is close to the least" in note for note in summary.notes)
    assert np.isnan(summary["w[0]"].se)
    assert any("no standard error of w[0]" in note for note in summary.notes)


@pytest.mark.slow
@pytest.mark.parametrize("price", [0.5, 5.0, 50.0])
def test_intervals_near_the_least_attainable_loss_hold_or_are_refused(price: float) -> None:
    """Intervals of prices as if they were normal hold ever less often; those of the table do not."""
    bench = pytest.importorskip("fedpact_experiments.bench.inference")
    found, straight = bench.cover_near(price, 500, 120, 7)
    error = 2.5 * np.sqrt(0.95 * 0.05 / found.all_bind)
    assert found.prices == pytest.approx(0.95, abs=error)
    assert found.coefficients_lowest > 0.95 - error
    assert (found.refused > 0.5) == (price > 1)
    assert (straight.prices < 0.9) == (price > 1)


def test_slopes_of_a_constraint_on_few_rows_stay_with_the_owner() -> None:
    reply = Inferred(
        system=np.eye(2),
        spread=np.eye(2),
        scatter=np.eye(2),
        score=np.zeros(2),
        rows=9.0,
        squares=0.0,
        alone=0.0,
        dispersed=False,
        own_system=np.ones((1, 3)),
        own_spread=np.ones((1, 3)),
        own_score=np.zeros(1),
        own_curvature=np.zeros(1),
        cell=4,
    )
    assert reply.withhold(5).uncovered == "withheld"
    assert reply.withhold(5).own_system.size == 0
    told = reply.withhold(4)
    assert told.own_system.size == 3
    assert told.cell == 0


@pytest.mark.parametrize(
    ("given", "code"), [({"covariance": "bayes"}, "FP-OPTION-985"), ({"level": 95.0}, "FP-OPTION-986")]
)
def test_misuse_is_named(given: dict[str, object], code: str) -> None:
    X, y = rows_of("logistic")
    problem = pooled("logistic", X, y)
    answer = fp.solve(problem)
    with pytest.raises(FedpactError) as caught:
        answer.summary(problem, **given)  # type: ignore[arg-type]
    assert caught.value.code == code
