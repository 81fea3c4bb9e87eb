"""Owners as actors of a Ray cluster: one organisation's machines, or many simulated owners on one.

An actor hosts one owner, or several when there are more owners than processors. Shares are built inside the actor. Ray
restarts an actor that died; its owners then go on from their memory on disk.
"""

from __future__ import annotations

import functools
import importlib
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import OptionError, OwnerError, OwnerLost, install
from fedpact.federation import Fleet, Order, RemoteFleet, Sealed, Site, Step, check_count, client_step, named
from fedpact.federation.identity import Identity
from fedpact.federation.owner import Sourced
from fedpact.federation.remote import EVERYONE
from fedpact.federation.secure_sum import Peers
from fedpact.federation.wire import is_ours, name_of, spell_out
from fedpact.types import Buffer

#: One thread for linear algebra in each actor: they share the processors, and results must not depend on how many.
ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
#: Bytes of a message that travels in the call itself, rather than through Ray's store.
SHORT = 100_000
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
        if self.actors is not None:
            check_count("actors", self.actors)

    @contextmanager
    def session(self) -> Iterator[_Session]:
        """The same engine for several fleets one after the other: connected once, and with the actors of the first."""
        with _connection(self.address):
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
        self._engine = engine
        self._ray = _ray()
        self._hosts: list[Any] = []

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> _RayFleet:
        number = self._engine.actors or max(int(self._ray.cluster_resources().get("CPU", 1)), 1)
        self._start(min(len(shares), number))
        if self._engine.folder is not None:
            folder = Path(self._engine.folder)
        return _RayFleet(self._ray, self._hosts, shares, folder, self._engine.address is None)

    def _start(self, number: int) -> None:
        # With retries allowed, an order to an actor that is being restarted waits for it; `_send` then asks for none.
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 1, "runtime_env": {"env_vars": ENVIRONMENT}}
        host = self._ray.remote(**options)(_Host)
        self._hosts += [host.remote() for _ in range(number - len(self._hosts))]
        try:
            self._ray.get([host.process.remote() for host in self._hosts])  # a deadline is for work, not for start-up
        except self._ray.exceptions.RayActorError as error:
            raise OptionError(
                f"an actor for the owners cannot start on Ray ({_last_line(error)}); check the cluster's resources",
                code="FP-OPTION-350",
            ) from error

    def close(self) -> None:
        for host in self._hosts:
            self._ray.kill(host)


@dataclass(frozen=True)
class _Briefing:
    """What an actor must know of a fleet; sources and steps are references into Ray's store.

    fleet:   its name
    sources: what each owner holds now; first: what it held first
    steps:   the user's own, by name
    keys:    files of the owners' private keys; publics: the public ones of all
    durable: whether the memory in the folder must outlive the machine: not in a temporary one
    """

    fleet: str
    folder: Path | None
    durable: bool
    sources: Mapping[str, Any]
    first: Mapping[str, Any]
    steps: Mapping[str, Any]
    keys: Mapping[str, str]
    publics: Mapping[str, str]


class _RayFleet(RemoteFleet):
    def __init__(
        self, ray: Any, hosts: Sequence[Any], shares: Mapping[str, object], folder: Path | None, here: bool
    ) -> None:
        super().__init__(tuple(shares))
        self._ray = ray
        self._hosts = tuple(hosts)
        self._host_of = {name: self._hosts[i % len(hosts)] for i, name in enumerate(shares)}
        first = self._put(shares)  # kept here, so that a restarted actor can fetch them again
        self.closing = ExitStack()
        temporary = folder is None and here
        if temporary:
            folder = Path(self.closing.enter_context(tempfile.TemporaryDirectory(prefix="fedpact-owners-")))
        if folder is not None:
            folder = folder.absolute()
        self._briefing = _Briefing(uuid.uuid4().hex, folder, not temporary, first, first, {}, {}, {})
        self._reference: Any = None  # to the briefing; None: not in the store yet
        self._steps: dict[str, Step] = {}

    def hold(self, sources: Mapping[str, object]) -> None:
        self._tell(sources=self._put(sources))

    def introduce(self, keys: Mapping[str, Path], publics: Mapping[str, str]) -> None:
        self._tell(keys={name: str(path.absolute()) for name, path in keys.items()}, publics=dict(publics))

    def _tell(self, **news: Any) -> None:
        """Change the briefing; actors fetch it with their next order."""
        self._briefing = replace(self._briefing, **news)
        self._reference = None

    def _put(self, sources: Mapping[str, object]) -> dict[str, Any]:
        """References to the sources in Ray's store, by owner."""
        references = {}
        for name, source in sources.items():
            with named(name, "sending its share to Ray"):
                references[name] = self._ray.put(source)
        return references

    def _bring(self, step: Step) -> None:
        """Put a step of the user's own into Ray's store, for actors to load.

        As with everything on Ray, what was defined in a script or notebook travels, and what stands in a module that
        can be imported is imported there.
        """
        name = name_of(step)
        if is_ours(step) or self._steps.get(name) is step:
            return
        spell_out(step)
        self._steps[name] = step
        self._tell(steps={**self._briefing.steps, name: self._ray.put(step)})

    def start(self, owner: str, step: Step, order: Order) -> Future[Sealed[Any]]:
        self._bring(step)
        return super().start(owner, step, order)

    def start_all(self, step: Step, orders: Mapping[str, Order]) -> dict[str, Future[Sealed[Any]]]:
        """One call an actor, for all of its owners; an order to several owners is written once.

        With a deadline each owner has a call of its own, so that it is late alone.
        """
        if self.deadline is not None:
            return super().start_all(step, orders)
        self._bring(step)
        messages: dict[int, Any] = {}
        for order in orders.values():
            if id(order) not in messages:
                messages[id(order)] = self._store(self.encode(EVERYONE, step, order))
        owners_of: dict[Any, list[str]] = {}
        for owner in orders:
            owners_of.setdefault(self._host_of[owner], []).append(owner)
        sent: dict[str, Future[Any]] = {}
        for host, owners in owners_of.items():
            sent |= self._call(host, {owner: messages[id(orders[owner])] for owner in owners})
        return {owner: self.expect(owner, step, order, sent[owner]) for owner, order in orders.items()}

    def send(self, owner: str, data: bytes) -> Future[bytes]:
        return self._call(self._host_of[owner], {owner: self._store(data)})[owner]

    def _store(self, data: bytes) -> Any:
        """A message for a call: Ray would copy a long one for every actor."""
        if len(data) <= SHORT:
            return data
        return self._ray.put(as_array(data))

    def _call(self, host: Any, messages: Mapping[str, Any]) -> dict[str, Future[Any]]:
        """Bring messages to owners of one actor; their replies, when all are there."""
        answered: dict[str, Future[Any]] = {owner: Future() for owner in messages}

        def receive(done: Future[Any]) -> None:
            error = done.exception()
            for place, (owner, future) in enumerate(answered.items()):
                if error is None:
                    future.set_result(memoryview(done.result()[place]))
                elif isinstance(error, self._ray.exceptions.RayTaskError):
                    words = f"{owner}: its actor failed ({_last_line(error)})"
                    future.set_exception(OwnerError(words, code="FP-OWNER-351"))
                else:
                    words = f"{owner}: its process is gone ({type(error).__name__})"
                    future.set_exception(OwnerLost(words, code="FP-LOST-350"))

        if self._reference is None:
            self._reference = self._ray.put(self._briefing)
        different = {id(message): message for message in messages.values()}
        places = {key: place for place, key in enumerate(different)}
        owners = [(owner, places[id(message)]) for owner, message in messages.items()]
        handle = host.handle.options(max_task_retries=0)  # the policy says what is sent again
        handle.remote([self._reference], owners, *different.values()).future().add_done_callback(receive)
        return answered

    def close(self) -> None:
        self.closing.close()


class _Host:
    """What runs in an actor's process."""

    def __init__(self) -> None:
        self._reference: Any = None
        self._briefing: _Briefing | None = None
        self._sites: dict[str, Site] = {}  # by owner, of the last fleet alone: those before it are closed
        self._held: dict[str, Any] = {}  # by owner: reference to what it holds now
        self._steps: dict[str, Any] = {}  # by name: reference to the user's own step

    def handle(self, briefing: list[Any], owners: Sequence[tuple[str, int]], *messages: Buffer) -> list[Any]:
        """Answer an order to each of these owners.

        briefing: reference to that of the fleet; in a list, since Ray would fetch it at every order otherwise
        owners:   their names, and which of the messages is for each
        """
        (reference,) = briefing
        if reference != self._reference:
            self._listen(_fetch(reference, "what is to be known of the owners"))
            self._reference = reference
        return [as_array(self._site(owner).handle(memoryview(messages[place]))) for owner, place in owners]

    def _listen(self, told: _Briefing) -> None:
        for name, step in told.steps.items():
            self._learn(name, step)
        if self._briefing is None or told.fleet != self._briefing.fleet:
            self._sites = {}
        self._briefing = told

    def _site(self, owner: str) -> Site:
        """The owner's site, which holds what it is to hold now."""
        told = self._briefing
        assert told is not None
        first = told.first[owner]
        if owner not in self._sites:
            # A cluster is one organisation: whoever runs the job may read the owners' errors.
            peers = None
            if owner in told.keys:
                peers = Peers(owner, Identity.load(told.keys[owner]), told.publics)
            self._sites[owner] = Site(
                owner, _Source(first), told.folder, durable=told.durable, full_text=True, peers=peers
            )
            self._held[owner] = first
        now = told.sources[owner]
        if self._held[owner] != now:
            self._sites[owner].hold(_Source(now))
            self._held[owner] = now
        return self._sites[owner]

    def _learn(self, name: str, reference: Any) -> None:
        """Load a step, the first time and whenever it was defined anew."""
        if self._steps.get(name) == reference:
            return
        client_step(_fetch(reference, f"the step {name}"))
        self._steps[name] = reference

    def process(self) -> int:
        return os.getpid()


def as_array(data: bytes) -> NDArray[np.uint8]:
    """The bytes as numbers, which Ray's store hands on without copying them."""
    return np.frombuffer(data, dtype=np.uint8)


class _Source:
    """A share, or what builds it, in Ray's store; fetched once."""

    def __init__(self, reference: Any) -> None:
        self._reference = reference

    @functools.cached_property
    def _fetched(self) -> Any:
        return _fetch(self._reference, "its share")

    def __call__(self, *task: Any) -> Any:
        if callable(self._fetched):
            return self._fetched(*task)
        return self._fetched

    def digest(self) -> str:
        if isinstance(self._fetched, Sourced):
            return self._fetched.digest()
        return ""

    def people(self, task: Any) -> Any:
        return self._fetched.people(task)

    def table(self, task: Any) -> str:
        return str(self._fetched.table(task))


def _fetch(reference: Any, what: str) -> Any:
    """What Ray's store holds. OwnerError when this process cannot load it."""
    try:
        return _ray().get(reference)
    except Exception as error:
        raise OwnerError(
            f"{what} cannot be loaded here ({_last_line(error)}); install the modules it needs on every node of the "
            "cluster",
            code="FP-OWNER-350",
        ) from error


@contextmanager
def _connection(address: str | None) -> Iterator[None]:
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
            "Ray was started on its head node (ray start --head)",
            code="FP-OPTION-351",
        ) from error


def _last_line(error: BaseException) -> str:
    """Ray puts the reason behind a trace."""
    return str(error).strip().rpartition("\n")[2]


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise OptionError(f"engine 'ray' needs the package ray: {install('ray')}", code="FP-OPTION-352") from error
