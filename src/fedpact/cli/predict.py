"""`fedpact predict`: apply the model of a run to a table."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from fedpact.cli.evaluate import read_tables
from fedpact.data.cells import Cells, read_cells
from fedpact.engines.flower.submit import predict_on_flower
from fedpact.errors import OptionError
from fedpact.federation import ENGINES
from fedpact.jobs import JobFile, find_threshold, read_job
from fedpact.jobs.evaluation import job_of, score_party_run
from fedpact.jobs.own_code import require_code
from fedpact.jobs.run_folder import load_run
from fedpact.report.files import explain_write_errors
from fedpact.spreadsheet import harmless
from fedpact.tasks.base import SERVER
from fedpact.tasks.model import Model, ModuleModel, PartyModel, RegressionModel, load_model
from fedpact.types import Vector


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("table", required=False, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="File to write. [default: standard output]")
@click.option("--owner", help="Who holds the rows, where every owner decides at a threshold of its own.")
@click.option("--job", type=click.Path(path_type=Path), help="The job of the run, with --owner.")
@click.option("--code", type=click.Path(path_type=Path), help="The Python file of the model, which is run: see below.")
@click.option("--table", "tables", multiple=True, metavar="PARTY=FILE", help="vertical: a party's table.")
@click.option("--absent", multiple=True, metavar="PARTY", help="vertical: a party that does not take part.")
@click.option("--engine", type=click.Choice(list(ENGINES)), help="vertical: replaces the engine that the job names.")
def predict(
    run: Path,
    table: Path | None,
    out: Path | None,
    owner: str | None,
    job: Path | None,
    code: Path | None,
    tables: tuple[str, ...],
    absent: tuple[str, ...],
    engine: str | None,
) -> None:
    """Apply the model in the folder RUN to the rows of TABLE (CSV or Parquet).

    Writes a CSV file with one line per row: the class, and the probability of each class; or the number that a
    regression predicts. Columns are matched by name; those that the model does not use are ignored.

    Where constraints are on decisions, the model gives scores and no probabilities, unless the job says calibrate =
    true. The class is what the model decides at its threshold, which constraints move: it need not be the most
    probable one.

    With threshold = "own" every owner decides at a threshold that follows from its own held-out rows and never leaves
    it. Then --owner and --job are needed, on the machine that has this owner's table.

    The parties of a vertical model have a table each, of the same people, found by their ids: give one for each with
    --table in the place of TABLE. Lines then begin with the id. Parties that do not take part are named by --absent,
    and count as if everyone had the mean of their columns; the gap between groups was bounded with all of them, and
    `fedpact evaluate --absent PARTY` shows what it is without. Flower sites have their own tables (holdout in
    site.toml); --table server=FILE is then a table of the coordinator with the ids of the people to predict, and
    without it people have numbers, in the order in which every site knows its own rows.

    A network that a Python file builds is code. It is run only where you name it with --code (RUN/network.py is the
    copy of the run), and only if its digest is that of the model, and of the job that the owners signed.

    \b
    fedpact predict hospitals/run new_patients.csv
    fedpact predict hospitals/run new_patients.csv --out predicted.csv
    fedpact predict hospitals/run new_patients.csv --owner north --job hospitals/job.toml
    fedpact predict parties/run --table bank=new_bank.csv --table shop=new_shop.csv
    fedpact predict parties/run --table bank=new_bank.csv --absent shop
    """
    record = load_run(run)
    model = load_model(run)
    if isinstance(model, ModuleModel):
        own = require_code(code, run, model.code.digest)
        model = replace(model, code=replace(model.code, path=own))
    if not record.usable:
        click.echo(f"warning: the run in {run} ended {record.status}: {record.reason}", err=True)
    if isinstance(model, PartyModel) != (table is None) or (table is not None and tables):
        needed = "one --table PARTY=FILE for each party" if isinstance(model, PartyModel) else "one TABLE"
        raise OptionError(f"this model predicts from {needed}; give that, and nothing else", code="FP-OPTION-955")
    if isinstance(model, PartyModel):
        ids, scores = _score_people(run, job_of(run, job), read_tables(tables), engine, absent)
        lines = _classify_people(model, ids, scores)
    else:
        assert table is not None
        lines = _predict_rows(model, read_cells(table), owner, job)
    lines = [list(map(str, map(harmless, line))) for line in lines]
    if out is None:
        csv.writer(sys.stdout).writerows(lines)
        return
    with explain_write_errors(out), out.open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    click.echo(f"wrote {len(lines) - 1} predictions to {out}")


def _predict_rows(model: Model | RegressionModel, cells: Cells, owner: str | None, job: Path | None) -> list[list[str]]:
    if isinstance(model, RegressionModel):
        return _regress(model, cells)
    return _classify(model, cells, _threshold(model, owner, job))


def _score_people(
    run: Path, file: JobFile, tables: Mapping[str, Path], engine: str | None, absent: tuple[str, ...]
) -> tuple[list[str], Vector]:
    if not file.superlink:
        return score_party_run(run, file, tables, engine, absent)
    if tables.keys() - {SERVER} or engine:
        raise OptionError(
            "the parties of this job are Flower sites, which have their own tables; give --table server=FILE at most",
            code="FP-OPTION-956",
        )
    return predict_on_flower(run, file, tables.get(SERVER), absent)


def _classify_people(model: PartyModel, ids: list[str], scores: Vector) -> list[list[str]]:
    """The lines of a vertical model: ids, and classes with their probabilities, or numbers."""
    if not model.classes:
        predicted = zip(ids, model.numbers(scores), strict=True)
        return [["id", "prediction"], *([who, f"{number:.10g}"] for who, number in predicted)]
    lines = [["id", "class", *(f"probability of {name}" for name in model.classes)]]
    for who, k, row in zip(ids, model.predict(scores), model.probabilities(scores), strict=True):
        lines.append([who, model.classes[k], *(f"{value:.6g}" for value in row)])
    return lines


def _threshold(model: Model, owner: str | None, job: Path | None) -> float:
    """The score above which the last class is decided: zero, or what the owner's held-out rows give."""
    if not model.own_threshold:
        return 0.0
    if owner is None or job is None:
        raise OptionError(
            "every owner decides at a threshold of its own, which follows from its held-out rows and is not in the run "
            "folder; give --owner NAME and --job JOB where this owner's table is",
            code="FP-OPTION-862",
        )
    return find_threshold(read_job(job), owner, model)


def _classify(model: Model, cells: Cells, threshold: float) -> list[list[str]]:
    """The lines of a classifier: classes and probabilities, or scores where there are none."""
    X = model.matrix(cells)
    heading = [f"probability of {name}" for name in model.classes]
    numbers = model.probabilities(X)
    if not model.has_probabilities:
        heading = [f"score of {name}" for name in model.classes]
        numbers = model.scores_by_class(X)
        if len(model.classes) == 2:
            heading = ["score"]
            numbers = model.scores(X) - threshold
    lines = [["class", *heading]]
    for k, row in zip(model.predict(X, threshold), numbers, strict=True):
        lines.append([model.classes[k], *(f"{value:.6g}" for value in row)])
    return lines


def _regress(model: RegressionModel, cells: Cells) -> list[list[str]]:
    """The lines of a regression: the predicted numbers."""
    return [["prediction"], *([f"{number:.10g}"] for number in model.predict_table(cells))]
