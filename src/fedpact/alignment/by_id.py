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

#: Ids in a message, at most: enough to find out what they have in common.
SHOWN = 5


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
    texts = {party: normalize(party, ids) for party, ids in ids_by_party.items()}
    return match(texts, on_missing=on_missing)


def normalize(party: str, ids: Iterable[Id]) -> list[str]:
    """The ids as text. Raises DataError unless all are valid and different."""
    texts = [_read_id(party, row, value) for row, value in enumerate(ids)]
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
        raise OptionError(f"on_missing is {on_missing!r}; choose 'error' or 'drop'", code="FP-OPTION-400")
    if len(values_by_party) < 2:
        found = ", ".join(values_by_party) or "none"
        raise OptionError(f"alignment needs two parties or more; given: {found}", code="FP-OPTION-401")
    for party, values in values_by_party.items():
        _check_unique(party, values, secret)
    everyone = set().union(*values_by_party.values())
    common = sorted(everyone.intersection(*values_by_party.values()))
    if on_missing == "error" and len(common) < len(everyone):
        raise DataError(_describe_missing(values_by_party, everyone, secret), code="FP-DATA-402")
    if not common:
        sizes = ", ".join(f"{party!r} has {len(values)}" for party, values in values_by_party.items())
        raise DataError(
            f"no id is at every party ({sizes}); check that all use the same ids, written in the same way",
            code="FP-DATA-403",
        )
    return {party: _find_rows(values, common) for party, values in values_by_party.items()}


def _find_rows(values: Sequence[Sortable], wanted: Sequence[Sortable]) -> Rows:
    row_of = {value: row for row, value in enumerate(values)}
    return np.array([row_of[value] for value in wanted], dtype=np.intp)


def _read_id(party: str, row: int, value: object) -> str:
    if isinstance(value, str):
        text = unicodedata.normalize("NFC", value.strip())
        if not text:
            raise DataError(
                f"party {party!r}: the id in row {row} is empty; give every row an id, or drop the row",
                code="FP-DATA-404",
            )
        return text
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    raise DataError(
        f"party {party!r}: the id in row {row} is {value!r} ({type(value).__name__}); ids are text or whole numbers: "
        "drop rows without an id, then convert the column",
        code="FP-DATA-405",
    )


def _check_unique(party: str, values: Sequence[Sortable], secret: bool = False) -> None:
    first: dict[Sortable, int] = {}
    for row, value in enumerate(values):
        if value in first:
            shown = "an id" if secret else f"id {value!r}"
            raise DataError(
                f"party {party!r}: {shown} occurs twice, in rows {first[value]} and {row}; keep one row per person",
                code="FP-DATA-406",
            )
        first[value] = row


def _describe_missing(values_by_party: Mapping[str, Sequence[Sortable]], everyone: set[Sortable], secret: bool) -> str:
    parts = []
    for party, values in values_by_party.items():
        lacking = sorted(everyone.difference(values))
        if not lacking:
            continue
        part = f"party {party!r} lacks {len(lacking)} of {len(everyone)}"
        if not secret:
            more = ", ..." if len(lacking) > SHOWN else ""
            part += f" ({', '.join(map(repr, lacking[:SHOWN]))}{more})"
        parts.append(part)
    return f"not everyone is at every party: {'; '.join(parts)}. Keep those who are with on_missing='drop'"
