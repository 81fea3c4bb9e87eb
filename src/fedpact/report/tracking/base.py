"""The base of all trackers: receives every Progress of a solve, and at the end its Solution."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from fedpact.report.record import Record
from fedpact.solvers import Progress, Solution


class Tracker(ABC):
    """A callback for `fp.solve(callbacks=[...])`; call `conclude` with the answer. Use as a context manager.

    A resumed solve replays all its Progress to the callbacks; a tracker created with `resume=True` skips those that it
    logged before. Consecutive solves, as in a job, form one curve: the count of exchanges continues.
    """

    def __init__(self) -> None:
        self.heard = 0
        self.known = 0  # how many were logged before this solve was resumed
        self.solve = 1
        self._before = 0  # exchanges of the solves before this one
        self._rounds = 0  # of the last Progress
        self._bytes = 0

    def __call__(self, progress: Progress) -> None:
        self.heard += 1
        if progress.rounds < self._rounds or progress.bytes < self._bytes:  # counts of a new solve
            self.solve += 1
            self._before += self._rounds
        self._rounds = progress.rounds
        self._bytes = progress.bytes
        if self.heard > self.known:
            self.write(progress, None)

    def conclude(self, answer: Solution) -> None:
        """Log the answer as the last point; the last Progress is often from before the final certificate."""
        outer = answer.history.outer
        last = Progress(
            method=answer.method,
            iteration=outer[-1].iteration if outer else 0,
            inner=0,
            rounds=answer.rounds,
            bytes=answer.communication.bytes,
            stationarity=answer.certificate.stationarity,
            feasibility=answer.certificate.feasibility,
            objective=answer.objective,
        )
        self.write(last, answer)

    def describe(self, record: Record, folder: Path) -> None:  # noqa: B027 - not all keep more than curves
        """Log what the model of a run does, by owner, and the model itself. folder: of the run"""

    @abstractmethod
    def write(self, progress: Progress, answer: Solution | None) -> None:
        """Log one point of the curves. answer: given for the last one."""

    def close(self) -> None:  # noqa: B027 - not all have something to close
        """Flush and release what is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def step(self, progress: Progress) -> int:
        """Position on the x axis: the exchange; for methods on pooled data, which have none, the number of reports."""
        return self._before + progress.rounds or self.heard


def metrics(record: Record) -> dict[str, float]:
    """What owners measured and what was bounded, as "owner/measure"; finite values only."""
    found = {f"{one.owner}/{name}": value for one in record.measured for name, value in one.numbers.items()}
    found |= {f"{one.owner}/{one.what}": one.value for one in record.bounded}
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def curves(progress: Progress) -> dict[str, float]:
    """The finite values to plot; stationarity and feasibility are missing before the first certificate."""
    names = ("objective", "stationarity", "feasibility", "bytes")
    values = {name: float(getattr(progress, name)) for name in names}
    return {name: value for name, value in values.items() if math.isfinite(value)}
