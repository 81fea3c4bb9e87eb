"""Orders to single owners (`submit`, `wait_any`) that are lost, late or fail: sent again by the policy, done once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from faults import Fault, Faulty
from raising import raises_code

from fedpact.federation import Order, Reply, Session


@dataclass(frozen=True, kw_only=True)
class Counted(Reply):
    """How often this owner has worked."""

    times: int


def work(share: object, state: int | None, order: Order) -> tuple[int, Counted]:
    return (state or 0) + 1, Counted(times=(state or 0) + 1)


def fail(share: object, state: int | None, order: Order) -> tuple[int, Counted]:
    raise ZeroDivisionError("no rows")


def first(times: int, what: str, owner: str = "a") -> Fault:
    """The first orders to this owner, so many of them, meet this fault."""
    seen: list[str] = []

    def fault(name: str, order: Order) -> str:
        seen.append(name)
        return what if name == owner and seen.count(name) <= times else ""

    return fault


@pytest.fixture
def opened() -> Callable[..., tuple[Faulty, Session]]:
    def open_session(fault: Fault, delay: float = 0.05, **policy: Any) -> tuple[Faulty, Session]:
        engine = Faulty(fault, delay)
        return engine, Session(engine, **policy).open({"a": None, "b": None})

    return open_session


Opened = Callable[..., tuple[Faulty, Session]]


@pytest.mark.parametrize("what", ["order lost", "reply lost"])
def test_an_order_lost_once_is_answered_on_the_second_try(opened: Opened, what: str) -> None:
    engine, session = opened(first(1, what))
    ticket = session.submit("a", work, Order())
    assert session.wait_any([ticket]) == [ticket]
    assert ticket.reply().times == 1  # where only the reply was lost, the owner answered from its memory
    sent = [order for _, order, _ in engine.orders]
    assert len(sent) == 2
    assert sent[0] == sent[1]
    traffic = session.ledger.read().owners["a"]
    assert (traffic.messages_down, traffic.messages_up) == (2, 1)
    assert session.ledger.rounds == 1
    assert session.wait_any([]) == []
    following = session.submit("a", work, Order())
    assert session.wait_any([following]) == [following]
    assert following.reply().times == 2


@pytest.mark.parametrize("what", ["order silent", "reply silent", "late"])
def test_an_overdue_order_is_sent_again(opened: Opened, what: str) -> None:
    engine, session = opened(first(1, what), deadline=0.1, delay=0.5)
    ticket = session.submit("a", work, Order())
    assert session.wait_any([ticket]) == [ticket]
    assert ticket.reply().times == 1
    assert [became for _, _, became in engine.orders] == [what, ""]


def test_without_a_deadline_a_late_reply_is_waited_for(opened: Opened) -> None:
    engine, session = opened(first(1, "late"), delay=0.3)
    ticket = session.submit("a", work, Order())
    assert session.wait_any([ticket], timeout=0.01) == []
    assert session.wait_any([ticket]) == [ticket]
    assert len(engine.orders) == 1


@pytest.mark.parametrize(
    ("what", "code", "why"),
    [("order lost", "FP-LOST", "a: its order lost"), ("order silent", "FP-LOST-303", "a: no reply to round 1")],
)
@pytest.mark.parametrize(("policy", "sent"), [({"retries": 2}, 3), ({"retries": 0}, 1), ({"on_failure": "stop"}, 1)])
def test_an_owner_that_stays_away_is_lost(
    opened: Opened, what: str, code: str, why: str, policy: dict[str, Any], sent: int
) -> None:
    engine, session = opened(first(100, what), deadline=0.05, **policy)
    ticket = session.submit("a", work, Order())
    with raises_code(code, why):
        session.wait_any([ticket])
    assert len(engine.orders) == sent


def test_others_are_answered_while_one_is_sent_again(opened: Opened) -> None:
    engine, session = opened(first(2, "order lost"))
    one, other = session.submit("a", work, Order()), session.submit("b", work, Order())
    assert session.wait_any([one, other]) == [other]
    assert session.wait_any([one]) == [one]
    assert [(owner, what) for owner, _, what in engine.orders] == [
        ("a", "order lost"), ("b", ""), ("a", "order lost"), ("a", ""),
    ]  # fmt: skip


def test_another_failure_is_told_by_the_reply_and_not_sent_again(opened: Opened) -> None:
    engine, session = opened(first(1, "order lost", "b"))
    ticket = session.submit("a", fail, Order())
    assert session.wait_any([ticket]) == [ticket]
    with raises_code("FP-OWNER-001", "a: ", "fail", "ZeroDivisionError: no rows"):
        ticket.reply()
    assert len(engine.orders) == 1
    after = session.submit("a", work, Order())
    assert session.wait_any([after]) == [after]
    assert after.reply().times == 1


def test_single_owners_are_not_asked_where_sums_are_secure(opened: Opened) -> None:
    _, session = opened(first(0, ""))
    session.secure()
    with raises_code("FP-OPTION-313"):
        session.submit("a", work, Order())
