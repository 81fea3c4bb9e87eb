"""A task whose tables are files at their owners: a share from one owner's own file."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike

from fedpact.data import Table, read_csv, with_intercept
from fedpact.data.cells import read_cells
from fedpact.errors import DataError, OptionError
from fedpact.problem import RemoteProblem, Share, Unscaled
from fedpact.tasks.checks import Matrix
from fedpact.tasks.group_fairness import GroupRates, group_fairness_share
from fedpact.tasks.job import Job
from fedpact.tasks.linear_model import mean_loss
from fedpact.tasks.linear_qp import linear_qp_share
from fedpact.tasks.neyman_pearson import neyman_pearson_share

if TYPE_CHECKING:
    from fedpact.prox import Prox


def share_from_file(job: Job, name: str, path: str | Path) -> Share | Unscaled:
    """One owner's share, from its own CSV or Parquet file (.npz for "linear_qp"). Built where the file is.

    Unscaled, when the job asks for a scaling that is not known yet.
    """
    if job.task == "linear_qp":
        return _quadratic(name, Path(path))
    cells = read_cells(path)
    X = job.encoding.matrix(cells)
    if job.needs_scaling:
        return Unscaled(X)
    y = cells.codes(job.label, job.classes, "classes")
    group = cells.codes(job.group, job.groups, "groups") if job.group else None
    return share_from_rows(job, name, X, y, group)


def share_from_rows(
    job: Job, name: str, X: ArrayLike, y: ArrayLike, group: ArrayLike | None = None
) -> Share | Unscaled:
    """As `share_from_file`, from a matrix, and labels and groups as numbers of their class and group."""
    matrix = np.asarray(X, dtype=np.float64)
    if job.needs_scaling:
        return Unscaled(matrix)
    if job.scaling is not None:
        matrix = job.scaling.apply(matrix)
    if job.intercept:
        matrix = with_intercept(matrix)
    if job.task == "custom":
        return _custom(
            job, name, Table(matrix, np.asarray(y), job.encoding.names, None if group is None else np.asarray(group))
        )
    if job.task == "group_fairness" and group is None:
        share = _without_groups(job, name, matrix, y)
    else:
        share = _constrained(job, name, matrix, y, group)
    if job.constrained or share.objective is None:
        return share
    objective = (1 / job.owners) * mean_loss(matrix, np.asarray(y), len(job.classes))
    return replace(share, objective=objective, constraint=None)


def _constrained(job: Job, name: str, X: Matrix, y: ArrayLike, group: ArrayLike | None) -> Share:
    classes, bound = len(job.classes), job.bound_of(name)
    if job.task == "group_fairness":
        assert group is not None
        return group_fairness_share(
            X,
            y,
            group,
            max_gap=bound,
            owners=0 if name == "server" else job.owners,
            name=name,
            parity=job.parity,
            groups=len(job.groups),
            classes=classes,
            column=job.group,
            levels=job.groups,
        )
    return neyman_pearson_share(
        X,
        y,
        bound=bound,
        owners=job.owners,
        name=name,
        classes=classes,
        protected=job.protected_class,
        min_recall=job.min_recall,
        label=job.label,
        levels=job.classes,
    )


def _without_groups(job: Job, name: str, X: Matrix, y: ArrayLike) -> Share:
    assert not job.constrained  # there is nothing to compare
    labels, classes = np.asarray(y), len(job.classes)
    return Share(mean_loss(X, labels, classes), name=name, measures=GroupRates(X, labels, labels, 0, classes))


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

    columns: the features; None takes those of the first file, which must then be readable here. See `Job`.
    """
    if columns is None:
        columns = read_csv(next(iter(files.values())), label, group=group or None).columns
    job = Job(task, bound, label, tuple(columns), len(files), group, intercept)
    return RemoteProblem(sources(job, files), regularizer=regularizer)


def sources(job: Job, files: Mapping[str, str | Path]) -> dict[str, Callable[[], Share | Unscaled]]:
    """What an engine takes to every owner: a function that builds its share there."""
    return {name: partial(share_from_file, job, name, str(path)) for name, path in files.items()}


def _quadratic(name: str, path: Path) -> Share:
    """min w'Aw/2 + b'w  s.t.  Cw + d = 0, from the arrays A, b, C, d of an .npz file; C and d may be absent."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        words = f"{path} cannot be read as .npz ({error}); write it with numpy.savez(A=, b=, C=, d=)"
        raise DataError(words, code="FP-DATA-060") from error
    if absent := {"A", "b"} - arrays.keys():
        raise DataError(
            f"{path} has no array {', '.join(sorted(absent))}; write it with numpy.savez(A=, b=, C=, d=)",
            code="FP-DATA-061",
        )
    return linear_qp_share(arrays["A"], arrays["b"], arrays.get("C"), arrays.get("d"), name=name)


def _custom(job: Job, name: str, table: Table) -> Share:
    """The share that the function `share` of the job's Python file makes of the owner's table."""
    path = Path(job.functions)
    spec = importlib.util.spec_from_file_location("fedpact_custom_task", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise OptionError(f"functions = {job.functions!r} is no Python file; correct the path", code="FP-OPTION-060")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    build = getattr(module, "share", None)
    if not callable(build):
        raise OptionError(f"{path} has no function share(table, name, owners); define it", code="FP-OPTION-061")
    made = build(table, name, job.owners)
    if not isinstance(made, Share):
        raise OptionError(
            f"{path}: share(...) returned {type(made).__name__}; return an fp.Share", code="FP-OPTION-062"
        )
    return made if made.name else Share(made.objective, made.constraint, made.coupled, name, made.measures)
