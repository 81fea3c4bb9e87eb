"""Methods of the user's own on Ray: their steps reach the actors, and give the bits of the in-process engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact.functions import Quadratic

ray = pytest.importorskip("ray", reason="the package ray is not installed; pip install '.[ray]'")
pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray")]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-solver.md"

#: Gradient descent with a momentum that every owner keeps; annotations are text, as in most modules.
MOMENTUM = """
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpact.federation import Order, Summed, client_step
from fedpact.problem import Share
from fedpact.solvers import Iterate, Judged, Run, Solver, certificate_of, judged_terms
from fedpact.types import Vector


@dataclass(frozen=True)
class Memory:
    momentum: Vector
    rounds: int


@dataclass(frozen=True, kw_only=True)
class Round(Order):
    w: Vector


@dataclass(frozen=True, kw_only=True)
class Moved(Judged):
    direction: Summed[Vector]


@client_step
def move(share: Share, state: Memory | None, order: Round) -> tuple[Memory, Moved]:
    before = Memory(np.zeros_like(order.w), 0) if state is None else state
    terms = judged_terms(share, order.w, np.zeros(0), np.zeros(0))
    momentum = 0.5 * before.momentum - 0.1 * terms["gradient"]
    return Memory(momentum, before.rounds + 1), Moved(direction=momentum, **terms)


@dataclass(frozen=True, kw_only=True)
class Momentum(Solver[list[Any]]):
    name = "momentum"

    def init(self, run: Run) -> tuple[list[Any], Iterate]:
        return [run.start, 0], Iterate(number=0, w=run.start)

    def step(self, run: Run, state: list[Any]) -> Iterate:
        w, k = state
        replies = run.ask(move, Round(w=w))
        state[:] = [w + replies.total.direction, k + 1]
        return Iterate(number=k + 1, w=w, judged=certificate_of(run.problem, w, np.zeros(0), replies))
"""


def problem() -> fp.FederatedProblem:
    shares = [fp.Share(Quadratic(np.diag([1.0, i + 1.0]), [1.0 - i, 2.0])) for i in range(3)]
    return fp.FederatedProblem(shares)


def assert_same(found: fp.Solution, expected: fp.Solution) -> None:
    assert (found.status, found.reason, found.rounds) == (expected.status, expected.reason, expected.rounds)
    assert found.w.tobytes() == expected.w.tobytes()
    assert found.certificate == expected.certificate


def run_page() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": PAGE.stem}
    for code in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE):
        run_cell(code, names)
    return names


def run_cell(code: str, names: dict[str, Any]) -> None:
    """As a notebook would: annotations are not text, as they are in this file."""
    exec(compile(code, "cell", "exec", dont_inherit=True), names)


def test_the_method_of_the_page_gives_the_same_bits(ray_actors: Any) -> None:
    names = run_page()
    found = fp.solve(names["problem"], names["FedAdam"](), tol=1e-4, engine=ray_actors)
    assert found.solved
    assert_same(found, names["answer"])


def test_a_step_that_is_defined_anew_is_taken_anew(ray_actors: Any) -> None:
    """As in a notebook: the actors have the old one under the same name."""
    answers = []
    for factor in ("0.1", "0.05"):
        names: dict[str, Any] = {"__name__": "cell"}
        code = MOMENTUM.replace("from __future__ import annotations\n", "").replace("0.1 * terms", f"{factor} * terms")
        run_cell(code, names)
        found, expected = (
            fp.solve(problem(), names["Momentum"](), max_rounds=20, tol=1e-9, engine=engine)
            for engine in (ray_actors, None)
        )
        assert_same(found, expected)
        answers.append(found.w)
    assert not np.array_equal(*answers)


SCRIPT = (
    MOMENTUM
    + '''

import os
import signal
import sys

import ray

import fedpact as fp
from fedpact.functions import Quadratic


class Watched:
    """The Ray engine, and its last fleet."""

    def open(self, shares, folder=None):
        self.fleet = fp.engines.Ray(address=sys.argv[1], actors=2, folder=sys.argv[2]).open(shares, folder)
        return self.fleet

    def kill_once(self, progress):
        if progress.iteration == 5 and not killed:
            killed.append(ray.get(self.fleet._host_of["client 2"].process.remote()))
            os.kill(killed[0], signal.SIGKILL)


killed = []
engine = Watched()
shares = [fp.Share(Quadratic(np.diag([1.0, i + 1.0]), [1.0 - i, 2.0])) for i in range(3)]
problem = fp.FederatedProblem(shares)
options = {"max_rounds": 20, "tol": 1e-9}
here = fp.solve(problem, Momentum(), **options)
there = fp.solve(problem, Momentum(), engine=engine, callbacks=[engine.kill_once], **options)
assert len(killed) == 1
assert here.w.tobytes() == there.w.tobytes()
print(here.status, there.status, there.rounds)
'''
)


def test_a_script_s_own_states_survive_the_death_of_an_actor(ray_cluster: str, tmp_path: Path) -> None:
    """Classes of a script are no module's elsewhere: states are read by the types that the brought step names."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), ray_cluster, str(tmp_path / "owners")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "max_rounds max_rounds 18"


def test_a_module_that_the_nodes_do_not_have_is_named(
    ray_actors: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text(MOMENTUM)
    monkeypatch.syspath_prepend(tmp_path)
    import only_here

    with raises_code("FP-OWNER-351", "client 1: ", "the step only_here:move", "install"):
        fp.solve(problem(), only_here.Momentum(), max_rounds=20, engine=ray_actors)
