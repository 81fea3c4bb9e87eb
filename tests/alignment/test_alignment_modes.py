"""Three ways to the same people: who is kept, in which order, what passes between parties, and misuse."""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from raising import raises_code

from fedpact.alignment import (
    align,
    align_by_keyed_hash,
    align_privately,
    blind,
    match,
    private_intersection,
    reblind,
    tags,
)
from fedpact.alignment.private_intersection import PRIME, A, new_key
from fedpact.errors import DataError

KEY = bytes(range(32))
PARTIES: dict[str, list[str | int]] = {
    "bank": ["ann", "bob", "cem", "dai", "eve", 7],
    "shop": ["eve", "7", "zoe", "ann", "cem"],
    "club": [7, "cem", " ann ", "yan", "bob", "eve"],
}


def by_keyed_hash(ids: Mapping[str, Sequence[str | int]], **options: Any) -> dict[str, np.ndarray]:
    return align_by_keyed_hash(ids, KEY, **options)


MODES: list[Callable[..., dict[str, np.ndarray]]] = [align, by_keyed_hash, align_privately]
every_mode = pytest.mark.parametrize("mode", MODES, ids=["clear", "keyed hash", "private"])
private_modes = pytest.mark.parametrize("mode", MODES[1:], ids=["keyed hash", "private"])


def people(ids: Mapping[str, Sequence[str | int]], rows: Mapping[str, np.ndarray]) -> list[str]:
    """Who is listed, in order; the same at every party."""
    assert list(rows) == list(ids)
    listed = [[str(ids[party][row]).strip() for row in rows[party]] for party in ids]
    assert all(other == listed[0] for other in listed)
    return listed[0]


@every_mode
def test_all_parties_list_the_same_people_in_the_same_order(mode: Any) -> None:
    found = people(PARTIES, mode(PARTIES, on_missing="drop"))
    assert sorted(found) == ["7", "ann", "cem", "eve"]


@every_mode
@pytest.mark.parametrize("seed", range(10))
def test_the_people_are_the_intersection(mode: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = [rng.permutation(12)[: rng.integers(1, 13)] for _ in range(rng.integers(2, 5))]  # NumPy's whole numbers
    ids: Any = {f"party {i}": column for i, column in enumerate(columns)}
    if common := set.intersection(*(set(column.tolist()) for column in columns)):
        assert set(people(ids, mode(ids, on_missing="drop"))) == {str(i) for i in common}
    else:
        with raises_code("FP-DATA-403", "no id"):
            mode(ids, on_missing="drop")


@every_mode
def test_nobody_missing_needs_no_option(mode: Any) -> None:
    ids = {"a": [3, 1, 2], "b": ["1", "2", "3"]}
    assert sorted(people(ids, mode(ids))) == ["1", "2", "3"]


def test_order_of_the_clear_mode_is_that_of_the_ids() -> None:
    rows = align({"a": ["b", "c", "a"], "b": ["a", "b", "c"]})
    assert {party: order.tolist() for party, order in rows.items()} == {"a": [2, 0, 1], "b": [0, 1, 2]}


def test_order_of_the_private_modes_depends_on_the_keys_only() -> None:
    ids = {"a": list(range(20)), "b": list(range(20))[::-1]}
    keys = {"a": bytes(range(32)), "b": bytes(range(32, 64))}
    orders = [people(ids, align_privately(ids, keys=keys)) for _ in range(2)]
    assert orders[0] == orders[1] != people(ids, align_privately(ids))
    assert people(ids, by_keyed_hash(ids)) == people(ids, by_keyed_hash(ids))
    assert people(ids, by_keyed_hash(ids)) != people(ids, align_by_keyed_hash(ids, KEY[::-1]))


def test_what_is_the_same_id() -> None:
    decomposed, composed = "Jose\N{COMBINING ACUTE ACCENT}", "Jos\N{LATIN SMALL LETTER E WITH ACUTE}"
    same: dict[str, Any] = {"a": [7, decomposed, np.str_("x")], "b": ["x ", np.int64(7), composed]}
    assert {party: rows.tolist() for party, rows in align(same).items()} == {"a": [0, 1, 2], "b": [1, 2, 0]}
    with raises_code("FP-DATA-403", "no id"):
        align({"a": ["007"], "b": [7]}, on_missing="drop")


# ------------------------------------------------------------------------------------------------- what the curve does


def test_multiplications_commute() -> None:
    keys = {name: new_key() for name in "abc"}
    points = blind("a", ["x", "y"], keys["a"]).points
    one = reblind("c", reblind("b", points, keys["b"]), keys["c"])
    two = reblind("b", reblind("c", points, keys["c"]), keys["b"])
    assert one == two
    start = blind("b", ["y", "x"], keys["b"]).points
    assert set(reblind("c", reblind("a", start, keys["a"]), keys["c"])) == set(one)


@pytest.mark.parametrize("text", [str(i) for i in range(20)])  # all on the curve by chance: once in a million
def test_an_id_becomes_a_point_of_the_curve_and_stays_on_it(text: str) -> None:
    """v^2 = u^3 + A u^2 + u has a solution v: on the twist it has none, and that would show."""
    point = private_intersection._hash_to_curve(text)
    for u in (int.from_bytes(p, "little") for p in (point, *reblind("a", [point], new_key()))):
        right = (u**3 + A * u**2 + u) % PRIME
        root = pow(right, (PRIME + 3) // 8, PRIME)  # of right or of its negative: PRIME is 5 modulo 8
        assert right in (root * root % PRIME, -root * root % PRIME)


def test_the_multiplication_is_x25519() -> None:
    key, other = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    [point] = reblind("a", [other.public_key().public_bytes_raw()], key.private_bytes_raw())
    assert point == other.exchange(key.public_key())


# --------------------------------------------------------------------------------------------------- what is to be seen


def test_messages_have_no_id_and_no_plain_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []

    def seen_reblind(party: str, points: Sequence[bytes], key: bytes) -> list[bytes]:
        done = reblind(party, points, key)
        sent.extend(done)
        return done

    def seen_match(values: Any, **options: Any) -> Any:
        for points in values.values():
            sent.extend(points)
        return match(values, **options)

    monkeypatch.setattr(private_intersection, "reblind", seen_reblind)
    monkeypatch.setattr(private_intersection, "match", seen_match)
    ids = {"a": ["alice@example.org", "bob@example.org"], "b": ["bob@example.org", "carol@example.org"]}
    align_privately(ids, on_missing="drop")
    assert len(sent) == 4 + 4 + 4  # blinded, reblinded, compared
    sent += [tag for party in ids for tag in tags(party, ids[party], KEY)]
    assert {len(message) for message in sent} == {32}
    for text in (text for column in ids.values() for text in column):
        plain = text.encode()
        hashes = {name: hashlib.new(name, plain).digest() for name in ("md5", "sha1", "sha256", "sha512")}
        for message in sent:
            assert plain not in message
            assert private_intersection._hash_to_curve(text) != message
            assert all(digest[:8] not in message for digest in hashes.values())


def test_points_of_two_runs_have_nothing_in_common() -> None:
    runs = [set(blind("a", ["x", "y", "z"], new_key()).points) for _ in range(2)]
    assert runs[0].isdisjoint(runs[1])


def test_points_are_sent_in_an_order_that_is_not_the_tables() -> None:
    blinded = blind("a", list(range(50)), KEY)
    assert list(blinded.points) == sorted(blinded.points)
    assert blinded.rows.tolist() != list(range(50))
    assert sorted(blinded.rows.tolist()) == list(range(50))
    assert "rows" not in repr(blinded)


# ------------------------------------------------------------------------------------------------------------- misuse


@every_mode
@pytest.mark.parametrize(
    ("ids", "code", "facts"),
    [
        ([1, 2, 5, 1], "FP-DATA-406", ["'1'", "rows 0 and 3"]),
        ([7, "7"], "FP-DATA-406", ["'7'", "rows 0 and 1"]),
        ([1, 2.0], "FP-DATA-405", ["row 1", "2.0 (float)"]),
        ([1, float("nan")], "FP-DATA-405", ["row 1", "nan (float)"]),
        ([None], "FP-DATA-405", ["row 0", "None (NoneType)"]),
        ([True], "FP-DATA-405", ["row 0", "True (bool)"]),
        ([1, "  "], "FP-DATA-404", ["row 1"]),
    ],
)
def test_bad_ids_are_named_at_their_party(mode: Any, ids: list[Any], code: str, facts: list[str]) -> None:
    with raises_code(code, "party 'b': ", *facts):
        mode({"a": [1, 2, 7], "b": ids}, on_missing="drop")


def test_missing_people_are_named() -> None:
    lacking = (
        "party 'bank' lacks 2 of 8 ('yan', 'zoe')",
        "party 'shop' lacks 3 of 8 ('bob', 'dai', 'yan')",
        "party 'club' lacks 2 of 8 ('dai', 'zoe')",
    )
    with raises_code("FP-DATA-402", "", *lacking, "on_missing='drop'"):
        align(PARTIES)
    with raises_code("FP-DATA-402", "", "party 'b' lacks 8 of 9 ('1', '2', '3', '4', '5', ...)"):
        align({"a": list(range(9)), "b": [0]})


@private_modes
def test_missing_people_are_counted_only_where_ids_are_secret(mode: Any) -> None:
    with pytest.raises(DataError) as caught:
        mode(PARTIES)
    assert caught.value.code == "FP-DATA-402"
    message = str(caught.value)
    assert "party 'shop' lacks 3 of 8;" in message
    assert "on_missing='drop'" in message
    assert "bob" not in message
    assert "\\x" not in message  # nor a tag


@every_mode
def test_nobody_in_common(mode: Any) -> None:
    with raises_code("FP-DATA-403", "", "'a' has 2, 'b' has 1"):
        mode({"a": [1, 2], "b": [3]}, on_missing="drop")


@every_mode
def test_options_are_checked(mode: Any) -> None:
    with raises_code("FP-OPTION-401", "", "given: a"):
        mode({"a": [1]})
    with raises_code("FP-OPTION-400", "on_missing is 'keep'"):
        mode({"a": [1], "b": [1]}, on_missing="keep")


def test_equal_pseudonyms_of_a_party_are_refused_without_showing_them() -> None:
    with pytest.raises(DataError, match=r"^party 'b': .* rows 0 and 2") as caught:
        match({"a": [b"x"], "b": [b"secret", b"y", b"secret"]}, secret=True)
    assert caught.value.code == "FP-DATA-406"
    assert "secret" not in str(caught.value)


def test_keys_are_checked() -> None:
    with raises_code("FP-OPTION-407", "the key of party 'a' is 5 bytes"):
        align_by_keyed_hash({"a": [1], "b": [1]}, b"short")
    with raises_code("FP-OPTION-407", "the key of party 'a' is str"):
        tags("a", [1], "x" * 32)  # type: ignore[arg-type]
    with raises_code("FP-OPTION-408", "the key of party 'a'"):
        blind("a", [1], b"short")
    with raises_code("FP-OPTION-410", "party 'b'"):
        align_privately({"a": [1], "b": [1]}, keys={"a": KEY})


@pytest.mark.parametrize(
    "point", [bytes(32), b"short", (1).to_bytes(32, "little")], ids=["zero", "short", "small order"]
)
def test_points_that_no_party_makes_are_refused(point: bytes) -> None:
    with raises_code("FP-DATA-409", "party 'b': point 1"):
        reblind("b", [blind("a", [1], KEY).points[0], point], KEY)


def test_without_cryptography_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original: Callable[..., Any] = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return original(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with raises_code("FP-OPTION-411", "", "pip install '.[secure]'"):
        align_privately({"a": [1], "b": [1]})
    assert align_by_keyed_hash({"a": [1], "b": [1]}, KEY)["a"].tolist() == [0]
