"""What a vertical job says about the tables of its parties: who holds the label, the groups, and which columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from fedpact.problem.vertical_input import COORDINATOR
from fedpact.tasks.base import SERVER

#: Raises the error of a code about a table and key of the job, with this message.
Fail = Callable[[str, str, str, str], NoReturn]


def find_holders(
    found: Mapping[str, Any], headers: Mapping[str, Sequence[str]], server: bool, fail: Fail
) -> dict[str, Any]:
    """The fields of the task that say who holds what, checked as far as the tables can be read here.

    found:   the job; headers: column names of every table that is on this machine, by party, the coordinator's among
             them; server: whether the coordinator has a table
    """
    _check_names(found["owners"], fail)
    _check_ids(found.get("id", "id"), headers, fail)
    label_at = _find_label(found, headers, server, fail)
    stated: dict[str, Any] = {"label_at": label_at}
    groups = [found["group"]] if found.get("group") else list(found.get("attributes", ()))
    if groups:
        stated["group_at"] = _find_group(groups, found, headers, label_at, fail)
    _check_columns(found, headers, fail)
    return stated


def _check_names(parties: Mapping[str, str], fail: Fail) -> None:
    if COORDINATOR in parties:
        fail(
            "FP-OPTION-940",
            "owners",
            COORDINATOR,
            f"a party is called {COORDINATOR!r}, the name of the coordinator itself; give it another name",
        )


def _check_ids(column: str, headers: Mapping[str, Sequence[str]], fail: Fail) -> None:
    for party, names in headers.items():
        if column not in names:
            place = ("server", "data") if party == SERVER else ("owners", party)
            fail(
                "FP-OPTION-941",
                *place,
                f"{party!r} has no column {column!r}, by which people are found; add it, or name it by id = ...",
            )


def _find_label(found: Mapping[str, Any], headers: Mapping[str, Sequence[str]], server: bool, fail: Fail) -> str:
    """Who holds the label; empty: the coordinator. Exactly one table may have it."""
    label = found.get("label", "")
    holders = [party for party, names in headers.items() if label in names]
    if len(holders) > 1:
        fail(
            "FP-OPTION-942",
            "",
            "label",
            f"column {label!r} is in the tables of {' and '.join(map(repr, holders))}; the label is at one of them: "
            "take it out of the others, or rename it there",
        )
    holder = _stated_holder("label_at", found, server, fail)
    if holder is None:
        if not holders:
            fail("FP-OPTION-943", "", "label", f"no table has the column {label!r}; correct label, or state label_at")
        holder = holders[0]
    elif headers and holder not in holders:
        fail("FP-OPTION-944", "", "label_at" if "label_at" in found else "label", f"{holder!r} has no column {label!r}")
    return "" if holder == SERVER else holder


def _find_group(
    groups: Sequence[str],
    found: Mapping[str, Any],
    headers: Mapping[str, Sequence[str]],
    label_at: str,
    fail: Fail,
) -> str:
    """Who holds all groups: as stated, the holder of the label if it has them, or the only one that has."""
    key = "group" if found.get("group") else "attributes"
    columns = " and ".join(map(repr, groups))
    label_holder = label_at or SERVER
    holders = [party for party, names in headers.items() if set(groups) <= set(names)]
    holder = _stated_holder("group_at", found, False, fail)
    if holder is None:
        if not headers or label_holder in holders:
            return label_at
        if len(holders) != 1:
            where = f"is in several tables ({', '.join(holders)})" if holders else "is in no table"
            fail("FP-OPTION-945", "", key, f"column {columns} {where}; correct {key}, or state group_at")
        return holders[0]
    if headers and holder not in holders:
        fail("FP-OPTION-946", "", "group_at", f"{holder!r} has no column {columns}; correct {key} or group_at")
    return holder


def _stated_holder(key: str, found: Mapping[str, Any], server: bool, fail: Fail) -> str | None:
    """The party that the key names; without one the coordinator, if it has a table; None: to be found."""
    if key in found:
        if found[key] not in found["owners"]:
            fail(
                "FP-OPTION-947",
                "",
                key,
                f"{key} = {found[key]!r} is not a party; they are {', '.join(found['owners'])}",
            )
        return str(found[key])
    return SERVER if server else None


def _check_columns(found: Mapping[str, Any], headers: Mapping[str, Sequence[str]], fail: Fail) -> None:
    for party, columns in found.get("columns", {}).items():
        if party not in found["owners"]:
            fail("FP-OPTION-948", "columns", party, f"{party!r} is not a party; they are {', '.join(found['owners'])}")
        for column in columns:
            if party in headers and column not in headers[party]:
                fail("FP-OPTION-949", "columns", party, f"{party!r} has no column {column!r}; correct [columns]")
