"""What `fedpact split` writes, shows and draws: a table divided by rows or by columns."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from fedpact import data
from fedpact.data.partition import Rows
from fedpact.data.text_table import TextTable
from fedpact.errors import DataError, OptionError
from fedpact.problem.vertical_input import COORDINATOR
from fedpact.report.split_figure import column_grid, label_bars
from fedpact.report.tables import table as new_table

#: Labels counted one by one; the rarer ones are counted together, so that the table fits a terminal.
MOST_LABELS = 8
#: A column with more values holds measurements, not owners.
MOST_VALUES = 1000
#: A column of text with more values is no category.
MOST_LEVELS = 100
#: Largest gap between groups in the lines of a job: a first guess, to be changed.
MAX_GAP = 0.05


@dataclass(frozen=True, eq=False)
class Split:
    """A divided table.

    files:       owner -> text of its CSV file
    shown:       who has what, for the terminal
    draw:        title -> matplotlib Figure
    coordinator: text of the coordinator's CSV file; empty if it holds no columns
    """

    files: dict[str, str]
    shown: Table
    draw: Callable[[str], Any]
    coordinator: str = ""


def by_rows(table: TextTable, owners: Mapping[str, Rows], label: str | None) -> Split:
    """Each owner's rows, as written in the table. label: the column whose values are counted per owner."""
    files = {name: table.header + "".join(table.lines[i] for i in rows) for name, rows in owners.items()}
    if label is None:
        counts = {name: {"": len(rows)} for name, rows in owners.items()}
        shown = new_table("owner", "rows")
    else:
        counts = _count_labels(table.column(label), owners)
        labels = next(iter(counts.values()))
        shown = new_table("owner", "rows", *(f"{label} {value}" for value in labels))
    for name, rows in owners.items():
        by_label = counts[name].values() if label is not None else ()
        shown.add_row(name, str(len(rows)), *map(str, by_label))
    return Split(files, shown, lambda title: label_bars(counts, title, label or ""))


def by_value(table: TextTable, column: str) -> dict[str, Rows]:
    """One owner per value of the column. DataError if there are more than MOST_VALUES."""
    values = table.column(column)
    found = len(set(values))
    if found > MOST_VALUES:
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
    """Each owner's columns of all rows, after an id column; ids are numbered from 1 if the table has none.

    kept: columns (labels, groups) that stay with the coordinator
    """
    for column in kept:
        table.position(column)  # raises DataError if it is missing
    features = [column for column in table.columns if column not in (identity, *kept)]
    try:
        parts = data.deal_columns(len(features), len(names), seed, sizes=sizes)
    except (DataError, OptionError) as error:
        raise error.within(f"{table.path}, beside {', '.join((identity, *kept))}") from error
    held = {name: [features[j] for j in part] for name, part in zip(names, parts, strict=True)}
    if kept:
        held[COORDINATOR] = list(kept)
    ids = _ids(table, identity)
    files = {name: _columns_as_text(table, identity, ids, columns) for name, columns in held.items()}
    shown = new_table("owner", "columns", "names")
    for name, columns in held.items():
        shown.add_row(name, str(len(columns)), ", ".join(columns))
    drawn = [column for column in table.columns if column != identity]
    coordinator = files.pop(COORDINATOR, "")
    return Split(files, shown, lambda title: column_grid(drawn, held, title), coordinator)


def describe_vertical_job(table: TextTable, label: str, group: str | None, identity: str) -> list[str]:
    """The first lines of a job about these columns."""
    lines = ['task = "vertical"', f"label = {quote(label)}", f"classes = {_list_values(table, label)}"]
    if identity != "id":
        lines.insert(1, f"id = {quote(identity)}")
    if group:
        lines += [f"group = {quote(group)}", f"groups = {_list_values(table, group)}", f"max_gap = {MAX_GAP}"]
    return [*lines, ""]


def describe_vertical_tables(table: TextTable, special: Sequence[str]) -> list[str]:
    """The last lines: the coordinator's table, and levels of columns of text. special: columns that are no features"""
    lines = ["", "[server]", f"data = {quote(f'{COORDINATOR}.csv')}"]
    texts = [name for name in table.columns if name not in special and _is_category(table.column(name))]
    if texts:
        lines += ["", "[categories]", *(f"{quote(name)} = {_list_values(table, name)}" for name in texts)]
    return lines


def quote(text: str) -> str:
    """Text as a TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _list_values(table: TextTable, column: str) -> str:
    """The different values of a column, as a TOML list."""
    values = {value.strip() for value in table.column(column)}
    return "[" + ", ".join(quote(value) for value in sorted(values, key=_order)) + "]"


def _is_category(values: Sequence[str]) -> bool:
    """Whether a column holds text, of few different values."""
    different = {value.strip() for value in values}
    return len(different) <= MOST_LEVELS and all(_order(value)[0] == float("inf") for value in different)


def _count_labels(labels: Sequence[str], owners: Mapping[str, Rows]) -> dict[str, dict[str, int]]:
    """owner -> (label -> rows), labels sorted; beyond MOST_LABELS the rarest are counted as "others"."""
    frequent = [label for label, _ in Counter(labels).most_common(MOST_LABELS)]
    columns = sorted(frequent, key=_order)
    if len(set(labels)) > len(frequent):
        columns.append("others")
    grouped = [label if label in frequent else "others" for label in labels]
    counts = {}
    for name, rows in owners.items():
        found = Counter(grouped[i] for i in rows)
        counts[name] = {label: found[label] for label in columns}
    return counts


def _order(label: str) -> tuple[float, str]:
    """Sort key: numbers by value, then text."""
    try:
        return float(label), label
    except ValueError:
        return float("inf"), label


def _ids(table: TextTable, identity: str) -> list[str]:
    """One id per row: the column of that name, or 1, 2, ... if there is none. DataError if an id occurs twice."""
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
    """These columns as CSV, after the ids, with the line breaks of the table."""
    where = [table.position(column) for column in columns]
    out = io.StringIO()
    newline = "\r\n" if table.header.endswith("\r\n") else "\n"
    writer = csv.writer(out, lineterminator=newline)
    writer.writerow([identity, *columns])
    writer.writerows([own, *(row[j] for j in where)] for own, row in zip(ids, table.rows, strict=True))
    return out.getvalue()
