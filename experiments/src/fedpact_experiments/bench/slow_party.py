"""`fedpact bench slow-party`: steps of the server per second where one party of a vertical problem is slow."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

import fedpact as fp
from fedpact.engines import Ray
from fedpact_experiments.bench.output import MARKDOWN
from fedpact_experiments.options import COUNT, several
from fedpact_experiments.tables import show_rows

PARTIES = ("party 1", "party 2", "party 3")
#: Columns of each.
WIDTH = 5
#: Steps before the clock starts: processes load what they need.
WARM = 3


class Timed(fp.prox.SquaredL2):
    """A regularizer that takes this many seconds more at every order: what stands for a party's work."""

    def __init__(self, weight: float, seconds: float) -> None:
        super().__init__(weight)
        self.seconds = seconds

    def subdifferential_distance(self, v: Any, w: Any) -> float:
        time.sleep(self.seconds)
        return super().subdifferential_distance(v, w)


@dataclass(frozen=True)
class Stepped:
    """How often the server stepped; slow: how many times slower the last party is."""

    slow: float
    form: str
    steps: int
    seconds: float
    exchanges: int
    orders: Sequence[int]

    @property
    def rate(self) -> float:
        return self.steps / self.seconds

    def cells(self, rounds: Stepped) -> dict[str, str]:
        """A row of the table. rounds: the same in rounds of all parties"""
        return {
            "slowest party": f"{self.slow:g}x",
            "form": self.form,
            "server steps": str(self.steps),
            "steps / s": f"{self.rate:.3g}",
            "ratio": f"{self.rate / rounds.rate:.2f}",
            "orders of each party": ", ".join(map(str, self.orders)),
        }


def problem(rows: int, seconds: float, slow: float) -> fp.VerticalProblem:
    """Two groups with an active gap; every order takes this long, at the last party that many times longer."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, WIDTH * len(PARTIES)))
    group = rng.integers(0, 2, rows)
    y = (X @ rng.normal(size=X.shape[1]) + 1.5 * (group == 0) + rng.normal(size=rows) > 0.5).astype(int)
    paces = [seconds] * (len(PARTIES) - 1) + [slow * seconds]
    columns = {name: X[:, WIDTH * i : WIDTH * (i + 1)] for i, name in enumerate(PARTIES)}
    return fp.VerticalProblem(columns, y, group, 0.01, regularizer=[Timed(0.01, pace) for pace in paces])


def measure(engine: Any, asked: fp.VerticalProblem, slow: float, asynchronous: bool, steps: int) -> Stepped:
    """Steps of the server per second, after the first few."""
    times: list[float] = []

    def stop(progress: fp.solvers.Progress) -> bool:
        times.append(time.perf_counter())
        return len(times) > WARM + steps

    found = fp.solve(
        asked, "fair-vfl", asynchronous=asynchronous, secure_sum=False, tol=1e-9, engine=engine, callbacks=[stop]
    )
    form = "any party" if asynchronous else "rounds"
    orders = [found.communication.owners[name].messages_down for name in PARTIES]
    return Stepped(slow, form, len(times) - WARM - 1, times[-1] - times[WARM], found.rounds, orders)


@click.command("slow-party")
@several("--slow", COUNT, [1, 10], "How many times slower the last party is.")
@click.option("--milliseconds", type=COUNT, default=50, show_default=True, help="Of work at an order, at the others.")
@click.option("--rows", type=COUNT, default=1000, show_default=True, help="People.")
@click.option("--steps", type=COUNT, default=40, show_default=True, help="Of the server that are timed.")
@MARKDOWN
def slow_party(slow: Sequence[int], milliseconds: int, rows: int, steps: int, markdown: bool) -> None:
    """Steps of the server per second where one party is slow: fair-vfl in rounds, and with whoever answers first.

    Three parties on Ray, each in a process of its own. In rounds the server hears every party before it steps; with
    asynchronous=True it steps whenever any of them has answered. A party's work is a pause, so that the ratio is that
    of the forms and not of the processors. Seconds are those of Ray on this machine, its messages included.

    \b
    fedpact bench slow-party                                 one party ten times slower: a minute
    fedpact bench slow-party --slow 30 --milliseconds 20
    """
    table = []
    with Ray(actors=len(PARTIES)).session() as engine:
        for factor in slow:
            asked = problem(rows, milliseconds / 1000, factor)
            in_rounds = measure(engine, asked, factor, False, steps)
            any_party = measure(engine, asked, factor, True, steps)
            for row in (in_rounds, any_party):
                click.echo(f"measured: {row}", err=True)
                table.append(row.cells(in_rounds))
    show_rows(table, markdown, text=("form",))
    click.echo(
        f"- {os.cpu_count()} cores, Python {sys.version.split()[0]}, {rows:,} people, {milliseconds} ms an order"
    )
