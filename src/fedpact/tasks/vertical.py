"""From tables with an id column, one a party, to a vertical problem: who is everywhere, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from fedpact.alignment import align, align_by_keyed_hash, align_privately
from fedpact.errors import DataError, OptionError
from fedpact.problem import VerticalProblem
from fedpact.problem.vertical_input import COORDINATOR
from fedpact.types import to_array


@dataclass(frozen=True, eq=False)
class IdTable:
    """A party's table: ids, one a row, and X, its columns in the same order of rows."""

    ids: Sequence[str | int]
    X: ArrayLike
    columns: Sequence[str] = ()


def vertical_fairness(
    tables: Mapping[str, IdTable],
    ids: Sequence[str | int],
    y: ArrayLike,
    group: ArrayLike | None = None,
    max_gap: ArrayLike | None = None,
    *,
    alignment: Literal["id", "keyed-hash", "private"] = "id",
    key: bytes = b"",
    on_missing: Literal["error", "drop"] = "error",
    **options: Any,
) -> VerticalProblem:
    """The problem of the people who are at every party and at the coordinator, who has ids, y and group.

    alignment:  "id": whoever calls this sees all ids; "keyed-hash" with a key of 32 bytes that only the parties have;
                "private": intersection by Diffie-Hellman. What each reveals is in docs/explanation/alignment.md.
    on_missing: "drop" keeps those who are everywhere
    options:    of VerticalProblem (loss, gap, pairs, regularizer, intercept, standardize, keep)

    Raises DataError for ids that are there twice, missing, or nowhere else; messages name the party.
    """
    if COORDINATOR in tables:
        raise DataError(
            "a party is called 'coordinator', the name of the coordinator itself; give it another name",
            code="FP-DATA-070",
        )
    columns = {name: _array(f"{name}: X", table.X) for name, table in tables.items()}
    for name, table in tables.items():
        if len(table.ids) != len(columns[name]):
            raise DataError(
                f"{name}: {len(table.ids)} ids for {len(columns[name])} rows; give one id a row",
                code="FP-DATA-071",
            )
    known = {**{name: table.ids for name, table in tables.items()}, COORDINATOR: ids}
    if alignment == "id":
        rows = align(known, on_missing=on_missing)
    elif alignment == "keyed-hash":
        rows = align_by_keyed_hash(known, key, on_missing=on_missing)
    elif alignment == "private":
        rows = align_privately(known, on_missing=on_missing)
    else:
        raise OptionError(f"alignment = {alignment!r}: choose 'id', 'keyed-hash' or 'private'", code="FP-OPTION-063")
    own = rows[COORDINATOR]
    labels = _one_per_id("y", y, len(ids))
    members = None if group is None else _one_per_id("group", group, len(ids))
    return VerticalProblem(
        {name: X[rows[name]] for name, X in columns.items()},
        labels[own],
        None if members is None else members[own],
        max_gap,
        columns={name: tuple(table.columns) for name, table in tables.items()},
        **options,
    )


def _one_per_id(what: str, given: ArrayLike, ids: int) -> NDArray[Any]:
    vector = _array(what, given)
    if vector.shape != (ids,):
        raise DataError(f"{what} has shape {vector.shape} for {ids} ids; give one {what} per id", code="FP-DATA-072")
    return vector


def _array(what: str, given: ArrayLike) -> NDArray[Any]:
    try:
        return to_array(given)
    except ValueError as error:  # ragged lists, masks
        raise DataError(f"{what} is not an array ({error})", code="FP-DATA-074") from error
