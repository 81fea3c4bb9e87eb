"""A disk that is full costs nothing but the time until there is space again."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raising import raises_code
from test_jobs_run_folder import contents

import fedpact as fp
from fedpact.federation.checkpoint import Checkpoint
from fedpact.jobs import read_job, run_folder, run_job, running
from fedpact.jobs.run_folder import beside
from fedpact.report.record import Record


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)


def fill_at(number: int, patch: pytest.MonkeyPatch, kind: Any, name: str) -> None:
    """From this call on the disk is full, after half of what is to be written."""
    usual = getattr(kind, name)
    left = number

    def write(*given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a file")
        return usual(*given, **named)

    patch.setattr(kind, name, write)


PLACES = {
    "first exchange": (1, Checkpoint, "write"),
    "checkpoint": (12, Checkpoint, "write"),
    "solution": (0, fp.Solution, "save"),
    "record": (0, Record, "save"),
    "swap": (1, run_folder, "_copy_foreign"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("old", [False, True], ids=["new", "force"])
def test_a_full_disk_is_one_sentence_and_loses_nothing(folder: Path, place: str, old: bool) -> None:
    job = read_job(folder / "job.toml")
    run_job(job)
    expected = fp.Solution.load(folder / "run" / "solution.npz").w
    before = contents(folder / "run") if old else {}
    if not old:
        shutil.rmtree(folder / "run")
    if place == "swap" and not old:
        pytest.skip("nothing is swapped")
    with pytest.MonkeyPatch.context() as patch:
        fill_at(*PLACES[place][:1], patch, *PLACES[place][1:])
        with raises_code("FP-484", "a file", "--resume", "No space left"):
            run_job(job, force=old)
    if old and place != "swap":
        assert contents(folder / "run") == before
    assert run_job(job, resume=True).solved
    assert not beside(folder / "run").exists()
    assert fp.Solution.load(folder / "run" / "solution.npz").w.tobytes() == expected.tobytes()


def test_other_errors_of_the_system_are_not_taken_for_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> None:
        raise ConnectionError(errno.ECONNRESET, "gone")

    monkeypatch.setattr(running, "write", fail)
    with pytest.raises(ConnectionError):
        run_job(read_job(folder / "job.toml"))


#: Runs the command line with files of at most so many bytes.
LIMITED = """
import resource, sys
from fedpact.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
main()
"""


@pytest.mark.slow
def test_a_limit_of_the_size_of_files(folder: Path) -> None:
    job = str(folder / "job.toml")
    command = [sys.executable, "-c", LIMITED, str(8000), "run", job]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "[FP-484]" in done.stderr
    assert "Traceback" not in done.stderr
    assert run_job(read_job(job), resume=True).solved


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a disk")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "small", str(place)], check=False)
    if made.returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(filler: Path) -> None:
    """Leave room for a few exchanges only."""
    free = os.statvfs(filler.parent)
    filler.write_bytes(b"x" * (free.f_bavail * free.f_frsize - 40_000))


@pytest.mark.slow
def test_a_disk_that_is_full(folder: Path, small_disk: Path) -> None:
    text = (folder / "job.toml").read_text().replace('folder = "run"', f'folder = "{small_disk}/run"')
    (folder / "job.toml").write_text(text)
    job = read_job(folder / "job.toml")
    filler = small_disk / "filler"
    fill(filler)
    with raises_code("FP-484", "", "No space left"):
        run_job(job)
    filler.unlink()
    assert run_job(job, resume=True).solved
    before = contents(small_disk / "run")
    fill(filler)
    with raises_code("FP-484", "", "No space left"):
        run_job(job, force=True)
    assert contents(small_disk / "run") == before
    filler.unlink()
    assert run_job(job, force=True).solved
