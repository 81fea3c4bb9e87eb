"""What an engine costs: seconds per exchange by engine, with the in-process loop as 1.

    python benchmarks/engines.py                                    in process, threads, Ray, Flower: ten minutes
    python benchmarks/engines.py --engines ray --owners 3 --dims 100 --rounds 200
    python benchmarks/engines.py --markdown > table.md

An exchange brings d numbers to every owner and d numbers back. The owner's work is next to nothing (the gradient of
|w|^2 / 2), so what is measured is the engine: calls, bytes, sockets, and the memory that owners in other processes
write to disk after every exchange. Seconds per exchange are the median; the engines take turns in one run. `start-up`
is the time from opening the engine to the first reply, for Ray with starting Ray. Flower's SuperLink and sites (TLS,
registered keys, a process each) are started before and stay up, as they do between organisations; how long that took
is said below the table.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

# One thread on every engine, as Ray's actors have it. Before anything imports numpy.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import fedpact as fp
from fedpact.cli.bench_output import show
from fedpact.engines import InProcess, Ray
from fedpact.federation import Fleet
from fedpact.solvers.judging import At, judge

ENGINES = ("in-process", "threads", "ray", "flower")
HEADER = ("owners", "d", "engine", "s / exchange", "ratio", "slowest", "start-up, s", "MB / exchange")
#: Where the deployment on the loopback interface lives.
FLOWER = Path(__file__).parents[1] / "examples" / "flower"


class Engine(Protocol):
    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet: ...


@dataclass(frozen=True)
class Row:
    """seconds and slowest: median and maximum over the exchanges; bytes: of content, both ways, all owners."""

    owners: int
    dim: int
    engine: str
    start: float
    seconds: float
    slowest: float
    bytes: int


def names(owners: int) -> list[str]:
    return [f"owner {i}" for i in range(1, owners + 1)]


def half_square(w: np.ndarray) -> tuple[float, np.ndarray]:
    return 0.5 * float(w @ w), w


def share(dim: int) -> fp.Share:
    """What every owner holds: an objective whose gradient has d numbers and costs nothing."""
    return fp.Share(fp.functions.Smooth(half_square, dim=dim))


def measured(name: str, engine: Engine, owners: int, dim: int, rounds: int) -> Row:
    """Open the engine and ask all owners for the terms of a certificate, again and again."""
    w = np.random.default_rng(0).normal(size=dim)
    seconds = []
    began = time.perf_counter()
    with engine.open(dict.fromkeys(names(owners), share(dim))) as fleet:
        fleet.ask(judge, At(w=w))
        start, sent = time.perf_counter() - began, fleet.ledger.bytes
        for _ in range(rounds):
            before = time.perf_counter()
            fleet.ask(judge, At(w=w))
            seconds.append(time.perf_counter() - before)
        sent = fleet.ledger.bytes - sent
    return Row(owners, dim, name, start, float(np.median(seconds)), max(seconds), sent // rounds)


# -------------------------------------------------------------------------------------------------------------- Flower


def missing_for_flower() -> str:
    """Why Flower cannot be measured here; empty when it can."""
    if importlib.util.find_spec("flwr") is None:
        return "the package flwr is not installed; pip install 'fedpact[flower]'"
    if not (FLOWER / "deployment.py").exists():
        return "there is no examples/flower/deployment.py beside this program"
    return ""


APP = """[project]
name = "fedpact-engines"
version = "0.1.0"
description = "exchanges of fedpact on Flower, timed"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "fedpact"
[tool.flwr.app.components]
serverapp = "engines_flower:server_app"
clientapp = "engines_flower:client_app"
[tool.flwr.app.config]
owners = 0
dims = ""
rounds = 0
output = ""
"""


def flower_rows(owners: int, dims: Sequence[int], rounds: int, say: Callable[[str], None]) -> list[Row]:
    """A deployment with this many sites; one run of `engines_flower` measures all dimensions and writes down rows."""
    sys.path.insert(0, str(FLOWER))
    from deployment import Deployment
    from engines_flower import read_rows

    with tempfile.TemporaryDirectory(prefix="fedpact-engines-") as scratch:
        folder = Path(scratch)
        (folder / "app").mkdir()
        (folder / "app" / "pyproject.toml").write_text(APP)
        began = time.perf_counter()
        with Deployment(folder / "deployment", {"PYTHONPATH": str(Path(__file__).parent)}) as deployment:
            deployment.start_superlink()
            for name in names(owners):
                deployment.register(name)
                deployment.start_site(name, {"state-path": str(folder / name)}, client_app="engines_flower:client_app")
            sites = time.perf_counter() - began
            config = {"owners": owners, "dims": ",".join(map(str, dims)), "rounds": rounds, "output": str(folder)}
            with redirect_stdout(sys.stderr):
                run = deployment.run(folder / "app", config)
            if run.status != "finished:completed":
                raise RuntimeError(f"the run on Flower ended as {run.status}; its log is above")
            whole = time.perf_counter() - began - sites
            say(f"flower, {owners} owners: {sites:.0f} s for the SuperLink, keys and sites; {whole:.0f} s for the run")
            return read_rows(folder)


# --------------------------------------------------------------------------------------------------------------- table


def rows(
    engines: Sequence[str], owners: int, dims: Sequence[int], rounds: int, say: Callable[[str], None]
) -> Iterator[Row]:
    made: dict[str, Engine] = {"in-process": InProcess(), "threads": InProcess(threads=2), "ray": Ray()}
    if "ray" in engines and importlib.util.find_spec("ray") is None:
        say("ray: not measured (the package ray is not installed; pip install 'fedpact[ray]')")
        engines = [name for name in engines if name != "ray"]
    flower: list[Row] = []
    if "flower" in engines:
        if why := missing_for_flower():
            say(f"flower: not measured ({why})")
        else:
            flower = flower_rows(owners, dims, rounds, say)
    for dim in dims:
        for name in ENGINES[:3]:
            if name in engines or name == "in-process":  # the others are compared with it
                yield measured(name, made[name], owners, dim, rounds)
        yield from (row for row in flower if row.dim == dim)


def cells(row: Row, plain: Row) -> tuple[str, ...]:
    return (
        str(row.owners),
        f"{row.dim:,}",
        row.engine,
        f"{row.seconds:.2g}" if row.seconds < 10 else f"{row.seconds:.1f}",
        f"{row.seconds / plain.seconds:.3g}",
        f"{row.slowest:.2g}",
        f"{row.start:.2g}",
        f"{row.bytes / 1e6:.3g}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES, default=list(ENGINES), help="which; in-process always comes along"
    )
    parser.add_argument("--owners", nargs="+", type=int, default=[3, 20], metavar="N", help="how many (default 3 20)")
    parser.add_argument(
        "--dims",
        nargs="+",
        type=int,
        default=[100, 100_000],
        metavar="D",
        help="numbers in a message (default 100 100000)",
    )
    parser.add_argument("--rounds", type=int, default=30, help="exchanges of which the median is taken (default 30)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args()
    if min([options.rounds, *options.owners, *options.dims]) < 1:
        parser.error("rounds, owners and dims are whole numbers of at least 1")
    said: dict[str, Any] = {}
    lines = []
    for owners in options.owners:
        plain: dict[int, Row] = {}
        for row in rows(options.engines, owners, options.dims, options.rounds, lambda text: said.setdefault(text)):
            plain.setdefault(row.dim, row)
            lines.append(cells(row, plain[row.dim]))
            print(f"measured: {row}", file=sys.stderr, flush=True)
    show(HEADER, lines, options.markdown, text=["engine"])
    print(f"\n{os.cpu_count()} cores, Python {sys.version.split()[0]}, median of {options.rounds} exchanges")
    for text in said:
        print(f"- {text}")


if __name__ == "__main__":
    main()
