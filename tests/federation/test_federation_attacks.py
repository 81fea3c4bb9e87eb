"""Jobs written to make a site tell its rows by its errors, and every error of a reader searched for cells and paths."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedpact.errors import CODES, DataError, FedpactError
from fedpact.federation import Order, Site
from fedpact.federation.failure import texts_in
from fedpact.federation.remote import read_reply
from fedpact.federation.wire import dumps, loads, name_of, to_tree
from fedpact.fitting.agreement import About, Finished, measure, moments
from fedpact.solvers.steps import describe_share
from fedpact.tasks import TASKS, FileSource, NeymanPearson
from fedpact.tasks.base import listed

NAME = "hospital 2"
#: A hospital's table; the job of an attacker knows or guesses some of its columns.
TABLE = """\
patient,ill,age,diagnosis,sex
Ada Lovelace,1,36.25,cholera,f
Mary Somerville,0,91.75,influenza,f
Charles Babbage,1,79.50,cystitis,m
George Boole,0,49.125,pneumonia,m
"""
STATED: dict[str, Any] = {
    "bound": 0.3,
    "label": "ill",
    "columns": ["age"],
    "owners": 2,
    "group": "",
    "classes": ["0", "1"],
}


def state(**changes: Any) -> dict[str, Any]:
    """A job as a coordinator sends it: every key of its task, whatever the values are."""
    kind = TASKS.get(changes.get("task", ""), NeymanPearson)
    defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(kind)}
    known = {name: value for name, value in STATED.items() if name in defaults}
    return {"task": kind.name, **{name: listed(value) for name, value in {**defaults, **known}.items()}, **changes}


JOB = state()


def site_with(path: Path) -> Site:
    """As a Flower site makes it."""
    return Site(NAME, FileSource(NAME, path))


def ask(site: Site, job: Any, step: Any = describe_share, order: Order | None = None) -> bytes:
    order = order or Order(run="r1", round=1)
    return site.handle(dumps({"owner": NAME, "step": name_of(step), "order": to_tree(order), "task": job}))


def told(data: bytes) -> FedpactError:
    """The error that the coordinator raises on these bytes."""
    with pytest.raises(FedpactError) as caught:
        read_reply(NAME, describe_share, Order(run="r1", round=1), data)
    return caught.value


def cells_of(table: str) -> set[str]:
    """All cells that are long enough to be found by chance nowhere else."""
    return {cell for line in table.splitlines()[1:] for cell in line.split(",") if len(cell) > 3}


def assert_silent(data: bytes, cells: Iterable[str], path: Path, columns: Iterable[str], job: Any) -> None:
    """A reply that is an error holds no cell, no path, and no column that the job does not name."""
    failure = loads(data)["error"]
    assert failure.keys() == {"code", "column", "key", "rows", "text"}
    assert failure["code"] in CODES
    assert failure["text"] == ""
    stated = texts_in(job)
    secrets = [*cells, path.name, str(path.parent), *columns]
    leaked = [secret for secret in secrets if secret not in stated and secret.encode() in data]
    assert leaked == []


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "register of 1843.csv"
    path.write_text(TABLE)
    return path


# --------------------------------------------------------------------------------------------------- four known attacks


def test_a_name_asked_for_as_a_number_is_not_told(table: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The message to the owner quotes the first cell."""
    job = state(columns=["patient"])
    with caplog.at_level(logging.ERROR, "fedpact.site"):
        data = ask(site_with(table), job)
    assert b"Ada" not in data
    assert_silent(data, cells_of(TABLE), table, ["diagnosis", "sex", "age"], job)
    error = told(data)
    assert isinstance(error, DataError)
    assert (error.code, error.column) == ("FP-DATA-003", "patient")
    what, _, remedy = CODES["FP-DATA-003"].partition("; ")
    assert str(error).startswith(f"hospital 2: FP-DATA-003: {what} (column 'patient', a few rows); {remedy}")
    assert str(error).endswith("; the site's own log says more")
    assert f"FP-DATA-003: hospital 2: {table}: column 'patient' holds 'Ada Lovelace' in line 2" in caplog.text


def test_listing_a_cell_as_a_category_does_not_bring_the_next_one(table: Path) -> None:
    known: list[str] = []
    answers = []
    for guess in ("Ada Lovelace", "Mary Somerville", "Charles Babbage"):
        known.append(guess)
        job = state(columns=["patient"], categories={"patient": list(known)})
        data = ask(site_with(table), job)
        assert_silent(data, cells_of(TABLE), table, ["diagnosis", "sex", "age"], job)
        answers.append(data)
    assert told(answers[0]).code == "FP-DATA-006"
    assert told(answers[0]).rows is None
    assert len(set(answers)) == 1  # the same bytes, whoever was guessed
    absent = ask(site_with(table), state(columns=["patient"], categories={"patient": ["Nobody"]}))
    assert absent == answers[0]  # nor whether a guess is in the table


@pytest.mark.parametrize("key", ["label", "group"])
def test_a_column_asked_for_as_label_or_group_is_not_told(key: str, table: Path) -> None:
    task = {"task": "group_fairness"} if key == "group" else {}
    job = state(**task, **{key: "diagnosis"})
    data = ask(site_with(table), job)
    assert b"cholera" not in data
    assert_silent(data, cells_of(TABLE), table, ["patient", "sex"], job)
    assert (told(data).code, told(data).column) == ("FP-DATA-006", "diagnosis")


def test_a_missing_column_does_not_list_the_others(table: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = state(columns=["height"])
    data = ask(site_with(table), job)
    assert_silent(data, cells_of(TABLE), table, ["patient", "diagnosis", "sex", "age"], job)
    assert (told(data).code, told(data).column) == ("FP-DATA-001", "height")
    assert "its columns are: patient, ill, age, diagnosis, sex" in caplog.text


# --------------------------------------------------------------------------------------------- every error of a reader

ROW = "Ada Lovelace,1,36.25,cholera,f\n"
HEADER = TABLE.splitlines()[0] + "\n"
FAIR = {"task": "group_fairness", "group": "sex", "groups": ["f", "m"]}
#: What a file holds (None: it is absent), what the job states, and the code that travels.
READERS: dict[str, tuple[str | bytes | None, dict[str, Any], str]] = {
    "no file": (None, {}, "FP-DATA-007"),
    "empty": ("", {}, "FP-DATA-010"),
    "header only": (HEADER, {}, "FP-DATA-010"),
    "a short row": (TABLE + "Grace Hopper,1\n", {}, "FP-DATA-011"),
    "not UTF-8": (TABLE.encode() + "Marie Sk\u0142odowska,1,66.5,anaemia,f\n".encode("utf-16"), {}, "FP-DATA-009"),
    "a field without end": (TABLE + '"' + 140_000 * "Grace Hopper ", {}, "FP-DATA-009"),
    "a column twice": (TABLE.replace("sex", "age"), {}, "FP-DATA-002"),
    "an empty cell": (TABLE + "Grace Hopper,1,,anaemia,f\n", {}, "FP-DATA-004"),
    "an infinite cell": (TABLE + "Grace Hopper,1,1e999,anaemia,f\n", {}, "FP-DATA-005"),
    "many texts": (HEADER + 30 * ROW, {"columns": ["patient"]}, "FP-DATA-003"),
    "a label that is no class": (TABLE.replace("Boole,0", "Boole,uncertain"), {}, "FP-DATA-006"),
    "a label that is missing": (TABLE.replace("Boole,0", "Boole,"), {}, "FP-DATA-006"),
    "no row of the class": (HEADER + ROW.replace(",1,", ",0,"), {}, "FP-DATA-047"),
    "no row of the group": (HEADER + ROW, FAIR, "FP-DATA-047"),
    "no positive row of the group": (
        HEADER + ROW + "George Boole,0,49.125,pneumonia,m\n",
        {**FAIR, "parity": "equal_opportunity"},
        "FP-DATA-053",
    ),
    "a scaling that is no number": (
        TABLE,
        {"scaling": {"mean": [0.0], "shift": [float("nan")], "scale": [1.0]}},
        "FP-DATA-043",
    ),
    "a scaling of another length": (
        TABLE,
        {"scaling": {"mean": [0.0, 0.0], "shift": [0.0] * 2, "scale": [1.0] * 3}},
        "FP-OWNER-001",
    ),
    "no bound": (TABLE, {"bound": {"hospital 1": 0.3}}, "FP-OPTION-053"),
    "a bound of zero": (TABLE, {"bound": 0.0}, "FP-OPTION-057"),
    "a bound that is a text": (TABLE, {"bound": "Ada Lovelace"}, "FP-OWNER-001"),
    "an unknown task": (TABLE, {"task": "read"}, "FP-OPTION-040"),
    "an unknown key": (TABLE, {"path": "x"}, "FP-OPTION-051"),
    "the label as a feature": (TABLE, {"columns": ["ill"]}, "FP-OPTION-044"),
    "columns that are none": (TABLE, {"columns": [["patient"]]}, "FP-OWNER-001"),
    "a table as a quadratic program": (TABLE, {"task": "linear_qp"}, "FP-DATA-060"),
    "Python that is not there": (TABLE, {"task": "custom", "functions": "absent.py"}, "FP-OPTION-060"),
    "a network that is not there": (
        TABLE,
        {"model": "absent.py:build", "code": {"model": "absent.py:build", "path": "absent.py", "digest": "0"}},
        "FP-OPTION-910",
    ),
}


def _read(name: str) -> Any:
    """The parameters of one reader; a network's file is looked for only where PyTorch is installed."""
    marks = [pytest.mark.extras] if "network" in name else []
    return pytest.param(*READERS[name], id=name, marks=marks)


@pytest.mark.parametrize(("content", "changes", "code"), map(_read, READERS))
def test_no_error_of_a_reader_tells_a_cell_a_path_or_a_column(
    content: str | bytes | None, changes: dict[str, Any], code: str, tmp_path: Path
) -> None:
    path = tmp_path / "register of 1843.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    job = state(**changes)
    data = ask(site_with(path), job)
    assert loads(data)["error"]["code"] == code
    cells = cells_of(TABLE) | {"Grace Hopper", "odowska", "anaemia", "uncertain"}
    assert_silent(data, cells, path, HEADER.strip().split(","), job)


def test_many_rows_are_told_roughly(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + 33 * ROW)
    assert "(column 'patient', 20 rows or more)" in str(told(ask(site_with(path), state(columns=["patient"]))))


@pytest.mark.parametrize(
    ("columns", "code"),
    [({}, "FP-DATA-012"), ({"age": []}, "FP-DATA-013"), ({"age": ["Ada Lovelace"], "ill": [1]}, "FP-DATA-003")],
)
def test_parquet_files_are_as_silent(columns: dict[str, list[Any]], code: str, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'parquet'")
    path = tmp_path / "register of 1843.parquet"
    if columns:
        parquet.write_table(pyarrow.table(columns), path)
    else:
        path.write_text(TABLE)
    data = ask(site_with(path), JOB)
    assert loads(data)["error"]["code"] == code
    assert_silent(data, cells_of(TABLE), path, ["patient"], JOB)


@pytest.mark.parametrize(
    ("arrays", "code"),
    [
        ({"A": np.eye(2)}, "FP-DATA-061"),
        ({"A": np.array([["Ada", "Mary"]]), "b": np.zeros(2)}, "FP-PROBLEM-150"),
        ({"A": np.array([[4711.25, 1234.5], [0.0, 0.0]]), "b": np.zeros(2)}, "FP-PROBLEM-155"),
        ({"A": np.full((2, 2), np.nan), "b": np.zeros(2)}, "FP-DATA-100"),
    ],
    ids=["no b", "text", "not symmetric", "nan"],
)
def test_quadratic_programs_are_as_silent(arrays: dict[str, Any], code: str, tmp_path: Path) -> None:
    path = tmp_path / "register of 1843.npz"
    np.savez(path, **arrays)
    job = state(task="linear_qp")
    data = ask(site_with(path), job)
    assert loads(data)["error"]["code"] == code
    assert_silent(data, ["Ada", "4711", "1234", "1.23e+03"], path, [], job)


CODE = """\
from fedpact.errors import DataError

def share(table, name, owners):
    {}
"""


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("raise ValueError(f'a row is {table.X[0]}')", "FP-OWNER-001"),
        ("raise KeyError(float(table.X[0, 0]))", "FP-OWNER-001"),
        ("assert not table.X.size, table.X", "FP-OWNER-001"),
        ("return table.X[5000]", "FP-OWNER-001"),
        ("return table.columns", "FP-OPTION-062"),
        ("raise DataError(str(table.X[0, 0]), code=str(table.X[0, 0]))", "FP-OWNER"),
        ("raise DataError('', column='diagnosis', rows=7)", "FP-DATA"),
    ],
)
def test_code_of_the_sites_own_is_as_silent(body: str, code: str, table: Path) -> None:
    functions = table.with_name("mine.py")
    functions.write_text(CODE.format(body))
    job = state(task="custom", functions="-")
    source = FileSource(NAME, table)
    site = Site(NAME, lambda job: source({**job, "functions": str(functions)}))
    data = ask(site, job)
    assert loads(data)["error"]["code"] == code
    assert_silent(data, [*cells_of(TABLE), "mine.py"], table, ["patient", "diagnosis"], job)


# ------------------------------------------------------------------------------------------------------ whatever comes

COLUMNS = ("patient", "diagnosis", "postcode", "birthday", "ward")
CELLS = st.one_of(
    st.integers(10_000, 99_999).map(lambda n: f"{n}.4375"),
    st.integers(10_000, 99_999).map(lambda n: f"person-{n}"),
    st.sampled_from(["0", "1", "", "NA", "inf", "-1e999", "nan", "1e-400"]),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[tuple[str, ...], list[list[str]]]:
    """Columns (sometimes one twice) and rows (sometimes of other lengths)."""
    columns = tuple(draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=5)))
    width = st.integers(0, 6) if draw(st.integers(0, 5)) == 0 else st.just(len(columns))
    lengths = draw(st.lists(width, max_size=6))
    return columns, [draw(st.lists(CELLS, min_size=n, max_size=n)) for n in lengths]


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Jobs that name some columns, there or not, and say all kinds of things about them."""
    names = st.sampled_from((*COLUMNS, "height"))
    columns = draw(st.lists(names, min_size=1, max_size=2, unique=True))
    levels = st.lists(st.sampled_from(["0", "1", "person-12345", ""]), min_size=1, max_size=3)
    numbers = st.lists(st.sampled_from([0.0, 1.0, 1e-308, 1e308, float("nan")]), min_size=1, max_size=2)
    scaling = st.none() | st.fixed_dictionaries(dict.fromkeys(("mean", "shift", "scale"), numbers))
    task = draw(st.sampled_from(["neyman_pearson", "group_fairness"]))
    of_groups = {"group": draw(names | st.just("")), "groups": draw(levels)}
    of_groups["parity"] = draw(st.sampled_from(["loss", "equal_opportunity"]))
    return state(
        task=task,
        bound=draw(st.sampled_from([0.3, -1.0, {"hospital 2": 0.2}, {}])),
        label=draw(names),
        columns=columns,
        owners=draw(st.sampled_from([0, 2])),
        classes=draw(levels),
        categories=draw(st.dictionaries(st.sampled_from(columns), levels, max_size=1)),
        missing=draw(st.sampled_from(["error", "mean"])),
        standardize=draw(st.booleans()),
        scaling=draw(scaling),
        **(of_groups if task == "group_fairness" else {}),
    )


def orders() -> Iterator[tuple[Any, Order]]:
    yield describe_share, Order(run="r1", round=1)
    yield moments, About(run="r1", round=1, mean=np.zeros(2))
    yield measure, Finished(run="r1", round=1, w=np.zeros(2))


@given(table=tables(), job=jobs(), junk=st.sampled_from([b"", b"\xff\xfe", b'"', b"\x00"]))
@settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_a_table_holds_and_a_job_asks_an_error_is_silent(
    table: tuple[tuple[str, ...], list[list[str]]], job: dict[str, Any], junk: bytes, tmp_path: Path
) -> None:
    columns, rows = table
    path = tmp_path / "register of 1843.csv"
    path.write_bytes("\n".join(map(",".join, [columns, *rows])).encode() + junk)
    cells = {cell for row in rows for cell in row if len(cell) > 5}
    for step, order in orders():
        data = ask(site_with(path), job, step, order)
        if "error" in loads(data):
            assert_silent(data, cells, path, columns, job)
