"""Job files as tests change them."""

from __future__ import annotations

from pathlib import Path


def change(folder: Path, old: str, new: str, name: str = "job.toml") -> Path:
    """Put something else into a file of the folder; the path of the job."""
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    return folder / "job.toml"
