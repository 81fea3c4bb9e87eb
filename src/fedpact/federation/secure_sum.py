"""Secure sums: every owner adds masks that cancel in the sum; the coordinator learns the sum and no owner's part of it.

Each pair of owners agrees on a key by X25519 (through the coordinator, which sees public keys only) and HKDF. For every
message the pair derives a fresh key from it and expands that with ChaCha20 to a mask as long as the message; one of the
two adds the mask, the other subtracts it: Bonawitz et al. (2017) without the secret shares that would replace an
owner who leaves. None can be replaced here, since its constraint would be missing: its reply is asked for again (the
masks are the same for the same order), or the run stops.

The keys of a run are agreed on once, before anything else, and cannot be dropped. Between organisations every owner
signs the public key that it offers, with the long-lived key by which the others know it (`Peers`): a coordinator that
makes up the keys of one owner's peers is refused, by name. A mask is bound to the run, to all who take part, and to
one message: no two messages of an owner ever have the same one (`Owner` sees to that). A message is named by all that
was asked, the charter and the task beside the order: owners that were asked for different things have masks that do not
cancel, so that nobody's numbers can be singled out by a task that makes those of the others vanish.

Numbers are fixed-point integers of 192 bits, 2^104 to one: a double of size 2^-52 or more is exact, a smaller one is
off by less than 2^-104, and the sum is exact. Where the coordinator knows how large sums were last (`Fitted`), their
numbers have 128 or 64 bits, placed so that the next sums fit, too; matrices are in units of their rows and columns.
A number that could make it overflow is an error, and so are masks that do not cancel.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import OptionError, OwnerError, Refused, install
from fedpact.federation.identity import Identity, signed_by
from fedpact.federation.messages import FITTING, WORDS, Fitted, Order, Reply, Sealed, kinds_of_numbers
from fedpact.federation.wire import client_step

Words = NDArray[np.uint64]  # m x words of a number, the highest first

#: The number one is the integer 2^FRACTION: a double of size 2^-52 or more has no bit below 2^-104.
FRACTION = 104
#: |sum| is at most 2^BITS: masks that do not cancel show in the bits above.
BITS = 80
#: What rounding may add to that: every owner's bound is a quotient or a root, rounded, perhaps upwards.
ROUNDING = 2.0**-48

#: No owner's number may be 2^HEADROOM times larger than the largest of the last sums, where it has 128 bits.
HEADROOM = 40


@dataclass(frozen=True)
class Width:
    """Fixed-point numbers: words of 64 bits, 2^fraction to one, sums of size up to 2^bits."""

    words: int = WORDS
    fraction: int = FRACTION
    bits: int = BITS

    @classmethod
    def fitting(cls, words: int, largest: float, headroom: int, owners: int) -> Width:
        """For a sum over the owners of numbers up to 2^headroom times `largest`."""
        bits = math.frexp(largest)[1] + headroom + math.ceil(math.log2(owners))
        return cls(words, 64 * words - 2 - bits, bits)

    @property
    def grain(self) -> float:
        """What the smallest bit of a number is worth."""
        return 2.0**-self.fraction


EXACT = Width()


def narrow(most: float, owners: int) -> Width:
    """The width of numbers up to `most` that have 64 bits."""
    return Width.fitting(1, most, 0, owners)


@dataclass(frozen=True)
class Fit:
    """How the numbers of a reply travel, by the kind of their field: marked Largest, a number, an array, or Fitting.

    kinds: of every number, see `kinds_of_numbers`
    units: of every number of fields marked Fitting; 1: of all
    """

    kinds: NDArray[np.intp]
    widths: tuple[Width, Width, Width, Width]
    units: NDArray[np.float64] | float = 1.0

    def split(self, words: Words) -> list[Words]:
        """The words of each kind. OwnerError when there are more or fewer of them."""
        counts = np.bincount(self.kinds, minlength=4).tolist()
        lengths = [count * width.words for count, width in zip(counts, self.widths, strict=True)]
        if words.shape != (sum(lengths),):
            raise OwnerError("masked numbers of another width than was asked for; start again", code="FP-OWNER-976")
        parts = np.split(words, np.cumsum(lengths)[:-1])
        return [part.reshape(-1, width.words) for part, width in zip(parts, self.widths, strict=True)]


def packed_units(scales: NDArray[np.float32], count: int) -> NDArray[np.float64]:
    """s_j s_k for the `count` entries of packed matrices, of each the upper triangle row by row.

    OwnerError where these have not one row for every scale: a coordinator could use up the memory of an owner.
    """
    length = scales.size * (scales.size + 1) // 2
    if scales.ndim != 1 or not 0 < length <= count or count % length:
        raise OwnerError(
            "the scales of matrices are of another length than their rows; start the run again", code="FP-OWNER-977"
        )
    rows, columns = np.triu_indices(scales.size)
    return np.tile(scales[rows].astype(np.float64) * scales[columns], count // length)


def fit_of(order: Order, sealed: Sealed[Any], owners: int) -> Fit | None:
    """How the numbers of a masked reply to this order travel; None: all exactly."""
    if not order.secure or not isinstance(order, Fitted) or not order.largest:
        return None
    summed = Width.fitting(2, order.largest, HEADROOM, owners)
    arrays = summed
    fitting = summed
    units: NDArray[np.float64] | float = 1.0
    kinds = kinds_of_numbers(type(sealed.kept), sealed.shapes)
    if order.arrays:
        arrays = narrow(order.arrays, owners)
    if order.coarse:
        fitting = narrow(order.coarse, owners)
        units = packed_units(order.scales, int(np.count_nonzero(kinds == FITTING)))
    return Fit(kinds, (EXACT, summed, arrays, fitting), units)


@dataclass(frozen=True)
class Peers:
    """What an owner knows of itself and of the others when keys are agreed on.

    identity: its own long-lived key; None where all owners are of one organisation, and nobody signs
    known:    public keys of the others' identities, by name
    owners:   all who take part in the run, as its charter says; empty: nobody said
    least:    owners in a sum
    job:      digest of the job, as the charter says; empty: nobody said
    charter:  digest of the whole charter; empty: there is none
    """

    name: str
    identity: Identity | None = None
    known: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[str, ...] = ()
    least: int = 2
    job: str = ""
    charter: str = ""


@dataclass(frozen=True)
class Keys:
    """What an owner holds: its own private key, and by pair the key it shares with each other owner, in owner order."""

    private: str = field(repr=False)
    names: tuple[str, ...] = ()
    shared: tuple[str, ...] = field(default=(), repr=False)  # hexadecimal; empty for itself


@dataclass(frozen=True, kw_only=True)
class Offer(Order):
    """Ask for a public key."""


@dataclass(frozen=True, kw_only=True)
class Offered(Reply):
    public: str
    signature: str  # hexadecimal; empty where nobody signs


@dataclass(frozen=True, kw_only=True)
class Agree(Order):
    names: str  # JSON: all owners
    publics: str  # JSON: their public keys
    signatures: str = "[]"  # JSON: their signatures under these


@dataclass(frozen=True, kw_only=True)
class Agreed(Reply):
    peers: int


@client_step
def offer(peers: Peers, keys: Keys | None, order: Offer) -> tuple[Keys, Offered]:
    """The key of this run, signed; made once. Asked again, it is the same, and what was agreed on stays."""
    if keys is None:
        keys = Keys(_x25519().X25519PrivateKey.generate().private_bytes_raw().hex())
    private = _x25519().X25519PrivateKey.from_private_bytes(bytes.fromhex(keys.private))
    public = private.public_key().public_bytes_raw().hex()
    signature = b""
    if peers.identity is not None:
        signature = peers.identity.sign("sum key", _statement(order.run, peers.name, public))
    return keys, Offered(public=public, signature=signature.hex())


@client_step
def agree(peers: Peers, keys: Keys | None, order: Agree) -> tuple[Keys, Agreed]:
    """A key with each of the others, by Diffie-Hellman; bound to the run, to all who take part, and to both keys."""
    if keys is None:
        raise OwnerError("keys are agreed on after they were offered", code="FP-OWNER-620")
    x25519 = _x25519()
    private = x25519.X25519PrivateKey.from_private_bytes(bytes.fromhex(keys.private))
    own = private.public_key().public_bytes_raw().hex()
    names = json.loads(order.names)
    publics = json.loads(order.publics)
    _check_roster(peers, own, names, publics)
    if peers.identity is not None:
        signatures = json.loads(order.signatures)
        for name, public, signature in zip(names, publics, signatures, strict=True):
            if name != peers.name:
                _check_peer(peers, order.run, name, public, signature)
    roster = sha256(json.dumps([names, publics]).encode()).hexdigest()
    shared = []
    for public in publics:
        if public == own:
            shared.append("")
            continue
        secret = private.exchange(x25519.X25519PublicKey.from_public_bytes(bytes.fromhex(public)))
        pair = "".join(sorted((own, public)))
        shared.append(_derive(secret, f"fedpact pair {order.run} {roster} {pair}").hex())
    agreed = Keys(keys.private, tuple(names), tuple(shared))
    if keys.shared and agreed != keys:
        raise OwnerError("the keys of this run are agreed on already, with others", code="FP-OWNER-621")
    return agreed, Agreed(peers=len(publics) - 1)


def _statement(run: str, name: str, public: str) -> bytes:
    """What an owner signs: this key is mine, in this run."""
    return json.dumps([run, name, public]).encode()


def _check_roster(peers: Peers, own: str, names: list[str], publics: list[str]) -> None:
    # Alone, or with its own key twice, it would send its values as they are.
    if len(set(publics)) != len(names) or len(publics) != len(names) or len(names) < 2 or own not in publics:
        raise OwnerError(
            "the public keys are not one for each of two or more owners, with this owner's own among them",
            code="FP-OWNER-010",
        )
    if len(names) < peers.least:
        raise Refused(f"a sum over {len(names)} owners; this site allows {peers.least} or more", code="FP-REFUSED-008")
    if peers.owners and tuple(names) != peers.owners:
        raise Refused("keys of other owners than the run was announced with", code="FP-REFUSED-013")


def _check_peer(peers: Peers, run: str, name: str, public: str, signature: str) -> None:
    """Refused unless the peer signed this key itself."""
    known = peers.known.get(name, "")
    if not known or not signed_by(known, "sum key", _statement(run, name, public), bytes.fromhex(signature)):
        raise Refused(f"the key that was given as {name!r}'s is not signed by {name!r}", code="FP-REFUSED-014")


def check_range(fields: dict[str, object], owners: int) -> None:
    """OwnerError when a value is so large that the sum over the owners might overflow: nothing is ever clipped."""
    largest = 2.0**BITS / owners
    for name, value in fields.items():
        if (found := float(np.max(np.abs(np.asarray(value)), initial=0.0))) > largest:
            raise OwnerError(
                f"{name} has a value of size {found:.3g}; a secure sum over {owners} owners holds numbers up to "
                f"{largest:.3g}: scale the columns, or solve with secure_sum=False",
                code="FP-OWNER-011",
            )


def largest_root(owners: int) -> float:
    """The largest number whose square fits into a sum over so many owners, about 1e12; a larger one counts as this."""
    return float(np.sqrt(2.0**BITS / owners))


def protect(values: NDArray[np.float64], keys: Keys, message: str, fit: Fit | None = None) -> Words:
    """The values of one owner (in range, see `check_range`), masked.

    `message` names the message: masks of two messages are independent.
    """
    if fit is None:
        return _protect(values, keys, message, EXACT)
    parts = []
    for kind, width in enumerate(fit.widths):
        own = values[fit.kinds == kind]
        if kind == FITTING:
            own = own / fit.units
        if np.max(np.abs(own), initial=0.0) > 2.0**width.bits / len(keys.shared):
            raise OwnerError(
                "a number is out of all proportion to what the coordinator said of the last sum; start the run again",
                code="FP-OWNER-975",
            )
        parts.append(_protect(own, keys, f"{message} {kind}", width).ravel())
    return np.concatenate(parts)


def _protect(values: NDArray[np.float64], keys: Keys, message: str, width: Width) -> Words:
    me = keys.shared.index("")
    words = encode(values, width)
    carries = np.zeros(words.shape, dtype=np.uint16)  # out of every word, so far
    subtracted = 0
    for other, key in enumerate(keys.shared):
        if other == me:
            continue
        mask = _mask(bytes.fromhex(key), message, values.size, width.words)
        if me > other:  # of each pair, one adds the mask and the other subtracts it: -mask = ~mask + 1
            np.invert(mask, out=mask)
            subtracted += 1
        words += mask
        carries += words < mask
    return _carry(words, carries, np.uint64(subtracted))


def reveal(parts: Sequence[Words], fit: Fit | None = None) -> NDArray[np.float64]:
    """The sum of all owners' values: the masks cancel.

    OwnerError when they do not, which every number of the sum shows with probability one half.
    """
    if fit is None:
        return _reveal(parts, EXACT)
    total = np.empty(fit.kinds.size)
    by_kind = zip(*(fit.split(part) for part in parts), strict=True)
    for kind, (own, width) in enumerate(zip(by_kind, fit.widths, strict=True)):
        total[fit.kinds == kind] = _reveal(own, width)
    total[fit.kinds == FITTING] *= fit.units
    return total


def _reveal(parts: Sequence[Words], width: Width) -> NDArray[np.float64]:
    total = decode(functools.reduce(add, parts), width)
    if np.max(np.abs(total), initial=0.0) > 2.0**width.bits * (1 + ROUNDING):
        raise OwnerError(
            "the masks of a secure sum do not cancel: owners were given different orders or keys; start the run again, "
            "and check that all owners run the same version",
            code="FP-OWNER-301",
        )
    return total


def add_parts(parts: Sequence[NDArray[Any]], fit: Fit | None = None) -> NDArray[np.float64]:
    """The sum of what all owners sent: masked words, or numbers as they are."""
    if parts[0].dtype == np.uint64:
        return reveal(parts, fit)
    total: NDArray[np.float64] = sum(parts[1:], parts[0])
    return total


def encode(values: NDArray[np.float64], width: Width = EXACT) -> Words:
    """floor(|v| 2^fraction), negated in two's complement where v < 0."""
    rest = np.ldexp(np.abs(values), width.fraction - 64 * (width.words - 1))
    words = np.empty((values.size, width.words), dtype=np.uint64)
    for k in range(width.words):
        whole = np.floor(rest)
        words[:, k] = whole
        rest = np.ldexp(rest - whole, 64)
    below = values < 0
    words ^= np.where(below, ~np.uint64(0), np.uint64(0))[:, None]
    return _carry(words, np.zeros(words.shape, dtype=np.uint16), below.astype(np.uint64))


def decode(words: Words, width: Width = EXACT) -> NDArray[np.float64]:
    """The numbers that `encode` was given, or their sum."""
    below = words[:, 0] >> np.uint64(63) == 1
    size = np.where(below[:, None], negative(words), words)
    values = np.zeros(len(words))
    for k in reversed(range(width.words)):
        values += np.ldexp(size[:, k].astype(np.float64), 64 * (width.words - 1 - k) - width.fraction)
    return np.where(below, -values, values)


def add(a: Words, b: Words) -> Words:
    """a + b modulo 2^(64 words)."""
    total = np.empty_like(a)
    carry = np.zeros(len(a), dtype=np.uint64)
    for k in reversed(range(a.shape[1])):
        part = a[:, k] + b[:, k]
        total[:, k] = part + carry
        carry = ((part < a[:, k]) | (total[:, k] < carry)).astype(np.uint64)
    return total


def negative(words: Words) -> Words:
    """-words in two's complement."""
    return _carry(~words, np.zeros(words.shape, dtype=np.uint16), np.uint64(1))


def _carry(words: Words, carries: NDArray[np.uint16], more: Any) -> Words:
    """Add `more` to the lowest word, and to every other what was carried out of the word below; changes `words`."""
    for k in reversed(range(words.shape[1])):
        words[:, k] += more
        more = carries[:, k] + (words[:, k] < more).astype(np.uint64)
    return words


def _mask(key: bytes, message: str, count: int, words: int) -> Words:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    stream = Cipher(algorithms.ChaCha20(_derive(key, message), bytes(16)), mode=None).encryptor()
    data = bytearray(stream.update(bytes(8 * words * count)))
    return np.frombuffer(data, dtype="<u8").reshape(count, words).astype(np.uint64, copy=False)


def _derive(secret: bytes, info: str) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(hashes.SHA256(), 32, salt=None, info=info.encode()).derive(secret)


def _x25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import x25519
    except ImportError as error:
        raise OptionError(
            f"secure_sum=True needs the package cryptography at every owner: {install('secure')}",
            code="FP-OPTION-001",
        ) from error
    return x25519
