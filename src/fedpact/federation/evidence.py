"""Evidence: what an owner signs about a finished run.

A `Signed` reply is signed after it was sealed, as it is sent: of its summed fields the statement holds the digest of
the vector that left the owner, masked where the sum is secure. So anybody can add up the vectors that were signed, and
nobody learns more from that than the coordinator did.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import OwnerError, Refused
from fedpact.federation.gate import digest_of
from fedpact.federation.identity import Identity
from fedpact.federation.messages import WORDS, Reply, Sealed, summed_fields
from fedpact.federation.secure_sum import Peers


@dataclass(frozen=True, kw_only=True)
class Signed(Reply):
    """A reply that is signed; all but `job` are filled in by the `Owner`.

    job:       digest of the job that it is about
    task:      digest of what the owner built its share from; empty where it holds the share as it is
    table:     commitment to its table: the same for the same table, and nothing else about it
    time:      by the owner's clock, ISO 8601
    exchanges: of the run that the owner has answered before this one
    signature: of the `statement`, hexadecimal
    """

    job: str
    task: str = ""
    table: str = ""
    time: str = ""
    exchanges: int = 0
    signature: str = ""


def sign_reply(
    run: str, sealed: Sealed[Any], peers: Peers, task: Mapping[str, Any] | None, table: str, exchanges: int
) -> Sealed[Any]:
    """The sealed reply with its owner's signature; table: digest of what it holds; exchanges: answered before.

    OwnerError when the owner has no key, Refused when its charter is of another job.
    """
    if peers.identity is None:
        raise OwnerError(f"{peers.name}: has no key to sign with", code="FP-OWNER-630")
    if peers.job and sealed.kept.job != peers.job:
        raise Refused(f"{peers.name}: asked to sign for another job than that of the run", code="FP-REFUSED-630")
    filled = replace(
        sealed.kept,
        task="" if task is None else digest_of(task),
        table=commit(peers.identity, table),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        exchanges=exchanges,
    )
    said = canonical(statement(run, peers.name, replace(sealed, kept=filled)))
    return replace(sealed, kept=replace(filled, signature=peers.identity.sign("evidence", said).hex()))


def statement(run: str, owner: str, sealed: Sealed[Any]) -> dict[str, Any]:
    """What is signed, as JSON: every field that is read owner by owner, and the digest of the sums as sent."""
    kept = sealed.kept
    hidden = (*summed_fields(type(kept)), "signature")
    told = {f.name: np.asarray(getattr(kept, f.name)).tolist() for f in fields(kept) if f.name not in hidden}
    return {
        "run": run,
        "owner": owner,
        **told,
        "masked": sealed.sums.dtype == np.uint64,
        "shapes": [list(shape) for shape in sealed.shapes],
        "sums": sha256(to_bytes(sealed.sums)).hexdigest(),
    }


def commit(identity: Identity, table: str) -> str:
    """Commitment to the digest of a table.

    The salt is a signature (Ed25519 signs the same text the same way every time): only the owner can compute it, it is
    stored nowhere, and an owner that hands it out can prove which table it was.
    """
    salt = identity.sign("table", b"salt")
    return sha256(salt + table.encode()).hexdigest()


def canonical(content: Any) -> bytes:
    """JSON in one way only: what is signed and digested."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def to_bytes(sums: NDArray[Any]) -> bytes:
    return sums.astype(sums.dtype.newbyteorder("<")).tobytes()


def pack(sums: NDArray[Any]) -> str:
    """A sealed vector as text."""
    return base64.b64encode(to_bytes(sums)).decode()


def unpack(text: str, masked: bool) -> NDArray[Any]:
    """What `pack` was given. ValueError when the text is no such vector."""
    data = base64.b64decode(text, validate=True)
    if masked:
        return np.frombuffer(data, dtype="<u8").reshape(-1, WORDS).astype(np.uint64)
    return np.frombuffer(data, dtype="<f8").astype(np.float64)
