"""`fedpact bench vertical`: the attack against matrices that are formed, and rows of the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vertical_cases import matrix, small

import fedpact as fp
from fedpact_experiments.bench.people import crowd
from fedpact_experiments.bench.vertical import measure
from fedpact_experiments.bench.vertical_attack import Watched, attack, nystroem_error

pytest.importorskip("cryptography")


def test_the_error_is_that_of_the_matrices_themselves() -> None:
    """Random vectors measure the norm of the difference to a few per cent."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 5))
    K = X @ X.T
    R = rng.normal(size=(80, 3))  # too few to see all of K
    B = K @ R
    found = B @ np.linalg.inv(R.T @ B) @ B.T
    expected = np.linalg.norm(found - K) / np.linalg.norm(K)
    assert nystroem_error(B, R.T @ B, X) == pytest.approx(expected, rel=0.3)
    R = rng.normal(size=(80, 6))
    assert nystroem_error(K @ R, R.T @ K @ R, X) < 1e-12


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("vertical-exact", {}),
        ("vertical-al", {"tol": 1e-7}),
        ("fair-vfl", {"eta": 0.5, "dual_step": 0.5, "max_rounds": 80}),
        ("fair-vfl", {"eta": 0.5, "dual_step": 0.5, "max_rounds": 80, "asynchronous": True}),
    ],
    ids=["exact", "al", "fair-vfl", "any party"],
)
def test_every_method_tells_the_inner_products(method: str, options: dict[str, float]) -> None:
    asked = small()
    with Watched(secure_sum=not options.get("asynchronous")) as session:
        fp.solve(asked, method, session=session, **options)
    assert attack(method, asked, session.seen) < 1e-3


def test_a_row_of_the_table(data_folder: Path) -> None:
    row = measure("COMPAS", "vertical-exact", 1, str(data_folder))
    assert row.status == "solved"
    assert row.exchanges <= 8
    assert row.certificate < 1e-9
    assert row.gram is not None
    assert row.gram < 1e-12


def test_crowds_have_an_active_gap() -> None:
    asked = crowd(400)
    assert len(asked.shares) == 6
    X, _ = matrix(asked)
    assert X.shape == (400, 61)
