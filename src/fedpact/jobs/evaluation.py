"""The model of a run folder on tables that nobody trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedpact.errors import OptionError
from fedpact.federation import Engine, Session
from fedpact.fitting import Evaluation, evaluate
from fedpact.fitting.sources import Held
from fedpact.jobs.evidence_file import EVALUATION
from fedpact.jobs.job_file import JobFile, read_job
from fedpact.jobs.running import TASK, session_settings
from fedpact.solvers import Solution
from fedpact.tasks import Task, read_task
from fedpact.types import Vector


@dataclass(frozen=True, eq=False)
class Trained:
    """The model of a run, as its owners agreed on it.

    job: the file of its job, as the run names it
    """

    task: Task
    w: Vector
    job: Path

    @classmethod
    def load(cls, folder: Path) -> Trained:
        """From the folder of a run. OptionError when there is no model in it."""
        try:
            stated = json.loads((folder / TASK).read_text())
            task = read_task(stated["task"])
            job = (folder / stated["job_file"]).resolve()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OptionError(
                f"{folder / TASK} cannot be read ({error}); evaluate needs the folder of a run that trained a model",
                code="FP-OPTION-837",
            ) from error
        return cls(task, Solution.load(folder / "solution.npz").w, job)


def evaluate_run(
    folder: Path,
    file: JobFile,
    tables: Mapping[str, Path] | None = None,
    engine: Engine | str | None = None,
) -> Evaluation:
    """Measure the model of the run in this folder on tables that nobody trained on, and keep the result there.

    file:   the job of the run
    tables: by owner, in the place of the job's [holdout]; sites have their own
    engine: in the place of the job's own

    Raises OptionError when nobody has a table for it, and what `fedpact.fitting.evaluate` raises.
    """
    trained = Trained.load(folder)
    known: Mapping[str, Held] = file.owners
    owners: Mapping[str, Held] = file.holdout if tables is None else tables
    if file.superlink:
        known = {}
        owners = dict.fromkeys(file.owners)  # sites know where their tables are
    if not owners:
        raise OptionError(
            "there is no table that nobody trained on; state some in [holdout] of the job, or by --table",
            code="FP-OPTION-838",
        )
    if unknown := [owner for owner in owners if owner not in file.owners]:
        raise OptionError(
            f"{unknown[0]!r} is not an owner of this run; its owners are: {', '.join(file.owners)}",
            code="FP-OPTION-839",
        )
    settings = {name: value for name, value in session_settings(file).items() if name != "keys"}  # nothing is signed
    where = engine or file.solve.get("engine", "in-process")
    with Session(where, **settings) as session:
        found = evaluate(trained.task, trained.w, owners, session, trained=known)
    keep(folder, found)
    return found


def keep(folder: Path, found: Evaluation) -> None:
    """Write evaluation.json."""
    (folder / EVALUATION).write_text(json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n")


def job_of(folder: Path, job: Path | None = None) -> JobFile:
    """The job of a run. job: where it is, if not where the run names it"""
    return read_job(job or Trained.load(folder).job)
