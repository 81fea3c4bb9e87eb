"""The one door to the owners: synchronous rounds (`ask`) and asynchronous work (`submit`, `wait_any`).

What happens when an owner does not answer is a stated policy, what the server receives may be kept in a checkpoint, and
summed fields may be masked; an algorithm sees none of that.
"""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import numpy as np

from fedpact.errors import OptionError, OwnerError, OwnerLost, ProblemError
from fedpact.federation.checkpoint import Checkpoint, Past
from fedpact.federation.ledger import Ledger
from fedpact.federation.messages import Answers, Order, Reply, Sealed, not_finite, opened, summed_fields
from fedpact.federation.owner import Step, confirm
from fedpact.federation.secure_sum import Agree, Offer, agree, offer, reveal
from fedpact.federation.wire import SKIPPABLE

R = TypeVar("R", bound=Reply)

#: Seconds before an order is sent again: doubled each time, at most the last.
PAUSE, LONGEST_PAUSE = 0.05, 5.0


def _pause(attempt: int) -> float:
    """Seconds before an order is sent again that was sent so many times before the last."""
    return float(min(PAUSE * 2**attempt, LONGEST_PAUSE))


@dataclass(frozen=True)
class Policy:
    """What to do about an owner that is late, gone, or sends what cannot be read.

    on_failure:    "retry": send the order again; "stale": go on with its last reply where the algorithm allows that
                   (the inner rounds of "proximal-al"), else as "retry"; "stop": end at once
    deadline:      seconds an owner has for a reply; None: as long as it takes
    retries:       how often an order is sent again before the owner counts as lost
    max_staleness: rounds in a row that an old reply may stand in for
    """

    on_failure: Literal["retry", "stale", "stop"] = "retry"
    deadline: float | None = None
    retries: int = 8
    max_staleness: int = 3

    def __post_init__(self) -> None:
        if self.on_failure not in ("retry", "stale", "stop"):
            raise OptionError(f"on_failure = {self.on_failure!r}: choose 'retry', 'stale' or 'stop'")
        if self.deadline is not None and not (isinstance(self.deadline, int | float) and 0 < self.deadline < np.inf):
            raise OptionError(f"deadline = {self.deadline!r}: give a positive number of seconds, or None")
        for name, least in (("retries", 0), ("max_staleness", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise OptionError(f"{name} = {value!r}: give a whole number of at least {least}")


@dataclass(eq=False)
class Ticket:
    """Work under way at one owner; `reply()` waits for it.

    attempt: how often the order was sent before; since: when it was sent last, or is to be sent again where it was lost
    and there is no future
    """

    owner: str
    step: Step
    order: Order
    future: Future[Sealed[Any]] | None = None
    since: float = 0.0
    attempt: int = 0

    def reply(self) -> Any:
        assert self.future is not None
        sealed = self.future.result()
        summed = opened(type(sealed.kept), sealed.shapes, sealed.sums)
        return replace(
            summed, **{k: v for k, v in vars(sealed.kept).items() if k not in summed_fields(type(sealed.kept))}
        )


class Fleet(ABC):
    """All owners of a problem. An engine supplies `_start`; all else is the same on every engine."""

    #: Do the owners live in other organisations? Then single matrices should not be seen by the server.
    networked = False

    def __init__(self, owners: Sequence[str]) -> None:
        self.owners = tuple(owners)
        self.ledger = Ledger(self.owners)
        self.policy = Policy()
        self.checkpoint: Checkpoint | None = None
        self.run = uuid.uuid4().hex[:16]
        self._round = 0
        self._secure = self._looking = False
        self._after = dict.fromkeys(self.owners, 0)
        self._confirmed = True  # a run that starts has no past to be compared with
        self._last: dict[tuple[str, Step], tuple[int, Sealed[Any]]] = {}  # for stale replies

    @abstractmethod
    def _start(self, owner: str, step: Step, order: Order) -> Future[Sealed[Any]]:
        """Begin the step at the owner; the future fails with OwnerLost when the owner cannot be reached."""

    def _keep(self) -> None:  # noqa: B027 - owners elsewhere write their memory by themselves
        """Owners in this process write their memory now: a checkpoint follows."""

    def close(self) -> None:  # noqa: B027 - most engines hold nothing
        """Free what the fleet holds; it cannot be asked afterwards."""

    # ------------------------------------------------------------------------------------------------------- in rounds

    def ask(
        self,
        step: Callable[[Any, Any, Any], tuple[Any, R]],
        orders: Order | Sequence[Order],
        owners: Sequence[str] | None = None,
    ) -> Answers[R]:
        """One exchange: the order (or one order per owner) goes down, a reply comes back from every owner.

        owners: ask only these, in this order; by default all

        Replies come in owner order, whichever was first, and are added up in that order, so the result does not depend
        on who was fast. Raises OwnerLost when the policy is exhausted, with a checkpoint behind it if there is one.
        """
        self._round += 1
        self.ledger.rounds += 1
        asked = self.owners if owners is None else tuple(owners)
        if self._secure and (asked != self.owners or not isinstance(orders, Order)):
            raise OptionError("secure_sum=True needs one order to all owners in a round: else the masks do not cancel")
        each = [orders] * len(asked) if isinstance(orders, Order) else list(orders)
        stamped = {owner: self._stamp(owner, order) for owner, order in zip(asked, each, strict=True)}
        record = self.checkpoint if not self._looking else None
        past = record.recall(self._round, step, stamped) if record is not None else None
        if past is not None:
            for owner, counts, kept in zip(asked, past.counts, past.kept, strict=True):
                self.ledger.add(owner, counts)
                self.ledger.name(owner, type(kept), past.masked)
                if counts[1]:  # it did answer, rather than being stood in for by an old reply
                    self._after[owner] = self._round
        else:
            self.confirm()
            past = self._exchange(step, stamped)
            if record is not None and record.add(step, stamped, past):
                self.save()
        return Answers(past.kept, opened(type(past.kept[0]), past.shapes, past.total))  # type: ignore[arg-type]

    def secure(self) -> None:
        """Two exchanges: the owners agree on keys; from now on the server sees only sums of summed fields."""
        if len(self.owners) < 2:
            raise OptionError("secure_sum=True hides nothing with a single owner: the sum is its vector")
        publics = [reply.public for reply in self.ask(offer, Offer())]
        self.ask(agree, Agree(names=json.dumps(self.owners), publics=json.dumps(publics)))
        self._secure = True

    def keep(self, checkpoint: Checkpoint) -> None:
        """Keep what comes back in this checkpoint, and answer from it what is on record."""
        self.checkpoint, self.run = checkpoint, checkpoint.run
        self._confirmed = checkpoint.rounds == 0

    def confirm(self) -> None:
        """Before a resumed run asks anything new, or ends: every owner compares its data with those it remembers.

        Raises CheckpointError, naming the owner, when they are others: what is on record is not true of them.
        """
        if self._confirmed:
            return
        looking, ledger = self._looking, self.ledger
        # Not counted: the traffic of a resumed run is that of the whole run.
        self._looking, self.ledger = True, Ledger(self.owners, ledger.record)
        try:
            self._exchange(confirm, {owner: self._stamp(owner, Order()) for owner in self.owners})
        finally:
            self._looking, self.ledger = looking, ledger
        self._confirmed = True

    def look(self) -> None:
        """From now on owners answer without remembering, so that the run can be resumed from where it was."""
        if self.checkpoint is not None and self._round < self.checkpoint.rounds:
            raise KeyboardInterrupt  # a resumed run has not caught up: the owners are ahead of the point to look at
        self.save()
        self._looking = True

    def save(self) -> None:
        """Write the checkpoint, if there is one."""
        if self.checkpoint is not None and not self._looking:
            self._keep()
            self.checkpoint.write()

    def _stamp(self, owner: str, order: Order) -> Order:
        if (bad := not_finite(order)) is not None:
            raise ProblemError(
                f"round {self._round} would send a non-finite {type(order).__name__}.{bad}: the regularizer or the "
                "server's constraint gave NaN or infinity, or the method ran away; check them, and scale the columns"
            )
        after = self._after[owner]
        durable = after if self.checkpoint is None else min(after, self.checkpoint.rounds)
        return replace(
            order,
            run=self.run,
            round=self._round,
            after=after,
            durable=durable,
            look=self._looking,
            secure=self._secure,
        )

    def _exchange(self, step: Step, orders: dict[str, Order]) -> Past:
        asked = list(orders)
        before = self.ledger.counts(asked)
        replies = self._gather(step, orders)
        first = replies[asked[0]]
        for owner, sealed in replies.items():
            alike = sealed.shapes == first.shapes and sealed.sums.dtype == first.sums.dtype
            if not alike or type(sealed.kept) is not type(first.kept):
                raise OwnerError(
                    f"{owner}: its {type(sealed.kept).__name__} has fields of shapes {sealed.shapes}, that of "
                    f"{asked[0]} {first.shapes}; do all owners use the same columns?"
                )
        parts = [replies[owner].sums for owner in asked]
        masked = first.sums.dtype == np.uint64
        with np.errstate(over="ignore"):
            total = reveal(parts) if masked else sum(parts[1:], parts[0])
        if not np.all(np.isfinite(total)):
            raise OwnerError(
                f"the sum of {type(first.kept).__name__} over the owners is too large for a number; scale the columns"
            )
        kept = [replies[owner].kept for owner in asked]
        return Past(kept, first.shapes, total, masked, self.ledger.counts(asked) - before)

    def _gather(self, step: Step, orders: dict[str, Order]) -> dict[str, Sealed[Any]]:
        """A reply from every owner, as the policy says."""
        replies: dict[str, Sealed[Any]] = {}
        for attempt in range(self.policy.retries + 1):
            waiting = {owner: order for owner, order in orders.items() if owner not in replies}
            missing = self._attempt(step, waiting, replies)
            if self.policy.on_failure == "stale":
                for owner in [o for o in missing if self._recent(o, step)]:
                    replies[owner] = self._last[owner, step][1]
                    del missing[owner]
            if not missing:
                return replies
            if self.policy.on_failure == "stop" or attempt == self.policy.retries:
                break
            time.sleep(_pause(attempt))
        self.save()
        raise OwnerLost("; ".join(missing.values()))

    def _attempt(self, step: Step, orders: dict[str, Order], replies: dict[str, Sealed[Any]]) -> dict[str, str]:
        """Send the orders, fill in what comes back in time; the others, and why."""
        futures = {}
        for owner, order in orders.items():
            self.ledger.down(owner, order)
            futures[owner] = self._start(owner, step, order)
        wait(futures.values(), self.policy.deadline)
        missing = {}
        for owner, future in futures.items():
            if not future.done():
                missing[owner] = f"{owner}: no reply to round {self._round} within {self.policy.deadline:g} s"
                continue
            try:
                replies[owner] = future.result()
            except OwnerLost as lost:
                missing[owner] = str(lost)
                continue
            self.ledger.up(owner, replies[owner], self._round)
            if not self._looking:
                self._after[owner] = self._round
            if self.policy.on_failure == "stale" and step in SKIPPABLE and not self._secure:
                self._last[owner, step] = (self._round, replies[owner])
        return missing

    def _recent(self, owner: str, step: Step) -> bool:
        """Is there a reply of this owner to this very step that is not too old?"""
        found = self._last.get((owner, step))
        return found is not None and self._round - found[0] <= self.policy.max_staleness

    # -------------------------------------------------------------------------------------------------- asynchronously

    def submit(self, owner: str, step: Step, order: Order) -> Ticket:
        """Send one order to one owner without waiting."""
        if self._secure:
            raise OptionError("secure_sum=True needs rounds of all owners; this method asks them one by one")
        self._round += 1
        ticket = Ticket(owner, step, self._stamp(owner, order))
        self._set_off(ticket)
        return ticket

    def wait_any(self, tickets: Sequence[Ticket], timeout: float | None = None) -> list[Ticket]:
        """The tickets that are answered, at least one unless the timeout (seconds) passes; in the order given.

        Lost and overdue orders are sent again as the policy says; an owner that did obey answers from its memory, so
        nothing is done twice. Raises OwnerLost when the policy is exhausted. A ticket whose owner failed otherwise is
        among the answered ones; its `reply` raises why. Each ticket is counted in the ledger when it is handed back:
        pass only tickets still waited for. Each call that brings something counts as an exchange.
        """
        until = np.inf if timeout is None else time.monotonic() + timeout
        while tickets:
            now = time.monotonic()
            for ticket in tickets:
                if ticket.future is None and ticket.since <= now:
                    self._set_off(ticket)
            left = max(min(until, *(self._due(ticket) for ticket in tickets)) - time.monotonic(), 0.0)
            futures = [ticket.future for ticket in tickets if ticket.future is not None]
            if futures:
                wait(futures, None if left == np.inf else left, FIRST_COMPLETED)
            else:
                time.sleep(left)
            ready = [ticket for ticket in tickets if self._settled(ticket)]
            self.ledger.rounds += bool(ready)
            if ready or time.monotonic() >= until:
                return ready
        return []

    def _set_off(self, ticket: Ticket) -> None:
        self.ledger.down(ticket.owner, ticket.order)
        ticket.future, ticket.since = self._start(ticket.owner, ticket.step, ticket.order), time.monotonic()

    def _due(self, ticket: Ticket) -> float:
        """When something must be done about this ticket even if no reply comes."""
        if ticket.future is None:
            return ticket.since
        return np.inf if self.policy.deadline is None else ticket.since + self.policy.deadline

    def _settled(self, ticket: Ticket) -> bool:
        """Is it answered? If it was lost, it is sent again later."""
        if ticket.future is None:
            return False
        why: object = None
        if ticket.future.done():
            why = ticket.future.exception()
            if why is None:
                self.ledger.up(ticket.owner, ticket.future.result(), ticket.order.round)
                if not self._looking:
                    self._after[ticket.owner] = max(self._after[ticket.owner], ticket.order.round)
                return True
            if not isinstance(why, OwnerLost):
                return True
        elif time.monotonic() >= self._due(ticket):
            why = f"{ticket.owner}: no reply to round {ticket.order.round} within {self.policy.deadline:g} s"
        if why is not None:
            if self.policy.on_failure == "stop" or ticket.attempt >= self.policy.retries:
                self.save()
                raise OwnerLost(str(why))
            ticket.future, ticket.since = None, time.monotonic() + _pause(ticket.attempt)
            ticket.attempt += 1
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.save()
        finally:
            if self.checkpoint is not None:
                self.checkpoint.close()
            self.close()
