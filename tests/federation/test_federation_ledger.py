"""The ledger: messages, bytes counted by hand, and the names of the fields that left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from raising import raises_code

from fedpact.federation import Communication, Ledger, Order, Reply, Session, Traffic


@dataclass(frozen=True, kw_only=True)
class Ask(Order):
    w: np.ndarray
    penalty: float
    iteration: int
    keep: bool


@dataclass(frozen=True, kw_only=True)
class Answer(Reply):
    gradient: np.ndarray
    note: str


@dataclass(frozen=True, kw_only=True)
class Short(Reply):
    loss: float


def answer(share: Any, state: Any, order: Ask) -> tuple[Any, Answer]:
    return state, Answer(gradient=np.zeros((share, 2)), note="é!")


def short(share: Any, state: Any, order: Ask) -> tuple[Any, Short]:
    return state, Short(loss=1.0)


ASK = Ask(w=np.zeros(5), penalty=1.0, iteration=3, keep=True)
DOWN = 5 * 8 + 3 * 8  # the round number is not counted


def test_bytes_by_hand() -> None:
    with Session().open({"a": 1, "b": 10}) as session:
        session.ask(answer, ASK)
        session.ask(short, ASK)
        session.ask(short, [ASK, Ask(w=np.zeros(2, np.float32), penalty=1.0, iteration=3, keep=True)])
        seen = session.ledger.read()
    note = 3  # "é!" is three bytes of UTF-8
    fields = ("Answer.gradient", "Answer.note", "Short.loss")
    assert seen.rounds == 3
    assert seen.owners == {
        "a": Traffic(3, 3, 3 * DOWN, 1 * 2 * 8 + note + 8 + 8, fields),
        "b": Traffic(3, 3, 2 * DOWN + (2 * 4 + 24), 10 * 2 * 8 + note + 8 + 8, fields),
    }
    assert seen.messages == 12
    assert seen.bytes == session.ledger.bytes == (5 * DOWN + 32) + (16 + 160 + 2 * note + 32)


def test_tickets_are_counted_for_their_owner_only() -> None:
    with Session().open({"a": 1, "b": 1}) as session:
        ticket = session.submit("b", short, ASK)
        before = session.ledger.read()
        assert before.owners["b"] == Traffic(1, 0, DOWN, 0, ())
        assert session.wait_any([ticket]) == [ticket]
        after = session.ledger.read()
    assert after == Communication(1, {"a": Traffic(), "b": Traffic(1, 1, DOWN, 8, ("Short.loss",))})


def test_a_part_of_a_session_names_what_left_in_that_part() -> None:
    with Session().open({"a": 1, "b": 1}) as session:
        session.ask(short, ASK)
        session.ask(answer, ASK)
        begun = session.ledger.read()
        session.ask(short, ASK)
        session.ask(short, ASK, ["b"])
        part = session.ledger.read(since=begun)
        nothing = session.ledger.read(since=session.ledger.read())
        assert begun + part == session.ledger.read()
    assert part == Communication(
        2, {"a": Traffic(1, 1, DOWN, 8, ("Short.loss",)), "b": Traffic(2, 2, 2 * DOWN, 16, ("Short.loss",))}
    )
    assert nothing == Communication(0, {"a": Traffic(), "b": Traffic()})


def test_what_was_read_does_not_change() -> None:
    ledger = Ledger(("a",))
    ledger.down("a", ASK)
    seen = ledger.read()
    ledger.down("a", ASK)
    assert seen.owners["a"].messages_down == 1
    assert ledger.read().owners["a"].messages_down == 2


@dataclass(frozen=True, kw_only=True)
class Bad(Order):
    w: Any


@pytest.mark.parametrize("value", [[1.0], None, {"w": 1}, np.array(["x"]), np.array([object()])])
def test_an_order_holds_arrays_and_scalars_only(value: object) -> None:
    calls: list[int] = []

    def never(share: Any, state: Any, order: Any) -> tuple[Any, Short]:
        calls.append(1)
        return None, Short(loss=0.0)

    with Session().open({"a": None}) as session, raises_code("FP-OWNER-012", "Bad.w"):
        session.ask(never, Bad(w=value))
    assert calls == []


def test_each_owner_needs_its_order() -> None:
    with Session().open({"a": 1, "b": 1}) as session, pytest.raises(ValueError, match="shorter"):
        session.ask(short, [ASK])
