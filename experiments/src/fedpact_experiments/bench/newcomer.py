"""`fedpact bench newcomer`: install into an empty environment, write the example, run it, make its report; timed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

#: The clone of the repository, which holds both packages.
ROOT = Path(__file__).resolve().parents[4]


@click.command()
def newcomer() -> None:
    """A newcomer's path, timed: install into an empty environment, write the example, run it, make its report.

    Uses the registry that pip is set up for, and nothing else.
    """
    with tempfile.TemporaryDirectory(prefix="fedpact-newcomer-") as made:
        folder = Path(made)
        programs = folder / "venv" / "bin"
        hospitals = folder / "hospitals"
        fedpact = str(programs / "fedpact")
        steps = {
            "make an environment": [sys.executable, "-m", "venv", str(folder / "venv")],
            "install": [str(programs / "pip"), "install", "-q", str(ROOT)],
            "fedpact init": [fedpact, "init", str(hospitals)],
            "fedpact run": [fedpact, "run", str(hospitals / "job.toml")],
            "fedpact report": [fedpact, "report", str(hospitals / "run")],
        }
        total = 0.0
        for name, command in steps.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
            seconds = time.perf_counter() - began
            total += seconds
            click.echo(f"{name:20} {seconds:6.1f} s")
        page = hospitals / "run" / "report.html"
        click.echo(f"{'all':20} {total:6.1f} s, and a page of {page.stat().st_size / 1000:.0f} kB")
