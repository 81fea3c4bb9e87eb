"""A job run: from the file to the folder that holds the model, its certificate, its history and what left whom."""

from __future__ import annotations

import csv
import json
import logging
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import combinations
from pathlib import Path

import numpy as np

from fedpact.errors import OptionError
from fedpact.fitting import Fitted, Fitting
from fedpact.jobs.job_file import JobFile
from fedpact.problem import Share
from fedpact.report.record import FILE, Bounded, Measured, Record, Sent, Step
from fedpact.report.tracking import forget, tracker
from fedpact.solve import Engine
from fedpact.solvers import Progress
from fedpact.tasks import Job, share_from_file, sources
from fedpact.tasks.confidence import interval
from fedpact.tasks.model import Model

log = logging.getLogger("fedpact")

PARITY = {
    "loss": "gap in mean loss",
    "demographic_parity": "gap in mean probability",
    "equal_opportunity": "gap in mean probability on positives",
}


def run_job(
    file: JobFile,
    *,
    engine: Callable[[Job], Engine] | str | None = None,
    resume: bool = False,
    force: bool = False,
    callbacks: Iterable[Callable[[Progress], None]] = (),
) -> Record:
    """Run a job and write its folder.

    engine: in the place of the job's own; resume: go on with the run in the folder; force: replace a run that is there

    Raises OptionError for a folder that cannot be written or holds a run, and what `fp.solve` raises.
    """
    folder = file.output
    prepare(folder, resume, force)
    started, began = datetime.now(UTC), time.perf_counter()
    patient = {"deadline": 600.0, "retries": 30} if file.superlink else {}  # time to restart a site
    options = {**patient, **{key: value for key, value in file.solve.items() if key != "engine"}}
    where = engine if engine is not None else file.solve.get("engine")
    with _log_file(folder / "log.txt"), ExitStack() as stack:
        trackers = [stack.enter_context(tracker(name, folder, resume)) for name in file.track]
        fitting = Fitting(
            (lambda job: dict.fromkeys(file.owners)) if file.superlink else (lambda job: sources(job, file.owners)),
            regularization=file.regularization if file.job.task != "linear_qp" else 0.0,
            server=None if file.server is None else (lambda job: _server(job, file.server)),
            engine=where,
            checkpoint=folder / "checkpoint",
            resume=resume,
            record=folder / "messages.log" if file.messages else None,
            callbacks=[_logged, *trackers, *callbacks],
            **options,
        )
        log.info("%s: %s, %d owners", file.title, file.job.task, len(file.owners))
        fitted = fitting.run(file.job, compare=file.compare)
        log.info("%r: %s", fitted.solution, fitted.solution.reason)
        name = where if isinstance(where, str) else "flower" if file.superlink else "in-process"
        record = _record(file, fitted, name, started.isoformat(timespec="seconds"), time.perf_counter() - began)
        write(folder, fitted, record)  # before trackers end: one that fails takes nothing away
        for tracking in trackers:
            tracking.conclude(fitted.solution)
    return record


def write(folder: Path, fitted: Fitted, record: Record) -> None:
    """Everything that a run leaves; docs/reference/run-folder.md describes it."""
    solution = fitted.solution
    if fitted.job.task in ("neyman_pearson", "group_fairness"):
        Model.of(fitted.job, solution.w).save(folder)
    solution.save(folder / "solution.npz")
    certificate = {
        "status": record.status,
        "reason": record.reason,
        "tol": list(record.tol),
        **{key: value for key, value in asdict(solution.certificate).items() if key != "violations"},
        "violations": solution.certificate.violations,
        "objective": solution.objective,
        "constraints": [asdict(one) for one in record.bounded],
    }
    (folder / "certificate.json").write_text(json.dumps(certificate, indent=1) + "\n")
    ledger = {"exchanges": record.rounds, "owners": [asdict(one) for one in record.sent]}
    (folder / "ledger.json").write_text(json.dumps(ledger, indent=1) + "\n")
    with (folder / "history.csv").open("w", newline="") as target:
        rows = csv.writer(target)
        names = list(dict.fromkeys(name for step in record.history for name in step.violations))
        rows.writerow(
            ["exchanges", "bytes", "objective", "stationarity", "feasibility", *(f"violation {n}" for n in names)]
        )
        for step in record.history:
            told = [step.rounds, step.bytes, step.objective, step.stationarity, step.feasibility]
            rows.writerow([*told, *(step.violations.get(n, "") for n in names)])
    record.save(folder)  # last: a folder with a record is complete


def prepare(folder: Path, resume: bool, force: bool) -> None:
    """Make the folder of a run. OptionError when it cannot be written, or holds a run that is not to be touched."""
    try:
        if force and (folder / "checkpoint").is_dir():
            shutil.rmtree(folder / "checkpoint")
        elif (folder / "checkpoint").exists() and not resume:
            raise OptionError(
                f"{folder} holds a run already; --resume goes on with it, --force replaces it, or state another folder"
            )
        if force:
            forget(folder)
        if not resume:
            (folder / FILE).unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "log.txt").open("a").close()
    except OSError as error:
        raise OptionError(f"the output folder {folder} cannot be written ({error}); state another one") from error


def _server(job: Job, path: Path | None) -> Share:
    assert path is not None
    made = share_from_file(job, "server", path)
    assert isinstance(made, Share)  # scaling is known by now
    return made


# -------------------------------------------------------------------------------------------------- what is recorded


def _record(file: JobFile, fitted: Fitted, engine: str, started: str, seconds: float) -> Record:
    solution, job = fitted.solution, fitted.job
    status, reason = solution.status, solution.reason
    if solution.solved and fitted.short:
        status = "stalled"
        reason = f"no bounds were found that give {', '.join(fitted.short)} a recall of {job.min_recall:g}"
    return Record(
        title=file.title,
        asked=asked(job),
        status=status,
        reason=reason,
        method=solution.method,
        engine=engine,
        tol=solution.tol,
        stationarity=solution.certificate.stationarity,
        feasibility=solution.certificate.feasibility,
        objective=solution.objective,
        rounds=fitted.communication.rounds,
        convex=solution.convex,
        started=started,
        seconds=seconds,
        bounded=tuple(bounded(fitted)),
        measured=tuple(measured(fitted)),
        history=tuple(
            Step(r.rounds, r.bytes, r.objective, r.stationarity, r.feasibility, r.violations)
            for r in solution.history.outer
        ),
        sent=tuple(Sent(name, **asdict(traffic)) for name, traffic in fitted.communication.owners.items()),
        settings={**file.settings, "features used": list(job.encoding.names)},
        versions=versions(),
        notes=(
            *solution.history.notes,
            f"{fitted.trials} solves in all, {fitted.communication.rounds} exchanges",
            "rates and their intervals are of the rows that the model was trained on; new rows may do worse",
        ),
    )


def asked(job: Job) -> str:
    """The constraint of a job in a sentence."""
    everyone = f"at each of {job.owners} owners"
    limit = "its own bound" if isinstance(job.bound, Mapping) else f"{job.bound:g}"
    if job.task == "neyman_pearson":
        name = job.classes[job.protected_class]
        if job.min_recall:
            return (
                f"A recall of at least {job.min_recall:g} on {job.label} = {name} {everyone}; least loss on the others."
            )
        return f"Mean loss on {job.label} = {name} of at most {limit} {everyone}; least loss on the others."
    if job.task == "group_fairness":
        gap = f"{PARITY[job.parity].capitalize()} between groups of {job.group}"
        return f"{gap} of at most {limit} {everyone}; least loss on all rows."
    if job.task == "linear_qp":
        return f"A quadratic program with linear equalities {everyone}."
    return f"The objective and constraints of {Path(job.functions).name} {everyone}."


def bounded(fitted: Fitted) -> Iterator[Bounded]:
    """The constraints in the user's terms, owner by owner, the server first."""
    job = fitted.job
    prices = dict(
        zip(["server", *(n for n in fitted.values if n != "server")], fitted.solution.multipliers, strict=True)
    )
    for owner in sorted(fitted.values, key=lambda name: name != "server"):
        values, price = fitted.values[owner], prices[owner]
        if job.task == "neyman_pearson":
            limit, what = job.bound_of(owner), f"mean loss on {job.label} = {job.classes[job.protected_class]}"
            yield Bounded(owner, what, float(values[0] + limit), limit, float(price[0]))
            if job.min_recall:
                missed = 1 - fitted.measures[owner]["recall"]
                what = f"share of {job.label} = {job.classes[job.protected_class]} that is missed"
                yield Bounded(owner, what, missed, 1 - job.min_recall, float("nan"))
        elif job.task == "group_fairness":
            limit = job.bound_of(owner)
            for k, (a, b) in enumerate(combinations(job.groups, 2)):
                two, both = values[2 * k : 2 * k + 2], price[2 * k : 2 * k + 2]
                what = f"{PARITY[job.parity]} between {job.group} = {a} and {b}"
                yield Bounded(owner, what, float(two.max() + limit), limit, float(both.max()))
        else:
            for j, value in enumerate(np.abs(values) if job.task == "linear_qp" else values):
                cost = abs(price[j]) if job.task == "linear_qp" else price[j]  # an equality costs in either direction
                yield Bounded(owner, f"constraint {j + 1}", float(value), 0.0, float(cost))


def measured(fitted: Fitted) -> Iterator[Measured]:
    """What everyone tells about the model and, where there is one, about the model without constraints."""
    job = fitted.job
    named = {f"group {g}": f"{job.group} = {level}" for g, level in enumerate(job.groups)} if job.group else {}
    if job.task == "neyman_pearson":
        named = {"protected rows": f"rows with {job.label} = {job.classes[job.protected_class]}"}

    def words(key: str) -> str:
        for old, new in named.items():
            if key == old or key.endswith(f" {old}"):
                return key.removesuffix(old) + new
        return key

    for owner, told in fitted.measures.items():
        numbers = {words(key): value for key, value in told.items() if key not in ("loss", "bound for recall")}
        for key in ("recall", "specificity", "accuracy"):
            if key in fitted.before.get(owner, {}) and key in told:
                numbers[f"{key} without constraints"] = fitted.before[owner][key]
        intervals = {}
        if "protected rows" in told:
            intervals["recall"] = interval(told["recall"], told["protected rows"])
        yield Measured(owner, numbers, intervals)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("fedpact", "numpy", "scipy", "ray", "flwr"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _logged(progress: Progress) -> None:
    log.info(
        "exchange %d: certificate %.2e %.2e, objective %.6g",
        progress.rounds,
        progress.stationarity,
        progress.feasibility,
        progress.objective,
    )


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    except BaseException as error:
        log.info("ended: %s", error)
        raise
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
        handler.close()
