"""The benchopt suite runs without a network, on its smallest setting."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("benchopt", reason="the package benchopt is not installed; pip install './experiments[benchopt]'")
pytestmark = pytest.mark.slow

SUITE = Path(__file__).parents[2] / "experiments" / "benchopt"


def test_a_curve_over_exchanges_for_every_method(tmp_path: Path) -> None:
    import pyarrow.compute as compute
    from pyarrow import parquet

    suite = tmp_path / "suite"
    shutil.copytree(SUITE, suite, ignore=shutil.ignore_patterns("__*", "outputs"))
    methods = ("interior-point", "fedsgm")
    chosen = [word for method in methods for word in ("-s", f"federated[method={method}]")]
    command = [
        sys.executable,
        "-m",
        "benchopt",
        "run",
        str(suite),
        "-d",
        "problems[problem=synthetic,owners=5]",
        *chosen,
    ]
    command += ["-r", "1", "-n", "30", "--no-plot", "--no-display", "--output", "smallest"]
    environment = os.environ | {"HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = parquet.read_table(suite / "outputs" / "smallest.parquet")
    lowest = {}
    for method in methods:
        own = rows.filter(compute.equal(rows["p_solver_method"], method))
        exchanges = own["objective_exchanges"].to_pylist()
        assert exchanges == sorted(exchanges)
        assert exchanges[0] == 0
        lowest[method] = min(own["objective_value"].to_pylist())
    assert lowest["interior-point"] < 1e-6 < lowest["fedsgm"]
