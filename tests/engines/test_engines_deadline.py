"""Deadlines in the in-process engine: a step that hangs ends the solve, and nothing waits for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from marks import slow_but

import fedpact as fp
from fedpact.cones import Nonnegative
from fedpact.engines import InProcess
from fedpact.federation import Order, Reply, Session
from fedpact.functions import Affine


@dataclass(frozen=True, kw_only=True)
class Done(Reply):
    name: str
    w: np.ndarray


def hospitals(gate: threading.Event, hanging: threading.Event | None = None) -> fp.FederatedProblem:
    """Three owners; the function of the second waits at the gate from its sixth call on, and says so."""
    calls: list[int] = []
    says = hanging or threading.Event()

    def slow(w: np.ndarray) -> tuple[float, np.ndarray]:
        calls.append(1)
        if len(calls) > 5:
            says.set()
            gate.wait()
        return 0.5 * float(w @ w) - w[0], w - np.array([1.0, 0.0])

    square = fp.functions.Quadratic(np.eye(2), [-1.0, 2.0])
    smooth = fp.functions.Smooth(slow, lambda w: np.eye(2), dim=2)
    limit = fp.Constraint(Affine([[1.0, -1.0]], [-0.5]), Nonnegative(1))
    shares = [fp.Share(square, limit, name="a"), fp.Share(smooth, name="b"), fp.Share(square, name="c")]
    return fp.FederatedProblem(shares)


def passable() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Once this is set and one owner is left at work the deadline passes, and not before, however slow the machine."""
    event = threading.Event()

    def wait_for_event(futures: Iterable[Future[Any]], timeout: float | None = None) -> None:
        waiting = set(futures)
        while waiting and not (event.is_set() and len(waiting) == 1 and timeout is not None):
            waiting = wait(waiting, 0.05).not_done

    for module in ("fedpact.federation.session", "fedpact.engines.in_process"):
        monkeypatch.setattr(f"{module}.wait", wait_for_event)
    return event


@pytest.mark.parametrize("method", slow_but(["interior-point", "accelerated", "proximal-al"], "accelerated"))
@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_that_hangs_ends_at_the_deadline_with_its_owners_name(
    threads: int, method: str, tmp_path: Path, hanging: threading.Event
) -> None:
    released = threading.Event()
    try:
        found = fp.solve(
            hospitals(released, hanging),
            method,
            engine=InProcess(threads),
            deadline=3.0,
            on_failure="stop",
            tol=1e-9,
            checkpoint=tmp_path,
        )
    finally:
        released.set()
    assert found.status == "client_lost"
    assert re.match(r"b: no reply to round \d+ within 3 s; the run is kept in", found.reason)
    again = fp.solve(hospitals(passable()), method, tol=1e-9, checkpoint=tmp_path, resume=True)
    expected = fp.solve(hospitals(passable()), method, tol=1e-9)
    assert again.w.tobytes() == expected.w.tobytes()
    assert again.rounds == expected.rounds


def test_a_late_step_is_not_done_twice() -> None:
    """It is asked for again while it is at work, and answers both times with the one result."""
    began, released = threading.Event(), threading.Event()

    def late(share: Any, state: int | None, order: Order) -> tuple[int, Done]:
        if share == "b" and order.round == 1:
            began.set()
            released.wait()
        return (state or 0) + 1, Done(name=share, w=np.array([float((state or 0) + 1)]))

    def release() -> None:
        """Once the order was sent again."""
        began.wait()
        while session.ledger.read().owners["b"].messages_down < 2:
            time.sleep(0.01)
        released.set()

    with Session(deadline=0.2, retries=10**6) as session:
        session.open({"a": "a", "b": "b"})
        threading.Thread(target=release, daemon=True).start()
        first = session.ask(late, Order())
        second = session.ask(late, Order())
    assert [reply.w.tolist() for reply in first] == [[1.0], [1.0]]
    assert [reply.w.tolist() for reply in second] == [[2.0], [2.0]]
    assert session.ledger.read().owners["b"].messages_down > 2


@pytest.mark.parametrize("threads", [1, 3])
def test_a_deadline_that_is_kept_changes_no_bit(threads: int) -> None:
    expected = fp.solve(hospitals(passable()), "proximal-al", tol=1e-4)
    found = fp.solve(hospitals(passable()), "proximal-al", tol=1e-4, deadline=300.0, engine=InProcess(threads))
    assert found.w.tobytes() == expected.w.tobytes()
    assert found.communication == expected.communication


HANGING = """
import threading
import fedpact as fp
from fedpact.engines import InProcess
from test_engines_deadline import hospitals

for threads in (1, 2):
    print(fp.solve(hospitals(threading.Event()), "accelerated", engine=InProcess(threads), deadline=3.0,
                   on_failure="stop").status, flush=True)
"""


@pytest.mark.slow
def test_a_process_with_a_hanging_step_can_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["client_lost", "client_lost"]), done.stderr
