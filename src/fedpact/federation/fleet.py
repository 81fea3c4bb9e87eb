"""Where the owners are: what brings an order to one of them and its reply back. Engines open fleets, sessions ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from fedpact.errors import OptionError
from fedpact.federation.identity import Identity
from fedpact.federation.memory import Step
from fedpact.federation.messages import Joint, Order, Sealed


class Stated(Protocol):
    """A task that owners build their share from; `stated` is its content as JSON, on its way to another process."""

    def stated(self) -> dict[str, Any]: ...


class Fleet(ABC):
    """All owners of a run. An engine supplies `start`; rounds, failures and records are the session's.

    task:     what owners are asked to build their share from; None where they hold shares as they are
    deadline: seconds an owner has for a reply; None: as long as it takes
    charter:  what owners of other organisations are asked to take part in (`fedpact.federation.rules.Charter`)
    identity: the coordinator's key, with which orders are signed; roster: the owners' public keys, by name
    steps:    what each owner said it can run, by name; those that said nothing run the coordinator's own code
    """

    #: Do the owners live in other organisations? Then single matrices should not be seen by the coordinator.
    networked = False

    def __init__(self, owners: Sequence[str]) -> None:
        self.owners = tuple(owners)
        self.task: Stated | None = None
        self.deadline: float | None = None
        self.charter: Mapping[str, Any] = {}
        self.identity: Identity | None = None
        self.roster: Mapping[str, str] = {}
        self.steps: dict[str, frozenset[str]] = {}

    @abstractmethod
    def start(self, owner: str, step: Step, order: Order) -> Future[Sealed[Any]]:
        """Begin the step at the owner; the future fails with OwnerLost when the owner cannot be reached."""

    def start_all(self, step: Step, orders: Mapping[str, Order]) -> dict[str, Future[Sealed[Any]]]:
        """Begin the step at several owners, by name; an engine may send them together."""
        return {owner: self.start(owner, step, order) for owner, order in orders.items()}

    def answer_jointly(self, step: Step, order: Order) -> Joint[Any] | None:
        """The replies of all owners to a step with a twin from one computation; None: they are asked one by one."""
        return None

    def hold(self, sources: Mapping[str, object]) -> None:
        """Give the owners other shares, or other functions that build them; they keep their memory."""
        raise OptionError(
            "these owners hold data of their own, and cannot be given other shares; open a new session",
            code="FP-OPTION-301",
        )

    def introduce(self, keys: Mapping[str, Path], publics: Mapping[str, str]) -> None:
        """Tell every owner where its private key is, and the public keys of all."""
        raise OptionError(
            "these owners are of other organisations and have keys of their own; leave keys= out, and give roster=",
            code="FP-OPTION-630",
        )

    def states(self) -> Mapping[str, Any] | None:
        """What the owners remember, by name, where they are in this process; None where they are not."""
        return None

    def keep(self) -> None:  # noqa: B027 - owners elsewhere write their memory by themselves
        """Owners in this process write their memory now: a checkpoint follows."""

    def close(self) -> None:  # noqa: B027 - most engines hold nothing
        """Free what the fleet holds; it cannot be asked afterwards."""


class Engine(Protocol):
    """Where owners run: anything that opens a fleet over shares (or what builds them) by owner name.

    folder: where owners on this machine keep their memory, when the run has a checkpoint
    """

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet: ...


#: Engines by name; `fedpact.engines` fills it.
ENGINES: dict[str, Callable[[], Engine]] = {}


def find_engine(engine: Engine | str | None) -> Engine:
    """The engine of this name, or the engine itself; None is the default, "in-process"."""
    if engine is None:
        engine = "in-process"
    if isinstance(engine, str) and engine in ENGINES:
        return ENGINES[engine]()
    if isinstance(engine, str | type) or not hasattr(engine, "open"):
        raise OptionError(
            f"engine {engine!r} is unknown; use {', '.join(map(repr, ENGINES))}, or an engine of fp.engines such as "
            "fp.engines.InProcess()",
            code="FP-OPTION-302",
        )
    return engine


def check_count(name: str, value: object, least: int = 1) -> None:
    """OptionError when the value of this option is not a whole number of at least `least`."""
    if not isinstance(value, int) or value < least:
        raise OptionError(f"{name} = {value!r}: give a whole number of at least {least}", code="FP-OPTION-303")
