"""What method="auto" takes, and that it says why."""

from __future__ import annotations

import numpy as np

import fedpact as fp
from fedpact.preparation import LARGEST_MESSAGE, choose

QUADRATIC = fp.functions.Quadratic(np.eye(3), np.ones(3))


def test_tables_go_to_the_interior_point() -> None:
    told: list[fp.solvers.Progress] = []
    answer = fp.solve(fp.FederatedProblem([fp.Share(QUADRATIC)]), callbacks=[told.append])
    assert answer.method == "interior-point"
    assert answer.solved
    assert answer.history.notes == [f"auto chose interior-point: {told[0].choice}"]
    assert told[0].choice == "Hessians exist, and a matrix of 3 variables is 4.8e-05 MB a message"


def test_functions_without_a_hessian_go_to_the_accelerated_method() -> None:
    def bowl(w: np.ndarray) -> tuple[float, np.ndarray]:
        return float(w @ w), 2 * w

    problem = fp.FederatedProblem([fp.Share(QUADRATIC), fp.Share(fp.functions.Smooth(bowl, dim=3), name="north")])
    answer = fp.solve(problem, tol=1e-6)
    assert answer.method == "accelerated"
    assert answer.solved
    assert answer.history.notes[0].startswith("auto chose accelerated: interior-point needs Hessians")
    assert "north" in answer.history.notes[0]
    np.testing.assert_allclose(answer.w, -np.ones(3) / 3, atol=1e-6)


class Other(fp.cones.Exponential):
    has_interior = False


def test_cones_whose_interior_is_known_go_to_interior_point_and_others_to_the_accelerated_method() -> None:
    methods = []
    for kind in (fp.cones.Exponential, Other):
        cone = fp.Constraint(fp.functions.Affine(-np.eye(3), [0.0, -1.0, 0.0]), kind())
        method, why = choose(fp.FederatedProblem([fp.Share(QUADRATIC, cone)]), 3)
        methods.append(method)
    assert methods == ["interior-point", "accelerated"]
    assert "client 1 has the cone Other" in why  # and the user is told


def test_many_variables_go_to_the_accelerated_method() -> None:
    problem = fp.FederatedProblem([fp.Share(QUADRATIC)])
    largest = int(np.sqrt(LARGEST_MESSAGE / 4)) - 1
    assert choose(problem, largest)[0] == "interior-point"
    method, why = choose(problem, largest + 1)
    assert method == "accelerated"
    assert why == f"a matrix of {largest + 1} variables is 4 MB a message, more than 4"


def test_counted_rates_go_to_minibatches() -> None:
    X = np.random.default_rng(0).standard_normal((40, 3))
    y = (X[:, 0] > 0).astype(float)
    recall = fp.functions.CountedRates(X, [-y / y.sum()], [0.8])
    bounded = fp.Constraint(recall, fp.cones.Nonnegative(1))
    answer = fp.solve(fp.FederatedProblem([fp.Share(fp.functions.LogisticLoss(X, y), bounded)]))
    assert answer.method == "stochastic-al"
    assert answer.history.notes[0].startswith("auto chose stochastic-al: ")
    assert np.mean(X[y == 1] @ answer.w > 0) >= 0.8


def test_a_named_method_needs_no_reason() -> None:
    answer = fp.solve(fp.FederatedProblem([fp.Share(QUADRATIC)]), "interior-point")
    assert answer.history.notes == []
