"""What a site allows: `site.toml`. The rules that follow from it are in rules.py.

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
from typing import Any

from fedpact.errors import OptionError
from fedpact.federation.identity import PUBLIC, Identity, check_public_keys, signed_by

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
    network: Path | None = _key(  # noqa: RUF009
        "site", "path", "its own copy of the Python file of a network; run only with the digest that a job states", None
    )
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
        "allow",
        "texts",
        "columns that may go to the coordinator row by row: label and group of a vertical task; parties learn labels",
        (),
    )
    label_to: tuple[str, ...] = _key(
        "allow",
        "texts",
        "parties that may learn everyone's label, which a vertical job about it tells every other party",
        (),
    )
    alignments: tuple[str, ...] = _key("allow", "texts", "ways to align parties that it takes part in", ("private",))
    tasks: tuple[str, ...] = _key("allow", "texts", "tasks that may run", ())
    methods: tuple[str, ...] = _key(
        "allow",
        "texts",
        "methods that may run",
        ("interior-point", "newton-al", "accelerated", "proximal-al", "monotone-newton"),
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
    rows_per_parameter: float = _key("require", "number", "rows for each number of the model, at least", 3.0)
    least_people: int = _key("require", "whole", "people that all parties of a vertical task have, at least", 20)
    effective_rows: float = _key(
        "require",
        "number",
        "rows behind every gradient and Hessian, at least, counted by how much each enters it (Kish)",
        5.0,
    )
    boundary_rows: float = _key(
        "require",
        "number",
        "the same next to the boundary of smoothed decisions, at least: jobs that bound rates come near to single rows",
        1.25,
    )
    least_share: float = _key(
        "require",
        "number",
        "what an owner, or a class, weighs in every sum, at least: a part of what it would if all weighed alike",
        0.33,
    )
    rows_changed: int = _key(
        "require", "whole", "rows by which a table differs from its earlier versions, at least, before it is run on", 5
    )
    same_owners: bool = _key(
        "require", "bool", "runs about one label are of the same owners, unless a person approves the job", True
    )
    approval: bool = _key("require", "bool", "whether a person approves each new job: `fedpact site approve`", False)

    exchanges: int = _key("limit", "whole", "exchanges of a run", 200)
    releases: int = _key("limit", "whole", "answers of all runs together that leave the table in 30 days", 2000)
    questions: int = _key("limit", "whole", "answers of a run that tell numbers of this owner alone", 12)
    questions_a_month: int = _key("limit", "whole", "the same of all runs together, in 30 days", 200)
    errors: int = _key("limit", "whole", "orders of a run that fail or are refused, until it is over", 5)
    bytes: int = _key("limit", "whole", "bytes that leave in a run", 2**30)
    constraints: int = _key("limit", "whole", "constraints in the list of a job: each is a question about its rows", 12)
    bounds_apart: float = _key(
        "limit", "number", "by what factor the bounds that a job states owner by owner may differ", 10.0
    )
    model_size: float = _key(
        "limit",
        "number",
        "root mean square of the scores that a model gives, at most: sums of larger ones single rows out",
        30.0,
    )
    scales: float = _key(
        "limit", "number", "by what factor a job's scales of the columns may differ from those of the table", 1e6
    )
    levels: int = _key("limit", "whole", "levels of a column of categories", 40)
    level_share: float = _key("limit", "number", "the same, as a part of the rows", 0.33)
    length: int = _key("limit", "whole", "numbers in one vector that a job asks for", 2_000_000)
    local_steps: int = _key("limit", "whole", "local steps that one order may ask for", 10_000)
    runs_a_day: int = _key("limit", "whole", "runs that may begin in 24 hours", 5)
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
