from __future__ import annotations

import cvxpy as cp
import numpy as np
from raising import raises_code

from fedpact.data import lcqp, neyman_pearson


def test_lcqp_has_the_printed_distribution() -> None:
    A, b, C, d = lcqp(n=3, d=200, m=2, seed=5)
    assert (A.shape, b.shape, C.shape, d.shape) == ((3, 200, 200), (3, 200), (4, 2, 200), (4, 2))
    np.testing.assert_array_equal(A, A.transpose(0, 2, 1))
    eigenvalues = np.linalg.eigvalsh(A)
    assert eigenvalues.min() >= 0.5 - 1e-12
    assert eigenvalues.max() <= 1 + 1e-12
    assert abs(eigenvalues.mean() - 0.75) < 0.02
    np.testing.assert_allclose(np.linalg.norm(b, axis=1), 1)
    np.testing.assert_allclose(np.linalg.norm(d, axis=1), [0, 1, 1, 1])
    assert abs(C.std() * np.sqrt(200) - 1) < 0.1


def test_lcqp_conic_variant() -> None:
    A, b, C, d = lcqp(n=2, d=300, m=3, seed=5, variant="he24-conic")
    eigenvalues = np.linalg.eigvalsh(A)
    assert eigenvalues.min() >= 5 - 1e-10
    assert eigenvalues.max() <= 10 + 1e-10
    assert abs(eigenvalues.mean() - 7.5) < 0.3
    for array in (b, C):
        assert abs(array.std() - 1) < 0.1
    assert (d[0] != 0).all()


def test_the_seed_decides() -> None:
    for one, same, other in zip(lcqp(2, 10, 1, seed=1), lcqp(2, 10, 1, seed=1), lcqp(2, 10, 1, seed=2), strict=True):
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)
    X, again, other = (neyman_pearson(2, seed=seed)["client 2"][0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(X, again)
    assert not np.array_equal(X, other)


def test_neyman_pearson_owners_differ_and_several_bounds_are_active() -> None:
    owners = neyman_pearson(n=5, seed=1)
    assert list(owners) == [f"client {i}" for i in range(1, 6)]
    for X, y in owners.values():
        assert X.shape == (400, 21)
        assert np.bincount(y).tolist() == [300, 100]
        assert (X[:, -1] == 1).all()
    means = np.array([X[y == 0].mean(axis=0)[:-1] for X, y in owners.values()])
    assert means.std(axis=0).mean() > 0.15  # equal means would give 1 / sqrt(300) = 0.06

    w = cp.Variable(21)
    loss_0 = [cp.sum(cp.logistic(X[y == 0] @ w)) / 300 for X, y in owners.values()]
    bounds = [cp.sum(cp.logistic(-X[y == 1] @ w)) / 100 <= 0.2 for X, y in owners.values()]
    cp.Problem(cp.Minimize(sum(loss_0) / 5), bounds).solve(solver="CLARABEL")
    assert sum(float(bound.dual_value) > 1e-3 for bound in bounds) >= 3


def test_errors() -> None:
    with raises_code("FP-OPTION-451", "n is 0"):
        lcqp(0, 10, 1)
    with raises_code("FP-OPTION-448", "variant is 'he25'", "he24-conic"):
        lcqp(1, 10, 1, variant="he25")  # type: ignore[arg-type]
    with raises_code("FP-OPTION-449", "(n + 1) m = 6", "d = 5"):
        lcqp(2, 5, 2)
    with raises_code("FP-OPTION-451", "d is 1", "at least 2"):
        neyman_pearson(2, d=1)
    with raises_code("FP-OPTION-451", "rows is 0", "at least 4"):
        neyman_pearson(2, rows=0)
