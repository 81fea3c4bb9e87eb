"""`fedpact replicate`: what it lists, prints and writes; the quick part of every replication."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fedpact.cli.main import cli, main
from fedpact.cli.replicate import REPLICATIONS
from fedpact.cli.replications.findings import Claim, Replication, Table, Task
from fedpact.cli.replications.ifeddr_logistic import DONE, PATIENCE, Ran, idle, until
from fedpact.cli.trace import Point, Trace
from fedpact.report import figures


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["replicate", *args])


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """A replication called 'toy' that only reports what it was asked."""
    asked: list[Task] = []

    def replicate(task: Task) -> Replication:
        asked.append(task)
        task.say("at work")
        lines = {"a": ([1.0, 2.0], [3.0, 0.5]), "b": ([1.0, 2.0], [0.0, 1.0])}
        return Replication(
            "A toy",
            [
                Table(
                    "what it holds", ("method", "setting", "rounds"), [["a", "x", "3"], ["b", "y", "12"]], ("setting",)
                )
            ],
            [Claim("Figure 1", "it is so", "it is", True), Claim("Figure 2", "it is not", "it is", False)],
            ["it is a toy"],
            {"toy-figure": figures.panels([figures.Panel("t", "x", "y", lines, log_x=True)])},
        )

    module = ModuleType("toy_replication")
    module.replicate = replicate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "toy_replication", module)
    monkeypatch.setitem(REPLICATIONS, "toy", ("toy_replication", "a toy"))
    command = cli.get_command(None, "replicate")  # type: ignore[arg-type]
    assert command is not None
    monkeypatch.setattr(command.params[0].type, "choices", list(REPLICATIONS))
    return asked


def test_the_list() -> None:
    done = run("--list")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(REPLICATIONS)
    assert all(text in line for line, (_, text) in zip(lines, REPLICATIONS.values(), strict=True))


def test_what_is_found_is_printed_and_drawn(toy: list[Task], tmp_path: Path) -> None:
    done = run("toy", "--data", "somewhere", "--out", str(tmp_path / "new"))
    assert done.exit_code == 0, done.output
    assert (toy[0].folder, toy[0].quick) == ("somewhere", False)
    assert done.stderr.splitlines()[0] == "at work"
    assert re.search(r"^ a +x +3 *$", done.stdout, re.M)
    assert re.search(r"^ b +y +12 *$", done.stdout, re.M)
    assert "[agrees] Figure 1\n  paper: it is so\n  ours:  it is\n" in done.stdout
    assert "[DIFFERS] Figure 2" in done.stdout
    assert "Where this is not what the paper did:\n- it is a toy\n" in done.stdout
    assert (tmp_path / "new" / "toy-figure.svg").read_text().count("<svg") == 1
    assert f"wrote {tmp_path / 'new' / 'toy-figure.svg'}" in done.stderr


def test_quick_decides_nothing_and_markdown_is_markdown(toy: list[Task], tmp_path: Path) -> None:
    done = run("toy", "--quick", "--markdown", "--out", str(tmp_path))
    assert toy[0].quick
    assert "| a | x | 3 |" in done.stdout
    assert done.stdout.count("[not decided]") == 2
    assert "on which no claim is decided" in done.stdout


def test_an_unknown_name_and_missing_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("nonsense").exit_code == 2
    monkeypatch.delenv("FEDPACT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        sys, "argv", ["fedpact", "replicate", "ifeddr-fair", "--data", str(tmp_path), "--out", str(tmp_path)]
    )
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "fedpact: data file 'cifar10_efficientnetlite0_features.npz' not found" in capsys.readouterr().err


def test_without_matplotlib_nothing_is_run(toy: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = run("toy")
    assert done.exit_code == 1
    assert "fedpact[plot]" in str(done.exception)
    assert toy == []


def test_long_lines_are_drawn_with_few_points() -> None:
    x = list(range(1, 100_001))
    figure = figures.panels(
        [figures.Panel("t", "x", "y", {"a": (x, x)}, log_x=log) for log in (True, False)]
        + [figures.Panel("u", "x", "y", {})],
        columns=2,
    )
    for axes in figure.axes[:2]:
        (line,) = axes.lines
        drawn = line.get_xdata()
        assert 150 < len(drawn) <= figures.POINTS
        assert (drawn[0], drawn[-1]) == (1, 100_000)
        np.testing.assert_array_equal(line.get_ydata(), drawn)


# ---------------------------------------------------------------------------------------------------- ifeddr-logistic


def trace(*measured: float) -> Trace:
    return Trace([Point(k, k + 1, (k,), (0,), value) for k, value in enumerate(measured)], None, 0.0, False)


def test_when_a_run_has_stalled() -> None:
    falling = [0.98**k for k in range(300)]
    flat = falling[:150] + 150 * [falling[150]]
    assert not idle(trace(*falling).points)
    assert idle(trace(*flat).points)
    assert not idle(trace(*([1.0] * PATIENCE)).points)
    assert Ran("a", "", trace(*flat)).stalled
    assert not Ran("a", "", trace(*(DONE / 2 for _ in range(300)))).stalled
    assert until(10, 999)(trace(*falling[:11]).points)
    assert not until(10, 999)(trace(*falling[:10]).points)
    assert until(999, 10)(trace(*falling[:11]).points)
    assert until(999, 999)(trace(1.0, DONE).points)
    assert Ran("a", "", trace(1.0, np.nan)).last == np.inf


def test_the_quick_part_of_ifeddr_logistic(data_folder: Path, tmp_path: Path) -> None:
    done = run("ifeddr-logistic", "--quick", "--data", str(data_folder), "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    found = {
        line.split("  ")[0].strip(): float(match.group())
        for line in done.stdout.splitlines()
        if (match := re.search(r"\d\.\de[-+]\d\d", line)) and "   " in line
    }
    for method in ("fedavg", "scaffold", "fedprox", "feddr tau 10, start s", "ifeddr, paper", "ifeddr"):
        assert 0 < found[method] < 0.6  # ln 2 - f* is where all begin
    assert found["ifeddr"] < found["ifeddr, paper"]
    figures = ["ifeddr-logistic-ablation.svg", "ifeddr-logistic-stall.svg", "ifeddr-logistic.svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == figures
    assert "f* = 0.18136960" in done.stdout


def test_the_quick_part_of_ifeddr_fair(data_folder: Path, tmp_path: Path) -> None:
    done = run("ifeddr-fair", "--quick", "--data", str(data_folder), "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    rows = re.findall(r"^ ((?:fedprox|feddr|ifeddr)\S*(?: \S+)*) {2,}.* (0\.\d{3}) +0\.\d\d ", done.stdout, re.M)
    assert len(rows) == 6
    assert all(0 <= float(accuracy) <= 1 for _, accuracy in rows)
    assert (tmp_path / "ifeddr-fair.svg").is_file()
    assert "is not monotone where a local vote is negative" in re.sub(r"\s+", " ", done.stdout)
