"""What a site tells of itself alone, and what its policy makes of that: jobs run through three sites with gates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gated_sites import COLUMNS, NAMES, GatedSites
from raising import raises_code

import fedpact as fp
from fedpact.errors import CODES, Refused
from fedpact.federation.audit import read_log
from fedpact.federation.policy import Counts
from fedpact.fitting.result import Fit
from fedpact.tasks import FileSource, GroupFairness, NeymanPearson, Task

pytest.importorskip("cryptography")

TABLE: dict[str, Any] = {"label": "ill", "columns": COLUMNS, "standardize": True}
RECALL = NeymanPearson(bound=0.5, **TABLE)
PARITY: dict[str, Any] = {"bound": 0.1, "group": "sex", "groups": ("f", "m"), **TABLE}


def fit(sites: GatedSites, task: Task = RECALL, **options: Any) -> Fit:
    with fp.Session(sites, identity=sites.coordinator, roster=sites.roster) as session:
        return fp.fit(task, dict.fromkeys(NAMES), session, **options)


# ------------------------------------------------------------------------------------------------- counts of the table


def test_a_job_that_every_policy_allows_is_solved(tmp_path: Path) -> None:
    assert fit(GatedSites(tmp_path)).solved


@pytest.mark.parametrize(
    ("code", "rules", "ill"),
    [
        ("FP-REFUSED-030", {"rows": 81}, 30),
        ("FP-REFUSED-031", {"rows_per_class": 5}, 4),
        ("FP-REFUSED-033", {"rows_per_parameter": 27.0}, 30),  # three numbers, 80 rows
    ],
)
def test_a_table_with_too_few_rows_is_refused_before_any_step_runs(
    code: str, rules: dict[str, Any], ill: int, tmp_path: Path
) -> None:
    sites = GatedSites(tmp_path, {"east": ill}, **rules)
    with pytest.raises(Refused) as caught:
        fit(sites)
    first = "east" if ill == 4 else "north"
    assert caught.value.code == code
    assert str(caught.value) == f"{first}: {code}: {CODES[code]}; the site's own log says more"  # the code, no count
    answered = [entry["step"] for entry in read_log(tmp_path / "east" / "audit") if entry["event"] == "answer"]
    assert {step.partition(":")[0] for step in answered} == {"fedpact.federation.secure_sum"}


def test_groups_count_where_a_constraint_rests_on_them(tmp_path: Path) -> None:
    with raises_code("FP-REFUSED-032"):
        fit(GatedSites(tmp_path / "a", rows_per_group=41), GroupFairness(**PARITY))
    sites = GatedSites(tmp_path / "b", {"south": 30}, rows_per_group=16)  # 40 rows a group, 15 of them ill
    assert fit(sites, GroupFairness(**PARITY)).solution.status == "solved"
    with raises_code("FP-REFUSED-032"):
        fit(GatedSites(tmp_path / "c", rows_per_group=16), GroupFairness(parity="equal_opportunity", **PARITY))


def test_counts_are_those_of_the_file(tmp_path: Path) -> None:
    GatedSites(tmp_path)
    source = FileSource("north", tmp_path / "north.csv")
    assert source.counts(RECALL.stated()) == Counts(80, (50, 30), (), 3)
    assert source.counts(GroupFairness(**PARITY)) == Counts(80, (50, 30), (40, 40), 3)


def test_what_cannot_be_counted_is_refused(tmp_path: Path) -> None:
    """A share that a site holds as it is, and a task that does not count its rows."""
    rules = {"rows": 0, "rows_per_class": 0, "rows_per_group": 0, "rows_per_parameter": 0.0}
    for name, allowed in (("strict", False), ("open", True)):
        sites = GatedSites(tmp_path / name, **(rules if allowed else {}))
        for owner, site in sites.sites.items():
            path = tmp_path / name / f"{owner}.csv"
            site.hold(_Uncounted(owner, path))
        if allowed:
            assert fit(sites).solved
        else:
            with raises_code("FP-REFUSED-030"):
                fit(sites)


class _Uncounted:
    def __init__(self, owner: str, path: Path) -> None:
        self._source = FileSource(owner, path)

    def __call__(self, task: Any) -> Any:
        return self._source(task)
