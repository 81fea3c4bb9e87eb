"""The transport on a real Flower deployment on the loopback interface: a SuperLink with TLS, sites with keys."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

import fedpact
from fedpact.engines.flower.submit import APP
from fedpact.errors import OwnerLost
from fedpact.federation.failure import Failure
from fedpact.federation.wire import loads, to_tree

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from flower_echo import SLEEPING

pytestmark = [pytest.mark.flower, pytest.mark.xdist_group("flower")]  # one deployment at a time

HERE = Path(__file__).parent
#: For the processes of a deployment: what makes Flower notice sooner who is gone.
QUICK = HERE / "quick_flower"
DEPLOYMENT = HERE.parents[1] / "examples" / "flower" / "deployment.py"
SITES = ("hospital 1", "hospital 2", "hospital 3")
#: Where those processes find it, this folder, and the fedpact that is tested here.
PYTHONPATH = os.pathsep.join(map(str, (HERE, QUICK, Path(fedpact.__file__).parents[1])))
#: A site's process starts, connects and says its name within this many seconds, also on a machine that is busy.
START = 600.0


def search_path(*folders: Path) -> str:
    """Where the processes of a deployment look for modules: these folders, and where this process looks."""
    return os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])


def load_deployment() -> Any:
    spec = importlib.util.spec_from_file_location("deployment", DEPLOYMENT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class Federation:
    """The deployment, and a coordinator under remote control."""

    def __init__(self, deployment: Any, coordinator: Connection) -> None:
        self.deployment = deployment
        self._coordinator = coordinator

    def start(self, site: str, **options: Any) -> None:
        memory = {"state-path": str(self.deployment.folder / "state" / site)}
        self.deployment.start_site(site, memory, client_app="flower_echo:client_app", **options)

    def open(self, *owners: str, patience: float = START) -> tuple[str, ...]:
        return tuple(self._do("open", owners, patience))

    def send(self, orders: dict[str, bytes]) -> dict[str, bytes | OwnerLost]:
        """One order per owner; each one's reply, or why there is none."""
        return dict(zip(orders, self._do("send", list(orders.items())), strict=True))

    def send_one(self, owner: str, data: bytes) -> bytes:
        reply = self.send({owner: data})[owner]
        if isinstance(reply, OwnerLost):
            raise reply
        return reply

    def begin(self, owner: str, data: bytes) -> None:
        """Send without waiting; `finish` waits."""
        self._do("begin", owner, data)

    def finish(self) -> bytes | OwnerLost:
        self._coordinator.send(("finish",))
        reply: bytes | OwnerLost = self._coordinator.recv()
        return reply

    def comes_back(self, owner: str) -> bytes:
        """The echo of a site that is being started."""
        deadline = time.monotonic() + START
        while True:
            try:
                return self.send_one(owner, b"back")
            except OwnerLost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def _do(self, *command: Any) -> Any:
        self._coordinator.send(command)
        result = self._coordinator.recv()
        if isinstance(result, Exception):
            raise result
        return result


def header(reply: bytes) -> dict[str, Any]:
    return dict(json.loads(reply.partition(b"\n")[0]))


def body(reply: bytes) -> bytes:
    return reply.partition(b"\n")[2]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Three sites and an opened fleet."""
    folder = tmp_path_factory.mktemp("flower")
    app = folder / "app"
    app.mkdir()
    about = APP.replace("fedpact.engines.flower.app:", "flower_echo:")
    (app / "pyproject.toml").write_text(about + 'port = 0\nsecret = ""\n')
    secret = secrets.token_hex(16)
    with (
        load_deployment().Deployment(folder, {"PYTHONPATH": search_path(HERE, QUICK)}) as deployment,
        Listener(("127.0.0.1", 0), authkey=secret.encode()) as door,
    ):
        deployment.start_superlink()
        for site in SITES:
            deployment.register(site)
        run = deployment.submit(app, {"port": door.address[1], "secret": secret})
        with door.accept() as coordinator:
            federation = Federation(deployment, coordinator)
            for site in SITES:
                federation.start(site)
            assert federation.open(*SITES) == SITES
            yield federation
            coordinator.send(None)
            deadline = time.monotonic() + START
            while (status := deployment.status(run)) == "running" and time.monotonic() < deadline:
                time.sleep(1)
            assert status == "finished:completed"


def test_the_transport_on_a_real_deployment(federation: Federation) -> None:
    """One test, so that processes which share the tests out among them do not start a deployment each."""
    for size in (0, 1, 800, 8_000_000):
        bytes_arrive_unchanged_at_the_owner_they_are_for(federation, size)
    a_site_is_one_process_that_makes_its_handler_once(federation)
    a_failure_at_the_site_is_told_as_a_code(federation)
    who_is_missing_is_said_with_who_is_there(federation)
    a_site_whose_key_is_not_registered_does_not_get_in(federation)
    flowers_own_supernode_runs_the_same_app(federation)
    a_site_restarted_in_the_middle_of_an_order_is_noticed_and_holds_up_nobody(federation)
    a_second_process_of_a_site_is_refused(federation)
    a_killed_site_is_lost_and_works_again_after_a_restart(federation)
    a_site_that_ends_in_good_order_is_missed_at_once(federation)


def bytes_arrive_unchanged_at_the_owner_they_are_for(federation: Federation, size: int) -> None:
    orders = {owner: np.random.default_rng(i).bytes(size) for i, owner in enumerate(SITES)}
    for owner, reply in federation.send(orders).items():
        assert isinstance(reply, bytes)
        assert header(reply)["names"] == [owner]
        assert body(reply) == orders[owner]


def a_site_is_one_process_that_makes_its_handler_once(federation: Federation) -> None:
    first, second = (header(federation.send_one(SITES[0], data)) for data in (b"one", b"two"))
    assert first == second
    assert first["names"] == [SITES[0]]


def a_failure_at_the_site_is_told_as_a_code(federation: Federation) -> None:
    reply = federation.send_one("hospital 2", b"fail")
    assert loads(reply)["error"] == to_tree(Failure("FP-OWNER-001"))
    assert "ValueError: column 'age' is missing" in federation.deployment.output("hospital 2")
    assert body(federation.send_one("hospital 2", b"again")) == b"again"


def who_is_missing_is_said_with_who_is_there(federation: Federation) -> None:
    with raises_code("FP-LOST-341", "hospital 7: ", "Online: 'hospital 1'", "'hospital 3'"):
        federation.open(*SITES, "hospital 7", patience=5)


def a_site_whose_key_is_not_registered_does_not_get_in(federation: Federation) -> None:
    federation.start("stranger")
    assert federation.deployment.wait_site("stranger", START) != 0
    assert "Failed to initialize the connection to the SuperLink" in federation.deployment.output("stranger")
    with raises_code("FP-LOST-341", "stranger: "):
        federation.open("stranger", patience=2)


def flowers_own_supernode_runs_the_same_app(federation: Federation) -> None:
    federation.deployment.register("clinic")
    federation.start("clinic", stock=True)
    try:
        assert federation.open("clinic") == ("clinic",)
        assert body(federation.send_one("clinic", b"stock")) == b"stock"
    finally:
        federation.deployment.stop_site("clinic")
        assert federation.open(*SITES) == SITES


def a_site_restarted_in_the_middle_of_an_order_is_noticed_and_holds_up_nobody(federation: Federation) -> None:
    federation.begin("hospital 1", b"sleep")
    deadline = time.monotonic() + START
    while SLEEPING not in federation.deployment.output("hospital 1"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for data in (b"meanwhile", b"the others", b"are not held up"):
        assert body(federation.send_one("hospital 2", data)) == data
    federation.deployment.kill_site("hospital 1")
    federation.start("hospital 1")  # at once: the SuperLink still takes the killed one for alive
    reply = federation.finish()  # for some milliseconds it is offline, which may be noticed too
    assert isinstance(reply, OwnerLost)
    assert any(reason in str(reply) for reason in ("hospital 1: was restarted", "hospital 1: Error: Node Unavailable"))
    assert body(federation.comes_back("hospital 1")) == b"back"


def a_second_process_of_a_site_is_refused(federation: Federation) -> None:
    memory = {"state-path": str(federation.deployment.folder / "state" / "hospital 1")}
    federation.deployment.start_site("twin", memory, client_app="flower_echo:client_app")
    assert federation.deployment.wait_site("twin", START) != 0
    assert "another process serves this site" in federation.deployment.output("twin")
    assert body(federation.send_one("hospital 1", b"the first")) == b"the first"


def a_killed_site_is_lost_and_works_again_after_a_restart(federation: Federation) -> None:
    before = header(federation.send_one("hospital 3", b""))
    federation.deployment.kill_site("hospital 3")
    with raises_code("FP-LOST-340", "hospital 3: ", "Node Unavailable"):
        federation.send_one("hospital 3", b"lost")  # Flower waits for two heartbeats
    with raises_code("FP-LOST-340", "hospital 3: its site is not online"):
        federation.send_one("hospital 3", b"lost")
    assert body(federation.send_one("hospital 1", b"others go on")) == b"others go on"
    federation.start("hospital 3")
    after = federation.comes_back("hospital 3")
    assert body(after) == b"back"
    assert header(after)["process"] != before["process"]


def a_site_that_ends_in_good_order_is_missed_at_once(federation: Federation) -> None:
    federation.deployment.stop_site("hospital 2")
    with raises_code("FP-LOST-340", "hospital 2: "):
        federation.send_one("hospital 2", b"gone")
    federation.start("hospital 2")
    assert body(federation.comes_back("hospital 2")) == b"back"
