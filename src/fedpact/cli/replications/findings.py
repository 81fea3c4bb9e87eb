"""What a replication is asked, and what it gives back: tables, the paper's claims beside ours, figures, differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
    """A table of measured numbers. text: columns of words, besides the first; grouped: rules where the first changes

    title, figures: on a page, the heading above it and the figures, by name, between heading and table
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: Sequence[str] = ()
    grouped: bool = False
    title: str = ""
    figures: Sequence[str] = ()


@dataclass(frozen=True)
class Claim:
    """What the paper says, where, what was found here, and whether it is the same (None: this run cannot decide).

    why: the reason, told where it is not the same
    """

    where: str
    paper: str
    ours: str
    agrees: bool | None
    why: str = ""

    @property
    def verdict(self) -> str:
        return "not decided" if self.agrees is None else "agrees" if self.agrees else "DIFFERS"

    def told(self) -> dict[str, str]:
        """What there is to say about it, by who says it."""
        reason = {"why": self.why} if self.why and self.agrees is False else {}
        return {"paper": self.paper, "ours": self.ours} | reason


@dataclass
class Replication:
    """differences: where and why this is not what the paper did; figures: file name without suffix -> Figure"""

    title: str
    tables: list[Table] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def undecided(self) -> Replication:
        """The same where its numbers are not worth a verdict."""
        return replace(self, claims=[replace(claim, agrees=None) for claim in self.claims])


def printed(found: Replication, markdown: bool = False) -> None:
    """The replication on standard output."""
    click.echo(f"{found.title}\n")
    for table in found.tables:
        sections = [row[0] for row in table.rows] if table.grouped else ()
        show(table.columns, table.rows, markdown, text=table.text, sections=sections)
        click.echo(f"{fill(table.caption, WIDTH, break_on_hyphens=False)}\n")
    for claim in found.claims:
        click.echo(_indented(f"[{claim.verdict}] {claim.where}"))
        for who, text in claim.told().items():
            click.echo(_indented(f"{f'{who}:':6} {text}", "  "))
    click.echo("\nWhere this is not what the paper did:")
    for difference in found.differences:
        click.echo(_indented(f"- {difference}"))


def _indented(text: str, indent: str = "") -> str:
    return fill(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)
