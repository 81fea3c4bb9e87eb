"""`fedpact replicate fairvfl`: its quick part against descent written down anew, and how a model is measured."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fedpact import postprocess
from fedpact.solve import solve
from fedpact_experiments import datasets
from fedpact_experiments.replications import fairvfl
from fedpact_experiments.replications.command import replicate
from fedpact_experiments.replications.fairvfl_runs import Case, Fit, post_process


def descended(case: Case, rounds: int, eps: float | None) -> np.ndarray:
    """What FedBCD and Fair VFL with Q = 1 are: gradient descent, with ascent where there is a bound. Returns w."""
    X = np.column_stack([case.train.X, np.ones(len(case.train.y))])
    signs, positive = 2.0 * case.train.y - 1, case.train.y == 1
    row = np.zeros(len(signs))
    for group, sign in ((0, 1.0), (1, -1.0)):
        members = positive & (case.train.group == group)
        row[members] = sign / members.sum()
    shrunk = np.append(np.ones(X.shape[1] - 1), 0.0)
    w, prices = np.zeros(X.shape[1]), np.zeros(2)
    for _ in range(rounds):
        z = X @ w
        if eps is not None:
            gap = row @ np.log1p(np.exp(-signs * z))
            prices = np.maximum(prices + 0.1 * (np.array([gap, -gap]) - eps - 1e-3 * prices), 0.0)
        slopes = -signs / (1 + np.exp(signs * z))
        w = w - (X.T @ ((1 / len(signs) + (prices[0] - prices[1]) * row) * slopes) + 2 / len(signs) * shrunk * w) / 100
    return w


@pytest.mark.slow
def test_the_quick_part_of_fairvfl(data_folder: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(replicate, ["fairvfl", "--quick", "--data", str(data_folder), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    number = r"(\d+\.\d) ± \d+\.\d"
    found = {
        name.strip(): (float(accuracy), float(fairness))
        for name, accuracy, fairness in re.findall(
            rf"^ COMPAS +(\S.*?) {{2,}}{number} +(?:\d+\.\d)? +{number} ", done.stdout, re.M
        )
    }
    assert list(found) == ["FedBCD", "EO", "CEO", "Fair VFL", "optimum, no constraint", "optimum"]
    cases = [
        Case("COMPAS", seed, *datasets.split(datasets.vertical_compas(data_folder), seed))
        for seed in range(fairvfl.QUICK.seeds)
    ]
    for method, eps in (("FedBCD", None), ("Fair VFL", 0.01)):
        accuracies, fairness = [], []
        for case in cases:
            w, test = descended(case, fairvfl.QUICK.rounds, eps), case.test
            z = test.X @ w[:-1] + w[-1]
            losses = np.log1p(np.exp(-z))[test.y == 1]
            members = test.group[test.y == 1]
            accuracies.append(100 * np.mean((z >= 0) == test.y))
            fairness.append(100 - 100 * abs(losses[members == 0].mean() - losses[members == 1].mean()))
        assert found[method] == pytest.approx((np.mean(accuracies), np.mean(fairness)), abs=0.051)
    optimum = re.search(r"^ COMPAS +0\.01 .* (0\.\d{4}) *$", done.stdout, re.M)
    assert optimum is not None
    pooled = solve(cases[0].problem(0.01).pooled(), "interior-point", tol=1e-8)
    assert float(optimum.group(1)) == pytest.approx(pooled.objective, abs=1e-4)
    written = ["fairvfl-eps.svg", "fairvfl-rounds.svg", "fairvfl.jsonl", "fairvfl.md"]
    assert sorted(path.name for path in tmp_path.iterdir()) == written


def scored(seed: int) -> Case:
    """A case whose scores are its only column, the same rows for training and for testing."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, 400)
    y = (rng.random(400) < 0.4 + 0.2 * group).astype(np.int64)
    z = 1.5 * (2 * y - 1) * (0.3 + group) + rng.normal(size=400)
    table = datasets.VerticalTable(z[:, None], y, group, ("score",), np.array([True]), 400, 1)
    return Case("toy", seed, table, table)


def test_what_post_processing_gives_is_an_expectation_over_its_coins() -> None:
    case = scored(0)
    found = {fit.label: fit for fit in post_process(case, np.array([1.0, 0.0]))}
    y, group, z = case.train.y, case.train.group, case.train.X[:, 0]
    assert found["EO"].fairness == pytest.approx(
        100
    )  # the true positive rates are equal on the rows it is derived from
    equal = postprocess.equalized_odds(y, z, group, constraint="true_positive_rate")
    assert found["EO"].accuracy == pytest.approx(100 * (1 - equal.loss))
    assert np.log1p(np.e) - np.log1p(1 / np.e) == pytest.approx(
        1
    )  # DEO of predictions taken for scores is that of rates
    chances = 1 / (1 + np.exp(-z))
    derived = postprocess.calibrated_equalized_odds(y, chances, group, on_infeasible="withhold")
    assert derived.rate > 0
    drawn = np.array([derived.withhold(chances, group, seed) for seed in range(2000)])
    assert found["CEO"].accuracy == pytest.approx(100 * np.mean((drawn >= 0.5) == y), abs=0.2)
    losses = -np.log(drawn).mean(axis=0)
    gap = abs(losses[(y == 1) & (group == 0)].mean() - losses[(y == 1) & (group == 1)].mean())
    assert found["CEO"].fairness == pytest.approx(100 * (1 - gap), abs=0.5)


def test_when_a_run_is_near_the_optimum() -> None:
    curve = ((2.0, 0.0), (1.0, 0.5), (1.0, 0.0), (1.2, 0.0), (1.005, 0.0005), (1.0005, 0.0))
    ran = Fit("toy", 0, "a", curve=[[k, loss, miss] for k, (loss, miss) in enumerate(curve, 1)])
    assert ran.within(1.0, 0.01) == 5  # 3 is near, and left again
    assert ran.within(1.0, 0.001) == 6
    assert ran.within(1.0, 1e-4) is None
    assert ran.first(1.2) == 2
    assert ran.first(0.9) is None
