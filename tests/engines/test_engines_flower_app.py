"""A site of the Flower app: it reads its own table anew for every run, and keeps to what it agreed to."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedpact.engines.flower.app import coordinate, make_handler
from fedpact.federation import Order
from fedpact.federation.wire import dumps, loads, name_of, to_tree
from fedpact.fitting.agreement import About, Finished, measure, moments
from fedpact.tasks import Custom, GroupFairness, LinearQP, NeymanPearson, Task

NAME = "hospital 2"
ABOUT: dict[str, Any] = {"label": "ill", "columns": ("age",), "owners": 2}
ASKED = NeymanPearson(bound=0.3, **ABOUT)
TABLE = "age,ill\n36,1\n91,0\n79,1\n49,0\n"


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """The --node-config of a site."""
    (tmp_path / "rows.csv").write_text(TABLE)
    return {"name": NAME, "data-path": str(tmp_path / "rows.csv"), "state-path": str(tmp_path / "state")}


def ask(handle: Any, task: Task, step: Any, order: Order) -> Any:
    """What the site sends back: a reply, or the code and key of its error."""
    message = {"owner": NAME, "step": name_of(step), "order": to_tree(order), "task": task.stated()}
    answer = loads(handle(dumps(message)))
    if "error" in answer:
        return answer["error"]["code"], answer["error"]["key"]
    return answer["reply"]


def measured(handle: Any, task: Task, run: str = "first") -> Any:
    return ask(handle, task, measure, Finished(run=run, round=1, w=np.array([0.1, 0.0])))


def test_every_run_reads_the_table_as_it_is_then(config: dict[str, Any]) -> None:
    """A site lives longer than a run: rows that it has read are of that run only."""
    handle = make_handler(config)

    def total(run: str, round: int) -> float:
        task = NeymanPearson(bound=0.3, standardize=True, **ABOUT)
        reply = ask(handle, task, moments, About(run=run, round=round, mean=np.zeros(1)))
        return float(reply["sums"][1])

    assert total("first", 1) == 36 + 91 + 79 + 49
    Path(config["data-path"]).write_text(TABLE.replace("36", "40"))
    assert total("first", 2) == 36 + 91 + 79 + 49  # within a run, one table
    assert total("second", 1) == 40 + 91 + 79 + 49


@pytest.mark.parametrize(
    ("condition", "task", "key"),
    [
        ({"bound": 0.3}, ASKED, ""),
        ({"bound": 0.3}, NeymanPearson(bound={NAME: 0.3, "hospital 1": 0.9}, **ABOUT), ""),
        ({"bound": 0.2}, ASKED, "bound"),
        ({"bound": 0.2}, NeymanPearson(bound={NAME: 0.3, "hospital 1": 0.2}, **ABOUT), "bound"),
        ({"bound": 0.2}, NeymanPearson(min_recall=0.9, constrained=False, **ABOUT), "bound"),
        ({"bound": 0.2}, LinearQP(owners=2), "bound"),  # a task that has no such key cannot keep to it
        ({"label": "ill", "task": "neyman_pearson"}, ASKED, ""),
        ({"task": "neyman_pearson"}, GroupFairness(bound=0.3, group="sex", **ABOUT), "task"),
        ({"min_recall": 0.9}, ASKED, "min_recall"),
    ],
)
def test_a_site_takes_part_only_in_what_it_agreed_to(
    config: dict[str, Any], condition: dict[str, Any], task: Task, key: str
) -> None:
    found = measured(make_handler({**config, **condition}), task)
    if not key:
        assert "kept" in found
    else:
        stated = key in task.stated()  # else the coordinator does not learn which
        assert found == ("FP-OPTION-011", key if stated else "")


@pytest.mark.parametrize(
    ("change", "code"),
    [({"bounds": 0.2}, "FP-OPTION-013"), ({"data-path": ""}, "FP-OPTION-010"), ({"name": ""}, "FP-OPTION-010")],
)
def test_a_config_that_protects_nobody_is_refused(config: dict[str, Any], change: dict[str, Any], code: str) -> None:
    """A condition that is misspelt would be ignored."""
    with raises_code(code, "", next(iter(change))):
        make_handler({**config, **change})


CODE = """
import fedpact as fp

def share(table, name, owners):
    return fp.Share(fp.functions.Quadratic([[{}]]), measures=lambda w: {{"rows": len(table.X)}})
"""


def test_the_code_that_runs_at_a_site_is_its_own(config: dict[str, Any], tmp_path: Path, caplog: Any) -> None:
    theirs = tmp_path / "theirs.py"
    theirs.write_text("raise SystemError('code of the coordinator')")
    task = Custom(functions=str(theirs), intercept=False, **ABOUT)
    with caplog.at_level(logging.ERROR, "fedpact.site"):
        assert measured(make_handler(config), task) == ("FP-OPTION-012", "")
    assert "functions" in caplog.text
    own = tmp_path / "own.py"
    own.write_text(CODE.format(1.0))
    handle = make_handler({**config, "functions": str(own)})
    assert "kept" in measured(handle, task)
    # a site that restarts within a run finds the same data and the same code, or stays away
    order = Finished(run="first", round=2, w=np.array([0.1]))
    assert "kept" in ask(make_handler({**config, "functions": str(own)}), task, measure, order)
    own.write_text(CODE.format(2.0))
    restarted = make_handler({**config, "functions": str(own)})
    assert ask(restarted, task, measure, Finished(run="first", round=3, w=np.array([0.1])))[0] == "FP-CHECKPOINT-001"


def test_a_run_without_a_job_is_misuse() -> None:
    with raises_code("FP-OPTION-340"):
        coordinate(None, {"job": "", "resume": False})
