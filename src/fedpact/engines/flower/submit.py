"""A job whose owners are sites of a Flower federation: its coordinator runs where the SuperLink is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fedpact.errors import FedpactError, OptionError, class_of
from fedpact.jobs.job_file import JobFile
from fedpact.jobs.running import ENDED, prepare
from fedpact.report.record import FILE, Record

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
#: Switched off in every process of Flower that is started here.
ENVIRONMENT = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


def run_on_flower(file: JobFile, *, resume: bool = False, force: bool = False) -> Record:
    """Submit the job to its SuperLink, follow its log, and read the record that it leaves in the output folder.

    The SuperLink runs on this machine (or sees its files): the coordinator's half of the run is one of its processes.
    Raises OptionError without Flower. When the run ended before there was a model, raises what ended it, as `run_job`
    does: OwnerLost, KeyboardInterrupt, or the error of a job or table that is wrong.
    """
    flwr = shutil.which("flwr", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if flwr is None:
        raise OptionError(
            "owners at flower:// need the package flwr: pip install 'fedpact[flower]'", code="FP-OPTION-344"
        )
    prepare(file.output, resume, force)
    (file.output / FILE).unlink(missing_ok=True)
    log = file.output / "log.txt"
    earlier = log.stat().st_size  # of runs that are resumed
    certificates = file.flower.get("root_certificates")
    trust = "insecure = true"
    if certificates is not None:
        trust = f"root-certificates = {json.dumps(str(Path(certificates).resolve()))}"
    with tempfile.TemporaryDirectory(prefix="fedpact-flower-") as made:
        app = Path(made, "app")
        home = Path(made, "home")
        app.mkdir()
        home.mkdir()
        (app / "pyproject.toml").write_text(APP)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "job"\n\n[superlink.job]\naddress = {json.dumps(file.superlink)}\n{trust}\n'
        )
        config = f"job={json.dumps(str(file.path.resolve()))} resume={json.dumps(resume)}"
        done = subprocess.run(
            [flwr, "run", str(app), "job", "--stream", "--run-config", config],
            env={**os.environ, **ENVIRONMENT, "FLWR_HOME": str(home)},
            stdout=sys.stderr.fileno(),
            check=False,
        )
    if (file.output / FILE).exists():
        return Record.load(file.output)
    raise _read_end(log.read_bytes()[earlier:].decode()) or FedpactError(
        f"the run on Flower left no record (flwr ended with {done.returncode}); its log is printed above", code="FP-302"
    )


def _read_end(log: str) -> BaseException | None:
    """What ended a run before it had a model, as its log tells it; None when the log does not."""
    end = log.rpartition(ENDED)[2].strip()
    if end == KeyboardInterrupt.__name__:
        return KeyboardInterrupt()
    if told := re.fullmatch(r"(FP[A-Z0-9-]*): (.*)", end, re.DOTALL):
        code, message = told.groups()
        return class_of(code)(message, code=code)
    return None
