"""A promise is made by those who sign it: honest runs are verified on every engine, and invented promises are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_files import change
from test_jobs_evidence import OWNERS, failures, give_keys, publics

from fedpact.federation import Session
from fedpact.fitting import Fit, fit
from fedpact.jobs import JobFile, read_job, run_job
from fedpact.jobs.evidence_file import read_evidence, write_evidence
from fedpact.jobs.running import make_record, write
from fedpact.jobs.verification import verify_run
from fedpact.tasks import Classification, read_task
from fedpact.tasks.classification import TOGETHER

pytest.importorskip("cryptography")

#: Of a promise each: by one threshold, by thresholds of the owners' own, by a sequence of models, by all together.
COMMON = '[[constraint]]\nkind = "recall"\nat_least = 0.8\nconfidence = 0.9\n'
GAP = '[[constraint]]\nkind = "accuracy"\nat_least = 0.55\nconfidence = 0.9\n'
ALL = '[[constraint]]\nkind = "recall"\nat_least = 0.8\nconfidence = 0.9\nheld_by = "all"\n'
PROMISES = {"common": COMMON, "own": COMMON, "tested": GAP, "together": ALL}
#: Of those that solve a sequence of models.
SLOW = pytest.mark.slow


def promise(folder: Path, kind: str) -> JobFile:
    """A job with keys that makes a promise of this kind, beside a model without constraints."""
    change(folder, 'task = "neyman_pearson"', 'task = "classification"')
    change(folder, "\nbound = 0.35", "\n# bound = 0.35")
    path = change(folder, '\nprotected = "yes"', '\n# protected = "yes"')
    if kind == "own":
        change(folder, '# threshold = "common"', 'threshold = "own"')
    path.write_text(f"{path.read_text()}\n{PROMISES[kind]}")
    give_keys(folder)
    return read_job(path)


@pytest.mark.parametrize(
    "kind", ["common", "own", pytest.param("tested", marks=SLOW), pytest.param("together", marks=SLOW)]
)
def test_an_honest_promise_is_verified(folder: Path, kind: str) -> None:
    """Finding 6: the model without constraints was measured at the other one's threshold."""
    job = promise(folder, kind)
    record = run_job(job)
    assert record.solved, record.reason
    assert {one.promise for one in record.bounded} == {"made"}
    found = verify_run(job.output, publics(folder))
    assert found.failed == ()
    assert found.verified
    assert any(name.endswith("without constraints") for one in record.measured for name in one.numbers)
    evidence = read_evidence(job.output)[0]
    task = read_task(evidence.task)
    assert isinstance(task, Classification)
    for owner, one in evidence.owners.items():  # the counts are those that one counts oneself
        hits, rows = one.statement["promised_hits"], one.statement["promised_rows"]
        assert (len(hits), one.statement["proven"]) == (0 if kind == "together" else 1, True)
        assert all(0 < hit <= row for hit, row in zip(hits, rows, strict=True)), owner
    if kind == "common":
        source = read_held_out(task, job, "north", evidence.w)
        north = evidence.said["north"].statement
        assert (north["promised_hits"], north["promised_rows"]) == source


def read_held_out(task: Classification, job: JobFile, owner: str, w: Any) -> tuple[list[float], list[float]]:
    """Hits and rows of the recall on an owner's held-out rows, from its table and the model's own predictions."""
    rows = task.read(Path(str(job.owners[owner])))
    held = task.held_out(owner, rows.y, rows.group) & (rows.y == 1)
    predicted = task.make_model(w).predict(rows.X[held])
    return [float(predicted.sum())], [float(held.sum())]


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.usefixtures("ray_cluster")
def test_an_honest_promise_is_verified_on_ray(folder: Path) -> None:
    job = promise(folder, "common")
    assert run_job(job, engine="ray").solved
    assert verify_run(job.output, publics(folder)).verified


class Inventing:
    """A coordinator that moves the threshold behind its owners' backs, and calls the promise kept.

    by: in deviations of the scores; open: the session with the owners, by default in this process
    """

    def __init__(self, by: float, open: Callable[[JobFile], Session] = lambda job: Session(keys=job.keys)) -> None:
        self.by = by
        self.open = open

    def run(self, job: JobFile) -> Fit:
        with self.open(job) as session:
            honest = fit(job.task, job.owners, session, compare=False)
            task = honest.task
            assert isinstance(task, Classification)
            moved = replace(task, decide_at=task.decide_at + self.by * task.spread, proven=True)
            assert honest.evidence is not None
            asked = replace(honest.evidence, task=moved.stated(), said={})
            signed = asked.gather(session, None)
            told = {name: one.told for name, one in signed.said.items()}
            made = Fit.of(moved, honest.solution, told, signed.prices, {})
            made = replace(made, evidence=signed, communication=session.ledger.read())
            record = replace(make_record(job, made, "in-process", "2026-01-01T00:00:00+00:00", 1.0), run=session.run)
        job.output.mkdir(parents=True, exist_ok=True)
        write(job.output, made, replace(record, started=honest_time(signed)), job.path)
        write_evidence(job.output, signed, job.path, None)
        return made


def honest_time(evidence: Any) -> str:
    return str(next(iter(evidence.said.values())).statement["time"])


def test_a_promise_that_the_held_out_rows_do_not_bear_out_is_found(folder: Path) -> None:
    """Finding 5: the threshold moved, recalls of .53, .65 and .68 where .8 was asked for are no promise kept."""
    job = promise(folder, "common")
    made = Inventing(by=8.0).run(job)
    signed = read_evidence(job.output)[0]
    recalls = [one.statement["promised_hits"][0] / one.statement["promised_rows"][0] for one in signed.owners.values()]
    assert min(recalls) < 0.7
    assert {one["promise"] for one in json.loads((job.output / "run.json").read_text())["bounded"]} == {"made"}
    assert signed.unproven()
    found = failures(job.output, **publics(folder))
    assert found == {("run.json", owner) for owner in signed.unproven()}
    assert made.solution.solved


def test_the_owners_word_counts_where_its_counts_are_withheld(folder: Path) -> None:
    job = promise(folder, "common")
    Inventing(by=0.0).run(job)
    signed = read_evidence(job.output)[0]
    task = read_task(signed.task)
    assert isinstance(task, Classification)
    silent = {"promised_hits": [], "promised_rows": []}
    one = signed.said["north"]
    assert one.bears_out("north", task)
    for proven in (True, False):
        told = replace(one, statement={**one.statement, **silent, "proven": proven})
        assert told.bears_out("north", task) is proven
    lies = replace(one, statement={**one.statement, "promised_hits": [1.0]})
    assert not lies.bears_out("north", task)


@SLOW
def test_what_all_promise_together_follows_from_the_sums(folder: Path) -> None:
    job = promise(folder, "together")
    run_job(job)
    signed = read_evidence(job.output)[0]
    assert signed.unproven() == []
    strict = {**signed.task, "constraints": [{**signed.task["constraints"][0], "at_least": 0.99}]}
    assert replace(signed, task=strict).unproven() == [TOGETHER]
    total = signed.total
    assert np.all(total.together_rows == np.round(total.together_rows))
    assert set(signed.owners) == set(OWNERS)
