"""Owners as actors of a Ray cluster: one organisation's machines, or many simulated owners on one.

An actor hosts one owner, or several when there are more owners than processors. Shares are built inside the actor. Ray
restarts an actor that died; its owners then go on from their memory on disk.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpact.errors import OptionError, OwnerLost
from fedpact.federation import Fleet, RemoteFleet, Site

#: One thread for linear algebra in each actor: they share the processors, and results must not depend on how many.
ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Ray:
    """Where the cluster is, and how owners spread over it.

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

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        """A fleet over the shares (or functions that build them), by owner name."""
        return _RayFleet(self, shares, Path(self.folder) if self.folder is not None else folder)


class _RayFleet(RemoteFleet):
    def __init__(self, engine: Ray, shares: Mapping[str, object], folder: Path | None) -> None:
        super().__init__(tuple(shares))
        self._ray = ray = _ray()
        self._started = not ray.is_initialized()
        self._scratch: str | None = None
        if self._started:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            here = {"num_cpus": os.cpu_count(), "include_dashboard": False} if engine.address is None else {}
            ray.init(address=engine.address, log_to_driver=False, configure_logging=False, **here)
        if folder is None and engine.address is None:
            self._scratch = tempfile.mkdtemp(prefix="fedpact-owners-")
            folder = Path(self._scratch)
        number = min(len(shares), engine.actors or max(int(ray.cluster_resources().get("CPU", 1)), 1))
        names = list(shares)
        groups = [names[i::number] for i in range(number)]
        remote = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)(_Host)
        self._hosts = [
            remote.options(runtime_env={"env_vars": ENVIRONMENT}).remote(
                {name: shares[name] for name in group}, None if folder is None else str(folder.absolute())
            )
            for group in groups
        ]
        self._host_of = {name: host for host, group in zip(self._hosts, groups, strict=True) for name in group}

    def _send(self, owner: str, data: bytes) -> Future[bytes]:
        answered: Future[bytes] = Future()

        def receive(done: Future[bytes]) -> None:
            if (error := done.exception()) is None:
                answered.set_result(done.result())
            else:
                answered.set_exception(OwnerLost(f"{owner}: its process is gone ({type(error).__name__})"))

        self._host_of[owner].handle.remote(owner, data).future().add_done_callback(receive)
        return answered

    def close(self) -> None:
        for host in self._hosts:
            self._ray.kill(host)
        if self._started:
            self._ray.shutdown()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


class _Host:
    """What runs in an actor's process."""

    def __init__(self, sources: dict[str, Any], folder: str | None) -> None:
        where = None if folder is None else Path(folder)
        self._sites = {name: Site(name, _builder(source), where) for name, source in sources.items()}

    def handle(self, owner: str, data: bytes) -> bytes:
        return self._sites[owner].handle(data)

    def process(self) -> int:
        return os.getpid()


def _builder(source: Any) -> Any:
    return lambda job: source() if callable(source) else source


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise OptionError("engine 'ray' needs the package ray: pip install 'fedpact[ray]'") from error
