"""`fedpact bench local` and the traces it is made of: counts against other counters and histories."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fedpact as fp
from fedpact.functions import Linear, LogisticLoss, Quadratic
from fedpact.problem import FederatedProblem, MonotoneProblem, Share
from fedpact.prox import L1
from fedpact.tasks import logistic_regression
from fedpact_experiments.bench.local import local
from fedpact_experiments.bench.local_problems import PROBLEMS, UNEVEN, conditioned, uneven
from fedpact_experiments.trace import Trace, announce_progress, gap, natural_residual, record_trace

rng = np.random.default_rng(0)


def run(*args: str) -> Result:
    return CliRunner().invoke(local, args)


def small() -> FederatedProblem:
    owners = {f"o{i}": (rng.standard_normal((12, 3)) + i, np.arange(12) % 2) for i in range(3)}
    return logistic_regression(owners, 0.1)


def rounds(most: int) -> Any:
    return lambda points: points[-1].rounds >= most


# -------------------------------------------------------------------------------------------------------------- traces


@pytest.mark.parametrize("method", ["ifeddr", "feddr", "fedavg", "fedprox", "scaffold"])
def test_a_trace_counts_what_the_losses_are_asked(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The independent count is in the class of the losses."""
    problem, seen, limit = small(), {}, 7
    ids = {id(share.objective.terms[0][1]): i for i, share in enumerate(problem.shares)}  # type: ignore[union-attr]
    plain = LogisticLoss.expand

    def counting(self: Any, w: Any) -> Any:
        seen[ids[id(self)]] = seen.get(ids[id(self)], 0) + 1
        return plain(self, w)

    counts = []

    def measure(w: Any) -> float:
        counts.append(tuple(seen.get(i, 0) for i in range(3)))
        return float(w @ w)

    monkeypatch.setattr(LogisticLoss, "expand", counting)
    trace = record_trace(problem, method, measure, rounds(limit), tol=1e-12)
    assert [point.rounds for point in trace.points] == list(range(limit + 1))
    assert [point.gradients for point in trace.points] == counts
    assert counts[-1] > counts[0]
    assert np.all(np.diff([point.exchanges for point in trace.points]) >= 1)


def test_the_points_of_a_trace_are_those_of_the_method() -> None:
    problem = small()
    trace = record_trace(problem, "ifeddr", natural_residual(problem), rounds(25), tol=1e-12)
    answer = fp.solve(problem, "ifeddr", tol=1e-12, max_rounds=trace.points[-1].exchanges + 5)
    told = {record.iteration - 1: record.residual for record in answer.history.local}  # where the round began
    compared = [k for k, residual in told.items() if np.isfinite(residual) and k <= 25]
    assert len(compared) > 3
    for k in compared:
        assert trace.points[k].measured == pytest.approx(told[k], rel=1e-6)


def test_a_trace_of_operators() -> None:
    problem = MonotoneProblem([Linear(np.array([[1.0, 2.0], [-2.0, 1.0]]), np.array([1.0, i])) for i in range(3)])
    trace = record_trace(problem, "ifeddr", natural_residual(problem), lambda points: points[-1].measured < 1e-8)
    assert trace.points[-1].measured < 1e-8
    assert trace.solution is not None
    total = np.linalg.solve([[3.0, 6.0], [-6.0, 3.0]], [-3.0, -3.0])
    assert natural_residual(problem)(total) == pytest.approx(0, abs=1e-14)


def test_a_trace_ends_with_its_budget_or_by_itself() -> None:
    problem = small()
    cut = record_trace(problem, "fedavg", natural_residual(problem), lambda points: False, budget=0.0)
    assert cut.over
    assert len(cut.points) == 1
    done = record_trace(problem, "ifeddr", natural_residual(problem), lambda points: False, tol=1e-6)
    assert not done.over
    assert done.solution is not None
    assert done.solution.solved
    assert done.first(1.0) == next(point for point in done.points if point.measured <= 1.0)
    assert done.first(-1.0) is None


def test_ctrl_c_by_the_user_ends_a_trace() -> None:
    problem = small()

    def measure(w: Any) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record_trace(problem, "ifeddr", measure, lambda points: False)


def test_a_long_run_tells_where_it_is() -> None:
    problem, said = small(), []
    for every in (0.0, 60.0):
        record_trace(
            problem, "fedavg", lambda w: 0.5, announce_progress(f"every {every:g} s", said.append, rounds(1), every)
        )
    assert said == ["every 0 s: round 0, 0.5", "every 0 s: round 1, 0.5"]


def test_measures() -> None:
    shares = [Share(Quadratic(np.eye(2), [-1.0, -0.1])), Share(Quadratic(np.eye(2)))]
    problem = FederatedProblem(shares, None, L1(0.2))
    optimum = np.array([0.4, 0.0])  # 2 w_1 - 1 + 0.2 = 0, and |0.1| < 0.2
    assert natural_residual(problem)(optimum) == pytest.approx(0, abs=1e-15)
    assert gap(problem, -0.16)(optimum) == pytest.approx(0, abs=1e-15)
    assert gap(problem, -0.16)(optimum + 0.1) == pytest.approx(0.03, abs=1e-12)


# --------------------------------------------------------------------------------------------------------- the command


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_counts_beside_those_by_hand(data_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    done = run("--tables", "counts", "--problems", "lasso,box-saddle", "--data", str(data_folder), "--csv", str(path))
    assert done.exit_code == 0, done.output
    rows = read(path)
    assert [(row["problem"], row["method"]) for row in rows] == [
        *2 * [("lasso", "ifeddr, automatic")],
        *2 * [("lasso", "ifeddr, gradient")],
        ("box-saddle", "ifeddr, automatic"),
        ("box-saddle", "ifeddr, extragradient"),
    ]
    assert {row["status"] for row in rows} == {"reached"}
    assert [row["tuned_exchanges"] for row in rows[:2]] == ["47", "79"]
    problem = PROBLEMS["lasso"](str(data_folder))
    answer = fp.solve(problem, "ifeddr", tol=1e-11)
    assert natural_residual(problem)(answer.w) < 1e-10
    assert int(rows[0]["exchanges"]) < int(rows[1]["exchanges"]) <= answer.rounds
    shown = re.search(
        r"lasso +10 +residual 1e-06 .* 46 / 47 / 138 +ifeddr, automatic +(\d+) / (\d+) / (\d+)", done.stdout
    )
    assert shown
    assert list(shown.groups()) == [rows[0]["rounds"], rows[0]["exchanges"], rows[0]["gradients"]]


@pytest.mark.slow
def test_the_counts_reach_what_they_say(data_folder: Path) -> None:
    """Stopped by exchanges at the count, the very point that was counted comes back."""
    problem = PROBLEMS["logistic"](str(data_folder))
    measure = natural_residual(problem)
    trace: Trace = record_trace(problem, "ifeddr", measure, lambda points: points[-1].measured <= 1e-4, tol=1e-9)
    found = trace.first(1e-4)
    assert found is trace.points[-1]
    assert all(point.measured > 1e-4 for point in trace.points[:-1])
    again = fp.solve(problem, "ifeddr", tol=1e-9, max_rounds=found.exchanges + 30)
    near = [record.residual for record in again.history.local if np.isfinite(record.residual)]
    assert min(near) < 1e-4


def test_the_problems_by_name_are_those_of_their_papers(data_folder: Path) -> None:
    shapes = {"lasso": (10, 60), "box": (10, 40), "logistic": (23, 100), "saddle": (8, 20), "box-saddle": (8, 20)}
    shapes |= {"wdbc": (10, 31), "vehicle": (23, 100)}
    for name, (owners, dim) in shapes.items():
        problem = PROBLEMS[name](str(data_folder))
        assert (len(problem.shares), problem.dim) == (owners, dim)
        assert problem.monotone == (name in ("saddle", "box-saddle"))


def test_the_owners_of_the_work_differ_by_a_hundred() -> None:
    eigenvalues = [np.linalg.eigvalsh(share.objective.hessian(np.zeros(20))) for share in conditioned().shares]  # type: ignore[union-attr]
    numbers = [values[-1] / values[0] for values in eigenvalues]
    assert numbers == pytest.approx(np.logspace(0, 2, 10))
    assert [values[-1] for values in eigenvalues] == pytest.approx(10 * [0.1])
    largest = [np.linalg.eigvalsh(share.objective.hessian(np.zeros(20)))[-1] for share in uneven().shares]  # type: ignore[union-attr]
    assert 50 < largest[-1] / largest[0] < 200


def test_work_against_fixed_numbers_of_steps(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    done = run(
        "--tables", "work", "--uneven", "conditioned", "--solvers", "gradient", "--steps", "1,3", "--target", "1e-3",
        "--csv", str(path), "--markdown",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = read(path)
    assert [row["method"] for row in rows] == [
        "ifeddr, automatic",
        *2 * ["ifeddr, repeat"],
        *2 * ["feddr"],
        *2 * ["feddr, lambda 1.8"],
    ]
    totals = [int(row["gradients_of_all"]) for row in rows]
    assert [float(row["ratio"]) for row in rows] == pytest.approx([one / min(totals[1:]) for one in totals])
    direct = record_trace(
        conditioned(),
        "feddr",
        natural_residual(conditioned()),
        lambda points: points[-1].measured <= 1e-3,
        local_solver="gradient",
        steps=3,
    )
    assert sum(direct.points[-1].gradients) == totals[4]
    assert f"- conditioned, gradient: automatic {totals[0]} gradients; best fixed number: " in done.stdout
    for first, name in ((1, "ifeddr, repeat"), (3, "feddr"), (5, "feddr, lambda 1.8")):
        best = min(totals[first : first + 2])
        assert (
            f"{best} ({name}, {'1 step' if best == totals[first] else '3 steps'}: {totals[0] / best:.2f})"
            in done.stdout
        )
    assert len([line for line in done.stdout.splitlines() if line.startswith("| conditioned |")]) == 7


def test_the_seed_is_that_of_the_work() -> None:
    assert set(UNEVEN) == {"uneven", "conditioned"}
    for make in UNEVEN.values():
        one, same, other = (make(seed).shares[0].objective for seed in (1, 1, 2))
        assert one is not None
        assert same is not None
        assert other is not None
        w = np.ones(20)
        assert one.value(w) == same.value(w) != other.value(w)


def test_counts_without_data_are_skipped_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDPACT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = run("--tables", "counts", "--problems", "lasso,w8a", "--data", str(tmp_path))
    assert done.exit_code == 0
    assert "- skipped lasso: data file 'ifeddr_problems.npz' not found" in done.stdout
    assert "- skipped w8a: data file 'w8a.gz' not found" in done.stdout
