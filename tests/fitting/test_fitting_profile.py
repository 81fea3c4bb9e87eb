"""What tables hold: equal to the pooled rows, every defect in one go, and no cell for the coordinator."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from raising import raises_code
from site_files import LENIENT, SiteEngine, write_sites

from fedpact.federation import Session
from fedpact.fitting import Description, profile
from fedpact.fitting.agreement import About, moments
from fedpact.fitting.profile import QUANTILES, Grid, tally
from fedpact.tasks import Classification, Profile
from fedpact.tasks.suspicions import decides, is_time

rng = np.random.default_rng(5)
OWNERS = ("north", "south", "coast")
#: Occurs in one cell and nowhere else.
SECRET = "Wernicke"


def task(**more) -> Classification:
    stated = {"columns": ("age", "dose", "smoker"), "categories": {"smoker": ("never", "now")}} | more
    return Classification(label="ill", classes=("no", "yes"), **stated)


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    """150 rows each: a dose that is mostly zero, ages that are absent at times."""
    paths = {}
    for k, owner in enumerate(OWNERS):
        rows = ["age,dose,smoker,ill"]
        for _ in range(150):
            age = "" if rng.random() < 0.1 else f"{rng.normal(50 + 5 * k, 10):.2f}"
            dose = "0" if rng.random() < 0.6 else f"{rng.gamma(2):.3f}"
            rows.append(f"{age},{dose},{rng.choice(['never', 'now'])},{rng.choice(['no', 'yes'])}")
        paths[owner] = tmp_path / f"{owner}.csv"
        paths[owner].write_text("\n".join(rows) + "\n")
    return paths


def cells_of(tables: dict[str, Path]) -> dict[str, list[str]]:
    """All rows in one place."""
    lines = [line.split(",") for path in tables.values() for line in path.read_text().splitlines()[1:]]
    return dict(zip(("age", "dose", "smoker", "ill"), map(list, zip(*lines, strict=True)), strict=True))


@pytest.mark.parametrize("secure", [False, True])
def test_it_is_that_of_the_pooled_rows(tables, secure):
    with Session(secure_sum=secure) as session:
        found = profile(task(), tables, session)
    cells = cells_of(tables)
    assert found.rows == 450
    assert found.wrong == ()
    by_name = {one.name: one for one in found.columns}
    for name in ("age", "dose"):
        values = np.array([float(cell) for cell in cells[name] if cell])
        one = by_name[name]
        assert one.known == len(values)
        assert one.mean == pytest.approx(values.mean(), rel=1e-9)
        assert one.deviation == pytest.approx(values.std(), rel=1e-9)
        exact = np.quantile(values, QUANTILES)
        np.testing.assert_allclose(one.quantiles, exact, atol=values.std() / 8)
        assert [q for q, own in zip(exact, one.quantiles, strict=True) if q == 0 and own != 0] == []
    for name in ("smoker", "ill"):
        assert by_name[name].levels == {level: cells[name].count(level) for level in by_name[name].levels}
    assert Description.from_json(json.loads(json.dumps(found.to_json()))) == found


def break_tables(tables: dict[str, Path]) -> None:
    """Three kinds of defects at north, an unknown level at south, no column at coast."""
    lines = tables["north"].read_text().splitlines()
    lines[3] = f"{SECRET},1,never,no"
    lines[4] = "inf,1,sometimes,no"
    lines[5:20] = ["40,low,never,no"] * 14 + ["40,ca. 3,never,no"]
    tables["north"].write_text("\n".join(lines) + "\n")
    tables["south"].write_text(tables["south"].read_text() + "50,1,never,perhaps\n")
    tables["coast"].write_text(tables["coast"].read_text().replace("dose", "amount", 1))


EXPECTED = {
    ("north", "age", "FP-DATA-003", 0),
    ("north", "age", "FP-DATA-005", 0),
    ("north", "dose", "FP-DATA-003", 10),
    ("north", "smoker", "FP-DATA-006", None),
    ("south", "ill", "FP-DATA-006", None),
    ("coast", "dose", "FP-DATA-001", None),
}


def test_every_defect_is_found_and_worded_for_its_owner(tables, caplog):
    break_tables(tables)
    with caplog.at_level(logging.WARNING, "fedpact.site"):
        found = profile(task(), tables)
    assert {(one.owner, one.column, one.code, one.rows) for one in found.wrong} == EXPECTED
    said = caplog.text
    for words in (
        f"'{SECRET}' in line 4",
        "'inf' in line 5",
        "'low' in line 6, and 'ca. 3' in others",
        "'sometimes' in line 5",
        "'perhaps'",
    ):
        assert words in said
    assert found.levels == {"age": (), "dose": ("low",)}  # fourteen rows hold the one, one row the other


def test_sites_tell_no_cell(tables, tmp_path):
    break_tables(tables)
    sites = write_sites(
        tmp_path / "sites", tables, features=("age", "dose", "smoker"), label="ill", tasks=("profile",),
        rules={**LENIENT, "require": {"owners": 3}},
    )  # fmt: skip
    engine = SiteEngine(sites)
    with Session(engine, identity=sites.key, roster=sites.roster) as session:
        found = profile(task(), dict.fromkeys(OWNERS), session)
    assert {(one.owner, one.column, one.code, one.rows) for one in found.wrong} == EXPECTED
    passed = b"".join(data for _, data in engine.received)
    for cell in (SECRET, "sometimes", "perhaps"):
        assert cell.encode() not in passed
    assert b"low" in passed  # a level of fifteen rows


def test_a_site_says_no_unless_its_policy_allows_it(tables, tmp_path):
    sites = write_sites(tmp_path / "sites", tables, features=("age", "dose", "smoker"), label="ill")
    with (
        raises_code("FP-REFUSED-005", "north"),
        Session(SiteEngine(sites), identity=sites.key, roster=sites.roster) as session,
    ):
        profile(task(), dict.fromkeys(OWNERS), session)


def test_a_grid_that_zooms_in_and_a_second_one_are_refused(tables):
    asked = Profile.of(task())
    share = asked.share("north", asked.read(tables["north"]))
    _, told = moments(share, None, About(mean=np.zeros(share.X.shape[1])))
    mean = told.total / told.count
    wide = Grid(mean=mean, deviation=np.full(mean.size, 10.0))
    state, _ = tally(share, None, wide)
    with raises_code("FP-REFUSED-053"):
        tally(share, state, wide)
    with raises_code("FP-REFUSED-053"):
        tally(share, None, Grid(mean=mean, deviation=np.full(mean.size, 1e-3)))


# ----------------------------------------------------------------------------------------------------------- suspicions


def suspect(tables: dict[str, Path]) -> None:
    """An id, the label in other words, a far value, copies at north; two rows of one class at south."""
    lines = tables["north"].read_text().splitlines()
    cells = [line.split(",") for line in lines[1:]]
    made = [
        [f"{20 + k % 40}", one[1], one[2], one[3], str(700 + 3 * k), str(int(one[3] == "yes"))]
        for k, one in enumerate(cells)
    ]
    made[7][0] = "9999"
    header = "age,dose,smoker,ill,patient,PF_0"
    tables["north"].write_text("\n".join([header, *(",".join(one) for one in made)]) + "\n")
    rows = ["30,1,now,no,5,0", "40,2,now,no,9,0"]
    tables["south"].write_text("\n".join([header, *rows]) + "\n")
    copied = [f"{20 + k},{1 + k / 8},{one[2]},{one[3]},1,0.5" for k, one in enumerate(cells[:40])] * 2
    tables["coast"].write_text("\n".join([header, *copied]) + "\n")


SUSPECTED = {
    ("north", "PF_0", "FP-DATA-483"),
    ("north", "patient", "FP-DATA-484"),
    ("north", "age", "FP-DATA-486"),
    ("coast", "", "FP-DATA-489"),
}
SCARCE = {("south", "ill", "FP-DATA-487"), ("south", "", "FP-DATA-488")}


def test_columns_that_decide_the_label_ids_and_few_rows_are_suspected(tables, caplog):
    suspect(tables)
    with caplog.at_level(logging.WARNING, "fedpact.site"):
        found = profile(task(columns=("age", "dose", "smoker", "patient", "PF_0")), tables)
    assert {(one.owner, one.column, one.code) for one in found.suspicious} == SUSPECTED | SCARCE
    assert found.wrong == ()
    assert "9999" in caplog.text
    assert found.counts["south"] == (2, 2, 0)
    assert {owner: counts[0] for owner, counts in found.counts.items()} == {"north": 150, "south": 2, "coast": 80}
    assert found.classes == ("no", "yes")
    assert Description.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_nothing_is_suspected_of_tables_as_they_are(tables):
    assert profile(task(), tables).suspicious == ()


@pytest.mark.parametrize("least", [0, 10])
def test_a_site_tells_of_few_rows_only_where_its_policy_has_no_small_cells(tables, tmp_path, least):
    suspect(tables)
    columns = ("age", "dose", "smoker", "patient", "PF_0")
    sites = write_sites(
        tmp_path / "sites", tables, features=columns, label="ill", tasks=("profile",),
        rules={**LENIENT, "limit": {**LENIENT["limit"], "small_cells": least}},
    )  # fmt: skip
    engine = SiteEngine(sites)
    with Session(engine, identity=sites.key, roster=sites.roster) as session:
        found = profile(task(columns=columns), dict.fromkeys(OWNERS), session)
    assert {(one.owner, one.column, one.code) for one in found.suspicious} == SUSPECTED | (set() if least else SCARCE)
    assert (found.counts["south"] == ()) == (least > 0)
    assert b"9999" not in b"".join(data for _, data in engine.received)


@pytest.mark.parametrize(
    ("values", "decided"),
    [([0, 1] * 20, True), ([1, 0] * 20, True), ([0.2, 3, 0.1, 4] * 10, True), ([0, 1, 1, 1] * 10, False)],
)
def test_a_column_decides_where_a_threshold_has_all_of_a_class_on_one_side(values, decided):
    classes = np.eye(2)[[0, 1] * 20]
    assert decides(np.array(values, dtype=float)[:, None], classes) == decided
    assert not decides(np.array(values, dtype=float)[:10, None], classes[:10])  # few rows show nothing


def test_a_column_of_the_same_number_decides_a_regression():
    y = rng.normal(size=(50, 1))
    assert decides(32 + 1.8 * y, y)
    assert not decides(y + 1e-3 * rng.normal(size=(50, 1)), y)


@pytest.mark.parametrize("name", ["time", "Follow-up", "survival_days", "OS_MONTHS"])
def test_times_to_an_event_are_known_by_their_names(name):
    assert is_time(name)
    assert not is_time(f"{name} of birth")
