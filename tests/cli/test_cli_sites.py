"""`fedpact sites`: the table and JSON of who is online; the SuperLink is replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from raising import raises_code
from site_files import write_sites

from fedpact.cli.sites import sites
from fedpact.engines.flower.submit import SITES, SuperLink, _read_sites
from fedpact.federation.protocol import PROTOCOL

FOUND: list[dict[str, Any]] = [
    {"name": "south", "version": "0.2.0", "protocol": 0, "policy": "", "node": "7"},
    {"name": "[/x] north", "version": "1.0.0", "protocol": PROTOCOL, "policy": "ab" * 32, "node": "8"},
    {"name": "", "version": "", "protocol": 0, "policy": "", "node": "9"},
]


@pytest.fixture(autouse=True)
def _online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SuperLink, "list_sites", lambda self, seconds: FOUND)


def test_the_table_tells_what_matters_of_every_site() -> None:
    done = CliRunner().invoke(sites, ["127.0.0.1:1"])
    assert done.exit_code == 0, done.output
    silent, north, south = [line for line in done.output.splitlines() if "no" in line or "south" in line]
    assert "node 9" in silent
    assert "does not answer" in silent
    assert north.strip().startswith("[/x] north")
    assert "abababababab" in north
    assert "ab" * 7 not in north
    assert "speaks another protocol" in south


def test_owners_of_a_job_come_first_also_those_that_are_missing(folder: Path) -> None:
    path = folder / "job.toml"
    text = path.read_text()
    for owner in ("north", "south", "coast"):
        text = text.replace(f'"{owner}.csv"', '"flower://127.0.0.1:1"')
    keys = write_sites(folder / "sites", dict.fromkeys(("north", "south", "coast"), path), features=[])
    path.write_text(f"{text}\n{keys.toml()}")
    done = CliRunner().invoke(sites, [str(path), "--json"])
    assert done.exit_code == 0, done.output
    rows = [(row["name"], row["online"]) for row in json.loads(done.output)]
    assert rows == [("coast", False), ("north", False), ("south", True), ("", True), ("[/x] north", True)]


def test_a_job_of_files_has_no_sites(folder: Path) -> None:
    with raises_code("FP-OPTION-671", ""):
        sites.main([str(folder / "job.toml")], standalone_mode=False)


def test_a_log_without_the_list_is_an_error() -> None:
    assert _read_sites(f"INFO : {SITES}[]\nINFO : done") == []
    with raises_code("FP-660", "", "no route to host"):
        _read_sites("Error: no route to host")
