"""Who is who: the long-lived Ed25519 keys of sites and coordinators, and what is signed with them.

A private key is a PEM file that only its owner can read. A public key is 64 hexadecimal digits, written into the
policies and rosters of the others. A signature is bound to its purpose, so that one made for a message is worth
nothing under a job or under evidence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from fedpact.errors import OptionError, OwnerError, install
from fedpact.types import Buffer

#: What is signed: a job, an order, a reply, the key of a secure sum, evidence, a list of keys, and what salts a table.
Purpose = Literal["job", "order", "reply", "sum key", "evidence", "roster", "table", "rows"]
#: Length of a signature in bytes.
SIGNATURE = 64
PUBLIC = re.compile(r"[0-9a-f]{64}")
#: Points of Ed25519 whose eightfold is the neutral element, the sign of x left out, with the encodings that are not in
#: lowest terms. One signature of such a "key" holds for nearly any message, so whoever has it has signed everything.
SMALL_ORDER = frozenset(
    bytes.fromhex(point)
    for point in (
        f"{0:064x}",
        f"01{0:062x}",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        f"ec{'f' * 60}7f",
        f"ed{'f' * 60}7f",
        f"ee{'f' * 60}7f",
    )
)


class Identity:
    """A private key: what only its holder can sign."""

    def __init__(self, key: Any) -> None:
        self._key = key
        self.public: str = key.public_key().public_bytes_raw().hex()

    @classmethod
    def create(cls, path: str | Path) -> Self:
        """A new key, written to a file that only this user can read. OptionError when the file is there already."""
        path = Path(path)
        if path.exists():
            raise OptionError(f"{path} is there already, and a key is never replaced", code="FP-OPTION-600")
        serialization = _serialization()
        made = cls(_ed25519().Ed25519PrivateKey.generate())
        pem = made._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as target:
            target.write(pem)
        return made

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The key in a file. OptionError when there is none, or others can read it."""
        path = Path(path)
        serialization = _serialization()
        try:
            shared = path.stat().st_mode & 0o077
            key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise OptionError(
                f"{path} is no private key ({error}); `fedpact site key {path}` makes one", code="FP-OPTION-601"
            ) from error
        if not isinstance(key, _ed25519().Ed25519PrivateKey):
            raise OptionError(f"{path} holds a key of another kind; an Ed25519 key is needed", code="FP-OPTION-602")
        if shared:
            raise OptionError(f"{path} can be read by others; run: chmod 600 {path}", code="FP-OPTION-603")
        return cls(key)

    def sign(self, purpose: Purpose, content: bytes) -> bytes:
        """64 bytes."""
        signature = self._key.sign(_framed(purpose, content))
        assert isinstance(signature, bytes)
        return signature


def signed_by(public: str, purpose: Purpose, content: Buffer, signature: Buffer) -> bool:
    """Whether the holder of this public key signed this content for this purpose."""
    from cryptography.exceptions import InvalidSignature

    if is_small(public):
        return False
    try:
        _ed25519().Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(
            signature, _framed(purpose, content)
        )
    except (InvalidSignature, ValueError):
        return False
    return True


def is_small(public: str) -> bool:
    """Whether a public key is a point of small order, with which signatures prove nothing."""
    point = bytearray.fromhex(public)
    if len(point) != SIGNATURE // 2:
        return False  # no key at all
    point[-1] &= 0x7F
    return bytes(point) in SMALL_ORDER


def check_public_keys(keys: Mapping[str, object], where: str) -> dict[str, str]:
    """Public keys by name, as they were stated. OptionError for one that is none, or that two have."""
    found: dict[str, str] = {}
    for name, public in keys.items():
        if not isinstance(public, str) or not PUBLIC.fullmatch(public):
            raise OptionError(
                f"{where}: {name!r} has no public key of 64 hexadecimal digits; `fedpact site key FILE` prints it",
                code="FP-OPTION-604",
            )
        if is_small(public):
            raise OptionError(
                f"{where}: the key of {name!r} is a point of small order, with which anybody can sign; ask for another",
                code="FP-OPTION-675",
            )
        if public in found.values():
            raise OptionError(f"{where}: {name!r} has the key of another; each has its own", code="FP-OPTION-605")
        found[name] = public
    return found


# ---------------------------------------------------------------------------------------------------- signed messages

#: How a signed message begins; the signature and the message itself follow.
MARK = b"fedsign1"


def sign_message(identity: Identity, purpose: Purpose, message: bytes) -> bytes:
    return MARK + identity.sign(purpose, message) + message


def split_signed(data: Buffer) -> tuple[Buffer, Buffer]:
    """Signature and message; the signature is empty when there is none."""
    if data[: len(MARK)] != MARK:
        return data[:0], data
    start = len(MARK) + SIGNATURE
    return data[len(MARK) : start], data[start:]


def open_signed(data: Buffer, public: str, purpose: Purpose, sender: str) -> Buffer:
    """The message that the sender signed. OwnerError when it did not sign it."""
    signature, message = split_signed(data)
    if not signature or not signed_by(public, purpose, message, signature):
        raise OwnerError(
            f"{sender}: this message is not signed with the key that is known as {sender}'s", code="FP-OWNER-600"
        )
    return message


def _framed(purpose: str, content: Buffer) -> bytes:
    return b"".join([f"fedpact {purpose}\0".encode(), content])


def _ed25519() -> Any:
    return _cryptography("asymmetric.ed25519")


def _serialization() -> Any:
    return _cryptography("serialization")


def _cryptography(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"cryptography.hazmat.primitives.{module}")
    except ImportError as error:
        raise OptionError(
            f"signatures need the package cryptography: {install('secure')}", code="FP-OPTION-606"
        ) from error
