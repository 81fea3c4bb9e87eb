"""`fedpact bench`: its numbers against solves made here, what it says without data or time, and its files."""

from __future__ import annotations

import csv
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fedpact as fp
from fedpact import data, tasks
from fedpact.functions import Affine, Function, LogisticLoss, Quadratic, Smooth, SmoothMap, TwoSided
from fedpact.report import figures
from fedpact.solvers import METHODS
from fedpact.solvers.constrained.accelerated import Accelerated
from fedpact_experiments.bench.command import bench
from fedpact_experiments.bench.measure import (
    COLUMNS,
    CONIC,
    LABELS,
    PAPER,
    Measured,
    add_ratio,
    measure,
    measure_conic,
    reference,
)
from fedpact_experiments.bench.problems import PROBLEMS, Instance, neyman_pearson
from fedpact_experiments.bench.rounds import draw_convergence
from fedpact_experiments.counting import CountedFunction, CountedMap, Counts, count_evaluations

pytestmark = pytest.mark.xdist_group("bench")  # one worker, so that the table is made once

SOLVERS = [label for label in LABELS if label in METHODS]
W = np.array([0.3, -0.2])
LOSS = LogisticLoss([[1.0, 2.0], [0.5, -1.0]], [0, 1])
BOWL = Quadratic(np.eye(2))


def run(*args: str) -> Result:
    return CliRunner().invoke(bench, args)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def markdown_rows(text: str) -> list[dict[str, str]]:
    lines = [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("|")]
    assert set(lines[1]) == {"---"}
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def tiny() -> Instance:
    return neyman_pearson("tiny", data.neyman_pearson(2, rows=40, d=4))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run with everything: both kinds of output, a figure, two instances."""
    folder = tmp_path_factory.mktemp("bench")
    done = run(
        "rounds", "--problems", "synthetic, lcqp", "--owners", "3",
        "--methods", "proximal-al,accelerated,interior-point",
        "--methods", f"centralized-proximal-al,{CONIC}", "--markdown",
        "--csv", str(folder / "rows.csv"), "--plot", str(folder / "figure.svg"),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return {"rows": read(folder / "rows.csv"), "shown": markdown_rows(done.stdout), "done": done, "folder": folder}


# ------------------------------------------------------------------------------------------------ the numbers of rounds


def made(name: str) -> fp.FederatedProblem:
    if name == "lcqp":
        return tasks.linear_qp(*data.lcqp(3, 100, 1))
    return tasks.neyman_pearson(data.neyman_pearson(3), 0.2)


def test_every_instance_has_every_method(table: dict[str, Any]) -> None:
    asked = [label for label in LABELS if label not in (PAPER, "fedsgm")]
    found = [(row["problem"], row["method"]) for row in table["rows"]]
    assert found == [(problem, method) for problem in ("synthetic", "lcqp") for method in asked]
    for row in table["rows"]:
        absent = row["method"] not in METHODS and row["method"] != CONIC
        assert (row["status"] == "not available") == absent
        assert row["owners"] == "3"


@pytest.mark.parametrize("name", ["synthetic", "lcqp"])
def test_exchanges_bytes_objective_and_certificate_are_those_of_solve(table: dict[str, Any], name: str) -> None:
    problem = made(name)
    rows = [row for row in table["rows"] if row["problem"] == name and row["method"] in METHODS]
    assert len(rows) == len(SOLVERS)
    for row in rows:
        answer = fp.solve(problem, row["method"], tol=1e-3)
        assert row["status"] == answer.status
        assert int(row["exchanges"]) == answer.rounds
        assert int(row["bytes"]) == answer.communication.bytes
        assert float(row["objective"]) == answer.objective
        assert float(row["certificate"]) == fp.certify(problem, answer.w, answer.multipliers).worst
        assert (answer.rounds == 0) == (row["method"] == "centralized-proximal-al")


@pytest.mark.parametrize("method", SOLVERS)
def test_evaluations_are_those_counted_in_the_losses(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An independent count: in the class of the losses, which the objective and the constraint call once a call."""
    instance = tiny()
    seen = {"expand": 0, "_curved": 0, "hessian_product": 0}
    for name in seen:
        plain = getattr(LogisticLoss, name)

        def counting(self: Any, *args: Any, name: str = name, plain: Any = plain) -> Any:
            seen[name] += 1
            return plain(self, *args)

        monkeypatch.setattr(LogisticLoss, name, counting)
    row, _ = measure(instance, method, 1e-3, 60)
    assert row.status == "solved"
    assert row.gradients == seen["expand"] / 2 > 0
    assert row.hessians == (seen["_curved"] + seen["hessian_product"]) / 2


def test_a_row_without_counts_has_the_same_answer() -> None:
    counted, plain = (measure(tiny(), "interior-point", 1e-6, 60, counted=counted)[0] for counted in (True, False))
    assert plain.gradients is plain.hessians is None
    assert replace(plain, gradients=counted.gradients, hessians=counted.hessians, seconds=counted.seconds) == counted


def test_distances_and_the_conic_solver(table: dict[str, Any]) -> None:
    """cvxpy shares no code with the reference; both must name the same optimum."""
    arrays = data.lcqp(3, 100, 1)
    exact = tasks.exact(*arrays).objective
    for row in table["rows"]:
        if row["method"] == CONIC:
            assert row["status"] == "solved"
            assert float(row["distance"]) < 1e-7
            assert float(row["certificate"]) < 1e-6
            assert row["exchanges"] == row["gradients"] == row["tol"] == row["ratio"] == ""
        elif row["objective"]:
            assert float(row["distance"]) < 1e-2
            if row["problem"] == "lcqp":
                assert float(row["distance"]) == pytest.approx(abs(float(row["objective"]) - exact) / abs(exact))
    assert reference(tiny(), 60).source.startswith("centralized-proximal-al, certificate")


def test_the_table_shows_the_numbers_of_the_file(table: dict[str, Any]) -> None:
    assert len(table["shown"]) == len(table["rows"])
    for shown, row in zip(table["shown"], table["rows"], strict=True):
        assert list(shown) == list(COLUMNS)
        assert [shown["problem"], shown["method"], shown["status"]] == [row["problem"], row["method"], row["status"]]
        assert shown["exchanges"] == row["exchanges"]
        for column, key, unit in (("gradients", "gradients", 1), ("MB", "bytes", 1e6), ("objective", "objective", 1)):
            if row[key]:
                assert float(shown[column]) == pytest.approx(float(row[key]) / unit, abs=0.5 if unit == 1 else 0.005)
    text = table["done"].stdout
    assert "evaluations per owner" in text
    assert "d = max(100, 2 (n + 1))" not in text  # said with the paper's settings only
    assert re.search(r"^- reference of lcqp, n = 3, d = 100: \S+ \(exact", text, re.M)
    assert "synthetic, n = 3, d = 21: proximal-al, tol 0.001" in table["done"].stderr


def test_the_ratio_is_the_quotient_of_exchanges(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    done = run("rounds", "--problems", "lcqp", "--owners", "3", "--tol", "1e-2,1e-3", "--csv", str(path), "--methods",
               f"proximal-al,{PAPER},centralized-proximal-al")  # fmt: skip
    rows = read(path)
    assert [row["method"] for row in rows] == 2 * [PAPER, "proximal-al", "centralized-proximal-al"]
    assert [row["tol"] for row in rows] == 3 * ["0.01"] + 3 * ["0.001"]
    options = {"penalty": 10.0, "consensus_penalty": 1.0, "accuracy": 0.1}
    for paper, ours, central in (rows[:3], rows[3:]):
        direct = fp.solve(made("lcqp"), "proximal-al", tol=float(paper["tol"]), **options)
        assert int(paper["exchanges"]) == direct.rounds
        assert float(paper["ratio"]) == 1
        assert float(ours["ratio"]) == int(paper["exchanges"]) / int(ours["exchanges"])
        assert ours["ratio_is_lower_bound"] == "False"
        assert central["ratio"] == ""
    assert "penalty = 10, consensus_penalty = 1, accuracy = 0.1" in done.stdout
    assert "d = max(100, 2 (n + 1))" in done.stdout


def test_a_ratio_to_a_run_cut_short_is_a_lower_bound() -> None:
    paper = Measured("p", 3, 4, 1e-3, PAPER, "budget 1 s", exchanges=120)
    ours = Measured("p", 3, 4, 1e-3, "interior-point", "solved", exchanges=10)
    assert COLUMNS["ratio"](add_ratio(ours, paper)) == ">12.0"
    assert COLUMNS["ratio"](add_ratio(ours, replace(paper, status="solved"))) == "12.0"
    assert COLUMNS["ratio"](add_ratio(replace(ours, exchanges=1), replace(paper, status="solved"))) == "120"
    for unsolved in (replace(ours, status="stalled"), replace(ours, exchanges=0), replace(ours, exchanges=None)):
        assert add_ratio(unsolved, paper).ratio is None
    assert add_ratio(ours, None).ratio is None
    assert add_ratio(paper, paper).ratio is None


# ------------------------------------------------------------------------------------------------------------ counting


@pytest.mark.parametrize("inner", [LOSS, 0.5 * LOSS - 0.2, BOWL, Smooth(lambda w: (w @ w, 2 * w))])
def test_a_counted_function_is_the_same_function(inner: Function) -> None:
    counts = Counts()
    function = CountedFunction(inner, counts)
    for name in ("dim", "has_hessian", "constant_hessian"):
        assert getattr(function, name) == getattr(inner, name)
    assert function.defect() == inner.defect()
    assert function.value_and_gradient(W)[0] == inner.value(W)
    np.testing.assert_array_equal(function.gradient(W), inner.gradient(W))
    assert (counts.gradients, counts.hessians) == (2, 0)
    assert function.value(W) == inner.value(W)
    assert counts.gradients == 2 + (type(inner).value is Function.value)
    if inner.has_hessian:
        np.testing.assert_array_equal(function.hessian(W), inner.hessian(W))
        np.testing.assert_array_equal(function.hessian_product(W, W), inner.hessian_product(W, W))
        assert counts.hessians == 2


@pytest.mark.parametrize(
    "inner", [TwoSided(LOSS, -1, 1), Affine([[1.0, 2.0]]), SmoothMap(lambda w: (w, np.eye(2)), length=2)]
)
def test_a_counted_map_is_the_same_map(inner: Any) -> None:
    counts = Counts()
    counting = CountedMap(inner, counts)
    for name in ("dim", "length", "has_hessian", "affine"):
        assert getattr(counting, name) == getattr(inner, name)
    assert counting.defect() == inner.defect()
    np.testing.assert_array_equal(counting.value_and_jacobian(W)[0], inner.value(W))
    np.testing.assert_array_equal(counting.jacobian(W), inner.jacobian(W))
    assert (counts.gradients, counts.hessians) == (2, 0)
    np.testing.assert_array_equal(counting.value(W), inner.value(W))
    assert counts.gradients == 2 + isinstance(inner, SmoothMap)
    if inner.has_hessian:
        weights = np.arange(1.0, 1 + inner.length)
        np.testing.assert_array_equal(counting.weighted_hessian(W, weights), inner.weighted_hessian(W, weights))
        product = inner.weighted_hessian_product(W, weights, W)
        np.testing.assert_array_equal(counting.weighted_hessian_product(W, weights, W), product)
        assert counts.hessians == 2


@pytest.mark.parametrize("method", SOLVERS)
def test_counting_changes_no_bit_of_the_answer(method: str) -> None:
    for problem in (tiny().problem, tasks.linear_qp(*data.lcqp(2, 8, 1))):
        asked, counts = count_evaluations(problem)
        plain, watched = (fp.solve(each, method, tol=1e-4) for each in (problem, asked))
        assert plain.rounds == watched.rounds
        np.testing.assert_array_equal(plain.w, watched.w)
        assert min(owner.gradients for owner in counts) > 0


# --------------------------------------------------------------------------------------- budget, absence, interruption


def test_the_budget_ends_a_cell_with_the_best_so_far(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    done = run("rounds", "--problems", "synthetic", "--owners", "3", "--methods", PAPER, "--budget", "0.3", "--csv",
               str(path), "--markdown")  # fmt: skip
    assert done.exit_code == 0
    (row,) = read(path)
    assert row["status"] == "budget 0.3 s"
    assert float(row["seconds"]) < 10
    assert float(row["certificate"]) > 1e-3
    assert int(row["exchanges"]) > 0
    assert row["ratio"] == ""
    assert "budget 0.3 s" in markdown_rows(done.stdout)[0]["status"]


def test_missing_data_is_skipped_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDPACT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = run("rounds", "--data", str(tmp_path), "--problems", "adult,monks-1", "--owners", "3", "--owners", "5")
    assert done.exit_code == 0
    lines = [line for line in done.stdout.splitlines() if line.startswith("- skipped")]
    assert lines[0].startswith("- skipped adult, n = 3; adult, n = 5: data file 'adult.data' not found")
    assert lines[1].startswith("- skipped monks-1, n = 3; monks-1, n = 5: data file 'monks-1.train' not found")
    assert all("UCI" in line and "--data" in line for line in lines)


def test_data_for_fewer_owners_is_skipped_and_told(data_folder: Path) -> None:
    done = run("rounds", "--data", str(data_folder), "--problems", "breast-cancer-wisc", "--owners", "300")
    assert done.exit_code == 0
    assert "- skipped breast-cancer-wisc, n = 300: class 1 has 240 rows, too few for 300 owners" in done.stdout


@pytest.mark.parametrize(
    ("name", "dim", "n"), [("breast-cancer-wisc", 10, 100), ("adult-b", 38, 5), ("monks-1", 18, 100)]
)
def test_instances_of_data_sets(data_folder: Path, name: str, dim: int, n: int) -> None:
    instance = PROBLEMS[name](n, str(data_folder), 0)
    assert (instance.name, instance.owners, instance.dim) == (name, n, dim)
    assert (instance.problem.server.constraint is not None) == (instance.conic is None) == (name == "adult-b")
    if instance.conic is None:
        assert measure_conic(instance, 1).status == "not convex"
    if instance.pooled is not None:  # the same problem in one hand
        (held,) = instance.pooled().shares
        w = np.linspace(-1, 1, dim)
        assert held.objective is not None
        assert held.constraint is not None
        assert held.objective.value(w) == pytest.approx(sum(s.objective.value(w) for s in instance.problem.shares))
        each = [s.constraint.function.value(w)[0] for s in instance.problem.shares]
        np.testing.assert_allclose(held.constraint.function.value(w), each)


def test_a_method_that_is_not_there_and_one_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Accelerated):
        def step(self, run: Any, state: Any) -> Any:
            raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.delitem(METHODS, "interior-point", raising=False)
    monkeypatch.setitem(METHODS, "accelerated", Broken)
    done = run("growth", "--columns", "3", "--methods", "interior-point,accelerated,centralized-proximal-al")
    assert done.exit_code == 0
    assert re.search(r"interior-point +not available", done.stdout)
    assert re.search(r"accelerated +0\.\d+ +failed", done.stdout)
    assert "- synthetic, n = 10, accelerated: ZeroDivisionError: first line\n" in done.stdout
    assert re.search(r"centralized-proximal-al .* solved", done.stdout)


def test_without_cvxpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    row = measure_conic(tiny(), 10)
    assert row.status == "not available"
    assert "pip install '.[bench]'" in row.note


def test_ctrl_c_prints_what_was_measured() -> None:
    # A suite that was started in the background ignores SIGINT, and its children would too.
    reset = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{reset}; from fedpact_experiments.bench.command import bench; bench()"
    args = ["rounds", "--problems", "lcqp,synthetic", "--owners", "3", "--methods", PAPER, "--markdown"]
    child = subprocess.Popen(
        [sys.executable, "-c", code, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert child.stderr is not None
    try:
        while not child.stderr.readline().startswith(f"synthetic, n = 3, d = 21: {PAPER}"):
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 130, err
    assert [row["problem"] for row in markdown_rows(out)] == ["lcqp"]
    assert "interrupted: the table holds what was measured so far" in out
    assert "Traceback" not in err


# --------------------------------------------------------------------------------------------------------- the figures


def test_the_figure_has_two_panels_an_instance(table: dict[str, Any]) -> None:
    text = (table["folder"] / "figure.svg").read_text()
    assert len(re.findall(r'<g id="axes_\d+">', text)) == 4


def test_the_lines_of_a_figure_are_the_history(tmp_path: Path) -> None:
    problem = tiny().problem
    answers = {name: fp.solve(problem, name) for name in ("proximal-al", "centralized-proximal-al")}
    figure = draw_convergence({"tiny": answers})
    outer = answers["proximal-al"].history.outer
    for panel, field, unit in zip(figure.axes, ("rounds", "bytes"), (1, 1e6), strict=True):
        (line,) = [line for line in panel.lines if line.get_label() in METHODS]  # the twin has no exchanges
        assert line.get_label() == "proximal-al"
        np.testing.assert_allclose(line.get_xdata(), [getattr(record, field) / unit for record in outer])
        np.testing.assert_allclose(line.get_ydata(), [max(r.stationarity, r.feasibility) for r in outer])
        assert panel.get_yscale() == "log"
    assert figures.save(figure, tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(fp.errors.FedpactError, match=r"f\.doc") as caught:
        figures.save(figure, tmp_path / "f.doc")
    assert caught.value.code == "FP-503"


def test_without_matplotlib_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = run("rounds", "--plot", str(tmp_path / "f.png"))
    assert done.exit_code == 2
    assert "pip install '.[plot]'" in done.stderr
    assert done.stdout == ""


# ----------------------------------------------------------------------------------------------------- time and growth


def test_time(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    done = run("time", "--problems", "synthetic", "--owners", "2", "--repeat", "2", "--csv", str(path))
    assert done.exit_code == 0, done.output
    assert done.stderr.count("trust-constr, run") == 2
    rows = {row["method"]: row for row in read(path)}
    assert list(rows) == ["interior-point", "interior-point pooled", CONIC, "scipy trust-constr", "scipy SLSQP"]
    first = rows["interior-point"]
    for row in rows.values():
        if row["status"] == "not available":
            assert row["method"].startswith("interior-point")
            assert "interior-point" not in METHODS
            continue
        assert row["status"] == "solved"
        assert float(row["certificate"]) <= 1e-6
        assert float(row["distance"]) < 1e-5
        if "interior-point" in METHODS:
            assert float(row["ratio"]) == float(row["seconds"]) / float(first["seconds"])


def test_the_budget_of_other_solvers(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    assert (
        run("time", "--problems", "synthetic", "--owners", "2", "--budget", "0.002", "--csv", str(path)).exit_code == 0
    )
    rows = {row["method"]: row for row in read(path)}
    for method in (CONIC, "scipy trust-constr"):
        assert rows[method]["status"] == "budget 0.002 s"
        assert float(rows[method]["objective"]) > 0


def test_growth(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    done = run(
        "growth", "--owners", "2", "--columns", "4", "--methods", "proximal-al", "--csv", str(path), "--tol", "0.01"
    )
    assert done.exit_code == 0, done.output
    rows = read(path)
    assert [(row["owners"], row["dim"]) for row in rows] == [("2", "21"), ("10", "4")]
    for row in rows:
        owners = data.neyman_pearson(int(row["owners"]), d=int(row["dim"]))
        answer = fp.solve(tasks.neyman_pearson(owners, 0.2), "proximal-al", tol=0.01)
        assert (int(row["exchanges"]), int(row["bytes"])) == (answer.rounds, answer.communication.bytes)


def test_parties(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    done = run("parties", "--people", "60", "--parties", "2", "--alignments", "id,keyed-hash", "--csv", str(path))
    assert done.exit_code == 0, done.output
    rows = read(path)
    assert [(row["alignment"], row["status"]) for row in rows] == [("id", "solved"), ("keyed-hash", "solved")]
    assert all(0 < float(row["aligning"]) < float(row["seconds"]) for row in rows)


# -------------------------------------------------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["rounds", "--problems", "mnist"], "Invalid value for '--problems': 'mnist' is not one of 'synthetic'"),
        (["rounds", "--problems", "lcqp,mnist"], "Invalid value for '--problems': 'mnist' is not one of"),
        (["rounds", "--methods", "magic"], "Invalid value for '--methods': 'magic' is not one of 'proximal-al-paper'"),
        (["rounds", "--owners", "0"], "Invalid value for '--owners': 0 is not in the range x>=1"),
        (["rounds", "--owners", "5,many"], "Invalid value for '--owners': 'many' is not a valid integer"),
        (["rounds", "--tol", "2"], "Invalid value for '--tol': 2.0 is not in the range 0<x<1"),
        (["rounds", "--budget", "0"], "Invalid value for '--budget': 0.0 is not in the range x>0"),
        (["rounds", "--plot", "figure.doc"], "Invalid value for '--plot': 'figure.doc': give a file"),
        (["rounds", "--plot", "no-such-folder/f.png"], "Invalid value for '--plot'"),
        (["rounds", "--csv", "no-such-folder/rows.csv"], "Invalid value for '--csv'"),
        (["time", "--problems", "lcqp"], "Invalid value for '--problems': 'lcqp' is not one of"),
        (["time", "--repeat", "0"], "Invalid value for '--repeat'"),
        (["growth", "--columns", "1"], "Invalid value for '--columns': 1 is not in the range x>=2"),
        (["growth", "--data", "here"], "No such option"),
    ],
)
def test_misuse_is_told_before_anything_runs(args: list[str], told: str) -> None:
    done = run(*args)
    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("command", ["rounds", "time", "growth"])
def test_help_teaches(command: str) -> None:
    text = run(command, "--help").stdout
    assert text.count(f"fedpact bench {command}") >= 2
    for option in ("--budget", "--seed", "--markdown", "--csv", "--tol"):
        assert option in text
