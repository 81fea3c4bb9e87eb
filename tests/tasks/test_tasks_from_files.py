"""Tables that are files at their owners: the same bits as from memory, and errors with the owner's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact import data, tasks
from fedpact.federation.wire import dumps, loads
from fedpact.tasks import (
    TASKS,
    Classification,
    Custom,
    GroupFairness,
    HeldSource,
    LinearQP,
    Minimax,
    NeymanPearson,
    Regression,
    Requirement,
    Rows,
    Task,
    Vertical,
    read_task,
)

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
    ("text", "code", "fact"),
    [
        ("age,y\n1,0\n2,1\n", "FP-DATA-001", "column 'dose'"),
        ("age,dose,y\n1,1,1\n2,2,1\n", "FP-DATA-047", "y = 0 among 2"),
        ("age,dose,y\n1,1,0\n2,2,3\n", "FP-DATA-006", "column 'y' holds '3' in line 3"),
        ("age,dose,y\n1,1,0.5\n2,2,1\n", "FP-DATA-006", "column 'y' holds '0.5' in line 2"),
    ],
)
def test_a_bad_file_is_told_with_its_owner(tmp_path: Path, text: str, code: str, fact: str) -> None:
    paths = files(tmp_path)
    paths["south"].write_text(text)
    with raises_code(code, "", "south", fact):
        fp.solve(tasks.from_files(paths, bound=0.5, label="y", columns=COLUMNS))


#: One of each, with everything stated that can be.
ASKED: dict[str, Task] = {
    "neyman_pearson": NeymanPearson(label="y", columns=COLUMNS, owners=2, bound={"a": 0.2, "b": 0.3}),
    "group_fairness": GroupFairness(bound=0.2, label="y", columns=COLUMNS, owners=2, group="g", intercept=False),
    "classification": Classification(
        label="y",
        columns=COLUMNS,
        owners=2,
        group="g",
        constraints=(
            Requirement(kind="recall", at_least={"a": 0.8, "b": 0.9}, confidence=0.9),
            Requirement(kind="equalized_odds", at_most=0.1, held_by="all"),
        ),
        centre=(0.5, -0.5),
        width=0.1,
        cells={"rows": 7.0},
    ),
    "regression": Regression(
        label="y",
        columns=COLUMNS,
        owners=2,
        family="poisson",
        max_loss={"a": 0.2, "b": 0.3},
        coefficients={COLUMNS[0]: {"at_least": 0.0}},
        monotone={COLUMNS[1]: "decreasing"},
        owners_weigh="rows",
        total_rows=7.0,
    ),
    "minimax": Minimax(label="y", columns=COLUMNS, owners=2, smoothing=0.2, roster=("a", "b")),
    "linear_qp": LinearQP(owners=2),
    "vertical": Vertical(
        label="y", label_at="a", group="g", columns={"a": COLUMNS, "b": ("x",)}, owners=2, max_gap=0.1, least_people=3
    ),
    "custom": Custom(label="y", columns=COLUMNS, owners=2, functions="mine.py", categories={"dose": ("low", "high")}),
}


@pytest.mark.parametrize(
    ("changes", "code", "fact"),
    [
        ({"task": "other"}, "FP-OPTION-040", "'other'"),
        ({"task": "group_fairness", "group": "", "groups": ["0", "1"], "parity": "loss"}, "FP-OPTION-041", "group="),
        ({"columns": []}, "FP-OPTION-043", "columns="),
        ({"more": 1}, "FP-OPTION-051", "more"),
        ({"bound": None}, "FP-OPTION-052", "bound"),
        ({"bound": {}}, "FP-OPTION-056", "bound="),
    ],
)
def test_a_job_that_is_none(changes: dict[str, Any], code: str, fact: str) -> None:
    stated = {**NeymanPearson(bound=0.2, label="y", columns=COLUMNS, owners=2).stated(), **changes}
    if stated["task"] == "group_fairness":
        del stated["protected"], stated["min_recall"]
    if stated["bound"] is None:
        del stated["bound"]
    with raises_code(code, "", fact):
        read_task(stated)


def test_files_of_an_unknown_task(tmp_path: Path) -> None:
    with raises_code("FP-OPTION-040", "", "'other'"):
        tasks.from_files(files(tmp_path), "other", bound=0.5, label="y")


@pytest.mark.parametrize("name", TASKS)
def test_a_task_survives_its_way_to_an_owner(name: str) -> None:
    task = ASKED[name]
    assert read_task(loads(dumps(task.stated()))) == task


@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize(
    ("kind", "y", "code", "fact"),
    [
        (NeymanPearson, [0, 0, 0, 0], "FP-DATA-047", "y = 1 among 4"),
        (NeymanPearson, [0, 1, 2, 0], "FP-DATA-045", "label has 1 "),
        (GroupFairness, [0, 1, 0, 1], "FP-DATA-047", "g = 1 among 4"),
    ],
)
def test_a_table_is_checked_with_and_without_its_constraint(
    constrained: bool, kind: type[Task], y: list[int], code: str, fact: str
) -> None:
    """The model without constraints comes first when a recall is asked for."""
    more: dict[str, Any] = {"min_recall": 0.9} if kind is NeymanPearson else {"group": "g"}
    task = kind(bound=0.2, label="y", columns=("x",), owners=1, constrained=constrained, **more)
    rows = Rows.of(np.ones((4, 1)), y, np.zeros(4) if kind is GroupFairness else None)
    with raises_code(code, "owner 'b'", fact):
        HeldSource("b", rows)(task)
