"""A job whose owners are sites of a Flower federation, and where its coordinator runs: here, or at the SuperLink."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedpact.errors import FedpactError, OptionError, class_of
from fedpact.jobs.job_file import JobFile
from fedpact.jobs.running import ENDED, prepare, run_job
from fedpact.report.record import FILE, Record

if TYPE_CHECKING:
    from flwr.serverapp import Grid

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
"""
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
    certificates = file.flower.get("root_certificates")
    superlink = SuperLink(file.superlink, None if certificates is None else Path(certificates))
    superlink.find_flwr()
    prepare(file.output, resume, force)
    if "superexec_secret" in file.flower:
        return _run_here(file, superlink, resume, force)
    return _run_there(file, superlink, resume)


def _run_here(file: JobFile, superlink: SuperLink, resume: bool, force: bool) -> Record:
    """The coordinator's half in this process."""
    from fedpact.engines.flower.engine import Flower
    from fedpact.engines.flower.site import speak

    speak()
    patience = float(file.flower.get("patience", PATIENCE))
    with superlink.take_run(Path(file.flower["superexec_secret"])) as grid:
        return run_job(file, engine=Flower(grid, patience), resume=resume, force=force)


def _run_there(file: JobFile, superlink: SuperLink, resume: bool) -> Record:
    """The coordinator's half as a process of the SuperLink; its log is followed, its record read from the folder."""
    (file.output / FILE).unlink(missing_ok=True)
    log = file.output / "log.txt"
    earlier = log.stat().st_size  # of runs that are resumed
    config = f"job={json.dumps(str(file.path.resolve()))} resume={json.dumps(resume)}"
    done = superlink.submit("--stream", "--run-config", config, stdout=sys.stderr.fileno())
    if (file.output / FILE).exists():
        return Record.load(file.output)
    raise _read_end(log.read_bytes()[earlier:].decode()) or FedpactError(
        f"the run on Flower left no record (flwr ended with {done.returncode}); its log is printed above", code="FP-302"
    )


@dataclass(frozen=True)
class SuperLink:
    """Where runs are submitted to.

    certificates: its certificate authority; None: without TLS, for trials on one machine
    """

    address: str
    certificates: Path | None = None

    def find_flwr(self) -> str:
        """The command `flwr`. OptionError when it is not installed."""
        found = shutil.which("flwr", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        if found is None:
            raise OptionError(
                "owners at flower:// need the package flwr: pip install 'fedpact[flower]'", code="FP-OPTION-344"
            )
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

    @contextmanager
    def take_run(self, secret: Path) -> Iterator[Grid]:
        """Submit a run, and coordinate it in this process."""
        from fedpact.engines.flower.coordinator import take_run

        submitted = self.submit()
        if submitted.returncode:
            raise OptionError(
                f"the SuperLink at {self.address} took no run: {submitted.stdout.strip()}", code="FP-OPTION-666"
            )
        with take_run(self.address, secret, self.certificates) as grid:
            yield grid


def _read_end(log: str) -> BaseException | None:
    """What ended a run before it had a model, as its log tells it; None when the log does not."""
    end = log.rpartition(ENDED)[2].strip()
    if end == KeyboardInterrupt.__name__:
        return KeyboardInterrupt()
    if told := re.fullmatch(r"(FP[A-Z0-9-]*): (.*)", end, re.DOTALL):
        code, message = told.groups()
        return class_of(code)(message, code=code)
    return None
