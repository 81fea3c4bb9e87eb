"""`fedpact bench growth`: exchanges, bytes and seconds for more owners and for more columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from fedpact_experiments.bench.measure import CONIC, LABELS, Measured, measure, measure_conic, say, without
from fedpact_experiments.bench.output import BUDGET, SEED, Output, Table, printing
from fedpact_experiments.bench.problems import synthetic
from fedpact_experiments.options import COUNT, TOLERANCE, among, several

CAPTION = """\
Synthetic Neyman-Pearson, 400 rows an owner: more owners with d = 21, then more columns with 10 owners. exchanges: one
message down and one up, with every owner. MB: all owners, both directions.
"""
COLUMNS = without("gradients", "Hessians", "distance", "ratio")
OWNERS = (5, 20, 100, 1000)
DIMENSIONS = (20, 100, 500)


@click.command()
@several("--owners", COUNT, [], "Numbers of owners, with 21 columns. [default: 5,20,100,1000, or none with --columns]")
@several("--columns", click.IntRange(2), [], "Numbers d, with 10 owners. [default: 20,100,500, or none with --owners]")
@among("--methods", LABELS, ["interior-point", "accelerated"])
@click.option("--tol", type=TOLERANCE, default=1e-3, show_default=True, help="Tolerance of the certificate.")
@printing(Measured, SEED, BUDGET)
def growth(owners: Sequence[int], columns: Sequence[int], methods: Sequence[str], tol: float, output: Output) -> None:
    """Exchanges, bytes and seconds for more owners and for more columns.

    \b
    fedpact bench growth
    fedpact bench growth --owners 5,50
    fedpact bench growth --columns 20,40 --methods accelerated --tol 1e-5
    """
    if not owners and not columns:
        owners = OWNERS
        columns = DIMENSIONS

    def rows() -> Iterator[Measured]:
        for n, d in [*((n, 21) for n in owners), *((10, d) for d in columns)]:
            instance = synthetic(n, None, output.seed, d)
            for method in methods:
                say(instance, method)
                if method == CONIC:
                    yield measure_conic(instance, output.budget)
                else:
                    yield measure(instance, method, tol, output.budget, output.seed, counted=False)[0]

    output.report(Table(rows(), COLUMNS, CAPTION))
