"""A coordinator with a valid key attacks three sites over Flower, whose rules but one are the default: none succeeds.

The first, fourth, fifth and seventh finding; those of one process are in test_federation_request.py and
test_jobs_evidence*.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

pytest.importorskip("flwr", reason="needs the extra 'flower'")
pytest.importorskip("fedpact_experiments")

from test_engines_flower_transport import load_deployment, search_path
from test_jobs_evidence import certify_by_a_term_of_the_coordinator, failures
from test_jobs_evidence_promises import Inventing

from fedpact.data.encoding import Scaling
from fedpact.engines.flower.engine import Flower
from fedpact.engines.flower.submit import SuperLink, run_on_flower
from fedpact.federation import RemoteFleet, Session
from fedpact.federation.identity import Identity
from fedpact.jobs import read_job
from fedpact.jobs.evidence_file import FILE, read_evidence
from fedpact.jobs.verification import verify_run
from fedpact.report.record import Record
from fedpact.solvers.steps import At, judge
from fedpact.tasks import Classification
from fedpact_experiments.attacks.hospitals import OWNERS, Coordinator, Hospitals, write_hospitals

pytestmark = [pytest.mark.flower, pytest.mark.xdist_group("flower")]  # one deployment, on one worker

JOB = Classification(label="ill", columns=("age", "dose"), standardize=True)
#: As the hospitals' own columns are, roughly.
FAIR = Scaling((60.0, 10.0), (60.0, 10.0), (9.0, 3.0))
PROMISE = '[[constraint]]\nkind = "recall"\nof = "1"\nat_least = 0.8\nconfidence = 0.9\n'
STOPPED = """
[[constraint]]
kind = "loss"
at_most = 0.5
[solve]
method = "newton-al"
max_rounds = 8
compare = false
"""


@dataclass(frozen=True)
class Site:
    """A site behind the SuperLink, as the attacks in one process know it."""

    name: str
    fleet: RemoteFleet

    def handle(self, data: bytes) -> bytes:
        return self.fleet.send(self.name, data).result()


class Attacked:
    """The deployment, three hospitals at it, and where their coordinator finds them."""

    def __init__(self, deployment: Any, hospitals: Hospitals, folder: Path) -> None:
        self.deployment, self.hospitals, self.folder = deployment, hospitals, folder
        self.superlink = SuperLink(deployment.address, deployment.authority, deployment.secret)
        self.roster = {name: Identity.load(folder / f"{name}.pem").public for name in OWNERS}

    def write_job(self, folder: Path, more: str) -> Path:
        """A job of a folder of its own, with these lines and tables."""
        folder.mkdir(parents=True)
        stated = 'task = "classification"\nlabel = "ill"\nfeatures = ["age", "dose"]\n'
        where = "".join(f'{name} = "flower://{self.deployment.address}"\n' for name in OWNERS)
        files = {"root_certificates": self.deployment.authority, "superexec_secret": self.deployment.secret}
        keys = {**files, "key": self.hospitals.key}
        flower = "".join(f"{name} = {json.dumps(str(path))}\n" for name, path in keys.items())
        roster = "".join(f'{name} = "{public}"\n' for name, public in self.roster.items())
        job = folder / "job.toml"
        job.write_text(f"{stated}{more}\n[owners]\n{where}[flower]\n{flower}[roster]\n{roster}")
        return job


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    # A promised recall ends in rates so sharp that their slope may rest on one of an owner's rows.
    hospitals = write_hospitals(folder / "hospitals", rules="\n[require]\nboundary_rows = 0", rows=200)
    with load_deployment().Deployment(folder / "superlink", {"PYTHONPATH": search_path()}) as deployment:
        deployment.start_superlink(relay=True)
        for name in OWNERS:
            deployment.register(name)
            state = str(folder / "hospitals" / f"{name} state")
            deployment.start_site(name, {"policy": str(hospitals.files[name]), "state-path": state})
        yield Attacked(deployment, hospitals, folder / "hospitals")


def test_what_runs_is_what_was_approved_and_asked_of_all(attacked: Attacked) -> None:
    """Findings 1 and 7: the task beside an order is another one for some sites, or another one than the job's."""
    with attacked.superlink.take_run() as grid, closing(Flower(grid).open(dict.fromkeys(OWNERS))) as fleet:
        assert isinstance(fleet, RemoteFleet)
        run = Coordinator({name: Site(name, fleet) for name in OWNERS}, attacked.hospitals.key, JOB)
        run.agree()
        task = replace(run.job, scaling=FAIR)
        assert run.total(judge, At(w=np.zeros(3)), task).objective == pytest.approx(np.log(2))
        others = replace(task, scaling=replace(FAIR, scale=(9.1, 3.0)))
        with raises_code("FP-OWNER-301"):
            run.total(judge, At(w=np.zeros(3)), {"north": task, "south": others, "coast": others})
        zero = replace(task, scaling=replace(FAIR, scale=(1e200, 3.0)))
        with raises_code("FP-REFUSED-639"):
            run.ask(judge, At(w=np.zeros(3)), zero)
        for asked in (
            {"label": "dose"},
            {"regularization": 0.0},
            {"categories": {"age": [str(one) for one in range(9)]}},
        ):
            with raises_code("FP-REFUSED-052"):
                run.ask(judge, At(w=np.zeros(3)), {owner: {**task.stated(), **asked} for owner in OWNERS})


def test_evidence_is_what_the_owners_signed(attacked: Attacked, tmp_path: Path) -> None:
    """Finding 4: a model that was stopped early, "certified" by a term of the coordinator's own."""
    job = attacked.write_job(tmp_path / "forged", STOPPED)
    run_on_flower(read_job(job))
    out = job.parent / "run"
    assert Record.load(out).status != "solved"
    shutil.copytree(out, tmp_path / "as it was")
    assert verify_run(tmp_path / "as it was", attacked.roster).failed == ()
    certify_by_a_term_of_the_coordinator(out, job)
    assert (FILE, "server") in failures(out, **attacked.roster)


def test_a_promise_is_made_by_those_who_sign_it(attacked: Attacked, tmp_path: Path) -> None:
    """Finding 5: the threshold moved after the fit; and an honest run with the same promise is verified."""
    job = read_job(attacked.write_job(tmp_path / "honest", PROMISE))
    assert run_on_flower(job).solved
    assert verify_run(job.output, attacked.roster).verified
    moved = read_job(attacked.write_job(tmp_path / "moved", PROMISE))
    with attacked.superlink.take_run() as grid:
        identity = attacked.hospitals.key
        Inventing(8.0, lambda job: Session(Flower(grid), identity=identity, roster=attacked.roster)).run(moved)
    signed = read_evidence(moved.output)[0]
    assert signed.unproven()
    assert failures(moved.output, **attacked.roster) == {("run.json", owner) for owner in signed.unproven()}
