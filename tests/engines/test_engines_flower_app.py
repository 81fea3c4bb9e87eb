"""A site of the Flower app: it reads its own table anew for every run, and keeps to what its policy allows."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code
from site_files import LENIENT, Sites, write_sites

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from fedpact.engines.flower.app import coordinate, make_handler
from fedpact.federation import Order
from fedpact.federation.identity import Identity, open_signed, sign_message
from fedpact.federation.wire import dumps, loads, name_of, to_tree
from fedpact.fitting.agreement import About, Finished, measure, moments
from fedpact.tasks import TASKS, Custom, LinearQP, NeymanPearson, Task

NAME = "hospital 2"
OTHER = "hospital 1"
ABOUT: dict[str, Any] = {"label": "ill", "columns": ("age",), "owners": 2}
ASKED = NeymanPearson(bound=0.3, **ABOUT)
TABLE = "age,ill\n36,1\n91,0\n79,1\n49,0\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(TABLE)
    return path


def sites_of(table: Path, **stated: Any) -> Sites:
    """Two owners that hold the same table, and let a coordinator see sums in the clear."""
    rules = {**LENIENT, "require": {**LENIENT["require"], "secure_sums": False}}
    given = {"features": ["age"], "label": "ill", "tasks": list(TASKS), "rules": rules, **stated}
    return write_sites(table.parent, {NAME: table, OTHER: table}, **given)


def ask(sites: Sites, handle: Any, task: Task, step: Any, order: Order) -> Any:
    """What the site sends back: a reply, or the code and key of its error."""
    charter = {"run": order.run, "owners": [NAME, OTHER], "job": task.stated()}
    entries = {"owner": NAME, "step": name_of(step), "order": to_tree(order), "task": task.stated()}
    asked = sign_message(Identity.load(sites.key), "order", dumps({**entries, "charter": charter}))
    answer = loads(open_signed(handle(asked), sites.roster[NAME], "reply", NAME))
    if "error" in answer:
        return answer["error"]["code"], answer["error"]["key"]
    return answer["reply"]


def measured(sites: Sites, task: Task, run: str = "first") -> Any:
    handle = make_handler(sites.config(NAME))
    return ask(sites, handle, task, measure, Finished(run=run, round=1, w=np.array([0.1, 0.0])))


def test_every_run_reads_the_table_as_it_is_then(table: Path) -> None:
    """A site lives longer than a run: rows that it has read are of that run only."""
    sites = sites_of(table)
    handle = make_handler(sites.config(NAME))

    def total(run: str, round: int) -> float:
        task = NeymanPearson(bound=0.3, standardize=True, **ABOUT)
        reply = ask(sites, handle, task, moments, About(run=run, round=round, mean=np.zeros(1)))
        return float(reply["sums"][1])

    assert total("first", 1) == 36 + 91 + 79 + 49
    table.write_text(TABLE.replace("36", "40"))
    assert total("first", 2) == 36 + 91 + 79 + 49  # within a run, one table
    assert total("second", 1) == 40 + 91 + 79 + 49


def test_a_site_that_starts_forgets_runs_that_were_given_up(table: Path) -> None:
    sites = sites_of(table)
    given_up = sites.policies[NAME].parent / f"{NAME} state" / "memory" / "hospital_2-1" / "run.state"
    given_up.parent.mkdir(parents=True)
    given_up.touch()
    os.utime(given_up, (0, 0))
    make_handler(sites.config(NAME))
    assert not given_up.exists()  # with its keys


@pytest.mark.parametrize(
    ("values", "task", "allowed"),
    [
        ({"bound": 0.3}, ASKED, True),
        ({"bound": {"most": 0.4}}, ASKED, True),
        ({"bound": 0.3}, NeymanPearson(bound={NAME: 0.3, OTHER: 0.9}, **ABOUT), True),
        ({"bound": 0.2}, ASKED, False),
        ({"bound": {"most": 0.2}}, ASKED, False),
        ({"bound": 0.2}, NeymanPearson(bound={NAME: 0.3, OTHER: 0.2}, **ABOUT), False),
        ({"bound": 0.2}, NeymanPearson(min_recall=0.9, constrained=False, **ABOUT), False),
        ({"bound": 0.2}, LinearQP(owners=2), False),  # a task that has no such key cannot keep to it
        ({"label": "ill", "task": "neyman_pearson"}, ASKED, True),
        ({"min_recall": 0.9}, ASKED, False),
    ],
)
def test_a_site_takes_part_only_in_what_it_agreed_to(
    table: Path, values: dict[str, Any], task: Task, allowed: bool
) -> None:
    found = measured(sites_of(table, allow={"values": values}), task)
    if allowed:
        assert "kept" in found
    else:
        assert found == ("FP-REFUSED-024", "")


def test_an_order_that_no_known_coordinator_signed_is_refused(table: Path, tmp_path: Path) -> None:
    sites = sites_of(table)
    impostor = replace(sites, key=tmp_path / "impostor.pem")
    Identity.create(impostor.key)
    assert measured(impostor, ASKED) == ("FP-REFUSED-000", "")


@pytest.mark.parametrize(
    ("change", "code"),
    [({"bound": 0.2}, "FP-OPTION-013"), ({"policy": ""}, "FP-OPTION-010"), ({"name": "other"}, "FP-OPTION-011")],
)
def test_a_config_that_protects_nobody_is_refused(table: Path, change: dict[str, Any], code: str) -> None:
    """A rule outside of site.toml would be ignored."""
    with raises_code(code, "", next(iter(change))):
        make_handler({**sites_of(table).config(NAME), **change})


CODE = """
import fedpact as fp

def share(table, name, owners):
    return fp.Share(fp.functions.Quadratic([[{}]]), measures=lambda w: {{"rows": len(table.X)}})
"""


def test_the_code_that_runs_at_a_site_is_its_own(table: Path, tmp_path: Path, caplog: Any) -> None:
    theirs = tmp_path / "theirs.py"
    theirs.write_text("raise SystemError('code of the coordinator')")
    task = Custom(functions=str(theirs), intercept=False, **ABOUT)
    with caplog.at_level(logging.ERROR, "fedpact.site"):
        assert measured(sites_of(table), task) == ("FP-OPTION-012", "")
    assert "functions" in caplog.text
    own = tmp_path / "own.py"
    own.write_text(CODE.format(1.0))
    sites = sites_of(table, functions=own)
    assert "kept" in measured(sites, task, "second")

    def again(round: int) -> Any:
        order = Finished(run="second", round=round, w=np.array([0.1]))
        return ask(sites, make_handler(sites.config(NAME)), task, measure, order)

    # a site that restarts within a run finds the same data and the same code, or stays away
    assert "kept" in again(2)
    own.write_text(CODE.format(2.0))
    assert again(3)[0] == "FP-CHECKPOINT-001"


def test_a_run_without_a_job_is_misuse() -> None:
    with raises_code("FP-OPTION-340"):
        coordinate(None, {"job": "", "resume": False})
