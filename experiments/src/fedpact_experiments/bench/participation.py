"""`fedpact bench participation`: exchanges where a round asks only a sample of the owners, on convex problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
import numpy as np

import fedpact as fp
from fedpact_experiments.bench.output import PAGE, SEED, Output, Table, cell, printing
from fedpact_experiments.bench.problems import NEYMAN_PEARSON, Instance
from fedpact_experiments.options import COUNT, DATA, TOLERANCE, among, several

CAPTION = """\
Neyman-Pearson classification, class-1 loss at most 0.2 at every owner. share: of the owners that a round asks, drawn
anew for every round; certificates and new penalties ask all of them. exchanges: rounds of all kinds. asked: how often
an owner was asked, mean over the owners. distance: the largest difference from the answer with every owner in every
round, over the largest entry of that. The certificate is the same: recomputed from the problem by fp.certify.
"""
COLUMNS = {
    "problem": cell("problem"),
    "n": cell("owners"),
    "method": cell("method"),
    "tol": cell("tol", "{:g}".format),
    "share": cell("share", "{:g}".format),
    "exchanges": cell("exchanges"),
    "asked": cell("asked", "{:.0f}".format),
    "stationarity": cell("stationarity", "{:.1e}".format),
    "feasibility": cell("feasibility", "{:.1e}".format),
    "distance": cell("distance", "{:.1e}".format),
    "status": cell("status"),
}
PROBLEMS = ("synthetic", "breast-cancer-wisc")
METHODS = ("accelerated", "proximal-al")


@dataclass(frozen=True)
class Row:
    problem: str
    owners: int
    method: str
    tol: float
    share: float
    status: str
    exchanges: int
    asked: float
    stationarity: float
    feasibility: float
    distance: float
    note: str = ""


def measure(instance: Instance, method: str, tol: float, shares: Sequence[float], most: int) -> Iterator[Row]:
    """One row a share; the first answer is what the others are compared with."""
    whole = None
    for share in shares:
        found = fp.solve(instance.problem, method, tol=tol, participation=share, max_rounds=most)
        if whole is None:
            whole = found.w
        certificate = fp.certify(instance.problem, found.w, found.multipliers)
        row = Row(
            problem=instance.name,
            owners=instance.owners,
            method=method,
            tol=tol,
            share=share,
            status=found.status,
            exchanges=found.rounds,
            asked=found.communication.messages / (2 * instance.owners),
            stationarity=certificate.stationarity,
            feasibility=certificate.feasibility,
            distance=float(np.max(np.abs(found.w - whole)) / np.max(np.abs(whole))),
        )
        click.echo(f"measured: {row}", err=True)
        yield row


@click.command()
@among("--problems", PROBLEMS, ["synthetic"])
@several("--owners", COUNT, [10], "Numbers of owners.")
@among("--methods", METHODS)
@several("--shares", click.FloatRange(0, 1, min_open=True), [1.0, 0.5, 0.2], "Shares of the owners that a round asks.")
@click.option("--tol", type=TOLERANCE, default=1e-3, show_default=True, help="Tolerance of the certificate.")
@click.option("--most", type=click.IntRange(8), default=20_000, show_default=True, help="Exchanges of a solve.")
@printing(Row, SEED, DATA, PAGE)
def participation(
    problems: Sequence[str],
    owners: Sequence[int],
    methods: Sequence[str],
    shares: Sequence[float],
    tol: float,
    most: int,
    output: Output,
) -> None:
    """Exchanges where a round asks only a sample of the owners: the same certificate, more rounds.

    \b
    fedpact bench participation
    fedpact bench participation --problems breast-cancer-wisc --data DIR --owners 5,20 --shares 1,0.5
    """

    def rows() -> Iterator[Row]:
        for name in problems:
            for n in owners:
                instance = NEYMAN_PEARSON[name](n, output.folder, output.seed)
                for method in methods:
                    yield from measure(instance, method, tol, shares, most)

    output.report(
        Table(rows(), COLUMNS, CAPTION, title="Neyman-Pearson"),
        title="Sampled owners",
        introduction="Owners are offline at times. What it costs to ask a part of them in a round.",
    )
