"""`unbounded` is claimed where a checked ray shows it, and nowhere else: on every method, wherever the owners are."""

import numpy as np
import pytest

import fedpact as fp
from fedpact.cones import Nonnegative
from fedpact.functions import Affine, HuberLoss, LogisticLoss, Quadratic
from fedpact.problem.ray import check_ray

METHODS = ["auto", "accelerated", "proximal-al", "centralized-proximal-al"]


def linear(*slope: float) -> Quadratic:
    return Quadratic(np.zeros((len(slope), len(slope))), slope)


def at_least_zero(dim: int) -> fp.Constraint:
    return fp.Constraint(Affine(-np.eye(dim)), Nonnegative(dim))


def two_variables() -> fp.FederatedProblem:
    """min w_1 + w_2, w >= 0, at three owners: the solution is the start, where the objective is rounding."""
    return fp.FederatedProblem([fp.Share(linear(1 / 3, 1 / 3), at_least_zero(2)) for _ in range(3)])


def one_variable() -> fp.FederatedProblem:
    return fp.FederatedProblem([fp.Share(linear(1.0), at_least_zero(1))])


def hs3() -> fp.FederatedProblem:
    """HS3: min x_2 + 1e-5 (x_2 - x_1)^2, x_2 >= 0."""
    bent = Quadratic(2e-5 * np.array([[1.0, -1.0], [-1.0, 1.0]]), [0.0, 1.0])
    return fp.FederatedProblem([fp.Share(bent, fp.Constraint(Affine([[0.0, -1.0]]), Nonnegative(1)))])


def goffin(n: int = 20) -> fp.FederatedProblem:
    """GOFFIN: min t, n x_i - sum(x) <= t."""
    rows = np.hstack([n * np.eye(n) - np.ones((n, n)), -np.ones((n, 1))])
    slope = np.append(np.zeros(n), 1 / 3)
    return fp.FederatedProblem(
        [
            fp.Share(linear(*slope), fp.Constraint(Affine(part), Nonnegative(len(part))))
            for part in np.split(rows[:18], 3)
        ]
        + [fp.Share(None, fp.Constraint(Affine(rows[18:]), Nonnegative(n - 18)))]
    )


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("build", "start"), [(two_variables, None), (one_variable, None), (hs3, [10.0, 1.0])], ids=["two", "one", "hs3"]
)
def test_a_minimiser_is_not_overruled(build, start, method, tol):
    answer = fp.solve(build(), method, tol=tol, w0=start)
    assert answer.status == "solved"
    assert answer.ray is None
    assert abs(answer.objective) <= 200 * tol


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_the_largest_of_linear_functions(start):
    first = start * (np.arange(21) - 10.0)
    assert fp.solve(goffin(), tol=1e-6, w0=first).status == "solved"


@pytest.mark.parametrize("size", [1e12, 1e13])
def test_large_labels_have_a_minimiser(size):
    """No slope changes within a million times the start, but the columns are of full rank."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 4))
    z = X @ [1, 2, 3, 4.0] + rng.standard_normal(60)
    shares = [fp.Share(0.5 * HuberLoss(X[i::2], size * z[i::2])) for i in (0, 1)]
    answer = fp.solve(fp.FederatedProblem(shares), max_rounds=200)
    assert answer.status != "unbounded"


def quasi_separable(seed: int = 0) -> fp.FederatedProblem:
    """Ties at one value of the column, above and below it only one class each."""
    rng = np.random.default_rng(seed)
    x = np.r_[np.zeros(20), -np.abs(rng.normal(size=20)) - 0.1, np.abs(rng.normal(size=20)) + 0.1]
    y = np.r_[np.arange(20) % 2, np.zeros(20), np.ones(20)].astype(float)
    X = np.c_[np.ones(60), x]
    return fp.FederatedProblem([fp.Share(0.5 * LogisticLoss(X[i::2], y[i::2])) for i in (0, 1)])


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize("method", [*METHODS, "ifeddr"])
def test_quasi_separable_data_have_no_minimiser(method, tol):
    problem = quasi_separable()
    answer = fp.solve(problem, method, tol=tol)
    assert answer.status == "unbounded"
    assert answer.ray is not None
    assert check_ray(problem, answer.w, answer.ray)
    np.testing.assert_allclose(answer.ray / answer.ray[1], [0.0, 1.0], atol=1e-9)
    assert not check_ray(problem, answer.w, answer.ray + np.array([1e-6, 0.0]))  # this one leaves the ties
    assert not check_ray(problem, answer.w, -answer.ray)


def test_a_regularizer_gives_them_one():
    problem = quasi_separable()
    held = fp.FederatedProblem(problem.shares, regularizer=fp.prox.SquaredL2(1e-4))
    assert fp.solve(held, tol=1e-6).status == "solved"
    boxed = fp.FederatedProblem(problem.shares, regularizer=fp.prox.Box(-30, 30))
    assert fp.solve(boxed, tol=1e-6).status == "solved"
    free = fp.FederatedProblem(problem.shares, regularizer=fp.prox.SquaredL2([1.0, 0.0]))
    assert fp.solve(free, tol=1e-6).status == "unbounded"


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_level_of_one_class_has_no_minimiser(level):
    """The commonest separation: all rows of one level of a category are positive."""
    rng = np.random.default_rng(level)
    rows = 150
    z = rng.standard_normal((rows, 2))
    category = rng.integers(0, 4, rows)
    X = np.c_[np.ones(rows), z, category == 1, category == 2, category == 3].astype(float)
    y = (rng.random(rows) < 1 / (1 + np.exp(-z @ [1.0, -0.5]))).astype(float)
    y[category == level + 1] = 1.0
    problem = fp.FederatedProblem([fp.Share(LogisticLoss(X[i::3], y[i::3])) for i in range(3)])
    for tol in (1e-3, 1e-6):
        answer = fp.solve(problem, tol=tol)
        assert answer.status == "unbounded"
        expected = np.zeros(6)
        expected[3 + level] = 1.0
        np.testing.assert_allclose(answer.ray / np.max(np.abs(answer.ray)), expected, atol=1e-9)


def test_owners_that_are_asked_by_masked_sums_and_threads():
    for options in ({"secure_sum": True}, {"engine": "threads"}):
        answer = fp.solve(quasi_separable(), tol=1e-4, **options)
        assert answer.status == "unbounded"
        assert check_ray(quasi_separable(), answer.w, answer.ray)
