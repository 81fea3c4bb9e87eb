"""How a job on Flower ends for whoever submitted it; `flwr run` is replaced by a coordinator in this process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from raising import raises_code
from site_files import write_sites

from fedpact.cli.main import main
from fedpact.engines.flower import submit
from fedpact.errors import DataError, FedpactError, OwnerLost
from fedpact.federation import Fleet, Order, Step
from fedpact.jobs import read_job, run_job

OWNERS = ("north", "south", "coast")


class Raising(Fleet):
    """Sites that answer every order with this error."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(OWNERS)
        self.error = error

    def open(self, shares: object, folder: Path | None = None) -> Fleet:
        return self

    def start(self, owner: str, step: Step, order: Order) -> Future[Any]:
        if isinstance(self.error, KeyboardInterrupt):
            raise self.error
        answered: Future[Any] = Future()
        answered.set_exception(self.error)
        return answered


@pytest.fixture
def job(folder: Path) -> Path:
    path = folder / "job.toml"
    text = path.read_text()
    for owner in OWNERS:
        text = text.replace(f'"{owner}.csv"', '"flower://127.0.0.1:1"')
    text = text.replace("[solve]", "[solve]\nretries = 0")
    sites = write_sites(folder / "sites", dict.fromkeys(OWNERS, folder / "rows.csv"), features=[])
    path.write_text(f"{text}\n{sites.toml()}")
    return path


@pytest.fixture
def coordinate(monkeypatch: pytest.MonkeyPatch, job: Path) -> Callable[[BaseException | None], None]:
    """Say what happens when `flwr run` is called: every site raises this error, or (None) nothing is even started."""
    monkeypatch.setattr(submit.shutil, "which", lambda name, path: name)

    def arrange(error: BaseException | None) -> None:
        def run(command: list[str], **settings: Any) -> subprocess.CompletedProcess[bytes]:
            config = dict(one.split("=", 1) for one in command[-1].split(" "))
            if error is not None:
                file, answer = read_job(job), Path(json.loads(config["answer"]))
                with suppress(FedpactError, KeyboardInterrupt):  # Flower prints it
                    submit.answer_run(file, answer, lambda: run_job(file, engine=Raising(error)))
            return subprocess.CompletedProcess(command, 1)

        monkeypatch.setattr(submit.subprocess, "run", run)

    return arrange


def submit_job(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `fedpact run`."""
    monkeypatch.setattr(sys, "argv", ["fedpact", "run", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.mark.parametrize(
    ("error", "code", "facts"),
    [
        (OwnerLost("south: gone", code="FP-LOST-340"), 1, ("client_lost: ", "south: gone", "--resume")),
        (KeyboardInterrupt(), 130, ("interrupted", "--resume")),
        (DataError("south: FP-DATA-003", code="FP-DATA-003"), 2, ("fedpact: south: FP-DATA-003",)),
        (None, 2, ("left no record",)),
    ],
    ids=["lost", "interrupted", "data", "not started"],
)
def test_a_job_that_ends_before_there_is_a_model_ends_as_elsewhere(
    error: BaseException | None,
    code: int,
    facts: tuple[str, ...],
    job: Path,
    coordinate: Callable[[BaseException | None], None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    coordinate(error)
    assert submit_job(monkeypatch, str(job)) == code
    said = capfd.readouterr().err
    assert [fact for fact in facts if fact not in said] == []
    assert "Traceback" not in said


def test_sites_that_cannot_be_asked_at_the_superlink_are_no_proof(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **settings: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "no route to host")

    monkeypatch.setattr(submit.shutil, "which", lambda name, path: name)
    monkeypatch.setattr(submit.subprocess, "run", run)
    with raises_code("FP-637", "", "no route to host"):
        submit.ask_on_flower(job.parent / "run", read_job(job))
    assert list(job.parent.glob("fedpact-ask-*")) == []


def test_the_end_of_an_earlier_run_is_not_told_again(
    job: Path, coordinate: Callable[[BaseException | None], None]
) -> None:
    coordinate(OwnerLost("south: gone", code="FP-LOST-340"))
    with raises_code("FP-LOST-340", "", "south: gone"):
        submit.run_on_flower(read_job(job))
    coordinate(None)
    with raises_code("FP-302"):
        submit.run_on_flower(read_job(job), resume=True)


def test_a_finished_run_that_is_resumed_keeps_what_was_signed(
    job: Path, coordinate: Callable[[BaseException | None], None], folder: Path
) -> None:
    """Sites erase what they know of a run that has ended, and could not sign it again."""
    coordinate(None)
    stated = job.read_text()
    keys = "".join(f'{owner} = "sites/{owner}.pem"\n' for owner in OWNERS)
    here = stated.partition("[flower]\nkey")[0]
    for owner in OWNERS:
        here = here.replace(f'{owner} = "flower://127.0.0.1:1"', f'{owner} = "{owner}.csv"')
    job.write_text(f"{here}[keys]\n{keys}")
    record = run_job(read_job(job))
    evidence = (folder / "run" / "evidence.json").read_bytes()
    job.write_text(stated)
    assert submit.run_on_flower(read_job(job), resume=True) == record
    assert (folder / "run" / "evidence.json").read_bytes() == evidence
