"""The one door to the owners: synchronous rounds (`ask`) and asynchronous work (`submit`, `wait_any`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from fedpact.federation.ledger import Ledger
from fedpact.federation.messages import Order, Reply
from fedpact.federation.owner import Step

R = TypeVar("R", bound=Reply)


@dataclass(frozen=True, eq=False)
class Ticket:
    """Work under way at one owner; `reply()` waits for it."""

    owner: str
    future: Future[Reply]

    def reply(self) -> Reply:
        return self.future.result()


class Fleet(ABC):
    """All owners of a problem. An engine supplies `_start`; rounds, ledger and order of replies are the same on all."""

    def __init__(self, owners: Sequence[str]) -> None:
        self.owners = tuple(owners)
        self.ledger = Ledger(self.owners)
        self._round = 0

    @abstractmethod
    def _start(self, owner: str, step: Step, order: Order) -> Future[Reply]:
        """Begin the step at the owner."""

    def close(self) -> None:  # noqa: B027 - most engines hold nothing
        """Free what the fleet holds; it cannot be asked afterwards."""

    def ask(self, step: Callable[[Any, Any, Any], tuple[Any, R]], orders: Order | Sequence[Order]) -> list[R]:
        """One exchange: the order (or one order per owner) goes down, a reply comes back from every owner.

        Replies are in owner order, whichever came first, so sums do not depend on who was fast.
        """
        self._round += 1
        self.ledger.rounds += 1
        each = [orders] * len(self.owners) if isinstance(orders, Order) else list(orders)
        stamped = [replace(order, round=self._round) for order in each]
        futures = []
        for owner, order in zip(self.owners, stamped, strict=True):
            self.ledger.down(owner, order)
            futures.append(self._start(owner, step, order))
        replies = [future.result() for future in futures]
        for owner, reply in zip(self.owners, replies, strict=True):
            self.ledger.up(owner, reply)
        return cast(list[R], replies)

    def submit(self, owner: str, step: Step, order: Order) -> Ticket:
        """Send one order to one owner without waiting."""
        self._round += 1
        stamped = replace(order, round=self._round)
        self.ledger.down(owner, stamped)
        return Ticket(owner, self._start(owner, step, stamped))

    def wait_any(self, tickets: Sequence[Ticket], timeout: float | None = None) -> list[Ticket]:
        """The tickets that are answered, at least one unless the timeout (seconds) passes; in the order given.

        Each ticket is counted in the ledger when it is first handed back: pass only tickets still waited for.
        """
        done, _ = wait([t.future for t in tickets], timeout, FIRST_COMPLETED)
        ready = [t for t in tickets if t.future in done]
        for ticket in ready:
            self.ledger.up(ticket.owner, ticket.reply())
        return ready

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
