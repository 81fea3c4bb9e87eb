"""`fedpact predict`: apply the model of a run to a table."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import click

from fedpact.data.cells import Cells, read_cells
from fedpact.report.files import explain_write_errors
from fedpact.tasks.model import Model, RegressionModel, load_model


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("table", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="File to write. [default: standard output]")
def predict(run: Path, table: Path, out: Path | None) -> None:
    """Apply the model in the folder RUN to the rows of TABLE (CSV or Parquet).

    Writes a CSV file with one line per row: the class, and the probability of each class; or the number that a
    regression predicts. Columns are matched by name; those that the model does not use are ignored.

    \b
    fedpact predict hospitals/run new_patients.csv
    fedpact predict hospitals/run new_patients.csv --out predicted.csv
    """
    model = load_model(run)
    cells = read_cells(table)
    lines = _regress(model, cells) if isinstance(model, RegressionModel) else _classify(model, cells)
    if out is None:
        csv.writer(sys.stdout).writerows(lines)
        return
    with explain_write_errors(out), out.open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    click.echo(f"wrote {len(lines) - 1} predictions to {out}")


def _classify(model: Model, cells: Cells) -> list[list[str]]:
    """The lines of a classifier: classes and probabilities."""
    X = model.matrix(cells)
    lines = [["class", *(f"probability of {name}" for name in model.classes)]]
    for k, probabilities in zip(model.predict(X), model.probabilities(X), strict=True):
        lines.append([model.classes[k], *(f"{p:.6g}" for p in probabilities)])
    return lines


def _regress(model: RegressionModel, cells: Cells) -> list[list[str]]:
    """The lines of a regression: the predicted numbers."""
    return [["prediction"], *([f"{number:.10g}"] for number in model.predict_table(cells))]
