"""A finished run is lost to nothing: not to one that is refused, not to Ctrl-C, not to a kill at any moment."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner
from job_files import change
from raising import raises_code
from site_files import LENIENT, SiteEngine, write_sites
from watched import Watched, interrupt

import fedpact as fp
from fedpact.cli.main import cli
from fedpact.jobs import read_job, run_folder, run_job
from fedpact.jobs.run_folder import beside, is_finished, open_run_folder
from fedpact.report.record import Record

OWNERS = ("north", "south", "coast")


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)


def contents(folder: Path) -> dict[str, str]:
    """Every file with a digest of its bytes."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def trained(folder: Path) -> Path:
    """The folder of a job and its finished run."""
    assert run_job(read_job(folder / "job.toml")).solved
    return folder


# -------------------------------------------------------------------------------------------------- refused at the door


def spoil_cell(folder: Path) -> None:
    table = folder / "south.csv"
    header, first, *rest = table.read_text().splitlines()
    cells = first.split(",")
    cells[header.split(",").index("dose")] = "unknown"
    table.write_text("\n".join([header, ",".join(cells), *rest]) + "\n")


@pytest.mark.parametrize(("option", "code"), [("--force", "FP-DATA-003"), ("--resume", "FP-CHECKPOINT-308")])
def test_a_run_that_is_refused_leaves_the_old_one_whole(trained: Path, option: str, code: str) -> None:
    before = contents(trained / "run")
    spoil_cell(trained)
    change(trained, "bound = 0.35", "bound = 0.4")
    with raises_code(code):
        CliRunner().invoke(cli, ["run", str(trained / "job.toml"), option], catch_exceptions=False)
    assert contents(trained / "run") == before
    assert not beside(trained / "run").exists()
    assert CliRunner().invoke(cli, ["predict", str(trained / "run"), str(trained / "north.csv")]).exit_code == 0


def test_a_run_that_a_site_refuses_leaves_the_old_one_whole(folder: Path) -> None:
    tables = {owner: folder / f"{owner}.csv" for owner in OWNERS}
    features = ["age", "dose", "pressure", "smoker"]
    rules = {**LENIENT, "allow.values": {"bound": {"least": 0.3}}}
    sites = write_sites(folder / "sites", tables, features=features, label="relapse", rules=rules)
    for owner in OWNERS:
        change(folder, f'"{owner}.csv"', '"flower://127.0.0.1:1"')
    job = folder / "job.toml"
    job.write_text(f"{job.read_text()}\n{sites.toml()}")
    assert run_job(read_job(job), engine=SiteEngine(sites)).solved
    assert CliRunner().invoke(cli, ["verify", str(folder / "run")]).exit_code == 0
    before = contents(folder / "run")
    change(folder, "bound = 0.35", "bound = 0.25")
    with raises_code("FP-REFUSED-024", "north"):
        run_job(read_job(job), engine=SiteEngine(sites), force=True)
    assert contents(folder / "run") == before
    assert CliRunner().invoke(cli, ["verify", str(folder / "run")]).exit_code == 0
    assert not beside(folder / "run").exists()


def test_a_run_that_ended_before_its_first_exchange_stops_no_other(folder: Path) -> None:
    table = (folder / "south.csv").read_text()
    spoil_cell(folder)
    job = read_job(folder / "job.toml")
    for _ in range(2):
        with raises_code("FP-DATA-003", "south"):
            run_job(job)
        assert "FP-DATA-003" in (folder / "run" / "log.txt").read_text()
    (folder / "south.csv").write_text(table)
    assert run_job(job).solved
    with raises_code("FP-OPTION-395", str(folder / "run"), "--resume", "--force"):
        run_job(job)
    shutil.rmtree(folder / "run" / "checkpoint")  # it may be deleted; the run is one all the same
    with raises_code("FP-OPTION-395", str(folder / "run")):
        run_job(job)


# ----------------------------------------------------------------------------------------------------- Ctrl-C, --resume


def test_a_run_that_is_interrupted_waits_beside_the_old_one(trained: Path) -> None:
    before = contents(trained / "run")
    path = change(trained, "bound = 0.35", "bound = 0.4")
    changed = read_job(path)
    assert run_job(changed, engine=Watched(interrupt(40)), force=True).status == "interrupted"
    assert contents(trained / "run") == before
    assert Record.load(beside(trained / "run")).status == "interrupted"
    with raises_code("FP-OPTION-395"):
        run_job(changed)
    done = CliRunner().invoke(cli, ["run", str(path), "--resume"])
    assert done.exit_code == 0, done.output
    assert not beside(trained / "run").exists()
    assert Record.load(trained / "run").settings["bound"] == 0.4
    # and it is the run that nobody interrupted
    resumed = fp.Solution.load(trained / "run" / "solution.npz").w
    run_job(changed, force=True)
    assert resumed.tobytes() == fp.Solution.load(trained / "run" / "solution.npz").w.tobytes()


def test_an_interrupted_run_is_replaced_when_the_new_one_has_ended(folder: Path) -> None:
    job = read_job(folder / "job.toml")
    assert run_job(job, engine=Watched(interrupt(40))).status == "interrupted"
    before = contents(folder / "run")
    with pytest.raises(KeyboardInterrupt):
        run_job(job, engine=Watched(interrupt(1)), force=True)
    assert contents(folder / "run") == before
    assert run_job(job, resume=True).solved
    assert not beside(folder / "run").exists()


def test_a_folder_in_which_another_run_is_at_work_is_not_replaced(trained: Path) -> None:
    job = read_job(trained / "job.toml")
    again = [{"force": True}, {"resume": True}]

    def intrude(progress: fp.solvers.Progress) -> None:
        while again:
            with raises_code("FP-CHECKPOINT-483", str(beside(job.output))):
                run_job(job, **again.pop())

    assert run_job(job, force=True, callbacks=[intrude]).solved
    assert not again


# ------------------------------------------------------------------------------------------- other files in the folder


def test_files_of_the_user_stay_when_a_run_is_replaced(trained: Path) -> None:
    def write(progress: fp.solvers.Progress) -> None:
        (trained / "run" / "notes.txt").write_text("written while the new run was at work")

    (trained / "run" / "figures" / "old").mkdir(parents=True)
    (trained / "run" / "figures" / "old" / "a.svg").write_text("<svg/>")
    (trained / "run" / "notes.txt").write_text("before")
    os.utime(trained / "run" / "notes.txt", (1, 1))
    (trained / "run" / "report.html").write_text("of the old run")
    (trained / "run" / "evaluation.json").write_text("of the old run")
    run_job(read_job(trained / "job.toml"), force=True, callbacks=[write])
    assert (trained / "run" / "figures" / "old" / "a.svg").read_text() == "<svg/>"
    assert "while" in (trained / "run" / "notes.txt").read_text()
    assert not (trained / "run" / "report.html").exists()
    assert not (trained / "run" / "evaluation.json").exists()
    own = {path.name for path in (trained / "run").iterdir()} - {"figures", "notes.txt"}
    assert own <= set(run_folder.WRITTEN)


def test_a_folder_that_holds_the_job_is_not_replaced(folder: Path) -> None:
    job = read_job(change(folder, 'folder = "run"', 'folder = "."'))
    run_job(job)
    before = contents(folder)
    with raises_code("FP-OPTION-483", "", str(folder), "job.toml"):
        run_job(job, force=True)
    assert contents(folder) == before


# ------------------------------------------------------------------------------------------------------------- predict


def test_nothing_is_predicted_with_a_model_that_is_not_the_runs(trained: Path) -> None:
    run, table = trained / "run", str(trained / "north.csv")
    run_job(read_job(change(trained, 'folder = "run"', 'folder = "other"\n')))
    model = (run / "model.npz").read_bytes()
    (run / "model.npz").write_bytes((trained / "other" / "model.npz").read_bytes())
    assert CliRunner().invoke(cli, ["predict", str(run), table]).exit_code == 0  # the same job, the same model
    change(trained, "bound = 0.35", "bound = 0.4")
    run_job(read_job(trained / "job.toml"), force=True)
    (run / "model.npz").write_bytes((trained / "other" / "model.npz").read_bytes())
    for command in (["predict", str(run), table], ["evaluate", str(run), "--table", f"north={table}"]):
        with raises_code("FP-483", "", str(run)):
            CliRunner().invoke(cli, command, catch_exceptions=False)
    (run / "model.npz").write_bytes(model)
    (run / "run.json").unlink()
    with raises_code("FP-512", str(run)):
        CliRunner().invoke(cli, ["predict", str(run), table], catch_exceptions=False)


# ---------------------------------------------------------------------------------------------------- kill -9, anywhere


def kill_at(number: int, work: Callable[[], object], folder: Path) -> bool:
    """Do this in a process that ends, without a word, at the event of this number; returns whether there was one.

    An event is whatever touches a file or folder: what a kill can come before.
    """
    child = os.fork()
    if child == 0:
        left = number

        def count(event: str, facts: tuple[object, ...]) -> None:
            nonlocal left
            if event.startswith(("open", "os.", "shutil.", "ctypes.")) and str(folder) in f"{facts}{event}":
                left -= 1
                if left < 0:
                    os._exit(9)

        sys.addaudithook(count)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.parametrize("one_step", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["swap", "renames"])
def test_a_kill_at_any_moment_of_the_swap_leaves_a_whole_run(
    trained: Path, one_step: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not one_step:
        monkeypatch.setattr(run_folder, "_exchange", lambda one, other: False)
    (trained / "run" / "notes.txt").write_text("mine")
    old = trained / "old"
    new = trained / "new"
    (trained / "run").rename(old)
    for path in old.rglob("*"):
        if path.is_file() and path.name not in ("run.json", "model.json", "notes.txt", "checkpoint.json"):
            path.unlink()  # fewer moments to look at
    shutil.copytree(old, new)
    (old / "history.csv").write_text("of the old run")
    about = json.loads((old / "run.json").read_text())
    (old / "run.json").write_text(json.dumps({**about, "started": "2001-01-01T00:00:00+00:00"}))
    wholes = {"old": contents(old), "new": contents(new)}
    run = trained / "run"
    seen: set[str] = set()
    for number in range(1000):
        for path in (run, beside(run), beside(run, ".away")):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(old, run)
        shutil.copytree(new, beside(run))
        killed = kill_at(number, lambda: run_folder._swap(beside(run), run), trained)
        if one_step:
            seen |= {name for name, whole in wholes.items() if contents(run) == whole}
            assert contents(run) in wholes.values(), number  # at its place, before anything is repaired
        run_folder._recover(run)
        found = [name for name, whole in wholes.items() if contents(run) == whole]
        assert found, number
        if found == ["old"]:  # then the new one waits
            assert contents(beside(run)) == wholes["new"]
            assert run_folder.choose(run, resume=True, force=False) == beside(run)
        else:
            assert not beside(run).exists()
        if not killed:
            break
    assert not killed
    assert number > 10
    assert found == ["new"]
    assert seen == ({"old", "new"} if one_step else set())


@pytest.mark.parametrize("part", [0.5, 0.97])
def test_a_kill_while_a_run_is_replaced_leaves_the_old_one_whole(trained: Path, part: float) -> None:
    events = 0
    job = read_job(trained / "job.toml")
    watched = Watched()
    run_job(job, engine=watched, force=True)
    before = contents(trained / "run")
    last = round(part * len(watched.asked))

    def die(owner: str, step: object, order: object) -> None:
        nonlocal events
        events += 1
        if events == last:
            os._exit(9)

    child = os.fork()
    if child == 0:
        try:
            run_job(job, engine=Watched(die), force=True)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert contents(trained / "run") == before
    assert run_job(job, resume=True).solved
    assert is_finished(trained / "run")
    assert not beside(trained / "run").exists()


def test_a_folder_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raises_code("FP-OPTION-396", "", "file"), open_run_folder(tmp_path / "file" / "run", False, False):
        pass
