"""Who received and sent how much, every field that ever left an owner by name and, if asked, every message itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import WireError
from fedpact.federation.messages import Order, Reply, Sealed, payload, sealed_size, size, summed_fields
from fedpact.federation.wire import dumps, frame, loads, name_of, open_private, sealed_to_tree, split_records

Counts = NDArray[np.int64]  # messages down, messages up, bytes down, bytes up


@dataclass(frozen=True)
class Traffic:
    """What passed between the server and one owner.

    fields names every field that left the owner; '(masked)' is put behind those of which the server saw only a sum.
    """

    messages_down: int = 0
    messages_up: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    fields: tuple[str, ...] = ()


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

    def __sub__(self, earlier: Communication) -> Communication:
        """What passed since then; fields are named when they left an owner since the beginning."""
        before = {name: earlier.owners.get(name, Traffic()) for name in self.owners}
        return Communication(
            self.rounds - earlier.rounds, {name: _difference(t, before[name]) for name, t in self.owners.items()}
        )

    def __add__(self, other: Communication) -> Communication:
        """Both, one after the other."""
        names = dict.fromkeys([*self.owners, *other.owners])
        both = {name: (self.owners.get(name, Traffic()), other.owners.get(name, Traffic())) for name in names}
        return Communication(self.rounds + other.rounds, {name: _sum(*pair) for name, pair in both.items()})


def _difference(a: Traffic, b: Traffic) -> Traffic:
    return Traffic(
        a.messages_down - b.messages_down,
        a.messages_up - b.messages_up,
        a.bytes_down - b.bytes_down,
        a.bytes_up - b.bytes_up,
        a.fields,
    )


def _sum(a: Traffic, b: Traffic) -> Traffic:
    return Traffic(
        a.messages_down + b.messages_down,
        a.messages_up + b.messages_up,
        a.bytes_down + b.bytes_down,
        a.bytes_up + b.bytes_up,
        tuple(dict.fromkeys([*a.fields, *b.fields])),
    )


class Ledger:
    """Counts as messages pass; read it as a Communication. `record` is a file that every message is written to."""

    def __init__(self, owners: tuple[str, ...], record: Path | None = None) -> None:
        self._counts: dict[str, Counts] = {name: np.zeros(4, dtype=np.int64) for name in owners}
        self._fields: dict[str, dict[str, None]] = {name: {} for name in owners}
        self.record = record
        self.rounds = 0
        self.bytes = 0

    def down(self, owner: str, order: Order) -> None:
        self.add(owner, np.array([1, 0, size(order), 0]))
        if self.record is not None:
            self._write({"to": owner, "round": order.round, "type": name_of(type(order)), "content": payload(order)})

    def up(self, owner: str, sealed: Sealed[Any], round: int) -> None:
        self.add(owner, np.array([0, 1, 0, sealed_size(sealed)]))
        self.name(owner, type(sealed.kept), sealed.sums.dtype == np.uint64)
        if self.record is not None:
            kind = name_of(type(sealed.kept))
            self._write({"from": owner, "round": round, "type": kind, "content": sealed_to_tree(sealed)})

    def add(self, owner: str, counts: Counts) -> None:
        self._counts[owner] += counts
        self.bytes += int(counts[2] + counts[3])

    def name(self, owner: str, kind: type[Reply], masked: bool) -> None:
        """The fields of this kind of reply left the owner."""
        hidden = summed_fields(kind) if masked else ()
        for name in kind.__dataclass_fields__:
            self._fields[owner][f"{kind.__name__}.{name}{' (masked)' if name in hidden else ''}"] = None

    def counts(self, owners: Sequence[str]) -> Counts:
        """The counts of these owners so far, one row each."""
        return np.array([self._counts[owner] for owner in owners])

    def read(self) -> Communication:
        owners = {}
        for owner, counts in self._counts.items():
            messages_down, messages_up, bytes_down, bytes_up = counts.tolist()
            owners[owner] = Traffic(messages_down, messages_up, bytes_down, bytes_up, tuple(self._fields[owner]))
        return Communication(self.rounds, owners)

    def _write(self, message: dict[str, Any]) -> None:
        assert self.record is not None
        data = dumps(message)
        with open_private(self.record, "ab") as file:
            file.write(frame(data))


def read_record(path: str | Path) -> Iterator[dict[str, Any]]:
    """The messages of a record, in the order in which the server sent and received them.

    Each has "to" or "from" (an owner), "round", "type" and "content". WireError when the file is damaged.
    """
    try:
        for record in split_records(Path(path).read_bytes()):
            yield loads(record)
    except WireError as error:
        raise error.within(str(path)) from error
