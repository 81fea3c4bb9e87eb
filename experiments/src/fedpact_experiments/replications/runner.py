"""The runner of all replications: performs the runs that are not on file yet, then evaluates all of them.

A replication declares its runs. The rows of a finished run are one line of a JSON Lines file, so that an interrupted
replication can be resumed, and its page can be rewritten without measuring again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from fedpact.errors import DataError
from fedpact_experiments.replications.findings import Findings
from fedpact_experiments.replications.page import Page
from fedpact_experiments.replications.rows import Row, Rows

Size = TypeVar("Size")
_say_nothing: Callable[[str], None] = lambda text: None  # noqa: E731


@dataclass(frozen=True)
class Asked:
    """What a user asks for.

    folder: folder of the data; None: FEDPACT_DATA, then the cache
    quick:  a small part, for tests
    trials: number of random starts or instances, if the experiment has them; None: the paper's
    say:    reports progress
    """

    folder: str | None = None
    quick: bool = False
    trials: int | None = None
    say: Callable[[str], None] = _say_nothing


@dataclass(frozen=True)
class Run(Generic[Row]):
    """name: unique in the replication, shown when the run begins; measure: performs it and returns its rows"""

    name: str
    measure: Callable[[], Iterable[Row]]


@dataclass(frozen=True)
class Replication(Generic[Row, Size]):
    """An experiment of a paper.

    page:        name and texts of its page
    row:         dataclass of what a run measures: numbers, strings, and lists of them
    full, quick: its sizes
    plan:        the runs, performed in this order
    read:        tables, claims and figures from the rows of all runs
    """

    page: Page
    row: type[Row]
    full: Size
    quick: Size
    plan: Callable[[Asked, Size], Iterable[Run[Row]]]
    read: Callable[[Size, Rows[Row]], Findings]


@dataclass(frozen=True)
class Ran:
    """What a replication found, and the minutes that all its runs took."""

    found: Findings
    minutes: float


def carry_out(replication: Replication[Row, Size], asked: Asked, file: Path, resume: bool = False) -> Ran:
    """Perform all runs and evaluate their rows. With `resume`, finished runs are taken from the file.

    Raises DataError if the file is of another replication or of other options.
    """
    size = replication.quick if asked.quick else replication.full
    head = {"replication": replication.page.name, "quick": asked.quick, "trials": asked.trials}
    known = {}
    if resume and file.exists():
        known = _read_finished(file, head)
    _start_file(file, [head, *known.values()])
    rows: Rows[Row] = Rows()
    seconds = 0.0
    for run in replication.plan(asked, size):
        if run.name not in known:
            asked.say(run.name)
            began = time.monotonic()
            measured = [asdict(row) for row in run.measure()]  # type: ignore[call-overload]
            known[run.name] = {"run": run.name, "seconds": time.monotonic() - began, "rows": measured}
            with file.open("a") as kept:
                kept.write(f"{json.dumps(known[run.name])}\n")
        rows.extend(replication.row(**row) for row in known[run.name]["rows"])
        seconds += known[run.name]["seconds"]
    return Ran(replication.read(size, rows), seconds / 60)


def _start_file(file: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Replace the file by these lines, atomically."""
    scratch = file.with_suffix(".tmp")
    scratch.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    scratch.replace(file)


def _read_finished(file: Path, head: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The lines of finished runs by name, without a last line that was cut off."""
    first, *lines = _read_lines(file)
    if first != head:
        raise DataError(f"{file} holds runs of {first}, not of {head}; leave --resume out, or use another --out")
    return {line["run"]: line for line in lines}


def _read_lines(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return
