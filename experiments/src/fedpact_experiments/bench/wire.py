"""`fedpact bench wire`: bytes of an exchange in the width that fits its numbers; time to write and read a message."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import click
import numpy as np

import fedpact as fp
from fedpact.federation.wire import dumps, loads
from fedpact.solvers.constrained import interior_point
from fedpact_experiments.bench.measure import say
from fedpact_experiments.bench.output import PAGE, SEED, Output, Table, cell, printing
from fedpact_experiments.bench.problems import PROBLEMS
from fedpact_experiments.options import COUNT, DATA, TOLERANCE, among, several

BYTES_CAPTION = """\
interior-point, both ways, all owners. plain: numbers in float64. masked: a secure sum, with its keys; exact: all
numbers in 192 bits; fitted: what is the default, matrices but the first in 64 bits where the accuracy of the next step
allows it, vectors in 64 or 128, other numbers in 128, and squares of violations in 192. part: fitted / exact.
"""
SPEED_CAPTION = """\
CPU time, best of the runs, of one array of float64 in a message. checksum: CRC-32 alone, which both must compute; copy:
one copy in memory.
"""


@dataclass(frozen=True)
class Sent:
    """Solves with masked sums that are exact and with those that fit; and one with sums in the clear.

    exchanges, bytes: exact, fitted
    """

    problem: str
    owners: int
    dim: int
    method: str
    status: str
    exchanges: tuple[int, int]
    bytes: tuple[int, int]
    plain: int
    note: str = ""


@dataclass(frozen=True)
class Speed:
    numbers: int
    what: str
    seconds: float
    note: str = ""


SENT_COLUMNS = {
    "problem": cell("problem"),
    "n": cell("owners"),
    "d": cell("dim"),
    "status": cell("status"),
    "exchanges, exact": lambda row: str(row.exchanges[0]),
    "fitted": lambda row: str(row.exchanges[1]),
    "MB, plain": lambda row: f"{row.plain / 1e6:.3g}",
    "masked, exact": lambda row: f"{row.bytes[0] / 1e6:.3g}",
    "masked, fitted": lambda row: f"{row.bytes[1] / 1e6:.3g}",
    "part": lambda row: f"{row.bytes[1] / row.bytes[0]:.2f}",
}
SPEED_COLUMNS = {
    "numbers": cell("numbers", "{:,}".format),
    "what": cell("what"),
    "ms": cell("seconds", lambda seconds: f"{1e3 * seconds:.3g}"),
}


def compare(name: str, owners: int, folder: str | None, seed: int, tol: float) -> Sent:
    """Solve one problem in the clear, and with masks exactly and fitted."""
    instance = PROBLEMS[name](owners, folder, seed)
    say(instance, "plain and masked")

    def solve(masked: bool) -> fp.Solution:
        return fp.solve(instance.problem, "interior-point", tol=tol, secure_sum=masked)

    order = interior_point.Advance

    def exact(**given: Any) -> interior_point.Advance:
        return order(**given | {"largest": 0.0, "arrays": 0.0, "coarse": 0.0})

    with (
        mock.patch.object(interior_point, "Advance", exact),
        mock.patch.object(interior_point, "LARGEST_AT_FIRST", 0.0),
    ):
        before = solve(masked=True)
    after = solve(masked=True)
    return Sent(
        name,
        owners,
        instance.dim,
        "interior-point",
        after.status,
        (before.rounds, after.rounds),
        (before.communication.bytes, after.communication.bytes),
        solve(masked=False).communication.bytes,
    )


def time_message(numbers: int, repeat: int) -> Iterator[Speed]:
    """Write and read one array, and what of that cannot be avoided."""
    values = np.random.default_rng(0).normal(size=numbers)
    message = dumps({"sums": values})
    works: dict[str, Callable[[], object]] = {
        "write": lambda: dumps({"sums": values}),
        "read": lambda: loads(message),
        "checksum": lambda: zlib.crc32(message),
        "copy": values.tobytes,
    }
    for what, work in works.items():
        fastest = np.inf
        for _ in range(repeat):
            began = time.process_time()
            work()
            fastest = min(fastest, time.process_time() - began)
        yield Speed(numbers, what, fastest)


@click.command()
@among("--problems", list(PROBLEMS), ["synthetic", "breast-cancer-wisc", "monks-1", "adult", "lcqp"])
@several("--owners", COUNT, [5, 20], "Numbers of owners.")
@click.option("--tol", type=TOLERANCE, default=1e-6, show_default=True, help="Tolerance of the certificate.")
@click.option("--numbers", type=COUNT, default=1_000_000, show_default=True, help="In the message that is timed.")
@click.option("--repeat", type=COUNT, default=20, show_default=True, help="Runs of which the fastest counts.")
@printing(Sent, SEED, DATA, PAGE)
def wire(problems: Sequence[str], owners: Sequence[int], tol: float, numbers: int, repeat: int, output: Output) -> None:
    """Bytes of interior-point, exact and in the width that fits; milliseconds to write and read a message.

    \b
    fedpact bench wire --data DIR
    fedpact bench wire --problems synthetic --owners 5
    """

    def rows() -> Iterator[Sent]:
        for name in problems:
            for n in owners:
                yield compare(name, n, output.folder, output.seed, tol)

    output.report(
        Table(rows(), SENT_COLUMNS, BYTES_CAPTION, text=("status",), title="Bytes"),
        Table(
            time_message(numbers, repeat),
            SPEED_COLUMNS,
            SPEED_CAPTION,
            text=("what",),
            section=lambda row: row.numbers,
            title="Writing and reading",
        ),
        title="Messages",
        introduction="What travels between coordinator and owners, and what it costs to write and read it.",
    )
