"""Stopped anywhere and resumed: the same answer, bit for bit; a checkpoint that cannot give it is refused in words."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import (
    CASES,
    METHODS,
    NAMES,
    REGULARIZER,
    SERVER,
    Faulty,
    Wire,
    assert_stopped,
    below,
    bits,
    clinics,
    exact,
    solve,
    stop_at,
)
from marks import slow_but
from raising import raises_code

import fedpact as fp
import fedpact.federation
from fedpact.engines import InProcess
from fedpact.errors import WireError
from fedpact.federation import Answers, Checkpoint, Order, Reply, Session, Summed, client_step, read_record
from fedpact.federation.checkpoint import VERSION
from fedpact.functions import Affine, Smooth
from fedpact.solvers import Progress, Solution


@functools.cache
def uninterrupted(method: str, secure: bool = False) -> Solution:
    """The run that nobody stops, without a checkpoint."""
    return solve(method, secure_sum=secure)


@functools.cache
def progress_of(method: str) -> Any:
    """What callbacks are told in that run."""
    seen: list[Progress] = []
    solve(method, callbacks=[seen.append])
    return exact(seen)


def stopped(method: str, folder: Path, part: float, **options: Any) -> Solution:
    """A run in which the user presses Ctrl-C after this part of its exchanges."""
    at = max(int(part * uninterrupted(method).rounds), 1)
    return solve(method, checkpoint=folder, callbacks=[stop_at(at)], **options)


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is killed here is a process, not the machine."""
    monkeypatch.setattr("os.fsync", lambda file: None)


# ------------------------------------------------------------------------------------------------ stopped and resumed


@pytest.mark.parametrize("method", METHODS)
def test_a_checkpoint_changes_nothing(method: str, tmp_path: Path) -> None:
    assert uninterrupted(method).solved
    assert bits(solve(method, checkpoint=tmp_path)) == bits(uninterrupted(method))
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.json", "rounds.log", "owners"}
    assert list(tmp_path.rglob("*.part")) == []


@pytest.mark.parametrize(
    ("part", "every"),
    slow_but([(0.01, 1), (0.4, 1), (0.4, 3), (0.8, 3), (0.01, 1000), (0.8, 1000)], (0.4, 1), (0.8, 1000)),
    ids=str,
)
@pytest.mark.parametrize("method", METHODS)
def test_stopped_by_ctrl_c_and_resumed(method: str, part: float, every: int, tmp_path: Path) -> None:
    expected = uninterrupted(method)
    first = stopped(method, tmp_path, part, checkpoint_every=every)
    assert_stopped(first)
    assert first.rounds < expected.rounds
    told: list[Progress] = []
    again = solve(method, checkpoint=tmp_path, checkpoint_every=every, resume=True, callbacks=[told.append])
    assert bits(again) == bits(expected)
    assert exact(told) == progress_of(method)


@pytest.mark.parametrize("method", ["interior-point", "accelerated"])
def test_stopped_after_every_single_exchange(method: str, tmp_path: Path) -> None:
    expected = uninterrupted(method)
    found = solve(method, checkpoint=tmp_path, callbacks=[stop_at(1)])
    for exchanges in range(2, expected.rounds):
        assert_stopped(found)
        found = solve(method, checkpoint=tmp_path, resume=True, callbacks=[stop_at(exchanges)])
    assert bits(solve(method, checkpoint=tmp_path, resume=True)) == bits(expected)


@pytest.mark.parametrize("method", METHODS)
def test_stopped_and_resumed_on_another_engine(method: str, tmp_path: Path) -> None:
    """Threads, then owners behind bytes, then one after the other: the memory is the same."""
    stopped(method, tmp_path, 0.2, engine=InProcess(threads=3), checkpoint_every=3)
    stopped(method, tmp_path, 0.6, engine=Wire(), resume=True)
    assert bits(solve(method, checkpoint=tmp_path, resume=True)) == bits(uninterrupted(method))


class Interrupting:
    """The objective of the second clinic, whose call number `at` is where the user presses Ctrl-C."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.calls = at, 0
        self.inner = clinics().shares[1].objective
        assert self.inner is not None

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return self.inner.value_and_gradient(w)

    def __getstate__(self) -> dict[str, Any]:
        """What makes the function: calls that were counted change no data."""
        return {"inner": self.inner}

    @property
    def problem(self) -> fp.FederatedProblem:
        first, second, third = clinics().shares
        smooth = Smooth(self, hess=self.inner.hessian, dim=3)
        return fp.FederatedProblem([first, replace(second, objective=smooth), third], SERVER, REGULARIZER)


@functools.cache
def counted(method: str) -> tuple[Solution, int]:
    counter = Interrupting()
    return solve(method, counter.problem), counter.calls


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("part", slow_but([0.0, 0.3, 0.5, 0.9], 0.0, 0.5))
@pytest.mark.parametrize("method", CASES)
def test_stopped_inside_an_owner_and_resumed(method: str, part: float, threads: int, tmp_path: Path) -> None:
    """Some owners have made the round and some have not; in the first exchange nothing can be given back yet."""
    expected, calls = counted(method)
    fun = Interrupting(at=max(int(part * calls), 1))
    options: dict[str, Any] = {"engine": InProcess(threads), "checkpoint": tmp_path, "checkpoint_every": 2}
    try:
        first = solve(method, fun.problem, **options)
    except KeyboardInterrupt:
        assert part == 0.0
    else:
        assert_stopped(first)
    assert fun.calls >= fun.at
    assert bits(solve(method, Interrupting().problem, resume=True, **options)) == bits(expected)


@pytest.mark.parametrize("part", [0.0, 0.5])
@pytest.mark.parametrize("method", METHODS)
def test_stopped_while_it_repeats_what_is_on_record(method: str, part: float, tmp_path: Path) -> None:
    """The owners are ahead of the server then, so they cannot be asked for the point; nothing may be spoiled."""
    stopped(method, tmp_path, 0.8)
    try:
        found = stopped(method, tmp_path, part, resume=True)
    except KeyboardInterrupt:
        pass
    else:
        assert_stopped(found)
    assert bits(solve(method, checkpoint=tmp_path, resume=True)) == bits(uninterrupted(method))


@pytest.mark.parametrize("method", METHODS)
def test_a_finished_run_is_repeated_without_new_work(method: str, tmp_path: Path) -> None:
    solve(method, checkpoint=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(before) == 5
    engine = Faulty()
    assert bits(solve(method, checkpoint=tmp_path, resume=True, engine=engine)) == bits(uninterrupted(method))
    last = uninterrupted(method).rounds
    assert [(owner, order.round, order.look > 0) for owner, order, _ in engine.orders] == [
        (n, last, True) for n in NAMES
    ]
    assert {path: path.read_bytes() for path in before} == before


def test_the_owners_do_no_round_twice(tmp_path: Path) -> None:
    engines = [Faulty() for _ in range(3)]
    rounds = uninterrupted("proximal-al").rounds
    for engine, part in zip(engines, (0.3, 0.6, 2.0), strict=True):
        stopped("proximal-al", tmp_path, part, engine=engine, resume=engine is not engines[0], checkpoint_every=1000)
    worked = [(owner, order.round) for engine in engines for owner, order, _ in engine.orders if not order.look]
    assert worked == [(name, r) for r in range(1, rounds + 1) for name in NAMES]


@pytest.mark.parametrize("method", METHODS)
def test_the_limit_of_exchanges_is_that_of_the_whole_run(method: str, tmp_path: Path) -> None:
    limit = max(uninterrupted(method).rounds - 3, 8)
    options: dict[str, Any] = {"max_rounds": limit, "tol": 1e-9}
    expected = solve(method, **options)
    assert expected.status == "max_rounds"
    stopped(method, tmp_path, 0.4, **options)
    assert bits(solve(method, checkpoint=tmp_path, resume=True, **options)) == bits(expected)


def test_a_failed_start_can_be_repaired_and_resumed(tmp_path: Path) -> None:
    """An error at an owner is raised, the checkpoint stays, and the next try goes on with it."""

    def broken(w: np.ndarray) -> tuple[float, np.ndarray]:
        raise OSError("the disk is not mounted")

    problem = clinics()
    shares = [*problem.shares[:2], replace(problem.shares[2], objective=Smooth(broken, hess=broken, dim=3))]
    with raises_code("FP-OWNER-001", "clinic c: ", "begin", "OSError: the disk is not mounted"):
        solve("interior-point", fp.FederatedProblem(shares, SERVER, REGULARIZER), checkpoint=tmp_path)
    again = solve("interior-point", checkpoint=tmp_path, resume=True)
    assert bits(again) == bits(uninterrupted("interior-point"))


@dataclass(frozen=True, kw_only=True)
class Add(Order):
    amount: float


@dataclass(frozen=True, kw_only=True)
class Added(Reply):
    total: Summed[float]
    own: float


@client_step
def add(share: float, state: float | None, order: Add) -> tuple[float, Added]:
    total = (state or share) / 3 + order.amount
    return total, Added(total=total, own=total)


def rounds(folder: Path, until: int, second: tuple[str, ...] = ("c", "a"), **options: Any) -> list[Answers[Added]]:
    """Rounds with all owners, with some, and with an order for each; until so many were made."""
    with Session(checkpoint=folder, **options).open({"a": 1.0, "b": 2.0, "c": 4.0}, {"made": "by hand"}) as session:
        asked: list[Callable[[], Answers[Added]]] = [
            lambda: session.ask(add, Add(amount=0.1)),
            lambda: session.ask(add, [Add(amount=0.2), Add(amount=0.3)], second),
            lambda: session.ask(add, [Add(amount=0.2 * k) for k in range(3)]),
            lambda: session.ask(add, Add(amount=0.7), ["b"]),
            lambda: session.ask(add, Add(amount=0.1)),
        ]
        return [ask() for ask in asked[:until]]


@pytest.mark.parametrize("until", [1, 2, 3, 4, 5])
def test_rounds_with_some_owners_only_are_resumed(until: int, tmp_path: Path) -> None:
    expected = rounds(tmp_path / "whole", 5)
    assert [len(answers) for answers in expected] == [3, 2, 3, 1, 3]
    rounds(tmp_path / "stopped", until)
    found = rounds(tmp_path / "stopped", 5, resume=True)
    assert exact([[list(a), a.total] for a in found]) == exact([[list(a), a.total] for a in expected])


def test_a_round_with_other_owners_is_refused(tmp_path: Path) -> None:
    rounds(tmp_path, 3)
    for other in (("a", "c"), ("c", "b")):
        with raises_code("FP-CHECKPOINT-301", str(tmp_path), "round 2"):
            rounds(tmp_path, 3, second=other, resume=True)
    assert len(rounds(tmp_path, 5, resume=True)) == 5


# ------------------------------------------------------------------------------------------------ killed while writing


class Killed(BaseException):
    """The process is gone: nothing catches this."""


def at_write(monkeypatch: pytest.MonkeyPatch, number: int, error: type[BaseException], for_good: bool) -> list[int]:
    """`error` comes in the middle of this write to the disk, and of all later ones when it is for good."""
    writes: list[int] = []

    def sync(file: int) -> None:
        writes.append(len(writes) + 1)
        if writes[-1] == number or (for_good and writes[-1] > number):
            raise error

    monkeypatch.setattr("os.fsync", sync)
    return writes


@functools.cache
def writes_of(method: str, every: int) -> int:
    """Writes of a whole run: three owners, the log and its head at each checkpoint; log and head at the start."""
    rounds = uninterrupted(method).rounds
    return 2 + 5 * (rounds // every)


@pytest.mark.parametrize("every", slow_but([1, 2], 2))
def test_killed_in_the_middle_of_any_write_and_resumed(
    every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, options = "interior-point", {"checkpoint_every": every}
    numbers = [*range(3, 14), *range(14, writes_of(method, every), 3)]
    for number in numbers:
        folder = tmp_path / str(number)
        writes = at_write(monkeypatch, number, Killed, for_good=True)
        with pytest.raises(Killed):
            solve(method, checkpoint=folder, **options)
        assert len(writes) >= number
        monkeypatch.setattr("os.fsync", lambda file: None)
        assert bits(solve(method, checkpoint=folder, resume=True, **options)) == bits(uninterrupted(method)), number


@pytest.mark.parametrize("number", [1, 2])
def test_killed_before_there_is_a_checkpoint(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_write(monkeypatch, number, Killed, for_good=True)
    with pytest.raises(Killed):
        solve("interior-point", checkpoint=tmp_path)
    monkeypatch.setattr("os.fsync", lambda file: None)
    with raises_code("FP-CHECKPOINT-303"):
        solve("interior-point", checkpoint=tmp_path, resume=True)
    assert bits(solve("interior-point", checkpoint=tmp_path)) == bits(uninterrupted("interior-point"))


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_any_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing is where such a run spends its time, so that is where Ctrl-C comes: the last save must be whole."""
    total = writes_of("interior-point", 1)
    for number in range(3, total):
        folder = tmp_path / str(number)
        at_write(monkeypatch, number, KeyboardInterrupt, for_good=False)
        try:
            found = solve("interior-point", checkpoint=folder)
        except KeyboardInterrupt:
            assert number <= 7 or number > total - 5  # in the first and in the last exchange there is no way back
        else:
            assert_stopped(found)
        monkeypatch.setattr("os.fsync", lambda file: None)
        again = solve("interior-point", checkpoint=folder, resume=True)
        assert bits(again) == bits(uninterrupted("interior-point")), number


SCRIPT = """
import sys, time
from faults import solve

method, folder, answer, every, wait_at = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])

def wait(progress):
    if wait_at and progress.rounds >= wait_at:
        print("waiting after", progress.rounds, flush=True)
        time.sleep(600)

found = solve(method, checkpoint=folder, checkpoint_every=every, resume=wait_at == 0, callbacks=[wait])
found.save(answer)
print(found.status, found.reason, flush=True)
"""


def start_process(folder: Path, method: str, every: int, wait_at: int) -> subprocess.Popen[str]:
    script = folder / "run.py"
    script.write_text(SCRIPT)
    arguments = [method, str(folder / "kept"), str(folder / "answer.npz"), str(every), str(wait_at)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def signalled(folder: Path, method: str, every: int, wait_at: int, number: signal.Signals) -> tuple[int, str, int]:
    """Start a solve in a process of its own and send it the signal: its exit code, what it said, and after which round.

    It waits for the signal in this round, or in the next one that is told to callbacks.
    """
    with start_process(folder, method, every, wait_at) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        try:
            assert line.startswith("waiting after "), process.stderr.read()
            process.send_signal(number)
            said, _ = process.communicate(timeout=300)
        finally:
            process.kill()
    return process.returncode, said, int(line.split()[-1])


def resumed_elsewhere(folder: Path, method: str, every: int) -> Solution:
    """Go on in another process."""
    with start_process(folder, method, every, wait_at=0) as process:
        said, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert said.startswith("solved")
    return Solution.load(folder / "answer.npz")


@pytest.mark.parametrize(
    ("method", "every", "wait_at"),
    slow_but(
        [("interior-point", 1, 5), ("accelerated", 3, 10), ("proximal-al", 1, 8), ("proximal-al", 1000, 10)],
        ("interior-point", 1, 5),
    ),
)
def test_a_process_killed_with_sigkill_is_resumed_by_another(
    method: str, every: int, wait_at: int, tmp_path: Path
) -> None:
    code, said, round = signalled(tmp_path, method, every, wait_at, signal.SIGKILL)
    assert (code, said) == (-signal.SIGKILL, "")
    assert not (tmp_path / "answer.npz").exists()
    kept = json.loads((tmp_path / "kept" / "checkpoint.json").read_text())["rounds"]
    assert kept == round // every * every
    assert bits(resumed_elsewhere(tmp_path, method, every)) == bits(uninterrupted(method))


@pytest.mark.parametrize(
    ("method", "every", "wait_at"),
    slow_but([("interior-point", 1, 4), ("proximal-al", 1000, 8)], ("interior-point", 1, 4)),
)
def test_a_process_ended_with_sigterm_keeps_its_run_and_gives_its_answer(
    method: str, every: int, wait_at: int, tmp_path: Path
) -> None:
    code, said, round = signalled(tmp_path, method, every, wait_at, signal.SIGTERM)
    assert code == 0
    assert said.startswith(f"interrupted interrupted after {round} exchanges")
    first = Solution.load(tmp_path / "answer.npz")
    assert fp.certify(clinics(), first.w, first.multipliers) == first.certificate
    assert json.loads((tmp_path / "kept" / "checkpoint.json").read_text())["rounds"] == round
    assert bits(resumed_elsewhere(tmp_path, method, every)) == bits(uninterrupted(method))


def test_sigterm_is_as_before_after_the_solve(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    during: list[Any] = []
    solve("interior-point", checkpoint=tmp_path, callbacks=[lambda p: during.append(signal.getsignal(signal.SIGTERM))])
    assert signal.getsignal(signal.SIGTERM) is before
    assert set(during) == {signal.default_int_handler}
    solve("interior-point", callbacks=[lambda p: during.append(signal.getsignal(signal.SIGTERM))])
    assert during[-1] is before


# ------------------------------------------------------------------------------------------------- two at work on one


IN_USE = "FP-CHECKPOINT-306"


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_run_in_another_process_is_refused_until_the_first_is_gone(resume: bool, tmp_path: Path) -> None:
    """Killed with SIGKILL, the first leaves nothing behind that would keep the folder locked."""
    method, folder = "proximal-al", tmp_path / "kept"
    with start_process(tmp_path, method, 1, wait_at=5) as first:
        assert first.stdout is not None
        try:
            assert first.stdout.readline().startswith("waiting after ")
            before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
            with raises_code(IN_USE if resume else "FP-CHECKPOINT-304", str(folder)):
                solve(method, checkpoint=folder, resume=resume)
            assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
        finally:
            first.kill()
    assert bits(solve(method, checkpoint=folder, resume=True)) == bits(uninterrupted(method))


def test_a_second_run_in_the_same_process_is_refused(tmp_path: Path) -> None:
    refused: list[int] = []

    def try_too(progress: Progress) -> None:
        with raises_code(IN_USE, str(tmp_path)):
            solve("interior-point", checkpoint=tmp_path, resume=True)
        refused.append(progress.rounds)

    assert bits(solve("interior-point", checkpoint=tmp_path, callbacks=[try_too])) == bits(
        uninterrupted("interior-point")
    )
    assert refused


def test_two_that_start_at_once_are_one(tmp_path: Path) -> None:
    """The second comes before the first has written its head."""
    first = Checkpoint(tmp_path, {})
    (tmp_path / "checkpoint.json").unlink()
    with raises_code(IN_USE):
        Checkpoint(tmp_path, {})
    first.close()
    Checkpoint(tmp_path, {}).close()


def test_a_refused_checkpoint_is_not_left_locked(tmp_path: Path) -> None:
    Checkpoint(tmp_path, {"seed": 1}).close()
    with raises_code("FP-CHECKPOINT-308", str(tmp_path), "seed = 1"):
        Checkpoint(tmp_path, {"seed": 2}, resume=True)
    Checkpoint(tmp_path, {"seed": 1}, resume=True).close()


def test_what_is_kept_is_for_its_owner_only(tmp_path: Path) -> None:
    """Whatever the user's umask allows to others."""
    before = os.umask(0)
    try:
        solve("interior-point", checkpoint=tmp_path / "kept", record=tmp_path / "messages.log")
    finally:
        os.umask(before)
    files = [tmp_path / "messages.log", *(path for path in (tmp_path / "kept").rglob("*") if path.is_file())]
    assert {path.name for path in files} >= {"messages.log", "rounds.log", "checkpoint.json"}
    assert {path.name: path.stat().st_mode & 0o777 for path in files} == {path.name: 0o600 for path in files}


# ------------------------------------------------------------------------------------------------------------- refusals


def test_a_folder_holds_one_run(tmp_path: Path) -> None:
    solve("interior-point", checkpoint=tmp_path)
    before = (tmp_path / "rounds.log").read_bytes()
    with raises_code("FP-CHECKPOINT-304", str(tmp_path)):
        solve("interior-point", checkpoint=tmp_path)
    assert (tmp_path / "rounds.log").read_bytes() == before


def test_resume_needs_a_checkpoint(tmp_path: Path) -> None:
    with raises_code("FP-OPTION-308"):
        solve("interior-point", resume=True)
    with raises_code("FP-CHECKPOINT-303"):
        solve("interior-point", checkpoint=tmp_path / "nothing", resume=True)
    assert not (tmp_path / "nothing" / "checkpoint.json").exists()


@pytest.mark.parametrize("every", [0, -1, 1.5, "2", None])
def test_checkpoint_every_is_a_whole_number(every: object, tmp_path: Path) -> None:
    with raises_code("FP-OPTION-303", f"checkpoint_every = {every!r}: ", "at least 1"):
        solve("interior-point", checkpoint=tmp_path, checkpoint_every=every)
    assert list(tmp_path.iterdir()) == []


def assert_refused(folder: Path, code: str, *facts: str, method: str = "interior-point", **options: Any) -> None:
    """Resuming is refused with this code, nothing is asked of the owners, and nothing in the folder is touched."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    engine = Faulty()
    with raises_code(code, str(folder), *facts):
        solve(method, checkpoint=folder, resume=True, engine=engine, **options)
    assert engine.orders == []
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The folder of a run stopped half way."""
    stopped("interior-point", tmp_path, 0.5)
    return tmp_path


@pytest.mark.parametrize("missing", [1, 100, 10**9])
def test_a_truncated_log_is_refused(missing: int, kept: Path) -> None:
    log = kept / "rounds.log"
    whole = log.read_bytes()
    log.write_bytes(whole[: max(len(whole) - missing, 0)])
    assert_refused(kept, "FP-CHECKPOINT-305", "rounds.log is truncated", f"bytes of {len(whole)}")
    log.write_bytes(whole)
    assert bits(solve("interior-point", checkpoint=kept, resume=True)) == bits(uninterrupted("interior-point"))


@pytest.mark.parametrize("part", [0.0, 0.2, 0.5, 0.999])
def test_a_flipped_bit_in_the_log_is_refused(part: float, kept: Path) -> None:
    log = kept / "rounds.log"
    data = bytearray(log.read_bytes())
    data[int(part * len(data))] ^= 4
    log.write_bytes(bytes(data))
    assert_refused(kept, "FP-CHECKPOINT-305", "checksum of rounds.log")


def test_a_log_that_is_gone_is_refused(kept: Path) -> None:
    (kept / "rounds.log").unlink()
    assert_refused(kept, "FP-CHECKPOINT-305", "rounds.log")


def test_a_torn_tail_does_not_count(kept: Path) -> None:
    """A crash while a round was appended: what lies behind the stated length is overwritten."""
    log = kept / "rounds.log"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:70] + b"\x00\xff" * 3000)
    stopped("interior-point", kept, 0.8, resume=True)
    assert log.read_bytes().startswith(whole)
    assert bits(solve("interior-point", checkpoint=kept, resume=True)) == bits(uninterrupted("interior-point"))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"garbage", b"\xff\xfe\x00", b"[]", b"5", b"null", b'"text"', b"\x80\x04K\x01."],
    ids=["empty", "open", "garbage", "binary", "list", "number", "null", "text", "pickle"],
)
def test_garbage_for_a_head_is_refused(content: bytes, kept: Path) -> None:
    (kept / "checkpoint.json").write_bytes(content)
    assert_refused(kept, "FP-CHECKPOINT-305", "checkpoint.json cannot be read")


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "checkpoint.json"
    head = json.loads(path.read_text())
    change(head)
    path.write_text(json.dumps(head))


@pytest.mark.parametrize("key", ["run", "about", "rounds", "bytes", "sha256"])
def test_a_head_without_a_part_is_refused(key: str, kept: Path) -> None:
    edit(kept, lambda head: head.pop(key))
    assert_refused(kept, "FP-CHECKPOINT-305", "checkpoint.json cannot be read", key)


@pytest.mark.parametrize(
    ("key", "value", "code", "fact"),
    [
        ("version", VERSION + 1, "FP-CHECKPOINT-307", f"version {VERSION + 1}"),
        ("version", None, "FP-CHECKPOINT-307", "version None"),
        ("format", "other", "FP-CHECKPOINT-307", "format 'other'"),
        ("bytes", 10, "FP-CHECKPOINT-305", ""),
        ("bytes", -1, "FP-CHECKPOINT-305", ""),
        ("bytes", "x", "FP-CHECKPOINT-305", ""),
        ("bytes", 10**9, "FP-CHECKPOINT-305", "truncated"),
        ("bytes", None, "FP-CHECKPOINT-305", ""),
        ("sha256", "0" * 64, "FP-CHECKPOINT-305", "checksum"),
        ("sha256", None, "FP-CHECKPOINT-305", "checksum"),
        ("rounds", "x", "FP-CHECKPOINT-305", ""),
        ("rounds", 2, "FP-CHECKPOINT-305", "not 2"),
        ("rounds", 10**6, "FP-CHECKPOINT-305", f"not {10**6}"),
        ("rounds", -1, "FP-CHECKPOINT-305", "not -1"),
        ("about", None, "FP-CHECKPOINT-305", ""),
        ("about", [], "FP-CHECKPOINT-308", "= None, this one has"),
        ("about", "x", "FP-CHECKPOINT-305", ""),
        ("about", {}, "FP-CHECKPOINT-308", "= None, this one has"),
    ],
)
def test_an_edited_head_is_refused(key: str, value: Any, code: str, fact: str, kept: Path) -> None:
    edit(kept, lambda head: head.update({key: value}))
    assert_refused(kept, code, fact)


def test_a_head_that_states_too_short_a_log_is_refused(kept: Path) -> None:
    """Cut at a record, with a checksum that fits: only the number of rounds tells."""
    log = (kept / "rounds.log").read_bytes()
    first = 8 + int.from_bytes(log[:8], "little")
    checksum = hashlib.sha256(log[:first]).hexdigest()
    edit(kept, lambda head: head.update(bytes=first, sha256=checksum))
    assert_refused(kept, "FP-CHECKPOINT-305", "1 rounds")


def rename(problem: fp.FederatedProblem, *names: str) -> fp.FederatedProblem:
    shares = [replace(share, name=name) for share, name in zip(problem.shares, names, strict=True)]
    return fp.FederatedProblem(shares, problem.server, problem.regularizer)


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"method": "accelerated"}, "method = 'interior-point', this one has 'accelerated'"),
        ({"method": "auto"}, "method = 'interior-point', this one has 'auto'"),
        ({"tol": 1e-5}, "tol = [1e-06, 1e-06], this one has [1e-05, 1e-05]"),
        ({"tol": (1e-6, 1e-5)}, "tol = [1e-06, 1e-06], this one has [1e-06, 1e-05]"),
        ({"max_rounds": 50}, "max_rounds = 100000, this one has 50"),
        ({"seed": 1}, "seed = 0, this one has 1"),
    ],
    ids=["method", "auto", "tol", "tol pair", "max_rounds", "seed"],
)
def test_the_checkpoint_of_another_solve_is_refused(options: dict[str, Any], fact: str, kept: Path) -> None:
    chosen = {"method": "interior-point", "tol": 1e-6, **options}
    assert_refused(kept, "FP-CHECKPOINT-308", fact, **chosen)


def test_other_options_of_the_method_are_refused(tmp_path: Path) -> None:
    stopped("proximal-al", tmp_path, 0.3)
    fact = "options = {'penalty': 10.0}, this one has {'penalty': 11.0}"
    assert_refused(tmp_path, "FP-CHECKPOINT-308", fact, method="proximal-al", penalty=11.0)


@pytest.mark.parametrize(
    "names",
    [("clinic a", "clinic b", "clinic d"), ("clinic b", "clinic a", "clinic c")],
    ids=["another name", "another order"],
)
def test_other_owners_are_refused(names: tuple[str, ...], kept: Path) -> None:
    fact = f"owners = {list(NAMES)}, this one has {list(names)}"
    assert_refused(kept, "FP-CHECKPOINT-308", fact, problem=rename(clinics(), *names))


def test_fewer_owners_are_refused(kept: Path) -> None:
    problem = fp.FederatedProblem(clinics().shares[:2], SERVER, REGULARIZER)
    assert_refused(kept, "FP-CHECKPOINT-308", "owners = ", "'clinic c'], this one has", problem=problem)


#: A round on record asked for something else.
OTHER_ORDER = "FP-CHECKPOINT-301"


@pytest.mark.parametrize("method", METHODS)
def test_another_start_is_refused(method: str, tmp_path: Path) -> None:
    stopped(method, tmp_path, 0.3)
    assert_refused(tmp_path, OTHER_ORDER, method=method, w0=[0.0, 0.0, 1e-3])


def test_another_problem_at_the_server_is_refused(kept: Path) -> None:
    shares = clinics().shares
    other = fp.Share(None, below(Affine([[1.0, 1.0, 1.0]], [-0.8])))
    assert_refused(kept, OTHER_ORDER, problem=fp.FederatedProblem(shares, other, REGULARIZER))
    assert_refused(kept, OTHER_ORDER, problem=fp.FederatedProblem(shares, SERVER, fp.prox.L1(0.06)))


def test_a_secure_sum_is_not_resumed_without_one(kept: Path) -> None:
    pytest.importorskip("cryptography")
    assert_refused(kept, OTHER_ORDER, secure_sum=True)


def test_another_number_of_variables_is_refused(kept: Path) -> None:
    problem = fp.FederatedProblem([fp.Share(fp.functions.Quadratic(np.eye(2), [1.0, 1.0]), name=n) for n in NAMES])
    assert_refused(kept, OTHER_ORDER, problem=problem)


@pytest.mark.parametrize("method", CASES)
def test_other_data_at_an_owner_are_refused(method: str, tmp_path: Path) -> None:
    """Replies of the old data and of the new must not be mixed: the answer would be the history of neither."""
    stopped(method, tmp_path, 0.6)
    with raises_code("FP-CHECKPOINT-001", "clinic b: "):
        solve(method, clinics(shift=0.5), checkpoint=tmp_path, resume=True)


@pytest.mark.parametrize("method", CASES)
def test_an_owner_without_its_memory_ends_the_resumed_run(method: str, tmp_path: Path) -> None:
    stopped(method, tmp_path, 0.6)
    (lost,) = (tmp_path / "owners").glob("clinic_b*")
    lost.rename(tmp_path / "elsewhere")
    found = solve(method, checkpoint=tmp_path, resume=True, retries=0)
    assert found.status == "client_lost"
    assert "clinic b: has no memory of round" in found.reason
    assert "restarted without its state folder" in found.reason
    assert f"the run is kept in {tmp_path}, resume=True goes on with it" in found.reason
    for path in (tmp_path / "elsewhere").iterdir():
        lost.mkdir(exist_ok=True)
        path.replace(lost / path.name)
    assert bits(solve(method, checkpoint=tmp_path, resume=True)) == bits(uninterrupted(method))


# ---------------------------------------------------------------------------------------------------------- secure sums


@pytest.mark.parametrize("part", slow_but([0.01, 0.5], 0.5))
@pytest.mark.parametrize("method", METHODS)
def test_a_secure_run_is_resumed(method: str, part: float, tmp_path: Path) -> None:
    """The masks are those of the stopped run: sums are exact, so even they are the same bits."""
    pytest.importorskip("cryptography")
    expected = uninterrupted(method, secure=True)
    assert expected.solved
    first = stopped(method, tmp_path, part, secure_sum=True)
    assert_stopped(first)
    again = solve(method, checkpoint=tmp_path, resume=True, secure_sum=True)
    assert bits(again) == bits(expected)
    fields = again.communication.owners["clinic a"].fields
    assert any(name.endswith(" (masked)") for name in fields)


# --------------------------------------------------------------------------------------------------------- the record


@pytest.mark.parametrize("method", [*CASES, "inexact-admm"])
def test_the_record_holds_every_message(method: str, tmp_path: Path) -> None:
    path = tmp_path / "messages"
    found = solve(method, record=path)
    assert bits(found) == bits(uninterrupted(method))
    messages = list(read_record(path))
    assert len(messages) == found.communication.messages == 6 * found.rounds
    order = [(m.get("to"), m.get("from"), m["round"]) for m in messages]
    down = [[(name, None, r) for name in NAMES] for r in range(1, found.rounds + 1)]
    up = [[(None, name, r) for name in NAMES] for r in range(1, found.rounds + 1)]
    assert order == [one for pair in zip(down, up, strict=True) for part in pair for one in part]
    for owner, traffic in found.communication.owners.items():
        sent = [m for m in messages if m.get("from") == owner]
        left = {f"{m['type'].partition(':')[2]}.{field}" for m in sent for field in m["content"]["kept"]}
        assert left == set(traffic.fields)
    starts = [m["content"]["w"] for m in messages if m.get("to") == "clinic a" and m["round"] == 1]
    assert [w.tolist() for w in starts] == [[0.0, 0.0, 0.0]]


def test_the_multipliers_leave_their_owners_only_at_the_end(tmp_path: Path) -> None:
    """What an auditor reads: the one message that holds them is the last of each owner."""
    found = solve("proximal-al", record=tmp_path / "messages")
    messages = [m for m in read_record(tmp_path / "messages") if "from" in m]
    holding = [m for m in messages if "multiplier" in m["content"]["kept"]]
    assert [m["round"] for m in holding] == [found.rounds] * 3
    assert exact([m["content"]["kept"]["multiplier"] for m in holding]) == exact(found.multipliers[1:])


def test_the_record_of_a_resumed_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    stopped("accelerated", tmp_path / "kept", 0.5, record=path)
    first = len(path.read_bytes())
    solve("accelerated", checkpoint=tmp_path / "kept", resume=True, record=path)
    assert path.stat().st_size > first
    answered = [m["round"] for m in read_record(path) if m.get("from") == "clinic a"]
    assert set(answered) == set(range(1, uninterrupted("accelerated").rounds + 1))


def test_a_secure_record_holds_no_owners_values(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    found = solve("interior-point", record=tmp_path / "messages", secure_sum=True)
    assert found.solved
    sums = [m["content"]["sums"] for m in read_record(tmp_path / "messages") if "from" in m]
    assert len(sums) == 3 * found.rounds
    assert {part.dtype for part in sums if part.size} == {np.dtype(np.uint64)}


@pytest.mark.parametrize("missing", [1, 7, 9, 100])
def test_a_truncated_record_is_refused(missing: int, tmp_path: Path) -> None:
    path = tmp_path / "messages"
    solve("interior-point", record=path)
    whole = path.read_bytes()
    count = len(list(read_record(path)))
    path.write_bytes(whole[:-missing])
    read = []
    with raises_code("FP-WIRE-310", str(path)):
        read.extend(read_record(path))
    path.write_bytes(whole + b"\x01\x02")
    with raises_code("FP-WIRE-310", str(path)):
        list(read_record(path))
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    path.write_bytes(bytes(damaged))
    with pytest.raises(WireError):
        list(read_record(path))
    assert count == len(NAMES) * 2 * uninterrupted("interior-point").rounds


# ------------------------------------------------------------------------------------------------------------ no pickle

UNSAFE = {
    "pickle",
    "cPickle",
    "_pickle",
    "cloudpickle",
    "dill",
    "marshal",
    "shelve",
    "joblib",
    "copyreg",
    "eval",
    "exec",
}


def unsafe(source: str) -> set[str]:
    """Modules and functions in this source with which bytes could become code."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").partition(".")[0], *(alias.name for alias in node.names)}
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found.add("pickle")
    return found & UNSAFE


@pytest.mark.parametrize("path", sorted(Path(fedpact.federation.__path__[0]).glob("*.py")), ids=lambda path: path.name)
def test_nothing_is_pickled(path: Path) -> None:
    assert unsafe(path.read_text()) == set()


def test_a_pickle_would_be_noticed() -> None:
    for source in ("import pickle", "from pickle import loads", "import numpy as np\nnp.load(f, allow_pickle=True)"):
        assert unsafe(source) == {"pickle"}
    assert unsafe("def f(x):\n    return eval(x)") == {"eval"}
    assert unsafe("import json\nfrom fedpact.federation.wire import loads") == set()
