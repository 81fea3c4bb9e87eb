"""l1 and the weights of owners in tasks of classification, beside CVXPY on the pooled rows and plain formulas."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import fedpact as fp
from fedpact.fitting import fit
from fedpact.tasks import NeymanPearson, Rows

COLUMNS = ("a", "b", "c")


def made() -> dict[str, Rows]:
    rng = np.random.default_rng(4)
    owners = {}
    for name, size in (("north", 40), ("south", 70), ("west", 110)):
        X = rng.normal(size=(size, 3))
        y = (X @ [1.5, -0.5, 0.05] + rng.logistic(size=size) > 0).astype(int)
        owners[name] = Rows(X, y)
    return owners


OWNERS = made()


def loss(rows: Rows, inside: np.ndarray, v: cp.Variable, c: cp.Variable) -> cp.Expression:
    sign = 2 * rows.y[inside] - 1
    return cp.sum(cp.logistic(-cp.multiply(sign, rows.X[inside] @ v + c))) / inside.sum()


@pytest.mark.parametrize("l2", [0.0, 0.02])
@pytest.mark.parametrize(
    ("stated", "weights"),
    [("rows", [40 / 220, 70 / 220, 110 / 220]), ({"north": 3, "south": 1, "west": 1}, [0.6, 0.2, 0.2])],
)
def test_a_sparse_classifier_under_a_constraint(stated: Any, weights: list[float], l2: float) -> None:
    about: dict[str, Any] = {"columns": COLUMNS, "label": "y", "bound": 0.45, "l1": 0.03, "regularization": l2}
    found = fit(NeymanPearson(owners=3, owners_weigh=stated, **about), OWNERS, tol=1e-9)
    assert found.solved, found.solution.reason
    v, c = cp.Variable(3), cp.Variable()
    others = [loss(rows, rows.y == 0, v, c) for rows in OWNERS.values()]
    limits = [loss(rows, rows.y == 1, v, c) <= 0.45 for rows in OWNERS.values()]
    penalty = 0.03 * cp.norm1(v) + l2 / 2 * cp.sum_squares(v)
    problem = cp.Problem(cp.Minimize(sum(w * one for w, one in zip(weights, others, strict=True)) + penalty), limits)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    np.testing.assert_allclose(found.solution.w, np.append(v.value, c.value), atol=1e-6)
    assert found.solution.objective == pytest.approx(problem.value, rel=1e-7)
    prices = [float(np.squeeze(one.dual_value)) for one in limits]
    np.testing.assert_allclose(np.concatenate(found.solution.multipliers[1:]), prices, rtol=1e-4, atol=1e-6)
    assert max(prices) > 0.1


def test_the_weights_of_all_owners_sum_to_one() -> None:
    for stated, total in (("equal", 0.0), ("rows", 220.0), ({"north": 3, "south": 1, "west": 1}, 0.0)):
        task = NeymanPearson(columns=COLUMNS, bound=0.4, owners=3, owners_weigh=stated, total_rows=total)
        assert sum(task.weight_of(name, rows) for name, rows in OWNERS.items()) == pytest.approx(1.0, rel=1e-14)


@pytest.mark.parametrize("classes", [2, 3])
def test_intercepts_are_free_of_both_penalties(classes: int) -> None:
    levels = tuple(map(str, range(classes)))
    task = NeymanPearson(columns=COLUMNS, bound=0.4, classes=levels, l1=0.3, regularization=0.2)
    h = task.regularizer()
    assert isinstance(h, fp.prox.ElasticNet)
    scores = 1 if classes == 2 else classes
    w = np.tile([1.0, -2.0, 0.5, 100.0], scores)
    assert h.value(w) == pytest.approx(scores * (0.3 * 3.5 + 0.1 * 5.25), rel=1e-12)
