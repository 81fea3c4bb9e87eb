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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpact.errors import OptionError, OwnerError, OwnerLost
from fedpact.federation import Fleet, Order, RemoteFleet, Sealed, Site, Step, check_count, client_step, named
from fedpact.federation.identity import Identity
from fedpact.federation.owner import Sourced
from fedpact.federation.secure_sum import Peers
from fedpact.federation.wire import is_ours, name_of, spell_out

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


class _RayFleet(RemoteFleet):
    def __init__(
        self, ray: Any, hosts: Sequence[Any], shares: Mapping[str, object], folder: Path | None, here: bool
    ) -> None:
        super().__init__(tuple(shares))
        self._ray = ray
        self._hosts = tuple(hosts)
        self._name = uuid.uuid4().hex
        # Kept here, so that a restarted actor can fetch them again.
        self._first = self._put(shares)
        self._sources = self._first
        self.closing = ExitStack()
        if folder is None and here:
            folder = Path(self.closing.enter_context(tempfile.TemporaryDirectory(prefix="fedpact-owners-")))
        self._folder = None if folder is None else str(folder.absolute())
        self._steps: dict[str, tuple[Step, Any]] = {}
        self._keys: dict[str, str] = {}
        self._publics: dict[str, str] = {}
        self._host_of = {name: self._hosts[i % len(hosts)] for i, name in enumerate(shares)}

    def hold(self, sources: Mapping[str, object]) -> None:
        self._sources = self._put(sources)

    def introduce(self, keys: Mapping[str, Path], publics: Mapping[str, str]) -> None:
        self._keys = {name: str(path.absolute()) for name, path in keys.items()}
        self._publics = dict(publics)

    def _put(self, sources: Mapping[str, object]) -> dict[str, Any]:
        """References to the sources in Ray's store, by owner."""
        references = {}
        for name, source in sources.items():
            with named(name, "sending its share to Ray"):
                references[name] = self._ray.put(source)
        return references

    def start(self, owner: str, step: Step, order: Order) -> Future[Sealed[Any]]:
        self._bring(step)
        return super().start(owner, step, order)

    def _bring(self, step: Step) -> None:
        """Put a step of the user's own into Ray's store, for actors to load.

        As with everything on Ray, what was defined in a script or notebook travels, and what stands in a module that
        can be imported is imported there.
        """
        name = name_of(step)
        if is_ours(step) or (name in self._steps and self._steps[name][0] is step):
            return
        spell_out(step)
        self._steps[name] = (step, self._ray.put(step))

    def send(self, owner: str, data: bytes) -> Future[bytes]:
        answered: Future[bytes] = Future()

        def receive(done: Future[bytes]) -> None:
            if (error := done.exception()) is None:
                answered.set_result(done.result())
            elif isinstance(error, self._ray.exceptions.RayTaskError):
                words = f"{owner}: its actor failed ({_last_line(error)})"
                answered.set_exception(OwnerError(words, code="FP-OWNER-351"))
            else:
                words = f"{owner}: its process is gone ({type(error).__name__})"
                answered.set_exception(OwnerLost(words, code="FP-LOST-350"))

        handle = self._host_of[owner].handle.options(max_task_retries=0)  # the policy says what is sent again
        about = (self._name, owner, self._folder)
        sources = [self._sources[owner], self._first[owner]]
        steps = {name: reference for name, (_, reference) in self._steps.items()}
        keys = (self._keys.get(owner, ""), self._publics)
        handle.remote(about, data, sources, steps, keys).future().add_done_callback(receive)
        return answered

    def close(self) -> None:
        self.closing.close()


class _Host:
    """What runs in an actor's process."""

    def __init__(self) -> None:
        self._sites: dict[tuple[str, str, str | None], Site] = {}
        self._held: dict[str, Any] = {}  # by owner: reference to what it holds now
        self._steps: dict[str, Any] = {}  # by name: reference to the user's own step

    def handle(
        self,
        about: tuple[str, str, str | None],
        data: bytes,
        sources: list[Any],
        steps: dict[str, Any],
        keys: tuple[str, dict[str, str]],
    ) -> bytes:
        """Answer an order.

        about:   fleet, owner and its folder
        sources: references to what the owner holds now and to what it held first; in a list, since Ray would fetch them
                 at every order otherwise
        steps:   references to the user's own steps, by name
        keys:    file of the owner's private key, or empty, and the public keys of all
        """
        fleet, owner, folder = about
        for name, reference in steps.items():
            self._learn(name, reference)
        now, first = sources
        if about not in self._sites:
            self._sites = {key: site for key, site in self._sites.items() if key[0] == fleet}  # the others are closed
            memory = None if folder is None else Path(folder)
            # A cluster is one organisation: whoever runs the job may read the owners' errors.
            private, publics = keys
            peers = Peers(owner, Identity.load(private), publics) if private else None
            self._sites[about] = Site(owner, _Source(first), memory, full_text=True, peers=peers)
            self._held[owner] = first
        if self._held[owner] != now:
            self._sites[about].hold(_Source(now))
            self._held[owner] = now
        return self._sites[about].handle(data)

    def _learn(self, name: str, reference: Any) -> None:
        """Load a step, the first time and whenever it was defined anew."""
        if self._steps.get(name) == reference:
            return
        client_step(_fetch(reference, f"the step {name}"))
        self._steps[name] = reference

    def process(self) -> int:
        return os.getpid()


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
        raise OptionError(
            "engine 'ray' needs the package ray: pip install 'fedpact[ray]'", code="FP-OPTION-352"
        ) from error
