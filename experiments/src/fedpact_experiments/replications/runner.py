"""One runner for all replications: it measures what is not measured yet, keeps it, and hands all of it over to be read.

A replication declares its runs. What a finished run measured is a row of a file (JSON, one run a line), so that a
replication that was interrupted goes on where it was, and its page can be written again without measuring anything.
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

    folder: of the data (None: FEDPACT_DATA, then the cache)
    quick:  a small part, for tests
    trials: random starts, or instances, where the experiment has them; None: its own numbers
    say:    tells progress
    """

    folder: str | None = None
    quick: bool = False
    trials: int | None = None
    say: Callable[[str], None] = _say_nothing


@dataclass(frozen=True)
class Run(Generic[Row]):
    """name: its own in the replication, and told when it begins; measure: gives its rows"""

    name: str
    measure: Callable[[], Iterable[Row]]


@dataclass(frozen=True)
class Replication(Generic[Row, Size]):
    """An experiment of a paper.

    page:        its name and its words
    row:         the dataclass of what a run measures: numbers, text, and lists of them
    full, quick: how large it is
    plan:        its runs, which are made one after the other
    read:        what the rows of all runs say
    """

    page: Page
    row: type[Row]
    full: Size
    quick: Size
    plan: Callable[[Asked, Size], Iterable[Run[Row]]]
    read: Callable[[Size, Rows[Row]], Findings]


@dataclass(frozen=True)
class Ran:
    """What a replication found, and the minutes that its runs took, all together."""

    found: Findings
    minutes: float


def carry_out(replication: Replication[Row, Size], asked: Asked, file: Path, resume: bool = False) -> Ran:
    """Make all runs and read their rows. Finished runs are kept in the file, and with `resume` not made again.

    Raises DataError when the file to resume is of another replication or of other options.
    """
    size = replication.quick if asked.quick else replication.full
    head = {"replication": replication.page.name, "quick": asked.quick, "trials": asked.trials}
    known = _finished(file, head) if resume and file.exists() else {}
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
    """Write the lines of which the file consists so far; all or none."""
    scratch = file.with_suffix(".tmp")
    scratch.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    scratch.replace(file)


def _finished(file: Path, head: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The lines of finished runs, by name. A last line that was cut short is no finished run."""
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
