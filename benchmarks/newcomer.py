"""A newcomer's path, timed: install into an empty environment, write the example, run it, make its report.

    python benchmarks/newcomer.py

Uses the registry that pip is set up for, and nothing else.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fedpact-newcomer-") as made:
        folder = Path(made)
        fedpact = str(folder / "venv" / "bin" / "fedpact")
        steps = {
            "make an environment": [sys.executable, "-m", "venv", str(folder / "venv")],
            "install": [str(folder / "venv" / "bin" / "pip"), "install", "-q", str(ROOT)],
            "fedpact init": [fedpact, "init", str(folder / "hospitals")],
            "fedpact run": [fedpact, "run", str(folder / "hospitals" / "job.toml")],
            "fedpact report": [fedpact, "report", str(folder / "hospitals" / "run")],
        }
        total = 0.0
        for name, command in steps.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
            seconds = time.perf_counter() - began
            total += seconds
            print(f"{name:20} {seconds:6.1f} s", flush=True)
        page = folder / "hospitals" / "run" / "report.html"
        print(f"{'all':20} {total:6.1f} s, and a page of {page.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
