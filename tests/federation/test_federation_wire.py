"""Messages and states as bytes: they come back bit for bit, and whatever was not written by us is refused."""

from __future__ import annotations

import functools
import json
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import numpy as np
import pytest
from faults import METHODS, exact, solve
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from raising import raises_code

from fedpact.engines import InProcess
from fedpact.errors import WireError
from fedpact.federation import Fleet, Order, Reply, Sealed, Step, Summed
from fedpact.federation.messages import WORDS
from fedpact.federation.wire import (
    DTYPES,
    MAGIC,
    SKIPPABLE,
    STEPS,
    client_step,
    dumps,
    from_tree,
    hints,
    loads,
    name_of,
    order_type,
    reply_type,
    resolve,
    sealed_from_tree,
    sealed_to_tree,
    to_tree,
    write_atomically,
)

Vector = NDArray[np.float64]

# ------------------------------------------------------------------------------------------------------- trees and back


def assert_same_tree(found: Any, given: Any) -> None:
    """Equal in type, value and bits; arrays in their layout too."""
    assert exact(found) == exact(given)
    if isinstance(given, np.ndarray):
        contiguous = (given.flags.c_contiguous, given.flags.f_contiguous)
        if any(contiguous):
            assert (found.flags.c_contiguous, found.flags.f_contiguous) == contiguous
        assert found.flags.aligned
        assert not found.flags.writeable
    elif isinstance(given, dict):
        for key in given:
            assert_same_tree(found[key], given[key])
    elif isinstance(given, list | tuple):
        for one, other in zip(found, given, strict=True):
            assert_same_tree(one, other)
    else:
        assert type(found) is type(given)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (3, 0), (0, 3), (2, 3, 4), (1, 1)], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_array_comes_back(dtype: str, shape: tuple[int, ...], order: str) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype, order=order)  # type: ignore[call-overload]
    assert_same_tree(loads(dumps(array)), array)


def test_the_order_of_a_matrix_survives_because_sums_depend_on_it() -> None:
    fortran = np.asfortranarray(np.random.default_rng(0).normal(size=(7, 5)))
    found = loads(dumps({"factor": fortran, "other": fortran.copy(order="C")}))
    assert found["factor"].flags.f_contiguous
    assert not found["factor"].flags.c_contiguous
    assert found["other"].flags.c_contiguous
    assert found["factor"].T.tobytes() == found["other"].T.tobytes() == fortran.T.tobytes()


def test_a_million_floats_are_written_with_one_copy_and_read_with_none() -> None:
    numbers = np.arange(1e6)
    peak_of_dumps, message = peak_memory(lambda: dumps({"sums": numbers}))
    peak_of_loads, found = peak_memory(lambda: loads(message))
    assert peak_of_dumps < 1.01 * numbers.nbytes
    assert peak_of_loads < 0.01 * numbers.nbytes
    assert np.array_equal(found["sums"], numbers)


def peak_memory(run: Callable[[], Any]) -> tuple[int, Any]:
    """Bytes that were taken at most while it ran, and what it gave."""
    tracemalloc.start()
    try:
        given = run()
        return tracemalloc.get_traced_memory()[1], given
    finally:
        tracemalloc.stop()


def test_an_array_behind_odd_bytes_is_aligned() -> None:
    found = loads(dumps([b"abc", np.arange(3.0), np.array([True]), np.arange(2.0)]))
    assert_same_tree(found, [b"abc", np.arange(3.0), np.array([True]), np.arange(2.0)])


@pytest.mark.parametrize(
    "view",
    [
        np.arange(12.0)[::2],
        np.arange(12.0)[::-1],
        np.arange(12.0).reshape(3, 4)[:, 1:3],
        np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2),
        np.broadcast_to(np.array([1.5]), (3, 2)),
        np.array([1.0, -2.0, 3.5], dtype=">f8"),
        np.array([1, 2**40], dtype=">i8"),
    ],
    ids=["strided", "reversed", "columns", "axes", "broadcast", "big-endian floats", "big-endian integers"],
)
def test_views_and_foreign_byte_orders_keep_their_values(view: np.ndarray) -> None:
    found = loads(dumps(view))
    assert found.dtype == view.dtype.newbyteorder("=")
    assert found.shape == view.shape
    assert np.array_equal(found, view)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -(2**80),
        1.0,
        0.1,
        -0.0,
        5e-324,
        1.7976931348623157e308,
        np.inf,
        -np.inf,
        np.nan,
        "",
        "é \u2028 \x00 \U0001f600",
        b"",
        b"\x00\xff",
        [],
        {},
        [None, [True, {"": b"x", "d": [1, 2.0]}], {}],
        {"": None, "d": {"": [], "d": {"": 1}}, "a b": "c"},
    ],
    ids=repr,
)
def test_every_plain_value_comes_back(value: Any) -> None:
    assert_same_tree(loads(dumps(value)), value)


def test_numpy_scalars_and_tuples_become_plain_ones() -> None:
    given = (np.float64(0.1), np.int64(-7), np.bool_(True), np.float32(0.5), np.uint64(2**63))
    assert_same_tree(loads(dumps(given)), [0.1, -7, True, 0.5, 2**63])


def test_arrays_keep_every_bit_pattern_of_a_float() -> None:
    patterns = [0x0, 0x8000000000000000, 0x1, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000001]
    patterns += [0xFFF8DEADBEEF0001, 0x7FF0000000000001]  # NaNs with a payload, one of them signalling
    array = np.frombuffer(struct.pack(f"<{len(patterns)}Q", *patterns), dtype=np.float64)
    assert loads(dumps([array]))[0].tobytes() == array.tobytes()


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """An array of any bits, shape and layout."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    raw = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype=np.uint8)
    flat = (raw & 1 if dtype.kind == "b" else raw).astype(np.uint8).view(dtype) if size else np.zeros(0, dtype)
    return flat.reshape(shape, order=draw(st.sampled_from(["C", "F"])))


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=20)
    | arrays()
)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)


@given(tree=TREES)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_any_tree_comes_back_bit_for_bit(tree: Any) -> None:
    data = dumps(tree)
    assert_same_tree(loads(data), tree)
    assert dumps(loads(data)) == data


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        1j,
        np.zeros(2, np.float16),
        np.zeros(2, complex),
        np.array(["x"]),
        np.array([None]),
        np.zeros(2, np.int32),
        Path("x"),
        lambda: None,
        [{"deep": object}],
    ],
    ids=["object", "set", "complex", "float16", "complex array", "texts", "objects", "int32", "path", "code", "class"],
)
def test_what_cannot_travel_is_refused_before_it_leaves(value: object) -> None:
    with raises_code("FP-WIRE-301"):
        dumps(value)


# --------------------------------------------------------------------------------------------- damaged or foreign bytes

MESSAGE = dumps({"w": np.array([1.0, np.nan, -0.0]), "step": "x:y", "keys": [b"\x01\x02", None, 3, 0.5]})


def test_every_truncated_message_is_refused() -> None:
    for length in range(len(MESSAGE)):
        with pytest.raises(WireError):
            loads(MESSAGE[:length])
    assert loads(MESSAGE)["step"] == "x:y"


def test_every_changed_byte_is_refused() -> None:
    for position in range(len(MESSAGE)):
        for flip in (1, 2, 4, 8, 16, 32, 64, 128, 0xFF):
            damaged = bytearray(MESSAGE)
            damaged[position] ^= flip
            with pytest.raises(WireError):
                loads(bytes(damaged))


@given(data=st.data())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_other_damage_is_refused(data: st.DataObject) -> None:
    """Bytes inserted, removed, swapped or appended."""
    start = data.draw(st.integers(0, len(MESSAGE)))
    end = data.draw(st.integers(start, min(start + 12, len(MESSAGE))))
    damaged = MESSAGE[:start] + data.draw(st.binary(max_size=12)) + MESSAGE[end:]
    if damaged == MESSAGE:
        assert loads(damaged)["step"] == "x:y"
        return
    with pytest.raises(WireError):
        loads(damaged)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04\x95\x0c\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins\x94.",  # a pickle
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x93NUMPY\x01\x00v\x00",
        json.dumps({"owner": "a"}).encode(),
        b"fedpact0" + MESSAGE[8:],
        b"fedpact2" + MESSAGE[8:],
        MAGIC,
        MAGIC + bytes(4),
        MAGIC + bytes(12),
        b"x" * 1000,
    ],
    ids=["nothing", "pickle", "http", "npy", "json", "older", "newer", "magic", "magic 4", "magic 12", "x"],
)
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(WireError) as caught:
        loads(data)
    assert caught.value.code == ("FP-WIRE-303" if data.startswith(MAGIC) else "FP-WIRE-302")


@given(data=st.binary(max_size=200))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_foreign_bytes_are_refused(data: bytes) -> None:
    for prefix in (b"", MAGIC):
        with pytest.raises(WireError):
            loads(prefix + data)


def forged(head: bytes, behind: bytes = b"", length: int | None = None) -> bytes:
    """A message with a fitting checksum, made by somebody else."""
    body = (len(head) if length is None else length).to_bytes(8, "little") + head + behind
    return MAGIC + zlib.crc32(body).to_bytes(4, "little") + body


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"x": 1}',
        b'{"d": 5}',
        b'{"d": [1]}',
        b'{"d": null}',
        b'{"": 5}',
        b'{"": []}',
        b'{"": ["float64", [2]]}',
        b'{"": ["float64", [2], "C"]}',
        b'{"": ["float64", [-1], "C"]}',
        b'{"": ["float64", [-1, -2], "C"]}',
        b'{"": ["float64", ["2"], "C"]}',
        b'{"": ["float64", 2, "C"]}',
        b'{"": ["float64", null, "C"]}',
        b'{"": ["float64", [1], "X"]}',
        b'{"": ["float64", [1], 7]}',
        b'{"": ["float64", [1.5], "C"]}',
        b'{"": ["object", [1], "C"]}',
        b'{"": ["O", [1], "C"]}',
        b'{"": [null, [1], "C"]}',
        b'{"": [["float64"], [1], "C"]}',
        b'{"": ["float64", [1180591620717411303424], "C"]}',
        b'{"": ["float64", [4611686018427387904, 4], "C"]}',
        b'{"": ["bytes", [99], "C"]}',
        b'{"": ["bytes", [-1], "C"]}',
        b"1" * 5000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=lambda head: head[:45].decode("latin-1"),
)
def test_a_forged_message_is_refused(head: bytes) -> None:
    """Its checksum fits, so only its content can give it away; eight bytes of arrays lie behind the head."""
    with pytest.raises(WireError):
        loads(forged(head, bytes(8)))


@pytest.mark.parametrize("length", [0, 1, 10**6, 2**63, 2**64 - 1])
def test_a_forged_length_of_the_head_is_refused(length: int) -> None:
    assert loads(forged(b'{"d": {"a": 1}}')) == {"a": 1}
    with pytest.raises(WireError):
        loads(forged(b'{"d": {"a": 1}}', length=length) if length < 100 else forged(b"{", length=length))


# ------------------------------------------------------------------------------------------------ dataclasses and trees


@dataclass(frozen=True)
class Inner:
    u: Vector
    factor: Vector | None = None


@dataclass(frozen=True)
class Outer:
    count: int
    weight: float
    on: bool
    text: str
    inner: Inner
    steps: tuple[Vector, ...] = ()
    nested: tuple[Inner, ...] = ()
    shape: tuple[tuple[int, ...], ...] = ()
    maybe: Inner | None = None


def outer(**changes: Any) -> Outer:
    given: dict[str, Any] = {"count": 3, "weight": 0.1, "on": True, "text": "é", "inner": Inner(np.arange(2.0))}
    return Outer(**{**given, **changes})


FULL = outer(
    steps=(np.zeros(2), np.ones((2, 2), order="F")),
    nested=(Inner(np.zeros(0)), Inner(np.ones(1), np.eye(2))),
    shape=((), (1,), (2, 3)),
    maybe=Inner(np.ones(1)),
)


@pytest.mark.parametrize("value", [outer(), FULL], ids=["bare", "full"])
def test_a_dataclass_comes_back(value: Outer) -> None:
    found = from_tree(Outer, loads(dumps(to_tree(value))), "state")
    assert isinstance(found, Outer)
    assert isinstance(found.steps, tuple)
    assert isinstance(found.inner, Inner)
    assert all(type(inner) is Inner for inner in found.nested)
    assert exact(found) == exact(value)


def test_a_whole_number_stands_for_a_float() -> None:
    found = from_tree(Outer, {**to_tree(outer()), "weight": 2}, "state")
    assert (found.weight, type(found.weight)) == (2.0, float)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 1.0}, "state.count is float, expected int"),
        ({"count": True}, "state.count is bool, expected int"),
        ({"count": None}, "state.count is NoneType, expected int"),
        ({"weight": "1"}, "state.weight is str, expected float"),
        ({"weight": True}, "state.weight is bool, expected float"),
        ({"on": 1}, "state.on is int, expected bool"),
        ({"text": b"x"}, "state.text is bytes, expected str"),
        ({"inner": None}, "state.inner is NoneType, expected Inner"),
        ({"inner": [1]}, "state.inner is list, expected Inner"),
        ({"inner": {"u": np.zeros(1)}}, "state.inner: fields ['factor'] are missing or unknown"),
        ({"inner": {"u": [1.0], "factor": None}}, "state.inner.u is list, expected"),
        ({"inner": {"u": 1.0, "factor": None}}, "state.inner.u is float, expected"),
        ({"inner": {"u": np.zeros(1), "factor": "x"}}, "state.inner.factor is str, expected"),
        ({"steps": {}}, "state.steps is dict, expected"),
        ({"steps": None}, "state.steps is NoneType, expected"),
        ({"steps": [np.zeros(1), 2.0]}, "state.steps[1] is float, expected"),
        ({"nested": [{"u": np.zeros(1), "factor": None, "x": 1}]}, "state.nested[0]: fields ['x'] are missing or"),
        ({"shape": [[1, "2"]]}, "state.shape[0][1] is str, expected int"),
        ({"maybe": 5}, "state.maybe is int, expected Inner"),
    ],
    ids=str,
)
def test_a_field_of_another_kind_is_refused_with_its_place(changes: dict[str, Any], message: str) -> None:
    with raises_code("FP-WIRE-306" if "missing or" in message else "FP-WIRE-305", message):
        from_tree(Outer, {**to_tree(FULL), **changes}, "state")


def test_missing_and_unknown_fields_are_named() -> None:
    tree = to_tree(FULL)
    del tree["weight"]
    with raises_code("FP-WIRE-306", "state: fields ['weight', 'wieght'] are missing or unknown"):
        from_tree(Outer, {**tree, "wieght": 1.0}, "state")


@pytest.mark.parametrize("tree", [None, [], 1, "x", np.zeros(1), {}], ids=str)
def test_no_dataclass_at_all_is_refused(tree: Any) -> None:
    with pytest.raises(WireError, match=r"^state"):
        from_tree(Outer, tree, "state")


def test_reading_runs_no_code_of_the_class() -> None:
    ran: list[int] = []

    @dataclass(frozen=True)
    class Loud:
        x: int

        def __post_init__(self) -> None:
            ran.append(self.x)

    assert from_tree(Loud, {"x": 4}, "state").x == 4
    assert ran == []


@pytest.mark.parametrize(
    ("kind", "tree", "allowed"),
    [
        (type(None), None, True),
        (None, None, True),
        (None, 0, False),
        (int | None, None, True),
        (int | None, 3, True),
        (int | None, 3.0, False),
        (np.ndarray, np.zeros(2), True),
        (np.ndarray, [0.0], False),
        (dict, {}, False),
        (object, 1, False),
        (Any, 1, False),
    ],
    ids=str,
)
def test_kinds_by_themselves(kind: Any, tree: Any, allowed: bool) -> None:
    if allowed:
        assert exact(from_tree(kind, tree, "it")) == exact(tree)
    else:
        with raises_code("FP-WIRE-305", "it is"):
            from_tree(kind, tree, "it")


# ------------------------------------------------------------------------------------------------------ sealed replies


@dataclass(frozen=True, kw_only=True)
class Part(Reply):
    gradient: Summed[Vector]
    value: Summed[float]
    price: Vector
    done: bool


PART: dict[str, Any] = {
    "kept": {"gradient": None, "value": None, "price": np.ones(2), "done": True},
    "shapes": [[3], []],
    "sums": np.arange(4.0),
}


@pytest.mark.parametrize("sums", [np.arange(4.0), np.ones((4, WORDS), dtype=np.uint64)], ids=["plain", "masked"])
def test_a_sealed_reply_comes_back(sums: np.ndarray) -> None:
    kept = from_tree(Part, PART["kept"], "Part", frozenset({"gradient", "value"}))
    sealed: Sealed[Part] = Sealed(kept, ((3,), ()), sums)
    found = sealed_from_tree(Part, loads(dumps(sealed_to_tree(sealed))))
    assert exact(found) == exact(sealed)
    assert found.shapes == ((3,), ())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sums": np.arange(5.0)}, "Part: "),
        ({"sums": np.arange(3.0)}, "Part: "),
        ({"sums": np.zeros((4, 1))}, "Part: "),
        ({"sums": np.zeros((4, WORDS))}, "Part: "),
        ({"sums": np.zeros(4, np.uint64)}, "Part: "),
        ({"sums": np.zeros((3, WORDS), np.uint64)}, "Part: "),
        ({"sums": np.zeros((4, WORDS + 1), np.uint64)}, "Part: "),
        ({"sums": [0.0] * 4}, "Part: "),
        ({"sums": None}, "Part: "),
        ({"shapes": [[3]]}, "Part: "),
        ({"shapes": [[4], [], [0]]}, "Part: "),
        ({"shapes": [[2], [2, 2]]}, "Part: "),
        ({"shapes": [[-4], [-1]]}, "Part: "),
        ({"shapes": [[-3, -1], []]}, "Part: "),
        ({"shapes": None}, "Part"),
        ({"shapes": [None, []]}, "Part"),
        ({"shapes": [["3"], []]}, "Part"),
        ({"shapes": [["x"], []]}, "Part"),
        ({"shapes": [[np.inf], []]}, "Part"),
        ({"shapes": "33"}, "Part"),
        ({"kept": None}, "Part"),
        ({"kept": {**PART["kept"], "done": 1}}, r"Part\.done is int, expected bool"),
        ({"kept": {**PART["kept"], "price": None}}, r"Part\.price is NoneType, expected"),
        ({"kept": {"price": np.ones(2), "done": True}}, r"Part: fields \['gradient', 'value'\] are missing"),
    ],
    ids=str,
)
def test_a_sealed_reply_of_another_length_or_kind_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WireError, match=message) as caught:
        sealed_from_tree(Part, {**PART, **changes})
    assert caught.value.code in ("FP-WIRE-305", "FP-WIRE-306", "FP-WIRE-308", "FP-WIRE-309")
    assert (caught.value.code == "FP-WIRE-309") == (message == "Part: ")


@pytest.mark.parametrize("missing", ["kept", "shapes", "sums"])
def test_an_incomplete_sealed_reply_is_refused(missing: str) -> None:
    with raises_code("FP-WIRE-308", "Part", missing):
        sealed_from_tree(Part, {name: part for name, part in PART.items() if name != missing})


@pytest.mark.parametrize("tree", [None, 5, [], "x"], ids=str)
def test_what_is_no_sealed_reply_is_refused(tree: Any) -> None:
    with raises_code("FP-WIRE-308", "Part"):
        sealed_from_tree(Part, tree)


# --------------------------------------------------------------------------------------------- the steps of the methods


def test_the_steps_of_every_method_are_registered() -> None:
    modules = {name.partition(":")[0] for name in STEPS if name.startswith("fedpact.")}
    files = ("interior_point", "accelerated_owner", "proximal_al", "inexact_admm")
    methods = {f"fedpact.solvers.constrained.{file}" for file in files}
    shared = {f"fedpact.solvers.{name}" for name in ("steps", "evidence", "scales")}
    assert modules >= methods | shared | {"fedpact.federation.secure_sum"}
    assert {step for step in SKIPPABLE if step.__module__.startswith("fedpact.")} == {
        STEPS["fedpact.solvers.constrained.proximal_al:inner"],
        STEPS["fedpact.solvers.constrained.inexact_admm:update_alone"],
    }


def readable(kind: Any) -> bool:
    """Can `from_tree` read a value of this type?"""
    if kind in (int, float, bool, str, None, type(None)) or get_origin(kind) is np.ndarray:
        return True
    if get_origin(kind) is tuple:
        return get_args(kind)[1:] == (...,) and readable(get_args(kind)[0])
    if get_args(kind) and type(None) in get_args(kind):
        others = [k for k in get_args(kind) if k is not type(None)]
        return len(others) == 1 and readable(others[0])
    return is_dataclass(kind) and all(readable(hints(kind)[name]) for name in kind.__dataclass_fields__)


@pytest.mark.parametrize("name", sorted(name for name in STEPS if name.startswith("fedpact.")))
def test_every_step_says_what_it_takes_and_gives(name: str) -> None:
    step = STEPS[name]
    assert name_of(step) == name
    assert issubclass(order_type(step), Order)
    assert issubclass(reply_type(step), Reply)
    assert readable(order_type(step))
    assert readable(reply_type(step))


def test_a_type_that_cannot_be_read_is_noticed() -> None:
    assert readable(Outer)
    assert not any(readable(kind) for kind in (Any, dict, tuple[int, str], int | str, object))


@pytest.mark.parametrize("name", ["os:system", "builtins:eval", "fedpact.solve:solve", "", "fedpact.gone:State", "x"])
def test_only_known_dataclasses_are_resolved_as_states(name: str) -> None:
    """Nothing that a state file names is ever imported from elsewhere or called."""
    if name == "builtins:eval":
        assert resolve(name) is None  # stands for "no state", which a tree of anything else is refused as
        with pytest.raises(WireError):
            from_tree(resolve(name), {"x": 1}, "state")
        return
    with raises_code("FP-WIRE-307", name):
        resolve(name)


@pytest.mark.parametrize("value", [None, 1, 2.5, "x", True, FULL], ids=["none", "int", "float", "str", "bool", "class"])
def test_a_state_is_resolved_by_its_name(value: Any) -> None:
    found = from_tree(resolve(name_of(type(value))), loads(dumps(to_tree(value))), "state")
    assert exact(found) == exact(value)


BROUGHT = """
from dataclasses import dataclass
import numpy as np
from fedpact.federation import Order, Reply, client_step

@dataclass(frozen=True)
class Inner:
    number: int

@dataclass(frozen=True)
class Kept:
    inner: tuple[Inner, ...]
    w: np.ndarray

@client_step
def remember(share, state: Kept | None, order: Order) -> tuple[Kept, Reply]:
    return state, Reply()
"""


def test_a_state_of_a_step_that_was_brought_is_resolved_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of a notebook in another process: its module is not loaded there."""
    monkeypatch.setattr("fedpact.federation.wire.STEPS", dict(STEPS))
    names: dict[str, Any] = {"__name__": "notebook"}
    exec(compile(BROUGHT, "cell", "exec", dont_inherit=True), names)
    kept = names["Kept"]((names["Inner"](1), names["Inner"](2)), np.arange(3.0))
    assert resolve("notebook:Kept") is names["Kept"]
    assert exact(from_tree(resolve("notebook:Kept"), loads(dumps(to_tree(kept))), "state")) == exact(kept)
    with raises_code("FP-WIRE-307", "notebook:remember"):
        resolve("notebook:remember")


class Spying:
    """The in-process engine; keeps the latest state of every owner, as the step gave it."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {}
        self.folder = Path()

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        assert folder is not None
        self.folder, fleet = folder, InProcess().open(shares, folder)
        direct = fleet.start

        def start(owner: str, step: Step, order: Order) -> Future[Any]:
            @functools.wraps(step)
            def spied(share: Any, state: Any, order: Any) -> tuple[Any, Reply]:
                after, reply = step(share, state, order)
                self.states[owner] = after
                return after, reply

            return direct(owner, spied, order)

        fleet.start = start  # type: ignore[method-assign]
        return fleet


def layout(tree: Any) -> list[tuple[bool, bool]]:
    """Of every array that is contiguous: in rows, in columns."""
    if isinstance(tree, np.ndarray):
        return [(tree.flags.c_contiguous, tree.flags.f_contiguous)] if tree.flags.forc else []
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else []
    return [one for part in parts for one in layout(part)]


@pytest.mark.parametrize("method", METHODS)
def test_the_states_of_every_method_are_written_and_read(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of an owner is read again after every round: it holds the state that the step gave."""
    monkeypatch.setattr("os.fsync", lambda file: None)
    engine, kinds = Spying(), set()

    def compare(progress: Any) -> None:
        memories = [loads(path.read_bytes()) for path in engine.folder.rglob("*.state")]
        assert {memory["owner"] for memory in memories} == engine.states.keys()
        for memory in memories:
            found, expected = (
                from_tree(resolve(memory["type"]), memory["state"], "state"),
                engine.states[memory["owner"]],
            )
            assert type(found) is type(expected)
            assert exact(found) == exact(expected)
            assert layout(to_tree(found)) == layout(to_tree(expected))
            kinds.add(memory["type"])

    answer = solve(method, checkpoint=tmp_path, engine=engine, callbacks=[compare])
    state = "Consensus" if method == "inexact-admm" else "State"
    assert answer.solved
    assert len(engine.states) == 3
    expected = {f"constrained.{method.replace('-', '_')}:{state}"}
    if method == "accelerated":
        expected = {"constrained.accelerated_owner:State"}
    if method == "ifeddr":
        expected = {"consensus.splitting:State", "consensus.ifeddr_owner:Moving"}
    assert kinds == {f"fedpact.solvers.{kind}" for kind in expected}


def test_client_step_registers_by_name() -> None:
    def local(share: Any, state: Any, order: Order) -> tuple[Any, Reply]:
        return state, Reply()

    try:
        assert client_step(local) is local
        assert STEPS[name_of(local)] is local
    finally:
        del STEPS[name_of(local)]


# ------------------------------------------------------------------------------------------------------------- on disk


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "a.state"
    write_atomically(path, b"old")

    def full(file: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, b"new and longer")
    assert path.read_bytes() == b"old"
    monkeypatch.undo()
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["a.state"]
