"""`fedpact init --from`: the job of one's own table, each of whose columns is looked at once."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpact.cli.split_parts import MOST_LEVELS, quote
from fedpact.data.cells import Cells, check_column, column_names, is_parquet, read_cells
from fedpact.data.columns import MISSING, find_delimiter, open_csv
from fedpact.data.text_table import is_header
from fedpact.errors import DataError, OptionError
from fedpact.tasks.suspicions import decides, is_id, is_time
from fedpact.types import Vector

#: A label with more different numbers is predicted as a number.
MOST_CLASSES = 10
#: Begins a line about a column that is no feature.
LEFT_OUT = "# left out: "
#: Recall of the rarer class in the job: a first promise, to be changed.
RECALL = 0.8


@dataclass(frozen=True)
class Sorted:
    """The columns of a table by what a model can take them for.

    numbers, categories: features; categories with their levels
    left_out:            columns, and why
    absent:              whether a feature lacks values
    """

    numbers: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, str]
    absent: bool

    @property
    def features(self) -> tuple[str, ...]:
        return (*self.numbers, *self.categories)


def job_of_table(folder: Path, table: Path, label: str | None) -> tuple[str, str]:
    """The text of a job about the table, whose only owner has it, and the column that is predicted.

    A table without a header is copied into the folder with one. label: None takes the last column
    """
    if not is_parquet(table) and not is_header(column_names(table)):
        table = _copy_with_header(table, folder)
    cells = read_cells(table)
    label = label or cells.names[-1]
    check_column(table, label, cells.names)
    found = sort_columns(cells, label)
    if not found.features:
        raise DataError(
            f"{table}: no column beside {label!r} can be a feature: {_reasons(found.left_out)}", code="FP-DATA-940"
        )
    where = Path(os.path.relpath(table.resolve(), folder.resolve())).as_posix()
    lines = [
        f"# A job about {table.name}. Change what you like: `fedpact init FOLDER` alone explains every key. Run it by",
        f"# fedpact run {folder.as_posix()}/job.toml",
        "",
        f"title = {quote(table.stem)}",
        *_lines_of_label(cells, label),
        f"features = {_quoted(found.features)}",
        *([] if not found.absent else ['missing = "mean"  # absent values are the mean over all owners']),
        "standardize = true",
        *(f"{LEFT_OUT}{quote(column)}, {why}" for column, why in found.left_out.items()),
        "",
        "[owners]  # name = table; add the others' here, or try a federation with: fedpact split",
        f"{quote(table.stem)} = {quote(where)}",
    ]
    if found.categories:
        lines += ["", "[categories]  # columns of text, and all they may hold at any owner"]
        lines += [f"{quote(column)} = {_quoted(levels)}" for column, levels in found.categories.items()]
    lines += [*_lines_of_constraint(cells, label), "", "[output]", 'folder = "run"']
    return "\n".join(lines) + "\n", label


def sort_columns(cells: Cells, label: str) -> Sorted:
    """What each column but the label can be in a model."""
    numbers: list[str] = []
    categories: dict[str, tuple[str, ...]] = {}
    left_out: dict[str, str] = {}
    absent = False
    for name in cells.names:
        if name == label:
            continue
        distinct, which = cells.column(name).codes()
        present = [cell for cell in distinct if not _is_absent(cell)]
        values = cells.column(name).numbers(cells.comma)
        if len(present) < 2:
            left_out[name] = "it holds one value only" if present else "it is empty"
            continue
        if values is None and len(present) > MOST_LEVELS:
            left_out[name] = f"text with {len(present)} different values"
            continue
        if len(present) == len(which) and _counts_rows(values):
            left_out[name] = "it numbers the rows"
            continue
        if why := _leak(name, which, values, cells, label):
            left_out[name] = why
            continue
        absent = absent or len(present) < len(distinct)
        if values is None:
            categories[name] = tuple(sorted(map(str, present)))
        else:
            numbers.append(name)
    return Sorted(tuple(numbers), categories, left_out, absent)


def _leak(name: str, which: NDArray[np.int64], values: Vector | None, cells: Cells, label: str) -> str:
    """Why a column is none that is known before the label; empty for all others."""
    if _is_class(cells, label) and is_time(name):
        return "it looks like the time until the event that the label says"
    classes = cells.column(label).codes()[1]
    target = np.eye(int(classes.max()) + 1)[classes]
    if not _is_class(cells, label):
        numbers = cells.column(label).numbers(cells.comma)
        assert numbers is not None
        target = numbers[:, None]
    block = np.eye(int(which.max()) + 1)[which] if values is None else values[:, None]
    if decides(block, target):
        return "it alone decides the label: it may be the label in other words"
    if values is not None and is_id(values):
        return "it has another whole number in every row, as ids have"
    return ""


def _lines_of_label(cells: Cells, label: str) -> list[str]:
    """Task and label: a class where the column holds few different values, else a number."""
    if not _is_class(cells, label):
        return ['task = "regression"', f"label = {quote(label)}"]
    classes = _classes(cells, label)
    return ['task = "classification"', f"label = {quote(label)}", f"classes = {_quoted(classes)}"]


def _lines_of_constraint(cells: Cells, label: str) -> list[str]:
    """A first constraint: the rarer class is found at every owner."""
    if not _is_class(cells, label):
        return []
    distinct, which = cells.column(label).codes()
    rarest = min(zip(np.bincount(which), map(_written, distinct), strict=True))[1]
    return [
        "",
        "[[constraint]]  # add confidence = 0.95 for a promise about rows not yet seen",
        'kind = "recall"',
        f"of = {quote(rarest)}",
        f"at_least = {RECALL}",
    ]


def _is_class(cells: Cells, label: str) -> bool:
    return cells.column(label).numbers(cells.comma) is None or len(_classes(cells, label)) <= MOST_CLASSES


def _classes(cells: Cells, label: str) -> list[str]:
    """What the label holds, numbers in their order. DataError when a cell is empty, or all are alike."""
    distinct, _ = cells.column(label).codes()
    if absent := [cell for cell in distinct if _is_absent(cell)]:
        raise DataError(
            f"{cells.path}: the label {label!r} holds {str(absent[0])!r} in some rows; fill them in, or drop them",
            code="FP-DATA-941",
            column=label,
        )
    if len(distinct) < 2:
        raise DataError(
            f"{cells.path}: the label {label!r} holds one value only, {_written(distinct[0])!r}; choose another column "
            "with --label",
            code="FP-DATA-942",
            column=label,
        )
    if len(distinct) > MOST_LEVELS and cells.column(label).numbers(cells.comma) is None:
        raise DataError(
            f"{cells.path}: the label {label!r} is text with {len(distinct)} different values; choose another column "
            "with --label",
            code="FP-DATA-943",
            column=label,
        )
    return [_written(cell) for cell in sorted(distinct, key=_order)]


def _copy_with_header(table: Path, folder: Path) -> Path:
    """The table with names of columns on top: column 1, column 2, ..."""
    with open_csv(table) as file:
        first = file.readline()
        delimiter = find_delimiter(first)
        width = len(next(csv.reader([first], delimiter=delimiter)))
        names = [f"column {place}" for place in range(1, width + 1)]
        copy = folder / f"{table.stem}.csv"
        refuse_to_overwrite(copy)
        with copy.open("w", encoding="utf-8", newline="") as target:
            target.write(delimiter.join(names) + "\n" + first)
            target.writelines(file)
    return copy


def refuse_to_overwrite(path: Path) -> None:
    if path.exists():
        raise OptionError(f"{path} exists already; choose a new folder", code="FP-OPTION-502")


def _counts_rows(values: Vector | None) -> bool:
    """Whether a column holds the numbers of consecutive rows."""
    return values is not None and bool(np.all(np.diff(values) == 1))


def _is_absent(cell: object) -> bool:
    return str(cell).upper() in MISSING


def _written(cell: object) -> str:
    """A level as a job states it: whole numbers of a Parquet file without a point."""
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def _order(cell: object) -> tuple[float, str]:
    """Numbers by value, then texts."""
    try:
        return float(str(cell)), ""
    except ValueError:
        return np.inf, str(cell)


def _quoted(texts: Sequence[str]) -> str:
    return "[" + ", ".join(map(quote, texts)) + "]"


def _reasons(left_out: Mapping[str, str]) -> str:
    return "; ".join(f"{column!r}: {why}" for column, why in left_out.items())
