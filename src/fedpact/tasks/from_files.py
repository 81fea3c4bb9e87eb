"""A problem over files at their owners, without a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpact.data import read_csv
from fedpact.problem import RemoteProblem
from fedpact.tasks.base import FileSource
from fedpact.tasks.group_fairness import GroupFairness
from fedpact.tasks.neyman_pearson import NeymanPearson
from fedpact.tasks.tables import TableTask

if TYPE_CHECKING:
    from fedpact.prox import Prox


def from_files(
    files: Mapping[str, str | Path],
    task: str = "neyman_pearson",
    *,
    bound: float | Mapping[str, float],
    label: str,
    columns: Sequence[str] | None = None,
    group: str = "",
    intercept: bool = True,
    regularizer: Prox | None = None,
) -> RemoteProblem:
    """A problem over CSV files, owner name -> path; each is read by its owner alone, in the owner's process.

    task:    "neyman_pearson" or "group_fairness"
    columns: the features; None takes those of the first file, which must then be readable here
    """
    if columns is None:
        columns = read_csv(next(iter(files.values())), label, group=group or None).columns
    about: dict[str, Any] = {
        "label": label,
        "columns": tuple(columns),
        "owners": len(files),
        "bound": bound,
        "intercept": intercept,
    }
    asked: TableTask = NeymanPearson(**about) if task == "neyman_pearson" else GroupFairness(group=group, **about)
    sources = {name: FileSource(name, path) for name, path in files.items()}
    return RemoteProblem(sources, regularizer=regularizer, task=asked)
