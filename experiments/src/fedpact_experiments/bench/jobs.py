"""`fedpact bench jobs`: CPU seconds and memory of whole jobs on large files, by the kind of file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import click
import numpy as np

from fedpact.data.cells import read_cells
from fedpact.jobs import read_job, run_job
from fedpact.tasks import tables
from fedpact_experiments.bench.output import PAGE, SEED, Output, Table, cell, printing
from fedpact_experiments.bench.people import peak
from fedpact_experiments.options import COUNT, among

CAPTION = """\
`fedpact run` of a Neyman-Pearson job: recall bounded at every owner, standardized, tolerance 1e-3, checkpoints on disk.
Every row is a process of its own. reads: how often a table was read, per owner. peak MB: largest memory of the process;
times the numbers: what it holds beyond its imports, over the size of all numbers in float64. csv without Arrow: the
same read by Python alone.
"""
KINDS = ("csv", "csv.gz", "parquet", "csv without Arrow")
JOB = """\
task = "neyman_pearson"
label = "y"
bound = 0.6
features = [{features}]
[owners]
{owners}
"""
#: A process that runs one job and prints what it took.
CELL = "import sys; from fedpact_experiments.bench.jobs import print_job; print_job(*sys.argv[1:])"


@dataclass(frozen=True)
class Ran:
    """One job from files to report.

    reads: of a table, per owner
    cpu:   seconds of the processor, by the process and what it started
    """

    kind: str
    owners: int
    rows: int
    columns: int
    status: str
    reads: float
    seconds: float
    cpu: float
    megabytes: float
    before: float
    note: str = ""


COLUMNS = {
    "file": cell("kind"),
    "owners": cell("owners"),
    "rows": cell("rows", "{:,}".format),
    "columns": cell("columns"),
    "status": cell("status"),
    "reads": cell("reads", "{:g}".format),
    "s": cell("seconds", "{:.1f}".format),
    "CPU s": cell("cpu", "{:.1f}".format),
    "peak MB": cell("megabytes", "{:.0f}".format),
    "times the numbers": lambda row: f"{1e6 * (row.megabytes - row.before) / (8 * row.rows * row.columns):.1f}",
}


def write_tables(folder: Path, kind: str, owners: int, rows: int, columns: int, seed: int) -> Path:
    """A file an owner, all of made-up numbers of six digits, and a job about them."""
    rng = np.random.default_rng(seed)
    names = [f"x{j}" for j in range(columns - 1)]
    slope = rng.normal(size=columns - 1) / np.sqrt(columns)
    suffix = kind.partition(" ")[0]
    files = {}
    for i in range(owners):
        X = rng.normal(size=(rows // owners, columns - 1)).round(5)
        y = X @ slope + rng.normal(size=len(X)) > 0
        path = folder / f"owner{i}.{suffix}"
        write_table(path, names, np.column_stack([X, y]))
        files[f"owner{i}"] = path.name
    job = folder / "job.toml"
    features = ", ".join(f'"{name}"' for name in names)
    job.write_text(JOB.format(features=features, owners="\n".join(f'{k} = "{v}"' for k, v in files.items())))
    return job


def write_table(path: Path, names: Sequence[str], numbers: np.ndarray) -> None:
    """All columns are numbers; the last one is y, of 0 and 1."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    columns = [*numbers[:, :-1].T, numbers[:, -1].astype(np.int64)]
    table = pa.table([np.ascontiguousarray(column) for column in columns], names=[*names, "y"])
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with pa.output_stream(path, compression="gzip" if path.suffix == ".gz" else None) as file:
            csv.write_csv(table, file)


def print_job(kind: str, job: str) -> None:
    """One cell: status, reads of all tables, seconds, CPU seconds, MB at the peak and before."""
    if kind.endswith("without Arrow"):
        sys.modules["pyarrow"] = None  # type: ignore[assignment]  # an import of it fails then
    else:
        import pyarrow.csv
        import pyarrow.parquet  # noqa: F401  # imports are not what a table takes
    before = peak()
    began = time.perf_counter()
    spent = sum(os.times()[:4])
    with mock.patch.object(tables, "read_cells", wraps=read_cells) as reader:
        record = run_job(read_job(Path(job)))
    cpu = sum(os.times()[:4]) - spent
    print(json.dumps([record.status, reader.call_count, time.perf_counter() - began, cpu, peak(), before]))


def measure_job(kind: str, owners: int, rows: int, columns: int, seed: int) -> Ran:
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | os.environ
    with tempfile.TemporaryDirectory(prefix="fedpact-jobs-") as made:
        job = write_tables(Path(made), kind, owners, rows, columns, seed)
        command = [sys.executable, "-c", CELL, kind, str(job)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    status, reads, seconds, cpu, after, before = json.loads(done.stdout.splitlines()[-1])
    click.echo(f"{kind}: {cpu:.1f} CPU seconds, {after:.0f} MB", err=True)
    return Ran(kind, owners, rows, columns, status, reads / owners, seconds, cpu, after, before)


@click.command()
@among("--kinds", KINDS, KINDS[:3])
@click.option("--rows", type=COUNT, default=200_000, show_default=True, help="Of all owners together.")
@click.option("--columns", type=COUNT, default=60, show_default=True, help="Of every file, the label among them.")
@click.option("--owners", type=COUNT, default=4, show_default=True, help="How many there are.")
@printing(Ran, SEED, PAGE)
def jobs(kinds: Sequence[str], rows: int, columns: int, owners: int, output: Output) -> None:
    """What a job on large files costs: CPU seconds, memory, and how often each table is read.

    \b
    fedpact bench jobs
    fedpact bench jobs --kinds "csv,csv.gz" --rows 1000000 --owners 10
    """

    def measured() -> Iterator[Ran]:
        for kind in kinds:
            yield measure_job(kind, owners, rows, columns, output.seed)

    output.report(
        Table(
            measured(),
            COLUMNS,
            CAPTION,
            text=("file", "status"),
            section=lambda row: row.owners,
            title="Time and memory",
        ),
        title="Jobs on large files",
        introduction="What a whole job costs where the tables are large: reading, training, certificate and report.",
    )
