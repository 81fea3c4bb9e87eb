"""What of an error leaves an owner: on its own machines all of it, to another organisation a code and few facts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpact.errors import CODES, CheckpointError, DataError, FedpactError, OptionError, OwnerError, OwnerLost
from fedpact.federation import Order, Reply, Site, client_step
from fedpact.federation.failure import UNEXPECTED, Failure, coarsen, texts_in
from fedpact.federation.remote import read_reply
from fedpact.federation.wire import dumps, loads, name_of, to_tree

SECRET = "Ada Lovelace"
JOB = {"columns": ["age"], "label": "ill", "bound": 0.2, "categories": {"town": ["York"]}}


class Odd(DataError):
    """Somebody's own error: its constructor takes what it likes, and its code is a cell."""

    code = SECRET

    def __init__(self, row: int, cell: str) -> None:
        Exception.__init__(self, f"row {row} holds {cell}")


class Answer(Reply):
    pass


@client_step
def fail(share: Exception, state: Any, order: Order) -> tuple[Any, Answer]:
    raise share


@client_step
def remember(share: str, state: Any, order: Order) -> tuple[str, Answer]:
    return share, Answer()


def order_of(**stamp: Any) -> Order:
    return Order(**{"run": "r1", "round": 1, **stamp})


def bytes_of(order: Order, step: Callable[..., Any] = fail, job: Any = JOB) -> bytes:
    return dumps({"owner": "clinic b", "step": name_of(step), "order": to_tree(order), "task": job})


def failing(error: Exception, **options: Any) -> Site:
    return Site("clinic b", lambda job: error, **options)


# ------------------------------------------------------------------------------------------------------------ one error


@pytest.mark.parametrize(
    ("rows", "told"),
    [(0, 0), (1, 0), (4, 0), (5, 5), (9, 5), (10, 10), (19, 10), (20, 20), (99, 50), (100, 100), (123456, 100000)],
)
def test_counts_are_rounded_down_and_small_ones_withheld(rows: int, told: int) -> None:
    assert coarsen(rows) == told


def test_all_that_a_job_states_is_known_to_its_coordinator() -> None:
    assert texts_in(JOB) == {"columns", "age", "label", "ill", "bound", "categories", "town", "York"}
    for nothing in (None, 3, [], {}, [[[]]]):
        assert texts_in(nothing) == set()


def test_a_column_or_key_travels_if_the_job_states_it() -> None:
    named = DataError("x", code="FP-DATA", column="age", key="bound", rows=30)
    assert Failure.of(named, JOB) == Failure("FP-DATA", "age", "bound", 20)
    unnamed = DataError("x", column="diagnosis", key="least_rows", rows=2)
    assert Failure.of(unnamed, JOB) == Failure("FP-DATA", rows=0)
    assert Failure.of(named) == Failure("FP-DATA", rows=20)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError(SECRET), UNEXPECTED),
        (DataError(SECRET, code=f"FP-DATA-{SECRET}"), "FP-DATA"),
        (DataError(SECRET, code=SECRET), "FP-OWNER"),
        (Odd(3, SECRET), "FP-OWNER"),
        (DataError(SECRET, column=SECRET, key=SECRET, rows=SECRET), "FP-DATA"),  # type: ignore[arg-type]
    ],
)
def test_no_code_or_fact_smuggles_a_cell(error: Exception, code: str) -> None:
    assert Failure.of(error, JOB) == Failure(code)


@pytest.mark.parametrize(
    ("failure", "kind", "words"),
    [
        (Failure("FP-DATA"), DataError, f"FP-DATA: {CODES['FP-DATA']}"),
        (Failure("FP-DATA", "age", rows=0), DataError, f"FP-DATA: {CODES['FP-DATA']} (column 'age', a few rows)"),
        (Failure("FP-DATA", "age", rows=20), DataError, f"FP-DATA: {CODES['FP-DATA']} (column 'age', 20 rows or more)"),
        (Failure("FP-OPTION", key="bound"), OptionError, f"FP-OPTION: {CODES['FP-OPTION']} (key 'bound')"),
        (Failure("FP-CHECKPOINT-987"), CheckpointError, f"FP-CHECKPOINT-987: {CODES['FP-CHECKPOINT']}"),
        (Failure("FP-NEW-001"), OwnerError, f"FP-NEW-001: {CODES['FP-OWNER']}"),
        (Failure("FP"), FedpactError, f"FP: {CODES['FP']}"),
        (Failure("__builtins__"), OwnerError, f"FP-OWNER: {CODES['FP-OWNER']}"),
    ],
    ids=lambda value: value.code if isinstance(value, Failure) else "",
)
def test_the_coordinator_raises_the_same_class_in_words_of_its_own(
    failure: Failure, kind: type[FedpactError], words: str
) -> None:
    error = failure.to_error("clinic b")
    assert type(error) is kind
    assert str(error) == f"clinic b: {words}; the site's own log says more"
    assert (error.column, error.key, error.rows) == (failure.column, failure.key, failure.rows)


def test_inside_one_organisation_the_text_travels() -> None:
    error = Failure("FP-DATA", text="clinic b: line 3").to_error("clinic b")
    assert (type(error), str(error), error.code) == (DataError, "clinic b: line 3", "FP-DATA")


# ----------------------------------------------------------------------------------------------------------- at a site

RAISED = [
    DataError(f"rows.csv: column 'name' holds {SECRET!r} in line 2", column="name"),
    ValueError(f"could not convert string to float: {SECRET!r}"),
    KeyError(SECRET),
    FileNotFoundError(2, "No such file", f"/data/{SECRET}.csv"),
    OwnerError(f"clinic b: {SECRET}"),
    Odd(3, SECRET),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_a_site_keeps_the_text_of_an_error_for_its_own_log(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "fedpact.site"):
        data = failing(error).handle(bytes_of(order_of()))
    assert SECRET.encode() not in data
    assert b"rows.csv" not in data
    assert b"/data" not in data
    (record,) = caplog.records
    assert SECRET in record.getMessage()
    failure = loads(data)["error"]
    assert failure["text"] == ""
    assert record.getMessage().startswith(f"{failure['code']}: clinic b: ")
    unexpected = not isinstance(error, FedpactError)
    assert (failure["code"] == UNEXPECTED) == unexpected
    assert (record.exc_info is not None) == unexpected  # whoever wrote the failing code needs the trace


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_an_error_while_the_share_is_built_is_kept_too(error: Exception) -> None:
    def build(job: dict[str, Any]) -> object:
        raise error

    assert SECRET.encode() not in Site("clinic b", build).handle(bytes_of(order_of()))


def test_a_site_of_the_same_organisation_may_send_the_text(caplog: pytest.LogCaptureFixture) -> None:
    data = failing(ValueError(SECRET), full_text=True).handle(bytes_of(order_of()))
    failure = loads(data)["error"]
    assert failure["code"] == UNEXPECTED
    assert failure["text"] == f"clinic b: fail failed with ValueError: {SECRET}"
    assert caplog.records == []


def test_the_coordinator_reads_what_a_site_answers() -> None:
    data = failing(DataError(SECRET, column="age", rows=12)).handle(bytes_of(order_of()))
    with pytest.raises(DataError) as caught:
        read_reply("clinic b", fail, order_of(), data)
    assert (caught.value.code, caught.value.column, caught.value.rows) == ("FP-DATA", "age", 10)
    assert "(column 'age', 10 rows or more)" in str(caught.value)


def test_an_order_that_a_site_cannot_read_is_sent_again() -> None:
    with pytest.raises(OwnerLost) as caught:
        read_reply("clinic b", fail, order_of(), failing(ValueError()).handle(b"noise"))
    assert caught.value.code == "FP-WIRE-302"
    assert str(caught.value).startswith("clinic b: FP-WIRE-302: ")


def test_the_path_of_a_memory_stays_at_the_site(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder")
    data = Site("clinic b", lambda job: SECRET, tmp_path / "file").handle(bytes_of(order_of(), remember))
    assert str(tmp_path).encode() not in data
    assert str(tmp_path) in caplog.text


def test_a_damaged_memory_is_told_as_a_code(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = Site("clinic b", lambda job: SECRET, tmp_path)
    assert "reply" in loads(site.handle(bytes_of(order_of(), remember)))
    (memory,) = tmp_path.rglob("*.state")
    memory.write_bytes(dumps({"version": 1, "owner": "clinic b", "run": "r1", "type": f"{SECRET}:x"}))
    data = Site("clinic b", lambda job: None, tmp_path).handle(bytes_of(order_of(round=2, after=1), remember))
    assert loads(data)["error"] == asdict(Failure("FP-LOST-002"))
    assert "its memory of run r1 cannot be used" in caplog.text


def test_a_value_too_large_for_a_secure_sum_is_not_told() -> None:
    from fedpact.federation.secure_sum import check_range

    with pytest.raises(OwnerError) as caught:
        check_range({"total": np.array([1.2345e30])}, 3)
    assert "1.23e+30" in str(caught.value)
    assert Failure.of(caught.value, JOB) == Failure("FP-OWNER-011")
