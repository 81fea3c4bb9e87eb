"""How long the command line takes to say what it can do, beside the libraries it cannot do without.

    python benchmarks/startup.py              5 runs of each, one after the other in turns
    python benchmarks/startup.py --runs 20

Medians of the clock and of CPU time (which other programs on the machine disturb less), and their ratios to the first
line. The first run of each compiles what it imports, for all of them into one temporary folder, and does not count.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

COMMANDS = {
    "import numpy, scipy.optimize": ["-c", "import numpy, scipy.optimize"],
    "import fedpact": ["-c", "import fedpact"],
    "fedpact --help": ["-c", "from fedpact.cli.main import main; main()", "--help"],  # what the script `fedpact` does
}


def run(arguments: list[str], compiled: str) -> tuple[float, float]:
    """Seconds by the clock, and of CPU."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": compiled}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    clock, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = max(parser.parse_args().runs, 1)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as compiled:
        for _ in range(runs + 1):
            for name, arguments in COMMANDS.items():
                times[name].append(run(arguments, compiled))
    medians = {
        name: [statistics.median(kind) for kind in zip(*found[1:], strict=True)] for name, found in times.items()
    }
    first = next(iter(medians.values()))
    print(f"{'':30} {'s':>7} {'ratio':>6} {'CPU s':>7} {'ratio':>6}")
    for name, (clock, cpu) in medians.items():
        print(f"{name:30} {clock:7.3f} {clock / first[0]:6.2f} {cpu:7.3f} {cpu / first[1]:6.2f}")


if __name__ == "__main__":
    main()
