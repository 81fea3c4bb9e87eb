"""Jobs run: what the folder holds is true, can be read back, and does not depend on where or how often it was made."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from job_files import change
from raising import raises_code

import fedpact as fp
from fedpact.cli.predict import predict
from fedpact.cli.run import run
from fedpact.data.cells import read_cells
from fedpact.jobs import read_job, run_job
from fedpact.report.record import Record
from fedpact.statistics import interval
from fedpact.tasks.model import Model


def test_the_example_is_solved_and_everything_is_in_its_folder(folder: Path) -> None:
    found = CliRunner().invoke(run, [str(folder / "job.toml")])
    assert found.exit_code == 0, found.output
    out = folder / "run"
    record = Record.load(out)
    assert record.solved
    assert {one.owner for one in record.bounded} == {"north", "south", "coast"}
    assert all(one.value <= one.bound + 1e-3 for one in record.bounded)
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["stationarity"] == record.stationarity <= 1e-3
    with (out / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[-1]["stationarity"]) == record.history[-1].stationarity
    assert float(rows[-1]["violation north"]) == record.history[-1].violations["north"]
    ledger = {one["owner"]: one for one in json.loads((out / "ledger.json").read_text())["owners"]}
    assert "Moments.total" in ledger["north"]["fields"]
    assert "Measured.numbers" in ledger["north"]["fields"]
    assert not any(name in field for field in ledger["north"]["fields"] for name in ("X", "rows"))
    assert fp.Solution.load(out / "solution.npz").solved
    assert "exchange 2:" in (out / "log.txt").read_text()


def test_the_model_read_back_gives_the_numbers_of_the_report(folder: Path) -> None:
    """Independent of training: the file's coefficients, in the units of the columns, on the tables themselves."""
    record = run_job(read_job(folder / "job.toml"))
    model = Model.load(folder / "run")
    for told in record.measured:
        cells = read_cells(folder / f"{told.owner}.csv")
        relapse = np.array(cells.column("relapse").cells) == "yes"
        X = model.matrix(cells)
        assert np.isnan(X).any()  # absent values
        found = model.predict(X) == 1
        assert told.numbers["recall of relapse = yes"] == pytest.approx(np.mean(found[relapse]), abs=1e-12)
        assert told.numbers["specificity of relapse = yes"] == pytest.approx(np.mean(~found[~relapse]), abs=1e-12)
        losses = -np.log(model.probabilities(X)[relapse, 1])
        bounded = next(one for one in record.bounded if one.owner == told.owner)
        assert bounded.value == pytest.approx(losses.mean(), rel=1e-9)


def test_a_table_is_classified_by_the_model_of_a_run(folder: Path) -> None:
    record = run_job(read_job(folder / "job.toml"))
    out = folder / "predicted.csv"
    found = CliRunner().invoke(predict, [str(folder / "run"), str(folder / "south.csv"), "--out", str(out)])
    assert found.exit_code == 0, found.output
    with out.open() as file:
        rows = list(csv.DictReader(file))
    relapse = np.array(read_cells(folder / "south.csv").column("relapse").cells)
    chosen = np.array([row["class"] for row in rows])
    south = next(told for told in record.measured if told.owner == "south")
    assert np.mean(chosen[relapse == "yes"] == "yes") == pytest.approx(south.numbers["recall of relapse = yes"])
    assert all(float(row["probability of yes"]) + float(row["probability of no"]) == pytest.approx(1) for row in rows)
    printed = CliRunner().invoke(predict, [str(folder / "run"), str(folder / "south.csv")])
    assert printed.output.splitlines() == out.read_text().splitlines()


def test_a_second_run_asks_before_it_replaces_the_first(folder: Path) -> None:
    path = str(folder / "job.toml")
    first = run_job(read_job(path))
    with raises_code("FP-OPTION-395", str(folder / "run"), "--resume", "--force"):
        run_job(read_job(path))
    w = fp.Solution.load(folder / "run" / "solution.npz").w
    for options in ({"resume": True}, {"force": True}):
        again = run_job(read_job(path), **options)
        assert again.objective == first.objective
        assert fp.Solution.load(folder / "run" / "solution.npz").w.tobytes() == w.tobytes()


def test_an_interrupted_run_goes_on_to_the_same_model(folder: Path, tmp_path: Path) -> None:
    path = change(folder, "[solve]", '[solve]\nmethod = "proximal-al"\ncompare = false')
    change(folder, "tol = 1e-3", "tol = 1e-6")  # for 200 exchanges instead of 50
    straight = change(folder, 'folder = "run"', 'folder = "straight"')
    run_job(read_job(straight))
    change(folder, 'folder = "straight"', 'folder = "run"')
    # Ctrl-C counts there even if it does not here, as in a test run in the background.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program += "from fedpact.cli.main import main; main()"
    command = [sys.executable, "-c", program, "run", str(path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    log = folder / "run" / "log.txt"
    while process.poll() is None and not (log.exists() and "exchange 10:" in log.read_text()):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 130, told
    assert "--resume" in told
    assert not Record.load(folder / "run").solved
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=False, env=dict(os.environ))
    assert again.returncode == 0, again.stderr
    models = [fp.Solution.load(folder / name / "solution.npz").w for name in ("straight", "run")]
    assert models[0].tobytes() == models[1].tobytes()


def test_a_recall_is_met_at_every_hospital(folder: Path) -> None:
    record = run_job(read_job(change(folder, "bound = 0.35", "min_recall = 0.9")))
    assert record.solved
    for told in record.measured:
        assert told.numbers["recall of relapse = yes"] >= 0.9
    before = [told.numbers["recall of relapse = yes without constraints"] for told in record.measured]
    assert min(before) < 0.8  # the constraint was needed


def test_what_cannot_be_met_is_not_called_solved(folder: Path) -> None:
    change(folder, 'features = ["age", "dose", "pressure", "smoker"]', 'features = ["age", "dose"]')
    change(folder, 'smoker = ["never", "former", "now"]', "")
    change(folder, "bound = 0.35", "bound = 1e-3\nintercept = false")
    found = CliRunner().invoke(run, [str(folder / "job.toml")])
    assert found.exit_code == 1, found.output
    assert Record.load(folder / "run").status in ("infeasible", "stalled", "max_rounds")
    assert "NO" in found.output


def test_group_fairness_with_a_table_at_the_server(folder: Path) -> None:
    text = (folder / "job.toml").read_text()
    text = text.replace('task = "neyman_pearson"', 'task = "group_fairness"').replace("bound = 0.35", "bound = 0.05")
    text = text.replace('["age", "dose", "pressure", "smoker"]', '["age", "dose", "pressure"]')
    text = text.replace('protected = "yes"', 'group = "smoker"\ngroups = ["never", "former", "now"]\nparity = "loss"')
    text = text.replace('smoker = ["never", "former", "now"]\n', "").replace('coast = "coast.csv"\n', "")
    (folder / "job.toml").write_text(text.replace("[solve]", '[server]\ndata = "coast.csv"\n\n[solve]'))
    record = run_job(read_job(folder / "job.toml"))
    assert record.solved, record.reason
    assert not record.convex
    assert [one.owner for one in record.bounded] == [name for name in ("server", "north", "south") for _ in range(3)]
    model = Model.load(folder / "run")
    for one in record.bounded:
        cells = read_cells(folder / f"{'coast' if one.owner == 'server' else one.owner}.csv")
        relapse = (np.array(cells.column("relapse").cells) == "yes").astype(int)
        losses = -np.log(model.probabilities(model.matrix(cells))[np.arange(len(relapse)), relapse])
        a, b = one.what.split("smoker = ")[1].split(" and ")
        smoker = np.array(cells.column("smoker").cells)
        gap = abs(losses[smoker == a].mean() - losses[smoker == b].mean())
        assert one.value == pytest.approx(gap, abs=1e-9)
        assert gap <= 0.05 + 1e-3


def test_parquet_tables_give_the_bits_of_csv_tables(folder: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    run_job(read_job(folder / "job.toml"))
    expected = fp.Solution.load(folder / "run" / "solution.npz").w
    for name in ("north", "south", "coast"):
        cells = read_cells(folder / f"{name}.csv")
        columns = {}
        for column in cells.names:
            text = np.array(cells.column(column).cells)
            numeric = column in ("age", "dose", "pressure")
            columns[column] = [(float(c) if c else None) if numeric else str(c) for c in text]
        parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet")
        change(folder, f"{name}.csv", f"{name}.parquet")
    run_job(read_job(folder / "job.toml"), force=True)
    assert fp.Solution.load(folder / "run" / "solution.npz").w.tobytes() == expected.tobytes()


CUSTOM = """
import fedpact as fp


def share(table, name, owners):
    assert table.group.max() == 2
    squared = fp.functions.Quadratic(table.X.T @ table.X / len(table.X), -table.X.T @ table.y / len(table.X))
    return fp.Share(squared / owners, fp.Constraint(fp.functions.Affine(-table.X[:1], [0.1]), fp.cones.Nonnegative(1)))
"""


def test_a_custom_task_is_a_python_file(folder: Path) -> None:
    (folder / "mine.py").write_text(CUSTOM)
    change(folder, "bound = 0.35", 'functions = "mine.py"')
    change(folder, 'protected = "yes"', 'group = "smoker"\ngroups = ["never", "former", "now"]')
    change(folder, ', "smoker"]', "]")
    change(folder, 'smoker = ["never", "former", "now"]\n', "")
    change(folder, 'task = "neyman_pearson"', 'task = "custom"')
    record = run_job(read_job(folder / "job.toml"))
    assert record.solved, record.reason
    assert all(one.value <= 1e-3 for one in record.bounded)
    (folder / "mine.py").write_text(CUSTOM.replace("0.1", "0.2"))
    with raises_code("FP-CHECKPOINT-308", str(folder / "run"), "functions"):
        run_job(read_job(folder / "job.toml"), resume=True)
    (folder / "mine.py").write_text("x = 1")
    with raises_code("FP-OPTION-061", "", "mine.py"):
        run_job(read_job(folder / "job.toml"), force=True)


def test_a_quadratic_program_from_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    A = [np.diag(rng.uniform(1, 2, 4)) for _ in range(2)]
    b, C, d = rng.normal(size=(2, 4)), rng.normal(size=(2, 1, 4)), rng.normal(size=(2, 1))
    for i, name in enumerate(("one", "two")):
        np.savez(tmp_path / f"{name}.npz", A=A[i], b=b[i], C=C[i], d=d[i])
    job = tmp_path / "job.toml"
    job.write_text('task = "linear_qp"\n[owners]\none = "one.npz"\ntwo = "two.npz"\n[solve]\ntol = 1e-8\n')
    record = run_job(read_job(job))
    assert record.solved
    kkt = np.block([[A[0] + A[1], C[0].T, C[1].T], [C[0], np.zeros((1, 2))], [C[1], np.zeros((1, 2))]])
    exact = np.linalg.solve(kkt, -np.concatenate([b.sum(axis=0), d.ravel()]))
    np.testing.assert_allclose(fp.Solution.load(tmp_path / "run" / "solution.npz").w, exact[:4], atol=1e-6)


def test_the_confidence_interval_is_the_exact_one() -> None:
    from scipy.stats import binomtest

    for hits, rows in ((0, 20), (7, 30), (29, 30), (30, 30)):
        exact = binomtest(hits, rows).proportion_ci(0.95, "exact")
        assert interval(hits, rows) == pytest.approx((exact.low, exact.high), abs=1e-12)


@pytest.mark.parametrize("name", ["[/x]", "[red]", ":smile:"])
def test_owners_may_be_called_what_markup_looks_like(name: str, folder: Path) -> None:
    path = change(folder, 'north = "north.csv"', f'"{name}" = "north.csv"')
    found = CliRunner().invoke(run, [str(path)])
    assert found.exit_code == 0, found.output
    assert sum(line.strip().startswith(f"{name} ") for line in found.output.splitlines()) == 2
