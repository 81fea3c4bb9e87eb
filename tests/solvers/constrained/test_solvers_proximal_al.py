"""Algorithm 1 (and its twin, Algorithm 3) against exact answers and conic solvers on pooled data."""

import cvxpy as cp
import numpy as np
import pooled
import pytest
from marks import slow_but
from real_tables import fairness, largest_gap, neyman_pearson_owners

import fedpact as fp
from fedpact import data, tasks
from fedpact.cones import PSD, Exponential, Nonnegative, SecondOrder, Zero
from fedpact.functions import Affine, LogisticLoss, Quadratic, Smooth, as_map

METHODS = ["proximal-al", "centralized-proximal-al"]
SIZES = [(n, d) for n in (1, 5, 10) for d in (100, 300, 500)]  # He24, Table 4


@pytest.mark.parametrize(("n", "d"), slow_but(SIZES, (1, 100), (5, 100)))
def test_lcqp_reaches_the_exact_optimum(n, d):
    arrays = data.lcqp(n, d, d // 100, seed=1)
    exact = tasks.exact(*arrays)
    for tol in (1e-3, 1e-6):
        answer = fp.solve(tasks.linear_qp(*arrays), "proximal-al", tol=tol)
        assert answer.status == "solved"
        assert abs(answer.objective - exact.objective) <= tol * abs(exact.objective)
        assert answer.certificate.worst <= tol
    for found, price in zip(answer.multipliers, exact.multipliers, strict=True):
        np.testing.assert_allclose(found, price, atol=1e-4)


@pytest.mark.parametrize(("n", "exchanges"), slow_but([(5, 60), (20, 130), (100, 800)], (5, 60), (20, 130)))
def test_exchanges_on_stiff_equalities_of_many_owners(n, exchanges):
    """Every owner has a direction that its penalty makes stiff, and which one voice among n has to be heard for."""
    arrays = data.lcqp(n, max(100, 2 * (n + 1)), 1, seed=0)
    exact = tasks.exact(*arrays)
    answer = fp.solve(tasks.linear_qp(*arrays), "proximal-al", tol=1e-3)
    assert answer.status == "solved"
    assert answer.objective == pytest.approx(exact.objective, rel=1e-3)
    np.testing.assert_allclose(answer.w, exact.w, atol=1e-3 * np.max(np.abs(exact.w)))
    assert answer.rounds <= exchanges


@pytest.mark.parametrize("method", METHODS)
def test_lcqp_with_the_settings_of_the_paper(method):
    """beta = 10, s = 0.1 (Appendix E.2); rho = 1 where there is one."""
    arrays = data.lcqp(5, 100, 1, seed=2)
    options = {"penalty": 10, "accuracy": 0.1} | ({"consensus_penalty": 1.0} if method == "proximal-al" else {})
    answer = fp.solve(tasks.linear_qp(*arrays), method, **options)
    assert answer.status == "solved"
    assert {r.penalty for r in answer.history.outer} == {10}
    assert answer.objective == pytest.approx(tasks.exact(*arrays).objective, rel=2e-3)


def composite():
    """L1 regularizer, a second-order cone at the server, an equality at each of three clients."""
    rng, d = np.random.default_rng(0), 8
    roots = rng.standard_normal((3, d, d))
    A = [m @ m.T / d + 0.1 * np.eye(d) for m in roots]
    b, C, e = rng.standard_normal((3, d)), rng.standard_normal((3, 1, d)), 0.3 * rng.standard_normal((3, 1))
    G = rng.standard_normal((3, d))
    ball = Affine(-np.vstack([np.zeros(d), G]), [-0.7, 0, 0, 0])  # |G w| <= 0.7
    shares = [
        fp.Share(Quadratic(A[i], b[i]), fp.Constraint(Affine(C[i], e[i]), Zero(1)), name=f"site {i}") for i in range(3)
    ]
    problem = fp.FederatedProblem(shares, fp.Share(None, fp.Constraint(ball, SecondOrder(4))), fp.prox.L1(0.2))
    w = cp.Variable(d)
    constraints = [cp.SOC(cp.Constant(0.7), G @ w), *(C[i] @ w + e[i] == 0 for i in range(3))]
    value = pooled.solved(
        sum(0.5 * cp.quad_form(w, cp.psd_wrap(A[i])) + b[i] @ w for i in range(3)) + 0.2 * cp.norm1(w), constraints
    )
    soc = np.concatenate([np.ravel(part) for part in constraints[0].dual_value])
    return problem, value, w.value, [soc, *(c.dual_value for c in constraints[1:])]


@pytest.mark.parametrize("method", METHODS)
def test_l1_with_a_cone_at_the_server_and_equalities_at_the_clients(method):
    problem, value, w, duals = composite()
    answer = fp.solve(problem, method, tol=1e-6)
    assert answer.status == "solved"
    assert answer.objective == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(answer.w, w, atol=1e-5)
    for found, dual in zip(answer.multipliers, duals, strict=True):
        np.testing.assert_allclose(found, dual, atol=1e-5)
    assert fp.certify(problem, answer.w, answer.multipliers) == answer.certificate


@pytest.mark.parametrize("method", METHODS)
def test_gradients_that_are_only_locally_lipschitz(method):
    """f with |w|^4, c_0 = |w|^2 - 1 (He24, Remark 6), first order only; w = -a/|a| by symmetry."""
    a = np.array([3.0, -4.0, 12.0])

    def quartic(w):
        return float((w @ w) ** 2 + a @ w), 4 * (w @ w) * w + a

    ball = fp.Constraint(Smooth(lambda w: (float(w @ w - 1), 2 * w)), Nonnegative(1))
    problem = fp.FederatedProblem([fp.Share(Smooth(quartic)) for _ in range(2)], fp.Share(None, ball))
    answer = fp.solve(problem, method, tol=1e-6, w0=np.ones(3))
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, -a / 13, atol=1e-5)
    # stationarity along w: 2 * (4 - |a|) + 2 mu = 0
    np.testing.assert_allclose(answer.multipliers[0], [13 - 4], atol=1e-4)


@pytest.mark.parametrize(("name", "n"), [("breast-cancer-wisc", 1), ("breast-cancer-wisc", 5), ("monks-1", 5)])
def test_neyman_pearson_federated_equals_centralized_and_conic(data_folder, name, n):
    owners = neyman_pearson_owners(name, n, data_folder)
    value, _, duals = pooled.neyman_pearson(owners, 0.2, attained=name != "monks-1")
    problem = tasks.neyman_pearson(owners, 0.2)
    answers = [fp.solve(problem, method, tol=1e-3) for method in METHODS]
    for answer in answers:
        assert answer.status == "solved"
        assert answer.objective == pytest.approx(value, rel=1e-2)
        losses = [LogisticLoss(X[y == 1], y[y == 1]).value(answer.w) for X, y in owners.values()]
        assert max(losses) <= 0.2 + 1e-3
    assert answers[0].objective == pytest.approx(answers[1].objective, rel=1e-2)
    if name == "breast-cancer-wisc":
        close = fp.solve(problem, "proximal-al", tol=1e-5)
        assert close.status == "solved"
        assert close.objective == pytest.approx(value, rel=1e-4)
        np.testing.assert_allclose(np.concatenate(close.multipliers[1:]), duals, atol=1e-3)


@pytest.mark.slow
def test_fairness_with_global_and_local_constraints(data_folder):
    """He24, Section 5.2, on adult-b with five banks and a regulator: gaps are differences of losses, not convex."""
    problem, holders = fairness(5, data_folder)
    answer = fp.solve(problem, "proximal-al", tol=1e-3)
    assert answer.status == "solved"
    assert largest_gap(holders, answer.w) <= 0.1 + 1e-3
    twin = fp.solve(problem, "centralized-proximal-al", tol=1e-3)
    assert answer.objective == pytest.approx(twin.objective, rel=1e-2)


def logistic_owners(n=3, rows=40, d=4):
    rng = np.random.default_rng(8)
    return [(rng.standard_normal((rows, d)) + 0.3 * i, (rng.random(rows) < 0.5).astype(float)) for i in range(n)]


@pytest.mark.parametrize("method", METHODS)
def test_coupled_constraint_and_its_price(method):
    """sum_i c~_i(w) <= 0 stated by the user, with a local and a global constraint beside it."""
    owners = logistic_owners()
    limit = 0.69
    shares = [
        fp.Share(LogisticLoss(X, y), coupled=as_map((1 / 3) * (LogisticLoss(X, 1 - y) - limit)), name=f"bank {i}")
        for i, (X, y) in enumerate(owners)
    ]
    shares[0] = fp.Share(
        shares[0].objective,
        fp.Constraint(Affine([[1.0, 0, 0, 0]], [-0.01]), Nonnegative(1)),
        shares[0].coupled,
        "bank 0",
    )
    server = fp.Share(None, fp.Constraint(Affine([[0.0, 1.0, 0, 0]], [0.02]), Zero(1)))
    problem = fp.FederatedProblem(shares, server, fp.prox.SquaredL2(0.01))
    w = cp.Variable(4)
    total = sum(pooled.logistic_mean(X, 1 - y, w) - limit for X, y in owners) / 3
    constraints = [total <= 0, w[0] - 0.01 <= 0, w[1] + 0.02 == 0]
    value = pooled.solved(
        sum(pooled.logistic_mean(X, y, w) for X, y in owners) + 0.005 * cp.sum_squares(w), constraints
    )
    answer = fp.solve(problem, method, tol=1e-6)
    assert answer.status == "solved"
    assert answer.w.shape == (4,)
    assert constraints[0].dual_value > 0.01  # the coupled constraint is active, or this test says nothing
    assert answer.objective == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(answer.w, w.value, atol=1e-4)
    np.testing.assert_allclose(answer.coupled_multiplier, constraints[0].dual_value, rtol=2e-4)
    np.testing.assert_allclose(answer.multipliers[1], constraints[1].dual_value, atol=1e-4)
    np.testing.assert_allclose(answer.multipliers[0], np.ravel(constraints[2].dual_value), atol=1e-4)
    assert [m.size for m in answer.multipliers] == [1, 1, 0, 0]
    judged = fp.certify(problem, answer.w, answer.multipliers, answer.coupled_multiplier)
    assert judged == answer.certificate
    assert judged.worst <= 1e-6


def test_matrix_and_exponential_cones_at_the_clients():
    """PSD: [[1, w_0], [w_0, w_1 + 1]] >= 0; exponential: exp(w_2) <= 2 - w_0."""
    root = np.sqrt(2)
    matrix = Affine(-np.array([[0, 0, 0], [root, 0, 0], [0, 1, 0.0]]), [-1.0, 0.0, -1.0])
    exponential = Affine(-np.array([[0, 0, 1], [0, 0, 0], [-1, 0, 0.0]]), [0.0, -1.0, -2.0])
    goal = np.array([1.5, -1.0, 1.5])
    shares = [
        fp.Share(Quadratic(np.eye(3), -goal), fp.Constraint(matrix, PSD(2))),
        fp.Share(Quadratic(np.eye(3), -goal), fp.Constraint(exponential, Exponential())),
    ]
    w = cp.Variable(3)
    constraints = [cp.bmat([[1, w[0]], [w[0], w[1] + 1]]) >> 0, cp.exp(w[2]) <= 2 - w[0]]
    value = pooled.solved(cp.sum_squares(w) - 2 * goal @ w, constraints)
    answer = fp.solve(fp.FederatedProblem(shares), "proximal-al", tol=1e-6)
    assert answer.status == "solved"
    assert answer.objective == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(answer.w, w.value, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "regularizer", [fp.prox.Box(-0.3, 0.3), fp.prox.Simplex(), fp.prox.ElasticNet(0.05, 0.1)], ids=repr
)
def test_sets_and_penalties_with_a_constraint_at_each_client(method, regularizer):
    owners = logistic_owners()
    shares = [
        fp.Share(LogisticLoss(X, y), fp.Constraint(LogisticLoss(X[:10], y[:10]) - 0.72, Nonnegative(1)))
        for X, y in owners
    ]
    w = cp.Variable(4)
    sets = {"Box": [w >= -0.3, w <= 0.3], "Simplex": [w >= 0, cp.sum(w) == 1]}.get(type(regularizer).__name__, [])
    cost = 0 if sets else 0.05 * cp.norm1(w) + 0.05 * cp.sum_squares(w)
    limits = [pooled.logistic_mean(X[:10], y[:10], w) <= 0.72 for X, y in owners]
    conic = cp.Problem(cp.Minimize(sum(pooled.logistic_mean(X, y, w) for X, y in owners) + cost), [*sets, *limits])
    conic.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    answer = fp.solve(fp.FederatedProblem(shares, regularizer=regularizer), method, tol=1e-6)
    if conic.status == "infeasible":
        assert answer.status == "infeasible"
    else:
        assert answer.status == "solved"
        assert answer.objective == pytest.approx(conic.value, abs=1e-5)
        np.testing.assert_allclose(answer.w, w.value, atol=1e-3)


def test_history_follows_the_solve():
    answer = fp.solve(composite()[0], "proximal-al", tol=1e-4)
    outer, inner = answer.history.outer, answer.history.inner
    assert [r.iteration for r in outer] == list(range(len(outer)))  # 0 is the start
    assert outer[-1].stationarity == answer.certificate.stationarity
    assert outer[-1].violations == answer.certificate.violations
    assert set(outer[-1].violations) == {"site 0", "site 1", "site 2", "server"}
    assert sum(r.inner_rounds for r in outer) == len(inner)
    assert np.all(np.diff([r.rounds for r in outer]) > 0)
    assert np.all(np.diff([r.bytes for r in outer]) > 0)
    assert inner[-1].residual <= inner[-1].target
    # a look, the inner rounds, a start or a conclusion for each judged point, and the multipliers at the end
    assert answer.rounds == 1 + len(inner) + len(outer) + 1


def test_multipliers_leave_an_owner_only_at_the_end():
    seen = []
    answer = fp.solve(composite()[0], "proximal-al", callbacks=[lambda p: seen.append(p.rounds)])
    fields = answer.communication.owners["site 1"].fields
    assert [f for f in fields if "multiplier" in f] == ["Concluded.multiplier"]
    assert len(seen) == len(answer.history.inner) + len(answer.history.outer)
