"""Three hospitals in this process, each with its own table, key and policy: shared by tests of what is told."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from fedpact.federation import Fleet, RemoteFleet, Site
from fedpact.federation.audit import AuditLog
from fedpact.federation.gate import Gate
from fedpact.federation.identity import Identity
from fedpact.federation.policy import SitePolicy
from fedpact.tasks import FileSource

NAMES = ("north", "east", "south")
COLUMNS = ("age", "dose")


def write_table(path: Path, seed: int, ill: int = 30, rows: int = 80) -> None:
    """A table with so many ill rows; sick people are older and get more; the sex is in every other row another."""
    rng = np.random.default_rng(seed)
    lines = ["age,dose,ill,sex"]
    for number in range(rows):
        label = int(number < ill)
        age, dose = rng.normal(size=2) + 0.8 * label
        lines.append(f"{age!r},{dose!r},{label},{'fm'[number % 2]}".replace("np.float64(", "").replace(")", ""))
    path.write_text("\n".join(lines) + "\n")


class GatedSites:
    """An engine whose owners are sites with policies; they never see anything but bytes.

    gates: by owner, to ask what was counted
    """

    def __init__(self, folder: Path, tables: Mapping[str, int] | None = None, **rules: Any) -> None:
        """tables: ill rows of an owner, 30 by default; rules: of every site's policy."""
        folder.mkdir(exist_ok=True)
        self.coordinator = folder / "coordinator.key"
        submitting = Identity.create(self.coordinator)
        keys = {name: Identity.create(folder / f"{name}.key") for name in NAMES}
        self.roster = {name: key.public for name, key in keys.items()}
        self.gates: dict[str, Gate] = {}
        self.sites: dict[str, Site] = {}
        for seed, name in enumerate(NAMES):
            path = folder / f"{name}.csv"
            write_table(path, seed, (tables or {}).get(name, 30))
            policy = SitePolicy(
                name=name,
                data=path,
                state=folder / name,
                key=folder / f"{name}.key",
                coordinators={"registry": submitting.public},
                peers={other: public for other, public in self.roster.items() if other != name},
                **{
                    "features": COLUMNS,
                    "labels": ("ill",),
                    "groups": ("sex",),
                    "tasks": ("neyman_pearson", "group_fairness"),
                    **rules,
                },
            )
            self.gates[name] = Gate(policy, keys[name], AuditLog(folder / name / "audit"))
            self.sites[name] = Site(name, FileSource(name, path), gate=self.gates[name])

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        return _Sites(self.sites)


class _Sites(RemoteFleet):
    networked = True

    def __init__(self, sites: Mapping[str, Site]) -> None:
        super().__init__(tuple(sites))
        self._sites = sites

    def send(self, owner: str, data: bytes) -> Future[bytes]:
        sent: Future[bytes] = Future()
        sent.set_result(self._sites[owner].handle(data))
        return sent
