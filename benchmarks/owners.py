"""How a solve grows with the number of owners, in process: time per exchange, time per owner, and memory.

    python benchmarks/owners.py                                       10, 100 and 1,000 owners: about five minutes
    python benchmarks/owners.py --owners 1000 5000 --methods interior-point
    python benchmarks/owners.py --markdown > table.md

Neyman-Pearson problems in which every owner has the same number of rows, so the work of an exchange is proportional to
the number of owners, and `ms / exchange and owner` stays what it is unless something grows faster. `growth` is that
column divided by its first value. It is CPU time, which other programs on the machine disturb less; `s / exchange` is
what the clock says. Each cell is a process of its own, so that its peak memory is its own; `without owners` is the peak
of a process that has only imported everything. A solve ends after --max-rounds exchanges, solved or not.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

# Before anything imports numpy.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import fedpact as fp
from fedpact import data, tasks
from fedpact.cli.bench_output import show

METHODS = ("interior-point", "accelerated")
BOUND = 0.3
#: Solves are repeated for this many seconds, and the fastest counts.
LEAST = 3.0
HEADER = (
    "method",
    "owners",
    "status",
    "exchanges",
    "s / exchange",
    "ms / exchange and owner",
    "growth",
    "MB / exchange",
    "peak MB",
    "without owners",
)


def peak() -> float:
    """Largest resident memory of this process so far, in MB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measure(method: str, owners: int, rows: int, dim: int, max_rounds: int) -> dict[str, object]:
    """One cell, in this process."""
    before = peak()
    problem = tasks.neyman_pearson(data.neyman_pearson(owners, rows, dim), BOUND)
    clock = cpu = float("inf")
    began = time.perf_counter()
    while True:
        at, spent = time.perf_counter(), time.process_time()
        answer = fp.solve(problem, method, max_rounds=max_rounds)
        clock, cpu = min(clock, time.perf_counter() - at), min(cpu, time.process_time() - spent)
        if time.perf_counter() - began > LEAST:
            break
    return {
        "status": answer.status,
        "rounds": answer.rounds,
        "clock": clock,
        "cpu": cpu,
        "bytes": answer.communication.bytes,
        "peak": peak(),
        "before": before,
    }


def measured_apart(method: str, owners: int, rows: int, dim: int, max_rounds: int) -> dict[str, object]:
    """One cell, in a process of its own."""
    arguments = ["--cell", method, str(owners), str(rows), str(dim), str(max_rounds)]
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def table(methods: Sequence[str], sizes: Sequence[int], rows: int, dim: int, max_rounds: int) -> list[tuple[str, ...]]:
    lines = []
    for method in methods:
        first = 0.0
        for owners in sizes:
            cell = measured_apart(method, owners, rows, dim, max_rounds)
            print(f"measured: {method}, {owners} owners: {cell}", file=sys.stderr, flush=True)
            each = cell["cpu"] / cell["rounds"] / owners
            first = first or each
            lines.append(
                (
                    method,
                    f"{owners:,}",
                    cell["status"],
                    str(cell["rounds"]),
                    f"{cell['clock'] / cell['rounds']:.2g}",
                    f"{1e3 * each:.3g}",
                    f"{each / first:.2f}",
                    f"{cell['bytes'] / cell['rounds'] / 1e6:.3g}",
                    f"{cell['peak']:.0f}",
                    f"{cell['before']:.0f}",
                )
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--owners", nargs="+", type=int, default=[10, 100, 1000], metavar="N", help="10 100 1000")
    parser.add_argument("--rows", type=int, default=100, help="of every owner (default 100)")
    parser.add_argument("--dim", type=int, default=11, help="length of w (default 11)")
    parser.add_argument("--max-rounds", type=int, default=40, help="exchanges after which a solve ends (default 40)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--cell", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        method, *numbers = options.cell
        print(json.dumps(measure(method, *map(int, numbers))))
        return
    if min([options.rows, options.dim, *options.owners]) < 1:
        parser.error("owners, rows and dim are whole numbers of at least 1")
    lines = table(options.methods, options.owners, options.rows, options.dim, options.max_rounds)
    show(HEADER, lines, options.markdown, text=["status"])
    print(f"\n{os.cpu_count()} cores, Python {sys.version.split()[0]}, {options.rows} rows an owner, d = {options.dim}")


if __name__ == "__main__":
    main()
