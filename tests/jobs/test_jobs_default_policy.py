"""Honest jobs of every kind, at sites whose site.toml lists columns, tasks and keys and leaves all rules alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from site_files import SiteEngine, write_sites

import fedpact as fp
from fedpact.cli.init import init
from fedpact.federation.audit import read_log
from fedpact.tasks import Classification, GroupFairness, NeymanPearson, Regression, Task

pytest.importorskip("cryptography")

OWNERS = ("north", "south", "coast")
FEATURES = ("age", "dose", "pressure", "smoker")
LABELLED: dict[str, Any] = {
    "label": "relapse",
    "columns": FEATURES,
    "categories": {"smoker": ("never", "former", "now")},
    "missing": "mean",
    "standardize": True,
}
CLASSES = {**LABELLED, "classes": ("no", "yes")}
SMOKING = {
    **CLASSES,
    "columns": FEATURES[:3],
    "categories": {},
    "group": "smoker",
    "groups": ("never", "former", "now"),
}
RECALL = {"kind": "recall", "of": "yes", "at_least": 0.8}
#: Name -> a task of the tables of `fedpact init`, and what else the job asks for.
JOBS: dict[str, tuple[Task, dict[str, Any]]] = {
    "loss": (NeymanPearson(bound=0.35, **CLASSES), {"compare": True}),
    "recall": (NeymanPearson(min_recall=0.8, **CLASSES), {"curves": True}),
    "standard errors": (NeymanPearson(bound=0.35, **CLASSES), {"inference": "sandwich"}),
    "gaps": (GroupFairness(bound=0.2, **SMOKING), {}),
    "none": (Classification(**CLASSES, owners_weigh="rows", calibrate=True), {}),
    "promise": (Classification(constraints=[RECALL], confidence=0.9, **CLASSES), {}),
    "regression": (
        Regression(**{**LABELLED, "label": "dose", "columns": ("age", "pressure", "smoker")}, max_loss=600.0),
        {},
    ),
}


@pytest.mark.parametrize(
    "name", ["loss", *(pytest.param(name, marks=pytest.mark.slow) for name in JOBS if name != "loss")]
)
def test_an_honest_job_is_answered(name: str, tmp_path: Path) -> None:
    CliRunner().invoke(init, [str(tmp_path / "example")], catch_exceptions=False)
    tables = {owner: tmp_path / "example" / f"{owner}.csv" for owner in OWNERS}
    allowed = {"groups": ["smoker"], "labels": ["relapse", "dose"]}
    tasks = ("neyman_pearson", "group_fairness", "classification", "regression")
    sites = write_sites(tmp_path / "sites", tables, features=FEATURES, tasks=tasks, rules={}, allow=allowed)
    task, extras = JOBS[name]
    with fp.Session(SiteEngine(sites), identity=sites.key, roster=sites.roster, retries=0) as session:
        found = fp.fit(task, dict.fromkeys(OWNERS), session, **extras)
    assert found.solution.solved, found.solution.reason
    assert found.evidence is not None
    log = list(read_log(tmp_path / "sites" / "north state" / "audit"))
    assert not [entry for entry in log if entry["event"] == "refuse"]
    answers = [entry for entry in log if entry["event"] == "answer"]
    assert len(answers) <= 100  # of 200
    assert sum(bool(entry["told"]) for entry in answers) <= 10  # of 12
    assert min(entry["rows"] for entry in answers if entry["rows"]) >= 20  # of 5
