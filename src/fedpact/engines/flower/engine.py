"""Flower as the engine: orders and replies travel as bytes through a SuperLink, over TLS, between registered keys.

The coordinator is a Flower server app, which opens `Flower(grid)`. A site runs the client app that `client_app` makes,
in the process of `fedpact.engines.flower.site` or under Flower's own SuperNode. Install the extra `flower`.

Flower takes a message apart into objects, each a request of its own that costs the SuperLink 5 ms. One bytes value in
one ConfigRecord makes the fewest: three (an ArrayRecord makes five). Only protobuf limits a request, to 2 GiB; an
object has to arrive within 180 s of the one before.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedpact.engines.flower.logs import speak
from fedpact.engines.flower.site import pause, pull_sooner
from fedpact.errors import OptionError, OwnerLost
from fedpact.federation import Fleet, Hello, RemoteFleet, refuse

#: Message type of a greeting. Flower wants one of train, evaluate and query before the point.
HELLO = "query.hello"
#: Message type of an order.
ORDER = "query.order"
#: Name of the record that holds our values in a message of Flower.
RECORD = "fedpact"
#: Seconds between two looks at who is online, while a reply is awaited.
LOOK = 3.0
#: Seconds that sites which were greeted have to say a name, once all owners are found: it may be one of theirs.
GRACE = 3.0
#: Seconds to wait for another order to go with the first: one request for the round instead of one per owner.
GATHER = 0.01
#: Seconds to wait for the thread at the end: Flower's grid tries for ever when its SuperLink is gone.
CLOSE = 10.0

T = TypeVar("T", str, bytes, int, list[str])
log = logging.getLogger("fedpact.flower")


def client_app(
    make_handler: Callable[[dict[str, Any]], Callable[[bytes], bytes]],
    policy_digest: Callable[[dict[str, Any]], str] = lambda node_config: "",
) -> ClientApp:
    """A site's Flower app: the bytes of an order go to the handler, what it returns goes back.

    make_handler is called with the site's node config at the first order, once per process; policy_digest, with the
    same, gives the digest of the rules that the site enforces. Exceptions of all end here: Flower would send their
    text to the coordinator.
    """
    app = ClientApp()
    handlers: dict[tuple[Any, ...], Callable[[bytes], bytes]] = {}

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        config = dict(context.node_config)
        policy = ""
        try:
            policy = policy_digest(config)
        except Exception:
            log.exception("the policy of this site cannot be read")
        said = Hello.of(str(config.get("name", "")), policy)
        return Message(_content(**{**vars(said), "steps": sorted(said.steps)}), reply_to=message)

    @app.query("order")
    def order(message: Message, context: Context) -> Message:
        key = tuple(sorted(context.node_config.items()))
        try:
            if key not in handlers:
                handlers[key] = make_handler(dict(context.node_config))
            data = handlers[key](_value(message, "data", bytes))
        except Exception as error:
            data = refuse(error)
        return Message(_content(data=data), reply_to=message)

    return app


def server_app(coordinate: Callable[[Grid, dict[str, Any]], None]) -> ServerApp:
    """The coordinator's Flower app: it runs `coordinate(grid, run_config)`, and fedpact's log goes into the run's."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        speak()
        coordinate(grid, dict(context.run_config))

    return app


def greet_all(grid: Grid, seconds: float) -> list[dict[str, Any]]:
    """Name, version, protocol, policy and node of every site that is online; empty where it does not say them in time.

    seconds: that all of them have
    """
    pull_sooner()
    said = {node.node_id: Hello("", "") for node in grid.get_nodes()}
    waiting: dict[str, int] = {}
    if said:
        messages = [Message(_content(data=b""), node, HELLO) for node in said]
        waiting = dict(zip(grid.push_messages(messages), said, strict=True))
    until = time.monotonic() + seconds
    while waiting and time.monotonic() < until:
        for reply in grid.pull_messages(list(waiting)):
            node = waiting.pop(reply.metadata.reply_to_message_id)
            with suppress(KeyError, TypeError):  # it is not a site of fedpact
                if not reply.has_error():
                    said[node] = read_hello(reply)
        time.sleep(pause(0.0))
    return [
        {"name": one.name, "version": one.version, "protocol": one.protocol, "policy": one.policy, "node": str(node)}
        for node, one in said.items()
    ]


@dataclass(frozen=True)
class Flower:
    """The sites of a Flower federation.

    grid:     what Flower hands to a server app
    patience: seconds to wait for sites that are not online when the fleet is opened
    """

    grid: Grid
    patience: float = 120.0

    def __post_init__(self) -> None:
        if not self.patience > 0:
            raise OptionError(
                f"Flower(patience={self.patience!r}): give a positive number of seconds", code="FP-OPTION-341"
            )

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        """A fleet of the sites with these names; sites of other names are left alone.

        Only the names matter here: sites build their shares and keep their memory themselves. Raises OwnerLost when one
        is not online in time, saying who is, and OptionError when two have one name or one speaks another protocol.
        """
        return _FlowerFleet(self.grid, tuple(shares), self.patience)


@dataclass(eq=False)
class _Letter:
    """A message on its way to a node: an order to an owner, or a hello, which has no owner yet."""

    owner: str
    data: bytes
    node: int = 0
    activation: str = ""
    future: Future[bytes] = field(default_factory=Future)

    def fail(self, why: str) -> None:
        if not self.future.done():
            self.future.set_exception(OwnerLost(f"{self.owner}: {why}", code="FP-LOST-340"))


class _FlowerFleet(RemoteFleet):
    """One thread pushes the orders, pulls the replies of all owners, and watches who is online."""

    networked = True

    def __init__(self, grid: Grid, owners: Sequence[str], patience: float) -> None:
        super().__init__(owners)
        self._grid = grid
        self._inbox: queue.SimpleQueue[_Letter | None] = queue.SimpleQueue()
        self._under_way: dict[str, _Letter] = {}  # by message id
        self._online: dict[int, str] = {}  # by node id: when it was activated, which changes with a restart
        self._greeted: dict[int, str] = {}  # the same, as it was when the node was asked for its name
        self._names: dict[int, str] = {}
        self._address: dict[str, int] = {}
        self._looked = 0.0
        self._closed = False
        pull_sooner()
        self._find_owners(patience)
        self._thread = threading.Thread(target=self._work, name="flower fleet", daemon=True)
        self._thread.start()

    def send(self, owner: str, data: bytes) -> Future[bytes]:
        letter = _Letter(owner, data)
        letter.future.set_running_or_notify_cancel()  # a message under way cannot be called back
        if self._closed:
            letter.fail("the fleet is closed")
        else:
            self._inbox.put(letter)
        return letter.future

    def close(self) -> None:
        """Stop the thread; orders without a reply fail. The sites stay online for the next run."""
        self._closed = True
        self._inbox.put(None)
        self._thread.join(CLOSE)

    # ------------------------------------------------------------------------------------------------- names and nodes

    def _find_owners(self, patience: float) -> None:
        """Wait until each owner's site is online. OptionError when two have one name, OwnerLost after `patience`."""
        start = found = time.monotonic()
        while True:
            self._look()
            self._pull()
            for owner in self.owners:
                if len(nodes := self._nodes(owner)) > 1:
                    raise OptionError(
                        f"{owner}: {len(nodes)} sites have this name (nodes {nodes}); rename all but one",
                        code="FP-OPTION-342",
                    )
            now = time.monotonic()
            if missing := [owner for owner in self.owners if self._node(owner) is None]:
                found = now
                if now - start > patience:
                    raise OwnerLost(
                        f"{', '.join(missing)}: not online within {patience:g} s. {self._who_is_there()}",
                        code="FP-LOST-341",
                    )
            elif not self._under_way or now - found > GRACE:
                return
            time.sleep(pause(now - start))

    def _who_is_there(self) -> str:
        names = sorted(repr(self._names[node]) for node in self._online if self._names.get(node))
        silent = len(self._online) - len(names)
        text = f"Online: {', '.join(names) or 'nobody'}"
        if silent:
            text += f", and {silent} without a name (--node-config 'name=\"...\"')"
        return text

    def _nodes(self, owner: str) -> list[int]:
        return [node for node in self._online if self._names.get(node) == owner]

    def _node(self, owner: str) -> int | None:
        """The owner's node; once found, it is kept for as long as it is online, so nobody can take a name over."""
        nodes = self._nodes(owner)
        if self._address.get(owner) not in nodes and len(nodes) == 1:
            self._address[owner] = nodes[0]  # found, or a site without a key came back, as another node
        node = self._address.get(owner)
        return node if node in nodes else None

    def _look(self) -> None:
        """Update who is online, ask newcomers for their name, and fail orders that a restart wiped out."""
        self._looked = time.monotonic()
        self._online = {node.node_id: node.last_activated_at for node in self._grid.get_nodes()}
        new = {node: since for node, since in self._online.items() if self._greeted.get(node) != since}
        for node in new:
            self._names.pop(node, None)
        self._greeted |= new
        self._push([_Letter("", b"", node, since) for node, since in new.items()])
        for key, letter in list(self._under_way.items()):
            # Flower delivers a message once: the reply to one that a site took and forgot would be awaited forever.
            if self._online.get(letter.node, letter.activation) != letter.activation:
                self._under_way.pop(key).fail("was restarted while an order was under way")

    def _welcome(self, node: int, reply: Message) -> None:
        if reply.has_error():
            log.warning("node %s did not say its name: %s", node, reply.error.reason)
            return
        said = read_hello(reply)
        if said.name in self.owners:
            said.check()
            self.steps[said.name] = said.steps
        self._names[node] = said.name
        log.info("%s is online (node %s, fedpact %s)", said.name or "a site without a name", node, said.version)

    # ------------------------------------------------------------------------------------------------------ the thread

    def _work(self) -> None:
        waiting: list[_Letter] = []  # for sites that may be coming back
        last = time.monotonic()
        while True:
            busy = self._under_way or waiting
            letters, closing = self._collect(pause(time.monotonic() - last) if busy else None)
            waiting += letters
            if closing:
                break
            try:
                before = len(self._under_way)
                lost = any(self._node(letter.owner) is None for letter in letters)
                if lost or time.monotonic() - self._looked > LOOK:
                    self._look()
                waiting = self._dispatch(waiting)
                if not letters:  # nobody can have answered yet
                    self._pull()
                if letters or len(self._under_way) != before:
                    last = time.monotonic()
            except Exception as error:
                self._fail([*waiting, *self._under_way.values()], error)
                waiting = []
                self._under_way = {}
        self._fail([*waiting, *self._under_way.values()], "the fleet was closed")

    def _collect(self, timeout: float | None) -> tuple[list[_Letter], bool]:
        """What is to be sent, after at most this many seconds (None: as long as it takes); and is it the end?"""
        letters: list[_Letter] = []
        with suppress(queue.Empty):
            while (letter := self._inbox.get(timeout=GATHER if letters else timeout)) is not None:
                letters.append(letter)
            return letters, True
        return letters, False

    def _dispatch(self, letters: list[_Letter]) -> list[_Letter]:
        """Send what has an address. The rest waits while somebody has yet to say a name, and then fails."""
        greeting = any(not letter.owner for letter in self._under_way.values())
        ready = []
        waiting = []
        for letter in letters:
            node = self._node(letter.owner)
            if node is not None:
                letter.node = node
                letter.activation = self._online[node]
                ready.append(letter)
            elif greeting:
                waiting.append(letter)
            else:
                letter.fail(f"its site is not online, or two have its name. {self._who_is_there()}")
        self._push(ready)
        return waiting

    def _push(self, letters: list[_Letter]) -> None:
        if not letters:
            return
        kinds = {letter: ORDER if letter.owner else HELLO for letter in letters}
        messages = [Message(_content(data=letter.data), letter.node, kind) for letter, kind in kinds.items()]
        try:
            sent = dict(zip(letters, self._grid.push_messages(messages), strict=True))
        except Exception as error:
            self._fail(letters, error)
            return
        for letter, key in sent.items():
            if key:
                self._under_way[key] = letter
            else:
                self._online.pop(letter.node, None)  # so that the next order looks first
                letter.fail(f"the SuperLink knows no node {letter.node}")

    def _pull(self) -> None:
        """Fulfil what was answered. A reply that nobody waits for is not asked for, and expires in the SuperLink."""
        if not self._under_way:
            return
        for reply in self._grid.pull_messages(list(self._under_way)):
            letter = self._under_way.pop(reply.metadata.reply_to_message_id, None)
            if letter is None:
                continue
            try:
                if not letter.owner:
                    self._welcome(letter.node, reply)
                elif reply.has_error():
                    self._online.pop(letter.node, None)
                    letter.fail(f"{reply.error.reason} (Flower's error {reply.error.code})")
                else:
                    letter.future.set_result(_value(reply, "data", bytes))
            except (KeyError, TypeError) as error:
                letter.fail(f"sent what is not a reply of fedpact: {error}")

    def _fail(self, letters: Iterable[_Letter], why: str | Exception) -> None:
        if isinstance(why, Exception):
            why = f"{type(why).__name__}: {why}"
        for letter in letters:
            letter.fail(why)


def read_hello(reply: Message) -> Hello:
    """What a site said. KeyError or TypeError when it is no site of fedpact; one of 0.2 says only name and version."""
    content = reply.content.config_records[RECORD]
    said = Hello(_value(reply, "name", str), _value(reply, "version", str))
    if "protocol" not in content:
        return said
    steps = frozenset(map(str, _value(reply, "steps", list)))
    return replace(said, protocol=_value(reply, "protocol", int), steps=steps, policy=_value(reply, "policy", str))


def _content(**values: Any) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord(values)})


def _value(message: Message, key: str, kind: type[T]) -> T:
    value = message.content.config_records[RECORD][key]
    if not isinstance(value, kind):
        raise TypeError(f"{key} is of type {type(value).__name__}")
    return value
