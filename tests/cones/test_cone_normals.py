"""Normal cones N_{K*}(mu) = {s in -K : <s, mu> = 0}: projections onto them and max-norm distances to them."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from cone_cases import CONES, FACES, margin

from fedpact.cones import PSD, Exponential, Nonnegative, Product, SecondOrder, Zero
from fedpact.cones.max_norm import bisect, project_l1_ball, ray_distance, splitting_distance

every_cone = pytest.mark.parametrize("cone", CONES, ids=repr)
every_face = pytest.mark.parametrize("face", FACES, ids=str)


def reference_distance(face, v):
    """The max-norm distance by Clarabel, from the explicit description of the normal cone."""
    s, constraints = face.normal()
    problem = cp.Problem(cp.Minimize(cp.norm(v - s, "inf")), constraints)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert problem.status == cp.OPTIMAL
    return problem.value


def reference_projection(face, v):
    s, constraints = face.normal()
    problem = cp.Problem(cp.Minimize(cp.sum_squares(v - s)), constraints)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert problem.status == cp.OPTIMAL
    return s.value


@every_face
def test_normal_distance_is_that_of_a_conic_solver(face):
    rng = np.random.default_rng(6)
    for _ in range(4):
        v = rng.standard_normal(face.cone.dim)
        expected = reference_distance(face, v)
        assert face.cone.normal_distance(v, face.multiplier) == pytest.approx(expected, abs=2e-7)
        assert face.cone.normal_distance(1e6 * v, 1e-7 * face.multiplier) == pytest.approx(1e6 * expected, abs=0.2)


@every_face
def test_normal_projection_is_that_of_a_conic_solver(face):
    rng = np.random.default_rng(7)
    for _ in range(2):
        v = rng.standard_normal(face.cone.dim)
        expected = reference_projection(face, v)
        np.testing.assert_allclose(face.cone.project_normal(v, face.multiplier), expected, atol=2e-5)


@every_face
def test_a_face_has_the_points_that_the_multiplier_admits(face):
    """{s in K : <mu, s> = 0} is -N(mu): the coordinates of its points lie in the cone of the face, and back."""
    if not face.multiplier.any():
        pytest.skip("zero exposes the whole cone")
    found = face.cone.face(face.multiplier)
    if found is None:
        assert not isinstance(face.cone, SecondOrder | PSD | Exponential)
        return
    rows, cone = found
    np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-12)
    rng = np.random.default_rng(11)
    for _ in range(5):
        s = -face.cone.project_normal(rng.standard_normal(face.cone.dim), face.multiplier)
        np.testing.assert_allclose(rows.T @ (rows @ s), s, atol=1e-9)
        if cone is not None:
            assert cone.distance(rows @ s) <= 1e-9
            back = rows.T @ cone.project(rng.standard_normal(cone.dim))
            assert face.cone.distance(back) <= 1e-9
            assert abs(back @ face.multiplier) <= 1e-9


@every_face
def test_splitting_agrees_with_the_closed_forms(face):
    rng = np.random.default_rng(8)
    for _ in range(3):
        v = rng.standard_normal(face.cone.dim)
        found = splitting_distance(lambda w: face.cone.project_normal(w, face.multiplier), v)
        exact = face.cone.normal_distance(v, face.multiplier)
        assert found == pytest.approx(exact, rel=1e-6, abs=1e-12)
        assert found >= exact * (1 - 1e-8)


@every_face
def test_a_small_miss_is_found_at_its_size(face):
    """Near an answer v is 1e-6 away from N while its own size is 1: the distance must not drown in rounding."""
    rng = np.random.default_rng(9)
    for _ in range(3):
        s = face.cone.project_normal(rng.standard_normal(face.cone.dim), face.multiplier)
        miss = 1e-6 * rng.standard_normal(face.cone.dim)
        found = face.cone.normal_distance(s + miss, face.multiplier)
        euclidean = np.linalg.norm(s + miss - face.cone.project_normal(s + miss, face.multiplier))
        assert euclidean / math.sqrt(face.cone.dim) * (1 - 1e-8) - 1e-15 <= found <= np.abs(miss).max() * (1 + 1e-3)


def test_splitting_is_not_fooled_by_rounding_of_its_lower_bound():
    """Points of size 1 that miss -K by 1e-6: a bound from unrepaired differences would stop percents too early."""
    rng, cone = np.random.default_rng(16), SecondOrder(20)
    for _ in range(10):
        v = -cone.project(-rng.standard_normal(20)) + 1e-6 * rng.standard_normal(20)
        found = splitting_distance(lambda w: -cone.project(-w), v)
        assert found == pytest.approx(cone.normal_distance(v, np.zeros(20)), rel=1e-6, abs=1e-12)


@every_cone
def test_normal_projection_lies_in_the_normal_cone_and_is_nearest(cone):
    rng = np.random.default_rng(10)
    for _ in range(10):
        price = cone.project_dual(rng.standard_normal(cone.dim))
        v, other = rng.standard_normal((2, cone.dim))
        s, member_of_n = cone.project_normal(v, price), cone.project_normal(other, price)
        assert margin(cone, -s) >= -1e-12
        assert abs(s @ price) <= 1e-11
        assert abs((v - s) @ s) <= 1e-11
        assert (v - s) @ member_of_n <= 1e-11
        assert cone.normal_distance(s, price) <= 1e-11
        assert cone.normal_distance(v, price) <= np.abs(v - s).max() + 1e-12


@every_cone
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_complementary_pairs_have_no_distance(cone, scale):
    rng = np.random.default_rng(11)
    for _ in range(30):
        z = scale * rng.standard_normal(cone.dim)
        price = cone.project_dual(z)
        assert cone.normal_distance(z - price, price) <= 1e-11 * scale
        np.testing.assert_allclose(cone.project_normal(z - price, price), z - price, atol=1e-11 * scale)


@every_cone
def test_outside_the_dual_cone_the_miss_counts(cone):
    rng = np.random.default_rng(12)
    misses = []
    for _ in range(20):
        price, v = rng.standard_normal((2, cone.dim))
        nearest = cone.project_dual(price)
        misses.append(np.abs(price - nearest).max())
        expected = max(cone.normal_distance(v, nearest), misses[-1])
        assert cone.normal_distance(v, price) == pytest.approx(expected, rel=1e-8)
        assert cone.normal_distance(np.zeros(cone.dim), price) == pytest.approx(misses[-1], rel=1e-8, abs=1e-14)
    assert isinstance(cone, Zero) == (max(misses) == 0.0)  # only free multipliers cannot miss


@every_cone
def test_broken_numbers_are_infinitely_far(cone):
    good = np.ones(cone.dim)
    for broken in (math.nan, math.inf):
        bad = good.copy()
        bad[-1] = broken
        assert cone.normal_distance(bad, good) == math.inf
        assert cone.normal_distance(good, bad) == math.inf
        assert cone.violation(bad) == math.inf


@every_cone
def test_violation_is_the_smallest_repair_by_projection(cone):
    rng = np.random.default_rng(13)
    for _ in range(10):
        v = rng.standard_normal(cone.dim)
        assert cone.violation(v) == pytest.approx(np.abs(v + cone.project(-v)).max(), abs=1e-13)
        # mu = 0: N is all of -K, and the max-norm distance cannot exceed that of the Euclidean nearest point
        assert cone.normal_distance(v, np.zeros(cone.dim)) <= cone.violation(v) + 1e-12


def test_orthant_by_hand():
    cone = Nonnegative(4)
    v, price = np.array([-0.3, -2.0, 0.5, -1.0]), np.array([1.0, 0.0, 0.0, 0.0])
    assert cone.normal_distance(v, price) == 0.5
    assert cone.normal_distance(v, np.array([1.0, 0.0, 0.0, -0.7])) == 0.7
    assert cone.normal_distance(v, np.array([1.0, 2.0, 0.0, 0.0])) == 2.0
    assert cone.violation(v) == 0.5
    assert Zero(4).normal_distance(v, price) == 2.0
    assert Product([cone, Zero(4)]).normal_distance(np.r_[v, v], np.r_[price, price]) == 2.0


@pytest.mark.parametrize(("relative", "expected"), [(1e-13, 0.0), (1e-11, 5.0)])
def test_prices_within_rounding_are_zero(relative, expected):
    scale = 1e4
    assert Nonnegative(2).normal_distance(np.array([0.0, -5.0]), scale * np.array([1.0, relative])) == expected
    edge = scale * np.array([1.0 + relative, 1.0, 0.0])
    assert SecondOrder(3).normal_distance(np.array([-5.0, 5.0, 0.0]), edge) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("noise", [0.0, 1e-15, -1e-15])
def test_degenerate_exponential_faces_survive_rounding(noise):
    cone, shake = Exponential(), noise * np.array([1.0, -1.0, 1.0])
    flat, axis = np.array([5.0, 0.0, -7.0]), np.array([5.0, 0.0, 0.0])
    assert cone.normal_distance(flat, np.array([0.0, 1.0, 0.0]) + shake) <= 1e-12
    assert cone.normal_distance(flat, np.array([0.0, 1.0, 1.0]) + shake) == pytest.approx(7.0)
    for price in ([0.0, 1.0, 0.0], [0.0, 1.0, 1.0]):
        assert cone.normal_distance(axis, np.array(price) + shake) <= 1e-12
        assert cone.normal_distance(-axis, np.array(price) + shake) == pytest.approx(5.0)


def test_near_the_corner_of_the_exponential_dual_each_ray_keeps_its_normal():
    """At (0, 0, w) rays 1e-16 apart have normals that differ by 1/35: complementary pairs must still be recognised."""
    cone = Exponential()
    assert cone.normal_distance(np.array([5.0, 0.0, 0.0]), np.array([-1e-15, 1e-15, 1.0])) <= 1e-12
    for rho in (-20.0, -35.0, -300.0):
        price = np.array([-math.exp(rho), (rho - 1.0) * math.exp(rho), 1.0])
        assert cone.normal_distance(-np.array([rho, 1.0, math.exp(rho)]), price) <= 1e-11


def test_ray_distance_is_the_best_of_all_crossings():
    rng = np.random.default_rng(14)
    for dim in (1, 2, 3, 8):
        for _ in range(20):
            v, direction = rng.standard_normal((2, dim))
            lines = [(sign * a, -sign * b) for a, b in zip(v, direction, strict=True) for sign in (1.0, -1.0)]
            crossings = [(p - r) / (s - q) for p, q in lines for r, s in lines if q != s]
            best = min(np.abs(v - max(t, 0.0) * direction).max() for t in crossings)
            assert ray_distance(v, direction) == pytest.approx(best, abs=1e-14)
    assert ray_distance(np.array([3.0, -4.0]), np.zeros(2)) == 4.0


def test_bisection_ends_on_the_true_side():
    assert bisect(lambda t: t >= 0.3, 0.0, 1.0) == 0.3
    assert bisect(lambda t: t > 0.3, 0.0, 1.0) == math.nextafter(0.3, 1.0)


def test_l1_ball_projection_is_the_nearest_point():
    rng = np.random.default_rng(15)
    for _ in range(50):
        v, radius = rng.standard_normal(6), rng.exponential()
        nearest = project_l1_ball(v, radius)
        assert np.abs(nearest).sum() <= radius * (1 + 1e-12)
        # <v - p, q - p> <= 0 over the ball is attained at a vertex: radius |v - p|_inf <= <v - p, p>
        assert radius * np.abs(v - nearest).max() <= (v - nearest) @ nearest + 1e-12
