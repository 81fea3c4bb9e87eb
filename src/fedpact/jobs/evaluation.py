"""The model of a run folder on tables that nobody trained on."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from fedpact.alignment import normalize
from fedpact.data.cells import read_cells
from fedpact.errors import DataError, OptionError
from fedpact.federation import Engine, Session
from fedpact.federation.evidence import commit
from fedpact.federation.identity import Identity
from fedpact.federation.wire import write_atomically
from fedpact.fitting import evaluate
from fedpact.fitting.newcomers import evaluate_parties, score_newcomers
from fedpact.fitting.sources import Held
from fedpact.jobs.evidence_file import EVALUATION, read_evidence
from fedpact.jobs.evidence_file import FILE as EVIDENCE
from fedpact.jobs.job_file import JobFile, read_job
from fedpact.jobs.own_code import require_code
from fedpact.jobs.run_folder import TASK, load_run
from fedpact.jobs.running import party_sources, session_settings
from fedpact.solvers import Solution
from fedpact.statistics.evaluation import Evaluation
from fedpact.tasks import PartyModel, Task, Vertical, load_model, read_task
from fedpact.tasks.base import SERVER, WORD, digest_of_files, refuse_trained
from fedpact.tasks.scored import ScoredTask
from fedpact.types import Vector

#: Of evaluation.json.
FORMAT = "fedpact-evaluations-1"


@dataclass(frozen=True, eq=False)
class Trained:
    """The model of a run, as its owners agreed on it.

    job: the file of its job, as the run names it
    """

    task: Task
    w: Vector
    job: Path

    @classmethod
    def load(cls, folder: Path) -> Trained:
        """From the folder of a run; no code of it can be run yet. OptionError when there is no model in it."""
        load_run(folder)
        try:
            stated = json.loads((folder / TASK).read_text())
            task = read_task(stated["task"])
            job = (folder / stated["job_file"]).resolve()
            if isinstance(task, ScoredTask) and task.has_code:
                task = task.with_code_at("")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise OptionError(
                f"{folder / TASK} cannot be read ({error}); evaluate needs the folder of a run that trained a model",
                code="FP-OPTION-837",
            ) from error
        return cls(task, Solution.load(folder / "solution.npz").w, job)

    def with_code(self, code: Path | None, folder: Path, file: JobFile) -> Trained:
        """The same with the Python file that builds its model: one that the user names, or that of this job."""
        task = self.task
        if not isinstance(task, ScoredTask) or task.code is None or file.superlink:  # sites have their own
            return self
        own = file.task.code if isinstance(file.task, ScoredTask) else None
        named = code or (None if own is None else Path(own.path))
        return replace(self, task=task.with_code_at(require_code(named, folder, task.code.digest)))


def evaluate_run(
    folder: Path,
    file: JobFile,
    tables: Mapping[str, Path] | None = None,
    engine: Engine | str | None = None,
    *,
    absent: Collection[str] = (),
    code: Path | None = None,
) -> Evaluation:
    """Measure the model of the run in this folder on tables that nobody trained on, and add the result to the folder.

    file:   the job of the run
    tables: by owner, in the place of the job's [holdout]; sites have their own
    engine: in the place of the job's own
    absent: of a vertical model: parties that do not take part. They count as if everyone had the mean of their columns
    code:   the Python file that builds the model, which is run, where that of the job is another one by now

    Raises OptionError when nobody has a table for it, and what `fedpact.fitting.evaluate` raises.
    """
    trained = Trained.load(folder).with_code(code, folder, file)
    if isinstance(trained.task, Vertical):
        return evaluate_party_run(folder, file, trained.task, tables, engine, absent)
    known: Mapping[str, Held] = file.owners
    owners: Mapping[str, Held] = file.holdout if tables is None else tables
    if file.superlink:
        known = {}
        owners = dict.fromkeys(file.owners)  # sites know where their tables are
    if not owners:
        raise OptionError(
            "there is no table that nobody trained on; state some in [holdout] of the job, or by --table",
            code="FP-OPTION-838",
        )
    if unknown := [owner for owner in owners if owner not in file.owners]:
        raise OptionError(
            f"{unknown[0]!r} is not an owner of this run; its owners are: {', '.join(file.owners)}",
            code="FP-OPTION-839",
        )
    refuse_signed(folder, file, owners)
    with open_session(file, engine) as session:
        found = evaluate(trained.task, trained.w, owners, session, trained=known)
    return add(folder, found)


def refuse_signed(folder: Path, file: JobFile, owners: Mapping[str, Held]) -> None:
    """Raise DataError for a table that its owner signed to have trained on, whatever its file is called by now."""
    if not (folder / EVIDENCE).exists():
        return
    evidence, _ = read_evidence(folder)
    for name, held in owners.items():
        if held is None or name not in file.keys or name not in evidence.said:
            continue
        assert isinstance(held, str | Path)
        commitment = commit(Identity.load(file.keys[name]), digest_of_files(Path(held)))
        if commitment == evidence.said[name].statement["table"]:
            refuse_trained(name)


def evaluate_party_run(
    folder: Path,
    file: JobFile,
    task: Vertical,
    tables: Mapping[str, Path] | None = None,
    engine: Engine | str | None = None,
    absent: Collection[str] = (),
) -> Evaluation:
    """The same of a vertical model, whose parties have different columns. absent: parties that do not take part"""
    model = load_model(folder)
    assert isinstance(model, PartyModel)
    given = file.holdout if tables is None else tables
    server, sources = choose_tables(file, folder, model, given, absent)
    if server is None and SERVER in (task.label_holder, task.group_holder):
        raise OptionError(
            "the label or the groups are with the coordinator: give its table of the new people, server=FILE",
            code="FP-OPTION-954",
        )
    for holder in (task.label_holder, task.group_holder if task.protected else task.label_holder):
        if holder in absent:
            raise DataError(
                f"{holder!r} holds the labels or the groups, without which nothing can be measured; it must take part",
                code="FP-DATA-982",
            )
    own = {party: Path(path) for party, path in file.owners.items() if party in given and Path(path).exists()}
    same = [digest_of_files(path) == digest_of_files(given[party]) for party, path in own.items()]
    # Without a party the people of the training show what that party is worth.
    if same and all(same) and not absent and server is None:
        refuse_trained(next(iter(own)))
    with open_session(file, engine) as session:
        found = evaluate_parties(task, model, sources, session, server=server)
    return add(folder, found)


def score_party_run(
    folder: Path,
    file: JobFile,
    tables: Mapping[str, Path],
    engine: Engine | str | None = None,
    absent: Collection[str] = (),
) -> tuple[list[str], Vector]:
    """Ids, and scores of the model of a vertical run, of the people that all parties have.

    tables: by party. Whoever reads all of them may see all ids, so they are matched in the clear. Sites have their own:
            people are matched as in training, and are those of the coordinator's table if it gives one; else they have
            numbers, in the order in which each site has its rows
    """
    task = Trained.load(folder).task
    model = load_model(folder)
    assert isinstance(task, Vertical)
    assert isinstance(model, PartyModel)
    server, sources = choose_tables(file, folder, model, tables, absent)
    mode = task.alignment if file.superlink else "id"
    with open_session(file, engine) as session:
        found = score_newcomers(task, model, sources, session, server=server, alignment=mode)
    if found.own is not None:
        return normalize(SERVER, task.people(SERVER, found.own).ids), found.scores
    if file.superlink:
        return [str(number) for number in range(1, found.scores.size + 1)], found.scores
    present = {party: table for party, table in tables.items() if party not in absent}
    ids = {party: task.people(party, read_cells(table)).ids for party, table in present.items()}
    texts = {party: normalize(party, own) for party, own in ids.items()}
    common = sorted(set.intersection(*map(set, texts.values())))  # the order in which `align_parties` has them
    return common, found.scores


def choose_tables(
    file: JobFile, folder: Path, model: PartyModel, tables: Mapping[str, Path], absent: Collection[str]
) -> tuple[Path | None, dict[str, Held]]:
    """The coordinator's table of these, and what the parties hold. OptionError unless they are those of the run."""
    own = {party: path for party, path in tables.items() if party != SERVER}
    if unknown := [party for party in (*own, *absent) if party not in model.columns]:
        raise OptionError(
            f"{unknown[0]!r} is not a party of this run; they are {', '.join(model.columns)}", code="FP-OPTION-952"
        )
    present = [party for party in model.columns if party not in absent]
    if file.superlink:
        if own or not present:
            raise OptionError(
                "the parties of this run are Flower sites, which have their own tables, and one of them at least takes "
                "part; give the coordinator's table at most, server=FILE",
                code="FP-OPTION-951",
            )
        return tables.get(SERVER), dict.fromkeys(present)
    lacking = [party for party in present if party not in own]
    if lacking or not present:
        raise OptionError(
            f"{', '.join(lacking) or 'all parties'}: no table; the gap was bounded with all parties. Give one for "
            "each, NAME=FILE, or say who is missing, --absent NAME, and see with `fedpact evaluate` what the gap is "
            "then",
            code="FP-OPTION-953",
        )
    return tables.get(SERVER), party_sources(file, folder, {party: own[party] for party in present})


def open_session(file: JobFile, engine: Engine | str | None) -> Session:
    """Where the owners of a job are asked about a model that is there."""
    settings = {name: value for name, value in session_settings(file).items() if name != "keys"}  # nothing is signed
    return Session(engine or file.solve.get("engine", "in-process"), **settings)


def add(folder: Path, found: Evaluation) -> Evaluation:
    """Append to evaluation.json; the evaluation with its time. Earlier ones stay: who looks twice has looked twice."""
    dated = replace(found, time=datetime.now(UTC).isoformat(timespec="seconds"))
    stated = [one.to_json() for one in (*read_evaluations(folder), dated)]
    text = json.dumps({"format": FORMAT, WORD: ["evaluations"], "evaluations": stated}, indent=1, allow_nan=False)
    # at once: an interrupted one leaves the history as it was; its user's alone, since it holds owners' own numbers
    write_atomically(folder / EVALUATION, f"{text}\n".encode(), durable=False)
    return dated


def read_evaluations(folder: Path) -> tuple[Evaluation, ...]:
    """All evaluations of a run, the oldest first. OptionError for a file that is not such a list."""
    path = folder / EVALUATION
    try:
        found = json.loads(path.read_text())
        if found["format"] != FORMAT:
            raise ValueError(f"this is not {FORMAT}")
        return tuple(map(Evaluation.from_json, found["evaluations"]))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OptionError(
            f"{path} cannot be read as a list of evaluations ({error}); move it away", code="FP-OPTION-315"
        ) from error


def refuse_code(folder: Path) -> None:
    """OptionError for a model that Python code builds, whose file only the folder of the run names."""
    task = Trained.load(folder).task
    if isinstance(task, ScoredTask) and task.code is not None:
        require_code(None, folder, task.code.digest)


def job_of(folder: Path, job: Path | None = None) -> JobFile:
    """The job of a run. job: where it is, if not where the run names it"""
    return read_job(job or Trained.load(folder).job)
