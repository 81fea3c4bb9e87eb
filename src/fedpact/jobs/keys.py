"""The keys of a job file, declared once; the reader, `fedpact init`, the reference page and the schema follow.

Keys of a task are the fields of its class (`fedpact.tasks.base.key`); all others are declared here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from fedpact.federation import ENGINES
from fedpact.report.tracking import TRACKERS
from fedpact.solvers import METHODS
from fedpact.tasks import TASKS, keys_of


@dataclass(frozen=True)
class Kind:
    """What a value must be: Python types, words for the message, and its JSON schema."""

    types: tuple[type, ...]
    words: str
    schema: Mapping[str, Any]


_TEXTS = {"type": "array", "items": {"type": "string"}}
_LEVEL = {"type": ["string", "number"]}
KINDS: dict[str, Kind] = {
    "text": Kind((str,), 'a text in quotes, such as "age"', {"type": "string"}),
    "file": Kind((str,), "the path of a file in quotes", {"type": "string"}),
    "level": Kind((str, int, float), "one of the classes", _LEVEL),
    "number": Kind((int, float), "a number", {"type": "number"}),
    "whole": Kind((int,), "a whole number", {"type": "integer"}),
    "bool": Kind((bool,), "true or false", {"type": "boolean"}),
    "list": Kind((list,), "a list, such as [0, 1]", {"type": "array", "items": _LEVEL}),
    "texts": Kind((list,), 'a list of texts, such as ["age", "dose"]', _TEXTS),
    "table": Kind((dict,), "a table of its own", {"type": "object"}),
    "levels": Kind(
        (dict,), "a table of lists", {"type": "object", "additionalProperties": {"type": "array", "items": _LEVEL}}
    ),
    "bound": Kind(
        (int, float, dict),
        "a number, or a table with one for each owner",
        {"type": ["number", "object"], "additionalProperties": {"type": "number"}},
    ),
}


@dataclass(frozen=True)
class JobKey:
    """A key of a job file.

    table:   the table it stands in; empty: at the top
    default: as the file would state it, in words where it is not a plain value; empty: it must be stated, or is absent
    choices: of a text
    tasks:   those that use it; empty: all
    """

    table: str
    name: str
    kind: str
    doc: str
    default: str = ""
    choices: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()


#: Tables whose keys are the user's own names.
OPEN = {
    "owners": "name = its table, CSV or Parquet; or flower://ADDRESS, see the how-to on Flower",
    "categories": "column = the list of its levels",
    "bound": "owner = its bound, where they differ",
    "solve.options": "options of the method, as the reference page lists them",
}


def _declared() -> Iterator[JobKey]:
    yield JobKey("", "title", "text", "of the report", "the name of the file")
    yield JobKey("", "task", "text", "what is trained", choices=tuple(TASKS))
    yield from _task_keys()
    yield JobKey("solve", "method", "text", "how it is solved", "auto", ("auto", *METHODS))
    yield JobKey("solve", "tol", "number", "of the certificate, above 0 and below 1", "1e-3")
    yield JobKey("solve", "seed", "whole", "of everything random", "0")
    yield JobKey("solve", "max_rounds", "whole", "exchanges of a solve, at most", "100000")
    yield JobKey("solve", "engine", "text", "where owners run", "in-process", (*ENGINES, "flower"))
    secure = "the coordinator sees sums only; needs fedpact[secure]"
    yield JobKey("solve", "secure_sum", "bool", secure, "as the method needs")
    failure = "when an owner does not answer"
    yield JobKey("solve", "on_failure", "text", failure, "retry", ("retry", "stale", "stop"))
    yield JobKey("solve", "deadline", "number", "seconds an owner has for a reply", "none; 600 on Flower")
    yield JobKey("solve", "retries", "whole", "how often an order is sent again", "8; 30 on Flower")
    yield JobKey("solve", "compare", "bool", "train without constraints too, to show what they cost", "true")
    yield JobKey("server", "data", "file", "the coordinator's own table", tasks=_with_server())
    yield JobKey("output", "folder", "text", "of the run", "run")
    yield JobKey("output", "messages", "bool", "keep every message, for an auditor", "false")
    yield JobKey("output", "track", "texts", "curves while it runs", "[]", tuple(TRACKERS))
    yield JobKey("flower", "root_certificates", "file", "certificate authority of the SuperLink (PEM)")
    yield JobKey("flower", "patience", "number", "seconds to wait for sites that are not online", "120")


def _with_server() -> tuple[str, ...]:
    return tuple(name for name, task in TASKS.items() if task.has_server_data)


def _task_keys() -> Iterator[JobKey]:
    """The keys of all tasks, each once, with the tasks that use it."""
    seen: dict[str, JobKey] = {}
    for task, kind in TASKS.items():
        for name, (_, default, about) in keys_of(kind).items():
            users = (*seen[name].tasks, task) if name in seen else (task,)
            stated = about.shown or _in_toml(default)
            doc = about.doc
            if name in seen and seen[name].doc != about.doc:
                doc = f"{seen[name].doc}; {task}: {about.doc}"
            seen[name] = JobKey("", name, about.kind, doc, stated, about.choices, users)
    for found in seen.values():
        everywhere = len(found.tasks) == len(TASKS)
        yield JobKey(
            "", found.name, found.kind, found.doc, found.default, found.choices, () if everywhere else found.tasks
        )


def _in_toml(default: Any) -> str:
    """A default as the file would state it; empty for none."""
    if default is MISSING or default in ("", (), None, 0.0):
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return f"[{', '.join(str(one) for one in default)}]"
    return str(default)


KEYS: dict[tuple[str, str], JobKey] = {(key.table, key.name): key for key in _declared()}


def schema() -> dict[str, Any]:
    """A JSON schema of job files, for editors that check TOML."""
    properties: dict[str, Any] = {}
    for key in KEYS.values():
        about = {**KINDS[key.kind].schema, "description": key.doc}
        if key.choices and key.kind == "text":
            about["enum"] = list(key.choices)
        place = properties
        if key.table:
            empty = {"type": "object", "properties": {}, "additionalProperties": False}
            place = properties.setdefault(key.table, empty)["properties"]
        place[key.name] = about
    for table, doc in OPEN.items():
        parent, _, inner = table.partition(".")
        if inner:
            properties[parent]["properties"][inner] = {"type": "object", "description": doc}
        elif table not in properties:
            properties[table] = {"type": "object", "description": doc}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A fedpact job",
        "type": "object",
        "properties": properties,
        "required": ["task", "owners"],
        "additionalProperties": False,
    }
