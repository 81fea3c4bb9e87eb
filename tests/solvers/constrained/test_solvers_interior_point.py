"""The federated interior-point method: counts, independent answers, edges, endings, and what leaves owners."""

import cvxpy as cp
import numpy as np
import pooled
import pytest
from marks import slow_but
from random_problems import random_problem
from real_tables import fairness, largest_gap, neyman_pearson_owners

import fedpact as fp
from fedpact import data, tasks
from fedpact.errors import OptionError
from fedpact.problem.share import Local
from fedpact.solvers.constrained.condensation import Point, barrier_model, move_pair, pack, unpack
from fedpact_experiments.datasets import adult_a

BOUND = 0.2


def solve(problem, **options):
    return fp.solve(problem, "interior-point", **options)


# ------------------------------------------------------------------------------------------------ exchanges, everywhere


@pytest.mark.parametrize("n", slow_but([5, 10, 20, 100], 5, 20))
def test_a_dozen_exchanges_on_synthetic_data(n):
    problem = tasks.neyman_pearson(data.neyman_pearson(n), BOUND)
    six, nine = solve(problem, tol=1e-6), solve(problem, tol=1e-9)
    assert six.status == nine.status == "solved"
    assert six.rounds <= 16
    assert nine.rounds <= six.rounds + 4
    assert fp.certify(problem, nine.w, nine.multipliers).worst <= 1e-9


@pytest.mark.parametrize("n", slow_but([5, 20], 5))
def test_the_synthetic_answer_is_the_conic_solvers(n):
    owners = data.neyman_pearson(n)
    value, w, prices = pooled.neyman_pearson(owners, BOUND)
    found = solve(tasks.neyman_pearson(owners, BOUND), tol=1e-6)
    assert found.objective == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(found.w, w, atol=1e-4)
    np.testing.assert_allclose(np.concatenate(found.multipliers[1:]), prices, atol=1e-4)


@pytest.mark.parametrize("n", slow_but([5, 10, 20, 100], 5))
@pytest.mark.parametrize("name", ["breast-cancer-wisc", "adult"])
def test_a_dozen_exchanges_on_real_data(name, n, data_folder):
    problem = tasks.neyman_pearson(neyman_pearson_owners(name, n, data_folder), BOUND)
    six, nine = solve(problem, tol=1e-6), solve(problem, tol=1e-9)
    assert six.status == nine.status == "solved"
    assert six.rounds <= 16
    # The optimum of adult lies at infinity, see the next test: the last digits are reached along a tail.
    assert nine.rounds <= six.rounds + (5 if name == "adult" else 4)


def test_adult_has_levels_of_one_class(data_folder):
    """Along such a column the class-0 loss falls forever, and no class-1 loss changes: no minimiser."""
    table = adult_a(data_folder)
    levels = [j for j in range(table.X.shape[1]) if set(np.unique(table.X[:, j])) == {0.0, 1.0}]
    assert [j for j in levels if not table.y[table.X[:, j] == 1].any()]


@pytest.mark.parametrize("n", [5, 10, 20, 100])
def test_an_optimum_at_infinity(n, data_folder):
    """monks-1 is quasi-separable: the loss falls forever along a ray, but to a positive limit."""
    owners = neyman_pearson_owners("monks-1", n, data_folder)
    found = solve(tasks.neyman_pearson(owners, BOUND), tol=1e-6)
    assert found.status == "solved"
    assert found.rounds <= 40
    if n <= 20:
        assert found.objective == pytest.approx(pooled.neyman_pearson(owners, BOUND, attained=False)[0], abs=1e-4)


@pytest.mark.parametrize("n", slow_but([1, 5, 10, 20, 100], 1))
def test_fairness_gaps_are_not_convex(n, data_folder):
    """He24, Section 5.2, with more banks; the gaps are recomputed here, and the twin on pooled data does no better."""
    problem, holders = fairness(n, data_folder)
    found = solve(problem, tol=1e-6)
    assert found.status == "solved"
    assert found.rounds <= 80
    met = [r.rounds for r in found.history.outer if max(r.stationarity, r.feasibility) <= 1e-3]
    assert met[0] <= 40
    assert largest_gap(holders, found.w) <= 0.1 + 1e-6
    if n <= 20:
        assert found.objective <= fp.solve(problem, "centralized-proximal-al", tol=1e-3).objective + 1e-6


@pytest.mark.parametrize(("n", "d", "m"), [(1, 100, 1), (5, 100, 1), (10, 300, 3), (100, 202, 1)])
def test_linear_equalities_take_two_steps(n, d, m):
    arrays = data.lcqp(n, d, m)
    exact = tasks.exact(*arrays)
    found = solve(tasks.linear_qp(*arrays), tol=1e-9)
    assert found.status == "solved"
    assert found.rounds <= 6
    np.testing.assert_allclose(found.w, exact.w, atol=1e-8)
    np.testing.assert_allclose(np.stack(found.multipliers), np.stack(exact.multipliers), atol=1e-6)


# ----------------------------------------------------------------------------------------------- cones, h, coupled rows


@pytest.mark.parametrize("h", [None, "l1", "box"])
@pytest.mark.parametrize("kinds", [("inequality", "curved"), ("equality",), ("ball", "inequality")])
def test_cones_and_regularizers_against_the_conic_solver(kinds, h):
    problem, conic = random_problem(7, 2, "logistic", kinds, h, at_server=("ball",))
    value, w, prices = conic.solve()
    found = solve(problem, tol=1e-7)
    assert found.status == "solved"
    assert found.objective == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(found.w, w, atol=1e-5)
    for ours, theirs in zip(found.multipliers, prices, strict=False):  # the conic program counts the box as rows
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_matrices():
    """The nearest matrix (w1 w2; w2 w3) that exceeds two others: linear matrix inequalities at two owners."""
    rng = np.random.default_rng(0)
    lower = [np.array([[2.0, 0.5], [0.5, 0.0]]), np.array([[0.0, -0.5], [-0.5, 1.0]])]
    target = rng.standard_normal(3)
    weights = np.array([1.0, np.sqrt(2), 1.0])  # svec of (w1 w2; w2 w3)
    shares = [
        fp.Share(
            fp.functions.Quadratic(np.eye(3), -target),
            fp.Constraint(fp.functions.Affine(-np.diag(weights), fp.cones.svec(low)), fp.cones.PSD(2)),
        )
        for low in lower
    ]
    problem = fp.FederatedProblem(shares)
    found = solve(problem, tol=1e-8)
    w = cp.Variable(3)
    matrix = cp.bmat([[w[0], w[1]], [w[1], w[2]]])
    value = pooled.solved(cp.sum_squares(w) - 2 * target @ w, [matrix - low >> 0 for low in lower])
    assert found.status == "solved"
    assert found.objective == pytest.approx(value, abs=1e-6)
    assert fp.certify(problem, found.w, found.multipliers).worst <= 1e-8


def test_coupled_constraints_have_their_price_at_the_server():
    rng = np.random.default_rng(2)
    A, b = rng.standard_normal((4, 2, 3)), rng.standard_normal((4, 3))
    shares = [
        fp.Share(
            fp.functions.Quadratic(np.eye(3), b[i]),
            fp.Constraint(fp.functions.Affine(np.ones((1, 3)), [-1.0]), fp.cones.Nonnegative(1)) if i == 1 else None,
            coupled=fp.functions.Affine(A[i], [0.2, 0.1]) if i != 2 else None,
        )
        for i in range(4)
    ]
    problem = fp.FederatedProblem(shares)
    found = solve(problem, tol=1e-8)
    w = cp.Variable(3)
    total = sum(A[i] @ w for i in (0, 1, 3)) + 3 * np.array([0.2, 0.1])
    conic = cp.Problem(cp.Minimize(2 * cp.sum_squares(w) + b.sum(axis=0) @ w), [total <= 0, cp.sum(w) <= 1])
    conic.solve(solver=cp.CLARABEL)
    assert found.status == "solved"
    assert found.objective == pytest.approx(conic.value, abs=1e-6)
    np.testing.assert_allclose(found.coupled_multiplier, conic.constraints[0].dual_value, atol=1e-5)
    assert found.multipliers[0].size == 0
    assert fp.certify(problem, found.w, found.multipliers, found.coupled_multiplier).worst <= 1e-8


def test_a_curved_coupled_constraint():
    """Coupled maps with Hessians: sum_i |w - a_i|^2 <= r, closed form by the distance from the mean of the a_i."""
    points = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]])
    centre, spread = points.mean(axis=0), float(np.sum((points - points.mean(axis=0)) ** 2))
    radius = 0.5
    goal = np.array([5.0, 5.0])
    shares = [
        fp.Share(
            fp.functions.Quadratic(np.eye(2), -goal),
            coupled=2 * fp.functions.Quadratic(np.eye(2), -a) + float(a @ a) - (spread + 3 * radius**2) / 3,
        )
        for a in points
    ]
    found = solve(fp.FederatedProblem(shares), tol=1e-9)
    away = (goal - centre) / np.linalg.norm(goal - centre)
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, centre + radius * away, atol=1e-7)


# ------------------------------------------------------------------------------------------------------------- edges


def test_columns_of_very_different_scale():
    owners = data.neyman_pearson(3, seed=1)
    scale = np.repeat([1.0, 1e4], [10, 11])
    plain = solve(tasks.neyman_pearson(owners, BOUND), tol=1e-6)
    scaled = solve(tasks.neyman_pearson({k: (X * scale, y) for k, (X, y) in owners.items()}, BOUND), tol=1e-6)
    assert scaled.status == "solved"
    assert scaled.objective == pytest.approx(plain.objective, abs=1e-6)
    np.testing.assert_allclose(scaled.w * scale, plain.w, atol=1e-4)


def test_one_hot_columns_with_an_intercept():
    """The columns of a level add up to the intercept: the Hessian is singular, the answer still right."""
    rng = np.random.default_rng(4)
    level, x = rng.integers(0, 3, 300), rng.standard_normal(300)
    y = (x + level - 1 + rng.logistic(size=300) > 0).astype(int)
    X = np.column_stack([np.eye(3)[level], x, np.ones(300)])
    owners = {f"owner {i}": (X[i::3], y[i::3]) for i in range(3)}
    found = solve(tasks.neyman_pearson(owners, 0.5), tol=1e-8)
    value, _, prices = pooled.neyman_pearson(owners, 0.5)
    assert found.status == "solved"
    assert found.objective == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(np.concatenate(found.multipliers[1:]), prices, atol=1e-4)
    assert np.linalg.norm(found.w) < 10


def test_owners_of_very_different_size():
    sizes = (10, 300, 10_000)
    owners = {f"{r} rows": next(iter(data.neyman_pearson(1, rows=r, d=6, seed=r).values())) for r in sizes}
    assert [len(y) for _, y in owners.values()] == list(sizes)
    found = solve(tasks.neyman_pearson(owners, BOUND), tol=1e-6)
    small = {k: v for k, v in owners.items() if len(v[1]) < 1000}
    assert found.status == "solved"
    assert found.rounds <= 16
    losses = [np.logaddexp(0, -X[y == 1] @ found.w).mean() for X, y in owners.values()]
    assert max(losses) <= BOUND + 1e-6
    value, _, _ = pooled.neyman_pearson(small, BOUND)
    assert solve(tasks.neyman_pearson(small, BOUND), tol=1e-6).objective == pytest.approx(value, abs=1e-6)


def test_all_bounds_active():
    owners = data.neyman_pearson(4, seed=3)
    found = solve(tasks.neyman_pearson(owners, 0.02), tol=1e-6)
    value, _, prices = pooled.neyman_pearson(owners, 0.02)
    assert found.status == "solved"
    assert min(prices) > 1e-3
    assert found.objective == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(np.concatenate(found.multipliers[1:]), prices, rtol=1e-4)


def test_no_bound_active():
    rng = np.random.default_rng(0)
    share = fp.Share(
        fp.functions.Quadratic(np.eye(2), rng.standard_normal(2)),
        fp.Constraint(fp.functions.Affine(np.eye(2), [-9.0, -9.0]), fp.cones.Nonnegative(2)),
    )
    found = solve(fp.FederatedProblem([share, share]), tol=1e-9)
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, -share.objective.gradient(np.zeros(2)), atol=1e-9)
    assert not np.concatenate(found.multipliers).any()


def test_repeated_equalities():
    share = fp.Share(
        fp.functions.Quadratic(np.eye(2), [1.0, 0.0]),
        fp.Constraint(fp.functions.Affine([[1.0, 1.0], [2.0, 2.0]], [-2.0, -4.0]), fp.cones.Zero(2)),
    )
    found = solve(fp.FederatedProblem([share, share]), tol=1e-8)
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, [0.5, 1.5], atol=1e-7)


def test_steps_out_of_the_domain_are_shortened():
    def value(w):
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(w[0] - np.log(w[0])), np.array([1 - 1 / w[0]])

    f = fp.functions.Smooth(value, hess=lambda w: np.array([[1 / w[0] ** 2]]), dim=1)
    found = solve(fp.FederatedProblem([fp.Share(f)]), w0=[3.0], tol=1e-8)  # Newton's first step goes to -3
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, [1.0], atol=1e-7)


# ----------------------------------------------------------------------------------------------------------- endings


def bounds(*rows):
    """Owners with w[0] <= b or w[0] >= b each."""
    return fp.FederatedProblem(
        [
            fp.Share(
                fp.functions.Quadratic(np.eye(2), [1.0, 0.0]),
                fp.Constraint(fp.functions.Affine([[sign, 0.0]], [-sign * b]), fp.cones.Nonnegative(1)),
            )
            for sign, b in rows
        ]
    )


def test_conflicting_bounds_are_infeasible_and_named():
    found = solve(bounds((1, -1.0), (-1, 1.0), (1, 50.0)), tol=1e-6)
    assert found.status == "infeasible"
    assert found.conflict == ("client 1", "client 2")
    assert "client 1, client 2 exclude each other" in found.reason
    assert found.certificate.violation >= 1.0 - 1e-6


@pytest.mark.parametrize("start", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_a_loss_bound_that_no_model_meets(start, shift):
    """Two hospitals whose positive cases are nearly each other's mirror image: not both losses can be small."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 2)) + np.array([1.0, 0.0])
    y = np.tile([0, 1], 30)
    problem = tasks.neyman_pearson({"east": (X, y), "west": (-X + [0.0, shift], y)}, 0.3)
    found = solve(problem, tol=1e-4, w0=[start, -start])
    assert found.status == "infeasible"
    assert set(found.conflict) == {"east", "west"}


def far_apart(kind, centre, rng):
    """A constraint that holds only near the centre (or, for the loss, on its side)."""
    d = centre.size
    if kind == "ball":
        square = 2 * fp.functions.Quadratic(np.eye(d), -centre) + float(centre @ centre)
        return fp.Constraint(square - 1.0, fp.cones.Nonnegative(1))
    if kind == "cone":
        rows = fp.functions.Affine(np.vstack([np.zeros(d), np.eye(d)]), np.append(-1.0, -centre))
        return fp.Constraint(rows, fp.cones.SecondOrder(d + 1))
    X = rng.standard_normal((40, d)) + 0.5 * centre
    return fp.Constraint(fp.functions.LogisticLoss(X, np.ones(40)) - 0.1, fp.cones.Nonnegative(1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["ball", "cone", "loss"])
def test_curved_constraints_that_exclude_each_other(kind, seed):
    """Two owners want opposite sides, from a random start; a third one does not mind."""
    rng = np.random.default_rng(seed)
    side = rng.standard_normal(4)
    side *= 4 / np.linalg.norm(side)
    shares = [
        fp.Share(fp.functions.Quadratic(np.eye(4), rng.standard_normal(4)), far_apart(kind, centre, rng))
        for centre in (side, -side)
    ]
    shares.append(fp.Share(fp.functions.Quadratic(np.eye(4))))
    found = solve(fp.FederatedProblem(shares), tol=1e-4, w0=rng.standard_normal(4))
    assert found.status == "infeasible"
    assert found.conflict == ("client 1", "client 2")
    assert found.rounds <= 30  # Algorithm 1 alone takes hundreds


def test_a_start_where_a_violation_is_flat_proves_nothing():
    """w^2 >= 1 from w = 0, where its gradient vanishes: that would prove a convex constraint infeasible."""
    away = fp.Constraint(1.0 - 2.0 * fp.functions.Quadratic(np.eye(1)), fp.cones.Nonnegative(1))
    found = solve(fp.FederatedProblem([fp.Share(fp.functions.Quadratic(np.eye(1), [-0.1]), away)]), tol=1e-8)
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, [1.0], atol=1e-8)
    np.testing.assert_allclose(found.multipliers[1], [0.45], atol=1e-7)  # w - 0.1 = 2 w mu


def test_derivatives_that_do_not_belong_together_stall_with_a_hint():
    """A gradient that no Newton step makes small: |grad| = 1 everywhere."""
    liar = fp.functions.Smooth(lambda w: (float(w @ w), np.ones(2)), hess=lambda w: np.eye(2), dim=2)
    found = solve(fp.FederatedProblem([fp.Share(liar)]), tol=1e-6)
    assert found.status == "stalled"
    assert found.reason.startswith("client 1: the gradient or Jacobian of its objective does not belong")


@pytest.mark.parametrize("bounded", [False, True])
def test_where_newton_steps_run_away(bounded):
    """sqrt(1 + w^2): Newton's step leads from w to -w^3, farther and farther from the minimiser, 0.

    Alone, the objective tells that a step was bad; beside a constraint another method goes on.
    """

    def fun(w):
        with np.errstate(over="ignore"):
            root = np.sqrt(1 + w**2)
        return float(root.sum()), w / root

    def hess(w):
        with np.errstate(over="ignore"):
            return np.diag((1 + w**2) ** -1.5)

    below = fp.Constraint(fp.functions.Affine([[1.0, 0.0]], [-1e9]), fp.cones.Nonnegative(1))
    share = fp.Share(fp.functions.Smooth(fun, hess, dim=2, convex=True), below if bounded else None)
    found = solve(fp.FederatedProblem([share]), w0=[1.6, 5.0], tol=1e-6)
    assert found.solved
    assert found.reason == "the certificate meets the tolerances"
    assert any("goes on" in note for note in found.history.notes) == bounded
    np.testing.assert_allclose(found.w, 0.0, atol=1e-6)
    assert found.rounds <= 100


def test_what_was_found_before_consensus_is_not_lost():
    """Two kinks: nobody can meet 1e-6, but the better of both points is given, with its own prices."""
    rng = np.random.default_rng(0)

    def kinked(centre):
        return fp.functions.Smooth(
            lambda w: (float(np.abs(w - centre).sum()), np.sign(w - centre)), hess=lambda w: 1e-3 * np.eye(2), dim=2
        )

    shares = [fp.Share(kinked(centre)) for centre in rng.standard_normal((2, 2))]
    problem = fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(0.1))
    found = solve(problem, tol=1e-6, max_rounds=300)
    assert found.status in ("stalled", "max_rounds")
    assert any("interior-point" in note and "accelerated goes on" in note for note in found.history.notes)
    assert found.certificate == fp.certify(problem, found.w, found.multipliers)
    assert found.certificate.stationarity <= min(record.stationarity for record in found.history.outer)
    assert found.rounds <= 300


def test_separable_data_is_unbounded():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = (X[:, 0] > 0).astype(int)
    shares = [fp.Share(fp.functions.LogisticLoss(X[i::2], y[i::2])) for i in range(2)]
    assert solve(fp.FederatedProblem(shares), tol=1e-6).status == "unbounded"


def test_a_linear_objective_without_end():
    linear = fp.functions.Quadratic(np.zeros((2, 2)), [1.0, -1.0])
    below = fp.Constraint(fp.functions.Affine([[-1.0, 0.0]], [0.0]), fp.cones.Nonnegative(1))
    assert solve(fp.FederatedProblem([fp.Share(linear, below)]), tol=1e-6).status == "unbounded"
    both = fp.Constraint(fp.functions.Affine([[-1.0, 0.0], [0.0, 1.0]], [1.0, -2.0]), fp.cones.Nonnegative(2))
    found = solve(fp.FederatedProblem([fp.Share(linear, both)]), tol=1e-8)  # a linear program
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, [1.0, 2.0], atol=1e-7)


def test_an_interrupted_run_gives_its_best_point():
    problem = tasks.neyman_pearson(data.neyman_pearson(5), BOUND)
    seen = []

    def stop(progress):
        seen.append(progress)
        if len(seen) == 6:
            raise KeyboardInterrupt

    found = solve(problem, tol=1e-12, callbacks=[stop])
    assert found.status == "interrupted"
    assert found.certificate == fp.certify(problem, found.w, found.multipliers)
    assert found.certificate.worst < 0.1


class WithoutInterior(fp.cones.Nonnegative):
    """An orthant whose interior nobody has written down."""

    symmetric = False


def test_what_it_cannot_take_is_refused():
    def square(w):
        return float(w @ w), 2 * w

    smooth = fp.FederatedProblem([fp.Share(fp.functions.Smooth(square, dim=2), name="north")])
    with pytest.raises(OptionError, match=r"needs Hessians.*north.*accelerated"):
        solve(smooth)
    cone = fp.Constraint(fp.functions.Affine(np.eye(3)), WithoutInterior(3))
    other = fp.FederatedProblem([fp.Share(fp.functions.Quadratic(np.eye(3), np.ones(3)), cone)])
    with pytest.raises(OptionError, match=r"client 1.*WithoutInterior.*accelerated"):
        solve(other)
    below = fp.Constraint(fp.functions.Affine(np.eye(3)), fp.cones.Nonnegative(3))
    both = fp.FederatedProblem([fp.Share(fp.functions.Quadratic(np.eye(3), np.ones(3)), [below, cone], name="south")])
    with pytest.raises(OptionError, match=r"south has the cone WithoutInterior"):  # the block, not the product
        solve(both)


# ------------------------------------------------------------------------------------------------- what leaves an owner


def test_multipliers_leave_only_at_the_end_and_matrices_as_triangles():
    problem = tasks.neyman_pearson(data.neyman_pearson(3, d=10), BOUND)
    found = solve(problem, tol=1e-6)
    traffic = found.communication.owners["client 1"]
    assert [f for f in traffic.fields if "multiplier" in f] == ["Concluded.multiplier"]
    assert traffic.messages_up == found.rounds
    triangles = 2 * 55 * 8  # at most two of them in a message
    assert traffic.bytes_up <= found.rounds * (triangles + 8 * (7 * 10 + 12))


def test_packing_a_symmetric_matrix():
    matrix = np.arange(16.0).reshape(4, 4)
    matrix = matrix + matrix.T
    np.testing.assert_array_equal(unpack(pack(matrix), 4), matrix)
    assert pack(matrix).size == 10


def test_a_cut_step_shortens_linear_residuals_by_its_length():
    """c + s falls by the part that slack and w go together; where the slack stops alone it may grow."""
    rng = np.random.default_rng(3)
    cone = fp.cones.Nonnegative(4)
    jacobian, value = rng.normal(size=(4, 2)), rng.normal(size=4)
    slack, multiplier = np.full(4, 0.01), np.ones(4)
    local = Local(0.0, np.zeros(2), value, jacobian, np.zeros(0), np.zeros((0, 2)))
    model = barrier_model(cone, local, slack, multiplier, 1.0)
    origin = Point(np.zeros(2), slack, multiplier, multiplier, local, model, None)
    step = np.array([3.0, -2.0])
    _, _, too_long = move_pair(cone, origin, step, 1e-3, False)
    assert too_long > 1
    length = 1 / too_long
    cut, price, rest = move_pair(cone, origin, step, 1e-3, False, length)
    assert cut.min() > 0
    assert price.min() > 0
    assert rest == 0
    assert value + length * jacobian @ step + cut == pytest.approx((1 - length) * (value + slack), abs=1e-14)
