"""Orders to single owners (`submit`, `wait_any`) that are lost, late or fail: sent again by the policy, done once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from faults import Fault, Faulty
from raising import raises_code

from fedpact.engines import InProcess
from fedpact.errors import OwnerLost
from fedpact.federation import Fleet, Order, Reply, Session, Step, Summed, client_step


@dataclass(frozen=True, kw_only=True)
class Counted(Reply):
    """How often this owner has worked."""

    times: int


def work(share: object, state: int | None, order: Order) -> tuple[int, Counted]:
    return (state or 0) + 1, Counted(times=(state or 0) + 1)


@dataclass(frozen=True, kw_only=True)
class Added(Reply):
    """How often all owners have worked."""

    times: Summed[int]


def work_together(share: object, state: int | None, order: Order) -> tuple[int, Added]:
    return (state or 0) + 1, Added(times=(state or 0) + 1)


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
        session.submit("a", work_together, Order())
    ticket = session.submit("a", work, Order())  # nothing to add up, nothing to mask
    assert session.wait_any([ticket]) == [ticket]


# ------------------------------------------------------------------------------------------------- kept and resumed


@dataclass(frozen=True, kw_only=True)
class Add(Order):
    amount: float


@dataclass(frozen=True, kw_only=True)
class Account(Reply):
    """What this owner has been given in all, and in how many orders."""

    total: Summed[float]
    times: int


@dataclass(frozen=True)
class Book:
    total: float = 0.0
    times: int = 0


@client_step
def add(share: object, state: Book | None, order: Add) -> tuple[Book, Account]:
    known = state or Book()
    book = Book(known.total + order.amount, known.times + 1)
    return book, Account(total=book.total, times=book.times)


@dataclass
class Race:
    """Owners that work at once and whose replies wait until all have one to give; then come those in the next heat.

    heats: names of the owners that answer, in turn, again and again; away: owners that cannot be reached
    """

    heats: Sequence[str]
    away: set[str] = field(default_factory=set)
    sent: list[tuple[str, int]] = field(default_factory=list)

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        fleet: Any = InProcess(jointly=False).open(shares, folder)
        direct = fleet.start
        pending: dict[str, tuple[Future[Any], Future[Any]]] = {}
        heat = 0

        def start(owner: str, step: Step, order: Order) -> Future[Any]:
            nonlocal heat
            answered: Future[Any] = Future()
            if owner in self.away:
                answered.set_exception(OwnerLost(f"{owner}: away"))
                return answered
            done = direct(owner, step, order)
            if step is not add:
                return done  # type: ignore[no-any-return]
            self.sent.append((owner, order.round))
            pending[owner] = (answered, done)
            if len(pending) == len(fleet.owners) - len(self.away):
                for name in self.heats[heat % len(self.heats)].split():
                    slow, quick = pending.pop(name)
                    slow.set_result(quick.result())
                heat += 1
            return answered

        fleet.start = start
        return fleet  # type: ignore[no-any-return]


NAMES = ("a", "b", "c")


def race(session: Session, batches: int, stop: int = -1) -> list[tuple[tuple[str, float, int], ...]]:
    """Whoever is free is given the sum of all replies so far; what each wait brought. Ctrl-C after `stop` waits."""
    waiting: dict[str, Any] = {}
    brought: list[tuple[tuple[str, float, int], ...]] = []
    total = 1.0
    for k in range(batches):
        for owner in session.owners:
            if owner not in waiting:
                waiting[owner] = session.submit(owner, add, Add(amount=total))
        if k == stop:
            raise KeyboardInterrupt
        ready = session.wait_any(list(waiting.values()))
        replies = [(ticket.owner, ticket.reply()) for ticket in ready]
        brought.append(tuple((owner, reply.total, reply.times) for owner, reply in replies))
        total += sum(reply.total for _, reply in replies) / 7.0
        for owner, _ in replies:
            del waiting[owner]
    return brought


def run_race(engine: Race, folder: Path, batches: int, stop: int = -1, **options: Any) -> tuple[list[Any], Any]:
    with Session(engine, checkpoint=folder, **options) as session:
        session.open(dict.fromkeys(NAMES))
        brought = race(session, batches, stop)
        return brought, session.ledger.read()


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("stop", [1, 3, 6])
def test_who_answered_first_is_on_record(stop: int, every: int, tmp_path: Path) -> None:
    """The resumed run repeats what came back, in that order, though now others are first; nobody does a thing twice."""
    one = Race(["b", "a c", "c", "a"])
    expected, _ = run_race(Race(one.heats), tmp_path / "whole", stop)
    with pytest.raises(KeyboardInterrupt):
        run_race(one, tmp_path / "kept", 9, stop, checkpoint_every=every)
    other = Race(["a", "c", "b"])
    found, traffic = run_race(other, tmp_path / "kept", 9, resume=True, checkpoint_every=every)
    assert found[:stop] == expected
    assert len(found) == 9
    assert {owner for owner, _ in other.sent[:3]} == set(NAMES)  # the orders under way go out again,
    assert set(one.sent) >= set(other.sent[:3])  # under their numbers,
    for name in NAMES:  # and are obeyed once: every reply counts one order more than the one before
        assert [times for batch in found for owner, _, times in batch if owner == name] == list(
            range(1, 1 + sum(owner == name for batch in found for owner, *_ in batch))
        )
    assert traffic.rounds == 9
    assert sum(t.messages_up for t in traffic.owners.values()) == sum(map(len, found))


def test_a_finished_race_is_repeated_without_a_word_and_counted_as_it_was(tmp_path: Path) -> None:
    expected = run_race(Race(["b", "a c", "c"]), tmp_path, 7)
    silent = Race(["a"])
    again = run_race(silent, tmp_path, 7, resume=True)
    assert again == expected
    assert silent.sent == []


def test_an_owner_that_stays_away_keeps_the_race_for_later(tmp_path: Path) -> None:
    """Lost in the middle: the batches before are on record, and go on when the owner is back."""
    engine = Race(["b", "a"])
    with Session(engine, checkpoint=tmp_path, retries=0) as session:
        session.open(dict.fromkeys(NAMES))
        first = race(session, 2)
    lost = Race(["c"], away={"b"})
    with raises_code("FP-LOST", "b: away"):
        run_race(lost, tmp_path, 6, resume=True, retries=1)
    found, _ = run_race(Race(["c", "b"]), tmp_path, 6, resume=True)
    assert found[:2] == first


def test_other_orders_than_those_on_record_are_refused(tmp_path: Path) -> None:
    run_race(Race(["b", "a"]), tmp_path, 3)
    with (
        raises_code("FP-CHECKPOINT-301"),
        Session(Race(["a"]), checkpoint=tmp_path, resume=True).open(dict.fromkeys(NAMES)) as session,
    ):
        session.wait_any([session.submit(owner, add, Add(amount=2.0)) for owner in NAMES])
    with (
        raises_code("FP-CHECKPOINT-301"),
        Session(Race(["a"]), checkpoint=tmp_path, resume=True).open(dict.fromkeys(NAMES)) as session,
    ):
        session.ask(add, Add(amount=1.0))


def test_an_owner_at_work_does_not_hold_up_the_checkpoint(tmp_path: Path) -> None:
    """In threads: replies of others are kept while one owner is busy; it is busy until that was so."""
    kept = threading.Event()

    @client_step
    def slow(share: str, state: Book | None, order: Add) -> tuple[Book, Account]:
        if share == "slow":
            assert kept.wait(60)
        return add(share, state, order)

    with Session("threads", checkpoint=tmp_path) as session:
        session.open({"a": "slow", "b": "quick"})
        busy, free = (session.submit(owner, slow, Add(amount=1.0)) for owner in ("a", "b"))
        assert session.wait_any([busy, free]) == [free]
        kept.set()
        assert session.wait_any([busy]) == [busy]
