"""Problems that are odd but legal end with a status or a refusal in words, whatever the method."""

from __future__ import annotations

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact import tasks
from fedpact.cones import Nonnegative, Zero
from fedpact.federation import Session
from fedpact.functions import Affine, PoissonLoss, Quadratic
from fedpact.solvers import METHODS


@pytest.mark.parametrize("seed", range(4))
def test_a_box_without_bounds_bounds_nothing(seed: int) -> None:
    """The model of a Newton step then has no row that could bind."""
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((1, 3))
    limit = fp.Constraint(Affine(normal, [-0.5]), Nonnegative(1))
    root = rng.standard_normal((3, 3))
    slope = rng.standard_normal(3)
    flat = Quadratic(np.zeros((3, 3)), -normal[0])
    free = fp.prox.Box(-np.inf, np.inf)
    least = fp.solve(fp.FederatedProblem([fp.Share(flat, limit)], regularizer=free), tol=1e-6)
    assert least.status == "solved"
    assert least.objective == pytest.approx(-0.5, abs=1e-5)
    curved = [fp.Share(Quadratic(root.T @ root + np.eye(3), slope), limit)]
    boxed = fp.solve(fp.FederatedProblem(curved, regularizer=free), tol=1e-8)
    plain = fp.solve(fp.FederatedProblem(curved), tol=1e-8)
    assert boxed.solved
    np.testing.assert_allclose(boxed.w, plain.w, atol=1e-6)


def test_minibatches_refuse_coupled_constraints_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Affine([[1.0, 1.0]], [-0.3])
    shares = [fp.Share(Quadratic(np.eye(2), [-3.0, -1.0]), coupled=part) for _ in range(2)]
    monkeypatch.setattr(Session, "ask", None)
    with raises_code("FP-OPTION-110", 'method "stochastic-al" takes no coupled constraint'):
        fp.solve(fp.FederatedProblem(shares), "stochastic-al")


def test_all_other_methods_with_constraints_take_coupled_ones() -> None:
    part = Affine([[1.0, 1.0]], [-0.3])
    shares = [fp.Share(Quadratic(np.eye(2), [-3.0, -1.0]), coupled=part) for _ in range(2)]
    taking = [name for name, kind in METHODS.items() if kind.needs.constraints and kind.needs.slacks]
    assert len(taking) >= 5
    for name in taking:
        assert fp.solve(fp.FederatedProblem(shares), name).status in ("solved", "max_rounds"), name


def test_a_feasible_set_so_far_out_that_numbers_overflow_ends_as_a_status() -> None:
    """exp(-w) at w = -10,000, which an equality asks for: a rescue finds that point, and cannot start there."""
    shares = [
        fp.Share(PoissonLoss([[-1.0]], [0.0]), fp.Constraint(Affine([[1e-4]], [1.0]), Zero(1))),
        fp.Share(Quadratic([[1.0]])),
    ]
    found = fp.solve(fp.FederatedProblem(shares), max_rounds=400)
    assert found.status in ("stalled", "max_rounds")
    assert np.isfinite(found.certificate.worst)


@pytest.mark.parametrize("kind", ["specificity", "recall", "false_positive_rate"])
def test_own_intercepts_go_with_the_loss_of_all_rows(kind: str) -> None:
    owners = {}
    rng = np.random.default_rng(0)
    for k in range(3):
        X = rng.standard_normal((100, 3))
        y = (X[:, 0] + rng.logistic(size=100) - k / 2 > 0).astype(int)
        owners[f"o{k}"] = tasks.Rows.of(X, y)
    bound = {"at_most": 0.2} if kind == "false_positive_rate" else {"at_least": 0.8}
    task = tasks.Classification(
        label="y",
        columns=("a", "b", "c"),
        constraints=(tasks.Requirement(kind=kind, **bound),),
        own_intercept=True,
        objective="loss",
    )
    found = fp.fit(task, owners)
    assert found.solved
    assert found.missed == 0
