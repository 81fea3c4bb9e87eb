"""Every local solver on every function it accepts, against an independent minimum."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

from fedpact import functions, prox
from fedpact.solvers import local
from fedpact.solvers.local import anchored

RNG = np.random.default_rng(3)
X = RNG.standard_normal((60, 6))
Y = (RNG.random(60) < 0.4).astype(float)
A = (lambda m: m @ m.T / 6 + 0.2 * np.eye(6))(RNG.standard_normal((6, 6)))
B = RNG.standard_normal(6)


def quartic(w):
    return float((w @ w) ** 2 + B @ w), 4 * (w @ w) * w + B


def quartic_hessian(w):
    return 8 * np.outer(w, w) + 4 * (w @ w) * np.eye(w.size)


FUNCTIONS = {
    "quadratic": functions.Quadratic(A, B),
    "logistic": anchored(functions.LogisticLoss(X, Y), 0.01, np.ones(6)),
    "quartic": functions.Smooth(quartic, hess=quartic_hessian, dim=6),
    "first order": functions.Smooth(quartic, dim=6),
}
SOLVERS = {
    "newton": (local.newton, lambda f: f.has_hessian),
    "newton_cg": (local.newton_cg, lambda f: f.has_hessian),
    "lbfgs": (local.lbfgs, lambda f: True),
    "exact": (local.exact, lambda f: f.constant_hessian),
    "chosen": (local.minimize, lambda f: True),
}
PAIRS = [(s, f) for s, (_, accepts) in SOLVERS.items() for f, function in FUNCTIONS.items() if accepts(function)]


@pytest.mark.parametrize(("solver", "name"), PAIRS)
@pytest.mark.parametrize("tolerance", [1e-2, 1e-7])
def test_local_solver_reaches_the_minimum_to_the_asked_gradient(solver, name, tolerance):
    function = FUNCTIONS[name]
    found = SOLVERS[solver][0](function, np.full(6, 0.5), tolerance)
    assert found.converged
    assert np.max(np.abs(function.gradient(found.w))) <= tolerance
    assert found.residual == pytest.approx(np.max(np.abs(function.gradient(found.w))), abs=1e-12)
    reference = scipy_minimize(
        function.value_and_gradient, np.zeros(6), jac=True, method="BFGS", options={"gtol": 1e-9}
    )
    assert function.value(found.w) <= reference.fun + 20 * tolerance**1.5
    if tolerance < 1e-6:
        np.testing.assert_allclose(found.w, reference.x, atol=1e-5)


@pytest.mark.parametrize("solver", ["newton", "lbfgs", "newton_cg"])
def test_a_start_that_is_good_enough_costs_one_gradient(solver):
    function = FUNCTIONS["logistic"]
    best = local.newton(function, np.zeros(6), 1e-12).w
    found = SOLVERS[solver][0](function, best, 1e-6)
    assert found.gradients <= 2
    np.testing.assert_array_equal(found.w, best)


def test_exact_reuses_a_kept_factor():
    function = FUNCTIONS["quadratic"]
    kept = local.factor(function)
    found = local.exact(function, np.zeros(6), 1e-10, kept)
    assert found.hessians == 0
    np.testing.assert_allclose(found.w, np.linalg.solve(A, -B), atol=1e-9)


def test_newton_leaves_a_saddle_and_reports_negative_curvature():
    def double_well(w):  # minima at (+-1, 0), a saddle at the origin
        return float((w[0] ** 2 - 1) ** 2 + w[1] ** 2), np.array([4 * w[0] * (w[0] ** 2 - 1), 2 * w[1]])

    well = functions.Smooth(double_well, hess=lambda w: np.diag([12 * w[0] ** 2 - 4, 2.0]), dim=2)
    found = local.newton(well, np.array([0.1, 0.3]), 1e-9)
    np.testing.assert_allclose(found.w, [1.0, 0.0], atol=1e-8)
    assert found.indefinite


def test_newton_says_when_it_ran_out_of_iterations():
    found = local.newton(FUNCTIONS["logistic"], np.full(6, 30.0), 1e-12, max_iterations=1)
    assert not found.converged
    assert found.residual > 1e-12


REGULARIZERS = {
    "l1": (prox.L1(0.3), lambda w: 0.3 * cp.norm1(w), []),
    "elastic net": (prox.ElasticNet(0.2, 0.5), lambda w: 0.2 * cp.norm1(w) + 0.25 * cp.sum_squares(w), []),
    "box": (prox.Box(-0.4, 0.2), lambda w: 0, [lambda w: w >= -0.4, lambda w: w <= 0.2]),
    "simplex": (prox.Simplex(), lambda w: 0, [lambda w: w >= 0, lambda w: cp.sum(w) == 1]),
    "group": (prox.GroupL2([[0, 1], [2, 3, 4]], 0.5), lambda w: 0.5 * (cp.norm(w[:2]) + cp.norm(w[2:5])), []),
}


@pytest.mark.parametrize("name", REGULARIZERS)
def test_proximal_gradient_solves_the_composite_problem(name):
    h, cost, sets = REGULARIZERS[name]
    found = local.minimize(FUNCTIONS["quadratic"], h.prox(np.zeros(6), 1.0), 1e-9, regularizer=h)
    w = cp.Variable(6)
    problem = cp.Problem(cp.Minimize(0.5 * cp.quad_form(w, cp.psd_wrap(A)) + B @ w + cost(w)), [s(w) for s in sets])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    assert found.converged
    assert FUNCTIONS["quadratic"].value(found.w) + h.value(found.w) == pytest.approx(problem.value, abs=1e-8)
    np.testing.assert_allclose(found.w, w.value, atol=1e-4)
    assert h.subdifferential_distance(-FUNCTIONS["quadratic"].gradient(found.w), found.w) <= 1e-9


def test_a_squared_norm_is_taken_as_smooth_and_nothing_but_an_anchor_is_one_prox():
    ridge = local.minimize(FUNCTIONS["quadratic"], np.zeros(6), 1e-10, regularizer=prox.SquaredL2(2.0))
    np.testing.assert_allclose(ridge.w, np.linalg.solve(A + 2 * np.eye(6), -B), atol=1e-9)
    only = local.minimize(
        anchored(local.Constant(3), 2.0, np.array([1.0, -0.1, -3])), np.zeros(3), 1e-9, regularizer=prox.L1(1.0)
    )
    np.testing.assert_allclose(only.w, [0.5, 0.0, -2.5])
    assert only.gradients == 0


def test_two_anchors_are_one():
    function, w = FUNCTIONS["logistic"], RNG.standard_normal(6)
    once = anchored(anchored(functions.LogisticLoss(X, Y), 0.5, np.ones(6)), 1.5, -np.ones(6))
    by_hand = functions.LogisticLoss(X, Y).gradient(w) + 0.5 * (w - 1) + 1.5 * (w + 1)
    np.testing.assert_allclose(once.gradient(w), by_hand, rtol=1e-12)
    np.testing.assert_allclose(once.hessian(w), functions.LogisticLoss(X, Y).hessian(w) + 2 * np.eye(6), rtol=1e-12)
    assert anchored(function, 0.0, w) is function


def test_many_variables_use_products_instead_of_a_dense_hessian():
    rng = np.random.default_rng(0)
    data = rng.standard_normal((50, local.DENSE_LIMIT + 50)) / 10
    function = anchored(
        functions.LogisticLoss(data, (rng.random(50) < 0.5).astype(float)), 0.1, np.zeros(data.shape[1])
    )
    found = local.minimize(function, np.zeros(data.shape[1]), 1e-8)
    assert found.converged
    assert np.max(np.abs(function.gradient(found.w))) <= 1e-8


def test_lbfgs_notices_negative_curvature_without_a_hessian():
    """From the top of a wave the gradient falls on the way down; on a convex function it never does."""

    def wave(w):
        return float(np.sum(np.cos(w))), -np.sin(w)

    found = local.minimize(functions.Smooth(wave, dim=3), np.array([0.1, -0.2, 0.3]), 1e-8)
    assert found.indefinite
    np.testing.assert_allclose(np.abs(found.w), np.pi, atol=1e-7)
    convex = functions.Smooth(FUNCTIONS["logistic"].value_and_gradient, dim=6)
    assert not local.minimize(convex, 3 * RNG.standard_normal(6), 1e-10).indefinite
