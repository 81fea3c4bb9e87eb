"""`fedpact bench` and `fedpact replicate` are commands of `fedpact` when the package is installed."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedpact import data, tasks
from fedpact.cli.main import EXPERIMENTS, GROUP, cli
from fedpact.engines import InProcess
from fedpact.solve import solve
from fedpact_experiments.bench import slow_party
from fedpact_experiments.bench.command import bench
from fedpact_experiments.bench.problems import PROBLEMS
from fedpact_experiments.replications.command import replicate


def test_the_commands_are_registered() -> None:
    found = {entry.name: entry.load() for entry in entry_points(group=GROUP)}
    assert {name: found[name] for name in EXPERIMENTS} == {"bench": bench, "replicate": replicate}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_fedpact_lists_and_explains_them(name: str) -> None:
    listed = CliRunner().invoke(cli, ["--help"])
    assert re.search(rf"^  {name} +\w+", listed.stdout, re.MULTILINE)
    explained = CliRunner().invoke(cli, [name, "--help"], prog_name="fedpact")
    assert explained.stdout.startswith(f"Usage: fedpact {name}")
    assert explained.stdout.count(f"fedpact {name}") > 4


@pytest.mark.parametrize("name", list(bench.commands))
def test_every_benchmark_explains_itself(name: str) -> None:
    text = CliRunner().invoke(bench, [name, "--help"]).stdout
    assert text.startswith(f"Usage: bench {name}")
    assert len(text.splitlines()) > 8


def test_engines_side_by_side() -> None:
    done = CliRunner().invoke(
        bench, ["engines", "--engines", "threads", "--owners", "2", "--dims", "5", "--rounds", "3", "--markdown"]
    )
    assert done.exit_code == 0, done.output
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| 2 |")]
    assert [row[2] for row in rows] == ["in-process", "threads"]
    assert rows[0][4] == "1"
    assert "median of 3 exchanges" in done.stdout


def test_steps_of_the_server_are_counted_in_both_forms() -> None:
    """Where nobody is slow and all answer at once, a step of either form is one order to every party."""
    asked = slow_party.problem(rows=60, seconds=0.0, slow=1)
    for asynchronous in (False, True):
        row = slow_party.measure(InProcess(), asked, 1, asynchronous, steps=5)
        assert row.steps == 5
        assert len(set(row.orders)) == 1
        assert 5 < row.orders[0] < 15
        assert row.cells(row)["ratio"] == "1.00"


@pytest.mark.slow
def test_a_cell_of_the_growth_with_owners() -> None:
    table = ["owners", "--owners", "2,4", "--methods", "interior-point", "--rows", "20", "--dim", "3", "--markdown"]
    done = CliRunner().invoke(bench, table)
    assert done.exit_code == 0, done.output
    header, _, *rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    cells = [dict(zip(header, row, strict=True)) for row in rows]
    assert [(cell["owners"], cell["status"]) for cell in cells] == [("2", "solved"), ("4", "solved")]
    assert cells[0]["growth"] == "1.00"
    answer = solve(tasks.neyman_pearson(data.neyman_pearson(4, 20, 3), 0.3), "interior-point", max_rounds=40)
    assert cells[1]["exchanges"] == str(answer.rounds)
    assert float(cells[1]["MB / exchange"]) == pytest.approx(answer.communication.bytes / answer.rounds / 1e6, rel=0.01)


def test_both_algorithms_beside_the_optimum(data_folder: Path) -> None:
    asked = ["--data", str(data_folder), "--problems", "breast-cancer-wisc", "--owners", "2", "--markdown"]
    done = CliRunner().invoke(bench, ["neyman-pearson", *asked])
    assert done.exit_code == 0, done.output
    header, _, row = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    cell = dict(zip(header, row, strict=True))
    problem = PROBLEMS["breast-cancer-wisc"](2, str(data_folder), 0).problem
    best = solve(problem, "interior-point", tol=1e-9).objective  # the table has Clarabel's
    assert cell["optimum"] == f"{best:.5f} (Clarabel)"
    for method, column in (("proximal-al", "Alg. 1"), ("centralized-proximal-al", "Alg. 3")):
        assert cell[column] == f"{solve(problem, method).objective:.5f}"
    assert cell["status 1 / 3"] == "solved / solved"
    assert 0.19 < float(cell["max class-1 loss"]) < 0.201
