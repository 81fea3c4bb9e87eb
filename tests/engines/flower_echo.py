"""A Flower app that a test drives by remote control: sites echo, the coordinator does what the test's socket says.

Flower starts the coordinator in a process of its own, so the test cannot call it; it listens on a port of the loopback
interface instead, and the server app connects to it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Client
from typing import Any

from flwr.serverapp import Grid

from fedpact.engines.flower.engine import Flower
from fedpact.engines.flower.engine import client_app as make_client_app
from fedpact.engines.flower.engine import server_app as make_server_app
from fedpact.errors import FedpactError

#: What a site prints when it has got an order that it will not answer.
SLEEPING = "sleeping"

made: list[str] = []


def make_handler(node_config: dict[str, Any]) -> Callable[[bytes], bytes]:
    made.append(node_config["name"])

    def handle(data: bytes) -> bytes:
        if data == b"fail":
            raise ValueError("column 'age' is missing")
        if data == b"sleep":
            print(SLEEPING, flush=True)
            time.sleep(600)  # until it is killed
        return json.dumps({"names": made, "process": os.getpid()}).encode() + b"\n" + data

    return handle


def coordinate(grid: Grid, run_config: dict[str, Any]) -> None:
    port, secret = int(run_config["port"]), str(run_config["secret"]).encode()
    with Client(("127.0.0.1", port), authkey=secret) as test:
        fleet: Any = None
        begun: Any = None
        while (command := test.recv()) is not None:
            try:
                if command[0] == "open":
                    _, owners, patience = command
                    opened = Flower(grid, patience=patience).open(dict.fromkeys(owners))
                    fleet, opened = opened, fleet
                    if opened is not None:
                        opened.close()
                    test.send(fleet.owners)
                elif command[0] == "begin":
                    begun = fleet.send(*command[1:])
                    test.send(None)
                elif command[0] == "finish":
                    test.send(begun.exception() or begun.result())
                else:
                    futures = [fleet.send(owner, data) for owner, data in command[1]]
                    test.send([future.exception() or future.result() for future in futures])
            except FedpactError as error:
                test.send(error)
        fleet.close()


client_app = make_client_app(make_handler)
server_app = make_server_app(coordinate)
