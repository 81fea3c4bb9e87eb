"""The Ray engine on a real Ray: the bits of the in-process engine, whatever is killed on the way.

What every engine promises is in tests/contracts. One Ray serves the whole session; a run that starts its own, and one
whose coordinator is killed, have their own process.
Bits are compared with one BLAS thread everywhere: conftest.py sets that for this process and its children, the engine
for its actors. Sums over many rows come out differently when BLAS splits them among threads.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting import count
from raising import raises_code

import fedpact as fp
from fedpact import data, tasks
from fedpact.cones import Nonnegative
from fedpact.engines import Ray
from fedpact.federation import Fleet, Order, read_record
from fedpact.functions import Affine, LogisticLoss, Quadratic, Smooth

ray = pytest.importorskip("ray", reason="the package ray is not installed; pip install '.[ray]'")
pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray")]  # one cluster, on one worker


@pytest.fixture(scope="module")
def actors(ray_cluster: str) -> Iterator[Any]:
    """The Ray engine with two actors that stay, for tests to which their start is nothing."""
    with Ray(actors=2).session() as session:
        yield session


class Watched:
    """The Ray engine, and who works where in its last fleet."""

    def __init__(self, actors: int | None = None, folder: Path | None = None) -> None:
        self.engine = Ray(actors=actors, folder=folder)

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        self.fleet = self.engine.open(shares, folder)
        return self.fleet

    def process_of(self, owner: str) -> int:
        return ray.get(self.fleet._host_of[owner].process.remote())


def problem() -> fp.FederatedProblem:
    """Every bound is active, and every share is large enough (over 100 kB) for Ray to keep it in its store."""
    return tasks.neyman_pearson(data.neyman_pearson(n=3, rows=1000, d=14, seed=1), bound=0.3)


@functools.cache
def expected(method: str, secure: bool = False) -> fp.Solution:
    answer = fp.solve(problem(), method, secure_sum=secure)
    assert answer.solved
    return answer


def assert_same_answer(found: fp.Solution, wanted: fp.Solution) -> None:
    """All that was computed, bit for bit. Traffic may differ: an order that was sent again is counted again."""
    assert (found.status, found.reason) == (wanted.status, wanted.reason)
    assert found.w.tobytes() == wanted.w.tobytes()
    assert [m.tobytes() for m in found.multipliers] == [m.tobytes() for m in wanted.multipliers]
    assert found.certificate == wanted.certificate
    assert found.history.inner == wanted.history.inner
    assert [replace(r, bytes=0) for r in found.history.outer] == [replace(r, bytes=0) for r in wanted.history.outer]


def assert_same_run(found: fp.Solution, wanted: fp.Solution) -> None:
    assert_same_answer(found, wanted)
    assert found.history == wanted.history
    assert found.communication == wanted.communication


def gone(process: int) -> bool:
    """Has the process ended, now or within a minute?"""
    for _ in range(600):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


# ------------------------------------------------------------------------------------------------------- the same bits


def many(owners: int) -> fp.FederatedProblem:
    """Least squares in five variables, eight rows an owner; every twentieth owner bounds a direction."""
    rng = np.random.default_rng(0)
    shares = []
    for i in range(owners):
        X = rng.normal(size=(8, 5))
        y = X.sum(axis=1) + rng.normal(size=8)
        bound = fp.Constraint(Affine(rng.normal(size=(1, 5)) / 5, [-0.3]), Nonnegative(1)) if i % 20 == 0 else None
        shares.append(fp.Share(Quadratic(X.T @ X / owners, -X.T @ y / owners), bound, name=f"owner {i}"))
    return fp.FederatedProblem(shares)


def test_two_hundred_simulated_owners_on_two_processors(ray_cluster: str) -> None:
    asked = many(200)
    engine = Watched()
    answer = fp.solve(asked, "interior-point", engine=engine)
    assert answer.solved
    assert len(engine.fleet._hosts) == 2
    assert_same_run(answer, fp.solve(asked, "interior-point"))


# ------------------------------------------------------------------------------------------- shares built at the owner


def from_table(table: Path, notes: Path) -> fp.Share:
    """A share from a CSV file (features, then the label); notes down which process read it."""
    rows = np.loadtxt(table, delimiter=",")
    X, y = rows[:, :-1], rows[:, -1].astype(int)
    with (notes / table.stem).open("a") as file:
        file.write(json.dumps([os.getpid(), os.environ["MKL_NUM_THREADS"]]) + "\n")
    limit = fp.Constraint(LogisticLoss(X[y == 1], y[y == 1]) - 0.4, Nonnegative(1))
    return fp.Share(0.2 * LogisticLoss(X[y == 0], y[y == 0]), limit)


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "notes").mkdir()
    files = {}
    for name, (X, y) in data.neyman_pearson(n=5, rows=40, d=4, seed=2).items():
        files[name] = tmp_path / f"{name}.csv"
        np.savetxt(files[name], np.column_stack([X, y]), delimiter=",", fmt="%.17g")
    return files


def test_shares_are_read_where_the_owner_is_and_actors_host_several(
    tables: dict[str, Path], tmp_path: Path, ray_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    asked = fp.RemoteProblem({name: partial(from_table, table, notes) for name, table in tables.items()})
    engine = Watched(actors=2)
    processes: dict[str, int] = {}

    def ask_who(progress: object) -> None:
        processes.update({name: engine.process_of(name) for name in tables})

    answer = fp.solve(asked, engine=engine, callbacks=[ask_who])
    seen = {name: [json.loads(line) for line in (notes / name).read_text().splitlines()] for name in tables}
    # each was built once, by the actor that works for the owner, where linear algebra has one thread
    assert seen == {name: [[process, "1"]] for name, process in processes.items()}
    assert os.getpid() not in processes.values()
    by_turns = list(processes.values())
    assert len(set(by_turns)) == 2
    assert by_turns[0::2] == [by_turns[0]] * 3
    assert by_turns[1::2] == [by_turns[1]] * 2

    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    assert_same_run(answer, fp.solve(asked))
    pooled = fp.FederatedProblem([replace(from_table(t, notes), name=name) for name, t in tables.items()])
    assert fp.solve(pooled).w.tobytes() == answer.w.tobytes()
    assert answer.solved


class Unreadable:
    """Can be sent, and cannot be read: the package is missing over there."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return importlib.import_module, ("a_package_nobody_has",)


@pytest.mark.parametrize(
    ("source", "code", "fact"),
    [
        (partial(from_table, Path("nowhere.csv"), Path()), "FP-OWNER-001", "FileNotFoundError: "),
        (partial(from_table, threading.Lock(), Path()), "FP-OWNER-001", "TypeError: "),
        (Unreadable(), "FP-OWNER-350", "No module named 'a_package_nobody_has'"),
    ],
    ids=["loader", "sending", "reading"],
)
def test_a_share_that_cannot_be_built_names_its_owner(
    source: object, code: str, fact: str, ray_cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    good = problem().shares[0]
    with raises_code(code, "b: ", fact):
        fp.solve(fp.RemoteProblem({"a": good, "b": source}), engine="ray")
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
    assert ray.is_initialized()


# --------------------------------------------------------------------------------------------------- processes that die


@pytest.mark.parametrize(("secure", "times"), [(True, 1), (False, 3)], ids=["secure sum", "three times"])
def test_a_killed_actor_changes_no_bit(secure: bool, times: int, ray_cluster: str) -> None:
    engine = Watched()
    killed: list[int] = []

    def kill(progress: fp.solvers.Progress) -> None:
        if progress.iteration > len(killed) and len(killed) < times:
            killed.append(engine.process_of(f"client {1 + len(killed) % 2}"))
            os.kill(killed[-1], signal.SIGKILL)

    # One more try is enough: Ray keeps the second order until the actor is back, however long that takes.
    answer = fp.solve(
        problem(), "interior-point", engine=engine, callbacks=[kill], secure_sum=secure, on_failure="retry", retries=1
    )
    assert len(set(killed)) == times
    wanted = expected("interior-point", secure)
    assert_same_answer(answer, wanted)
    sent, usual = (s.communication.owners["client 1"].messages_down for s in (answer, wanted))
    assert sent > usual


def pull(marker: Path, w: np.ndarray) -> tuple[float, np.ndarray]:
    """1/2 |w - 2|^2, whose owner's process dies in the middle of its work, once."""
    if w.any() and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return float(0.5 * np.sum((w - 2) ** 2)), w - 2


def flat(w: np.ndarray) -> np.ndarray:
    return np.eye(w.size)


@pytest.mark.parametrize("method", ["interior-point", "accelerated"])
def test_an_actor_that_dies_inside_a_step_changes_no_bit(method: str, ray_cluster: str, tmp_path: Path) -> None:
    marker = tmp_path / "died"
    limit = fp.Constraint(Affine([[1.0, 2.0]], [-1.0]), Nonnegative(1))
    shares = [
        fp.Share(Smooth(partial(pull, marker), hess=flat, dim=2), limit, name="a"),
        fp.Share(Quadratic(np.diag([1.0, 5.0]), [-3.0, 5.0]), name="b"),
    ]
    answer = fp.solve(fp.FederatedProblem(shares), method, engine="ray")
    assert marker.exists()
    assert answer.solved
    assert_same_answer(answer, fp.solve(fp.FederatedProblem(shares), method))


def coordinate(address: str, folder: str) -> None:
    """A coordinator in a process of its own: it says when an exchange is over."""

    def tell(progress: fp.solvers.Progress) -> None:
        print(progress.rounds, flush=True)

    fp.solve(problem(), "proximal-al", engine=Ray(address=address), checkpoint=folder, callbacks=[tell])


def child(code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Python with this file as module t."""
    command = [sys.executable, "-c", f"import sys, {Path(__file__).stem} as t; {code}", *arguments]
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    surroundings = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.Popen(
        command, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


def test_a_killed_coordinator_is_resumed_by_another_process(ray_cluster: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with child("t.coordinate(sys.argv[1], sys.argv[2])", ray_cluster, str(folder)) as first:
        assert first.stdout is not None
        for line in first.stdout:
            if int(line) > 25:  # it goes on meanwhile: the signal comes wherever it is
                first.kill()
    assert first.returncode == -signal.SIGKILL
    wanted = expected("proximal-al")
    reached = json.loads((folder / "checkpoint.json").read_text())["rounds"]
    assert 25 < reached < wanted.rounds
    answer = fp.solve(problem(), "proximal-al", engine="ray", checkpoint=folder, resume=True)
    assert_same_run(answer, wanted)


@pytest.mark.parametrize("finished", [False, True], ids=["stopped", "finished"])
def test_a_table_replaced_before_the_run_is_resumed_names_its_owner(
    finished: bool, tables: dict[str, Path], tmp_path: Path, ray_cluster: str
) -> None:
    asked = fp.RemoteProblem({name: partial(from_table, table, tmp_path / "notes") for name, table in tables.items()})

    def stop(progress: fp.solvers.Progress) -> None:
        if progress.rounds >= 4 and not finished:
            raise KeyboardInterrupt

    first = fp.solve(asked, engine="ray", checkpoint=tmp_path / "run", callbacks=[stop])
    assert first.solved is finished
    name, table = list(tables.items())[2]
    before = table.read_bytes()
    rows = np.loadtxt(table, delimiter=",")
    rows[0, 0] += 1e-9
    np.savetxt(table, rows, delimiter=",", fmt="%.17g")
    with raises_code("FP-CHECKPOINT-001", f"{name}: "):
        fp.solve(asked, engine="ray", checkpoint=tmp_path / "run", resume=True)
    table.write_bytes(before)
    again = fp.solve(asked, engine="ray", checkpoint=tmp_path / "run", resume=True)
    assert_same_run(again, fp.solve(asked, engine="ray"))


# ------------------------------------------------------------------------------------------------------------ sessions


def test_two_solves_in_one_session_with_one_fleet(ray_cluster: str, tmp_path: Path) -> None:
    engine = Watched()
    with fp.Session(engine, record=tmp_path / "messages") as session:
        first = fp.solve(problem(), "interior-point", session=session)
        fleet, processes = engine.fleet, {engine.process_of(name) for name in session.owners}
        second = fp.solve(problem(), "accelerated", session=session)  # shares that are equal, and not the same
        assert engine.fleet is fleet
        assert {engine.process_of(name) for name in session.owners} == processes
        ledger = session.ledger.read()
    assert_same_run(first, expected("interior-point"))
    assert_same_answer(second, expected("accelerated"))
    assert (second.rounds, second.communication.bytes) == (
        expected("accelerated").rounds,
        expected("accelerated").communication.bytes,
    )
    assert ledger == first.communication + second.communication
    assert len(list(read_record(tmp_path / "messages"))) == ledger.messages


def ask(session: fp.Session) -> tuple[float, list[float]]:
    answers = session.ask(count, Order())
    return answers.total.value, [answer.total for answer in answers]


@pytest.mark.parametrize("killed", [False, True], ids=["alive", "killed"])
def test_owners_are_given_other_shares_and_keep_their_memory(killed: bool, ray_cluster: str) -> None:
    """Also those whose process is killed before they got an order about the new share, or after it."""
    engine = Watched(actors=2)
    with fp.Session(engine).open({"a": 1.0, "b": 10.0, "c": 100.0}) as session:

        def kill() -> None:
            if killed:
                os.kill(engine.process_of("b"), signal.SIGKILL)

        assert ask(session) == (111.0, [1.0] * 3)
        session.open({"a": 1.0, "b": 20.0, "c": 100.0})
        kill()
        assert ask(session) == (242.0, [2.0] * 3)
        session.open({"a": 1.0, "b": 30.0, "c": partial(float, 200)})
        assert ask(session) == (693.0, [3.0] * 3)
        kill()
        assert ask(session) == (924.0, [4.0] * 3)


def test_they_do_so_on_a_cluster_without_a_folder(ray_cluster: str) -> None:
    """There the memory is that of the process alone."""
    with fp.Session(Ray(address=ray_cluster, actors=1)).open({"a": 1.0, "b": 10.0}) as session:
        assert ask(session) == (11.0, [1.0, 1.0])
        session.open({"a": 2.0, "b": 20.0})
        assert ask(session) == (44.0, [2.0, 2.0])


def test_a_session_is_resumed_in_its_second_solve(ray_cluster: str, tmp_path: Path) -> None:
    other = tasks.neyman_pearson(data.neyman_pearson(n=3, rows=1000, d=14, seed=2), bound=0.3)

    def stop(progress: fp.solvers.Progress) -> None:
        if progress.rounds >= 4:
            raise KeyboardInterrupt

    with fp.Session("ray", checkpoint=tmp_path) as session:
        assert fp.solve(problem(), "interior-point", session=session).solved
        stopped = fp.solve(other, "interior-point", session=session, callbacks=[stop])
        assert stopped.status == "interrupted"
    with fp.Session("ray", checkpoint=tmp_path, resume=True) as session:
        first = fp.solve(problem(), "interior-point", session=session)
        second = fp.solve(other, "interior-point", session=session)
    assert_same_run(first, expected("interior-point"))
    assert_same_answer(second, fp.solve(other, "interior-point"))


# ------------------------------------------------------------------------------------------------- starting and ending


def test_a_ray_that_runs_already_is_left_running(ray_cluster: str) -> None:
    engine = Watched()
    processes: set[int] = set()
    answer = fp.solve(
        problem(),
        engine=engine,
        callbacks=[lambda progress: processes.update(engine.process_of(name) for name in engine.fleet.owners)],
    )
    assert answer.solved
    assert len(processes) == 2
    assert all(gone(process) for process in processes)
    assert engine.fleet._briefing.folder is not None
    assert not Path(engine.fleet._briefing.folder).exists()
    assert ray.is_initialized()
    assert ray.get_runtime_context().gcs_address == ray_cluster


def children() -> list[str]:
    """The processes that this one started and that still run."""
    return [process for file in Path("/proc/self/task").glob("*/children") for process in file.read_text().split()]


def alone() -> None:
    """Solve on a Ray of our own; say what ran meanwhile and afterwards."""
    meanwhile: list[int] = []
    answer = fp.solve(
        problem(), "interior-point", engine="ray", callbacks=[lambda _: meanwhile.append(len(children()))]
    )
    said = {"w": answer.w.tobytes().hex(), "meanwhile": min(meanwhile), "after": children(), "on": ray.is_initialized()}
    print(json.dumps(said))


def test_the_engine_ends_the_ray_that_it_started() -> None:
    # The address in the environment is where Ray would go by itself; nobody is there.
    with child("t.alone()", RAY_ADDRESS="localhost:1") as process:
        out, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    said = json.loads(out)
    assert said["w"] == expected("interior-point").w.tobytes().hex()
    assert not said["on"]
    assert said["after"] == []
    if Path("/proc/self/task").exists():
        assert said["meanwhile"] > 0


@pytest.mark.parametrize("address", ["localhost:1", "ray://localhost:1", "[::1]:1"])
def test_an_address_where_nobody_is_is_refused_at_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    asked: list[Any] = []
    monkeypatch.setattr(ray, "init", lambda **options: asked.append(options))
    with raises_code("FP-OPTION-351", f"Ray(address={address!r}): ", "ray start --head"):
        fp.solve(problem(), engine=Ray(address=address))
    assert asked == []  # Ray alone would try for five minutes


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with raises_code("FP-OPTION-352", "engine 'ray'", "pip install '.[ray]'"):
        fp.solve(problem(), engine="ray")


@pytest.mark.parametrize("actors", [0, -1, 1.5, "2"])
def test_actors_are_a_positive_number(actors: object) -> None:
    with raises_code("FP-OPTION-303", f"actors = {actors!r}: "):
        Ray(actors=actors)
