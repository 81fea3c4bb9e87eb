"""A session for several solves: one fleet, keys agreed once, every message counted, recorded and under the policy."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import (
    NAMES,
    REGULARIZER,
    SERVER,
    Faulty,
    Wire,
    bits,
    clinics,
    clinics_elsewhere,
    gone,
    solve,
    stop_at,
)
from marks import slow_but
from raising import raises_code

import fedpact as fp
from fedpact.engines import InProcess
from fedpact.errors import OptionError, OwnerError, OwnerLost
from fedpact.federation import (
    Communication,
    Fleet,
    Order,
    RemoteFleet,
    Reply,
    Session,
    Summed,
    client_step,
    read_record,
)
from fedpact.federation import tickets as tickets_module
from fedpact.solvers import Solution

ENGINES = {"sequence": InProcess, "threads": lambda: InProcess(threads=3), "bytes": Wire}
EVERYWHERE = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets_module, "PAUSE", 0.0)
    monkeypatch.setattr("os.fsync", lambda file: None)


def moved() -> fp.FederatedProblem:
    """The clinics with other data at the second one."""
    return clinics(shift=0.5)


def two_solves(session: Session) -> list[Solution]:
    """Two methods, the second on other shares."""
    return [solve("interior-point", session=session), solve("accelerated", moved(), session=session)]


@functools.cache
def alone(secure: bool = False) -> list[dict[str, Any]]:
    """The same, each in a session of its own."""
    found = solve("interior-point", secure_sum=secure), solve("accelerated", moved(), secure_sum=secure)
    return [bits(one, traffic=False, rounds=False) for one in found]


def same(found: list[Solution], secure: bool = False) -> bool:
    return [bits(one, traffic=False, rounds=False) for one in found] == alone(secure)


# ---------------------------------------------------------------------------------------------------------- two solves


@EVERYWHERE
def test_a_second_solve_begins_anew_and_is_counted_apart(engine: str) -> None:
    expected = solve("accelerated")
    with Session(ENGINES[engine]()) as session:
        found = [solve("accelerated", session=session) for _ in range(2)]
        assert session.ledger.read() == found[0].communication + found[1].communication
    for one in found:
        assert bits(one) == bits(expected)  # exchanges, bytes and what left the owners too


@EVERYWHERE
def test_other_methods_and_shares_in_one_session(engine: str) -> None:
    with Session(ENGINES[engine]()) as session:
        found = two_solves(session)
        whole = session.ledger.read()
    assert same(found)
    single = [solve("interior-point").communication, solve("accelerated", moved()).communication]
    assert whole == single[0] + single[1]
    for one, expected in zip(found, single, strict=True):
        assert one.rounds == expected.rounds
        assert (one.communication.messages, one.communication.bytes) == (expected.messages, expected.bytes)
        for name, traffic in one.communication.owners.items():  # what left in the other solve is not told twice
            assert set(traffic.fields) == set(expected.owners[name].fields)


def test_one_fleet_and_keys_agreed_once() -> None:
    pytest.importorskip("cryptography")
    engine = Faulty()
    with Session(engine, secure_sum=True) as session:
        found = two_solves(session)
        again = solve("interior-point", session=session)
    assert engine.fleets == 1
    assert same(found, secure=True)
    assert again.w.tobytes() == found[0].w.tobytes()
    assert again.rounds == found[0].rounds - 2  # no keys
    kinds = [type(order).__name__ for owner, order, _ in engine.orders if owner == "clinic a"]
    assert (kinds[:2], kinds.count("Offer"), kinds.count("Agree")) == (["Offer", "Agree"], 1, 1)
    assert all(order.secure for _, order, _ in engine.orders[6:])
    rounds = [order.round for owner, order, _ in engine.orders if owner == "clinic a"]
    assert rounds == list(range(1, len(rounds) + 1))
    assert len({order.run for _, order, _ in engine.orders}) == 1


@EVERYWHERE
def test_shares_built_at_their_owners_are_built_once(engine: str) -> None:
    built: list[str] = []

    def build(source: Any, name: str) -> fp.Share:
        built.append(name)
        return source()

    sources = {name: functools.partial(build, source, name) for name, source in clinics_elsewhere().sources.items()}
    expected = solve("interior-point", clinics_elsewhere())
    with Session(ENGINES[engine]()) as session:
        for _ in range(3):
            found = solve("interior-point", fp.RemoteProblem(sources, SERVER, REGULARIZER), session=session)
            assert bits(found) == bits(expected)  # with the exchange that asks what the problem is like
    assert sorted(built) == sorted(NAMES)


def test_a_session_may_be_opened_before_the_solve() -> None:
    with Session().open({share.label: share for share in clinics().shares}) as session:
        assert session.owners == NAMES
        assert bits(solve("accelerated", session=session)) == bits(solve("accelerated"))


# ------------------------------------------------------------------------------------------------ owners and their data


@pytest.mark.parametrize(
    "names",
    [("clinic a", "clinic b", "clinic d"), ("clinic a", "clinic b"), ("clinic b", "clinic a", "clinic c")],
    ids=["another", "fewer", "another order"],
)
def test_other_owners_are_refused(names: tuple[str, ...]) -> None:
    shares = dict(zip(names, clinics().shares, strict=False))
    engine = Faulty()
    with Session(engine) as session:
        first = solve("accelerated", session=session)
        sent = len(engine.orders)
        with raises_code("FP-OPTION-311", "", ", ".join(NAMES), ", ".join(names)):
            session.open(shares)
        problem = fp.FederatedProblem([fp.Share(share.objective, name=name) for name, share in shares.items()])
        with raises_code("FP-OPTION-311", "", ", ".join(names)):
            solve("accelerated", problem, session=session)
        assert len(engine.orders) == sent
        assert bits(solve("accelerated", session=session)) == bits(first)


@dataclass(frozen=True, kw_only=True)
class Count(Order):
    add: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Counted(Reply):
    value: Summed[float]
    total: float


@client_step
def count(share: float, state: float | None, order: Count) -> tuple[float, Counted]:
    total = (state or 0.0) + order.add
    return total, Counted(value=share * total, total=total)


def ask(session: Session) -> tuple[float, list[float]]:
    answers = session.ask(count, Count())
    return answers.total.value, [answer.total for answer in answers]


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "on disk"])
@EVERYWHERE
def test_owners_are_given_other_shares_and_keep_their_memory(engine: str, kept: bool, tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" if kept else None
    with Session(ENGINES[engine](), checkpoint=checkpoint).open({"a": 1.0, "b": 10.0}) as session:
        assert ask(session) == (11.0, [1.0, 1.0])
        session.open({"a": 2.0, "b": 10.0})
        assert ask(session) == (24.0, [2.0, 2.0])
        session.open({"a": 2.0, "b": lambda: 20.0})
        assert ask(session) == (66.0, [3.0, 3.0])


@pytest.mark.parametrize("folder", ["memory", "checkpoint"])
def test_so_do_owners_whose_process_has_just_started(folder: str, tmp_path: Path) -> None:
    """Before the first order after the change, which they remember nothing of, and after it."""
    engine = Wire(folder=tmp_path / "memory" if folder == "memory" else None, restarting=True)
    checkpoint = tmp_path / "run" if folder == "checkpoint" else None
    with Session(engine, checkpoint=checkpoint).open({"a": 1.0, "b": 10.0}) as session:
        assert ask(session) == (11.0, [1.0, 1.0])
        for shares, expected in (((2.0, 10.0), [24.0, 36.0]), ((3.0, 30.0), [132.0, 165.0])):
            session.open(dict(zip("ab", shares, strict=True)))
            assert [ask(session)[0] for _ in range(2)] == expected


class Foreign(RemoteFleet):
    """Owners of other organisations, who hold what they hold."""

    def send(self, owner: str, data: bytes) -> Future[bytes]:
        raise AssertionError("nothing is sent here")


class Abroad:
    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        return Foreign(tuple(shares))


def test_owners_elsewhere_cannot_be_given_other_shares() -> None:
    with Session(Abroad()).open({"a": None, "b": None}) as session:
        session.open({"a": None, "b": None})
        with pytest.raises(OptionError):
            session.open({"a": None, "b": 1.0})


# ----------------------------------------------------------------------------------------------------------- the record


def content_size(message: dict[str, Any]) -> int:
    """Bytes of a message in a record, by hand: arrays as they are, texts in UTF-8, eight for every number."""
    content = message["content"]
    if "from" in message:
        kept = {name: value for name, value in content["kept"].items() if value is not None}
        content = kept | {"sums": content["sums"]}
    return sum(
        value.nbytes if isinstance(value, np.ndarray) else len(value.encode()) if isinstance(value, str) else 8
        for value in content.values()
    )


@pytest.mark.parametrize("secure", [False, True])
def test_the_record_is_the_ledger_message_by_message(secure: bool, tmp_path: Path) -> None:
    """Over two solves, an exchange by hand, orders to single owners, and messages that were lost."""
    if secure:
        pytest.importorskip("cryptography")
    rng = np.random.default_rng(0)
    lost: list[str] = []

    def fault(owner: str, order: Order) -> str:
        lost.append("" if rng.random() < 0.8 else str(rng.choice(["order lost", "reply lost"])))
        return lost[-1]

    path = tmp_path / "messages"
    with Session(Faulty(fault), secure_sum=secure, retries=30, record=path) as session:
        assert same(two_solves(session), secure)
        session.open(dict.fromkeys(NAMES, 2.0))
        with pytest.raises(OwnerError):  # their state is that of the solve
            session.ask(count, Count())
        if not secure:
            ticket = session.submit("clinic b", greet, Order())
            assert session.wait_any([ticket]) == [ticket]
        ledger = session.ledger.read()
    assert sum(map(bool, lost)) > 20
    messages = list(read_record(path))
    assert len(messages) == ledger.messages
    for name, traffic in ledger.owners.items():
        down = [content_size(m) for m in messages if m.get("to") == name]
        up = [content_size(m) for m in messages if m.get("from") == name]
        assert (len(down), len(up)) == (traffic.messages_down, traffic.messages_up)
        assert (sum(down), sum(up)) == (traffic.bytes_down, traffic.bytes_up)


@dataclass(frozen=True, kw_only=True)
class Greeting(Reply):
    text: str = "here"


@client_step
def greet(share: object, state: Any, order: Order) -> tuple[Any, Greeting]:
    return state, Greeting()


# ----------------------------------------------------------------------------------------------------------- the policy


def whole_session(engine: Faulty, **policy: Any) -> list[Solution]:
    """Describing shares, agreeing on keys, solving, asking: every kind of exchange."""
    with Session(engine, secure_sum=True, **policy) as session:
        first = solve("interior-point", clinics_elsewhere(), session=session)
        second = solve("interior-point", session=session)
        session.ask(greet, Order())
    return [first, second]


@functools.cache
def exchanges() -> tuple[list[str], list[dict[str, Any]]]:
    """The orders of such a session, and its answers."""
    pytest.importorskip("cryptography")
    engine = Faulty()
    found = whole_session(engine)
    kinds = [type(order).__name__ for owner, order, _ in engine.orders if owner == "clinic b"]
    assert {"Order", "Offer", "Agree", "Conclude"} < set(kinds)
    return kinds, [bits(one, traffic=False) for one in found]


def test_retries_hold_in_every_exchange_of_a_session() -> None:
    kinds, expected = exchanges()
    for round in range(1, len(kinds) + 1):
        engine = Faulty(times(2, "clinic b", round, "order lost"))
        assert [bits(one, traffic=False) for one in whole_session(engine, retries=2)] == expected
        sent = [order.round for owner, order, _ in engine.orders if owner == "clinic b"]
        assert sent.count(round) == 3
        assert len(sent) == len(kinds) + 2


def test_the_deadline_holds_in_every_exchange_of_a_session() -> None:
    kinds, expected = exchanges()
    for round in range(1, len(kinds) + 1):
        engine = Faulty(times(1, "clinic b", round, "reply silent"))
        assert [bits(one, traffic=False) for one in whole_session(engine, deadline=0.01, retries=30)] == expected
        assert [order.round for owner, order, _ in engine.orders if owner == "clinic b"].count(round) == 2


@pytest.mark.parametrize("policy", [{"retries": 1}, {"on_failure": "stop"}, {"deadline": 0.005, "retries": 1}], ids=str)
def test_an_owner_that_stays_away_ends_whatever_is_going_on(policy: dict[str, Any]) -> None:
    kinds, _ = exchanges()
    what = "order silent" if "deadline" in policy else "order lost"
    attempts = 1 if "on_failure" in policy else 2
    ended = []
    for round in range(1, len(kinds) + 1):
        engine = Faulty(times(100, "clinic b", round, what))
        ended.append([])
        with suppress(OwnerLost):
            ended[-1] = [found.status for found in whole_session(engine, **policy)]
        assert [order.round for owner, order, _ in engine.orders if owner == "clinic b"].count(round) == attempts
    assert ended[0] == []  # nothing is known of the problem yet
    assert ended[-1] == []  # asked by hand
    assert all("client_lost" in statuses for statuses in ended[1:-1])


def times(number: int, owner: str, round: int, what: str) -> Any:
    """The first orders of this round to this owner, so many of them, meet this fault."""
    left = [what] * number

    def fault(name: str, order: Order) -> str:
        return left.pop() if left and (name, order.round) == (owner, round) else ""

    return fault


@pytest.mark.parametrize("attempts", [1, 2])
def test_the_policy_holds_where_a_resumed_run_asks_about_the_data(attempts: int, tmp_path: Path) -> None:
    expected = solve("interior-point")
    solve("interior-point", checkpoint=tmp_path, callbacks=[stop_at(5)])
    asked: list[Order] = []

    def fault(owner: str, order: Order) -> str:
        if owner != "clinic b" or not order.look:
            return ""
        asked.append(order)
        return "order lost" if len(asked) <= attempts else ""

    found = solve("interior-point", checkpoint=tmp_path, resume=True, engine=Faulty(fault), retries=1)
    assert len(asked) == 2
    if attempts == 1:
        assert bits(found) == bits(expected)
    else:
        assert found.status == "client_lost"
        assert found.reason.startswith("clinic b: ")
        assert bits(solve("interior-point", checkpoint=tmp_path, resume=True)) == bits(expected)


# ------------------------------------------------------------------------------------------------- stopped and resumed


@EVERYWHERE
def test_without_a_checkpoint_an_interrupted_session_goes_on(engine: str) -> None:
    with Session(ENGINES[engine]()) as session:
        first = solve("accelerated", session=session, callbacks=[stop_at(8)])
        assert first.status == "interrupted"
        assert not session.looking
        assert same(two_solves(session))


def test_and_so_does_one_whose_owner_was_away() -> None:
    away = [True]
    engine = Faulty(lambda owner, order: "order lost" if away and owner == "clinic b" and order.round > 4 else "")
    with Session(engine, retries=0) as session:
        assert solve("accelerated", session=session).status == "client_lost"
        away.clear()
        assert same(two_solves(session))


def stopped_session(folder: Path, engine: Any, at: int, **options: Any) -> list[Solution]:
    """Two solves, stopped after so many exchanges of the second."""
    with Session(engine, checkpoint=folder, **options) as session:
        found = [solve("interior-point", session=session)]
        found.append(solve("accelerated", moved(), session=session, callbacks=[stop_at(at)]))
        assert session.looking == (found[1].status == "interrupted")
    return found


@pytest.mark.parametrize("secure", [False, True], ids=["open", "masked"])
@pytest.mark.parametrize("at", slow_but([1, 7, 1000], 7))
@EVERYWHERE
def test_a_session_is_resumed_in_its_second_solve(engine: str, at: int, secure: bool, tmp_path: Path) -> None:
    if secure:
        pytest.importorskip("cryptography")
    with Session(ENGINES[engine](), secure_sum=secure) as session:
        expected = two_solves(session)
    first = stopped_session(tmp_path, ENGINES[engine](), at, secure_sum=secure)
    assert [one.status for one in first] == ["solved", "solved" if at == 1000 else "interrupted"]
    watched = Faulty() if engine == "sequence" else ENGINES[engine]()
    with Session(watched, checkpoint=tmp_path, resume=True, secure_sum=secure) as session:
        again = two_solves(session)
    assert [bits(one) for one in again] == [bits(one) for one in expected]
    if isinstance(watched, Faulty):
        worked = [order.round for _, order, _ in watched.orders if not order.look]
        assert min(worked, default=10**6) > again[0].rounds  # nothing of the first solve is done again


@EVERYWHERE
def test_a_session_stopped_in_its_first_solve_is_resumed_with_both(engine: str, tmp_path: Path) -> None:
    with Session(ENGINES[engine](), checkpoint=tmp_path) as session:
        assert solve("interior-point", session=session, callbacks=[stop_at(5)]).status == "interrupted"
    with Session(ENGINES[engine](), checkpoint=tmp_path, resume=True) as session:
        assert same(two_solves(session))
    with Session(ENGINES[engine](), checkpoint=tmp_path, resume=True) as session:
        assert same(two_solves(session))


@pytest.mark.parametrize("at", [7, 1000], ids=["stopped", "finished"])
@pytest.mark.parametrize("which", slow_but([0, 1], 1), ids=["first", "second"])
@EVERYWHERE
def test_data_replaced_in_either_solve_are_noticed(engine: str, which: int, at: int, tmp_path: Path) -> None:
    stopped_session(tmp_path, ENGINES[engine](), at)
    shifts = [0.0, 0.5]
    shifts[which] += 1e-6
    problems = [clinics(shift) for shift in shifts]
    with (
        raises_code("FP-CHECKPOINT-001", "clinic b: "),
        Session(ENGINES[engine](), checkpoint=tmp_path, resume=True) as session,
    ):
        for method, problem in zip(("interior-point", "accelerated"), problems, strict=True):
            solve(method, problem, session=session)
    with Session(ENGINES[engine](), checkpoint=tmp_path, resume=True) as session:  # nothing was spoiled
        assert same(two_solves(session))


@pytest.mark.parametrize("how", ["interrupted", "lost", "failed"])
def test_a_kept_session_that_ended_early_is_resumed_and_not_reused(how: str, tmp_path: Path) -> None:
    def fault(owner: str, order: Order) -> str:
        return gone("clinic b", 4)(owner, order) if how == "lost" else ""

    engine = Faulty(fault)
    with Session(engine, checkpoint=tmp_path, retries=0) as session:
        if how == "failed":
            session.open({share.label: share for share in clinics().shares})
            with pytest.raises(OwnerError):
                session.ask(count, Count())  # a clinic's share is no number
        else:
            first = solve("interior-point", session=session, callbacks=[stop_at(6)])
            assert first.status == ("interrupted" if how == "interrupted" else "client_lost")
        sent = len(engine.orders)
        with pytest.raises(OptionError, match="resume=True") as caught:
            solve("accelerated", session=session)
        assert str(tmp_path) in str(caught.value)
        assert len(engine.orders) == sent
    if how != "failed":
        assert bits(solve("interior-point", checkpoint=tmp_path, resume=True)) == bits(solve("interior-point"))


# --------------------------------------------------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    "setting",
    [
        {"engine": "threads"},
        {"secure_sum": True},
        {"secure_sum": False},
        {"on_failure": "stop"},
        {"deadline": 1.0},
        {"retries": 0},
        {"max_staleness": 1},
        {"checkpoint": "folder"},
        {"checkpoint_every": 2},
        {"resume": True},
        {"record": "file"},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_settings_of_a_session_are_not_given_beside_it(setting: dict[str, Any]) -> None:
    """Not even secure_sum=True may be passed over in silence."""
    engine = Faulty()
    with Session(engine) as session:
        with pytest.raises(OptionError, match=f"^{next(iter(setting))}: "):
            solve("accelerated", session=session, **setting)
        assert engine.fleets == 0


def test_a_session_that_is_not_open_cannot_be_asked() -> None:
    session = Session()
    for use in (
        lambda: session.ask(count, Count()),
        lambda: session.owners,
        session.secure,
        lambda: session.pose(None),
    ):
        with pytest.raises(OptionError):
            use()
    assert session.ledger.read() == Communication(0, {})


def test_a_closed_session_cannot_be_asked_nor_opened() -> None:
    with Session().open({"a": 1.0, "b": 10.0}) as session:
        ask(session)
    session.close()  # twice does no harm
    assert session.ledger.read().rounds == 1
    for use in (lambda: ask(session), lambda: session.open({"a": 1.0, "b": 10.0})):
        with pytest.raises(OptionError):
            use()


@dataclass
class Closing(Faulty):
    """Notes when its fleet is closed."""

    closed: int = 0

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        fleet = super().open(shares, folder)
        fleet.close = self.note  # type: ignore[method-assign]
        return fleet

    def note(self) -> None:
        self.closed += 1


def test_owners_are_let_go_once_also_when_the_last_write_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Closing()
    session = Session(engine, checkpoint=tmp_path).open({"a": 1.0, "b": 10.0})
    ask(session)

    def full(file: int) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="no space left"):
            session.close()
    assert engine.closed == 1
    session.close()
    assert engine.closed == 1
