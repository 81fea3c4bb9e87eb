"""`fedpact bench calibration`: its numbers against scikit-learn's measures of probabilities fitted on pooled rows."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from fedpact_experiments.bench.calibration import (
    Cost,
    Scores,
    Trained,
    isotonic,
    judge,
    platt,
    small_cells,
    synthetic_neyman_pearson,
)
from fedpact_experiments.bench.command import bench

sklearn = pytest.importorskip("sklearn", reason="needs the extra 'sklearn'")


@pytest.fixture(scope="module")
def model() -> Trained:
    return synthetic_neyman_pearson(3, None, 0)


def test_measures_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import brier_score_loss, log_loss

    rng = np.random.default_rng(0)
    probability = rng.uniform(0.01, 0.99, size=500)
    y = rng.integers(0, 2, size=500)
    found = judge(probability, y, Cost())
    assert found.log_loss == pytest.approx(log_loss(y, probability), rel=1e-12)
    assert found.brier == pytest.approx(brier_score_loss(y, probability), rel=1e-12)


def test_the_calibration_error_is_the_distance_of_probability_and_rate() -> None:
    y = np.tile([0, 0, 0, 1], 300)
    assert judge(np.full(1200, 0.25), y, Cost()).error == pytest.approx(0.0, abs=1e-12)
    assert judge(np.full(1200, 0.65), y, Cost()).error == pytest.approx(0.4, abs=1e-12)


def test_platt_is_logistic_regression_of_the_pooled_scores(model: Trained) -> None:
    """But for the smoothing of labels, which is small."""
    from sklearn.linear_model import LogisticRegression

    score = np.concatenate([owner.score(model.w) for owner in model.owners.values()])
    y = np.concatenate([owner.y for owner in model.owners.values()])
    pooled = LogisticRegression(C=np.inf).fit(score[:, None], y)
    expected = judge(pooled.predict_proba((model.X @ model.w)[:, None])[:, 1], model.y, Cost())
    assert platt(model).log_loss == pytest.approx(expected.log_loss, abs=0.01)


def test_isotonic_probabilities_of_two_owners_are_rates_of_bins() -> None:
    """Scores of two values, far apart: the rates of class 1 at each."""
    X = np.repeat([-1.0, 1.0], 10)[:, None]
    y = np.array([0] * 8 + [1] * 2 + [0] * 3 + [1] * 7)
    owners = {"a": Scores(X[::2], y[::2]), "b": Scores(X[1::2], y[1::2])}
    found = isotonic(Trained(np.ones(1), owners, X, y), 10)
    assert found.brier == pytest.approx((0.2 * 0.8 + 0.3 * 0.7) / 2, abs=1e-12)
    assert found.cost.exchanges == 2
    assert found.cost.small_in_sum == 2  # the counts 2 and 3 of 2, 3, 7 and 8


def test_small_cells_are_counted_at_owners_and_in_the_sum() -> None:
    assert small_cells(np.array([[0.0, 1.0, 4.0, 5.0], [0.0, 2.0, 4.0, 9.0]])) == (2.0, 1)


def test_the_command_prints_all_methods() -> None:
    done = CliRunner().invoke(
        bench, ["calibration", "--classifiers", "synthetic-np", "--owners", "3", "--seeds", "1", "--markdown"]
    )
    assert done.exit_code == 0, done.output
    lines = [
        [cell.strip() for cell in line[1:-1].split("|")] for line in done.stdout.splitlines() if "synthetic" in line
    ]
    assert [line[1] for line in lines][:2] == ["score as it is", "Platt"]
    assert len(lines) == 5
    raw, calibrated = (float(line[2]) for line in lines[:2])
    assert calibrated < raw
