"""What is particular to one cone: constructors, coordinates, and exact answers known beforehand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from raising import raises_code

from fedpact.cones import PSD, Exponential, Nonnegative, Product, SecondOrder, Zero, smat, svec


@pytest.mark.parametrize("cone", [Zero, Nonnegative, SecondOrder, PSD])
@pytest.mark.parametrize("value", [0, -1, 2.5, "3", True, None])
def test_sizes_must_be_positive_integers(cone, value):
    with raises_code("FP-PROBLEM-198", f"{cone.__name__}: ", f"found {value!r}"):
        cone(value)


def test_products_must_hold_cones():
    with raises_code("FP-PROBLEM-196"):
        Product([])
    with raises_code("FP-PROBLEM-197", "Product: cones[1] ", "'PSD'"):
        Product([Zero(1), "PSD"])


def test_names_and_sizes():
    cone = Product([Zero(np.int64(2)), PSD(3), Exponential()])
    assert repr(cone) == "Product(cones=(Zero(dim=2), PSD(order=3), Exponential()))"
    assert cone.dim == 2 + 6 + 3
    assert cone == Product(iter(cone.cones))
    assert hash(cone) == hash(Product(cone.cones))
    assert cone != Product(cone.cones[::-1])


def test_product_jacobian_is_diagonal_only_when_every_block_is():
    assert Product([Zero(2), Nonnegative(1)]).project_dual_jacobian(np.array([1.0, 2.0, -3.0])).tolist() == [1, 1, 0]
    mixed = Product([Nonnegative(2), SecondOrder(2)]).project_dual_jacobian(np.array([1.0, -1.0, 0.0, 3.0]))
    expected = [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]]
    np.testing.assert_allclose(mixed, expected, atol=1e-15)


def test_svec_order_and_inner_product():
    matrix = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
    root = math.sqrt(2.0)
    np.testing.assert_allclose(svec(matrix), [1, 2 * root, 3 * root, 4, 5 * root, 6], rtol=1e-15)
    np.testing.assert_allclose(smat(svec(matrix)), matrix, rtol=1e-15)
    other = np.diag([1.0, -2.0, 0.5]) + 0.3
    assert svec(matrix) @ svec(other) == pytest.approx(np.trace(matrix @ other), rel=1e-14)


@pytest.mark.parametrize("bad", [np.zeros((2, 3)), np.zeros(4)])
def test_svec_needs_a_square_matrix(bad):
    with raises_code("FP-PROBLEM-194", "", f"{bad.shape}"):
        svec(bad)


@pytest.mark.parametrize("bad", [np.zeros(2), np.zeros(0), np.zeros((3, 1))])
def test_smat_needs_a_triangular_length(bad):
    with raises_code("FP-PROBLEM-195", "", f"{bad.shape}"):
        smat(bad)


def test_second_order_by_hand():
    np.testing.assert_allclose(SecondOrder(3).project(np.array([1.0, 3.0, 4.0])), [3.0, 1.8, 2.4], rtol=1e-15)


@pytest.mark.parametrize("rho", [-500.0, -40.0, -3.0, -0.1, 0.0, 0.5, 1.0, 2.0, 30.0, 500.0])
@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1.0, 1e8, 1e200])
def test_exponential_recovers_a_known_split(rho, scale):
    """v = p + n with p on the boundary ray of K and n on its normal ray has the projection p."""
    tilt = math.exp(-abs(rho))
    a = np.array([rho, 1.0, tilt]) if rho <= 0 else np.array([rho * tilt, tilt, 1.0])
    b = np.array([tilt, (1 - rho) * tilt, -1.0]) if rho <= 0 else np.array([1.0, 1 - rho, -tilt])
    for weight in (1e-12, 1e-4, 1.0, 1e4, 1e12):
        primal, polar = scale * a, scale * weight * b
        v, size = primal + polar, np.abs(primal).max() + np.abs(polar).max()
        np.testing.assert_allclose(Exponential().project(v), primal, rtol=0, atol=4e-15 * size)
        np.testing.assert_allclose(Exponential().project_dual(-v), -polar, rtol=0, atol=4e-15 * size)


@pytest.mark.parametrize("rho", [-8.0, -2.0, 0.3, 1.0, 3.0, 8.0])
def test_exponential_jacobian_on_the_whole_surface(rho):
    cone, step = Exponential(), 1e-5
    a, b = np.array([rho, 1.0, math.exp(rho)]), np.array([1.0, 1 - rho, -math.exp(-rho)])
    for weight in (0.1, 1.0, 10.0):
        v = -(a / np.linalg.norm(a) + weight * b / np.linalg.norm(b))
        columns = [(cone.project_dual(v + step * e) - cone.project_dual(v - step * e)) / (2 * step) for e in np.eye(3)]
        np.testing.assert_allclose(cone.project_dual_jacobian(v), np.array(columns).T, atol=2e-7)


@pytest.mark.parametrize(
    ("v", "expected"),
    [
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        ([-2.0, -3.0, 4.0], [-2.0, 0.0, 4.0]),
        ([-2.0, -3.0, -4.0], [-2.0, 0.0, 0.0]),
        ([-2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]),
        ([0.0, 0.0, -1.0], [0.0, 0.0, 0.0]),
        ([1e-300, -1.0, 1.0], [0.0, 0.0, 1.0]),
        ([1e-20, -1.0, 1.0], [0.0, 0.0, 1.0]),
        ([-1.0, 1e-300, 0.5], [-1.0, 0.0, 0.5]),
        ([-1.0, 1e-20, -0.5], [-1.0, 0.0, 0.0]),
        ([1.0, 1e-20, 0.0], None),
        ([1e-20, 1.0, 0.0], None),
        ([1e-200, 1e-200, -1.0], [0.0, 0.0, 0.0]),
        ([1e300, -1e300, 1e-300], None),
    ],
)
def test_exponential_at_the_edges_of_its_cases(v, expected):
    """Known points, or (None) only the two memberships and the split, on which the rest follows."""
    cone, v = Exponential(), np.array(v)
    scale = np.abs(v).max() or 1.0
    primal, dual = cone.project(v) / scale, cone.project_dual(-v) / scale
    np.testing.assert_allclose(primal - dual, v / scale, atol=1e-15)
    assert abs(primal @ dual) <= 1e-15
    if expected is not None:
        np.testing.assert_allclose(primal, np.array(expected) / scale, atol=1e-15)
    jacobian = cone.project_dual_jacobian(v)
    assert np.isfinite(jacobian).all()
    np.testing.assert_allclose(jacobian @ (v / scale), cone.project_dual(v) / scale, atol=1e-14)
