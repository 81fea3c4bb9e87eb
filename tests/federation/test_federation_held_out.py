"""Rows that a job holds out or that nobody trains on: what a coordinator may ask about them, and cannot."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gated_sites import COLUMNS, NAMES, GatedSites, write_table

import fedpact as fp
from fedpact.errors import DataError, OptionError, OwnerError, Refused
from fedpact.federation.messages import Order, summed_fields
from fedpact.fitting import promises
from fedpact.fitting.agreement import About, Finished, measure, moments
from fedpact.fitting.calibration import calibrate
from fedpact.fitting.evaluation import Counted
from fedpact.fitting.promises import Propose, Proposed
from fedpact.fitting.sharpening import Cells, Decide, Spread, Tallied, count_rows, spread, tally
from fedpact.tasks import Classification, FileSource, Requirement, Rows

pytest.importorskip("cryptography")

RECALL = Requirement(kind="recall", at_least=0.5, of="1")
TASK = Classification(label="ill", columns=COLUMNS, owners=3, constraints=(RECALL,), width=0.5)
W = np.array([1.0, 1.0, -0.5])
MODEL = Finished(w=W)


def session_of(sites: GatedSites, task: Classification, secure: bool = True) -> fp.Session:
    session = fp.Session(sites, identity=sites.coordinator, roster=sites.roster)
    session.open(dict.fromkeys(NAMES), task.stated())
    session.pose(task)
    if secure:
        session.secure()
    return session


def sites_of(folder: Path, **rules: Any) -> GatedSites:
    return GatedSites(folder, **{"tasks": ("classification",), **rules})


@pytest.mark.parametrize("reply", [Tallied, Spread, Proposed, promises.Tested, Cells, Counted])
def test_what_is_counted_on_the_way_is_only_ever_added_up(reply: type) -> None:
    assert set(summed_fields(reply)) == {field.name for field in fields(reply)}


@pytest.mark.parametrize("step", [tally, spread, count_rows])
def test_counts_of_single_owners_do_not_reach_the_coordinator(step: Any, tmp_path: Path) -> None:
    with session_of(sites_of(tmp_path), TASK) as session:
        order = Order() if step is count_rows else Decide(w=W)
        for reply in session.ask(step, order):
            assert all(getattr(reply, name) is None for name in summed_fields(type(reply)))


def test_rows_that_are_left_to_train_on_are_counted_by_the_policy(tmp_path: Path) -> None:
    """A promise about all rows that holds out nearly all of them would let sums rest on a few."""
    promised = Requirement(kind="accuracy", at_least=0.5, confidence=0.9)
    few = replace(TASK, constraints=(promised,), holdout=0.95)
    counts = few.count(Rows(np.zeros((80, 2)), np.repeat([0, 1], 40)))
    assert (counts.rows, counts.classes) == (4, (2, 2))
    assert replace(few, holdout=0.25).count(Rows(np.zeros((80, 2)), np.repeat([0, 1], 40))).rows == 60
    with session_of(sites_of(tmp_path), few) as session, pytest.raises(Refused) as error:
        session.ask(measure, MODEL)
    assert error.value.code == "FP-REFUSED-030"


def test_another_list_in_the_middle_of_a_run_is_refused(tmp_path: Path) -> None:
    with session_of(sites_of(tmp_path), TASK) as session:
        session.ask(measure, MODEL)
        session.pose(replace(TASK, width=0.1, centre=tuple(W)))
        session.ask(measure, MODEL)
        session.pose(replace(TASK, constraints=(RECALL, replace(RECALL, at_least=0.6))))
        with pytest.raises(Refused) as error:
            session.ask(measure, MODEL)
    assert error.value.code == "FP-REFUSED-052"


# ------------------------------------------------------------------------------------------ rows that nobody trains on

ASKED = replace(TASK, evaluating=True)


def with_unseen(sites: GatedSites, folder: Path, ill: int = 30) -> GatedSites:
    """The same sites, each with a table that nobody trains on."""
    for seed, name in enumerate(NAMES):
        path = folder / f"{name} new.csv"
        write_table(path, 10 + seed, ill)
        sites.sites[name].hold(FileSource(name, folder / f"{name}.csv", FileSource(name, path)))
    return sites


def test_a_model_is_measured_on_the_other_table(tmp_path: Path) -> None:
    sites = with_unseen(sites_of(tmp_path), tmp_path, ill=32)
    with session_of(sites, ASKED, secure=False) as session:
        told = [reply.told() for reply in session.ask(measure, MODEL)]
    assert [one["protected rows"] for one in told] == [32.0] * 3


@pytest.mark.parametrize(
    ("step", "order"),
    [
        (tally, Decide(w=W)),
        (spread, Decide(w=W)),
        (count_rows, Order()),
        (promises.test, Propose(w=W, thresholds=np.zeros(3))),
    ],
)
def test_nothing_else_is_answered_about_it(step: Any, order: Any, tmp_path: Path) -> None:
    sites = with_unseen(sites_of(tmp_path), tmp_path)
    with session_of(sites, ASKED) as session, pytest.raises(OwnerError):
        session.ask(step, order)


def test_nobody_can_train_or_calibrate_on_it(tmp_path: Path) -> None:
    share = FileSource("a", tmp_path, FileSource("a", _table(tmp_path)))(ASKED)
    assert isinstance(share, fp.Share)
    assert (share.objective, share.constraint, share.coupled) == (None, None, None)
    sites = with_unseen(sites_of(tmp_path / "sites"), tmp_path / "sites")
    with session_of(sites, ASKED) as session, pytest.raises(OptionError):
        calibrate(session, W)


def test_its_columns_are_not_scaled_anew(tmp_path: Path) -> None:
    """Means of the columns would be told by a task that asks for a scaling."""
    sites = with_unseen(sites_of(tmp_path), tmp_path)
    asked = replace(ASKED, standardize=True)
    with session_of(sites, asked) as session, pytest.raises(OptionError) as error:
        session.ask(moments, About(mean=np.zeros(2)))
    assert error.value.code == "FP-OPTION-835"


def test_small_cells_are_withheld_there_too(tmp_path: Path) -> None:
    sites = with_unseen(sites_of(tmp_path, rows_per_class=0, effective_rows=0, boundary_rows=0), tmp_path, ill=3)
    with session_of(sites, ASKED, secure=False) as session:
        told = session.ask(measure, MODEL)[0]
    assert "recall" not in told.told()
    assert "recall" in told.withheld


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ({"rows": 81}, "FP-REFUSED-030"),
        ({"labels": ()}, "FP-REFUSED-022"),
        ({"questions": 0}, "FP-REFUSED-041"),
        ({"constraints": 0}, "FP-REFUSED-051"),
    ],
)
def test_a_policy_judges_it_like_any_other_task(rules: dict[str, Any], code: str, tmp_path: Path) -> None:
    sites = with_unseen(sites_of(tmp_path, **rules), tmp_path)
    with session_of(sites, ASKED, secure=False) as session, pytest.raises(Refused) as error:
        session.ask(measure, MODEL)
    assert error.value.code == code


def test_a_site_without_such_a_table_says_so(tmp_path: Path) -> None:
    with session_of(sites_of(tmp_path), ASKED, secure=False) as session, pytest.raises(DataError) as error:
        session.ask(measure, MODEL)
    assert error.value.code == "FP-DATA-830"


def _table(folder: Path) -> Path:
    write_table(folder / "rows.csv", 0)
    return folder / "rows.csv"
