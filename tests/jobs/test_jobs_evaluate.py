"""`fedpact evaluate`: tables that nobody trained on, in process, on Ray, and at sites with policies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from job_files import change
from raising import raises_code
from site_files import SiteEngine, write_sites

from fedpact.cli.init import init
from fedpact.cli.main import cli
from fedpact.errors import FedpactError
from fedpact.federation.identity import Identity
from fedpact.federation.wire import loads
from fedpact.jobs import evaluate_run, read_job, run_job
from fedpact.jobs.evaluation import read_evaluations
from fedpact.jobs.verification import verify_run
from fedpact.tasks import load_model

OWNERS = ("north", "south", "coast")
RECALL = '\n[[constraint]]\nkind = "recall"\nat_least = 0.8\n'


@pytest.fixture
def job(folder: Path) -> Path:
    """The example with a recall, and other patients of the same hospitals for evaluation."""
    assert CliRunner().invoke(init, [str(folder / "later"), "--seed", "9"]).exit_code == 0
    change(folder, 'task = "neyman_pearson"', 'task = "classification"')
    change(folder, "\nbound = 0.35", "\n# bound = 0.35")
    change(folder, "# compare = true", "compare = false")
    path = change(folder, '\nprotected = "yes"', '\n# protected = "yes"')
    unseen = "".join(f'{owner} = "later/{owner}.csv"\n' for owner in OWNERS)
    path.write_text(f"{path.read_text()}{RECALL}\n[holdout]\n{unseen}")
    return path


def promise(job: Path, threshold: str) -> None:
    """Let the recall hold for rows not yet seen, with thresholds of this kind."""
    text = job.read_text().replace(RECALL, f"{RECALL}confidence = 0.9\n")
    job.write_text(text.replace('# threshold = "common"', f'threshold = "{threshold}"'))


def sign(job: Path, folder: Path) -> None:
    """Give the owners keys."""
    pytest.importorskip("cryptography")
    for owner in OWNERS:
        Identity.create(folder / f"{owner}.key")
    job.write_text(job.read_text() + "\n[keys]\n" + "".join(f'{owner} = "{owner}.key"\n' for owner in OWNERS))


def last(folder: Path) -> Any:
    """The last evaluation of the run, as it is in the folder."""
    return json.loads((folder / "run" / "evaluation.json").read_text())["evaluations"][-1]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["evaluate", *map(str, arguments)])


def code_of(done: Result) -> str:
    assert isinstance(done.exception, FedpactError), done.output
    return done.exception.code


def recall_of(folder: Path, owner: str) -> tuple[int, int]:
    """Hits and rows, by the predictions of the command line."""
    table = folder / "later" / f"{owner}.csv"
    printed = CliRunner().invoke(cli, ["predict", str(folder / "run"), str(table)]).output
    decided = [line.split(",")[0] for line in printed.splitlines()[1:]]
    truth = [line.rpartition(",")[2] for line in table.read_text().splitlines()[1:]]
    ill = [decision for decision, label in zip(decided, truth, strict=True) if label == "yes"]
    return ill.count("yes"), len(ill)


def test_the_tables_of_the_job_are_measured(job: Path, folder: Path) -> None:
    run_job(read_job(job))
    done = call(folder / "run")
    assert done.exit_code == 0, done.output
    found = last(folder)
    for one in found["bounds"]:
        hits, rows = recall_of(folder, one["owner"])
        assert (one["rows"], one["bound"]) == (rows, 0.8)
        assert one["value"] == pytest.approx(hits / rows, abs=1e-12)
        assert f"{one['low']:.3f} to {one['high']:.3f}" in done.output
    assert list(found["rates"]) == [*OWNERS, "together"]
    assert "borne out" in done.output or "open" in done.output or "contradicted" in done.output


def test_tables_that_are_named_take_the_place_of_those(job: Path, folder: Path) -> None:
    run_job(read_job(job))
    done = call(folder / "run", "--table", f"south={folder / 'later' / 'south.csv'}", "--engine", "threads")
    assert done.exit_code == 0, done.output
    found = last(folder)
    assert list(found["rates"]) == ["south"]
    hits, rows = recall_of(folder, "south")
    assert found["bounds"][0]["value"] == pytest.approx(hits / rows, abs=1e-12)


def test_evaluations_are_appended(job: Path, folder: Path) -> None:
    run_job(read_job(job))
    first = evaluate_run(folder / "run", read_job(job))
    second = evaluate_run(folder / "run", read_job(job), {"south": folder / "later" / "south.csv"})
    assert [one.to_json() for one in read_evaluations(folder / "run")] == [first.to_json(), second.to_json()]
    (folder / "run" / "evaluation.json").write_text("[]")
    with raises_code("FP-OPTION-315"):
        evaluate_run(folder / "run", read_job(job))


def test_new_rows_that_contradict_a_promise_turn_the_verdict(job: Path, folder: Path) -> None:
    """In new tables everybody is ill, so that the recall is the share of rows that are called ill: far below 0.8."""
    promise(job, "common")
    assert run_job(read_job(job)).solved
    page = folder / "run" / "report.html"
    assert CliRunner().invoke(cli, ["report", str(folder / "run")]).exit_code == 0
    assert "All promises for new rows are made" in page.read_text()
    for owner in OWNERS:
        table = folder / "later" / f"{owner}.csv"
        first, *rows = table.read_text().splitlines()
        table.write_text("\n".join([first, *(f"{row.rpartition(',')[0]},yes" for row in rows)]) + "\n")
    assert call(folder / "run").exit_code == 0
    done = call(folder / "run", "--strict")
    assert done.exit_code == 1
    assert CliRunner().invoke(cli, ["report", str(folder / "run")]).exit_code == 0
    text = page.read_text()
    contradicted = read_evaluations(folder / "run")[-1].count("contradicted")
    assert contradicted >= 1
    assert f"Contradicted by new rows: {contradicted} of 3 constraints" in text
    assert "All promises" not in text
    assert text.index("On rows that nobody trained on") < text.index("What was asked, owner by owner")


def test_a_table_that_was_trained_on_is_refused(job: Path, folder: Path) -> None:
    run_job(read_job(job))
    copied = folder / "new.csv"
    copied.write_bytes((folder / "south.csv").read_bytes())
    for owner in ("south", "north"):
        assert code_of(call(folder / "run", "--table", f"{owner}={copied}")) == "FP-DATA-316"
    assert not (folder / "run" / "evaluation.json").exists()


def test_a_signed_table_is_refused_though_its_file_has_another_content_by_now(job: Path, folder: Path) -> None:
    sign(job, folder)
    run_job(read_job(job))
    copied = folder / "new.csv"
    copied.write_bytes((folder / "south.csv").read_bytes())
    (folder / "south.csv").write_bytes((folder / "later" / "south.csv").read_bytes())
    assert code_of(call(folder / "run", "--table", f"south={copied}")) == "FP-DATA-316"


def test_thresholds_of_the_owners_own_are_found_where_the_job_has_the_tables(job: Path, folder: Path) -> None:
    promise(job, "own")
    assert run_job(read_job(job)).solved
    found = evaluate_run(folder / "run", read_job(job))
    assert {one.owner for one in found.bounds} == set(OWNERS)


def test_a_signed_run_stays_verified_and_a_changed_task_is_found(job: Path, folder: Path) -> None:
    sign(job, folder)
    run_job(read_job(job))
    done = call(folder / "run", "--table", f"south={folder / 'later' / 'south.csv'}")
    assert done.exit_code == 0, done.output
    assert verify_run(folder / "run").failed == ()
    path = folder / "run" / "task.json"
    path.write_text(path.read_text().replace('"at_least": 0.8', '"at_least": 0.7'))
    assert [one.file for one in verify_run(folder / "run").failed] == ["task.json"]


def test_an_evaluation_is_not_of_a_model_that_follows(job: Path, folder: Path) -> None:
    run_job(read_job(job))
    evaluate_run(folder / "run", read_job(job))
    run_job(read_job(job), force=True)
    assert not (folder / "run" / "evaluation.json").exists()


def test_nothing_of_the_rows_is_in_the_files(job: Path, folder: Path) -> None:
    """task.json has the agreed task: scaling, bounds, list; no cell of a table."""
    run_job(read_job(job))
    stated = json.loads((folder / "run" / "task.json").read_text())
    assert stated["job_file"] == "../job.toml"
    assert stated["task"]["constraints"][0]["kind"] == "recall"
    assert len(stated["task"]["scaling"]["mean"]) == load_model(folder / "run").coefficients.shape[1]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--table", "south"], "FP-OPTION-840"),
        (["--table", "west=later/south.csv"], "FP-OPTION-839"),
        (["--table", "south=absent.csv"], "FP-DATA-007"),
    ],
)
def test_misuse(job: Path, folder: Path, arguments: list[str], code: str) -> None:
    run_job(read_job(job))
    assert code_of(call(folder / "run", *arguments)) == code


def test_a_folder_without_a_model_is_no_run(folder: Path) -> None:
    assert code_of(call(folder)) == "FP-512"


def test_a_job_without_tables_for_it_says_so(job: Path, folder: Path) -> None:
    job.write_text(job.read_text().partition("[holdout]")[0])
    run_job(read_job(job))
    assert code_of(call(folder / "run")) == "FP-OPTION-838"


@pytest.mark.parametrize(
    ("line", "code"),
    [('west = "later/north.csv"', "FP-OPTION-383"), ('north = "absent.csv"', "FP-OPTION-381")],
)
def test_tables_of_the_job_are_checked_with_their_line(job: Path, line: str, code: str) -> None:
    job.write_text(job.read_text().replace('north = "later/north.csv"', line))
    number = job.read_text().splitlines().index(line) + 1
    with raises_code(code, f"{job}:{number}: "):
        read_job(job)


# ------------------------------------------------------------------------------------------------------------ elsewhere


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.usefixtures("ray_cluster")
def test_owners_on_ray_measure_the_same(job: Path, folder: Path) -> None:
    pytest.importorskip("ray")
    run_job(read_job(job))
    here = evaluate_run(folder / "run", read_job(job))
    there = evaluate_run(folder / "run", read_job(job), engine="ray")
    assert replace(there, time="") == replace(here, time="")


@pytest.mark.parametrize("threshold", ["common", "own"])
def test_sites_measure_on_a_table_of_their_own(job: Path, folder: Path, threshold: str) -> None:
    """A site has both of its tables: its threshold comes from one, what it tells from the other."""
    pytest.importorskip("cryptography")
    promise(job, threshold)
    run_job(read_job(job))
    here = evaluate_run(folder / "run", read_job(job))
    sites = write_sites(
        folder / "sites",
        {owner: folder / f"{owner}.csv" for owner in OWNERS},
        features=["age", "dose", "pressure", "smoker"],
        label="relapse",
        tasks=["classification"],
        holdout={owner: folder / "later" / f"{owner}.csv" for owner in OWNERS},
    )
    stated = job.read_text().partition("[holdout]")[0]
    for owner in OWNERS:
        stated = stated.replace(f'{owner} = "{owner}.csv"', f'{owner} = "flower://127.0.0.1:1"')
    job.write_text(f"{stated}\n{sites.toml()}")
    engine = SiteEngine(sites)
    found = evaluate_run(folder / "run", read_job(job), engine=engine)
    assert replace(found, time="") == replace(here, time="")
    asked = [data[data.index(b"fedpact1") :] for _, data in engine.sent]
    assert {str(loads(data)["step"]).partition(":")[2] for data in asked} == {"measure", "end"}


def test_a_job_of_sites_has_no_tables_of_its_own(job: Path, folder: Path) -> None:
    for owner in OWNERS:
        change(folder, f'{owner} = "{owner}.csv"', f'{owner} = "flower://127.0.0.1:1"')
    sites = write_sites(folder / "sites", dict.fromkeys(OWNERS, folder / "north.csv"), features=[])
    job.write_text(f"{job.read_text()}\n{sites.toml()}")
    with raises_code("FP-OPTION-833", str(job), "site.toml"):
        read_job(job)
    stated = job.read_text()
    before, _, after = stated.partition("[holdout]")
    job.write_text(before + after[after.index("[flower]\nkey") :])
    (folder / "run").mkdir()
    assert code_of(call(folder / "run", "--job", job, "--table", "south=x.csv")) == "FP-OPTION-841"
