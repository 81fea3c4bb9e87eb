"""Who received and sent how much, every field that ever left an owner by name and, if asked, every message itself."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import WireError
from fedpact.federation.messages import (
    Order,
    Reply,
    Sealed,
    content_fields,
    hidden_fields,
    is_masked,
    payload,
    sealed_size,
    size,
)
from fedpact.federation.wire import dumps, frame, loads, name_of, open_private, sealed_to_tree, split_records

Counts = NDArray[np.int64]  # messages down, messages up, bytes down, bytes up
Kind = tuple[type[Reply], bool]  # of a reply, and whether it was masked


@dataclass(frozen=True)
class Traffic:
    """What passed between the coordinator and one owner.

    fields: every field that left the owner, by name; "(masked)" follows those of which only the sum was seen
    """

    messages_down: int = 0
    messages_up: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    fields: tuple[str, ...] = ()

    def __add__(self, other: Traffic) -> Traffic:
        """Both, one after the other."""
        return Traffic(
            self.messages_down + other.messages_down,
            self.messages_up + other.messages_up,
            self.bytes_down + other.bytes_down,
            self.bytes_up + other.bytes_up,
            tuple(dict.fromkeys([*self.fields, *other.fields])),
        )


NOTHING = Traffic()


@dataclass(frozen=True)
class Communication:
    """Exchanges (one message down and one up), and the traffic by owner."""

    rounds: int
    owners: dict[str, Traffic]

    @property
    def bytes(self) -> int:
        return sum(t.bytes_down + t.bytes_up for t in self.owners.values())

    @property
    def messages(self) -> int:
        return sum(t.messages_down + t.messages_up for t in self.owners.values())

    def __add__(self, other: Communication) -> Communication:
        """Both, one after the other."""
        owners = dict(self.owners)
        for name, traffic in other.owners.items():
            owners[name] = owners.get(name, Traffic()) + traffic
        return Communication(self.rounds + other.rounds, owners)


@dataclass
class Common:
    """Exchanges of one size for all owners, which are counted once."""

    exchanges: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    kinds: dict[Kind, int] = field(default_factory=dict)  # the last exchange of that kind


class Ledger:
    """Counts as messages pass; read it as a Communication. `record` is a file that every message is written to."""

    def __init__(self, owners: tuple[str, ...], record: Path | None = None) -> None:
        self._owners = owners
        self._counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])  # of those with counts of their own
        # By owner and kind of reply, masked or not: the number of the owner's last reply of that kind.
        self._kinds: dict[str, dict[Kind, int]] = defaultdict(dict)
        self.record = record
        self.rounds = 0
        self.bytes = 0
        self._sized: tuple[Order | None, int] = (None, 0)  # the last order counted: most go to everybody
        self._common = Common()  # not yet in the counts of single owners

    def down(self, owner: str, order: Order) -> None:
        """Count an order on its way to the owner."""
        if order is not self._sized[0]:
            self._sized = (order, size(order))
        counts = self._counts[owner]
        counts[0] += 1
        counts[2] += self._sized[1]
        self.bytes += self._sized[1]
        if self.record is not None:
            self._write({"to": owner, "round": order.round, "type": name_of(type(order)), "content": payload(order)})

    def up(self, owner: str, sealed: Sealed[Any], round: int) -> None:
        """Count a reply of the owner."""
        self._settle()
        size_of_reply = sealed_size(sealed)
        counts = self._counts[owner]
        counts[1] += 1
        counts[3] += size_of_reply
        self.bytes += size_of_reply
        self.name(owner, type(sealed.kept), is_masked(sealed.sums))
        if self.record is not None:
            kind = name_of(type(sealed.kept))
            self._write({"from": owner, "round": round, "type": kind, "content": sealed_to_tree(sealed)})

    def count_all(self, order: Order, kind: type[Reply], up: int) -> None:
        """Count an order to every owner, and a plain reply of this kind and of so many bytes from each."""
        down = size(order)
        common = self._common
        common.exchanges += 1
        common.bytes_down += down
        common.bytes_up += up
        common.kinds[kind, False] = common.exchanges
        self.bytes += len(self._owners) * (down + up)

    def _settle(self) -> None:
        """Write what all owners have in common into the counts of each."""
        common = self._common
        if not common.exchanges:
            return
        self._common = Common()
        for owner in self._owners:
            counts = self._counts[owner]
            for kind, exchange in common.kinds.items():
                self._kinds[owner][kind] = counts[1] + exchange
            counts[0] += common.exchanges
            counts[1] += common.exchanges
            counts[2] += common.bytes_down
            counts[3] += common.bytes_up

    def add(self, owner: str, counts: Sequence[int] | Counts) -> None:
        """Count messages and bytes of the owner: down and up, down and up."""
        total = self._counts[owner]
        for place, count in enumerate(counts):
            total[place] += int(count)
        self.bytes += int(counts[2]) + int(counts[3])

    def name(self, owner: str, kind: type[Reply], masked: bool) -> None:
        """The owner's latest reply is of this kind: all fields of it left the owner."""
        self._settle()
        self._kinds[owner][kind, masked] = self._counts[owner][1]

    def counts(self, owners: Sequence[str]) -> Counts:
        """The counts of these owners so far, one row each."""
        self._settle()
        return np.array([self._counts[owner] for owner in owners])

    def read(self, since: Communication | None = None) -> Communication:
        """What passed in all, or since an earlier reading: exchanges, messages, bytes, and the fields that left."""
        before = since or Communication(0, {})
        rounds = self.rounds - before.rounds
        pasts = {id(past): past for past in before.owners.values()} or {0: NOTHING}
        if not self._counts and len(pasts) == 1:  # one for all
            common = self._common
            counts = [common.exchanges, common.exchanges, common.bytes_down, common.bytes_up]
            traffic = _passed(counts, common.kinds, *pasts.values())
            return Communication(rounds, dict.fromkeys(self._owners, traffic))
        self._settle()
        owners = {}
        for owner in self._owners:
            owners[owner] = _passed(self._counts[owner], self._kinds[owner], before.owners.get(owner, NOTHING))
        return Communication(rounds, owners)

    def _write(self, message: dict[str, Any]) -> None:
        assert self.record is not None
        data = dumps(message)
        with open_private(self.record, "ab") as file:
            file.write(frame(data))


def _passed(counts: Sequence[int], kinds: Mapping[Kind, int], past: Traffic) -> Traffic:
    """What an owner with these counts received and sent after the past; kinds: of replies, with the last of each."""
    messages_down, messages_up, bytes_down, bytes_up = counts
    return Traffic(
        messages_down - past.messages_down,
        messages_up - past.messages_up,
        bytes_down - past.bytes_down,
        bytes_up - past.bytes_up,
        _names_of_fields(tuple([kind for kind, reply in kinds.items() if reply > past.messages_up])),
    )


@functools.lru_cache(maxsize=64)
def _names_of_fields(kinds: Any) -> tuple[str, ...]:
    """All fields of replies of these kinds."""
    return tuple(chain.from_iterable(_field_names(*kind) for kind in kinds))


@functools.cache
def _field_names(kind: Any, masked: bool) -> tuple[str, ...]:
    """The fields of a reply as an auditor reads them."""
    hidden = hidden_fields(kind, masked) if masked else ()
    return tuple(f"{kind.__name__}.{name}" + " (masked)" * (name in hidden) for name in content_fields(kind))


def read_record(path: str | Path) -> Iterator[dict[str, Any]]:
    """The messages of a record, in the order in which the coordinator sent and received them.

    Each has "to" or "from" (an owner), "round", "type" and "content". WireError when the file is damaged.
    """
    try:
        for record in split_records(Path(path).read_bytes()):
            yield loads(record)
    except WireError as error:
        raise error.within(str(path)) from error
