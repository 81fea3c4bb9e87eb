"""Tables that are files at their owners: the same bits as from memory, and errors with the owner's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedpact as fp
from fedpact import data, tasks
from fedpact.errors import DataError, OptionError
from fedpact.tasks import Job

COLUMNS = ("age", "dose")


def tables() -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    made = {}
    for name in ("north", "south"):
        X = rng.normal(size=(60, 2))
        y = (X @ [1.0, -1.0] + rng.normal(size=60) > 0).astype(int)
        made[name] = (X, y, (X[:, 0] + rng.normal(size=60) > 0).astype(int))
    return made


def files(folder: Path) -> dict[str, Path]:
    made = {}
    for name, (X, y, group) in tables().items():
        table = data.Table(np.column_stack([group, X]), y, ("group", *COLUMNS))
        made[name] = data.write_csv(folder / f"{name}.csv", table, "y")
    return made


def test_neyman_pearson_from_files_gives_the_bits_of_neyman_pearson(tmp_path: Path) -> None:
    found = fp.solve(tasks.from_files(files(tmp_path), bound=0.5, label="y", columns=COLUMNS), tol=1e-6)
    owners = {name: (data.with_intercept(X), y) for name, (X, y, _) in tables().items()}
    expected = fp.solve(tasks.neyman_pearson(owners, 0.5), tol=1e-6)
    assert found.solved
    assert found.w.tobytes() == expected.w.tobytes()
    assert [m.tobytes() for m in found.multipliers] == [m.tobytes() for m in expected.multipliers]
    assert found.rounds == expected.rounds + 1  # the first one asks what the shares are like


def test_group_fairness_from_files(tmp_path: Path) -> None:
    problem = tasks.from_files(
        files(tmp_path), "group_fairness", bound=0.1, label="y", group="group", columns=COLUMNS, intercept=False
    )
    expected = fp.solve(tasks.group_fairness(tables(), max_gap=0.1))
    found = fp.solve(problem)
    assert found.solved
    assert found.w.tobytes() == expected.w.tobytes()


def test_columns_of_the_first_file_are_the_default(tmp_path: Path) -> None:
    problem = tasks.from_files(files(tmp_path), bound=0.5, label="y", intercept=False)
    assert fp.solve(problem).w.size == 3  # the column of the groups counts as a feature here


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("age,y\n1,0\n2,1\n", DataError, "south: .*has no column 'dose'"),
        ("age,dose,y\n1,1,1\n2,2,1\n", DataError, "owner 'south': no row has y = 0 among 2"),
        (
            "age,dose,y\n1,1,0\n2,2,3\n",
            DataError,
            "south.*column 'y' holds '3' in line 3, which is none of the classes '0', '1'",
        ),
        (
            "age,dose,y\n1,1,0.5\n2,2,1\n",
            DataError,
            "south.*column 'y' holds '0.5' in line 2, which is none of the classes",
        ),
    ],
)
def test_a_bad_file_is_told_with_its_owner(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    paths = files(tmp_path)
    paths["south"].write_text(text)
    with pytest.raises(error, match=message):
        fp.solve(tasks.from_files(paths, bound=0.5, label="y", columns=COLUMNS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "other"}, "task 'other' is unknown; choose neyman_pearson, group_fairness"),
        ({"task": "group_fairness"}, "needs group="),
        ({"columns": []}, "a job needs columns="),
        ({"more": 1}, "the job states more, which this version does not know"),
        ({"bound": None}, "incomplete"),
    ],
)
def test_a_job_that_is_none(changes: dict[str, Any], message: str) -> None:
    stated: dict[str, Any] = {**Job("neyman_pearson", 0.2, "y", COLUMNS, 2).stated(), **changes}
    if stated["bound"] is None:
        del stated["bound"]
    with pytest.raises(OptionError, match=message):
        Job.read(stated)


def test_a_job_survives_its_way_to_an_owner() -> None:
    job = Job("group_fairness", 0.2, "y", COLUMNS, 2, "g", intercept=False)
    assert Job.read(job.stated()) == job


@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize(
    ("task", "y", "message"),
    [
        ("neyman_pearson", [0, 0, 0, 0], "owner 'b': no row has y = 1 among 4"),
        ("neyman_pearson", [0, 1, 2, 0], "owner 'b': label has 1 values other than 0 and 1"),
        ("group_fairness", [0, 1, 0, 1], "owner 'b': no row has g = 1 among 4"),
    ],
)
def test_a_table_is_checked_with_and_without_its_constraint(
    constrained: bool, task: str, y: list[int], message: str
) -> None:
    """The model without constraints comes first when a recall is asked for."""
    job = Job(task, 0.2, "y", ("x",), 1, group="g", min_recall=0.9, constrained=constrained)
    group = np.zeros(4) if task == "group_fairness" else None
    with pytest.raises(DataError, match=message):
        tasks.share_from_rows(job, "b", np.ones((4, 1)), y, group)
