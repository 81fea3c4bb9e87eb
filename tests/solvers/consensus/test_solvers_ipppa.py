"""iPPPA and iDRS against the exact methods, closed forms and their theory; iFedDR as iDRS on the consensus problem."""

from __future__ import annotations

import numpy as np
import pytest
from ipppa import Approximate, Resolvent, affine_resolvent, idrs, ipppa, range_and_metric
from scipy.special import expit
from watched_owners import Watching, seen_by_all

import fedpact as fp
from fedpact.functions import Linear, LogisticLoss, Quadratic
from fedpact.problem import MonotoneProblem
from fedpact.prox import L1, Box, Prox, Zero

D = 7


def random_inclusion(seed: int, d: int = D) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """M, q and the zero of T z = M z + q: skew plus positive semidefinite, of half rank."""
    rng = np.random.default_rng(seed)
    root, skew = rng.standard_normal((d, d // 2)), rng.standard_normal((d, d))
    M, q = root @ root.T / d + skew - skew.T, rng.standard_normal(d)
    return M, q, -np.linalg.solve(M, q)


def random_semidefinite(seed: int, rank: int, d: int = D) -> np.ndarray:
    """Positive eigenvalues between 1/2 and 2, all different."""
    basis = np.linalg.qr(np.random.default_rng(seed + 100).standard_normal((d, d)))[0][:, :rank]
    return basis * np.linspace(0.5, 2.0, rank) @ basis.T


def pppa(resolvent: Resolvent, P: np.ndarray, z: np.ndarray, relaxation: float, rounds: int) -> np.ndarray:
    """The exact method, as printed before (4.2)."""
    points = [z]
    for _ in range(rounds):
        points.append(points[-1] + relaxation * (resolvent(P @ points[-1]) - points[-1]))
    return np.array(points)


# --------------------------------------------------------------------------------------------------------------- iPPPA


def test_range_and_metric() -> None:
    P = random_semidefinite(1, 4)
    Q, R = range_and_metric(P)
    np.testing.assert_allclose(Q @ Q, Q, atol=1e-14)
    np.testing.assert_allclose(Q @ P, P, atol=1e-14)
    assert np.trace(Q) == pytest.approx(4)
    np.testing.assert_allclose(np.linalg.solve(R, P), Q, atol=1e-14)
    assert np.linalg.eigvalsh(R)[0] > 0


@pytest.mark.parametrize("relaxation", [0.7, 1.0, 1.6])
@pytest.mark.parametrize("rank", [2, 5, 7])
def test_without_errors_the_projection_in_r_is_the_exact_method(rank: int, relaxation: float) -> None:
    M, q, _ = random_inclusion(rank)
    P = random_semidefinite(rank, rank)
    resolvent, z0 = affine_resolvent(M, q, P), np.random.default_rng(5).standard_normal(D)
    found = ipppa(resolvent, P, z0, rounds=30, relaxation=relaxation, printed=False)
    Q = range_and_metric(P)[0]
    np.testing.assert_allclose(found.points @ Q, pppa(resolvent, P, z0, relaxation, 30) @ Q, atol=1e-11)
    np.testing.assert_allclose(found.alphas[:10], 1.0, atol=1e-9)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_without_errors_the_printed_method_is_the_exact_one_for_multiples_of_projections(scale: float) -> None:
    """alpha is then 1 / scale^2."""
    M, q, _ = random_inclusion(3)
    Q = range_and_metric(random_semidefinite(3, 5))[0]
    P = scale * Q
    resolvent, z0 = affine_resolvent(M, q, P), np.random.default_rng(5).standard_normal(D)
    found = ipppa(resolvent, P, z0, rounds=30, relaxation=1.3)
    np.testing.assert_allclose(found.points @ Q, pppa(resolvent, P, z0, 1.3, 30) @ Q, atol=1e-11)
    np.testing.assert_allclose(found.alphas[:10], 1 / scale**2, rtol=1e-9)


def test_without_errors_the_printed_method_is_another_one_for_other_p() -> None:
    """alpha = <e, P e> / <e, P^3 e> with e = z - z', and the step is along P^2 e, not e: still the right limit."""
    M, q, zero = random_inclusion(4)
    P = random_semidefinite(4, 5)
    resolvent, z0 = affine_resolvent(M, q, P), np.random.default_rng(5).standard_normal(D)
    found = ipppa(resolvent, P, z0, rounds=600)
    for z, resolved, alpha in zip(found.points[:10], found.resolved, found.alphas, strict=False):
        e = z - resolved
        assert alpha == pytest.approx(e @ P @ e / (e @ P @ P @ P @ e), rel=1e-9)
    Q = range_and_metric(P)[0]
    assert np.max(np.abs(Q @ (found.points[1] - pppa(resolvent, P, z0, 1.0, 1)[1]))) > 1e-2
    np.testing.assert_allclose(found.resolved[-1], zero, atol=1e-8)


@pytest.mark.parametrize("printed", [True, False], ids=["R^-1", "R"])
@pytest.mark.parametrize("sigma", [0.3, 0.95])
@pytest.mark.parametrize("seed", range(6))
def test_with_admissible_errors_the_shadow_sequence_is_fejer_monotone(seed: int, sigma: float, printed: bool) -> None:
    M, q, zero = random_inclusion(seed)
    rank, relaxation = (2, 3, 5, 6, 7, 7)[seed], (1.0, 1.5, 0.5)[seed % 3]
    P = random_semidefinite(seed, rank)
    Q, R = range_and_metric(P)
    rng = np.random.default_rng(seed + 9)
    z0, errors = rng.standard_normal(D), 2 * rng.standard_normal((1500, D))
    found = ipppa(
        affine_resolvent(M, q, P), P, z0, rounds=1500, errors=errors, error=sigma, relaxation=relaxation,
        printed=printed, tol=1e-9,
    )  # fmt: skip
    inverse = np.linalg.inv(R)
    metric = inverse if printed else R

    def square(rows: np.ndarray, by: np.ndarray) -> np.ndarray:
        return np.einsum("ij,jk,ik->i", rows, by, rows)

    # What was promised: images in T and in range P, and the error test.
    np.testing.assert_allclose(found.images, found.resolved @ M.T + q, atol=1e-9)
    np.testing.assert_allclose(found.images @ Q, found.images, atol=1e-9)
    moved = (found.points[:-1] - found.resolved) @ P
    np.testing.assert_allclose(moved, found.images + found.errors, atol=1e-9)
    largest = np.maximum(square(found.images, inverse), square(moved, inverse))
    assert np.all(square(found.errors, inverse) <= sigma**2 * largest * (1 + 1e-9))
    assert np.max(square(found.errors, inverse)[:50] / largest[:50]) > 0.05 * sigma**2  # errors there are
    assert found.attempts[:50].max() > 0

    distances = square((found.points - zero) @ Q, metric)
    assert np.all(np.diff(distances) <= 1e-12 * distances[0])
    steps = found.images @ P if printed else found.images @ inverse
    fall = relaxation * (2 - relaxation) * found.alphas**2 * square(steps, metric)
    assert np.all(distances[1:] + fall <= distances[:-1] + 1e-12 * distances[0])  # (C.7), hence (*)
    assert np.sum(fall) <= distances[0] * (1 + 1e-9)
    top = np.linalg.eigvalsh(P)[-1]
    assert np.all(found.alphas >= (1 - sigma) / (top**2 if printed else 1) - 1e-9)
    assert len(found.alphas) < 1500
    np.testing.assert_allclose(found.resolved[-1], zero, atol=1e-8)


def test_printed_signs_diverge() -> None:
    """Section 4's P z' - P z = v' + eps, taken at its word: alpha becomes -1 times what it should be."""
    M, q, zero = random_inclusion(2)
    P = range_and_metric(random_semidefinite(2, 5))[0]
    z, Q = np.random.default_rng(0).standard_normal(D), P
    far = [np.linalg.norm(Q @ (z - zero))]
    for _ in range(20):
        resolved = np.linalg.solve(P + M, P @ z - q)
        image = M @ resolved + q
        z = z - (image @ (resolved - z)) / (image @ P @ image) * (P @ image)
        far.append(np.linalg.norm(Q @ (z - zero)))
    assert far[-1] > 10 * far[0]


def test_an_operator_given_by_a_callable() -> None:
    """T z = z - b + d|z|_1, whose zero is the soft threshold of b; P singular."""
    b, weights = np.array([3.0, -0.4, 0.2, -2.5, 1.5]), np.array([1.0, 0.0, 2.0, 0.5, 1.5])
    P = np.diag(weights)

    def soft(u: np.ndarray) -> np.ndarray:
        return np.sign(u) * np.maximum(np.abs(u) - 1, 0)

    errors = np.random.default_rng(1).standard_normal((300, 5))
    found = ipppa(lambda u: soft(u + b) / (1 + weights), P, 5 * np.ones(5), rounds=300, errors=errors, error=0.8)
    np.testing.assert_allclose(found.resolved[-1], soft(b), atol=1e-10)


def test_a_start_at_the_zero_stays_there() -> None:
    M, q, zero = random_inclusion(1)
    P = random_semidefinite(1, 4)
    errors = np.ones((5, D))
    found = ipppa(affine_resolvent(M, q, P), P, zero, rounds=5, errors=errors)
    np.testing.assert_allclose(found.points @ P, np.tile(P @ zero, (6, 1)), atol=1e-10)
    assert np.all(np.isfinite(found.alphas))


# ---------------------------------------------------------------------------------------------------------------- iDRS


class Lasso:
    """0 in A x + B x with A x = H x - c and B = d(weight |.|_1)."""

    def __init__(self, seed: int, gamma: float, d: int = 6) -> None:
        rng = np.random.default_rng(seed)
        root = rng.standard_normal((d, d))
        self.H, self.c = root @ root.T / d + 0.2 * np.eye(d), rng.standard_normal(d)
        self.weight, self.gamma, self.d = 0.3, gamma, d

    def resolvent_a(self, s: np.ndarray) -> np.ndarray:
        return np.linalg.solve(np.eye(self.d) + self.gamma * self.H, s + self.gamma * self.c)

    def resolvent_b(self, v: np.ndarray) -> np.ndarray:
        return np.sign(v) * np.maximum(np.abs(v) - self.gamma * self.weight, 0)

    def primal_dual(self, u: np.ndarray) -> np.ndarray:
        """(P + T)^-1 for (2.6) and (4.2): x / gamma + A x = u_1, and gamma y + B^-1 y - 2 x in u_2."""
        x = self.resolvent_a(self.gamma * u[: self.d])
        v = u[self.d :] + 2 * x
        return np.concatenate([x, (v - self.resolvent_b(v)) / self.gamma])

    @property
    def P(self) -> np.ndarray:
        return np.kron([[1 / self.gamma, -1], [-1, self.gamma]], np.eye(self.d))

    def disturbed(self, errors: np.ndarray) -> Approximate:
        """x = (id + gamma A)^-1(s - gamma eps), the error halved at every attempt."""

        def approximate(k: int, attempt: int, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            x = self.resolvent_a(s - self.gamma * 0.5**attempt * errors[k])
            return x, self.H @ x - self.c

        return approximate

    def answer(self) -> np.ndarray:
        """By coordinate descent, to rounding."""
        x = np.zeros(self.d)
        for _ in range(400):
            for j in range(self.d):
                rest = self.c[j] - self.H[j] @ x + self.H[j, j] * x[j]
                x[j] = np.sign(rest) * max(abs(rest) - self.weight, 0) / self.H[j, j]
        return x


def drs(lasso: Lasso, s: np.ndarray, relaxation: float, rounds: int) -> np.ndarray:
    """(DRS), relaxed."""
    points = [s]
    for _ in range(rounds):
        u = lasso.resolvent_a(points[-1])
        points.append(points[-1] + relaxation * (lasso.resolvent_b(2 * u - points[-1]) - u))
    return np.array(points)


@pytest.mark.parametrize("relaxation", [1.0, 1.7])
@pytest.mark.parametrize("gamma", [0.1, 1.0, 5.0])
def test_without_errors_all_of_them_are_douglas_rachford(gamma: float, relaxation: float) -> None:
    lasso, rng = Lasso(0, gamma), np.random.default_rng(3)
    x0, y0 = rng.standard_normal((2, 6))
    z0, s0 = np.concatenate([x0, y0]), x0 - gamma * y0
    expected = drs(lasso, s0, relaxation, 40)
    s_of = np.kron([[1.0], [-gamma]], np.eye(6))
    np.testing.assert_allclose(pppa(lasso.primal_dual, lasso.P, z0, relaxation, 40) @ s_of, expected, atol=1e-10)
    for printed, alpha in ((True, (gamma / (1 + gamma**2)) ** 2), (False, 1.0)):
        found = ipppa(lasso.primal_dual, lasso.P, z0, rounds=40, relaxation=relaxation, printed=printed)
        np.testing.assert_allclose(found.points @ s_of, expected, atol=1e-10)
        np.testing.assert_allclose(found.alphas, alpha, rtol=1e-7)
    split = idrs(
        lasso.disturbed(np.zeros((40, 6))), lasso.resolvent_b, s0, gamma=gamma, rounds=40, relaxation=relaxation
    )
    np.testing.assert_allclose(split.points, expected, atol=1e-10)
    np.testing.assert_allclose(split.alphas, gamma, rtol=1e-7)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 5.0])
def test_idrs_is_ipppa_with_the_preconditioner_of_4_2(gamma: float) -> None:
    lasso, rng = Lasso(1, gamma), np.random.default_rng(4)
    x0, y0, errors = rng.standard_normal(6), rng.standard_normal(6), rng.standard_normal((40, 6))
    split = idrs(
        lasso.disturbed(errors), lasso.resolvent_b, x0 - gamma * y0, gamma=gamma, rounds=40, error=0.9, relaxation=1.4
    )
    found = ipppa(
        lasso.primal_dual, lasso.P, np.concatenate([x0, y0]), rounds=40, errors=np.hstack([errors, -gamma * errors]),
        error=0.9, relaxation=1.4,
    )  # fmt: skip
    np.testing.assert_array_equal(split.attempts, found.attempts)
    assert split.attempts.max() > 0
    np.testing.assert_allclose(split.points, found.points[:, :6] - gamma * found.points[:, 6:], atol=1e-9)
    np.testing.assert_allclose(np.hstack([split.resolved, split.duals]), found.resolved, atol=1e-9)
    np.testing.assert_allclose(split.alphas, found.alphas * (1 + gamma**2) ** 2 / gamma, rtol=1e-6)
    np.testing.assert_allclose(split.errors, found.errors[:, :6], atol=1e-9)


@pytest.mark.parametrize("sigma", [0.5, 0.95])
@pytest.mark.parametrize("gamma", [0.2, 1.0, 4.0])
def test_idrs_converges_with_errors_and_keeps_the_right_bound(gamma: float, sigma: float) -> None:
    lasso, relaxation = Lasso(2, gamma), 1.5
    errors = 3 * np.random.default_rng(5).standard_normal((3000, 6))
    split = idrs(
        lasso.disturbed(errors), lasso.resolvent_b, 3 * np.ones(6), gamma=gamma, rounds=3000, error=sigma,
        relaxation=relaxation, tol=1e-9,
    )  # fmt: skip
    x = lasso.answer()
    assert len(split.alphas) < 3000
    np.testing.assert_allclose(split.resolved[-1], x, atol=1e-8)
    np.testing.assert_allclose(split.p[-1], x, atol=1e-8)
    np.testing.assert_allclose(split.duals[-1], lasso.c - lasso.H @ x, atol=1e-7)
    far = np.linalg.norm(split.points - (x + gamma * (lasso.H @ x - lasso.c)), axis=1)
    assert np.all(np.diff(far) <= 1e-12 * far[0])
    assert np.all(split.alphas >= gamma * (1 - sigma) - 1e-9)
    xi = np.sum((split.resolved - split.p) ** 2, axis=1)
    assert np.sum(xi) <= far[0] ** 2 / (relaxation * (2 - relaxation) * (1 - sigma) ** 2)


@pytest.mark.parametrize("gamma", [0.2, 1.0, 4.0])
def test_the_printed_rate_of_theorem_d_1_is_missed_in_the_first_round(gamma: float) -> None:
    """A = 0, B = the normal cone of {0}, lambda = 1: s_1 = s* = 0, and gamma^2 |G|^2 = |s_0|^2."""
    s0, sigma = np.array([3.0, -4.0]), 0.5
    split = idrs(lambda k, attempt, s: (s, 0 * s), lambda v: 0 * v, s0, gamma=gamma, rounds=1, error=sigma)
    np.testing.assert_allclose(split.points[1], 0, atol=1e-15)
    residual = np.sum((split.resolved[0] - split.p[0]) ** 2) / gamma**2
    assert residual <= 25 / (gamma**2 * (1 - sigma) ** 2)  # (*)
    assert residual > 25 * (1 - sigma) ** 2 / (gamma * (1 + gamma**2))  # Theorem D.1 says at most this
    assert residual > 25 / (gamma * (1 + gamma**2))  # not even without its (1 - sigma)^2


# ---------------------------------------------------------------------------------------- iFedDR is iDRS on (2.4)


def consensus(h: Prox, holders: int, dim: int, gamma: float) -> Resolvent:
    """(id + N gamma B)^-1 of (2.4): every block becomes prox_{gamma h} of the mean (Lemma D.2, with N gamma)."""
    return lambda v: np.tile(h.prox(v.reshape(holders, dim).mean(axis=0), gamma), holders)


def quadratic_case(holders: int) -> tuple[fp.FederatedProblem, list[object]]:
    rng = np.random.default_rng(holders)
    roots, b = rng.standard_normal((holders, 5, 5)), rng.standard_normal((holders, 5))
    A = [root @ root.T + 0.1 * np.eye(5) for root in roots]
    gradients = [lambda x, A=A[i], b=b[i]: A @ x + b for i in range(holders)]
    return fp.FederatedProblem([fp.Share(Quadratic(A[i], b[i])) for i in range(holders)], None, L1(0.5)), gradients


def logistic_case(holders: int) -> tuple[fp.FederatedProblem, list[object]]:
    rng = np.random.default_rng(holders + 10)
    X, y = rng.standard_normal((holders, 30, 4)), (rng.random((holders, 30)) < 0.5).astype(float)
    gradients = [lambda w, X=X[i], y=y[i]: X.T @ (expit(X @ w) - y) / 30 for i in range(holders)]
    return fp.FederatedProblem([fp.Share(LogisticLoss(X[i], y[i])) for i in range(holders)], None, L1(0.01)), gradients


def saddle_case(holders: int) -> tuple[fp.FederatedProblem, list[object]]:
    rng = np.random.default_rng(holders + 20)
    skew, q = rng.standard_normal((holders, 6, 6)), rng.standard_normal((holders, 6))
    M = skew - skew.transpose(0, 2, 1) + 0.1 * np.eye(6)
    gradients = [lambda x, M=M[i], q=q[i]: M @ x + q for i in range(holders)]
    return MonotoneProblem([Linear(M[i], q[i]) for i in range(holders)], Box(-0.5, 0.5)), gradients


def free_case(holders: int) -> tuple[fp.FederatedProblem, list[object]]:
    problem, gradients = quadratic_case(holders)
    return fp.FederatedProblem(problem.shares, None, Zero()), gradients


CASES = {"quadratic": quadratic_case, "logistic": logistic_case, "saddle": saddle_case, "no h": free_case}


@pytest.mark.parametrize("solver", ["exact", "inexact"])
@pytest.mark.parametrize("holders", [1, 2, 5])
@pytest.mark.parametrize("name", CASES)
def test_ifeddr_is_idrs_in_the_lifted_space(name: str, holders: int, solver: str) -> None:
    """The federated run's x_i, refused ones included, given to Algorithm II: it refuses the same and finds the rest."""
    problem, gradients = CASES[name](holders)
    gamma = {"quadratic": 0.4, "logistic": 6.0, "saddle": 0.3, "no h": 2.5}[name] / holders
    local = "newton" if solver == "exact" else "extragradient" if name == "saddle" else "gradient"
    engine = Watching()
    fp.solve(
        problem, "ifeddr", tol=1e-9, gamma=gamma, relaxation=1.5, error=0.9, local_solver=local, refinement="repeat",
        steps=6 if local == "newton" else 1, engine=engine, max_rounds=90, memory=0,
    )  # fmt: skip
    rounds = engine.rounds()[:-1]  # the last one may have been cut short
    dim = engine.seen[0].states[0].x.size
    assert len(rounds) > (7 if solver == "inexact" else 3)

    def approximate(k: int, attempt: int, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = np.array([state.x for state in rounds[k][attempt].states])
        return x.ravel(), np.concatenate([gradients[i](x[i]) for i in range(holders)])

    start = np.concatenate([state.s for state in rounds[0][0].states])
    lifted = idrs(
        approximate, consensus(problem.regularizer, holders, dim, gamma), start, gamma=holders * gamma,
        rounds=len(rounds), error=0.9, relaxation=1.5,
    )  # fmt: skip
    np.testing.assert_array_equal(lifted.attempts, [len(exchanges) - 1 for exchanges in rounds])
    following = engine.rounds()[1:]
    for k, exchanges in enumerate(rounds):
        s = np.concatenate([state.s for state in exchanges[-1].states])
        np.testing.assert_allclose(lifted.points[k], s, atol=1e-9)
        np.testing.assert_allclose(lifted.p[k][:dim], following[k][0].order.p, atol=1e-9)
        seen = seen_by_all(problem, exchanges[-1])
        if seen.xi > 1e-16:  # below, alpha is a ratio of rounding errors
            assert following[k][0].order.step == pytest.approx(1.5 * lifted.alphas[k] / (holders * gamma), abs=1e-6)
            if seen.xi > 1e-9:
                assert following[k][0].order.step == pytest.approx(1.5 * lifted.alphas[k] / (holders * gamma), abs=1e-9)
        if solver == "exact" and name != "logistic" and seen.xi > 1e-16:
            assert lifted.alphas[k] == pytest.approx(holders * gamma, rel=1e-5)
