"""One configured fleet for everything that one run does: `Session.ask` is the only way to an owner.

What happens when an owner does not answer is a stated policy, what is received may be kept in a checkpoint,
summed fields may be masked, and every message is counted and, if asked for, recorded; an algorithm sees none of that.
Owners keep what they have read for the length of the session.
"""

from __future__ import annotations

import json
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import FedpactError, OptionError, OwnerError
from fedpact.federation.checkpoint import Checkpoint, Past
from fedpact.federation.crew import TWINS
from fedpact.federation.fleet import Engine, Fleet, Stated, check_count, find_engine
from fedpact.federation.identity import Identity, check_public_keys
from fedpact.federation.ledger import Ledger
from fedpact.federation.memory import Step
from fedpact.federation.messages import (
    Answers,
    NotFinite,
    Order,
    Reply,
    Sealed,
    copy_with,
    is_finite,
    is_masked,
    not_finite,
    rebuild,
)
from fedpact.federation.owner import confirm, end
from fedpact.federation.patience import Collector, Policy
from fedpact.federation.secure_sum import Agree, Offer, add_parts, agree, fit_of, offer
from fedpact.federation.tickets import Ticket, count_order, wait_any
from fedpact.federation.wire import adds_up

R = TypeVar("R", bound=Reply)

#: Seconds that owners have to hear that the run has ended.
PARTING = 10.0


class Session:
    """Engine, failure policy, record, checkpoint and secure sums of a run.

    engine:     None or "in-process", "threads", "ray", or an engine such as fp.engines.Ray(address=...)
    secure_sum: the coordinator sees sums over the owners, nobody's own vectors and matrices; None: as the method needs.
                Two exchanges, once a session; two owners or more
    on_failure, deadline, retries, max_staleness: see `Policy`
    checkpoint: folder in which the run is kept, every `checkpoint_every` exchanges and when it ends, is interrupted
                (Ctrl-C, SIGTERM) or loses an owner; `resume=True` goes on from there, to the same bits
    record:     file to which every message is written, for an auditor; `fedpact.federation.read_record` reads it
    identity:   file of the coordinator's private key, with which it signs its orders to other organisations
    roster:     public keys of the owners, by name: replies that they did not sign are refused
    keys:       files of the owners' private keys, by name, where they are on this machine: `fp.fit` ends with what they
                sign about it (`Fit.evidence`). Owners of other organisations have their own

    `open` gives the owners what they hold; `fp.solve` and `fp.fit` do it. Use it as a context manager, or close it.
    With a checkpoint, a session that was interrupted or lost an owner solves no more; `resume=True` goes on with it.
    """

    def __init__(
        self,
        engine: Engine | str | None = None,
        *,
        secure_sum: bool | None = None,
        on_failure: Literal["retry", "stale", "stop"] = "retry",
        deadline: float | None = None,
        retries: int = 8,
        max_staleness: int = 3,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 1,
        resume: bool = False,
        record: str | Path | None = None,
        identity: str | Path | None = None,
        roster: Mapping[str, str] | None = None,
        keys: Mapping[str, str | Path] | None = None,
    ) -> None:
        self.engine = find_engine(engine)
        self.identity = None if identity is None else Identity.load(identity)
        self.roster = check_public_keys(roster or {}, "roster")
        self.keys = {name: Path(path) for name, path in (keys or {}).items()}
        publics = {name: Identity.load(path).public for name, path in self.keys.items()}
        self._publics = check_public_keys(publics, "keys")
        self.secure_sum = secure_sum
        self.policy = Policy(on_failure, deadline, retries, max_staleness)
        self._collector = Collector(self.policy)
        self.folder = None if checkpoint is None else Path(checkpoint)
        self.record = None if record is None else Path(record)
        self._every = checkpoint_every
        self._resume = resume
        check_count("checkpoint_every", checkpoint_every)
        if resume and checkpoint is None:
            raise OptionError(
                "resume=True needs checkpoint=, the folder of the run to go on with", code="FP-OPTION-308"
            )
        if secure_sum and on_failure == "stale":
            raise OptionError(
                'on_failure="stale" needs replies of single owners, which secure_sum=True hides; use "retry"',
                code="FP-OPTION-309",
            )
        self.run = uuid.uuid4().hex[:16]
        self.ledger = Ledger((), self.record)
        self.checkpoint: Checkpoint | None = None
        self._stack = ExitStack()
        self._fleet: Fleet | None = None
        self._sources: Mapping[str, object] = {}
        self._round = 0
        self._secure = False
        self._looking = False
        self._closed = False
        self._failed = False  # by an error, and can be resumed
        self._confirmed = True  # a run that starts has no past to be compared with
        self._after: dict[str, int] = {}
        self._durable: dict[str, int] = {}  # of these, what is written in the checkpoint

    # ------------------------------------------------------------------------------------------------ open and close

    def open(self, sources: Mapping[str, object], about: Mapping[str, Any] | None = None) -> Self:
        """Give the owners what they hold, by name: shares, or what builds them where the data is.

        about: what identifies the run in its checkpoint. A session that is open already stays with its owners; they may
        be given other shares. Raises OptionError for other owners.
        """
        if self._closed:
            raise OptionError("this session is closed; make another fp.Session", code="FP-OPTION-310")
        if self._fleet is None:
            memory = None if self.folder is None else self.folder / "owners"
            self._fleet = self.engine.open(sources, memory)
            self._fleet.deadline = self.policy.deadline
            self._fleet.identity = self.identity
            self._fleet.roster = self.roster
            self._stack.callback(self._fleet.close)
            self._introduce(self._fleet)
            self.ledger = Ledger(self._fleet.owners, self.record)
            self._after = dict.fromkeys(self._fleet.owners, 0)
            self._durable = dict(self._after)
            if self.folder is not None:
                self._keep(self.folder, {**(about or {}), "owners": list(sources)})
        elif tuple(sources) != self._fleet.owners:
            raise OptionError(
                f"this session is of {', '.join(self._fleet.owners)}, the problem of {', '.join(sources)}; open a "
                "session for it",
                code="FP-OPTION-311",
            )
        elif any(sources[name] is not self._sources[name] for name in sources):
            self._fleet.hold(sources)
            if self._replaying:
                self._confirmed = False  # what is on record from here on was computed from these shares
        if not self._fleet.charter:
            self._fleet.charter = {"run": self.run, "owners": list(sources), "job": dict(about or {})}
        self._sources = dict(sources)
        return self

    def _introduce(self, fleet: Fleet) -> None:
        """Give the owners their keys. OptionError unless all of them have one, or none."""
        if not self.keys:
            return
        if self.keys.keys() != set(fleet.owners):
            raise OptionError(
                f"keys: there are some for {', '.join(self.keys)}; give one for each of {', '.join(fleet.owners)}",
                code="FP-OPTION-631",
            )
        fleet.introduce(self.keys, self._publics)

    @property
    def signers(self) -> dict[str, str]:
        """Public keys of the owners, by name; empty where they sign nothing."""
        return self._publics or self.roster

    def pose(self, task: Stated | None) -> None:
        """From now on owners build their share from this task; what they have read is read once."""
        self.fleet.task = task

    def close(self) -> None:
        """Write the checkpoint, tell the owners that the run has ended, and let them go: they cannot be asked any more.

        A run that can be resumed has not ended.
        """
        with self._stack:
            if not self._closed:
                self.save()
                self._end()
        self._closed = True

    def _end(self) -> None:
        """Have the owners erase their keys. Best effort: an owner that does not hear it forgets in its own time."""
        if self._fleet is None or not self.networked or not self._round:
            return  # keys of one organisation are in its own checkpoint
        if self._looking or self._failed or self._replaying:
            return
        futures = []
        record = Ledger(self.owners, self.ledger.record)  # written down, but not counted: no method has asked for it
        for owner in [name for name in self.owners if self._after[name]]:  # others have nothing to erase
            order = self._stamp_all({owner: Order()}, self._round, 0)[owner]
            record.down(owner, order)
            futures.append(self._fleet.start(owner, end, order))
        wait(futures, PARTING)

    @property
    def fleet(self) -> Fleet:
        """The owners; OptionError when the session is not open."""
        if self._fleet is None or self._closed:
            raise OptionError(
                "this session is not open: fp.solve and fp.fit open it, or session.open(sources)",
                code="FP-OPTION-312",
            )
        return self._fleet

    @property
    def owners(self) -> tuple[str, ...]:
        """Their names, in the order in which replies are added up."""
        return self.fleet.owners

    @property
    def networked(self) -> bool:
        """Whether the owners live in other organisations."""
        return self.fleet.networked

    def _keep(self, folder: Path, about: dict[str, Any]) -> None:
        """Keep what comes back in a checkpoint, and answer from it what is on record."""
        self._stack.enter_context(_terminable())
        self.checkpoint = Checkpoint(folder, about, self._every, self._resume)
        self._stack.callback(self.checkpoint.close)
        self.run = self.checkpoint.run
        self._confirmed = not self.checkpoint.replaying

    # ------------------------------------------------------------------------------------------------------ exchanges

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
        asked = self.owners if owners is None else tuple(owners)
        self._check_masks(step, asked == self.owners and isinstance(orders, Order))
        if owners is None and isinstance(orders, Order):
            jointly = self._ask_jointly(step, orders)
            if jointly is not None:
                return jointly
        each = [orders] * len(asked) if isinstance(orders, Order) else list(orders)
        number = self._number()
        stamped = self._stamp_all(dict(zip(asked, each, strict=True)), self._round + 1, number)
        self._round += 1
        self.ledger.rounds += 1
        past = self._recall(step, stamped) or self._exchange_anew(step, stamped)
        total = rebuild(type(past.kept[0]), past.shapes, past.total, past.kept, past.masked)
        return Answers(past.kept, total)  # type: ignore[arg-type]

    def _ask_jointly(self, step: Callable[[Any, Any, Any], tuple[Any, R]], order: Order) -> Answers[R] | None:
        """One exchange whose replies come from one computation, where nothing is about single messages; else None."""
        single = self._secure or self._looking or self.checkpoint is not None or self.record is not None
        if single or self.policy.on_failure == "stale" or step not in TWINS:
            return None
        stamped = self._stamp(order, self._round + 1, 0, 0, 0)
        joint = self.fleet.answer_jointly(step, stamped)
        if joint is None:
            return None
        self._round += 1
        self.ledger.rounds += 1
        kind = joint.kept.kind
        self.ledger.count_all(stamped, kind, joint.size)
        self._after = dict.fromkeys(self.owners, self._round)
        with np.errstate(over="ignore"):
            total = joint.sums.sum(axis=0)  # one owner after the other, as `add_parts`
        check_total(total, kind)
        return Answers(joint.kept, rebuild(kind, joint.shapes, total, joint.kept, masked=False))

    def require(self, method: str, steps: Iterable[str]) -> None:
        """OptionError, naming the owner, when one lacks a step that the method needs: before anything is asked."""
        for owner, known in self.fleet.steps.items():
            if lacking := sorted(set(steps) - known):
                raise OptionError(
                    f"{owner}: its fedpact has no {', '.join(lacking)}, which {method!r} needs; upgrade it there, or "
                    "choose another method",
                    code="FP-OPTION-661",
                )

    def witness(self, step: Step, order: Order) -> dict[str, Sealed[Any]]:
        """One exchange about a run that is over: the replies as they were sent. Nothing of it is remembered."""
        self.confirm()
        looking = self._looking
        self._looking = True
        self.ledger.rounds += 1
        try:
            number = self._number()
            return self._collect(step, self._stamp_all(dict.fromkeys(self.owners, order), self._round, number))
        finally:
            self._looking = looking

    def secure(self) -> None:
        """Two exchanges, once: owners agree on keys; from now on the coordinator sees only sums of summed fields."""
        if self._secure:
            return
        if len(self.owners) < 2:
            raise OptionError(
                "secure_sum=True hides nothing with a single owner: the sum is its vector; leave it out",
                code="FP-OPTION-314",
            )
        offered = self.ask(offer, Offer())
        publics = json.dumps([reply.public for reply in offered])
        signatures = json.dumps([reply.signature for reply in offered])
        self.ask(agree, Agree(names=json.dumps(self.owners), publics=publics, signatures=signatures))
        self._secure = True

    def _recall(self, step: Step, orders: dict[str, Order]) -> Past | None:
        """The present round from the checkpoint, counted as it was when it took place; None when it is a new one."""
        if self.checkpoint is None or self._looking:
            return None
        past = self.checkpoint.recall(self._round, (step, orders))
        if past is not None:
            self._count_again(self._round, tuple(orders), past)
        return past

    def _count_again(self, round: int, owners: Sequence[str], past: Past) -> None:
        """Count what is on record as it was counted when it took place."""
        for owner, counts, kept in zip(owners, past.counts, past.kept, strict=True):
            self.ledger.add(owner, counts)
            self.ledger.name(owner, type(kept), past.masked)
            if counts[1]:  # it did answer, rather than being stood in for by an old reply
                self.acknowledge(owner, round)
                self._durable[owner] = self._after[owner]

    def _exchange_anew(self, step: Step, orders: dict[str, Order]) -> Past:
        """The present round with the owners, kept in the checkpoint."""
        with self._resumable():
            self.confirm()
            past = self._exchange(step, orders)
        if self.checkpoint is not None and not self._looking and self.checkpoint.add((step, orders), past):
            self.save()
        return past

    @contextmanager
    def _resumable(self) -> Iterator[None]:
        """What fails inside is not on record: only a resumed run can go on with it."""
        try:
            yield
        except FedpactError:
            self.look()
            raise

    def _check_masks(self, step: Step, one_for_all: bool) -> None:
        """OptionError unless all owners get one order, or nothing is summed: else masks do not cancel."""
        if self._secure and not one_for_all and adds_up(step):
            raise OptionError(
                "secure_sum=True needs rounds of all owners; this method asks them one by one: use another method, or "
                "secure_sum=False",
                code="FP-OPTION-313",
            )

    def confirm(self) -> None:
        """Before a resumed run asks anything new, or ends: every owner compares its data with those it remembers.

        Raises CheckpointError, naming the owner, when they are others: what is on record is not true of them.
        """
        if self._confirmed:
            return
        looking = self._looking
        ledger = self.ledger
        self._looking = True
        self.ledger = Ledger(self.owners, ledger.record)  # not counted: the traffic of a resumed run is the whole run's
        try:
            number = self._number()
            self._exchange(confirm, self._stamp_all(dict.fromkeys(self.owners, Order()), self._round, number))
        finally:
            self._looking = looking
            self.ledger = ledger
        self._confirmed = True

    def look(self) -> None:
        """From now on owners answer without remembering, so that the run can be resumed from where it was.

        Without a checkpoint there is nothing to resume, and they go on as before.
        """
        if self.checkpoint is None:
            return
        if self.checkpoint.replaying:
            raise KeyboardInterrupt  # a resumed run has not caught up: the owners are ahead of the point to look at
        self.save()
        self._looking = True

    @property
    def _replaying(self) -> bool:
        """Whether a resumed run repeats what is on record."""
        return self.checkpoint is not None and self.checkpoint.replaying

    @property
    def secured(self) -> bool:
        """Whether owners mask what is added up."""
        return self._secure

    @property
    def looking(self) -> bool:
        """Whether owners answer without remembering, because a run that was stopped is to be resumed."""
        return self._looking

    def save(self) -> None:
        """Write the checkpoint, if there is one."""
        if self.checkpoint is not None and not self._looking:
            self.fleet.keep()
            self.checkpoint.write()
            self._durable = dict(self._after)

    def _number(self) -> int:
        """Of a look, one that was never used before; 0 when this is none."""
        return time.time_ns() if self._looking else 0

    def _stamp_all(self, orders: Mapping[str, Order], round: int, look: int) -> dict[str, Order]:
        """Orders as they are sent; owners that get the same order, and remember as much, share one object."""
        stamped: dict[tuple[int, int, int], Order] = {}
        found = {}
        for owner, order in orders.items():
            after = self._after[owner]
            durable = after
            if self.checkpoint is not None:
                durable = self._durable[owner]
            key = (id(order), after, durable)
            if key not in stamped:
                stamped[key] = self._stamp(order, round, after, durable, look)
            found[owner] = stamped[key]
        return found

    def _stamp(self, order: Order, round: int, after: int, durable: int, look: int) -> Order:
        if (bad := not_finite(order)) is not None:
            raise NotFinite(
                f"round {round} would send a non-finite {type(order).__name__}.{bad}: the regularizer or the "
                "coordinator's constraint gave NaN or infinity, or the method diverged; check both, scale the columns"
            )
        stamp = {
            "run": self.run,
            "round": round,
            "after": after,
            "durable": durable,
            "look": look,
            "secure": self._secure,
        }
        return copy_with(order, stamp)

    def _exchange(self, step: Step, orders: dict[str, Order]) -> Past:
        asked = list(orders)
        before = self.ledger.counts(asked)
        replies = self._collect(step, orders)
        first = replies[asked[0]]
        with np.errstate(over="ignore"):
            fit = fit_of(orders[asked[0]], first, len(asked))
            total = add_parts([replies[owner].sums for owner in asked], fit)
        check_total(total, type(first.kept))
        kept = [replies[owner].kept for owner in asked]
        masked = is_masked(first.sums)
        return Past(kept, first.shapes, total, masked, self.ledger.counts(asked) - before)

    def _collect(self, step: Step, orders: dict[str, Order]) -> dict[str, Sealed[Any]]:
        """A reply from every owner. OwnerError when they do not fit together."""
        replies = self._collector.gather(self, step, orders, self._round)
        asked = list(orders)
        first = replies[asked[0]]
        for owner, sealed in replies.items():
            alike = sealed.shapes == first.shapes and sealed.sums.dtype == first.sums.dtype
            alike = alike and sealed.sums.shape == first.sums.shape
            if not alike or type(sealed.kept) is not type(first.kept):
                raise OwnerError(
                    f"{owner}: its {type(sealed.kept).__name__} has fields of shapes {sealed.shapes}, that of "
                    f"{asked[0]} {first.shapes}; give all owners the same columns",
                    code="FP-OWNER-302",
                )
        return replies

    def acknowledge(self, owner: str, round: int) -> None:
        """Note that the owner's reply to this round is used: it must remember it."""
        if not self._looking:
            self._after[owner] = max(self._after[owner], round)

    # -------------------------------------------------------------------------------------------------- asynchronously

    def submit(self, owner: str, step: Step, order: Order) -> Ticket:
        """Send one order to one owner without waiting."""
        self._check_masks(step, one_for_all=False)
        stamped = self._stamp_all({owner: order}, self._round + 1, self._number())
        ticket = Ticket(owner, step, stamped[owner])
        self._round += 1
        if self._replaying:  # the run that is resumed sent it; should its reply not be on record, `wait_any` does again
            ticket.counts = count_order(ticket.order)
            self.ledger.add(owner, ticket.counts)
            return ticket
        with self._resumable():
            self.send(ticket)
        return ticket

    def send(self, ticket: Ticket) -> None:
        """Send the order of a ticket, for the first time or again."""
        self.confirm()
        with self._counting(ticket):
            self.ledger.down(ticket.owner, ticket.order)
        ticket.future = self.fleet.start(ticket.owner, ticket.step, ticket.order)
        ticket.since = time.monotonic()

    def receive(self, ticket: Ticket) -> None:
        """Count the reply of a ticket."""
        assert ticket.future is not None
        with self._counting(ticket):
            self.ledger.up(ticket.owner, ticket.future.result(), ticket.order.round)
        self.acknowledge(ticket.owner, ticket.order.round)

    @contextmanager
    def _counting(self, ticket: Ticket) -> Iterator[None]:
        """What the ledger counts inside is of this ticket."""
        before = self.ledger.counts([ticket.owner])[0]
        yield
        ticket.counts = ticket.counts + self.ledger.counts([ticket.owner])[0] - before

    def wait_any(self, tickets: Sequence[Ticket], timeout: float | None = None) -> list[Ticket]:
        """The tickets that are answered, at least one unless the timeout (seconds) passes; in the order given.

        Each is counted when it is handed back: pass only tickets still waited for. See `fedpact.federation.tickets`.
        """
        if tickets and self._replaying:
            return self._recall_batch(tickets)
        with self._resumable():
            ready = wait_any(self, tickets, timeout)
        if tickets:
            self._keep_batch(ready)
        return ready

    def _recall_batch(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """The tickets that were answered next when this took place, with their replies from the checkpoint."""
        assert self.checkpoint is not None
        batch = self.checkpoint.recall_batch({ticket.order.round: ticket.asked for ticket in tickets}) or {}
        ready = [ticket for ticket in tickets if ticket.order.round in batch]
        for ticket in ready:
            past = batch[ticket.order.round]
            ticket.answer(Sealed(past.kept[0], past.shapes, past.total))
            self._count_again(ticket.order.round, [ticket.owner], replace(past, counts=past.counts - ticket.counts))
        self.ledger.rounds += bool(ready)
        return ready

    def _keep_batch(self, ready: Sequence[Ticket]) -> None:
        """Write to the checkpoint who answered, and what.

        At once, whatever `checkpoint_every` says: orders that follow depend on who was first, and owners that obeyed
        them could not go on from a record that ends before.
        """
        if self.checkpoint is None or self._looking:
            return
        if any(ticket.failed for ticket in ready):  # the same orders go out again when the run is resumed
            self.look()
            return
        self.checkpoint.add_batch({ticket.order.round: (ticket.asked, ticket.past) for ticket in ready})
        self.save()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._failed = error is not None and self.checkpoint is not None
        self.close()


def check_total(total: NDArray[np.float64], kind: type[Reply]) -> None:
    """OwnerError unless the sum over the owners of such replies is finite."""
    if not is_finite(total):
        raise OwnerError(
            f"the sum of {kind.__name__} over the owners is too large for a number; scale the columns",
            code="FP-OWNER-303",
        )


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does: with a checkpoint and the best point so far."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
