"""What an honest run costs at sites with their rules, beside the same run without rules, signatures and masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fedpact as fp
from fedpact.federation import Fleet, RemoteFleet, Site
from fedpact.federation.identity import Identity
from fedpact.tasks import Classification, FileSource, Task
from fedpact_experiments.attacks.hospitals import COLUMNS, OWNERS, Hospitals, write_hospitals

LOSS: Any = [{"kind": "loss", "at_most": 0.5}]
RECALL: Any = [{"kind": "recall", "of": "1", "at_least": 0.8}]
COMMON: dict[str, Any] = {"label": "ill", "columns": COLUMNS, "classes": ("0", "1"), "standardize": True}
#: Honest jobs, by what they bound.
JOBS: Mapping[str, Task] = {
    "a loss": Classification(constraints=LOSS, **COMMON),
    "a recall": Classification(constraints=RECALL, **COMMON),
}


@dataclass(frozen=True)
class Cost:
    """exchanges: of the run, with all that it asks; bytes: on the way, of all owners, both ways"""

    job: str
    sites: str
    exchanges: int
    bytes: int


def costs(folder: Path) -> Iterator[Cost]:
    """Every job at sites of one organisation, with masks, and as organisations of their own by their template."""
    for number, (words, job) in enumerate(JOBS.items()):
        hospitals = write_hospitals(folder / str(number))
        roster = {name: Identity.load(hospitals.key.with_name(f"{name}.pem")).public for name in OWNERS}
        for sites, open_sites, settings in (
            ("no rules, sums in the clear", open_plain, {"secure_sum": False}),
            ("no rules, masks", open_plain, {"secure_sum": True}),
            ("site.toml, masks, signatures", Hospitals.open, {"identity": hospitals.key, "roster": roster}),
        ):
            engine = Counting(open_sites, hospitals)
            with fp.Session(engine, retries=0, **settings) as session:
                found = fp.fit(job, dict.fromkeys(OWNERS), session)
                assert found.solution.solved, found.solution.reason
                exchanges = session.ledger.rounds
            yield Cost(words, sites, exchanges, engine.passed)


def open_plain(hospitals: Hospitals) -> dict[str, Site]:
    """The same tables, at owners that are one organisation: no policy, no keys of their own."""
    folder = hospitals.key.parent
    return {name: Site(name, FileSource(name, folder / f"{name}.csv")) for name in OWNERS}


@dataclass
class Counting:
    """An engine that counts the bytes which pass, charters and signatures with them."""

    open_sites: Callable[[Hospitals], Mapping[str, Site]]
    hospitals: Hospitals
    passed: int = field(default=0)

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        return _Counted(self, self.open_sites(self.hospitals))


class _Counted(RemoteFleet):
    networked = True

    def __init__(self, engine: Counting, sites: Mapping[str, Site]) -> None:
        super().__init__(tuple(sites))
        self._engine = engine
        self._sites = sites

    def send(self, owner: str, data: bytes) -> Future[bytes]:
        reply = self._sites[owner].handle(data)
        self._engine.passed += len(data) + len(reply)
        answered: Future[bytes] = Future()
        answered.set_result(reply)
        return answered
