"""Wider vertical models: several attributes, bounded losses of a class, losses of one's own, cones of scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from raising import raises_code
from scipy.optimize import minimize
from vertical_cases import CUTS, assert_certified, rows

import fedpact as fp
from fedpact.functions import Affine, ScoredMean

TABLE = rows(1)
N = len(TABLE.y)
PARTIES = {name: TABLE.X[:, cut] for name, cut in CUTS.items()}
DESIGN = np.column_stack([TABLE.X, np.ones(N)])
SIGN = 2 * TABLE.y - 1
WEIGHT = 0.1
OTHER = np.where(TABLE.X[:, 0] + TABLE.X[:, 5] > 0, "old", "young")
METHODS = ["vertical-al", "vertical-exact"]


def asked(**options: Any) -> fp.VerticalProblem:
    return fp.VerticalProblem(PARTIES, TABLE.y, regularizer=fp.prox.SquaredL2(WEIGHT), **options)


def losses(w: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, -SIGN * (DESIGN @ w))


def objective(w: np.ndarray) -> float:
    return float(losses(w).mean() + 0.5 * WEIGHT * w[:-1] @ w[:-1])


def by_scipy(*bounds: Any, value: Any = objective) -> np.ndarray:
    """SLSQP on pooled columns; every bound is a function that shall be at least zero."""
    constraints = [{"type": "ineq", "fun": bound} for bound in bounds]
    options = {"ftol": 1e-14, "maxiter": 500}
    found = minimize(value, np.zeros(9), method="SLSQP", constraints=constraints, options=options)
    assert found.success
    return np.asarray(found.x)


def solve(problem: fp.VerticalProblem, method: str) -> fp.Solution:
    found = fp.solve(problem, method, tol=1e-7)
    assert found.solved, found.reason
    assert_certified(problem, found)
    return found


def mean_gap(w: np.ndarray, group: np.ndarray) -> float:
    first, second = (losses(w)[(TABLE.y == 1) & (group == g)].mean() for g in np.unique(group))
    return float(first - second)


@pytest.mark.parametrize("method", [*METHODS, "fair-vfl"])
def test_several_protected_attributes_at_once(method: str) -> None:
    groups = {"sex": TABLE.group, "age": OTHER}
    problem = asked(group=groups, max_gap=[0.02, 0.05])
    assert problem.gap_names == ("sex: 0 - 1, y = 1", "age: old - young, y = 1")
    bounds = [
        lambda w: 0.02 - abs(mean_gap(w, TABLE.group)),
        lambda w: 0.05 - abs(mean_gap(w, OTHER)),
    ]
    expected = by_scipy(*bounds)
    assert min(bound(expected) for bound in bounds) < 1e-8  # one is active
    if method == "fair-vfl":
        found = fp.solve(problem, method, tol=5e-3)
        assert found.solved
        assert found.objective == pytest.approx(objective(expected), rel=0.02)
        return
    assert objective(solve(problem, method).w) == pytest.approx(objective(expected), rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_the_mean_loss_of_a_class_is_bounded(method: str) -> None:
    """Neyman-Pearson: least loss with that of the positives at most 0.2, which binds, and of the others, which not."""
    problem = asked(max_loss={1: 0.2, 0: 5.0})
    assert problem.gap_names == ("loss, y = 1", "loss, y = 0")
    assert problem.convex
    expected = by_scipy(lambda w: 0.2 - losses(w)[TABLE.y == 1].mean())
    found = solve(problem, method)
    np.testing.assert_allclose(found.w, expected, atol=1e-4)
    assert losses(found.w)[TABLE.y == 1].mean() == pytest.approx(0.2, abs=1e-6)
    price, other = found.multipliers[0]
    assert price > 0.01
    assert other == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_gaps_and_losses_together(method: str) -> None:
    problem = asked(group=TABLE.group, max_gap=0.05, max_loss={1: 0.25})
    expected = by_scipy(lambda w: 0.25 - losses(w)[TABLE.y == 1].mean(), lambda w: 0.05 - abs(mean_gap(w, TABLE.group)))
    assert objective(solve(problem, method).w) == pytest.approx(objective(expected), rel=1e-6)


class LogCosh(ScoredMean):
    """log cosh(s - y): a loss of one's own."""

    convex = True

    def _losses(self, score: np.ndarray) -> np.ndarray:
        return np.logaddexp(score - self.y, self.y - score) - np.log(2)

    def _slopes(self, score: np.ndarray) -> np.ndarray:
        return np.tanh(score - self.y)

    def _curvatures(self, score: np.ndarray) -> np.ndarray:
        return 1 - np.tanh(score - self.y) ** 2

    def _label_defect(self) -> str | None:
        return None


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_of_ones_own(method: str) -> None:
    target = TABLE.X @ np.arange(8.0) / 10 + TABLE.group

    def value(w: np.ndarray) -> float:
        apart = DESIGN @ w - target
        return float(np.mean(np.log(np.cosh(apart))) + 0.5 * WEIGHT * w[:-1] @ w[:-1])

    problem = fp.VerticalProblem(PARTIES, target, loss=LogCosh, gap="all", regularizer=fp.prox.SquaredL2(WEIGHT))
    np.testing.assert_allclose(solve(problem, method).w, by_scipy(value=value), atol=1e-4)
    with raises_code("FP-OPTION-110", 'method "fair-vfl"', "vertical-exact"):
        fp.solve(problem, "fair-vfl")


@pytest.mark.parametrize("loss", ["huber", "poisson"])
def test_losses_that_have_a_name(loss: Any) -> None:
    target = np.round(np.exp(0.3 * TABLE.X[:, 0])) if loss == "poisson" else TABLE.X[:, 0] + TABLE.group
    problem = fp.VerticalProblem(PARTIES, target, loss=loss, gap="all", regularizer=fp.prox.SquaredL2(WEIGHT))
    exact, other = (solve(problem, method) for method in METHODS[::-1])
    np.testing.assert_allclose(exact.w, other.w, atol=1e-4)


def test_a_second_order_cone_of_scores() -> None:
    """|mean scores of the two groups| <= 0.1, in the Euclidean norm: only the exact method takes it."""
    means = np.stack([(g == TABLE.group) / np.sum(g == TABLE.group) for g in (0, 1)])
    cone = fp.cones.SecondOrder(3)
    bound = fp.Constraint(Affine(np.vstack([np.zeros(N), -means]), [-0.1, 0.0, 0.0]), cone)
    problem = asked(constraints=[bound])
    expected = by_scipy(lambda w: 0.1 - np.linalg.norm(means @ DESIGN @ w))
    found = solve(problem, "vertical-exact")
    np.testing.assert_allclose(found.w, expected, atol=1e-4)
    assert np.linalg.norm(means @ DESIGN @ found.w) == pytest.approx(0.1, abs=1e-6)  # it is active
    with raises_code("FP-OPTION-110", 'method "vertical-al"', "vertical-exact"):
        fp.solve(problem, "vertical-al")
    chosen = fp.solve(problem, tol=1e-6)
    assert chosen.method == "vertical-exact"
    assert any("auto chose vertical-exact" in note for note in chosen.history.notes)


def test_a_curved_constraint_on_scores_beside_a_gap() -> None:
    """The mean square of the scores is at most 1: a map with a Hessian, of which only products are needed."""
    square = fp.functions.as_map(fp.functions.SquaredLoss(np.eye(N), np.zeros(N)) - 0.5)
    problem = asked(group=TABLE.group, max_gap=0.05, constraints=[fp.Constraint(square, fp.cones.Nonnegative(1))])
    expected = by_scipy(
        lambda w: 0.5 - 0.5 * np.mean((DESIGN @ w) ** 2), lambda w: 0.05 - abs(mean_gap(w, TABLE.group))
    )
    found = solve(problem, "vertical-exact")
    assert objective(found.w) == pytest.approx(objective(expected), rel=1e-6)
    assert found.multipliers[0].size == 3


@pytest.mark.parametrize(
    ("options", "code", "fact"),
    [
        ({"max_loss": {2: 0.1}}, "FP-PROBLEM-147", "max_loss: 2"),
        ({"max_loss": {1: -0.1}}, "FP-PROBLEM-147", "max_loss: 1"),
        ({"constraints": [3]}, "FP-PROBLEM-142", "constraints: number 1"),
        (
            {"constraints": [fp.Constraint(Affine(np.ones((1, 3))), fp.cones.Nonnegative(1))]},
            "FP-PROBLEM-143",
            "constraints: number 1 takes 3",
        ),
        (
            {"constraints": [fp.Constraint(Affine(np.ones((1, N))), fp.cones.Nonnegative(2))]},
            "FP-PROBLEM-144",
            "constraints: number 1 gives 1",
        ),
        (
            {"group": TABLE.group, "max_gap": 0.1, "pairs": {"sex": [(0, 1)]}},
            "FP-PROBLEM-145",
            "pairs",
        ),
        (
            {"group": {"sex": TABLE.group}, "max_gap": 0.1, "pairs": {"age": [(0, 1)]}},
            "FP-PROBLEM-146",
            "pairs",
        ),
        ({"group": {"sex": np.zeros(N)}, "max_gap": 0.1}, "FP-DATA-115", "sex"),
    ],
)
def test_what_cannot_be_asked(options: dict[str, Any], code: str, fact: str) -> None:
    with raises_code(code, fact):
        asked(**options)


def test_a_class_without_rows_has_no_mean_loss() -> None:
    with raises_code("FP-DATA-120", "max_loss"):
        fp.VerticalProblem(PARTIES, np.ones(N), max_loss={0: 0.1})
