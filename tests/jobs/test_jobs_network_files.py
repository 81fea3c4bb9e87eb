"""Jobs with model = "network.py:build": run, predict, evaluate, report, verify, resume; sites with their own file."""

from __future__ import annotations

import csv
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from job_files import change
from raising import raises_code
from site_files import LENIENT, SiteEngine, Sites, write_sites
from watched import Watched

import fedpact as fp
from fedpact.cli.init import init
from fedpact.cli.main import cli
from fedpact.errors import FedpactError
from fedpact.federation.identity import Identity
from fedpact.federation.policy import read_policy
from fedpact.jobs import evaluate_run, read_job, run_job
from fedpact.jobs.run_folder import digest_of_model
from fedpact.jobs.site import SiteSource
from fedpact.jobs.verification import verify_run
from fedpact.report.record import Record
from fedpact.report.sections import report
from fedpact.tasks import load_model, network_file
from fedpact.tasks.model import ModuleModel
from fedpact.tasks.network_file import NetworkFile

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")

pytestmark = pytest.mark.extras

OWNERS = ("north", "south", "coast")
FEATURES = ("age", "dose", "pressure", "smoker")
RECALL = '\n[[constraint]]\nkind = "recall"\nat_least = 0.8\n'
NETWORK = """\
from torch import nn


class Gated(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.wide = nn.Linear(inputs, 12)
        self.gate = nn.Linear(inputs, 12)
        self.last = nn.Linear(12, outputs)

    def forward(self, rows):
        return self.last(self.wide(rows).tanh() * self.gate(rows).sigmoid())


def build(inputs, outputs):
    return Gated(inputs, outputs)
"""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def job(folder: Path) -> Path:
    """The example with a network from a file and a recall, and other patients of the same hospitals for evaluation."""
    assert CliRunner().invoke(init, [str(folder / "later"), "--seed", "9"]).exit_code == 0
    (folder / "nets").mkdir()
    (folder / "nets" / "network.py").write_text(NETWORK)
    change(folder, 'task = "neyman_pearson"', 'task = "classification"\nmodel = "nets/network.py:build"')
    change(folder, "\nbound = 0.35", "\n# bound = 0.35")
    change(folder, "# compare = true", "compare = false")
    path = change(folder, '\nprotected = "yes"', '\n# protected = "yes"')
    unseen = "".join(f'{owner} = "later/{owner}.csv"\n' for owner in OWNERS)
    path.write_text(f"{path.read_text()}{RECALL}\n[holdout]\n{unseen}")
    return path


def shorten(job: Path, passes: int) -> None:
    text = job.read_text().replace("[solve]\n", '[solve]\nmethod = "stochastic-al"\n')
    job.write_text(f"{text}\n[solve.options]\npasses = {passes}\n")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def recall_of(run: Path, table: Path) -> float:
    """By the predictions of the command line."""
    printed = call("predict", run, table, "--code", run / "network.py")
    assert printed.exit_code == 0, printed.output
    decided = [line.split(",")[0] for line in printed.output.splitlines()[1:]]
    with table.open() as file:
        truth = [row["relapse"] for row in csv.DictReader(file)]
    found = [decision == "yes" for decision, label in zip(decided, truth, strict=True) if label == "yes"]
    return sum(found) / len(found)


def test_a_file_from_the_job_to_the_verified_report(job: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")
    for owner in OWNERS:
        Identity.create(folder / f"{owner}.key")
    keys = "".join(f'{owner} = "{owner}.key"\n' for owner in OWNERS)
    job.write_text(f"{job.read_text()}\n[keys]\n{keys}")
    done = call("run", job)
    assert done.exit_code == 0, done.output
    out = folder / "run"
    record = Record.load(out)
    assert (record.method, record.status, record.trained) == ("stochastic-al", "feasible", True)
    assert (out / "network.py").read_text() == NETWORK

    for one in record.bounded:
        assert one.value == pytest.approx(recall_of(out, folder / f"{one.owner}.csv"))
        assert one.value >= 0.8
    told = evaluate_run(out, read_job(job))
    for owner in OWNERS:
        expected = recall_of(out, folder / "later" / f"{owner}.csv")
        assert told.measures[owner]["recall of relapse = yes"] == pytest.approx(expected)

    asked_again = call("verify", out, "--ask", "--job", job)
    assert asked_again.exit_code == 0, asked_again.output
    (folder / "nets" / "other.py").write_text(f"{NETWORK}# changed\n")
    change(folder, "network.py:build", "other.py:build")
    changed = call(
        "verify", out, "--ask", "--job", job
    )  # owners run the file of the job, not one that the folder points at
    assert changed.exit_code == 1
    assert "SHA-256" in changed.output
    monkeypatch.delattr(NetworkFile, "build")  # who reads a report or checks evidence runs no code
    page = report(record)
    assert page.verdict.good
    assert "model" not in [section.key for section in page.sections]  # a network has no coefficients of columns
    assert call("report", out).exit_code == 0
    assert verify_run(out).verified

    (out / "network.py").write_text(NETWORK.replace("tanh", "relu"))
    assert [one.file for one in verify_run(out).failed] == ["network.py"]


def test_a_run_keeps_the_file_that_it_was_trained_with(job: Path, folder: Path) -> None:
    shorten(job, 1)
    run_job(read_job(job))
    expected = recall_of(folder / "run", folder / "north.csv")
    (folder / "nets" / "network.py").write_text("raise AssertionError('the job has another network by now')\n")
    moved = (folder / "run").rename(folder / "moved")
    assert recall_of(moved, folder / "north.csv") == expected
    assert (
        evaluate_run(moved, read_job(job), code=moved / "network.py").measures["north"]["recall of relapse = yes"] > 0
    )
    network_file._read_checked.cache_clear()  # as in another process: this one goes on with what it has read
    network_file._build.cache_clear()
    with raises_code("FP-OPTION-911"):
        evaluate_run(moved, read_job(job))  # the job's file is another one by now

    (moved / "network.py").write_text(NETWORK + "# a line more\n")
    again = moved.rename(folder / "changed")
    model = load_model(again)
    assert isinstance(model, ModuleModel)
    with raises_code("FP-OPTION-911", str(again / "network.py")):
        model.predict(np.zeros((1, len(model.encoding.names))))


def test_no_command_runs_a_file_that_only_the_folder_names(job: Path, folder: Path) -> None:
    """Finding 13: whoever hands over a folder ran Python at whoever evaluated or predicted with it."""
    shorten(job, 1)
    run_job(read_job(job))
    out = folder / "run"
    trap = f"from pathlib import Path\nPath({str(folder / 'was here')!r}).touch()\n{NETWORK}"
    (out / "network.py").write_text(trap)
    digest = sha256(trap.encode()).hexdigest()
    for name, place in (("model.json", ("digest",)), ("task.json", ("task", "code", "digest"))):
        content = json.loads((out / name).read_text())
        inner = content
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = digest
        (out / name).write_text(json.dumps(content))
    record = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**record, "model": digest_of_model(out)}))
    table = folder / "north.csv"
    for command in (["predict", out, table], ["evaluate", out], ["report", out], ["verify", out]):
        done = call(*command)
        if command[0] in ("predict", "evaluate"):
            assert isinstance(done.exception, FedpactError)
            assert done.exception.code == "FP-OPTION-673"
    for command in (["evaluate", out, "--job", job], ["predict", out, table, "--code", folder / "nets" / "network.py"]):
        done = call(*command)  # the user's own file is not the one that the folder means
        assert isinstance(done.exception, FedpactError)
        assert done.exception.code == "FP-OPTION-911"
    assert not (folder / "was here").exists()


def test_an_interrupted_run_is_resumed_to_the_same_bits(job: Path, folder: Path) -> None:
    shorten(job, 3)
    engine = Watched()
    run_job(read_job(job), engine=engine)
    expected = fp.Solution.load(folder / "run" / "solution.npz").w.tobytes()
    exchanges = len(engine.asked) // len(OWNERS)
    stopped = run_job(read_job(job), force=True, callbacks=[lambda progress: progress.rounds > exchanges // 2])
    assert stopped.status == "interrupted"
    kept = (folder / "nets" / "network.py").read_text()
    (folder / "nets" / "network.py").write_text(kept.replace("12", "13"))
    with raises_code("FP-CHECKPOINT-308", str(folder / "run"), "code"):
        run_job(read_job(job), resume=True)
    (folder / "nets" / "network.py").write_text(kept)
    run_job(read_job(job), resume=True)
    assert fp.Solution.load(folder / "run" / "solution.npz").w.tobytes() == expected


def test_a_promise_moves_the_threshold(job: Path, folder: Path) -> None:
    job.write_text(job.read_text().replace(RECALL, f"{RECALL}confidence = 0.9\n"))
    shorten(job, 1)
    record = run_job(read_job(job))
    assert record.trained, record.reason
    assert {one.promise for one in record.bounded} == {"made"}
    told = evaluate_run(folder / "run", read_job(job))
    expected = recall_of(folder / "run", folder / "later" / "north.csv")
    assert told.measures["north"]["recall of relapse = yes"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("stated", "code", "fact"),
    [
        ("nets/absent.py:build", "FP-OPTION-910", "absent.py"),
        ("nets/network.py", "FP-OPTION-900", "nets/network.py"),
        ("network.py:build", "FP-OPTION-910", "network.py"),
    ],
)
def test_an_error_has_the_line_of_its_key(job: Path, folder: Path, stated: str, code: str, fact: str) -> None:
    change(folder, "nets/network.py:build", stated)
    at = 1 + [one.startswith("model") for one in job.read_text().splitlines()].index(True)
    with raises_code(code, f"{job}:{at}:", fact):
        read_job(job)


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.usefixtures("ray_cluster")
def test_on_ray_the_file_has_the_bits_of_one_process(job: Path, folder: Path) -> None:
    shorten(job, 2)
    run_job(read_job(job))
    expected = fp.Solution.load(folder / "run" / "solution.npz").w.tobytes()
    run_job(read_job(job), engine="ray", force=True)
    assert fp.Solution.load(folder / "run" / "solution.npz").w.tobytes() == expected


# --------------------------------------------------------------------------------------------------------------- sites


def sites_of(folder: Path, job: Path, network: Path | None, **values: Any) -> Sites:
    sites = write_sites(
        folder / "sites",
        {owner: folder / f"{owner}.csv" for owner in OWNERS},
        features=FEATURES,
        label="relapse",
        tasks=("classification",),
        network=network,
        holdout={owner: folder / "later" / f"{owner}.csv" for owner in OWNERS},
        allow={"methods": ["stochastic-al"], "values": values},
        rules=LENIENT,
    )
    text = job.read_text()
    for owner in OWNERS:
        text = text.replace(f'{owner} = "{owner}.csv"', f'{owner} = "flower://127.0.0.1:1"')
    text = text[: text.index("\n[holdout]")]
    job.write_text(f"{text}\n{sites.toml()}")
    return sites


def test_sites_run_the_file_that_they_name(job: Path, folder: Path) -> None:
    pytest.importorskip("cryptography")
    own = folder / "own"
    own.mkdir()
    (own / "ours.py").write_text(NETWORK)
    sites = sites_of(folder, job, own / "ours.py", model=["linear", "nets/network.py:build"])
    engine = SiteEngine(sites)
    record = run_job(read_job(job), engine=engine)
    assert record.trained, record.reason
    assert not any(b"Gated" in data for _, data in engine.sent)  # no code travels
    told = evaluate_run(folder / "run", read_job(job), engine=SiteEngine(sites))
    assert told.measures["north"]["recall of relapse = yes"] == pytest.approx(
        recall_of(folder / "run", folder / "later" / "north.csv")
    )


@pytest.mark.parametrize(
    ("source", "values", "code"),
    [
        (None, {}, "FP-OPTION-014"),
        (NETWORK + "print('ours')\n", {}, "FP-OPTION-911"),
        (NETWORK, {"model": "linear"}, "FP-REFUSED-024"),
    ],
    ids=["it names none", "it names another", "its policy allows none"],
)
def test_a_site_runs_nothing_else(
    job: Path, folder: Path, source: str | None, values: dict[str, Any], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography")
    own = None
    if source is not None:
        own = folder / "ours.py"
        own.write_text(source)
    sites = sites_of(folder, job, own, **values)
    with raises_code(code):
        run_job(read_job(job), engine=SiteEngine(sites))
    assert "ours" not in capsys.readouterr().out


@pytest.mark.parametrize("code", [None, {"model": "other.py:build", "path": "x.py", "digest": "0"}])
def test_a_site_does_not_look_where_a_coordinator_points(job: Path, folder: Path, code: Any) -> None:
    """A task without the digest of its file, or with that of another one: the file that it names is not even read."""
    pytest.importorskip("cryptography")
    stated = {**read_job(job).task.stated(), "model": f"{folder / 'absent.py'}:build", "code": code}
    own = folder / "ours.py"
    own.write_text(NETWORK)
    sites = sites_of(folder, job, own)
    source = SiteSource(read_policy(sites.policies["north"]))
    with raises_code(
        "FP-OPTION-918" if code is None else "FP-OPTION-911", "", "absent.py" if code is None else "ours.py"
    ):
        source.counts(stated)
