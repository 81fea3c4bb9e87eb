"""How `fedpact bench` prints and saves its rows, and the options its commands share."""

from __future__ import annotations

import csv as csv_format
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import IO, Any

import click
import numpy as np

from fedpact.errors import DataError
from fedpact_experiments.bench.page import Part, write_page
from fedpact_experiments.bench.problems import Instance
from fedpact_experiments.tables import fold, show


def cell(name: str, form: Callable[[Any], str] = str) -> Callable[[Any], str]:
    """How a column shows this field of a row: nothing where it is None."""

    def shown(row: Any) -> str:
        value = getattr(row, name)
        return "" if value is None else form(value)

    return shown


@dataclass(frozen=True)
class Table:
    """A table that is yet to be measured.

    rows: of one dataclass, as they are measured          columns: header -> how a row shows it
    text: columns of words, besides the first             section: rules are drawn where this changes
    title: its heading on a page
    """

    rows: Iterable[Any]
    columns: Mapping[str, Callable[[Any], str]]
    caption: str = ""
    text: Sequence[str] = ("method", "status")
    section: Callable[[Any], object] = lambda row: (row.problem, row.owners)
    title: str = ""

    def lines(self, rows: Sequence[Any]) -> list[list[str]]:
        return [[shown(row) for shown in self.columns.values()] for row in rows]

    def show(self, rows: Sequence[Any], markdown: bool) -> None:
        show(
            list(self.columns), self.lines(rows), markdown, text=self.text, sections=[self.section(row) for row in rows]
        )
        if self.caption:
            click.echo(f"{fold(self.caption)}\n")


@dataclass
class Output:
    """What all commands are asked, where their rows go, and what is said below the tables.

    kind: the dataclass of the rows; folder: of the data; budget: seconds for one cell; page: a file for all of it
    """

    kind: type
    markdown: bool
    csv: IO[str] | None
    folder: str | None = None
    seed: int = 0
    budget: float = np.inf
    page: Path | None = None
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, list[str]] = field(default_factory=dict)  # reason -> what was skipped

    def instances(
        self,
        makers: Mapping[str, Callable[[int, str | None, int], Instance]],
        names: Iterable[str],
        owners: Callable[[str], Iterable[int]],
    ) -> Iterator[Instance]:
        """Every problem for every number of owners; a line below the table where its data is missing or too small."""
        for name in names:
            for n in owners(name):
                try:
                    yield makers[name](n, self.folder, self.seed)
                except DataError as error:
                    self.skip(f"{name}, n = {n}", error)

    def skip(self, title: str, error: DataError) -> None:
        self.skipped.setdefault(str(error), []).append(title)

    def report(self, *tables: Table, title: str = "", introduction: str = "") -> None:
        """Measure all rows and print them; after Ctrl-C those that are there, with exit code 130.

        title, introduction: of the page, where one is asked for
        """
        seen: list[list[Any]] = [[] for _ in tables]
        interrupted = False
        try:
            for rows, table in zip(seen, tables, strict=True):
                for row in table.rows:
                    rows.append(row)
        except KeyboardInterrupt:
            interrupted = True
            self.notes.append("interrupted: the table holds what was measured so far")
        for rows, table in zip(seen, tables, strict=True):
            if rows:
                table.show(rows, self.markdown)
        everything = [row for rows in seen for row in rows]
        notes = self._notes_of(everything)
        for note in notes:
            click.echo(f"- {note}")
        self._save(everything)
        if self.page is not None:
            parts = [
                Part(table.title, list(table.columns), table.lines(rows), table.caption)
                for rows, table in zip(seen, tables, strict=True)
                if rows
            ]
            write_page(self.page, title, introduction, parts, notes)
        if interrupted:
            sys.exit(130)

    def _notes_of(self, rows: Sequence[Any]) -> list[str]:
        of_rows = [f"{row.problem}, n = {row.owners}, {row.method}: {row.note}" for row in rows if row.note]
        skipped = [f"skipped {'; '.join(titles)}: {reason}" for reason, titles in self.skipped.items()]
        return [*self.notes, *of_rows, *skipped]

    def _save(self, rows: Sequence[Any]) -> None:
        if self.csv is not None:
            writer = csv_format.DictWriter(self.csv, [f.name for f in fields(self.kind)], lineterminator="\n")
            writer.writeheader()
            own: list[Any] = [row for row in rows if isinstance(row, self.kind)]
            writer.writerows(asdict(row) for row in own)


MARKDOWN = click.option("--markdown", is_flag=True, help="Print the table as Markdown.")
CSV = click.option(
    "--csv", type=click.File("w", lazy=False), help="Write all rows with unrounded numbers to this file."
)
PAGE = click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write tables and notes as a page of Markdown, too, with command, machine and date.",
)
SEED = click.option("--seed", default=0, show_default=True, help="Of the data and its split into owners.")


def budget_of(seconds: float) -> Callable[[Any], Any]:
    """The option --budget with this default."""
    return click.option(
        "--budget",
        default=seconds,
        show_default=True,
        type=click.FloatRange(0, min_open=True),
        help="Seconds for one cell; when they are over, the best point so far is shown and marked.",
    )


BUDGET = budget_of(60.0)


def printing(kind: type, *options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The command gets an `output` for rows of this kind, which has its options --markdown and --csv, and these."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(markdown: bool, csv: IO[str] | None, **given: Any) -> None:
            shared = {name: given.pop(name) for name in ("folder", "seed", "budget", "page") if name in given}
            command(output=Output(kind, markdown, csv, **shared), **given)

        decorated: Callable[..., None] = called
        for option in (CSV, MARKDOWN, *options):
            decorated = option(decorated)
        return decorated

    return decorate
