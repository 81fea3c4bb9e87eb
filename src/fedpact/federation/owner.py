"""One owner's side of the door: it runs a step on its share, keeps the state, and remembers what it answered.

The memory is in this process and, when a folder is given, on the owner's own disk (memory.py), so an owner that was
killed goes on where it was. It is keyed by run and round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fedpact.errors import CheckpointError, DataError, FedpactError, OptionError, OwnerError, OwnerLost
from fedpact.federation import secure_sum
from fedpact.federation.aligned import Peopled, Rows
from fedpact.federation.digest import digest
from fedpact.federation.evidence import Signed, sign_reply, statement
from fedpact.federation.failure import UNEXPECTED
from fedpact.federation.gate import digest_of
from fedpact.federation.memory import Disk, Memory, Step, key_of, key_of_asked
from fedpact.federation.messages import (
    Order,
    Reply,
    Sealed,
    check_travels,
    copy_with,
    excessive_length,
    is_finite,
    largest_fields,
    not_finite,
    seal,
    shown_fields,
    summed_fields,
)
from fedpact.federation.rules import UNCOUNTED, Counts
from fedpact.federation.wire import (
    ALIGNING,
    client_step,
)
from fedpact.watching import Watch, watching

#: Steps that get an owner's keys instead of its state, and do not need its data.
KEY_STEPS: tuple[Step, ...] = (secure_sum.offer, secure_sum.agree)


class named:
    """Errors raised inside come out with the owner's name: our own kinds as they are, all others as OwnerError."""

    def __init__(self, owner: str, what: str) -> None:
        self.owner = owner
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FedpactError):
            if str(error).startswith((f"{self.owner}:", f"owner {self.owner!r}:")):
                return
            raise error.within(self.owner) from error
        if isinstance(error, Exception):
            words = f"{self.owner}: {self.what} failed with {type(error).__name__}: {error}"
            raise OwnerError(words, code=UNEXPECTED) from error


@dataclass(frozen=True, kw_only=True)
class Confirmed(Reply):
    """This owner remembers the run, and holds the data that it was computed from."""


@client_step
def confirm(share: object, state: Any, order: Order) -> tuple[Any, Confirmed]:
    """Nothing is left to do here: the owner has compared its data with those it remembers."""
    return state, Confirmed()


@dataclass(frozen=True, kw_only=True)
class Ended(Reply):
    """This owner has erased the keys of the run."""


@client_step
def end(share: object, state: Any, order: Order) -> tuple[Any, Ended]:
    """Nothing is left to do here: the owner has erased what it kept of the run (`Owner.handle`)."""
    return None, Ended()


@runtime_checkable
class Sourced(Protocol):
    """What builds an owner's shares, and knows the digest of the data it builds them from; empty: of the share."""

    def digest(self) -> str: ...


@runtime_checkable
class Counted(Protocol):
    """What builds an owner's shares, and counts the rows that a task would rest on."""

    def counts(self, task: Any, rows: Rows = ...) -> Counts: ...


class Owner:
    """Holds a share and the state between rounds of one run. Every engine runs its owners through this class.

    source: the share, or a function that builds it here: of the task that comes with an order (and, after an
            alignment, of the rows that it gave), or without arguments where there is none
    folder: where the memory is also kept on disk; a subfolder by owner and run
    every:  write the memory after every round (an owner in a process of its own), or only when told to by `save`
    durable: whether the memory must survive the machine, too, rather than this process alone
    peers:  what it knows of itself and of the others, for secure sums and evidence
    admit:  judges the counts of its table before a share is built; raises Refused
    behind: judges how many rows are behind what a step computed; raises Refused
    small_cells: numbers that tell of fewer rows than this are withheld
    """

    def __init__(
        self,
        name: str,
        source: object,
        folder: Path | None = None,
        *,
        every: bool = True,
        durable: bool = True,
        peers: secure_sum.Peers | None = None,
        admit: Callable[[Counts], None] | None = None,
        behind: Callable[[Watch], None] | None = None,
        small_cells: int = 0,
    ) -> None:
        self.name = name
        self._small_cells = small_cells
        self._admit = admit
        self._behind = behind
        self.watch = Watch()  # of the last step
        self.repeated = False  # whether the last reply was given before
        self._peers = peers or secure_sum.Peers(name)
        self._first = source
        self._source = source
        self._digest = ""
        self._every = every
        self._disk = Disk(name, folder, durable)
        self._memory: Memory | None = None
        self._looked: tuple[str, Sealed[Any] | None] = ("", None)  # the last masked look, should its reply be lost
        self._share: Any = None
        self._task: Any = None
        self._asked = ""  # digest of charter and task, once it is needed

    def introduce(self, peers: secure_sum.Peers) -> None:
        """Its own key, and those of the others."""
        self._peers = peers

    def hold(self, source: object) -> None:
        """Another share, or another function that builds it; the memory stays."""
        self._source = source
        self._digest = ""
        self._share = None

    def handle(self, step: Step, order: Order, task: Any = None) -> Sealed[Any]:
        """Run the step, or return the stored reply when this round was answered before (so a lost reply costs nothing).

        Raises OwnerError, naming this owner, when the order is of another run or of a past round, when the step fails,
        or when the order or the reply holds a NaN, an infinity or what cannot travel; OwnerLost when the coordinator
        counts on a round that this owner does not remember; CheckpointError when its memory is of other data than it
        holds now. The state changes only when the step succeeded.
        """
        _check_order(self.name, order)
        self._take(task)
        self.repeated = False
        self.watch = Watch()
        known = self._memory or self._load(order.run)
        self._memory = known
        self._check(order, known)
        if step is end:
            return self._end(order, known)
        if known.ended and step is not confirm:
            raise OwnerError(f"{self.name}: got an order of a run that has ended", code="FP-OWNER-660")
        if order.look:
            return self._look(step, order, known)
        if order.round in known.answers:
            asked, sealed = known.answers[order.round]
            if key_of_asked(asked) != key_of(step, order, self._request):
                raise OwnerError(
                    f"{self.name}: round {order.round} was answered before, for another order", code="FP-OWNER-003"
                )
            self.repeated = True
            return sealed
        if order.round <= known.round:
            raise OwnerError(
                f"{self.name}: got an order of round {order.round} after round {known.round}", code="FP-OWNER-004"
            )
        changes, sealed = self._work(step, order, known)
        answers = {r: answer for r, answer in known.answers.items() if r > order.durable}
        answers[order.round] = ((step, order, self._request), sealed)
        self._memory = copy_with(known, {"round": order.round, "answers": answers, **changes})
        if "aligned" in changes:
            self._share = None  # of other rows
        if self._every:
            self.save()
        return sealed

    def prepare(self, order: Order, task: Any = None) -> Any:
        """Its share, for an order that many owners answer in one computation; raises what `handle` would."""
        _check_order(self.name, order)
        self._take(task)
        self._memory = self._memory or self._load(order.run)
        self._check(order, self._memory)
        return self.share

    def _take(self, task: Any) -> None:
        """The task of the order at hand; the share is built anew when it changes."""
        if task != self._task:
            self._task = task
            self._share = None
            self._asked = ""

    @property
    def _request(self) -> str:
        """Digest of the charter and of the task: what is asked of this owner beside the order."""
        if not self._asked:
            stated = {} if self._task is None else self._stated_task()
            self._asked = digest_of({"charter": self._peers.charter, "task": stated})
        return self._asked

    def _name(self, step: Step, order: Order) -> Callable[[], str]:
        """Names a message for its masks, by all that was asked."""
        return lambda: key_of(step, order, self._request)

    def _stated_task(self) -> Mapping[str, Any]:
        if isinstance(self._task, Mapping):
            return self._task
        stated: Mapping[str, Any] = self._task.stated()  # in this process it did not travel
        return stated

    def take_over(self, run: str, round: int, state: Any) -> None:
        """Its part of a state that many owners had in common, after this round."""
        known = self._memory or self._load(run)
        self._memory = copy_with(known, {"round": round, "state": state, "answers": {}})

    def _check(self, order: Order, known: Memory) -> None:
        """The order is of the run in memory, and counts on no round that this owner has forgotten."""
        if order.run != known.run:
            raise OwnerError(
                f"{self.name}: got an order of run {order.run!r} during run {known.run!r}", code="FP-OWNER-002"
            )
        if order.after > known.round:
            raise OwnerLost(
                f"{self.name}: has no memory of round {order.after}, its last is {known.round}; it was restarted "
                "without its state folder, or with an older copy of it",
                code="FP-LOST-001",
            )

    def _end(self, order: Order, known: Memory) -> Sealed[Any]:
        """Keep of the run only what tells whether the data are still the same."""
        self._memory = Memory(known.run, known.round, data=known.data, look=known.look, ended=True)
        self._looked = ("", None)
        self.save()
        self._disk.forget(known.run)
        return seal(end(None, None, order)[1])

    def _look(self, step: Step, order: Order, known: Memory) -> Sealed[Any]:
        """Answer, and remember nothing but the number of a masked look: two answers under one mask tell each other."""
        if not order.secure:
            return self._work(step, order, known)[1]
        key = key_of(step, order, self._request)
        last, sealed = self._looked
        if sealed is None or key != last:
            if order.look <= known.look:
                raise OwnerLost(f"{self.name}: was asked to look twice under one number", code="FP-LOST-620")
            self._memory = replace(known, look=order.look)
            if self._every:
                self.save()
            sealed = self._work(step, order, known)[1]
            self._looked = (key, sealed)
        else:
            self.repeated = True
        return sealed

    @property
    def state(self) -> Any:
        """What the last step left."""
        return None if self._memory is None else self._memory.state

    @property
    def share(self) -> Any:
        """What the steps work on; built at its first use."""
        if self._share is None:
            self._share = self._build(self._source)
        return self._share

    def _build(self, source: object) -> Any:
        with named(self.name, "building its share"):
            if self._admit is not None:
                self._admit(self._count(source))
            if not callable(source):
                return source
            if not self._task:
                return source()
            if self._rows is None:
                return source(self._task)
            share = source(self._task, self._rows)
            self._check_table(source)  # after the table was read: a change while it was read is found, too
            return share

    @property
    def _rows(self) -> Rows | None:
        """What an alignment gave; None where there was none."""
        if self._memory is None or self._memory.aligned is None:
            return None
        return self._memory.aligned.rows

    def _check_table(self, source: object) -> str:
        """Digest of the table of parties. DataError when it is another than when the alignment began."""
        if not isinstance(source, Peopled) or not self._task:
            raise OptionError(
                f"{self.name}: holds no table with ids; give it one, and a task about parties", code="FP-OPTION-417"
            )
        table = source.table(self._task)
        if self._memory is not None and self._memory.aligned is not None and table != self._memory.aligned.table:
            raise DataError(
                f"{self.name}: its table has changed since the parties were aligned; restore it, or begin another run",
                code="FP-DATA-414",
            )
        return table

    def _count(self, source: object) -> Counts:
        if not isinstance(source, Counted) or not self._task:
            return UNCOUNTED
        if self._rows is None:
            return source.counts(self._task)
        return source.counts(self._task, self._rows)

    @property
    def data(self) -> str:
        """Digest of what it holds now: as its source tells it, else of the share it built first from that.

        Empty when no memory is kept on disk.
        """
        if self._disk.folder is not None and not self._digest:
            self._digest = self._digest_of(self._source)
        return self._digest

    def _digest_of(self, source: object) -> str:
        if isinstance(source, Sourced):
            with named(self.name, "reading its data"):
                known = source.digest()
            if known:
                return known
        if source is self._source:
            return digest(self.share)
        return digest(self._build(source))

    def _compare(self, data: str, known: tuple[str, ...]) -> None:
        """CheckpointError when these data are none of those that the memory was computed from."""
        if known and data not in known:
            raise CheckpointError(
                f"{self.name}: its data are not those of the checkpoint: they, or functions that read them, changed "
                "since this run began; restore them, or solve from the start with another folder",
                code="FP-CHECKPOINT-001",
            )

    def _work(self, step: Step, order: Order, known: Memory) -> tuple[dict[str, Any], Sealed[Any]]:
        """Run the step on what is known; what of that changes, and the reply. Nothing is remembered here."""
        if step in KEY_STEPS:
            with named(self.name, step.__name__):
                keys, reply = step(self._peers, known.keys, order)
                return {"keys": keys}, seal(reply)
        if step in ALIGNING:
            return self._align(step, order, known)
        data = known.data
        if step is confirm:  # perhaps in the middle of an alignment, when there is no share yet
            self._compare(self.data, data)
            return {}, seal(confirm(None, None, order)[1])
        share = self.share
        data = self._extend(data)  # before the step, which may leave traces in a user's objects
        with named(self.name, getattr(step, "__name__", "a step")):
            if self._behind is None:
                state, reply = step(share, known.state, order)
            else:
                with watching() as self.watch:
                    state, reply = step(share, known.state, order)
                self._behind(self.watch)
            sealed = _seal(step, order, reply.withhold(self._small_cells), known.keys, self._name(step, order))
            if isinstance(reply, Signed):
                sealed = self._sign(order, sealed)
            return {"state": state, "data": data}, sealed

    def _align(self, step: Step, order: Order, known: Memory) -> tuple[dict[str, Any], Sealed[Any]]:
        """Run a step of an alignment on the people of the table."""
        with named(self.name, step.__name__):
            table = self._check_table(self._source)  # before it is read: a change while it is read is found later
            assert isinstance(self._source, Peopled)
            if self._admit is not None:
                self._admit(self._count(self._source))
            aligned, reply = step(self._source.people(self._task), known.aligned, order)
            sealed = _seal(step, order, reply, known.keys, self._name(step, order))
            return {"aligned": replace(aligned, table=table), "data": self._extend(known.data)}, sealed

    def _extend(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """The digests of the memory, with that of the data it is now computed from."""
        data = self.data
        if data and data not in known:
            return (*known, data)
        return known

    def _sign(self, order: Order, sealed: Sealed[Any]) -> Sealed[Any]:
        task = None if self._task is None else self._stated_task()
        table = self.data or self._digest_of(self._source)
        exchanges = 0 if self._memory is None else self._memory.round
        signed = sign_reply(order.run, sealed, self._peers, task, table, exchanges)
        assert self._peers.identity is not None  # else it could not sign
        said = {"key": self._peers.identity.public, "signature": signed.kept.signature}
        self._disk.keep_signed(order.run, {**said, "statement": statement(order.run, self.name, signed)})
        return signed

    def save(self) -> None:
        """Write the memory to the folder, if there is one."""
        if self._memory is not None:
            self._disk.save(self._memory)

    def _load(self, run: str) -> Memory:
        """The memory of a run, from the folder; an empty one when there is none."""
        found = self._disk.load(run)
        if found.data:  # other shares may have come since, of which it remembers nothing yet; the first it must know
            held_first = self.data if self._first is self._source else self._digest_of(self._first)
            self._compare(held_first, found.data)
        return found


#: The last order that was found to be sound: in one process all owners get the same object.
_sound: Order | None = None


def _check_order(owner: str, order: Order) -> None:
    """OwnerError for an order with a NaN or an infinity, or one that asks for far more than it holds itself."""
    global _sound
    if order is _sound:
        return
    if (bad := not_finite(order)) is not None:  # a step might never end on it
        raise OwnerError(f"{owner}: got an order with a non-finite {type(order).__name__}.{bad}", code="FP-OWNER-020")
    if (bad := excessive_length(order)) is not None:
        raise OwnerError(
            f"{owner}: got an order with {type(order).__name__}.{bad} = {getattr(order, bad)}, out of proportion to "
            "the problem",
            code="FP-OWNER-661",
        )
    _sound = order


def _seal(
    step: Step, order: Order, reply: Reply, keys: secure_sum.Keys | None, message: Callable[[], str]
) -> Sealed[Any]:
    """Check the reply of a step and seal it, its sums masked where the order asks for that.

    message: names it, for the masks
    """
    check_travels(reply)
    sealed = seal(reply)
    finite = is_finite(sealed.sums) and not_finite(reply, shown_fields(type(reply), masked=False)) is None
    if not finite:
        raise OwnerError(
            f"{step.__name__} gave a non-finite {not_finite(reply)}; check this owner's data and functions for NaN, "
            "infinities and overflow (scaling the columns often helps)",
            code="FP-OWNER-005",
        )
    if not sealed.sums.size and not largest_fields(type(reply)):
        return sealed
    agreed = keys is not None and keys.shared
    if agreed and not order.secure:
        raise OwnerError(
            "it agreed on secure sums in this run, and was then asked for numbers without a mask", code="FP-OWNER-006"
        )
    if order.secure:
        return _mask(order, reply, keys, message())
    return sealed


def _mask(order: Order, reply: Reply, keys: secure_sum.Keys | None, message: str) -> Sealed[Any]:
    if keys is None or not keys.shared:
        raise OwnerLost(
            "it has no keys for a secure sum; it was restarted without its state folder", code="FP-LOST-003"
        )
    values = {f"{type(reply).__name__}.{name}": getattr(reply, name) for name in summed_fields(type(reply))}
    secure_sum.check_range(values, len(keys.shared))
    sealed = seal(reply, most=secure_sum.largest_root(len(keys.shared)))
    fit = secure_sum.fit_of(order, sealed, len(keys.shared))
    return replace(sealed, sums=secure_sum.protect(sealed.sums, keys, message, fit))
