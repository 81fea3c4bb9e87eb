"""A task whose tables are files at their owners: what is agreed (the job), and a share from one owner's own file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpact.data import read_csv, with_intercept
from fedpact.errors import OptionError
from fedpact.problem import RemoteProblem, Share
from fedpact.tasks.group_fairness import group_fairness_share
from fedpact.tasks.neyman_pearson import neyman_pearson_share

if TYPE_CHECKING:
    from fedpact.prox import Prox

TASKS = ("neyman_pearson", "group_fairness")


@dataclass(frozen=True)
class Job:
    """What all owners agree on before anything is computed; it goes to every owner with every order.

    task:      "neyman_pearson" (bound: mean loss on class 1) or "group_fairness" (bound: loss gap between the groups)
    bound:     the same for all owners
    label:     column of the labels, 0 and 1
    columns:   the features by name: every owner takes them in this order, whatever the order in its file
    owners:    how many there are
    group:     column of the groups, 0 and 1 (for "group_fairness")
    intercept: does the model have one? It becomes the last entry of w
    """

    task: str
    bound: float
    label: str
    columns: tuple[str, ...]
    owners: int
    group: str = ""
    intercept: bool = True

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise OptionError(f"task {self.task!r} is unknown; choose {' or '.join(TASKS)}")
        if self.task == "group_fairness" and not self.group:
            raise OptionError("task 'group_fairness' needs group=, the name of the column of the groups")
        if not self.columns:
            raise OptionError("a job needs columns=, the names of the features that every owner has")

    @classmethod
    def read(cls, stated: Mapping[str, Any]) -> Job:
        """The job as it came with an order. OptionError when it is not one."""
        known = {f.name for f in fields(cls)}
        if unknown := set(stated) - known:
            raise OptionError(f"the job states {', '.join(sorted(unknown))}, which this version does not know")
        try:
            return cls(**{**stated, "columns": tuple(stated.get("columns", ()))})
        except TypeError as error:
            raise OptionError(f"the job is incomplete: {error}") from error

    def stated(self) -> dict[str, Any]:
        return {**asdict(self), "columns": list(self.columns)}


def share_from_file(job: Job, name: str, path: str | Path) -> Share:
    """One owner's share, from its own CSV file. Built where the file is."""
    table = read_csv(path, job.label, job.columns, job.group or None)
    X = with_intercept(table.X) if job.intercept else table.X
    if job.task == "group_fairness":
        assert table.group is not None
        return group_fairness_share(X, table.y, table.group, max_gap=job.bound, owners=job.owners, name=name)
    return neyman_pearson_share(X, table.y, bound=job.bound, owners=job.owners, name=name)


def from_files(
    files: Mapping[str, str | Path],
    task: str = "neyman_pearson",
    *,
    bound: float,
    label: str,
    columns: Sequence[str] | None = None,
    group: str = "",
    intercept: bool = True,
    regularizer: Prox | None = None,
) -> RemoteProblem:
    """A problem over CSV files, owner name -> path; each is read by its owner alone, in the owner's process.

    columns: the features; None takes those of the first file, which must then be readable here. See `Job`.
    """
    if columns is None:
        columns = read_csv(next(iter(files.values())), label, group=group or None).columns
    job = Job(task, bound, label, tuple(columns), len(files), group, intercept)
    return RemoteProblem(
        {name: partial(share_from_file, job, name, str(path)) for name, path in files.items()}, regularizer=regularizer
    )
