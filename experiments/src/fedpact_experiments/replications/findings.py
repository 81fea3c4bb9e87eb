"""What a replication finds: tables, the paper's claims beside our findings, figures, and deviations from the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click

from fedpact_experiments.tables import fold, show

#: True: the numbers confirm it; False: they contradict it; None: they do not decide.
Verdict = bool | None


def all_of(*verdicts: Verdict) -> Verdict:
    """False if one is, else None if one is, else True."""
    if False in verdicts:
        return False
    if None in verdicts:
        return None
    return True


def opposite(verdict: Verdict) -> Verdict:
    return None if verdict is None else not verdict


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of measured numbers.

    text:    left-aligned columns, besides the first
    grouped: rules where the first column changes
    title:   heading on a page
    figures: names of the figures between heading and table
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
    """A claim of the paper ("-": none) and where it stands, what was found here, and whether they agree.

    why:    the reason, shown unless they agree
    fitted: whether what the paper leaves open was chosen with its numbers in view: then agreement shows nothing
    """

    where: str
    paper: str = "-"
    ours: str
    agrees: Verdict
    why: str = ""
    fitted: bool = False

    @property
    def verdict(self) -> str:
        if self.agrees is None:
            return "not decided"
        if self.agrees:
            return "fitted" if self.fitted else "agrees"
        return "DIFFERS"

    def statements(self) -> dict[str, str]:
        """The statements about it: the paper's, ours, and why they differ."""
        said = {"paper": self.paper, "ours": self.ours}
        if self.why and not self.agrees:
            said["why"] = self.why
        return said


@dataclass
class Findings:
    """differences: deviations from the paper's experiment; figures: file name without suffix -> Figure"""

    tables: list[Table] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def undecided(self) -> Findings:
        """The same with all verdicts undecided, for a small part of an experiment."""
        return replace(self, claims=[replace(claim, agrees=None, why="") for claim in self.claims])


def show_findings(title: str, found: Findings, markdown: bool = False) -> None:
    """Print the findings."""
    click.echo(f"{title}\n")
    for table in found.tables:
        sections = [row[0] for row in table.rows] if table.grouped else ()
        show(table.columns, table.rows, markdown, text=table.text, sections=sections)
        click.echo(f"{fold(table.caption)}\n")
    for claim in found.claims:
        click.echo(fold(f"[{claim.verdict}] {claim.where}", more="  "))
        for who, text in claim.statements().items():
            click.echo(fold(f"{f'{who}:':6} {text}", "  ", more="  "))
    click.echo("\nWhere this is not what the paper did:")
    for difference in found.differences:
        click.echo(fold(f"- {difference}", more="  "))
