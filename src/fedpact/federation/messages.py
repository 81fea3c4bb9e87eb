"""What travels: frozen dataclasses of float64 arrays, numbers and strings, and nothing else.

A reply has three kinds of fields. Those marked `Summed` are only ever added up over the owners, so they travel as one
flat vector, which a secure sum can mask. Those marked `Largest` enter by their largest; in a secure sum they travel as
squares, and the root of their sum stands for it. All others are read owner by owner. An algorithm gets them apart
(`Answers`), so it runs the same whether or not the coordinator can see a single owner's numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Generic, Self, TypeVar, get_args, get_type_hints, overload

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import OwnerError, ProblemError

#: 64-bit words of a masked number of which nothing is known: 192 bits hold a double exactly, and the sum over owners.
WORDS = 3
#: A length that an order asks for is at most this, or this many times that of the longest vector in it.
LENGTH = 10_000
LENGTH_FACTOR = 10
#: Kind of the numbers of fields marked `Fitting`, see `kinds_of_numbers`.
FITTING = 3
#: Types of a number that travels by itself.
NUMBERS = (int, float, np.integer, np.floating, np.bool_)
#: Types of single values that travel as they are, the most frequent ones: the rest is looked at more closely.
PLAIN = frozenset((float, int, bool, str))
#: ... and of these, all but texts, which are counted by themselves.
EIGHT_BYTES = PLAIN - {str}
#: ... and those that are finite whatever their value.
EXACT = PLAIN - {float}
FLOAT = np.dtype(np.float64)
#: BLAS adds up more products than this in threads, which take longer to wake than the sum does.
FEW = 10_000
#: Fields of an order that the fleet fills in; they are not part of its content.
STAMP = ("run", "round", "after", "durable", "look", "secure")


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the coordinator asks of an owner. The fields here are stamped by the fleet.

    run:     which solve this belongs to
    round:   number of the exchange; an owner answers a repeated one from memory
    after:   the last round of which the coordinator has used this owner's reply: the owner must remember it
    durable: the last round that the coordinator will never ask for again
    look:    0, or the number of a look: answer, but remember nothing, the run goes on from where it is. Numbers only
             grow, so that no two looks have one mask
    secure:  mask the summed fields
    """

    run: str = ""
    round: int = 0
    after: int = 0
    durable: int = 0
    look: int = 0
    secure: bool = False


@dataclass(frozen=True, kw_only=True)
class Fitted(Order):
    """An order that says how large sums were last, so that masked ones travel in fewer bytes.

    largest: the largest entry of all of them, by size: they have 128 bits, which lose nothing; 0: not known, 192 bits
    arrays:  no owner's array that is no matrix may have a larger entry; they have 64 bits then; 0: as all others
    coarse:  no owner's matrix may have a larger entry, in units of `scales`; they have 64 bits then; 0: as all others
    scales:  of the rows and columns of matrices, the fields marked `Fitting`
    """

    largest: float = 0.0
    arrays: float = 0.0
    coarse: float = 0.0
    scales: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, dtype=np.float32))


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What leaves an owner: each field is counted and named in the ledger.

    tells: whether it tells numbers of this owner alone, which a site counts
    """

    tells = True  # no annotation: it does not travel

    def withhold(self, least: int) -> Self:
        """The reply without numbers that tell of fewer than `least` rows; most replies count none."""
        return self


R = TypeVar("R", bound=Reply)


T = TypeVar("T")

#: Marks a field of a Reply that the coordinator only ever adds up over all owners; it has one shape at all of them.
Summed = Annotated[T, "summed"]
#: Marks a packed symmetric matrix that is summed, and has fewer bits where it is masked: see `Fitted`.
Fitting = Annotated[T, "summed", "fitting"]
#: Marks a number, zero or more, of which the coordinator needs the largest over all owners. In a secure sum it gets the
#: root of the sum of squares: no less than the largest, the same where all others are zero, at most sqrt(n) times it.
Largest = Annotated[T, "largest"]


@dataclass(frozen=True)
class Sealed(Generic[R]):
    """A reply on its way: the fields that are read one by one, and all summed ones in a single vector.

    kept:   the reply with None in its summed fields, and in a secure sum in those marked Largest
    shapes: of these fields, in order
    sums:   their values, of those marked Largest the squares; masked when the sum is secure: uint64, m x WORDS, or the
            words one after the other where some numbers have fewer
    """

    kept: R
    shapes: tuple[tuple[int, ...], ...]
    sums: NDArray[Any]


class Columns(Sequence[R]):
    """Replies of owners that answered in one computation: a list for every field, and a reply where one is looked at.

    values: of the fields that are read owner by owner; all others are None
    """

    def __init__(self, kind: type[R], values: dict[str, list[Any]]) -> None:
        self.kind = kind
        self.values = values

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    @overload
    def __getitem__(self, number: int) -> R: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[R]: ...

    def __getitem__(self, number: int | slice) -> R | Sequence[R]:
        if isinstance(number, slice):
            return [self[k] for k in range(len(self))[number]]
        found: dict[str, Any] = dict.fromkeys(content_fields(self.kind))
        found |= {name: values[number] for name, values in self.values.items()}
        return build(self.kind, found)


@dataclass(frozen=True)
class Joint(Generic[R]):
    """The sealed replies of owners that answered in one computation: those kept, and a row of sums for each.

    shapes: as in `Sealed`, the same for all
    """

    kept: Columns[R]
    shapes: tuple[tuple[int, ...], ...]
    sums: NDArray[np.float64]

    @property
    def size(self) -> int:
        """Bytes of content of the reply of one owner; all are of one size."""
        kind = self.kept.kind
        shown = [_size(kind, name, column[0]) for name, column in self.kept.values.items()]
        return int(self.sums[0].nbytes) + sum(shown)


class Answers(Sequence[R]):
    """The replies of one exchange in owner order, without the fields that were added up; `total` has these.

    It also has the largest of those marked Largest, or what stands for it.
    """

    def __init__(self, replies: Sequence[R], total: R) -> None:
        self._replies = replies
        self.total = total

    def __len__(self) -> int:
        return len(self._replies)

    @overload
    def __getitem__(self, number: int) -> R: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[R]: ...

    def __getitem__(self, number: int | slice) -> R | Sequence[R]:
        return self._replies[number]

    def __iter__(self) -> Iterator[R]:
        return iter(self._replies)

    def column(self, name: str) -> list[Any]:
        """The values of one field, owner by owner."""
        return column_of(self._replies, name)


def column_of(replies: Sequence[Reply], name: str) -> list[Any]:
    """The values of one field of these replies."""
    if isinstance(replies, Columns):
        return replies.values.get(name) or [None] * len(replies)
    return [getattr(reply, name) for reply in replies]


def payload(message: Order | Reply) -> dict[str, Any]:
    """The fields of a message by name, without the stamp."""
    return {name: getattr(message, name) for name in content_fields(type(message))}


def content_fields(kind: type[Order] | type[Reply]) -> tuple[str, ...]:
    """Names of the fields of a message of this kind, without the stamp."""
    return _content_fields(kind)  # type: ignore[arg-type]  # a class is hashable, whatever its instances are


@functools.cache
def _content_fields(kind: Any) -> tuple[str, ...]:
    skip = STAMP if issubclass(kind, Order) else ()
    return tuple(f.name for f in fields(kind) if f.name not in skip)


def summed_fields(kind: type[Reply]) -> tuple[str, ...]:
    """Names of the fields of a reply that are annotated as `Summed`."""
    return _marked_fields(kind, "summed")  # type: ignore[arg-type]  # a class is hashable, whatever its instances are


def largest_fields(kind: type[Reply]) -> tuple[str, ...]:
    """Names of the fields of a reply that are annotated as `Largest`."""
    return _marked_fields(kind, "largest")  # type: ignore[arg-type]


def hidden_fields(kind: type[Reply], masked: bool) -> tuple[str, ...]:
    """Names of the fields that travel in the sums of a reply of this kind."""
    if masked:
        return summed_fields(kind) + largest_fields(kind)
    return summed_fields(kind)


def shown_fields(kind: type[Reply], masked: bool) -> tuple[str, ...]:
    """Names of all other fields of a reply of this kind: they are read owner by owner."""
    return _shown_fields(kind, masked)  # type: ignore[arg-type]


@functools.cache
def _shown_fields(kind: Any, masked: bool) -> tuple[str, ...]:
    hidden = hidden_fields(kind, masked)
    return tuple(name for name in _content_fields(kind) if name not in hidden)


@functools.cache
def _marked_fields(kind: Any, mark: str) -> tuple[str, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(f.name for f in fields(kind) if mark in get_args(hints[f.name])[1:])


def count_by_kind(kind: type[Reply], shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """How many numbers of the masked sums of a reply are of each kind, see `kinds_of_numbers`."""
    counts = [0, 0, 0, 0]
    for place, shape in zip(_kinds_of_sums(kind, tuple(map(len, shapes))), shapes, strict=True):  # type: ignore[arg-type]
        counts[place] += math.prod(shape)
    return counts


def kinds_of_numbers(kind: type[Reply], shapes: tuple[tuple[int, ...], ...]) -> NDArray[np.intp]:
    """Of every number in masked sums: 0 where its field is marked Largest, 1 a number, 2 an array, FITTING a matrix."""
    return _kinds_of_numbers(kind, shapes)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=4)
def _kinds_of_numbers(kind: Any, shapes: tuple[tuple[int, ...], ...]) -> NDArray[np.intp]:
    return np.repeat(_kinds_of_sums(kind, tuple(map(len, shapes))), [math.prod(shape) for shape in shapes])


@functools.cache
def _kinds_of_sums(kind: Any, axes: tuple[int, ...]) -> tuple[int, ...]:
    fitting = _marked_fields(kind, "fitting")
    summed = summed_fields(kind)
    found = []
    for name, number in zip(hidden_fields(kind, masked=True), axes, strict=True):
        if name not in summed:
            found.append(0)
        elif name in fitting:
            found.append(FITTING)
        else:
            found.append(2 if number else 1)
    return tuple(found)


def size(message: Order | Reply) -> int:
    """Bytes of content: 8 per number, the length of a text, an array's own size. OwnerError for anything else."""
    kind = type(message)
    content = message.__dict__
    total = 0
    for name in content_fields(kind):
        value = content[name]
        if type(value) in EIGHT_BYTES:
            total += 8
        elif type(value) is np.ndarray and value.dtype is FLOAT:
            total += value.nbytes
        else:
            total += _size(kind, name, value)
    return total


def check_travels(message: Order | Reply) -> None:
    """OwnerError for a field that holds anything but numbers, arrays of numbers and text."""
    kind = type(message)
    for name in content_fields(kind):
        value = getattr(message, name)
        plain = type(value) in PLAIN or (type(value) is np.ndarray and value.dtype is FLOAT)
        if not plain:
            _size(kind, name, value)


def _size(kind: type, name: str, value: object) -> int:
    """Bytes of a value of any type that travels."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return value.nbytes
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, NUMBERS):
        return 8
    raise OwnerError(
        f"{kind.__name__}.{name} is of type {name_type(value)}: only arrays of numbers and scalars travel",
        code="FP-OWNER-012",
    )


def name_type(value: object) -> str:
    """The type of a value, for an error."""
    if isinstance(value, np.ndarray):
        return f"array of {value.dtype}"
    return type(value).__name__


def sealed_size(sealed: Sealed[Any]) -> int:
    """Bytes of content of a sealed reply."""
    kept = sealed.kept
    kind = type(kept)
    total = int(sealed.sums.nbytes)
    for name in shown_fields(kind, is_masked(sealed.sums)):
        total += _size(kind, name, getattr(kept, name))
    return total


def is_masked(sums: NDArray[Any]) -> bool:
    """Whether these are the sums of a secure sum."""
    return sums.dtype == np.uint64


class NotFinite(ProblemError):
    """An order would hold NaN or infinity: the method diverged, or the coordinator's own functions gave one."""

    code = "FP-PROBLEM-301"


def not_finite(message: Order | Reply, names: Sequence[str] | None = None) -> str | None:
    """The name of the first field that holds a NaN or an infinity; None when all are finite.

    names: of the fields to look at; None: all
    """
    content = message.__dict__
    for name in content_fields(type(message)) if names is None else names:
        value = content[name]
        if type(value) in EXACT:
            continue
        if isinstance(value, float):
            finite = math.isfinite(value)
        elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
            finite = value.size == 0 or is_finite(value)
        else:
            continue
        if not finite:
            return name
    return None


def is_finite(values: NDArray[Any]) -> bool:
    """Whether all of these are finite. A finite sum, of squares or not, proves it in one pass and without a copy."""
    if values.size <= FEW:
        total = np.vdot(values, values)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.add.reduce(values, axis=None)
    return math.isfinite(total) or bool(np.isfinite(values).all())


def excessive_length(order: Order) -> str | None:
    """The name of a field that asks for a vector out of proportion to what the order itself holds; None when none does.

    A few bytes would otherwise make an owner send gigabytes.
    """
    content = payload(order)
    numbers = max((value.size for value in content.values() if isinstance(value, np.ndarray)), default=0)
    most = max(LENGTH, LENGTH_FACTOR * numbers)
    for name, value in content.items():
        if name.endswith("length") and isinstance(value, int) and not 0 <= value <= most:
            return name
    return None


def seal(reply: R, most: float | None = None) -> Sealed[R]:
    """Separate the fields that are added up from those that are read owner by owner.

    most: for a secure sum: fields marked Largest travel as squares, a number above `most` as its square
    """
    kind = type(reply)
    content = reply.__dict__
    values = {name: content[name] for name in summed_fields(kind)}
    if most is not None:
        values |= {name: min(float(content[name]), most) ** 2 for name in largest_fields(kind)}
    shapes = tuple([getattr(value, "shape", ()) for value in values.values()])
    flat = np.zeros(0)
    if values:
        flat = np.concatenate(list(values.values()), axis=None, dtype=np.float64)
    return Sealed(copy_with(reply, dict.fromkeys(values)), shapes, flat)


def seal_jointly(reply: R, owners: int) -> Joint[R] | None:
    """`seal` for many owners: every array of the reply has one entry an owner; any other field is the same for all.

    None where a number is not finite.
    """
    kind = type(reply)
    content = reply.__dict__
    values = [content[name] for name in summed_fields(kind)]
    parts = [value.reshape(owners, -1) for value in values]
    shapes = tuple([value.shape[1:] for value in values])
    sums = np.concatenate(parts, axis=1, dtype=np.float64)
    if not is_finite(sums) or not_finite(reply, shown_fields(kind, masked=False)) is not None:
        return None
    return Joint(Columns(kind, _list_fields(reply, owners)), shapes, sums)


def _list_fields(reply: Reply, owners: int) -> dict[str, list[Any]]:
    """What is read owner by owner of a reply for many owners, field by field."""
    found = {}
    for name in shown_fields(type(reply), masked=False):
        value = getattr(reply, name)
        if not isinstance(value, np.ndarray):
            found[name] = [value] * owners
        elif value.ndim == 1:
            found[name] = value.tolist()
        else:
            found[name] = list(value)
    return found


def rebuild(
    kind: type[R], shapes: Sequence[tuple[int, ...]], total: NDArray[np.float64], kept: Sequence[R], masked: bool
) -> R:
    """Rebuild a reply from the flat vector of its summed fields; scalar fields come back as floats, others are None.

    Fields marked Largest come back as the largest of those kept or, in a secure sum, as the root of the squares' sum.
    """
    values: dict[str, Any] = dict.fromkeys(content_fields(kind))
    for name, place, shape in _layout(kind, tuple(shapes), masked):  # type: ignore[arg-type]  # a class is hashable
        if shape:
            values[name] = total[place].reshape(shape)
        else:
            values[name] = float(total[place.start])
    for name in largest_fields(kind):
        if masked:
            values[name] = math.sqrt(values[name])
        else:
            values[name] = max(column_of(kept, name))
    return build(kind, values)


@functools.lru_cache(maxsize=16)
def _layout(kind: Any, shapes: tuple[tuple[int, ...], ...], masked: bool) -> list[tuple[str, slice, tuple[int, ...]]]:
    """Where each summed field lies in the flat vector, and its shape."""
    layout = []
    start = 0
    for name, shape in zip(hidden_fields(kind, masked), shapes, strict=True):
        end = start + math.prod(shape)
        layout.append((name, slice(start, end), shape))
        start = end
    return layout


def copy_with(original: T, changes: dict[str, Any]) -> T:
    """A copy of a dataclass with other values, as `dataclasses.replace`, which checks and computes everything anew.

    None stands in a reply where the coordinator must not look, so that any use of it fails.
    """
    copy = object.__new__(type(original))
    copy.__dict__.update(original.__dict__)
    copy.__dict__.update(changes)
    return copy


def build(kind: type[T], values: dict[str, Any]) -> T:
    """A dataclass of these values, one for each field, as it is made thousands of times: nothing is checked."""
    made = object.__new__(kind)
    made.__dict__.update(values)
    return made


def add_up(replies: Sequence[R]) -> Answers[R]:
    """The answers of one exchange from whole replies."""
    sealed = [seal(reply) for reply in replies]
    total = sum((one.sums for one in sealed[1:]), sealed[0].sums)
    kept = [one.kept for one in sealed]
    return Answers(kept, rebuild(type(replies[0]), sealed[0].shapes, total, kept, masked=False))
