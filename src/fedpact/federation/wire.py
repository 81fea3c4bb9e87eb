"""Messages and states as bytes, without pickle: a JSON head, the arrays behind it, and a checksum.

Reading is guided by the annotations of the dataclasses, so the schema of a message is its class: a field that is
missing, new, or of another kind is refused. What an owner may be asked to run is what is registered by `client_step`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import math
import os
import sys
import types
import typing
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import numpy as np

from fedpact.errors import WireError
from fedpact.federation.messages import (
    WORDS,
    Reply,
    Sealed,
    count_by_kind,
    hidden_fields,
    is_masked,
    name_type,
)
from fedpact.types import Buffer

#: First bytes of every message and memory; the digit is the version of the format.
MAGIC = b"fedpact1"
#: Where the head of a message begins: behind the magic, the checksum and its own length.
START = len(MAGIC) + 12
#: The head is as long as it takes for the first array to begin at a multiple of this.
ALIGNED = 16
#: Values that the head of a message may have: each costs its reader a hundred bytes, however short it is written.
VALUES = 250_000
#: Bytes of text that an order may have: reading it costs four times as much. A job lists columns, levels and owners,
#: a task beside it the same and numbers for each; people travel as arrays. Ten thousand columns take two million.
TEXT = 2**22
#: What arrays may hold, by NumPy's names.
DTYPES = ("float64", "float32", "int64", "uint64", "bool")

F = TypeVar("F", bound=Callable[..., Any])

#: What may run at an owner, by name.
STEPS: dict[str, Callable[..., Any]] = {}
#: Steps that leave the owner as consistent as before when they are skipped, so an old reply may stand in for a new one.
SKIPPABLE: set[Callable[..., Any]] = set()
#: Steps of an alignment: they get the people of an owner's table and what it knows of the alignment (`Aligned`), in
#: place of its share and its state.
ALIGNING: set[Callable[..., Any]] = set()


def client_step(step: F) -> F:
    """Register a function (share, state, order) -> (state, reply) as one that a remote owner may be asked to run."""
    STEPS[name_of(step)] = step
    return step


def skippable(step: F) -> F:
    """Mark a step that an owner may miss: it can go on with the next one, and the coordinator with its last reply."""
    SKIPPABLE.add(step)
    return step


def aligning(step: F) -> F:
    """Mark and register a step of an alignment."""
    ALIGNING.add(step)
    return client_step(step)


def name_of(thing: Any) -> str:
    """Module and name of a class or function, as they travel."""
    return f"{thing.__module__}:{thing.__qualname__}"


@functools.cache
def hints(thing: Any) -> dict[str, Any]:
    """The annotations of a class or function as types."""
    return typing.get_type_hints(thing)


def order_type(step: Callable[..., Any]) -> Any:
    """The class of the orders that a step takes."""
    return hints(step)["order"]


def reply_type(step: Callable[..., Any]) -> type[Reply]:
    """The class of the replies that a step gives."""
    kind: type[Reply] = typing.get_args(hints(step)["return"])[1]
    return kind


def adds_up(step: Callable[..., Any]) -> bool:
    """Whether replies of this step have fields that a secure sum hides."""
    return bool(hidden_fields(reply_type(step), masked=True))


def dataclasses_of(step: Callable[..., Any]) -> list[type]:
    """The states and messages that a step takes and gives, and the dataclasses in their fields."""
    found: list[type] = []
    waiting = list(hints(step).values())
    while waiting:
        kind = waiting.pop()
        waiting += typing.get_args(kind)
        if isinstance(kind, type) and is_dataclass(kind) and kind not in found:
            found.append(kind)
            waiting += hints(kind).values()
    return found


def spell_out(step: Callable[..., Any]) -> None:
    """Let annotations of a step and its dataclasses be the types they name: their text means nothing elsewhere."""
    things: list[Any] = [step, *dataclasses_of(step)]
    for thing in things:
        own = inspect.get_annotations(thing)
        if own and not is_ours(thing):
            meant = typing.get_type_hints(thing, include_extras=True)
            thing.__annotations__ = {name: meant[name] for name in own}


def is_ours(thing: Any) -> bool:
    """Is it defined in this package, and so in every process that runs it?"""
    return bool(thing.__module__.partition(".")[0] == __name__.partition(".")[0])


# ----------------------------------------------------------------------------------------------------- trees and bytes


def dumps(tree: Any) -> bytes:
    """Bytes of None, bool, int, float, str, bytes, arrays, and lists and dicts of those. Arrays are copied once."""
    buffers: list[Buffer] = []
    head = json.dumps(_take_out(tree, buffers), separators=(",", ":")).encode()
    head += b" " * (-(START + len(head)) % ALIGNED)  # so that arrays can be used where they are
    parts = [len(head).to_bytes(8, "little"), head, *buffers]
    checksum = functools.reduce(lambda value, part: zlib.crc32(part, value), parts, 0)
    return b"".join([MAGIC, checksum.to_bytes(4, "little"), *parts])


def _take_out(value: Any, buffers: list[Buffer]) -> Any:
    """The value as JSON; its arrays and bytes are appended to the buffers, and their kind and shape stay."""
    if isinstance(value, dict):
        return {"d": {str(k): _take_out(v, buffers) for k, v in value.items()}}
    if isinstance(value, list | tuple):
        return [_take_out(v, buffers) for v in value]
    if isinstance(value, bytes):
        buffers.append(value)
        return {"": ["bytes", [len(value)], "C"]}
    if isinstance(value, np.ndarray) and value.dtype.name in DTYPES:
        value = value.astype(value.dtype.newbyteorder("="), copy=False)  # the name does not tell the byte order
        order: Literal["C", "F"] = "F" if value.flags.fnc else "C"  # BLAS minds the order
        buffers.append(value.ravel(order).view(np.uint8).data)
        return {"": [value.dtype.name, list(value.shape), order]}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bool | int | float | str | None):
        return value
    raise WireError(
        f"{name_type(value)} cannot travel; only numbers, texts and arrays of {', '.join(DTYPES)} do",
        code="FP-WIRE-301",
    )


def loads(data: Buffer, text: int | None = None) -> Any:
    """What `dumps` was given (tuples come back as lists); its arrays are read-only views of the data.

    text: bytes that may stand beside the arrays; None: any number
    WireError when the bytes are damaged or foreign.
    """
    view = memoryview(data)
    if view[: len(MAGIC)] != MAGIC:
        raise WireError(
            "these bytes were not written by fedpact, or by another version of its format; install the same version "
            "everywhere",
            code="FP-WIRE-302",
        )
    body = view[len(MAGIC) + 4 :]
    if len(view) < START or zlib.crc32(body) != int.from_bytes(view[len(MAGIC) : len(MAGIC) + 4], "little"):
        raise WireError(
            f"{len(view)} bytes are truncated or damaged: their checksum does not fit; restore or resend them",
            code="FP-WIRE-303",
        )
    end = START + int.from_bytes(body[:8], "little")
    check_text(end - START, text)
    head = bytes(view[START:end])
    if (values := sum(map(head.count, (b"[", b"{", b",")))) > VALUES:
        raise WireError(
            f"a message of {values} values is over the limit of {VALUES}; numbers travel as arrays", code="FP-WIRE-660"
        )
    try:
        return _fill_in(json.loads(head), Reader(view, end))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise WireError(f"a message cannot be read: {error}", code="FP-WIRE-304") from error


def check_text(length: int, most: int | None) -> None:
    """WireError when so many bytes are more text than a message may have."""
    if most is not None and length > most:
        raise WireError(
            f"{length} bytes of text in an order are over the limit of {most}; shorten names and categories",
            code="FP-WIRE-654",
        )


def text_length(data: Buffer) -> int:
    """Bytes of a message that stand beside its arrays."""
    return int.from_bytes(memoryview(data)[START - 8 : START], "little")


@dataclass
class Reader:
    """Hands out the bytes of a message one piece after the other, without copying them."""

    data: memoryview
    position: int

    def take(self, count: int) -> memoryview:
        chunk = self.data[self.position : self.position + count]
        if len(chunk) != count:
            raise ValueError(f"{count} bytes are stated, {len(chunk)} are there")
        self.position += count
        return chunk


def _fill_in(value: Any, reader: Reader) -> Any:
    """The value with its arrays, read in the order in which `dumps` wrote them."""
    if isinstance(value, list):
        return [_fill_in(v, reader) for v in value]
    if not isinstance(value, dict):
        return value
    if "d" in value:
        return {k: _fill_in(v, reader) for k, v in value["d"].items()}
    kind, shape, order = value[""]
    if kind == "bytes":
        return bytes(reader.take(math.prod(shape)))
    if kind not in DTYPES:
        raise ValueError(f"an array of {kind}")
    chunk = reader.take(math.prod(shape) * np.dtype(kind).itemsize)
    array = np.frombuffer(chunk, dtype=kind).reshape(shape, order=order)
    if not array.flags.aligned:  # behind bytes or truth values: arithmetic would copy it every time
        array = array.copy(order="K")
    array.flags.writeable = False
    return array


def frame(data: bytes) -> bytes:
    """A record of a log: its length in 8 bytes, then the data."""
    return len(data).to_bytes(8, "little") + data


def split_records(data: bytes) -> Iterator[bytes]:
    """The records of a log, see `frame`. WireError when the last one is incomplete."""
    position = 0
    while position < len(data):
        start = position + 8
        end = start + int.from_bytes(data[position:start], "little")
        if end > len(data):
            raise WireError(
                f"the last record is truncated: {end} bytes are stated, {len(data)} are there; restore it from a copy",
                code="FP-WIRE-310",
            )
        yield data[start:end]
        position = end


# ------------------------------------------------------------------------------------------------ dataclasses and trees


def to_tree(value: Any) -> Any:
    """A dataclass as a dict of its fields, and so on inside; fields that are None stay None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_tree(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [to_tree(v) for v in value]
    return value


def from_tree(kind: Any, tree: Any, where: str, optional: frozenset[str] = frozenset()) -> Any:
    """The value of this type. WireError, with the place, when the tree is not one; `optional` fields may be None."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        inner, nothing = _split_optional(kind)
        if tree is None and nothing:
            return None
        return from_tree(inner, tree, where)
    if origin is tuple and isinstance(tree, list):
        inner = typing.get_args(kind)[0]
        return tuple(from_tree(inner, item, f"{where}[{i}]") for i, item in enumerate(tree))
    if is_dataclass(kind) and isinstance(tree, dict):
        return _dataclass_from_tree(kind, tree, where, optional)
    if kind is float and type(tree) is int:
        return float(tree)
    if _is_plain(origin or kind, tree):
        return tree
    expected = getattr(kind, "__name__", str(kind))
    raise WireError(f"{where} is {type(tree).__name__}, expected {expected}", code="FP-WIRE-305")


def _split_optional(kind: Any) -> tuple[Any, bool]:
    """The type inside of `X | None`, and whether None is allowed."""
    parts = typing.get_args(kind)
    (inner,) = [part for part in parts if part is not type(None)]
    return inner, type(None) in parts


def _is_plain(kind: Any, tree: Any) -> bool:
    """Whether the tree is a value of this type as it stands: None, a scalar or an array."""
    if kind is None or kind is type(None):
        return tree is None
    if kind is np.ndarray:
        return isinstance(tree, np.ndarray)
    return kind in (int, float, bool, str) and type(tree) is kind


def _dataclass_from_tree(kind: Any, tree: dict[str, Any], where: str, optional: frozenset[str]) -> Any:
    names = [f.name for f in fields(kind)]
    if (wrong := set(names) ^ set(tree)) != set():
        raise WireError(
            f"{where}: fields {sorted(wrong)} are missing or unknown; install the same version of fedpact everywhere",
            code="FP-WIRE-306",
        )
    made = object.__new__(kind)
    for name in names:
        value = None
        if tree[name] is not None or name not in optional:
            value = from_tree(hints(kind)[name], tree[name], f"{where}.{name}")
        object.__setattr__(made, name, value)
    return made


def resolve(name: str) -> Any:
    """The type that `name_of` named: a dataclass of this package, of a module that is loaded, or of a step that was
    brought here, or a plain type."""
    module, _, qualname = name.partition(":")
    if module == "builtins":
        return {"NoneType": None, "float": float, "int": int, "str": str, "bool": bool}.get(qualname)
    if module.startswith("fedpact."):
        with contextlib.suppress(ImportError):  # of another version: refused below
            importlib.import_module(module)
    kind = getattr(sys.modules.get(module), qualname, None)
    if is_dataclass(kind):
        return kind
    for step in STEPS.values():
        if step.__module__ == module:
            for other in dataclasses_of(step):
                if name_of(other) == name:
                    return other
    raise WireError(
        f"{name} is not a state that this version of fedpact knows; install the version that wrote it",
        code="FP-WIRE-307",
    )


def open_private(path: Path, mode: str) -> BinaryIO:
    """Open a file; when that creates it, it is for its owner only."""
    file = open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115 - the caller's
    return typing.cast(BinaryIO, file)


def lock(file: BinaryIO) -> None:
    """Lock a file until it is closed or the process ends. BlockingIOError when it is locked already."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a disk without locks
        return


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Either the whole new file or the old one is there, whatever happens meanwhile.

    durable: to the machine, too, rather than to this process alone
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)  # states and keys are for their owner only
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    part.replace(path)


def sealed_to_tree(sealed: Sealed[Any]) -> dict[str, Any]:
    """A sealed reply as a dict that `dumps` takes."""
    return {"kept": to_tree(sealed.kept), "shapes": [list(s) for s in sealed.shapes], "sums": sealed.sums}


def sealed_from_tree(kind: type[Reply], tree: Any) -> Sealed[Any]:
    """The sealed reply of this type. WireError when a field is absent, of another kind, or of another length."""
    where = kind.__name__
    try:
        shapes = from_tree(tuple[tuple[int, ...], ...], tree["shapes"], f"{where}.shapes")
        sums = tree["sums"]
        masked = isinstance(sums, np.ndarray) and is_masked(sums)
        names = frozenset(hidden_fields(kind, masked))
        kept = from_tree(kind, tree["kept"], where, names)
    except (KeyError, TypeError) as error:
        raise WireError(f"{where} is incomplete: {error}", code="FP-WIRE-308") from error
    count = sum(int(np.prod(shape, dtype=int)) for shape in shapes)
    expected: list[tuple[int, ...]] = [(count,)]
    negative = any(n < 0 for shape in shapes for n in shape)
    alike = not negative and len(shapes) == len(names)
    if masked:
        expected = [(count, WORDS)]
        if alike:  # where some numbers are narrower, all words follow each other: the session knows how many there are
            largest, numbers, arrays, fitting = count_by_kind(kind, shapes)
            always = WORDS * largest + 2 * numbers
            expected += [(always + some * arrays + others * fitting,) for some in (1, 2) for others in (1, 2)]
    if not alike or not isinstance(sums, np.ndarray) or sums.shape not in expected:
        raise WireError(
            f"{where}: its summed fields {sorted(names)} do not have the lengths they state", code="FP-WIRE-309"
        )
    return Sealed(kept, shapes, sums)
