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
interior-point. exact: all numbers in float64, masked ones in 192 bits. fitted: what is the default, matrices in float32
while that costs no exchange, and masked numbers in 128 bits, or 64, once it is known how large they are; squares of
violations always have 192. Both ways, all owners, with the keys of secure sums.
"""
SPEED_CAPTION = """\
CPU time, best of the runs, of one array of float64 in a message. checksum: CRC-32 alone, which both must compute; copy:
one copy in memory.
"""


@dataclass(frozen=True)
class Sent:
    """A solve with sums that are exact and one with those that fit."""

    problem: str
    owners: int
    dim: int
    masked: bool
    method: str
    status: str
    exchanges: tuple[int, int]
    bytes: tuple[int, int]
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
    "sums": lambda row: "masked" if row.masked else "plain",
    "status": cell("status"),
    "exchanges, exact": lambda row: str(row.exchanges[0]),
    "fitted": lambda row: str(row.exchanges[1]),
    "MB, exact": lambda row: f"{row.bytes[0] / 1e6:.3g}",
    "MB, fitted": lambda row: f"{row.bytes[1] / 1e6:.3g}",
    "part": lambda row: f"{row.bytes[1] / row.bytes[0]:.2f}",
}
SPEED_COLUMNS = {
    "numbers": cell("numbers", "{:,}".format),
    "what": cell("what"),
    "ms": cell("seconds", lambda seconds: f"{1e3 * seconds:.3g}"),
}


def compare(name: str, owners: int, folder: str | None, seed: int, tol: float, masked: bool) -> Sent:
    """Solve one problem twice, exactly and fitted."""
    instance = PROBLEMS[name](owners, folder, seed)
    say(instance, "masked" if masked else "plain")

    def solve() -> fp.Solution:
        return fp.solve(instance.problem, "interior-point", tol=tol, secure_sum=masked)

    order = interior_point.Advance

    def exact(**given: Any) -> interior_point.Advance:
        return order(**given | {"largest": 0.0, "coarse": 0.0})

    with mock.patch.object(interior_point, "Advance", exact):
        before = solve()
    after = solve()
    return Sent(
        name,
        owners,
        instance.dim,
        masked,
        "interior-point",
        after.status,
        (before.rounds, after.rounds),
        (before.communication.bytes, after.communication.bytes),
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
                for masked in (False, True):
                    yield compare(name, n, output.folder, output.seed, tol, masked)

    output.report(
        Table(rows(), SENT_COLUMNS, BYTES_CAPTION, text=("sums", "status"), title="Bytes"),
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
