"""`fedpact replicate ifeddr-probing` and `ifeddr-fashion`: their quick parts, and what they count."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import logsumexp, softmax

from fedpact import tasks
from fedpact.solve import solve
from fedpact_experiments import datasets
from fedpact_experiments.replications import ifeddr_fair, ifeddr_fashion, ifeddr_probing
from fedpact_experiments.replications.command import replicate
from fedpact_experiments.replications.ifeddr import GAP, Curve
from fedpact_experiments.replications.softmax import TESTED, Accurate, choose_best, reduce_dimension


def quick(name: str, folder: Path, out: Path) -> str:
    done = CliRunner().invoke(replicate, [name, "--quick", "--data", str(folder), "--out", str(out)])
    assert done.exit_code == 0, done.output
    return done.stdout


def row(text: str, *words: str) -> list[str]:
    """The cells of a printed row after these words."""
    found = re.search(rf"^ {' +'.join(map(re.escape, words))} +(.+?) *$", text, re.M)
    assert found is not None, words
    return found.group(1).split()


@pytest.mark.slow
def test_the_quick_part_of_ifeddr_probing(data_folder: Path, tmp_path: Path) -> None:
    text, size = quick("ifeddr-probing", data_folder, tmp_path), ifeddr_probing.QUICK
    given = datasets.cifar10_features(data_folder)
    owners, test = reduce_dimension(given, size.directions)
    answer = solve(tasks.softmax_regression(owners, 10, 1e-5), "interior-point", tol=1e-9)
    said = re.search(r"f\* = (\d\.\d{8}) .*? accuracy is (\d+\.\d) %", re.sub(r"\s+", " ", text))
    assert said is not None
    assert float(said.group(1)) == pytest.approx(answer.objective, abs=1e-8)
    accuracies = tasks.class_accuracies(answer.w, test, given.test.y, 10)
    assert float(said.group(2)) == pytest.approx(100 * accuracies.mean(), abs=0.051)
    for words in (("fedavg", "tau 10, eta 1/L"), ("feddr, start s", "tau 10"), ("ifeddr", "automatic")):
        tested, trained, above, after = map(float, row(text, *words)[:4])
        assert 40 < tested < 65  # a tenth is what guessing has
        assert 40 < trained < 65
        assert 0 < above < np.log(10) - answer.objective  # at w = 0
        assert 1 <= after <= size.most[0]
    asked = {rule: list(map(float, row(text, rule))) for rule in ifeddr_probing.POLICIES}
    assert asked["repeat"][1] >= asked["total"][1] >= asked["double"][1] >= 1
    assert asked["total"][0] == asked["repeat"][0]
    written = ["ifeddr-probing-requests.svg", "ifeddr-probing.jsonl", "ifeddr-probing.md", "ifeddr-probing.svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == written


def descended(owners: dict[str, tuple[np.ndarray, np.ndarray]], rounds: int, gamma: float) -> tuple[np.ndarray, float]:
    """FedProx with 50 steps of 0.1 (FedAvg: gamma infinite), written down anew: the matrix and its objective."""
    W = np.zeros((10, next(iter(owners.values()))[0].shape[1]))
    for _ in range(rounds):
        ends = []
        for X, y in owners.values():
            V = W.copy()
            for _ in range(50):
                slope = (softmax(X @ V.T, axis=1) - np.eye(10)[y]).T @ X / len(y) + 1e-5 * V
                V -= 0.1 * (slope + (V - W) / gamma)
            ends.append(V)
        W = np.mean(ends, axis=0)
    losses = [np.mean(logsumexp(X @ W.T, axis=1) - np.sum(X * W[y], axis=1)) for X, y in owners.values()]
    return W, float(np.mean(losses) + 1e-5 / 2 * np.sum(W**2))


@pytest.mark.slow
def test_the_quick_part_of_ifeddr_fashion(data_folder: Path, tmp_path: Path) -> None:
    text, size = quick("ifeddr-fashion", data_folder, tmp_path), ifeddr_fashion.QUICK
    given = datasets.fashion_mnist(data_folder)
    few = {name: (X[: size.images], y[: size.images]) for name, (X, y) in given.owners.items()}
    owners, test = reduce_dimension(datasets.OwnersAndTest(few, given.test, given.classes), size.directions)
    least = re.search(r"f\* = (\d\.\d{8})", text)
    assert least is not None
    for method, gamma in (("fedavg", np.inf), ("fedprox", 1.0)):
        W, value = descended(owners, size.most[0], gamma)
        tested, _, above, after = map(float, row(text, method, "tau 50, eta 0.1")[:4])
        assert after == size.most[0]
        assert above == pytest.approx(value - float(least.group(1)), rel=0.05)  # two digits are printed
        assert tested == pytest.approx(100 * np.mean(np.argmax(test @ W.T, axis=1) == given.test.y), abs=0.051)
    assert float(row(text, "ifeddr, paper", "tau 50, start s")[2]) < np.log(10)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ifeddr-fashion.jsonl",
        "ifeddr-fashion.md",
        "ifeddr-fashion.svg",
    ]


def ran(tested: list[float], exchanges: list[int], last: float = 0.1) -> Curve:
    gradients = [20.0 * k for k in range(len(exchanges))]
    return Curve("", "toy", "a", "b", 2, 3, exchanges, gradients, {GAP: [last], TESTED: tested})


def test_accuracies_and_requests_of_a_run() -> None:
    run = ran([0.1, 0.3, 0.6, 0.5, 0.7, 0.7, 0.6, 0.8], [1, 2, 3, 4, 6, 8, 11, 14])
    assert Accurate(run).tested == pytest.approx(70)
    assert Accurate(run, 60).needed == ("2", "40", "3")
    assert Accurate(run, 90).needed == ("never", "", "")
    assert run.requests == 6
    asking = ifeddr_probing.Asking(run)
    assert asking.by_round == [0, 0, 0, 1, 1, 2, 2]
    assert asking.quarters == [0, 0.5, 1.5, 2]


def test_the_best_of_a_grid_is_accurate_first_and_near_the_optimum_then() -> None:
    off, near, nearer = ran([0.5], [1], 1e-9), ran([0.704], [1], 0.1), ran([0.7], [1], 0.05)
    assert choose_best([off, near, nearer]) is nearer
    assert choose_best([off, near]) is near


def played(accuracy: float, residual: float) -> ifeddr_fair.Fair:
    seen = {ifeddr_fair.WORST: [accuracy], ifeddr_fair.RESIDUAL: [residual]}
    return ifeddr_fair.Fair(Curve("", "toy", "feddr, start s", "tau", 2, 3, [1], [0.0], seen), 0.65)


@pytest.mark.parametrize(
    ("residuals", "verdict"),
    [
        pytest.param((1e-1, 4e-1, 9e-4), True, id="only the longest arrived"),
        pytest.param((1e-1, 4e-1, 1e-2), None, id="none arrived"),
        pytest.param((1e-4, 4e-1, 9e-4), False, id="the shortest arrived too"),
        pytest.param((1e-4, 4e-1, 1e-2), False, id="the shortest alone arrived"),
    ],
)
def test_that_long_local_work_is_needed_is_decided_by_arrival(
    residuals: tuple[float, ...], verdict: bool | None
) -> None:
    runs = [played(0.645, residual) for residual in residuals]
    assert ifeddr_fair._only_the_last_arrived(runs, best=0.65) is verdict
