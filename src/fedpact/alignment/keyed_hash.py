"""Alignment by keyed hashes: the parties share a secret key, and the coordinator compares tags that it cannot invert.

Who learns what:
    coordinator  the tags: how many people each party has and which tags it shares with whom; no id, without the key
    a party      which of its own people are at every party, and nothing of the others' people
Whoever has the key and the tags can try out ids: with the key, a tag hides an id no better than a plain hash does. So a
coordinator in league with one party, or a key that leaks later, opens everything that can be guessed (phone numbers,
birth dates). Where one party could be that one, use `private_intersection`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from fedpact.alignment.by_id import Id, OnMissing, Rows, match, normalize
from fedpact.errors import OptionError

#: Length of a key: as long as the tags, so that guessing it is no easier than guessing a tag.
KEY_BYTES = 32
#: Hashed before every id, so that tags of another program with the same key differ.
PURPOSE = b"fedpact alignment by keyed hash, version 1\n"


def tags(party: str, ids: Sequence[Id], key: bytes) -> list[bytes]:
    """A party's step: HMAC-SHA256 of each id, in the order of its rows. The tags go to the coordinator.

    key: at least 32 random bytes, the same at all parties (`secrets.token_bytes(32)`); the coordinator must not have it

    Raises:
        DataError: an id that is missing, of a wrong type, or there twice.
        OptionError: a short key.
    """
    if not isinstance(key, bytes) or len(key) < KEY_BYTES:
        found = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise OptionError(
            f"the key of party {party!r} is {found}; give {KEY_BYTES} random bytes, as secrets.token_bytes makes them",
            code="FP-OPTION-407",
        )
    return [hmac.digest(key, PURPOSE + text.encode(), hashlib.sha256) for text in normalize(party, ids)]


def align_by_keyed_hash(
    ids_by_party: Mapping[str, Sequence[Id]], key: bytes, *, on_missing: OnMissing = "error"
) -> dict[str, Rows]:
    """All steps in one process: what `align` gives, with people in the order of their tags.

    That order depends on the key, and tells nothing of the ids. Raises what `align` and `tags` raise; messages about
    people at some parties only have numbers and no ids, since the coordinator has none.
    """
    tagged = {party: tags(party, ids, key) for party, ids in ids_by_party.items()}
    return match(tagged, on_missing=on_missing, secret=True)
