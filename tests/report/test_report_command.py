"""`fedpact report` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from example_records import ended, solved

from fedpact.cli.main import main
from fedpact.report import sections
from fedpact.report.page import markdown, page
from fedpact.report.record import Record


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    solved().save(folder)
    return folder


def call(monkeypatch: pytest.MonkeyPatch, *args: object) -> int:
    monkeypatch.setattr(sys, "argv", ["fedpact", "report", *map(str, args)])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_the_page_is_written_into_the_run(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, run) == 0
    assert (run / "report.html").read_text(encoding="utf-8") == page(sections.report(solved()))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"All constraints are met, within the tolerance: {run / 'report.html'}\n"


def test_or_elsewhere_and_whatever_the_verdict(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended("stalled").save(run)
    assert call(monkeypatch, run, "--out", tmp_path / "new" / "a.html") == 0
    assert "Not solved" in (tmp_path / "new" / "a.html").read_text(encoding="utf-8")
    assert not (run / "report.html").exists()


def test_markdown_is_printed_or_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, run, "--markdown") == 0
    assert capsys.readouterr().out == markdown(sections.report(solved()))
    assert call(monkeypatch, run, "--markdown", "--out", tmp_path / "a.md") == 0
    assert (tmp_path / "a.md").read_text(encoding="utf-8") == markdown(sections.report(solved()))
    assert not (run / "report.html").exists()


def test_figures_are_written_as_png(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plot' is not installed")
    assert call(monkeypatch, run, "--png", tmp_path / "png") == 0
    found = sorted(tmp_path.joinpath("png").iterdir())
    assert [path.name for path in found] == ["bytes.png", "certificate.png", "objective.png", "violation.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000 for path in found)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "FP-512"),
        ("{", "FP-513"),
        ('{"format": "other"}', "FP-511"),
        ('{"format": "fedpact-run-1"}', "FP-513"),
    ],
)
def test_a_folder_without_a_run(
    content: str | None,
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    assert call(monkeypatch, tmp_path) == 2
    said = capsys.readouterr().err
    assert f"[{code}]" in said
    assert str(tmp_path / "run.json") in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("option", ["--out", "--png"])
def test_a_place_that_cannot_be_written(
    option: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, run, option, run / "run.json" / "x" / "y") == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"fedpact: {run / 'run.json'}")
    assert said.endswith("[FP-501]")


def test_a_page_needs_no_extra(run: Path) -> None:
    """Neither matplotlib nor the solvers' heavy friends are imported for a page."""
    code = (
        "import sys; from fedpact.cli.main import cli; cli(['report', sys.argv[1]], standalone_mode=False); "
        "print(sorted({'matplotlib', 'sklearn', 'ray', 'flwr', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(run)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
    assert (run / "report.html").is_file()


def test_records_of_earlier_versions_are_read(run: Path) -> None:
    """They know of nothing that is withheld."""
    content = json.loads((run / "run.json").read_text())
    for one in (*content["bounded"], *content["measured"]):
        del one["withheld"]
    (run / "run.json").write_text(json.dumps(content))
    assert Record.load(run) == solved()
