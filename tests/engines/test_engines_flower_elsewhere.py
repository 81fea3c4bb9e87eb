"""A coordinator that is neither at the SuperLink nor of the sites' version: five folders, TLS, keys, and a secret.

The SuperLink only relays: the job, its folder and the private keys of the coordinator are never on its machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from site_files import write_sites

import fedpact as fp
from fedpact import data
from fedpact.federation.audit import read_log
from fedpact.federation.identity import Identity
from fedpact.federation.policy import read_policy
from fedpact.federation.protocol import PROTOCOL
from fedpact.jobs import read_job, run_job
from fedpact.jobs.verification import verify_run
from fedpact.report.record import Record

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from test_engines_flower_solve import COLUMNS, assert_refused_leaves_whole, tables, wait_until
from test_engines_flower_transport import QUICK, load_deployment, search_path

pytestmark = [pytest.mark.flower, pytest.mark.xdist_group("flower")]  # one deployment, on one worker

SITES = ("hospital 1", "hospital 2", "hospital 3")
SOURCE = Path(fp.__file__).parent
#: Of the coordinator: its heartbeats are as frequent as the SuperLink expects in these tests.
ENVIRONMENT = {**os.environ, "PYTHONPATH": search_path(QUICK)}
#: What the second hospital has installed.
OTHER = "0.3.0"
#: An app of whoever reaches the port: run anywhere, it would leave a file.
INTRUDER = """\
[project]
name = "intruder"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "intruder"
[tool.flwr.app.components]
serverapp = "intruder:app"
clientapp = "intruder:app"
"""
CODE = """\
from pathlib import Path
app = Path({!r})
app.touch()
"""


def install(folder: Path, version: str) -> Path:
    """The same code under another version, as `pip install --target` would leave it."""
    shutil.copytree(SOURCE, folder / "fedpact", ignore=shutil.ignore_patterns("__pycache__"))
    about = folder / f"fedpact-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fedpact\nVersion: {version}\n")
    return folder


class Elsewhere:
    """A deployment whose SuperLink relays, and a folder of the coordinator."""

    def __init__(self, deployment: Any, folder: Path) -> None:
        self.deployment = deployment
        self.folder = folder
        self.metrics = load_deployment().free_port()
        self.log = folder / "hospital 3" / "site.log"
        self.files = {}
        for site, (X, y) in zip(SITES, tables(), strict=True):
            home = folder / site
            home.mkdir()
            self.files[site] = data.write_csv(home / "rows.csv", data.Table(X, y, COLUMNS), "y")
        self.sites = write_sites(folder / "sites", self.files, features=COLUMNS)

    def start(self, site: str, **options: Any) -> None:
        state = str(self.folder / "sites" / f"{site} state")
        self.deployment.start_site(site, {**self.sites.config(site), "state-path": state}, **options)

    def write_job(self, folder: Path, owners: dict[str, str], secret: Path | None = None) -> Path:
        lines = [f"{json.dumps(name)} = {json.dumps(where)}" for name, where in owners.items()]
        if secret is not None:
            stated = f'[flower]\nroot_certificates = "ca.crt"\nsuperexec_secret = {json.dumps(str(secret))}'
            lines.append(self.sites.toml().replace("[flower]", stated))
            shutil.copy(self.deployment.authority, folder / "ca.crt")
        stated = ['task = "neyman_pearson"', 'label = "y"', f"features = {json.dumps(COLUMNS)}", "bound = 0.45"]
        stated += ["[solve]", "tol = 1e-9", "compare = false", "[owners]", *lines]
        path = folder / "job.toml"
        path.write_text("\n".join(stated))
        return path

    def write_remote_job(self, folder: Path) -> Path:
        """As a user on another machine has it: a copy of the secret and of the certificate, and nothing else."""
        secret = folder / "secret"
        secret.touch(mode=0o600)
        secret.write_bytes(self.deployment.secret.read_bytes())
        return self.write_job(folder, dict.fromkeys(SITES, f"flower://{self.deployment.address}"), secret)

    def fedpact(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from fedpact.cli.main import main; main()", *arguments]
        return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    folder = tmp_path_factory.mktemp("elsewhere")
    with load_deployment().Deployment(folder / "superlink", {"PYTHONPATH": search_path(QUICK)}) as deployment:
        deployment.start_superlink(relay=True)
        made = Elsewhere(deployment, folder)
        newer = install(folder / "newer", OTHER)
        for site in SITES:
            deployment.register(site)
            other = {"PYTHONPATH": search_path(newer, QUICK)} if site == SITES[1] else None
            options: list[str] = []
            if site == SITES[2]:
                options = ["--metrics-port", str(made.metrics), "--log-format", "json", "--log-file", str(made.log)]
            made.start(site, environment=other, options=options)
        yield made


def test_a_coordinator_elsewhere_runs_a_job_with_sites_of_two_versions(elsewhere: Elsewhere, tmp_path: Path) -> None:
    here = tmp_path / "here"
    there = tmp_path / "there"
    here.mkdir()
    there.mkdir()
    run_job(read_job(elsewhere.write_job(here, {name: str(path) for name, path in elsewhere.files.items()})))
    done = elsewhere.fedpact("run", str(elsewhere.write_remote_job(there)))
    assert done.returncode == 0, done.stdout + done.stderr
    records = {folder: Record.load(folder / "run") for folder in (here, there)}
    assert records[there].status == "solved"
    assert records[there].engine == "flower"
    models = {folder: fp.Solution.load(folder / "run" / "solution.npz").w for folder in records}
    np.testing.assert_allclose(models[there], models[here], rtol=0, atol=1e-9)
    log = (there / "run" / "log.txt").read_text()
    assert "hospital 2 is online (node " in log
    assert log.count(f"fedpact {OTHER})") == 1
    # nothing of it was on the SuperLink's machine, and no process ran there
    assert load_deployment().descendants({elsewhere.deployment._processes["superlink"].pid}) == set()
    for path in elsewhere.deployment.folder.rglob("*"):
        assert not path.is_file() or b"neyman_pearson" not in path.read_bytes()
    # and the keys of the masks are erased at every site
    memories = [elsewhere.folder / "sites" / f"{site} state" / "memory" for site in SITES]
    states = [path.suffix for memory in memories for path in sorted(memory.glob("*/*"))]
    assert states == [".ended", ".signed"] * 3  # and what each of them signed


def test_sites_sign_a_run_and_recompute_it_when_they_are_asked(elsewhere: Elsewhere, tmp_path: Path) -> None:
    done = elsewhere.fedpact("run", str(elsewhere.write_remote_job(tmp_path)))
    assert done.returncode == 0, done.stdout + done.stderr
    keys = tmp_path / "keys.toml"
    known = {**elsewhere.sites.roster, "server": Identity.load(elsewhere.sites.key).public}
    keys.write_text("".join(f"{json.dumps(name)} = {json.dumps(public)}\n" for name, public in known.items()))

    def verify(*options: str, run: Path = tmp_path / "run") -> dict[str, Any]:
        done = elsewhere.fedpact("verify", str(run), "--roster", str(keys), "--json", *options)
        assert done.returncode == (0 if '"verified": true' in done.stdout else 1), done.stdout + done.stderr
        return dict(json.loads(done.stdout))

    signed = verify()
    assert signed["verified"], signed
    assert (signed["pinned"], signed["asked"]) == (True, False)
    assert signed["signed"] == elsewhere.sites.roster
    assert signed["coordinator"] == known["server"]
    asked = verify("--ask", "--job", str(tmp_path / "job.toml"))
    assert asked == {**signed, "asked": True}
    table = elsewhere.files["hospital 2"]
    before = table.read_text()
    table.write_text(before + before.splitlines()[-1] + "\n")
    try:
        changed = verify("--ask", "--job", str(tmp_path / "job.toml"))
        assert verify() == signed  # the folder is as it was
    finally:
        table.write_text(before)
    assert not changed["verified"]
    assert {one["owner"] for one in changed["failed"]} == {"hospital 2", ""}  # and the certificate, of all of them
    assert "table" in next(one["what"] for one in changed["failed"] if one["owner"])
    for site in SITES:  # every time in a run of its own, of the same job
        log = read_log(elsewhere.folder / "sites" / f"{site} state" / "audit")
        runs = [entry for entry in log if entry["event"] == "run"][-3:]
        assert len({entry["run"] for entry in runs}) == 3
        assert len({entry["job"] for entry in runs}) == 1


def test_sites_sign_a_promise(elsewhere: Elsewhere, tmp_path: Path) -> None:
    job = elsewhere.write_remote_job(tmp_path)
    stated = job.read_text().replace("bound = 0.45", "min_recall = 0.7\nconfidence = 0.9")
    job.write_text(stated.replace("tol = 1e-9\ncompare = false", "compare = true"))
    done = elsewhere.fedpact("run", str(job))
    assert done.returncode == 0, done.stdout + done.stderr
    record = Record.load(tmp_path / "run")
    assert record.solved, record.reason
    assert {one.promise for one in record.bounded} == {"made"}
    found = verify_run(tmp_path / "run", elsewhere.sites.roster)
    assert found.verified, found.failed


def test_who_is_online_is_listed(elsewhere: Elsewhere, tmp_path: Path) -> None:
    job = elsewhere.write_remote_job(tmp_path)
    text = job.read_text()
    absent = f'"hospital 9" = "flower://{elsewhere.deployment.address}"'
    stated = text.replace("[flower]", f"{absent}\n[flower]")
    job.write_text(f'{stated}"hospital 9" = "{"9" * 64}"\n')  # [roster] is its last table
    done = elsewhere.fedpact("sites", str(job), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {row.pop("name"): row for row in json.loads(done.stdout)}
    assert list(found) == [*SITES, "hospital 9"]
    assert [row["online"] for row in found.values()] == [True, True, True, False]
    here = version("fedpact")
    assert [found[site]["version"] for site in SITES] == [here, OTHER, here]
    assert {found[site]["protocol"] for site in SITES} == {PROTOCOL}
    digests = {site: read_policy(elsewhere.sites.policies[site]).digest for site in SITES}
    assert {site: found[site]["policy"] for site in SITES} == digests
    where = ["--root-certificates", str(tmp_path / "ca.crt"), "--superexec-secret", str(tmp_path / "secret")]
    done = elsewhere.fedpact("sites", elsewhere.deployment.address, *where)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[:4] for line in done.stdout.splitlines() if "hospital" in line] == [
        ["hospital", "1", here, str(PROTOCOL)],
        ["hospital", "2", OTHER, str(PROTOCOL)],
        ["hospital", "3", here, str(PROTOCOL)],
    ]


def test_a_site_tells_how_it_is_doing(elsewhere: Elsewhere, tmp_path: Path) -> None:
    done = elsewhere.fedpact("run", str(elsewhere.write_remote_job(tmp_path)))
    assert done.returncode == 0, done.stdout + done.stderr
    told = {}
    for path in ("metrics", "healthz"):
        with urllib.request.urlopen(f"http://127.0.0.1:{elsewhere.metrics}/{path}", timeout=30) as reply:
            told[path] = reply.read().decode()
    assert told["healthz"] == "ok\n"
    found = dict(line.rsplit(" ", 1) for line in told["metrics"].splitlines() if not line.startswith("#"))
    assert float(found["fedpact_site_orders_total"]) > 5
    assert float(found["fedpact_site_runs_total"]) >= 1
    assert float(found["fedpact_site_bytes_out_total"]) > 1000
    messages = [json.loads(line)["message"] for line in elsewhere.log.read_text().splitlines()]
    assert any(message.startswith("hospital 3: connected as node ") for message in messages)
    assert elsewhere.deployment.output("hospital 3") == ""


def test_who_reaches_the_port_runs_no_code_anywhere(elsewhere: Elsewhere, tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(INTRUDER)
    (app / "intruder.py").write_text(CODE.format(str(tmp_path / "was here")))
    run = elsewhere.deployment.submit(app)
    assert elsewhere.deployment.status(run) == "pending"
    folder = tmp_path / "coordinator"
    folder.mkdir()
    done = elsewhere.fedpact("run", str(elsewhere.write_remote_job(folder)))  # takes that run for its own channel
    assert done.returncode == 0, done.stdout + done.stderr
    assert elsewhere.deployment.status(run) == "finished:completed"
    assert not (tmp_path / "was here").exists()


@pytest.mark.parametrize(
    ("secret", "mode", "code"),
    [(b"0" * 64, 0o600, "FP-OPTION-663"), (b"short", 0o600, "FP-OPTION-664"), (b"0" * 64, 0o644, "FP-OPTION-665")],
    ids=["wrong", "short", "readable"],
)
def test_a_secret_that_is_wrong_is_refused(
    secret: bytes, mode: int, code: str, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    job = elsewhere.write_remote_job(tmp_path)
    (tmp_path / "secret").write_bytes(secret)
    (tmp_path / "secret").chmod(mode)
    done = elsewhere.fedpact("run", str(job))
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"[{code}]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_that_a_site_refuses_leaves_the_old_one_whole(elsewhere: Elsewhere, tmp_path: Path) -> None:
    assert_refused_leaves_whole(elsewhere.write_remote_job(tmp_path), elsewhere.fedpact)


def test_a_coordinator_that_is_killed_is_resumed_from_its_own_folder(elsewhere: Elsewhere, tmp_path: Path) -> None:
    job = elsewhere.write_remote_job(tmp_path)
    command = [sys.executable, "-c", "from fedpact.cli.main import main; main()", "run", str(job)]
    output = (tmp_path / "output").open("w")
    with output, subprocess.Popen(command, env=ENVIRONMENT, stdout=output, stderr=output) as process:
        wait_until(lambda: (tmp_path / "run" / "checkpoint" / "checkpoint.json").exists() or process.poll() is not None)
        process.kill()
    assert not (tmp_path / "run" / "run.json").exists()
    done = elsewhere.fedpact("run", str(job), "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    assert Record.load(tmp_path / "run").status == "solved"
