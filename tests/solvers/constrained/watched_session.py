"""A session that keeps what passes through it."""

from dataclasses import dataclass
from typing import Any

import fedpact as fp


class Watching(fp.Session):
    """A session over owners in this process that keeps every exchange."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def ask(self, step, orders, owners=None):
        replies = super().ask(step, orders, owners)
        self.seen.append(Exchange(step.__name__, orders, replies))
        return replies

    def of(self, step):
        return [exchange for exchange in self.seen if exchange.step == step]


@dataclass(frozen=True)
class Exchange:
    step: str
    order: Any
    replies: Any
