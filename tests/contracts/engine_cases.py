"""Every engine, and how an owner is lost or restarted on it; a new engine is one more line of `ENGINES`."""

from __future__ import annotations

import hashlib
import os
import pickle
import secrets
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import NAMES, REGULARIZER, SERVER, Faulty, Wire, clinic

import fedpact as fp
from fedpact.errors import DataError, OwnerLost
from fedpact.federation import Fleet, Order, Site
from fedpact.functions import Function, Smooth

# -------------------------------------------------------------------------------------------------------------- places


class Place(ABC):
    """An engine whose owners can be lost and restarted while a solve runs."""

    #: Seconds that are enough for an exchange with an owner who is not slow.
    enough = 0.3

    @abstractmethod
    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet: ...

    @abstractmethod
    def lose(self, owner: str) -> None:
        """From now on this owner does not answer, until the next fleet is opened."""

    @abstractmethod
    def restart(self, owner: str) -> None:
        """The owner's process ends and comes back, with what it has on its disk."""


class Here(Place):
    """Owners in this process; they are lost by orders that do not arrive, and restart only together with it."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lost: set[str] = set()

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        self._lost = set()
        return Faulty(self._fault, threads=self._threads).open(shares, folder)

    def lose(self, owner: str) -> None:
        self._lost.add(owner)

    def restart(self, owner: str) -> None:
        raise NotImplementedError

    def _fault(self, owner: str, order: Order) -> str:
        return "order lost" if owner in self._lost else ""


class Bytes(Place):
    """Owners behind bytes, in this process; they have a disk of their own, also when the run is not kept."""

    def __init__(self, disk: Path) -> None:
        self._disk = disk

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        self._lost: set[str] = set()
        self._wire = Wire(down=self._down)
        return self._wire.open(shares, folder or self._disk)

    def lose(self, owner: str) -> None:
        self._lost.add(owner)

    def restart(self, owner: str) -> None:
        assert self._wire.fleet is not None
        self._wire.fleet.sites[owner] = self._wire.fleet.site(owner)

    def _down(self, owner: str, data: bytes) -> bytes:
        if owner in self._lost:
            raise OwnerLost(f"{owner}: the line is cut")
        return data


class FlowerInMemory(Place):
    """The Flower engine over a grid in memory, whose nodes run the real client app."""

    def __init__(self, disk: Path) -> None:
        self._disk = disk

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        from flower_grid import Grid, Node

        from fedpact.engines.flower.engine import Flower

        self._shares = shares
        self._grid: Any = Grid(*(Node(name, self._app(name)) for name in shares))
        return Flower(self._grid).open(shares)

    def lose(self, owner: str) -> None:
        del self._grid.nodes[self._number(owner)]

    def restart(self, owner: str) -> None:
        number = self._number(owner)
        node = self._grid.nodes[number]
        self._grid.nodes[number] = replace(node, app=self._app(owner), activation=f"after {node.activation}")

    def _number(self, owner: str) -> int:
        return next(number for number, node in self._grid.nodes.items() if node.name == owner)

    def _app(self, owner: str) -> Any:
        from fedpact.engines.flower.engine import client_app

        source = self._shares[owner]
        return client_app(lambda config: Site(owner, lambda: built(source), self._disk).handle)


class OnRay(Place):
    """Owners in actors that serve one fleet after the other."""

    def __init__(self, actors: Any) -> None:
        self._actors = actors
        self._away: dict[Path, Path] = {}  # memories by where they belong

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        for memory, away in self._away.items():
            shutil.rmtree(memory, ignore_errors=True)
            away.rename(memory)
        self._away = {}
        self._folder = folder
        self._fleet: Any = self._actors.open(shares, folder)
        return self._fleet

    def lose(self, owner: str) -> None:
        """Ray restarts the actor, which cannot go on without its memory."""
        assert self._folder is not None
        (memory,) = self._folder.glob(f"{owner.replace(' ', '_')}*")
        self._away[memory] = memory.rename(self._folder.parent / f"away {memory.name}")
        self.restart(owner)

    def restart(self, owner: str) -> None:
        import ray

        process = ray.get(self._fleet._host_of[owner].process.remote())
        os.kill(process, signal.SIGKILL)


class FlowerDeployed(Place):
    """Sites of a real SuperLink, each a process with keys, behind TLS."""

    enough = 5.0

    def __init__(self, deployment: Any, coordinator: Any, disk: Path) -> None:
        self._deployment, self._coordinator, self._disk = deployment, coordinator, disk
        self._away: set[str] = set(NAMES)

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        from flower_owners import Relay

        for owner in sorted(self._away):
            self._start(owner)
        self._away = set()
        pickled = pickle.dumps(dict(shares))
        held = self._disk / f"shares {hashlib.sha256(pickled).hexdigest()[:16]}"  # a resumed run asks for the same file
        held.write_bytes(pickled)
        return Relay(tuple(shares), held, self._coordinator)

    def lose(self, owner: str) -> None:
        self._deployment.kill_site(owner)
        self._away.add(owner)

    def restart(self, owner: str) -> None:
        self._deployment.kill_site(owner)
        self._start(owner)

    def _start(self, owner: str) -> None:
        memory = {"state-path": str(self._disk / owner)}
        self._deployment.start_site(owner, memory, client_app="flower_owners:client_app")


@contextmanager
def deployed(disk: Path) -> Iterator[FlowerDeployed]:
    """A SuperLink on this machine, the coordinator's app, and sites that start when they are needed."""
    from test_engines_flower_transport import QUICK, load_deployment

    from fedpact.engines.flower.submit import APP

    tests = Path(__file__).parents[1]
    rooms = [
        QUICK,
        tests,
        tests / "contracts",
        tests / "federation",
        tests / "solvers",
        os.environ.get("PYTHONPATH", ""),
    ]
    app = disk / "app"
    app.mkdir()
    about = APP.replace("fedpact.engines.flower.app:", "flower_owners:")
    (app / "pyproject.toml").write_text(about + 'port = 0\nsecret = ""\n')
    secret = secrets.token_hex(16)
    with (
        load_deployment().Deployment(disk, {"PYTHONPATH": os.pathsep.join(map(str, rooms))}) as deployment,
        Listener(("127.0.0.1", 0), authkey=secret.encode()) as door,
    ):
        deployment.start_superlink()
        for owner in NAMES:
            deployment.register(owner)
        deployment.submit(app, {"port": door.address[1], "secret": secret})
        with door.accept() as coordinator:
            yield FlowerDeployed(deployment, coordinator, disk)
            coordinator.send(None)


def built(source: Any) -> Any:
    return source() if callable(source) else source


Starter = Callable[[Path, pytest.FixtureRequest], AbstractContextManager[Place]]


@contextmanager
def here(disk: Path, request: pytest.FixtureRequest, threads: int = 1) -> Iterator[Place]:
    yield Here(threads)


@contextmanager
def behind_bytes(disk: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    yield Bytes(disk)


@contextmanager
def flower_in_memory(disk: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    pytest.importorskip("flwr", reason="needs the extra 'flower'")
    from flower_grid import impatient

    with impatient():
        yield FlowerInMemory(disk)


@contextmanager
def on_ray(disk: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    yield OnRay(request.getfixturevalue("ray_actors"))


@contextmanager
def on_flower(disk: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    pytest.importorskip("flwr", reason="needs the extra 'flower'")
    yield request.getfixturevalue("flower_deployed")


#: How a test gets the engine, and the marks of such a test.
ENGINES: dict[str, tuple[Starter, tuple[pytest.MarkDecorator, ...]]] = {
    "in-process": (here, ()),
    "threads": (partial(here, threads=3), ()),
    "bytes": (behind_bytes, ()),
    "flower in memory": (flower_in_memory, ()),
    "flower": (on_flower, (pytest.mark.flower, pytest.mark.xdist_group("flower"))),
    "ray": (on_ray, (pytest.mark.ray, pytest.mark.xdist_group("ray"))),
}
#: Engines whose owners end and restart with this process.
TOGETHER = ("in-process", "threads")


# ------------------------------------------------------------------------------------------------- owners with a flaw


def once(marker: Path) -> bool:
    """Is this the first time, in whatever process?"""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def delayed(marker: Path, seconds: float, objective: Function, w: np.ndarray) -> tuple[float, np.ndarray]:
    """The objective, which takes so many seconds, once, away from the start."""
    if w.any() and once(marker):
        time.sleep(seconds)
    return objective.value_and_gradient(w)


def failing(objective: Function, w: np.ndarray) -> tuple[float, np.ndarray]:
    """The objective, which finds a fault with its data away from the start."""
    if w.any():
        raise DataError("3 missing values in column 'age'")
    return objective.value_and_gradient(w)


def clinic_b(fun: Callable[..., Any]) -> fp.Share:
    """The second clinic with this function of (objective, w) for its objective."""
    share = clinic(1)
    objective = share.objective
    assert objective is not None
    return replace(share, objective=Smooth(partial(fun, objective), hess=objective.hessian, dim=3))


def clinics_with(fun: Callable[..., Any]) -> fp.FederatedProblem:
    """The clinics, of whom the second has this function."""
    return fp.FederatedProblem([clinic(0), clinic_b(fun), clinic(2)], SERVER, REGULARIZER)
