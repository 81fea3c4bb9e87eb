"""`fedpact bench speed`: interior-point beside the arithmetic it cannot do without, and solvers of pooled rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import click
import numpy as np

import fedpact as fp
from fedpact import data, tasks
from fedpact.engines import InProcess
from fedpact.errors import FedpactError
from fedpact.problem import FederatedProblem
from fedpact_experiments.bench.measure import worst_residual
from fedpact_experiments.bench.output import PAGE, SEED, Output, Table, cell, printing
from fedpact_experiments.bench.owners import Grown, measure_apart
from fedpact_experiments.bench.problems import BOUND
from fedpact_experiments.bench.speed_rivals import RIVALS, Pooled, run_floor
from fedpact_experiments.counting import count_evaluations
from fedpact_experiments.options import COUNT, TOLERANCE, among, several

OURS = "interior-point"
SINGLE = "interior-point, owner by owner"
FLOOR = "the arithmetic alone"
#: (owners, rows of each, length of w).
SIZES = ("5x350x19", "20x350x19", "100x350x19", "5x6000x101", "1000x100x11")
#: Conic programs of more numbers than this take many minutes.
MOST_CONIC_CELLS = 1_000_000
#: A method runs again and again for so many milliseconds when it is its turn: the first runs are slower.
TURN = 250.0
#: A method that takes more milliseconds than this runs once.
SLOW = 2000.0
#: Rows and length of w where only the number of owners grows, and the exchanges that a solve may take.
GROWTH = (100, 11, 60)

TITLE = "At the speed of the arithmetic"
INTRODUCTION = """\
Synthetic Neyman-Pearson problems (bound 0.2 on the loss of class 1 at every owner), solved to a certificate of 1e-6
with all owners in this process, and by solvers that are given the rows of all owners in two matrices.
"""
CAPTION = f"""\
CPU milliseconds on one thread: methods take turns, each of at least {TURN:.0f} ms, and the fastest run counts; where
one takes more than {SLOW:,.0f}, there is no other. {SINGLE}: the same bits from owners that answer one after the other,
as they do in threads, in other processes and wherever single messages are asked for. {FLOOR}: as many gradients and
Gram products as {OURS} asked of its owners, in plain NumPy, owner by owner. SLSQP: SciPy's, exact gradients, all
constraints in one vector. IPOPT: CasADi's, exact Hessians by its automatic differentiation. Clarabel: the exponential
cones that cvxpy makes of it, at most {MOST_CONIC_CELLS:,} numbers. set-up: before the first iteration (expressions,
derivatives, compilation), not in the milliseconds. ours / this: how many times the milliseconds of this row {OURS}
takes. certificate: the larger of stationarity and feasibility at the answer, by the same code for all; multipliers of
the others that are smaller than the slack of their constraint count as zero.
"""
#: Columns of the second table.
SHOWN = ("owners", "status", "exchanges", "ms / exchange and owner", "growth", "peak MB", "without owners")
GROWTH_CAPTION = """\
interior-point to 1e-6, 100 rows an owner, d = 11, bound 0.3, each number of owners in a process of its own, CPU
time. growth: ms / exchange and owner over that of the first line, which stays 1 where a solve is linear in the owners.
without owners: MB of a process that has only imported everything.
"""


@dataclass(frozen=True)
class Speed:
    """One method on one problem; None where it does not apply."""

    problem: str
    owners: int
    method: str
    milliseconds: float
    setup: float | None = None
    ratio: float | None = None
    each: float | None = None  # milliseconds per owner and exchange
    exchanges: int | None = None
    certificate: float | None = None
    note: str = ""


COLUMNS = {
    "owners x rows x d": cell("problem"),
    "method": cell("method"),
    "ms": cell("milliseconds", "{:,.1f}".format),
    "set-up, ms": cell("setup", "{:,.0f}".format),
    "ours / this": cell("ratio", "{:.3g}".format),
    "ms / owner and exchange": cell("each", "{:.3f}".format),
    "exchanges": cell("exchanges"),
    "certificate": cell("certificate", "{:.0e}".format),
}


class Contest:
    """One problem, and what every method took for it so far."""

    def __init__(self, size: str, tol: float, seed: int) -> None:
        self.size = size
        self.tol = tol
        n, rows, d = read_size(size)
        owners = data.neyman_pearson(n, rows, d, seed)
        self.problem = tasks.neyman_pearson(owners, BOUND)
        self.pooled = Pooled(owners)
        self.gradients, self.hessians = count_calls(self.problem, tol)
        self.fastest: dict[str, Speed] = {}

    def run(self, methods: Sequence[str]) -> None:
        """One turn: all methods once."""
        self._measure(OURS, partial(self._ours, OURS, jointly=True))
        self._measure(SINGLE, partial(self._ours, SINGLE, jointly=False))
        self._measure(FLOOR, self._floor)
        for method in methods:
            if method == "Clarabel" and self.pooled.A.size + self.pooled.B.size > MOST_CONIC_CELLS:
                continue
            click.echo(f"{self.size}: {method}", err=True)
            self._measure(method, partial(self._rival, method))

    def rows(self) -> Iterator[Speed]:
        ours = self.fastest[OURS].milliseconds
        for row in self.fastest.values():
            yield replace(row, ratio=ours / row.milliseconds)

    def _measure(self, method: str, run: Callable[[], Speed]) -> None:
        """Run it until the turn is over; the fastest counts."""
        if method in self.fastest and self.fastest[method].milliseconds > SLOW:
            return
        passed = 0.0
        while passed < TURN:
            row = run()
            passed += row.milliseconds + (row.setup or 0.0)
            if row.milliseconds < self.fastest.get(method, row).milliseconds or method not in self.fastest:
                self.fastest[method] = row

    def _row(self, method: str, seconds: float) -> Speed:
        return Speed(self.size.replace("x", " x "), len(self.pooled.parts), method, 1e3 * seconds)

    def _ours(self, method: str, jointly: bool) -> Speed:
        began = time.process_time()
        answer = fp.solve(self.problem, "interior-point", tol=self.tol, engine=InProcess(jointly=jointly))
        row = self._row(method, time.process_time() - began)
        each = row.milliseconds / row.owners / answer.rounds
        note = "" if answer.solved else f"{answer.status}, {answer.reason}"
        return replace(row, each=each, exchanges=answer.rounds, certificate=answer.certificate.worst, note=note)

    def _floor(self) -> Speed:
        row = self._row(FLOOR, run_floor(self.pooled, self.gradients, self.hessians))
        exchanges = self.fastest[OURS].exchanges
        assert exchanges is not None
        return replace(row, each=row.milliseconds / row.owners / exchanges)

    def _rival(self, method: str) -> Speed:
        answer = RIVALS[method](self.pooled)
        prices = [np.zeros(0), *answer.prices[:, None]]
        certificate = worst_residual(self.problem, answer.w, prices)
        return replace(self._row(method, answer.seconds), setup=1e3 * answer.setup or None, certificate=certificate)


def read_size(size: str) -> tuple[int, int, int]:
    """Owners, rows of each and length of w from a text like 20x350x19."""
    try:
        n, rows, d = map(int, size.split("x"))
    except ValueError as error:
        raise FedpactError(f"--sizes {size!r}: give owners x rows x d, such as 20x350x19") from error
    return n, rows, d


def count_calls(problem: FederatedProblem, tol: float) -> tuple[int, int]:
    """Gradients and Hessians of each function of an owner in a solve, rounded up over the owners."""
    counted, counts = count_evaluations(problem)
    fp.solve(counted, OURS, tol=tol)
    functions = 2 * len(counts)  # objective and constraint of every owner
    gradients = sum(owner.gradients for owner in counts) / functions
    hessians = sum(owner.hessians for owner in counts) / functions
    return round(gradients), round(hessians)


@click.command()
@several("--sizes", click.STRING, SIZES, "Problems: owners x rows of each x length of w.")
@among("--rivals", list(RIVALS))
@several("--growth", COUNT, [100, 1000, 10_000], "Numbers of owners in the second table.")
@click.option("--tol", type=TOLERANCE, default=1e-6, show_default=True, help="Tolerance of the certificate.")
@click.option("--repeat", type=COUNT, default=3, show_default=True, help="Turns of every method.")
@printing(Speed, PAGE, SEED)
def speed(
    sizes: Sequence[str], rivals: Sequence[str], growth: Sequence[int], tol: float, repeat: int, output: Output
) -> None:
    """CPU time of interior-point beside its own arithmetic and solvers of pooled rows; and with thousands of owners.

    \b
    fedpact bench speed --page docs/benchmarks/speed.md
    fedpact bench speed --sizes 20x350x19 --rivals SLSQP,IPOPT --growth 1000 --repeat 5
    """

    def rows() -> Iterator[Speed]:
        for size in sizes:
            contest = Contest(size, tol, output.seed)
            for _ in range(repeat):
                contest.run(rivals)
            yield from contest.rows()

    def grown() -> Iterator[Grown]:
        first = None
        for n in growth:
            click.echo(f"{n} owners", err=True)
            found = measure_apart(OURS, n, *GROWTH, tol)
            first = first or found.each
            yield replace(found, first=first)

    beside = Table(
        rows(), COLUMNS, CAPTION, text=("method",), section=lambda row: row.problem, title="Beside pooled solvers"
    )
    thousands = Table(
        grown(),
        {name: partial(shown, name) for name in SHOWN},
        GROWTH_CAPTION,
        text=("status",),
        section=lambda row: row.method,
        title="Thousands of owners",
    )
    output.report(beside, thousands, title=TITLE, introduction=INTRODUCTION)


def shown(name: str, row: Grown) -> str:
    """A cell of the second table."""
    return row.cells[name]
