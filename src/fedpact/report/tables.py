"""Tables on a terminal, in one style."""

from __future__ import annotations

import sys
from collections.abc import Container

from rich import box
from rich.console import Console
from rich.table import Table


def table(*columns: str, words: Container[str] = ()) -> Table:
    """An empty table: the first column is text, the others are numbers, but for `words`, which may take lines."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(columns):
        text = i == 0 or column in words
        made.add_column(column, justify="left" if text else "right", no_wrap=column not in words)
    return made


def terminal() -> Console:
    """Standard output, 110 columns wide in a pipe; names are printed verbatim, without markup such as [/x], :smile:."""
    width = None if sys.stdout.isatty() else 110
    return Console(width=width, markup=False, emoji=False)
