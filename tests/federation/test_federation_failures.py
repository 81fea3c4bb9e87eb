"""Owners that are late, gone, or send what cannot be read: the same bits as without, or an end in words."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
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
    at_random,
    below,
    bits,
    clinic,
    clinics,
    clinics_elsewhere,
    coupled,
    exact,
    gone,
    solve,
    stop_at,
    unconstrained,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import slow_but
from numpy.typing import NDArray
from raising import raises_code

import fedpact as fp
import fedpact.data
import fedpact.tasks
from fedpact.cones import PSD, Cone, Exponential, Nonnegative, Product, SecondOrder, Zero
from fedpact.engines import InProcess
from fedpact.errors import CODES, DataError, OptionError, OwnerError, OwnerLost, ProblemError
from fedpact.federation import Fleet, NotFinite, Order, Reply, Session, Site, Summed, client_step
from fedpact.federation import remote as remote_module
from fedpact.federation import tickets as tickets_module
from fedpact.federation.failure import Failure
from fedpact.federation.messages import WORDS
from fedpact.federation.wire import dumps, loads, name_of, to_tree
from fedpact.functions import Affine, Quadratic, Smooth
from fedpact.problem.remote import cone_from_json, cone_to_json, describe, stand_in
from fedpact.solvers import Solution

TOLD = ("order lost", "reply lost")
SILENT = ("order silent", "reply silent", "late")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets_module, "PAUSE", 0.0)
    monkeypatch.setattr("os.fsync", lambda file: None)


@functools.cache
def neyman_pearson() -> fp.FederatedProblem:
    return fedpact.tasks.neyman_pearson(fedpact.data.neyman_pearson(n=4, seed=0), bound=0.2)


@functools.cache
def undisturbed(method: str, problem: str = "clinics", **options: Any) -> Solution:
    if problem == "neyman-pearson":
        return fp.solve(neyman_pearson(), method, tol=1e-2, **options)
    return solve(method, **options)


# ---------------------------------------------------------------------------------------- faults that are got over


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kinds", [TOLD, SILENT], ids=["told", "silent"])
@pytest.mark.parametrize("method", CASES)
def test_a_third_of_the_messages_lost_and_the_same_bits(method: str, kinds: tuple[str, ...], seed: int) -> None:
    expected = undisturbed(method)
    engine = Faulty(at_random(0.3, kinds, seed), delay=0.1)
    found = solve(method, engine=engine, deadline=0.01 if kinds is SILENT else None, retries=30)
    assert found.solved
    assert bits(found, traffic=False) == bits(expected, traffic=False)
    assert {what for _, _, what in engine.orders} == {"", *kinds}
    for name, traffic in found.communication.owners.items():
        sent = [(order.round, what) for owner, order, what in engine.orders if owner == name]
        assert traffic.messages_down == len(sent) > found.rounds
        assert traffic.messages_up == found.rounds == len({round for round, _ in sent})


@pytest.mark.parametrize("method", CASES)
def test_the_same_with_owners_in_threads(method: str) -> None:
    engine = Faulty(at_random(0.3, TOLD), threads=3)
    found = solve(method, engine=engine, retries=30)
    assert bits(found, traffic=False) == bits(undisturbed(method), traffic=False)


@pytest.mark.parametrize("method", CASES)
def test_the_same_on_neyman_pearson(method: str) -> None:
    engine = Faulty(at_random(0.3, TOLD))
    found = fp.solve(neyman_pearson(), method, tol=1e-2, engine=engine, retries=30)
    assert found.solved
    assert bits(found, traffic=False) == bits(undisturbed(method, "neyman-pearson"), traffic=False)


@pytest.mark.parametrize("method", CASES)
def test_the_same_with_secure_sums(method: str) -> None:
    """Masks depend on the order alone: asked again, an owner sends the same ones, and they cancel."""
    pytest.importorskip("cryptography")
    found = solve(method, engine=Faulty(at_random(0.3, TOLD)), retries=30, secure_sum=True)
    assert bits(found, traffic=False) == bits(undisturbed(method, secure_sum=True), traffic=False)


def test_pauses_grow_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(tickets_module, "PAUSE", 0.05)
    monkeypatch.setattr(tickets_module.time, "sleep", pauses.append)
    found = solve("interior-point", engine=Faulty(gone("clinic b", 2)), retries=9)
    assert found.status == "client_lost"
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_silent_owner_is_waited_for_as_long_as_the_deadline_says() -> None:
    engine = Faulty(lambda owner, order: "order silent" if owner == "clinic b" and order.round == 3 else "")
    found = solve("interior-point", engine=engine, deadline=0.15, retries=2)
    assert found.status == "client_lost"
    assert found.reason == "clinic b: no reply to round 3 within 0.15 s"
    assert [order.round for owner, order, _ in engine.orders if owner == "clinic b"] == [1, 2, 3, 3, 3]


# ---------------------------------------------------------------------------------- replies to past rounds come late


@dataclass(frozen=True, kw_only=True)
class Count(Order):
    add: float


@dataclass(frozen=True, kw_only=True)
class Counted(Reply):
    value: Summed[float]
    round: int
    total: float


@client_step
def count(share: float, state: float | None, order: Count) -> tuple[float, Counted]:
    total = (state or 0.0) + order.add
    return total, Counted(value=share * total, round=order.round, total=total)


class Held:
    """An engine whose replies of one owner are handed out when we say so."""

    def __init__(self, owner: str) -> None:
        self.owner, self.held = owner, list[tuple[Future[Any], Future[Any]]]()
        self.hold = False

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        fleet = InProcess(jointly=False).open(shares, folder)
        direct = fleet.start

        def start(owner: str, step: Any, order: Order) -> Future[Any]:
            answered = direct(owner, step, order)
            if not (owner == self.owner and self.hold):
                return answered
            self.hold = False
            late: Future[Any] = Future()
            self.held.append((late, answered))
            return late

        fleet.start = start  # type: ignore[method-assign]
        return fleet

    def release(self) -> None:
        for late, answered in self.held:
            late.set_result(answered.result())


def test_late_replies_of_past_rounds_are_ignored() -> None:
    engine = Held("b")
    with Session(engine, deadline=0.02).open({"a": 1.0, "b": 10.0}) as session:
        totals = []
        for _ in range(4):
            engine.hold = True
            answers = session.ask(count, Count(add=1.0))
            assert [answer.round for answer in answers] == [len(totals) + 1] * 2
            totals.append((answers[0].total, answers[1].total, answers.total.value))
            if len(totals) == 2:
                engine.release()
                engine.held.clear()
        traffic = session.ledger.read().owners
    assert totals == [(float(k), float(k), 11.0 * k) for k in (1, 2, 3, 4)]
    assert (traffic["a"].messages_down, traffic["b"].messages_down) == (4, 8)
    assert (traffic["a"].messages_up, traffic["b"].messages_up) == (4, 4)


def test_an_old_reply_stands_in_only_where_the_step_allows_it() -> None:
    """`count` cannot be skipped: with "stale" it is asked again."""
    engine = Faulty(lambda owner, order: "order lost" if owner == "b" and order.round == 2 else "")
    with Session(engine, on_failure="stale", retries=3).open({"a": 1.0, "b": 10.0}) as session:
        session.ask(count, Count(add=1.0))
        with raises_code("FP-LOST", "b: its order lost"):
            session.ask(count, Count(add=1.0))
    assert [order.round for owner, order, _ in engine.orders if owner == "b"] == [1, 2, 2, 2, 2]


# --------------------------------------------------------------------------------------------------- with old replies

STALE_TOL = 1e-4


@functools.cache
def without_faults() -> Solution:
    return fp.solve(clinics(), "proximal-al", tol=STALE_TOL)


def waits(engine: Faulty, owner: str) -> list[int]:
    """For every round in which an old reply of this owner stood in: how old it was, in rounds."""
    last, found = 0, []
    rounds: dict[int, str] = {}
    for name, order, what in engine.orders:
        if name == owner:
            rounds[order.round] = what  # of the last attempt
    for round, what in rounds.items():
        if what:
            found.append(round - last)
        else:
            last = round
    return found


@pytest.mark.parametrize(
    ("kinds", "max_staleness"),
    slow_but([(("order lost",), 2), (("reply lost",), 2), (TOLD, 1), (TOLD, 5)], (TOLD, 5)),
    ids=["orders", "replies", "both 1", "both 5"],
)
def test_old_replies_stand_in_for_lost_ones(kinds: tuple[str, ...], max_staleness: int) -> None:
    expected = without_faults()
    engine = Faulty(at_random(0.3, kinds))
    options: dict[str, Any] = {"on_failure": "stale", "max_staleness": max_staleness, "retries": 30}
    found = fp.solve(clinics(), "proximal-al", tol=STALE_TOL, engine=engine, **options)
    assert found.status == "solved", found.reason
    assert found.certificate.worst <= STALE_TOL
    assert fp.certify(clinics(), found.w, found.multipliers) == found.certificate
    assert abs(found.objective - expected.objective) <= STALE_TOL * (1 + abs(expected.objective))
    assert np.max(np.abs(found.w - expected.w)) <= STALE_TOL
    ages = [age for name in NAMES for age in waits(engine, name)]
    assert len(ages) > 20
    assert max(ages) <= max_staleness
    assert max(ages) >= min(max_staleness, 3)  # the bound is made use of
    up = sum(traffic.messages_up for traffic in found.communication.owners.values())
    assert up == 3 * found.rounds - len(ages)


def test_old_replies_stand_in_for_an_owner_that_is_silent() -> None:
    engine = Faulty(at_random(0.2, ("reply silent", "late"), seed=3), delay=0.02)
    found = fp.solve(clinics(), "proximal-al", tol=1e-2, engine=engine, on_failure="stale", deadline=0.005, retries=30)
    assert found.solved
    assert np.max(np.abs(found.w - without_faults().w)) <= 1e-2


def test_an_owner_away_for_longer_than_that_is_waited_for_and_then_lost() -> None:
    engine = Faulty(gone("clinic b", 9))
    options: dict[str, Any] = {"on_failure": "stale", "max_staleness": 4, "retries": 2}
    found = fp.solve(clinics(), "proximal-al", tol=STALE_TOL, engine=engine, **options)
    assert found.status == "client_lost"
    asked = [order.round for owner, order, _ in engine.orders if owner == "clinic b"]
    assert asked == [*range(1, 10), 10, 11, 12, 13, 14, 14, 14]


@pytest.mark.parametrize("method", ["interior-point", "accelerated"])
def test_methods_without_steps_to_skip_ask_again(method: str) -> None:
    found = solve(method, engine=Faulty(at_random(0.3, TOLD)), on_failure="stale", retries=30)
    assert bits(found, traffic=False) == bits(undisturbed(method), traffic=False)


def test_old_replies_in_inexact_admm() -> None:
    expected = fp.solve(unconstrained(), "inexact-admm", tol=1e-6)
    engine = Faulty(at_random(0.3, TOLD))
    found = fp.solve(unconstrained(), "inexact-admm", tol=1e-6, engine=engine, on_failure="stale", retries=30)
    assert found.solved
    assert np.max(np.abs(found.w - expected.w)) <= 1e-6
    assert max(age for name in NAMES for age in waits(engine, name)) in (2, 3)


def test_a_run_with_old_replies_is_resumed(tmp_path: Path) -> None:
    """The record knows which replies were old: counted as they were, and the owners are not asked to remember more."""
    options: dict[str, Any] = {"on_failure": "stale", "retries": 30, "checkpoint": tmp_path, "tol": STALE_TOL}
    engine = Faulty(at_random(0.3, TOLD))
    first = fp.solve(clinics(), "proximal-al", engine=engine, callbacks=[stop_at(40)], **options)
    assert first.status == "interrupted"
    assert any(waits(engine, name) for name in NAMES)
    found = fp.solve(clinics(), "proximal-al", resume=True, engine=Faulty(at_random(0.3, TOLD, seed=1)), **options)
    assert found.solved
    assert np.max(np.abs(found.w - without_faults().w)) <= STALE_TOL


# ------------------------------------------------------------------------------------------------------ gone for good


def assert_lost(found: Solution, owner: str) -> None:
    assert found.status == "client_lost"
    assert not found.solved
    assert owner in found.reason
    assert [m.shape for m in found.multipliers] == [(1,), (1,), (1,), (0,)]
    assert np.all(np.isfinite(found.multipliers[0]))
    assert all(np.all(np.isnan(m)) for m in found.multipliers[1:])
    assert found.w.shape == (3,)
    assert np.all(np.isfinite(found.w))
    assert "client_lost" in repr(found)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.7, 0.99])
@pytest.mark.parametrize("method", CASES)
def test_an_owner_gone_for_good_and_back_after_a_resume(method: str, part: float, tmp_path: Path) -> None:
    expected = undisturbed(method)
    after = int(part * expected.rounds)
    engine = Faulty(gone("clinic b", after))
    found = solve(method, engine=engine, retries=2, checkpoint=tmp_path)
    assert_lost(found, "clinic b: its order lost")
    assert found.reason.endswith(f"; the run is kept in {tmp_path}, resume=True goes on with it")
    assert found.rounds == after + 1
    assert [order.round for owner, order, _ in engine.orders if owner == "clinic b"][after:] == [after + 1] * 3
    assert [order.round for owner, order, _ in engine.orders if owner == "clinic a"] == list(range(1, after + 2))
    again = Faulty()
    assert bits(solve(method, engine=again, checkpoint=tmp_path, resume=True)) == bits(expected)
    # the round in which the others had answered is repeated, not redone: they have it on their disks
    assert next(order.round for _, order, _ in again.orders if not order.look) == after + 1


def test_everyone_who_is_gone_is_named() -> None:
    def both(owner: str, order: Order) -> str:
        return "order lost" if owner != "clinic b" and order.round > 2 else ""

    found = solve("interior-point", engine=Faulty(both), retries=1)
    assert_lost(found, "clinic a: its order lost; clinic c: its order lost")


@pytest.mark.parametrize("method", CASES)
def test_stop_ends_at_once(method: str) -> None:
    engine = Faulty(lambda owner, order: "order lost" if owner == "clinic b" and order.round == 4 else "")
    found = solve(method, engine=engine, on_failure="stop")
    assert_lost(found, "clinic b")
    assert [order.round for owner, order, _ in engine.orders if owner == "clinic b"] == [1, 2, 3, 4]


def test_no_retries_end_at_once_too() -> None:
    engine = Faulty(gone("clinic b", 4))
    assert_lost(solve("accelerated", engine=engine, retries=0), "clinic b")
    assert [order.round for owner, order, _ in engine.orders if owner == "clinic b"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("method", CASES)
def test_prices_of_a_coupled_problem_that_lost_an_owner(method: str, after: int) -> None:
    """The server's prices and the coupled constraint's are told apart, as in any other solution."""
    found = fp.solve(coupled(), method, engine=Faulty(gone("south", after)), retries=0)
    assert found.status == "client_lost"
    assert [m.shape for m in found.multipliers] == [(1,), (0,), (0,)]
    assert found.coupled_multiplier.shape == (1,)
    assert found.w.shape == (2,)


def test_interrupted_and_then_an_owner_is_gone(tmp_path: Path) -> None:
    """The look for the prices fails: still an answer, and a run that can be resumed."""
    engine = Faulty(lambda owner, order: "order lost" if owner == "clinic b" and order.look else "")
    found = solve("interior-point", engine=engine, retries=0, checkpoint=tmp_path, callbacks=[stop_at(5)])
    assert_lost(found, "clinic b")
    again = solve("interior-point", checkpoint=tmp_path, resume=True)
    assert bits(again) == bits(undisturbed("interior-point"))


@pytest.mark.parametrize("raised", [DataError("3 missing values"), ZeroDivisionError("by zero")], ids=["data", "any"])
def test_an_error_of_the_owner_itself_is_raised_and_not_asked_for_again(raised: Exception) -> None:
    def broken(w: np.ndarray) -> tuple[float, np.ndarray]:
        raise raised

    shares = [clinic(0), replace(clinic(1), objective=Smooth(broken, dim=3)), clinic(2)]
    engine = Faulty()
    with pytest.raises((DataError, OwnerError), match=f"^clinic b: .*{raised}") as caught:
        fp.solve(fp.FederatedProblem(shares), "proximal-al", engine=engine)
    assert isinstance(caught.value, DataError if isinstance(raised, DataError) else OwnerError)
    assert not isinstance(caught.value, OwnerLost)
    assert [(owner, order.round) for owner, order, _ in engine.orders] == [(name, 1) for name in NAMES]


# -------------------------------------------------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("options", "code", "fact"),
    [
        ({"on_failure": "ignore"}, "FP-OPTION-306", "on_failure = 'ignore': "),
        ({"on_failure": None}, "FP-OPTION-306", "on_failure = None: "),
        ({"deadline": 0}, "FP-OPTION-307", "deadline = 0: "),
        ({"deadline": -1.0}, "FP-OPTION-307", "deadline = -1.0: "),
        ({"deadline": np.nan}, "FP-OPTION-307", "deadline = nan: "),
        ({"deadline": np.inf}, "FP-OPTION-307", "deadline = inf: "),
        ({"deadline": "5"}, "FP-OPTION-307", "deadline = '5': "),
        ({"retries": -1}, "FP-OPTION-303", "retries = -1: give a whole number of at least 0"),
        ({"retries": 1.5}, "FP-OPTION-303", "retries = 1.5: give a whole number of at least 0"),
        ({"retries": None}, "FP-OPTION-303", "retries = None: give a whole number of at least 0"),
        ({"max_staleness": 0}, "FP-OPTION-303", "max_staleness = 0: give a whole number of at least 1"),
        ({"max_staleness": "3"}, "FP-OPTION-303", "max_staleness = '3': give a whole number of at least 1"),
        ({"on_failure": "stale", "secure_sum": True}, "FP-OPTION-309", 'on_failure="stale"'),
    ],
    ids=str,
)
def test_a_policy_that_means_nothing_is_refused(options: dict[str, Any], code: str, fact: str, tmp_path: Path) -> None:
    engine = Faulty()
    with raises_code(code, fact):
        solve("interior-point", engine=engine, checkpoint=tmp_path / "kept", **options)
    assert engine.orders == []
    assert not (tmp_path / "kept").exists()


# ------------------------------------------------------------------------------------------- owners behind bytes


@pytest.mark.parametrize("method", METHODS)
def test_every_order_meets_a_process_that_has_just_started(method: str, tmp_path: Path) -> None:
    engine = Wire(folder=tmp_path, restarting=True)
    assert bits(solve(method, engine=engine)) == bits(undisturbed(method))


def test_without_their_folders_restarted_owners_are_lost() -> None:
    found = solve("interior-point", engine=Wire(restarting=True), retries=1)
    assert_lost(found, "clinic a: has no memory of round 1, its last is 0; it was restarted without its state folder")


@pytest.mark.parametrize("method", METHODS)
def test_bytes_change_nothing_in_a_secure_sum(method: str) -> None:
    pytest.importorskip("cryptography")
    assert bits(solve(method, engine=Wire(), secure_sum=True)) == bits(undisturbed(method, secure_sum=True))


@pytest.mark.parametrize("method", CASES)
def test_damaged_bytes_are_sent_again(method: str) -> None:
    """A third of all messages, down or up, are cut, changed, or lost on the way."""
    rng = np.random.default_rng(7)

    def shaken(owner: str, data: bytes) -> bytes:
        chance = rng.random()
        if chance > 0.18:
            return data
        position = int(rng.integers(len(data)))
        if chance < 0.06:
            return data[:position]
        if chance < 0.12:
            return data[:position] + bytes([data[position] ^ int(rng.integers(1, 256))]) + data[position + 1 :]
        raise OwnerLost(f"{owner}: the line is cut")

    found = solve(method, engine=Wire(down=shaken, up=shaken), retries=30)
    assert found.solved
    assert bits(found, traffic=False) == bits(undisturbed(method), traffic=False)


@dataclass(frozen=True)
class Year:
    """A task: the rows of one year."""

    year: int

    def stated(self) -> dict[str, Any]:
        return {"columns": ["age", "sex"], "year": self.year}


@pytest.mark.parametrize("engine", [None, Wire()], ids=["sequence", "bytes"])
def test_owners_build_their_share_from_the_task_that_is_posed_once_for_each(engine: Any) -> None:
    built: list[tuple[str, Any]] = []

    def build(number: int, task: Any) -> fp.Share:
        built.append((NAMES[number], task))
        return clinic(number)

    sources = {name: partial(build, i) for i, name in enumerate(NAMES)}
    expected = solve("interior-point", clinics_elsewhere())
    with Session(engine).open(sources) as session:
        for year in (2024, 2025):
            task = Year(year)
            session.pose(task)
            for _ in range(2):
                found = solve("interior-point", fp.RemoteProblem(sources, SERVER, REGULARIZER), session=session)
                assert bits(found) == bits(expected)
            told = task.stated() if isinstance(engine, Wire) else task
            assert built[-3:] == [(name, told) for name in NAMES]
    assert len(built) == 6


def test_between_organisations_sums_are_secret_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")

    class Networked(Wire):
        def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
            fleet = super().open(shares, folder)
            fleet.networked = True
            return fleet

    masked = {
        (method, secure): any(
            "(masked)" in name
            for name in solve(method, engine=Networked(), secure_sum=secure).communication.owners["clinic a"].fields
        )
        for method in ("interior-point", "accelerated")
        for secure in (None, False, True)
    }
    assert masked == {
        ("interior-point", None): True,
        ("interior-point", False): False,
        ("interior-point", True): True,
        ("accelerated", None): True,
        ("accelerated", False): False,
        ("accelerated", True): True,
    }


# ---------------------------------------------------------------------------- what the server does not take from a site


def lying(change: Callable[[dict[str, Any]], Any], round: int = 2) -> Wire:
    """The second clinic's replies to this round are changed by somebody who knows the format."""

    def up(owner: str, data: bytes) -> bytes:
        message = loads(data)
        if owner == "clinic b" and message.get("round") == round:
            message = change(message) or message
        return dumps(message)

    return Wire(up=up)


def set_in(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(message: dict[str, Any]) -> None:
        for key in path[:-1]:
            message = message[key]
        message[path[-1]] = to

    return change


def remove(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(message: dict[str, Any]) -> None:
        for key in path[:-1]:
            message = message[key]
        del message[path[-1]]

    return change


def nan_in_sums(message: dict[str, Any]) -> None:
    sums = message["reply"]["sums"].copy()
    sums[3] = np.nan
    message["reply"]["sums"] = sums


def shorter_sums(message: dict[str, Any]) -> None:
    message["reply"]["sums"] = message["reply"]["sums"][:-1]


def masked_sums(message: dict[str, Any]) -> None:
    message["reply"]["sums"] = np.zeros((message["reply"]["sums"].size, WORDS), np.uint64)


def whole_sums(message: dict[str, Any]) -> None:
    message["reply"]["sums"] = np.zeros(message["reply"]["sums"].size, np.int64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_in("round", to=1), "clinic b: a reply to round 1 came instead of 2"),
        (set_in("round", to=3), "clinic b: a reply to round 3 came instead of 2"),
        (set_in("round", to=None), "clinic b: a reply to round None came instead of 2"),
        (set_in("run", to="another"), "clinic b: a reply to round 2 came instead of 2"),
        (remove("run"), "clinic b: a reply"),
        (remove("reply"), "clinic b: System is incomplete"),
        (set_in("reply", to=None), "clinic b: System is incomplete"),
        (set_in("reply", to=[1, 2]), "clinic b: System is incomplete"),
        (remove("reply", "sums"), "clinic b: System is incomplete: 'sums'"),
        (remove("reply", "shapes"), "clinic b: System is incomplete: 'shapes'"),
        (remove("reply", "kept", "usable"), "clinic b: System: fields ['usable'] are missing or unknown"),
        (set_in("reply", "kept", "more", to=1), "clinic b: System: fields ['more'] are missing or unknown"),
        (set_in("reply", "kept", "usable", to=1), "clinic b: System.usable is int, expected bool"),
        (set_in("reply", "kept", "violation", to="0"), "clinic b: System.violation is str, expected float"),
        (set_in("reply", "kept", "violation", to=None), "clinic b: System.violation is NoneType, expected float"),
        (set_in("reply", "kept", "violation", to=np.nan), "clinic b: its System has a non-finite violation"),
        (set_in("reply", "kept", "feasibility", to=np.inf), "clinic b: its System has a non-finite feasibility"),
        (nan_in_sums, "clinic b: its System has a non-finite sum"),
        (shorter_sums, "clinic b: System: its summed fields"),
        (masked_sums, "clinic b: "),
        (whole_sums, "clinic b: "),
        (lambda message: [1, 2], "clinic b: this is not a message"),
        (lambda message: "text", "clinic b: this is not a message"),
        (lambda message: {"error": to_tree(Failure("FP-WIRE"))}, "clinic b: FP-WIRE: "),
        (lambda message: {"error": to_tree(Failure("FP-LOST", text="clinic b: gone"))}, "clinic b: gone"),
        (lambda message: {"error": "OwnerLost", "message": "clinic b: x"}, "clinic b: error is str, expected Failure"),
        (lambda message: {"error": {"code": "FP-LOST"}}, "clinic b: error: fields ["),
    ],
    ids=[
        *("past round", "future round", "no round", "other run", "no run", "no reply", "none", "list", "no sums"),
        *("no shapes", "field missing", "field more", "int for bool", "str for float", "none for float", "nan", "inf"),
        *("nan in sums", "shorter sums", "masked sums", "whole sums", "a list", "a text", "damaged", "gone"),
        *("no failure", "half a failure"),
    ],
)
def test_a_reply_that_is_not_what_was_asked_for_is_not_used(change: Callable[..., Any], message: str) -> None:
    found = solve("interior-point", engine=lying(change), retries=1)
    assert_lost(found, "clinic b")
    assert found.reason.startswith(message)
    once: list[int] = []

    def once_only(reply: dict[str, Any]) -> Any:
        once.append(1)
        return change(reply) if len(once) == 1 else None

    again = solve("interior-point", engine=lying(once_only), retries=1)
    assert bits(again, traffic=False) == bits(undisturbed("interior-point"), traffic=False)
    assert len(once) == 2


def test_an_unmasked_reply_to_a_secure_order_is_not_used() -> None:
    """Else it would be added to masked ones, and the sum be noise."""
    pytest.importorskip("cryptography")

    def plain(message: dict[str, Any]) -> None:
        message["reply"]["sums"] = np.zeros(len(message["reply"]["sums"]))

    for engine in (lying(plain, round=4), lying(plain, round=3)):
        found = solve("interior-point", engine=engine, retries=0, secure_sum=True)
        assert_lost(found, "clinic b")


def test_shapes_that_differ_between_owners_are_an_error() -> None:
    def longer(message: dict[str, Any]) -> None:
        sums, shapes = message["reply"]["sums"], message["reply"]["shapes"]
        shapes[0] = [shapes[0][0] + 1]
        message["reply"]["sums"] = np.append(sums, 0.0)

    with raises_code("FP-OWNER-302", "clinic b: ", "System"):
        solve("interior-point", engine=lying(longer))


def test_a_reply_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit lies between the largest order and the replies, which hold matrices."""
    sizes: dict[str, int] = {"down": 0, "up": 10**9}

    def down(owner: str, data: bytes) -> bytes:
        sizes["down"] = max(sizes["down"], len(data))
        return data

    def up(owner: str, data: bytes) -> bytes:
        sizes["up"] = min(sizes["up"], len(data))
        return data + bytes(2000)

    with_room = Wire(down=down)
    solve("interior-point", engine=with_room)
    monkeypatch.setattr(remote_module, "LARGEST", sizes["down"] + 500)
    found = solve("interior-point", engine=Wire(up=up), retries=0)
    assert_lost(found, "clinic a: a message of ")
    assert re.search(rf"clinic b: a message of \d+ bytes is over the limit of {sizes['down'] + 500}", found.reason)


def test_an_order_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "LARGEST", 100)
    with raises_code("FP-OPTION-305", "", "over the limit of 100"):
        solve("interior-point", engine=Wire())


@pytest.mark.parametrize("engine", [InProcess(), InProcess(threads=2), Wire()], ids=["sequence", "threads", "bytes"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_order_that_is_not_finite_is_not_sent(bad: float, engine: Any) -> None:
    with Session(engine).open({"a": 1.0, "b": 2.0}) as session:
        with pytest.raises(NotFinite, match=r"^round 1 .* Count\.add") as caught:
            session.ask(count, Count(add=bad))
        assert caught.value.code == "FP-PROBLEM-301"
        assert session.ledger.read().messages == 0


def test_an_order_that_is_not_finite_is_refused_at_the_site() -> None:
    code, text = refusal(site_of(), order_of(order=to_tree(Count(run="r1", round=1, add=np.nan))))
    assert code == "FP-OWNER-020"
    assert text.startswith("clinic b: ")
    assert "Count.add" in text


def test_a_sum_that_overflows_is_an_error() -> None:
    with Session().open({"a": 1.5e308, "b": 1.5e308}) as session, raises_code("FP-OWNER-303", "", "Counted"):
        session.ask(count, Count(add=1.0))


def test_a_step_that_is_not_registered_is_not_sent() -> None:
    def sneaky(share: Any, state: Any, order: Order) -> tuple[Any, Counted]:
        return state, Counted(value=1.0, round=1, total=1.0)

    engine = Wire()
    with (
        Session(engine).open({"a": 1.0}) as session,
        raises_code("FP-OPTION-304", "", "sneaky"),
    ):
        session.ask(sneaky, Order())


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (DataError("column 'age' has 3 missing values"), DataError, "clinic b: column 'age' has 3 missing values"),
        (ProblemError("no rows"), ProblemError, "clinic b: no rows"),
        (ZeroDivisionError("by zero"), OwnerError, "clinic b: introduce failed with ZeroDivisionError: by zero"),
    ],
)
def test_an_owners_error_keeps_its_class_and_name(raised: Exception, expected: type[Exception], message: str) -> None:
    def broken(w: np.ndarray) -> tuple[float, np.ndarray]:
        raise raised

    problem = fp.FederatedProblem([clinic(0), fp.Share(Smooth(broken, dim=3), name="clinic b")])
    for engine in (None, Wire()):
        with pytest.raises(expected) as caught:
            fp.solve(problem, "proximal-al", engine=engine)
        assert type(caught.value) is expected
        assert str(caught.value) == message


# ------------------------------------------------------------------------------ what a site does not take from a server


def order_of(**changes: Any) -> dict[str, Any]:
    order = to_tree(Count(run="r1", round=1, add=1.0))
    return {"owner": "clinic b", "step": name_of(count), "order": order, "task": {}, **changes}


def answer(site: Site, message: Any) -> dict[str, Any]:
    read = loads(site.handle(dumps(message)))
    assert isinstance(read, dict)
    return read


def refusal(site: Site, message: Any) -> tuple[str, str]:
    """The code and the text of the error with which a site answers."""
    failure = answer(site, message)["error"]
    return failure["code"], failure["text"]


def site_of(share: object = 2.0, folder: Path | None = None) -> Site:
    return Site("clinic b", share, folder, full_text=True)


def test_a_site_answers_an_order() -> None:
    found = answer(site_of(), order_of())
    assert (found["run"], found["round"]) == ("r1", 1)
    assert found["reply"]["kept"] == {"value": None, "round": 1, "total": 1.0}
    assert found["reply"]["sums"].tolist() == [2.0]


@pytest.mark.parametrize(
    "step",
    ["os:system", "builtins:eval", "builtins:exec", "subprocess:run", "fedpact.solve:solve", "", "x", None, 5, [], {}],
    ids=str,
)
def test_only_steps_of_methods_run_at_a_site(step: Any) -> None:
    code, text = refusal(site_of(), order_of(step=step))
    assert code == "FP-OWNER-009"
    assert text.startswith(f"clinic b: asked to run {step!r}, which is no step of a method")


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        (order_of(owner="clinic a"), "FP-OWNER-008", "clinic b: got an order for 'clinic a'"),
        (order_of(owner=None), "FP-OWNER-008", "clinic b: got an order for None"),
        ({"owner": "clinic b"}, "FP-WIRE-002", "clinic b: "),
        ([], "FP-WIRE-002", "clinic b: "),
        (None, "FP-WIRE-002", "clinic b: "),
        (order_of(order={}), "FP-WIRE-306", "clinic b: order: fields ['add', "),
        (order_of(order=None), "FP-WIRE-305", "clinic b: order is NoneType, expected Count"),
        (
            order_of(order={**order_of()["order"], "add": "1"}),
            "FP-WIRE-305",
            "clinic b: order.add is str",
        ),
        (
            order_of(order={**order_of()["order"], "round": 1.0}),
            "FP-WIRE-305",
            "clinic b: order.round is float",
        ),
        (
            order_of(order={**order_of()["order"], "x": 1}),
            "FP-WIRE-306",
            "clinic b: order: fields ['x']",
        ),
    ],
    ids=["other owner", "no owner", "no step", "list", "none", "empty", "no order", "text", "float", "unknown"],
)
def test_an_order_that_is_none_is_refused_in_words(message: Any, code: str, words: str) -> None:
    site = site_of()
    found = refusal(site, message)
    assert found[0] == code
    assert found[1].startswith(words)
    assert answer(site, order_of())["round"] == 1


def test_a_site_refuses_what_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dumps(order_of())
    monkeypatch.setattr(remote_module, "LARGEST", len(data))
    assert loads(site_of().handle(data))["round"] == 1
    found = loads(site_of().handle(data + b"x"))["error"]
    assert found["code"] == "FP-WIRE-001"
    assert f"a message of {len(data) + 1} bytes is over the limit of {len(data)}" in found["text"]


def test_a_run_that_is_a_path_is_refused_at_the_site(tmp_path: Path) -> None:
    order = {**order_of()["order"], "run": "../../x"}
    found = refusal(site_of(folder=tmp_path / "a" / "b"), order_of(order=order))
    assert found == ("FP-OWNER-007", "clinic b: '../../x' is not the name of a run")
    assert list(tmp_path.rglob("*")) == []


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(
    data=st.one_of(
        st.binary(max_size=60),
        TREES.map(dumps),
        st.fixed_dictionaries(dict.fromkeys(("owner", "step", "order", "task"), TREES)).map(dumps),
        st.tuples(st.sampled_from(["owner", "step", "order", "task"]), TREES).map(
            lambda change: dumps({**order_of(), change[0]: change[1]})
        ),
        st.tuples(st.sampled_from(["run", "round", "after", "look", "secure", "add"]), TREES).map(
            lambda change: dumps(order_of(order={**order_of()["order"], change[0]: change[1]}))
        ),
    )
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_whatever_comes_a_site_answers(data: bytes) -> None:
    found = loads(site_of().handle(data))
    if "error" in found:
        assert found["error"]["code"] in CODES
        assert found["error"]["text"].startswith("clinic b: ")
    else:
        assert found["reply"]["sums"].shape == (1,)


def test_a_site_that_cannot_write_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    code, text = refusal(site_of(folder=tmp_path / "file"), order_of())
    assert code == "FP-OWNER-001"
    assert re.match(r"clinic b: .*(NotADirectory|FileExists)Error", text)


def test_a_site_serves_several_runs_and_remembers_the_latest(tmp_path: Path) -> None:
    def ask(site: Site, run: str, round: int) -> dict[str, Any]:
        order = {**order_of()["order"], "run": run, "round": round, "after": round - 1}
        return answer(site, order_of(order=order))

    for folder in (None, tmp_path):
        site = site_of(folder=folder)
        runs = [f"run{i}" for i in range(remote_module.RUNS + 1)]
        for run_name in runs:
            assert ask(site, run_name, 1)["reply"]["kept"]["total"] == 1.0
        assert ask(site, runs[-1], 2)["reply"]["kept"]["total"] == 2.0
        first = ask(site, runs[0], 2)  # no longer in memory
        if folder is None:
            assert first["error"]["code"] == "FP-LOST-001"
            assert "has no memory of round 1" in first["error"]["text"]
        else:
            assert first["reply"]["kept"]["total"] == 2.0


# ------------------------------------------------------------------------------------- problems that only owners hold


def test_auto_chooses_from_what_the_owners_say() -> None:
    found = fp.solve(clinics_elsewhere(), tol=1e-6)
    assert (found.method, found.status) == ("interior-point", "solved")
    assert bits(found, traffic=False, rounds=False)["w"] == exact(undisturbed("interior-point").w)


@pytest.mark.parametrize("method", CASES)
def test_such_a_run_is_resumed(method: str, tmp_path: Path) -> None:
    expected = solve(method, clinics_elsewhere())
    first = solve(method, clinics_elsewhere(), checkpoint=tmp_path, callbacks=[stop_at(expected.rounds // 2)])
    assert first.status == "interrupted"
    assert bits(solve(method, clinics_elsewhere(), checkpoint=tmp_path, resume=True)) == bits(expected)

    def gone() -> fp.Share:
        raise FileNotFoundError("its table")

    elsewhere = fp.RemoteProblem(dict.fromkeys(NAMES, gone), SERVER, REGULARIZER)
    with raises_code("FP-OWNER-001", "clinic a: building its share failed"):  # nothing is solved without its data
        solve(method, elsewhere, checkpoint=tmp_path, resume=True)
    assert bits(solve(method, clinics_elsewhere(), checkpoint=tmp_path, resume=True)) == bits(expected)


@pytest.mark.parametrize("method", ["interior-point", "accelerated", "proximal-al"])
@pytest.mark.parametrize("engine", [None, Wire()], ids=["sequence", "bytes"])
def test_a_coupled_constraint_of_owners_elsewhere(engine: Any, method: str) -> None:
    def build(number: int) -> fp.Share:
        return coupled().shares[number]

    problem = fp.RemoteProblem({"north": partial(build, 0), "south": partial(build, 1)}, coupled().server)
    found = fp.solve(problem, method, engine=engine, tol=1e-4)
    expected = fp.solve(coupled(), method, tol=1e-4)
    assert found.solved
    assert found.coupled_multiplier.size == 1
    assert bits(found, traffic=False, rounds=False) == bits(expected, traffic=False, rounds=False)


def test_a_pooling_method_is_refused() -> None:
    message = 'method "centralized-proximal-al" reads shares, which only their owners hold; use "proximal-al"'
    with pytest.raises(OptionError) as caught:
        fp.solve(clinics_elsewhere(), "centralized-proximal-al")
    assert str(caught.value) == message


def with_source(source: object) -> fp.RemoteProblem:
    sources: dict[str, object] = {name: partial(clinic, i) for i, name in enumerate(NAMES)}
    return fp.RemoteProblem({**sources, "clinic b": source}, SERVER, REGULARIZER)


def missing_file() -> fp.Share:
    return fp.Share(Quadratic(np.loadtxt("no_such_file.csv"), [0.0]))


def missing_values() -> fp.Share:
    raise DataError("column 'age' has 3 missing values (rows 4, 19, 77); impute or drop them")


def no_share() -> Any:
    return {"objective": 1}


def empty_share() -> fp.Share:
    return fp.Share()


def bad_values() -> fp.Share:
    return fp.Share(Quadratic(np.full((3, 3), np.nan), np.zeros(3)))


def two_variables() -> fp.Share:
    return fp.Share(Quadratic(np.eye(2), np.zeros(2)))


@pytest.mark.parametrize("engine", [None, Wire()], ids=["sequence", "bytes"])
@pytest.mark.parametrize(
    ("source", "expected", "message"),
    [
        (missing_file, OwnerError, "clinic b: building its share failed with FileNotFoundError: no_such_file.csv"),
        (missing_values, DataError, r"clinic b: column 'age' has 3 missing values \(rows 4, 19, 77\); impute or drop"),
        (no_share, ProblemError, "clinic b: .*expected an fp.Share, got dict"),
        (empty_share, ProblemError, "clinic b: .*the share is empty"),
        (bad_values, DataError, "clinic b: "),
        (two_variables, ProblemError, "clinic b: its objective takes vectors of length 2, but .* takes length 3"),
    ],
    ids=["file", "data", "no share", "empty", "values", "columns"],
)
def test_an_error_while_building_names_the_owner(
    source: Callable[[], Any], expected: type[Exception], message: str, engine: Any
) -> None:
    with pytest.raises(expected, match=f"^{message}") as caught:
        fp.solve(with_source(source), engine=engine)
    assert type(caught.value) is expected


def test_an_owner_away_at_the_first_exchange_is_an_error() -> None:
    """Nothing is known of the problem yet, so there is no point to give back."""
    with raises_code("FP-LOST", "clinic b: its order lost"):
        fp.solve(clinics_elsewhere(), engine=Faulty(gone("clinic b", 0)), retries=1)


def test_an_owner_that_goes_away_later_ends_the_solve() -> None:
    assert_lost(solve("accelerated", clinics_elsewhere(), engine=Faulty(gone("clinic b", 4)), retries=1), "clinic b")


def test_a_problem_needs_owners() -> None:
    with pytest.raises(ProblemError, match="a problem needs at least one owner; give RemoteProblem"):
        fp.RemoteProblem({})


def test_shares_may_be_given_as_they_are() -> None:
    problem = fp.RemoteProblem({name: clinic(i) for i, name in enumerate(NAMES)}, SERVER, REGULARIZER)
    found, expected = solve("accelerated", problem), undisturbed("accelerated")
    assert bits(found, traffic=False, rounds=False) == bits(expected, traffic=False, rounds=False)


def test_a_share_without_hessians_is_known_as_such() -> None:
    smooth = Smooth(lambda w: (0.5 * float(w @ w), w), dim=3)
    problem = with_source(lambda: fp.Share(smooth))
    with pytest.raises(OptionError, match=r"interior-point.* Hessians.* clinic b"):
        fp.solve(problem, "interior-point")
    found = fp.solve(problem, tol=1e-3)
    assert (found.method, found.status) == ("accelerated", "solved")


def test_a_share_that_does_not_know_its_length_needs_a_start() -> None:
    problem = fp.RemoteProblem({"a": lambda: fp.Share(Smooth(lambda w: (0.5 * float(w @ w), w)))})
    with pytest.raises(ProblemError, match="the dimension is not known from the functions; give w0"):
        fp.solve(problem, "proximal-al")
    assert np.max(np.abs(fp.solve(problem, "proximal-al", w0=[1.0, 2.0]).w)) < 1e-2


class Half(Cone):
    """A cone of somebody's own making: the nonnegative numbers."""

    dim = 1

    def project(self, v: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.maximum(v, 0.0)

    def project_dual_jacobian(self, v: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.diag((v > 0).astype(float))

    def project_normal(self, v: NDArray[np.float64], multiplier: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(multiplier > 0, 0.0, np.minimum(v, 0.0))


@pytest.mark.parametrize(
    "cone",
    [
        Zero(2),
        Nonnegative(3),
        SecondOrder(4),
        PSD(3),
        Exponential(),
        Product([Zero(1), Product([SecondOrder(3), PSD(2)]), Nonnegative(1)]),
    ],
    ids=lambda cone: type(cone).__name__,
)
def test_the_server_knows_the_kind_of_a_cone(cone: Cone) -> None:
    found = cone_from_json(cone_to_json(cone))
    assert repr(found) == repr(cone)
    assert (type(found), found.dim) == (type(cone), cone.dim)
    v = np.linspace(-1.0, 2.0, cone.dim)
    assert found.project(v).tobytes() == cone.project(v).tobytes()


def test_a_stand_in_has_the_shape_of_the_share_and_no_more() -> None:
    share = fp.Share(Quadratic(np.eye(3), np.zeros(3)), below(Affine([[1.0, 0.0, 0.0]], [0.0])), name="a")
    other = stand_in("a", describe(share))
    assert (other.label, other.multiplier_length, other.has_hessian) == ("a", 1, True)
    assert {role: part.dim for role, part in other.parts.items()} == {"objective": 3, "constraint": 3}
    for part in other.parts.values():
        with pytest.raises(ProblemError, match=r"^a: its .* is known to its owner only; use a federated method$"):
            part.value(np.zeros(3))


def test_a_cone_of_the_owners_own_making() -> None:
    problem = with_source(lambda: replace(clinic(1), constraint=fp.Constraint(clinic(1).constraint.function, Half())))
    with pytest.raises(OptionError, match=r"interior-point.* clinic b .*OtherCone\(dim=1\)"):
        fp.solve(problem, "interior-point")
    found = solve("accelerated", problem)
    assert found.solved
    assert np.max(np.abs(found.w - undisturbed("accelerated").w)) < 1e-3
