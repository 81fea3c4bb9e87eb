"""A party that takes its time: by events on disk, which parties in other processes see too, and never by seconds."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import fedpact as fp

#: Columns of the parties; the last one is slow.
CUTS = {"bank": slice(0, 3), "clinic": slice(3, 6), "shop": slice(6, 9)}
#: Orders of another party that the slow one waits for at each of its own.
BEHIND = 10
#: Seconds within which they come, also on a busy machine.
LIMIT = 120.0


class Noted(fp.prox.SquaredL2):
    """A regularizer whose party writes a byte to a file at every order, and may wait for another's bytes."""

    def __init__(self, weight: float, folder: Path, name: str, awaits: str = "") -> None:
        super().__init__(weight)
        self.folder, self.name, self.awaits = folder, name, awaits

    def subdifferential_distance(self, v: Any, w: Any) -> float:
        with (self.folder / self.name).open("ab") as file:
            file.write(b".")
        if self.awaits:
            goal = count(self.folder, self.awaits) + BEHIND
            wait_until(lambda: count(self.folder, self.awaits) >= goal or (self.folder / "over").exists())
        return super().subdifferential_distance(v, w)


class Mortal(fp.prox.SquaredL2):
    """A regularizer whose party's process is killed in the middle of its work, at the given order, once."""

    def __init__(self, weight: float, folder: Path, name: str, at: int) -> None:
        super().__init__(weight)
        self.folder, self.name, self.at = folder, name, at

    def subdifferential_distance(self, v: Any, w: Any) -> float:
        with (self.folder / self.name).open("ab") as file:
            file.write(b".")
        if count(self.folder, self.name) == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().subdifferential_distance(v, w)


def wait_until(happened: Any) -> None:
    limit = time.monotonic() + LIMIT
    while not happened():
        assert time.monotonic() < limit
        time.sleep(0.001)


def count(folder: Path, name: str) -> int:
    """How many orders this party has begun."""
    path = folder / name
    return path.stat().st_size if path.exists() else 0


def problem(regularizers: dict[str, Any] | None = None) -> fp.VerticalProblem:
    """Nine columns, two groups, an active gap; parties with other regularizers where they are given."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(120, 9))
    group = rng.integers(0, 2, 120)
    y = (X @ rng.normal(size=9) + 1.5 * (group == 0) + rng.normal(size=120) > 0.5).astype(int)
    given = regularizers or {}
    listed = [given.get(name, fp.prox.SquaredL2(0.1)) for name in CUTS]
    return fp.VerticalProblem({name: X[:, cut] for name, cut in CUTS.items()}, y, group, 0.02, regularizer=listed)
