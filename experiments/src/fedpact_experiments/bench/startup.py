"""`fedpact bench startup`: how long the command line takes to say what it can do, beside what it cannot do without."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import click

from fedpact_experiments.options import COUNT

COMMANDS = {
    "import numpy, scipy.optimize": ["-c", "import numpy, scipy.optimize"],
    "import fedpact": ["-c", "import fedpact"],
    "fedpact --help": ["-c", "from fedpact.cli.main import main; main()", "--help"],  # what the script `fedpact` does
}


def _run(arguments: list[str], compiled: str) -> tuple[float, float]:
    """Seconds by the clock, and of CPU."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": compiled}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    clock = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@click.command()
@click.option("--runs", type=COUNT, default=5, show_default=True, help="Of each, one after the other in turns.")
def startup(runs: int) -> None:
    """How long the command line takes to say what it can do, beside the libraries it cannot do without.

    Medians of the clock and of CPU time (which other programs on the machine disturb less), and their ratios to the
    first line. The first run of each compiles what it imports, for all of them into one temporary folder, and does not
    count.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as compiled:
        for _ in range(runs + 1):
            for name, arguments in COMMANDS.items():
                times[name].append(_run(arguments, compiled))
    click.echo(f"{'':30} {'s':>7} {'ratio':>6} {'CPU s':>7} {'ratio':>6}")
    first = None
    for name, found in times.items():
        clock, cpu = (statistics.median(kind) for kind in zip(*found[1:], strict=True))
        first = first or (clock, cpu)
        click.echo(f"{name:30} {clock:7.3f} {clock / first[0]:6.2f} {cpu:7.3f} {cpu / first[1]:6.2f}")
