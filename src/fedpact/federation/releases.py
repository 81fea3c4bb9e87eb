"""The release ledger of a site's table: everything that left it, run by run, as its audit log has it.

The audit log is the record; this is what a gate counts of it when a site starts, and what `fedpact site ledger` prints.
The table is the one that its site.toml names: it stays the same when rows come and go, and so does its budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

#: Days of a budget: what left before does not count any more.
MONTH = 30


@dataclass
class RunReleases:
    """What a site has answered in one run.

    charter:   digest of its charter; job: of its job
    exchanges: answers; told: of them, those that tell numbers of this owner alone, by field; sums: numbers in sums
    label_to:  parties that learn everyone's label from this owner
    bare:      answers with sums that no mask covers; rows: the fewest effective rows behind a sum
    steps:     how often each was answered; models: digests of those that the owner has concluded with
    """

    run: str
    charter: str
    job: str
    time: str
    coordinator: str = ""
    owners: tuple[str, ...] = ()
    label: str = ""
    label_to: tuple[str, ...] = ()
    method: str = ""
    data: str = ""
    exchanges: int = 0
    questions: int = 0
    bytes: int = 0
    errors: int = 0
    sums: int = 0
    bare: int = 0
    rows: float = float("inf")
    told: Counter[str] = field(default_factory=Counter)
    withheld: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    models: set[str] = field(default_factory=set)

    def note(self, entry: Mapping[str, Any]) -> None:
        """Count an answer."""
        self.exchanges += 1
        self.questions += bool(entry["told"])
        self.bytes += entry["bytes"]
        self.sums += entry["sums"]
        self.bare += bool(entry["sums"]) and not entry["masked"]
        self.rows = min(self.rows, entry.get("rows") or float("inf"))
        self.told.update(entry["told"])
        self.withheld += bool(entry["withheld"]) and entry["withheld"] != "[]"
        self.steps[entry["step"]] += 1
        if entry.get("model"):
            self.models.add(entry["model"])


class Releases:
    """All runs of a table, oldest first, and the days on which something left it."""

    def __init__(self, entries: Iterable[Mapping[str, Any]] = ()) -> None:
        self.runs: dict[str, RunReleases] = {}
        self._days: Counter[str] = Counter()  # answers, by day
        self._told: Counter[str] = Counter()  # of them, those that tell numbers of this owner alone
        for entry in entries:
            self.note(entry)

    def note(self, entry: Mapping[str, Any]) -> None:
        """Count what an entry of the audit log says."""
        event = entry["event"]
        if event == "run":
            known = {"coordinator", "label", "method", "data"}
            facts = {name: entry[name] for name in known & entry.keys()}
            begun = RunReleases(entry["run"], entry["charter"], entry["job"], entry["time"], **facts)
            begun.owners = tuple(entry["owners"])
            begun.label_to = tuple(entry.get("label_to", ()))
            self.runs[begun.run] = begun
        elif event == "answer":
            self.runs[entry["run"]].note(entry)
            self._days[entry["time"][:10]] += 1
            self._told[entry["time"][:10]] += bool(entry["told"])
        elif event == "refuse" and entry.get("run") in self.runs:
            self.runs[entry["run"]].errors += 1

    def begun_since(self, days: float) -> int:
        """Runs that began in the last days."""
        since = _before(days)
        return sum(run.time >= since for run in self.runs.values())

    @property
    def released(self) -> int:
        """Answers that left the table in the last month."""
        return _recent(self._days)

    @property
    def told(self) -> int:
        """Of them, those that told numbers of this owner alone."""
        return _recent(self._told)


def _before(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat()


def _recent(by_day: Mapping[str, int]) -> int:
    since = _before(MONTH)[:10]
    return sum(number for day, number in by_day.items() if day >= since)
