"""What a replication finds: tables, the paper's claims beside ours, figures, and where it is not what the paper did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click

from fedpact_experiments.tables import folded, show

#: True: the numbers say so; False: they say otherwise; None: they do not carry a verdict.
Verdict = bool | None


def all_of(*verdicts: Verdict) -> Verdict:
    """False if one is, else None if one is, else True."""
    if False in verdicts:
        return False
    return None if None in verdicts else True


def opposite(verdict: Verdict) -> Verdict:
    return None if verdict is None else not verdict


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of measured numbers. text: columns of words, besides the first; grouped: rules where the first changes

    title, figures: on a page, the heading above it and the figures, by name, between heading and table
    """

    columns: Sequence[str]
    caption: str
    rows: Sequence[Sequence[str]]
    text: Sequence[str] = ()
    grouped: bool = False
    title: str = ""
    figures: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the paper says ("-": nothing), where, what was found here, and whether it is the same.

    why: the reason, told where it is not known to be the same
    """

    where: str
    paper: str = "-"
    ours: str
    agrees: Verdict
    why: str = ""

    @property
    def verdict(self) -> str:
        if self.agrees is None:
            return "not decided"
        return "agrees" if self.agrees else "DIFFERS"

    def told(self) -> dict[str, str]:
        """What there is to say about it, by who says it."""
        said = {"paper": self.paper, "ours": self.ours}
        if self.why and not self.agrees:
            said["why"] = self.why
        return said


@dataclass
class Findings:
    """differences: where and why this is not what the paper did; figures: file name without suffix -> Figure"""

    tables: list[Table] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def undecided(self) -> Findings:
        """The same where its numbers are not worth a verdict."""
        return replace(self, claims=[replace(claim, agrees=None, why="") for claim in self.claims])


def show_findings(title: str, found: Findings, markdown: bool = False) -> None:
    """The replication on standard output."""
    click.echo(f"{title}\n")
    for table in found.tables:
        sections = [row[0] for row in table.rows] if table.grouped else ()
        show(table.columns, table.rows, markdown, text=table.text, sections=sections)
        click.echo(f"{folded(table.caption)}\n")
    for claim in found.claims:
        click.echo(folded(f"[{claim.verdict}] {claim.where}", more="  "))
        for who, text in claim.told().items():
            click.echo(folded(f"{f'{who}:':6} {text}", "  ", more="  "))
    click.echo("\nWhere this is not what the paper did:")
    for difference in found.differences:
        click.echo(folded(f"- {difference}", more="  "))
