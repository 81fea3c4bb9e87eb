"""A job run: from the file to the folder that holds the model, its certificate, its history and what left whom."""

from __future__ import annotations

import csv
import json
import logging
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from fedpact.errors import FedpactError, OptionError
from fedpact.federation import Engine, Session
from fedpact.fitting import Fit, fit
from fedpact.fitting.sources import Held
from fedpact.jobs.evidence_file import write_evidence
from fedpact.jobs.job_file import JobFile
from fedpact.jobs.run_folder import (
    CERTIFICATE,
    CHECKPOINT,
    COEFFICIENTS,
    HISTORY,
    LEDGER,
    MESSAGES,
    PIECES,
    RESULTS,
    SOLUTION,
    TASK,
    TEXT_LOG,
    digest_of_model,
    explain_full_disk,
    open_run_folder,
)
from fedpact.jobs.word import OF_LEDGER, OF_TASK, words_of_certificate, words_of_run
from fedpact.problem.certificate import TOGETHER
from fedpact.report.record import Measured, Record, Sent, Step
from fedpact.report.tracking import tracker
from fedpact.solvers import Progress
from fedpact.solvers.solution import Status
from fedpact.tasks import Classification, FileSource, Model, PartySource, TableTask, Vertical
from fedpact.tasks.base import SERVER, WORD, Bounded
from fedpact.tasks.holding import own_threshold
from fedpact.tasks.parties import GAP

log = logging.getLogger("fedpact")

#: Measures that are shown beside those of the model without constraints.
RATES = ("recall", "specificity", "accuracy", "mean error", "root mean squared error", "vote")
#: Keys of [solve] that `Session` takes.
SESSION = ("secure_sum", "on_failure", "deadline", "retries")
#: Keys of [solve] that `fit` takes.
SOLVING = ("method", "tol", "seed", "max_rounds", "inference")


def run_job(
    file: JobFile,
    *,
    engine: Engine | str | None = None,
    resume: bool = False,
    force: bool = False,
    callbacks: Iterable[Callable[[Progress], Any]] = (),
) -> Record:
    """Run a job and write its folder.

    engine: in the place of the job's own; resume: continue the run in the folder; force: replace the run that is there
    when this one has ended: see `fedpact.jobs.run_folder`

    Raises OptionError for a folder that cannot be written or holds a run, and what `fp.fit` raises: KeyboardInterrupt
    and OwnerLost before there is a model, with a checkpoint in the folder to go on from.
    """
    with explain_full_disk(file.output), open_run_folder(file.output, resume, force, file.reads) as folder:
        return _run_in(folder, file, engine, resume and not force, callbacks)


def _run_in(
    folder: Path,
    file: JobFile,
    engine: Engine | str | None,
    resume: bool,
    callbacks: Iterable[Callable[[Progress], Any]],
) -> Record:
    """Run a job in a folder that is ready for it."""
    started = datetime.now(UTC)
    began = time.perf_counter()
    where = engine or file.solve.get("engine", "in-process")
    name = where if isinstance(where, str) else "in-process"
    owners: Mapping[str, Held] = file.owners
    settings = session_settings(file)
    if file.superlink:
        owners = dict.fromkeys(file.owners)  # sites know where their data are
        name = "flower"
    elif isinstance(file.task, Vertical):
        owners = party_sources(file, folder)
    if file.messages:
        settings["record"] = folder / MESSAGES
    solving = {name: file.solve[name] for name in SOLVING if name in file.solve}
    with _log_file(folder / TEXT_LOG), ExitStack() as stack:
        trackers = [stack.enter_context(tracker(name, folder, resume, file.output)) for name in file.track]
        session = Session(
            where,
            checkpoint=folder / CHECKPOINT,
            resume=resume and (folder / CHECKPOINT / "checkpoint.json").exists(),
            **settings,
        )
        log.info("%s: %s, %d owners", file.title, file.task.name, len(file.owners))
        with session:
            found = fit(
                file.task,
                owners,
                session,
                server=file.server,
                compare=file.compare,
                curves=file.curves,
                trade_off=file.trade_off,
                callbacks=[_log_progress, *trackers, *callbacks],
                **solving,
                **file.options,
            )
        log.info("%r: %s", found.solution, found.solution.reason)
        record = make_record(file, found, name, started.isoformat(timespec="seconds"), time.perf_counter() - began)
        record = replace(record, run=session.run)
        record = write(folder, found, record, file.path)  # before trackers end: one that fails takes nothing away
        for tracking in trackers:
            tracking.conclude(found.solution)
            tracking.describe(record, folder)
    if found.evidence is not None:  # at the very end, since it holds the digest of every file
        write_evidence(folder, found.evidence, file.path, session.identity)
    return record


def party_sources(file: JobFile, folder: Path, tables: Mapping[str, Path] | None = None) -> dict[str, Held]:
    """The parties of a vertical job on this machine; each keeps its piece of the model in the folder of the run.

    tables: of people whom nobody trained on, by party; then only these parties
    """
    sources: dict[str, Held] = {}
    for party in file.owners if tables is None else tables:
        unseen = None if tables is None else FileSource(party, tables[party])
        sources[party] = PartySource(party, file.owners[party], unseen, file.alignment_key, folder / PIECES)
    return sources


def session_settings(file: JobFile) -> dict[str, Any]:
    """What `Session` takes of a job: keys, and what to do about owners that do not answer."""
    settings: dict[str, Any] = {"keys": file.keys}
    if file.superlink:
        settings |= {"deadline": 600.0, "retries": 30}  # time to restart a site
        settings |= {"identity": file.flower["key"], "roster": file.roster}
    return settings | {name: file.solve[name] for name in SESSION if name in file.solve}


def write(folder: Path, found: Fit, record: Record, job_file: Path) -> Record:
    """Everything that a run leaves, as docs/reference/run-folder.md describes it; returns the record as written."""
    solution = found.solution
    for name in RESULTS:
        (folder / name).unlink(missing_ok=True)  # of the same run, when it was stopped
    if found.model is not None:
        found.model.save(folder)
        stated = {"job_file": Path(os.path.relpath(job_file, folder)).as_posix(), "task": found.task.stated()}
        stated |= mark(OF_TASK, found)
        (folder / TASK).write_text(json.dumps(stated, indent=1) + "\n")
    if found.inference is not None:
        found.summary().to_csv(folder / COEFFICIENTS)
    solution.save(folder / SOLUTION)
    certificate = {
        "status": record.status,
        "reason": record.reason,
        "tol": list(record.tol),
        **{key: value for key, value in asdict(solution.certificate).items() if key != "violations"},
        "violations": solution.certificate.violations,
        "objective": solution.objective,
        "constraints": [describe_constraint(one) for one in record.bounded],
        **mark(words_of_certificate(record.usable), found),
    }
    (folder / CERTIFICATE).write_text(json.dumps(certificate, indent=1) + "\n")
    ledger = {"exchanges": record.rounds, "owners": [asdict(one) for one in record.sent], **mark(OF_LEDGER, found)}
    (folder / LEDGER).write_text(json.dumps(ledger, indent=1) + "\n")
    with (folder / HISTORY).open("w", newline="") as target:
        rows = csv.writer(target)
        names = list(dict.fromkeys(name for step in record.history for name in step.violations))
        rows.writerow(
            ["exchanges", "bytes", "objective", "stationarity", "feasibility", *(f"violation {n}" for n in names)]
        )
        for step in record.history:
            told = [step.rounds, step.bytes, step.objective, step.stationarity, step.feasibility]
            rows.writerow([*told, *(step.violations.get(n, "") for n in names)])
    record = replace(record, model=digest_of_model(folder))
    record.save(folder)  # last: a folder with a record is complete
    return record


def mark(words: Iterable[str], found: Fit) -> dict[str, list[str]]:
    """Which claims of a file are the coordinator's word; nothing where nobody signed any."""
    return {} if found.evidence is None else {WORD: list(words)}


def describe_constraint(one: Bounded) -> dict[str, Any]:
    written = asdict(one)
    if written.pop("withheld"):
        written["value"] = "withheld"
    return written


# -------------------------------------------------------------------------------------------------- what is recorded


def make_record(file: JobFile, found: Fit, engine: str, started: str, seconds: float) -> Record:
    """The record of a run: what was asked, how it ended, and what everyone measured."""
    solution = found.solution
    task = found.task
    status, reason = judge(found)
    settings = dict(file.settings)
    if isinstance(task, TableTask):
        settings["features used"] = list(task.encoding.names)
    if isinstance(task, Vertical):
        settings["label_at"] = task.label_holder
    return Record(
        title=file.title,
        asked=task.sentence(),
        status=status,
        reason=reason,
        method=solution.method,
        engine=engine,
        tol=solution.tol,
        stationarity=solution.certificate.stationarity,
        feasibility=solution.certificate.feasibility,
        objective=solution.objective,
        rounds=found.communication.rounds,
        convex=solution.convex,
        started=started,
        seconds=seconds,
        bounded=tuple(list_bounded(found)),
        measured=tuple(list_measured(found)),
        history=tuple(
            Step(r.rounds, r.bytes, r.objective, r.stationarity, r.feasibility, r.violations)
            for r in solution.history.outer
        ),
        sent=tuple(Sent(name, **asdict(traffic)) for name, traffic in found.communication.owners.items()),
        settings=settings,
        versions=versions(),
        notes=tuple(list_notes(found)),
        promised=task.promise_in_words() if isinstance(task, Classification) else "",
        curves=found.curves,
        trade_off=found.trade_off,
        parties={party: list(columns) for party, columns in found.columns.items()},
        trained=found.trained,
        coordinators_word=tuple(words_of_run(status == "solved" or found.trained))
        if found.evidence is not None
        else (),
        **summarized(found),
    )


def summarized(found: Fit) -> dict[str, Any]:
    """The fields of a record about standard errors; none where there are none."""
    if found.inference is None:
        return {}
    summary = found.summary()
    return {
        "coefficients": summary.coefficients,
        "priced": summary.prices,
        "rates": summary.rates,
        "inference": summary.covariance,
        "uncovered": summary.notes,
    }


def judge(found: Fit) -> tuple[Status, str]:
    """Status of a run and why: a certified model whose decisions miss a bound, or a promise, is not solved."""
    solution = found.solution
    if solution.solved and not found.solved:
        return "stalled", found.shortfall
    unproven = found.has_model and found.unproven
    if solution.status in ("stalled", "infeasible", "feasible", "max_rounds") and (found.missed > 0 or unproven):
        status: Status = "max_rounds" if solution.status == "feasible" else solution.status
        return status, f"{found.shortfall} ({solution.reason})"
    return solution.status, solution.reason


def list_notes(found: Fit) -> Iterator[str]:
    """Choices made on the way, and how far the numbers go."""
    yield from found.solution.history.notes
    yield f"{found.trials} solves in all, {found.communication.rounds} exchanges"
    task = found.task
    about = "rates are of the rows that the model was trained on; new rows may do worse"
    if isinstance(task, Classification) and task.promised:
        about += ", but for what is promised"
    yield about
    if isinstance(task, Vertical):
        if task.owners == 2:
            yield "with two parties, masks hide nothing from the other one: a sum less its own part is the other's"
        yield from (f"without the constraints: {name} {value:.4g}" for name, value in gaps_before(found))
    if not isinstance(task, Classification) or found.model is None:
        return
    if found.calibration is not None:
        yield "probabilities are calibrated on the rows that the model was trained on, by sums over the owners"
    elif task.calibrate:
        yield "the scores could not be calibrated, since they do not rise with the last class; predictions are scores"
    elif task.sharpened:
        yield (
            "constraints on decisions leave the order of the scores only: predictions are scores, not probabilities; "
            "calibrate = true makes probabilities of them"
        )


def gaps_before(found: Fit) -> Iterator[tuple[str, float]]:
    """The gaps of the vertical model without constraints, where it was trained."""
    for name, value in found.before.get(SERVER, {}).items():
        if name.startswith(GAP):
            yield name, value


def list_bounded(found: Fit) -> Iterator[Bounded]:
    """The constraints in the user's terms, owner by owner, the coordinator first; then those that all hold together."""
    if found.listed:
        yield from found.listed
        return
    owners = [name for name in found.values if name != SERVER]
    prices = dict(zip([SERVER, *owners], found.solution.multipliers, strict=False))
    for owner in sorted(found.values, key=lambda name: name != SERVER):
        told = found.measures[owner]
        for one in found.task.bounded(owner, found.values[owner], prices[owner], told):
            yield replace(one, withheld=math.isnan(one.value) and one.what not in told)
    task = found.task
    if found.values and isinstance(task, Classification) and task.coupled:
        yield from task.bounded(TOGETHER, np.zeros(0), found.solution.coupled_multiplier, found.together)


def list_measured(found: Fit) -> Iterator[Measured]:
    """What everyone tells about the model and, where there is one, about the model without constraints."""
    bounded = {one.what for one in list_bounded(found)}  # shown with its bound, and not again
    for owner, told in found.measures.items():
        hidden = {"loss", *bounded, *(name for name in told if name.startswith("one row of "))}
        numbers = {found.task.measure_name(name): float(value) for name, value in told.items() if name not in hidden}
        withheld = [found.task.measure_name(name) for name in found.withheld.get(owner, ()) if name not in hidden]
        for name in RATES:
            if name in found.before.get(owner, {}) and name in told:
                numbers[f"{found.task.measure_name(name)} without constraints"] = found.before[owner][name]
        yield Measured(owner, numbers, tuple(withheld), found.task.one_class(told))


def find_threshold(file: JobFile, owner: str, model: Model) -> float:
    """The threshold at which an owner decides, from its held-out rows: where its table is, and nowhere else.

    Raises OptionError for an unknown owner or a site, DataError when the table cannot be read.
    """
    path = file.owners.get(owner)
    if path is None or file.superlink or not isinstance(file.task, Classification):
        raise OptionError(
            f"the threshold of owner {owner!r} cannot be found here: the job has no table of this owner; name one of "
            f"{', '.join(file.owners)}, with a job that states where its table is",
            code="FP-OPTION-863",
            key="owners",
        )
    task = replace(file.task, owners=len(file.owners))
    rows = task.read(Path(path))
    held = task.held_out(owner, rows.y, rows.group, rows.cluster)
    kept = held & task.one_of_each(owner, len(held), rows.cluster)
    scores = model.scores(rows.X)[:, 0]
    return own_threshold(task, owner, (scores[~held], rows.y[~held]), (scores[kept], rows.y[kept]))


def versions() -> dict[str, str]:
    """Of Python and of the packages that may change a result."""
    found = {"python": platform.python_version()}
    for name in ("fedpact", "numpy", "scipy", "torch", "ray", "flwr"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _log_progress(progress: Progress) -> None:
    log.info(
        "exchange %d: certificate %.2e %.2e, objective %.6g",
        progress.rounds,
        progress.stationarity,
        progress.feasibility,
        progress.objective,
    )


def _describe(error: BaseException) -> str:
    if isinstance(error, FedpactError):
        return f"{error.code}: {error}"
    return f"{type(error).__name__}: {error}".removesuffix(": ")


class _TextLog(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing: where the disk is full, a file that matters says so."""


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    handler = _TextLog(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    except BaseException as error:
        log.info("ended: %s", _describe(error))
        raise
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
        handler.close()
