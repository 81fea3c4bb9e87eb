"""A site's log: lines of text or JSON, on stderr or in a private file that is rotated."""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from fedpact.engines.flower import logs

LOGGER = logging.getLogger("fedpact")


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """No handlers before, and those of the test gone after it."""
    before = (LOGGER.handlers, LOGGER.level)
    LOGGER.handlers = []
    yield
    for handler in LOGGER.handlers:
        handler.close()
    LOGGER.handlers, LOGGER.level = before


def test_json_lines_hold_all_of_a_record(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "site.log"
    logs.speak("json", path)
    site = logging.getLogger("fedpact.site")
    site.info("%s: connected\nas node %d", "Spital Zürich", 7)
    try:
        raise ValueError("a cell")
    except ValueError:
        site.exception("a step failed")
    first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert first["message"] == "Spital Zürich: connected\nas node 7"
    assert (first["level"], first["logger"]) == ("INFO", "fedpact.site")
    assert datetime.fromisoformat(first["time"]).tzinfo is not None
    assert "traceback" not in first
    assert second["level"] == "ERROR"
    assert "ValueError: a cell" in second["traceback"]


def test_a_log_file_is_private_and_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LARGEST", 1000)
    monkeypatch.setattr(logs, "KEPT", 3)
    logs.speak("text", tmp_path / "site.log")
    for number in range(200):
        LOGGER.info("line %d", number)
    found = sorted(tmp_path.iterdir())
    assert [path.name for path in found] == ["site.log", "site.log.1", "site.log.2", "site.log.3"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}
    assert all(path.stat().st_size <= 1000 for path in found)
    assert (tmp_path / "site.log").read_text().endswith("fedpact: line 199\n")


def test_without_a_file_it_goes_to_stderr_and_only_once(capsys: pytest.CaptureFixture[str]) -> None:
    logs.speak("json")
    logs.speak("json")
    LOGGER.info("once")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "once"
