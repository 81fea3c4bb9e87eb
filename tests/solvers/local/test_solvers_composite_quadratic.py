"""A quadratic model plus h, against the conic solver and the optimality condition."""

import cvxpy as cp
import numpy as np
import pytest

from fedpact import prox
from fedpact.solvers.local.composite_quadratic import composite_quadratic


def expression(h, x):
    """h in cvxpy: (cost, constraints)."""
    if isinstance(h, prox.L1):
        return 0.3 * cp.norm1(x), []
    if isinstance(h, prox.ElasticNet):
        return 0.3 * cp.norm1(x) + 0.1 * cp.sum_squares(x), []
    if isinstance(h, prox.Box):
        return 0.0, [x >= -0.5, x <= 0.5]
    if isinstance(h, prox.Simplex):
        return 0.0, [x >= 0, cp.sum(x) == 1]
    return 0.3 * sum(cp.norm(x[i : i + 2]) for i in range(0, x.size, 2)), []


CASES = {
    "l1": prox.L1(0.3),
    "elastic net": prox.ElasticNet(0.3, 0.2),
    "box": prox.Box(-0.5, 0.5),
    "simplex": prox.Simplex(),
    "groups": prox.GroupL2([[i, i + 1] for i in range(0, 8, 2)], 0.3),
}


@pytest.mark.parametrize("stiffness", [0.0, 1e3, 1e5])
@pytest.mark.parametrize("name", CASES)
def test_the_minimiser_is_the_conic_solvers(name, stiffness):
    """With stiff rows, as bounds that bind give them: J'J times `stiffness`."""
    h, d = CASES[name], 8
    for seed in range(5):
        rng = np.random.default_rng(seed)
        root, rows = rng.standard_normal((d, d)) / np.sqrt(d), rng.standard_normal((2, d))
        inside = h.prox(rng.standard_normal(d), 1.0)  # the stiff rows are met inside dom(h)
        M = root.T @ root + 1e-2 * np.eye(d) + stiffness * rows.T @ rows
        start = h.prox(rng.standard_normal(d), 1.0)
        slope = rng.standard_normal(d) + stiffness * rows.T @ (rows @ (start - inside))
        found = composite_quadratic(M, slope, h, start, 1e-9)
        assert found.residual <= 1e-9 * max(1.0, stiffness)
        linear = slope - M @ start
        assert h.subdifferential_distance(-(M @ found.w + linear), found.w) == found.residual
        x = cp.Variable(d)
        cost, constraints = expression(h, x)
        problem = cp.Problem(cp.Minimize(0.5 * cp.quad_form(x, cp.psd_wrap(M)) + linear @ x + cost), constraints)
        problem.solve(solver=cp.CLARABEL)
        ours = 0.5 * found.w @ M @ found.w + linear @ found.w + h.value(found.w)
        assert ours <= problem.value + 1e-6 * (1 + abs(problem.value))  # the conic solver misses more on stiff rows


def test_zeros_and_bounds_are_exact():
    d = 6
    sparse = composite_quadratic(np.eye(d), np.linspace(-2, 2, d), prox.L1(1.0), np.zeros(d), 1e-12)
    np.testing.assert_array_equal(sparse.w == 0, np.abs(np.linspace(-2, 2, d)) <= 1)
    bound = composite_quadratic(np.eye(d), np.linspace(-2, 2, d), prox.Box(-1.0, 1.0), np.zeros(d), 1e-12)
    np.testing.assert_allclose(bound.w, np.clip(-np.linspace(-2, 2, d), -1, 1), atol=1e-12)
    assert np.all(np.abs(bound.w) <= 1)
