"""Who received and sent how much, and the name of every field that ever left an owner."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedpact.federation.messages import Order, Reply, payload, size


@dataclass(frozen=True)
class Traffic:
    """What passed between the server and one owner; `fields` names every field that left the owner."""

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


class Ledger:
    """Counts as messages pass; read it as a Communication."""

    def __init__(self, owners: tuple[str, ...]) -> None:
        self._traffic = {name: Traffic() for name in owners}
        self.rounds = 0
        self.bytes = 0

    def down(self, owner: str, order: Order) -> None:
        sent = size(order)
        t = self._traffic[owner]
        self._traffic[owner] = replace(t, messages_down=t.messages_down + 1, bytes_down=t.bytes_down + sent)
        self.bytes += sent

    def up(self, owner: str, reply: Reply) -> None:
        sent = size(reply)
        t = self._traffic[owner]
        new = tuple(f for name in payload(reply) if (f := f"{type(reply).__name__}.{name}") not in t.fields)
        self._traffic[owner] = replace(
            t, messages_up=t.messages_up + 1, bytes_up=t.bytes_up + sent, fields=t.fields + new
        )
        self.bytes += sent

    def read(self) -> Communication:
        return Communication(self.rounds, dict(self._traffic))
