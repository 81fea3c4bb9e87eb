"""`fedpact bench rounds`: exchanges with the owners, against the paper's algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fedpact.errors import FedpactError
from fedpact.report import figures
from fedpact.solvers import Solution
from fedpact_experiments.bench.measure import (
    COLUMNS,
    CONIC,
    LABELS,
    PAPER,
    Measured,
    add_distance,
    add_ratio,
    measure,
    measure_conic,
    note_reference,
    say,
)
from fedpact_experiments.bench.output import BUDGET, SEED, Output, Table, printing
from fedpact_experiments.bench.problems import (
    NEYMAN_PEARSON,
    PAPER_FAIRNESS,
    PAPER_LCQP,
    PAPER_NEYMAN_PEARSON,
    PROBLEMS,
    Instance,
)
from fedpact_experiments.options import COUNT, DATA, TOLERANCE, among, several

CAPTION = f"""\
exchanges: one message down and one up, with every owner. gradients, Hessians: evaluations per owner, mean over the
owners; objective and constraint count each, a product with a Hessian counts as one, a value without gradient as none.
MB: all owners, both directions. seconds: of the processor. distance: |objective - reference| / |reference|.
certificate: the larger of stationarity and feasibility. ratio: exchanges of {PAPER} over those of this row, where it
solved; with > the paper's run had not met the tolerance when it ended, so the ratio is a lower bound. {CONIC}: pooled
data, no exchanges, Clarabel's own tolerances (1e-8); seconds hold compilation and solution.
"""


def _given(options: dict[str, float]) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in options.items())


#: What is said below the table when the paper's settings are among the methods, by family of problems.
NOTES = {
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


@click.command()
@among("--problems", list(PROBLEMS))
@several("--owners", COUNT, [5, 10, 20, 100], "Numbers of owners.")
@among("--methods", LABELS)
@several("--tol", TOLERANCE, [1e-3], "Tolerances of the certificate.")
@click.option("--plot", callback=_figure_path, metavar="FILE", help="Draw the certificate against exchanges and bytes.")
@printing(Measured, SEED, BUDGET, DATA)
def rounds(
    problems: Sequence[str],
    owners: Sequence[int],
    methods: Sequence[str],
    tol: Sequence[float],
    plot: Path | None,
    output: Output,
) -> None:
    """Exchanges with the owners, and the ratio to the paper's algorithm.

    Every problem, number of owners and method is one row. The paper is that of He, Peng and Sun, cited in the README:
    proximal-al-paper is its Algorithm 1 with its settings, proximal-al the same with ours, centralized-proximal-al
    its Algorithm 3. fedsgm is the switching gradient method, which is not of this package.

    \b
    fedpact bench rounds --problems synthetic,lcqp --owners 5,10 --budget 20
    fedpact bench rounds --methods proximal-al-paper,interior-point --tol 1e-3 --tol 1e-6
    fedpact bench rounds --problems adult --owners 5 --data DIR --plot adult.svg --csv adult.csv
    fedpact bench rounds --markdown > rounds.md

    Data sets that are not there are skipped, and a line says where to get them.
    """
    families = {"neyman-pearson" if name in NEYMAN_PEARSON else name for name in problems}
    if PAPER in methods:
        output.notes += [note for family, note in NOTES.items() if family in families]
    solutions: dict[str, dict[str, Solution]] = {}

    def rows() -> Iterator[Measured]:
        for instance in output.instances(PROBLEMS, problems, lambda name: owners):
            yield from _measure_instance(instance, methods, tol, output, solutions)

    try:
        output.report(Table(rows(), COLUMNS, CAPTION))
    finally:
        if plot is not None and solutions:
            click.echo(f"wrote {figures.save(draw_convergence(solutions), plot)}", err=True)


def _measure_instance(
    instance: Instance,
    methods: Sequence[str],
    tolerances: Sequence[float],
    output: Output,
    solutions: dict[str, dict[str, Solution]],
) -> Iterator[Measured]:
    """The rows of one instance; adds to `solutions` what is to be drawn, by title and method."""
    against = note_reference(instance, output, digits=8)
    for tol in tolerances:
        title = f"{instance}, tol = {tol:g}" if len(tolerances) > 1 else str(instance)
        paper = None
        for method in LABELS:  # the paper's first, for the ratios to it
            if method not in methods or method == CONIC:
                continue
            say(instance, method, tol)
            row, answer = measure(instance, method, tol, output.budget, output.seed)
            if method == PAPER:
                paper = row
            if answer is not None:
                solutions.setdefault(title, {})[method] = answer
            yield add_ratio(add_distance(row, against), paper)
    if CONIC in methods:
        say(instance, CONIC)
        yield add_distance(measure_conic(instance, output.budget), against)


def draw_convergence(solutions: Mapping[str, Mapping[str, Solution]]) -> Any:
    """Certificate (the larger of stationarity and feasibility) against exchanges, and against megabytes beside it.

    solutions: title of a row of two panels -> (method -> its solution); a method without exchanges has no line
    """
    panels = []
    for title, by_method in solutions.items():
        by_exchanges = {}
        by_bytes = {}
        for method, answer in by_method.items():
            judged = [record for record in answer.history.outer if record.rounds > 0]
            if judged:
                worst = [max(record.stationarity, record.feasibility) for record in judged]
                by_exchanges[method] = ([record.rounds for record in judged], worst)
                by_bytes[method] = ([record.bytes / 1e6 for record in judged], worst)
        (tol,) = {answer.tol[0] for answer in by_method.values()}
        panels.append(figures.Panel(title, "exchanges", "certificate", by_exchanges, log_x=True, level=tol))
        megabytes = "megabytes, all owners, both ways"
        panels.append(figures.Panel(title, megabytes, "certificate", by_bytes, log_x=True, level=tol))
    return figures.panels(panels)
