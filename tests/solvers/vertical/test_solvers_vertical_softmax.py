"""Several classes: a score for each, by softmax; against scikit-learn and SLSQP on pooled columns."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from raising import raises_code
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression
from vertical_cases import CUTS, Door, assert_certified, rows

import fedpact as fp
from fedpact.functions import Affine
from fedpact.problem import Piece
from fedpact.solvers.vertical.shared import rows_of, summed_scores
from fedpact.solvers.vertical.vertical_exact_party import Sketch

TABLE = rows(1)
N = len(TABLE.y)
NOISE = np.random.default_rng(5).gumbel(size=(N, 3))
TILTS = np.random.default_rng(6).normal(size=(8, 3))
Y = np.argmax(TABLE.X @ TILTS + NOISE + 1.5 * np.outer(TABLE.group, [1, 0, 0]), axis=1)
PARTIES = {name: TABLE.X[:, cut] for name, cut in CUTS.items()}
DESIGN = np.column_stack([TABLE.X, np.ones(N)])
WEIGHT = 0.05
METHODS = ["vertical-exact", "vertical-al", "fair-vfl"]
TOL = {"vertical-exact": 1e-8, "vertical-al": 1e-8, "fair-vfl": 1e-4}


def asked(*given: Any, **options: Any) -> fp.VerticalProblem:
    return fp.VerticalProblem(
        PARTIES, Y, *given, **{"loss": "softmax", "regularizer": fp.prox.SquaredL2(WEIGHT), **options}
    )


def losses(w: np.ndarray) -> np.ndarray:
    """Of everyone; w lists the coefficients of one class after the other, the intercept last."""
    scores = DESIGN @ w.reshape(3, 9).T
    return logsumexp(scores, axis=1) - scores[np.arange(N), Y]


def objective(w: np.ndarray) -> float:
    return float(losses(w).mean() + 0.5 * WEIGHT * np.sum(w.reshape(3, 9)[:, :-1] ** 2))


def slope(w: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The gradient of sum_i weights_i loss_i."""
    probability = softmax(DESIGN @ w.reshape(3, 9).T, axis=1) - np.eye(3)[Y]
    return ((weights[:, None] * probability).T @ DESIGN).ravel()


def ridge_slope(w: np.ndarray) -> np.ndarray:
    return (WEIGHT * w.reshape(3, 9) * np.append(np.ones(8), 0.0)).ravel()


def mean_weights(counted: np.ndarray) -> np.ndarray:
    return counted / counted.sum()


def gap_weights(counted: np.ndarray) -> np.ndarray:
    return mean_weights(counted & (TABLE.group == 0)) - mean_weights(counted & (TABLE.group == 1))


def by_scipy(bounds: list[tuple[np.ndarray, float]]) -> float:
    """The least objective on pooled columns. bounds: weights, whose product with the losses is at most a number"""
    constraints = [
        {"type": "ineq", "fun": lambda w, v=v, e=e: e - v @ losses(w), "jac": lambda w, v=v: -slope(w, v)}
        for v, e in bounds
    ]
    found = minimize(
        objective,
        np.zeros(27),
        jac=lambda w: slope(w, np.full(N, 1 / N)) + ridge_slope(w),
        method="SLSQP",
        constraints=constraints,
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert found.success
    return float(found.fun)


@pytest.mark.parametrize("method", METHODS)
def test_without_a_gap_it_is_multinomial_regression(method: str) -> None:
    theirs = LogisticRegression(C=1 / (N * WEIGHT), tol=1e-12, max_iter=5000).fit(TABLE.X, Y)
    found = fp.solve(asked(), method, tol=TOL[method])
    assert found.solved
    assert_certified(asked(), found)
    W = found.w.reshape(3, 9)
    np.testing.assert_allclose(W[:, :-1], theirs.coef_, atol=1e-5 if TOL[method] < 1e-6 else 1e-2)
    # Only differences of the intercepts matter.
    intercepts = W[:, -1] - W[:, -1].mean()
    expected = theirs.intercept_ - theirs.intercept_.mean()
    np.testing.assert_allclose(intercepts, expected, atol=1e-5 if TOL[method] < 1e-6 else 1e-2)


@pytest.mark.parametrize(
    ("over", "method"),
    [
        *itertools.product(["all", "positives", "classes"], ["vertical-exact", "vertical-al"]),
        ("all", "fair-vfl"),
    ],
)
def test_a_gap_between_groups_is_bounded_as_by_slsqp(over: Any, method: str) -> None:
    counted = {"all": [Y >= 0], "positives": [Y == 2], "classes": [Y == 2, Y == 1, Y == 0]}[over]
    eps = 0.02
    bounds = [(side * gap_weights(some), eps) for some in counted for side in (1, -1)]
    problem = asked(TABLE.group, eps, gap=over)
    assert len(problem.gap_names) == len(counted)
    found = fp.solve(problem, method, tol=TOL[method])
    assert found.solved, found.reason
    assert_certified(problem, found)
    assert found.objective == pytest.approx(by_scipy(bounds), abs=1e-6 if TOL[method] < 1e-6 else 1e-3)
    assert max(found.multipliers[0]) > 1e-3  # the gap is what decides


@pytest.mark.parametrize("method", ["vertical-exact", "vertical-al"])
def test_the_mean_loss_of_a_class_is_bounded_as_by_slsqp(method: str) -> None:
    free = fp.solve(asked(), "vertical-exact", tol=1e-8)
    most = 0.8 * float(losses(free.w)[Y == 1].mean())
    problem = asked(max_loss={1: most}, gap="all")
    found = fp.solve(problem, method, tol=1e-8)
    assert found.solved, found.reason
    assert_certified(problem, found)
    assert found.objective == pytest.approx(by_scipy([(mean_weights(Y == 1), most)]), abs=1e-6)


@pytest.mark.parametrize("method", ["vertical-exact", "vertical-al"])
def test_weights_of_each_column_are_those_of_every_class(method: str) -> None:
    weights = np.linspace(0.02, 0.3, 8)
    each = [fp.prox.SquaredL2(weights[cut]) for cut in CUTS.values()]
    problem = asked(regularizer=each, intercept=False)
    found = fp.solve(problem, method, tol=1e-9)
    assert found.solved
    theirs = minimize(
        lambda w: (
            np.mean(logsumexp(TABLE.X @ w.reshape(3, 8).T, axis=1) - (TABLE.X @ w.reshape(3, 8).T)[np.arange(N), Y])
            + 0.5 * np.sum(weights * w.reshape(3, 8) ** 2)
        ),
        np.zeros(24),
        options={"gtol": 1e-9},
    )
    assert found.objective == pytest.approx(theirs.fun, abs=1e-9)
    np.testing.assert_allclose(found.w, theirs.x, atol=1e-4)


def test_the_exact_method_takes_as_many_exchanges_and_the_same_sketch() -> None:
    several, two = Door(), Door()
    found = fp.solve(asked(TABLE.group, 0.02, gap="all"), "vertical-exact", tol=1e-9, engine=several)
    other = fp.solve(fp.VerticalProblem(PARTIES, TABLE.y, TABLE.group, 0.02), "vertical-exact", tol=1e-9, engine=two)
    assert found.solved
    assert found.rounds == other.rounds
    sketches = [[order.length for _, order, _ in door.sent if isinstance(order, Sketch)] for door in (several, two)]
    assert sketches[0] == sketches[1] != []  # of the columns, whatever the classes


def test_pieces_score_new_people() -> None:
    problem = asked(standardize=True)
    found = fp.solve(problem, "vertical-al", tol=1e-8)
    parts = problem.pieces(found.w)
    pieces = [party.piece(parts[party.name]) for party in problem.shares]
    new = {name: X[:7] for name, X in PARTIES.items()}
    with fp.Session() as session:
        session.open(rows_of(pieces, new))
        scores = summed_scores(session, secure=True)
    scaled = (TABLE.X - TABLE.X.mean(axis=0)) / TABLE.X.std(axis=0)
    expected = scaled[:7] @ found.w.reshape(3, 9)[:, :-1].T
    np.testing.assert_allclose(scores.reshape(3, 7).T, expected, atol=1e-10)


def test_a_piece_is_read_as_it_was_written(tmp_path: Any) -> None:
    problem = asked(keep=tmp_path)
    found = fp.solve(problem, "vertical-exact", tol=1e-6, reveal=False)
    assert np.isnan(found.w.reshape(3, 9)[:, :-1]).all()
    assert np.isfinite(found.w.reshape(3, 9)[:, -1]).all()
    shown = fp.solve(asked(), "vertical-exact", tol=1e-6)
    for name in CUTS:
        assert Piece.load(tmp_path / f"{name}.npz").theta.tobytes() == asked().pieces(shown.w)[name].tobytes()


def test_scores_travel_for_every_class() -> None:
    watch = Door()
    fp.solve(asked(), "vertical-al", tol=1e-3, engine=watch)
    slopes = [order.slopes for _, order, _ in watch.sent if hasattr(order, "combination")]
    assert {one.size for one in slopes} == {3 * N}


# ------------------------------------------------------------------------------------------------------------ misuse


@pytest.mark.parametrize("y", [Y + 1, Y / 2, np.where(Y == 1, 2, Y), np.zeros(N)], ids=["from 1", "half", "gap", "one"])
def test_labels_that_are_not_the_numbers_of_classes(y: np.ndarray) -> None:
    with raises_code("FP-DATA-980"):
        fp.VerticalProblem(PARTIES, y, loss="softmax")


def test_softmax_takes_quadratic_regularizers_and_no_cones_of_scores() -> None:
    with raises_code("FP-PROBLEM-980", "", "bank"):
        asked(regularizer=fp.prox.L1(0.1))
    one = fp.Constraint(Affine(np.ones((1, N)), [0.0]), fp.cones.Nonnegative(1))
    with raises_code("FP-PROBLEM-981"):
        asked(constraints=[one])
