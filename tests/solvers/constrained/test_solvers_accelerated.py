"""Accelerated consensus against conic solvers, against itself written in pooled NumPy, and against its theory."""

import cvxpy as cp
import numpy as np
import pooled
import pytest
from real_tables import fairness, largest_gap, neyman_pearson_owners
from watched_session import Watching

import fedpact as fp
from fedpact import data, tasks
from fedpact.cones import Nonnegative, SecondOrder, Zero
from fedpact.functions import Affine, LogisticLoss, Quadratic, Smooth, as_map
from fedpact.solvers.constrained.accelerated import Accelerated
from fedpact.solvers.constrained.accelerated_owner import Round, State, advance
from fedpact.solvers.constrained.anderson import RELAXATION
from fedpact.solvers.constrained.penalties import find_columns
from fedpact.solvers.local.constrained import Warm

# ------------------------------------------------------------------------------------------------------ right answers


def random_problem(seed):
    """n = seed owners with mixed objectives and constraints; a server with an equality or a cost; L1, a box or no h."""
    rng, n, d = np.random.default_rng(seed), seed, 6
    w, inside = cp.Variable(d), 0.2 * rng.standard_normal(d)  # a point that meets every constraint
    cost, limits, shares, held = 0, [], [], []
    for i in range(n):
        if (i + seed) % 2:
            X, y = rng.standard_normal((40, d)), (rng.random(40) < 0.5).astype(float)
            objective, term = LogisticLoss(X, y), pooled.logistic_mean(X, y, w)
        else:
            root, b = rng.standard_normal((d, d)), rng.standard_normal(d)
            A = root @ root.T / d + 0.05 * np.eye(d)
            objective, term = Quadratic(A, b), 0.5 * cp.quad_form(w, cp.psd_wrap(A)) + b @ w
        C = rng.standard_normal((3, d))
        kind = (i + seed) % 4
        if kind == 0:
            e = C[:1] @ inside
            constraint, limit = fp.Constraint(Affine(C[:1], -e), Zero(1)), C[:1] @ w - e == 0
        elif kind == 1:
            e = C @ inside + 0.1 * rng.random(3)
            constraint, limit = fp.Constraint(Affine(C, -e), Nonnegative(3)), C @ w - e <= 0
        elif kind == 2:
            radius = 1.2 * np.linalg.norm(C @ inside)
            constraint = fp.Constraint(Affine(-np.vstack([np.zeros(d), C]), [-radius, 0, 0, 0]), SecondOrder(4))
            limit = cp.SOC(cp.Constant(radius), C @ w)
        else:
            constraint = limit = None
        cost, shares = cost + term, [*shares, fp.Share(objective, constraint)]
        if limit is not None:
            limits.append(limit)
        held.append(limit)
    row = rng.standard_normal((1, d))
    at = row @ inside
    server = [fp.Share(None, fp.Constraint(Affine(row, -at), Zero(1))), None, fp.Share(Quadratic(0.1 * np.eye(d)))][
        seed % 3
    ]
    if seed % 3 == 0:
        limits.append(row @ w - at == 0)
    if seed % 3 == 2:
        cost = cost + 0.05 * cp.sum_squares(w)
    h, sets = None, []
    if seed % 3 == 1:
        h, cost = fp.prox.L1(0.1), cost + 0.1 * cp.norm1(w)
    elif seed % 3 == 2:
        h, sets = fp.prox.Box(-0.6, 0.6), [w >= -0.6, w <= 0.6]
    value = pooled.solved(cost, [*limits, *sets])
    return fp.FederatedProblem(shares, server, h), value, np.asarray(w.value), held


@pytest.mark.parametrize("seed", range(1, 9))
def test_random_convex_problems_against_a_conic_solver(seed):
    problem, value, w, held = random_problem(seed)
    answer = fp.solve(problem, "accelerated", tol=1e-7, max_rounds=2000)
    assert answer.status == "solved"
    assert answer.objective == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(answer.w, w, atol=1e-4)
    for found, limit in zip(answer.multipliers[1:], held, strict=True):
        if limit is not None:
            parts = limit.dual_value if isinstance(limit.dual_value, list) else [limit.dual_value]
            np.testing.assert_allclose(found, np.concatenate([np.ravel(p) for p in parts]), atol=1e-4)
    assert fp.certify(problem, answer.w, answer.multipliers) == answer.certificate


def test_neyman_pearson_on_synthetic_owners():
    owners = data.neyman_pearson(5)
    problem = tasks.neyman_pearson(owners, 0.2)
    value, w, duals = pooled.neyman_pearson(owners, 0.2)
    quick, close = (fp.solve(problem, "accelerated", tol=tol) for tol in (1e-3, 1e-6))
    assert quick.status == close.status == "solved"
    assert quick.rounds <= 1959 / 40  # what Algorithm 1 takes with the paper's settings: docs/benchmarks/rounds.md
    assert close.rounds <= 200
    assert quick.objective == pytest.approx(value, abs=1e-3)
    assert close.objective == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(close.w, w, atol=1e-4)
    np.testing.assert_allclose(np.concatenate(close.multipliers[1:]), duals, atol=1e-5)


# docs/benchmarks/rounds.md: Algorithm 1 takes 210 and 8285 exchanges with the paper's settings
@pytest.mark.parametrize(("name", "n", "most"), [("breast-cancer-wisc", 5, 33), ("monks-1", 5, 200)])
def test_neyman_pearson_on_real_tables(data_folder, name, n, most):
    owners = neyman_pearson_owners(name, n, data_folder)
    value = pooled.neyman_pearson(owners, 0.2, attained=name != "monks-1")[0]
    problem = tasks.neyman_pearson(owners, 0.2)
    quick = fp.solve(problem, "accelerated", tol=1e-3)
    assert quick.status == "solved"
    assert quick.rounds <= most
    close = fp.solve(problem, "accelerated", tol=1e-6, max_rounds=200)
    assert close.status == "solved"
    assert close.objective == pytest.approx(value, abs=1e-5 if name == "breast-cancer-wisc" else 1e-3)


@pytest.mark.parametrize(("n", "d"), [(1, 100), (5, 300), (10, 100)])
def test_lcqp_reaches_the_exact_optimum(n, d):
    arrays = data.lcqp(n, d, d // 100, seed=1)
    exact = tasks.exact(*arrays)
    answer = fp.solve(tasks.linear_qp(*arrays), "accelerated", tol=1e-7)
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, exact.w, atol=1e-6)
    for found, price in zip(answer.multipliers, exact.multipliers, strict=True):
        np.testing.assert_allclose(found, price, atol=1e-5)
    assert sum(r.hessians for r in answer.history.outer) <= n * (1 + len(answer.history.notes))  # factors are kept


def test_gradients_that_are_only_locally_lipschitz():
    """f with |w|^4, c_0 = |w|^2 - 1, first order only; w = -a/|a| and the price 13 - 4 by symmetry."""
    a = np.array([3.0, -4.0, 12.0])
    quartic = Smooth(lambda w: (float((w @ w) ** 2 + a @ w), 4 * (w @ w) * w + a))
    ball = fp.Constraint(Smooth(lambda w: (float(w @ w - 1), 2 * w)), Nonnegative(1))
    problem = fp.FederatedProblem([fp.Share(quartic) for _ in range(2)], fp.Share(None, ball))
    answer = fp.solve(problem, "accelerated", tol=1e-6, w0=np.ones(3))
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, -a / 13, atol=1e-6)
    np.testing.assert_allclose(answer.multipliers[0], [13 - 4], atol=1e-5)


def test_a_coupled_constraint_and_its_price():
    rng = np.random.default_rng(8)
    owners = [(rng.standard_normal((40, 4)) + 0.3 * i, (rng.random(40) < 0.5).astype(float)) for i in range(3)]
    shares = [
        fp.Share(LogisticLoss(X, y), coupled=as_map((1 / 3) * (LogisticLoss(X, 1 - y) - 0.69)), name=f"bank {i}")
        for i, (X, y) in enumerate(owners)
    ]
    problem = fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(0.01))
    w = cp.Variable(4)
    limit = sum(pooled.logistic_mean(X, 1 - y, w) - 0.69 for X, y in owners) / 3 <= 0
    value = pooled.solved(sum(pooled.logistic_mean(X, y, w) for X, y in owners) + 0.005 * cp.sum_squares(w), [limit])
    answer = fp.solve(problem, "accelerated", tol=1e-7)
    assert answer.status == "solved"
    assert limit.dual_value > 0.01
    assert answer.objective == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(answer.coupled_multiplier, limit.dual_value, rtol=1e-4)
    judged = fp.certify(problem, answer.w, answer.multipliers, answer.coupled_multiplier)
    assert judged == answer.certificate


def test_fairness_gaps_are_not_convex_and_still_met(data_folder):
    problem, holders = fairness(5, data_folder)
    answer = fp.solve(problem, "accelerated", tol=1e-3)
    assert answer.status == "solved"
    assert largest_gap(holders, answer.w) <= 0.1 + 1e-3
    assert answer.objective == pytest.approx(fp.solve(problem, "interior-point", tol=1e-6).objective, rel=1e-2)


# ------------------------------------------------------------------------------------------------------------- theory


def equality_owners(n=4, d=7, seed=0):
    """Quadratics with one equality each: the proximal step is one linear solve."""
    rng = np.random.default_rng(seed)
    A = [np.diag(rng.uniform(0.1, 3, d)) for _ in range(n)]
    b, C, e = rng.standard_normal((n, d)), rng.standard_normal((n, 1, d)), rng.standard_normal((n, 1))
    shares = [fp.Share(Quadratic(A[i], b[i]), fp.Constraint(Affine(C[i], e[i]), Zero(1))) for i in range(n)]
    return fp.FederatedProblem(shares, regularizer=fp.prox.L1(0.01)), A, b, C, e


def pooled_anderson(A, b, C, e, rho, memory, rounds, weight):
    """The same method with all data in one place: stacked vectors, KKT solves, NumPy's least squares. The points w."""
    n, d = b.shape
    z, history, points = -b / rho, [], []
    for _ in range(rounds):
        mean = z.mean(axis=0)
        w = np.sign(mean) * np.maximum(np.abs(mean) - weight / (rho * n), 0)
        points.append(w)
        u = np.empty_like(z)
        for i in range(n):
            kkt = np.block([[A[i] + rho * np.eye(d), C[i].T], [C[i], np.zeros((1, 1))]])
            u[i] = np.linalg.solve(kkt, np.concatenate([rho * (2 * w - z[i]) - b[i], -e[i]]))[:d]
        F = u - w
        history = [*history, (z.ravel(), F.ravel())][-memory - 1 :]
        following = (z + RELAXATION * F).ravel()
        if len(history) > 1:
            dz = np.diff([point for point, _ in history], axis=0).T
            dF = np.diff([residual for _, residual in history], axis=0).T
            following = following - (dz + RELAXATION * dF) @ np.linalg.lstsq(dF, F.ravel(), rcond=None)[0]
        z = following.reshape(n, d)
    return points


def test_the_federated_acceleration_is_the_pooled_one():
    problem, *arrays = equality_owners()
    watch = Watching()
    answer = fp.solve(problem, "accelerated", tol=1e-6, consensus_penalty=1.3, memory=4, session=watch)
    assert answer.status == "solved"
    points = [exchange.order.w for exchange in watch.of("advance")]
    assert len(points) > 8
    expected = pooled_anderson(*arrays, rho=1.3, memory=4, rounds=len(points), weight=0.01)
    np.testing.assert_allclose(points, expected, atol=1e-6)
    assert max(exchange.order.mix.size for exchange in watch.of("advance")) == 4


def plain_order(w, rho, **plan):
    return Round(
        w=w, columns=np.ones_like(w), push=np.zeros(0), mix=np.zeros(0), remember=0, penalty=rho, accuracy=1e-11,
        iteration=1, best=False, judge=False, coupled=np.zeros(0), **{"stiffness": 2.0, **plan},
    )  # fmt: skip


def state_at(z, residual, rho, price):
    return State(
        iteration=0, price=price, best_iteration=-1, best_price=price, z=z, residual=residual, pull=residual,
        penalty=rho, weight=1.0, scale=1.0, slack=0, warm=Warm(z, price), drift=price,
    )  # fmt: skip


def plain_round(problem, z, rho):
    w = problem.regularizer.prox(np.mean(z, axis=0), 1 / (rho * len(z)))
    order = plain_order(w, rho)
    after = []
    for share, start in zip(problem.shares, z, strict=True):
        state = state_at(start, np.zeros_like(start), rho, np.zeros(share.multiplier_length))
        moved = advance(share, state, order)[1]
        after.append(start + moved.residual)
    return np.array(after)


@pytest.mark.parametrize("seed", [1, 2, 4, 5])
def test_the_plain_iteration_is_firmly_nonexpansive(seed):
    """|Tz - Tz'|^2 + |(z - Tz) - (z' - Tz')|^2 <= |z - z'|^2, whatever the owners hold."""
    problem = random_problem(seed)[0]
    rng = np.random.default_rng(0)
    for rho in (0.05, 1.0, 20.0):
        z, other = rng.standard_normal((2, seed, 6))
        image, other_image = plain_round(problem, z, rho), plain_round(problem, other, rho)
        moved = np.sum((image - other_image) ** 2) + np.sum(((z - image) - (other - other_image)) ** 2)
        assert moved <= np.sum((z - other) ** 2) + 1e-7


@pytest.mark.parametrize("rho", [0.02, 50.0])
def test_a_bad_fixed_penalty_costs_rounds_not_the_answer(rho):
    problem, value, w, _ = random_problem(4)
    answer = fp.solve(problem, "accelerated", tol=1e-6, consensus_penalty=rho, max_rounds=5000)
    assert answer.status == "solved"
    assert {r.consensus_penalty for r in answer.history.inner} == {rho}
    assert answer.objective == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(answer.w, w, atol=1e-3)


def test_the_server_knows_the_sum_of_z_from_what_was_sent():
    """With h = 0 the mean of z is w: rebuilt from replies and coefficients alone, it must be the w of the order."""
    problem = tasks.neyman_pearson(data.neyman_pearson(6), 0.2)
    watch = Watching()
    fp.solve(problem, "accelerated", tol=1e-6, session=watch, consensus_penalty=0.1)
    rounds = watch.of("advance")
    gradients = watch.of("begin")[0].replies.total.pull
    sums, residuals = [-gradients / 0.1], [rounds[0].replies.total.residual]
    for exchange in rounds[1:]:
        order, replies = exchange.order, exchange.replies
        following = sums[-1] + RELAXATION * residuals[-1]
        if order.mix.size:
            differences = np.diff(sums, axis=0) + RELAXATION * np.diff(residuals, axis=0)
            following = following - order.mix @ differences[-order.mix.size :]
        np.testing.assert_allclose(following / 6, order.w, atol=1e-10)
        sums, residuals = [*sums, following], [*residuals, replies.total.residual]
    assert len(rounds) > 10


def test_a_changed_penalty_keeps_the_multiplier_of_consensus():
    """lambda = rho (z - w) is the same before and after."""
    share = equality_owners()[0].shares[0]
    rng = np.random.default_rng(1)
    z, residual, w, none = rng.standard_normal(7), rng.standard_normal(7), rng.standard_normal(7), np.zeros(1)
    after = advance(share, state_at(z, residual, 0.5, none), plain_order(w, 4.0))[0]
    np.testing.assert_allclose(4.0 * (after.z - w), 0.5 * (z + RELAXATION * residual - w))
    assert after.steps == after.changes == ()


def test_an_owner_sets_its_penalty_by_the_curvature_of_its_lagrangian():
    """f has the Hessian diag(1, 3), c the Hessian 4 I, and the ball binds: 2 ((1 + 3) / 2 + 4 mu), and lambda stays."""
    ball = Smooth(lambda w: (2 * float(w @ w) - 2, 4 * w), lambda w: 4 * np.eye(2))
    share = fp.Share(Quadratic(np.diag([1.0, 3.0]), [-9.0, 0.0]), fp.Constraint(as_map(ball), Nonnegative(1)))
    w = np.array([1.0, 0.5])
    start = state_at(np.array([3.0, -1.0]), np.zeros(2), 0.5, np.zeros(1))
    measured, told = advance(share, start, plain_order(w, 0.5, measure=True))
    mu = measured.price[0]
    assert mu > 0.1
    assert told.curvature == pytest.approx(2 + 4 * mu, rel=1e-5)
    assert told.bound == told.misfits == 1
    order = plain_order(w, 0.5, adjust=True, least=0.1, least_bound=1.0)
    after, told = advance(share, measured, order)
    assert after.penalty == pytest.approx(2 * (2 + 4 * mu), rel=1e-5)
    assert told.weight == pytest.approx(after.penalty / 0.5)
    following = measured.z + RELAXATION * measured.residual
    np.testing.assert_allclose(after.penalty * (after.z - w), 0.5 * (following - w))


@pytest.mark.slow
def test_exchanges_hardly_grow_with_the_number_of_owners():
    """Means over more owners and as many bounds: each objective gets flatter, the few bounds that bind do not."""
    counts = []
    for n in (10, 40, 160):
        owners = data.neyman_pearson(n, rows=40, d=5, seed=3)
        problem = tasks.neyman_pearson(owners, 0.2)
        answer = fp.solve(problem, "accelerated", tol=1e-3)
        exact = fp.solve(problem, "interior-point", tol=1e-8)
        assert answer.solved
        assert answer.objective == pytest.approx(exact.objective, rel=5e-3)
        counts.append(answer.rounds)
    assert counts[0] <= 30
    assert counts[-1] <= 2.5 * counts[0]


# ---------------------------------------------------------------------------------------------------- what is exchanged


def test_a_round_is_one_vector_up_and_scalars_and_the_multiplier_leaves_at_the_end():
    problem = tasks.neyman_pearson(data.neyman_pearson(5), 0.2)
    watch = Watching()
    answer = fp.solve(problem, "accelerated", session=watch, memory=6)
    assert answer.status == "solved"
    assert [exchange.step for exchange in watch.seen] == ["begin", *["advance"] * (answer.rounds - 2), "conclude"]
    judged = 1  # the start
    for exchange in watch.of("advance"):
        order, replies = exchange.order, exchange.replies
        judged += order.judge
        total = replies.total
        assert total.residual.shape == (21,)
        assert total.gradient.size == (21 if order.judge else 0)
        assert total.products.size == total.against.size <= 6
        assert total.coupled.size == 0
        assert replies[0].residual is None  # what is only summed is not there owner by owner
    assert judged == len(answer.history.outer) < answer.rounds - 2
    fields = answer.communication.owners["client 1"].fields
    assert [f for f in fields if "multiplier" in f] == ["Concluded.multiplier"]


def test_history_follows_the_solve():
    seen = []
    problem = random_problem(3)[0]
    answer = fp.solve(problem, "accelerated", tol=1e-6, callbacks=[lambda p: seen.append(p.rounds)])
    outer, inner = answer.history.outer, answer.history.inner
    assert outer[-1].stationarity == answer.certificate.stationarity
    assert outer[0].iteration == outer[0].inner_rounds == 0  # the start
    assert outer[-1].iteration == len(inner) == sum(r.inner_rounds for r in outer) == len(seen) - 1
    assert answer.rounds == len(inner) + 2
    assert "rho" in answer.history.notes[0]
    assert sum(r.gradients for r in outer) > 0


class Interrupting:
    def __init__(self, at):
        self.at, self.calls = at, 0

    def __call__(self, w):
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return float(np.logaddexp(0, w).sum() + 0.05 * w @ w), 1 / (1 + np.exp(-w)) + 0.1 * w


@pytest.mark.parametrize("at", [5, 12, 30])
def test_ctrl_c_gives_the_best_certified_point(at):
    def problem(fun):
        limit = fp.Constraint(Affine([[1.0, 0.2]], [0.5]), Nonnegative(1))
        other = fp.Share(Quadratic(np.diag([1.0, 5.0]), [-3.0, -2.0]), limit, name="a")
        return fp.FederatedProblem([other, fp.Share(Smooth(fun, dim=2), limit, name="b")])

    counter = Interrupting(0)
    assert fp.solve(problem(counter), "accelerated", tol=1e-8).solved
    assert counter.calls > at
    asked = problem(Interrupting(at))
    answer = fp.solve(asked, "accelerated", tol=1e-8)
    assert answer.status == "interrupted"
    assert fp.certify(asked, answer.w, answer.multipliers) == answer.certificate
    assert answer.certificate.worst <= min(
        (max(r.stationarity, r.feasibility) for r in answer.history.outer), default=9
    )


# ------------------------------------------------------------------------------------------------------------- endings


def half_space(slope, offset, name):
    return fp.Share(Quadratic(np.eye(3)), fp.Constraint(Affine([slope], [offset]), Nonnegative(1)), name=name)


def test_conflicting_owners_are_named_and_the_others_are_not():
    shares = [
        half_space([-1.0, 0, 0], 1.0, "north"),  # w_0 >= 1
        half_space([1.0, 0, 0], 1.0, "south"),  # w_0 <= -1
        half_space([0, 1.0, 0], -1.0, "east"),  # w_1 <= 1, harmless
    ]
    answer = fp.solve(fp.FederatedProblem(shares), "accelerated")
    assert answer.status == "infeasible"
    assert answer.conflict == ("north", "south")
    assert "loosen" in answer.reason


def test_a_conflict_with_the_server_with_the_domain_and_of_curved_constraints():
    server = fp.Share(None, fp.Constraint(Affine([[1.0, 1.0, 0]], [-4.0]), Zero(1)))  # w_0 + w_1 = 4
    shares = [half_space([1.0, 0, 0], -1.0, "a"), half_space([0, 1.0, 0], -1.0, "b"), half_space([0, 0, 1], -9.0, "c")]
    answer = fp.solve(fp.FederatedProblem(shares, server), "accelerated")
    assert answer.status == "infeasible"
    assert set(answer.conflict) == {"server", "a", "b"}
    boxed = fp.FederatedProblem([half_space([-1.0, 0, 0], 2.0, "a")], regularizer=fp.prox.Box(-1, 1))
    assert fp.solve(boxed, "accelerated").status == "infeasible"
    X = np.column_stack([np.random.default_rng(1).standard_normal((60, 2)), np.ones(60)])
    losses = [LogisticLoss(X, np.zeros(60)), LogisticLoss(X, np.ones(60))]
    curved = [fp.Share(losses[0], fp.Constraint(loss - 0.3, Nonnegative(1))) for loss in losses]
    assert fp.solve(fp.FederatedProblem(curved), "accelerated").status == "infeasible"


def test_an_owner_whose_own_constraint_has_no_point_is_named_at_once():
    ball = Smooth(lambda w: (float(w @ w + 1), 2 * w), hess=lambda w: 2 * np.eye(3), dim=3, convex=True)
    shares = [fp.Share(None, fp.Constraint(ball, Nonnegative(1)), name="bad"), half_space([0, 0, 1.0], -1.0, "good")]
    answer = fp.solve(fp.FederatedProblem(shares), "accelerated")
    assert answer.status == "infeasible"
    assert answer.conflict == ("bad",)
    assert answer.rounds <= 20


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_separable_data_without_a_regularizer_has_no_minimiser(tol):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = (X[:, 0] > 0).astype(float)
    X[:, 0] += np.where(y > 0, 0.5, -0.5)
    shares = [fp.Share(LogisticLoss(X[i::3], y[i::3])) for i in range(3)]
    answer = fp.solve(fp.FederatedProblem(shares), "accelerated", tol=tol)
    assert answer.status == "unbounded"
    assert "SquaredL2" in answer.reason
    fixed = fp.solve(fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1e-3)), "accelerated", tol=tol)
    assert fixed.status == "solved"


def test_a_linear_objective_without_bounds_is_unbounded_and_with_them_is_solved():
    shares = [fp.Share(Quadratic(np.zeros((2, 2)), [1.0, -2.0])), fp.Share(Quadratic(np.zeros((2, 2)), [0.5, 0.0]))]
    assert fp.solve(fp.FederatedProblem(shares), "accelerated").status == "unbounded"
    boxed = fp.solve(fp.FederatedProblem(shares, regularizer=fp.prox.Box(-1, 1)), "accelerated")
    assert boxed.status == "solved"
    np.testing.assert_allclose(boxed.w, [-1.0, 1.0])


def test_too_few_rounds_are_a_status_with_the_best_point_so_far():
    problem = tasks.neyman_pearson(data.neyman_pearson(5, rows=80), 0.2)
    for limit in (8, 12):
        answer = fp.solve(problem, "accelerated", tol=1e-9, max_rounds=limit)
        assert answer.status == "max_rounds"
        assert answer.rounds <= limit
        assert fp.certify(problem, answer.w, answer.multipliers) == answer.certificate


def outside_the_ball():
    """min |w - a|^2 over |w| >= 1 at one owner, with another owner pulling into the hole: not convex."""
    hole = Smooth(lambda w: (float(1 - w @ w), -2 * w), hess=lambda w: -2 * np.eye(2), dim=2)
    return fp.FederatedProblem(
        [
            fp.Share(Quadratic(np.eye(2), [-0.3, -0.1]), fp.Constraint(hole, Nonnegative(1))),
            fp.Share(Quadratic(np.eye(2), [-0.1, -0.1])),
        ]
    )


def test_a_nonconvex_subproblem_raises_the_penalty():
    """The nearest point of the circle to a = (0.2, 0.1), the minimiser of the sum."""
    answer = fp.solve(outside_the_ball(), "accelerated", tol=1e-6, w0=[0.5, 0.1], consensus_penalty=0.01)
    assert answer.status == "solved"
    assert answer.history.inner[-1].consensus_penalty > 0.1
    np.testing.assert_allclose(answer.w, np.array([2.0, 1.0]) / np.sqrt(5), atol=1e-5)


def test_a_nonconvex_problem_that_does_not_settle_goes_to_algorithm_1(monkeypatch):
    monkeypatch.setattr(Accelerated, "patience", 6)
    answer = fp.solve(outside_the_ball(), "accelerated", tol=1e-4, w0=[0.5, 0.1], consensus_penalty=0.01)
    assert any("proximal-al goes on" in note for note in answer.history.notes)
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, np.array([2.0, 1.0]) / np.sqrt(5), atol=1e-3)


# -------------------------------------------------------------------------------------- constraints that are not convex


def test_a_tie_makes_up_for_negative_curvature_and_changes_no_gradient():
    """|u|^2 >= 4 from inside: mu |u|^2 bends the Lagrangian down, and the pull stays its gradient -2 mu u."""
    outside = Smooth(lambda u: (float(4 - u @ u), -2 * u), hess=lambda u: -2 * np.eye(u.size), dim=3)
    share = fp.Share(None, fp.Constraint(outside, Nonnegative(1)))
    w = np.array([0.5, 0.0, 0.0])
    after, moved = advance(share, state_at(w, np.zeros(3), 0.7, np.zeros(1)), plain_order(w, 0.7))
    assert moved.indefinite
    assert after.tie > 0
    np.testing.assert_allclose(np.linalg.norm(after.warm.u), 2.0, atol=1e-8)
    np.testing.assert_allclose(after.pull, -2 * after.price[0] * after.warm.u, atol=1e-8)


def test_columns_that_bend_unevenly_are_rescaled_until_they_bend_alike():
    bends = np.array([1.0, 3e-3, 0.2, 0.0])
    columns = find_columns(fp.prox.L1(0.1), bends)
    assert np.all(columns == 2.0 ** np.round(np.log2(columns)))
    scaled = (columns**2 * bends)[:3]
    assert np.max(scaled) <= 4 * np.min(scaled)
    assert columns[3] == 1
    np.testing.assert_array_equal(find_columns(fp.prox.Simplex(), bends), np.ones(4))
    np.testing.assert_array_equal(find_columns(fp.prox.Zero(), np.array([1.0, 0.05])), np.ones(2))
