"""Algorithms 1 and 2 of He24-conic as printed, in a few lines of their own, and what its theory says of their iterates.

Equalities make every subproblem quadratic: whoever is not accurate enough where it stands solves it exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import fedpact as fp
from fedpact import data, tasks
from fedpact.functions import LogisticLoss, Quadratic

BETA, RHO, S, Q = 10.0, 1.0, 0.1, 0.1
TOL = 1e-5


def lcqp() -> tuple[np.ndarray, ...]:
    return data.lcqp(3, 12, 1, seed=4)


def algorithm_1(A, b, C, e) -> Iterator[tuple[str, np.ndarray]]:
    """w after every inner and every outer iteration; C[0], e[0] are the server's. mu^0 = 0, w^0 = 0."""
    n, d = b.shape
    w = np.zeros(d)
    mu = np.zeros((n + 1, C.shape[1]))
    k = 0
    while True:
        # P_i(v) = v'H_i v / 2 + g_i'v: (10) and (11)
        near = np.eye(d) / ((n + 1) * BETA)
        H = [BETA * C[i].T @ C[i] + near for i in range(n + 1)]
        g = [C[i].T @ (mu[i] + BETA * e[i]) - w / ((n + 1) * BETA) for i in range(n + 1)]
        for i in range(n):
            H[i + 1] = H[i + 1] + A[i]
            g[i + 1] = g[i + 1] + b[i]
        centre = w
        for w in algorithm_2(H, g, centre, max(S / (k + 1) ** 2, 1e-3 * TOL)):
            yield "inner", w
        mu = np.array([mu[i] + BETA * (C[i] @ w + e[i]) for i in range(n + 1)])  # K* is everything
        yield "outer", w
        k += 1


def algorithm_2(H, g, w, tau) -> Iterator[np.ndarray]:
    n = len(H) - 1
    u = [w] * n
    multiplier = [-(H[i] @ w + g[i]) for i in range(1, n + 1)]
    proposed = [w + one / RHO for one in multiplier]
    t = 0
    while True:
        epsilon = max(Q**t, 0.02 * tau / (n + 1))  # differs from (19): finer subproblems do not matter to tau
        w = approximate(H[0] + n * RHO * np.eye(w.size), g[0] - RHO * sum(proposed), w, epsilon)  # (14)
        yield w
        left = epsilon
        for i in range(n):
            gradient = H[i + 1] @ w + g[i + 1] + multiplier[i]
            left += np.max(np.abs(gradient - RHO * (w - u[i])))  # (18)
            push = g[i + 1] + multiplier[i] - RHO * w
            u[i] = approximate(H[i + 1] + RHO * np.eye(w.size), push, u[i], epsilon)  # (15)
            multiplier[i] = multiplier[i] + RHO * (u[i] - w)  # (16)
            proposed[i] = u[i] + multiplier[i] / RHO  # (17)
        if left <= tau:  # (19)
            return
        t += 1


def approximate(H, g, start, epsilon) -> np.ndarray:
    """A point at which v'Hv/2 + g'v has a gradient of at most epsilon."""
    if np.max(np.abs(H @ start + g)) <= epsilon:
        return start
    return np.linalg.solve(H, -g)


def solve(problem: fp.FederatedProblem, callback: Callable[[object], None], **options: float) -> fp.Solution:
    return fp.solve(
        problem, "proximal-al", penalty=BETA, consensus_penalty=RHO, accuracy=S, inner_decay=Q, tol=TOL,
        callbacks=[callback], **options,
    )  # fmt: skip


def test_iterates_are_those_of_the_printed_algorithms() -> None:
    """Every iterate of both loops, and when each loop ends, until the certificate is met."""
    seen: list[tuple[int, np.ndarray]] = []
    answer = solve(tasks.linear_qp(*lcqp()), lambda p: seen.append((p.iteration, p.w)))
    assert answer.solved
    iterations = [iteration for iteration, _ in seen]
    assert iterations[-1] >= 3
    points = [w for _, w in seen[1:]]  # the first is w^0
    ends = np.flatnonzero(np.diff(iterations))
    for place, (kind, w) in zip(range(len(points)), algorithm_1(*lcqp()), strict=False):
        np.testing.assert_allclose(points[place], w, atol=1e-9, rtol=0)
        assert (kind == "outer") == (place in ends)


def test_iterates_stay_in_the_ball_of_lemma_3_2() -> None:
    """|w^k - w*| <= |(w^0, mu^0) - (w*, mu*)| + 2 s beta."""
    exact = tasks.exact(*lcqp())
    farthest = np.sqrt(exact.w @ exact.w + sum(float(one @ one) for one in exact.multipliers)) + 2 * S * BETA
    seen: list[float] = []
    assert solve(tasks.linear_qp(*lcqp()), lambda p: seen.append(float(np.linalg.norm(p.w - exact.w)))).solved
    assert max(seen) <= farthest


def test_outer_iterations_are_within_theorem_3_2() -> None:
    """At most O(max(eps_1^-2, eps_2^-2)).

    (w^k, mu^k) are iterates of a proximal point method with errors beta tau_k, whose sum is at most 2 s beta: so the
    squared lengths of all steps sum to at most (r_0 + 2 s beta)^2. While (8) does not hold and tau_k <= eps / 2, a step
    is longer than beta eps / 2; tau_k is larger in fewer than sqrt(2 s / eps) iterations.
    """
    exact = tasks.exact(*lcqp())
    distance = np.sqrt(exact.w @ exact.w + sum(float(one @ one) for one in exact.multipliers)) + 2 * S * BETA
    for tol in (1e-1, 1e-2, 1e-3):
        problem = tasks.linear_qp(*lcqp())
        answer = fp.solve(
            problem, "proximal-al", penalty=BETA, consensus_penalty=RHO, accuracy=S, inner_decay=Q, tol=tol
        )
        assert answer.solved
        most = 1 + np.sqrt(2 * S / tol) + (2 * distance / (BETA * tol)) ** 2
        assert len(answer.history.outer) - 1 <= most


def test_iterates_of_algorithm_2_stay_in_the_set_of_lemma_4_1() -> None:
    """(24), with inexact subproblems: q = 0.7, and owners' functions of different curvature."""
    rng = np.random.default_rng(8)
    q, rho, n, d = 0.7, 0.3, 4, 5
    parts = []
    for i in range(n):
        m = rng.standard_normal((d, d))
        parts.append(Quadratic(m @ m.T * 3.0**i / d + 0.5 * np.eye(d), rng.standard_normal(d)))
    zero = np.zeros(d)
    best = np.linalg.solve(sum(f.hessian(zero) for f in parts), -sum(f.gradient(zero) for f in parts))
    sigma = min(np.linalg.eigvalsh(f.hessian(zero))[0] for f in parts)
    start = np.full(d, 2.0)
    moved = sum(
        rho * np.sum((best - start) ** 2) + np.sum((f.gradient(best) - f.gradient(start)) ** 2) / rho for f in parts
    )
    radius = np.sqrt((n + 1) / (sigma**2 * (1 - q**2)) + moved / sigma)
    seen: list[float] = []
    answer = fp.solve(
        fp.FederatedProblem([fp.Share(f) for f in parts]), "inexact-admm", w0=start, tol=1e-8, inner_decay=q,
        consensus_penalty=rho, callbacks=[lambda p: seen.append(float(np.linalg.norm(p.w - best)))],
    )  # fmt: skip
    assert answer.solved
    assert max(seen[1:]) <= radius


def test_algorithm_2_is_linear_as_theorem_4_2_says() -> None:
    """O(|log tau|): ten times the accuracy costs about as many rounds at 1e-10 as at 1e-4."""
    rng = np.random.default_rng(9)
    X = rng.standard_normal((90, 4))
    y = (X[:, 0] + rng.standard_normal(90) > 0).astype(float)
    parts = [LogisticLoss(X[i::3], y[i::3]) + Quadratic(0.1 * np.eye(4)) for i in range(3)]
    problem = fp.FederatedProblem([fp.Share(f) for f in parts])
    rounds = [
        fp.solve(problem, "inexact-admm", tol=tol, consensus_penalty=0.5).rounds for tol in (1e-4, 1e-6, 1e-8, 1e-10)
    ]
    steps = np.diff(rounds)
    assert np.all(steps > 0)
    assert max(steps) <= 1.5 * min(steps) + 2


@pytest.mark.parametrize("relaxation", [1.0, 1.8])
def test_ifeddr_is_linear_on_piecewise_linear_quadratic_functions(relaxation: float) -> None:
    """Corollary 3.4 of iFedDR, R-linear on the lasso: 1000 times the accuracy costs about as many rounds again."""
    rng = np.random.default_rng(10)
    A = rng.standard_normal((5, 12, 8))
    b = rng.standard_normal((5, 12))
    shares = [fp.Share(Quadratic(A[i].T @ A[i] / 12, -A[i].T @ b[i] / 12)) for i in range(5)]
    problem = fp.FederatedProblem(shares, regularizer=fp.prox.L1(0.5))
    rounds = [
        fp.solve(problem, "ifeddr", tol=tol, gamma=1.0, relaxation=relaxation).rounds for tol in (1e-3, 1e-6, 1e-9)
    ]
    first, second = np.diff(rounds)
    assert first > 0
    assert second <= 1.5 * first + 2
