"""Jobs with standard errors: the table in the folder, in the terminal and in the report."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fedpact.cli.main import cli
from fedpact.errors import FedpactError
from fedpact.jobs import read_job, run_job
from fedpact.report.record import Record

JOB = """
task = "regression"
family = "cox"
label = "years"
event = "died"
features = ["age", "dose"]
regularization = 0.0
owners_weigh = "rows"

[coefficients]
dose = {at_most = -0.1}

[solve]
tol = 1e-8
inference = "sandwich"

[owners]
north = "north.csv"
south = "south.csv"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    draw = np.random.default_rng(6)
    for name in ("north", "south"):
        age = draw.normal(60, 10, 120)
        dose = draw.normal(size=120)
        years = draw.exponential(np.exp(-0.04 * (age - 60) - 0.3 * dose))
        died = (draw.random(120) < 0.8).astype(int)
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["age", "dose", "years", "died"])
            rows.writerows(zip(age, dose, years, died, strict=True))
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def test_a_job_writes_shows_and_reports_its_standard_errors(job: Path) -> None:
    done = CliRunner().invoke(cli, ["run", str(job)])
    assert done.exit_code == 0, done.output
    assert "standard errors: sandwich" in done.output
    folder = job.parent / "run"
    with (folder / "coefficients.csv").open() as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["age", "dose", "server: coefficient of dose"]
    assert float(rows["age"]["low"]) < 0.04 < float(rows["age"]["high"])
    assert float(rows["dose"]["estimate"]) == pytest.approx(-0.1, abs=1e-6)
    assert float(rows["dose"]["se"]) == 0
    record = Record.load(folder)
    assert record.summary["age"].se == float(rows["age"]["se"])
    assert CliRunner().invoke(cli, ["report", str(folder)]).exit_code == 0
    assert "with 95 % intervals" in (folder / "report.html").read_text()


def test_events_other_than_0_and_1_are_named(job: Path) -> None:
    table = job.parent / "south.csv"
    table.write_text(table.read_text().replace(",1\n", ",2\n").replace(",1\r\n", ",2\r\n"))
    with pytest.raises(FedpactError) as caught:
        run_job(read_job(job))
    assert caught.value.code == "FP-DATA-711"
    assert "died" in str(caught.value)
