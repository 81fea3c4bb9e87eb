"""Work under way at single owners, for methods that do not wait for everybody."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpact.errors import OwnerLost
from fedpact.federation.checkpoint import Asked, Past
from fedpact.federation.ledger import Counts
from fedpact.federation.memory import Step
from fedpact.federation.messages import Order, Sealed, rebuild, size, summed_fields

if TYPE_CHECKING:
    from fedpact.federation.session import Session

#: Seconds before the first retry: a lost message is often a matter of milliseconds.
PAUSE = 0.05
#: Seconds between later retries, at most: a site that is restarted is found soon after.
LONGEST_PAUSE = 5.0


def back_off(attempt: int) -> float:
    """Seconds before retry `attempt`: doubles from PAUSE up to LONGEST_PAUSE."""
    return float(min(PAUSE * 2**attempt, LONGEST_PAUSE))


def report_late(owner: str, round: int, deadline: float | None) -> OwnerLost:
    """The error of an owner that did not reply within its deadline (seconds)."""
    return OwnerLost(f"{owner}: no reply to round {round} within {deadline:g} s", code="FP-LOST-303")


def count_order(order: Order) -> Counts:
    """One message down, as in the ledger."""
    return np.array([1, 0, size(order), 0])


@dataclass(eq=False)
class Ticket:
    """Work under way at one owner; `reply()` waits for it.

    attempt: how often the order was sent before; since: when it was sent last, or is to be sent (again) where there is
             no future
    counts:  of the messages and bytes so far, as in the ledger
    """

    owner: str
    step: Step
    order: Order
    future: Future[Sealed[Any]] | None = None
    since: float = 0.0
    attempt: int = 0
    counts: Counts = field(default_factory=lambda: np.zeros(4, dtype=np.int64))

    @property
    def asked(self) -> Asked:
        """What the owner was asked, for the checkpoint."""
        return self.step, {self.owner: self.order}

    @property
    def past(self) -> Past:
        """What it answered, for the checkpoint."""
        assert self.future is not None
        sealed = self.future.result()
        return Past([sealed.kept], sealed.shapes, sealed.sums, masked=False, counts=self.counts[np.newaxis])

    @property
    def failed(self) -> bool:
        """Whether the owner raised an error."""
        return self.future is not None and self.future.done() and self.future.exception() is not None

    def answer(self, sealed: Sealed[Any]) -> None:
        """Take this reply."""
        self.future = Future()
        self.future.set_result(sealed)

    def reply(self) -> Any:
        """The owner's reply, once it is there; raises what the owner raised."""
        assert self.future is not None
        sealed = self.future.result()
        summed = rebuild(type(sealed.kept), sealed.shapes, sealed.sums, [sealed.kept], masked=False)
        hidden = summed_fields(type(sealed.kept))
        return replace(summed, **{k: v for k, v in vars(sealed.kept).items() if k not in hidden})

    def due(self, deadline: float | None) -> float:
        """When something must be done about this ticket even if no reply comes."""
        if self.future is None:
            return self.since
        return np.inf if deadline is None else self.since + deadline


def wait_any(session: Session, tickets: Sequence[Ticket], timeout: float | None = None) -> list[Ticket]:
    """The tickets that are answered, at least one unless the timeout (seconds) passes; in the order given.

    Lost and overdue orders are sent again as the policy says; an owner that did obey answers from its memory, so
    nothing is done twice. Raises OwnerLost when the policy is exhausted. A ticket whose owner failed otherwise is
    among the answered ones; its `reply` raises why. Each call that brings something counts as an exchange.
    """
    until = np.inf if timeout is None else time.monotonic() + timeout
    deadline = session.policy.deadline
    while tickets:
        now = time.monotonic()
        for ticket in tickets:
            if ticket.future is None and ticket.since <= now:
                session.send(ticket)
        first = min(until, *(ticket.due(deadline) for ticket in tickets))
        left = max(first - time.monotonic(), 0.0)
        futures = [ticket.future for ticket in tickets if ticket.future is not None]
        if futures:
            wait(futures, None if left == np.inf else left, FIRST_COMPLETED)
        else:
            time.sleep(left)
        ready = [ticket for ticket in tickets if _is_answered(session, ticket)]
        session.ledger.rounds += bool(ready)
        if ready or time.monotonic() >= until:
            return ready
    return []


def _is_answered(session: Session, ticket: Ticket) -> bool:
    """Whether the ticket is answered. If it was lost, it is sent again later."""
    if ticket.future is None:
        return False
    policy = session.policy
    why: BaseException | None = None
    if ticket.future.done():
        why = ticket.future.exception()
        if why is None:
            session.receive(ticket)
            return True
        if not isinstance(why, OwnerLost):
            return True
    elif time.monotonic() >= ticket.due(policy.deadline):
        why = report_late(ticket.owner, ticket.order.round, policy.deadline)
    if why is not None:
        if policy.on_failure == "stop" or ticket.attempt >= policy.retries:
            raise why
        ticket.future = None
        ticket.since = time.monotonic() + back_off(ticket.attempt)
        ticket.attempt += 1
    return False
