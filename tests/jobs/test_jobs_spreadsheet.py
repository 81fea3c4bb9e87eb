"""Cells of CSV files that people open in spreadsheets."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from job_files import change

from fedpact.cli.main import cli
from fedpact.jobs import read_job, run_job
from fedpact.spreadsheet import harmless
from fedpact.statistics import Estimate, Summary


@pytest.mark.parametrize("text", ["=1+1", "+x", "-x", "@sum", "\t=1", "\r=1", '=HYPERLINK("x")'])
def test_a_text_that_would_be_computed_is_shown(text: str) -> None:
    assert harmless(text) == f"'{text}"


@pytest.mark.parametrize("cell", [-1.5, "-1.5", "+3e-4", "-inf", "yes", "", 7])
def test_numbers_and_other_texts_stay(cell: object) -> None:
    assert harmless(cell) == cell


def test_names_of_columns_in_a_table_of_coefficients() -> None:
    one = Estimate("=cmd", -1.0, 0.1, -10.0, 0.0, -1.2, -0.8)
    rows = Summary((one,), (), "sandwich", 0.95, ()).to_csv().splitlines()
    assert rows[1].startswith("coefficient,'=cmd,-1.0,")


def test_classes_in_a_file_of_predictions(folder: Path) -> None:
    change(folder, 'classes = ["no", "yes"]', 'classes = ["no", "=yes"]')
    change(folder, 'protected = "yes"', 'protected = "=yes"')
    for owner in ("north", "south", "coast"):
        table = folder / f"{owner}.csv"
        table.write_text(
            "\n".join(
                line.removesuffix("yes") + "=yes" * line.endswith("yes") for line in table.read_text().splitlines()
            )
        )
    run_job(read_job(change(folder, "# compare = true", "compare = false")))
    printed = CliRunner().invoke(cli, ["predict", str(folder / "run"), str(folder / "north.csv")]).output
    decided = {line.split(",")[0] for line in printed.splitlines()[1:]}
    assert decided == {"no", "'=yes"}
