"""Jobs on Ray: the model of one process, every table read once at its owner, and an owner killed at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from job_files import change

import fedpact as fp
from fedpact.cli.main import cli
from fedpact.engines import Ray
from fedpact.federation import Fleet
from fedpact.federation.identity import Identity
from fedpact.federation.wire import loads
from fedpact.jobs import read_job, run_job
from fedpact.jobs.verification import verify_run
from fedpact.tasks.model import Model

ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray"), pytest.mark.usefixtures("ray_cluster")]


def bits(folder: Path) -> bytes:
    return fp.Solution.load(folder / "run" / "solution.npz").w.tobytes()


def test_the_model_has_the_bits_of_one_process_and_tables_are_read_once(folder: Path) -> None:
    run_job(read_job(folder / "job.toml"))
    expected = bits(folder)
    tables = [folder / f"{owner}.csv" for owner in ("north", "south", "coast")]

    def remove_tables(progress: object) -> None:
        for table in tables:
            table.unlink(missing_ok=True)

    found = run_job(read_job(folder / "job.toml"), engine="ray", force=True, callbacks=[remove_tables])
    assert found.engine == "ray"
    assert bits(folder) == expected
    assert not any(table.exists() for table in tables)


MINIMAX = """
task = "minimax"
label = "relapse"
features = ["age", "dose", "pressure"]
classes = ["no", "yes"]
missing = "mean"
[solve]
tol = 1e-7
[output]
folder = "run"
[owners]
north = "north.csv"
south = "south.csv"
coast = "coast.csv"
"""


def test_a_game_between_the_owners_has_the_bits_of_one_process(folder: Path) -> None:
    job = folder / "minimax.toml"
    job.write_text(MINIMAX)
    here = run_job(read_job(job))
    assert here.status == "solved"
    expected = bits(folder)
    found = run_job(read_job(job), engine="ray", force=True)
    assert found.engine == "ray"
    assert bits(folder) == expected
    assert found.measured == here.measured


class Killing:
    """Ray, where the process of an owner is killed for good when an order of this step is to be sent to it."""

    def __init__(self, owner: str, step: str) -> None:
        self.owner, self.step, self.killed = owner, step, 0

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        fleet = Ray(actors=3).open(shares, folder)
        call = fleet._call

        def kill_first(host: Any, messages: Mapping[str, bytes]) -> dict[str, Future[Any]]:
            if self.owner in messages and str(loads(messages[self.owner])["step"]).endswith(self.step):
                self.killed += 1
                ray.kill(host, no_restart=True)
            return call(host, messages)

        fleet._call = kill_first
        return fleet


def test_an_owner_killed_in_the_last_exchange_leaves_the_certified_model(folder: Path) -> None:
    change(folder, "# compare = true", "compare = false")
    job = change(folder, "[solve]", "[solve]\nretries = 1")
    engine = Killing("south", "measure")
    record = run_job(read_job(job), engine=engine)
    assert engine.killed == 2
    assert record.status == "client_lost"
    assert "south" in record.reason
    certificate = json.loads((folder / "run" / "certificate.json").read_text())
    assert max(certificate["stationarity"], certificate["feasibility"]) <= 1e-3
    model = Model.load(folder / "run")
    again = run_job(read_job(job), engine="ray", resume=True)
    assert again.solved
    assert {one.owner for one in again.measured} == {"north", "south", "coast"}
    assert Model.load(folder / "run").coefficients.tobytes() == model.coefficients.tobytes()


def test_owners_sign_on_ray_and_one_that_was_killed_signs_when_the_run_is_resumed(folder: Path) -> None:
    pytest.importorskip("cryptography")
    for owner in ("north", "south", "coast"):
        Identity.create(folder / f"{owner}.key")
    keys = '\n[keys]\nnorth = "north.key"\nsouth = "south.key"\ncoast = "coast.key"\n'
    change(folder, "# compare = true", "compare = false")
    job = change(folder, "[solve]", "[solve]\nretries = 1\nsecure_sum = true")
    job.write_text(job.read_text() + keys)
    lost = run_job(read_job(job), engine=Killing("south", "attest"))
    assert lost.status == "client_lost"
    assert "south" in lost.reason
    out = folder / "run"
    assert "✗" in CliRunner().invoke(cli, ["report", str(out), "--markdown"]).output
    assert not (out / "evidence.json").exists()
    again = run_job(read_job(job), engine="ray", resume=True)
    assert again.solved
    found = verify_run(out)
    assert found.failed == ()
    assert set(found.signed) == {"north", "south", "coast"}
    # in this process the owners say the same
    asked = CliRunner().invoke(cli, ["verify", str(out), "--ask", "--job", str(job)])
    assert asked.exit_code == 0, asked.output
