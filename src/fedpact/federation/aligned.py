"""What an alignment leaves at a party: which rows of its table are people that every party has, in the common order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

#: Row numbers of a table.
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Aligned:
    """What a party knows of an alignment; it is in its memory, and survives every step of a solver.

    key:    its secret of a private intersection, hexadecimal; empty: none, or no longer needed
    turns:  lists of others that it has multiplied by that secret
    listed: the row of each entry in the list that it sent
    rows:   of the people that every party has, in the common order; None before the party has accepted them
    table:  digest of the table that these are rows of; filled in by the `Owner`
    """

    key: str = field(default="", repr=False)
    turns: int = 0
    listed: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    rows: Rows | None = None
    table: str = ""


@runtime_checkable
class Peopled(Protocol):
    """What builds an owner's shares from the rows that an alignment gave, and knows who is in its table."""

    def people(self, task: Any) -> Any:
        """What the steps of an alignment work on."""

    def table(self, task: Any) -> str:
        """Digest of the table that a task is about."""
