"""What every h promises, checked by one body on one list.

Each case describes h and its subdifferential a second time, as a convex program, so that nothing here asks the code
under test what is right.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedpact.prox import L1, Blocks, Box, Custom, ElasticNet, GroupL2, Prox, Simplex, SquaredL2, Zero

DIM = 5
WEIGHTS = np.array([0.0, 0.5, 1.0, 2.0, 0.1])
LO = np.array([-np.inf, -1.0, 0.0, 0.5, -0.25])
HI = np.array([0.5, np.inf, 2.0, 0.5, 0.25])
GROUPS = [[0, 3], [4, 2]]
GROUP_WEIGHTS = np.array([0.7, 1.5])
SLOPE = 0.3


def linear(w: np.ndarray) -> float:
    return SLOPE * np.sum(w)


def linear_prox(v: np.ndarray, step: float) -> np.ndarray:
    return v - SLOPE * step


def linear_distance(v: np.ndarray, w: np.ndarray) -> float:
    return np.max(np.abs(v - SLOPE))


@dataclass
class Case:
    h: Prox
    #: w -> (h(w) as a convex expression, constraints)
    program: Callable[[cp.Variable], tuple[cp.Expression, list[cp.Constraint]]]
    #: s, w -> constraints that say: s is a subgradient at w
    subdifferential: Callable[[cp.Variable, np.ndarray], list[cp.Constraint]]


def _signs(s: cp.Variable, w: np.ndarray, weight: np.ndarray, curvature: np.ndarray) -> list[cp.Constraint]:
    lower = np.where(w > 0, weight, -weight) + curvature * w
    upper = np.where(w < 0, -weight, weight) + curvature * w
    return [s >= lower, s <= upper]


def _normals(s: cp.Variable, w: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> list[cp.Constraint]:
    rules = []
    for j in range(w.size):
        if w[j] > lo[j]:
            rules.append(s[j] >= 0)
        if w[j] < hi[j]:
            rules.append(s[j] <= 0)
    return rules


def _simplex_normals(s: cp.Variable, w: np.ndarray) -> list[cp.Constraint]:
    level = cp.Variable()
    return [s[j] == level if w[j] > 0 else s[j] <= level for j in range(w.size)]


def _group_gradients(s: cp.Variable, w: np.ndarray) -> list[cp.Constraint]:
    rules = [s[1] == 0]
    for group, weight in zip(GROUPS, GROUP_WEIGHTS, strict=True):
        if np.any(w[group]):
            rules.append(s[group] == weight * w[group] / np.linalg.norm(w[group]))
        else:
            rules.append(cp.norm2(s[group]) <= weight)
    return rules


ONES = np.ones(DIM)
CASES = {
    "zero": Case(Zero(), lambda w: (cp.Constant(0), []), lambda s, w: [s == 0]),
    "l1": Case(L1(0.8), lambda w: (0.8 * cp.norm1(w), []), lambda s, w: _signs(s, w, 0.8 * ONES, 0 * ONES)),
    "l1, weights": Case(
        L1(WEIGHTS),
        lambda w: (cp.sum(cp.multiply(WEIGHTS, cp.abs(w))), []),
        lambda s, w: _signs(s, w, WEIGHTS, 0 * ONES),
    ),
    "squared": Case(SquaredL2(0.8), lambda w: (0.4 * cp.sum_squares(w), []), lambda s, w: [s == 0.8 * w]),
    "squared, weights": Case(
        SquaredL2(WEIGHTS), lambda w: (WEIGHTS @ cp.square(w) / 2, []), lambda s, w: [s == WEIGHTS * w]
    ),
    "elastic net": Case(
        ElasticNet(0.5, 2.0),
        lambda w: (0.5 * cp.norm1(w) + cp.sum_squares(w), []),
        lambda s, w: _signs(s, w, 0.5 * ONES, 2 * ONES),
    ),
    "elastic net, weights": Case(
        ElasticNet(WEIGHTS, WEIGHTS[::-1]),
        lambda w: (WEIGHTS @ cp.abs(w) + WEIGHTS[::-1] @ cp.square(w) / 2, []),
        lambda s, w: _signs(s, w, WEIGHTS, WEIGHTS[::-1]),
    ),
    "groups": Case(
        GroupL2(GROUPS, GROUP_WEIGHTS),
        lambda w: (sum(a * cp.norm2(w[g]) for g, a in zip(GROUPS, GROUP_WEIGHTS, strict=True)), []),
        _group_gradients,
    ),
    "box": Case(
        Box(-0.5, 1.0), lambda w: (cp.Constant(0), [w >= -0.5, w <= 1]), lambda s, w: _normals(s, w, -0.5 * ONES, ONES)
    ),
    "box, vectors": Case(
        Box(LO, HI),
        lambda w: (cp.Constant(0), [w[1:] >= LO[1:], w[[0, 2, 3, 4]] <= HI[[0, 2, 3, 4]]]),
        lambda s, w: _normals(s, w, LO, HI),
    ),
    "simplex": Case(Simplex(), lambda w: (cp.Constant(0), [w >= 0, cp.sum(w) == 1]), _simplex_normals),
    "simplex, total": Case(Simplex(3.5), lambda w: (cp.Constant(0), [w >= 0, cp.sum(w) == 3.5]), _simplex_normals),
    "blocks": Case(
        Blocks(L1(0.8), SquaredL2(2.0), 2),
        lambda w: (0.8 * cp.norm1(w[:2]) + cp.sum_squares(w[2:]), []),
        lambda s, w: [*_signs(s[:2], w[:2], 0.8 * ONES[:2], 0 * ONES[:2]), s[2:] == 2 * w[2:]],
    ),
    "blocks, sets": Case(
        Blocks(Simplex(2.0), Box(-0.5, 1.0), 3),
        lambda w: (cp.Constant(0), [w[:3] >= 0, cp.sum(w[:3]) == 2, w[3:] >= -0.5, w[3:] <= 1]),
        lambda s, w: [*_simplex_normals(s[:3], w[:3]), *_normals(s[3:], w[3:], -0.5 * ONES[3:], ONES[3:])],
    ),
    "blocks, one empty": Case(
        Blocks(Zero(), L1(0.8), 0),
        lambda w: (0.8 * cp.norm1(w), []),
        lambda s, w: _signs(s, w, 0.8 * ONES, 0 * ONES),
    ),
    "custom": Case(
        Custom(linear, linear_prox, linear_distance), lambda w: (SLOPE * cp.sum(w), []), lambda s, w: [s == SLOPE]
    ),
}
every_case = pytest.mark.parametrize("name", CASES)
POINTS = [1.5 * np.random.default_rng(seed).standard_normal(DIM) for seed in range(4)] + [np.zeros(DIM), 0.2 * ONES]

vectors = hnp.arrays(np.float64, DIM, elements=st.floats(-100, 100, allow_subnormal=False))
steps = st.floats(1e-3, 1e3)


@every_case
@settings(deadline=None, derandomize=True, max_examples=60)
@given(v=vectors, other=vectors, step=steps)
@example(v=np.zeros(DIM), other=100 * ONES, step=1.0)
@example(v=100 * np.eye(DIM)[0], other=-100 * np.eye(DIM)[1], step=0.01)
def test_contract(name: str, v: np.ndarray, other: np.ndarray, step: float) -> None:
    h = CASES[name].h
    v.setflags(write=False)
    p, q = h.prox(v, step), h.prox(other, step)
    size = 1e-12 * (1 + np.max(np.abs(v)) + np.max(np.abs(other))) * DIM

    assert h.contains(p)
    assert np.isfinite(h.value(p))
    # Optimality: step h(u) + |u - v|^2 / 2 grows at least like |u - p|^2 / 2 around its minimiser.
    cost, move = step * h.value(p), 0.5 * np.sum((p - v) ** 2)
    for u in (q, v, other, p + 0.1 * (q - p)):
        there = step * h.value(u) + 0.5 * np.sum((u - v) ** 2)
        assert there >= cost + move + 0.5 * np.sum((u - p) ** 2) - size * (100 + abs(cost) + move)
    # Firmly nonexpansive.
    assert np.sum((p - q) ** 2) <= (p - q) @ (v - other) + 100 * size
    # (v - p) / step is a subgradient at p.
    assert 0 <= h.subdifferential_distance((v - p) / step, p) <= size / step + 1e-12
    # Convex between any two points.
    assert h.value(0.5 * (p + q)) <= 0.5 * h.value(p) + 0.5 * h.value(q) + size * 100
    # A linear function falls no farther inside the domain than `descent` says.
    fall, free = h.descent(v, p)
    assert np.all(free >= 0)
    assert v @ (q - p) >= -fall - free @ np.abs(q - p) - 100 * size * (1 + np.max(np.abs(v)))
    if h.indicator:
        assert h.value(v) in (0.0, np.inf)
        np.testing.assert_array_equal(h.prox(v, 7 * step), p)
    if h.curvature is not None:
        assert h.value(v) == pytest.approx(0.5 * np.sum(h.curvature * v**2), rel=1e-13)
        assert h.subdifferential_distance(h.curvature * v, v) == 0


@every_case
def test_value_and_prox_against_a_convex_solver(name: str) -> None:
    case = CASES[name]
    w = cp.Variable(DIM)
    expression, constraints = case.program(w)
    for v, step in zip(POINTS, (0.3, 1.0, 2.0, 0.7, 1.0, 0.1), strict=True):
        problem = cp.Problem(cp.Minimize(step * expression + 0.5 * cp.sum_squares(w - v)), constraints)
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        p = case.h.prox(v, step)
        np.testing.assert_allclose(p, w.value, atol=2e-6)
        w.value = p
        assert case.h.value(p) == pytest.approx(float(expression.value), abs=1e-12)
        assert all(constraint.violation().max() <= 1e-12 for constraint in constraints)


@every_case
def test_subdifferential_distance_against_a_convex_solver(name: str) -> None:
    case = CASES[name]
    rng = np.random.default_rng(5)
    s = cp.Variable(DIM)
    positive = 0
    for point in POINTS:
        w = case.h.prox(point, 0.6)
        v = 2 * rng.standard_normal(DIM)
        problem = cp.Problem(cp.Minimize(cp.norm_inf(s - v)), case.subdifferential(s, w))
        expected = problem.solve(solver=cp.CLARABEL)
        assert case.h.subdifferential_distance(v, w) == pytest.approx(expected, abs=1e-7)
        positive += expected > 1e-3
    assert positive  # a distance of zero everywhere would test little


@every_case
def test_pickle_and_repr(name: str) -> None:
    h = CASES[name].h
    copy = pickle.loads(pickle.dumps(h))
    for v in POINTS:
        np.testing.assert_array_equal(copy.prox(v, 0.4), h.prox(v, 0.4))
    assert repr(copy) == repr(h)
    assert repr(h).startswith(type(h).__name__)
    assert len(repr(h)) < 60
    assert h.defect(DIM) is None
