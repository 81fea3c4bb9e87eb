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
    """What a known file is, in words a search engine understands, and its SHA-256.

    None where copies of different bytes are in use (with and without names of people): the loader checks the rows.
    """

    title: str
    sha256: str | None


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
    "compas-scores-two-years.csv": Source("ProPublica's repository 'compas-analysis'", None),
    "communities.data": Source(
        "the UCI repository, data set 'Communities and Crime'",
        "09e0b5c07eae24c1efab19b2edee05e160e7f5743b6f31e31eec3d73624da2ea",
    ),
    "communities.names": Source(
        "the UCI repository, data set 'Communities and Crime'",
        "f71e9049d2a8efe566e41be59cae27c84282a8d9d5c4bce4861490227f42c429",
    ),
    "vehicle23.npz": Source(
        "the 'vehicle' sensor data of Duarte and Hu (2004) in its federated split, packed as arrays X, y, client",
        "2d6c01286d36576e48228404e483403623e4760f4e8263fba05059347cf2e1bf",
    ),
    "w8a.gz": Source(
        "the LIBSVM collection of data sets, binary classification, 'w8a', packed with gzip",
        "0c88d155b8a42aea75c4cb1b4d3404b1717705db769ba95ca13c1c3be31ff2a3",
    ),
    "cifar10_efficientnetlite0_features.npz": Source(
        "the makers of this package: CIFAR-10 images through an ImageNet EfficientNet-Lite0",
        "4f0b5db7406c3cbd9c8c80f39f123d3084e06bad903d394e08f235fba8b5f1f2",
    ),
    "ifeddr_problems.npz": Source(
        "the makers of this package: arrays of five synthetic problems",
        "0076e8ff8a5aa00833865fac819e6806a3050b3249b3b2deb1a45e53def1ec3f",
    ),
    "fashion-mnist/train-images-idx3-ubyte.gz": Source(
        "the repository 'fashion-mnist' of Zalando Research",
        "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
    ),
    "fashion-mnist/train-labels-idx1-ubyte.gz": Source(
        "the repository 'fashion-mnist' of Zalando Research",
        "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
    ),
    "fashion-mnist/t10k-images-idx3-ubyte.gz": Source(
        "the repository 'fashion-mnist' of Zalando Research",
        "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
    ),
    "fashion-mnist/t10k-labels-idx1-ubyte.gz": Source(
        "the repository 'fashion-mnist' of Zalando Research",
        "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
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
    expected = KNOWN[name].sha256 if name in KNOWN else None
    if expected is None:
        return
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != expected:
        raise DataError(
            f"data file {path}: SHA-256 is {found}, expected {expected}; the file is damaged or another "
            f"version: get it again from {KNOWN[name].title}"
        )
