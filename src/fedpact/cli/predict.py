"""`fedpact predict`: apply the model of a run to a table."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import click

from fedpact.data.cells import read_cells
from fedpact.report.files import explain_write_errors
from fedpact.tasks.model import Model


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("table", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="File to write. [default: standard output]")
def predict(run: Path, table: Path, out: Path | None) -> None:
    """Classify the rows of TABLE (CSV or Parquet) with the model in the folder RUN.

    Writes a CSV file with one line per row: the class, and the probability of each class. Columns are matched by name;
    those that the model does not use are ignored.

    \b
    fedpact predict hospitals/run new_patients.csv
    fedpact predict hospitals/run new_patients.csv --out predicted.csv
    """
    model = Model.load(run)
    X = model.matrix(read_cells(table))
    lines = [["class", *(f"probability of {name}" for name in model.classes)]]
    for k, probabilities in zip(model.predict(X), model.probabilities(X), strict=True):
        lines.append([model.classes[k], *(f"{p:.6g}" for p in probabilities)])
    if out is None:
        csv.writer(sys.stdout).writerows(lines)
        return
    with explain_write_errors(out), out.open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    click.echo(f"wrote {len(lines) - 1} predictions to {out}")
