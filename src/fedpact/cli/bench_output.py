"""How `fedpact bench` prints and saves its rows, and the options its commands share."""

from __future__ import annotations

import csv as csv_format
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from textwrap import fill
from typing import IO, Any

import click
from rich.console import Console

from fedpact.cli.bench_measure import Measured
from fedpact.cli.bench_problems import Instance
from fedpact.errors import DataError
from fedpact.report.tables import table

# -------------------------------------------------------------------------------------------------------------- tables


def _cell(name: str, form: Callable[[Any], str]) -> Callable[[Measured], str]:
    def shown(row: Measured) -> str:
        value = getattr(row, name)
        return "" if value is None else form(value)

    return shown


def _ratio(row: Measured) -> str:
    if row.ratio is None:
        return ""
    return f"{'>' if row.ratio_is_lower_bound else ''}{row.ratio:.{1 if row.ratio < 100 else 0}f}"


#: header -> how a row shows it
COLUMNS: dict[str, Callable[[Measured], str]] = {
    "problem": _cell("problem", str),
    "n": _cell("owners", str),
    "d": _cell("dim", str),
    "tol": _cell("tol", "{:g}".format),
    "method": _cell("method", str),
    "exchanges": _cell("exchanges", str),
    "gradients": _cell("gradients", "{:.0f}".format),
    "Hessians": _cell("hessians", "{:.0f}".format),
    "MB": _cell("bytes", lambda count: f"{count / 1e6:.2f}"),
    "seconds": _cell("seconds", lambda s: f"{s:.3f}" if s < 1 else f"{s:.1f}"),
    "objective": _cell("objective", "{:.6f}".format),
    "distance": _cell("distance", "{:.1e}".format),
    "certificate": _cell("certificate", "{:.1e}".format),
    "status": _cell("status", str),
    "ratio": _ratio,
}
IN_GROWTH = ("problem", "n", "d", "tol", "method", "exchanges", "MB", "seconds", "objective", "certificate", "status")
IN_TIME = ("problem", "n", "d", "tol", "method", "seconds", "objective", "distance", "certificate", "status", "ratio")


@dataclass
class Output:
    """Where the rows go, and what is said below the table."""

    markdown: bool
    csv: IO[str] | None
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, list[str]] = field(default_factory=dict)  # reason -> instances

    def made(self, make: Callable[[], Instance], title: str) -> Instance | None:
        """The instance, or None and a line below the table when its data is missing or too small."""
        try:
            return make()
        except DataError as error:
            self.skipped.setdefault(str(error), []).append(title)
            return None

    def report(self, rows: Iterator[Measured], columns: Sequence[str], caption: str) -> None:
        """Measure all rows and print them; after Ctrl-C those that are there, with exit code 130."""
        seen: list[Measured] = []
        interrupted = False
        try:
            for row in rows:
                seen.append(row)
        except KeyboardInterrupt:
            interrupted = True
            self.notes.append("interrupted: the table holds what was measured so far")
        if seen:
            self._print(seen, columns)
            click.echo(f"{fill(caption, 118, break_on_hyphens=False)}\n")
        for row in seen:
            if row.note:
                self.notes.append(f"{row.problem}, n = {row.owners}, {row.method}: {row.note}")
        for reason, titles in self.skipped.items():
            self.notes.append(f"skipped {'; '.join(titles)}: {reason}")
        for note in self.notes:
            click.echo(f"- {note}")
        save(seen, Measured, self.csv)
        if interrupted:
            sys.exit(130)

    def _print(self, rows: Sequence[Measured], columns: Sequence[str]) -> None:
        lines = [[COLUMNS[column](row) for column in columns] for row in rows]
        instances = [(row.problem, row.owners) for row in rows]
        show(columns, lines, self.markdown, text=("method", "status"), sections=instances)


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


def markdown(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [columns, ["---"] * len(columns), *lines])


def save(rows: Sequence[object], kind: type, csv: IO[str] | None) -> None:
    """Write rows, which are of this dataclass, to the file of --csv, if there is one."""
    if csv is not None:
        writer = csv_format.DictWriter(csv, [f.name for f in fields(kind)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)  # type: ignore[call-overload]


# ------------------------------------------------------------------------------------------------------------- options


class Listed(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no argument here
    """One or several values, separated by commas."""

    name = "list"

    def __init__(self, one: click.ParamType[Any]) -> None:
        self.one = one

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
        return [self.one.convert(part, param, ctx) for part in parts]


def several(option: str, one: click.ParamType[Any], default: Sequence[object], text: str) -> Callable[[Any], Any]:
    """An option that may be repeated or be given several values at once; the command gets a tuple without doubles."""

    def flat(ctx: click.Context, param: click.Parameter, value: Sequence[Sequence[object]]) -> tuple[object, ...]:
        return tuple(dict.fromkeys(item for part in value for item in part))

    return click.option(
        option,
        type=Listed(one),
        multiple=True,
        default=[",".join(str(item) for item in default)] if default else [],
        show_default=bool(default),
        callback=flat,
        metavar="LIST",
        help=f"{text} Repeat the option, or separate by commas.",
    )


def common(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--csv", type=click.File("w", lazy=False), help="Write all rows with unrounded numbers to this file."
        ),
        click.option("--markdown", is_flag=True, help="Print the table as Markdown."),
        click.option("--seed", default=0, show_default=True, help="Of the data and its split into owners."),
        click.option(
            "--budget",
            default=60.0,
            show_default=True,
            type=click.FloatRange(0, min_open=True),
            help="Seconds for one cell; when they are over, the best point so far is shown and marked.",
        ),
    ):
        command = option(command)
    return command


DATA = click.option("--data", "folder", help="Folder of the UCI files. [default: FEDPACT_DATA, then the cache]")
COUNT = click.IntRange(1)
TOLERANCE = click.FloatRange(0, 1, min_open=True, max_open=True)
