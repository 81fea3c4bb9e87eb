"""What a replication is asked, and what it gives back: tables, the paper's claims beside ours, figures, differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from textwrap import fill
from typing import Any

import click

from fedpact.cli.bench_output import show

WIDTH = 118


@dataclass(frozen=True)
class Task:
    """What is asked.

    folder: of the data (None: FEDPACT_DATA, then the cache)
    quick:  a small part, for tests
    say:    tells progress
    trials: random starts, or instances, where the experiment has them; None: its own numbers
    """

    folder: str | None
    quick: bool
    say: Callable[[str], None]
    trials: int | None = None


@dataclass(frozen=True)
class Table:
    """A table of measured numbers. text: columns of words, besides the first; grouped: rules where the first changes"""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: Sequence[str] = ()
    grouped: bool = False


@dataclass(frozen=True)
class Claim:
    """What the paper says, where, what was found here, and whether it is the same (None: this run cannot decide)."""

    where: str
    paper: str
    ours: str
    agrees: bool | None


@dataclass
class Replication:
    """differences: where and why this is not what the paper did; figures: file name without suffix -> Figure"""

    title: str
    tables: list[Table] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


def printed(found: Replication, markdown: bool = False, decided: bool = True) -> None:
    """The replication on standard output. decided: are its numbers worth a verdict on the claims?"""
    click.echo(f"{found.title}\n")
    for table in found.tables:
        sections = [row[0] for row in table.rows] if table.grouped else ()
        show(table.columns, table.rows, markdown, text=table.text, sections=sections)
        click.echo(f"{fill(table.caption, WIDTH, break_on_hyphens=False)}\n")
    for claim in found.claims:
        verdict = "not decided" if claim.agrees is None or not decided else "agrees" if claim.agrees else "DIFFERS"
        click.echo(_indented(f"[{verdict}] {claim.where}"))
        click.echo(_indented(f"paper: {claim.paper}", "  "))
        click.echo(_indented(f"ours:  {claim.ours}", "  "))
    click.echo("\nWhere this is not what the paper did:")
    for difference in found.differences:
        click.echo(_indented(f"- {difference}"))


def _indented(text: str, indent: str = "") -> str:
    return fill(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)
