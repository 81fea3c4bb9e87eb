"""Where data files are looked for, and which bytes they must have.

No data set travels with the package. A file is searched in the folder of the call, then in the folder
named by FEDPACT_DATA, then in the user's cache; the first one found is used, after its checksum.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from fedpact.errors import DataError


@dataclass(frozen=True)
class Source:
    """What a known file is, in words a search engine understands, and its SHA-256 where one is settled."""

    title: str
    sha256: str | None = None


#: The files that the loaders read.
KNOWN = {
    name: Source(**entry) for name, entry in tomllib.loads(Path(__file__).with_name("files.toml").read_text()).items()
}


def find(name: str, folder: str | Path | None = None) -> Path:
    """The path of a data file, its checksum verified when the file is a known one.

    Raises:
        DataError: the file is in none of the places, or its bytes are not those the loaders were written for.
    """
    places = _places(folder)
    for place in places:
        path = place / name
        if path.is_file():
            _verify(path, name)
            return path
    origin = f"get it from {KNOWN[name].title}" if name in KNOWN else "get it from its publisher"
    searched = ", ".join(str(place) for place in places)
    raise DataError(
        f"data file {name!r} not found; searched: {searched}. {origin[0].upper()}{origin[1:]}, put it into a folder "
        "and name that folder by the environment variable FEDPACT_DATA or the option --data"
    )


def _places(folder: str | Path | None) -> list[Path]:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    named = [folder, os.environ.get("FEDPACT_DATA")]
    return [Path(place) for place in named if place] + [Path(cache) / "fedpact"]


def _verify(path: Path, name: str) -> None:
    expected = KNOWN[name].sha256 if name in KNOWN else None
    if expected is None:
        return
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != expected:
        raise DataError(
            f"data file {path}: SHA-256 is {found}, expected {expected}; the file is damaged or another "
            f"version: get it again from {KNOWN[name].title}"
        )
