"""`fedpact evaluate`: the model of a run on tables that nobody trained on."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import click

from fedpact.engines.flower.submit import evaluate_on_flower
from fedpact.errors import OptionError
from fedpact.federation import ENGINES
from fedpact.fitting import Evaluation
from fedpact.fitting.evaluation import RATES
from fedpact.jobs.evaluation import evaluate_run, job_of, refuse_code
from fedpact.jobs.evidence_file import EVALUATION
from fedpact.report.tables import print_table, table
from fedpact.statistics.evaluation import Outcome, Rate
from fedpact.tasks.base import SERVER

#: Measures of a model that predicts numbers.
ERRORS = ("mean error", "root mean squared error")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--table", "tables", multiple=True, metavar="OWNER=FILE", help="A table that nobody trained on.")
@click.option("--engine", type=click.Choice(list(ENGINES)), help="Replaces the engine that the job names.")
@click.option("--job", type=click.Path(path_type=Path), help="The job file.  [default: as the run names it]")
@click.option("--code", type=click.Path(path_type=Path), help="The Python file of the model, which is run: see below.")
@click.option(
    "--absent", multiple=True, metavar="PARTY", help="vertical: a party that does not take part; shows the gap then."
)
@click.option("--strict", is_flag=True, help="Exit code 1 where a bound is contradicted.")
def evaluate(
    run: Path,
    tables: tuple[str, ...],
    engine: str | None,
    job: Path | None,
    code: Path | None,
    absent: tuple[str, ...],
    strict: bool,
) -> None:
    """Measure the model in the folder RUN on tables that nobody trained on, at their owners.

    The tables are those of [holdout] in the job, or of --table; Flower sites name theirs in site.toml. Every owner
    reports the rates of its own rows, with exact 95 % confidence intervals, beside the bounds of the job. A bound is
    borne out, or contradicted, where exact tests show so for all bounds together (Holm's correction: any verdict is
    wrong with probability 5 % at most), and open otherwise. A table that the model was trained on is refused.
    evaluation.json in RUN has this evaluation and all before it; `fedpact report` shows the last above the promises.

    \b
    fedpact evaluate hospitals/run --table north=north_2026.csv --table south=south_2026.csv

    Parties of a vertical model have a table each of the same people, found by their ids; a coordinator that holds the
    labels has one too, server=FILE.

    A model that a Python file builds is code. It is run only where you name it, by --job or --code, and only if its
    digest is the one of the run, and of the job that the owners signed.

    Exit code 0 whatever the verdicts are, with --strict 1 where a bound is contradicted; 2 when something is wrong.
    """
    file = job_of(run, job)
    if job is None and code is None and not file.superlink:  # sites have their own
        refuse_code(run)
    stated = read_tables(tables)
    if file.superlink:
        if stated.keys() - {SERVER} or engine:
            raise OptionError(
                "the owners of this job are Flower sites, which have their own tables; leave out --table and --engine",
                code="FP-OPTION-841",
            )
        found = evaluate_on_flower(run, file, stated.get(SERVER), absent)
    else:
        found = evaluate_run(run, file, stated or None, engine, absent=absent, code=code)
    show(found)
    click.echo(f"added to {run / EVALUATION}")
    sys.exit(1 if strict and found.contradicted else 0)


def read_tables(stated: tuple[str, ...]) -> dict[str, Path]:
    """Files by owner. OptionError for what is not OWNER=FILE."""
    found = {}
    for one in stated:
        owner, _, path = one.partition("=")
        if not owner or not path:
            raise OptionError(f"--table {one}: write --table OWNER=FILE", code="FP-OPTION-840")
        found[owner] = Path(path)
    return found


def show(found: Evaluation) -> None:
    """Print rates by owner, then the constraints."""
    click.echo("On rows that nobody trained on:\n")
    if any(found.rates.values()):
        _show_rates(found)
    else:
        _show_errors(found)
    if found.bounds:
        _show_bounds(found)


def _show_rates(found: Evaluation) -> None:
    names = [name for name in RATES if any(name in rates for rates in found.rates.values())]
    columns = [column for name in names for column in (name, f"{100 * found.level:g} %")]
    shown = table("owner", "rows", *columns)
    for owner, rates in found.rates.items():
        cells = [cell for name in names for cell in _rate_cells(rates.get(name), name in found.withheld.get(owner, ()))]
        shown.add_row(owner, _rows_of(found, owner), *cells)
    print_table(shown)


def _rate_cells(rate: Rate | None, withheld: bool) -> tuple[str, str]:
    if rate is None:
        return "withheld" if withheld else "", ""
    return f"{rate.value:.3f}", f"{rate.low:.3f} to {rate.high:.3f}"


def _rows_of(found: Evaluation, owner: str) -> str:
    """Of one owner; of all together where everyone tells them."""
    told = [measures["rows"] for measures in found.measures.values() if "rows" in measures]
    if owner in found.measures:
        rows = found.measures[owner].get("rows")
        return "withheld" if rows is None else f"{rows:.0f}"
    return f"{sum(told):.0f}" if len(told) == len(found.measures) else ""


def _show_errors(found: Evaluation) -> None:
    names = [name for name in ERRORS if any(name in measures for measures in found.measures.values())]
    shown = table("owner", "rows", *names)
    for owner, measures in found.measures.items():
        cells = [f"{measures[name]:.4g}" if name in measures else "withheld" for name in names]
        shown.add_row(owner, _rows_of(found, owner), *cells)
    print_table(shown)


def _show_bounds(found: Evaluation) -> None:
    shown = table("owner", "constraint", "rows", "value", f"{100 * found.level:g} %", "bound", "here", "for new rows")
    for one in found.bounds:
        shown.add_row(*_bound_cells(one))
    print_table(shown)
    click.echo(
        "here: whether the value on these rows meets the bound; for new rows: borne out or contradicted where exact "
        "tests show it, corrected for the number of bounds (Holm), else open; an interval is of one rate by itself\n"
    )


def _bound_cells(one: Outcome) -> list[str]:
    side = "at least" if one.least else "at most"
    bound = f"{side} {one.bound:.4g}"
    if math.isnan(one.value):
        unknown = "withheld" if one.withheld else "no rows"
        return [one.owner, one.what, "", unknown, "", bound, "", ""]
    interval = "" if math.isnan(one.low) else f"{one.low:.3f} to {one.high:.3f}"
    met = "yes" if one.met else "NO"
    return [one.owner, one.what, str(one.rows), f"{one.value:.4f}", interval, bound, met, one.verdict]
