"""`fedpact bench vertical`: exchanges, bytes, time and what is revealed, for all vertical methods; and more people."""

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
from typing import Any

import click
import numpy as np

import fedpact as fp
from fedpact_experiments import datasets
from fedpact_experiments.bench.output import PAGE, Output, Table, cell, printing
from fedpact_experiments.bench.vertical_attack import Watched, attack
from fedpact_experiments.options import COUNT, DATA, among, several

LOADERS = {
    "ADULT": datasets.vertical_adult,
    "COMPAS": datasets.vertical_compas,
    "C&C": datasets.vertical_communities,
}
EPS = 0.01
#: Exchanges of the methods that do not get there.
LIMIT = 400
PAPER = {"eta": 100.0, "dual_step": 0.1, "dual_regularization": 1e-3}
#: A process that measures one number of people and prints it.
CELL = "import sys; from fedpact_experiments.bench.vertical import print_people; print_people(*sys.argv[1:])"


@dataclass(frozen=True)
class Way:
    """A method with its options, the tolerance it is asked for, and what a coordinator learns from its messages."""

    method: str
    options: dict[str, Any]
    tol: float
    secure: bool = True
    constrained: bool = True


WAYS = {
    "vertical-exact": Way("vertical-exact", {}, 1e-9),
    "vertical-al": Way("vertical-al", {}, 1e-6),
    "fair-vfl": Way("fair-vfl", {}, 1e-6),
    "fair-vfl (paper)": Way("fair-vfl", PAPER, 1e-6),
    "fair-vfl (any party)": Way("fair-vfl", {**PAPER, "asynchronous": True}, 1e-6, secure=False),
    "fedbcd (paper)": Way("fedbcd", {"eta": 100.0}, 1e-6, constrained=False),
}


@dataclass(frozen=True)
class Measured:
    """Of all seeds the worst: exchanges, MB of all parties in both directions, seconds, certificate, and the error of
    the inner products between people that the coordinator can compute (of single parties' where it sees those)."""

    problem: str
    owners: int
    method: str
    seeds: int
    status: str
    exchanges: int
    megabytes: float
    seconds: float
    certificate: float
    gram: float | None
    seen: str
    note: str = ""


COLUMNS = {
    "data": cell("problem"),
    "method": cell("method"),
    "seeds": cell("seeds"),
    "status": cell("status"),
    "exchanges": cell("exchanges"),
    "MB": cell("megabytes", "{:.3g}".format),
    "s": cell("seconds", "{:.3g}".format),
    "certificate": cell("certificate", "{:.0e}".format),
    "error of X X'": cell("gram", "{:.0e}".format),
    "of": cell("seen"),
}
CAPTION = """\
Six parties, the paper's training rows, gap of mean loss at most 0.01. Secure sums wherever the method has them, key
agreement included. Of several seeds the worst of every column. exchanges: one message down and one up, with every
party. MB: all parties, both directions. certificate: worst of stationarity and feasibility at the end, asked for 1e-9
from vertical-exact and 1e-6 from the others, which end after as many exchanges as `--limit` says. error of X X': of the
inner products between all people's rows as the coordinator can compute them from what it received
(bench/vertical_attack.py), over all parties' columns together or, where parties answer one by one, over those of a
single party, the worst known one. Empty: this attack needs the parties' step sizes, which the sum hides.
"""


def problem_of(name: str, seed: int, folder: str | None, constrained: bool) -> fp.VerticalProblem:
    """The paper's training rows among six parties."""
    train = datasets.split(LOADERS[name](folder), seed).train
    parties = {party: block.X for party, block in datasets.split_columns(train).items()}
    if not constrained:
        return fp.VerticalProblem(parties, train.y)
    return fp.VerticalProblem(parties, train.y, train.group, EPS)


def measure(name: str, label: str, seeds: int, folder: str | None, most: int = LIMIT) -> Measured:
    """A row of the table: the worst over the seeds."""
    way = WAYS[label]
    found = []
    for seed in range(seeds):
        problem = problem_of(name, seed, folder, way.constrained)
        with Watched(secure_sum=way.secure) as session:
            began = time.perf_counter()
            limit = 100 if label == "vertical-exact" else most
            answer = fp.solve(problem, way.method, tol=way.tol, session=session, max_rounds=limit, **way.options)
            seconds = time.perf_counter() - began
            gram = None
            if label != "fair-vfl":
                gram = attack(way.method, problem, session.seen)
        found.append((answer, seconds, gram))
        click.echo(f"{name}, {label}, seed {seed}: {answer.rounds} exchanges, {seconds:.1f} s", err=True)
    answers = [answer for answer, _, _ in found]
    errors = [gram for _, _, gram in found if gram is not None]
    return Measured(
        name,
        6,
        label,
        seeds,
        ", ".join(dict.fromkeys(answer.status for answer in answers)),
        max(answer.rounds for answer in answers),
        max(answer.communication.bytes for answer in answers) / 1e6,
        max(seconds for _, seconds, _ in found),
        max(answer.certificate.worst for answer in answers),
        max(errors) if errors else None,
        "all parties" if way.secure else "one party",
    )


# ---------------------------------------------------------------------------------------------------------- more people


@dataclass(frozen=True)
class People:
    """One solve of many people: exchanges, seconds, and CPU and largest memory of the coordinator's process."""

    problem: str
    owners: int
    method: str
    people: int
    engine: str
    status: str
    exchanges: int
    seconds: float
    cpu: float
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
    "peak MB": cell("megabytes", "{:.0f}".format),
    "MB / 1,000 people": lambda row: f"{1e3 * (row.megabytes - row.before) / row.people:.1f}",
}
PEOPLE_CAPTION = """\
Six parties with ten columns each, two groups, gap of mean loss at most 0.01, secure sums with key agreement, tolerance
1e-6 for vertical-exact and 1e-3 for vertical-al. Every cell is a process of its own; CPU and peak memory are its own:
on Ray the coordinator's, without the actors of the parties. CPU time is disturbed less by other programs. MB / 1,000
people: beyond what a process needs that has only imported everything.
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
    """One cell: status, exchanges, seconds, CPU seconds, MB at the peak and before there were any people."""
    before = peak()
    problem = crowd(int(people))
    tol = 1e-6 if method == "vertical-exact" else 1e-3
    began = time.perf_counter()
    spent = time.process_time()
    answer = fp.solve(problem, method, tol=tol, engine=engine, max_rounds=LIMIT)
    seconds = time.perf_counter() - began
    print(json.dumps([answer.status, answer.rounds, seconds, time.process_time() - spent, peak(), before]))


def measure_people(method: str, engine: str, people: int) -> People:
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | os.environ
    command = [sys.executable, "-c", CELL, method, engine, str(people)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    status, exchanges, seconds, cpu, after, before = json.loads(done.stdout.splitlines()[-1])
    click.echo(f"{people} people, {method}, {engine}: {seconds:.1f} s, {after:.0f} MB", err=True)
    return People("people", 6, method, people, engine, status, exchanges, seconds, cpu, after, before)


@click.command()
@among("--problems", list(LOADERS))
@among("--methods", list(WAYS))
@click.option("--seeds", type=COUNT, default=5, show_default=True, help="Of the split; for vertical-exact.")
@click.option("--other-seeds", type=COUNT, default=1, show_default=True, help="The same for the other methods.")
@click.option("--limit", type=click.IntRange(20), default=LIMIT, show_default=True, help="Exchanges of the others.")
@several("--people", COUNT, [10_000, 30_000, 100_000], "Numbers of people in process.")
@several("--on-ray", COUNT, [10_000], "Numbers of people over Ray.")
@DATA
@printing(Measured, PAGE)
def vertical(
    problems: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    other_seeds: int,
    limit: int,
    people: Sequence[int],
    on_ray: Sequence[int],
    output: Output,
) -> None:
    """All vertical methods: exchanges, bytes, time and what the coordinator learns; then more people.

    \b
    fedpact bench vertical --data DIR
    fedpact bench vertical --problems COMPAS --methods vertical-exact,vertical-al --seeds 1 --people 1000 --on-ray 1000
    """

    def rows() -> Iterator[Measured]:
        for name in problems:
            for label in methods:
                number = seeds if label == "vertical-exact" else other_seeds
                yield measure(name, label, number, output.folder, limit)

    def crowds() -> Iterator[People]:
        for method in ("vertical-exact", "vertical-al"):
            for number in people:
                yield measure_people(method, "in-process", number)
            for number in on_ray:
                yield measure_people(method, "ray", number)

    output.report(
        Table(
            rows(), COLUMNS, CAPTION, text=("method", "status", "of"), section=lambda row: row.problem, title="Methods"
        ),
        Table(
            crowds(),
            PEOPLE_COLUMNS,
            PEOPLE_CAPTION,
            text=("engine", "status"),
            section=lambda row: row.method,
            title="More people",
        ),
        title="Vertical methods",
        introduction=(
            "What it takes to train a fair model over columns that six parties hold, method by method, and what the "
            "coordinator can compute about people from what it receives."
        ),
    )
