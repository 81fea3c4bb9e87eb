"""Asynchronous fair-vfl on a real Ray: a slow party holds up nobody, and whatever is killed, the run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow_parties import BEHIND, CUTS, Mortal, Noted, count, problem

import fedpact as fp
from fedpact.engines import Ray

pytest.importorskip("ray", reason="the package ray is not installed; pip install '.[ray]'")
pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray")]  # one cluster, on one worker

TOL = 5e-3


def assert_reached(found: fp.Solution) -> None:
    """Solved, and certified by other code on pooled columns, with the pooled optimum."""
    asked = problem()
    assert found.solved, found.reason
    again = fp.certify(asked.pooled(), found.w, [found.multipliers[0], np.zeros(0)])
    for name in ("stationarity", "feasibility", "violation"):
        assert getattr(found.certificate, name) == pytest.approx(getattr(again, name), rel=1e-9, abs=1e-13), name
    theirs = fp.solve(asked.pooled(), "interior-point", tol=1e-8)
    assert found.objective == pytest.approx(theirs.objective, abs=1e-2)


def test_a_party_ten_times_slower_does_not_slow_the_steps_of_the_server(ray_actors: Any, tmp_path: Path) -> None:
    """At each of its orders the slow party waits for ten of another: in rounds the first of them would never end.

    A server that waits for all takes one step an order of the slowest party; this one has to take at least 3.
    """
    noted = {name: Noted(0.1, tmp_path, name, awaits="bank" if name == "shop" else "") for name in CUTS}
    steps: list[int] = []
    orders: list[int] = []

    def watch(progress: Any) -> None:
        steps.append(progress.iteration)
        orders.append(count(tmp_path, "shop"))
        if progress.rounds > 6 * BEHIND:
            (tmp_path / "over").touch()

    options: dict[str, Any] = {"tol": 1e-9, "max_rounds": 6 * BEHIND + 12, "secure_sum": False}
    fp.solve(problem(noted), "fair-vfl", asynchronous=True, engine=ray_actors, callbacks=[watch], **options)
    until = next(k for k, step in enumerate(steps) if step > 5 * BEHIND)
    assert steps[until] >= 3 * orders[until] > 0


def test_a_party_that_is_killed_at_work_returns_and_goes_on(ray_cluster: str, tmp_path: Path) -> None:
    """Kill -9 inside a step: Ray starts the process again, and its state is on its disk."""
    mortal = {"clinic": Mortal(0.1, tmp_path, "clinic", at=20)}
    options: dict[str, Any] = {"engine": Ray(actors=3), "checkpoint": tmp_path / "kept", "retries": 20}
    found = fp.solve(problem(mortal), "fair-vfl", asynchronous=True, tol=TOL, **options)
    assert count(tmp_path, "clinic") > 20
    assert_reached(found)


def coordinate(address: str, folder: str) -> None:
    """A coordinator in a process of its own: it says when an exchange is over."""

    def tell(progress: Any) -> None:
        print(progress.rounds, flush=True)

    engine = Ray(address=address, actors=3)
    fp.solve(problem(), "fair-vfl", asynchronous=True, tol=TOL, engine=engine, checkpoint=folder, callbacks=[tell])


def test_a_coordinator_that_is_killed_is_resumed_by_another_process(ray_cluster: str, tmp_path: Path) -> None:
    here = Path(__file__).parent
    folder = tmp_path / "run"
    code = f"import sys, {Path(__file__).stem} as t; t.coordinate(sys.argv[1], sys.argv[2])"
    path = os.pathsep.join([str(here), str(here.parent), *sys.path])
    command = [sys.executable, "-c", code, ray_cluster, str(folder)]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(
        command, stdout=pipe, stderr=nowhere, text=True, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
    ) as first:
        assert first.stdout is not None
        for line in first.stdout:
            if int(line) > 30:  # it goes on meanwhile: the signal comes wherever it is
                first.kill()
    assert first.returncode == -signal.SIGKILL
    assert json.loads((folder / "checkpoint.json").read_text())["rounds"] > 30
    found = fp.solve(
        problem(), "fair-vfl", asynchronous=True, tol=TOL, engine=Ray(actors=3), checkpoint=folder, resume=True
    )
    assert_reached(found)
