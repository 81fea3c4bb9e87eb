"""The barrier of the exponential cone by its defining equations: derivatives, shadows, scaling, step lengths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpact as fp
from fedpact.cones import Exponential, Nonnegative, Product
from fedpact.cones.exponential_barrier import CENTRE, curvature, scale, shadow, slope

CONE = Exponential()
examples = settings(max_examples=50, deadline=None, derandomize=True)
seeds = st.integers(0, 10**6)


def interior(rng):
    """A point inside, built from the definition of the cone."""
    y = rng.uniform(0.2, 2.0)
    x = rng.standard_normal()
    return np.array([x, y, y * np.exp(x / y) + rng.uniform(0.01, 2.0)])


def dual_interior(rng):
    """A point inside the dual cone, built from its definition."""
    u = -rng.uniform(0.2, 2.0)
    v = rng.standard_normal()
    return np.array([u, v, -u * np.exp(v / u - 1) + rng.uniform(0.01, 2.0)])


def barrier(s):
    x, y, z = s
    return -np.log(y * np.log(z / y) - x) - np.log(y) - np.log(z)


@examples
@given(seed=seeds)
def test_derivatives_of_the_barrier(seed):
    s = interior(np.random.default_rng(seed))
    steps = 1e-5 * min(s[1], s[1] * np.log(s[2] / s[1]) - s[0]) * np.eye(3)  # far less than to the boundary
    by_differences = [(barrier(s + h) - barrier(s - h)) / (2 * h.max()) for h in steps]
    np.testing.assert_allclose(-slope(s), by_differences, rtol=1e-4, atol=1e-4 * np.abs(by_differences).max())
    hessian = np.array([(slope(s - h) - slope(s + h)) / (2 * h.max()) for h in steps])
    np.testing.assert_allclose(curvature(s), hessian, rtol=1e-4, atol=1e-4 * np.abs(hessian).max())
    assert np.isclose(slope(s) @ s, CONE.degree)


@examples
@given(seed=seeds)
def test_the_shadow_has_the_multiplier_as_its_slope(seed):
    z = dual_interior(np.random.default_rng(seed))
    np.testing.assert_allclose(slope(shadow(z)), z, rtol=1e-6, atol=1e-8)


@examples
@given(seed=seeds)
def test_scaling_maps_slack_to_multiplier_and_shadow_to_slope(seed):
    rng = np.random.default_rng(seed)
    s = interior(rng)
    z = dual_interior(rng)
    D = scale(s, z)
    np.testing.assert_allclose(D, D.T, rtol=1e-9, atol=1e-9 * np.abs(D).max())
    assert np.linalg.eigvalsh(D)[0] > 0
    np.testing.assert_allclose(D @ s, z, rtol=1e-5, atol=1e-6 * np.abs(z).max())
    np.testing.assert_allclose(D @ shadow(z), slope(s), rtol=1e-5, atol=1e-6 * np.abs(slope(s)).max())


def test_on_the_central_path_the_scaling_is_the_hessian():
    s = np.array([0.3, 0.9, 3.0])
    np.testing.assert_allclose(scale(s, 0.5 * slope(s)), 0.5 * curvature(s), rtol=1e-6)
    np.testing.assert_allclose(slope(CENTRE), CENTRE, rtol=1e-12)


@examples
@given(seed=seeds)
def test_steps_end_at_the_boundary(seed):
    rng = np.random.default_rng(seed)
    s = interior(rng)
    ds = rng.standard_normal(3)
    length = CONE.longest_step(s, ds)
    if np.isfinite(length):
        assert CONE.distance(s + 0.999 * length * ds) <= 1e-12 * np.linalg.norm(s + length * ds)
        assert CONE.distance(s + 1.01 * length * ds) > 0
    z = dual_interior(rng)
    length = CONE.longest_dual_step(z, ds)
    if np.isfinite(length):
        assert np.linalg.norm(CONE.project_dual(z + 0.999 * length * ds) - z - 0.999 * length * ds) <= 1e-9
        assert np.linalg.norm(CONE.project_dual(z + 1.01 * length * ds) - z - 1.01 * length * ds) > 0
    assert CONE.longest_step(s, s) == np.inf


@pytest.mark.parametrize("v", [np.zeros(3), np.array([1.0, -2.0, 3.0]), np.array([-1.0, 1.0, 5.0])])
def test_points_are_moved_inside(v):
    inside = CONE.move_inside(v, np.full(3, 0.1))
    assert CONE.distance(inside - 0.099 * CENTRE) <= 1e-12
    assert Product([CONE, Nonnegative(1)]).has_interior


def test_interior_point_takes_exponential_cones():
    """min |w|^2 / 2 - 2 w_2 with exp(w_1) <= w_2 <= 1: at w_2 = 1, w_1 = 0 the price of w_2 <= 1 is 1."""
    rows = np.array([[-1.0, 0.0], [0.0, 0.0], [0.0, -1.0]])
    exponential = fp.Constraint(fp.functions.Affine(rows, [0.0, -1.0, 0.0]), Exponential())
    bound = fp.Constraint(fp.functions.Affine([[0.0, 1.0]], [-1.0]), Nonnegative(1))
    share = fp.Share(fp.functions.Quadratic(np.eye(2), [0.0, -2.0]), [exponential, bound])
    answer = fp.solve(fp.FederatedProblem([share]), "interior-point", tol=1e-7, fallback=False)
    assert answer.solved
    np.testing.assert_allclose(answer.w, [0.0, 1.0], atol=1e-5)
    np.testing.assert_allclose(answer.multipliers[1][3], 1.0, atol=1e-4)
