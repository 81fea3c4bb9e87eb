"""Tables on which a straight line fails, and differences: shared by the tests of the torch and jax adapters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def hospitals(owners: int, rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Class 1 lies inside a noisy circle, at every owner a little elsewhere."""
    rng = np.random.default_rng(1)
    tables = []
    for _ in range(owners):
        X = 1.2 * rng.standard_normal((rows, 2)) + 0.2 * rng.standard_normal(2)
        inside = 1 / (1 + np.exp(6 * (np.hypot(X[:, 0], X[:, 1]) - 1.2)))
        tables.append((X, (rng.random(rows) < inside).astype(float)))
    return tables


def central(change: Callable[[np.ndarray], object], w: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The derivative by central differences, one row for each coordinate of w."""
    return np.array([(change(w + step * e) - change(w - step * e)) / (2 * step) for e in np.eye(w.size)])
