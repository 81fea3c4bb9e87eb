"""Derivatives that do not belong to their functions: no method calls such a point solved, and true ones pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpact as fp
from fedpact.problem import find_wrong_parts
from fedpact.problem.derivatives import has_wrong_slope
from fedpact.solvers import METHODS

#: What a function gives in place of its gradient g at w.
LIES: dict[str, Callable[[Any, Any], Any]] = {
    "twice": lambda g, w: 2 * g,
    "an offset": lambda g, w: g + 0.5,
    "one entry": lambda g, w: g + np.array([0.0, 0.3, 0.0]),
    "another function's": lambda g, w: 3 * w - g,
}
UNCONSTRAINED = [name for name, method in METHODS.items() if not method.needs.columns]


def lying(number: int, lie: Callable[[Any, Any], Any] | None) -> fp.functions.Smooth:
    rng = np.random.default_rng(number)
    curvatures = rng.uniform(1, 3, 3)
    slope = rng.normal(size=3)

    def fun(w: Any) -> tuple[float, Any]:
        gradient = curvatures * w + slope
        value = float(w @ (curvatures * w) / 2 + slope @ w)
        return value, gradient if lie is None else lie(gradient, w)

    return fp.functions.Smooth(fun, hess=lambda w: np.diag(curvatures), dim=3, convex=True)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("method", UNCONSTRAINED)
def test_a_wrong_gradient_is_never_solved(method: str, lie: str) -> None:
    shares = [fp.Share(lying(i, LIES[lie] if i == 1 else None), name=name) for i, name in enumerate("abc")]
    found = fp.solve(fp.FederatedProblem(shares), method, tol=1e-3, max_rounds=300)
    assert found.status in ("stalled", "max_rounds")
    assert found.reason.startswith("b: the gradient or Jacobian of its objective does not belong to its function")


@pytest.mark.parametrize("holder", ["an owner", "the server", "an owner, coupled"])
@pytest.mark.parametrize("method", ["interior-point", "accelerated", "proximal-al"])
def test_a_wrong_jacobian_is_never_solved(method: str, holder: str) -> None:
    """The constraint binds, so its Jacobian decides where the point lies."""
    wrong = fp.functions.SmoothMap(
        lambda w: (np.array([w @ w / 2 - 0.02]), np.array([w + 0.5])), hess=lambda w, mu: mu[0] * np.eye(3), length=1
    )
    limit = fp.Constraint(wrong, fp.cones.Nonnegative(1))
    shares = [fp.Share(lying(i, None), name=name) for i, name in enumerate("ab")]
    server = None
    if holder == "an owner":
        shares[0] = fp.Share(shares[0].objective, limit, name="a")
    elif holder == "the server":
        server = fp.Share(None, limit, name="server")
    else:
        shares[0] = fp.Share(shares[0].objective, coupled=wrong, name="a")
        shares[1] = fp.Share(shares[1].objective, coupled=fp.functions.Affine(np.zeros((1, 3)), [0.0]), name="b")
    found = fp.solve(fp.FederatedProblem(shares, server=server), method, tol=1e-3, max_rounds=300)
    assert found.status in ("stalled", "max_rounds")
    assert "constraint does not belong to its function" in found.reason


def test_a_run_costs_no_exchange_more() -> None:
    """As many as with the function to which the wrong gradient does belong."""
    other = fp.Share(lying(1, None), name="b")
    wrong = lying(0, LIES["an offset"])
    right = lying(0, None) + fp.functions.Quadratic(np.zeros((3, 3)), np.full(3, 0.5))
    ends = []
    for function in (wrong, right):
        problem = fp.FederatedProblem([fp.Share(function, name="a"), other])
        ends.append(fp.solve(problem, "interior-point", tol=1e-3))
    assert [found.status for found in ends] == ["stalled", "solved"]
    assert ends[0].rounds == ends[1].rounds
    np.testing.assert_allclose(ends[0].w, ends[1].w, atol=1e-12)


class Theirs(fp.functions.LogisticLoss):
    """Somebody's own, so that its derivatives are looked at."""


class Wrong(fp.functions.LogisticLoss):
    """Somebody's own, with slopes of another loss."""

    def _expand(self, score: Any) -> tuple[Any, Any, Any]:
        losses, slopes, curvatures = super()._expand(score)
        return losses, slopes + 0.5, curvatures


def test_only_losses_of_the_library_itself_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tests compare their derivatives with differences; whatever has a part of somebody's is looked at."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    y = rng.integers(0, 2, 20)
    w = rng.normal(size=3)
    ours = fp.functions.LogisticLoss(X, y)
    wrong = Wrong(X, y)
    for part in (wrong, ours + wrong, fp.functions.Stack([ours, wrong - 0.3])):
        derivative = part.gradient(w)[None, :] if isinstance(part, fp.functions.Function) else part.jacobian(w)
        assert has_wrong_slope(part, w, derivative)
    monkeypatch.setattr(fp.functions.LogisticLoss, "value_and_gradient", None)  # nobody evaluates these
    for part in (ours, 0.5 * ours - 1.0):
        assert not has_wrong_slope(part, w, np.zeros((1, 3)))


# ------------------------------------------------------------------------------------------------------- true functions

SIZES = st.sampled_from([1e-8, 1e-3, 1.0, 1e3, 1e8])


@given(seed=st.integers(0, 10**6), scale=SIZES, unit=SIZES, offset=SIZES)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_true_derivatives_are_not_accused(seed: int, scale: float, unit: float, offset: float) -> None:
    """Whatever the units: of the columns, of w, and of a constant that is added; at stationary points, too."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 4)) * np.array([1.0, unit, 1.0, 1.0])
    y = rng.integers(0, 2, 20)
    A = rng.normal(size=(4, 4))
    w = scale * rng.normal(size=4)
    quadratic = fp.functions.Quadratic(A @ A.T, -(A @ A.T @ w))  # w is its minimiser
    loss = Theirs(X, y)
    for part in (loss, loss - float(loss.value(w)), quadratic, offset * quadratic + offset, quadratic + loss):
        assert not has_wrong_slope(part, w, part.gradient(w)[None, :])
    binding = fp.functions.Affine(X[:2], -X[:2] @ w)  # zero up to rounding
    assert find_wrong_parts(fp.Share(loss, fp.Constraint(binding, fp.cones.Zero(2))), w) == []


@pytest.mark.parametrize("w", [0.0, 1e-7, 3e-6, 1.0])
def test_kinks_and_flat_points_are_not_accused(w: float) -> None:
    functions: dict[str, Callable[[Any], tuple[float, Any]]] = {
        "a kink": lambda v: (float(np.abs(v).sum()), np.sign(v)),
        "cubic": lambda v: (float((v**3).sum()), 3 * v**2),
        "quartic": lambda v: (float((v**4).sum()), 4 * v**3),
        "a wave": lambda v: (float(np.sin(1e3 * v).sum()), 1e3 * np.cos(1e3 * v)),
        "a hinge": lambda v: (float(np.maximum(v, 0).sum()), (v > 0).astype(float)),
    }
    for fun in functions.values():
        at = np.full(3, w)
        function = fp.functions.Smooth(fun, dim=3)
        assert not has_wrong_slope(function, at, function.gradient(at)[None, :])
