"""Does the evidence of a run folder hold? Pure functions that the command and the report share.

    files       every file has the digest that evidence.json states
    signatures  the owners signed, with the keys that the auditor knows, or else with those that the folder names
    statements  they signed this run: its job, its task, its model, and the sums that are given as theirs
    results     run.json, certificate.json, solution.npz and the model say what follows from the statements

and, with the owners at hand, `ask_owners`: each recomputes what it signed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from fedpact.errors import FedpactError, OptionError
from fedpact.federation import Session
from fedpact.federation.evidence import to_bytes
from fedpact.federation.gate import digest_of
from fedpact.federation.identity import signed_by
from fedpact.federation.rules import changed_field
from fedpact.fitting import Fit
from fedpact.fitting.evidence import Evidence, Testimony, digest_of_pair
from fedpact.jobs.evaluation import FORMAT as EVALUATIONS
from fedpact.jobs.evaluation import read_evaluations
from fedpact.jobs.evidence_file import (
    EVALUATION,
    FILE,
    REPORT,
    digest_of_file,
    files_of,
    links_of,
    read_evidence,
    read_strictly,
    signed_part,
)
from fedpact.jobs.job_file import JobFile
from fedpact.jobs.own_code import with_own_code
from fedpact.jobs.run_folder import TASK, WRITTEN, digest_of_model
from fedpact.jobs.running import describe_constraint, list_bounded, list_measured
from fedpact.jobs.word import OF_LEDGER, OF_TASK, words_of_certificate, words_of_run
from fedpact.problem import Certificate, Share
from fedpact.problem.certificate import TOGETHER
from fedpact.report import wording
from fedpact.report.coefficients import read_coefficients
from fedpact.report.page import page
from fedpact.report.record import FILE as RECORD
from fedpact.report.record import Failed, Record, Verification
from fedpact.report.sections import report
from fedpact.solvers import Solution
from fedpact.tasks import Classification, Custom, FileSource, Task, read_task
from fedpact.tasks.base import SERVER, WORD, find_task, found_fields, keys_of
from fedpact.tasks.model import MODULE_FILE, Calibration, LinearModel, Model

#: Two computations of one number agree to this, relative or absolute.
ROUNDING = 1e-9
#: The clocks of an owner and of the coordinator may differ by so much.
CLOCKS = timedelta(days=1)
#: May be deleted when the run is finished.
SPARE = "checkpoint/"
#: What changed or hostile content makes reading code raise.
UNREADABLE = (
    FedpactError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
    BadZipFile,
)
#: Keys of a job that name files: the signed job states their digests.
FILES = ("functions", "model", "output", "server")


def verify_run(folder: str | Path, roster: Mapping[str, str] | None = None, job: JobFile | None = None) -> Verification:
    """Check everything that can be checked without the owners.

    roster: public keys by name that the auditor knows from elsewhere, "server" is the coordinator's; None or empty: the
            keys are those that the folder itself names, which proves that it is consistent, not who signed
    job:    the job of the run, where it gives the coordinator a table: its term of the certificate is recomputed.
            Without it that term, and so the certificate, is the coordinator's word
    """
    folder = Path(folder)
    known = dict(roster or {})
    if not (folder / FILE).exists():
        return _nothing(known, "it is not there: nobody signed this run")
    try:
        return _verify(folder, *read_evidence(folder), known, job)
    except UNREADABLE as error:
        return _nothing(known, str(error))


def _verify(
    folder: Path,
    evidence: Evidence,
    stated: Mapping[str, Any],
    known: Mapping[str, str],
    job: JobFile | None,
) -> Verification:
    signed = {name: one.key for name, one in evidence.said.items() if name != SERVER and one.signed}
    coordinator = ""
    if stated["key"]:
        signature = bytes.fromhex(stated["signature"])
        if signed_by(stated["key"], "evidence", signed_part(stated), signature):
            coordinator = stated["key"]
    failed = [
        *check_links(folder),
        *check_files(folder, stated["files"]),
        *check_owners(evidence, known),
        *check_coordinator(stated["key"], coordinator, known),
        *check_signatures(evidence, signed, known),
        *check_statements(evidence),
        *check_server(evidence, job),
    ]
    if not failed:  # numbers that nobody signed prove nothing
        failed += check_results(folder, evidence)
    own_term = evidence.job.get("server") is not None and (job is None or job.server is None)
    return Verification(signed, coordinator, bool(known), False, tuple(failed), own_term, list_foreign(folder))


def _nothing(known: Mapping[str, str], why: str) -> Verification:
    return Verification({}, "", bool(known), False, (Failed(FILE, why),))


def verify_for_report(folder: Path, record: Record, roster: Mapping[str, str] | None = None) -> Verification | None:
    """As `verify_run`; None for a run in which nobody was to sign."""
    if not (folder / FILE).exists() and not (record.settings.keys() & {"keys", "roster"}) and not roster:
        return None
    return verify_run(folder, roster)


# ------------------------------------------------------------------------------------------------- files and signatures


def check_links(folder: Path) -> Iterator[Failed]:
    for name in links_of(folder):
        yield Failed(name, "it is a link: the file itself is not in the folder")


def list_foreign(folder: Path) -> tuple[str, ...]:
    """Files that no run writes: they are their user's, and no owner knows of them."""
    return tuple(name for name in files_of(folder) if name.partition("/")[0] not in WRITTEN)


def check_owners(evidence: Evidence, known: Mapping[str, str]) -> Iterator[Failed]:
    """Everybody took part whom the auditor's roster names."""
    for owner in known:
        if owner != SERVER and owner not in evidence.prices:
            yield Failed(FILE, "it is in your roster, and took no part in this run", owner)


def check_files(folder: Path, stated: Mapping[str, str]) -> Iterator[Failed]:
    present = set(files_of(folder))
    checkpoint_deleted = not any(name.startswith(SPARE) for name in present)
    for name, digest in stated.items():
        if name not in present:
            if not (checkpoint_deleted and name.startswith(SPARE)):
                yield Failed(name, "it is missing")
        elif digest_of_file(folder / name) != digest:
            yield Failed(name, "it was changed: its digest is not the one in evidence.json")
    for name in sorted(present - stated.keys()):
        yield Failed(name, "it was not there when the run ended")


def check_coordinator(stated: str, signed: str, known: Mapping[str, str]) -> Iterator[Failed]:
    """stated: the key that the folder names as the coordinator's; signed: the same where its signature holds"""
    if stated != signed:
        yield Failed(FILE, "the coordinator's signature does not hold", SERVER)
    if SERVER in known and signed != known[SERVER]:
        yield Failed(FILE, "it is not signed with the coordinator's key that you know", SERVER)


def check_signatures(evidence: Evidence, signed: Mapping[str, str], known: Mapping[str, str]) -> Iterator[Failed]:
    """signed: as in `Verification`; known: the auditor's keys"""
    for owner in evidence.prices:
        if owner == SERVER:
            continue
        if owner not in evidence.said:
            yield Failed(FILE, "it took part and signed nothing", owner)
        elif owner not in signed:
            yield Failed(FILE, "its signature does not hold: the statement, or the signature, was changed", owner)
        elif known and known.get(owner) != signed[owner]:
            yield Failed(FILE, "it is not signed with the key that you know as this owner's", owner)


def check_statements(evidence: Evidence) -> Iterator[Failed]:
    """Everybody signed this run, and the sums that are given as its own."""
    model = digest_of_pair(evidence.w, evidence.free, evidence.coupled, evidence.prices)
    held_out, trained = evidence.cells_together
    shapes = [[], *([size] for size in (evidence.w.size, evidence.coupled.size, held_out, held_out, trained, trained))]
    if changed := find_changed(evidence):
        yield Failed(FILE, f"{changed} of the task is neither that of the signed job nor what a fit may find")
    for name, one in evidence.said.items():
        if name not in evidence.prices:
            yield Failed(FILE, "it signed, and is none of those who took part", name)
        expected = {
            "run": evidence.run,
            "owner": name,
            "job": digest_of(evidence.job),
            "task": "" if name == SERVER else digest_of(evidence.task),
            "model": model,
            "shapes": shapes,
            "sums": sha256(to_bytes(one.sums)).hexdigest(),
        }
        for what, value in expected.items():
            if one.statement.get(what) != value:
                yield Failed(FILE, f"the {what} that it signed is not that of this run", name)


def find_changed(evidence: Evidence) -> str:
    """The first field of the task that does not follow from the job; empty: it is the job's task."""
    kind = find_task(evidence.task.get("task"))
    task = {**evidence.task}
    if issubclass(kind, Custom):
        task.pop("functions")  # where the file is; the job states its digest
    asked = {"evaluating": False, "allowance": 1.0, "relaxed": 0, "constrained": True}
    for name, value in asked.items():
        if task.get(name, value) != value:
            return name
    return changed_field(task, evidence.job, found_fields(kind))


def check_server(evidence: Evidence, job: JobFile | None) -> Iterator[Failed]:
    """The coordinator's term of the certificate is one that the signed job gives it.

    Nobody else signs it, and it can cancel any residual of the others: so it is recomputed, from the task
    where its constraints need no data, or from the coordinator's table, if it is at hand.
    """
    stated = evidence.job.get("server")  # digest of its table; None where the job gives it none
    task = read_task(evidence.task)
    share: Any = None
    if stated is None:
        share = task.server_share()
    elif job is not None and job.server is not None:
        source = FileSource(SERVER, job.server)
        if source.digest() != stated:
            yield Failed(FILE, "its table is not the one that the signed job states", SERVER)
            return
        share = source(with_own_code(task, job, evidence.job))
    own = evidence.said.get(SERVER)
    if (own is not None) != (stated is not None or share is not None):
        yield Failed(FILE, "it has a term in the certificate just where the signed job gives it none", SERVER)
    elif own is not None and share is not None and not _is_same_term(own, evidence.find_own(share)):
        yield Failed(FILE, "its term of the certificate is not the one that follows from the signed job", SERVER)


def _is_same_term(stated: Testimony, found: Testimony) -> bool:
    """Whether two statements of the coordinator's agree, their sums up to rounding."""
    apart = ("run", "sums")
    said = [{name: one.statement[name] for name in one.statement if name not in apart} for one in (stated, found)]
    return agree(*said) and agree(stated.sums.tolist(), found.sums.tolist())


def check_report(folder: Path, found: Verification) -> Iterator[Failed]:
    """The page in the folder, if there is one, is what `fedpact report` makes of it."""
    if not (folder / REPORT).exists():
        return
    record = Record.load(folder)
    coefficients = read_coefficients(folder, record)
    written = replace(found, own_term=read_evidence(folder)[0].job.get("server") is not None)
    evaluations = read_evaluations(folder)
    pages = []
    for pinned in (False, True):
        pages.append(page(report(record, replace(written, pinned=pinned), coefficients, evaluations)))
    if (folder / REPORT).read_bytes() not in [text.encode() for text in pages]:
        yield Failed(REPORT, "it is not the page of this run; write it anew: fedpact report RUN")


# -------------------------------------------------------------------------------------------------------------- results


def check_results(folder: Path, evidence: Evidence) -> Iterator[Failed]:
    """What the other files say follows from what was signed."""
    file = FILE
    try:
        certificate, objective = evidence.certificate()
        file = RECORD
        record = Record.load(folder)
        if read_strictly(folder / RECORD) != json.loads(json.dumps(record.to_json())):
            yield Failed(RECORD, "it states more than a run does, or in another form")
        yield from _compare(RECORD, {"model": (record.model, digest_of_model(folder))})
        file = "solution.npz"
        solution = Solution.load(folder / file)
        yield from _compare_solution(solution, evidence, certificate)
        signed = replace(solution, w=evidence.w, multipliers=list(evidence.prices.values()))
        file = RECORD
        told = _fit(evidence, signed)
        yield from _compare_record(record, evidence, told, certificate, objective)
        file = "certificate.json"
        yield from _compare_certificate(read_strictly(folder / file), record, certificate, objective)
        file = "ledger.json"
        expected = {"exchanges": record.rounds, "owners": [asdict(one) for one in record.sent], WORD: list(OF_LEDGER)}
        yield from _compare_all(file, read_strictly(folder / file), expected)
        file = "model.json"
        if isinstance(told.model, LinearModel):
            yield from _compare_models(folder, told.model)
            file = TASK
            expected = {"task": evidence.task, WORD: list(OF_TASK)}
            stated = read_strictly(folder / file)
            yield from _compare_all(file, stated, {**expected, "job_file": stated.get("job_file")})
        file = MODULE_FILE
        if code := evidence.job.get("code"):
            yield from _compare(file, {"the file": (digest_of_file(folder / file), code)})
        file = EVALUATION
        if (folder / file).exists():
            stated = read_strictly(folder / file)
            written = {"format": EVALUATIONS, "evaluations": stated.get("evaluations"), WORD: ["evaluations"]}
            yield from _compare_all(file, stated, written)
    except UNREADABLE as error:
        yield Failed(file, f"it cannot be read ({error})")


def _fit(evidence: Evidence, solution: Solution) -> Fit:
    """The fit as the owners signed it."""
    told = {name: one.told for name, one in evidence.said.items()}
    before = {name: one.before for name, one in evidence.said.items()}
    found = Fit.of(read_task(evidence.task), solution, told, evidence.prices, before)
    return replace(found, together=evidence.together())


def _compare_record(
    record: Record, evidence: Evidence, told: Fit, certificate: Certificate, objective: float
) -> Iterator[Failed]:
    tol = evidence.job["tol"]
    pair = (tol, tol) if isinstance(tol, int | float) else tuple(tol)
    facts: dict[str, tuple[Any, Any]] = {
        "run": (record.run, evidence.run),
        "asked": (record.asked, told.task.sentence()),
        "tol": (record.tol, pair),
        "stationarity": (record.stationarity, certificate.stationarity),
        "feasibility": (record.feasibility, certificate.feasibility),
        "objective": (record.objective, objective),
        "convex": (record.convex, all(one.statement["convex"] for one in evidence.said.values())),
        "promised": (record.promised, _promised(told.task)),
        "parties": (record.parties, {}),
        WORD: (record.coordinators_word, words_of_run(record.usable)),
    }
    yield from _compare(RECORD, facts)
    yield from _compare_settings(record.settings, evidence.job)
    if record.rounds <= max(one.statement["exchanges"] for one in evidence.owners.values()):
        yield Failed(RECORD, "it counts fewer exchanges than an owner answered")
    roughly = (pair[0] * (1 + ROUNDING), pair[1] * (1 + ROUNDING))
    bounded = list(list_bounded(told))
    missed = any(wording.state(one, pair[1]) == "not met" for one in bounded)
    if record.solved and (missed or not certificate.meets(roughly)):
        yield Failed(RECORD, "it says solved, and the certificate that was signed does not meet the tolerances")
    if not told.unproven:
        for owner in evidence.unproven():
            yield Failed(RECORD, "it says that a promise is made, and the held-out rows do not bear it out", owner)
    if record.trained and (missed or not told.trained):
        yield Failed(RECORD, "it says that a network meets its bounds, and what was signed does not")
    ended = datetime.fromisoformat(record.started) + timedelta(seconds=record.seconds)
    measured = list(list_measured(told))
    for owner, one in evidence.said.items():
        own = {
            "bounded": (_of(owner, record.bounded), _of(owner, bounded)),
            "measured": (_of(owner, record.measured), _of(owner, measured)),
        }
        yield from _compare(RECORD, own, owner)
        time = one.statement["time"]
        if time and abs(datetime.fromisoformat(time) - ended) > CLOCKS:
            yield Failed(FILE, f"it was signed at {time}, the run ended at {ended.isoformat()}", owner)
    stated = {"bounded": (_of(TOGETHER, record.bounded), _of(TOGETHER, bounded))}
    yield from _compare(RECORD, stated, TOGETHER)
    everyone = {one.owner for one in record.bounded if one.owner != TOGETHER}
    everyone |= {one.owner for one in record.measured}
    for owner in sorted(everyone - evidence.said.keys()):
        yield Failed(RECORD, "it has numbers of this owner, which signed nothing", owner)


def _compare_certificate(
    stated: Mapping[str, Any], record: Record, certificate: Certificate, objective: float
) -> Iterator[Failed]:
    expected = {
        **asdict(certificate),
        "objective": objective,
        "status": record.status,
        "reason": record.reason,
        "tol": record.tol,
        "constraints": [describe_constraint(one) for one in record.bounded],
        WORD: words_of_certificate(record.usable),
    }
    yield from _compare_all("certificate.json", stated, expected)


def _compare_solution(solution: Solution, evidence: Evidence, certificate: Certificate) -> Iterator[Failed]:
    prices = [price.tolist() for price in evidence.prices.values()]
    facts = {
        "w": (solution.w.tolist(), evidence.w.tolist()),
        "multipliers": ([price.tolist() for price in solution.multipliers], prices),
        "coupled_multiplier": (solution.coupled_multiplier.tolist(), evidence.coupled.tolist()),
        "certificate": (asdict(solution.certificate), asdict(certificate)),
    }
    yield from _compare("solution.npz", facts)


def _compare_models(folder: Path, signed: LinearModel) -> Iterator[Failed]:
    about = read_strictly(folder / "model.json")
    expected = signed.about()
    if isinstance(signed, Model) and "calibration" in about:  # found by sums that nobody signs, and marked so
        expected = replace(signed, calibration=Calibration(**about["calibration"])).about()
    yield from _compare_all("model.json", about, expected)
    with ZipFile(folder / "model.npz") as file:
        names = sorted(name.removesuffix(".npy") for name in file.namelist())
    arrays = {name: found.tolist() for name, found in signed.arrays().items()}
    yield from _compare("model.npz", {"the list of arrays": (names, sorted(arrays))})
    stated = {name: found.tolist() for name, found in LinearModel.load(folder).arrays().items()}
    yield from _compare_all("model.npz", stated, arrays)


def _compare_settings(stated: Mapping[str, Any], job: Mapping[str, Any]) -> Iterator[Failed]:
    """Plain values of keys of the job, as the record has them, are those of the job that was signed."""
    declared = {name: field for name, (field, *_) in keys_of(find_task(job.get("task"))).items()}
    solving = stated.get("solve")
    for name, value in {**(solving if isinstance(solving, Mapping) else {}), **stated}.items():
        signed = job.get(declared.get(name, name))
        plain = isinstance(value, str | int | float) and isinstance(signed, str | int | float)
        if plain and name not in FILES and not agree(value, signed):
            yield Failed(RECORD, f"{name} in its settings is not that of the signed job")


def _promised(task: Task) -> str:
    return task.promise_in_words() if isinstance(task, Classification) else ""


def _compare_all(file: str, stated: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[Failed]:
    """As `_compare`, and nothing else is stated."""
    yield from _compare(file, {name: (stated.get(name), value) for name, value in expected.items()})
    for name in sorted(stated.keys() - expected.keys()):
        yield Failed(file, f"{name} is not what was signed")


def _compare(file: str, facts: Mapping[str, tuple[Any, Any]], owner: str = "") -> Iterator[Failed]:
    """facts: by name, what the file states, and what follows from the evidence"""
    for name, (stated, signed) in facts.items():
        if not agree(stated, signed):
            yield Failed(file, f"{name} is not what was signed", owner)


def agree(a: Any, b: Any) -> bool:
    """Whether two contents are the same, numbers up to rounding."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(agree(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(agree, a, b))
    if isinstance(a, int | float) and isinstance(b, int | float):
        unknown = math.isnan(a) and math.isnan(b)
        return unknown or math.isclose(a, b, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return bool(a == b)


def _of(owner: str, told: Any) -> list[dict[str, Any]]:
    return [asdict(one) for one in told if one.owner == owner]


# ------------------------------------------------------------------------------------------------------ other evidence

#: What an owner signs once in a run: two of it, each with its signature, show who said two things.
ONCE = ("job", "task", "table", "model", "names", "numbers", "values", "before", "feasibility", "violation", "proven")


def compare_with(folder: Path, other: Path) -> Iterator[Failed]:
    """Other evidence of the same run: another folder, or what an owner kept in its state folder (RUN.signed)."""
    evidence = read_evidence(folder)[0]
    same_run = False
    for owner, one in read_testimonies(other):
        here = evidence.said.get(owner)
        if one.statement.get("run") != evidence.run or here is None:
            continue
        same_run = True
        if one.key != here.key or not one.signed:
            yield Failed(FILE, "it did not sign the other evidence with the key that it has here", owner)
            continue
        when = one.statement.get("time")
        for name in ONCE:
            if not agree(one.statement.get(name), here.statement.get(name)):
                yield Failed(FILE, f"it signed another {name} in this run, at {when}", owner)
    if not same_run:
        yield Failed(FILE, f"{other.name} is of another run: there is nothing to compare")


def read_testimonies(other: Path) -> list[tuple[str, Testimony]]:
    """What owners signed, by owner. OptionError when it cannot be read."""
    try:
        if other.is_dir():
            return list(read_evidence(other)[0].owners.items())
        kept = [json.loads(line) for line in other.read_text(encoding="utf-8").splitlines()]
        return [(one["statement"]["owner"], Testimony(**one, sums=np.zeros(0))) for one in kept]
    except UNREADABLE as error:
        raise OptionError(
            f"{other} holds nothing that owners signed ({error}); give the folder of a run, or RUN.signed of a site",
            code="FP-OPTION-676",
            key="with",
        ) from error


# ------------------------------------------------------------------------------------------------------------ ask again


def ask_owners(folder: str | Path, file: JobFile, session: Session) -> Iterator[Failed]:
    """The owners of the job recompute what they signed: the same table, and the same numbers up to rounding.

    session: a new one, with the owners' keys or their roster
    """
    evidence = read_evidence(Path(folder))[0]
    try:
        again = _gather_again(evidence, file, session)
        certificate = again.certificate()
    except FedpactError as error:
        yield Failed(FILE, f"the owners cannot be asked again ({error})")
        return
    for owner, one in evidence.said.items():
        now = again.said.get(owner)
        if now is None or now.key != one.key:
            yield Failed(FILE, "asked again, it does not sign with the key of this run", owner)
        elif now.statement["table"] != one.statement["table"]:
            yield Failed(FILE, "its table is not the one that it signed for", owner)
        else:
            names = ("values", "names", "numbers", "before", "feasibility", "violation")
            yield from _compare(FILE, {n: (one.statement[n], now.statement[n]) for n in names}, owner)
    signed, objective = evidence.certificate()
    before = {**asdict(signed), "objective": objective}
    after = {**asdict(certificate[0]), "objective": certificate[1]}
    if not agree(before, after):
        yield Failed(FILE, "asked again, the owners' sums give another certificate")


def _gather_again(evidence: Evidence, file: JobFile, session: Session) -> Evidence:
    sources: dict[str, FileSource | None] = dict.fromkeys(file.owners)  # sites know where their data are
    if not file.superlink:
        sources = {name: FileSource(name, path) for name, path in file.owners.items()}
    session.open(sources, evidence.job)
    if any(one.statement["masked"] for one in evidence.said.values()):
        session.secure()
    task = with_own_code(read_task(evidence.task), file, evidence.job)
    evidence = replace(evidence, task=task.stated())
    if file.server is None:
        return evidence.gather(session, task.server_share())
    server = FileSource(SERVER, file.server)(task)
    assert isinstance(server, Share)  # the scaling is known
    return evidence.gather(session, server)
