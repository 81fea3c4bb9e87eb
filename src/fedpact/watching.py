"""How many rows are behind what an owner's step computes: functions note it, the site's policy judges it.

A mean over many rows may rest on few of them. Far from zero the slopes of a loss are those of the rows on one side of a
plane, and its curvatures those of the rows next to it: whoever chooses the model moves the plane, and reads rows one by
one from sums over all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np

from fedpact.types import Vector


@dataclass
class Watch:
    """Of the sums over rows that a step computed last, each of its functions at the last point that it looked at.

    behind: effective rows (Kish) by function and derivative
    beside: effective rows next to the boundary of smoothed decisions: their slopes are those of these rows
    spans:  root mean square of the scores by function, in units in which slopes change
    """

    behind: dict[tuple[int, str], float] = field(default_factory=dict)
    beside: dict[int, float] = field(default_factory=dict)
    spans: dict[int, float] = field(default_factory=dict)

    @property
    def rows(self) -> float:
        """The fewest effective rows behind any of these sums; infinite where nothing was summed."""
        return min(self.behind.values(), default=float("inf"))

    @property
    def boundary(self) -> float:
        """The fewest effective rows beside a boundary; infinite where there is none."""
        return min(self.beside.values(), default=float("inf"))

    @property
    def span(self) -> float:
        """The largest size of scores: how large the model is, with its intercept, in units of the columns."""
        return max(self.spans.values(), default=0.0)


_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching() -> Iterator[Watch]:
    """Inside, functions note what their sums rest on."""
    watch = Watch()
    token = _watch.set(watch)
    try:
        yield watch
    finally:
        _watch.reset(token)


@contextmanager
def unwatched() -> Iterator[None]:
    """Inside, nothing is noted: a point is looked at of which no derivative leaves the owner, only a few numbers."""
    token = _watch.set(None)
    try:
        yield
    finally:
        _watch.reset(token)


def note_weights(of: object, derivative: str, weights: Vector) -> None:
    """By how much each row enters a derivative of this function."""
    watch = _watch.get()
    if watch is None:
        return
    if (rows := _effective(weights)) is not None:
        watch.behind[id(of), derivative] = rows


def note_boundary(of: object, weights: Vector) -> None:
    """By how much each row enters the slope of smoothed decisions."""
    watch = _watch.get()
    if watch is not None and (rows := _effective(weights)) is not None:
        watch.beside[id(of)] = rows


def _effective(weights: Vector) -> float | None:
    """Kish's number of rows; None where all add nothing, which tells nothing of any of them."""
    size = np.abs(weights)
    largest = float(np.max(size, initial=0.0))
    if not 0 < largest < np.inf:
        return None
    part = size / largest
    return float(np.sum(part) ** 2 / (part @ part))


def note_scores(of: object, scores: Vector, unit: float = 1.0) -> None:
    """The scores of the rows of this function.

    unit: by how much a score changes until its slope does; infinite where the slope follows the score
    """
    watch = _watch.get()
    if watch is not None and scores.size:
        with np.errstate(over="ignore", invalid="ignore"):
            size = float(np.sqrt(np.mean((scores / unit) ** 2)))
        watch.spans[id(of)] = size if size == size else float("inf")
