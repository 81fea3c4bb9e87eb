"""Tables and paragraphs on standard output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill

import click
from rich.console import Console

from fedpact.report.tables import table

WIDTH = 118


def show(
    columns: Sequence[str],
    lines: Sequence[Sequence[str]],
    as_markdown: bool,
    *,
    text: Sequence[str] = (),
    sections: Sequence[object] = (),
) -> None:
    """Print a table. text: columns of words, besides the first; sections: one entry a line, a rule where it changes."""
    if as_markdown:
        click.echo(f"{markdown(columns, lines)}\n")
        return
    made = table(*columns)
    for column in made.columns:
        if column.header in text:
            column.justify = "left"
    parts = list(sections) or [None] * len(lines)
    for line, part, following in zip(lines, parts, [*parts[1:], None], strict=True):
        made.add_row(*line, end_section=part != following)
    Console(width=250).print(made)  # a terminal that is too narrow folds lines; no cell is cut


def show_rows(rows: Sequence[Mapping[str, str]], as_markdown: bool, *, text: Sequence[str] = ()) -> None:
    """Print a table of rows that are header -> cell."""
    show(list(rows[0]), [list(row.values()) for row in rows], as_markdown, text=text)


def markdown(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [columns, ["---"] * len(columns), *lines])


def fold(text: str, indent: str = "", more: str = "") -> str:
    """A paragraph in lines of WIDTH. more: indent of the second line and those below, in addition"""
    return fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent + more, break_on_hyphens=False)
