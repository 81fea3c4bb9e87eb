"""The partial likelihood against its definition, term by term, and what single rows add to it."""

from __future__ import annotations

import numpy as np
import pytest

from fedpact.errors import ProblemError
from fedpact.functions import CoxLoss

draw = np.random.default_rng(0)
X = draw.standard_normal((40, 3))
TIME = draw.integers(1, 8, 40).astype(float)
EVENT = (draw.random(40) < 0.7).astype(float)
WEIGHT = draw.uniform(0.5, 2.0, 40)
POINT = np.array([0.4, -1.0, 0.3])


def partial_likelihood(w: np.ndarray, weight: np.ndarray, ties: str) -> float:
    """log PL by loops over the times of events (Breslow 1974, Efron 1977; weights as in R's coxph)."""
    score = X @ w
    risk = weight * np.exp(score)
    total = 0.0
    for t in np.unique(TIME[EVENT == 1]):
        tied = (t == TIME) & (EVENT == 1)
        count = int(tied.sum())
        total += weight[tied] @ score[tied]
        for k in range(count):
            part = k / count if ties == "efron" else 0.0
            total -= weight[tied].mean() * np.log(risk[t <= TIME].sum() - part * risk[tied].sum())
    return float(total)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("weight", [np.ones(40), WEIGHT])
def test_value_is_the_mean_negative_log_partial_likelihood(ties: str, weight: np.ndarray) -> None:
    loss = CoxLoss(X, TIME, EVENT, weight, ties)
    assert loss.value(POINT) == pytest.approx(-partial_likelihood(POINT, weight, ties) / weight.sum(), rel=1e-12)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_what_a_row_adds_is_the_derivative_by_its_weight(ties: str) -> None:
    (rows,) = CoxLoss(X, TIME, EVENT, WEIGHT, ties).contributions(POINT)
    loss = CoxLoss(X, TIME, EVENT, WEIGHT, ties)
    np.testing.assert_allclose(rows.gradient.sum(axis=0), loss.gradient(POINT), atol=1e-14)
    step = 1e-5
    for r, value, gradient in zip(rows.numbers, rows.value, rows.gradient, strict=True):
        ends = []
        for side in (1, -1):
            weight = WEIGHT.copy()
            weight[r] += side * step
            moved = CoxLoss(X, TIME, EVENT, weight, ties)
            ends.append(np.append(moved.value(POINT), moved.gradient(POINT)) * moved.total)
        found = (ends[0] - ends[1]) / (2 * step) * WEIGHT[r] / WEIGHT.sum()
        np.testing.assert_allclose(np.append(value, gradient), found, atol=1e-9)


def test_an_owner_without_events_adds_nothing() -> None:
    loss = CoxLoss(X, TIME, np.zeros(40))
    assert loss.value(POINT) == 0
    assert not np.any(loss.gradient(POINT))
    assert not np.any(loss.hessian(POINT))


def test_huge_scores_do_not_overflow() -> None:
    loss = CoxLoss(1e4 * X, TIME, EVENT)
    value, gradient = loss.value_and_gradient(POINT)
    assert np.all(np.isfinite(loss.hessian(POINT)))
    assert value > 0
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize(
    ("time", "event", "weight", "fact"),
    [
        (TIME * np.nan, EVENT, None, "time"),
        (TIME, EVENT + 1, None, "event"),
        (TIME, EVENT, np.zeros(40), "weight"),
        (TIME, EVENT, np.append(np.zeros(1), np.ones(39)), "weight"),
    ],
)
def test_invalid_values_are_named(time: np.ndarray, event: np.ndarray, weight: np.ndarray | None, fact: str) -> None:
    with np.errstate(divide="ignore"):
        defect = CoxLoss(X, time, event, weight).defect()
    assert defect is not None
    assert defect.startswith(fact)


def test_unknown_ties_are_refused() -> None:
    with pytest.raises(ProblemError) as caught:
        CoxLoss(X, TIME, EVENT, ties="exact")  # type: ignore[arg-type]
    assert caught.value.code == "FP-PROBLEM-985"
