"""A page of Markdown that a benchmark writes itself: its tables, and how they were made."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import click
from click.core import ParameterSource

from fedpact_experiments.replications.pages import REMARKS, versions
from fedpact_experiments.tables import fold, markdown


@dataclass(frozen=True)
class Part:
    """A table of the page, below its title."""

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    caption: str


def write_page(path: Path, title: str, introduction: str, parts: Sequence[Part], notes: Sequence[str]) -> None:
    """Write the page, and keep what the one that was there says below its heading "Remarks"."""
    before = ""
    if path.exists():
        before = path.read_text()
    _, heading, remarks = before.partition(f"\n{REMARKS}\n")
    path.write_text("\n\n".join(_paragraphs(title, introduction, parts, notes)) + "\n" + heading + remarks)
    click.echo(f"wrote {path}", err=True)


def _paragraphs(title: str, introduction: str, parts: Sequence[Part], notes: Sequence[str]) -> Iterator[str]:
    yield f"# {title}"
    yield fold(introduction)
    yield fold(f"This page was written by the command below on {date.today():%d %B %Y}, {_machine()}, {versions()}.")
    yield f"```text\n{_typed()}\n```"
    for part in parts:
        yield f"## {part.title}"
        if part.caption:
            yield fold(part.caption)
        yield markdown(part.columns, part.lines)
    if notes:
        yield "## Notes"
        yield "\n".join(fold(f"- {note}", more="  ") for note in notes)


def _machine() -> str:
    return f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()})"


def _typed() -> str:
    """The command of this process, without the names of folders and files."""
    context = click.get_current_context()
    words = ["fedpact", "bench", str(context.info_name)]
    for option in context.command.params:
        name = str(option.name)
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE or name in ("page", "csv"):
            continue
        words.append(option.opts[0])
        value = context.params[name]
        if name == "folder":
            words.append("DIR")
        elif isinstance(value, tuple):
            words.append(",".join(map(str, value)))
        elif value is not True:
            words.append(str(value))
    return " ".join(words)
