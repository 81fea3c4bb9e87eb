"""The interior of symmetric cones, by its defining equations; a new cone joins by entering `cone_cases.CONES`."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cone_cases import CONES, SYMMETRIC, barrier, interior, margin, member
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpact.cones import PSD, Exponential, Nonnegative, Product, SecondOrder, Zero, smat, svec

symmetric_cones = pytest.mark.parametrize("cone", SYMMETRIC, ids=repr)
examples = settings(max_examples=30, deadline=None, derandomize=True)
seeds = st.integers(0, 10**6)


def dense(weight):
    return np.diag(weight) if weight.ndim == 1 else weight


def pair(cone, rng):
    """A slack and a multiplier inside the cone; the multiplier of an equality is free."""
    s, z = interior(cone, rng), interior(cone, rng)
    return s, np.where(cone.has_slack, z, rng.standard_normal(cone.dim))


@symmetric_cones
@examples
@given(seed=seeds)
def test_scaling_maps_slack_and_multiplier_to_the_same_point(cone, seed):
    """W^-1 s = W z for the symmetric positive definite W = D^-1/2; rows without slack have D = 0."""
    rng = np.random.default_rng(seed)
    s, z = pair(cone, rng)
    D, rows = dense(cone.scaling(s, z)), cone.has_slack
    assert not D[~rows].any()
    assert not D[:, ~rows].any()
    D, s, z = D[np.ix_(rows, rows)], s[rows], z[rows]
    np.testing.assert_allclose(D, D.T, rtol=1e-7, atol=1e-9)
    if rows.any():
        values, vectors = np.linalg.eigh(0.5 * (D + D.T))
        assert values[0] > 0
        from_slack = (vectors * np.sqrt(values)) @ vectors.T @ s
        from_multiplier = (vectors / np.sqrt(values)) @ vectors.T @ z
        np.testing.assert_allclose(from_slack, from_multiplier, rtol=1e-7, atol=1e-7 * np.linalg.norm(from_slack))
    np.testing.assert_allclose(D @ s, z, rtol=1e-7, atol=1e-9)


@symmetric_cones
@examples
@given(seed=seeds)
def test_scaling_is_an_automorphism_of_the_cone(cone, seed):
    """D K = K, and the inverses are exchanged too: D z^-1 = s^-1."""
    rng = np.random.default_rng(seed)
    s, z = pair(cone, rng)
    D = dense(cone.scaling(s, z))
    inverse_z = cone.inverse(np.where(cone.has_slack, z, 0.0))
    np.testing.assert_allclose(D @ inverse_z, cone.inverse(s), rtol=1e-6, atol=1e-8)
    for _ in range(5):
        k = member(cone, rng)
        assert margin(cone, D @ k) >= -1e-9 * np.linalg.norm(D) * np.linalg.norm(k)


@symmetric_cones
@examples
@given(seed=seeds)
def test_inverse_is_minus_the_gradient_of_the_barrier(cone, seed):
    rng = np.random.default_rng(seed)
    s, step = interior(cone, rng), 1e-6
    inverse = cone.inverse(s)
    for j, unit in enumerate(np.eye(cone.dim)):
        slope = (barrier(cone, s + step * unit) - barrier(cone, s - step * unit)) / (2 * step)
        assert -slope == pytest.approx(inverse[j], rel=1e-5, abs=1e-5 * np.linalg.norm(inverse))
    assert s @ inverse == pytest.approx(cone.degree, rel=1e-8)
    if cone.has_slack.all():
        np.testing.assert_allclose(cone.inverse(inverse), s, rtol=1e-6, atol=1e-8)


@symmetric_cones
def test_identity_is_its_own_inverse_and_has_the_length_of_the_degree(cone):
    """<e, e> = <e, e^-1> is the degree, and the pair (e, e) needs no scaling."""
    e, rows = cone.identity(), cone.has_slack
    if rows.all():
        np.testing.assert_allclose(cone.inverse(e), e, atol=1e-15)
        np.testing.assert_allclose(dense(cone.scaling(e, e)), np.eye(cone.dim), atol=1e-15)
    assert e @ e == pytest.approx(cone.degree, rel=1e-15)
    assert not e[~rows].any()


@symmetric_cones
@examples
@given(seed=seeds)
def test_longest_step_ends_on_the_boundary(cone, seed):
    rng = np.random.default_rng(seed)
    s = interior(cone, rng)
    ds = np.where(cone.has_slack, rng.standard_normal(cone.dim), 0.0)
    longest = cone.longest_step(s, ds)
    if np.isinf(longest):
        assert margin(cone, ds) >= -1e-12
    else:
        size = np.linalg.norm(s) + longest * np.linalg.norm(ds)
        assert margin(cone, s + 0.999 * longest * ds) >= -1e-12 * size
        assert cone.distance(s + longest * ds) <= 1e-9 * size
        assert margin(cone, s + 1.001 * longest * ds) < 0


@symmetric_cones
def test_steps_into_the_cone_have_no_end(cone):
    rng = np.random.default_rng(1)
    for _ in range(20):
        assert cone.longest_step(interior(cone, rng), interior(cone, rng)) == np.inf


@symmetric_cones
def test_any_point_is_moved_inside(cone):
    rng = np.random.default_rng(3)
    room = np.full(cone.dim, 0.1)
    for v in (np.zeros(cone.dim), rng.standard_normal(cone.dim), -interior(cone, rng), 1e-3 * interior(cone, rng)):
        assert margin(cone, cone.move_inside(v, room) - 0.1 * cone.identity()) >= -1e-14
    deep = interior(cone, rng)
    np.testing.assert_allclose(cone.move_inside(deep, np.full(cone.dim, 1e-3)), deep, rtol=1e-12, atol=1e-14)


@symmetric_cones
def test_clean_sets_multipliers_to_zero_exactly_where_nothing_binds(cone):
    rng = np.random.default_rng(4)
    jacobian = rng.standard_normal((cone.dim, 3))
    for _ in range(10):
        feasible, tiny = -interior(cone, rng), 1e-9 * interior(cone, rng)
        free = np.where(cone.has_slack, tiny, rng.standard_normal(cone.dim))
        np.testing.assert_array_equal(cone.clean(free, feasible, jacobian), np.where(cone.has_slack, 0.0, free))


@symmetric_cones
def test_clean_keeps_the_multiplier_of_a_complementary_pair(cone):
    rng = np.random.default_rng(5)
    jacobian = rng.standard_normal((cone.dim, 3))
    for _ in range(10):
        v = rng.standard_normal(cone.dim)
        multiplier = cone.project_dual(v)
        value = (v - multiplier) / cone.sensitivity(jacobian)
        np.testing.assert_allclose(cone.clean(multiplier, value, jacobian), multiplier, atol=1e-13)


@symmetric_cones
def test_sensitivity_is_one_over_the_slope_of_the_rows_that_belong_together(cone):
    rng = np.random.default_rng(6)
    jacobian = rng.standard_normal((cone.dim, 3))
    theta = cone.sensitivity(jacobian)
    np.testing.assert_allclose(cone.sensitivity(1e3 * jacobian), 1e-3 * theta, rtol=1e-14)
    np.testing.assert_array_equal(cone.sensitivity(0.0 * jacobian), np.ones(cone.dim))
    start = 0
    for block in cone.blocks:
        rows = slice(start, start + block.dim)
        by_row = np.abs(jacobian[rows]).max(axis=1)
        tied = not isinstance(block, Zero | Nonnegative)
        np.testing.assert_allclose(theta[rows], 1 / (by_row.max() if tied else by_row), rtol=1e-14)
        start = rows.stop
    assert start == cone.dim


@symmetric_cones
def test_arguments_of_the_interior_are_not_modified(cone):
    rng = np.random.default_rng(7)
    s, z = pair(cone, rng)
    step, jacobian = rng.standard_normal(cone.dim), rng.standard_normal((cone.dim, 2))
    given_arrays = (s, z, step, jacobian)
    before = [array.copy() for array in given_arrays]
    cone.move_inside(step, np.abs(step))
    cone.inverse(s)
    cone.scaling(s, z)
    cone.longest_step(s, step)
    cone.clean(z, step, jacobian)
    for array, old in zip(given_arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_degrees_and_slacks():
    cone = Product([Zero(2), Product([PSD(3), Nonnegative(4)]), SecondOrder(5)])
    assert cone.symmetric
    assert cone.degree == 0 + 3 + 4 + 1
    assert cone.has_slack.tolist() == [False] * 2 + [True] * (6 + 4 + 5)
    assert cone.blocks == (Zero(2), PSD(3), Nonnegative(4), SecondOrder(5))


@pytest.mark.parametrize("cone", [cone for cone in CONES if not cone.has_interior], ids=repr)
def test_other_cones_have_no_interior(cone):
    v = np.ones(cone.dim)
    name = next(block for block in cone.blocks if not block.has_interior)
    for ask in (
        lambda: cone.degree,
        cone.identity,
        lambda: cone.move_inside(v, v),
        lambda: cone.inverse(v),
        lambda: cone.scaling(v, v),
        lambda: cone.longest_step(v, v),
    ):
        with pytest.raises(TypeError, match=re.escape(repr(name))), np.errstate(invalid="ignore"):
            ask()


def test_a_product_is_symmetric_when_all_its_blocks_are():
    assert Product([Nonnegative(1), Product([PSD(2)])]).symmetric
    assert not Product([Nonnegative(1), Product([Exponential()])]).symmetric


def test_a_multiplier_is_zero_exactly_where_the_constraint_does_not_bind():
    cone = Product([Nonnegative(2), SecondOrder(2), Zero(1)])
    value = np.array([-1.0, -1e-8, -2.0, 0.5, 0.3])  # slack, binding, slack inside the cone, an equality
    clean = cone.clean(np.array([1e-6, 0.7, 1e-7, 1e-8, -0.4]), value, np.eye(5))
    np.testing.assert_array_equal(clean, [0.0, 0.7, 0.0, 0.0, -0.4])


def test_matrices_scale_as_matrices():
    """V S V = Z with V = S^-1/2 (S^1/2 Z S^1/2)^1/2 S^-1/2, written out."""
    rng = np.random.default_rng(0)
    cone = PSD(3)
    s, z = interior(cone, rng), interior(cone, rng)

    def power(matrix, p):
        values, vectors = np.linalg.eigh(matrix)
        return (vectors * values**p) @ vectors.T

    half = power(smat(s), 0.5)
    geometric = power(smat(s), -0.5) @ power(half @ smat(z) @ half, 0.5) @ power(smat(s), -0.5)
    v = rng.standard_normal(6)
    np.testing.assert_allclose(cone.scaling(s, z) @ v, svec(geometric @ smat(v) @ geometric), atol=1e-9)
