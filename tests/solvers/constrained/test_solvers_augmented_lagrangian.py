"""The augmented Lagrangian as a function: derivatives against differences, for every cone."""

import numpy as np
import pytest

from fedpact import cones
from fedpact.functions import Affine, LogisticLoss, Quadratic, SmoothMap
from fedpact.problem import Constraint, Share
from fedpact.solvers.constrained.augmented_lagrangian import (
    AugmentedLagrangian,
    augmented_lagrangian,
    gradient_between,
)
from fedpact.solvers.local import anchored

RNG = np.random.default_rng(11)
DIM = 4
CONES = [
    cones.Zero(3),
    cones.Nonnegative(3),
    cones.SecondOrder(3),
    cones.PSD(2),
    cones.Exponential(),
    cones.Product([cones.Zero(1), cones.SecondOrder(2)]),
]


def curved_map(length):
    C, d = RNG.standard_normal((length, DIM)), RNG.standard_normal(length)

    def value(w):
        return np.sin(C @ w) + d, np.cos(C @ w)[:, None] * C

    return SmoothMap(value, hess=lambda w, weights: -(C.T * (weights * np.sin(C @ w))) @ C, length=length, dim=DIM)


@pytest.mark.parametrize("cone", CONES, ids=repr)
@pytest.mark.parametrize("penalty", [0.5, 20.0])
def test_derivatives_match_differences(cone, penalty):
    X, y = RNG.standard_normal((15, DIM)), np.arange(15) % 2.0
    share = Share(LogisticLoss(X, y), Constraint(curved_map(cone.dim), cone))
    multiplier = cone.project_dual(RNG.standard_normal(cone.dim))
    function = AugmentedLagrangian(share, multiplier, penalty, DIM)
    w, step = RNG.standard_normal(DIM), 1e-6
    sides = [
        (function.value_and_gradient(w + step * e), function.value_and_gradient(w - step * e)) for e in np.eye(DIM)
    ]
    np.testing.assert_allclose(
        function.gradient(w), [(up[0] - down[0]) / (2 * step) for up, down in sides], rtol=1e-6, atol=1e-7
    )
    hessian = np.array([(up[1] - down[1]) / (2 * step) for up, down in sides])
    np.testing.assert_allclose(function.hessian(w), hessian, rtol=1e-5, atol=1e-6)
    v = RNG.standard_normal(DIM)
    np.testing.assert_allclose(function.hessian_product(w, v), function.hessian(w) @ v, rtol=1e-10, atol=1e-12)


def test_value_is_the_paper_s_for_inequalities():
    share = Share(Quadratic(np.eye(2)), Constraint(Affine([[1.0, 0.0], [0.0, 1.0]], [-1.0, 2.0]), cones.Nonnegative(2)))
    mu, beta, w = np.array([0.5, 0.0]), 3.0, np.array([2.0, -3.0])
    c = np.array([w[0] - 1, w[1] + 2])
    by_hand = 0.5 * w @ w + (np.sum(np.maximum(mu + beta * c, 0) ** 2) - mu @ mu) / (2 * beta)  # He24 (9)
    assert AugmentedLagrangian(share, mu, beta, 2).value(w) == pytest.approx(by_hand, rel=1e-14)


def test_quadratics_with_equalities_have_a_constant_hessian_and_others_do_not():
    equality = Constraint(Affine(np.eye(2)), cones.Zero(2))
    inequality = Constraint(Affine(np.eye(2)), cones.Nonnegative(2))
    zero = np.zeros(2)
    assert AugmentedLagrangian(Share(Quadratic(np.eye(2)), equality), zero, 1.0, 2).constant_hessian
    assert AugmentedLagrangian(Share(None, equality), zero, 1.0, 2).constant_hessian
    assert not AugmentedLagrangian(Share(Quadratic(np.eye(2)), inequality), zero, 1.0, 2).constant_hessian


def test_an_empty_share_is_zero():
    function = augmented_lagrangian(Share(), np.zeros(0), 1.0, 3)
    assert function.value(np.ones(3)) == 0.0
    np.testing.assert_array_equal(function.gradient(np.ones(3)), np.zeros(3))


@pytest.mark.parametrize("cone", CONES, ids=repr)
def test_gradient_with_the_multiplier_of_a_copy(cone):
    """At the copy itself it is the gradient of the function; elsewhere the multiplier stays that of the copy."""
    X, y = RNG.standard_normal((15, DIM)), np.arange(15) % 2.0
    constraint = curved_map(cone.dim)
    objective = LogisticLoss(X, y)
    multiplier = cone.project_dual(RNG.standard_normal(cone.dim))
    anchor = RNG.standard_normal(DIM)
    share = Share(objective, Constraint(constraint, cone))
    function = anchored(AugmentedLagrangian(share, multiplier, 20.0, DIM), 0.3, anchor)
    w, copy = RNG.standard_normal((2, DIM))

    gradient, gap = gradient_between(function, copy, copy)
    np.testing.assert_allclose(gradient, function.gradient(copy), atol=1e-12)
    assert gap == 0.0

    gradient, gap = gradient_between(function, w, copy)
    price = cone.project_dual(multiplier + 20.0 * constraint.value(copy))
    expected = objective.gradient(w) + constraint.jacobian(w).T @ price + 0.3 * (w - anchor)
    np.testing.assert_allclose(gradient, expected, atol=1e-12)
    assert gap == pytest.approx(np.max(np.abs(constraint.value(w) - constraint.value(copy))))
