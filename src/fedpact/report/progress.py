"""A live progress line on a terminal: iteration, certificate and tolerances of a solve."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

if TYPE_CHECKING:
    from fedpact.solvers import Progress


class ProgressLine:
    """A callback for `fp.solve`, used as a context manager. Writes to standard error and clears the line at the end."""

    def __init__(self, tol: tuple[float, float], console: Console | None = None) -> None:
        self._tol = tol
        self._live = Live(console=console or Console(stderr=True), transient=True, refresh_per_second=5)

    def __call__(self, progress: Progress) -> None:
        self._live.update(Text(line(progress, self._tol)))  # not markup: it may hold an owner's name

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


class NotebookLine:
    """The same below the cell of a notebook. It stays at the end; at most five times a second it is written anew."""

    def __init__(self, tol: tuple[float, float]) -> None:
        self._tol = tol
        self._handle: Any = None
        self._text = ""
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        self._text = line(progress, self._tol)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.2
            self._show()

    def _show(self) -> None:
        from IPython.display import display

        shown = {"text/plain": self._text}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._text:
            self._show()


def open_line(tol: tuple[float, float]) -> ProgressLine | NotebookLine:
    """The line for where this program runs: a notebook, or a terminal."""
    return NotebookLine(tol) if "ipykernel" in sys.modules else ProgressLine(tol)


def line(progress: Progress, tol: tuple[float, float]) -> str:
    """One line of text, such as '  proximal-al  outer 2  inner 31  stationarity 4.1e-03 (1e-03)  ...  1.2 MB'."""
    p = progress
    why = f" ({p.choice})" if p.choice else ""
    return (
        f"{p.method}{why}  outer {p.iteration + 1}  inner {p.inner + 1}  exchange {p.rounds}  "
        f"stationarity {p.stationarity:.1e} ({tol[0]:.0e})  feasibility {p.feasibility:.1e} ({tol[1]:.0e})  "
        f"{megabytes(p.bytes)}"
    )


def megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB"
