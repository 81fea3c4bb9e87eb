"""Newton's method for games against linear systems, linear programs and other programs; and its bad ends."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy.optimize import linprog, root
from sklearn.linear_model import LogisticRegression

import fedpact as fp
from fedpact.errors import OptionError, OwnerError
from fedpact.functions import Linear, LogisticLoss, Operator, Saddle
from fedpact.preparation import LARGEST_MESSAGE, choose
from fedpact.problem import MinimaxProblem, MonotoneProblem
from fedpact.prox import L1, Blocks, Box, Prox, Simplex, SquaredL2

METHOD = "monotone-newton"


def bilinear_game(owners: int, dim: int, seed: int, h: Prox | None = None) -> tuple[MonotoneProblem, np.ndarray, float]:
    """sum_i u'A_i v + c_i'u - d_i'v in the skew form; its zero where there is no h, and how far w may be from it.

    The last: of a w whose certificate is one.
    """
    rng = np.random.default_rng([owners, dim, seed])
    half = dim // 2
    A = rng.standard_normal((owners, half, half))
    M = np.zeros((owners, dim, dim))
    M[:, :half, half:] = A
    M[:, half:, :half] = -A.transpose(0, 2, 1)
    q = rng.standard_normal((owners, dim))
    problem = MonotoneProblem([Linear(*part) for part in zip(M, q, strict=True)], h)
    inverse = np.linalg.inv(M.sum(0))
    return problem, -inverse @ q.sum(0), float(np.linalg.norm(inverse, np.inf))


@pytest.mark.parametrize("dim", [4, 6, 8])
@pytest.mark.parametrize("owners", [2, 3, 4, 5])
def test_bilinear_games_take_a_handful_of_exchanges(owners: int, dim: int) -> None:
    for seed in range(3):
        problem, zero, reach = bilinear_game(owners, dim, seed)
        answer = fp.solve(problem, tol=1e-8)
        assert (answer.status, answer.method) == ("solved", METHOD)
        assert answer.rounds <= 10
        np.testing.assert_allclose(answer.w, zero, rtol=0, atol=1.01e-8 * reach)


@pytest.mark.parametrize(
    "h", [Box(-0.3, 0.3), L1(0.3), Simplex(), Blocks(Simplex(), Simplex(), 3), SquaredL2(0.1)], ids=repr
)
def test_bilinear_games_with_every_kind_of_h(h: Prox) -> None:
    for owners in (2, 5):
        problem, *_ = bilinear_game(owners, 6, 0, h)
        answer = fp.solve(problem, METHOD, tol=1e-8)
        assert answer.solved
        assert answer.rounds <= 10
        assert fp.certify(problem, answer.w, [None] * (owners + 1)) == answer.certificate


def test_a_matrix_game_with_many_equilibria() -> None:
    """Two equal rows: the value is that of the linear program."""
    A = np.array([[1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [-1.0, 1.0, 0.2]])
    M = np.block([[np.zeros((3, 3)), A], [-A.T, np.zeros((3, 3))]])
    problem = MonotoneProblem([Linear(M / 2), Linear(M / 2)], Blocks(Simplex(), Simplex(), 3))
    answer = fp.solve(problem, METHOD, tol=1e-9)
    assert answer.solved
    program = linprog(
        [0, 0, 0, 1],
        np.column_stack([A.T, -np.ones(3)]),
        np.zeros(3),
        [[1, 1, 1, 0]],
        [1],
        [(0, None)] * 3 + [(None, None)],
    )
    u, v = answer.w[:3], answer.w[3:]
    assert u @ A @ v == pytest.approx(program.fun, abs=1e-8)
    assert np.max(A.T @ u) == pytest.approx(program.fun, abs=1e-8)  # no reply does better against u


def steep(w: np.ndarray) -> np.ndarray:
    """arctan and a rotation: undamped Newton steps on arctan run away from |w| > 1.4."""
    return np.arctan(w - 1) + 0.01 * np.array([w[1], -w[0]])


def steep_slope(w: np.ndarray) -> np.ndarray:
    return np.diag(1 / (1 + (w - 1) ** 2)) + 0.01 * np.array([[0.0, 1.0], [-1.0, 0.0]])


@pytest.mark.parametrize("start", [0.0, 5.0, -100.0, 1e4])
def test_a_start_from_which_plain_newton_runs_away(start: float) -> None:
    problem = MonotoneProblem([Operator(steep, steep_slope, dim=2)])
    answer = fp.solve(problem, METHOD, tol=1e-9, w0=np.full(2, start), max_rounds=150)
    assert answer.solved
    np.testing.assert_allclose(answer.w, root(steep, np.ones(2), tol=1e-14).x, atol=1e-8)


def overflowing(u: np.ndarray, v: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """sum u^4 + u'v - sum exp(v): not finite where v is large."""
    return float(np.sum(u**4) + u @ v - np.sum(np.exp(v))), 4 * u**3 + v, u - np.exp(v)


def overflowing_slope(x: np.ndarray) -> np.ndarray:
    u, v = x[:2], x[2:]
    return np.block([[np.diag(12 * u**2), np.eye(2)], [-np.eye(2), np.diag(np.exp(v))]])


def test_a_trial_where_an_operator_is_not_finite_is_taken_back() -> None:
    problem = MinimaxProblem([Saddle(overflowing, 2, overflowing_slope, dim=4)] * 2)
    answer = fp.solve(problem, METHOD, tol=1e-9, w0=np.array([0.0, 0.0, -40.0, -40.0]), max_rounds=200)
    assert answer.solved
    assert fp.certify(problem, answer.w, [None] * 3).stationarity <= 1e-9
    with np.errstate(over="ignore"), pytest.raises(OwnerError, match="client 1"):
        fp.solve(problem, METHOD, w0=np.array([0.0, 0.0, 1e3, 1e3]))


def test_functions_are_minimised_too() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 4))
    y = (X[:, 0] + rng.standard_normal(90) > 0).astype(float)
    shares = [fp.Share(LogisticLoss(X[i::3], y[i::3])) for i in range(3)]
    answer = fp.solve(fp.FederatedProblem(shares, None, SquaredL2(0.3)), METHOD, tol=1e-9)
    assert answer.solved
    model = LogisticRegression(C=1 / (0.1 * 90), fit_intercept=False, tol=1e-13, solver="newton-cholesky")
    np.testing.assert_allclose(answer.w, model.fit(X, y).coef_[0], atol=1e-7)


# ----------------------------------------------------------------------------------------------------------- bad ends


def test_operators_without_a_common_zero() -> None:
    M = np.array([[0.0, 0, 0], [0, 0, 1], [0, -1, 0]])
    answer = fp.solve(MonotoneProblem([Linear(M, [1.0, 0, 1]), Linear(M, [1.0, 1, 0])]))
    assert (answer.status, answer.method) == ("infeasible", METHOD)
    assert answer.rounds < 30


def test_a_sum_that_is_not_monotone_is_handed_over_to_a_method_that_names_the_owner() -> None:
    operators = [fp.Share(Linear(0.5 * np.eye(2)), name="south"), fp.Share(Linear(-np.eye(2), [1.0, 1]), name="north")]
    alone = fp.solve(MonotoneProblem(operators), METHOD, fallback=False)
    assert alone.status == "stalled"
    assert "not monotone" in alone.reason
    answer = fp.solve(MonotoneProblem(operators), METHOD, max_rounds=2000)
    assert not answer.solved
    assert "north" in answer.reason


def test_an_owner_that_is_not_monotone_where_the_sum_is() -> None:
    """iFedDR needs every owner's operator to be monotone, this method only their sum."""
    operators = [Linear(2 * np.eye(2), [1.0, 0.0]), Linear(-np.eye(2), [0.0, 1.0])]
    answer = fp.solve(MonotoneProblem(operators), METHOD, tol=1e-9)
    assert answer.solved
    np.testing.assert_allclose(answer.w, [-1.0, -1.0], atol=1e-8)


def test_a_jacobian_that_is_not_the_operators_ends() -> None:
    def wrong(w: np.ndarray) -> np.ndarray:
        return np.array([[1.0, 30.0], [-30.0, 1.0]])

    problem = MonotoneProblem([Operator(lambda w: w - 1 + w**3, wrong, dim=2)])
    answer = fp.solve(problem, METHOD, tol=1e-9, fallback=False)
    assert answer.status == "stalled"
    assert "Jacobian" in answer.reason


# ------------------------------------------------------------------------------------------------------------- choice


def test_operators_without_jacobians_are_refused_with_the_owners_name() -> None:
    bare = fp.Share(Operator(functools.partial(np.multiply, 2.0), dim=2), name="north")
    problem = MonotoneProblem([fp.Share(Linear(np.eye(2)), name="south"), bare])
    with pytest.raises(OptionError, match=r"needs Jacobians .* north .*ifeddr") as caught:
        fp.solve(problem, METHOD)
    assert caught.value.code == "FP-OPTION-110"
    assert fp.solve(problem).method == "ifeddr"


def test_auto_takes_it_while_a_matrix_is_a_small_message() -> None:
    problem, *_ = bilinear_game(2, 4, 0)
    assert choose(problem, 4)[0] == METHOD
    assert choose(problem, int(np.sqrt(LARGEST_MESSAGE / 8)) + 1)[0] == "ifeddr"


@pytest.mark.parametrize("owners", [2, 3])
def test_only_sums_leave_the_owners_and_secure_ones_give_the_same(owners: int) -> None:
    problem, zero, reach = bilinear_game(owners, 6, 1)
    answer = fp.solve(problem, METHOD, tol=1e-7, secure_sum=True)
    assert answer.solved
    np.testing.assert_allclose(answer.w, zero, rtol=0, atol=1.01e-7 * reach)
