"""What the tables of a job hold."""

from __future__ import annotations

from collections.abc import Mapping

from fedpact.errors import OptionError
from fedpact.federation import Engine
from fedpact.fitting import Description, profile
from fedpact.fitting.sources import Held
from fedpact.jobs.evaluation import open_session
from fedpact.jobs.job_file import JobFile
from fedpact.tasks import TableTask


def profile_job(file: JobFile, engine: Engine | str | None = None) -> Description:
    """Describe the tables of the job's owners. OptionError for a task whose owners do not hold the same columns."""
    if not isinstance(file.task, TableTask):
        raise OptionError(
            f"task {file.task.name!r} has no columns that all owners hold; profile describes tables of a classifier or "
            "a regression",
            code="FP-OPTION-880",
            key="task",
        )
    owners: Mapping[str, Held] = file.owners
    if file.superlink:
        owners = dict.fromkeys(file.owners)  # sites know where their tables are
    with open_session(file, engine) as session:
        return profile(file.task, owners, session)
