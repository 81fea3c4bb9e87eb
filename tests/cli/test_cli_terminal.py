"""A solve seen from outside: Ctrl-C, a pipe, a terminal. Each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys

PROBLEM = """
import json, sys, time
import numpy as np
import fedpact as fp
from fedpact.cones import Nonnegative
from fedpact.functions import Affine, Quadratic

limit = fp.Constraint(Affine([[1.0, 1.0]], [-1.0]), Nonnegative(1))
shares = [fp.Share(Quadratic(np.diag([1.0, c]), [-3.0, -c]), limit) for c in (1.0, 30.0, 900.0)]
problem = fp.FederatedProblem(shares)
"""

LONG = (
    PROBLEM
    + """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what was started in the background

def slowly(progress):
    time.sleep(0.005)
    if progress.rounds == 150:
        print("ready", flush=True)

answer = fp.solve(problem, "proximal-al", tol=1e-6, penalty=10.0, consensus_penalty=1e5, callbacks=[slowly])
again = fp.certify(problem, answer.w, answer.multipliers)
print(json.dumps([answer.status, answer.reason, len(answer.history.inner), again == answer.certificate, repr(answer)]))
"""
)

SHORT = PROBLEM + "answer = fp.solve(problem)\nprint(answer.status)\n"


def test_ctrl_c_gives_the_best_point_so_far() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=300)
    finally:
        child.kill()
    assert child.returncode == 0, err
    status, reason, rounds, same, text = json.loads(out)
    assert status == "interrupted"
    assert reason.startswith("interrupted after ")
    assert int(re.search(r"\d+", reason)[0]) >= 150
    assert rounds >= 140
    assert same
    assert text.startswith("Solution(interrupted, objective=")
    assert err == ""


def test_a_pipe_sees_no_progress() -> None:
    done = subprocess.run([sys.executable, "-c", SHORT], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "solved\n", "")


def test_a_terminal_sees_a_live_line() -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", SHORT],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
    )
    os.close(theirs)
    received = b""
    with contextlib.suppress(OSError):  # Linux tells the end of a pseudo terminal as an error
        while part := os.read(ours, 4096):
            received += part
    os.close(ours)
    out, _ = child.communicate(timeout=300)
    assert (child.returncode, out) == (0, b"solved\n")
    for word in (b"interior-point", b"Hessians exist", b"stationarity", b"feasibility", b"exchange", b"MB"):
        assert word in received
    assert received.rstrip().endswith(b"\x1b[2K")  # wiped at the end
