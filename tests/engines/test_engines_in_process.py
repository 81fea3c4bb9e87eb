"""The in-process engine: the same replies, in owner order, whatever the number of threads."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from raising import raises_code

from fedpact.engines import InProcess
from fedpact.federation import Order, Reply, Session

NAMES = [f"owner {i}" for i in range(6)]


@dataclass(frozen=True, kw_only=True)
class Go(Order):
    w: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Done(Reply):
    name: str
    w: np.ndarray


def wander(share: tuple[str, int], state: Any, order: Go) -> tuple[Any, Done]:
    """A step that takes a random time and adds its own rounding."""
    name, seed = share
    rng = np.random.default_rng([seed, order.round])
    time.sleep(rng.uniform(0, 0.004))
    state = (np.zeros(3) if state is None else state) + rng.normal(size=3) * order.w
    return state, Done(name=name, w=state / 3.0)


def walk(threads: int) -> tuple[list[list[str]], bytes]:
    w, orders_seen = np.ones(3), []
    with Session(InProcess(threads=threads)).open({name: (name, i) for i, name in enumerate(NAMES)}) as session:
        for _ in range(5):
            replies = session.ask(wander, Go(w=w))
            orders_seen.append([r.name for r in replies])
            w = np.sum([r.w for r in replies], axis=0)
    return orders_seen, w.tobytes()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_replies_come_in_owner_order_and_bitwise_equal(threads: int) -> None:
    order, w = walk(threads)
    assert order == [NAMES] * 5
    assert w == walk(1)[1]


def test_one_order_per_owner() -> None:
    with Session(InProcess(threads=2)).open({name: (name, 0) for name in NAMES}) as session:
        zero_but_one = [Go(w=np.full(3, float(i == 2))) for i in range(len(NAMES))]
        moved = [bool(r.w.any()) for r in session.ask(wander, zero_but_one)]
    assert moved == [False, False, True, False, False, False]


def test_threads_work_at_the_same_time() -> None:
    barrier = threading.Barrier(3, timeout=60)

    def meet(share: Any, state: Any, order: Order) -> tuple[Any, Done]:
        barrier.wait()  # passes only when three owners are inside
        return state, Done(name="", w=np.zeros(1))

    with Session(InProcess(threads=3)).open({"a": 1, "b": 2, "c": 3}) as session:
        assert len(session.ask(meet, Order())) == 3


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_submit_and_wait_any(threads: int) -> None:
    with Session(InProcess(threads=threads)).open({name: (name, i) for i, name in enumerate(NAMES)}) as session:
        waiting = [session.submit(name, wander, Go(w=np.ones(3))) for name in NAMES]
        got = []
        while waiting:
            ready = session.wait_any(waiting)
            assert ready
            got += [(t.owner, t.reply().name) for t in ready]
            waiting = [t for t in waiting if t not in ready]
        traffic = session.ledger.read().owners
    assert sorted(got) == [(name, name) for name in NAMES]
    assert [traffic[name].messages_up for name in NAMES] == [1] * len(NAMES)


def test_wait_any_returns_the_fast_one_first() -> None:
    gate = threading.Event()

    def slow(share: Any, state: Any, order: Order) -> tuple[Any, Done]:
        if share == "slow":
            gate.wait(60)
        return state, Done(name=share, w=np.zeros(1))

    with Session(InProcess(threads=2)).open({"slow": "slow", "fast": "fast"}) as session:
        tickets = [session.submit(name, slow, Order()) for name in session.owners]
        assert session.wait_any(tickets) == [tickets[1]]
        assert session.wait_any([tickets[0]], timeout=0.01) == []
        gate.set()
        assert session.wait_any([tickets[0]]) == [tickets[0]]


def test_an_owner_does_one_thing_at_a_time_and_in_order() -> None:
    """Two orders for one owner, the first slow: the second must see the state of the first."""
    inside: list[int] = []

    def count(share: Any, state: int | None, order: Order) -> tuple[int, Done]:
        inside.append(order.round)
        assert len(inside) == 1
        time.sleep(0.02 if order.round % 2 else 0.0)
        inside.pop()
        return (state or 0) + 1, Done(name=f"{order.round}: {(state or 0) + 1}", w=np.zeros(1))

    with Session(InProcess(threads=4)).open({"a": None}) as session:
        tickets = [session.submit("a", count, Order()) for _ in range(6)]
        assert [t.reply().name for t in tickets] == [f"{i}: {i}" for i in range(1, 7)]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_failure_names_the_owner_and_the_session_goes_on(threads: int) -> None:
    def fragile(share: int, state: Any, order: Go) -> tuple[Any, Done]:
        if share == 1 and order.w[0] == 0:
            raise ZeroDivisionError("w is zero")
        return state, Done(name=str(share), w=order.w)

    with Session(InProcess(threads=threads)).open({"a": 0, "b": 1, "c": 2}) as session:
        with raises_code("FP-OWNER-001", "b: ", "fragile", "ZeroDivisionError: w is zero"):
            session.ask(fragile, Go(w=np.zeros(1)))
        assert [r.name for r in session.ask(fragile, Go(w=np.ones(1)))] == ["0", "1", "2"]
        (failed,) = session.wait_any([session.submit("b", fragile, Go(w=np.zeros(1)))])
        with raises_code("FP-OWNER-001", "b: fragile"):
            failed.reply()


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", None])
def test_threads_are_a_positive_number(threads: object) -> None:
    with raises_code("FP-OPTION-303", f"threads = {threads!r}: "):
        InProcess(threads=threads)
