"""`fedpact run`: a job, from its file to the folder of its run."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from fedpact.engines.flower.submit import run_on_flower
from fedpact.errors import OptionError, OwnerLost
from fedpact.federation import ENGINES
from fedpact.jobs import JobFile, read_job, run_job
from fedpact.jobs.evidence_file import FILE as EVIDENCE
from fedpact.jobs.run_folder import folder_of
from fedpact.jobs.running import RATES
from fedpact.report import wording
from fedpact.report.measures import is_of_class
from fedpact.report.record import Measured, Record
from fedpact.report.tables import print_table, table
from fedpact.report.what_left import tell_what_left
from fedpact.solvers.solution import WARNING
from fedpact.tasks import TableTask, Vertical

#: Exit code of a run without a usable model, by status; 1 for all others.
EXIT = {"interrupted": 130}
#: How measures of the model without constraints are named.
BEFORE = " without constraints"
#: What the table of constraints says of a state; "NO" for all others.
MET = {
    "met": "yes",
    "within tolerance": "yes",
    "within one row": "yes",
    "made": "made",
    "not made": "NOT MADE",
    "withheld": "withheld",
    "not known": "not known",
}
#: Columns of the table of measures that need an explanation.
LEGEND = {
    "before": "before: the model without the constraints",
}


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--engine", type=click.Choice(list(ENGINES)), help="Replaces the engine that the job names.")
@click.option("--resume", is_flag=True, help="Continue the run in the output folder.")
@click.option("--force", is_flag=True, help="Replace the run in the output folder, once this one has ended.")
@click.option("--check", is_flag=True, help="Only read the job and print what it asks for.")
def run(job: Path, engine: str | None, resume: bool, force: bool, check: bool) -> None:
    """Train the model of a job, under its constraints at every owner.

    JOB is a TOML file: the task, the bound, and the owners with their tables. `fedpact init` writes one with comments
    on every key. The output folder gets the model (model.json, model.npz), its certificate, the history, what left
    each owner (ledger.json), a log, and run.json, from which `fedpact report` makes a page to hand to an auditor.

    \b
    fedpact init hospitals
    fedpact run hospitals/job.toml
    fedpact report hospitals/run

    Ctrl-C leaves a checkpoint; --resume continues from it and gives the same model. A finished run in the output
    folder stays as it is until a new one (--force) has ended, which works in a folder beside it (run.next). Exit code
    0 when all constraints are met and the certificate is within the tolerance (of a network: when all are met by
    count), 1 when not, 2 when the job or a table is wrong, 130 when interrupted.
    """
    file = read_job(job)
    if check:
        _describe(file)
        return
    if file.superlink and engine is not None:
        told = f"--engine {engine}: the owners of this job are Flower sites; leave the option out"
        raise OptionError(told, code="FP-OPTION-503")
    again = f"go on with: fedpact run {job} --resume"
    try:
        record = _run(file, engine, resume, force)
    except KeyboardInterrupt:
        click.echo(f"interrupted; {again}", err=True)
        sys.exit(130)
    except OwnerLost as lost:
        click.echo(f"client_lost: {lost}\n{again}", err=True)
        sys.exit(1)
    show(record)
    folder = folder_of(file.output)
    click.echo(f"\nresults in {folder}; a page for the auditor: fedpact report {folder}")
    if folder != file.output:
        click.echo(f"the finished run in {file.output} stays until this one has ended")
    if (folder / EVIDENCE).exists():
        click.echo(f"signed by its owners; check it with: fedpact verify {folder}")
    if record.status in ("interrupted", "client_lost"):
        click.echo(f"{record.status}; {again}", err=True)
    sys.exit(0 if record.usable else EXIT.get(record.status, 1))


def _describe(file: JobFile) -> None:
    click.echo(f"{file.title}: {file.task.sentence()}")
    if isinstance(file.task, TableTask):
        names = file.task.encoding.names
        click.echo(f"{len(names)} features: {', '.join(names)}")
    if isinstance(file.task, Vertical):
        click.echo(f"parties: {', '.join(file.owners)}; the label is with {file.task.label_holder}")


def _run(file: JobFile, engine: str | None, resume: bool, force: bool) -> Record:
    if file.superlink:
        return run_on_flower(file, resume=resume, force=force)
    return run_job(file, engine=engine, resume=resume, force=force)


def show(record: Record) -> None:
    """Print the result: constraints, rates, status and certificate."""
    click.echo(f"{record.title}: {record.asked}\n")
    if record.bounded:
        _show_bounded(record)
        _explain_bounded(record)
    names = dict.fromkeys(name for one in record.measured for name in one.numbers)
    keys = [name for name in names if name in RATES or (is_of_class(name, names) and BEFORE not in name)]
    if keys:
        _show_measured(record, keys)
    if record.inference:
        click.echo(f"{record.summary}\n")
    for remark in (*wording.describe_one_class(record), *wording.describe_perfection(record)):
        click.echo(f"WARNING: {remark}")
    for note in record.notes:
        if note.startswith(WARNING):
            click.echo(note)
    click.echo(
        f"{record.status}: {record.reason}\n"
        f"certificate: stationarity {record.stationarity:.1e} (asked {record.tol[0]:g}), feasibility "
        f"{record.feasibility:.1e} (asked {record.tol[1]:g}); {record.method}, {record.rounds} exchanges, "
        f"{record.seconds:.1f} s\n"
        f"left each owner: {tell_what_left((field for one in record.sent for field in one.fields), 'ledger.json')}"
    )


def _show_bounded(record: Record) -> None:
    """The constraints of every owner."""
    rows = table("owner", "constraint", "value", "bound", "price", "met", words=("constraint",))
    for one in record.bounded:
        value = "withheld" if one.withheld else f"{one.value:.4f}"
        price = "" if math.isnan(one.price) else f"{one.price:.4f}"
        met = MET.get(wording.state(one, record.tol[1]), "NO")
        rows.add_row(one.owner, one.what, value, wording.limit(one), price, met)
    print_table(rows)


def _explain_bounded(record: Record) -> None:
    """Which rows the values are of, and what is promised for others."""
    if any(one.counted for one in record.bounded):
        explained = "values: counted on the rows trained on, to which the model was fitted: expect less on new rows"
        if any(wording.state(one, record.tol[1]) == "within one row" for one in record.bounded):
            explained += "; met: a gap may be above its bound by what one row is worth"
        click.echo(explained)
    for told in dict.fromkeys(wording.promise(one) for one in record.bounded if one.promise):
        click.echo(f"promises {told}")
    if record.promised:
        click.echo(record.promised)
    click.echo()


def _show_measured(record: Record, keys: list[str]) -> None:
    """These rates at every owner, beside those of the model without constraints."""
    measured = record.measured
    compared = {key for key in keys if any(f"{key}{BEFORE}" in one.numbers for one in measured)}
    rows = [_measured_cells(one, keys, compared) for one in measured]
    columns = [column for column, _ in rows[0]]
    measures = table(*columns)
    for row in rows:
        measures.add_row(*(cell for _, cell in row))
    print_table(measures)
    legend = [text for column, text in LEGEND.items() if column in columns]
    legend += dict.fromkeys(f"recall, specificity: of {about}" for _, of, about in _parts(keys) if of)
    if legend:
        click.echo("; ".join(legend) + "\n")


def _parts(keys: list[str]) -> Iterator[tuple[str, str, str]]:
    """\"recall of ill = yes\" as the rate and the class that it is of, which stands below the table."""
    return (key.partition(" of ") for key in keys)


def _measured_cells(one: Measured, keys: list[str], compared: set[str]) -> list[tuple[str, str]]:
    """The row of one owner, as (column, cell); compared: rates with a value before."""
    cells = [("owner", one.owner), ("rows", _number(one, "rows", 0))]
    for key in keys:
        cells.append((key.partition(" of ")[0], _number(one, key)))
        if key in compared:
            cells.append(("before", _number(one, f"{key}{BEFORE}")))
    return cells


def _number(one: Measured, name: str, digits: int = 3) -> str:
    if name in one.numbers:
        return f"{one.numbers[name]:.{digits}f}"
    return "withheld" if name in one.withheld else ""
