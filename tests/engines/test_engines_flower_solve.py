"""Whole solves on a real Flower deployment: three sites with their own files, TLS and keys, killed on the way.

A round takes a good part of a second here, so the method is the one that needs few.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from site_files import Sites, write_sites

import fedpact as fp
from fedpact import data, tasks
from fedpact.engines.flower.submit import APP
from fedpact.federation import read_record
from fedpact.jobs import read_job, run_job
from fedpact.report.record import Record

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from test_engines_flower_transport import QUICK, load_deployment, search_path

pytestmark = [pytest.mark.flower, pytest.mark.xdist_group("flower")]  # one deployment, on one worker

SITES = ("hospital 1", "hospital 2", "hospital 3")
COLUMNS = ("age", "dose", "pressure", "weight")
TOL = 1e-9
#: In words: no scaling and no comparison, so that a run is one solve; what is appended belongs to [solve].
JOB = f"""
task = "neyman_pearson"
label = "y"
features = {json.dumps(COLUMNS)}
bound = 0.45
regularization = 0.01
standardize = false
[output]
folder = "."
messages = true
[solve]
method = "interior-point"
tol = {TOL}
compare = false
"""


class Clinics:
    """A deployment whose sites hold CSV files, and the same problem in this process."""

    def __init__(self, deployment: Any, folder: Path) -> None:
        self.deployment, self.folder = deployment, folder
        self.app = folder / "app"
        self.app.mkdir()
        (self.app / "pyproject.toml").write_text(APP)
        self.files = {}
        self.unseen = {}
        for seed, (site, (X, y)) in enumerate(zip(SITES, tables(), strict=True)):
            unseen = data.Table(X[::-1] + 0.1, y[::-1], COLUMNS)
            self.unseen[site] = data.write_csv(folder / f"{seed} unseen.csv", unseen, "y")
            path = folder / f"{seed}.csv"
            # another order of columns at every site: they are taken by name
            order = np.random.default_rng(seed).permutation(len(COLUMNS))
            table = data.Table(X[:, order], y, tuple(COLUMNS[j] for j in order))
            self.files[site] = data.write_csv(path, table, "y")
        self.sites = self.write_sites()

    def write_sites(self, **values: float) -> Sites:
        """Keys and policies; a site takes part only with these values of the job."""
        return write_sites(
            self.folder / "sites",
            self.files,
            features=COLUMNS,
            tasks=("neyman_pearson", "minimax", "profile"),
            allow={"values": values},
            holdout=self.unseen,
        )

    def start(self, site: str) -> None:
        state = str(self.folder / "sites" / f"{site} state")
        self.deployment.start_site(site, {**self.sites.config(site), "state-path": state})

    def write_job(self, output: Path, **solve: Any) -> Path:
        """A job whose folder is `output`, with these entries of [solve]."""
        more = "\n".join(f"{key} = {json.dumps(value)}" for key, value in solve.items())
        owners = "\n".join(f'"{site}" = "flower://127.0.0.1:{self.deployment.port}"' for site in SITES)
        path = output / "job.toml"
        path.write_text(f"{JOB}\n{more}\n[owners]\n{owners}\n{self.flower()}")
        return path

    def flower(self, **more: Any) -> str:
        """The tables [flower] and [roster]."""
        lines = {"root_certificates": str(self.deployment.folder / "ca.crt"), **more}
        stated = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
        return self.sites.toml().replace("[flower]\n", f"[flower]\n{stated}")

    def submit(self, output: Path, resume: bool = False, **solve: Any) -> str:
        config = {"job": str(self.write_job(output, **solve)), "resume": resume}
        return str(self.deployment.submit(self.app, config))

    def finished(self, run: str, timeout: float = 600.0) -> str:
        deadline = time.monotonic() + timeout
        while (status := self.deployment.status(run)) in ("pending", "starting", "running"):
            assert time.monotonic() < deadline, self.deployment.output("superlink")
            time.sleep(0.5)
        return str(status)

    def expected(self) -> fp.Solution:
        """The same files and the same problem in this process, without a job."""
        weight = fp.prox.SquaredL2(np.append(np.full(len(COLUMNS), 0.01), 0.0))
        problem = tasks.from_files(self.files, bound=0.45, label="y", columns=COLUMNS, regularizer=weight)
        return fp.solve(problem, "interior-point", tol=TOL)

    @contextmanager
    def halfway(self, output: Path, waiting_for: str) -> Iterator[None]:
        """Inside, the run waits for an answer of this site, so it cannot end before what is done to it."""
        wait_until(lambda: rounds_on_record(output) >= 3)
        site = self.deployment._processes[waiting_for]
        site.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            site.send_signal(signal.SIGCONT)

    def coordinator(self) -> int:
        """The process of the server app."""
        below = load_deployment().descendants({self.deployment._processes["superlink"].pid})
        listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True)
        processes = (line.split(maxsplit=1) for line in listed.stdout.splitlines())
        (pid,) = [int(pid) for pid, command in processes if "flwr-serverapp" in command and int(pid) in below]
        return pid


def tables() -> list[tuple[np.ndarray, np.ndarray]]:
    made = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(150, len(COLUMNS))) + 0.2 * seed
        y = (X @ [1.0, -1.0, 0.5, 0.2] + rng.normal(size=150) > 0).astype(int)
        made.append((X, y))
    return made


def wait_until(ready: Callable[[], bool], timeout: float = 600.0) -> None:
    deadline = time.monotonic() + timeout
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def rounds_on_record(output: Path) -> int:
    path = output / "checkpoint" / "checkpoint.json"
    found = re.search(r'"rounds": (\d+)', path.read_text()) if path.exists() else None
    return int(found[1]) if found else 0


@pytest.fixture(scope="module")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clinics]:
    folder = tmp_path_factory.mktemp("clinics")
    with load_deployment().Deployment(folder, {"PYTHONPATH": search_path(QUICK)}) as deployment:
        deployment.start_superlink()
        made = Clinics(deployment, folder)
        for site in SITES:
            deployment.register(site)
            made.start(site)
        yield made


def assert_same(found: fp.Solution, expected: fp.Solution) -> None:
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, expected.w, rtol=0, atol=1e-12)
    for mine, theirs in zip(found.multipliers, expected.multipliers, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)
    assert found.certificate.meets((TOL, TOL))


def test_the_answer_is_that_of_one_process_and_no_row_travels(clinics: Clinics, tmp_path: Path) -> None:
    run = clinics.submit(tmp_path)
    assert clinics.finished(run) == "finished:completed"
    found = fp.Solution.load(tmp_path / "solution.npz")
    assert_same(found, clinics.expected())
    # masked by default: what the server received of single owners are flags, violations and prices
    fields = found.communication.owners["hospital 1"].fields
    assert "System.matrix (masked)" in fields
    assert "System.matrix" not in fields
    captured = b"".join(_floats(message) for message in read_record(tmp_path / "messages.log"))
    text = (tmp_path / "messages.log").read_bytes()
    assert len(captured) > 1000
    for X, _ in tables():
        for row in X:
            for value in row:
                assert value.tobytes() not in captured
                assert value.tobytes() not in text
                assert repr(float(value)).encode() not in text


def _floats(tree: Any) -> bytes:
    if isinstance(tree, np.ndarray):
        return tree.tobytes()
    if isinstance(tree, dict | list):
        return b"".join(_floats(part) for part in (tree.values() if isinstance(tree, dict) else tree))
    return np.float64(tree).tobytes() if isinstance(tree, float) else b""


def test_a_job_file_runs_on_the_sites(clinics: Clinics, tmp_path: Path) -> None:
    """`fedpact run` with owners at flower://: scaling, training and measuring are exchanges with the sites."""
    sites = dict.fromkeys(SITES, f"flower://127.0.0.1:{clinics.deployment.port}")
    stated = f"""
        task = "neyman_pearson"
        label = "y"
        features = {json.dumps(COLUMNS)}
        bound = 0.45
        [solve]
        tol = 1e-9
        compare = false
        [owners]
    """
    for name, owners in {"here": clinics.files, "sites": sites}.items():
        lines = [f"{json.dumps(site)} = {json.dumps(str(where))}" for site, where in owners.items()]
        if name == "sites":
            lines.append(clinics.flower())
        else:
            lines += ["[holdout]", *(f"{json.dumps(one)} = {json.dumps(str(p))}" for one, p in clinics.unseen.items())]
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.toml").write_text(stated + "\n".join(lines))
    run_job(read_job(tmp_path / "here" / "job.toml"))
    command = [sys.executable, "-c", "from fedpact.cli.main import main; main()"]
    job = str(tmp_path / "sites" / "job.toml")
    for arguments in (["run", job], ["verify", str(tmp_path / "sites" / "run"), "--ask", "--job", job, "--json"]):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["signed"] == clinics.sites.roster
    assert json.loads(done.stdout)["asked"]
    records = {name: Record.load(tmp_path / name / "run") for name in ("here", "sites")}
    assert records["sites"].engine == "flower"
    models = {name: fp.Solution.load(tmp_path / name / "run" / "solution.npz").w for name in records}
    np.testing.assert_allclose(models["sites"], models["here"], rtol=0, atol=1e-9)
    for mine, theirs in zip(records["sites"].measured, records["here"].measured, strict=True):
        assert mine == theirs  # recall and the like
    assert "Moments.total (masked)" in records["sites"].sent[0].fields
    # and on tables that nobody trained on, which a site names in its own site.toml
    found = []
    for name in records:
        folder = tmp_path / name / "run"
        done = subprocess.run(
            [*command, "evaluate", str(folder)], capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found.append(json.loads((folder / "evaluation.json").read_text())["evaluations"][-1])
    assert found[0]["rates"] == found[1]["rates"]
    assert set(found[0]["rates"]) == {*SITES, "together"}
    for mine, theirs in zip(found[0]["bounds"], found[1]["bounds"], strict=True):
        assert mine["value"] == pytest.approx(theirs["value"], abs=1e-8)  # a loss, of models that differ by 1e-9
    # what their tables hold, by masked sums, is what the files hold
    for name in records:
        arguments = ["profile", str(tmp_path / name / "job.toml"), "--out", str(tmp_path / f"{name}.json")]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    here, there = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("here", "sites"))
    assert there["rows"] == here["rows"]
    for mine, theirs in zip(there["columns"], here["columns"], strict=True):
        assert (mine["known"], mine["levels"]) == (theirs["known"], theirs["levels"])
        assert mine["quantiles"] == pytest.approx(theirs["quantiles"])


def test_a_game_between_sites_is_that_of_one_process(clinics: Clinics, tmp_path: Path) -> None:
    """Task minimax: owners hold operators; masked sums are exact, so that the bits are the same."""
    sites = dict.fromkeys(SITES, f"flower://127.0.0.1:{clinics.deployment.port}")
    stated = f"""
        task = "minimax"
        label = "y"
        features = {json.dumps(COLUMNS)}
        standardize = false
        [solve]
        tol = 1e-7
        secure_sum = true
        compare = false
        [owners]
    """
    records = {}
    for name, owners in {"here": clinics.files, "sites": sites}.items():
        lines = [f"{json.dumps(site)} = {json.dumps(str(where))}" for site, where in owners.items()]
        if name == "sites":
            lines.append(clinics.flower())
        (tmp_path / name).mkdir()
        job = tmp_path / name / "job.toml"
        job.write_text(stated + "\n".join(lines))
        command = [sys.executable, "-c", "from fedpact.cli.main import main; main()", "run", str(job)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        records[name] = Record.load(tmp_path / name / "run")
    assert (records["sites"].engine, records["sites"].method) == ("flower", "monotone-newton")
    models = [fp.Solution.load(tmp_path / name / "run" / "solution.npz").w for name in records]
    np.testing.assert_array_equal(*models)
    assert [one.numbers for one in records["sites"].measured] == [one.numbers for one in records["here"].measured]


def test_who_is_online_is_listed_where_the_superlink_is(clinics: Clinics) -> None:
    authority = str(clinics.deployment.authority)
    command = [sys.executable, "-c", "from fedpact.cli.main import main; main()", "sites", clinics.deployment.address]
    done = subprocess.run(
        [*command, "--root-certificates", authority, "--json"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {row["name"]: row["online"] for row in json.loads(done.stdout)}
    assert found == dict.fromkeys(SITES, True)


def test_a_job_whose_site_never_comes_ends_as_lost(clinics: Clinics, tmp_path: Path) -> None:
    """Before there is a model, too: the status, how to go on, and the exit code of what is not solved."""
    job = clinics.write_job(tmp_path)
    absent = f'"hospital 9" = "flower://127.0.0.1:{clinics.deployment.port}"'
    stated = job.read_text().replace("[flower]", f"{absent}\n[flower]\npatience = 3")
    job.write_text(f'{stated}\n"hospital 9" = "{"9" * 64}"\n')
    command = [sys.executable, "-c", "from fedpact.cli.main import main; main()", "run", str(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "client_lost: hospital 9: " in done.stderr
    assert f"go on with: fedpact run {job} --resume" in done.stderr


def assert_refused_leaves_whole(job: Path, fedpact: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """A run that sites refuse at the door changes no file of the run that is there, and is in the way of none."""
    run = job.parent / "run"
    asked = job.read_text()
    refused = asked.replace('label = "y"', 'label = "z"')
    assert refused != asked
    for old in (False, True):
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        job.write_text(refused)
        done = fedpact("run", str(job), *(["--force"] if old else []))
        assert done.returncode == 2, done.stdout + done.stderr
        assert "FP-REFUSED" in done.stderr
        if old:
            assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
            assert fedpact("verify", str(run)).returncode == 0
        job.write_text(asked)
        if not old:
            done = fedpact("run", str(job))  # and needs no --force
            assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in job.parent.iterdir() if path.name.startswith("run")] == ["run"]


def test_a_run_that_a_site_refuses_leaves_the_old_one_whole(clinics: Clinics, tmp_path: Path) -> None:
    def fedpact(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from fedpact.cli.main import main; main()", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    job = clinics.write_job(tmp_path)
    job.write_text(job.read_text().replace(f"folder = {json.dumps('.')}", 'folder = "run"'))
    assert_refused_leaves_whole(job, fedpact)


def test_a_site_killed_in_the_middle_goes_on_after_a_restart(clinics: Clinics, tmp_path: Path) -> None:
    run = clinics.submit(tmp_path)
    with clinics.halfway(tmp_path, "hospital 2"):
        clinics.deployment.kill_site("hospital 2")
    clinics.start("hospital 2")
    assert clinics.finished(run) == "finished:completed"
    assert_same(fp.Solution.load(tmp_path / "solution.npz"), clinics.expected())


def test_a_killed_coordinator_is_resumed(clinics: Clinics, tmp_path: Path) -> None:
    run = clinics.submit(tmp_path)
    with clinics.halfway(tmp_path, "hospital 2"):
        os.kill(clinics.coordinator(), signal.SIGKILL)
    assert clinics.deployment.status(run) != "finished:completed"  # Flower takes its time to call it failed
    assert not (tmp_path / "solution.npz").exists()
    before = rounds_on_record(tmp_path)
    assert before >= 3
    again = clinics.submit(tmp_path, resume=True)
    assert clinics.finished(again) == "finished:completed"
    assert_same(fp.Solution.load(tmp_path / "solution.npz"), clinics.expected())


def test_a_site_that_stays_away_is_named_and_the_run_is_kept(clinics: Clinics, tmp_path: Path) -> None:
    run = clinics.submit(tmp_path, retries=1)
    with clinics.halfway(tmp_path, "hospital 3"):
        clinics.deployment.kill_site("hospital 3")
    try:
        assert clinics.finished(run) == "finished:failed"
        lost = fp.Solution.load(tmp_path / "solution.npz")
        assert lost.status == "client_lost"
        assert "hospital 3" in lost.reason
        assert np.all(np.isnan(lost.multipliers[3]))
    finally:
        clinics.start("hospital 3")
    again = clinics.submit(tmp_path, resume=True)
    assert clinics.finished(again) == "finished:completed"
    assert_same(fp.Solution.load(tmp_path / "solution.npz"), clinics.expected())


def test_a_site_takes_part_only_in_the_job_it_agreed_to(clinics: Clinics, tmp_path: Path) -> None:
    clinics.deployment.stop_site("hospital 1")
    clinics.write_sites(bound=0.3)
    try:
        clinics.start("hospital 1")
        run = clinics.deployment.run(clinics.app, {"job": str(clinics.write_job(tmp_path))})
        assert run.status == "finished:failed"
        assert "hospital 1: FP-REFUSED-024: " in run.log
        own = clinics.deployment.output("hospital 1")
        assert "hospital 1: refused by the rule 'values' of its policy" in own
    finally:
        clinics.deployment.stop_site("hospital 1")
        clinics.write_sites()
        clinics.start("hospital 1")
