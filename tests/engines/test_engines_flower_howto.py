"""docs/how-to/flower.md, literally: five folders, each the home of a party, and every block of the page in its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from test_engines_flower_transport import QUICK, load_deployment, search_path

from fedpact.report.record import Record

pytestmark = [pytest.mark.flower, pytest.mark.xdist_group("flower")]  # one deployment, on one worker

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "flower.md"
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: The port of the page.
PORT = "8000"
#: Seconds until a process that was started in the background is up, also on a busy machine.
START = 300.0


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[dict[str, int]]:
    """Process groups of the background processes, ended when the test is."""
    started: dict[str, int] = {}
    yield started
    for end in (signal.SIGTERM, signal.SIGKILL):
        for group in started.values():
            with suppress(ProcessLookupError):
                os.killpg(group, end)
        time.sleep(1)


def run_block(block: str, place: Path, started: dict[str, int]) -> str:
    """Run the commands in a folder that is also their user's home; what goes on in the background is noted."""
    bin_folder = place / ".bin"
    bin_folder.mkdir(exist_ok=True)
    fedpact = bin_folder / "fedpact"
    fedpact.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from fedpact.cli.main import main; main()" "$@"\n')
    fedpact.chmod(0o755)
    environment = {
        **os.environ,
        "HOME": str(place),
        "PATH": f"{bin_folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": search_path(QUICK),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }
    environment.pop("FLWR_HOME", None)
    script = f"set -e\n{block}"
    output = place / f"block-{len(list(place.glob('block-*')))}.txt"
    with output.open("w") as target:
        process = subprocess.Popen(
            ["bash", "-c", script], cwd=place, env=environment, stdout=target, stderr=target, start_new_session=True
        )
        started[str(output)] = process.pid
        code = process.wait(1200)
    printed = output.read_text()
    assert code == 0, f"{place.name}: {block}\n{printed}"
    return printed


def test_the_page_as_it_stands(tmp_path: Path, parties: dict[str, int]) -> None:
    for tool in ("bash", "openssl", "ssh-keygen"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    port = load_deployment().free_port()
    printed: dict[str, list[str]] = {}
    for block in BLOCK.findall(PAGE.read_text().replace(PORT, str(port))):
        first, _, rest = block.partition("\n")
        places = first.removeprefix("# in ").split(", ") if first.startswith("# in ") else ["."]
        for place in places:
            told = run_block(rest if first.startswith("# in ") else block, tmp_path / place, parties)
            printed.setdefault(place, []).append(told)
        if "flower-superlink" in block:
            wait_for_port(port)
        if "site start" in block:
            wait_for_sites(tmp_path)
    said = "\n".join(printed["coordinator"])
    assert "refused, as expected" in said
    assert "FP-REFUSED-010" in said
    record = Record.load(tmp_path / "coordinator" / "run")
    assert record.status == "solved"
    assert [one.owner for one in record.bounded] == ["hospital1", "hospital2", "hospital3"]
    assert "Moments.total (masked)" in record.sent[0].fields
    assert (tmp_path / "coordinator" / "run" / "report.html").exists()
    # no row is anywhere but at its hospital, whatever the SuperLink keeps of what it relayed
    cells = (tmp_path / "hospital1" / "rows.csv").read_bytes().splitlines()[1:]
    for place in ("superlink", "coordinator", "published"):
        for path in (tmp_path / place).rglob("*"):
            content = path.read_bytes() if path.is_file() else b""
            assert not any(line in content for line in cells), path


def wait_for_port(port: int) -> None:
    until = time.monotonic() + START
    while not load_deployment().listens(port):
        assert time.monotonic() < until, "the SuperLink did not start"
        time.sleep(0.2)


def wait_for_sites(folder: Path) -> None:
    """Until each has a number of Flower's: it is online."""
    until = time.monotonic() + START
    for site in ("hospital1", "hospital2", "hospital3"):
        node = folder / site / "state" / "flower-node"
        while not (node.exists() and node.read_text()):
            log = (folder / site / "site.log").read_text()
            assert time.monotonic() < until, log
            time.sleep(0.2)
