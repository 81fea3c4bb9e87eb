"""`fedpact bench time`: seconds, against centralized solvers on pooled data at equal accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import click

from fedpact_experiments.bench.measure import (
    CONIC,
    Measured,
    add_distance,
    mark,
    measure,
    measure_conic,
    measure_scipy,
    note_reference,
    without,
)
from fedpact_experiments.bench.output import BUDGET, SEED, Output, Table, printing
from fedpact_experiments.bench.problems import NEYMAN_PEARSON, Instance
from fedpact_experiments.options import COUNT, DATA, TOLERANCE, among, several

CAPTION = f"""\
Seconds in this process, best of the runs, which take turns. interior-point: the owners of the instance, in process;
interior-point pooled: the same method on one owner who holds all rows and all constraints. scipy trust-constr:
pooled, exact gradients and Hessians, ended when the certificate meets the tolerance. scipy SLSQP: pooled, exact
gradients. {CONIC}: pooled, Clarabel's own tolerances (1e-8), seconds hold compilation and solution. distance:
|objective - reference| / |reference|. certificate: the larger of stationarity and feasibility, judged by the same
code for all, with multipliers of the others smaller than the slack of their constraint taken as zero. ratio: seconds
of this row over those of interior-point; with > this row ended at its budget, so the ratio is a lower bound.
"""
COLUMNS = without("exchanges", "gradients", "Hessians", "MB")
OURS = "interior-point"


def _take_turns(
    runs: dict[str, Callable[[], Measured]], repeat: int, late: str, fastest: dict[str, Measured], title: object
) -> None:
    """Write the fastest of so many runs of each down. One whose status was `late` does not run again."""
    for turn in range(repeat):
        for label, run in runs.items():
            if turn and fastest[label].status == late:
                continue
            click.echo(f"{title}: {label}, run {turn + 1}", err=True)
            row = run()
            if label not in fastest or (row.seconds or 0) < (fastest[label].seconds or 0):
                fastest[label] = row


@click.command("time")
@among("--problems", list(NEYMAN_PEARSON), ["synthetic", "adult"])
@several("--owners", COUNT, [], "Numbers of owners. [default: 20 for synthetic, 5 for the others]")
@click.option("--tol", type=TOLERANCE, default=1e-6, show_default=True, help="Tolerance of the certificate.")
@click.option("--repeat", type=COUNT, default=3, show_default=True, help="Runs of which the fastest counts.")
@printing(Measured, SEED, BUDGET, DATA)
def seconds(problems: Sequence[str], owners: Sequence[int], tol: float, repeat: int, output: Output) -> None:
    """Seconds of interior-point against centralized solvers on pooled data, at equal accuracy.

    \b
    fedpact bench time --data DIR
    fedpact bench time --problems synthetic --owners 5,20 --repeat 1
    """
    budget = output.budget
    seed = output.seed
    late = mark(budget)

    def runs_on(instance: Instance) -> dict[str, Callable[[], Measured]]:
        assert instance.pooled is not None
        pooled = instance.pooled()
        alone = f"{OURS} pooled"
        return {
            OURS: lambda: measure(instance, OURS, tol, budget, seed, counted=False)[0],
            alone: lambda: replace(measure(instance, OURS, tol, budget, seed, pooled, counted=False)[0], method=alone),
            CONIC: lambda: measure_conic(instance, budget),
            "trust-constr": lambda: measure_scipy(instance, "trust-constr", tol, budget),
            "SLSQP": lambda: measure_scipy(instance, "SLSQP", tol, budget),
        }

    def beside(row: Measured, first: Measured | None) -> Measured:
        """The row with the ratio of its seconds to those of our method."""
        if first is None or first.status != "solved" or not first.seconds:
            return row
        if not row.seconds or row.status == "failed":
            return row
        return replace(row, ratio=row.seconds / first.seconds, ratio_is_lower_bound=row.status == late)

    def rows_of(instance: Instance) -> Iterator[Measured]:
        against = note_reference(instance, output, digits=10)
        fastest: dict[str, Measured] = {}
        try:
            _take_turns(runs_on(instance), repeat, late, fastest, instance)
        finally:  # after Ctrl-C too
            for row in fastest.values():
                yield beside(add_distance(row, against), fastest.get(OURS))

    def rows() -> Iterator[Measured]:
        def numbers(name: str) -> Sequence[int]:
            return owners or [20 if name == "synthetic" else 5]

        for instance in output.instances(NEYMAN_PEARSON, problems, numbers):
            yield from rows_of(instance)

    output.report(Table(rows(), COLUMNS, CAPTION))
