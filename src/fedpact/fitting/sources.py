"""What owners of a fit hold, as a session takes it."""

from __future__ import annotations

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
