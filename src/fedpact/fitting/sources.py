"""What owners of a fit hold, as a session takes it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedpact.tasks import FileSource, HeldSource, Rows, Source

#: What an owner holds: rows in memory, a file, what builds its shares, or (None) what only its site knows.
Held = Rows | str | Path | Source | None


def source_of(owner: str, held: Held, unseen: Source | None = None) -> Source | None:
    """What builds the owner's shares. unseen: its rows that nobody trains on"""
    if held is None:
        return None
    if isinstance(held, Source):
        return held
    if isinstance(held, Rows):
        return HeldSource(owner, held, unseen)
    return FileSource(owner, held, unseen)


def digests_of(sources: Iterable[Source | None]) -> frozenset[str]:
    """Digests of the tables that are in this process, or on its disk."""
    found = set()
    for source in sources:
        if isinstance(source, HeldSource) or (isinstance(source, FileSource) and source.path.exists()):
            found.add(source.digest())
    return frozenset(found)
