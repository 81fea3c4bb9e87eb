"""Separated data: the fit says which column, or which level of a category, does it."""

from __future__ import annotations

import numpy as np
import pytest

import fedpact as fp
from fedpact.tasks import Regression, Rows

OWNER = np.repeat(range(3), [60, 80, 50])
COLUMNS = ("dose", "age", "ward=north", "ward=south", "ward=west")


def task_of(family: str, **more: object) -> Regression:
    about = {"standardize": True, "regularization": 0.0, "owners_weigh": "rows", **more}
    return Regression(label="(y)", columns=COLUMNS, family=family, **about)  # type: ignore[arg-type]


def table(family: str) -> tuple[np.ndarray, np.ndarray]:
    """Everybody in the south ward is positive, or has no event: the commonest separation."""
    draw = np.random.default_rng(3)
    ward = draw.integers(0, 4, OWNER.size)
    dose, age = draw.standard_normal((2, OWNER.size))
    X = np.column_stack([dose, 50 + 9 * age, ward == 1, ward == 2, ward == 3]).astype(float)
    score = 0.7 * dose - 0.4 * age
    if family == "poisson":
        y = draw.poisson(np.exp(score / 2)).astype(float)
        y[ward == 2] = 0.0
        return X, y
    y = (draw.random(OWNER.size) < 1 / (1 + np.exp(-score))).astype(float)
    y[ward == 2] = 1.0
    return X, y


def held(X: np.ndarray, y: np.ndarray) -> dict[str, Rows]:
    return {f"clinic {i}": Rows(X[i == OWNER], y[i == OWNER]) for i in range(3)}


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_the_level_that_separates_is_named(family: str, tol: float) -> None:
    found = fp.fit(task_of(family), held(*table(family)), tol=tol, compare=False)
    assert found.solution.status == "unbounded"
    assert found.solution.reason.startswith("the column ward=south: ")
    assert "dose" not in found.solution.reason
    assert "regularization" in found.solution.reason


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_a_penalty_and_rows_of_both_kinds_have_a_model(family: str) -> None:
    X, y = table(family)
    assert fp.fit(task_of(family, regularization=0.001), held(X, y), compare=False).solved
    y[np.flatnonzero(X[:, 3])[:2]] = 0.0 if family == "logistic" else 1.0
    assert fp.fit(task_of(family), held(X, y), tol=1e-6, compare=False).solved


def test_a_column_that_separates_all_rows_is_named_first() -> None:
    X, _ = table("logistic")
    y = (X[:, 0] > 0).astype(float)
    found = fp.fit(task_of("logistic"), held(X, y), compare=False)
    assert found.solution.status == "unbounded"
    assert "dose" in found.solution.reason.split(":")[0]
