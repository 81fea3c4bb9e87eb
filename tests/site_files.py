"""Sites on disk as an administrator sets them up: a key and a `site.toml` each, and the coordinator's key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpact.federation import Fleet, RemoteFleet, Site
from fedpact.federation.identity import Identity
from fedpact.jobs.site import open_site

#: Rules that allow what small tables of tests need; a test states the ones that it is about.
LENIENT = {
    "require": {
        "owners": 1,
        "rows": 1,
        "rows_per_class": 0,
        "rows_per_group": 0,
        "rows_per_parameter": 0.0,
        "effective_rows": 0,
        "boundary_rows": 0,
        "rows_changed": 0,
        "same_owners": False,
    },
    "limit": {
        "runs_a_day": 1000,
        "similar_runs": 1000,
        "small_cells": 0,
        "questions": 1000,
        "questions_a_month": 10**6,
        "releases": 10**6,
        "exchanges": 2000,
        "errors": 1000,
        "model_size": 1e9,
        "level_share": 1e9,
    },
}


@dataclass(frozen=True)
class Sites:
    """policies: the site.toml by owner; key: file of the coordinator's private key; roster: the owners' public keys"""

    policies: Mapping[str, Path]
    key: Path
    roster: Mapping[str, str]

    def config(self, owner: str) -> dict[str, Any]:
        """The --node-config of a site."""
        return {"name": owner, "policy": str(self.policies[owner])}

    def toml(self) -> str:
        """What a job states beside [owners]."""
        lines = ["[roster]", *(f"{json.dumps(owner)} = {json.dumps(public)}" for owner, public in self.roster.items())]
        return "\n".join(["[flower]", f"key = {json.dumps(str(self.key))}", *lines, ""])


class SiteEngine:
    """Sites as their processes run them, restarted for every fleet; every message is kept.

    tamper: may change what goes to an owner: (owner, bytes of the order) -> bytes of the reply, by default its site's
    """

    def __init__(self, sites: Sites, tamper: Callable[[str, bytes, Site], bytes] | None = None) -> None:
        self.sites = sites
        self.tamper = tamper
        self.sent: list[tuple[str, bytes]] = []
        self.received: list[tuple[str, bytes]] = []

    def open(self, shares: Mapping[str, object], folder: Path | None = None) -> Fleet:
        return _SiteFleet(self, tuple(shares))


class _SiteFleet(RemoteFleet):
    networked = True

    def __init__(self, engine: SiteEngine, owners: tuple[str, ...]) -> None:
        super().__init__(owners)
        self._engine = engine
        self._sites = {owner: open_site(engine.sites.policies[owner]) for owner in owners}

    def send(self, owner: str, data: bytes) -> Future[bytes]:
        engine = self._engine
        engine.sent.append((owner, data))
        site = self._sites[owner]
        reply = site.handle(data) if engine.tamper is None else engine.tamper(owner, data, site)
        engine.received.append((owner, reply))
        answered: Future[bytes] = Future()
        answered.set_result(reply)
        return answered


def write_sites(
    folder: Path,
    tables: Mapping[str, Path],
    *,
    features: Sequence[str],
    label: str = "y",
    tasks: Sequence[str] = ("neyman_pearson",),
    functions: Path | None = None,
    network: Path | None = None,
    holdout: Mapping[str, Path] | None = None,
    rules: Mapping[str, Mapping[str, Any]] = LENIENT,
    allow: Mapping[str, Any] | None = None,
) -> Sites:
    """Keys and policies for these owners, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    coordinator = _key(folder / "coordinator.pem")
    roster = {owner: _key(folder / f"{owner}.pem") for owner in tables}
    policies = {}
    for owner, table in tables.items():
        stated: dict[str, dict[str, Any]] = {
            "site": {"name": owner, "data": str(table), "state": f"{owner} state", "key": f"{owner}.pem"},
            "coordinators": {"study": coordinator},
            "peers": {other: public for other, public in roster.items() if other != owner},
            "allow": {"features": list(features), "labels": [label], "tasks": list(tasks), **(allow or {})},
            **{name: dict(table) for name, table in rules.items()},
        }
        if functions is not None:
            stated["site"]["functions"] = str(functions)
        if network is not None:
            stated["site"]["network"] = str(network)
        if holdout:
            stated["site"]["holdout"] = str(holdout[owner])
        policies[owner] = folder / f"{owner}.toml"
        policies[owner].write_text(to_toml(stated))
    return Sites(policies, folder / "coordinator.pem", roster)


def _key(path: Path) -> str:
    return (Identity.load(path) if path.exists() else Identity.create(path)).public


def to_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{json.dumps(key)} = {_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)
