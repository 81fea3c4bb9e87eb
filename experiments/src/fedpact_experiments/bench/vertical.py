"""`fedpact bench vertical`: exchanges, bytes, time and what is revealed, for all vertical methods."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

import fedpact as fp
from fedpact_experiments import datasets
from fedpact_experiments.bench.output import PAGE, Output, Table, cell, printing
from fedpact_experiments.bench.vertical_attack import Watched, attack
from fedpact_experiments.options import COUNT, DATA, among

LOADERS = {
    "ADULT": datasets.vertical_adult,
    "COMPAS": datasets.vertical_compas,
    "C&C": datasets.vertical_communities,
}
EPS = 0.01
#: Exchanges of the methods that do not get there.
LIMIT = 400
PAPER = {"eta": 100.0, "dual_step": 0.1, "dual_regularization": 1e-3}


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
    """Of all seeds the worst: exchanges, MB of all parties in both directions, CPU seconds, certificate, and the error
    of the inner products between people that the coordinator can compute (of single parties' where it sees those)."""

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
    "CPU s": cell("seconds", "{:.3g}".format),
    "certificate": cell("certificate", "{:.0e}".format),
    "error of X X'": cell("gram", "{:.0e}".format),
    "of": cell("seen"),
}
CAPTION = """\
Six parties, the paper's training rows, gap of mean loss at most 0.01. Secure sums wherever the method has them, key
agreement included. Of several seeds the worst of every column. exchanges: one message down and one up, with every
party. MB: all parties, both directions. CPU s: of coordinator and parties, all in one process. certificate: worst of
stationarity and feasibility at the end, asked for 1e-9 from vertical-exact and 1e-6 from the others, which end after as
many exchanges as `--limit` says. error of X X': of the inner products between all people's rows as the coordinator can
compute them from what it received (bench/vertical_attack.py), over all parties' columns together or, where parties
answer one by one, over those of a single party, the worst known one. Empty: this attack needs the parties' step sizes,
which the sum hides.
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
            began = time.process_time()
            limit = 100 if label == "vertical-exact" else most
            answer = fp.solve(problem, way.method, tol=way.tol, session=session, max_rounds=limit, **way.options)
            seconds = time.process_time() - began
            gram = None
            if label != "fair-vfl":
                gram = attack(way.method, problem, session.seen)
        found.append((answer, seconds, gram))
        click.echo(f"{name}, {label}, seed {seed}: {answer.rounds} exchanges, {seconds:.1f} CPU s", err=True)
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


@click.command()
@among("--problems", list(LOADERS))
@among("--methods", list(WAYS))
@click.option("--seeds", type=COUNT, default=5, show_default=True, help="Of the split; for vertical-exact.")
@click.option("--other-seeds", type=COUNT, default=1, show_default=True, help="The same for the other methods.")
@click.option("--limit", type=click.IntRange(20), default=LIMIT, show_default=True, help="Exchanges of the others.")
@DATA
@printing(Measured, PAGE)
def vertical(
    problems: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    other_seeds: int,
    limit: int,
    output: Output,
) -> None:
    """All vertical methods: exchanges, bytes, time and what the coordinator learns.

    \b
    fedpact bench vertical --data DIR
    fedpact bench vertical --problems COMPAS --methods vertical-exact,vertical-al --seeds 1
    """

    def rows() -> Iterator[Measured]:
        for name in problems:
            for label in methods:
                number = seeds if label == "vertical-exact" else other_seeds
                yield measure(name, label, number, output.folder, limit)

    output.report(
        Table(
            rows(), COLUMNS, CAPTION, text=("method", "status", "of"), section=lambda row: row.problem, title="Methods"
        ),
        title="Vertical methods",
        introduction=(
            "What it takes to train a fair model over columns that six parties hold, method by method, and what the "
            "coordinator can compute about people from what it receives."
        ),
    )
