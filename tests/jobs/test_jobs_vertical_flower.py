"""A vertical job on a real Flower deployment: three parties, three processes, three tables, TLS on the loopback
interface. Its coordinator and a party are killed in the middle of the private intersection and of the training; then
the model is that of one process, and predicts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from party_files import PARTIES, People, make_people
from test_engines_flower_transport import HERE, START, load_deployment, search_path
from vertical_sites import WHO, write_site_job, write_vertical_sites

import fedpact as fp
from fedpact.cli.evaluate import evaluate
from fedpact.cli.predict import predict
from fedpact.cli.report import report
from fedpact.problem import Piece
from fedpact.report.record import Record
from fedpact.solvers import Solution

pytestmark = [pytest.mark.flower, pytest.mark.xdist_group("flower")]  # one deployment at a time

#: Exit code of a run that lost its owners and can be resumed: also when a busy machine keeps the coordinator from its
#: heartbeats for so long that the SuperLink gives its run up.
LOST = 1


class Study:
    """The deployment, and the coordinator's process."""

    def __init__(self, folder: Path, deployment: Any) -> None:
        self.folder = folder
        self.deployment = deployment
        self.sites = write_vertical_sites(folder)
        trust = f'root_certificates = "{deployment.authority}"\nsuperexec_secret = "{deployment.secret}"\n'
        self.job = write_site_job(folder / "job.toml", deployment.address, self.sites, trust)

    def start(self, party: str) -> None:
        config = {"policy": str(self.sites.policies[party]), "state-path": str(self.folder / f"{party} node")}
        self.deployment.start_site(party, config, client_app="vertical_brake:client_app")

    def run(self, *options: str) -> subprocess.Popen[bytes]:
        """`fedpact run`, in a process of its own."""
        command = [sys.executable, "-c", "from fedpact.cli.main import main; main()", "run", str(self.job), *options]
        with (self.folder / "coordinator.txt").open("ab") as printed:
            return subprocess.Popen(command, stdout=printed, stderr=printed, start_new_session=True)

    def kill_before(self, step: str, party: str, *options: str) -> None:
        """Run the job until the party is asked for the step; then kill -9 both, and start the party again."""
        stop = self.sites.policies[party].with_suffix(".stop")
        reached = stop.with_suffix(".reached")
        stop.write_text(step)
        coordinator = self.run(*options)
        until = time.monotonic() + START
        while not reached.exists():
            if coordinator.poll() == LOST:
                coordinator = self.run("--resume")
            assert coordinator.poll() is None, self.printed()
            assert time.monotonic() < until, self.printed()
            time.sleep(0.1)
        os.killpg(coordinator.pid, signal.SIGKILL)
        coordinator.wait()
        reached.unlink()
        self.deployment.kill_site(party)
        self.start(party)

    def finish(self) -> None:
        """Go on until the run is solved."""
        for _ in range(3):
            if (code := self.run("--resume").wait(START)) != LOST:
                break
        assert code == 0, self.printed()

    def go_asynchronous(self) -> Path:
        """Another job, of a method in which no party waits for another: its sites agree to that, and start again."""
        for party, policy in self.sites.policies.items():
            agreed = policy.read_text().replace("[require]", '[require]\n"secure_sums" = false')
            policy.write_text(agreed.replace('"questions" = 12', '"questions" = 1000'))
            self.deployment.kill_site(party)
            self.start(party)
        folder = self.folder / "asynchronous"
        folder.mkdir()
        stated = self.job.read_text().replace("tol = 1e-6", "tol = 0.02\nsecure_sum = false")
        stated = stated.replace('method = "vertical-al"', 'method = "fair-vfl"')
        self.job = folder / "job.toml"
        self.job.write_text(f"{stated}\n[solve.options]\nasynchronous = true\n")
        return folder / "run"

    def printed(self) -> str:
        return (self.folder / "coordinator.txt").read_text(errors="replace")


def assert_pieces_are_certified(sites: Path, found: Solution, people: People) -> None:
    """The pieces that the sites have kept last are within the tolerance, by code that did not make them."""
    pieces = []
    for name in PARTIES:
        kept = max((sites / f"{name} state" / "pieces").rglob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
        pieces.append(Piece.load(kept).theta)
    w = np.concatenate([*pieces, found.w[-1:]])
    again = fp.certify(people.pooled().pooled(), w, [found.multipliers[0], np.zeros(0)])
    assert max(again.stationarity, again.feasibility) <= 0.02
    assert again.stationarity == pytest.approx(found.certificate.stationarity, abs=1e-9)


def test_three_parties_align_train_survive_predict_and_report(tmp_path: Path) -> None:
    paths = {"PYTHONPATH": search_path(HERE)}
    with load_deployment().Deployment(tmp_path / "deployment", paths) as deployment:
        deployment.start_superlink(relay=True)
        study = Study(tmp_path, deployment)
        for party in PARTIES:
            deployment.register(party)
            study.start(party)
        study.kill_before(":multiply", "shop")
        study.kill_before(":advance", "clinic", "--resume")
        study.kill_before(":conclude", "bank", "--resume")
        study.finish()

        people = make_people(0)
        answer = fp.solve(people.pooled(), "vertical-al", tol=1e-6)
        found = Solution.load(tmp_path / "run" / "solution.npz")
        for term in ("stationarity", "feasibility", "violation"):
            assert getattr(found.certificate, term) == pytest.approx(getattr(answer.certificate, term), abs=1e-9)
        assert found.objective == pytest.approx(answer.objective, abs=1e-9)
        assert Record.load(tmp_path / "run").status == "solved"

        own = tmp_path / "ids.csv"
        own.write_text("\n".join(["id", *(f"{WHO}{i:03d}" for i in range(len(people.y)))]))
        out = tmp_path / "predicted.csv"
        told = CliRunner().invoke(predict, [str(tmp_path / "run"), "--table", f"server={own}", "--out", str(out)])
        assert told.exit_code == 0, told.output
        for command, *options in (
            (predict, "--absent", "shop"),
            (evaluate, "--absent", "shop"),
            (evaluate,),
            (report,),
        ):
            told = CliRunner().invoke(command, [str(tmp_path / "run"), *options])
            assert told.exit_code == 0, told.output

        run = study.go_asynchronous()
        study.kill_before(":update", "shop")
        study.finish()
        record = Record.load(run)
        assert record.status == "solved"
        assert_pieces_are_certified(tmp_path / "sites", Solution.load(run / "solution.npz"), people)
    lines = [line.split(",") for line in out.read_text().splitlines()[1:]]
    fresh = make_people(1)
    parts = answer.w[:-1] / np.concatenate([people.X.std(axis=0)])
    scores = (fresh.X - people.X.mean(axis=0)) @ parts + answer.w[-1]
    decided = {line[0]: line[1] for line in lines}
    assert decided == {f"{WHO}{i:03d}": ("no", "yes")[int(score > 0)] for i, score in enumerate(scores)}
    assert (tmp_path / "run" / "evaluation.json").exists()
    assert "shop" in (tmp_path / "run" / "report.html").read_text()
