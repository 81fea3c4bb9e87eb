"""What is known to be convex, and what a Solution says where it is not."""

import numpy as np
import pytest

import fedpact as fp
from fedpact import data, tasks
from fedpact.cones import Nonnegative, SecondOrder, Zero
from fedpact.functions import Affine, LogisticLoss, Quadratic, Smooth, SmoothMap, SoftmaxLoss, Stack, TwoSided, extend
from fedpact.problem import MonotoneProblem

X = np.random.default_rng(0).standard_normal((20, 3))
y = np.arange(20) % 2
loss, bowl, saddle = LogisticLoss(X, y), Quadratic(X.T @ X), Quadratic(np.diag([1.0, -1e-3, 0.0]))
flat = Quadratic(np.zeros((3, 3)), np.ones(3))
line = Affine(X[:2])


def square(w):
    return float(w @ w), 2 * w


@pytest.mark.parametrize(
    ("known", "function"),
    [
        (True, loss),
        (True, SoftmaxLoss(X, y, 2)),
        (True, bowl),
        (True, Quadratic(np.outer(X[0], X[0]))),  # semidefinite
        (True, flat),
        (False, saddle),
        (False, Smooth(square)),
        (True, Smooth(square, convex=True)),
        (True, 0.5 * loss + bowl - 0.2),
        (False, bowl - loss),
        (False, -loss),
        (True, extend(loss, 5)),
        (True, line),
        (True, -2 * line + np.ones(2)),
        (False, line - SmoothMap(lambda w: (w[:2], np.eye(2, 3)), length=2, convex=True)),
        (True, Stack([loss, line])),
        (False, Stack([saddle, line])),
        (False, TwoSided(loss, 0, 1)),
    ],
)
def test_functions_know_whether_they_are_convex(known, function):
    assert function.convex == known


@pytest.mark.parametrize(
    ("known", "constraints"),
    [
        (True, [(loss, Nonnegative(1))]),
        (False, [(loss, Zero(1))]),  # an equality is convex when it is straight
        (True, [(line, Zero(2)), (loss, Nonnegative(1)), (Affine(X), SecondOrder(20))]),
        (False, [(line, Zero(2)), (loss, SecondOrder(1))]),
        (False, [(saddle, Nonnegative(1))]),
    ],
)
def test_constraints_know_whether_they_are_convex(known, constraints):
    share = fp.Share(loss, [fp.Constraint(*pair) for pair in constraints])
    assert fp.FederatedProblem([share]).convex == known


def test_what_is_solved_is_called_optimal_only_where_that_is_known():
    convex = fp.solve(tasks.neyman_pearson(data.neyman_pearson(2, rows=50, d=3), bound=0.3))
    assert convex.reason == "the certificate meets the tolerances"
    assert convex.convex
    bumpy = fp.FederatedProblem([fp.Share(Smooth(square, dim=2))])
    for method in ("accelerated", "proximal-al", "ifeddr"):
        answer = fp.solve(bumpy, method, w0=np.ones(2))
        assert answer.solved
        assert "stationary and feasible, not known to be globally optimal" in answer.reason


def test_owners_elsewhere_tell_it():
    for known in (True, False):
        remote = fp.RemoteProblem({"north": lambda k=known: fp.Share(Smooth(square, dim=2, convex=k))})
        answer = fp.solve(remote, w0=np.ones(2))
        assert answer.solved
        assert ("not known to be globally optimal" in answer.reason) != known


def test_a_coupled_problem_is_as_convex_as_it_was():
    for function, known in ((bowl, True), (saddle + 2 * bowl, False)):
        shares = [fp.Share(function, coupled=Affine(-np.ones((1, 3)), [0.5])) for _ in range(2)]
        answer = fp.solve(fp.FederatedProblem(shares), "proximal-al")
        assert answer.solved
        assert ("not known to be globally optimal" in answer.reason) != known


def test_monotone_operators_promise_enough():
    assert MonotoneProblem([fp.functions.Linear(np.array([[0.0, 1.0], [-1.0, 0.0]]))]).convex


def test_a_start_that_a_function_suggests_is_taken():
    hill = Smooth(square, dim=3)
    hill.start = np.array([1.0, 2.0, 3.0])
    for part in (hill, 0.5 * hill + loss, -hill):
        share = fp.Share(part)
        np.testing.assert_array_equal(fp.FederatedProblem([fp.Share(loss), share]).start(None), hill.start)
        held = fp.Share(loss, [fp.Constraint(line, Zero(2)), fp.Constraint(TwoSided(part, 0, 1), Nonnegative(2))])
        np.testing.assert_array_equal(fp.FederatedProblem([held]).start(None), hill.start)
    boxed = fp.FederatedProblem([fp.Share(hill)], regularizer=fp.prox.Box(0, 2))
    np.testing.assert_array_equal(boxed.start(None), [1.0, 2.0, 2.0])
    np.testing.assert_array_equal(fp.FederatedProblem([fp.Share(hill)]).start(np.zeros(3)), np.zeros(3))
