"""Where data files are looked for, and which bytes they must have.

No data set travels with the package. A file is searched in the folder of the call, then in the folder
named by FEDPACT_DATA, then in the user's cache; the first one found is used, after its checksum.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from fedpact.errors import DataError


@dataclass(frozen=True)
class Source:
    """What a known file is, in words a search engine understands, and its SHA-256."""

    title: str
    sha256: str


KNOWN: dict[str, Source] = {
    "adult.data": Source(
        "the UCI repository, data set 'Adult'", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"
    ),
    "adult.test": Source(
        "the UCI repository, data set 'Adult'", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"
    ),
    "breast-cancer-wisconsin.data": Source(
        "the UCI repository, data set 'Breast Cancer Wisconsin (Original)'",
        "81add727690ddfdfffe60d06dfc915848ce8639c3cafc37b5b44604d334c444c",
    ),
    "monks-1.train": Source(
        'the UCI repository, data set "MONK\'s Problems"',
        "d9c328b6f0e095ab10f7bc8468f1d2141f3d08be73e665c3bf0a62994c922606",
    ),
    "monks-1.test": Source(
        'the UCI repository, data set "MONK\'s Problems"',
        "e501ada3b21d876ab86f3e1614747bd2edc443a685f229a25e480aa1dea629f6",
    ),
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
    if name not in KNOWN:
        return
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != KNOWN[name].sha256:
        raise DataError(
            f"data file {path}: SHA-256 is {found}, expected {KNOWN[name].sha256}; the file is damaged or another "
            f"version: get it again from {KNOWN[name].title}"
        )
