"""Standard errors and survival at sites with policies: what leaves them, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gated_sites import COLUMNS, NAMES, GatedSites
from raising import raises_code

import fedpact as fp
from fedpact.federation.audit import read_log
from fedpact.fitting.result import Fit
from fedpact.tasks import NeymanPearson, Regression, Task

pytest.importorskip("cryptography")

BOUNDED = NeymanPearson(bound=0.4, label="ill", columns=COLUMNS, standardize=True, regularization=0.0)
STEP = "fedpact.solvers.equations:infer_share"
COX = Regression(family="cox", label="dose", event="ill", columns=("age",), standardize=True, regularization=0.0)
ALLOWED: dict[str, Any] = {"features": ("age",), "labels": ("dose", "ill"), "tasks": ("regression",)}


def fit(sites: GatedSites, task: Task, **options: Any) -> Fit:
    with fp.Session(sites, identity=sites.coordinator, roster=sites.roster) as session:
        return fp.fit(task, dict.fromkeys(NAMES), session, tol=1e-6, inference="sandwich", **options)


def answers(folder: Path, owner: str) -> list[dict[str, Any]]:
    """What the owner's log says it answered about standard errors."""
    entries = read_log(folder / owner / "audit")
    return [entry for entry in entries if entry["event"] == "answer" and entry["step"] == STEP]


def test_sums_are_masked_and_slopes_of_a_constraint_that_binds_are_counted_as_told(tmp_path: Path) -> None:
    found = fit(GatedSites(tmp_path), BOUNDED)
    assert found.solved
    assert all(one.se > 0 for one in (*found.summary().coefficients, *found.summary().prices))
    for owner, price in found.prices.items():
        if owner not in NAMES:
            continue
        (entry,) = answers(tmp_path, owner)
        assert entry["masked"]
        told = {"own_system", "own_spread", "own_score", "own_curvature"} if np.any(price) else set()
        assert set(entry["told"]) == {*told, "near"}
    assert any(np.any(price) for price in found.prices.values())


def test_slopes_of_a_constraint_on_few_rows_are_withheld(tmp_path: Path) -> None:
    found = fit(GatedSites(tmp_path, small_cells=31), BOUNDED)  # 30 ill rows
    assert any("too few rows" in note for note in found.summary().notes)
    assert all(np.isnan(one.se) for one in found.summary().coefficients)
    assert all(entry["told"] == ["near"] for owner in NAMES for entry in answers(tmp_path, owner))


def with_times(sites: GatedSites, folder: Path) -> list[float]:
    """Tables of the sites in which the dose is a time; all times."""
    times = []
    for name in NAMES:
        path = folder / f"{name}.csv"
        lines = path.read_text().splitlines()
        rows = [line.split(",") for line in lines[1:]]
        for row in rows:
            row[1] = repr(abs(float(row[1])))
            times.append(float(row[1]))
        path.write_text("\n".join([lines[0], *(",".join(row) for row in rows)]) + "\n")
    return times


def test_no_time_of_an_event_leaves_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sites = GatedSites(tmp_path, **ALLOWED)
    times = with_times(sites, tmp_path)
    sent: list[bytes] = []
    for site in sites.sites.values():
        handle = site.handle

        def record(data: bytes, handle: Any = handle) -> bytes:
            sent.append(handle(data))
            return sent[-1]

        monkeypatch.setattr(site, "handle", record)
    found = fit(sites, COX)
    assert found.solved
    assert found.summary()["age"].se > 0
    everything = b"".join(sent)
    assert len(everything) > 10_000
    assert not any(np.float64(time).tobytes() in everything for time in times)
    assert not any(repr(time).encode() in everything for time in times)


def test_events_are_labels_and_few_of_them_are_refused_or_withheld(tmp_path: Path) -> None:
    for folder, code, ill, rules in (
        ("labels", "FP-REFUSED-022", 30, {"labels": ("dose",)}),
        ("few", "FP-REFUSED-031", 4, {}),
    ):
        sites = GatedSites(tmp_path / folder, {"east": ill}, **{**ALLOWED, **rules})
        with_times(sites, tmp_path / folder)
        with raises_code(code):
            fit(sites, COX)
    sites = GatedSites(tmp_path / "cells", {"east": 7}, **ALLOWED, small_cells=8)
    with_times(sites, tmp_path / "cells")
    found = fit(sites, COX)
    assert set(found.withheld["east"]) == {"events", "mean loss"}
    assert found.withheld["north"] == ()
