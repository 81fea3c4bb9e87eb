"""`fedpact bench people`: how a vertical solve grows with the people, in process and on Ray: time and memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

import fedpact as fp
from fedpact_experiments.bench.output import PAGE, Output, Table, cell, printing
from fedpact_experiments.options import COUNT, among, several

EPS = 0.01
#: Exchanges after which a solve ends.
LIMIT = 400
METHODS = ("vertical-exact", "vertical-al")
#: A process that measures one number of people and prints it.
CELL = "import sys; from fedpact_experiments.bench.people import print_people; print_people(*sys.argv[1:])"


@dataclass(frozen=True)
class People:
    """One solve of many people: exchanges, seconds, and CPU and largest memory of the coordinator's process.

    system: CPU seconds of the kernel, which maps pages for large arrays
    """

    problem: str
    owners: int
    method: str
    people: int
    engine: str
    status: str
    exchanges: int
    seconds: float
    cpu: float
    system: float
    megabytes: float
    before: float
    note: str = ""


PEOPLE_COLUMNS = {
    "method": cell("method"),
    "engine": cell("engine"),
    "people": cell("people", "{:,}".format),
    "status": cell("status"),
    "exchanges": cell("exchanges"),
    "s": cell("seconds", "{:.3g}".format),
    "CPU s": cell("cpu", "{:.3g}".format),
    "CPU ms / 1,000 people": lambda row: f"{1e6 * row.cpu / row.people:.0f}",
    "of the program": lambda row: f"{1e6 * (row.cpu - row.system) / row.people:.0f}",
    "of the kernel": lambda row: f"{1e6 * row.system / row.people:.0f}",
    "peak MB": cell("megabytes", "{:.0f}".format),
    "MB / 1,000 people": lambda row: f"{1e3 * (row.megabytes - row.before) / row.people:.1f}",
}
PEOPLE_CAPTION = """\
Six parties with ten columns each, two groups, gap of mean loss at most 0.01, secure sums with key agreement, tolerance
1e-6 for vertical-exact and 1e-3 for vertical-al. Every cell is a process of its own; CPU and peak memory are its own:
on Ray the coordinator's, without the actors of the parties. CPU time is disturbed less by other programs; the kernel's
part of it is for the pages of large arrays. MB / 1,000 people: beyond what a process needs that has only imported
everything.
"""


def crowd(people: int) -> fp.VerticalProblem:
    """Six parties with ten columns each; the groups have different rates of the second class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(people, 60))
    group = rng.integers(0, 2, people)
    y = (X @ rng.normal(size=60) / 4 + 0.7 * group + rng.normal(size=people) > 0.3).astype(int)
    return fp.VerticalProblem({f"party {k}": X[:, 10 * k : 10 * k + 10] for k in range(6)}, y, group, EPS)


def peak() -> float:
    """Largest resident memory of this process so far, in MB: of its own, not of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def print_people(method: str, engine: str, people: str) -> None:
    """One cell: status, exchanges, seconds, CPU seconds and the kernel's, MB at the peak and at the start."""
    before = peak()
    problem = crowd(int(people))
    tol = 1e-6 if method == "vertical-exact" else 1e-3
    began = time.perf_counter()
    spent = os.times()
    answer = fp.solve(problem, method, tol=tol, engine=engine, max_rounds=LIMIT)
    seconds = time.perf_counter() - began
    now = os.times()
    system = now.system - spent.system
    cpu = now.user - spent.user + system
    print(json.dumps([answer.status, answer.rounds, seconds, cpu, system, peak(), before]))


def measure_people(method: str, engine: str, people: int) -> People:
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | os.environ
    command = [sys.executable, "-c", CELL, method, engine, str(people)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    status, exchanges, seconds, cpu, system, after, before = json.loads(done.stdout.splitlines()[-1])
    click.echo(f"{people} people, {method}, {engine}: {seconds:.1f} s, {after:.0f} MB", err=True)
    return People("people", 6, method, people, engine, status, exchanges, seconds, cpu, system, after, before)


@click.command()
@several("--people", COUNT, [10_000, 30_000, 100_000], "Numbers of people in process.")
@several("--on-ray", COUNT, [10_000], "Numbers of people over Ray.")
@among("--methods", METHODS)
@printing(People, PAGE)
def people(people: Sequence[int], on_ray: Sequence[int], methods: Sequence[str], output: Output) -> None:
    """How a vertical solve grows with the people, in process and on Ray: time and memory.

    \b
    fedpact bench people
    fedpact bench people --people 1000,10000 --on-ray 1000 --methods vertical-exact
    """

    def rows() -> Iterator[People]:
        for method in methods:
            for number in people:
                yield measure_people(method, "in-process", number)
            for number in on_ray:
                yield measure_people(method, "ray", number)

    output.report(
        Table(
            rows(),
            PEOPLE_COLUMNS,
            PEOPLE_CAPTION,
            text=("engine", "status"),
            section=lambda row: row.method,
            title="Time and memory",
        ),
        title="Vertical methods with many people",
        introduction="What a fair model over columns that six parties hold costs with more and more people.",
    )
