"""iFedDR against scikit-learn, SciPy, conic solvers and closed forms; its theory in every round; and its bad ends."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np
import pytest
from game_cases import Duel, matrix_game, solve_in_box
from marks import slow_but
from scipy.optimize import lsq_linear
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import Lasso as SklearnLasso
from sklearn.linear_model import LogisticRegression
from watched_owners import Watching, seen_by_all

import fedpact as fp
from fedpact.cones import Nonnegative
from fedpact.errors import OptionError, OwnerError
from fedpact.functions import Affine, Function, Linear, LogisticLoss, Operator, Quadratic, Smooth
from fedpact.problem import MinimaxProblem, MonotoneProblem
from fedpact.prox import L1, Box, ElasticNet, Simplex, SquaredL2
from fedpact.solvers import METHODS, Progress
from fedpact.solvers.consensus.sums import Measured
from fedpact.solvers.local.resolvent import NAMES

# ------------------------------------------------------------------------------------ problems and who else solves them


@dataclass(frozen=True)
class Case:
    """A problem and its only answer, from elsewhere. gamma: one that is good, for runs that fix it."""

    problem: fp.FederatedProblem
    answer: np.ndarray
    gamma: float


def rows(seed: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """A table whose rows differ from owner to owner once it is cut in order."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + np.linspace(-1, 1, n)[:, None]
    return X, X @ np.where(np.arange(d) % 2, 1.5, 0.0) + 0.3 * rng.standard_normal(n)


def least_squares(X: np.ndarray, y: np.ndarray, parts: int) -> list[fp.Share]:
    """|X w - y|^2 / (2 n), cut in parts: every share carries the 1 / n of the whole."""
    pieces = zip(np.array_split(X, parts), np.array_split(y, parts), strict=True)
    return [fp.Share(Quadratic(A.T @ A / len(y), -A.T @ b / len(y))) for A, b in pieces]


@functools.cache
def lasso() -> Case:
    X, y = rows(0, 60, 8)
    model = SklearnLasso(alpha=0.1, fit_intercept=False, tol=1e-15, max_iter=100_000).fit(X, y)
    return Case(fp.FederatedProblem(least_squares(X, y, 4), None, L1(0.1)), model.coef_, 0.8)


@functools.cache
def elastic_net() -> Case:
    X, y = rows(1, 60, 8)
    model = SklearnElasticNet(alpha=0.2, l1_ratio=0.7, fit_intercept=False, tol=1e-15, max_iter=100_000).fit(X, y)
    return Case(fp.FederatedProblem(least_squares(X, y, 4), None, ElasticNet(0.14, 0.06)), model.coef_, 0.8)


@functools.cache
def boxed_least_squares() -> Case:
    X, y = rows(2, 40, 7)
    found = lsq_linear(X, y, (-0.5, 0.9), method="bvls", tol=1e-15)
    return Case(fp.FederatedProblem(least_squares(X, y, 3), None, Box(-0.5, 0.9)), found.x, 0.5)


def logistic_shares(owners: int = 3) -> tuple[list[fp.Share], np.ndarray, np.ndarray]:
    X, score = rows(3, 90, 5)
    y = (score > np.median(score)).astype(float)
    pieces = zip(np.array_split(X, owners), np.array_split(y, owners), strict=True)
    return [fp.Share(len(b) / 90 * LogisticLoss(A, b)) for A, b in pieces], X, y


@functools.cache
def ridge_logistic() -> Case:
    shares, X, y = logistic_shares()
    model = LogisticRegression(
        C=1 / (0.05 * 90), fit_intercept=False, tol=1e-13, solver="newton-cholesky", max_iter=500
    )
    coefficients = model.fit(X, y).coef_[0]
    return Case(fp.FederatedProblem(shares, None, SquaredL2(0.05)), coefficients, 4.0)


@functools.cache
def free_least_squares() -> Case:
    X, y = rows(4, 50, 6)
    return Case(fp.FederatedProblem(least_squares(X, y, 3)), np.linalg.lstsq(X, y, rcond=None)[0], 0.8)


def monotone_matrices(owners: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    skew, root = rng.standard_normal((owners, d, d)), rng.standard_normal((owners, d, 2))
    M = skew - skew.transpose(0, 2, 1) + root @ root.transpose(0, 2, 1) / d + 0.2 * np.eye(d)
    return M / owners, rng.standard_normal((owners, d)) / owners


@functools.cache
def linear_saddle() -> Case:
    M, q = monotone_matrices(3, 6)
    problem = MonotoneProblem([Linear(*pair) for pair in zip(M, q, strict=True)])
    return Case(problem, -np.linalg.solve(M.sum(0), q.sum(0)), 0.4)


@functools.cache
def boxed_variational_inequality() -> Case:
    M, q = monotone_matrices(3, 5, seed=1)
    problem = MonotoneProblem([Linear(*pair) for pair in zip(M, q, strict=True)], Box(-0.5, 0.5))
    return Case(problem, solve_in_box(M.sum(0), q.sum(0), 0.5), 0.4)


@functools.cache
def quadratic_bilinear(jacobian: bool = True) -> Case:
    """min over a box, max over a simplex: the program min 1/2 u'Hu + c'u + t, t >= A'u - d, and its prices v."""
    rng, owners, m, r = np.random.default_rng(5), 3, 3, 4
    roots = rng.standard_normal((owners, m, m))
    H = (roots @ roots.transpose(0, 2, 1) + np.eye(m)) / owners
    c, A, d = rng.standard_normal((owners, m)), rng.standard_normal((owners, m, r)), rng.standard_normal((owners, r))
    u, t = cp.Variable(m), cp.Variable()
    limit = A.sum(0).T @ u - d.sum(0) <= t
    quadratic = 0.5 * cp.quad_form(u, cp.psd_wrap(H.sum(0))) + c.sum(0) @ u + t
    cp.Problem(cp.Minimize(quadratic), [limit, u >= -0.6, u <= 0.6]).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-14, tol_gap_rel=1e-14, tol_feas=1e-14
    )
    duels = [Duel(*pieces).saddle(jacobian) for pieces in zip(H, c, A, d, strict=True)]
    problem = MinimaxProblem(duels, Box(-0.6, 0.6), Simplex())
    # A solver by interior points comes near bounds only: those that it comes near to are met.
    least = np.where(np.abs(np.abs(u.value) - 0.6) < 1e-7, 0.6 * np.sign(u.value), u.value)
    most = np.where(limit.dual_value < 1e-7, 0.0, limit.dual_value)
    assert 0 < np.sum(most == 0) < r
    return Case(problem, np.concatenate([least, most / most.sum()]), 0.5)


def mixed_strategies() -> Case:
    game = matrix_game()
    return Case(game.here, game.answer, 0.4)


CASES: dict[str, Callable[[], Case]] = {
    "lasso": lasso,
    "elastic net": elastic_net,
    "boxed least squares": boxed_least_squares,
    "ridge logistic": ridge_logistic,
    "least squares, no h": free_least_squares,
    "linear saddle": linear_saddle,
    "boxed inequality": boxed_variational_inequality,
    "quadratic and bilinear": quadratic_bilinear,
    "matrix game": mixed_strategies,
}
MINIMISING = [name for name in CASES if name not in [*CASES][5:]]
every_case = pytest.mark.parametrize("name", CASES)


def first_order(problem: fp.FederatedProblem) -> fp.FederatedProblem:
    """The same functions without their Hessians."""
    plain = [replace(s, objective=Smooth(s.objective.value_and_gradient, dim=problem.dim)) for s in problem.shares]
    return fp.FederatedProblem(plain, None, problem.regularizer)


@every_case
def test_answers_are_those_of_other_programs(name: str) -> None:
    case = CASES[name]()
    answer = fp.solve(case.problem, "ifeddr", tol=1e-9, max_rounds=5000)
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, case.answer, atol=1e-8)
    assert fp.certify(case.problem, answer.w, [None] * (1 + len(case.problem.shares))) == answer.certificate
    assert not any("monotone" in note for note in answer.history.notes)  # nobody is blamed without reason


@pytest.mark.parametrize("name", MINIMISING)
def test_answers_without_hessians(name: str) -> None:
    case = CASES[name]()
    answer = fp.solve(first_order(case.problem), "ifeddr", tol=1e-9, max_rounds=5000)
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, case.answer, atol=1e-8)


def test_saddle_points_without_jacobians() -> None:
    case = quadratic_bilinear(jacobian=False)
    answer = fp.solve(case.problem, tol=1e-9, max_rounds=5000)
    assert (answer.status, answer.method) == ("solved", "ifeddr")
    np.testing.assert_allclose(answer.w, case.answer, atol=1e-8)


def test_the_objective_is_the_sum_and_for_a_saddle_g_plus_f_minus_h() -> None:
    case = lasso()
    X, y = rows(0, 60, 8)
    expected = (np.sum((X @ case.answer - y) ** 2) - y @ y) / 120 + 0.1 * np.sum(np.abs(case.answer))
    assert fp.solve(case.problem, "ifeddr", tol=1e-9).objective == pytest.approx(expected, rel=1e-12)
    duel = Duel(np.eye(2), np.array([1.0, -2.0]), np.eye(2), np.zeros(2))
    problem = MinimaxProblem([duel.saddle()], L1(0.5), SquaredL2(2.0))
    answer = fp.solve(problem, tol=1e-10)
    # v = u / 2, so u minimises 3/4 u^2 + c u + |u| / 2
    u = np.array([-0.5, 1.5]) / 1.5
    np.testing.assert_allclose(answer.w, np.concatenate([u, u / 2]), atol=1e-9)
    value = np.sum(0.75 * u**2) + u @ duel.c + 0.5 * np.sum(np.abs(u))
    assert answer.objective == pytest.approx(value, rel=1e-8)


# ----------------------------------------------------------------------------------------------------------- the theory


def assert_theory(case: Case, engine: Watching, *, sigma: float, relaxation: float) -> dict[str, int]:
    """The invariants of every round, from the owners' own states. Gives back how much there was to see.

    An exchange whose quantities are of the size of rounding proves nothing and is passed over.
    """
    holders = len(case.problem.shares)
    images = np.array([holders * share.objective.gradient(case.answer) for share in case.problem.shares])
    rounds, counts = engine.rounds(), {"accepted": 0, "refused": 0, "compared": 0}
    total = before = first = None
    for exchanges, following in itertools.pairwise([*rounds, None]):
        *refused, last = (seen_by_all(case.problem, exchange) for exchange in exchanges)
        for seen in refused:
            counts["refused"] += 1
            assert not seen.passes(sigma * (1 - 1e-6))
        target = case.answer + last.gamma * images
        distance = float(np.sum((last.s - target) ** 2))
        if before is not None and before.gamma == last.gamma:
            counts["compared"] += 1
            assert distance <= float(np.sum((before.s - target) ** 2)) + 1e-7 * (1 + distance)  # answers are to 1e-8
        if before is None or before.gamma != last.gamma:
            total, first = 0.0, distance
        before = last
        if following is None:  # the last round was not used any more
            break
        order = following[0].order
        counts["accepted"] += 1
        np.testing.assert_allclose(order.p, last.p, atol=1e-10 * (1 + np.max(np.abs(last.p))))
        total += last.xi
        assert total <= first / (relaxation * (2 - relaxation) * (1 - sigma) ** 2) * (1 + 1e-9) + 1e-9
        if last.xi <= last.rounding:
            continue
        assert last.passes(sigma * (1 + 1e-6)) or last.error <= last.rounding
        alpha = last.mu / last.xi
        loose = 10 * np.sqrt(last.rounding / last.xi)
        assert alpha >= 1 - sigma - 1e-9 - loose
        assert order.step == pytest.approx(relaxation * alpha, rel=1e-6 + loose, abs=1e-6 + loose)
        moved = last.s - order.step * (last.x - last.p)
        s = np.array([state.s for state in following[0].states])
        ratio = following[0].states[0].gamma / last.gamma
        np.testing.assert_allclose(s, last.p + ratio * (moved - last.p), atol=1e-9 * (1 + np.max(np.abs(s))))
    return counts


@pytest.mark.parametrize("factor", slow_but([0.2, 1.0, 5.0], 1.0))
@every_case
def test_the_theory_holds_in_every_round(name: str, factor: float) -> None:
    case, engine = CASES[name](), Watching()
    gamma = factor * case.gamma
    answer = fp.solve(case.problem, "ifeddr", tol=1e-8, gamma=gamma, memory=0, engine=engine, max_rounds=400)
    counts = assert_theory(case, engine, sigma=0.95, relaxation=1.8)
    assert counts["compared"] >= min(len(answer.history.local) - 1, 3)
    assert {r.gamma for r in answer.history.local} == {factor * case.gamma}
    assert counts["accepted"] + 1 == len(answer.history.local)
    assert counts["refused"] == sum(r.refinements for r in answer.history.local[:-1])
    # Between these by the theory, whatever rounding does to the ratio near the end.
    assert all(1 - 0.95 - 1e-12 <= r.alpha <= 1 / (1 - 0.95) + 1e-12 for r in answer.history.local)


@pytest.mark.parametrize(("sigma", "relaxation"), slow_but([(0.1, 1.0), (0.5, 1.9), (0.99, 0.4)], (0.5, 1.9)))
@pytest.mark.parametrize("name", ["lasso", "ridge logistic", "boxed inequality", "quadratic and bilinear"])
def test_the_theory_holds_for_other_errors_and_relaxations(name: str, sigma: float, relaxation: float) -> None:
    """With one gradient a round, so that there is something to refuse."""
    case, engine = CASES[name](), Watching()
    local = "extragradient" if case.problem.monotone else "gradient"
    fp.solve(
        case.problem, "ifeddr", tol=1e-7, gamma=2 * case.gamma, error=sigma, relaxation=relaxation, steps=1,
        local_solver=local, refinement="repeat", engine=engine, max_rounds=300, memory=0,
    )  # fmt: skip
    counts = assert_theory(case, engine, sigma=sigma, relaxation=relaxation)
    assert counts["accepted"] > 3
    assert counts["refused"] > 0 or sigma == 0.99


@pytest.mark.parametrize("name", ["lasso", "ridge logistic", "linear saddle", "quadratic and bilinear"])
def test_the_theory_holds_between_changes_of_gamma(name: str) -> None:
    case = CASES[name]()
    engine = Watching()
    # A start far away, so that gamma has to move.
    far = start_far(case)
    answer = fp.solve(case.problem, "ifeddr", tol=1e-8, engine=engine, max_rounds=400, memory=0, w0=far)
    counts = assert_theory(case, engine, sigma=0.95, relaxation=1.8)
    changes = sum(a.gamma != b.gamma for a, b in itertools.pairwise(answer.history.local))
    assert changes == sum(": gamma = " in note for note in answer.history.notes)
    assert counts["compared"] == len(answer.history.local) - 1 - changes > 3


def start_far(case: Case) -> np.ndarray:
    return case.problem.regularizer.prox(100 * np.ones(case.answer.size), 0.1)


@pytest.mark.parametrize("name", ["lasso", "boxed least squares", "linear saddle", "boxed inequality", "matrix game"])
def test_exact_resolvents_give_alpha_one_and_plain_douglas_rachford(name: str) -> None:
    case, engine, gamma, relaxation = CASES[name](), Watching(), 0.3, 1.5
    fp.solve(
        case.problem, "ifeddr", tol=1e-6, gamma=gamma, relaxation=relaxation, local_solver="newton", engine=engine,
        max_rounds=150, memory=0,
    )  # fmt: skip
    seen = [seen_by_all(case.problem, exchanges[-1]) for exchanges in engine.rounds()]
    assert all(len(exchanges) == 1 for exchanges in engine.rounds())
    holders, d = seen[0].s.shape
    s = seen[0].s
    for now, exchanges in zip(seen[:-1], engine.rounds()[1:], strict=True):
        np.testing.assert_allclose(now.s, s, atol=1e-9)
        assert now.mu / now.xi == pytest.approx(1, abs=1e-6)
        assert exchanges[0].order.step == pytest.approx(relaxation, abs=1e-6)
        x = np.empty((holders, d))
        for i, share in enumerate(case.problem.shares):
            M = holders * share.objective.hessian(np.zeros(d))
            q = holders * share.objective.gradient(np.zeros(d))
            x[i] = np.linalg.solve(np.eye(d) + gamma * M, s[i] - gamma * q)
        p = case.problem.regularizer.prox(np.mean(2 * x - s, axis=0), gamma)
        np.testing.assert_allclose(exchanges[0].order.p, p, atol=1e-9)
        s = s + relaxation * (p - x)


# ------------------------------------------------------------------------------------------ acceleration, and the start


def bilinear_game(owners: int, dim: int, seed: int) -> tuple[MonotoneProblem, np.ndarray, float]:
    """sum_i u'A_i v + c_i'u - d_i'v, no Jacobians; its zero, and how far a w with certificate one may be from it."""
    rng = np.random.default_rng([owners, dim, seed])
    half = dim // 2
    A, q = rng.standard_normal((owners, half, half)), rng.standard_normal((owners, dim))
    M = np.zeros((owners, dim, dim))
    M[:, :half, half:], M[:, half:, :half] = A, -A.transpose(0, 2, 1)
    operators = [Operator(lambda x, M=M[i], q=q[i]: M @ x + q, dim=dim) for i in range(owners)]
    inverse = np.linalg.inv(M.sum(0))
    return MonotoneProblem(operators), -inverse @ q.sum(0), float(np.linalg.norm(inverse, np.inf))


@pytest.mark.parametrize("dim", [4, 8])
@pytest.mark.parametrize("owners", [2, 3, 5])
def test_bilinear_games_without_jacobians(owners: int, dim: int) -> None:
    for seed in range(2):
        problem, zero, reach = bilinear_game(owners, dim, seed)
        answer = fp.solve(problem, tol=1e-8, max_rounds=400)
        assert (answer.status, answer.method) == ("solved", "ifeddr")
        np.testing.assert_allclose(answer.w, zero, rtol=0, atol=1.01e-8 * reach)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.3, 1.0, 3.0])
def test_the_automatic_gamma_of_games_is_no_worse_than_others(gamma: float) -> None:
    """No fixed gamma is there two exchanges earlier; one is the luck of rounding."""
    for owners, dim, seed in itertools.product((2, 3, 5), (4, 8), range(2)):
        problem, *_ = bilinear_game(owners, dim, seed)
        automatic = fp.solve(problem, tol=1e-8)
        assert automatic.solved
        fixed = fp.solve(problem, "ifeddr", tol=1e-8, gamma=gamma, max_rounds=automatic.rounds - 2)
        assert fixed.status == "max_rounds"


@pytest.mark.parametrize("name", ["linear saddle", "boxed inequality", "quadratic and bilinear", "matrix game"])
def test_accelerated_rounds_pass_the_test_of_algorithm_i_and_take_fewer_exchanges(name: str) -> None:
    case, engine = CASES[name](), Watching()
    answer = fp.solve(case.problem, "ifeddr", tol=1e-8, engine=engine, max_rounds=400)
    assert answer.status == "solved"
    for *refused, last in ([seen_by_all(case.problem, one) for one in exchanges] for exchanges in engine.rounds()):
        assert last.passes(0.95 * (1 + 1e-6)) or last.error <= last.rounding
        assert not any(seen.passes(0.95 * (1 - 1e-6)) for seen in refused)
    plain = fp.solve(case.problem, "ifeddr", tol=1e-8, memory=0, max_rounds=4000)
    assert answer.rounds <= plain.rounds


@pytest.mark.parametrize("memory", [1, 5, 40])
def test_the_server_follows_the_sum_of_the_owners_s(memory: int) -> None:
    """It is told products of differences around the old p only, and yet knows what everybody moved to."""
    case, engine = boxed_variational_inequality(), Watching()
    fp.solve(case.problem, "ifeddr", tol=1e-9, memory=memory, engine=engine, w0=start_far(case), max_rounds=300)
    mixes = [exchanges[0].order.mix.size for exchanges in engine.rounds()]
    assert 0 < max(mixes) <= memory
    for exchanges, following in itertools.pairwise(engine.rounds()):
        last = seen_by_all(case.problem, exchanges[-1])
        np.testing.assert_allclose(following[0].order.p, last.p, atol=1e-9 * (1 + np.max(np.abs(last.p))))


def test_acceleration_is_an_option_for_functions() -> None:
    case = lasso()
    answer = fp.solve(case.problem, "ifeddr", tol=1e-9, memory=20)
    assert answer.solved
    np.testing.assert_allclose(answer.w, case.answer, atol=1e-8)
    assert answer.rounds <= fp.solve(case.problem, "ifeddr", tol=1e-9).rounds


def test_a_game_that_stalls_says_why() -> None:
    problem, *_ = bilinear_game(2, 8, 0)
    answer = fp.solve(problem, "ifeddr", tol=1e-8, memory=0, max_rounds=300)
    assert answer.status == "max_rounds"
    assert "monotone-newton" in answer.reason
    assert "scale" not in answer.reason


@pytest.mark.parametrize("memory", [0, 10])
@pytest.mark.parametrize("name", ["lasso", "boxed inequality"])
def test_the_papers_start_s_is_where_owners_begin(name: str, memory: int) -> None:
    case, engine = CASES[name](), Watching()
    rng = np.random.default_rng(3)
    s0 = {owner: rng.standard_normal(case.answer.size) for owner in case.problem.names}
    options = {"s0": s0, "gamma": case.gamma, "memory": memory, "engine": engine, "max_rounds": 600}
    answer = fp.solve(case.problem, "ifeddr", tol=1e-9, **options)
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, case.answer, atol=1e-8)
    first = seen_by_all(case.problem, engine.rounds()[0][-1])
    np.testing.assert_array_equal(first.s, [*s0.values()])
    if memory == 0:
        counts = assert_theory(case, engine, sigma=0.95, relaxation=1.8)
        assert counts["compared"] > 3


def test_a_start_s_that_does_not_fit_is_refused() -> None:
    problem = lasso().problem
    s0 = {owner: np.zeros(8) for owner in problem.names}
    for wrong in ({"client 1": np.zeros(8)}, s0 | {"client 2": np.zeros(3)}, s0 | {"nobody": np.zeros(8)}):
        with pytest.raises(OptionError) as caught:
            fp.solve(problem, "ifeddr", s0=wrong)
        assert caught.value.code == "FP-OPTION-204"
    with pytest.raises(OptionError) as caught:
        fp.solve(problem, "ifeddr", s0=s0, participation=0.5)
    assert caught.value.code == "FP-OPTION-204"
    for wrong in (3.0, {"client 1": "far"}, {"client 1": [np.nan] * 8}, {}):
        with pytest.raises(OptionError) as caught:
            fp.solve(problem, "ifeddr", s0=wrong)
        assert caught.value.code == "FP-OPTION-257"


# -------------------------------------------------------------------------------------------------- errors in the paper


def pooled(
    case: Case,
    gamma: float,
    rounds: int,
    *,
    zeta_factor: float = 1.0,
    prox_factor: float = 1.0,
    mu_sign: float = 1.0,
    refine: bool = True,
    sigma: float = 0.95,
) -> tuple[np.ndarray, int]:
    """Algorithm I in NumPy, all owners at hand, one gradient step from s_i a round; p and the number of refusals.

    The factors are what the paper prints differently.
    """
    holders, d = len(case.problem.shares), case.answer.size

    def images(x: np.ndarray) -> np.ndarray:
        return np.array([holders * f.objective.gradient(at) for f, at in zip(case.problem.shares, x, strict=True)])

    hessians = [holders * share.objective.hessian(np.zeros(d)) for share in case.problem.shares]
    step = 1 / (max(np.linalg.norm(H, 2) for H in hessians) + 1 / gamma)
    s, refused, p = np.zeros((holders, d)), 0, np.zeros(d)
    for _ in range(rounds):
        x = s.copy()
        while True:
            x = x - step * (images(x) + (x - s) / gamma)
            F = images(x)
            v = s - gamma * F
            p = case.problem.regularizer.prox(np.mean(x - gamma * F, axis=0), prox_factor * gamma)
            xi, zeta, mu = np.sum((x - p) ** 2), zeta_factor * np.sum((v - p) ** 2), np.sum((x - p) * (v - p))
            if not refine or np.sum((v - x) ** 2) <= sigma**2 * max(xi, zeta) or refused > 20_000:
                break
            refused += 1
        if xi < 1e-24 or xi > 1e12:
            break
        s = s - mu_sign * mu / xi * (x - p)
    return p, refused


def test_zeta_with_the_printed_factor_never_refines_and_sticks() -> None:
    """1 / gamma^2 = 100 makes the test pass whatever the owners send."""
    case = lasso()
    right, refused = pooled(case, 0.1, 400)
    printed, none = pooled(case, 0.1, 400, zeta_factor=100.0)
    assert refused > 0
    assert none == 0
    np.testing.assert_allclose(right, case.answer, atol=1e-6)
    assert np.max(np.abs(printed - case.answer)) > 1e-3
    answer = fp.solve(case.problem, "ifeddr", tol=1e-7, gamma=0.1, local_solver="gradient", start="s", steps=1)
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, case.answer, atol=1e-6)


def test_the_prox_of_gamma_over_n_solves_another_problem() -> None:
    """That of h / N; ours solves that of h."""
    case = lasso()
    printed, _ = pooled(case, 0.5, 3000, prox_factor=1 / 4)
    X, y = rows(0, 60, 8)
    other = SklearnLasso(alpha=0.1 / 4, fit_intercept=False, tol=1e-15, max_iter=100_000).fit(X, y).coef_
    np.testing.assert_allclose(printed, other, atol=1e-6)
    assert np.max(np.abs(printed - case.answer)) > 1e-2
    answer = fp.solve(case.problem, "ifeddr", tol=1e-9, gamma=0.5)
    np.testing.assert_allclose(answer.w, case.answer, atol=1e-8)


def test_the_update_of_algorithm_i_with_mu_of_algorithm_iv_diverges() -> None:
    case = lasso()
    right, _ = pooled(case, 0.5, 300)
    mixed, _ = pooled(case, 0.5, 1000, mu_sign=-1.0)
    np.testing.assert_allclose(right, case.answer, atol=1e-6)
    assert not np.max(np.abs(mixed - case.answer)) < 100


def test_the_rate_of_theorem_3_1_does_not_hold() -> None:
    """min_k |G|^2 <= |s_0 - s*|^2 (1 - sigma)^2 / (lambda (2 - lambda) gamma (1 + gamma^2) (m + 1)), it says."""
    case, engine, gamma = lasso(), Watching(), 0.4
    fp.solve(case.problem, "ifeddr", tol=1e-6, gamma=gamma, engine=engine, max_rounds=60)
    rounds = [seen_by_all(case.problem, exchanges[-1]) for exchanges in engine.rounds()]
    holders = len(case.problem.shares)
    images = np.array([holders * share.objective.gradient(case.answer) for share in case.problem.shares])
    start = float(np.sum((rounds[0].s - case.answer - gamma * images) ** 2))
    smallest = np.minimum.accumulate([seen.xi / gamma**2 for seen in rounds])
    m = np.arange(1, len(rounds) + 1)
    assert np.any(smallest > start * 0.05**2 / (1.8 * 0.2 * gamma * (1 + gamma**2) * m))
    assert np.all(smallest <= start / (1.8 * 0.2 * 0.05**2 * gamma**2 * m))


def test_dropping_zeta_makes_the_test_stricter() -> None:
    """Remark D.3 says that it relaxes it."""
    case, engine = ridge_logistic(), Watching()
    fp.solve(
        case.problem, "ifeddr", tol=1e-7, gamma=case.gamma, error=0.5, steps=1, local_solver="gradient",
        refinement="repeat", engine=engine, max_rounds=200,
    )  # fmt: skip
    seen = [seen_by_all(case.problem, exchange) for exchanges in engine.rounds() for exchange in exchanges]
    by_both, by_xi = (
        [one.error <= 0.25 * size(one) for one in seen] for size in (lambda o: max(o.xi, o.zeta), lambda o: o.xi)
    )
    assert all(both for both, alone in zip(by_both, by_xi, strict=True) if alone)
    assert sum(by_both) > sum(by_xi)


# ----------------------------------------------------------------------------------------- every way to the same answer


@pytest.mark.parametrize("start", slow_but(["p", "last", "s"], "p"))
@pytest.mark.parametrize("solver", NAMES)
def test_all_local_solvers_and_starts(solver: str, start: str) -> None:
    case = lasso()
    answer = fp.solve(case.problem, "ifeddr", tol=1e-9, gamma=0.3, local_solver=solver, start=start, max_rounds=500)
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, case.answer, atol=1e-8)


@pytest.mark.parametrize("solver", ["gradient", "extragradient", "newton"])
def test_all_local_solvers_for_operators(solver: str) -> None:
    case = boxed_variational_inequality()
    answer = fp.solve(case.problem, "ifeddr", tol=1e-9, gamma=0.2, local_solver=solver, max_rounds=3000)
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, case.answer, atol=1e-8)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("refinement", ["adaptive", "repeat", "total", "double"])
@pytest.mark.parametrize("name", ["ridge logistic", "boxed inequality"])
def test_all_refinement_policies(name: str, refinement: str, steps: int) -> None:
    case = CASES[name]()
    solver = "extragradient" if case.problem.monotone else "gradient"
    answer = fp.solve(
        case.problem, "ifeddr", tol=1e-9, refinement=refinement, steps=steps, local_solver=solver, max_rounds=4000
    )
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, case.answer, atol=1e-8)


def test_what_the_policies_ask_for() -> None:
    """tau again and again; tau times all refinements; twice as much after each; and adaptive comes down again."""
    case = ridge_logistic()
    asked = {}
    for refinement in ("adaptive", "repeat", "total", "double"):
        engine = Watching()
        fp.solve(
            case.problem, "ifeddr", tol=1e-8, gamma=8 * case.gamma, error=0.3, steps=1, local_solver="gradient",
            refinement=refinement, engine=engine, max_rounds=150,
        )  # fmt: skip
        asked[refinement] = [(len(exchanges) - 1, [e.order.steps for e in exchanges]) for exchanges in engine.rounds()]
    assert {n for _, steps in asked["repeat"] for n in steps} == {1}
    so_far = 0
    for refusals, steps in asked["total"]:
        assert steps == [max(so_far, 1), *[1] * refusals]
        so_far += refusals
    assert so_far > 3
    level = 1
    for refusals, steps in asked["double"]:
        assert steps[0] == level
        level *= 2**refusals
    assert level > 1
    assert {n for _, steps in asked["adaptive"] for n in steps} == {1}  # never more than given


def test_by_default_every_owner_does_as_much_as_it_needs() -> None:
    """The owner whose subproblem is hardest computes most, and the amount goes up and down again."""
    problem = uneven_curvature()
    found = fp.solve(problem, "ifeddr", tol=1e-8, local_solver="gradient", gamma=0.05, error=0.5)
    assert found.status == "solved"
    spent = np.array([record.gradients for record in found.history.local])
    assert np.argmax(spent.sum(axis=0)) == len(problem.shares) - 1
    assert spent[:, -1].sum() > 1.5 * spent[:, 0].sum()
    changes = np.diff(spent[:, -1])
    assert np.any(changes > 0)
    assert np.any(changes < 0)
    refined = sum(record.refinements for record in found.history.local)
    assert refined < 0.2 * len(found.history.local)  # it is foreseen, not asked for


def uneven_curvature() -> fp.FederatedProblem:
    """Strictly convex quadratics of three owners whose curvature differs by 100."""
    rng = np.random.default_rng(0)
    shares = []
    for curvature in (1.0, 10.0, 100.0):
        A = rng.normal(size=(30, 6)) * np.sqrt(curvature / 30)
        shares.append(fp.Share(fp.functions.Quadratic(A.T @ A, -A.T @ (A @ rng.normal(size=6)))))
    return fp.FederatedProblem(shares)


@pytest.mark.parametrize("name", ["lasso", "ridge logistic", "boxed inequality"])
def test_secure_sums_give_the_same_answer(name: str) -> None:
    case = CASES[name]()
    answer = fp.solve(case.problem, "ifeddr", tol=1e-9, secure_sum=True, max_rounds=2000)
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, case.answer, atol=1e-8)
    plain = fp.solve(case.problem, "ifeddr", tol=1e-9, max_rounds=2000)
    np.testing.assert_allclose(answer.w, plain.w, atol=1e-8)
    assert abs(answer.rounds - 2 - plain.rounds) <= 0.1 * plain.rounds


class Stopper:
    """Ctrl-C at the exchange with this number."""

    def __init__(self, at: int) -> None:
        self.at, self.told = at, 0

    def __call__(self, progress: Progress) -> None:
        self.told += 1
        if progress.rounds >= self.at:
            raise KeyboardInterrupt


# -------------------------------------------------------------------------------------------------- what it says it did


class Counting(Function):
    def __init__(self, inner: Function) -> None:
        self.inner, self.dim, self.calls, self.hessians = inner, inner.dim, 0, 0
        self.has_hessian, self.gradient_field = inner.has_hessian, inner.gradient_field

    def value_and_gradient(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        self.calls += 1
        return self.inner.value_and_gradient(w)

    def hessian(self, w: np.ndarray) -> np.ndarray:
        self.hessians += 1
        return self.inner.hessian(w)


@pytest.mark.parametrize("start", ["p", "last", "s"])
@pytest.mark.parametrize("solver", ["gradient", "agd", "extragradient", "newton", "lbfgs"])
def test_every_evaluation_is_counted_and_none_is_made_twice(solver: str, start: str) -> None:
    shares = logistic_shares()[0]
    counting = [replace(share, objective=Counting(share.objective)) for share in shares]
    functions = [share.objective for share in counting]
    engine = Watching(lambda: [(f.calls, f.hessians) for f in functions])
    answer = fp.solve(
        fp.FederatedProblem(counting, None, SquaredL2(0.05)), "ifeddr", tol=1e-6, gamma=8.0, local_solver=solver,
        start=start, engine=engine, max_rounds=60, error=0.5,
    )  # fmt: skip
    by_round: list[np.ndarray] = []
    for before, now in itertools.pairwise(engine.seen):
        if now.step not in ("advance", "refine"):
            continue
        spent = np.array(now.counted) - np.array(before.counted)
        assert [(r.gradients, r.hessians) for r in now.replies] == [tuple(pair) for pair in spent]
        if now.step == "advance":
            by_round.append(spent[:, 0])
        else:
            by_round[-1] = by_round[-1] + spent[:, 0]
    assert [list(r.gradients) for r in answer.history.local] == [list(spent) for spent in by_round]
    assert len(by_round) > 3


def test_history_and_callbacks_follow_the_solve() -> None:
    case, told = ridge_logistic(), []
    answer = fp.solve(
        case.problem, "ifeddr", tol=1e-8, gamma=case.gamma, local_solver="gradient", callbacks=[told.append]
    )
    local = answer.history.local
    assert [r.iteration for r in local] == list(range(1, len(local) + 1))
    assert [p.rounds for p in told] == list(range(1, answer.rounds))  # after every exchange but the last
    assert told[0].iteration == 0
    last = {p.iteration: p for p in told}  # of every round
    assert [r.rounds for r in local] == [last[r.iteration].rounds for r in local]
    assert [r.refinements for r in local] == [last[r.iteration].inner for r in local]
    assert local[-1].rounds == 1 + len(local) + sum(r.refinements for r in local)
    assert answer.rounds == local[-1].rounds + 1  # the certificate of what is returned
    assert answer.history.outer[-1].stationarity == answer.certificate.stationarity <= 1e-8
    gradient = sum(share.objective.gradient(answer.w) for share in case.problem.shares)
    natural = np.linalg.norm(answer.w - case.problem.regularizer.prox(answer.w - gradient, 1.0))
    assert local[-1].residual == pytest.approx(natural, rel=1e-6)


def test_only_sums_leave_the_owners() -> None:
    engine = Watching()
    answer = fp.solve(lasso().problem, "ifeddr", tol=1e-6, engine=engine)
    for exchange in engine.seen:
        if exchange.step in ("advance", "refine"):
            for reply in exchange.replies:
                assert reply.shift is reply.image is reply.products is reply.gradient is None
    fields = answer.communication.owners["client 1"].fields
    assert {field.split(".")[0] for field in fields} == {"Begun", "Resolved", "Concluded"}


# ---------------------------------------------------------------------------------------------------------------- edges


@every_case
def test_a_start_at_the_solution_is_solved_at_once(name: str) -> None:
    case = CASES[name]()
    start = case.problem.regularizer.prox(case.answer, 1e-13)  # on the simplex and in the box to the last digit
    answer = fp.solve(case.problem, "ifeddr", tol=1e-6, w0=start)
    assert answer.status == "solved"
    assert answer.rounds == 2  # the start, and the certificate of what is returned
    np.testing.assert_array_equal(answer.w, start)


def test_xi_is_zero_when_all_agree_from_the_start() -> None:
    """Owners that are each at their own minimum: s_i = x_i = p, and nothing may be divided by."""
    centre = np.array([1.0, -2.0])
    problem = fp.FederatedProblem([fp.Share(Quadratic(a * np.eye(2), -a * centre)) for a in (1.0, 3.0)])
    with np.errstate(all="raise"):
        answer = fp.solve(problem, "ifeddr", w0=centre, tol=1e-12, gamma=1.0)
    assert answer.status == "solved"
    np.testing.assert_array_equal(answer.w, centre)
    assert Measured(p=centre, xi=0.0, zeta=0.0, mu=0.0, error=0.0).alpha(0.95) == 1.0


@pytest.mark.parametrize("name", ["lasso", "boxed inequality"])
def test_one_owner_and_owners_that_are_all_alike(name: str) -> None:
    case = CASES[name]()
    objectives = [share.objective for share in case.problem.shares]
    kind = MonotoneProblem if case.problem.monotone else fp.FederatedProblem

    def whole(x: np.ndarray) -> np.ndarray:
        return sum(f.gradient(x) for f in objectives)

    d = case.answer.size
    if case.problem.monotone:
        one: Function = Linear(sum(f.M for f in objectives), sum(f.q for f in objectives))
        alike: list[Function] = [Linear(one.M / 4, one.q / 4) for _ in range(4)]
    else:
        H = sum(f.hessian(np.zeros(d)) for f in objectives)
        one = Quadratic(H, whole(np.zeros(d)))
        alike = [0.25 * one for _ in range(4)]
    for functions in ([one], alike):
        problem = kind([fp.Share(f) for f in functions], regularizer=case.problem.regularizer)
        answer = fp.solve(problem, "ifeddr", tol=1e-9)
        assert answer.status == "solved"
        np.testing.assert_allclose(answer.w, case.answer, atol=1e-8)


def test_a_linear_objective_without_a_minimiser() -> None:
    shares = [fp.Share(Quadratic(np.zeros((2, 2)), b)) for b in ([1.0, -2.0], [0.5, 0.0])]
    answer = fp.solve(fp.FederatedProblem(shares), "ifeddr")
    assert answer.status == "unbounded"
    assert "SquaredL2" in answer.reason
    boxed = fp.solve(fp.FederatedProblem(shares, regularizer=Box(-1, 1)), "ifeddr")
    assert boxed.status == "solved"
    np.testing.assert_allclose(boxed.w, [-1.0, 1.0])


def test_separable_data_without_a_regularizer() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = (X[:, 0] > 0).astype(float)
    X[:, 0] += np.where(y > 0, 0.5, -0.5)
    shares = [fp.Share(LogisticLoss(X[i::3], y[i::3])) for i in range(3)]
    answer = fp.solve(fp.FederatedProblem(shares), "ifeddr", tol=1e-3, max_rounds=3000)
    assert answer.status == "unbounded"


@pytest.mark.parametrize("jacobian", [True, False])
def test_operators_without_a_common_zero(jacobian: bool) -> None:
    """F_1 + F_2 = (0 x + 2, rotation): the first coordinate runs away."""
    M = np.array([[0.0, 0, 0], [0, 0, 1], [0, -1, 0]])

    def operator(q: list[float]) -> Operator:
        return Linear(M, q) if jacobian else Operator(lambda x: M @ x + q, dim=3)

    answer = fp.solve(MonotoneProblem([operator([1.0, 0, 1]), operator([1.0, 1, 0])]), max_rounds=2500)
    assert answer.status == "infeasible"
    assert "operators have none in common" in answer.reason or "no common zero" in answer.reason
    boxed = MonotoneProblem([operator([1.0, 0, 1]), operator([1.0, 1, 0])], Box(-2, 2))
    assert fp.solve(boxed, tol=1e-6, max_rounds=2500).status == "solved"


@pytest.mark.parametrize("nearness", [1e-7, 1e-10])
def test_a_game_with_a_zero_far_away_is_not_infeasible(nearness: float) -> None:
    """A bilinear game whose matrix is nearly singular has its zero at 1e9 or 1e10."""
    rng = np.random.default_rng(3)
    for _ in range(4):
        A = rng.standard_normal((3, 3))
        A[:, -1] = A[:, 0] + nearness * rng.standard_normal(3)
        a, b = rng.standard_normal((2, 3))
        J = np.block([[np.zeros((3, 3)), A], [-A.T, np.zeros((3, 3))]])
        answer = fp.solve(MonotoneProblem([Linear(J, np.concatenate([a, -b]))]), tol=1e-6, max_rounds=400)
        assert answer.status in ("solved", "stalled", "max_rounds")


def concave(w: np.ndarray) -> tuple[float, np.ndarray]:
    return float(w.sum() - w @ w), 1 - 2 * w


@pytest.mark.parametrize("hessian", [None, lambda w: -2 * np.eye(2)], ids=["first order", "newton"])
def test_an_owner_that_is_not_monotone_is_named(hessian: Callable[[np.ndarray], object] | None) -> None:
    shares = [
        fp.Share(Quadratic(0.5 * np.eye(2)), name="south"),
        fp.Share(Smooth(concave, hessian, dim=2), name="north"),
    ]
    answer = fp.solve(fp.FederatedProblem(shares), "ifeddr", max_rounds=2000)
    assert answer.status in ("stalled", "unbounded", "max_rounds")
    said = " ".join([*answer.history.notes, answer.reason])
    assert "not monotone" in said
    assert "north" in said
    assert "south" not in said


def test_an_operator_that_is_not_monotone_is_named() -> None:
    operators = [fp.Share(Linear(0.5 * np.eye(2)), name="south"), fp.Share(Linear(-np.eye(2), [1.0, 1]), name="north")]
    answer = fp.solve(MonotoneProblem(operators), max_rounds=2000)
    assert not answer.solved
    assert "north: the operator is not monotone" in answer.reason
    assert "south" not in " ".join(answer.history.notes)


def outcome(problem: fp.FederatedProblem, solver: str) -> str:
    """The status, or what the error says."""
    try:
        return fp.solve(problem, "ifeddr", local_solver=solver, max_rounds=300).status
    except OwnerError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("solver", NAMES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_owner_that_gives_nan_is_named(solver: str, value: float) -> None:
    def always(w: np.ndarray) -> tuple[float, np.ndarray]:
        return value, np.full(2, value)

    def late(w: np.ndarray) -> tuple[float, np.ndarray]:
        return (value, np.full(2, value)) if w[0] > 0.3 else (float(w @ w / 2), w - [5.0, 0])

    for fun in (always, late):
        bad = Smooth(fun, hess=lambda w: np.eye(2), dim=2)
        shares = [fp.Share(Quadratic(0.1 * np.eye(2), [-5.0, 0.0]), name="south"), fp.Share(bad, name="north")]
        found = outcome(fp.FederatedProblem(shares), solver)
        # A local solver may keep out of where it is not finite: then there is no answer, and no error.
        assert re.match("north: .* gave a non-finite", found) or (fun is late and found in ("stalled", "max_rounds"))


def lying(w: np.ndarray) -> tuple[float, np.ndarray]:
    """Its gradient jumps over zero: no point passes the error test."""
    return float(w @ w), 2 * w + np.sign(w + 0.3)


@pytest.mark.parametrize("refinement", ["adaptive", "repeat", "total", "double"])
@pytest.mark.parametrize("solver", ["gradient", "agd", "extragradient", "newton"])
def test_a_refinement_that_cannot_succeed_ends(solver: str, refinement: str) -> None:
    shares = [fp.Share(Smooth(lying, lambda w: 2 * np.eye(2), dim=2), name="north")]
    problem = fp.FederatedProblem(shares)
    answer = fp.solve(problem, "ifeddr", tol=1e-6, refinement=refinement, local_solver=solver, max_rounds=2000)
    assert answer.status == "stalled"
    assert "gradients" in answer.reason
    assert answer.rounds < 300
    assert fp.certify(problem, answer.w, [None, None]) == answer.certificate


@pytest.mark.parametrize("limit", [8, 9, 15, 40])
def test_too_few_rounds_are_a_status_with_the_best_point_so_far(limit: int) -> None:
    case = ridge_logistic()
    answer = fp.solve(case.problem, "ifeddr", tol=1e-9, gamma=0.01, max_rounds=limit, local_solver="gradient")
    assert answer.status == "max_rounds"
    assert f"the limit of {limit} exchanges" in answer.reason
    assert answer.rounds <= limit
    assert fp.certify(case.problem, answer.w, [None] * 4) == answer.certificate
    start = fp.certify(case.problem, np.zeros(5), [None] * 4)
    assert answer.certificate.stationarity <= start.stationarity


@pytest.mark.parametrize("at", [1, 2, 9, 30])
def test_ctrl_c_gives_a_certified_point(at: int) -> None:
    case = ridge_logistic()
    answer = fp.solve(
        case.problem, "ifeddr", tol=1e-9, gamma=0.05, local_solver="gradient", steps=1, callbacks=[Stopper(at)]
    )
    assert answer.status == "interrupted"
    assert fp.certify(case.problem, answer.w, [None] * 4) == answer.certificate


@pytest.mark.parametrize("jacobian", [True, False])
def test_the_first_gamma_of_a_skew_operator_is_of_the_size_of_its_inverse(jacobian: bool) -> None:
    """<v, J v> is zero there, up to rounding, and says nothing about the size of J."""
    skew = np.random.default_rng(3).standard_normal((3, 7, 7))
    skew = skew - skew.transpose(0, 2, 1)
    operators = [Linear(K, np.ones(7)) if jacobian else Operator(lambda x, K=K: K @ x + 1, dim=7) for K in skew]
    answer = fp.solve(MonotoneProblem(operators, Box(-1, 1)), "ifeddr", max_rounds=12)
    norms = [3 * np.linalg.norm(K, 2) for K in skew]
    assert 0.2 / np.mean(norms) < answer.history.local[0].gamma < 20 / np.mean(norms)


def test_a_start_far_away_does_not_matter() -> None:
    """Nothing cancels into garbage, and gamma does not follow the distance for ever."""
    case = lasso()
    answer = fp.solve(case.problem, "ifeddr", tol=1e-8, w0=1e6 * np.ones(8), max_rounds=600)
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, case.answer, atol=1e-7)


def test_badly_scaled_owners() -> None:
    """One owner's curvature is a million times the other's."""
    problem = fp.FederatedProblem(
        [fp.Share(Quadratic(1e3 * np.eye(2), [-1e3, 0])), fp.Share(Quadratic(1e-3 * np.eye(2), [0, -1e-3]))]
    )
    answer = fp.solve(problem, "ifeddr", tol=1e-7, max_rounds=1000)
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, np.array([1e3, 1e-3]) / (1e3 + 1e-3), atol=1e-9)


# --------------------------------------------------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relaxation": 2.0}, "relaxation = 2.0: give a number above 0 and below 2"),
        ({"relaxation": -1.0}, "relaxation = -1.0: give a number above 0 and below 2"),
        ({"error": 1.0}, "error = 1.0: give a number above 0 and below 1"),
        ({"error": 0.0}, "error = 0.0: give a number above 0 and below 1"),
        ({"gamma": 0.0}, "gamma = 0.0: give a number above 0"),
        ({"gamma": np.inf}, "gamma = inf: give a number above 0"),
        ({"gamma": "large"}, "gamma = 'large': give a number above 0"),
        ({"steps": -1}, "steps = -1: give a whole number of at least 0"),
        ({"steps": 2.5}, "steps = 2.5: give a whole number"),
        (
            {"local_solver": "adam"},
            "local_solver = 'adam': choose 'gradient', 'agd', 'extragradient', 'newton', 'lbfgs'",
        ),
        ({"local_solver": 3}, "local_solver = 3: choose 'gradient', 'agd'"),
        ({"start": "zero"}, "start = 'zero': choose 'p', 'last', 's'"),
        ({"refinement": "triple"}, "refinement = 'triple': choose 'adaptive', 'repeat', 'total', 'double'"),
        ({"penalty": 1.0}, "method 'ifeddr' has no option 'penalty'; it takes gamma, relaxation"),
    ],
    ids=lambda value: "-".join(value) + "-" + str(next(iter(value.values()))) if isinstance(value, dict) else "",
)
def test_options_that_make_no_sense(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fp.solve(lasso().problem, "ifeddr", **options)


def test_none_means_the_default() -> None:
    case = ridge_logistic()
    plain = fp.solve(case.problem, "ifeddr")
    none = fp.solve(case.problem, "ifeddr", gamma=None, steps=None, local_solver=None, start=None, refinement=None)
    np.testing.assert_array_equal(plain.w, none.w)


def test_what_the_method_does_not_take_is_refused_by_name() -> None:
    limit = fp.Constraint(Affine(np.ones((1, 2))), Nonnegative(1))
    plain = fp.Share(Quadratic(np.eye(2)))
    for shares, server, name in (
        ([plain], fp.Share(Quadratic(np.eye(2))), "server"),
        ([plain], fp.Share(None, limit), "server"),
        ([plain, fp.Share(Quadratic(np.eye(2)), limit, name="north")], None, "north"),
        ([plain, fp.Share(Quadratic(np.eye(2)), coupled=Affine(np.ones((1, 2))), name="north")], None, "north"),
    ):
        with pytest.raises(OptionError, match=f'method "ifeddr" takes objectives of owners .*, {name} holds more'):
            fp.solve(fp.FederatedProblem(shares, server), "ifeddr")


def test_local_solvers_that_an_owner_cannot_use_are_refused_with_its_name() -> None:
    case = first_order(ridge_logistic().problem)
    with pytest.raises(OptionError, match=r'^client 1: local_solver="newton"') as caught:
        fp.solve(case, "ifeddr", local_solver="newton")
    assert caught.value.code == "FP-OPTION-201"
    with pytest.raises(OptionError, match=r'^client 1: local_solver="lbfgs".*"extragradient"') as caught:
        fp.solve(linear_saddle().problem, "ifeddr", local_solver="lbfgs")
    assert caught.value.code == "FP-OPTION-202"


def test_auto_takes_it_for_operators_without_jacobians_and_says_so() -> None:
    answer = fp.solve(quadratic_bilinear(jacobian=False).problem)
    assert (answer.method, answer.status) == ("ifeddr", "solved")
    assert answer.history.notes[0].startswith("auto chose ifeddr: monotone-newton needs Jacobians")
    assert "client 1" in answer.history.notes[0]


@pytest.mark.parametrize(
    "method", [name for name, kind in METHODS.items() if not kind.needs.operators and not kind.needs.columns]
)
def test_methods_that_minimise_refuse_operators(method: str) -> None:
    with pytest.raises(OptionError, match=f'method "{method}" minimises; for operators use .*ifeddr'):
        fp.solve(linear_saddle().problem, method)
