"""A job whose owners are sites of a Flower federation, and where its coordinator runs: here, or at the SuperLink."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpact.errors import FedpactError, OptionError, class_of, install
from fedpact.federation import Session
from fedpact.fitting import Description, Evaluation
from fedpact.jobs.evaluation import evaluate_run, score_party_run
from fedpact.jobs.job_file import JobFile
from fedpact.jobs.profile import profile_job
from fedpact.jobs.run_folder import beside, check_run_folder, folder_of, is_signed
from fedpact.jobs.running import run_job, session_settings
from fedpact.jobs.verification import ask_owners
from fedpact.report.record import Failed, Record
from fedpact.tasks.base import SERVER
from fedpact.types import Vector

if TYPE_CHECKING:
    from flwr.serverapp import Grid

    from fedpact.engines.flower.engine import Flower

#: All that `flwr run` needs: the code is installed with fedpact, at the coordinator and at every site.
APP = """\
[project]
name = "fedpact-job"
version = "0.1.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "fedpact"
[tool.flwr.app.components]
serverapp = "fedpact.engines.flower.app:server_app"
clientapp = "fedpact.engines.flower.app:client_app"
[tool.flwr.app.config]
job = ""
resume = false
force = false
sites = 0.0
ask = ""
evaluate = ""
predict = ""
profile = false
server = ""
absent = "[]"
answer = ""
"""
#: Begins the line of a run's log that lists who is online.
SITES = "sites: "
#: Seconds to wait for sites that are not online at the start.
PATIENCE = 120.0
#: Switched off in every process of Flower that is started here.
ENVIRONMENT = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


def run_on_flower(file: JobFile, *, resume: bool = False, force: bool = False) -> Record:
    """Run the job with the sites of its SuperLink; its record is in the output folder, too.

    With superexec_secret in [flower] the coordinator is this process, and the SuperLink, wherever it is, only relays.
    Without, the coordinator is a process of the SuperLink, which runs on this machine or sees its files.
    Raises OptionError without Flower. When the run ended before there was a model, raises what ended it, as `run_job`
    does: OwnerLost, KeyboardInterrupt, or the error of a job or table that is wrong.
    """
    superlink = SuperLink.of(file.superlink, file.flower)
    superlink.find_flwr()
    if resume and is_signed(file.output) and not beside(file.output).exists():
        return Record.load(file.output)  # the sites have erased what they knew of it, and signed what is there
    check_run_folder(file.output, resume, force)
    if superlink.secret is not None:
        return _run_here(file, superlink, resume, force)
    return _run_there(file, superlink, resume, force)


def _run_here(file: JobFile, superlink: SuperLink, resume: bool, force: bool) -> Record:
    """The coordinator's half in this process."""
    from fedpact.engines.flower.logs import speak

    speak()
    with superlink.take_run() as grid:
        return run_job(file, engine=engine_of(file, grid), resume=resume, force=force)


def _run_there(file: JobFile, superlink: SuperLink, resume: bool, force: bool) -> Record:
    """The coordinator's half as a process of the SuperLink; its log is printed, and its answer says how it ended."""
    with _answer_for(file.output) as answer:
        done = superlink.submit(
            *_stream(job=file.path, resume=resume, force=force, answer=answer), stdout=sys.stderr.fileno()
        )
        if not answer.exists():
            raise FedpactError(
                f"the run on Flower left no record (flwr ended with {done.returncode}); its log is printed above",
                code="FP-302",
            )
        told = json.loads(answer.read_text())
    if told.get("code") == KeyboardInterrupt.__name__:
        raise KeyboardInterrupt
    return Record.load(_read(told)["folder"])


def answer_run(file: JobFile, answer: Path | None, run: Callable[[], Record]) -> Record:
    """Run the job, and write to the file `answer` how that ended: where the record is, or the error."""
    told = {}
    try:
        record = run()
        told = {"folder": str(folder_of(file.output).resolve())}
    except KeyboardInterrupt:
        told = {"code": KeyboardInterrupt.__name__}
        raise
    except FedpactError as error:
        told = {"code": error.code, "text": str(error)}
        raise
    finally:
        if told and answer is not None:
            answer.write_text(json.dumps(told))
    return record


@contextmanager
def _answer_for(folder: Path) -> Iterator[Path]:
    """A file for what a coordinator at the SuperLink answers about a run, where it sees it: beside the run's folder."""
    parent = folder.resolve().parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fedpact-ask-", dir=parent) as made:
        yield Path(made, "answer.json")


def _read(told: dict[str, Any]) -> dict[str, Any]:
    """What was answered; raises the error that the coordinator met."""
    if "code" in told:
        raise class_of(told["code"])(told["text"], code=told["code"])
    return told


def ask_on_flower(folder: Path, file: JobFile) -> list[Failed]:
    """The sites of the job recompute what they signed about the run in this folder, see `ask_owners`.

    They are asked from where the job would run, in a run of their own: every site's policy judges it as any other.
    """
    superlink = SuperLink.of(file.superlink, file.flower)
    if superlink.secret is not None:
        with superlink.take_run() as grid:
            return ask_sites(folder, file, grid)
    with _answer_for(folder) as answer:  # not the log, which has the names of sites
        done = superlink.submit(*_stream(job=file.path, ask=folder.resolve(), answer=answer))
        if not answer.exists():
            raise _not_asked(done.stdout)
        return [Failed(**one) for one in json.loads(answer.read_text())]


def ask_sites(folder: Path, file: JobFile, grid: Grid) -> list[Failed]:
    """The same, through a grid that is at hand."""
    with Session(engine_of(file, grid), **session_settings(file)) as session:
        return list(ask_owners(folder, file, session))


def _not_asked(printed: str) -> FedpactError:
    return FedpactError(f"the sites were not asked at the SuperLink:\n{printed.strip()}", code="FP-637")


def evaluate_on_flower(
    folder: Path, file: JobFile, server: Path | None = None, absent: Sequence[str] = ()
) -> Evaluation:
    """The sites of the job measure the model of the run in this folder on their tables that nobody trained on.

    server: the coordinator's table of these rows, where it holds labels of a vertical task; absent: its parties that do
    not take part. As with `ask_on_flower`, every site's policy judges it as a run of its own.
    """
    superlink = SuperLink.of(file.superlink, file.flower)
    if superlink.secret is not None:
        with superlink.take_run() as grid:
            return evaluate_run(folder, file, own_table(server), engine_of(file, grid), absent=absent)
    asked = _ask_there(superlink, folder, server, absent, job=file.path, evaluate=folder.resolve())
    return Evaluation.from_json(asked)


def predict_on_flower(
    folder: Path, file: JobFile, server: Path | None = None, absent: Sequence[str] = ()
) -> tuple[list[str], Vector]:
    """Ids and scores of people in the sites' tables that nobody trained on, see `score_party_run`."""
    superlink = SuperLink.of(file.superlink, file.flower)
    if superlink.secret is not None:
        with superlink.take_run() as grid:
            return score_party_run(folder, file, own_table(server) or {}, engine_of(file, grid), absent)
    told = _ask_there(superlink, folder, server, absent, job=file.path, predict=folder.resolve())
    return told["ids"], np.array(told["scores"])


def profile_on_flower(file: JobFile) -> Description:
    """The sites of the job describe their tables, see `profile_job`; each if its policy allows the task "profile"."""
    superlink = SuperLink.of(file.superlink, file.flower)
    if superlink.secret is not None:
        with superlink.take_run() as grid:
            return profile_job(file, engine_of(file, grid))
    return Description.from_json(_ask_there(superlink, file.output, None, job=file.path, profile=True))


def own_table(server: Path | None) -> dict[str, Path] | None:
    """The coordinator's own table, as the only one that is given; None where it has none."""
    return None if server is None else {SERVER: server}


def _ask_there(
    superlink: SuperLink, folder: Path, server: Path | None, absent: Sequence[str] = (), **config: Path | bool | str
) -> dict[str, Any]:
    """What a coordinator at the SuperLink answers about a run; raises the error that it met."""
    if server is not None:
        config["server"] = server
    config["absent"] = json.dumps(list(absent))
    with _answer_for(folder) as answer:
        done = superlink.submit(*_stream(**config, answer=answer))
        if not answer.exists():
            raise _not_asked(done.stdout)
        return _read(json.loads(answer.read_text()))


def engine_of(file: JobFile, grid: Grid) -> Flower:
    """The sites that can be reached through the grid, as the job waits for them."""
    from fedpact.engines.flower.engine import Flower

    return Flower(grid, float(file.flower.get("patience", PATIENCE)))


def _stream(**config: Path | bool | float | str) -> tuple[str, ...]:
    """Options of `flwr run`: follow the log of a run with this config."""
    plain = {name: str(value.resolve()) if isinstance(value, Path) else value for name, value in config.items()}
    return "--stream", "--run-config", " ".join(f"{name}={json.dumps(value)}" for name, value in plain.items())


@dataclass(frozen=True)
class SuperLink:
    """Where runs are submitted to.

    certificates: its certificate authority; None: without TLS, for trials on one machine
    secret:       which it shares with coordinators, where it only relays
    """

    address: str
    certificates: Path | None = None
    secret: Path | None = None

    @classmethod
    def of(cls, address: str, flower: Mapping[str, Any]) -> SuperLink:
        """As the table [flower] of a job describes it."""
        files = [flower.get(key) for key in ("root_certificates", "superexec_secret")]
        return cls(address, *(None if file is None else Path(file) for file in files))

    def find_flwr(self) -> str:
        """The command `flwr`. OptionError when it is not installed."""
        found = shutil.which("flwr", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        if found is None:
            raise OptionError(f"owners at flower:// need the package flwr: {install('flower')}", code="FP-OPTION-344")
        return found

    def submit(self, *options: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
        """Submit a run of fedpact's app, with these options of `flwr run`."""
        flwr = self.find_flwr()
        trust = "insecure = true"
        if self.certificates is not None:
            trust = f"root-certificates = {json.dumps(str(self.certificates.resolve()))}"
        with tempfile.TemporaryDirectory(prefix="fedpact-flower-") as made:
            app = Path(made, "app")
            home = Path(made, "home")
            app.mkdir()
            home.mkdir()
            (app / "pyproject.toml").write_text(APP)
            (home / "config.toml").write_text(
                f'[superlink]\ndefault = "job"\n\n[superlink.job]\naddress = {json.dumps(self.address)}\n{trust}\n'
            )
            return subprocess.run(
                [flwr, "run", str(app), "job", *options],
                env={**os.environ, **ENVIRONMENT, "FLWR_HOME": str(home)},
                stdout=stdout,
                stderr=None if stdout != subprocess.PIPE else subprocess.STDOUT,
                text=True,
                check=False,
            )

    def list_sites(self, seconds: float) -> list[dict[str, Any]]:
        """Who is online, see `fedpact.engines.flower.engine.greet_all`."""
        if self.secret is None:
            return _read_sites(self.submit(*_stream(sites=float(seconds))).stdout)
        with self.take_run() as grid:
            from fedpact.engines.flower.engine import greet_all

            return greet_all(grid, seconds)

    @contextmanager
    def take_run(self) -> Iterator[Grid]:
        """Submit a run, and coordinate it in this process; a secret is needed for that."""
        assert self.secret is not None
        submitted = self.submit()
        if submitted.returncode:
            raise OptionError(
                f"the SuperLink at {self.address} took no run: {submitted.stdout.strip()}", code="FP-OPTION-666"
            )
        from fedpact.engines.flower.coordinator import take_run

        with take_run(self.address, self.secret, self.certificates) as grid:
            yield grid


def _read_sites(log: str) -> list[dict[str, Any]]:
    """The line of a run's log that lists who is online. FedpactError when there is none."""
    _, told, rest = log.partition(SITES)
    if not told:
        raise FedpactError(f"the SuperLink did not say who is online:\n{log.strip()}", code="FP-660")
    found: list[dict[str, Any]] = json.loads(rest.splitlines()[0])
    return found
