"""Alignment as exchanges: who is kept, in which order, what is refused, and what the transcript does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code
from vertical_parties import Columns, Table, look_at, make_tables, open_session

import fedpact as fp
from fedpact.alignment import MODES, Mode, People
from fedpact.errors import DataError
from fedpact.federation import Order
from fedpact.federation.aligned import Aligned
from fedpact.fitting import align_parties
from fedpact.fitting.alignment import Accept, ListPeople, Multiply, accept, blind_people, multiply, to_words
from fedpact.tasks import FileSource, HeldSource, Task

KEY = bytes(range(32))


def open_keyed(tables: Mapping[str, Table], folder: Path, session: fp.Session) -> fp.Session:
    secret = folder / "alignment-secret"
    secret.write_bytes(KEY)
    session.open({name: HeldSource(name, table, secret=secret) for name, table in tables.items()})
    session.pose(Columns(owners=len(tables)))
    return session


@pytest.mark.parametrize("mode", MODES)
def test_parties_hold_the_same_people_in_the_same_order(mode: Mode, tmp_path: Path) -> None:
    tables = make_tables(people=30, extra=5)
    with open_keyed(tables, tmp_path, fp.Session()) as session:
        found = align_parties(session, mode, on_missing="drop")
        exchanges = session.ledger.read().rounds
        columns = [reply.x for reply in session.ask(look_at, Order())]
    assert found.people == 30
    assert sorted(columns[0]) == list(range(30))
    np.testing.assert_array_equal(columns[1], 10 * columns[0])
    np.testing.assert_array_equal(columns[2], 100 * columns[0])
    assert exchanges == {"id": 2, "keyed-hash": 2, "private": 4}[mode]


@pytest.mark.parametrize("mode", MODES)
def test_the_coordinators_own_table_is_one_more_party(mode: Mode, tmp_path: Path) -> None:
    tables = make_tables(people=20)
    ids = [f"person-{number:05d}" for number in range(25)]
    own = People("coordinator", ids, key=KEY)
    with open_keyed(tables, tmp_path, fp.Session()) as session:
        found = align_parties(session, mode, on_missing="drop", own=own)
        column = session.ask(look_at, Order())[0].x
    assert found.rows is not None
    np.testing.assert_array_equal(column, found.rows)  # person number i stands in its row i


@pytest.mark.parametrize("mode", MODES)
def test_the_transcript_tells_ids_only_in_the_clear(mode: Mode, tmp_path: Path) -> None:
    """No id, normalized or not, nor a plain hash of one, is in any byte that passed, or in the checkpoint's log."""
    tables = make_tables(people=8, extra=2)
    record = tmp_path / "record"
    with open_keyed(tables, tmp_path, fp.Session(record=record, checkpoint=tmp_path / "run")) as session:
        align_parties(session, mode, on_missing="drop")
    seen = record.read_bytes() + (tmp_path / "run" / "rounds.log").read_bytes()
    found = []
    for table in tables.values():
        for value in table.ids:
            text = str(value)
            forms = [text.encode(), text.strip().encode()]
            hashes = [sha256(form).digest() for form in forms]
            found += [form for form in [*forms, *hashes, *(h.hex().encode() for h in hashes)] if form in seen]
    assert bool(found) == (mode == "id")


@pytest.mark.parametrize("mode", MODES)
def test_people_who_are_not_everywhere_are_an_error_unless_dropped(mode: Mode, tmp_path: Path) -> None:
    with (
        open_keyed(make_tables(people=6, extra=2), tmp_path, fp.Session()) as session,
        pytest.raises(DataError) as raised,
    ):
        align_parties(session, mode)
    assert raised.value.code == "FP-DATA-402"
    assert ("person-" in str(raised.value)) == (mode == "id")


def test_ids_that_do_not_intersect_are_an_error() -> None:
    tables = {**make_tables(people=0, extra=4)}
    with open_session(tables, fp.Session()) as session, raises_code("FP-DATA-403"):
        align_parties(session, on_missing="drop")


@pytest.mark.parametrize(("ids", "code"), [(["a", "b", "a"], "FP-DATA-406"), (["a", " ", "b"], "FP-DATA-404")])
def test_ids_that_are_twice_or_missing_name_their_party(ids: list[str | int], code: str) -> None:
    tables = {"bank": Table(["a", "b", "c"], np.zeros(3)), "shop": Table(ids, np.zeros(3))}
    with open_session(tables, fp.Session()) as session, raises_code(code, "shop"):
        align_parties(session, on_missing="drop")


def test_the_job_may_ask_for_a_least_number_of_people() -> None:
    with open_session(make_tables(people=9), fp.Session()) as session, raises_code("FP-DATA-412"):
        align_parties(session, on_missing="drop", least=10)


class Careful(HeldSource):
    """A party with conditions of its own."""

    def people(self, task: Task | Mapping[str, Any]) -> People:
        return replace(super().people(task), least=10, modes=("private",))


@pytest.mark.parametrize(("people", "mode", "code"), [(9, "private", "FP-REFUSED-060"), (30, "id", "FP-REFUSED-061")])
def test_a_party_refuses_too_few_people_and_modes_that_tell_more(people: int, mode: Mode, code: str) -> None:
    tables = make_tables(people=people)
    with fp.Session() as session:
        session.open({name: Careful(name, table) for name, table in tables.items()})
        session.pose(Columns(owners=3))
        with raises_code(code):
            align_parties(session, mode, on_missing="drop")


def test_no_share_is_built_before_the_parties_are_aligned() -> None:
    with open_session(make_tables(), fp.Session()) as session, raises_code("FP-OWNER-416"):
        session.ask(look_at, Order())


LISTED = Aligned(key="", listed=np.array([2, 0, 1]))


@pytest.mark.parametrize("positions", [[0, 3], [-1], [1, 1], [[0, 1]], [0.0, 1.0]])
def test_positions_that_are_not_in_the_list_are_refused(positions: Any) -> None:
    """Repeated ones too: they would make a small intersection look large."""
    with raises_code("FP-OWNER-419"):
        accept(People("bank", ["a", "b", "c"]), LISTED, Accept(positions=np.array(positions)))


def test_a_party_multiplies_nothing_after_it_has_accepted() -> None:
    with raises_code("FP-OWNER-417"):
        multiply(People("bank", ["a"]), LISTED, Multiply(points=to_words([bytes(32)])))


def test_a_coordinator_cannot_send_more_lists_of_guesses_than_there_are_tables() -> None:
    people = People("bank", ["a", "b"], tables=2)
    aligned, blinded = blind_people(people, None, ListPeople())
    for _ in range(people.tables):
        aligned, _ = multiply(people, aligned, Multiply(points=blinded.points))
    with raises_code("FP-OWNER-423"):
        multiply(people, aligned, Multiply(points=blinded.points))


def test_a_party_is_aligned_once_a_run() -> None:
    """With other people in common a second time, two models would tell those who are in one of them."""
    with open_session(make_tables(), fp.Session()) as session:
        align_parties(session, on_missing="drop")
        with raises_code("FP-OWNER-422"):
            align_parties(session, on_missing="drop")
        with raises_code("FP-OWNER-418"):
            session.ask(accept, Accept(positions=np.arange(25)))


def write_tables(folder: Path, tables: Mapping[str, Table]) -> dict[str, Path]:
    paths = {}
    for name, table in tables.items():
        paths[name] = folder / f"{name}.csv"
        lines = [f"{value},{x!r}" for value, x in zip(table.ids, table.X.tolist(), strict=True)]
        paths[name].write_text("\n".join(["id,x", *lines]) + "\n")
    return paths


def test_a_table_that_changes_after_alignment_is_an_error_that_tells_nothing(tmp_path: Path) -> None:
    paths = write_tables(tmp_path, make_tables())
    with fp.Session() as session:
        session.open({name: FileSource(name, path) for name, path in paths.items()})
        session.pose(Columns(owners=3))
        align_parties(session, on_missing="drop")
        lines = paths["party1"].read_text().splitlines()
        paths["party1"].write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")  # the same people, in another order
        with pytest.raises(DataError) as raised:
            session.ask(look_at, Order())
    assert raised.value.code == "FP-DATA-414"
    assert "party1" in str(raised.value)
    assert "person" not in str(raised.value)


def test_rows_are_still_known_after_a_resume(tmp_path: Path) -> None:
    """The coordinator and all parties end; what an uninterrupted run finds is found again, in the same order."""
    paths = write_tables(tmp_path, make_tables())

    def align_and_look(resume: bool, stop: bool) -> list[np.ndarray[Any, Any]]:
        session = fp.Session(checkpoint=tmp_path / "run", resume=resume)
        session.open({name: FileSource(name, path) for name, path in paths.items()})
        session.pose(Columns(owners=3))
        try:
            align_parties(session, on_missing="drop", own=People("coordinator", make_tables()["party0"].ids[:20]))
            first = [reply.x for reply in session.ask(look_at, Order())]
            if stop:
                return first
            session.secure()
            assert session.ask(look_at, Order()).total.sums.tolist() == pytest.approx(sum(first).tolist())
            return first
        finally:
            session.close()

    before = align_and_look(resume=False, stop=True)
    after = align_and_look(resume=True, stop=False)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
