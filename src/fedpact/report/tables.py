"""Tables on a terminal, in one style. Nothing in them is ever cut."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

#: Columns of text in a pipe or a file, where words may take lines; tables of numbers take what they need.
WIDTH = 110
#: Columns that speak of the one before them, as intervals do (95 %).
FOLLOWING = ("before",)


def table(*columns: str, words: Container[str] = ()) -> Table:
    """An empty table: the first column is text, the others are numbers, but for `words`, which may take lines."""
    made = _empty()
    for i, column in enumerate(columns):
        text = i == 0 or column in words
        made.add_column(column, justify="left" if text else "right", no_wrap=column not in words)
    return made


def print_table(made: Table, width: int | None = None) -> None:
    """Print a table. Where it is wider than the terminal, its columns come in pieces, each with the first of them.

    width: of the terminal; by default that of this process, and as much as the table needs in a pipe or a file
    """
    if width is None and not sys.stdout.isatty():
        width = max(WIDTH, _least_width(_of(made, made.columns)))
    console = terminal(width)
    for piece in _pieces(made, console.width):
        terminal(max(console.width, _least_width(piece))).print(piece)


def terminal(width: int | None = None) -> Console:
    """Standard output; names are printed verbatim, without markup such as [/x], :smile:."""
    if width is None and not sys.stdout.isatty():
        width = WIDTH
    return Console(width=width, markup=False, emoji=False)


def _empty() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)


def _pieces(made: Table, width: int) -> Iterator[Table]:
    """The table, or tables of some of its columns each, that fit this width as far as their columns allow."""
    first, *rest = made.columns
    groups: list[list[Column]] = []
    for column in rest:
        if groups and (column.header in FOLLOWING or str(column.header).endswith(" %")):
            groups[-1].append(column)
        else:
            groups.append([column])
    chosen: list[Column] = []
    for group in groups:
        if chosen and _least_width(_of(made, [first, *chosen, *group])) > width:
            yield _of(made, [first, *chosen])
            chosen = []
        chosen += group
    yield _of(made, [first, *chosen])


def _of(made: Table, columns: Sequence[Column]) -> Table:
    """The table with these of its columns."""
    found = _empty()
    found.columns = [replace(column, _index=i, min_width=_widest(column)) for i, column in enumerate(columns)]
    found.rows = made.rows
    return found


def _widest(column: Column) -> int:
    """Of the header, of cells and, where words may take lines, of words."""
    texts = [str(cell) for cell in (column.header, *column.cells)]
    if not column.no_wrap:
        texts = " ".join(texts).split()
    return max(map(cell_len, texts), default=0)


def _least_width(made: Table) -> int:
    """Of the terminal in which nothing of the table is cut."""
    console = Console(width=10_000, markup=False, emoji=False)
    return Measurement.get(console, console.options, made).minimum
