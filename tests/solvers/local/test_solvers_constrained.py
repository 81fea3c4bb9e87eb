"""The proximal step under a constraint: every cone against a conic solver, its residual against the definition."""

import cvxpy as cp
import numpy as np
import pooled
import pytest

import fedpact as fp
from fedpact.cones import PSD, Exponential, Nonnegative, SecondOrder, Zero
from fedpact.functions import Affine, LogisticLoss, Quadratic, Smooth, SmoothMap
from fedpact.solvers.local.constrained import Warm, constrained

D, WEIGHT = 5, 0.7
rng = np.random.default_rng(3)
ROOT = rng.standard_normal((D, D))
A, B = ROOT @ ROOT.T / D, rng.standard_normal(D)
ANCHOR = 2 * rng.standard_normal(D)
C, E = rng.standard_normal((6, D)), 0.3 * rng.standard_normal(6)
F, G, S = rng.standard_normal((3, D)), 0.5 * rng.standard_normal((3, D)), 0.3 * rng.standard_normal((3, D))
SVEC = np.sqrt(2)


def cold(share):
    return Warm(np.zeros(D), np.zeros(share.multiplier_length))


def blocks(w):
    """By name: the constraint of fedpact, and the same in cvxpy; all are active or nearly so at the solution."""
    matrix = cp.bmat([[1 + S[0] @ w, S[1] @ w], [S[1] @ w, 0.5 + S[2] @ w]])
    return {
        "zero": (fp.Constraint(Affine(C[:2], E[:2]), Zero(2)), [C[:2] @ w + E[:2] == 0]),
        "nonnegative": (fp.Constraint(Affine(C, E), Nonnegative(6)), [C @ w + E <= 0]),
        "second order": (
            fp.Constraint(Affine(-np.vstack([np.zeros(D), F]), [-0.8, 0, 0, 0]), SecondOrder(4)),
            [cp.SOC(cp.Constant(0.8), F @ w)],
        ),
        "psd": (
            fp.Constraint(Affine(-np.array([S[0], SVEC * S[1], S[2]]), [-1.0, 0.0, -0.5]), PSD(2)),
            [matrix >> 0],
        ),
        "exponential": (
            fp.Constraint(Affine(-G, [0.0, -1.0, -1.5]), Exponential()),
            [cp.constraints.ExpCone(G[0] @ w, 1 + G[1] @ w, 1.5 + G[2] @ w)],
        ),
    }


def dual_of(name, constraint):
    if name == "psd":
        dual = constraint.dual_value
        return np.array([dual[0, 0], SVEC * dual[1, 0], dual[1, 1]])
    if name == "exponential":
        return np.ravel(constraint.dual_value)
    if name == "second order":
        return np.concatenate([np.ravel(part) for part in constraint.dual_value])
    return np.ravel(constraint.dual_value)


def conic(w, constraints, extra=0):
    pooled.solved(
        0.5 * cp.quad_form(w, cp.psd_wrap(A)) + B @ w + WEIGHT / 2 * cp.sum_squares(w - ANCHOR) + extra, constraints
    )
    return np.asarray(w.value)


def assert_optimal(share, found, tolerance):
    """The definition: stationarity, and c(u) in the normal cone of K* at a multiplier in K*."""
    value, jacobian = share.constraint.function.value_and_jacobian(found.u)
    gradient = WEIGHT * (found.u - ANCHOR) + jacobian.T @ found.multiplier
    if share.objective is not None:
        gradient = gradient + share.objective.gradient(found.u)
    assert np.max(np.abs(gradient)) <= tolerance
    assert share.constraint.cone.normal_distance(value, found.multiplier) <= 10 * tolerance
    assert found.converged


@pytest.mark.parametrize("name", ["zero", "nonnegative", "second order", "psd", "exponential"])
def test_every_cone_against_a_conic_solver(name):
    w = cp.Variable(D)
    constraint, same = blocks(w)[name]
    share = fp.Share(Quadratic(A, B), constraint)
    found = constrained(share, WEIGHT, ANCHOR, cold(share), 1e-10)
    np.testing.assert_allclose(found.u, conic(w, same), atol=1e-5)
    if name != "exponential":  # cvxpy orders and signs its dual otherwise; the definition below checks ours
        np.testing.assert_allclose(found.multiplier, dual_of(name, same[0]), atol=2e-5)
    assert np.max(np.abs(found.multiplier)) > 1e-3  # active, or the test says nothing
    assert_optimal(share, found, 1e-10)
    assert found.hessians <= 20


def test_all_cones_at_once_and_a_curved_inequality():
    w = cp.Variable(D)
    known = blocks(w)
    X, y = np.random.default_rng(5).standard_normal((30, D)), np.tile([0.0, 1.0], 15)
    loss = LogisticLoss(X, y)
    names = ["second order", "psd", "exponential"]
    share = fp.Share(
        Quadratic(A, B), [*(known[n][0] for n in names), fp.Constraint(loss - 0.66, Nonnegative(1))], name="all"
    )
    found = constrained(share, WEIGHT, ANCHOR, cold(share), 1e-10)
    same = [c for n in names for c in known[n][1]] + [pooled.logistic_mean(X, y, w) <= 0.66]
    np.testing.assert_allclose(found.u, conic(w, same), atol=1e-4)
    assert found.multiplier[-1] > 0
    assert_optimal(share, found, 1e-10)


def test_without_an_objective_it_is_the_projection():
    """Onto |u| <= 1: anchor / |anchor|, with the multiplier from weight (u - anchor) + 2 mu u = 0."""
    ball = Smooth(lambda u: (float(u @ u - 1), 2 * u), hess=lambda u: 2 * np.eye(D), dim=D)
    share = fp.Share(None, fp.Constraint(ball, Nonnegative(1)))
    found = constrained(share, WEIGHT, ANCHOR, cold(share), 1e-11)
    size = np.linalg.norm(ANCHOR)
    np.testing.assert_allclose(found.u, ANCHOR / size, atol=1e-10)
    np.testing.assert_allclose(found.multiplier, [WEIGHT * (size - 1) / 2], atol=1e-9)


def test_without_a_constraint_it_is_the_linear_solve():
    share = fp.Share(Quadratic(A, B))
    found = constrained(share, WEIGHT, ANCHOR, cold(share), 1e-10)
    np.testing.assert_allclose(found.u, np.linalg.solve(A + WEIGHT * np.eye(D), WEIGHT * ANCHOR - B), atol=1e-10)
    again = constrained(share, WEIGHT, -ANCHOR, found.warm, 1e-10)
    assert again.hessians == 0  # the factor is kept
    np.testing.assert_allclose(again.u, np.linalg.solve(A + WEIGHT * np.eye(D), -WEIGHT * ANCHOR - B), atol=1e-10)


def test_functions_without_hessians():
    objective = Smooth(lambda u: (float(u @ A @ u / 2 + B @ u), A @ u + B), dim=D)
    norm = SmoothMap(lambda u: (np.array([u @ u - 1.0, u[0] - 0.1]), np.vstack([2 * u, np.eye(D)[0]])), length=2, dim=D)
    share = fp.Share(objective, fp.Constraint(norm, Nonnegative(2)))
    found = constrained(share, WEIGHT, ANCHOR, cold(share), 1e-8)
    w = cp.Variable(D)
    np.testing.assert_allclose(found.u, conic(w, [cp.sum_squares(w) <= 1, w[0] <= 0.1]), atol=1e-5)
    assert found.hessians == 0
    assert_optimal(share, found, 1e-8)


def test_inactive_constraints_have_no_price():
    share = fp.Share(Quadratic(A, B), fp.Constraint(Affine(C, E - 100), Nonnegative(6)))
    found = constrained(share, WEIGHT, ANCHOR, Warm(np.zeros(D), np.ones(6)), 1e-10)
    np.testing.assert_array_equal(found.multiplier, np.zeros(6))
    np.testing.assert_allclose(found.u, np.linalg.solve(A + WEIGHT * np.eye(D), WEIGHT * ANCHOR - B), atol=1e-9)


def test_dependent_equalities_are_solved():
    share = fp.Share(Quadratic(A, B), fp.Constraint(Affine(np.vstack([C[:2], C[:2]]), np.tile(E[:2], 2)), Zero(4)))
    found = constrained(share, WEIGHT, ANCHOR, cold(share), 1e-9)
    w = cp.Variable(D)
    np.testing.assert_allclose(found.u, conic(w, [C[:2] @ w + E[:2] == 0]), atol=1e-6)
    assert_optimal(share, found, 1e-9)


def test_a_warm_start_needs_few_hessians_and_a_kept_factor_none():
    X, y = np.random.default_rng(6).standard_normal((50, D)), np.tile([0.0, 1.0], 25)
    share = fp.Share(LogisticLoss(X[25:], y[25:]), fp.Constraint(LogisticLoss(X, y) - 0.66, Nonnegative(1)))
    first = constrained(share, WEIGHT, ANCHOR, cold(share), 1e-9)
    second = constrained(share, WEIGHT, ANCHOR + 1e-3, first.warm, 1e-9)
    assert second.converged
    assert second.hessians <= 3
    linear = fp.Share(Quadratic(A, B), blocks(cp.Variable(D))["nonnegative"][0])
    start = constrained(linear, WEIGHT, ANCHOR, cold(linear), 1e-9)
    again = constrained(linear, WEIGHT, ANCHOR + 1e-3, start.warm, 1e-9)
    assert again.hessians == 0
    other = constrained(linear, 2 * WEIGHT, ANCHOR, start.warm, 1e-9)  # another weight, another factor
    fresh = constrained(linear, 2 * WEIGHT, ANCHOR, cold(linear), 1e-9)
    np.testing.assert_allclose(other.u, fresh.u, atol=1e-8)


def test_a_constraint_that_nothing_meets_is_a_value_with_a_proof():
    """u_0 <= -1 and u_0 >= 1: drift v >= 0 with <v, c> > 0 and J'v = 0 nearly."""
    rows = np.array([np.eye(D)[0], -np.eye(D)[0]])
    share = fp.Share(Quadratic(A, B), fp.Constraint(Affine(rows, [1.0, 1.0]), Nonnegative(2)))
    found = constrained(share, WEIGHT, ANCHOR, cold(share), 1e-8)
    assert not found.converged
    assert np.all(found.drift >= 0)
    assert found.drift @ (rows @ found.u + 1) > 100 * np.max(np.abs(rows.T @ found.drift))


def test_a_constraint_that_is_not_convex_is_reported():
    """|u|^2 >= 4 from inside: u = 2 anchor / |anchor|, found through negative curvature."""
    outside = Smooth(lambda u: (float(4 - u @ u), -2 * u), hess=lambda u: -2 * np.eye(D), dim=D)
    anchor = 0.5 * ANCHOR / np.linalg.norm(ANCHOR)
    share = fp.Share(None, fp.Constraint(outside, Nonnegative(1)))
    found = constrained(share, WEIGHT, anchor, Warm(anchor, np.zeros(1)), 1e-8)
    # WEIGHT (2 - 0.5) = 2 mu 2 at the end, so the Lagrangian bends by -2 mu = -0.75 WEIGHT; nearly so a step before
    np.testing.assert_allclose(found.dip, 0.75 * WEIGHT, rtol=0.01)
    assert found.converged
    np.testing.assert_allclose(np.linalg.norm(found.u), 2.0, atol=1e-6)
