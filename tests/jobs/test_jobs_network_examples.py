"""The examples of networks, from their tables to what predictions count to; on a part of the images."""

from __future__ import annotations

import csv
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from job_files import change

from fedpact.cli.main import cli
from fedpact.data.cells import read_cells
from fedpact.jobs import evaluate_run, read_job, run_job
from fedpact.report.record import Record
from fedpact.statistics import interval
from fedpact.tasks import Model, load_model
from fedpact.tasks.model import ModuleModel, NetworkModel

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")
pytestmark = [pytest.mark.slow, pytest.mark.extras]
EXAMPLES = Path(__file__).parents[2] / "examples"


def write_tables(example: str, folder: Path, *arguments: object, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run its tables.py; the job, which does not train without constraints."""
    monkeypatch.setattr(sys, "argv", ["tables.py", str(folder), *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / example / "tables.py"), run_name="__main__")
    return change(folder, "[owners]", "[solve]\ncompare = false\n\n[owners]")


def read(table: Path) -> list[dict[str, str]]:
    with table.open() as file:
        return list(csv.DictReader(file))


def predict(run: Path, table: Path) -> list[str]:
    out = run.parent / "predicted.csv"
    code = ["--code", str(run / "network.py")] if (run / "network.py").exists() else []
    done = CliRunner().invoke(cli, ["predict", str(run), str(table), "--out", str(out), *code])
    assert done.exit_code == 0, done.output
    return [row["class"] for row in read(out)]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def assert_counted(record: Record, run: Path) -> None:
    """Every recall of a shop is what the predictions of the command line count to."""
    model = load_model(run)
    assert isinstance(model, Model)
    for shop in range(1, 11):
        table = run.parent / f"shop{shop}.parquet"
        truth = np.array(model.classes)[read_cells(table).codes("kind", model.classes, "classes")]
        decided = np.array(predict(run, table))
        for one in record.bounded:
            if one.owner == f"shop{shop}":
                kind = one.what.removeprefix("recall of kind = ")
                assert one.value == pytest.approx(np.mean(decided[truth == kind] == kind))


def test_every_kind_of_clothes_is_found_at_every_shop(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    part = ("--data", data_folder, "--part", 0.1)
    job = write_tables("fashion_mnist", tmp_path, *part, monkeypatch=monkeypatch)
    record = run_job(read_job(job))
    assert record.trained, record.reason
    assert len(record.bounded) == 100
    model = load_model(tmp_path / "run")
    assert isinstance(model, NetworkModel)
    assert sum(array.size for array in model.arrays().values()) == 101_770
    assert_counted(record, tmp_path / "run")
    assert min(one.value for one in record.bounded) >= 0.7
    told = evaluate_run(tmp_path / "run", read_job(job))
    assert np.mean([told.measures[f"shop{shop}"]["accuracy"] for shop in range(1, 11)]) > 0.8


def test_convolutions_from_a_file_are_counted_by_their_predictions(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    write_tables("fashion_mnist", tmp_path, "--data", data_folder, "--part", 0.1, monkeypatch=monkeypatch)
    short = '[solve]\nmethod = "stochastic-al"\ncompare = false\n[solve.options]\npasses = 5\n'
    job = tmp_path / "short.toml"
    job.write_text((tmp_path / "cnn.toml").read_text() + short)
    record = run_job(read_job(job))
    assert len(record.bounded) == 100
    model = load_model(tmp_path / "cnn")
    assert isinstance(model, ModuleModel)
    assert model.coefficients.size == 8 * 26 + 16 * 73 + 10 * 785  # two convolutions and a linear layer, with biases
    assert_counted(record, tmp_path / "cnn")
    told = evaluate_run(tmp_path / "cnn", read_job(job))
    new = tmp_path / "new1.parquet"
    truth = np.array(model.classes)[read_cells(new).codes("kind", model.classes, "classes")]
    right = np.array(predict(tmp_path / "cnn", new)) == truth
    assert told.measures["shop1"]["accuracy"] == pytest.approx(np.mean(right))


def gap(decided: Any, rows: list[dict[str, str]]) -> float:
    """In the recall of incomes above 50K between women and men."""
    rates = []
    for sex in ("Female", "Male"):
        hits = [
            found == ">50K"
            for found, row in zip(decided, rows, strict=True)
            if (row["sex"], row["income"]) == (sex, ">50K")
        ]
        rates.append(sum(hits) / len(hits))
    return abs(rates[1] - rates[0])


def test_gaps_at_six_employers_are_those_of_the_predictions(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_tables("adult_network", tmp_path, "--data", data_folder, monkeypatch=monkeypatch)
    record = run_job(read_job(job))
    within = []
    for one in record.bounded:
        table = tmp_path / f"{one.owner}.csv"
        assert one.value == pytest.approx(gap(predict(tmp_path / "run", table), read(table)))
        within.append(one.value <= 0.02 + one.allowed + 1e-9)
    assert len(within) == 6
    assert record.usable == all(within)


def test_a_promise_at_six_employers_is_not_contradicted_by_people_nobody_trained_on(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables("adult_network", tmp_path, "--data", data_folder, monkeypatch=monkeypatch)
    text = (tmp_path / "promise.toml").read_text()
    short = '[solve]\nmethod = "stochastic-al"\ncompare = false\n[solve.options]\npasses = 5\n'
    job = tmp_path / "short.toml"
    job.write_text(text + short)
    record = run_job(read_job(job))
    assert record.trained, record.reason
    assert [one.promise for one in record.bounded] == 6 * ["made"]
    told = evaluate_run(tmp_path / "promise", read_job(job))
    for one in record.bounded:
        table = tmp_path / f"{one.owner}_new.csv"
        decided = predict(tmp_path / "promise", table)
        hits = [found == ">50K" for found, row in zip(decided, read(table), strict=True) if row["income"] == ">50K"]
        assert told.measures[one.owner]["recall of income = >50K"] == pytest.approx(np.mean(hits))
        assert interval(sum(hits), len(hits))[1] >= 0.8
