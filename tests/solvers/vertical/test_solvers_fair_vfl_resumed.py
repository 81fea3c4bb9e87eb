"""Asynchronous fair-vfl stopped, killed or left by a party, and resumed: the same so far, then within tolerance."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vertical_cases import Door, assert_certified, assert_same_run, gone, pooled, small, stop_at

import fedpact as fp
from fedpact.solvers.vertical.shared import Conclude

TOL = 5e-3


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is killed here is a process, not the machine."""
    monkeypatch.setattr("os.fsync", lambda file: None)


def problem() -> fp.VerticalProblem:
    return small(1, regularizer=fp.prox.SquaredL2(0.1))


def solve(**options: Any) -> fp.Solution:
    return fp.solve(problem(), "fair-vfl", asynchronous=True, tol=TOL, **options)


def assert_reached(found: fp.Solution) -> None:
    assert found.solved, found.reason
    assert_certified(problem(), found)
    assert found.objective == pytest.approx(pooled(problem()).objective, abs=1e-2)


def judged(found: fp.Solution) -> list[tuple[int, str, str, int]]:
    """What was judged on the way; exchanges too, as they say who answered together."""
    return [(r.iteration, r.objective.hex(), r.stationarity.hex(), r.rounds) for r in found.history.outer]


def mixed(seed: int) -> Door:
    """Parties in threads, each order late by a random time: who answers first is anybody's guess."""
    rng, lock = np.random.default_rng(seed), threading.Lock()

    def delay(owner: str, order: Any) -> float:
        with lock:
            return float(rng.uniform(0, 0.002))

    return Door(delay, threads=3)


@pytest.mark.parametrize("at", [0, 7, 30])
def test_where_all_answer_at_once_a_resumed_run_is_the_uninterrupted_one(at: int, tmp_path: Path) -> None:
    expected = solve()
    stopped = solve(checkpoint=tmp_path, callbacks=[stop_at(at)])
    assert stopped.status == "interrupted"
    assert_certified(problem(), stopped)
    assert_same_run(solve(checkpoint=tmp_path, resume=True), expected, traffic=False)


@pytest.mark.parametrize("at", [11, 60])
def test_whoever_was_first_is_first_again_after_ctrl_c(at: int, tmp_path: Path) -> None:
    seen: list[Any] = []
    stopped = solve(engine=mixed(0), checkpoint=tmp_path, callbacks=[seen.append, stop_at(at)])
    assert stopped.status == "interrupted"
    assert_certified(problem(), stopped)
    again: list[Any] = []
    found = solve(engine=mixed(5), checkpoint=tmp_path, resume=True, callbacks=[again.append])
    before = [(p.iteration, p.rounds, p.objective.hex(), p.stationarity.hex()) for p in seen]
    after = [(p.iteration, p.rounds, p.objective.hex(), p.stationarity.hex()) for p in again]
    assert after[: len(before)] == before
    assert judged(found)[: len(stopped.history.outer)] == judged(stopped)
    assert len(again) > len(seen)
    assert_reached(found)


def test_a_run_that_was_over_is_repeated_to_the_same_bits(tmp_path: Path) -> None:
    expected = solve(engine=mixed(0), checkpoint=tmp_path)
    assert_reached(expected)
    door = mixed(1)
    assert_same_run(solve(engine=door, checkpoint=tmp_path, resume=True), expected)
    assert not any(getattr(order, "move", False) for _, order, _ in door.sent)


def test_a_party_that_stays_away_is_waited_for_by_the_next_run(tmp_path: Path) -> None:
    lost = solve(engine=Door(gone("shop", 30)), checkpoint=tmp_path, retries=1)
    assert lost.status == "client_lost"
    assert "shop" in lost.reason
    assert str(tmp_path) in lost.reason
    still = solve(engine=Door(gone("shop", 0)), checkpoint=tmp_path, resume=True, retries=0)
    assert still.status == "client_lost"
    assert_reached(solve(checkpoint=tmp_path, resume=True))


SCRIPT = """
import sys, time
from test_solvers_fair_vfl_resumed import mixed, solve

folder, wait_at = sys.argv[1], int(sys.argv[2])

def wait(progress):
    if wait_at and progress.rounds >= wait_at:
        print("waiting", flush=True)
        time.sleep(600)

found = solve(engine=mixed(3), checkpoint=folder, callbacks=[wait])
print(found.status, found.reason, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
def test_a_coordinator_that_is_ended_from_outside_is_resumed(number: signal.Signals, tmp_path: Path) -> None:
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), *sys.path])
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), "40"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, text=True, env={**os.environ, "PYTHONPATH": path}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        said = process.communicate(timeout=300)[0]
    if number == signal.SIGTERM:
        assert said.startswith("interrupted")
    else:
        assert process.returncode == -signal.SIGKILL
    seen: list[Any] = []
    found = solve(engine=mixed(4), checkpoint=tmp_path, resume=True, callbacks=[seen.append])
    assert seen[-1].rounds > 40
    assert_reached(found)


@pytest.mark.parametrize("what", ["interrupt", "order lost", "reply lost"])
def test_stopped_or_left_in_the_last_exchange(what: str, tmp_path: Path) -> None:
    """The last exchange is asked again, by the same run or the next: the same model either way."""
    expected = solve(checkpoint=tmp_path / "whole")
    faults = [what]

    def fault(owner: str, order: Any) -> str:
        if owner == "shop" and isinstance(order, Conclude) and faults:
            return faults.pop()
        return ""

    found = solve(engine=Door(fault), checkpoint=tmp_path / "kept", retries=0)
    if what == "interrupt":
        assert (found.w.tobytes(), found.certificate) == (expected.w.tobytes(), expected.certificate)
        assert found.solved
    else:
        assert found.status == "client_lost"
    assert not faults
    assert_same_run(solve(checkpoint=tmp_path / "kept", resume=True), expected, traffic=False)
