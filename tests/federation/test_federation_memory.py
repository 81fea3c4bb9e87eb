"""An owner's memory on its disk: a process that is killed goes on where it was; a memory that is lost is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import exact
from numpy.typing import NDArray
from raising import raises_code

from fedpact.errors import DataError, OwnerError
from fedpact.federation import Order, Owner, Reply, Sealed, Step, Summed
from fedpact.federation.memory import VERSION
from fedpact.federation.messages import seal
from fedpact.federation.secure_sum import Agree, Offer, add, agree, decode, negative, offer, reveal
from fedpact.federation.wire import client_step, dumps, loads

Vector = NDArray[np.float64]
RUN = "a1b2c3"


@dataclass(frozen=True)
class Place:
    at: Vector
    turn: Vector  # kept in columns: the order of a matrix must survive too
    count: int
    last: float | None = None


@dataclass(frozen=True, kw_only=True)
class Go(Order):
    w: Vector
    far: float = 1.0


@dataclass(frozen=True, kw_only=True)
class GoOn(Go):
    """The same content under another name."""


@dataclass(frozen=True, kw_only=True)
class Gone(Reply):
    at: Summed[Vector]
    length: Summed[float]
    count: int


class Share:
    """Counts how often a step ran."""

    def __init__(self) -> None:
        self.calls = 0


@client_step
def go(share: Share, state: Place | None, order: Go) -> tuple[Place, Gone]:
    """A walk whose every step depends, with its rounding, on all before."""
    share.calls += 1
    if state is None:
        state = Place(np.ones(4) / 3, np.asfortranarray(np.random.default_rng(1).normal(size=(4, 4)) / 3), 0)
    if order.far < 0:
        raise DataError("too far")
    at = state.turn @ state.at + order.far * order.w / 7
    return Place(at, state.turn, state.count + 1, order.far), Gone(at=at, length=float(at @ at), count=state.count + 1)


@client_step
def go_back(share: Share, state: Place, order: Go) -> tuple[Place, Gone]:
    """Another step that takes the same order."""
    at = state.at - order.w
    return Place(at, state.turn, state.count - 1), Gone(at=at, length=float(at @ at), count=state.count - 1)


def order(round: int, **changes: Any) -> Go:
    w = np.random.default_rng(round).normal(size=4)
    given: dict[str, Any] = {"run": RUN, "round": round, "after": round - 1, "durable": round - 1, "w": w}
    return Go(**{**given, **changes})


def walk(rounds: int, **stamp: Any) -> list[Sealed[Any]]:
    """What an owner answers that is never restarted."""
    owner = Owner("clinic b", Share())
    return [owner.handle(go, order(r, **stamp)) for r in range(1, rounds + 1)]


def memory_file(folder: Path) -> Path:
    (path,) = folder.rglob("*.state")
    return path


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is killed here is an object, not the machine."""
    monkeypatch.setattr("os.fsync", lambda file: None)


# ----------------------------------------------------------------------------------------------- killed, and goes on


def test_an_owner_killed_after_every_round_goes_on_bit_for_bit(tmp_path: Path) -> None:
    found = [Owner("clinic b", Share(), tmp_path).handle(go, order(r)) for r in range(1, 9)]
    assert exact(found) == exact(walk(8))
    assert found[-1].kept.count == 8


def test_a_step_that_failed_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    owner = Owner("clinic b", Share(), tmp_path)
    owner.handle(go, order(1))
    before = memory_file(tmp_path).read_bytes()
    for bad in (-1.0, np.nan):
        with pytest.raises((DataError, OwnerError), match=r"^clinic b: "):
            owner.handle(go, order(2, far=bad))
    assert memory_file(tmp_path).read_bytes() == before
    again = Owner("clinic b", Share(), tmp_path).handle(go, order(2))
    assert exact(again) == exact(walk(2)[-1])


def test_a_repeated_order_is_answered_from_disk(tmp_path: Path) -> None:
    first = Owner("clinic b", Share(), tmp_path).handle(go, order(1))
    share = Share()
    owner = Owner("clinic b", share, tmp_path)
    assert exact(owner.handle(go, order(1))) == exact(first)
    assert exact(owner.handle(go, order(1, after=0, durable=0))) == exact(first)
    assert share.calls == 0
    assert exact(owner.handle(go, order(2))) == exact(walk(2)[-1])
    assert share.calls == 1


def test_an_answer_that_was_read_is_written_again(tmp_path: Path) -> None:
    """Killed, repeated, gone on, killed, repeated: an answer outlives more than one restart."""
    first = Owner("clinic b", Share(), tmp_path).handle(go, order(1, durable=0))
    Owner("clinic b", Share(), tmp_path).handle(go, order(2, durable=0))
    share = Share()
    assert exact(Owner("clinic b", share, tmp_path).handle(go, order(1, durable=0))) == exact(first)
    assert share.calls == 0


RESTART = pytest.mark.parametrize("restart", [False, True], ids=["same process", "restarted"])


def walked(folder: Path, rounds: int, restart: bool, **stamp: Any) -> Owner:
    owner = Owner("clinic b", Share(), folder)
    for r in range(1, rounds + 1):
        owner.handle(go, order(r, **stamp))
    return Owner("clinic b", Share(), folder) if restart else owner


@RESTART
@pytest.mark.parametrize(
    ("step", "changed"),
    [
        (go, order(3, w=np.zeros(4))),
        (go, order(3, far=np.nextafter(1.0, 2.0))),
        (go, GoOn(**vars(order(3)))),
        (go_back, order(3)),
    ],
    ids=["other w", "one bit", "other type", "other step"],
)
def test_another_order_in_the_same_round_is_refused(restart: bool, step: Step, changed: Go, tmp_path: Path) -> None:
    owner = walked(tmp_path, 3, restart)
    with raises_code("FP-OWNER-003", "clinic b: ", "3"):
        owner.handle(step, changed)
    assert exact(owner.handle(go, order(3))) == exact(walk(3)[-1])


@RESTART
def test_a_past_round_is_refused(restart: bool, tmp_path: Path) -> None:
    owner = walked(tmp_path, 3, restart)
    with raises_code("FP-OWNER-004", "clinic b: ", "2", "3"):
        owner.handle(go, order(2))


def test_another_run_is_refused_in_memory_and_has_a_file_of_its_own(tmp_path: Path) -> None:
    owner = walked(tmp_path, 3, restart=False)
    with raises_code("FP-OWNER-002", "clinic b: ", "'other'", "'a1b2c3'"):
        owner.handle(go, order(4, run="other"))
    fresh = Owner("clinic b", Share(), tmp_path)
    assert fresh.handle(go, order(1, run="other")).kept.count == 1
    assert sorted(path.name for path in tmp_path.rglob("*.state")) == ["a1b2c3.state", "other.state"]
    assert exact(Owner("clinic b", Share(), tmp_path).handle(go, order(4))) == exact(walk(4)[-1])


@pytest.mark.parametrize("run", ["", "../../x", "a/b", "..", "a b", "x" * 65, "a\x00"], ids=repr)
def test_a_run_is_never_a_path(run: str, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "c"
    with raises_code("FP-OWNER-007", "clinic b: ", repr(run)):
        Owner("clinic b", Share(), folder).handle(go, order(1, run=run))
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "..", "a/b", "é ü", "a\nb", "clinic"], ids=repr)
def test_whatever_an_owner_is_called_its_file_stays_in_the_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "owners"
    Owner(name, Share(), folder).handle(go, order(1))
    assert len(list(folder.rglob("*.state"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["owners"]
    assert exact(Owner(name, Share(), folder).handle(go, order(2))) == exact(walk(2)[-1])


def test_owners_of_similar_names_do_not_share_a_file(tmp_path: Path) -> None:
    """In one process they share the folder: none may overwrite the other's state."""
    names = ["a b", "a_b", "a/b", "A b", "a  b", "a" * 300, "a" * 299 + "b"]
    owners = [Owner(name, Share(), tmp_path) for name in names]
    for r in (1, 2):
        for i, owner in enumerate(owners):
            owner.handle(go, order(r, far=1.0 + i))
    assert len(list(tmp_path.rglob("*.state"))) == len(names)
    for i, name in enumerate(names):
        again = Owner(name, Share(), tmp_path)
        assert exact(again.handle(go, order(2, far=1.0 + i))) == exact(owners[i].handle(go, order(2, far=1.0 + i)))


# ----------------------------------------------------------------------------------------------- a memory that is lost


def test_a_round_the_server_counts_on_must_be_remembered() -> None:
    with raises_code("FP-LOST-001", "clinic b: ", "5", "0", "state folder"):
        Owner("clinic b", Share()).handle(go, order(6))


def test_an_empty_folder_is_a_lost_memory(tmp_path: Path) -> None:
    walked(tmp_path, 3, restart=False)
    memory_file(tmp_path).unlink()
    with raises_code("FP-LOST-001", "clinic b: ", "round 3", "0", "state folder"):
        Owner("clinic b", Share(), tmp_path).handle(go, order(4))


def test_an_older_copy_of_the_memory_is_noticed(tmp_path: Path) -> None:
    owner = walked(tmp_path, 2, restart=False)
    older = memory_file(tmp_path).read_bytes()
    for r in (3, 4):
        owner.handle(go, order(r))
    newer = memory_file(tmp_path).read_bytes()
    memory_file(tmp_path).write_bytes(older)
    share = Share()
    with raises_code("FP-LOST-001", "clinic b: ", "round 4", "2"):
        Owner("clinic b", share, tmp_path).handle(go, order(5))
    assert share.calls == 0
    memory_file(tmp_path).write_bytes(newer)
    assert exact(Owner("clinic b", Share(), tmp_path).handle(go, order(5))) == exact(walk(5)[-1])


def test_a_round_that_the_server_did_without_is_not_missed(tmp_path: Path) -> None:
    """An order that got lost, and an old reply stood in for its answer: the server counts on the round before."""
    owner = walked(tmp_path, 2, restart=True)
    assert owner.handle(go, order(4, after=2)).kept.count == 3


def damaged(folder: Path, change: Callable[[bytes], bytes]) -> None:
    """The owner's file is changed: it must say so, and go on when the file is back."""
    walked(folder, 3, restart=False)
    path = memory_file(folder)
    whole = path.read_bytes()
    path.write_bytes(change(whole))
    share = Share()
    owner = Owner("clinic b", share, folder)
    for _ in range(2):
        with raises_code("FP-LOST-002", "clinic b: ", "a1b2c3"):
            owner.handle(go, order(4))
    assert share.calls == 0
    path.write_bytes(whole)
    assert exact(owner.handle(go, order(4))) == exact(walk(4)[-1])


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_truncated_memory_is_refused(part: float, tmp_path: Path) -> None:
    damaged(tmp_path, lambda data: data[: int(part * len(data))])
    assert memory_file(tmp_path).stat().st_size > 0


@pytest.mark.parametrize("part", [0.0, 0.015, 0.3, 0.6, 0.95])
def test_a_damaged_memory_is_refused(part: float, tmp_path: Path) -> None:
    def flip(data: bytes) -> bytes:
        position = int(part * len(data))
        return data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]

    damaged(tmp_path, flip)
    assert memory_file(tmp_path).stat().st_size > 0


@pytest.mark.parametrize(
    "content",
    [b"\x80\x04K\x01.", b"{}", b"\x00" * 100, dumps(None), dumps([]), dumps({}), dumps(3), dumps("x")],
    ids=["pickle", "json", "zeros", "none", "list", "dict", "number", "text"],
)
def test_a_foreign_file_is_refused(content: bytes, tmp_path: Path) -> None:
    damaged(tmp_path, lambda data: content)
    assert memory_file(tmp_path).stat().st_size > len(content)


@pytest.mark.parametrize(
    "change",
    [
        {"version": VERSION + 1},
        {"version": VERSION - 1},
        {"data": None},
        {"data": 5},
        {"data": [5]},
        {"version": None},
        {"owner": "clinic a"},
        {"run": "other"},
        {"round": "3"},
        {"round": None},
        {"type": "os:system"},
        {"type": "builtins:NoneType"},
        {"type": "fedpact.gone:State"},
        {"type": "test_federation_memory:Gone"},
        {"state": None},
        {"state": {"at": 1.0}},
        {"keys": {"private": 5, "names": [], "shared": []}},
        {"keys": "x"},
        {"answers": None},
        {"answers": [{"round": 3}]},
        {"answers": [5]},
    ],
    ids=json.dumps,
)
def test_a_memory_of_something_else_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    """The file is whole, but not this owner's, of this run, or of this version."""
    damaged(tmp_path, lambda data: dumps({**loads(data), **change}))
    assert memory_file(tmp_path).stat().st_size > 0


def test_the_file_of_another_owner_is_refused(tmp_path: Path) -> None:
    walked(tmp_path / "mine", 3, restart=False)
    other = Owner("clinic a", Share(), tmp_path / "theirs")
    for r in (1, 2, 3):
        other.handle(go, order(r))
    memory_file(tmp_path / "mine").write_bytes(memory_file(tmp_path / "theirs").read_bytes())
    with raises_code("FP-LOST-002", "clinic b: "):
        Owner("clinic b", Share(), tmp_path / "mine").handle(go, order(4))


# --------------------------------------------------------------------------------------------- what is kept, and where


def test_the_memory_is_for_its_owner_only(tmp_path: Path) -> None:
    owner = walked(tmp_path, 1, restart=False)
    assert memory_file(tmp_path).stat().st_mode & 0o777 == 0o600
    memory_file(tmp_path).chmod(0o644)
    owner.handle(go, order(2))
    assert memory_file(tmp_path).stat().st_mode & 0o777 == 0o600


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    owner = Owner("clinic b", Share())
    owner.handle(go, order(1))
    owner.save()
    assert list(tmp_path.rglob("*")) == []


def test_an_owner_in_the_servers_process_writes_when_told_to(tmp_path: Path) -> None:
    owner = Owner("clinic b", Share(), tmp_path, every=False)
    owner.save()
    for r in (1, 2, 3):
        owner.handle(go, order(r, durable=0))
    assert list(tmp_path.rglob("*.state")) == []
    owner.save()
    owner.handle(go, order(4, durable=0))
    again = Owner("clinic b", Share(), tmp_path)
    assert exact([again.handle(go, order(r, durable=0)) for r in (1, 2, 3)]) == exact(walk(3))
    assert exact(again.handle(go, order(4))) == exact(walk(4)[-1])


@RESTART
def test_replies_are_kept_until_they_are_durable(restart: bool, tmp_path: Path) -> None:
    """The server has written down rounds 1 and 2 only: of the others it may ask again."""
    owner = walked(tmp_path, 6, restart, durable=2)
    expected = walk(6)
    for r in (3, 5, 6, 4):
        assert exact(owner.handle(go, order(r, durable=2))) == exact(expected[r - 1])
    for r in (1, 2):
        with raises_code("FP-OWNER-004", "clinic b: ", f"round {r}", "round 6"):
            owner.handle(go, order(r, durable=2))
    assert owner.handle(go, order(7, durable=6)).kept.count == 7
    assert loads(memory_file(tmp_path).read_bytes())["answers"][0]["round"] == 7
    with raises_code("FP-OWNER-004", "clinic b: ", "round 6", "round 7"):
        owner.handle(go, order(6, durable=6))


@RESTART
def test_a_look_leaves_no_trace(restart: bool, tmp_path: Path) -> None:
    owner = walked(tmp_path, 3, restart)
    before = memory_file(tmp_path).read_bytes()
    seen = [owner.handle(go, order(r, after=3, look=1)) for r in (4, 4, 5, 2)]
    assert [s.kept.count for s in seen] == [4] * 4
    assert exact(seen[0]) == exact(seen[1]) == exact(walk(4)[-1])
    owner.save()
    assert memory_file(tmp_path).read_bytes() == before
    assert exact(owner.handle(go, order(4))) == exact(walk(4)[-1])


def test_a_look_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    owner = walked(tmp_path, 3, restart=True)
    with pytest.raises(DataError, match=r"^clinic b: too far$"):
        owner.handle(go, order(4, look=1, far=-1.0))
    assert exact(owner.handle(go, order(4))) == exact(walk(4)[-1])


def test_a_look_needs_the_memory_too() -> None:
    """Else the step would start from nothing, and answer something that has no meaning or fail for no reason."""
    with raises_code("FP-LOST-001", "clinic b: ", "round 3"):
        Owner("clinic b", Share()).handle(go, order(4, after=3, look=1))


# ---------------------------------------------------------------------------------------------------- sources and keys


def test_a_share_is_built_once_and_where_it_is_needed() -> None:
    built: list[Share] = []

    def build() -> Share:
        built.append(Share())
        return built[-1]

    owner = Owner("clinic b", build)
    assert built == []
    assert exact([owner.handle(go, order(r)) for r in (1, 2)]) == exact(walk(2))
    assert len(built) == 1


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (FileNotFoundError("b.csv"), OwnerError, "clinic b: building its share failed with FileNotFoundError: b.csv"),
        (DataError("column 'age' is missing"), DataError, "clinic b: column 'age' is missing"),
    ],
)
def test_an_error_while_building_names_the_owner(raised: Exception, expected: type[Exception], message: str) -> None:
    failing = [raised, raised]

    def build() -> Share:
        if failing:
            raise failing.pop()
        return Share()

    owner = Owner("clinic b", build)
    for _ in range(2):
        with pytest.raises(expected) as caught:
            owner.handle(go, order(1))
        assert str(caught.value) == message
    assert exact(owner.handle(go, order(1))) == exact(walk(1)[0])  # the file was put in place


NAMES = ["clinic a", "clinic b", "clinic c"]


def agreed(folder: Path | None) -> list[Owner]:
    """Three owners that hold keys for secure sums: rounds 1 and 2."""
    pytest.importorskip("cryptography")
    owners = [Owner(name, Share(), folder) for name in NAMES]
    offered = [owner.handle(offer, Offer(run=RUN, round=1)).kept.public for owner in owners]
    told = Agree(run=RUN, round=2, after=1, names=json.dumps(NAMES), publics=json.dumps(offered))
    assert [owner.handle(agree, told).kept.peers for owner in owners] == [2, 2, 2]
    return owners


def secure(round: int, **stamp: Any) -> Go:
    return order(round, **{"secure": True, "after": 2, **stamp})


def plain(round: int) -> NDArray[np.float64]:
    """What an owner would send without a mask in its first round."""
    return seal(go(Share(), None, order(round))[1]).sums


def test_keys_survive_a_restart(tmp_path: Path) -> None:
    owners = agreed(tmp_path)
    before = [owner.handle(go, secure(3)) for owner in owners]
    again = [Owner(name, Share(), tmp_path) for name in NAMES]
    after = [owner.handle(go, secure(3)) for owner in again]
    assert exact(before) == exact(after)  # the same masks
    assert all(sealed.sums.dtype == np.uint64 for sealed in after)
    mixed = [before[0].sums, after[1].sums, before[2].sums]
    assert np.allclose(reveal(mixed), 3 * plain(3), rtol=0, atol=1e-15)
    assert not any(np.allclose(decode(part), plain(3)) for part in mixed)


def test_a_second_offer_does_not_drop_the_keys(tmp_path: Path) -> None:
    """Dropped keys would let the next order be answered without masks."""
    owner = agreed(tmp_path)[1]
    owner.handle(offer, Offer(run=RUN, round=3))
    with raises_code("FP-OWNER-006"):
        owner.handle(go, order(4, after=3))
    assert owner.handle(go, secure(4, after=3)).sums.dtype == np.uint64


def test_keys_cannot_be_agreed_on_with_others(tmp_path: Path) -> None:
    """A coordinator that plays all peers after the real ones have agreed would take their masks off."""
    owner = agreed(tmp_path)[1]
    own = owner.handle(offer, Offer(run=RUN, round=3)).kept.public
    forged = [Owner(name, Share()).handle(offer, Offer(run=RUN, round=1)).kept.public for name in "xy"]
    publics = json.dumps([forged[0], own, forged[1]])
    with raises_code("FP-OWNER-621"):
        owner.handle(agree, Agree(run=RUN, round=4, names=json.dumps(NAMES), publics=publics))


def test_one_look_is_answered_once(tmp_path: Path) -> None:
    """Two answers under one mask, on data or at a state that changed in between, would tell the difference."""
    owner = agreed(tmp_path)[1]
    asked = secure(4, look=7)
    first = owner.handle(go, asked)
    owner.handle(go, secure(3))
    assert exact([owner.handle(go, replace(asked, after=3))]) == exact([first])  # the very same bytes
    with raises_code("FP-LOST-620"):
        owner.handle(go_back, asked)
    with raises_code("FP-LOST-620"):
        Owner("clinic b", Share(), tmp_path).handle(go, asked)


def test_a_repeated_offer_is_the_same_key(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    first = Owner("clinic b", Share(), tmp_path).handle(offer, Offer(run=RUN, round=1)).kept.public
    assert Owner("clinic b", Share(), tmp_path).handle(offer, Offer(run=RUN, round=1)).kept.public == first
    other = Owner("clinic b", Share(), tmp_path).handle(offer, Offer(run="other", round=1)).kept.public
    assert other != first


def test_keys_are_not_asked_of_the_share() -> None:
    pytest.importorskip("cryptography")

    def build() -> Share:
        raise AssertionError("the share is not needed yet")

    owner = Owner("clinic b", build)
    assert len(owner.handle(offer, Offer(run=RUN, round=1)).kept.public) == 64


def test_a_secure_order_without_keys_is_a_lost_memory() -> None:
    with raises_code("FP-LOST-003", "clinic b: "):
        Owner("clinic b", Share()).handle(go, secure(1, after=0))


def test_two_messages_never_share_a_mask(tmp_path: Path) -> None:
    """Else their difference would tell the server the difference of one owner's values."""
    owner = agreed(tmp_path)[1]
    owner.handle(go, secure(3))
    sent = [
        owner.handle(go, secure(4, look=1)),
        owner.handle(go_back, secure(4, look=2)),
        owner.handle(go, secure(5, look=3, w=secure(4).w)),
        owner.handle(go, GoOn(**vars(secure(4, look=4)))),
        owner.handle(go, secure(4, look=5)),
        owner.handle(go, secure(4)),
    ]
    here = go(Share(), None, secure(3))[0]
    on, back = (seal(step(Share(), here, secure(4))[1]).sums for step in (go, go_back))
    values = [on, back, on, on, on, on]
    for i in range(len(sent)):
        for j in range(i):
            difference = decode(add(sent[i].sums, negative(sent[j].sums)))
            assert not np.any(np.abs(difference - (values[i] - values[j])) < 1e-6), (i, j)
