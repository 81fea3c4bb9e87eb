"""Logistic and softmax regression and the fair game: formulas, convexity, and answers of independent solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from raising import raises_code
from scipy.optimize import minimize

import fedpact as fp
from fedpact.problem import MinimaxProblem
from fedpact.tasks import (
    VotedLoss,
    class_accuracies,
    fair_classification,
    fair_classification_share,
    logistic_regression,
    logistic_regression_share,
    softmax_regression,
    softmax_regression_share,
    worst_class_accuracy,
)

rng = np.random.default_rng(3)
Owners = dict[str, tuple[Any, Any]]


def two_classes(n: int = 3, rows: int = 20, d: int = 4) -> Owners:
    return {f"o{i}": (rng.standard_normal((rows + i, d)), np.arange(rows + i) % 2) for i in range(n)}


def three_classes(n: int = 3, rows: int = 15, d: int = 3) -> Owners:
    """Owner i has class i more often than the others, and its rows are shifted."""
    owners = {}
    for i in range(n):
        y = np.where(np.arange(rows) % 3 == 0, np.arange(rows) // 3 % 3, i % 3)
        owners[f"o{i}"] = (rng.standard_normal((rows, d)) + np.eye(3, d)[y] + 0.3 * i, y)
    return owners


def total(problem: fp.FederatedProblem, w: Any) -> float:
    return sum(share.objective.value(w) for share in problem.shares if share.objective)


def test_logistic_regression_is_the_formula() -> None:
    owners, w = two_classes(), rng.standard_normal(4)
    problem = logistic_regression(owners, 0.1)
    losses = [np.mean(np.log1p(np.exp(X @ w)) - y * (X @ w)) for X, y in owners.values()]
    assert total(problem, w) == pytest.approx(np.mean(losses) + 0.05 * w @ w)
    assert total(logistic_regression(owners), w) == pytest.approx(np.mean(losses))
    assert problem.names == tuple(owners)


def test_labels_of_minus_one_and_sparse_rows_are_the_same_problem() -> None:
    owners, w = two_classes(), rng.standard_normal(4)
    signed = {name: (sp.csr_array(X), 2 * y - 1) for name, (X, y) in owners.items()}
    plain, other = logistic_regression(owners, 0.1), logistic_regression(signed, 0.1)
    assert total(plain, w) == pytest.approx(total(other, w))
    for one, two in zip(plain.shares, other.shares, strict=True):
        assert one.objective is not None
        assert two.objective is not None
        np.testing.assert_allclose(one.objective.hessian(w), two.objective.hessian(w), atol=1e-12)


def test_softmax_regression_is_the_formula() -> None:
    owners, w = three_classes(), rng.standard_normal(9)
    problem = softmax_regression(owners, weight=0.1)
    losses = []
    for X, y in owners.values():
        scores = X @ w.reshape(3, 3).T
        losses.append(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]))
    assert total(problem, w) == pytest.approx(np.mean(losses) + 0.05 * w @ w)


def test_both_regressions_solve_to_the_optimum_of_scipy() -> None:
    for problem, dim in (
        (logistic_regression(two_classes(), 0.1), 4),
        (softmax_regression(three_classes(), 3, 0.1), 9),
    ):
        reference = minimize(lambda w, problem=problem: total(problem, w), np.zeros(dim), tol=1e-12)
        answer = fp.solve(problem, "ifeddr", tol=1e-6)
        assert answer.solved
        assert answer.objective == pytest.approx(reference.fun, abs=1e-8)


def test_a_regression_share_made_at_the_owner_is_the_same() -> None:
    (X, y), (Z, c), w = two_classes(1)["o0"], three_classes(1)["o0"], rng.standard_normal(4)
    alone = logistic_regression_share(X, y, weight=0.1, owners=1, name="a")
    assert alone.objective is not None
    assert alone.objective.value(w) == total(logistic_regression({"a": (X, y)}, 0.1), w)
    several = softmax_regression_share(Z, c, classes=3, weight=0.1, owners=1, name="a")
    assert several.objective is not None
    long = rng.standard_normal(9)
    assert several.objective.value(long) == total(softmax_regression({"a": (Z, c)}, 3, 0.1), long)
    voted = fair_classification_share(Z, c, classes=3, own=0, owners=1, name="a")
    inside = fair_classification({"a": (Z, c)}, 3).shares[0]
    assert voted.objective is not None
    assert inside.objective is not None
    x = rng.standard_normal(10)
    np.testing.assert_array_equal(voted.objective.gradient(x), inside.objective.gradient(x))


def test_regression_errors_name_the_owner() -> None:
    X, y = np.ones((2, 2)), np.array([0, 1])
    with raises_code("FP-DATA-045", "owner 'a'", "label has 1 ", "first is 2"):
        logistic_regression({"a": (X, [0, 2])})
    with raises_code("FP-DATA-048", "owner 'b'", "3 columns", "owner 'a' has 2"):
        logistic_regression({"a": (X, y), "b": (np.ones((2, 3)), y)})
    with raises_code("FP-DATA-044", "owner 'a'", "has 1 "):
        logistic_regression({"a": (sp.csr_array([[np.nan, 1], [0, 1]]), y)})
    with raises_code("FP-DATA-045", "owner 'a'", "label has 1 ", "0 to 1"):
        softmax_regression({"a": (X, [0, 2])}, 2)
    with raises_code("FP-DATA-052", "owner 'a'", "label", "(3,)", "2 rows"):
        softmax_regression({"a": (X, [0, 1, 1])})
    with raises_code("FP-OPTION-033", "weight is -1"):
        logistic_regression({"a": (X, y)}, -1)
    with raises_code("FP-DATA-049", ""):
        fair_classification({})
    with raises_code("FP-OPTION-057", "penalty = 0"):
        fair_classification({"a": (X, y)}, penalty=0)
    with raises_code("FP-OPTION-033", "smoothing is -1"):
        fair_classification({"a": (X, y)}, smoothing=-1)


# ------------------------------------------------------------------------------------------------------- the fair game


def saddles(problem: MinimaxProblem) -> list[VotedLoss]:
    return [share.objective for share in problem.shares if isinstance(share.objective, VotedLoss)]


def points(function: VotedLoss) -> list[Any]:
    """Some with the own vote far below zero, where the plain product would be concave in u."""
    drawn = [scale * rng.standard_normal(function.dim or 0) for scale in (0.1, 1, 3) for _ in range(6)]
    for x, vote in zip(drawn, 3 * [-2.0, -0.01, 0.0, 0.02, 1.0, 5.0], strict=True):
        x[function.split + function.own] = vote
    return drawn


def test_the_votes_maximise_as_stated() -> None:
    """f_i against a maximisation over w by brute force, of the formula in the docstring."""
    function = saddles(fair_classification(three_classes(), 3, weight=0.0, smoothing=0.0, penalty=5.0))[1]
    grid = np.linspace(0, 20, 200_001)
    for x in points(function):
        u, v = x[:9], x[9:]
        loss = function.loss.value(u)
        brute = np.max(grid * loss - 2.5 * (grid - v[1]) ** 2)
        assert 3 * function.value(x) == pytest.approx(brute, abs=1e-6)
        assert function.vote(u, v) == pytest.approx(max(v[1] + loss / 5, 0))


def test_the_game_is_monotone_everywhere_and_the_plain_product_is_not() -> None:
    for function in saddles(fair_classification(three_classes(), 3)):
        for x in points(function):
            for y in points(function):
                slack = (function.gradient(x) - function.gradient(y)) @ (x - y)
                assert slack >= 0
            jacobian = function.hessian(x)
            assert np.linalg.eigvalsh(jacobian + jacobian.T)[0] >= 0
    loss = saddles(fair_classification(three_classes(), 3))[0].loss
    assert np.linalg.eigvalsh(-1.0 * loss.hessian(np.zeros(9)))[0] < 0  # v_i = -1


def test_gradients_and_jacobians_of_the_game() -> None:
    for function in saddles(fair_classification(three_classes(), 3, weight=0.1, smoothing=0.5, penalty=7.0)):
        for x in points(function):
            steps = 1e-6 * np.eye(x.size)
            slope = np.array([(function.value(x + e) - function.value(x - e)) / 2e-6 for e in steps])
            slope[function.split :] *= -1
            np.testing.assert_allclose(function.gradient(x), slope, atol=1e-6)
            columns = [(function.gradient(x + e) - function.gradient(x - e)) / 2e-6 for e in steps]
            if abs(function.vote(x[:9], x[9:])) > 1e-4:  # away from the kink
                np.testing.assert_allclose(function.hessian(x), np.column_stack(columns), atol=1e-5)
            v = rng.standard_normal(x.size)
            np.testing.assert_allclose(function.hessian_product(x, v), function.hessian(x) @ v, atol=1e-12)


def test_the_fair_model_is_the_minimum_of_the_largest_weighted_loss() -> None:
    """Against scipy on u alone, with the maximum over the votes in closed form for few owners: by bisection."""
    owners = three_classes()
    problem = fair_classification(owners, 3, weight=0.05, smoothing=0.3, penalty=1e4)
    answer = fp.solve(problem, tol=1e-7)
    assert answer.solved
    assert answer.method == "monotone-newton"
    losses = [function.loss for function in saddles(problem)]

    def voted(u: Any) -> float:
        """max over the simplex of mean v_i l_i - smoothing/(2 n) |v|^2: v = max((l - t) / smoothing, 0), sum n."""
        values = np.array([loss.value(u) for loss in losses])
        low, high = values.min() - 1.0, values.max()
        for _ in range(100):
            t = (low + high) / 2
            low, high = (t, high) if np.maximum(values - t, 0).sum() / 0.3 > 3 else (low, t)
        v = np.maximum(values - low, 0) / 0.3
        return float(np.mean(v * values) - 0.05 * (v @ v) + 0.025 * (u @ u))

    reference = minimize(
        voted, answer.w[:9], method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12, "maxfev": 9000}
    )
    assert voted(answer.w[:9]) == pytest.approx(reference.fun, abs=1e-4)
    votes = answer.w[9:]
    assert votes.sum() == pytest.approx(3)
    assert votes.min() >= 0
    values = np.array([loss.value(answer.w[:9]) for loss in losses])
    assert np.argmax(votes) == np.argmax(values)  # the worst owner has the largest vote
    average = fp.solve(softmax_regression(owners, 3, 0.05), "ifeddr", tol=1e-7).w
    assert values.max() < max(loss.value(average) for loss in losses)


def test_accuracies_by_class() -> None:
    X, y = np.array([[1.0, 0], [0, 1], [0, 1], [1, 0]]), np.array([0, 1, 0, 0])
    w = np.array([1.0, 0, 0, 1, -9, -9])
    np.testing.assert_allclose(class_accuracies(w, X, y, 3), [2 / 3, 1, np.nan])
    assert worst_class_accuracy(np.append(w, [1.0, 1.0]), sp.csr_array(X), y, 3) == pytest.approx(2 / 3)


def test_a_bound_may_be_of_some_owners_only() -> None:
    draw = np.random.default_rng(0)
    owners = {}
    for k, name in enumerate(("north", "south")):
        X = draw.standard_normal((80, 2))
        owners[name] = fp.tasks.Rows(X, X @ [1.0, (-1.0) ** k] + draw.standard_normal(80))
    free = fp.fit(fp.tasks.Regression(label="y", columns=("a", "b")), owners)
    limit = float(free.measures["north"]["mean loss"]) - 0.1
    found = fp.fit(fp.tasks.Regression(label="y", columns=("a", "b"), max_loss={"north": limit}), owners)
    assert found.solved
    assert found.measures["north"]["mean loss"] == pytest.approx(limit, abs=1e-4)
    assert [price.size for price in found.solution.multipliers] == [0, 1, 0]
    assert "at north" in found.task.sentence()
    with raises_code("FP-OPTION-032", "max_loss", "nroth"):
        fp.fit(fp.tasks.Regression(label="y", columns=("a", "b"), max_loss={"nroth": limit}), owners)
