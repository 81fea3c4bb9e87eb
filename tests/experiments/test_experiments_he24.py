"""`fedpact replicate he24-lcqp`, `he24-np`, `he24-fair`: their quick parts, against computations of our own."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.linalg import null_space
from scipy.optimize import minimize

from fedpact import data, tasks
from fedpact.report import figures
from fedpact.solve import solve
from fedpact_experiments import datasets
from fedpact_experiments.replications import he24, he24_fair, he24_lcqp, he24_np
from fedpact_experiments.replications.command import replicate
from fedpact_experiments.replications.he24 import ONE, THREE, Case, Settings, Twins, on_sphere, sphere
from fedpact_experiments.replications.rows import Rows


def run(*args: str) -> str:
    done = CliRunner().invoke(replicate, [*args, "--quick", "--markdown"])
    assert done.exit_code == 0, done.output
    return done.stdout


def rows(text: str, *first: str) -> list[list[str]]:
    """The cells of the lines of Markdown tables that begin with these, in order."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [line for line in cells if line[: len(first)] == list(first)]


def means(cells: list[str]) -> list[float]:
    return [float(cell.split()[0]) for cell in cells]


def logistic(X: np.ndarray, y: int, w: np.ndarray) -> float:
    return float(np.logaddexp(0, (1 - 2 * y) * (X @ w)).mean())


# ------------------------------------------------------------------------------------------------------------ he24-lcqp


def least(arrays: data.QPArrays) -> float:
    """The optimum by elimination: w = w_0 + Z y with C w_0 + d = 0 and C Z = 0."""
    A, b = arrays.A.sum(axis=0), arrays.b.sum(axis=0)
    C, d = np.vstack(list(arrays.C)), np.concatenate(list(arrays.d))
    start, Z = -np.linalg.pinv(C) @ d, null_space(C)
    w = start + Z @ np.linalg.solve(Z.T @ A @ Z, -Z.T @ (A @ start + b))
    return float(w @ A @ w / 2 + b @ w)


@pytest.mark.slow
def test_the_quick_part_of_he24_lcqp(tmp_path: Path) -> None:
    text = run("he24-lcqp", "--trials", "1", "--out", str(tmp_path))
    assert "over 1 random starts on one instance" in text  # 2 without --trials
    for n in (1, 5):
        objectives, differing, cost, fit = rows(text, str(n), "100")
        one, paper, three, _, optimum = means(objectives[2:])
        exact = least(data.lcqp(n, 100, 1))
        assert optimum == pytest.approx(exact, abs=6e-5)
        assert one == pytest.approx(exact, rel=1e-3)
        assert three == pytest.approx(exact, rel=1e-3)
        assert paper == float(he24_lcqp.TABLE_4[n, 100]["objective 1"].split()[0])
        assert means(differing[2:3])[0] == pytest.approx(abs(one - three) / abs(three), abs=3e-4)
        assert max(means([differing[4], differing[6]])) <= 1e-3
        assert cost[2] == "1 of 1"
        assert int(cost[6]) < int(cost[7]) < int(cost[5])  # interior-point, accelerated, Algorithm 1
        others = [least(data.lcqp(n, 100, 1, seed)) for seed in (1, 2)]
        assert fit[3] == f"{np.mean(others):.2f} ({np.std(others):.2f})"
    conic = least(data.lcqp(5, 100, 1, 0, "he24-conic"))
    objective, _, with_rho = rows(text, "100", "5")
    assert means(objective[3:8:2]) == pytest.approx([conic] * 3, abs=1e-3)
    assert with_rho[4] == "not run"
    assert (tmp_path / "he24-lcqp.svg").is_file()


# -------------------------------------------------------------------------------------------------------------- he24-np


@pytest.mark.slow
def test_the_quick_part_of_he24_np(data_folder: Path, tmp_path: Path) -> None:
    text = run("he24-np", "--data", str(data_folder), "--out", str(tmp_path))
    table = datasets.breast_cancer_wisconsin(data_folder)
    X = data.with_intercept(data.standardize(table.X))
    zeros, ones = X[table.y == 0], X[table.y == 1]
    found = minimize(
        lambda w: logistic(zeros, 0, w),
        np.zeros(X.shape[1]),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda w: 0.2 - logistic(ones, 1, w)},
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.success
    alone, five = (rows(text, "breast-cancer-wisc", n) for n in ("1", "5"))
    objective, differing, feasibility, cost, conic = alone
    assert float(objective[-1]) == pytest.approx(found.fun, abs=6e-5)
    assert means([objective[3], objective[5]]) == pytest.approx([found.fun] * 2, rel=0.01)
    assert means(differing[2:3])[0] < 1e-3
    assert means([feasibility[i] for i in (2, 4, 6, 8)]) == pytest.approx([0.2] * 4, abs=1e-3)
    assert cost[3] == "2 of 2"
    assert int(cost[7]) < int(cost[6])
    assert means([conic[2], conic[4]]) == pytest.approx([found.fun] * 2, rel=0.01)
    assert float(five[0][-1]) > float(objective[-1])  # more constraints
    assert max(means([five[2][4], five[2][8]])) <= 0.201
    assert ["breast-cancer-wisc", "455/240", "455/240", "10", "20"] in rows(text, "breast-cancer-wisc")
    assert (tmp_path / "he24-np.svg").is_file()


def test_what_the_two_algorithms_are_compared_by() -> None:
    owners = data.neyman_pearson(3, rows=80, d=4)
    problem = tasks.neyman_pearson(owners, 0.2)
    starts = [on_sphere(4, trial) for trial in range(3)]
    assert np.linalg.norm(starts, axis=1) == pytest.approx(np.ones(3))
    case = Case("Table 1", "toy", 3, 0, lambda: problem, he24_np.bounded)
    runs = list(case.twins(3, 2, Settings(300.0, 1e-3, None), sphere))
    assert [run.name for run in runs[2:4]] == [
        "Table 1, toy, n = 3: Algorithm 3, trial 3",
        "Table 1, toy, n = 3: Algorithm 1, trial 1",
    ]
    both = Twins(Rows(row for run in runs for row in run.measure()), {})
    assert (both[ONE].count, both[THREE].count) == (2, 3)

    def losses(w: np.ndarray, label: int) -> np.ndarray:
        return np.array([logistic(X[y == label], label, w) for X, y in owners.values()])

    options = {"penalty": 300.0, "accuracy": 1e-3, "tol": 1e-3}
    one = [solve(problem, "proximal-al", w0=w0, max_rounds=20_000, **options) for w0 in starts[:2]]
    three = [solve(problem, "centralized-proximal-al", w0=w0, **options) for w0 in starts]
    assert both.one.runs.of("exchanges") == [answer.rounds for answer in one]
    np.testing.assert_allclose(both.one.runs.of("losses"), [losses(answer.w, 0) for answer in one])
    np.testing.assert_allclose(both.three.runs.of("bounded"), [losses(answer.w, 1) for answer in three])
    class_0, class_1 = both.one.first.courses
    np.testing.assert_allclose(class_0[0], losses(starts[0], 0))
    np.testing.assert_allclose(class_1[-1], losses(one[0].w, 1))
    assert len(class_0) == len(class_1) == 1 + both.one.first.outer
    pairs = list(zip(one, three, strict=False))
    apart = [abs(losses(a.w, 0) - losses(b.w, 0)) / losses(b.w, 0) for a, b in pairs]
    assert both.difference_by_owner.mean == pytest.approx(np.mean(apart), abs=1e-12)
    assert both.difference_by_owner.deviation == pytest.approx(np.std(apart), abs=1e-12)
    totals = [abs(losses(a.w, 0).mean() / losses(b.w, 0).mean() - 1) for a, b in pairs]
    assert both.difference.mean == pytest.approx(np.mean(totals), abs=1e-12)


# ------------------------------------------------------------------------------------------------------------ he24-fair


@pytest.mark.slow
def test_the_quick_part_of_he24_fair(data_folder: Path, tmp_path: Path) -> None:
    text = run("he24-fair", "--data", str(data_folder), "--out", str(tmp_path))
    objective, feasibility, cost, conic = rows(text, "1")
    (five,) = rows(text, "5")
    assert five[1] == "not run"
    optimum = float(objective[-1])
    assert means([objective[2], objective[4]]) == pytest.approx([optimum] * 2, rel=0.03)
    assert max(means([feasibility[i] for i in (1, 3, 5, 7)])) <= 0.101
    assert cost[1] == "1 of 1"
    assert int(cost[6]) < int(cost[4])
    assert float(conic[1]) == pytest.approx(float(conic[9]), rel=0.03)
    assert float(conic[9]) > optimum  # the tighter bound
    assert float(conic[10]) == pytest.approx(np.log(2), abs=1e-4)  # the printed rho: where it started
    assert re.search(r"rows: 30162 at the owners and 15060 at the server", text)
    assert (tmp_path / "he24-fair.svg").is_file()


def test_the_gaps_of_all_holders() -> None:
    rng = np.random.default_rng(0)

    def held() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return rng.standard_normal((30, 3)), np.arange(30) % 3 % 2, np.arange(30) % 2

    tables = [held() for _ in range(3)]
    problem = tasks.group_fairness({"a": tables[1], "b": tables[2]}, tables[0], 0.1)
    w = rng.standard_normal(3)
    expected = []
    for X, y, group in tables:
        loss = np.logaddexp(0, (1 - 2 * y) * (X @ w))
        expected.append(abs(loss[group == 1].mean() - loss[group == 0].mean()))
    np.testing.assert_allclose(he24_fair.gaps(problem, w, 0.1), expected)


def test_bands_are_drawn_around_their_lines() -> None:
    panel = he24.draw_bands("t", "y", {"a": [[1.0, 3.0], [2.0, 2.0, 5.0]]}, 0.5)
    assert panel.lines == {"a": ([0.0, 1.0], [2.0, 3.0])}
    assert panel.bands == {"a": ([1.0, 2.0], [3.0, 5.0])}
    (axes,) = figures.panels([panel], columns=1).axes
    corners = axes.collections[0].get_paths()[0].vertices
    assert {(0.0, 1.0), (0.0, 3.0), (1.0, 2.0), (1.0, 5.0)} <= {tuple(map(float, corner)) for corner in corners}
    assert list(axes.lines[-1].get_ydata()) == [0.5, 0.5]
