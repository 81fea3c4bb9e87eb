"""The progress of a solve as a CSV file."""

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
    """One line per Progress with the time in UTC, and a last one with the status; each is flushed at once.

    The column `solve` numbers consecutive solves; `rounds` starts anew in each.

    resume: continue the file of an interrupted solve; without it, an existing file is an error
    """

    def __init__(self, path: str | Path, *, resume: bool = False) -> None:
        super().__init__()
        self.path = Path(path)
        with explain_write_errors(path):
            before = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
            if before not in ("", _line(HEADER)) and not resume:
                remedy = "continue it with resume=True, or choose another path"
                raise FedpactError(f"{path} exists; {remedy}", code="FP-504")
            head, *lines = before.splitlines(keepends=True) or [_line(HEADER)]
            if head != _line(HEADER):
                raise FedpactError(f"{path} is not a log of a solve; choose another path", code="FP-505")
            lines = [line for line in lines if _is_progress(line)]
            self.known = len(lines)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            text = "".join([_line(HEADER), *lines])
            if text != before:
                self.path.write_text(text, encoding="utf-8", newline="")

    def write(self, progress: Progress, answer: Solution | None) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        status = answer.status if answer else ""
        numbers = [getattr(progress, name) for name in NUMBERS]
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(_line((now, status, self.solve, *numbers)))


def _is_progress(line: str) -> bool:
    """Whether a line is complete (not cut off by a crash) and has no status, unlike the last one of a solve."""
    return line.endswith("\n") and line.split(",")[1:2] == [""]


def _line(cells: tuple[object, ...]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()
