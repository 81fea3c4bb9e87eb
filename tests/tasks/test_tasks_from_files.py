"""Tables that are files at their owners: the same bits as from memory, and errors with the owner's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedpact as fp
from fedpact import data, tasks
from fedpact.errors import DataError, OptionError
from fedpact.federation.wire import dumps, loads
from fedpact.tasks import TASKS, Custom, GroupFairness, HeldSource, LinearQP, NeymanPearson, Rows, Task, read_task

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


#: One of each, with everything stated that can be.
ASKED: dict[str, Task] = {
    "neyman_pearson": NeymanPearson(label="y", columns=COLUMNS, owners=2, bound={"a": 0.2, "b": 0.3}),
    "group_fairness": GroupFairness(bound=0.2, label="y", columns=COLUMNS, owners=2, group="g", intercept=False),
    "linear_qp": LinearQP(owners=2),
    "custom": Custom(label="y", columns=COLUMNS, owners=2, functions="mine.py", categories={"dose": ("low", "high")}),
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "other"}, "task 'other' is unknown; choose neyman_pearson, group_fairness"),
        ({"task": "group_fairness", "group": "", "groups": ["0", "1"], "parity": "loss"}, "needs group="),
        ({"columns": []}, "a job needs columns="),
        ({"more": 1}, "the job states more, which this version does not know"),
        ({"bound": None}, "incomplete: it lacks bound"),
        ({"bound": {}}, "needs bound= or min_recall="),
    ],
)
def test_a_job_that_is_none(changes: dict[str, Any], message: str) -> None:
    stated = {**NeymanPearson(bound=0.2, label="y", columns=COLUMNS, owners=2).stated(), **changes}
    if stated["task"] == "group_fairness":
        del stated["protected"], stated["min_recall"]
    if stated["bound"] is None:
        del stated["bound"]
    with pytest.raises(OptionError, match=message):
        read_task(stated)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_survives_its_way_to_an_owner(name: str) -> None:
    task = ASKED[name]
    assert read_task(loads(dumps(task.stated()))) == task


@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize(
    ("kind", "y", "message"),
    [
        (NeymanPearson, [0, 0, 0, 0], "owner 'b': no row has y = 1 among 4"),
        (NeymanPearson, [0, 1, 2, 0], "owner 'b': label has 1 values other than 0 and 1"),
        (GroupFairness, [0, 1, 0, 1], "owner 'b': no row has g = 1 among 4"),
    ],
)
def test_a_table_is_checked_with_and_without_its_constraint(
    constrained: bool, kind: type[Task], y: list[int], message: str
) -> None:
    """The model without constraints comes first when a recall is asked for."""
    more: dict[str, Any] = {"min_recall": 0.9} if kind is NeymanPearson else {"group": "g"}
    task = kind(bound=0.2, label="y", columns=("x",), owners=1, constrained=constrained, **more)
    rows = Rows.of(np.ones((4, 1)), y, np.zeros(4) if kind is GroupFairness else None)
    with pytest.raises(DataError, match=message):
        HeldSource("b", rows)(task)
