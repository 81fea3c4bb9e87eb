"""What a site allows: `site.toml`, and the rules that follow from it.

The policy belongs to the owner. It is read strictly (a key that is unknown or misspelt would protect nobody), enforced
in the owner's own process before a step runs, and says no where it says nothing: columns, tasks, coordinators and peers
that are not listed are refused. A refusal travels as a code and the name of the rule.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar

from fedpact.errors import OptionError, Refused
from fedpact.federation.identity import PUBLIC, Identity, check_public_keys, signed_by

# ---------------------------------------------------------------------------------------------------------- the file


#: All kinds of constraints (`fedpact.tasks.requirements.KINDS`).
KINDS_LISTED = (
    "recall",
    "specificity",
    "false_positive_rate",
    "selection_rate",
    "precision",
    "accuracy",
    "loss",
    "demographic_parity",
    "equal_opportunity",
    "equalized_odds",
)


def _key(table: str, kind: str, doc: str, default: Any = MISSING) -> Any:
    """A key of site.toml: its table, what its value must be, and one line for the reader."""
    about = {"table": table, "kind": kind, "doc": doc}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True, kw_only=True)
class SitePolicy:
    """The content of a `site.toml`; paths are resolved against its folder."""

    name: str = _key("site", "text", "the name by which the others know this owner")
    data: Path = _key("site", "path", "its table, CSV or Parquet: read here and nowhere else")  # noqa: RUF009
    holdout: Path | None = _key(  # noqa: RUF009
        "site", "path", "a table of its own that nobody trains on: `fedpact evaluate` measures models on it", None
    )
    state: Path = _key("site", "path", "folder for its memory and its audit log")  # noqa: RUF009
    key: Path = _key("site", "path", "its private key; `fedpact site key FILE` makes one")  # noqa: RUF009
    functions: Path | None = _key("site", "path", 'its own Python file, for the task "custom"', None)  # noqa: RUF009
    alignment_key: Path | None = _key(  # noqa: RUF009
        "site", "path", "32 random bytes that the parties of a vertical task share, to be aligned by keyed hashes", None
    )

    roster: Path | None = _key("site", "path", "the owners' public keys in one signed file, instead of [peers]", None)  # noqa: RUF009
    roster_by: str = _key("site", "key", "public key of who signs the roster", "")

    coordinators: Mapping[str, str] = _key("coordinators", "keys", "name = public key of who may submit jobs", {})
    peers: Mapping[str, str] = _key("peers", "keys", "name = public key of the other owners", {})

    features: tuple[str, ...] = _key("allow", "texts", "columns that may be features", ())
    labels: tuple[str, ...] = _key("allow", "texts", "columns that may be the label", ())
    groups: tuple[str, ...] = _key("allow", "texts", "columns that may be the group", ())
    ids: tuple[str, ...] = _key("allow", "texts", "columns by which parties of a vertical task may be aligned", ())
    sent: tuple[str, ...] = _key(
        "allow", "texts", "columns that may go to the coordinator row by row: label and group of a vertical task", ()
    )
    alignments: tuple[str, ...] = _key("allow", "texts", "ways to align parties that it takes part in", ("private",))
    tasks: tuple[str, ...] = _key("allow", "texts", "tasks that may run", ())
    methods: tuple[str, ...] = _key(
        "allow",
        "texts",
        "methods that may run",
        ("interior-point", "accelerated", "proximal-al", "monotone-newton"),
    )
    vertical_exact: bool = _key(
        "allow",
        "bool",
        "whether vertical-exact may run: it tells the coordinator all people's rows up to a rotation of the columns",
        False,
    )
    kinds: tuple[str, ...] = _key(
        "allow", "texts", "kinds of constraints that the list of a job may hold", KINDS_LISTED
    )
    values: Mapping[str, Any] = _key(
        "allow.values",
        "conditions",
        "key of the job, or kind of a constraint = a value, a list, or {least = ..., most = ...}",
        {},
    )

    secure_sums: bool = _key("require", "bool", "the coordinator may see sums over the owners only", True)
    owners: int = _key("require", "whole", "owners in a run, at least", 3)
    rows: int = _key("require", "whole", "rows of the table, at least", 20)
    rows_per_class: int = _key("require", "whole", "rows of each class, at least", 5)
    rows_per_group: int = _key("require", "whole", "rows of each group, at least", 5)
    rows_per_parameter: float = _key("require", "number", "rows for each number of the model, at least", 1.0)
    least_people: int = _key("require", "whole", "people that all parties of a vertical task have, at least", 20)
    approval: bool = _key("require", "bool", "whether a person approves each new job: `fedpact site approve`", False)

    exchanges: int = _key("limit", "whole", "exchanges of a run", 2000)
    questions: int = _key("limit", "whole", "answers of a run that tell numbers of this owner alone", 12)
    bytes: int = _key("limit", "whole", "bytes that leave in a run", 2**30)
    constraints: int = _key("limit", "whole", "constraints in the list of a job: each is a question about its rows", 12)
    length: int = _key("limit", "whole", "numbers in one vector that a job asks for", 2_000_000)
    local_steps: int = _key("limit", "whole", "local steps that one order may ask for", 10_000)
    runs_a_day: int = _key("limit", "whole", "runs that may begin in 24 hours", 50)
    similar_runs: int = _key(
        "limit",
        "whole",
        "runs on the same data that differ from an earlier run's by one owner, one category, or the rows held out",
        0,
    )
    small_cells: int = _key("limit", "whole", "counts below this, and rates on fewer rows, are withheld", 5)

    @property
    def digest(self) -> str:
        """Tells whether two sites, or one site on two days, have the same rules; says nothing about them."""
        rules = {f.name: getattr(self, f.name) for f in fields(self) if f.metadata["table"] != "site"}
        return sha256(repr(sorted((name, _plain(value)) for name, value in rules.items())).encode()).hexdigest()


def _plain(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, Mapping) else value


def read_policy(path: str | Path) -> SitePolicy:
    """Read a `site.toml`. Raises OptionError for a file, key or value that cannot be right."""
    path = Path(path)
    try:
        stated = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise OptionError(f"{path} cannot be read as TOML ({error})", code="FP-OPTION-610") from error
    by_table: dict[str, dict[str, Any]] = {}
    for f in fields(SitePolicy):
        by_table.setdefault(f.metadata["table"], {})[f.name] = f
    # A table whose entries are the user's own names is one key of the policy.
    inner = stated.get("allow", {})
    if isinstance(inner, dict) and "values" in inner:
        stated["allow.values"] = inner.pop("values")
    given: dict[str, Any] = {}
    for table, content in stated.items():
        known = by_table.get(table)
        if known is None or not isinstance(content, dict):
            raise _unknown(path, f"[{table}]", [f"[{name}]" for name in by_table])
        if len(known) == 1:
            (only,) = known.values()
            given[only.name] = _convert(path, only, content)
            continue
        for name, value in content.items():
            if name not in known:
                raise _unknown(path, f"{name} in [{table}]", list(known))
            given[name] = _convert(path, known[name], value)
    if missing := [f.name for f in fields(SitePolicy) if f.default is f.default_factory and f.name not in given]:
        raise OptionError(f"{path}: [site] lacks {', '.join(missing)}", code="FP-OPTION-611")
    policy = SitePolicy(**given)
    if policy.roster is None:
        return policy
    if policy.peers:
        raise OptionError(f"{path}: give [peers] or a roster, not both", code="FP-OPTION-615")
    roster = read_roster(policy.roster, policy.roster_by)
    return replace(policy, peers={name: public for name, public in roster.items() if name != policy.name})


def example() -> str:
    """A site.toml that states every key, with a comment on each; those that have a default are commented out."""
    lines = ["# What this site allows. Strict: a key that is unknown is an error. Paths are relative to this file."]
    table = ""
    for f in fields(SitePolicy):
        about = f.metadata
        if about["table"] != table:
            table = about["table"]
            lines += ["", f"[{table}]"]
        if about["kind"] in ("keys", "conditions"):
            lines.append(f"# {about['doc']}")
            continue
        given = EXAMPLES.get(f.name)
        value = in_toml(f) if given is None else given
        lines.append(f"{'# ' if given is None else ''}{f.name} = {value}  # {about['doc']}")
    return "\n".join(lines) + "\n"


#: Values of the example that a site has to replace.
EXAMPLES = {
    "name": '"hospital 1"',
    "data": '"rows.csv"',
    "state": '"state"',
    "key": '"site.pem"',
    "features": "[]",
    "labels": "[]",
    "groups": "[]",
    "tasks": "[]",
}


def in_toml(key: Any) -> str:
    """The default of a key, as the file would state it; empty where it must be stated."""
    if key.default is MISSING:
        return ""
    if isinstance(key.default, tuple):
        return json.dumps(list(key.default))
    return '""' if key.default is None else json.dumps(key.default)


def describe(policy: SitePolicy) -> Iterator[str]:
    """What the policy says, a line each: what is allowed, required and limited."""
    for f in fields(SitePolicy):
        about = f.metadata
        value = getattr(policy, f.name)
        if about["table"] == "site":
            continue
        if about["kind"] == "keys":
            shown = ", ".join(value) or "nobody"
        elif about["kind"] == "conditions":
            shown = ", ".join(f"{name} {json.dumps(condition)}" for name, condition in value.items()) or "any"
        elif about["kind"] == "texts":
            shown = ", ".join(value) or "none"
        else:
            shown = json.dumps(value)
        yield f"[{about['table']}] {f.name}: {shown} ({about['doc']})"


def sign_roster(path: Path, identity: Identity) -> Path:
    """Sign a file of lines `name = "public key"`; the signature stands beside it."""
    _read_keys(path)
    beside = _signature_of(path)
    beside.write_text(identity.sign("roster", path.read_bytes()).hex() + "\n")
    return beside


def read_roster(path: Path, by: str) -> dict[str, str]:
    """The public keys in a signed file. OptionError unless the holder of the key `by` signed it as it is."""
    keys = _read_keys(path)
    try:
        signature = bytes.fromhex(_signature_of(path).read_text().strip())
    except (OSError, ValueError) as error:
        raise OptionError(
            f"{path}: its signature {_signature_of(path).name} cannot be read ({error}); `fedpact site sign` makes it",
            code="FP-OPTION-616",
        ) from error
    if not by or not signed_by(by, "roster", path.read_bytes(), signature):
        raise OptionError(
            f"{path}: it is not signed by roster_by, or was changed; ask for a copy that is", code="FP-OPTION-617"
        )
    return keys


def _signature_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sig")


def _read_keys(path: Path) -> dict[str, str]:
    try:
        return check_public_keys(tomllib.loads(path.read_text(encoding="utf-8-sig")), str(path))
    except (OSError, ValueError, RecursionError) as error:
        raise OptionError(f"{path} cannot be read as a list of public keys ({error})", code="FP-OPTION-618") from error


def _unknown(path: Path, found: str, known: list[str]) -> OptionError:
    close = difflib.get_close_matches(found.split(" ")[0], known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
    return OptionError(f"{path}: {found} is unknown; {hint}", code="FP-OPTION-612")


#: What a value must be, and the words for it.
KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": (lambda v: isinstance(v, str) and bool(v), "a text"),
    "path": (lambda v: isinstance(v, str) and bool(v), "the path of a file or folder"),
    "texts": (lambda v: isinstance(v, list) and all(isinstance(one, str) for one in v), "a list of texts"),
    "bool": (lambda v: isinstance(v, bool), "true or false"),
    "whole": (lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0, "a whole number of at least 0"),
    "number": (lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v >= 0, "a number of at least 0"),
    "key": (lambda v: isinstance(v, str) and bool(PUBLIC.fullmatch(v)), "a public key of 64 hexadecimal digits"),
    "keys": (lambda v: isinstance(v, dict), "a table of public keys"),
    "conditions": (lambda v: isinstance(v, dict), "a table of conditions"),
}


def _convert(path: Path, about: Any, value: Any) -> Any:
    kind = about.metadata["kind"]
    allowed, words = KINDS[kind]
    if not allowed(value):
        raise OptionError(f"{path}: {about.name} = {value!r}: give {words}", code="FP-OPTION-613")
    if kind == "path":
        return path.parent / value
    if kind == "texts":
        return tuple(value)
    if kind == "keys":
        return check_public_keys(value, f"{path}: [{about.metadata['table']}]")
    if kind == "conditions":
        for name, condition in value.items():
            _check_condition(path, name, condition)
    return value


def _check_condition(path: Path, name: str, condition: Any) -> None:
    if isinstance(condition, dict):
        ends = [condition.get("least", 0.0), condition.get("most", 0.0)]
        numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends)
        right = bool(condition) and condition.keys() <= {"least", "most"} and numbers
        if not right:
            raise OptionError(
                f"{path}: {name} = {condition!r}: give {{least = ..., most = ...}} with numbers", code="FP-OPTION-614"
            )


# ---------------------------------------------------------------------------------------------------- what is judged


@dataclass(frozen=True)
class Charter:
    """What a coordinator asks the sites of a run to take part in; signed by it.

    job:         the task as it was stated, method and tolerance: what a person approves
    coordinator: its public key
    owners:      all who take part, this one among them
    """

    run: str
    coordinator: str
    owners: tuple[str, ...]
    job: Mapping[str, Any]

    @property
    def task(self) -> str:
        return str(self.job.get("task", ""))


@dataclass(frozen=True)
class Counts:
    """Of an owner's table, for one task: rows by class and group (empty: the task has none), numbers of its model."""

    rows: int
    classes: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    parameters: int = 0


#: Of what cannot be counted: admitted only by a policy that asks for nothing.
UNCOUNTED = Counts(rows=0, classes=(0,), groups=(0,), parameters=1)


@dataclass(frozen=True)
class Traffic:
    """Of a run at this site, with the order at hand.

    method: whose step the order asks for; empty for steps that all methods share
    length: of the longest vector that the order holds or asks for
    steps:  local steps that the order asks for
    """

    method: str
    exchanges: int
    bytes: int
    length: int
    steps: int


@dataclass(frozen=True)
class Past:
    """What this site has done before: runs that began in the last 24 hours, and runs that the new one resembles."""

    runs_today: int
    similar: int
    approved: bool


F = TypeVar("F")


@dataclass(frozen=True)
class Rule(Generic[F]):
    """name: the key of site.toml; code: of the refusal; holds: whether the policy allows the fact."""

    name: str
    code: str
    holds: Callable[[SitePolicy, F], bool]


#: Rules about a run, judged once, before anything else is answered.
ABOUT_RUN: tuple[Rule[Charter], ...] = (
    Rule("coordinators", "FP-REFUSED-001", lambda p, run: run.coordinator in p.coordinators.values()),
    Rule("name", "FP-REFUSED-002", lambda p, run: p.name in run.owners),
    Rule("peers", "FP-REFUSED-003", lambda p, run: set(run.owners) <= {p.name, *p.peers}),
    Rule("owners", "FP-REFUSED-004", lambda p, run: len(set(run.owners)) >= p.owners),
    Rule("tasks", "FP-REFUSED-005", lambda p, run: run.task in p.tasks),
)
#: Rules about a run in the light of what came before.
ABOUT_PAST: tuple[Rule[Past], ...] = (
    Rule("approval", "FP-REFUSED-010", lambda p, past: past.approved or not p.approval),
    Rule("runs_a_day", "FP-REFUSED-011", lambda p, past: past.runs_today < p.runs_a_day),
    Rule("similar_runs", "FP-REFUSED-012", lambda p, past: past.similar <= p.similar_runs),
)
#: Rules about a task, judged whenever it changes: the scaling and the bounds of a job are found on the way.
ABOUT_TASK: tuple[Rule[Mapping[str, Any]], ...] = (
    Rule("tasks", "FP-REFUSED-020", lambda p, task: task.get("task") in p.tasks),
    Rule("features", "FP-REFUSED-021", lambda p, task: columns_used(task, p.name) <= set(p.features)),
    Rule("labels", "FP-REFUSED-022", lambda p, task: labels_used(task, p.name) <= set(p.labels)),
    Rule("groups", "FP-REFUSED-023", lambda p, task: held_here(task, "group", p.name) <= set(p.groups)),
    Rule("ids", "FP-REFUSED-025", lambda p, task: not is_vertical(task) or task.get("id") in p.ids),
    Rule("sent", "FP-REFUSED-026", lambda p, task: columns_sent(task, p.name) <= set(p.sent)),
    Rule(
        "values",
        "FP-REFUSED-024",
        lambda p, task: all(meets_all(task, name, condition, p.name) for name, condition in p.values.items()),
    ),
    Rule("kinds", "FP-REFUSED-050", lambda p, task: all(one.get("kind") in p.kinds for one in constraints_of(task))),
    Rule("constraints", "FP-REFUSED-051", lambda p, task: len(constraints_of(task)) <= p.constraints),
)
#: Rules about the owner's own table.
ABOUT_TABLE: tuple[Rule[Counts], ...] = (
    Rule("rows", "FP-REFUSED-030", lambda p, table: table.rows >= p.rows),
    Rule(
        "rows_per_class",
        "FP-REFUSED-031",
        lambda p, table: min(table.classes, default=p.rows_per_class) >= p.rows_per_class,
    ),
    Rule(
        "rows_per_group",
        "FP-REFUSED-032",
        lambda p, table: min(table.groups, default=p.rows_per_group) >= p.rows_per_group,
    ),
    Rule(
        "rows_per_parameter", "FP-REFUSED-033", lambda p, table: table.rows >= p.rows_per_parameter * table.parameters
    ),
)
#: Rules about a reply, judged before it leaves: whether it holds sums in the clear.
ABOUT_REPLY: tuple[Rule[bool], ...] = (
    Rule("secure_sums", "FP-REFUSED-007", lambda p, bare: not (bare and p.secure_sums)),
)
#: Rules about a reply that tells numbers of this owner alone, judged before it leaves: how many there are with it.
ABOUT_TOLD: tuple[Rule[int], ...] = (Rule("questions", "FP-REFUSED-041", lambda p, told: told <= p.questions),)
#: Rules about an order, judged before it runs.
ABOUT_ORDER: tuple[Rule[Traffic], ...] = (
    Rule(
        "vertical_exact",
        "FP-REFUSED-045",
        lambda p, traffic: traffic.method != "vertical-exact" or p.vertical_exact,
    ),
    Rule("methods", "FP-REFUSED-006", lambda p, traffic: not traffic.method or traffic.method in p.methods),
    Rule("exchanges", "FP-REFUSED-040", lambda p, traffic: traffic.exchanges <= p.exchanges),
    Rule("bytes", "FP-REFUSED-042", lambda p, traffic: traffic.bytes <= p.bytes),
    Rule("length", "FP-REFUSED-043", lambda p, traffic: traffic.length <= p.length),
    Rule("local_steps", "FP-REFUSED-044", lambda p, traffic: traffic.steps <= p.local_steps),
)


def is_vertical(task: Mapping[str, Any]) -> bool:
    """Whether owners hold different columns, which the task lists by owner."""
    return isinstance(task.get("columns"), Mapping)


def columns_used(task: Mapping[str, Any], owner: str) -> set[str]:
    """Columns of this owner that enter the model or weigh its rows.

    A vertical task that lists none for it would take all columns of its table: they have no name that a policy allows.
    """
    if is_vertical(task):
        return set(task["columns"].get(owner) or [""])
    more = (task.get(name) for name in ("offset", "sample_weight"))
    return {*(task.get("columns") or ()), *(column for column in more if column)}


def held_here(task: Mapping[str, Any], role: str, owner: str) -> set[str]:
    """The columns that are the label or the groups, if this owner holds them: one party does in a vertical task."""
    columns = {task[role]} if task.get(role) else set()
    if role == "group":
        columns |= set(task.get("attributes") or ())
    holder: str | None = owner
    if is_vertical(task):
        holder = task.get("label_at")
        if role == "group":
            holder = task.get("group_at") or holder
    return columns if holder == owner else set()


def labels_used(task: Mapping[str, Any], owner: str) -> set[str]:
    """What is predicted: the label and, of times to an event, the column that says whether it was seen."""
    return held_here(task, "label", owner) | held_here(task, "event", owner)


def columns_sent(task: Mapping[str, Any], owner: str) -> set[str]:
    """Columns of this owner that a task sends to the coordinator row by row."""
    if not is_vertical(task):
        return set()
    return held_here(task, "label", owner) | held_here(task, "group", owner)


def constraints_of(task: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The list of constraints that a task states."""
    return [one for one in task.get("constraints") or () if isinstance(one, Mapping)]


def meets_all(task: Mapping[str, Any], name: str, condition: Any, owner: str) -> bool:
    """Whether a task satisfies a condition on one of its keys, or on the bounds of a kind of constraint in its list."""
    if name not in KINDS_LISTED:
        return meets(task.get(name), condition, owner)
    listed = [one for one in constraints_of(task) if one.get("kind") == name]
    bounds = [one.get(side) for one in listed for side in ("at_least", "at_most")]
    return all(meets(bound, condition, owner) for bound in bounds if bound is not None)


def meets(value: Any, condition: Any, owner: str) -> bool:
    """Whether a job's value satisfies a condition: equal to it, one of a list, or within a range.

    A value that the job states owner by owner counts with this owner's own; one that it does not state meets nothing.
    """
    if isinstance(value, Mapping):
        value = value.get(owner)
    if value is None:
        return False
    if isinstance(condition, Mapping):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and condition.get("least", value) <= value <= condition.get("most", value)
    if isinstance(condition, list):
        return value in condition
    return bool(value == condition)


def check(policy: SitePolicy, rules: tuple[Rule[F], ...], fact: F) -> None:
    """Refused, with the first rule that does not hold."""
    for rule in rules:
        if not rule.holds(policy, fact):
            raise Refused(f"{policy.name}: refused by the rule {rule.name!r} of its policy", code=rule.code)
