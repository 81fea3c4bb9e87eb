"""`fedpact bench parties`: seconds and memory of a vertical job for more people, from files to a certified model."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

import fedpact as fp
from fedpact.alignment import MODES, Mode
from fedpact.federation import ENGINES
from fedpact.tasks import PartySource, Vertical
from fedpact_experiments.bench.output import SEED, Output, Table, cell, printing
from fedpact_experiments.options import COUNT, TOLERANCE, several

CAPTION = """\
Parties with ten made-up columns each in a CSV file of its own, the rows in an order of its own; the first has label and
group. s to align: until the training begins, files read and labels sent. s: in all, to a certified model with a bounded
gap. CPU s and peak MB (so far): of the coordinator's process, which in process holds the parties too.
"""
COLUMNS = {
    "engine": cell("engine"),
    "parties": cell("parties"),
    "people": cell("people"),
    "alignment": cell("alignment"),
    "method": cell("method"),
    "status": cell("status"),
    "exchanges": cell("exchanges"),
    "MB": cell("bytes", lambda count: f"{count / 1e6:.1f}"),
    "s to align": cell("aligning", "{:.1f}".format),
    "s": cell("seconds", "{:.1f}".format),
    "CPU s": cell("cpu", "{:.1f}".format),
    "peak MB": cell("memory", "{:.0f}".format),
}
#: Columns of every party.
WIDTH = 10


@dataclass(frozen=True)
class Row:
    engine: str
    parties: int
    people: int
    alignment: str
    method: str
    status: str
    exchanges: int
    bytes: int
    aligning: float
    seconds: float
    cpu: float
    memory: float
    note: str = ""


def write_tables(folder: Path, parties: int, people: int, seed: int) -> dict[str, Path]:
    """One file a party; the label depends on a column of each, the group on none."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(parties, people, WIDTH))
    sex = rng.integers(0, 2, people)
    ill = (X[:, :, 0].sum(axis=0) + sex + rng.normal(size=people) > 0.5).astype(int)
    paths = {}
    for k in range(parties):
        header = ["id", *(f"x{k}_{j}" for j in range(WIDTH)), *(["ill", "sex"] if k == 0 else [])]
        lines = [",".join(header)]
        for i in rng.permutation(people):
            held = [str(ill[i]), str(sex[i])] if k == 0 else []
            lines.append(",".join([f"person-{i:09d}", *(f"{x:.6f}" for x in X[k, i]), *held]))
        paths[f"party{k}"] = folder / f"party{k}.csv"
        paths[f"party{k}"].write_text("\n".join(lines) + "\n")
    return paths


class Timed(fp.Session):
    """Notes when sums are first masked: the parties are aligned, and the training begins."""

    aligned = 0.0

    def secure(self) -> None:
        self.aligned = self.aligned or time.perf_counter()
        super().secure()


def measure(engine: str, tables: dict[str, Path], people: int, mode: Mode, method: str, tol: float) -> Row:
    """One job, from files to a model."""
    task = Vertical(label="ill", label_at="party0", group="sex", max_gap=0.02, alignment=mode)
    began = time.perf_counter()
    worked = time.process_time()
    secret = next(iter(tables.values())).with_name("ids.key")
    secret.write_bytes(bytes(range(32)))
    sources = {name: PartySource(name, path, secret=secret) for name, path in tables.items()}
    with Timed(engine) as session:
        found = fp.fit(task, sources, session, method=method, tol=tol)
    assert found.communication is not None
    return Row(
        engine,
        len(tables),
        people,
        mode,
        method,
        found.solution.status,
        found.communication.rounds,
        found.communication.bytes,
        session.aligned - began,
        time.perf_counter() - began,
        time.process_time() - worked,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


@click.command()
@several("--people", COUNT, [1000, 10000], "Numbers of people.")
@click.option("--parties", type=click.IntRange(2), default=6, show_default=True, help="How many there are.")
@several("--alignments", click.Choice(list(MODES)), ["private"], "How people are matched.")
@several("--methods", click.STRING, ["vertical-al"], "Methods.")
@click.option("--engine", type=click.Choice(list(ENGINES)), default="in-process", show_default=True, help="Where.")
@click.option("--tol", type=TOLERANCE, default=1e-6, show_default=True, help="Tolerance of the certificate.")
@printing(Row, SEED)
def parties(
    people: Sequence[int],
    parties: int,
    alignments: Sequence[Mode],
    methods: Sequence[str],
    engine: str,
    tol: float,
    output: Output,
) -> None:
    """Seconds and memory of a vertical job for more people: files read, parties aligned, a model certified.

    \b
    fedpact bench parties
    fedpact bench parties --engine ray --people 10000
    fedpact bench parties --people 100000 --alignments id,keyed-hash --methods vertical-exact
    """

    def rows() -> Iterator[Row]:
        for number in people:
            with tempfile.TemporaryDirectory(prefix="fedpact-parties-") as made:
                tables = write_tables(Path(made), parties, number, output.seed)
                for mode in alignments:
                    for method in methods:
                        yield measure(engine, tables, number, mode, method, tol)

    output.report(Table(rows(), COLUMNS, CAPTION, ("engine", "alignment", "method", "status"), lambda row: row.people))
