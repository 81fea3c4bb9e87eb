"""Private set intersection by Diffie-Hellman on Curve25519, for two or more parties. No key is shared by anyone.

    blind    a party maps its ids to points of the curve and multiplies them by its own secret key
    reblind  every other party in turn multiplies these points by its key; their order stays
    match    points that went through all keys are equal exactly when their ids are: the coordinator compares them

Multiplications commute, so the way round does not matter. A party sends its points in ascending order, which is random
to all who lack its key, and keeps to itself which row each of them is.

Who learns what, when all follow the steps and keep their keys to themselves:
    coordinator  points: how many people each party has, and which (unnamed) people are at which parties; no id, and
                 no way to try out ids, which takes the key of the party whose points they are
    a party      how many people the others have, and which of its own people are at every party
Coordinator and a party together learn who of that party's people is at which other party. A party that departs from
the steps can put ids of its choice into its own set, and learn who of them is everywhere. Keys are for one run: with
the same keys in two runs, equal points are equal people.

Why X25519 of the package `cryptography`: it is exactly the multiplication of a point, given by its u-coordinate, by a
secret number, and needs no arithmetic of our own. The packaged alternative, openmined-psi 2.0.6, knows two parties only
and pins one version of protobuf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from fedpact.alignment.by_id import Id, OnMissing, Rows, match, normalize
from fedpact.errors import DataError, OptionError, install

#: Hashed before every id, so that points of another protocol differ.
PURPOSE = b"fedpact private intersection, version 1\n"
#: Curve25519 is v^2 = u^3 + A u^2 + u modulo PRIME (RFC 7748, section 4.1).
PRIME = 2**255 - 19
A = 486662


@dataclass(frozen=True, eq=False)
class Blinded:
    """What a party sends, `points`, and what it keeps: row rows[j] of its table is point j."""

    points: tuple[bytes, ...]
    rows: Rows = field(repr=False)


def new_key() -> bytes:
    """A party's own secret for one run, 32 bytes."""
    return bytes(_x25519().X25519PrivateKey.generate().private_bytes_raw())


def blind(party: str, ids: Sequence[Id], key: bytes) -> Blinded:
    """A party's first step: its ids as points, times its key, in ascending order.

    Raises:
        DataError: an id that is missing, of a wrong type, or there twice.
        OptionError: a key that is not 32 bytes, or no package cryptography.
    """
    hashed = [_hash_to_curve(text) for text in normalize(party, ids)]
    points = reblind(party, hashed, key)
    rows = sorted(range(len(points)), key=points.__getitem__)
    return Blinded(tuple(points[row] for row in rows), np.array(rows, dtype=np.intp))


def reblind(party: str, points: Sequence[bytes], key: bytes) -> list[bytes]:
    """A party's second step: the points of another, times its own key, in the order they came.

    Raises:
        DataError: what came is no point of 32 bytes, or one that any key turns into zero.
        OptionError: a key that is not 32 bytes, or no package cryptography.
    """
    x25519 = _x25519()
    try:
        private = x25519.X25519PrivateKey.from_private_bytes(key)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"the key of party {party!r} is not 32 bytes; make one with new_key()", code="FP-OPTION-408"
        ) from error
    done = []
    for position, point in enumerate(points):
        try:
            done.append(private.exchange(x25519.X25519PublicKey.from_public_bytes(point)))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"party {party!r}: point {position} of those to multiply is not one that `blind` makes ({error}); ask "
                "the sender to start again",
                code="FP-DATA-409",
            ) from error
    return done


def align_privately(
    ids_by_party: Mapping[str, Sequence[Id]],
    *,
    on_missing: OnMissing = "error",
    keys: Mapping[str, bytes] | None = None,
) -> dict[str, Rows]:
    """All steps in one process: what `align` gives, with people in an order that depends on the keys.

    keys: by party; None makes new ones, so that the order differs from run to run
    Raises what `align`, `blind` and `reblind` raise; messages about people at some parties only have numbers, no ids.
    """
    secrets = {party: new_key() for party in ids_by_party} if keys is None else keys
    if absent := [party for party in ids_by_party if party not in secrets]:
        raise OptionError(
            f"party {absent[0]!r} has no key; give one for each party, or none at all", code="FP-OPTION-410"
        )
    blinded = {party: blind(party, ids, secrets[party]) for party, ids in ids_by_party.items()}
    parties = list(blinded)
    through_all = {}
    for k, party in enumerate(parties):
        points: Sequence[bytes] = blinded[party].points
        for other in parties[k + 1 :] + parties[:k]:
            points = reblind(other, points, secrets[other])
        through_all[party] = points
    matched = match(through_all, on_missing=on_missing, secret=True)
    return {party: blinded[party].rows[positions] for party, positions in matched.items()}


def _hash_to_curve(text: str) -> bytes:
    """The u-coordinate of a point of the curve whose logarithm nobody knows: hashes until one is on the curve.

    X25519 would take any hash. But half of them are on the curve's twist, no multiplication leads from one to the
    other, and everyone can tell which is which: a blinded point would give away one bit of its id's hash. The small
    factor in the order of the point is removed by X25519, whose secret numbers are multiples of 8; a point of small
    order, which a hash will not meet, would be an error there. How many hashes it takes shows in the time used, but
    only at the party that has the id.
    """
    for attempt in count():
        hashed = hashlib.sha512(PURPOSE + b"%d\n" % attempt + text.encode()).digest()
        u = int.from_bytes(hashed, "big") % PRIME
        v_squared = u * (u * u + A * u + 1)
        if pow(v_squared, (PRIME - 1) // 2, PRIME) == 1:  # Euler's criterion: there is a v
            break
    return u.to_bytes(32, "little")


def _x25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import x25519
    except ImportError as error:
        raise OptionError(
            f"private intersection needs the package cryptography at every party: {install('secure')}",
            code="FP-OPTION-411",
        ) from error
    return x25519
