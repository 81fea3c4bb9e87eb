"""`fedpact bench`: the methods side by side. Every number that is printed was measured in that run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

import click

from fedpact.cli.bench_local import local
from fedpact.cli.bench_measure import (
    CONIC,
    LABELS,
    PAPER,
    Measured,
    compared,
    mark,
    measure,
    measure_conic,
    measure_scipy,
    placed,
    reference,
)
from fedpact.cli.bench_output import COLUMNS, COUNT, DATA, IN_GROWTH, IN_TIME, TOLERANCE, Output, common, several
from fedpact.cli.bench_problems import (
    NEYMAN_PEARSON,
    PAPER_FAIRNESS,
    PAPER_LCQP,
    PAPER_NEYMAN_PEARSON,
    PROBLEMS,
    Instance,
    synthetic,
)
from fedpact.errors import FedpactError
from fedpact.report import figures
from fedpact.solvers import Solution


@click.group()
def bench() -> None:
    """Measure the methods side by side; every number printed comes from that run.

    \b
    fedpact bench rounds --problems synthetic --owners 5     exchanges with the owners, against the paper's algorithm
    fedpact bench time                                       seconds, against centralized solvers on pooled data
    fedpact bench growth                                     exchanges, bytes and seconds for more owners and columns
    fedpact bench local                                      what the owners compute, tuned and untuned

    Tables go to standard output, progress to standard error. Ctrl-C prints what was measured so far. Set
    OMP_NUM_THREADS=1 for times that can be compared.
    """


bench.add_command(local)


def _say(instance: Instance, method: str, tol: float | None = None) -> None:
    click.echo(f"{instance}: {method}{f', tol {tol:g}' if tol else ''}", err=True)


# -------------------------------------------------------------------------------------------------------------- rounds

ROUNDS_CAPTION = f"""\
exchanges: one message down and one up, with every owner. gradients, Hessians: evaluations per owner, mean over the
owners; objective and constraint count each, a product with a Hessian counts as one, a value without gradient as none.
MB: all owners, both directions. distance: |objective - reference| / |reference|. certificate: the larger of
stationarity and feasibility. ratio: exchanges of {PAPER} over those of this row, where it solved; with > the paper's
run had not met the tolerance when it ended, so the ratio is a lower bound. {CONIC}: pooled data, no exchanges,
Clarabel's own tolerances (1e-8); seconds hold compilation and solution.
"""


def _given(options: dict[str, float]) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in options.items())


ROUNDS_NOTES = {
    "neyman-pearson": f"Neyman-Pearson: {PAPER} has {_given(PAPER_NEYMAN_PEARSON)}",
    "adult-b": f"adult-b: {PAPER} has {_given(PAPER_FAIRNESS)}, the authors' script; the paper's text has 10, 1e8 and "
    "0.001, and with a consensus penalty of 1e8 the model hardly moves in a round. Not convex: methods may end in "
    "different local optima",
    "lcqp": f"lcqp: {PAPER} has {_given(PAPER_LCQP)}; one equality a holder, d = max(100, 2 (n + 1))",
}


def _figure_path(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    """Checked before anything is measured: the figure comes last."""
    if value is None:
        return None
    path = Path(value)
    if path.suffix.lower() not in figures.SUFFIXES or not path.parent.is_dir():
        raise click.BadParameter(
            f"{value!r}: give a file in an existing folder, ending in {', '.join(figures.SUFFIXES)}"
        )
    try:
        figures.figure_class()
    except FedpactError as error:
        raise click.BadParameter(str(error)) from error
    return path


@bench.command()
@several("--problems", click.Choice(list(PROBLEMS)), list(PROBLEMS), f"Among {', '.join(PROBLEMS)}.")
@several("--owners", COUNT, [5, 10, 20, 100], "Numbers of owners.")
@several("--methods", click.Choice(LABELS), LABELS, f"Among {', '.join(LABELS)}.")
@several("--tol", TOLERANCE, [1e-3], "Tolerances of the certificate.")
@click.option("--plot", callback=_figure_path, metavar="FILE", help="Draw the certificate against exchanges and bytes.")
@DATA
@common
def rounds(
    problems: Sequence[str],
    owners: Sequence[int],
    methods: Sequence[str],
    tol: Sequence[float],
    plot: Path | None,
    folder: str | None,
    budget: float,
    seed: int,
    markdown: bool,
    csv: IO[str] | None,
) -> None:
    """Exchanges with the owners, and the ratio to the paper's algorithm.

    Every problem, number of owners and method is one row. The paper is that of He, Peng and Sun, cited in the README:
    proximal-al-paper is its Algorithm 1 with its settings, proximal-al the same with ours, centralized-proximal-al
    its Algorithm 3.

    \b
    fedpact bench rounds --problems synthetic,lcqp --owners 5,10 --budget 20
    fedpact bench rounds --methods proximal-al-paper,interior-point --tol 1e-3 --tol 1e-6
    fedpact bench rounds --problems adult --owners 5 --data DIR --plot adult.svg --csv adult.csv
    fedpact bench rounds --markdown > rounds.md

    Data sets that are not there are skipped, and a line says where to get them.
    """
    output = Output(markdown, csv)
    families = {"neyman-pearson" if name in NEYMAN_PEARSON else name for name in problems}
    if PAPER in methods:
        output.notes += [note for family, note in ROUNDS_NOTES.items() if family in families]
    solutions: dict[str, dict[str, Solution]] = {}

    def cells() -> Iterator[Measured]:
        for name in problems:
            for n in owners:
                instance = output.made(partial(PROBLEMS[name], n, folder, seed), f"{name}, n = {n}")
                if instance is not None:
                    yield from rows_of(instance)

    def rows_of(instance: Instance) -> Iterator[Measured]:
        _say(instance, "reference")
        against = reference(instance, budget)
        if against is not None:
            output.notes.append(f"reference of {instance}: {against.objective:.8f} ({against.source})")
        for asked in tol:
            paper = None
            for method in (label for label in LABELS if label in methods and label != CONIC):
                _say(instance, method, asked)
                row, answer = measure(instance, method, asked, budget, seed)
                paper = row if method == PAPER else paper
                if answer is not None:
                    title = str(instance) + (f", tol = {asked:g}" if len(tol) > 1 else "")
                    solutions.setdefault(title, {})[method] = answer
                yield compared(placed(row, against), paper)
        if CONIC in methods:
            _say(instance, CONIC)
            yield placed(measure_conic(instance, budget), against)

    try:
        output.report(cells(), list(COLUMNS), ROUNDS_CAPTION)
    finally:
        if plot is not None and solutions:
            click.echo(f"wrote {figures.save(figures.convergence(solutions), plot)}", err=True)


# ---------------------------------------------------------------------------------------------------------------- time

TIME_CAPTION = f"""\
Seconds in this process, best of the runs, which take turns. interior-point: the owners of the instance, in process;
interior-point pooled: the same method on one owner who holds all rows and all constraints. scipy trust-constr:
pooled, exact gradients and Hessians, ended when the certificate meets the tolerance. scipy SLSQP: pooled, exact
gradients. {CONIC}: pooled, Clarabel's own tolerances (1e-8), seconds hold compilation and solution. distance:
|objective - reference| / |reference|. certificate: the larger of stationarity and feasibility, judged by the same
code for all, with multipliers of the others smaller than the slack of their constraint taken as zero. ratio: seconds
of this row over those of interior-point; with > this row ended at its budget, so the ratio is a lower bound.
"""
TIME_OWNERS = {"synthetic": 20}  # and 5 for the others


@bench.command("time")
@several(
    "--problems", click.Choice(list(NEYMAN_PEARSON)), ["synthetic", "adult"], f"Among {', '.join(NEYMAN_PEARSON)}."
)
@several("--owners", COUNT, [], "Numbers of owners. [default: 20 for synthetic, 5 for the others]")
@click.option("--tol", type=TOLERANCE, default=1e-6, show_default=True, help="Tolerance of the certificate.")
@click.option("--repeat", type=COUNT, default=3, show_default=True, help="Runs of which the fastest counts.")
@DATA
@common
def time_(
    problems: Sequence[str],
    owners: Sequence[int],
    tol: float,
    repeat: int,
    folder: str | None,
    budget: float,
    seed: int,
    markdown: bool,
    csv: IO[str] | None,
) -> None:
    """Seconds of interior-point against centralized solvers on pooled data, at equal accuracy.

    \b
    fedpact bench time --data DIR
    fedpact bench time --problems synthetic --owners 5,20 --repeat 1
    """
    output = Output(markdown, csv)

    def best(instance: Instance) -> Iterator[Measured]:
        assert instance.pooled is not None
        pooled = instance.pooled()
        ours, alone = "interior-point", "interior-point pooled"
        runs: dict[str, Callable[[], Measured]] = {
            ours: lambda: measure(instance, ours, tol, budget, seed)[0],
            alone: lambda: replace(measure(instance, ours, tol, budget, seed, pooled)[0], method=alone),
            CONIC: lambda: measure_conic(instance, budget),
            "trust-constr": lambda: measure_scipy(instance, "trust-constr", tol, budget),
            "SLSQP": lambda: measure_scipy(instance, "SLSQP", tol, budget),
        }
        _say(instance, "reference")
        against = reference(instance, budget)
        if against is not None:
            output.notes.append(f"reference of {instance}: {against.objective:.10f} ({against.source})")
        found: dict[str, Measured] = {}
        stopped: KeyboardInterrupt | None = None
        try:
            for turn in range(repeat):
                for label, run in runs.items():
                    if turn and found[label].status == mark(budget):
                        continue
                    _say(instance, f"{label}, run {turn + 1}")
                    row = run()
                    if label not in found or (row.seconds or 0) < (found[label].seconds or 0):
                        found[label] = row
        except KeyboardInterrupt as stop:
            stopped = stop
        first = found.get(ours)
        for row in found.values():
            quotient = None
            if first and first.status == "solved" and first.seconds and row.seconds and row.status != "failed":
                quotient = row.seconds / first.seconds
            yield replace(placed(row, against), ratio=quotient, ratio_is_lower_bound=row.status == mark(budget))
        if stopped is not None:
            raise stopped

    def cells() -> Iterator[Measured]:
        for name in problems:
            for n in owners or [TIME_OWNERS.get(name, 5)]:
                instance = output.made(partial(NEYMAN_PEARSON[name], n, folder, seed), f"{name}, n = {n}")
                if instance is not None:
                    yield from best(instance)

    output.report(cells(), IN_TIME, TIME_CAPTION)


# -------------------------------------------------------------------------------------------------------------- growth

GROWTH_CAPTION = """\
Synthetic Neyman-Pearson, 400 rows an owner: more owners with d = 21, then more columns with 10 owners. exchanges: one
message down and one up, with every owner. MB: all owners, both directions.
"""
GROWTH_OWNERS, GROWTH_COLUMNS = (5, 20, 100, 1000), (20, 100, 500)


@bench.command()
@several("--owners", COUNT, [], "Numbers of owners, with 21 columns. [default: 5,20,100,1000, or none with --columns]")
@several("--columns", click.IntRange(2), [], "Numbers d, with 10 owners. [default: 20,100,500, or none with --owners]")
@several("--methods", click.Choice(LABELS), ["interior-point", "accelerated"], f"Among {', '.join(LABELS)}.")
@click.option("--tol", type=TOLERANCE, default=1e-3, show_default=True, help="Tolerance of the certificate.")
@common
def growth(
    owners: Sequence[int],
    columns: Sequence[int],
    methods: Sequence[str],
    tol: float,
    budget: float,
    seed: int,
    markdown: bool,
    csv: IO[str] | None,
) -> None:
    """Exchanges, bytes and seconds for more owners and for more columns.

    \b
    fedpact bench growth
    fedpact bench growth --owners 5,50
    fedpact bench growth --columns 20,40 --methods accelerated --tol 1e-5
    """
    if not owners and not columns:
        owners, columns = GROWTH_OWNERS, GROWTH_COLUMNS

    def cells() -> Iterator[Measured]:
        for n, d in [*((n, 21) for n in owners), *((10, d) for d in columns)]:
            instance = synthetic(n, None, seed, d)
            for method in methods:
                _say(instance, method)
                if method == CONIC:
                    yield measure_conic(instance, budget)
                else:
                    yield measure(instance, method, tol, budget, seed)[0]

    Output(markdown, csv).report(cells(), IN_GROWTH, GROWTH_CAPTION)
