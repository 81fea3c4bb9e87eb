"""Games whose owners hold their parts, and their equilibria from elsewhere: a linear program, an enumeration, a QP."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import cvxpy as cp
import numpy as np
from faults import NAMES
from scipy.optimize import linprog

import fedpact as fp
from fedpact.functions import Linear, Saddle
from fedpact.problem import MinimaxProblem, MonotoneProblem
from fedpact.prox import Blocks, Box, Prox, Simplex

PARTS = len(NAMES)


@dataclass(frozen=True, eq=False)
class Game:
    """One game in three statements: owners in this process, owners elsewhere, and its equilibrium."""

    here: fp.FederatedProblem
    elsewhere: fp.RemoteProblem
    answer: np.ndarray


@dataclass(frozen=True)
class Duel:
    """1/2 u'Hu + c'u + u'Av - d'v; a class, so that it travels."""

    H: np.ndarray
    c: np.ndarray
    A: np.ndarray
    d: np.ndarray

    def __call__(self, u: np.ndarray, v: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        value = 0.5 * u @ self.H @ u + self.c @ u + u @ self.A @ v - self.d @ v
        return value, self.H @ u + self.c + self.A @ v, self.A.T @ u - self.d

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        return np.block([[self.H, self.A], [-self.A.T, np.zeros((self.d.size, self.d.size))]])

    def saddle(self, jacobian: bool = True) -> Saddle:
        return Saddle(self, self.c.size, self.jacobian if jacobian else None, self.c.size + self.d.size)

    def share(self, name: str) -> fp.Share:
        return fp.Share(self.saddle(), name=name)


def duels(parts: list[Duel], minimizer: Prox | None, maximizer: Prox | None, answer: np.ndarray) -> Game:
    """The game of these parts, one at every owner."""
    split = parts[0].c.size
    held = dict(zip(NAMES, parts, strict=True))
    h = Blocks(minimizer or Box(-np.inf, np.inf), maximizer or Box(-np.inf, np.inf), split, saddle=True)
    return Game(
        MinimaxProblem([duel.share(name) for name, duel in held.items()], h.first, h.second),
        fp.RemoteProblem({name: partial(duel.share, name) for name, duel in held.items()}, regularizer=h),
        answer,
    )


@functools.cache
def matrix_game() -> Game:
    """Two players mix their strategies; the optimal mixtures by both players' linear programs."""
    rng = np.random.default_rng(2)
    A = rng.standard_normal((PARTS, 3, 3)) * 0.3 + np.array([[0.0, 1, -1], [-1, 0, 1], [1, -1, 0]]) / 3

    def mix(payoff: np.ndarray) -> np.ndarray:  # min_u max_j (payoff'u)_j
        rows = np.column_stack([payoff.T, -np.ones(3)])
        bounds = [(0, None)] * 3 + [(None, None)]
        return linprog([0, 0, 0, 1], rows, np.zeros(3), [[1, 1, 1, 0]], [1], bounds).x[:3]

    whole = A.sum(0)
    answer = np.concatenate([mix(whole), mix(-whole.T)])
    assert np.sum(answer > 1e-3) == 6  # all strategies are played, so the equilibrium is unique
    parts = [Duel(np.zeros((3, 3)), np.zeros(3), a, np.zeros(3)) for a in A]
    return duels(parts, Simplex(), Simplex(), answer)


def solve_in_box(M: np.ndarray, q: np.ndarray, bound: float) -> np.ndarray:
    """0 in M x + q + N_[-bound, bound]: of the 3^d patterns of coordinates at a bound, the one whose signs fit."""
    fitting = []
    for pattern in itertools.product((-1.0, 0.0, 1.0), repeat=len(q)):
        x = bound * np.array(pattern)
        free = x == 0
        x[free] = np.linalg.solve(M[np.ix_(free, free)], -(q + M @ x)[free])
        image = M @ x + q
        if np.all(np.abs(x) <= bound + 1e-12) and np.all(image[~free] * x[~free] <= 0):
            fitting.append(x)
    (answer,) = fitting
    assert 0 < np.sum(np.abs(answer) == bound) < len(q)
    return answer


def player_part(M: np.ndarray, q: np.ndarray, name: str) -> fp.Share:
    return fp.Share(Linear(M, q), name=name)


@functools.cache
def three_players() -> Game:
    """Player j minimises |x_j|^2 / 2 + q_j'x_j + sum_k x_j'A_jk x_k over a box, with A_jk = -A_kj'.

    Its equilibrium is a variational inequality over the box.
    """
    rng = np.random.default_rng(7)
    skew = rng.standard_normal((PARTS, 6, 6))
    skew = skew - skew.transpose(0, 2, 1)
    for j in range(3):
        own = slice(2 * j, 2 * j + 2)
        skew[:, own, own] = 0.0
    M = skew + np.eye(6) / PARTS
    q = 2 * rng.standard_normal((PARTS, 6))
    answer = solve_in_box(M.sum(0), q.sum(0), 1.0)
    h = Box(-1, 1)
    held = dict(zip(NAMES, zip(M, q, strict=True), strict=True))
    return Game(
        MonotoneProblem([player_part(*part, name) for name, part in held.items()], h),
        fp.RemoteProblem({name: partial(player_part, *part, name) for name, part in held.items()}, regularizer=h),
        answer,
    )


@functools.cache
def constrained_saddle() -> Game:
    """The Lagrangian of a quadratic program, min over a box of u, max over prices v >= 0; both by a conic solver."""
    rng = np.random.default_rng(4)
    roots = rng.standard_normal((PARTS, 3, 3))
    H = (roots @ roots.transpose(0, 2, 1) + np.eye(3)) / PARTS
    c = rng.standard_normal((PARTS, 3))
    A = rng.standard_normal((PARTS, 3, 2))
    b = np.full((PARTS, 2), -0.1)
    u = cp.Variable(3)
    rows = A.sum(0).T @ u <= b.sum(0)
    cost = 0.5 * cp.quad_form(u, cp.psd_wrap(H.sum(0))) + c.sum(0) @ u
    accurate = {"tol_gap_abs": 1e-14, "tol_gap_rel": 1e-14, "tol_feas": 1e-14}
    cp.Problem(cp.Minimize(cost), [rows, u >= -1, u <= 1]).solve(solver=cp.CLARABEL, **accurate)
    assert np.any(rows.dual_value > 1e-3)  # a constraint binds
    parts = [Duel(*part) for part in zip(H, c, A, b, strict=True)]
    return duels(parts, Box(-1, 1), Box(0, np.inf), np.concatenate([u.value, rows.dual_value]))


GAMES: tuple[Callable[[], Game], ...] = (matrix_game, three_players, constrained_saddle)
