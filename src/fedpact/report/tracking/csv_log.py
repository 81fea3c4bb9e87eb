"""A solve as a CSV file that grows a line an exchange."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from pathlib import Path

from fedpact.errors import FedpactError
from fedpact.report.files import explain_write_errors
from fedpact.report.tracking.base import Tracker
from fedpact.solvers import Progress, Solution

NUMBERS = ("method", "iteration", "inner", "rounds", "bytes", "stationarity", "feasibility", "objective")
HEADER = ("time", "status", "solve", *NUMBERS)


class CsvLog(Tracker):
    """A line for each Progress, with the time in UTC, and one with its status for the answer; each is written at once.

    solve counts the solves, if there are several; rounds are those of each.

    resume: go on with the file of the interrupted solve; without it, a file that is there is an error
    """

    def __init__(self, path: str | Path, *, resume: bool = False) -> None:
        super().__init__()
        self.path = Path(path)
        with explain_write_errors(path):
            before = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
            if before not in ("", _line(HEADER)) and not resume:
                remedy = "continue it with resume=True, or choose another path"
                raise FedpactError(f"{path} exists; {remedy}", code="FP-504")
            lines = _running(before)
            if lines is None:
                raise FedpactError(f"{path} is not a log of a solve; choose another path", code="FP-505")
            self.known = len(lines)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            text = "".join([_line(HEADER), *lines])
            if text != before:
                self.path.write_text(text, encoding="utf-8", newline="")

    def write(self, progress: Progress, answer: Solution | None) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self.path.open("a", encoding="utf-8", newline="") as file:
            status = answer.status if answer else ""
            file.write(_line((now, status, self.solve, *(getattr(progress, name) for name in NUMBERS))))


def _running(text: str) -> list[str] | None:
    """The lines of a solve that was on its way: without its end, and without a last line that was cut off."""
    if not text:
        return []
    head, *lines = text.splitlines(keepends=True)
    if head != _line(HEADER):
        return None
    return [line for line in lines if line.endswith("\n") and line.split(",")[1:2] == [""]]


def _line(cells: tuple[object, ...]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()
