"""`fedpact bench engines`: what an engine costs, in seconds per exchange, with the in-process loop as 1."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

import fedpact as fp
from fedpact.engines import InProcess, Ray
from fedpact.errors import install
from fedpact.federation import Engine, Session
from fedpact.functions import Vector
from fedpact.solvers.steps import At, judge
from fedpact_experiments.bench.output import MARKDOWN
from fedpact_experiments.options import COUNT, among, several
from fedpact_experiments.tables import show_rows

ENGINES = ("in-process", "threads", "ray", "flower")
#: Where the deployment on the loopback interface lives, in the clone of the repository.
FLOWER = Path(__file__).parents[4] / "examples" / "flower"


@dataclass(frozen=True)
class Exchanged:
    """The time of an exchange.

    start:   seconds until the first reply
    seconds: median over the exchanges
    slowest: maximum over the exchanges
    bytes:   content per exchange, both ways, all owners
    """

    owners: int
    dim: int
    engine: str
    start: float
    seconds: float
    slowest: float
    bytes: int

    def cells(self, plain: Exchanged) -> dict[str, str]:
        """A row of the table. plain: the same exchange in process"""
        return {
            "owners": str(self.owners),
            "d": f"{self.dim:,}",
            "engine": self.engine,
            "s / exchange": f"{self.seconds:.2g}" if self.seconds < 10 else f"{self.seconds:.1f}",
            "ratio": f"{self.seconds / plain.seconds:.3g}",
            "slowest": f"{self.slowest:.2g}",
            "start-up, s": f"{self.start:.2g}",
            "MB / exchange": f"{self.bytes / 1e6:.3g}",
        }


def names(owners: int) -> list[str]:
    return [f"owner {i}" for i in range(1, owners + 1)]


def half_square(w: Vector) -> tuple[float, Vector]:
    return 0.5 * float(w @ w), w


def share(dim: int) -> fp.Share:
    """What every owner holds: an objective whose gradient has d numbers and costs nothing."""
    return fp.Share(fp.functions.Smooth(half_square, dim=dim))


@dataclass(frozen=True)
class Size:
    """What sites need to build their share."""

    dim: int

    def stated(self) -> dict[str, int]:
        return {"dim": self.dim}


def measure_engine(name: str, engine: Engine, owners: int, dim: int, rounds: int) -> Exchanged:
    """Open the engine and time exchanges in which every owner returns its terms of a certificate."""
    w = np.random.default_rng(0).normal(size=dim)
    seconds = []
    began = time.perf_counter()
    with Session(engine) as session:
        session.open(dict.fromkeys(names(owners), share(dim)))
        session.pose(Size(dim))
        session.ask(judge, At(w=w))
        start = time.perf_counter() - began
        sent = session.ledger.bytes
        for _ in range(rounds):
            before = time.perf_counter()
            session.ask(judge, At(w=w))
            seconds.append(time.perf_counter() - before)
        sent = session.ledger.bytes - sent
    return Exchanged(owners, dim, name, start, float(np.median(seconds)), max(seconds), sent // rounds)


# -------------------------------------------------------------------------------------------------------------- Flower


def _missing_for_ray() -> str:
    """Why Ray cannot be measured here; empty when it can."""
    if importlib.util.find_spec("ray") is None:
        return f"the package ray is not installed; {install('ray')}"
    return ""


def _missing_for_flower() -> str:
    """Why Flower cannot be measured here; empty when it can."""
    if importlib.util.find_spec("flwr") is None:
        return f"the package flwr is not installed; {install('flower')}"
    if not (FLOWER / "deployment.py").exists():
        return "there is no examples/flower/deployment.py; it is in a clone of the repository"
    return ""


CLIENT_APP = "fedpact_experiments.bench.engines_flower:client_app"
APP = """[project]
name = "fedpact-engines"
version = "0.1.0"
description = "exchanges of fedpact on Flower, timed"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "fedpact"
[tool.flwr.app.components]
serverapp = "fedpact_experiments.bench.engines_flower:server_app"
clientapp = "fedpact_experiments.bench.engines_flower:client_app"
[tool.flwr.app.config]
owners = 0
dims = ""
rounds = 0
output = ""
"""


def _flower_rows(owners: int, dims: Sequence[int], rounds: int, say: Callable[[str], None]) -> list[Exchanged]:
    """A deployment with this many sites; one run of `engines_flower` measures all dimensions and writes down rows."""
    sys.path.insert(0, str(FLOWER))
    from deployment import Deployment  # type: ignore[import-not-found]  # in the folder of the example

    from fedpact_experiments.bench.engines_flower import read_rows

    with tempfile.TemporaryDirectory(prefix="fedpact-engines-") as scratch:
        folder = Path(scratch)
        (folder / "app").mkdir()
        (folder / "app" / "pyproject.toml").write_text(APP)
        began = time.perf_counter()
        with Deployment(folder / "deployment") as deployment:
            deployment.start_superlink()
            for name in names(owners):
                deployment.register(name)
                deployment.start_site(name, {"state-path": str(folder / name)}, client_app=CLIENT_APP)
            sites = time.perf_counter() - began
            config = {"owners": owners, "dims": ",".join(map(str, dims)), "rounds": rounds, "output": str(folder)}
            with redirect_stdout(sys.stderr):
                run = deployment.run(folder / "app", config)
            if run.status != "finished:completed":
                raise RuntimeError(f"the run on Flower ended as {run.status}; its log is above")
            whole = time.perf_counter() - began - sites
            say(f"flower, {owners} owners: {sites:.0f} s for the SuperLink, keys and sites; {whole:.0f} s for the run")
            return read_rows(folder)


# --------------------------------------------------------------------------------------------------------- the command


@click.command()
@among("--engines", ENGINES, of="In-process always comes along. ")
@several("--owners", COUNT, [3, 20], "Numbers of owners.")
@several("--dims", COUNT, [100, 100_000], "Numbers in a message.")
@click.option("--rounds", type=COUNT, default=30, show_default=True, help="Exchanges of which the median is taken.")
@MARKDOWN
def engines(engines: Sequence[str], owners: Sequence[int], dims: Sequence[int], rounds: int, markdown: bool) -> None:
    """What an engine costs: seconds per exchange by engine, with the in-process loop as 1.

    An exchange brings d numbers to every owner and d numbers back. The owner's work is next to nothing (the gradient of
    |w|^2 / 2), so what is measured is the engine: calls, bytes, sockets, and the memory that owners in other processes
    write to disk after every exchange. Seconds per exchange are the median; the engines take turns in one run.
    `start-up` is the time from opening the engine to the first reply, for Ray with starting Ray. Flower's SuperLink and
    sites (TLS, registered keys, a process each) are started before and stay up, as they do between organisations; how
    long that took is said below the table.

    \b
    fedpact bench engines                                    in process, threads, Ray, Flower: ten minutes
    fedpact bench engines --engines ray --owners 3 --dims 100 --rounds 200
    """
    missing = {"ray": _missing_for_ray(), "flower": _missing_for_flower()}
    notes = [f"{name}: not measured ({why})" for name, why in missing.items() if why and name in engines]
    asked = [name for name in ENGINES if name in engines and not missing.get(name)]
    local: dict[str, Engine] = {"in-process": InProcess(), "threads": InProcess(threads=2), "ray": Ray()}
    table = []
    for n in owners:
        on_flower = _flower_rows(n, dims, rounds, notes.append) if "flower" in asked else []
        for dim in dims:
            plain = measure_engine("in-process", local["in-process"], n, dim, rounds)
            others = [measure_engine(name, local[name], n, dim, rounds) for name in asked if name in ("threads", "ray")]
            for row in [plain, *others, *(row for row in on_flower if row.dim == dim)]:
                click.echo(f"measured: {row}", err=True)
                table.append(row.cells(plain))
    show_rows(table, markdown, text=("engine",))
    notes.append(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, median of {rounds} exchanges")
    for note in notes:
        click.echo(f"- {note}")
