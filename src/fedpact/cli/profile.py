"""`fedpact profile`: what the tables of a job hold, before anything is trained."""

from __future__ import annotations

import json
import logging
import math
import sys
from pathlib import Path

import click

from fedpact.engines.flower.submit import profile_on_flower
from fedpact.fitting.profile import QUANTILES, Described, Description
from fedpact.jobs import read_job
from fedpact.jobs.profile import profile_job
from fedpact.report.files import explain_write_errors
from fedpact.report.tables import print_table, table

#: Levels of a category that are shown in one line, the most frequent first.
SHOWN = 6


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write it as JSON, too.")
def profile(job: Path, out: Path | None) -> None:
    """Describe the tables of a job: rows, absent values, means, quantiles, levels, and everything that is wrong.

    Numbers are of all owners together, by sums, which are masked between organisations. What is wrong with an owner's
    table is said in words, with line and cell, in that owner's log only (here, if the table is on this machine);
    the coordinator learns the column, the kind of defect and about how many rows. A text that a column holds beside
    the levels of the job is told if it is frequent. Flower sites answer if their policy allows the task "profile".

    \b
    fedpact init hospitals
    fedpact profile hospitals/job.toml

    Exit code 0 when nothing is wrong, 1 when something is.
    """
    file = read_job(job)
    if file.superlink:
        found = profile_on_flower(file)
    else:
        words = logging.StreamHandler(sys.stdout)
        words.setFormatter(logging.Formatter("%(message)s"))
        logging.getLogger("fedpact.site").addHandler(words)
        found = profile_job(file)
    show(found)
    if out is not None:
        with explain_write_errors(out):
            out.write_text(json.dumps(found.to_json(), indent=1) + "\n")
        click.echo(f"written to {out}")
    sys.exit(1 if found.wrong else 0)


def show(found: Description) -> None:
    """Print the columns, then what is wrong."""
    click.echo(f"{found.rows} rows at {len(found.owners)} owner{'s' if len(found.owners) > 1 else ''}")
    if any(found.counts.values()):
        rows = table("owner", "rows", *found.classes)
        for owner, counts in found.counts.items():
            rows.add_row(owner, *map(str, counts) if counts else ["withheld"] * (1 + len(found.classes)))
        print_table(rows)
    numbers = [one for one in found.columns if one.levels is None]
    if numbers:
        rows = table("column", "no value", "mean", "deviation", *(f"{q:.0%}" for q in QUANTILES))
        for one in numbers:
            rows.add_row(
                one.name, str(found.rows - one.known), *map(_number, (one.mean, one.deviation, *one.quantiles))
            )
        print_table(rows)
    categories = [one for one in found.columns if one.levels is not None]
    if categories:
        rows = table("column", "no value", "levels", words=("levels",))
        for one in categories:
            rows.add_row(one.name, str(found.rows - one.known), _levels(one))
        print_table(rows)
    for column, texts in found.levels.items():
        click.echo(f"column {column!r} holds text; frequent: {', '.join(map(repr, texts)) or 'none'}")
    for wrong in found.wrong:
        click.echo(str(wrong))
    for suspicion in found.suspicious:
        click.echo(f"WARNING: {suspicion}")


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"


def _levels(one: Described) -> str:
    """The most frequent levels with their rows."""
    assert one.levels is not None
    ordered = sorted(one.levels.items(), key=lambda level: -level[1])
    shown = ", ".join(f"{level} {count}" for level, count in ordered[:SHOWN])
    more = len(ordered) - SHOWN
    return f"{shown}, {more} more" if more > 0 else shown
