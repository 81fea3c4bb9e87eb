"""Owners as actors of a Ray cluster: one organisation's machines, or many simulated owners on one.

An actor hosts one owner, or several when there are more owners than processors. Shares are built inside the actor. Ray
restarts an actor that died; its owners then go on from their memory on disk.
"""

from __future__ import annotations

import importlib
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedpact.errors import OptionError, OwnerError, OwnerLost
from fedpact.federation import Fleet, RemoteFleet, Site, named

#: One thread for linear algebra in each actor: they share the processors, and results must not depend on how many.
ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
#: Seconds in which something must answer at the address of a cluster; Ray itself would try for minutes.
PATIENCE = 5.0


@dataclass(frozen=True)
class Ray:
    """Where the cluster is, and how owners spread over it. A process that is connected to Ray already stays so.

    address: of a running cluster ("auto" finds one on this machine); None starts Ray here and stops it at the end
    actors:  processes; by default one per owner up to the number of processors
    folder:  where owners keep their memory, on a disk all nodes see; by default in the checkpoint's folder, or in a
             temporary one when Ray runs here
    """

    address: str | None = None
    actors: int | None = None
    folder: str | Path | None = None

    def __post_init__(self) -> None:
        if self.actors is not None and (not isinstance(self.actors, int) or self.actors < 1):
            raise OptionError(f"Ray(actors={self.actors!r}): give a whole number of actors, at least one")

    @contextmanager
    def session(self) -> Iterator[_Session]:
        """The same engine for several fleets one after the other: connected once, and with the actors of the first."""
        with _connected(self.address):
            session = _Session(self)
            try:
                yield session
            finally:
                session.close()

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        """A fleet over the shares (or functions that build them), by owner name; its actors are ready."""
        with ExitStack() as stack:
            fleet = stack.enter_context(self.session()).open(shares, folder)
            fleet.closing.push(stack.pop_all())
        return fleet


class _Session:
    """Ray, and the actors that were started on it."""

    def __init__(self, engine: Ray) -> None:
        self._engine, self._ray = engine, _ray()
        self._hosts: list[Any] = []

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> _RayFleet:
        number = self._engine.actors or max(int(self._ray.cluster_resources().get("CPU", 1)), 1)
        self._start(min(len(shares), number))
        where = Path(self._engine.folder) if self._engine.folder is not None else folder
        return _RayFleet(self._ray, self._hosts, shares, where, self._engine.address is None)

    def _start(self, number: int) -> None:
        # With retries allowed, an order to an actor that is being restarted waits for it; `_send` then asks for none.
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 1, "runtime_env": {"env_vars": ENVIRONMENT}}
        host = self._ray.remote(**options)(_Host)
        self._hosts += [host.remote() for _ in range(number - len(self._hosts))]
        try:
            self._ray.get([host.process.remote() for host in self._hosts])  # a deadline is for work, not for start-up
        except self._ray.exceptions.RayActorError as error:
            raise OptionError(f"an actor for the owners cannot start on Ray: {_last_line(error)}") from error

    def close(self) -> None:
        for host in self._hosts:
            self._ray.kill(host)


class _RayFleet(RemoteFleet):
    def __init__(
        self, ray: Any, hosts: Sequence[Any], shares: Mapping[str, object], folder: Path | None, here: bool
    ) -> None:
        super().__init__(tuple(shares))
        self._ray, self._hosts, self._name = ray, tuple(hosts), uuid.uuid4().hex
        self.closing = ExitStack()
        if folder is None and here:
            folder = Path(self.closing.enter_context(tempfile.TemporaryDirectory(prefix="fedpact-owners-")))
        self._folder = None if folder is None else str(folder.absolute())
        # Kept here, so that a restarted actor can fetch them again.
        self._sources = {}
        for name, share in shares.items():
            with named(name, "sending its share to Ray"):
                self._sources[name] = ray.put(share)
        self._host_of = {name: self._hosts[i % len(hosts)] for i, name in enumerate(shares)}

    def _send(self, owner: str, data: bytes) -> Future[bytes]:
        answered: Future[bytes] = Future()

        def receive(done: Future[bytes]) -> None:
            if (error := done.exception()) is None:
                answered.set_result(done.result())
            elif isinstance(error, self._ray.exceptions.RayTaskError):
                answered.set_exception(OwnerError(f"{owner}: its actor failed: {_last_line(error)}"))
            else:
                answered.set_exception(OwnerLost(f"{owner}: its process is gone ({type(error).__name__})"))

        handle = self._host_of[owner].handle.options(max_task_retries=0)  # the policy says what is sent again
        about = (self._name, owner, self._folder)
        handle.remote(about, data, [self._sources[owner]]).future().add_done_callback(receive)
        return answered

    def close(self) -> None:
        self.closing.close()


class _Host:
    """What runs in an actor's process."""

    def __init__(self) -> None:
        self._sites: dict[tuple[str, str, str | None], Site] = {}

    def handle(self, about: tuple[str, str, str | None], data: bytes, source: list[Any]) -> bytes:
        """about: fleet, owner and its folder; source: a reference to the share, in a list that keeps Ray from fetching
        it at every order."""
        fleet, owner, folder = about
        if about not in self._sites:
            self._sites = {key: site for key, site in self._sites.items() if key[0] == fleet}  # the others are closed
            memory = None if folder is None else Path(folder)
            # A cluster is one organisation: whoever runs the job may read the owners' errors.
            self._sites[about] = Site(owner, partial(_built, source[0]), memory, full_text=True)
        return self._sites[about].handle(data)

    def process(self) -> int:
        return os.getpid()


def _built(source: Any, job: dict[str, Any]) -> object:
    """The share, from Ray's store or from the function that was put there."""
    try:
        share = _ray().get(source)
    except Exception as error:
        raise OwnerError(
            f"its share cannot be read here ({_last_line(error)}); install what it needs on every node of the cluster"
        ) from error
    return share() if callable(share) else share


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """A process that is connected to Ray already stays so."""
    ray = _ray()
    started = not ray.is_initialized()
    if started:
        _connect(ray, address)
    try:
        yield
    finally:
        if started:
            ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    """Join the cluster there, or start one here. OptionError when that cannot be done."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:  # "local": whatever cluster Ray would find by itself is not to be joined
        ray.init(address="local", num_cpus=os.cpu_count(), include_dashboard=False, **quiet)
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdecimal():
            socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
        ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        raise OptionError(
            f"Ray(address={address!r}): cannot join a cluster there ({_last_line(error)}); check the address, and that "
            "Ray was started on its head node (ray start --head)"
        ) from error


def _last_line(error: BaseException) -> str:
    """Ray puts the reason behind a trace."""
    return str(error).strip().rpartition("\n")[2]


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise OptionError("engine 'ray' needs the package ray: pip install 'fedpact[ray]'") from error
