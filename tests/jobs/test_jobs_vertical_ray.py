"""Vertical jobs on Ray: every table in its own process, and kill -9 of a party and of the coordinator in each phase."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from party_files import PARTIES, PEOPLE, make_people, write_parties

from fedpact.cli.main import cli
from fedpact.engines import Ray
from fedpact.federation import Fleet
from fedpact.federation.wire import loads
from fedpact.jobs import read_job, run_job
from fedpact.problem import Piece

ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray"), pytest.mark.usefixtures("ray_cluster")]

#: A step in the middle of each phase, and which order of it meets the kill.
PHASES = {"alignment": ("accept", 1), "training": ("advance", 4), "last exchange": ("conclude", 1)}


def pieces_of(job: Path) -> dict[str, bytes]:
    folder = job.parent / "run" / "pieces"
    return {name: Piece.load(folder / f"{name}.npz").theta.tobytes() for name in PARTIES}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_parties(tmp_path / "x", make_people())


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The pieces of a run in one process that nobody disturbs."""
    job = write_parties(tmp_path_factory.mktemp("alone"), make_people())
    assert run_job(read_job(job)).solved
    return pieces_of(job)


class Killing:
    """Ray, where the process of an owner gets SIGKILL as certain orders are to be sent to it: the n-th of a step."""

    def __init__(self, owner: str, *events: tuple[str, int]) -> None:
        self.owner = owner
        self.left = dict(events)
        self.killed = 0

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        fleet = Ray(actors=3).open(shares, folder)
        call = fleet._call

        def kill_first(host: Any, messages: Mapping[str, bytes]) -> dict[str, Future[Any]]:
            step = ""
            if self.owner in messages:
                step = str(loads(messages[self.owner])["step"]).rpartition(":")[2]
            if step in self.left:
                self.left[step] -= 1
                if self.left[step] == 0:
                    self.killed += 1
                    os.kill(ray.get(host.process.remote()), signal.SIGKILL)
            return call(host, messages)

        fleet._call = kill_first
        return fleet


def test_a_party_that_is_killed_in_every_phase_goes_on(job: Path, expected: dict[str, bytes]) -> None:
    engine = Killing("shop", *PHASES.values())
    record = run_job(read_job(job), engine=engine)
    assert engine.killed == len(PHASES)
    assert record.solved
    assert pieces_of(job) == expected
    tables = [part for name in PARTIES for part in ("--table", f"{name}={job.parent / f'{name}.csv'}")]
    alone, on_ray = (
        CliRunner().invoke(cli, ["predict", str(job.parent / "run"), *tables, "--engine", engine]).output
        for engine in ("in-process", "ray")
    )
    assert len(on_ray.splitlines()) == PEOPLE + 1
    assert on_ray == alone


def test_a_party_killed_in_a_private_intersection_keeps_its_key(job: Path, expected: dict[str, bytes]) -> None:
    job.write_text(job.read_text().replace('alignment = "id"', 'alignment = "private"'))
    engine = Killing("shop", ("multiply", 2))
    assert run_job(read_job(job), engine=engine).solved
    assert engine.killed == 1
    for name, theta in pieces_of(job).items():  # people are in another order, so sums differ by rounding
        assert np.allclose(np.frombuffer(theta), np.frombuffer(expected[name]), atol=1e-6)


#: A coordinator that kills itself as an order is to be sent.
COORDINATOR = """
import os, signal, sys
from fedpact.engines import Ray
from fedpact.federation.wire import loads
from fedpact.jobs import read_job, run_job

class Dying:
    def __init__(self, address, step, number):
        self.address, self.step, self.left = address, step, number

    def open(self, shares, folder=None):
        fleet = Ray(self.address, actors=3).open(shares, folder)
        call = fleet._call

        def die_first(host, messages):
            if "shop" in messages and str(loads(messages["shop"])["step"]).endswith(f":{self.step}"):
                self.left -= 1
                if self.left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return call(host, messages)

        fleet._call = die_first
        return fleet

address, job, step, number, resume = sys.argv[1:]
run_job(read_job(job), engine=Dying(address, step, int(number)), resume=resume == "resume")
"""


def test_a_coordinator_that_is_killed_in_every_phase_is_resumed(
    job: Path, expected: dict[str, bytes], ray_cluster: str
) -> None:
    begin = "begin"
    for step, number in PHASES.values():
        command = [sys.executable, "-c", COORDINATOR, ray_cluster, str(job), step, str(number), begin]
        killed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        begin = "resume"
    record = run_job(read_job(job), engine="ray", resume=True)
    assert record.solved
    assert pieces_of(job) == expected
