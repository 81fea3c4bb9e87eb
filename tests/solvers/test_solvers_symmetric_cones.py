"""Nesterov-Todd scaling, inverses and step lengths, by their defining equations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpact import cones
from fedpact.cones import smat, svec
from fedpact.solvers.symmetric_cones import rows_of

CONES = {
    "nonnegative": cones.Nonnegative(4),
    "second order": cones.SecondOrder(4),
    "a half line": cones.SecondOrder(1),
    "matrices": cones.PSD(3),
    "product": cones.Product([cones.Nonnegative(2), cones.SecondOrder(3), cones.PSD(2), cones.SecondOrder(2)]),
}


def inside(cone, rng):
    """A random point in the interior, not too near the boundary."""
    if isinstance(cone, cones.Product):
        return np.concatenate([inside(part, rng) for part in cone.cones])
    v = rng.standard_normal(cone.dim)
    unit = rows_of(cone).unit()
    return cone.project(v) + rng.uniform(0.01, 2.0) * unit


def applied(weight, v):
    return weight * v if weight.ndim == 1 else weight @ v


@pytest.mark.parametrize("name", CONES)
@given(seed=st.integers(0, 10**6))
def test_the_scaling_maps_slack_to_multiplier(name, seed):
    """D s = z, D symmetric and positive; and D s^-1 is z^-1's partner: D^-1 z^-1 = s^-1."""
    cone, rng = CONES[name], np.random.default_rng(seed)
    rows = rows_of(cone)
    s, z = inside(cone, rng), inside(cone, rng)
    D = rows.scaling(s, z)
    np.testing.assert_allclose(applied(D, s), z, rtol=1e-7, atol=1e-9)
    full = np.diag(D) if D.ndim == 1 else D
    np.testing.assert_allclose(full, full.T, rtol=1e-7, atol=1e-9)
    assert np.linalg.eigvalsh(0.5 * (full + full.T))[0] > 0
    np.testing.assert_allclose(applied(D, rows.inverse(z)), rows.inverse(s), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", CONES)
@given(seed=st.integers(0, 10**6))
def test_inverse_and_degree(name, seed):
    """<s, s^-1> is the degree of the cone, and the inverse of the inverse is s."""
    cone, rng = CONES[name], np.random.default_rng(seed)
    rows, s = rows_of(cone), inside(cone, rng)
    assert float(s @ rows.inverse(s)) == pytest.approx(rows.degree, rel=1e-8)
    np.testing.assert_allclose(rows.inverse(rows.inverse(s)), s, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", CONES)
@given(seed=st.integers(0, 10**6))
def test_the_longest_step_ends_on_the_boundary(name, seed):
    cone, rng = CONES[name], np.random.default_rng(seed)
    rows, s = rows_of(cone), inside(cone, rng)
    ds = rng.standard_normal(cone.dim)
    longest = rows.longest_step(s, ds)
    if np.isinf(longest):
        assert cone.distance(s + 1e6 * ds) <= 1e-5
    else:
        assert cone.distance(s + 0.999 * longest * ds) <= 1e-9 * (1 + longest)
        assert cone.distance(s + 1.01 * longest * ds) > 0


@pytest.mark.parametrize("name", CONES)
def test_a_start_inside_from_anywhere(name):
    cone, rng = CONES[name], np.random.default_rng(3)
    rows = rows_of(cone)
    for v in (np.zeros(cone.dim), rng.standard_normal(cone.dim), -inside(cone, rng)):
        start = rows.inside(v, np.full(cone.dim, 0.1))
        assert cone.distance(start - 0.05 * rows.unit()) <= 1e-9


def test_a_multiplier_is_zero_exactly_where_the_constraint_does_not_bind():
    rows = rows_of(cones.Product([cones.Nonnegative(2), cones.SecondOrder(2), cones.Zero(1)]))
    jacobian = np.eye(5)
    value = np.array([-1.0, -1e-8, -2.0, 0.5, 0.3])  # slack, binding, slack inside the cone, an equality
    clean = rows.cleaned(np.array([1e-6, 0.7, 1e-7, 1e-8, -0.4]), value, jacobian)
    np.testing.assert_array_equal(clean, [0.0, 0.7, 0.0, 0.0, -0.4])


def test_cones_without_a_scaling():
    assert rows_of(cones.Exponential()) is None
    assert rows_of(cones.Product([cones.Nonnegative(1), cones.Exponential()])) is None
    assert rows_of(None).dim == 0


def test_matrices_scale_as_matrices():
    """W^-1 S W^-1 = Z with W^-1 = S^-1/2 (S^1/2 Z S^1/2)^1/2 S^-1/2, written out."""
    rng = np.random.default_rng(0)
    cone = cones.PSD(3)
    s, z = inside(cone, rng), inside(cone, rng)

    def power(matrix, p):
        values, vectors = np.linalg.eigh(matrix)
        return (vectors * values**p) @ vectors.T

    half = power(smat(s), 0.5)
    inverse = power(smat(s), -0.5) @ power(half @ smat(z) @ half, 0.5) @ power(smat(s), -0.5)
    v = rng.standard_normal(6)
    np.testing.assert_allclose(rows_of(cone).scaling(s, z) @ v, svec(inverse @ smat(v) @ inverse), atol=1e-9)
