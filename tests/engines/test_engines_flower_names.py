"""Names, restarts and failures of the Flower fleet on a grid in memory, whose sites run the real client app."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from counting import count
from raising import raises_code
from site_files import write_sites

import fedpact as fp
from fedpact.errors import CODES, DataError, OptionError
from fedpact.federation import Order, Site
from fedpact.federation.failure import Failure
from fedpact.federation.protocol import PROTOCOL
from fedpact.federation.wire import loads, to_tree
from fedpact.tasks import NeymanPearson

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from flower_grid import Grid, Node, echo, impatient
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from fedpact.engines.flower import engine as flower
from fedpact.engines.flower import site as flower_site

#: Seconds within which what is waited for happens, also on a busy machine.
WAIT = 600.0
#: The code of an order that cannot be brought to its site; the message says why.
UNREACHABLE = "FP-LOST-340"


@pytest.fixture(autouse=True)
def _impatient() -> Iterator[None]:
    with impatient():
        yield


@contextmanager
def opened(grid: Grid, *owners: str) -> Iterator[Callable[[str, bytes], Future[bytes]]]:
    """What sends an order through a fleet of these owners."""
    fleet: Any = flower.Flower(grid, patience=WAIT).open(dict.fromkeys(owners))  # type: ignore[arg-type]
    try:
        yield fleet.send
    finally:
        fleet.close()


def wait_for_order(grid: Grid, number: int = 1) -> None:
    """Until the SuperLink has got so many orders."""
    deadline = time.monotonic() + WAIT
    while [kind for _, kind in grid.got].count(flower.ORDER) < number:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_orders_reach_the_site_of_that_name_and_no_other() -> None:
    grid = Grid(Node.named("b"), Node.named("guest"), Node.named("a"))
    with opened(grid, "a", "b") as send:
        futures = [send("a", b"1"), send("b", b"2"), send("a", b"3")]
        assert [future.result(WAIT) for future in futures] == [b"a: 1", b"b: 2", b"a: 3"]
    assert [kind for name, kind in grid.got if name == "guest"] == [flower.HELLO]


def test_two_sites_of_one_name_are_an_error() -> None:
    with raises_code("FP-OPTION-342", "a: ", "[100, 101]"):
        flower.Flower(Grid(Node.named("a"), Node.named("a"))).open({"a": None})  # type: ignore[arg-type]


def test_a_missing_site_is_named_with_those_online() -> None:
    grid = Grid(Node.named("a"), Node.named(""), Node("late", None))
    with raises_code("FP-LOST-341", "c: ", "Online: 'a', and 2 without a name"):
        flower.Flower(grid, patience=0.2).open({"a": None, "c": None})  # type: ignore[arg-type]


def saying(**entries: Any) -> ClientApp:
    """A site that says this when it is greeted."""
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        return Message(RecordDict({flower.RECORD: ConfigRecord(entries)}), reply_to=message)

    return app


HELLO: dict[str, Any] = {"name": "a", "version": "9.9", "policy": "", "steps": []}


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ({**HELLO, "protocol": PROTOCOL + 1}, ("9.9", "upgrade fedpact at the coordinator")),
        ({**HELLO, "protocol": PROTOCOL - 1}, ("9.9", "upgrade fedpact at a")),
        ({"name": "a", "version": "0.2.0"}, ("0.2.0", "protocol 0", "upgrade fedpact at a")),
    ],
    ids=["newer", "older", "oldest"],
)
def test_a_site_of_another_protocol_is_refused_with_who_must_upgrade(
    said: dict[str, Any], facts: tuple[str, ...]
) -> None:
    with raises_code("FP-OPTION-660", "a: ", *facts):
        flower.Flower(Grid(Node("a", saying(**said)))).open({"a": None})  # type: ignore[arg-type]


def test_a_site_of_another_version_that_speaks_the_same_protocol_takes_part() -> None:
    grid = Grid(Node("a", saying(**HELLO, protocol=PROTOCOL)), Node.named("b"))
    with opened(grid, "a", "b") as send:
        assert send("b", b"1").result(WAIT) == b"b: 1"


def test_a_method_that_a_site_lacks_is_refused_before_anything_is_asked() -> None:
    grid = Grid(Node("a", saying(**HELLO, protocol=PROTOCOL)), Node.named("b"))
    task = NeymanPearson(bound=0.3, label="ill", columns=("age",), owners=2)
    refused = raises_code("FP-OPTION-661", "a: ", "interior_point:", "'interior-point'")
    with fp.Session(flower.Flower(grid, patience=WAIT)) as session, refused:  # type: ignore[arg-type]
        fp.fit(task, {"a": None, "b": None}, session, method="interior-point")
    assert {kind for _, kind in grid.got} == {flower.HELLO}


def test_a_site_tells_the_digest_of_its_policy_and_none_when_it_cannot_be_read() -> None:
    def unreadable(config: dict[str, Any]) -> str:
        raise OSError("site.toml of hospital a")

    for policy_digest, told in ((lambda config: f"digest of {config['name']}", "digest of a"), (unreadable, "")):
        app = flower.client_app(echo("a"), policy_digest)
        message = Message(RecordDict(), 7, flower.HELLO)
        said = flower.read_hello(app(message, Context(1, 7, {"name": "a"}, RecordDict(), {})))
        assert (said.name, said.protocol, said.policy) == ("a", PROTOCOL, told)
        assert "fedpact.federation.secure_sum:offer" in said.steps


def test_an_app_that_is_not_fedpacts_says_no_name() -> None:
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        return Message(RecordDict({"other": ConfigRecord({"name": "a"})}), reply_to=message)

    with raises_code("FP-LOST-341", "a: "):
        flower.Flower(Grid(Node("a", app)), patience=0.1).open({"a": None})  # type: ignore[arg-type]


def test_a_site_that_comes_back_as_another_node_is_found() -> None:
    grid = Grid(Node.named("a"))
    with opened(grid, "a") as send:
        assert send("a", b"1").result(WAIT) == b"a: 1"
        del grid.nodes[100]
        for _ in range(2):  # at the second order, the fleet has looked who is online
            with raises_code(UNREACHABLE, "a: "):
                send("a", b"2").result(WAIT)
        grid.nodes[200] = Node.named("a")
        assert send("a", b"3").result(WAIT) == b"a: 3"


def test_a_node_lost_under_way_fails_the_order() -> None:
    grid = Grid(Node.named("a"))
    with opened(grid, "a") as send:
        grid.nodes[100] = replace(grid.nodes[100], app=None)
        future = send("a", b"1")
        wait_for_order(grid)
        assert not future.done()
        del grid.nodes[100]
        with raises_code(UNREACHABLE, "a: Node Unavailable", "Flower's error 5"):
            future.result(WAIT)


def test_a_restart_under_way_fails_the_order_and_the_next_one_arrives() -> None:
    grid = Grid(Node.named("a"))
    with opened(grid, "a") as send:
        app = grid.nodes[100].app
        grid.nodes[100] = replace(grid.nodes[100], app=None)  # takes the order, and dies
        future = send("a", b"1")
        wait_for_order(grid)
        assert not future.done()
        grid.nodes[100] = Node("a", app, "second")
        with raises_code(UNREACHABLE, "a: was restarted"):
            future.result(WAIT)
        assert send("a", b"2").result(WAIT) == b"a: 2"


def test_nobody_takes_over_a_name_in_the_middle_of_a_run() -> None:
    grid = Grid(Node.named("a"))
    with opened(grid, "a") as send:
        grid.nodes[200] = Node("a", flower.client_app(echo("impostor")))
        deadline = time.monotonic() + WAIT
        while grid.got.count(("a", flower.HELLO)) < 2 and time.monotonic() < deadline:
            assert send("a", b"1").result(WAIT) == b"a: 1"
        assert grid.got.count(("a", flower.HELLO)) == 2  # the newcomer was asked for its name
        for _ in range(5):
            assert send("a", b"2").result(WAIT) == b"a: 2"


def test_a_failing_superlink_fails_the_order_and_not_the_fleet() -> None:
    grid = Grid(Node.named("a"))
    with opened(grid, "a") as send:
        grid.broken = True
        with raises_code(UNREACHABLE, "a: ConnectionError: no SuperLink"):
            send("a", b"1").result(WAIT)
        grid.broken = False
        assert send("a", b"2").result(WAIT) == b"a: 2"


def test_a_reply_without_data_is_a_lost_owner() -> None:
    app = flower.client_app(echo("a"))
    app._registered_funcs["query.order"] = lambda message, context: Message(RecordDict(), reply_to=message)
    with opened(Grid(Node("a", app)), "a") as send, raises_code(UNREACHABLE, "a: sent "):
        send("a", b"1").result(WAIT)


def test_closing_fails_what_is_under_way_and_what_comes_later() -> None:
    grid = Grid(Node.named("a"))
    with opened(grid, "a") as send:
        grid.nodes[100] = replace(grid.nodes[100], app=None)
        future = send("a", b"1")
    with raises_code(UNREACHABLE, "a: the fleet was closed"):
        future.result(WAIT)
    with raises_code(UNREACHABLE, "a: the fleet is closed"):
        send("a", b"2").result(WAIT)


def test_patience_must_be_positive() -> None:
    with raises_code("FP-OPTION-341", "", "patience=0"):
        flower.Flower(Grid(), patience=0)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Weight:
    """A task: what every site counts times."""

    weight: float

    def stated(self) -> dict[str, Any]:
        return {"weight": self.weight}


def weighing(config: dict[str, Any]) -> Callable[[bytes], bytes]:
    """A site that counts, and builds its share from the task."""
    own = {"a": 1.0, "b": 10.0}[config["name"]]
    return Site(config["name"], lambda task: own * task["weight"]).handle


def test_a_session_asks_sites_that_build_their_share_from_the_task_it_poses() -> None:
    grid = Grid(*(Node(name, flower.client_app(weighing)) for name in "ab"))
    engine = flower.Flower(grid, patience=WAIT)  # type: ignore[arg-type]
    with fp.Session(engine, deadline=WAIT).open({"a": None, "b": None}) as session:
        assert session.networked
        for weight, value, total in ((2.0, 22.0, 1.0), (3.0, 66.0, 2.0)):
            session.pose(Weight(weight))
            answers = session.ask(count, Order())
            assert answers.total.value == value
            assert [answer.total for answer in answers] == [total] * 2  # sites keep their memory
        session.open({"a": None, "b": None})
        with pytest.raises(OptionError):
            session.open({"a": None, "b": 5.0})
        traffic = session.ledger.read()
        assert grid.got.count(("a", flower.ORDER)) == grid.got.count(("b", flower.ORDER)) == 2
    assert (traffic.rounds, traffic.messages) == (2, 8)
    assert grid.got.count(("a", flower.ORDER)) == grid.got.count(("b", flower.ORDER)) == 3  # the last: it has ended


def test_the_deadline_of_a_session_holds_for_sites_that_are_silent() -> None:
    grid = Grid(*(Node(name, flower.client_app(weighing)) for name in "ab"))
    engine = flower.Flower(grid, patience=WAIT)  # type: ignore[arg-type]
    with fp.Session(engine, deadline=0.5, retries=1).open({"a": None, "b": None}) as session:
        session.pose(Weight(1.0))
        grid.nodes[101] = replace(grid.nodes[101], app=None)
        with raises_code("FP-LOST-303", "b: ", "0.5 s"):
            session.ask(count, Order(), ["b"])
        assert session.ledger.read().owners["b"].messages_down == 2


class SuperLink:
    """Flower's connection as a site sees it: messages to answer, then Ctrl-C."""

    def __init__(self, *events: bytes | Exception) -> None:
        self._events = list(events)
        self._parts: dict[str, bytes] = {}
        self.replies: list[Message] = []

    def connection(self) -> flower_site.Connection:
        return flower_site.Connection(
            7, self.receive, self.send, print, print, lambda run, part: self._parts[part], print, lambda run, key: None
        )

    def receive(self) -> tuple[Message, Any] | None:
        if not self._events:
            raise KeyboardInterrupt
        event = self._events.pop(0)
        if isinstance(event, Exception):
            raise event
        if not event:
            return None
        message = Message(RecordDict({flower.RECORD: ConfigRecord({"data": event})}), 7, flower.ORDER)
        self._parts |= {key: part.deflate() for key, part in get_all_nested_objects(message).items()}
        return message, get_object_tree(message)

    def send(self, reply: Message, tree: Any, seconds: float) -> tuple[set[str], str]:
        self.replies.append(reply)
        return set(), "session"


def failing(config: dict[str, Any]) -> Callable[[bytes], bytes]:
    raise FileNotFoundError("rows.csv")


def test_a_site_goes_on_after_a_message_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_site, "LONGEST", 0.01)
    superlink = SuperLink(RuntimeError("half a message"), b"", flower_site.RunNotRunningException(), b"1", b"2")
    with pytest.raises(KeyboardInterrupt):
        flower_site.serve(flower.client_app(echo("a")), {"name": "a"}, superlink.connection())
    assert [reply.content[flower.RECORD]["data"] for reply in superlink.replies] == [b"a: 1", b"a: 2"]


def raising(config: dict[str, Any]) -> Callable[[bytes], bytes]:
    def handle(data: bytes) -> bytes:
        raise ValueError("column 'name' holds 'Ada Lovelace' in rows.csv")

    return handle


def test_what_a_sites_app_raises_is_logged_and_told_as_a_code(caplog: pytest.LogCaptureFixture) -> None:
    for make_handler in (failing, raising):
        superlink = SuperLink(b"1")
        with pytest.raises(KeyboardInterrupt):
            flower_site.serve(flower.client_app(make_handler), {"name": "a"}, superlink.connection())
        (reply,) = superlink.replies
        data = reply.content[flower.RECORD]["data"]
        assert loads(data)["error"] == to_tree(Failure("FP-OWNER-001"))
        assert all(b"rows.csv" not in part.deflate() for part in get_all_nested_objects(reply).values())
    assert "FileNotFoundError: rows.csv" in caplog.text
    assert "ValueError: column 'name' holds 'Ada Lovelace' in rows.csv" in caplog.text


def test_what_another_app_raises_is_told_as_a_code(caplog: pytest.LogCaptureFixture) -> None:
    app = ClientApp()

    @app.query("order")
    def order(message: Message, context: Context) -> Message:
        raise KeyError("Ada Lovelace")

    superlink = SuperLink(b"1")
    with pytest.raises(KeyboardInterrupt):
        flower_site.serve(app, {"name": "a"}, superlink.connection())
    assert [reply.error.reason for reply in superlink.replies] == [f"FP-OWNER-001: {CODES['FP-OWNER-001']}"]
    assert "Ada Lovelace" in caplog.text


def test_a_job_that_asks_a_site_for_a_name_gets_a_code(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The app that sites run, from the coordinator's solve to its error; the policy allows the column."""
    from fedpact.engines.flower.app import client_app

    (tmp_path / "rows.csv").write_text("patient,ill\nAda Lovelace,1\nGeorge Boole,0\n")
    sites = write_sites(tmp_path, {"a": tmp_path / "rows.csv"}, features=["patient"], label="ill")
    job = NeymanPearson(bound=0.3, label="ill", columns=("patient",), owners=1)
    grid = Grid(Node("a", client_app, config=sites.config("a")))
    engine = flower.Flower(grid, patience=5.0)  # type: ignore[arg-type]
    with fp.Session(engine, identity=sites.key, roster=sites.roster) as session, pytest.raises(DataError) as caught:
        fp.solve(fp.RemoteProblem({"a": None}, task=job), session=session)
    assert caught.value.code == "FP-DATA-003"
    assert str(caught.value).startswith("a: FP-DATA-003: ")
    assert "(column 'patient', a few rows)" in str(caught.value)
    assert "column 'patient' holds 'Ada Lovelace' in line 2" in caplog.text


def test_a_column_that_the_policy_does_not_list_is_not_even_read(tmp_path: Path) -> None:
    from fedpact.engines.flower.app import client_app

    sites = write_sites(tmp_path, {"a": tmp_path / "absent.csv"}, features=["age"], label="ill")
    job = NeymanPearson(bound=0.3, label="ill", columns=("patient",), owners=1)
    engine = flower.Flower(Grid(Node("a", client_app, config=sites.config("a"))), patience=5.0)  # type: ignore[arg-type]
    session = fp.Session(engine, identity=sites.key, roster=sites.roster)
    with session, raises_code("FP-REFUSED-021", "a: "):
        fp.solve(fp.RemoteProblem({"a": None}, task=job), session=session)


def test_a_site_without_a_policy_answers_nothing(caplog: pytest.LogCaptureFixture) -> None:
    from fedpact.engines.flower.app import client_app

    engine = flower.Flower(Grid(Node("a", client_app)), patience=5.0)  # type: ignore[arg-type]
    with raises_code("FP-OPTION-010", "a: FP-OPTION-010: "):
        fp.solve(fp.RemoteProblem({"a": None}), engine=engine)
    assert "--node-config has no policy" in caplog.text


def test_the_command_serves_the_app_it_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    superlink = SuperLink(b"1")
    connected: list[Any] = []

    @contextmanager
    def connect(*arguments: Any) -> Iterator[flower_site.Connection]:
        connected.append(arguments)
        yield superlink.connection()

    monkeypatch.setattr(flower_site, "http_request_response", connect)
    monkeypatch.setattr(flower_site.signal, "signal", lambda *_: None)
    monkeypatch.syspath_prepend(Path(__file__).parent)
    config = f'name="a b" state-path="{tmp_path / "state"}"'
    arguments = ["--superlink", "host:1", "--insecure", "--node-config", config, "--app", "flower_echo:client_app"]
    assert flower_site.main(arguments) == 1
    assert connected == [("host:1", True, None, None)]
    assert (tmp_path / "state" / "flower-node").read_text() == "7"
    assert len(superlink.replies) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--node-config", "x=1"], "this site has no name"),
        (["--node-config", "name='a'", "--app", "json:loads"], "json:loads: "),
        (["--node-config", "name='a'", "--auth-supernode-private-key", "absent"], "No such file"),
    ],
)
def test_the_command_says_what_is_wrong_with_its_options(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], reason: str
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    with pytest.raises(SystemExit, match=reason):
        flower_site.main(["--superlink", "host:1", "--app", "flower_echo:client_app", *arguments])


def test_with_an_unknown_flwr_the_stock_supernode_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(flower_site, "KNOWN", False)
    monkeypatch.setattr(flower_site.os, "execv", lambda path, command: started.append(command))
    monkeypatch.setenv("PATH", "")
    options = ["--superlink", "host:1", "--root-certificates", "ca.crt", "--auth-supernode-private-key", "key"]
    flower_site.main([*options, "--node-config", 'name="a"'])
    (command,) = started
    assert command[0] == "flower-supernode"
    given = dict(zip(command[5::2], command[6::2], strict=True))
    assert given == {
        "--superlink": "host:1",
        "--root-certificates": "ca.crt",
        "--auth-supernode-private-key": "key",
        "--node-config": 'name="a"',
    }
