"""A small order must not cost a site much: neither memory nor disk, and no keys that stay for ever."""

from __future__ import annotations

import json
import os
import time
import tracemalloc
import zlib
from concurrent.futures import Future
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact.errors import OwnerLost
from fedpact.federation import Fleet, Order, Owner, RemoteFleet, Site
from fedpact.federation.forgetting import AGE, ENDED, RUNS, STATE, forget
from fedpact.federation.messages import LENGTH, LENGTH_FACTOR
from fedpact.federation.owner import confirm, end
from fedpact.federation.secure_sum import Agree, Offer, agree, offer
from fedpact.federation.wire import MAGIC, STEPS, TEXT, VALUES, dumps, loads, name_of, order_type, text_length, to_tree
from fedpact.solvers.steps import At, judge

NAME = "clinic"
SHARE = fp.Share(fp.functions.Quadratic(np.eye(3), [1.0, 2.0, 3.0]), name=NAME)


def written(head: bytes) -> bytes:
    """A message with this head, and the right checksum."""
    body = len(head).to_bytes(8, "little") + head
    return MAGIC + zlib.crc32(body).to_bytes(4, "little") + body


@pytest.mark.parametrize("value", [b"[]", b"{}", b"1", b'{"d":{}}'])
def test_many_tiny_values_are_refused_before_they_are_built(value: bytes) -> None:
    message = written(b"[" + b",".join([value] * (9_900_000 // (len(value) + 1))) + b"]")
    tracemalloc.start()
    try:
        with raises_code("FP-WIRE-660", "", str(VALUES)):
            loads(message)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(message)  # it was 45 times
    finally:
        tracemalloc.stop()


def test_a_long_task_and_a_large_array_still_travel() -> None:
    tree = {"categories": {"town": [f"town {i}, by the sea" for i in range(50_000)]}, "w": np.arange(1e6)}
    found = loads(dumps(tree))
    assert found["categories"] == tree["categories"]
    assert np.array_equal(found["w"], tree["w"])


def test_an_order_with_much_text_is_refused_before_it_is_read() -> None:
    """Escaped, a character takes six bytes on the way and is twice in memory while it is read: 60 MB cost 245 MB."""
    message = written(b'{"d":{"owner":"clinic","task":"' + b"\\u20ac" * 2_000_000 + b'"}}')
    tracemalloc.start()
    try:
        reply = Site(NAME, SHARE).handle(message)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert loads(reply)["error"]["code"] == "FP-WIRE-654"


def test_an_order_with_ten_thousand_columns_is_answered() -> None:
    """Of an unusual length each, in the job and in the task, with the numbers by which they are scaled."""
    names = [f"laboratory value {i}, at admission" for i in range(10_000)]
    scales = {name: [np.pi * i for i in range(len(names))] for name in ("fill", "centre", "scale")}
    data = dumps({"task": {"columns": names, "scaling": scales}, "charter": {"job": {"columns": names}}})
    assert TEXT / 4 < text_length(data) < TEXT
    assert loads(data, TEXT)["task"]["columns"] == names


def lengths() -> list[tuple[str, str]]:
    """Every step of the library, and every field of its order that asks for a length."""
    pairs = [(name, f) for name, step in STEPS.items() for f in fields(order_type(step)) if str(f.type) == "int"]
    return [(step, f.name) for step, f in pairs if step.startswith("fedpact.") and f.name.endswith("length")]


def plain_fields(kind: type[Order]) -> dict[str, Any]:
    """Something for every field of an order."""
    plain = {"int": 0, "float": 0.0, "bool": False, "str": ""}
    return {f.name: plain.get(str(f.type), np.zeros(3)) for f in fields(kind)}


@pytest.mark.parametrize(("step", "field"), lengths())
@pytest.mark.parametrize("value", [10**8, -1])
def test_a_length_out_of_proportion_is_refused(step: str, field: str, value: int) -> None:
    kind = order_type(STEPS[step])
    order = kind(**{**plain_fields(kind), "run": "r", "round": 1, field: value})
    message = {"owner": NAME, "step": step, "order": to_tree(order), "task": None}
    reply = Site(NAME, SHARE).handle(dumps(message))
    assert loads(reply)["error"]["code"] == "FP-OWNER-661"
    assert len(reply) < 1000  # it was 800 MB


def test_lengths_are_those_of_coupled_constraints_and_sketches() -> None:
    assert {field for _, field in lengths()} == {"coupled_length", "length", "free_length"}


@pytest.mark.parametrize(("size", "length"), [(3, LENGTH), (2_000, LENGTH_FACTOR * 2_000)])
def test_a_length_in_proportion_is_given(size: int, length: int) -> None:
    share = fp.Share(fp.functions.Smooth(lambda w: (0.0, np.zeros_like(w))), name=NAME)
    sealed = Owner(NAME, share).handle(judge, At(run="r", round=1, w=np.zeros(size), coupled_length=length))
    assert (length,) in sealed.shapes


# ---------------------------------------------------------------------------------------------------- disk and keys


def ask(site: Site, step: Any, order: Order) -> Any:
    """What the site answers: a reply, or the code of its error."""
    message = {"owner": NAME, "step": name_of(step), "order": to_tree(order), "task": None}
    answer = loads(site.handle(dumps(message)))
    return answer["error"]["code"] if "error" in answer else answer["reply"]


def begin(site: Site, run: str, partner: Site) -> str:
    """Two owners agree on keys, and answer one masked order; the private key."""
    publics = [ask(one, offer, Offer(run=run, round=1))["kept"]["public"] for one in (site, partner)]
    order = Agree(run=run, round=2, after=1, names=json.dumps([NAME, "other"]), publics=json.dumps(publics))
    assert ask(site, agree, order)["kept"] == {"peers": 1}
    masked = ask(site, judge, At(run=run, round=3, after=2, w=np.zeros(3), secure=True))
    assert masked["sums"].dtype == np.uint64
    keys = site._owners[run]._memory.keys  # type: ignore[union-attr]
    assert keys is not None
    return keys.private


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_keys_are_erased_when_the_run_ends_and_none_of_its_orders_is_answered_any_more(tmp_path: Path) -> None:
    site = Site(NAME, SHARE, tmp_path)
    private = begin(site, "r", Site(NAME, SHARE))
    (state,) = tmp_path.rglob(f"*{STATE}")
    assert private.encode() in state.read_bytes()
    assert ask(site, end, Order(run="r", round=3, after=3))["kept"] == {}
    assert files(tmp_path) == [f"r{ENDED}"]
    (rest,) = tmp_path.rglob(f"*{ENDED}")
    assert private.encode() not in rest.read_bytes()
    assert len(rest.read_bytes()) < 500
    for present in (site, Site(NAME, SHARE, tmp_path)):  # and after a restart
        assert present is not site or site._owners["r"]._memory.keys is None  # type: ignore[union-attr]
        # without its keys it would answer in the clear, or agree on new ones
        assert ask(present, judge, At(run="r", round=4, after=3, w=np.zeros(3))) == "FP-OWNER-660"
        assert ask(present, offer, Offer(run="r", round=4, after=3)) == "FP-OWNER-660"
        assert ask(present, judge, At(run="r", round=4, after=3, w=np.zeros(3), look=1)) == "FP-OWNER-660"
        # a finished run that is resumed asks for nothing but this
        assert ask(present, confirm, Order(run="r", round=3, after=3, look=time.time_ns(), secure=True))["kept"] == {}
        assert ask(present, end, Order(run="r", round=3, after=3))["kept"] == {}


def test_a_site_keeps_so_many_runs_and_forgets_those_that_ended_first(tmp_path: Path) -> None:
    site = Site(NAME, SHARE, tmp_path)
    for number in range(RUNS + 20):
        run = f"r{number}"
        ask(site, judge, At(run=run, round=1, w=np.zeros(3)))
        if number in (50, 60):
            ask(site, end, Order(run=run, round=1, after=1))
    kept = files(tmp_path)
    assert len(kept) == RUNS
    assert f"r50{ENDED}" not in kept
    assert f"r60{ENDED}" not in kept
    assert [f"r{number}{STATE}" in kept for number in (0, 17, 18, RUNS + 19)] == [False, False, True, True]


def test_a_run_that_nobody_went_on_with_is_given_up_when_the_site_starts(tmp_path: Path) -> None:
    site = Site(NAME, SHARE, tmp_path)
    begin(site, "old", Site(NAME, SHARE))
    begin(site, "new", Site(NAME, SHARE))
    (old,) = tmp_path.rglob("old.state")
    long_ago = time.time() - AGE - 60
    os.utime(old, (long_ago, long_ago))
    Site(NAME, SHARE, tmp_path, full_text=True)  # of one organisation: this is its checkpoint
    assert files(tmp_path) == ["new.state", "old.state"]
    Site(NAME, SHARE, tmp_path)
    assert files(tmp_path) == ["new.state"]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("flower-node", "audit/audit-000001.jsonl", "notes.state"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (0, 0))
    forget(tmp_path, runs=1)
    assert files(tmp_path) == ["audit-000001.jsonl", "flower-node", "notes.state"]


# ----------------------------------------------------------------------------------------------- the coordinator's part


class Sites:
    """Three sites in this process, as an engine between organisations; `lost` do not answer."""

    networked = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lost = False

    def open(self, shares: Any, folder: Path | None = None) -> Fleet:
        return _Fleet(self, {name: Site(name, share, self.folder) for name, share in shares.items()})


class _Fleet(RemoteFleet):
    networked = True

    def __init__(self, engine: Sites, sites: dict[str, Site]) -> None:
        super().__init__(tuple(sites))
        self._engine = engine
        self._sites = sites

    def send(self, owner: str, data: bytes) -> Future[bytes]:
        answered: Future[bytes] = Future()
        if self._engine.lost:
            answered.set_exception(OwnerLost(f"{owner}: gone", code="FP-LOST-340"))
        else:
            answered.set_result(self._sites[owner].handle(data))
        return answered


def problem() -> fp.FederatedProblem:
    shares = [fp.Share(fp.functions.Quadratic(np.eye(2), [1.0, i]), name=f"owner {i}") for i in range(3)]
    return fp.FederatedProblem(shares)


def test_a_run_that_is_over_leaves_no_keys_at_the_sites(tmp_path: Path) -> None:
    solution = fp.solve(problem(), "interior-point", engine=Sites(tmp_path), secure_sum=True)
    assert solution.solved
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {ENDED}


def test_a_run_that_can_be_resumed_keeps_them(tmp_path: Path) -> None:
    sites = Sites(tmp_path / "sites")
    settings: dict[str, Any] = {"engine": sites, "checkpoint": tmp_path / "run", "retries": 0, "secure_sum": True}

    def lose(progress: fp.Progress) -> None:
        sites.lost = progress.rounds > 4

    lost = fp.solve(problem(), "interior-point", tol=1e-9, callbacks=[lose], **settings)
    assert lost.status == "client_lost"
    assert {path.suffix for path in sites.folder.rglob("*") if path.is_file()} == {STATE}
    sites.lost = False
    again = fp.solve(problem(), "interior-point", tol=1e-9, resume=True, **settings)
    assert again.solved
    assert {path.suffix for path in sites.folder.rglob("*") if path.is_file()} == {ENDED}
    once_more = fp.solve(problem(), "interior-point", tol=1e-9, resume=True, **settings)  # from the checkpoint alone
    assert np.array_equal(once_more.w, again.w)
