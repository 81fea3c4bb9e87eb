"""What every tracker does: hear each Progress of a solve, and at the end its answer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from fedpact.solvers import Progress, Solution


class Tracker(ABC):
    """Give it to `fp.solve(callbacks=[...])`, then tell it the answer by `conclude`; use it as a context manager.

    A resumed solve repeats to its callbacks what they have heard before. A tracker that is made with `resume=True` as
    well goes on where it was. Several solves one after the other, as a job makes them, are one curve: exchanges are
    counted on.
    """

    def __init__(self) -> None:
        self.heard = 0
        self.known = 0  # how much of it was written down before this solve was resumed
        self.solve = 1
        self._before = 0  # exchanges of the solves before this one
        self._last = (0, 0)

    def __call__(self, progress: Progress) -> None:
        self.heard += 1
        if progress.rounds < self._last[0] or progress.bytes < self._last[1]:
            self.solve += 1
            self._before += self._last[0]
        self._last = (progress.rounds, progress.bytes)
        if self.heard > self.known:
            self.write(progress, None)

    def conclude(self, answer: Solution) -> None:
        """The end of the curves: the last Progress is often from before the last certificate."""
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

    @abstractmethod
    def write(self, progress: Progress, answer: Solution | None) -> None:
        """One point of the curves; with an answer the last one."""

    def close(self) -> None:  # noqa: B027 - not all have something to close
        """Nothing more will come."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def step(self, progress: Progress) -> int:
        """Where on the axis: the exchange; methods on pooled data have none, and count what they report."""
        return self._before + progress.rounds or self.heard


def curves(progress: Progress) -> dict[str, float]:
    """What is drawn; before the first certificate there is less of it."""
    names = ("objective", "stationarity", "feasibility", "bytes")
    values = {name: float(getattr(progress, name)) for name in names}
    return {name: value for name, value in values.items() if math.isfinite(value)}
