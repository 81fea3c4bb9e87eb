"""A Flower app whose sites hold any shares and whose coordinator passes orders on from the process of the tests.

Flower starts the coordinator in a process of its own. It opens the Flower engine there and brings the bytes of every
order that comes over a socket to their site, so that a test can run `fp.solve` itself and see it all.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedpact.engines.flower.engine import Flower
from fedpact.engines.flower.engine import client_app as make_client_app
from fedpact.engines.flower.engine import server_app as make_server_app
from fedpact.errors import FedpactError
from fedpact.federation import RemoteFleet, Site

#: Seconds in which a site that was just started is found, also on a machine that is busy.
PATIENCE = 180.0


@dataclass(frozen=True)
class Held:
    """The task of every order: where a site finds its share."""

    shares: Path

    def stated(self) -> dict[str, Any]:
        return {"shares": str(self.shares)}


class Relay(RemoteFleet):
    """The test's end: orders go over the socket, replies come back in any order."""

    networked = True

    def __init__(self, owners: tuple[str, ...], shares: Path, coordinator: Connection) -> None:
        self._held = Held(shares)
        super().__init__(owners)
        self._coordinator = coordinator
        self._sent: dict[int, Future[bytes]] = {}
        coordinator.send(("open", owners))
        opened = coordinator.recv()
        if isinstance(opened, Exception):
            raise opened
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def task(self) -> Held:  # type: ignore[override]
        return self._held

    @task.setter
    def task(self, task: object) -> None:
        """Whatever is posed, a site builds its share from its file."""

    def send(self, owner: str, data: bytes) -> Future[bytes]:
        future: Future[bytes] = Future()
        number = len(self._sent)
        self._sent[number] = future
        self._coordinator.send((number, owner, data))
        return future

    def _read(self) -> None:
        """Until the coordinator says that its fleet is closed."""
        while (message := self._coordinator.recv()) != "closed":
            number, reply = message
            if isinstance(reply, Exception):
                self._sent[number].set_exception(reply)
            else:
                self._sent[number].set_result(reply)

    def close(self) -> None:
        self._coordinator.send(("close", ()))
        self._reader.join()


def coordinate(grid: Grid, run_config: dict[str, Any]) -> None:
    """The coordinator's end: a fleet of the Flower engine, and whatever is asked of it."""
    address = ("127.0.0.1", int(run_config["port"]))
    with Client(address, authkey=str(run_config["secret"]).encode()) as test:
        lock = threading.Lock()
        fleet: Any = None

        def tell(message: object) -> None:
            with lock:
                test.send(message)

        def answer(number: int, done: Future[bytes]) -> None:
            tell((number, done.exception() or done.result()))

        while (message := test.recv()) is not None:
            if message[0] == "open":
                try:
                    fleet = Flower(grid, patience=PATIENCE).open(dict.fromkeys(message[1]))
                    tell("opened")
                except FedpactError as error:
                    tell(error)
            elif message[0] == "close":
                assert fleet is not None
                fleet.close()
                tell("closed")
            else:
                number, owner, data = message
                sent: Future[bytes] = fleet.send(owner, data)
                sent.add_done_callback(lambda done, number=number: answer(number, done))


def make_handler(node_config: dict[str, Any]) -> Callable[[bytes], bytes]:
    """A site takes its share from the file that the job names: the tests have one for every solve."""
    name = str(node_config["name"])

    def build(job: dict[str, Any]) -> object:
        source = pickle.loads(Path(job["shares"]).read_bytes())[name]
        return source() if callable(source) else source

    return Site(name, build, Path(str(node_config["state-path"]))).handle


client_app = make_client_app(make_handler)
server_app = make_server_app(coordinate)
