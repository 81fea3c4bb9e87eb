"""Solves that do not end in a solution: each with its status, its reason and its evidence."""

import numpy as np
import pytest

import fedpact as fp
from fedpact.cones import Nonnegative, Zero
from fedpact.functions import Affine, LogisticLoss, Quadratic, Smooth
from fedpact.problem import prove_infeasible
from fedpact.solvers import Run
from fedpact.solvers.evidence import find_ray

METHODS = ["proximal-al", "centralized-proximal-al"]


def half_space(slope, offset, name):
    constraint = fp.Constraint(Affine([slope], [offset]), Nonnegative(1))
    return fp.Share(Quadratic(np.eye(3)), constraint, name=name)


@pytest.mark.parametrize("method", METHODS)
def test_conflicting_owners_are_named_and_the_others_are_not(method):
    shares = [
        half_space([-1.0, 0, 0], 1.0, "north"),  # w_0 >= 1
        half_space([1.0, 0, 0], 1.0, "south"),  # w_0 <= -1
        half_space([0, 1.0, 0], -1.0, "east"),  # w_1 <= 1, harmless
    ]
    answer = fp.solve(fp.FederatedProblem(shares), method)
    assert answer.status == "infeasible"
    assert answer.conflict == ("north", "south")
    assert "north, south" in answer.reason
    assert "loosen" in answer.reason


@pytest.mark.parametrize("method", METHODS)
def test_a_conflict_with_the_server_and_the_paper_s_fixed_penalties(method):
    server = fp.Share(None, fp.Constraint(Affine([[1.0, 1.0, 0]], [-4.0]), Zero(1)))  # w_0 + w_1 = 4
    shares = [
        half_space([1.0, 0, 0], -1.0, "a"),
        half_space([0, 1.0, 0], -1.0, "b"),
        half_space([0, 0, 1.0], -9.0, "c"),
    ]
    options = {"penalty": 10.0} | ({"consensus_penalty": 1.0} if method == "proximal-al" else {})
    answer = fp.solve(fp.FederatedProblem(shares, server), method, **options)
    assert answer.status == "infeasible"
    assert set(answer.conflict) == {"server", "a", "b"}


def test_a_bound_no_model_can_reach_is_infeasible():
    """Class-1 loss below 0.3 at one owner asks for the opposite of the other's."""
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.standard_normal((60, 2)), np.ones(60)])
    shares = [
        fp.Share(
            LogisticLoss(X, np.zeros(60)), fp.Constraint(LogisticLoss(X, np.ones(60)) - 0.3, Nonnegative(1)), name="a"
        ),
        fp.Share(
            LogisticLoss(X, np.zeros(60)), fp.Constraint(LogisticLoss(X, np.zeros(60)) - 0.3, Nonnegative(1)), name="b"
        ),
    ]
    answer = fp.solve(fp.FederatedProblem(shares))
    assert answer.status == "infeasible"
    assert answer.conflict == ("a", "b")


def test_a_domain_that_excludes_the_constraint_is_infeasible():
    share = half_space([-1.0, 0, 0], 2.0, "a")  # w_0 >= 2, but w lies in [-1, 1]
    answer = fp.solve(fp.FederatedProblem([share], regularizer=fp.prox.Box(-1, 1)))
    assert answer.status == "infeasible"
    assert answer.conflict == ("a",)


@pytest.mark.parametrize("method", [*METHODS, "inexact-admm"])
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_separable_data_without_a_regularizer_has_no_minimiser(method, tol):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = (X[:, 0] > 0).astype(float)
    X[:, 0] += np.where(y > 0, 0.5, -0.5)
    shares = [fp.Share(LogisticLoss(X[i::3], y[i::3])) for i in range(3)]
    answer = fp.solve(fp.FederatedProblem(shares), method, tol=tol)
    assert answer.status == "unbounded"
    assert "separable" in answer.reason
    assert "SquaredL2" in answer.reason
    fixed = fp.solve(fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1e-3)), method, tol=tol)
    assert fixed.status == "solved"


@pytest.mark.parametrize("method", METHODS)
def test_a_linear_objective_without_bounds_is_unbounded_and_with_them_is_solved(method):
    shares = [fp.Share(Quadratic(np.zeros((2, 2)), [1.0, -2.0])), fp.Share(Quadratic(np.zeros((2, 2)), [0.5, 0.0]))]
    assert fp.solve(fp.FederatedProblem(shares), method).status == "unbounded"
    boxed = fp.solve(fp.FederatedProblem(shares, regularizer=fp.prox.Box(-1, 1)), method)
    assert boxed.status == "solved"
    np.testing.assert_allclose(boxed.w, [-1.0, 1.0])


def test_too_few_rounds_are_a_status_with_the_best_point_so_far():
    shares = [half_space([-1.0, 0, 0], 1.0, "a"), half_space([0, 1.0, 0], -1.0, "b")]
    problem = fp.FederatedProblem(shares)
    for limit in (8, 20, 40):
        answer = fp.solve(problem, "proximal-al", tol=1e-9, max_rounds=limit)
        assert answer.status == "max_rounds"
        assert answer.rounds <= limit
        assert str(limit) in answer.reason
        assert fp.certify(problem, answer.w, answer.multipliers) == answer.certificate


def test_a_subproblem_that_cannot_be_solved_is_stalled_not_a_hang():
    """A gradient that contradicts its function: no local solver can converge, and the solve must say so."""
    liar = Smooth(lambda w: (float(w @ w), -2 * w + 1.0), dim=2)
    answer = fp.solve(fp.FederatedProblem([fp.Share(liar)]), "proximal-al", max_rounds=20_000)
    assert answer.status in ("stalled", "unbounded", "max_rounds")
    assert not answer.solved


def test_a_server_that_cannot_solve_its_part_is_named():
    """(19) takes the server's accuracy for granted; a server that misses it must not pass for converged."""
    kink = Smooth(lambda w: (float(np.sum(np.abs(w - 0.3))), np.sign(w - 0.3)), dim=2)  # where the minimiser is
    answer = fp.solve(fp.FederatedProblem([fp.Share(Quadratic(np.eye(2)))], fp.Share(kink)), "proximal-al")
    assert answer.status == "stalled"
    assert "the server could not solve" in answer.reason


def test_a_proof_needs_weights_that_balance_and_a_positive_value():
    north, south = half_space([-1.0, 0, 0], 1.0, "north"), half_space([1.0, 0, 0], 1.0, "south")  # w_0 >= 1, <= -1
    w = np.zeros(3)
    both = fp.FederatedProblem([north, south, half_space([0, 1.0, 0], -1.0, "east")])
    assert prove_infeasible(both, w, [None, [1.0], [1.0], None]) == ("north", "south")
    assert prove_infeasible(both, w, [None, [1.0], [0.5], None]) == ()  # the weighted sum can still be moved along w_0
    assert prove_infeasible(fp.FederatedProblem([north]), w, [None, [1.0]]) == ()
    met = fp.FederatedProblem([half_space([-1.0, 0, 0], -1.0, "a"), half_space([1.0, 0, 0], -1.0, "b")])
    assert prove_infeasible(met, w, [None, [1.0], [1.0]]) == ()
    # where w_0 cannot exceed 0 anyway, nothing can follow the gradient
    boxed = fp.FederatedProblem([north], regularizer=fp.prox.Box(-1, 0))
    assert prove_infeasible(boxed, w, [None, [1.0]]) == ("north",)


def has_ray(objective, constraint=None, regularizer=None):
    """Does the way from the start at 0 to w = (-1, 0) go on falling forever?"""
    problem = fp.FederatedProblem([fp.Share(objective, constraint, name="a")], regularizer=regularizer)
    w = np.array([-1.0, 0.0])
    with fp.Session() as session:
        session.open({"a": problem.shares[0]})
        run = Run(problem, session, session.ledger.read(), "accelerated", np.zeros(2), (1e-3, 1e-3), 100)
        return find_ray(run, w, fp.certify(problem, w, [None, None]), objective.value(w)) is not None


def test_a_ray_is_feasible_and_falls_forever():
    linear = Quadratic(np.zeros((2, 2)), [1.0, 0.0])
    assert has_ray(linear)
    assert has_ray(linear, fp.Constraint(Affine([[1.0, 0.0]], [-5.0]), Nonnegative(1)))  # w_0 <= 5
    assert not has_ray(linear, fp.Constraint(Affine([[-1.0, 0.0]], [-5.0]), Nonnegative(1)))  # w_0 >= -5
    assert not has_ray(linear, regularizer=fp.prox.Box(-5, 5))
    assert not has_ray(Smooth(lambda w: (float(10 + np.tanh(w[0])), np.zeros(2)), dim=2))  # by a fiftieth
    assert not has_ray(Smooth(lambda w: (float(w @ w), 2 * w), dim=2))
