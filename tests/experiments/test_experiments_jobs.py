"""Benchmarks of whole jobs on files and of messages, on their smallest settings."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedpact_experiments.bench.command import bench
from fedpact_experiments.bench.wire import compare


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_job_reads_every_table_once_whatever_its_kind(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    kinds = ["csv", "csv.gz", "parquet", "csv without Arrow"]
    small = ["--rows", "400", "--columns", "4", "--owners", "2", "--kinds", ",".join(kinds)]
    done = CliRunner().invoke(bench, ["jobs", *small, "--csv", str(tmp_path / "rows.csv")])
    assert done.exit_code == 0, done.output
    rows = rows_of(tmp_path / "rows.csv")
    assert [row["kind"] for row in rows] == kinds
    assert {row["status"] for row in rows} == {"solved"}
    assert {float(row["reads"]) for row in rows} == {1.0}
    assert all(float(row["megabytes"]) > float(row["before"]) > 0 for row in rows)


def test_fitted_sums_cost_no_exchange_and_fewer_bytes() -> None:
    pytest.importorskip("cryptography")
    row = compare("synthetic", 3, None, 0, 1e-6)
    assert row.status == "solved"
    assert row.exchanges[1] <= row.exchanges[0]
    assert row.plain < row.bytes[1] < 0.6 * row.bytes[0]
