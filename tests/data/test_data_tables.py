from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from raising import raises_code

from fedpact.data import Table, standardize, wdbc, with_intercept


def test_wdbc_has_malignant_as_one() -> None:
    table = wdbc()
    assert table.X.shape == (569, 30) == (len(table.y), len(set(table.columns)))
    assert np.isfinite(table.X).all()
    assert np.bincount(table.y).tolist() == [357, 212]
    radius = table.X[:, table.columns.index("mean radius")]
    assert radius[table.y == 1].mean() > radius[table.y == 0].mean()


def test_wdbc_without_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    original: Callable[..., Any] = builtins.__import__

    def without_sklearn(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return original(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without_sklearn)
    with raises_code("FP-DATA-450", "", "pip install '.[sklearn]'"):
        wdbc()


def test_standardize_and_intercept() -> None:
    X = np.array([[1.0, 7.0], [3.0, 7.0]])
    np.testing.assert_array_equal(standardize(X), [[-1, 0], [1, 0]])
    np.testing.assert_array_equal(standardize(np.array([[5.0, 8.0]]), like=X), [[3, 1]])
    np.testing.assert_array_equal(with_intercept(X), [[1, 7, 1], [3, 7, 1]])


def test_select_keeps_rows_together() -> None:
    table = Table(np.arange(6.0).reshape(3, 2), np.array([0, 1, 0]), ("a", "b"), group=np.array([1, 0, 0]))
    part = table.select([2, 0])
    assert part.X.tolist() == [[4, 5], [0, 1]]
    assert part.y.tolist() == [0, 0]
    assert part.group is not None
    assert part.group.tolist() == [0, 1]
