"""Tables on which a straight line fails, and differences: shared by the tests of the torch and jax adapters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedpact.functions import Function


def hospitals(owners: int, rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Class 1 lies inside a noisy circle, at every owner a little elsewhere."""
    rng = np.random.default_rng(1)
    tables = []
    for _ in range(owners):
        X = 1.2 * rng.standard_normal((rows, 2)) + 0.2 * rng.standard_normal(2)
        inside = 1 / (1 + np.exp(6 * (np.hypot(X[:, 0], X[:, 1]) - 1.2)))
        tables.append((X, (rng.random(rows) < inside).astype(float)))
    return tables


def assert_derivatives(function: Function, w: np.ndarray) -> None:
    """Gradient, Hessian and its products are those of finite differences; w is only read."""
    v = np.random.default_rng(2).standard_normal(w.size)
    w.setflags(write=False)
    value, gradient = function.value_and_gradient(w)
    assert function.dim == w.size
    assert function.value(w) == pytest.approx(value, rel=1e-15)
    np.testing.assert_allclose(gradient, central(function.value, w), rtol=1e-6, atol=1e-9)
    hessian = function.hessian(w)
    np.testing.assert_allclose(hessian, central(function.gradient, w), rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(hessian, hessian.T)
    np.testing.assert_allclose(function.hessian_product(w, v), hessian @ v, rtol=1e-12, atol=1e-14)


def central(change: Callable[[np.ndarray], object], w: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The derivative by central differences, one row for each coordinate of w."""
    return np.array([(change(w + step * e) - change(w - step * e)) / (2 * step) for e in np.eye(w.size)])
