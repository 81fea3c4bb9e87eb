"""Tables are never cut: not in a pipe, not in a file, not on a narrow terminal."""

from __future__ import annotations

import importlib
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedpact.cli.main import cli
from fedpact.report import tables
from fedpact.report.tables import print_table, table

NUMBERS = ("9.87654e-321", "1234567.8901", "0.820 to 0.967", "at most 0.35")


def printed(width: int, capsys: pytest.CaptureFixture[str], rows: int = 3, name: str = "hospital 1") -> str:
    shown = table("owner", *(f"measure {i}" for i in range(9)), "constraint", words=("constraint",))
    for k in range(rows):
        cells = [NUMBERS[(i + k) % len(NUMBERS)] for i in range(9)]
        shown.add_row(f"{name}{k}", *cells, "mean loss on relapse = yes")
    print_table(shown, width)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [20, 40, 80, 120, None])
def test_every_cell_is_there_at_every_width(width: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    told = printed(width, capsys)  # type: ignore[arg-type]
    assert "\u2026" not in told
    for i in range(9):
        assert len(re.findall(rf"\bmeasure {i}\b", told)) == 1
    for number in NUMBERS:
        assert told.count(number) == sum(NUMBERS[(i + k) % len(NUMBERS)] == number for i in range(9) for k in range(3))
    for k in range(3):
        assert f"hospital 1{k}" in told
    if width is not None and width >= 40:
        assert max(map(len, told.splitlines())) <= width
    if width is None:
        assert told.count("owner") == 1  # in one piece


def test_what_speaks_of_the_column_before_it_stays_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    shown = table("owner", "recall", "95 %", "before", "specificity", "95 %", "before")
    shown.add_row("hospital 1", "0.913", "0.820 to 0.967", "0.696", "0.565", "0.476 to 0.651", "0.786")
    print_table(shown, 60)
    headers = [line.split() for line in capsys.readouterr().out.splitlines() if "owner" in line]
    assert headers == [["owner", name, "95", "%", "before"] for name in ("recall", "specificity")]


def test_a_name_that_is_wider_than_the_terminal_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a hospital whose name is longer than the line "
    assert f"{name}2" in printed(40, capsys, name=name)


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)


#: What prints tables, by command; `{}` is the folder of a job with a run.
COMMANDS = {
    "run": ["run", "{}/job.toml", "--force"],
    "profile": ["profile", "{}/job.toml"],
    "evaluate": ["evaluate", "{}/run", "--table", "north={}/unseen.csv"],
    "demo": ["demo", "--hospitals", "3"],
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables") / "x"
    assert CliRunner().invoke(cli, ["init", str(folder)]).exit_code == 0
    lines = (folder / "north.csv").read_text().splitlines()
    changed = [",".join([*line.split(",")[:2], "11.25", *line.split(",")[3:]]) for line in lines[1:]]
    (folder / "unseen.csv").write_text("\n".join([lines[0], *changed]) + "\n")
    assert CliRunner().invoke(cli, ["run", str(folder / "job.toml")]).exit_code == 0
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_prints_is_the_same_at_every_width(
    command: str, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same words and numbers, in pieces where the terminal is narrow."""
    if command == "demo":
        pytest.importorskip("sklearn", reason="the data of the demo are in scikit-learn")
    arguments = [one.format(ran) for one in COMMANDS[command]]
    found: dict[int | None, set[str]] = {}
    for width in (None, 120, 80, 40):
        show = print_table if width is None else lambda made, width=width: print_table(made, width)
        for module in ("run", "profile", "evaluate", "demo"):
            monkeypatch.setattr(importlib.import_module(f"fedpact.cli.{module}"), "print_table", show)
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
        assert "\u2026" not in done.output
        words = re.sub(r"[\u2500-\u257f]+|[0-9.]+ s\b", "", done.output)  # but for lines and seconds
        found[width] = set(words.split())
    assert found[120] == found[80] == found[40] == found[None]


@pytest.mark.slow
def test_on_a_terminal_of_40_columns(ran: Path) -> None:
    """A real one: what the process itself finds out about its width."""
    parent, child = pty.openpty()
    program = [sys.executable, "-c", "from fedpact.cli.main import main; main()", "profile", str(ran / "job.toml")]
    process = subprocess.Popen(program, stdout=child, stderr=child, env={**os.environ, "COLUMNS": "40"})
    os.close(child)
    told = b""
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:  # it has ended
            break
        if not chunk:
            break
        told += chunk
    assert process.wait() == 0
    os.close(parent)
    lines = re.sub(rb"\x1b\[[0-9;]*m", b"", told).decode().splitlines()
    table_lines = [line for line in lines if line.startswith(" ")]
    assert table_lines
    assert max(map(len, table_lines)) <= 40
    assert "\u2026" not in "".join(lines)
    assert tables.WIDTH > 40
