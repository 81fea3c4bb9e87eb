"""Alignment in the clear: whoever calls `align` sees every id. The private modes use the same `match` on pseudonyms.

An id is a whole number or text. The number 7 and the text "7" are the same id, "007" is another. Blanks around a text
do not count, and characters are compared in Unicode's composed form (NFC). Floats are refused, 7.0 too: a column of
them is usually one of whole numbers that were read as floats because some are missing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import DataError, OptionError

Rows = NDArray[np.intp]
Id = str | int
OnMissing = Literal["error", "drop"]
Sortable = TypeVar("Sortable", str, bytes)

SHOWN = 5  # ids in a message


def align(ids_by_party: Mapping[str, Sequence[Id]], *, on_missing: OnMissing = "error") -> dict[str, Rows]:
    """Row numbers by party: `table[rows[party]]` lists the same people in the same order at every party.

    ids_by_party: the id column of each party's table, in any order; a person has one row at a party
    on_missing: "error" when someone is not at every party, or "drop" to keep those who are

    People come in the order of their ids as text.

    Raises:
        DataError: an id that is missing, of a wrong type, or there twice; people who are not at every party; nobody
            who is.
        OptionError: fewer than two parties, or an unknown `on_missing`.
    """
    return match({party: normalized(party, ids) for party, ids in ids_by_party.items()}, on_missing=on_missing)


def normalized(party: str, ids: Iterable[Id]) -> list[str]:
    """The ids as text, all different."""
    texts = [_text(party, row, value) for row, value in enumerate(ids)]
    _check_unique(party, texts)
    return texts


def match(
    values_by_party: Mapping[str, Sequence[Sortable]], *, on_missing: OnMissing = "error", secret: bool = False
) -> dict[str, Rows]:
    """Positions by party of the values that all parties have, in ascending order of the values.

    This is the coordinator's part in every mode. With `secret`, values are pseudonyms and messages do not show them.
    Raises what `align` raises.
    """
    if on_missing not in ("error", "drop"):
        raise OptionError(f"on_missing is {on_missing!r}; allowed: 'error', 'drop'")
    if len(values_by_party) < 2:
        raise OptionError(f"there are {len(values_by_party)} parties ({list(values_by_party)}); alignment needs two")
    for party, values in values_by_party.items():
        _check_unique(party, values, secret)
    positions = {party: {value: row for row, value in enumerate(values)} for party, values in values_by_party.items()}
    everyone = set().union(*positions.values())
    common = sorted(everyone.intersection(*positions.values()))
    if on_missing == "error" and len(common) < len(everyone):
        raise DataError(_missing(positions, everyone, secret))
    if not common:
        sizes = ", ".join(f"{party!r} has {len(values)}" for party, values in values_by_party.items())
        raise DataError(f"no id is at every party ({sizes}); check that all use the same ids, written in the same way")
    return {party: np.array([own[value] for value in common], dtype=np.intp) for party, own in positions.items()}


def _text(party: str, row: int, value: object) -> str:
    if isinstance(value, str):
        text = unicodedata.normalize("NFC", value.strip())
        if not text:
            raise DataError(f"party {party!r}: the id in row {row} is empty; give every row an id, or drop the row")
        return text
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    raise DataError(
        f"party {party!r}: the id in row {row} is {value!r} ({type(value).__name__}); ids are text or whole numbers: "
        "drop rows without an id, then convert the column"
    )


def _check_unique(party: str, values: Sequence[Sortable], secret: bool = False) -> None:
    first: dict[Sortable, int] = {}
    for row, value in enumerate(values):
        if value in first:
            shown = "an id" if secret else f"id {value!r}"
            raise DataError(
                f"party {party!r}: {shown} is there twice, in rows {first[value]} and {row}; keep one row a person"
            )
        first[value] = row


def _missing(positions: Mapping[str, Mapping[Sortable, int]], everyone: set[Sortable], secret: bool) -> str:
    parts = []
    for party, own in positions.items():
        if lacking := sorted(everyone - own.keys()):
            shown = ", ".join(map(repr, lacking[:SHOWN])) + (", ..." if len(lacking) > SHOWN else "")
            parts.append(f"party {party!r} lacks {len(lacking)} of {len(everyone)}{'' if secret else f' ({shown})'}")
    return f"not everyone is at every party: {'; '.join(parts)}. Keep those who are with on_missing='drop'"
