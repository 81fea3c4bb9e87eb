"""What `fedpact split` writes, shows and draws: a table dealt by rows, or by columns."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from fedpact import data
from fedpact.data.partition import Rows
from fedpact.data.text_table import TextTable
from fedpact.errors import DataError, OptionError
from fedpact.report.split_figure import column_grid, label_bars
from fedpact.report.tables import table as new_table

#: Labels that are counted one by one; those after them, the rarest, are counted together.
MOST_LABELS = 8
#: More files than anybody wants: the column holds measurements.
MOST_VALUES = 1000
COORDINATOR = "coordinator"


@dataclass(frozen=True, eq=False)
class Split:
    """files: owner -> text of its CSV file; coordinator: the text of its file, if any; draw: title -> figure."""

    files: dict[str, str]
    shown: Table
    draw: Callable[[str], Any]
    coordinator: str = ""


def by_rows(table: TextTable, owners: Mapping[str, Rows], label: str | None) -> Split:
    """Each owner's rows, as they are written in the table."""
    files = {name: table.header + "".join(table.lines[i] for i in rows) for name, rows in owners.items()}
    if label is None:
        shown = new_table("owner", "rows")
        for name, rows in owners.items():
            shown.add_row(name, str(len(rows)))
        counts = {name: {"": len(rows)} for name, rows in owners.items()}
    else:
        counts = _counts(table.column(label), owners)
        shown = new_table("owner", "rows", *(f"{label} {value}" for value in next(iter(counts.values()))))
        for name, found in counts.items():
            shown.add_row(name, *map(str, (len(owners[name]), *found.values())))
    return Split(files, shown, lambda title: label_bars(counts, title, label or ""))


def by_value(table: TextTable, column: str) -> dict[str, Rows]:
    """An owner for each value of the column."""
    values = table.column(column)
    if (found := len(set(values))) > MOST_VALUES:
        told = f"{table.path}: column {column!r} has {found} values, one owner each; choose one with fewer"
        raise DataError(told, code="FP-DATA-501", column=column)
    return data.by_column(values)


def by_columns(
    table: TextTable,
    names: Sequence[str],
    seed: int | None,
    *,
    sizes: Sequence[int] | None,
    identity: str,
    kept: Sequence[str],
) -> Split:
    """Each owner's columns of all rows, behind the ids, which are counted from 1 when the table has none.

    kept: columns (labels, groups) that stay with the coordinator
    """
    for column in kept:
        table.position(column)
    dealt = [column for column in table.columns if column not in (identity, *kept)]
    try:
        parts = data.deal_columns(len(dealt), len(names), seed, sizes=sizes)
    except (DataError, OptionError) as error:
        raise error.within(f"{table.path}, beside {', '.join((identity, *kept))}") from error
    held = {name: [dealt[j] for j in part] for name, part in zip(names, parts, strict=True)}
    ids = _ids(table, identity)
    shown = new_table("owner", "columns", "names")
    everyone = held | ({COORDINATOR: list(kept)} if kept else {})
    for name, columns in everyone.items():
        shown.add_row(name, str(len(columns)), ", ".join(columns))
    files = {name: _columns_as_text(table, identity, ids, columns) for name, columns in held.items()}
    coordinator = _columns_as_text(table, identity, ids, kept) if kept else ""
    drawn = [column for column in table.columns if column != identity]
    return Split(files, shown, lambda title: column_grid(drawn, everyone, title), coordinator)


def _counts(labels: Sequence[str], owners: Mapping[str, Rows]) -> dict[str, dict[str, int]]:
    """owner -> (label -> rows), labels in their order; of many, the rarest together as 'others'."""
    frequent = [label for label, _ in Counter(labels).most_common(MOST_LABELS)]
    shown = sorted(frequent, key=_order)
    others = ["others"] if len(set(labels)) > len(frequent) else []
    counts = {}
    for name, rows in owners.items():
        found = Counter(label if label in frequent else "others" for label in (labels[i] for i in rows))
        counts[name] = {label: found[label] for label in (*shown, *others)}
    return counts


def _order(label: str) -> tuple[float, str]:
    """Numbers as numbers, before text."""
    try:
        return float(label), label
    except ValueError:
        return float("inf"), label


def _ids(table: TextTable, identity: str) -> list[str]:
    if identity not in table.columns:
        return [str(number) for number in range(1, len(table.rows) + 1)]
    first: dict[str, int] = {}
    for value, line in zip(table.column(identity), table.numbers, strict=True):
        if value in first:
            twice = f"column {identity!r} has {value!r} in lines {first[value]} and {line}"
            remedy = "ids must differ, name another column with --id"
            raise DataError(f"{table.path}: {twice}; {remedy}", code="FP-DATA-502", column=identity)
        first[value] = line
    return list(first)


def _columns_as_text(table: TextTable, identity: str, ids: Sequence[str], columns: Sequence[str]) -> str:
    where = [table.position(column) for column in columns]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n" if table.header.endswith("\r\n") else "\n")
    writer.writerow([identity, *columns])
    writer.writerows([own, *(row[j] for j in where)] for own, row in zip(ids, table.rows, strict=True))
    return out.getvalue()
