"""Code of a job: what runs is a file that the user names, never one that only the folder of a run points at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedpact.errors import OptionError
from fedpact.jobs.evidence_file import FILE, read_evidence
from fedpact.jobs.job_file import JobFile
from fedpact.tasks import Custom, Task
from fedpact.tasks.base import digest_of_files
from fedpact.tasks.scored import ScoredTask


def with_own_code(task: Task, file: JobFile, signed: Mapping[str, Any]) -> Task:
    """The task of a run, with the Python file of this job in the place of the one that the run names.

    signed: the job as the owners signed it. OptionError when the file is not the one whose digest that states; that of
    a network is compared again wherever it is run.
    """
    if isinstance(task, Custom):
        own = file.task.functions if isinstance(file.task, Custom) else ""
        if not own or digest_of_files(Path(own)) != signed.get("functions"):
            raise _other_file(own or "none", "of the job that was signed")
        return replace(task, functions=own)
    if not isinstance(task, ScoredTask) or not task.has_code:
        return task
    own = ""
    if isinstance(file.task, ScoredTask) and file.task.code is not None:
        own = file.task.code.path
    return task.with_code_at(own)


def require_code(code: str | Path | None, folder: Path, digest: str) -> str:
    """The file that the user lets run, for a model of a run that is built by Python code.

    digest: of the file that the run names. OptionError when the user names none, or the owners signed another one.
    """
    if code is None:
        raise OptionError(
            f"the model in {folder} is built by Python code, which is run to score rows; name the file that you trust "
            f"with --code: {folder}/network.py, if you have read it, or the one of the job",
            code="FP-OPTION-673",
            key="code",
        )
    if (folder / FILE).exists() and read_evidence(folder)[0].job.get("code") != digest:
        raise _other_file(str(code), "of the job that its owners signed")
    return str(code)


def _other_file(path: str, what: str) -> OptionError:
    return OptionError(
        f"{path} is not the Python file {what}: its digest is another; give the file of that job, byte for byte",
        code="FP-OPTION-674",
        key="code",
    )
