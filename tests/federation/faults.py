"""Problems, engines that lose messages, and comparisons bit for bit: shared by the tests of the federation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fedpact as fp
from fedpact.cones import Nonnegative
from fedpact.engines import InProcess
from fedpact.errors import OwnerLost
from fedpact.federation import Fleet, Order, RemoteFleet, Site, Step
from fedpact.functions import Affine, LogisticLoss, Quadratic
from fedpact.solvers import Progress, Solution

#: The federated methods, and options with which each of them takes a fraction of a second.
CASES: dict[str, dict[str, Any]] = {
    "interior-point": {"tol": 1e-6},
    "accelerated": {"tol": 1e-4},
    "proximal-al": {"tol": 2e-2, "penalty": 10.0},
}
#: Methods for problems without constraints.
UNCONSTRAINED = ("inexact-admm", "ifeddr")
METHODS = (*CASES, *UNCONSTRAINED)
NAMES = ("clinic a", "clinic b", "clinic c")


# ------------------------------------------------------------------------------------------------------------ problems


def clinic(number: int, shift: float = 0.0) -> fp.Share:
    """One of three shares in three variables; `shift` changes the data of the second."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(20, 3)) + shift
    y = (X[:, 0] > 0.2).astype(int)
    ball = Quadratic(np.eye(3), np.zeros(3))
    shares = [
        fp.Share(Quadratic(np.diag([1.0, 2.0, 3.0]), [-3.0, -2.0, 1.0]), below(Affine([[1.0, 0.1, 0.0]], [-0.4]))),
        fp.Share(LogisticLoss(X, y) + ball, below(ball - 0.7)),
        fp.Share(Quadratic(np.eye(3) + 0.5, [1.0, -4.0, 0.5])),
    ]
    return replace(shares[number], name=NAMES[number])


def below(function: Any) -> fp.Constraint:
    return fp.Constraint(function, Nonnegative(1))


SERVER = fp.Share(None, below(Affine([[1.0, 1.0, 1.0]], [-1.0])))
REGULARIZER = fp.prox.L1(0.05)


def clinics(shift: float = 0.0) -> fp.FederatedProblem:
    """Two owners and the server with a constraint, one owner without; all kinds of local solves take part."""
    return fp.FederatedProblem([clinic(i, shift) for i in range(3)], SERVER, REGULARIZER)


def clinics_elsewhere() -> fp.RemoteProblem:
    """The same, as functions that build the shares."""
    return fp.RemoteProblem({name: partial(clinic, i) for i, name in enumerate(NAMES)}, SERVER, REGULARIZER)


def unconstrained() -> fp.FederatedProblem:
    """For methods that take no constraints."""
    return fp.FederatedProblem([fp.Share(share.objective, name=share.name) for share in clinics().shares])


def coupled() -> fp.FederatedProblem:
    """Two owners whose maps are added up, and a constraint of the server."""
    shares = [
        fp.Share(Quadratic(np.diag([1.0, k]), [-1.0, -2.0]), coupled=Affine([[1.0, 1.0]], [-0.3]), name=name)
        for k, name in ((2.0, "north"), (3.0, "south"))
    ]
    return fp.FederatedProblem(shares, fp.Share(None, below(Affine([[1.0, 0.0]], [-0.25]))))


def solve(method: str, problem: fp.FederatedProblem | fp.RemoteProblem | None = None, **options: Any) -> Solution:
    """Solve a problem, by default the clinics' (without their constraints, where the method takes none)."""
    if problem is None:
        problem = unconstrained() if method in UNCONSTRAINED else clinics()
    return fp.solve(problem, method, **{**CASES.get(method, {}), **options})


# ---------------------------------------------------------------------------------------------------------- comparison


def exact(value: Any) -> Any:
    """The value with every number as its bits, so that == compares them all; NaN equals NaN."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, float):
        return value.hex()
    if is_dataclass(value) and not isinstance(value, type):
        return {name: exact(part) for name, part in vars(value).items()}
    if isinstance(value, dict):
        return {key: exact(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [exact(part) for part in value]
    return value


def bits(found: Solution, *, traffic: bool = True, rounds: bool = True) -> dict[str, Any]:
    """All of a solution, bit for bit; on request without what was sent (bytes), or without what counts exchanges."""
    history = asdict(found.history)
    for record in history["outer"]:
        record["bytes"] = record["bytes"] if traffic else 0
        record["rounds"] = record["rounds"] if rounds else 0
    for record in history["inner"]:
        record["round"] = record["round"] if rounds else 0
    parts: dict[str, Any] = {k: v for k, v in vars(found).items() if k not in ("history", "communication")}
    parts["history"] = history
    if traffic:
        parts["communication"] = found.communication
    return {name: exact(part) for name, part in parts.items()}


# ------------------------------------------------------------------------------------------------------------ stopping


def stop_at(exchanges: int) -> Callable[[Progress], None]:
    """A callback in which the user presses Ctrl-C, the first time so many exchanges were made."""

    def press(progress: Progress) -> None:
        if progress.rounds >= exchanges:
            raise KeyboardInterrupt

    return press


def assert_stopped(found: Solution) -> None:
    """Somebody ended the run; its point counts as solved if it happens to be good enough."""
    assert found.status == ("solved" if found.certificate.meets(found.tol) else "interrupted")


# ------------------------------------------------------------------------------------------------------------- engines

Fault = Callable[[str, Order], str]


def no_fault(owner: str, order: Order) -> str:
    return ""


@dataclass
class Faulty:
    """The in-process engine behind a door that loses things; `fault` says what happens to an order:

    ""               nothing
    "order lost"     it does not arrive, and the sender is told
    "reply lost"     the owner does its work, and the sender is told that nothing came back
    "order silent", "reply silent"  the same, but nobody is told: only a deadline helps
    "late"           the reply comes after `delay` seconds
    """

    fault: Fault = no_fault
    delay: float = 0.05
    threads: int = 1
    orders: list[tuple[str, Order, str]] = field(default_factory=list)  # all that were sent, and what became of them
    folder: Path | None = None
    fleet: Fleet | None = None
    fleets: int = 0  # that were opened

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        self.fleets += 1
        self.folder, self.fleet = folder, InProcess(self.threads, jointly=False).open(shares, folder)
        direct = self.fleet.start

        def start(owner: str, step: Step, order: Order) -> Future[Any]:
            what = self.fault(owner, order)
            self.orders.append((owner, order, what))
            if what.startswith("order"):
                answered: Future[Any] = Future()
            else:
                answered = direct(owner, step, order)
            if not what:
                return answered
            lost: Future[Any] = Future()
            if what == "late":
                threading.Timer(self.delay, lambda: lost.set_result(answered.result())).start()
            elif not what.endswith("silent"):
                lost.set_exception(OwnerLost(f"{owner}: its {what}"))
            return lost

        self.fleet.start = start  # type: ignore[method-assign]
        return self.fleet


def at_random(probability: float, kinds: tuple[str, ...], seed: int = 0) -> Fault:
    """Faults of these kinds, for every order with this probability."""
    rng = np.random.default_rng(seed)

    def fault(owner: str, order: Order) -> str:
        return str(rng.choice(kinds)) if rng.random() < probability else ""

    return fault


def gone(owner: str, after: int) -> Fault:
    """This owner is away after that many rounds."""
    return lambda name, order: "order lost" if name == owner and order.round > after else ""


Hook = Callable[[str, bytes], bytes]


def untouched(owner: str, data: bytes) -> bytes:
    return data


@dataclass
class Wire:
    """Owners behind bytes, in this process: `down` and `up` see every message and may change it, or raise OwnerLost.

    They are of one organisation with the server, as on Ray: errors travel with their text.
    """

    down: Hook = untouched
    up: Hook = untouched
    folder: Path | None = None  # of the owners' memory
    restarting: bool = False  # every order meets a process that has just started
    fleet: _Wired | None = None

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        self.fleet = _Wired(self, shares, self.folder or folder)
        return self.fleet


class _Wired(RemoteFleet):
    def __init__(self, engine: Wire, shares: Mapping[str, object], folder: Path | None) -> None:
        super().__init__(tuple(shares))
        self.engine, self.first, self.shares, self.folder = engine, shares, shares, folder
        self.sites = {name: self.site(name) for name in shares}

    def site(self, owner: str) -> Site:
        started = Site(owner, self.first[owner], self.folder, full_text=True)
        started.hold(self.shares[owner])
        return started

    def hold(self, sources: Mapping[str, object]) -> None:
        self.shares = sources
        for name, site in self.sites.items():
            site.hold(sources[name])

    def send(self, owner: str, data: bytes) -> Future[bytes]:
        answered: Future[bytes] = Future()
        if self.engine.restarting:
            self.sites[owner] = self.site(owner)
        try:
            answered.set_result(self.engine.up(owner, self.sites[owner].handle(self.engine.down(owner, data))))
        except OwnerLost as lost:
            answered.set_exception(lost)
        return answered
