"""The keys of a job file, declared once; the reader, `fedpact init`, the reference page and the schema follow.

Keys of a task are the fields of its class (`fedpact.tasks.base.key`); all others are declared here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, replace
from typing import Any

from fedpact.federation import ENGINES
from fedpact.fitting.fit import INFERENCES
from fedpact.report.tracking import TRACKERS
from fedpact.solvers import METHODS
from fedpact.tasks import TASKS, Classification, Regression, Requirement, Vertical, keys_of
from fedpact.tasks.base import Key


@dataclass(frozen=True)
class Kind:
    """What a value must be: Python types, words for the message, and its JSON schema.

    entries: kind of a table's entries; each: type of what is in a list
    """

    types: tuple[type, ...]
    words: str
    schema: Mapping[str, Any]
    entries: str = ""
    each: type | None = None


_TEXTS = {"type": "array", "items": {"type": "string"}}
_LEVEL = {"type": ["string", "number"]}
_LEVELS = {"type": "array", "items": _LEVEL}
_CATEGORY = {
    "oneOf": [
        _LEVELS,
        {
            "type": "object",
            "properties": {"levels": _LEVELS, "reference": _LEVEL},
            "required": ["levels"],
            "additionalProperties": False,
        },
    ]
}
KINDS: dict[str, Kind] = {
    "text": Kind((str,), 'a text in quotes, such as "age"', {"type": "string"}),
    "file": Kind((str,), "the path of a file in quotes", {"type": "string"}),
    "level": Kind((str, int, float), "one of the classes", _LEVEL),
    "number": Kind((int, float), "a number", {"type": "number"}),
    "whole": Kind((int,), "a whole number", {"type": "integer"}),
    "bool": Kind((bool,), "true or false", {"type": "boolean"}),
    "list": Kind((list,), "a list, such as [0, 1]", {"type": "array", "items": _LEVEL}),
    "wholes": Kind(
        (list,),
        "a list of whole numbers, such as [64, 32]",
        {"type": "array", "items": {"type": "integer"}},
        each=int,
    ),
    "texts": Kind((list,), 'a list of texts, such as ["age", "dose"]', _TEXTS, each=str),
    "table": Kind((dict,), "a table of its own", {"type": "object"}),
    "levels": Kind(
        (dict,),
        "a table of lists",
        {"type": "object", "additionalProperties": {"type": "array", "items": _LEVEL}},
        entries="list",
    ),
    "category": Kind(
        (list, dict),
        'a list of levels, or {levels = ["I", "II"], reference = "I"}',
        _CATEGORY,
    ),
    "categories": Kind(
        (dict,),
        'a table of lists, or of tables such as {levels = ["I", "II"], reference = "I"}',
        {"type": "object", "additionalProperties": _CATEGORY},
        entries="category",
    ),
    "columns": Kind(
        (dict,),
        'a table of lists of texts, such as bank = ["income", "debts"]',
        {"type": "object", "additionalProperties": _TEXTS},
        entries="texts",
    ),
    "files": Kind(
        (dict,),
        "a table with the path of a file for each owner",
        {"type": "object", "additionalProperties": {"type": "string"}},
        entries="file",
    ),
    "bound": Kind(
        (int, float, dict),
        "a number, or a table with one for each owner",
        {"type": ["number", "object"], "additionalProperties": {"type": "number"}},
        entries="number",
    ),
    "weights": Kind(
        (str, dict),
        "a text in quotes, or a table of numbers",
        {"type": ["string", "object"], "additionalProperties": {"type": "number"}},
        entries="number",
    ),
    "range": Kind(
        (dict,),
        "a table such as {at_least = 0, at_most = 2}",
        {"type": "object", "additionalProperties": {"type": "number"}},
        entries="number",
    ),
    "ranges": Kind(
        (dict,),
        "a table of tables, such as dose = {at_least = 0}",
        {
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        entries="range",
    ),
    "directions": Kind(
        (dict,),
        'a table of texts, such as dose = "increasing"',
        {"type": "object", "additionalProperties": {"type": "string"}},
        entries="text",
    ),
    "constraints": Kind((list,), "a list of tables, each below a line [[constraint]]", {"type": "array"}, each=dict),
}
#: Arrays of tables, [[name]], by the keys of each.
LISTS = {"constraint": keys_of(Requirement)}


@dataclass(frozen=True, kw_only=True)
class JobKey:
    """A key of a job file.

    table:   the table it stands in; empty: at the top
    default: in TOML, or in words where it is not a plain value; empty: it must be stated, or is absent
    example: a value in TOML
    choices: of a text
    tasks:   those that use it; empty: all
    """

    table: str = ""
    name: str
    kind: str
    doc: str
    default: str = ""
    example: str
    choices: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()


#: Tables whose keys are the user's own names.
OPEN = {
    "owners": "name = its table, CSV or Parquet; or flower://ADDRESS, see the how-to on Flower",
    "roster": "owner = its public key, for owners that are Flower sites",
    "categories": 'column = the list of its levels, or {levels = [...], reference = "one of them"}',
    "attributes": "column = the list of its groups, of a vertical model",
    "columns": "party = the list of the columns that it brings to a vertical model",
    "bound": "owner = its bound, where they differ",
    "holdout": "owner = a table that nobody trains on; `fedpact evaluate` measures the model on it",
    "coefficients": "column = {at_least = ..., at_most = ...}",
    "monotone": "column = increasing or decreasing, in quotes",
    "equal": "a name = the list of features that have one coefficient",
    "solve.options": "options of the method, as the reference page lists them",
    "keys": "owner = file of its private key, with which it signs the evidence of the run; all owners or none",
}


def _declare() -> Iterator[JobKey]:
    """All keys, in the order in which a file would state them."""
    yield _key("", "title", "text", "title of the report", "the name of the file", example='"Three hospitals"')
    yield _key("", "task", "text", "what is trained", example='"neyman_pearson"', choices=tuple(TASKS))
    yield from _declare_tasks()
    yield from _declare_lists()
    comparable = tuple(name for name, task in TASKS.items() if task.comparable)
    unseen = "tables that nobody trains on: `fedpact evaluate` measures the model on them"
    yield _key("", "holdout", "files", unseen, "none", example='{clinic = "clinic_new.csv"}', tasks=comparable)
    vertical = tuple(name for name, task in TASKS.items() if issubclass(task, Vertical))
    signing = "private keys of the owners: each signs what it measured, and `fedpact verify` checks it"
    by_rows = tuple(
        name for name, task in TASKS.items() if not issubclass(task, Vertical)
    )  # parties measure nothing alone
    yield _key("", "keys", "files", signing, "none", example='{clinic = "clinic.key"}', tasks=by_rows)
    yield _key("solve", "method", "text", "how it is solved", '"auto"', choices=("auto", *METHODS))
    yield _key("solve", "tol", "number", "tolerance of the certificate, above 0 and below 1", "1e-3")
    yield _key("solve", "seed", "whole", "seed of everything random", "0")
    yield _key("solve", "max_rounds", "whole", "exchanges of a solve, at most", "100000")
    yield _key("solve", "engine", "text", "where owners run", '"in-process"', choices=(*ENGINES, "flower"))
    secure = "the coordinator sees sums only; needs the extra secure"
    yield _key("solve", "secure_sum", "bool", secure, "as the method needs", example="true")
    failure = "when an owner does not answer"
    yield _key("solve", "on_failure", "text", failure, '"retry"', choices=("retry", "stale", "stop"))
    yield _key("solve", "deadline", "number", "seconds an owner has for a reply", "none; 600 on Flower", example="600")
    yield _key("solve", "retries", "whole", "how often an order is sent again", "8; 30 on Flower", example="8")
    tags = "file of 32 random bytes, with which parties on this machine hash ids; sites have their own"
    yield _key("solve", "alignment_key", "file", tags, "none", example='"ids.key"', tasks=vertical)
    compare = "train without constraints too, to show what they cost"
    yield _key("solve", "compare", "bool", compare, "true", tasks=comparable)
    deciding = tuple(name for name, task in TASKS.items() if issubclass(task, Classification))
    drawn = "count the scores of two classes in bins, for ROC and calibration in the report: one exchange"
    yield _key("solve", "curves", "bool", drawn, "true", tasks=deciding)
    around = "train for six other bounds around the asked ones, to show what they cost: at most 60 exchanges"
    yield _key("solve", "trade_off", "bool", around, "false", tasks=(*deciding, Regression.name))
    errors = (
        "standard errors and intervals of the coefficients, in coefficients.csv, by one more exchange (bootstrap: many)"
    )
    yield _key(
        "solve", "inference", "text", errors, '"none"', choices=INFERENCES, example='"sandwich"', tasks=comparable
    )
    with_server = tuple(name for name, task in TASKS.items() if task.has_server_data)
    server = "the coordinator's own table: the constraint holds on it, too"
    yield _key("server", "data", "file", server, example='"server.csv"', tasks=with_server)
    yield _key("output", "folder", "text", "folder of the run", '"run"')
    yield _key("output", "messages", "bool", "keep every message, for an auditor", "false")
    yield _key("output", "track", "texts", "curves while it runs", "[]", example='["csv"]', choices=tuple(TRACKERS))
    authority = "certificate authority of the SuperLink (PEM)"
    yield _key("flower", "root_certificates", "file", authority, example='"ca.crt"')
    signs = "the coordinator's private key, which signs the job; `fedpact site key FILE` makes one"
    yield _key("flower", "key", "file", signs, example='"coordinator.pem"')
    secret = "secret of a SuperLink that only relays: the coordinator runs here"
    yield _key("flower", "superexec_secret", "file", secret, example='"superexec.secret"')
    yield _key("flower", "patience", "number", "seconds to wait for sites that are not online", "120")


def _key(table: str, name: str, kind: str, doc: str, default: str = "", **about: Any) -> JobKey:
    """A key whose default is an example as well, unless another is given."""
    return JobKey(table=table, name=name, kind=kind, doc=doc, default=default, **{"example": default, **about})


def _declare_tasks() -> Iterator[JobKey]:
    """The keys of all tasks, each once, with the tasks that use it."""
    users: dict[str, list[str]] = {}
    docs: dict[str, list[str]] = {}
    declared: dict[str, tuple[Any, Key]] = {}
    for task, kind in TASKS.items():
        for name, (_, default, about) in keys_of(kind).items():
            declared.setdefault(name, (default, about))
            users.setdefault(name, []).append(task)
            docs.setdefault(name, [about.doc])
            if about.doc not in docs[name]:
                docs[name].append(f"{task}: {about.doc}")
    for name, (default, about) in declared.items():
        everyone = len(users[name]) == len(TASKS)
        tasks = () if everyone else tuple(users[name])
        yield _declared("", name, default, replace(about, doc="; ".join(docs[name])), tasks)


def _declare_lists() -> Iterator[JobKey]:
    """The keys of the tables in each list of tables, with the tasks that use the list."""
    for table, keys in LISTS.items():
        tasks = tuple(name for name, task in TASKS.items() if table in keys_of(task))
        for name, (_, default, about) in keys.items():
            yield _declared(table, name, default, about, tasks)


def _declared(table: str, name: str, default: Any, about: Key, tasks: tuple[str, ...]) -> JobKey:
    """A key that a field of a dataclass declares."""
    stated = _in_toml(default)
    return _key(
        table,
        name,
        about.kind,
        about.doc,
        about.shown or stated,
        example=about.example or stated,
        choices=about.choices,
        tasks=tasks,
    )


def _in_toml(default: Any) -> str:
    """A default as the file would state it; empty for none."""
    if isinstance(default, bool):
        return json.dumps(default)
    return "" if default is MISSING or not default else json.dumps(default)


KEYS: dict[tuple[str, str], JobKey] = {(key.table, key.name): key for key in _declare()}


def schema() -> dict[str, Any]:
    """A JSON schema of job files, for editors that check TOML."""
    properties: dict[str, Any] = {}
    for key in KEYS.values():
        place = properties
        empty = {"type": "object", "properties": {}, "additionalProperties": False}
        if key.table in LISTS:
            place = properties[key.table].setdefault("items", empty)["properties"]
        elif key.table:
            place = properties.setdefault(key.table, empty)["properties"]
        place[key.name] = _schema_of(key)
    for name, keys in LISTS.items():
        properties[name]["items"]["required"] = [one for one, (_, default, _) in keys.items() if default is MISSING]
    for table, doc in OPEN.items():
        parent, _, inner = table.partition(".")
        place = properties[parent]["properties"] if inner else properties
        place.setdefault(inner or parent, {"type": "object", "description": doc})
    properties["owners"]["additionalProperties"] = {"type": "string"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A fedpact job",
        "type": "object",
        "properties": properties,
        "required": ["task", "owners"],
        "additionalProperties": False,
    }


def _schema_of(key: JobKey) -> dict[str, Any]:
    about = {**KINDS[key.kind].schema, "description": key.doc}
    if key.choices and key.kind == "texts":
        about["items"] = {"enum": list(key.choices)}
    elif key.choices:
        about["enum"] = list(key.choices)
    return about
