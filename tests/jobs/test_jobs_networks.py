"""Jobs with model = "mlp": run, report, predict, evaluate and verify; the bits of Ray; sites that allow networks."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from job_files import change
from raising import raises_code
from site_files import LENIENT, SiteEngine, Sites, write_sites

import fedpact as fp
from fedpact.cli.init import init
from fedpact.cli.main import cli
from fedpact.federation.identity import Identity
from fedpact.jobs import evaluate_run, read_job, run_job
from fedpact.jobs.evidence_file import read_evidence, write_evidence
from fedpact.jobs.verification import verify_run
from fedpact.report.record import Record
from fedpact.report.sections import report
from fedpact.tasks import load_model
from fedpact.tasks.model import NetworkModel

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")

pytestmark = pytest.mark.extras

OWNERS = ("north", "south", "coast")
FEATURES = ("age", "dose", "pressure", "smoker")
RECALL = '\n[[constraint]]\nkind = "recall"\nat_least = 0.8\n'


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def job(folder: Path) -> Path:
    """The example with a network and a recall, and other patients of the same hospitals for evaluation."""
    assert CliRunner().invoke(init, [str(folder / "later"), "--seed", "9"]).exit_code == 0
    change(folder, 'task = "neyman_pearson"', 'task = "classification"\nmodel = "mlp"\nlayers = [12]')
    change(folder, "\nbound = 0.35", "\n# bound = 0.35")
    change(folder, "# compare = true", "compare = false")
    path = change(folder, '\nprotected = "yes"', '\n# protected = "yes"')
    unseen = "".join(f'{owner} = "later/{owner}.csv"\n' for owner in OWNERS)
    path.write_text(f"{path.read_text()}{RECALL}\n[holdout]\n{unseen}")
    return path


def sign(folder: Path) -> str:
    """Keys for the owners; the table of the job that names them."""
    for owner in OWNERS:
        Identity.create(folder / f"{owner}.key")
    return "\n[keys]\n" + "".join(f'{owner} = "{owner}.key"\n' for owner in OWNERS)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def recall_of(folder: Path, table: Path, *more: object) -> float:
    """By the predictions of the command line."""
    printed = call("predict", folder / "run", table, *more).output
    decided = [line.split(",")[0] for line in printed.splitlines()[1:]]
    with table.open() as file:
        truth = [row["relapse"] for row in csv.DictReader(file)]
    found = [decision == "yes" for decision, label in zip(decided, truth, strict=True) if label == "yes"]
    return sum(found) / len(found)


def test_a_network_from_the_job_to_the_verified_report(job: Path, folder: Path) -> None:
    pytest.importorskip("cryptography")
    job.write_text(f"{job.read_text()}{sign(folder)}")
    done = call("run", job)
    assert done.exit_code == 0, done.output
    out = folder / "run"
    record = Record.load(out)
    assert (record.method, record.status, record.trained) == ("stochastic-al", "feasible", True)
    for one in record.bounded:
        assert one.value == pytest.approx(recall_of(folder, folder / f"{one.owner}.csv"))
        assert one.value >= 0.8
    assert isinstance(load_model(out), NetworkModel)

    page = report(record)
    assert page.verdict.good
    assert "network" in page.verdict.headline
    assert "model" not in [section.key for section in page.sections]  # a network has no coefficients of columns
    assert call("report", out).exit_code == 0

    assert verify_run(out).verified
    model = (out / "model.json").read_bytes()
    (out / "model.json").write_text(json.dumps({**json.loads(model), "activation": "tanh"}))
    assert not verify_run(out).verified
    with raises_code("FP-483"):
        evaluate_run(out, read_job(job))

    (out / "model.json").write_bytes(model)
    told = evaluate_run(out, read_job(job))
    for owner in OWNERS:
        expected = recall_of(folder, folder / "later" / f"{owner}.csv")
        assert told.measures[owner]["recall of relapse = yes"] == pytest.approx(expected)


def test_a_record_that_calls_a_missed_bound_met_is_not_verified(job: Path, folder: Path) -> None:
    pytest.importorskip("cryptography")
    change(folder, "at_least = 0.8\n\n[holdout]", "at_least = 0.999\n\n[holdout]")
    change(folder, "[solve]\n", '[solve]\nmethod = "stochastic-al"\n')
    job.write_text(f"{job.read_text()}\n[solve.options]\npasses = 1\n{sign(folder)}")
    done = call("run", job)
    assert done.exit_code == 1
    out = folder / "run"
    record = Record.load(out)
    assert not record.trained
    assert not report(record).verdict.good
    assert "passes" in report(record).verdict.todo
    assert verify_run(out).verified
    text = (out / "run.json").read_text()
    (out / "run.json").write_text(text.replace('"trained": false', '"trained": true'))
    write_evidence(out, read_evidence(out)[0], job, None)  # a coordinator may state the digests anew
    assert "run.json" in {one.file for one in verify_run(out).failed}


@pytest.mark.parametrize("threshold", ["common", "own"])
def test_a_promise_moves_the_threshold_of_a_network(job: Path, folder: Path, threshold: str) -> None:
    pytest.importorskip("cryptography")
    text = job.read_text().replace(RECALL, f"{RECALL}confidence = 0.9\n")
    text = text.replace("[solve]\n", '[solve]\nmethod = "stochastic-al"\n')
    text = text.replace('# threshold = "common"', f'threshold = "{threshold}"')
    job.write_text(f"{text}\n[solve.options]\npasses = 1\n{sign(folder)}")
    record = run_job(read_job(job))
    assert record.trained
    assert verify_run(folder / "run").verified
    assert {one.promise for one in record.bounded} == {"made"}
    owner = ("--owner", "north", "--job", job) if threshold == "own" else ()
    by_command = recall_of(folder, folder / "later" / "north.csv", *owner)
    told = evaluate_run(folder / "run", read_job(job))
    assert told.measures["north"]["recall of relapse = yes"] == pytest.approx(by_command)


@pytest.mark.parametrize(
    ("stated", "code", "line"),
    [
        ("layers = [12, 0]", "FP-OPTION-902", "layers"),
        ('layers = ["12"]', "FP-OPTION-370", "layers"),
        ('layers = [12]\nactivation = "sine"', "FP-OPTION-368", "activation"),
    ],
)
def test_an_error_has_the_line_of_its_key(job: Path, folder: Path, stated: str, code: str, line: str) -> None:
    change(folder, "layers = [12]", stated)
    at = 1 + [one.startswith(line) for one in job.read_text().splitlines()].index(True)
    with raises_code(code, f"{job}:{at}:"):
        read_job(job)


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.usefixtures("ray_cluster")
def test_on_ray_the_network_has_the_bits_of_one_process(job: Path, folder: Path) -> None:
    run_job(read_job(job))
    expected = fp.Solution.load(folder / "run" / "solution.npz").w.tobytes()
    found = run_job(read_job(job), engine="ray", force=True)
    assert found.engine == "ray"
    assert fp.Solution.load(folder / "run" / "solution.npz").w.tobytes() == expected


# --------------------------------------------------------------------------------------------------------------- sites


def sites_of(folder: Path, job: Path, allow: dict[str, Any], **require: Any) -> Sites:
    tables = {owner: folder / f"{owner}.csv" for owner in OWNERS}
    rules = {**LENIENT, "require": {**LENIENT["require"], **require}}
    sites = write_sites(
        folder / "sites",
        tables,
        features=FEATURES,
        label="relapse",
        tasks=("classification",),
        allow=allow,
        rules=rules,
    )
    text = job.read_text()
    for owner in OWNERS:
        text = text.replace(f'{owner} = "{owner}.csv"', f'{owner} = "flower://127.0.0.1:1"')
    text = text[: text.index("\n[holdout]")]
    job.write_text(f"{text}\n{sites.toml()}")
    return sites


METHODS = ["interior-point", "stochastic-al"]


def test_sites_train_a_network_where_they_allow_its_method(job: Path, folder: Path) -> None:
    pytest.importorskip("cryptography")
    sites = sites_of(folder, job, {"methods": METHODS, "values": {"layers": [[12], [64, 32]]}})
    record = run_job(read_job(job), engine=SiteEngine(sites))
    assert record.trained, record.reason
    assert all(one.value >= 0.8 for one in record.bounded)


@pytest.mark.parametrize(
    ("allow", "require", "code"),
    [
        ({}, {}, "FP-REFUSED-006"),  # by default the method of networks is not allowed
        ({"methods": METHODS, "values": {"model": "linear"}}, {}, "FP-REFUSED-024"),
        ({"methods": METHODS, "values": {"layers": [[64, 32]]}}, {}, "FP-REFUSED-024"),
        ({"methods": METHODS}, {"rows_per_parameter": 10.0}, "FP-REFUSED-033"),  # 97 numbers, 200 to 300 rows
    ],
)
def test_a_site_refuses_networks(
    job: Path, folder: Path, allow: dict[str, Any], require: dict[str, Any], code: str
) -> None:
    pytest.importorskip("cryptography")
    sites = sites_of(folder, job, allow, **require)
    with raises_code(code):
        run_job(read_job(job), engine=SiteEngine(sites))
