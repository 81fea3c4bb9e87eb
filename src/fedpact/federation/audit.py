"""A site's audit log: what was asked of it, what left it, what it refused. Append-only and hash-chained.

One JSON object a line. `previous` is the SHA-256 of the line before, so that a line that was changed, dropped or put in
later is found by whoever reads the log; only its end can be cut off unnoticed, and the digest of the last line, noted
elsewhere, tells even that. A file that has grown to LARGEST bytes is closed, and the chain goes on in the next.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedpact.errors import CheckpointError

#: Bytes after which the log goes on in another file.
LARGEST = 2**24
START = "0" * 64


class AuditLog:
    """Writes the log in a folder: audit-000001.jsonl, audit-000002.jsonl, ...; checks the chain when it is opened."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._last = START
        for _, line in _lines(self.folder):
            self._last = _digest(line)
        self._files = _files(self.folder)
        list(read_log(self.folder))  # a log that does not hold is not continued

    @property
    def head(self) -> str:
        """Digest of the last line: noted elsewhere, it shows whether the end was cut off."""
        return self._last

    def write(self, event: str, **facts: Any) -> dict[str, Any]:
        """Append an entry, on disk when this returns it."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        entry = {"time": time, "event": event, **facts, "previous": self._last}
        line = json.dumps(entry, ensure_ascii=False)
        if not self._files or self._files[-1].stat().st_size >= LARGEST:
            self._files.append(self.folder / f"audit-{len(self._files) + 1:06d}.jsonl")
        handle = os.open(self._files[-1], os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        with open(handle, "wb") as target:
            target.write(line.encode() + b"\n")
            target.flush()
            os.fsync(target.fileno())
        self._last = _digest(line.encode())
        return entry


def read_log(folder: str | Path) -> Iterator[dict[str, Any]]:
    """The entries, oldest first. Raises CheckpointError, naming file and line, where the chain does not hold."""
    previous = START
    for where, line in _lines(Path(folder)):
        try:
            entry = json.loads(line)
            holds = entry["previous"] == previous
        except (ValueError, KeyError, TypeError):
            holds = False
        if not holds:
            raise CheckpointError(
                f"{where}: the audit log was changed here, or a line is missing before it; restore it from a copy",
                code="FP-CHECKPOINT-610",
            )
        previous = _digest(line)
        yield entry


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("audit-*.jsonl"))


def _lines(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in _files(folder):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            yield f"{path.name}, line {number}", line


def _digest(line: bytes) -> str:
    return sha256(line).hexdigest()
