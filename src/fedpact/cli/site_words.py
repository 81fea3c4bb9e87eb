"""What a site's person reads: a job that waits for approval, and what has left the table, in sentences."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from datetime import datetime
from typing import Any

from fedpact.errors import FedpactError
from fedpact.federation.policy import SitePolicy
from fedpact.federation.releases import MONTH, Releases, RunReleases
from fedpact.federation.rules import method_stated, told_labels
from fedpact.tasks import Task
from fedpact.tasks.base import find_task, listed, read_task

#: What a run may find out besides its model: the key of the job, and what leaves the site for it.
EXTRAS = {
    "compare": "the model without constraints as well: a second solve, and its measures",
    "curves": "counts of scores in bins, in sums",
    "trade_off": "models for other bounds: up to 60 exchanges more",
    "inference": "once, sums from which standard errors follow, and what is near the boundaries of our own constraints",
}
#: Keys of a job that are settings of its solves, with their defaults.
SETTINGS: Mapping[str, Any] = {"method": "auto", "max_rounds": None, "seed": 0, "server": None, **dict.fromkeys(EXTRAS)}


def describe_job(policy: SitePolicy, entry: Mapping[str, Any]) -> Iterator[str]:
    """What would run, a line each: who asks, which columns, what is bounded, what leaves, what is unusual about it."""
    job = entry["stated"]
    names = {public: name for name, public in policy.coordinators.items()}
    owners = list(entry["owners"])
    asks = names.get(entry.get("coordinator", ""), "a coordinator of the policy")
    yield f"{asks} asks; {_listed(owners)} take part"
    task = _task_of(job)
    if task is None:
        yield f"task {job.get('task')!r}, which this version cannot put into words: --all shows every key"
    else:
        yield f"what runs: {task.sentence()}"
    yield "columns of ours that it reads: " + "; ".join(_columns(job, policy.name))
    method = method_stated(job)
    how = f"the method {method}" if method not in ("", "auto") else f"one of the methods {_listed(policy.methods)}"
    hidden = "only sums under masks over all owners" if policy.secure_sums else "sums, which it may see owner by owner"
    yield f"how: {how}; at most {policy.exchanges} answers, of which it sees {hidden}"
    rough = f", rounded, none on fewer than {policy.small_cells} rows" if policy.small_cells else ""
    yield (
        "of us alone it is told at the end: the price of each of our bounds, by how much it is missed, and the "
        f"measures of the model{rough}; in at most {policy.questions} answers"
    )
    if parties := told_labels(job, owners, policy.name):
        yield f"what goes down: {_label_down(parties, str(job.get('label')))}"
    for name, words in EXTRAS.items():
        if job.get(name) not in (None, False, "none"):
            yield f"{name}: {words}"
    unusual = list(_unusual(job))
    yield "as by default but for: " + ("; ".join(unusual) or "nothing")


def _task_of(job: Mapping[str, Any]) -> Task | None:
    """The task that a job states; None where it states none that this version knows."""
    try:
        known = {f.name for f in fields(find_task(job.get("task")))}
        stated = {name: value for name, value in job.items() if name in known}
        if isinstance(stated.get("code"), str):
            stated["code"] = None
        return read_task({"task": job["task"], **stated})
    except (FedpactError, TypeError, ValueError, KeyError, AttributeError):
        return None


def _columns(job: Mapping[str, Any], owner: str) -> Iterator[str]:
    columns = job.get("columns") or ()
    if isinstance(columns, Mapping):
        columns = columns.get(owner) or ()
    yield f"features {_listed(list(columns))}"
    for name in ("label", "event", "group", "sample_weight", "cluster", "offset", "id"):
        if job.get(name):
            yield f"{name.replace('_', ' ')} {job[name]}"


def _unusual(job: Mapping[str, Any]) -> Iterator[str]:
    """What a job states otherwise than by default, besides what the sentences before said."""
    said = {
        "task",
        "columns",
        "label",
        "event",
        "group",
        "sample_weight",
        "cluster",
        "offset",
        "id",
        "owners",
        "classes",
        "groups",
    }
    said |= {"constraints", "bound", "tol", "code", *EXTRAS}
    defaults: dict[str, Any] = dict(SETTINGS)
    try:
        for f in fields(find_task(job.get("task"))):
            default = f.default if f.default_factory is MISSING else f.default_factory()
            defaults[f.name] = listed(default)
    except FedpactError:
        return
    for name, value in job.items():
        if name not in said and name in defaults and value != defaults[name]:
            yield f"{name} = {json.dumps(value, ensure_ascii=False)}"


def describe_releases(policy: SitePolicy, releases: Releases) -> Iterator[str]:
    """The release ledger: the budget of the table, then a sentence for each run."""
    yield (
        f"{policy.name}, table {policy.data.name}. Budget of {MONTH} days: {releases.released} of {policy.releases} "
        f"answers, {releases.told} of {policy.questions_a_month} that told numbers about us alone; "
        f"{releases.begun_since(1)} of {policy.runs_a_day} runs of a day"
    )
    names = {public: name for name, public in policy.coordinators.items()}
    for run in releases.runs.values():
        yield describe_run(run, names.get(run.coordinator, "a coordinator"), policy)


def describe_run(run: RunReleases, asked_by: str, policy: SitePolicy) -> str:
    """One run in a sentence."""
    day = datetime.fromisoformat(run.time)
    covered = (
        f"all of them sums under masks over {len(run.owners)} owners" if not run.bare else f"{run.bare} in the clear"
    )
    parts = [f"{_count(run.exchanges, 'answer')}, {_size(run.bytes)}"]
    if run.sums:
        parts[0] += f", {covered}"
    if run.rows < float("inf"):
        parts.append(f"at least {run.rows:g} effective rows behind every gradient and Hessian")
    told = ", ".join(f"{name} ({number})" for name, number in sorted(run.told.items()))
    about = _count(run.questions, "answer")
    parts.append(f"{about} with numbers about us alone" + (f": {told}" if told else ""))
    if run.withheld:
        parts.append(f"{_count(run.withheld, 'answer')} with small cells withheld")
    if run.label_to:
        parts.append(f"down went {_label_down(run.label_to, run.label)}")
    if run.errors:
        parts.append(f"{_count(run.errors, 'order')} refused or failed, of {policy.errors}")
    parts.append(f"budget of the run: {run.exchanges} of {policy.exchanges}")
    about_label = f", about {run.label}" if run.label else ""
    return f"run {run.run}, {day.day} {day:%B %Y}, asked by {asked_by}{about_label}: {'; '.join(parts)}"


def _label_down(parties: Iterable[str], label: str) -> str:
    return f"slopes that tell {_listed(parties)} the label {label} of everyone in common and, about, the pooled scores"


def _listed(names: Any) -> str:
    return ", ".join(names) or "none"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count = round(count / 1000)
    return f"{count} GB"
