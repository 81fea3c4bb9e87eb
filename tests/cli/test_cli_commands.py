"""The command line: help, misuse in one line and exit code 2, and the demo as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points

import pytest

from fedpact.cli.main import COMMANDS, EXPERIMENTS, GROUP, main

RUN = "from fedpact.cli.main import main; main()"


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", RUN, *args], capture_output=True, text=True, timeout=120)


def call(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    """main() in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["fedpact", *args])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_the_script_is_registered() -> None:
    (script,) = [e for e in entry_points(group="console_scripts") if e.name == "fedpact"]
    assert script.load() is main


@pytest.mark.parametrize("args", [["--help"], ["-h"]])
def test_help_lists_every_command(args: list[str], monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
    assert call(monkeypatch, *args) == 0
    text = capsys.readouterr().out
    assert text.startswith("Usage: fedpact [OPTIONS] COMMAND")
    for name in COMMANDS:
        assert re.search(rf"^  {name}\s+\w+", text, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
    assert call(monkeypatch, name, "--help") == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: fedpact {name}")
    assert len(text.splitlines()) > 10


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_command_of_a_package_that_is_not_installed(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [])
    assert call(monkeypatch, name, "--list") == 2
    told = capsys.readouterr().err
    assert f"Error: 'fedpact {name}' is a command of the package fedpact-experiments, which is not installed" in told
    assert "pip install -e experiments" in told
    assert call(monkeypatch, "--help") == 0
    assert f"  {name} " not in capsys.readouterr().out


def test_commands_of_other_packages_are_listed_and_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = EntryPoint("toy", "fedpact.cli.demo:demo", GROUP)
    hidden = EntryPoint("demo", "no_such_module:demo", GROUP)  # a command of fedpact cannot be replaced
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [ours, hidden])
    assert call(monkeypatch, "--help") == 0
    text = capsys.readouterr().out
    assert re.search(r"^  toy +A command of fedpact\.$", text, re.MULTILINE)
    assert text.count("\n  demo ") == 1
    for name in ("toy", "demo"):
        assert call(monkeypatch, name, "--help") == 0
        assert "--hospitals" in capsys.readouterr().out


def test_the_options_of_the_demo_are_all_explained(monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
    call(monkeypatch, "demo", "--help")
    text = capsys.readouterr().out
    for option in ("--hospitals", "--bound", "--weight", "--tol", "--method", "--seed"):
        assert re.search(rf"{option} .*\n?.*\[default:", text), option
    assert "Exit code 0 when the certificate meets --tol, else 1" in text


def test_the_version(monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
    assert call(monkeypatch, "--version") == 0
    assert re.search(r"\d+\.\d+\.\d+", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["demo", "--hospitals", "0"], "Error: Invalid value for '--hospitals': 0 is not in the range 1<=x<=40."),
        (["demo", "--hospitals", "many"], "Error: Invalid value for '--hospitals': 'many' is not a valid int"),
        (["demo", "--method", "magic"], "Error: Invalid value for '--method': 'magic' is not one of 'auto', "),
        (["demo", "--no-such"], "Error: No such option"),
        (["demo", "extra"], "Error: Got unexpected extra argument (extra)"),
        (["demo", "--tol", "3"], "fedpact: tol = 3.0: "),
        (["demo", "--tol", "nan"], "fedpact: tol = nan: "),
        (["demo", "--bound", "-1"], "fedpact: bound = -1"),
        (["demo", "--weight", "-1"], "fedpact: regularization is -1"),
        (["nope"], "Error: No such command 'nope'."),
    ],
)
def test_misuse_is_one_clear_line(
    args: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *args) == 2
    seen = capsys.readouterr()
    lines = [text for text in seen.err.splitlines() if text.startswith(("Error:", "fedpact:"))]
    assert len(lines) == 1
    assert lines[0].startswith(told)
    assert "Traceback" not in seen.err
    assert seen.out == ""


def test_misuse_in_a_process_of_its_own() -> None:
    done = run("demo", "--tol", "3")
    assert done.returncode == 2
    assert re.fullmatch(r"fedpact: tol = 3\.0: .* \[FP-OPTION.*\]\n", done.stderr)


# ----------------------------------------------------------------------------------------------------------- the demo


def test_the_demo() -> None:
    done = run("demo", "--hospitals", "4")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no live line in a pipe

    rows = re.findall(
        r"^ *hospital (\d+) +(\d+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +(\w+)", done.stdout, re.M
    )
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert sum(int(row[1]) for row in rows) == 569
    assert sum(int(row[2]) for row in rows) == 212
    for row in rows:
        before, loss, bound, price = (float(cell) for cell in row[3:7])
        assert bound == 0.05
        assert before > bound  # without the constraint every hospital is above its bound
        assert loss <= bound + 1e-3 + 5e-5  # the tolerance, and the rounding of the table
        assert price >= 0
        assert row[7] == "yes"
    assert any(float(row[6]) > 0 for row in rows)

    number = r"([\d.e+-]+)"
    found = re.search(
        rf"certificate +stationarity {number}, feasibility {number}, violation {number} \(asked: {number}\)",
        done.stdout,
    )
    assert found
    stationarity, feasibility, violation, asked = (float(text) for text in found.groups())
    assert asked == 1e-3
    assert max(stationarity, feasibility, violation) <= asked
    gap = re.search(rf"objective +{number} from the pooled optimum", done.stdout)
    assert gap
    assert float(gap.group(1)) < 1e-2
    assert re.search(r"^solved: ", done.stdout, re.M)
    cost = re.search(r"cost +(\d+) exchanges .*, (\d+) for this one, [\d.]+ MB over 4 hospitals", done.stdout)
    assert cost
    assert int(cost[1]) > int(cost[2])


def test_the_demo_says_when_it_is_not_solved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules["fedpact.solve"], "DEFAULT_MAX_ROUNDS", 8)
    assert call(monkeypatch, "demo", "--hospitals", "2") == 1
    text = capsys.readouterr().out
    assert re.search(r"^max_rounds: the limit of 8 exchanges came first", text, re.M)
    certificate = re.search(r"stationarity ([\d.e+-]+), feasibility ([\d.e+-]+)", text)
    assert certificate
    assert max(float(number) for number in certificate.groups()) > 1e-3
