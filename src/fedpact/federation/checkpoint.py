"""The coordinator's memory on disk: what it received, round by round.

The coordinator's half of every algorithm is a deterministic function of the replies. So its checkpoint is the list of
what came back: to resume, the algorithm runs from the start, rounds that are on record are answered from it (each order
is compared with the recorded one), and the first new round goes out to the owners, who remember where they were. No
algorithm needs code of its own for this, and the resumed run is the uninterrupted one, bit for bit.

Where owners answer one by one, who was first is a part of what came back: each batch of replies that the algorithm was
handed is a record. Up to the last of them a resumed run is the same, bit for bit; then the orders under way are sent
again, and whoever answers first is first.

    checkpoint.json   which run, how many rounds (and exchanges: rounds but for the agreement on masks), and length and
                      checksum of the log; replaced atomically
    rounds.log        one record a round or batch of replies, only ever appended to; what lies behind the stated length
                      does not count; locked while a run is at work
    owners/           the owners' own memory, when they live in this process or on this machine
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedpact.errors import CheckpointError, WireError
from fedpact.federation.memory import Step
from fedpact.federation.messages import Order, Reply, hidden_fields, payload
from fedpact.federation.secure_sum import agree, offer
from fedpact.federation.wire import (
    dumps,
    frame,
    from_tree,
    loads,
    lock,
    name_of,
    open_private,
    reply_type,
    split_records,
    to_tree,
    write_atomically,
)

FORMAT = "fedpact-checkpoint"
#: Of the head and of the records; a checkpoint of another version is refused.
VERSION = 1
#: Orders of a resumed run may differ by this much from the recorded ones, relatively: another machine rounds otherwise.
ROUNDING = 1e-6

#: A step, and who was asked to run it by which order.
Asked = tuple[Step, Mapping[str, Order]]


@dataclass(frozen=True)
class Past:
    """A round on record.

    kept:   the replies, in owner order, without their summed fields
    shapes: of the summed fields, in order
    total:  the sums in one flat vector
    masked: whether the sum was secure
    counts: messages and bytes of each owner, as in the ledger
    """

    kept: list[Reply]
    shapes: tuple[tuple[int, ...], ...]
    total: NDArray[np.float64]
    masked: bool
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class _Log:
    """State of the log file; replaced as a whole, so that an interrupt leaves the old or the new one.

    records, length, checksum: of what is written
    pending:                   records to be written
    """

    records: int = 0
    length: int = 0
    checksum: Any = field(default_factory=hashlib.sha256)
    pending: tuple[bytes, ...] = ()

    def flush(self) -> _Log:
        """The state once the pending records are written."""
        data = b"".join(self.pending)
        checksum = self.checksum.copy()
        checksum.update(data)
        return _Log(self.records + len(self.pending), self.length + len(data), checksum)


class Checkpoint:
    """Opens (or starts) the checkpoint in a folder.

    about:  what identifies the solve: method, tolerances, owners, ...; a checkpoint of another one is refused
    every:  records between two writes
    resume: go on with what is there; otherwise the folder must not hold a checkpoint

    The folder is locked until `close`, or until the process ends, however it ends. Raises CheckpointError when there is
    none to resume, one already, another run at work on it, or when it is damaged or foreign.
    """

    def __init__(self, folder: Path, about: dict[str, Any], every: int = 1, resume: bool = False) -> None:
        self.folder = folder
        self.every = every
        self.run = uuid.uuid4().hex[:16]
        self.about: dict[str, Any] = json.loads(json.dumps(about))
        self._past: deque[bytes] = deque()  # records of the run that is resumed, until they are recalled
        self._log = _Log()
        self._exchanges = 0
        self._expect(resume)
        if not resume:
            folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._lock_log(create=not resume)
        try:
            self._expect(resume)  # again, as another run may have begun and ended in between
            if resume:
                self._read()
            else:
                self.write()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unlock the folder for another run."""
        self._lock.close()

    @property
    def replaying(self) -> bool:
        """Whether a resumed run has yet to repeat something that is on record."""
        return bool(self._past)

    def recall(self, round: int, asked: Asked) -> Past | None:
        """The next round as it was answered, or None when it is not on record. CheckpointError when the orders differ.

        round: its number, for messages
        """
        if not self._past:
            return None
        return self._read_past(loads(self._past.popleft()), round, asked)

    def recall_batch(self, waiting: Mapping[int, Asked]) -> dict[int, Past] | None:
        """The replies that came next, by the round of their order; None when that is not on record.

        waiting: the orders under way, by round; CheckpointError when those on record are others
        """
        if not self._past:
            return None
        batch = {}
        for record in loads(self._past.popleft()).get("batch", [{"round": 0}]):
            number = record["round"]
            batch[number] = self._read_past(record, number, waiting.get(number))
        return batch

    def _read_past(self, record: dict[str, Any], round: int, asked: Asked | None) -> Past:
        if asked is None or not same(record.get("asked"), _content(*asked)):
            raise CheckpointError(
                f"{self.folder}: round {round} on record asked for something else; the checkpoint is of another "
                "problem (other data, start, or version of fedpact). Solve from the start, with another folder",
                code="FP-CHECKPOINT-301",
            )
        kind = reply_type(asked[0])
        hidden = frozenset(hidden_fields(kind, record["masked"]))
        kept = [from_tree(kind, tree, kind.__name__, hidden) for tree in record["kept"]]
        shapes = tuple(tuple(shape) for shape in record["shapes"])
        return Past(kept, shapes, record["total"], record["masked"], record["counts"])

    def add(self, asked: Asked, past: Past) -> bool:
        """Append a new round. Returns whether it is time to write."""
        self._exchanges += asked[0] not in (offer, agree)
        return self._append(_past_to_tree(asked, past))

    def add_batch(self, batch: Mapping[int, tuple[Asked, Past]]) -> bool:
        """Append replies to single orders, by the round of the order. Returns whether it is time to write."""
        records = [{"round": round, **_past_to_tree(asked, past)} for round, (asked, past) in batch.items()]
        self._exchanges += 1
        return self._append({"batch": records})

    def _append(self, record: dict[str, Any]) -> bool:
        self._log = replace(self._log, pending=(*self._log.pending, frame(dumps(record))))
        return len(self._log.pending) >= self.every

    def write(self) -> None:
        """Append what is new to the log, then say so in checkpoint.json: a crash in between loses nothing."""
        written = self._log.flush()
        with (self.folder / "rounds.log").open("r+b") as log:
            log.truncate(self._log.length)  # what a crash left behind the last checkpoint
            log.seek(self._log.length)
            log.writelines(self._log.pending)
            log.flush()
            os.fsync(log.fileno())
        head = {
            "format": FORMAT,
            "version": VERSION,
            "run": self.run,
            "about": self.about,
            "rounds": written.records,
            "exchanges": self._exchanges,
            "bytes": written.length,
            "sha256": written.checksum.hexdigest(),
        }
        write_atomically(self.folder / "checkpoint.json", json.dumps(head, indent=1).encode())
        self._log = written

    def _expect(self, there: bool) -> None:
        """CheckpointError unless there is a checkpoint in the folder, or none, as expected."""
        if self.folder.exists() and not self.folder.is_dir():
            raise CheckpointError(
                f"{self.folder} is a file; give a folder for the checkpoint", code="FP-CHECKPOINT-302"
            )
        found = (self.folder / "checkpoint.json").exists()
        if there and not found:
            raise CheckpointError(
                f"{self.folder} holds no checkpoint; solve without resume=True to start one", code="FP-CHECKPOINT-303"
            )
        if found and not there:
            raise CheckpointError(
                f"{self.folder} holds a checkpoint already; continue it with resume=True, or give another folder",
                code="FP-CHECKPOINT-304",
            )

    def _lock_log(self, create: bool) -> BinaryIO:
        """Open the log and lock it for this run; not checkpoint.json, which is replaced at every write."""
        mode = "ab" if create else "r+b"
        try:
            log = open_private(self.folder / "rounds.log", mode)
        except OSError as error:
            raise self._damage(f"rounds.log cannot be opened ({error})") from error
        try:
            lock(log)
        except BlockingIOError as error:
            log.close()
            raise CheckpointError(
                f"{self.folder} is in use: another run is at work on this checkpoint; let it end, or use another "
                "folder",
                code="FP-CHECKPOINT-306",
            ) from error
        return log

    def _read(self) -> None:
        """Read the head and the log of the checkpoint to resume."""
        try:
            head = json.loads((self.folder / "checkpoint.json").read_text())
            self._check_version(head.get("format"), head.get("version"))
            self._check_about(dict(head["about"]))
            self.run = str(head["run"])
            rounds = int(head["rounds"])
            self._exchanges = int(head.get("exchanges", rounds))
            length = int(head["bytes"])
            checksum = str(head["sha256"])
            data = (self.folder / "rounds.log").read_bytes()
        except CheckpointError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damage(f"checkpoint.json cannot be read ({error})") from error
        if len(data) < length:
            raise self._damage(f"rounds.log is truncated: {len(data)} bytes of {length}")
        found = hashlib.sha256(data[:length])
        if found.hexdigest() != checksum:
            raise self._damage("the checksum of rounds.log does not fit")
        try:
            self._past = deque(split_records(data[:length]))
        except WireError as error:
            raise self._damage(f"rounds.log: {error}") from error
        if len(self._past) != rounds:
            raise self._damage(f"rounds.log holds {len(self._past)} rounds, not {rounds}")
        self._log = _Log(rounds, length, found)

    def _check_version(self, format: object, version: object) -> None:
        if (format, version) != (FORMAT, VERSION):
            raise CheckpointError(
                f"{self.folder}: its checkpoint is of format {format!r}, version {version!r}; this fedpact reads "
                f"{FORMAT!r}, version {VERSION}; resume with the version that wrote it",
                code="FP-CHECKPOINT-307",
            )

    def _check_about(self, about: dict[str, Any]) -> None:
        """CheckpointError when the checkpoint is of another solve than this one."""
        for key in about.keys() | self.about.keys():
            if about.get(key) != self.about.get(key):
                raise CheckpointError(
                    f"{self.folder}: its checkpoint is of a solve with {key} = {about.get(key)!r}, this one has "
                    f"{self.about.get(key)!r}; use the same, or another folder",
                    code="FP-CHECKPOINT-308",
                    key=key,
                )

    def _damage(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self.folder}: its checkpoint is damaged: {what}; restore it from a copy, or solve from the start with "
            "another folder",
            code="FP-CHECKPOINT-305",
        )


def _past_to_tree(asked: Asked, past: Past) -> dict[str, Any]:
    return {
        "asked": _content(*asked),
        "kept": [to_tree(reply) for reply in past.kept],
        "shapes": [list(shape) for shape in past.shapes],
        "total": past.total,
        "masked": past.masked,
        "counts": past.counts,
    }


def _content(step: Step, asked: Mapping[str, Order]) -> list[Any]:
    """Who was asked what; once, when all were asked the same."""
    contents = [payload(order) for order in asked.values()]
    first = contents[0]
    if all(_is_identical(first, other) for other in contents):
        contents = [first]
    return [name_of(step), list(asked), *contents]


def _is_identical(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether both hold the very same objects."""
    return all(one[name] is other[name] for name in one)


def same(a: Any, b: Any) -> bool:
    """Whether two trees are equal, their numbers up to ROUNDING."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        scale = 0.0
        if a.dtype.kind == "f":
            scale = float(np.max(np.abs(a), initial=0.0))
        return a.shape == b.shape and bool(np.allclose(a, b, rtol=0.0, atol=ROUNDING * scale))
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, rtol=ROUNDING, atol=0.0))
    return bool(a == b)
