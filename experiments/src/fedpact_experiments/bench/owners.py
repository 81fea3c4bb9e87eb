"""`fedpact bench owners`: how a solve grows with the number of owners, in process: time, time per owner, and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

import fedpact as fp
from fedpact import data, tasks
from fedpact_experiments.bench.output import MARKDOWN
from fedpact_experiments.bench.people import peak
from fedpact_experiments.options import COUNT, TOLERANCE, among, several
from fedpact_experiments.tables import show_rows

METHODS = ("interior-point", "accelerated")
BOUND = 0.3
#: Solves are repeated for this many seconds, and the fastest counts.
LEAST = 3.0
#: A process that measures one cell and prints it.
CELL = "import sys; from fedpact_experiments.bench.owners import print_cell; print_cell(*sys.argv[1:])"


def print_cell(method: str, *numbers: str) -> None:
    """One cell: status, exchanges, seconds and CPU seconds of the fastest solve, bytes, MB after and before."""
    owners, rows, dim, max_rounds = map(int, numbers[:4])
    tol = float(numbers[4])
    before = peak()
    problem = tasks.neyman_pearson(data.neyman_pearson(owners, rows, dim), BOUND)
    clock = cpu = float("inf")
    began = time.perf_counter()
    while time.perf_counter() - began <= LEAST:
        at = time.perf_counter()
        spent = time.process_time()
        answer = fp.solve(problem, method, tol=tol, max_rounds=max_rounds)
        clock = min(clock, time.perf_counter() - at)
        cpu = min(cpu, time.process_time() - spent)
    print(json.dumps([answer.status, answer.rounds, clock, cpu, answer.communication.bytes, peak(), before]))


@dataclass(frozen=True)
class Grown:
    """One number of owners: what a solve with them took.

    each: CPU seconds per exchange and owner; first: the same of the smallest number, where there is one
    """

    method: str
    owners: int
    status: str
    exchanges: int
    clock: float
    cpu: float
    sent: int
    peak: float
    before: float
    first: float | None = None
    problem: str = "neyman-pearson"
    note: str = ""

    @property
    def each(self) -> float:
        return self.cpu / self.exchanges / self.owners

    @property
    def cells(self) -> dict[str, str]:
        """As a line of a table."""
        return {
            "method": self.method,
            "owners": f"{self.owners:,}",
            "status": self.status,
            "exchanges": str(self.exchanges),
            "s / exchange": f"{self.clock / self.exchanges:.2g}",
            "ms / exchange and owner": f"{1e3 * self.each:.3g}",
            "growth": f"{self.each / (self.first or self.each):.2f}",
            "MB / exchange": f"{self.sent / self.exchanges / 1e6:.3g}",
            "peak MB": f"{self.peak:.0f}",
            "without owners": f"{self.before:.0f}",
        }


def measure_apart(method: str, owners: int, *numbers: float) -> Grown:
    """A cell, in a process of its own. numbers: rows, dim, exchanges at most, tolerance"""
    # One thread: before the child imports numpy.
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | os.environ
    command = [sys.executable, "-c", CELL, method, str(owners), *map(str, numbers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return Grown(method, owners, *json.loads(done.stdout))


@click.command()
@among("--methods", METHODS)
@several("--owners", COUNT, [10, 100, 1000], "Numbers of owners.")
@click.option("--rows", type=COUNT, default=100, show_default=True, help="Of every owner.")
@click.option("--dim", type=click.IntRange(2), default=11, show_default=True, help="Length of w.")
@click.option("--max-rounds", type=COUNT, default=40, show_default=True, help="Exchanges after which a solve ends.")
@click.option("--tol", type=TOLERANCE, default=1e-3, show_default=True, help="Tolerance of the certificate.")
@MARKDOWN
def owners(
    methods: Sequence[str],
    owners: Sequence[int],
    rows: int,
    dim: int,
    max_rounds: int,
    tol: float,
    markdown: bool,
) -> None:
    """How a solve grows with the number of owners, in process: time per exchange, time per owner, and memory.

    Neyman-Pearson problems in which every owner has the same number of rows, so the work of an exchange is proportional
    to the number of owners, and `ms / exchange and owner` stays what it is unless something grows faster. `growth` is
    that column divided by its first value. It is CPU time, which other programs on the machine disturb less;
    `s / exchange` is what the clock says. Each cell is a process of its own, so that its peak memory is its own;
    `without owners` is the peak of a process that has only imported everything.

    \b
    fedpact bench owners                                     10, 100 and 1,000 owners: about five minutes
    fedpact bench owners --owners 1000,5000 --methods interior-point
    """

    table = []
    for method in methods:
        first = None
        for n in owners:
            found = measure_apart(method, n, rows, dim, max_rounds, tol)
            first = first or found.each
            table.append(replace(found, first=first).cells)
            click.echo(f"measured: {table[-1]}", err=True)
    show_rows(table, markdown, text=("status",))
    click.echo(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {rows} rows an owner, d = {dim}")
