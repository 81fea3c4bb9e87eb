"""Reading a job: every key is known, every value has its type and range, and an error says in which line it is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from fedpact.data.cells import column_names
from fedpact.data.encoding import categories_from
from fedpact.errors import DataError, OptionError
from fedpact.report.tracking import TRACKERS
from fedpact.solvers import METHODS
from fedpact.tasks.job import TASKS, Job

#: How an owner is written that is a site of a Flower federation: this, and the address of the SuperLink.
FLOWER = "flower://"
#: Keys by table ("" is the top): what they must be.
KEYS: dict[str, dict[str, str]] = {
    "": {
        "title": "text",
        "task": "text",
        "label": "text",
        "classes": "list",
        "protected": "level",
        "features": "texts",
        "bound": "number",
        "min_recall": "number",
        "group": "text",
        "groups": "list",
        "parity": "text",
        "missing": "text",
        "standardize": "bool",
        "intercept": "bool",
        "regularization": "number",
        "functions": "text",
    },
    "solve": {
        "method": "text",
        "engine": "text",
        "tol": "number",
        "seed": "whole",
        "max_rounds": "whole",
        "secure_sum": "bool",
        "on_failure": "text",
        "deadline": "number",
        "retries": "whole",
        "compare": "bool",
    },
    "server": {"data": "text"},
    "output": {"folder": "text", "messages": "bool", "track": "texts"},
    "flower": {"root_certificates": "text", "patience": "number"},
}
#: Tables whose keys are the user's own names.
OPEN = ("owners", "categories", "bound")
ENGINES = ("in-process", "threads", "ray", "flower")
KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "text": ((str,), 'a text in quotes, such as "age"'),
    "level": ((str, int, float), "one of the classes"),
    "number": ((int, float), "a number"),
    "whole": ((int,), "a whole number"),
    "bool": ((bool,), "true or false"),
    "list": ((list,), "a list, such as [0, 1]"),
    "texts": ((list,), 'a list of texts, such as ["age", "dose"]'),
}


@dataclass(frozen=True, eq=False)
class JobFile:
    """A job that was read and checked.

    job:            what the owners agree on
    owners:         name -> its file, or the Flower address
    regularization: weight of the squared norm of the model, intercepts free
    compare:        train without the constraints too
    solve:          options of `fp.solve`
    output:         folder of the run
    messages:       keep every message in it
    track:          names of trackers, see `fedpact.report.tracking`
    server:         the server's own table, or None
    superlink:      address of the SuperLink whose sites the owners are, or ""
    settings:       the whole as it was read, for the report
    """

    path: Path
    title: str
    job: Job
    owners: dict[str, str]
    output: Path
    regularization: float = 1e-3
    compare: bool = True
    messages: bool = False
    track: tuple[str, ...] = ()
    server: Path | None = None
    superlink: str = ""
    flower: dict[str, Any] = field(default_factory=dict)
    solve: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def read_job(path: str | Path) -> JobFile:
    """The job in a TOML file. Paths in it are relative to its folder. OptionError, with the line, when it is none."""
    return _Reader(Path(path)).read()


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, path.parent
        try:
            self.text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            remedy = "`fedpact init FOLDER` writes an example"
            raise OptionError(f"{path} cannot be read as a job ({error}); {remedy}") from error
        self.lines = key_lines(self.text)

    def read(self) -> JobFile:
        found = self._parsed()
        self._check_keys(found)
        task = self._choice(found, "task", TASKS)
        owners = self._owners(found)
        superlink = self._superlink(owners)
        files = {} if superlink else {name: self._file("owners", name, path) for name, path in owners.items()}
        server = found.get("server", {}).get("data")
        at_server = None if server is None else self._file("server", "data", server)
        if at_server is not None and task != "group_fairness":
            self._fail("server", "data", f"task {task!r} has no constraint at the server; take this table out")
        job = self._job(found, task, files, at_server)
        solve = dict(found.get("solve", {}))
        if "method" in solve and solve["method"] not in ("auto", *METHODS):
            self._fail("solve", "method", f"{solve['method']!r} is unknown; choose auto, {', '.join(METHODS)}")
        if not 0 < solve.get("tol", 1e-3) < 1:
            self._fail("solve", "tol", f"tol = {solve['tol']}: give a number above 0 and below 1")
        engine = solve.get("engine", "in-process")
        if engine not in ENGINES:
            self._fail("solve", "engine", f"{engine!r} is unknown; choose {', '.join(ENGINES)}")
        if (engine == "flower") != bool(superlink) and "engine" in solve:
            self._fail("solve", "engine", f'{engine!r} and owners do not fit: "flower" is for "{FLOWER}..." owners')
        flower = dict(found.get("flower", {}))
        if "root_certificates" in flower:
            flower["root_certificates"] = str(self._file("flower", "root_certificates", flower["root_certificates"]))
        output = found.get("output", {})
        for name in output.get("track", ()):
            if name not in TRACKERS:
                self._fail("output", "track", f"tracker {name!r} is unknown; choose {', '.join(TRACKERS)}")
        return JobFile(
            path=self.path,
            title=found.get("title", self.path.stem),
            job=job,
            owners=owners if superlink else {name: str(file) for name, file in files.items()},
            output=self.folder / output.get("folder", "run"),
            regularization=self._at_least("", "regularization", found.get("regularization", 1e-3), 0.0),
            compare=solve.pop("compare", True) and task not in ("linear_qp", "custom"),
            messages=output.get("messages", False),
            track=tuple(dict.fromkeys(output.get("track", ()))),
            server=at_server,
            superlink=superlink,
            flower=flower,
            solve=solve,
            settings=found,
        )

    # ---------------------------------------------------------------------------------------------------------- parts

    def _parsed(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            line = int(match[1]) if (match := re.search(r"line (\d+)", str(error))) else 0
            for (table, key), places in self.lines.items():
                if line in places[1:]:
                    what = f"owner {key!r}" if table == "owners" else f"{key!r}"
                    raise OptionError(
                        f"{self.path}:{line}: {what} is stated twice, first in line {places[0]}; give each its own name"
                    ) from error
            raise OptionError(f"{self.path}:{line or 1}: this is not TOML: {error}") from error

    def _check_keys(self, found: Mapping[str, Any]) -> None:
        for key, value in found.items():
            if key in OPEN and isinstance(value, dict):
                continue
            if key in KEYS and isinstance(value, dict):
                for inner, content in value.items():
                    self._check(key, inner, content)
            elif key in (*OPEN, *KEYS) and key != "bound":
                self._fail("", key, f"{key} = {value!r}: it is a table; write [{key}] and its lines below")
            else:
                self._check("", key, value)
        for column, levels in found.get("categories", {}).items():
            if not isinstance(levels, list):
                self._fail("categories", column, f"{levels!r}: give the list of its levels")
        if isinstance(found.get("bound"), dict):
            for owner, bound in found["bound"].items():
                self._check_kind("bound", owner, bound, "number")

    def _check(self, table: str, key: str, value: Any) -> None:
        known = KEYS[table]
        if key not in known:
            names = [*known, *OPEN, *KEYS] if not table else list(known)
            names = [name for name in names if name]
            near = get_close_matches(key, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(dict.fromkeys(names))}"
            where = f" in [{table}]" if table else ""
            self._fail(table, key, f"unknown key {key!r}{where}; {hint}")
        self._check_kind(table, key, value, known[key])

    def _check_kind(self, table: str, key: str, value: Any, kind: str) -> None:
        types, words = KINDS[kind]
        right = isinstance(value, types) and (kind == "bool" or not isinstance(value, bool))
        if right and kind == "texts":
            right = all(isinstance(one, str) for one in value)
        if not right:
            self._fail(table, key, f"{key} = {value!r}: give {words}")

    def _choice(self, found: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
        if key not in found:
            raise OptionError(f"{self.path}: {key} is not stated; choose {', '.join(allowed)}")
        if found[key] not in allowed:
            self._fail("", key, f"{key} {found[key]!r} is unknown; choose {', '.join(allowed)}")
        return str(found[key])

    def _owners(self, found: Mapping[str, Any]) -> dict[str, str]:
        owners = found.get("owners")
        if not owners or not isinstance(owners, dict):
            raise OptionError(
                f'{self.path}: there are no owners; add a table [owners] with lines such as north = "north.csv"'
            )
        seen: dict[str, str] = {}
        for name, path in owners.items():
            if not isinstance(path, str):
                self._fail("owners", name, f"{name} = {path!r}: give the path of its file in quotes")
            if name == "server":
                self._fail("owners", name, "'server' is the name of the server itself; give this owner another name")
            if path in seen and not path.startswith(FLOWER):
                self._fail("owners", name, f"owners {seen[path]!r} and {name!r} have the same file {path!r}")
            seen[path] = name
        return dict(owners)

    def _superlink(self, owners: Mapping[str, str]) -> str:
        addresses = {name: path.removeprefix(FLOWER) for name, path in owners.items() if path.startswith(FLOWER)}
        for name in owners if addresses else ():
            if name not in addresses:
                self._fail(
                    "owners", name, f"a file among Flower sites; write {FLOWER}ADDRESS for all owners or for none"
                )
            if addresses[name] != next(iter(addresses.values())):
                self._fail("owners", name, "another address than the first owner's; all sites share one SuperLink")
        return next(iter(addresses.values()), "")

    def _file(self, table: str, key: str, path: str) -> Path:
        file = self.folder / path
        if not file.is_file():
            what = f"of owner {key!r} " if table == "owners" else ""
            self._fail(table, key, f"the file {what}does not exist: {file}; correct the path, or put the file there")
        return file

    def _job(self, found: Mapping[str, Any], task: str, files: Mapping[str, Path], server: Path | None) -> Job:
        if task == "linear_qp":
            return Job(task, 1.0, "", (), len(found["owners"]))
        label = found.get("label", "")
        if not label:
            raise OptionError(f'{self.path}: label is not stated; add a line label = "..." with the column to predict')
        group = found.get("group", "")
        bound, min_recall = self._bound(found, task)
        headers = {name: self._header(name, file) for name, file in files.items()}
        if server is not None:
            headers["server"] = column_names(server)
        columns = self._columns(found, headers, label, group)
        functions = found.get("functions", "")
        if functions and not (self.folder / functions).is_file():
            self._fail("", "functions", f"the file does not exist: {self.folder / functions}; correct the path")
        levels = {key: tuple(map(str, found.get(key, (0, 1)))) for key in ("classes", "groups")}
        try:
            return Job(
                task=task,
                bound=bound,
                label=label,
                columns=columns,
                owners=len(found["owners"]),
                group=group,
                intercept=found.get("intercept", True),
                protected=str(found.get("protected", "")),
                parity=found.get("parity", "loss"),
                categories=categories_from(found.get("categories", {})),
                missing=found.get("missing", "error"),
                standardize=found.get("standardize", True),
                min_recall=min_recall,
                functions=str((self.folder / functions).resolve()) if functions else "",
                classes=levels["classes"],
                groups=levels["groups"],
            )
        except OptionError as error:
            named = [
                key
                for key in ("categories", "classes", "groups", "group", "parity", "missing", "protected")
                if key in str(error) and (("", key) in self.lines or key in found)
            ]
            line = self.lines.get(("", named[0]), [0])[0] if named else 0
            raise error.within(f"{self.path}:{line}" if line else str(self.path)) from error

    def _bound(self, found: Mapping[str, Any], task: str) -> tuple[float | dict[str, float], float]:
        min_recall, bound = found.get("min_recall"), found.get("bound")
        if min_recall is not None:
            if task != "neyman_pearson":
                self._fail("", "min_recall", f"task {task!r} has no recall to demand; use bound")
            if bound is not None:
                self._fail(
                    "", "min_recall", "min_recall and bound are both stated; min_recall finds the bounds by itself"
                )
            if not 0 < min_recall < 1:
                self._fail("", "min_recall", f"min_recall = {min_recall}: give a number above 0 and below 1")
            return 1.0, float(min_recall)
        if task == "custom":
            return 1.0, 0.0
        if bound is None:
            either = "bound or min_recall" if task == "neyman_pearson" else "bound"
            raise OptionError(f"{self.path}: {either} is not stated; without one there is no constraint to certify")
        each = bound if isinstance(bound, dict) else {"": bound}
        for owner, value in each.items():
            table, key = ("bound", owner) if owner else ("", "bound")
            if owner and owner not in (*found["owners"], "server"):
                self._fail(table, key, f"{owner!r} is no owner; the owners are: {', '.join(found['owners'])}")
            if not 0 < value < float("inf"):
                self._fail(table, key, f"bound = {value}: give a positive number")
        for owner in found["owners"] if isinstance(bound, dict) else ():
            if owner not in bound:
                raise OptionError(f"{self.path}: [bound] has no entry for owner {owner!r}; give one for every owner")
        return bound, 0.0

    def _header(self, name: str, file: Path) -> tuple[str, ...]:
        try:
            return column_names(file)
        except DataError as error:
            self._fail("owners", name, f"owner {name!r}: {error}")

    def _columns(
        self, found: Mapping[str, Any], headers: Mapping[str, tuple[str, ...]], label: str, group: str
    ) -> tuple[str, ...]:
        """The features: as stated, or those of the first owner; every owner has them all."""
        stated = found.get("features")
        if stated is None and not headers:
            raise OptionError(f"{self.path}: features are not stated; list the columns that every site has")
        first = next(iter(headers), "")
        columns = stated if stated is not None else [c for c in headers[first] if c not in (label, group)]
        for name, names in headers.items():
            for column, key in ((label, "label"), (group, "group"), *((c, "features") for c in columns)):
                if column and column not in names:
                    has = ", ".join(names)
                    if key == "features" and stated is None:
                        self._fail(
                            "owners",
                            name,
                            f"owner {name!r} has no column {column!r}, which owner {first!r} has (it has: {has}); "
                            " give all the same columns, or list the common ones: features = [...]",
                        )
                    self._fail("", key, f"owner {name!r} has no column {column!r}; it has: {has}")
        return tuple(columns)

    def _at_least(self, table: str, key: str, value: float, least: float) -> float:
        if not least <= value < float("inf"):
            self._fail(table, key, f"{key} = {value}: give a number of at least {least:g}")
        return float(value)

    def _fail(self, table: str, key: str, message: str) -> NoReturn:
        place = self.lines.get((table, key)) or self.lines.get(("", table)) or [1]
        raise OptionError(f"{self.path}:{place[0]}: {message}")


def key_lines(text: str) -> dict[tuple[str, str], list[int]]:
    """In which lines a key stands, by (table, key); a table itself is ("", table)."""
    found: dict[tuple[str, str], list[int]] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            table = header[1].strip("\"' ")
            found.setdefault(("", table), []).append(number)
        elif entry := re.match(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*=""", line):
            found.setdefault((table, entry[1].strip("\"'")), []).append(number)
    return found
