"""What a party brings to an alignment: the people in its table, and what it agrees to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from fedpact.alignment.by_id import Id

#: How parties are aligned: by ids in the clear, by keyed hashes, or by private set intersection.
Mode = Literal["id", "keyed-hash", "private"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, eq=False)
class People:
    """The people in a party's table, row by row.

    party:  its name, for messages
    ids:    one a row
    key:    of keyed hashes, which the parties share and the coordinator has not; empty: none
    least:  people in common, or the party does not go on
    modes:  of alignment that it takes part in
    tables: that are aligned beside its own, at most; 0: nobody said. It multiplies no more lists of a private
            intersection: each could be a coordinator's guesses
    """

    party: str
    ids: Sequence[Id]
    key: bytes = field(default=b"", repr=False)
    least: int = 1
    modes: tuple[str, ...] = MODES
    tables: int = 0
