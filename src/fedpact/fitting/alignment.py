"""Alignment between processes: the same people in the same order at every party, as exchanges of a session.

    id          parties name their people            coordinator matches ids        2 exchanges
    keyed-hash  parties tag them with a common key   coordinator matches tags       2 exchanges
    private     parties blind them, then each list goes through every other party's key, all parties at work in every
                exchange; coordinator matches points                                n + 1 exchanges of n parties

In the last exchange every party gets positions in the list that it sent, and accepts them: its rows in the common order
are in its memory from then on, and every share is built from them. A list is sent in ascending order of its entries, so
it does not tell the order of the party's table. Who learns what is in docs/explanation/alignment.md.

The coordinator may hold a table itself (`own`): it takes part as one more party, in its own process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpact.alignment import MODES, Mode, People, blind, match, new_key, normalize, reblind, tags
from fedpact.alignment.by_id import OnMissing
from fedpact.errors import DataError, OptionError, OwnerError, Refused
from fedpact.federation import Order, Reply, Session
from fedpact.federation.aligned import Aligned, Rows
from fedpact.federation.wire import aligning, write_atomically
from fedpact.problem.vertical_input import COORDINATOR

#: Tags and points of 32 bytes, one a person, each as four words.
Words = NDArray[np.uint64]
WORDS = 4
#: File of the coordinator's secret of a private intersection, in the folder of the checkpoint.
SECRET = "alignment.key"

# ------------------------------------------------------------------------------------------------------- a party's half


@dataclass(frozen=True, kw_only=True)
class ListPeople(Order):
    """Ask a party who is in its table."""


@dataclass(frozen=True, kw_only=True)
class Named(Reply):
    ids: str  # one a line, each a text in JSON


@dataclass(frozen=True, kw_only=True)
class Tagged(Reply):
    tags: Words


@dataclass(frozen=True, kw_only=True)
class Blinded(Reply):
    points: Words


@dataclass(frozen=True, kw_only=True)
class Multiply(Order):
    points: Words  # of another party


@dataclass(frozen=True, kw_only=True)
class Multiplied(Reply):
    tells = False  # they are another party's people

    points: Words  # those that came, times the party's key, in the same order


@dataclass(frozen=True, kw_only=True)
class Accept(Order):
    positions: Rows  # in the list that the party sent, of the people that all parties have


@dataclass(frozen=True, kw_only=True)
class Accepted(Reply):
    people: int


@aligning
def name_people(people: People, aligned: Aligned | None, order: ListPeople) -> tuple[Aligned, Named]:
    """The party's ids, in the clear."""
    _begin(people, aligned, "id")
    ids = normalize(people.party, people.ids)
    rows = sorted(range(len(ids)), key=ids.__getitem__)
    return Aligned(listed=np.array(rows, dtype=np.int64)), Named(ids=_to_lines([ids[row] for row in rows]))


@aligning
def tag_people(people: People, aligned: Aligned | None, order: ListPeople) -> tuple[Aligned, Tagged]:
    """Keyed hashes of the party's ids."""
    _begin(people, aligned, "keyed-hash")
    tagged = tags(people.party, people.ids, people.key)
    rows = sorted(range(len(tagged)), key=tagged.__getitem__)
    return Aligned(listed=np.array(rows, dtype=np.int64)), Tagged(tags=to_words([tagged[row] for row in rows]))


@aligning
def blind_people(people: People, aligned: Aligned | None, order: ListPeople) -> tuple[Aligned, Blinded]:
    """The party's ids as points, times a new secret of its own, which stays in its memory."""
    _begin(people, aligned, "private")
    return _blind(people, new_key())


def _blind(people: People, key: bytes) -> tuple[Aligned, Blinded]:
    blinded = blind(people.party, people.ids, key)
    aligned = Aligned(key=key.hex(), listed=blinded.rows.astype(np.int64))
    return aligned, Blinded(points=to_words(blinded.points))


@aligning
def multiply(people: People, aligned: Aligned | None, order: Multiply) -> tuple[Aligned, Multiplied]:
    """Another party's points, times this party's secret."""
    if aligned is None or not aligned.key:
        raise OwnerError("points of others come after its own and before it has accepted", code="FP-OWNER-417")
    if aligned.turns == people.tables > 0:
        raise OwnerError(
            f"{aligned.turns} lists of others were multiplied, as many as there are tables", code="FP-OWNER-423"
        )
    points = reblind(people.party, to_values(order.points), bytes.fromhex(aligned.key))
    return replace(aligned, turns=aligned.turns + 1), Multiplied(points=to_words(points))


@aligning
def accept(people: People, aligned: Aligned | None, order: Accept) -> tuple[Aligned, Accepted]:
    """The party's rows in the common order, for good; its secret is erased. Refused when they are too few."""
    if aligned is None or aligned.rows is not None:
        raise OwnerError("people are accepted once, after they were listed", code="FP-OWNER-418")
    positions = order.positions
    listed = positions.ndim == 1 and positions.dtype == np.int64
    inside = listed and bool(np.all((positions >= 0) & (positions < aligned.listed.size)))
    if not inside or np.unique(positions).size != positions.size:
        raise OwnerError("positions in its list that are not there, or are there twice", code="FP-OWNER-419")
    if positions.size < people.least:
        raise Refused(
            f"{people.party}: refused by the rule 'least_people' of its policy: {positions.size} people in common, "
            f"{people.least} are asked for",
            code="FP-REFUSED-060",
        )
    return replace(aligned, key="", rows=aligned.listed[positions]), Accepted(people=int(positions.size))


def _begin(people: People, aligned: Aligned | None, mode: Mode) -> None:
    """Refused in a mode that the party does not take part in, and for a second time: two answers tell a difference."""
    if aligned is not None:
        raise OwnerError("its people were listed already in this run; begin another run", code="FP-OWNER-422")
    if mode not in people.modes:
        raise Refused(
            f"{people.party}: refused by the rule 'alignments' of its policy: {mode!r} is not among them",
            code="FP-REFUSED-061",
        )


# ----------------------------------------------------------------------------------------------- the coordinator's half


@dataclass(frozen=True, eq=False)
class Alignment:
    """people: in every table; rows: of the coordinator's own table, in the common order; None where it has none"""

    people: int
    rows: Rows | None = None


def align_parties(
    session: Session,
    mode: Mode = "private",
    *,
    on_missing: OnMissing = "error",
    least: int = 1,
    own: People | None = None,
) -> Alignment:
    """Let every party of the session find its rows of the people that all have, in the common order.

    The task that is posed says what people are (`Task.people`). Before secure sums: parties get orders of their own.

    on_missing: "error" when someone is not at every party, or "drop" to keep those who are
    least:      people in common, or it is an error; each party may ask for more, and refuse
    own:        who is in the coordinator's own table, where it has one

    Raises:
        DataError: ids that are missing, wrong or there twice; people who are not at every party; too few who are.
        Refused: a party asks for more people, or does not take part in this mode.
        OptionError: fewer than two tables, or an unknown mode.
    """
    if mode not in MODES:
        raise OptionError(f"alignment = {mode!r}: choose {', '.join(map(repr, MODES))}", code="FP-OPTION-419")
    lists, kept = _LISTS[mode](session, own)
    positions = match(lists, on_missing=on_missing, secret=mode != "id")
    people = len(next(iter(positions.values())))
    if people < least:
        raise DataError(
            f"{people} people are in every table, {least} are asked for; lower least_people, or ask the parties for "
            "more",
            code="FP-DATA-412",
        )
    orders = {name: Accept(positions=found.astype(np.int64)) for name, found in positions.items()}
    session.ask(accept, [orders[name] for name in session.owners])
    rows = None
    if own is not None:
        rows = accept(own, kept, orders[COORDINATOR])[0].rows
    return Alignment(people, rows)


Lists = tuple[Mapping[str, Sequence[Any]], Aligned | None]


def _list_at_once(session: Session, own: People | None, step: Any, read: Callable[[Any], Sequence[Any]]) -> Lists:
    """Every party lists its people in one exchange. read: what a reply lists"""
    lists = {name: read(reply) for name, reply in zip(session.owners, session.ask(step, ListPeople()), strict=True)}
    kept = None
    if own is not None:
        kept, reply = step(own, None, ListPeople())
        lists[COORDINATOR] = read(reply)
    return lists, kept


def _list_privately(session: Session, own: People | None) -> Lists:
    """Every list through every key: in each exchange party k multiplies the list that party k - 1 had before."""
    lists = [reply.points for reply in session.ask(blind_people, ListPeople())]
    kept = None
    if own is not None:
        kept, reply = _blind(own, _own_secret(session))
        lists.append(reply.points)
    parties = len(session.owners)
    for _ in range(len(lists) - 1):
        orders = [Multiply(points=lists[k - 1]) for k in range(len(lists))]
        done = [answer.points for answer in session.ask(multiply, orders[:parties])]
        if own is not None:
            assert kept is not None
            kept, multiplied = multiply(own, kept, orders[-1])
            done.append(multiplied.points)
        lists = done
    # After n - 1 turns party k has multiplied the list of party k + 1.
    turned = [*lists[-1:], *lists[:-1]]
    names = [*session.owners, COORDINATOR][: len(lists)]
    return {name: to_values(points) for name, points in zip(names, turned, strict=True)}, kept


_LISTS: dict[Mode, Callable[[Session, People | None], Lists]] = {
    "id": partial(_list_at_once, step=name_people, read=lambda reply: _from_lines(reply.ids)),
    "keyed-hash": partial(_list_at_once, step=tag_people, read=lambda reply: to_values(reply.tags)),
    "private": _list_privately,
}


def _own_secret(session: Session) -> bytes:
    """The coordinator's key: the same when a run is resumed, since what it sent is on record."""
    if session.folder is None:
        return new_key()
    file = session.folder / SECRET
    if not file.exists():
        write_atomically(file, new_key())
    return file.read_bytes()


# ------------------------------------------------------------------------------------------------------- as they travel


def to_words(values: Sequence[bytes]) -> Words:
    """Values of 32 bytes as an array, one a row."""
    return np.frombuffer(b"".join(values), dtype="<u8").reshape(-1, WORDS).astype(np.uint64)


def to_values(words: Words) -> list[bytes]:
    """What `to_words` was given. OwnerError when it is no such array."""
    if words.dtype != np.uint64 or words.ndim != 2 or words.shape[1] != WORDS:
        raise OwnerError("a list of tags or points is not one of 32 bytes each", code="FP-OWNER-421")
    data = words.astype("<u8").tobytes()
    width = 8 * WORDS
    return [data[start : start + width] for start in range(0, len(data), width)]


def _to_lines(texts: Sequence[str]) -> str:
    return "\n".join(json.dumps(text) for text in texts)


def _from_lines(lines: str) -> list[str]:
    return [json.loads(line) for line in lines.split("\n")]
