"""Vertical jobs with standard errors: each party's table is its own, the coordinator has the intercept and prices."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner
from job_files import change
from party_files import MAX_GAP, PARTIES, People, make_people, write_parties
from raising import raises_code
from site_files import SiteEngine
from vertical_sites import write_site_job, write_vertical_sites

import fedpact as fp
from fedpact.cli.main import cli
from fedpact.federation.audit import read_log
from fedpact.federation.gate import method_of
from fedpact.jobs import read_job, run_job
from fedpact.report.record import Record

LOSS_GAP = """
[[constraint]]
kind = "loss"
gap = true
at_most = 0.02
"""
RATE = """
[[constraint]]
kind = "recall"
at_least = 0.6
"""


@pytest.fixture(scope="module")
def people() -> People:
    return make_people()


@pytest.fixture
def job(tmp_path: Path, people: People) -> Path:
    job = write_parties(tmp_path / "x", people)
    change(job.parent, "tol = 1e-6", 'tol = 1e-9\nmethod = "vertical-exact"\ninference = "sandwich"')
    return job


def read_table(file: Path) -> dict[str, dict[str, str]]:
    with file.open() as rows:
        return {row["name"]: row for row in csv.DictReader(rows)}


def test_parties_keep_their_tables_and_the_coordinator_has_intercept_and_prices(job: Path, people: People) -> None:
    asked = people.pooled()
    expected = fp.solve(asked, "vertical-exact", tol=1e-9, inference="sandwich").summary(asked)
    done = CliRunner().invoke(cli, ["run", str(job)])
    assert done.exit_code == 0, done.output
    assert "standard errors: sandwich" in done.output
    folder = job.parent / "run"
    known = read_table(folder / "coefficients.csv")
    assert [row["kind"] for row in known.values()] == ["coefficient", "price"]
    assert float(known["intercept"]["se"]) == pytest.approx(expected["intercept"].se, rel=1e-6)
    assert float(list(known.values())[1]["se"]) == pytest.approx(expected.prices[0].se, rel=1e-6)
    for party, columns in PARTIES.items():
        kept = read_table(folder / "pieces" / f"{party}.csv")
        assert list(kept) == [f"x{column}" for column in columns]
        scale = people.X[:, list(columns)].std(axis=0)
        for j, row in enumerate(kept.values()):
            assert float(row["se"]) == pytest.approx(expected[f"{party}: {j}"].se / scale[j], rel=1e-6)
    assert CliRunner().invoke(cli, ["report", str(folder)]).exit_code == 0
    page = (folder / "report.html").read_text()
    assert "The coordinator's part of the model" in page or "The coordinator&#39;s part of the model" in page
    assert "second moments of all columns" in page
    assert any("beside its piece" in note for note in Record.load(folder).uncovered)


def test_a_gap_of_losses_in_a_list_has_the_errors_of_the_pooled_columns(job: Path, people: People) -> None:
    """The list gives every row of both classes the same part in the gap: that of all people."""
    change(job.parent, f"max_gap = {MAX_GAP}\n", "")
    job.write_text(job.read_text() + LOSS_GAP)
    record = run_job(read_job(job))
    assert record.solved, record.reason
    tables = {name: people.X[:, list(columns)] for name, columns in PARTIES.items()}
    asked = fp.VerticalProblem(tables, people.y, people.sex, 0.02, gap="all", standardize=True)
    expected = fp.solve(asked, "vertical-exact", tol=1e-9, inference="sandwich").summary(asked)
    assert record.summary["intercept"].se == pytest.approx(expected["intercept"].se, rel=1e-5)
    assert record.summary.prices[0].se == pytest.approx(expected.prices[0].se, rel=1e-5)
    kept = read_table(job.parent / "run" / "pieces" / "shop.csv")
    for j, (column, row) in enumerate(zip(PARTIES["shop"], kept.values(), strict=True)):
        scale = people.X[:, column].std()
        assert float(row["se"]) == pytest.approx(expected[f"shop: {j}"].se / scale, rel=1e-5)


def test_smoothed_rates_say_that_they_have_none(job: Path) -> None:
    change(job.parent, f"max_gap = {MAX_GAP}\n", "")
    change(job.parent, 'group = "sex"\n', "")
    change(job.parent, "tol = 1e-9", "tol = 1e-4")
    job.write_text(job.read_text() + RATE)
    record = run_job(read_job(job))
    assert record.solved, record.reason
    assert any("smoothed rates" in note for note in record.uncovered)
    assert not (job.parent / "run" / "pieces" / "bank.csv").exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('method = "vertical-exact"\n', ""),
        ('method = "vertical-exact"', 'method = "vertical-al"'),
        ('inference = "sandwich"', 'inference = "clustered"'),
    ],
)
def test_other_methods_and_kinds_are_refused_by_name(job: Path, old: str, new: str) -> None:
    change(job.parent, old, new)
    with raises_code("FP-OPTION-938", "", "inference", "vertical-exact"):
        run_job(read_job(job))


def test_sites_keep_their_tables_and_tell_two_masked_numbers_more(tmp_path: Path, people: People) -> None:
    """A site that allows vertical-exact answers; its own errors are on its disk only, its log has what left."""
    sites = write_vertical_sites(tmp_path, vertical_exact=True)
    path = write_site_job(tmp_path / "job.toml", "127.0.0.1:1", sites)
    exact = 'method = "vertical-exact"\ninference = "sandwich"'
    path.write_text(path.read_text().replace('method = "vertical-al"', exact).replace("tol = 1e-6", "tol = 1e-9"))
    record = run_job(read_job(path), engine=SiteEngine(sites))
    assert record.solved, record.reason
    asked = people.pooled()
    expected = fp.solve(asked, "vertical-exact", tol=1e-9, inference="sandwich").summary(asked)
    assert record.summary["intercept"].se == pytest.approx(expected["intercept"].se, rel=1e-6)
    for party, columns in PARTIES.items():
        [file] = (tmp_path / "sites" / f"{party} state" / "pieces").rglob("*.csv")
        kept = read_table(file)
        for j, column in enumerate(columns):
            errors = expected[f"{party}: {j}"].se / people.X[:, column].std()
            assert float(kept[f"x{column}"]["se"]) == pytest.approx(errors, rel=1e-6)
        log = read_log(tmp_path / "sites" / f"{party} state" / "audit")
        [last] = [entry for entry in log if entry.get("step", "").endswith("vertical_exact_errors:keep_errors")]
        assert (last["event"], last["told"], last["sums"], last["masked"]) == ("answer", [], 6, True)


def test_a_site_that_forbids_the_exact_method_forbids_its_errors() -> None:
    assert method_of("fedpact.solvers.vertical.vertical_exact_errors:keep_errors") == "vertical-exact"
