"""What every cone must satisfy; a new cone joins by entering `cone_cases.CONES`."""

from __future__ import annotations

import numpy as np
import pytest
from cone_cases import CONES, margin, member
from hypothesis import given, settings
from hypothesis import strategies as st

every_cone = pytest.mark.parametrize("cone", CONES, ids=repr)
examples = settings(max_examples=30, deadline=None, derandomize=True)


@st.composite
def vectors(draw, dim):
    """Coordinates of mixed sizes, zeros and ties included, times one scale between 1e-8 and 1e8."""
    mantissa = st.one_of(st.sampled_from([0.0, 1.0, -1.0]), st.floats(-1, 1).filter(lambda m: abs(m) > 1e-20))
    mantissas = draw(st.lists(mantissa, min_size=dim, max_size=dim))
    powers = draw(st.lists(st.sampled_from([0, 0, 0, -1, -3, -8]), min_size=dim, max_size=dim))
    return 10.0 ** draw(st.sampled_from([0, -8, -3, 3, 8])) * np.array(mantissas) * 10.0 ** np.array(powers)


def dense(jacobian):
    return np.diag(jacobian) if jacobian.ndim == 1 else jacobian


@every_cone
@examples
@given(data=st.data())
def test_projection_is_the_nearest_point(cone, data):
    v = data.draw(vectors(cone.dim))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    size = np.linalg.norm(v)
    nearest = cone.project(v)
    assert margin(cone, nearest) >= -1e-13 * size
    # p is the projection exactly when v - p makes no acute angle with p itself nor with any point of K
    assert abs((v - nearest) @ nearest) <= 1e-13 * size**2
    for _ in range(5):
        k = member(cone, rng)
        assert (v - nearest) @ k <= 1e-13 * size * np.linalg.norm(k)
    assert np.linalg.norm(cone.project(nearest) - nearest) <= 1e-13 * size
    assert cone.distance(v) == pytest.approx(np.linalg.norm(v - nearest), rel=1e-12, abs=1e-13 * size)


@every_cone
@examples
@given(data=st.data())
def test_moreau_splits_every_vector(cone, data):
    v = data.draw(vectors(cone.dim))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    size = np.linalg.norm(v)
    primal, dual = cone.project(-v), cone.project_dual(v)
    assert np.linalg.norm(v - (dual - primal)) <= 1e-13 * size
    assert abs(primal @ dual) <= 1e-13 * size**2
    for _ in range(5):
        k = member(cone, rng)
        assert dual @ k >= -1e-13 * size * np.linalg.norm(k)
    assert cone.violation(v) == pytest.approx(np.abs(v + primal).max(), rel=1e-12, abs=1e-13 * size)


@every_cone
@examples
@given(data=st.data())
def test_projections_do_not_expand(cone, data):
    v, w = data.draw(vectors(cone.dim)), data.draw(vectors(cone.dim))
    gap = np.linalg.norm(v - w) + 1e-13 * (np.linalg.norm(v) + np.linalg.norm(w))
    assert np.linalg.norm(cone.project(v) - cone.project(w)) <= gap
    assert np.linalg.norm(cone.project_dual(v) - cone.project_dual(w)) <= gap


@every_cone
@examples
@given(data=st.data())
def test_projections_are_homogeneous(cone, data):
    v = data.draw(vectors(cone.dim))
    factor = 2.0 ** data.draw(st.integers(-60, 60))
    assert np.linalg.norm(cone.project(factor * v) - factor * cone.project(v)) <= 1e-13 * factor * np.linalg.norm(v)


@every_cone
def test_members_stay_and_have_no_distance(cone):
    rng = np.random.default_rng(1)
    for _ in range(50):
        k = member(cone, rng)
        assert np.linalg.norm(cone.project(k) - k) <= 1e-13 * np.linalg.norm(k)
        assert cone.distance(k) <= 1e-13 * np.linalg.norm(k)
        assert cone.violation(-k) <= 1e-13 * np.linalg.norm(k)


@every_cone
def test_arguments_are_not_modified(cone):
    v = np.random.default_rng(2).standard_normal(cone.dim)
    before = v.copy()
    for result in (cone.project(v), cone.project_dual(v), cone.project_normal(v, cone.project_dual(v))):
        result += 1.0
    cone.project_dual_jacobian(v)
    cone.normal_distance(v, v)
    np.testing.assert_array_equal(v, before)


@every_cone
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_jacobian_agrees_with_central_differences(cone, scale):
    rng = np.random.default_rng(3)
    for _ in range(20):
        v, step = rng.standard_normal(cone.dim), 1e-6
        columns = [
            (cone.project_dual(scale * (v + step * e)) - cone.project_dual(scale * (v - step * e))) / (2 * scale * step)
            for e in np.eye(cone.dim)
        ]
        np.testing.assert_allclose(dense(cone.project_dual_jacobian(scale * v)), np.array(columns).T, atol=1e-7)


@every_cone
def test_jacobian_is_between_zero_and_identity_even_at_kinks(cone):
    rng = np.random.default_rng(4)
    kinks = [np.zeros(cone.dim), *(sign * member(cone, rng) for sign in (1.0, -1.0) for _ in range(10))]
    kinks += [cone.project_dual(rng.standard_normal(cone.dim)) for _ in range(10)]
    kinds = set()
    for v in kinks:
        jacobian = cone.project_dual_jacobian(v)
        kinds.add(jacobian.shape)
        eigenvalues = np.linalg.eigvalsh(dense(jacobian))
        assert eigenvalues[0] >= -1e-12
        assert eigenvalues[-1] <= 1 + 1e-12
        np.testing.assert_allclose(dense(jacobian), dense(jacobian).T, atol=1e-12)
        # projections are homogeneous, so every generalized Jacobian J satisfies J v = P(v)
        np.testing.assert_allclose(dense(jacobian) @ v, cone.project_dual(v), atol=1e-12 * (1 + np.linalg.norm(v)))
    assert len(kinds) == 1
