"""Read and validate a job file: every key is known and used, every value has its type and range."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from fedpact.data.cells import column_names
from fedpact.errors import DataError, OptionError
from fedpact.jobs.keys import KEYS, KINDS, OPEN
from fedpact.solvers import METHODS
from fedpact.tasks import TASKS, TableTask, Task, keys_of
from fedpact.tasks.base import SERVER

#: How an owner is written that is a site of a Flower federation: this, and the address of the SuperLink.
FLOWER = "flower://"


@dataclass(frozen=True, eq=False)
class JobFile:
    """A job that was read and checked.

    task:      what the owners agree on
    owners:    name -> its file, or the Flower address
    compare:   train without the constraints too
    solve:     of `fp.fit` and `fp.Session`, by key
    options:   of the method
    output:    folder of the run
    messages:  keep every message in it
    track:     names of trackers, see `fedpact.report.tracking`
    server:    the server's own table, or None
    superlink: address of the SuperLink whose sites the owners are, or ""
    settings:  the whole as it was read, for the report
    """

    path: Path
    title: str
    task: Task
    owners: dict[str, str]
    output: Path
    compare: bool = True
    messages: bool = False
    track: tuple[str, ...] = ()
    server: Path | None = None
    superlink: str = ""
    flower: dict[str, Any] = field(default_factory=dict)
    solve: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def read_job(path: str | Path) -> JobFile:
    """Read and validate a job file; relative paths are resolved against its folder. OptionError has file and line."""
    return _Reader(Path(path)).read()


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path.parent
        try:
            self.text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            remedy = "`fedpact init FOLDER` writes an example"
            raise OptionError(f"{path} cannot be read as a job ({error}); {remedy}") from error
        self.lines = key_lines(self.text)

    def read(self) -> JobFile:
        found = self._parse()
        name = self._task_name(found)
        self._check_keys(found, name)
        owners = self._owners(found)
        superlink = self._superlink(owners)
        files = {} if superlink else {owner: self._file("owners", owner, path) for owner, path in owners.items()}
        server = found.get("server", {}).get("data")
        at_server = None if server is None else self._file("server", "data", server)
        solve = dict(found.get("solve", {}))
        options = dict(solve.pop("options", {}))
        self._check_solve(solve, options, superlink)
        output = found.get("output", {})
        return JobFile(
            path=self.path,
            title=found.get("title", self.path.stem),
            task=self._task(found, TASKS[name], files, at_server),
            owners=owners if superlink else {owner: str(file) for owner, file in files.items()},
            output=self.folder / output.get("folder", "run"),
            compare=solve.pop("compare", True),
            messages=output.get("messages", False),
            track=tuple(dict.fromkeys(output.get("track", ()))),
            server=at_server,
            superlink=superlink,
            flower=self._flower(found, superlink),
            solve=solve,
            options=options,
            settings=found,
        )

    # ----------------------------------------------------------------------------------------------------------- keys

    def _parse(self) -> dict[str, Any]:
        try:
            found = tomllib.loads(self.text)
        except RecursionError as error:
            raise OptionError(f"{self.path}: its lists or tables are nested too deeply; a job has two") from error
        except (tomllib.TOMLDecodeError, ValueError) as error:  # ValueError: a number of thousands of digits
            line = int(match[1]) if (match := re.search(r"line (\d+)", str(error))) else 0
            for (table, key), places in self.lines.items():
                if line in places[1:]:
                    what = f"owner {key!r}" if table == "owners" else f"{key!r}"
                    raise OptionError(
                        f"{self.path}:{line}: {what} is stated twice, first in line {places[0]}; give each its own name"
                    ) from error
            raise OptionError(f"{self.path}:{line or 1}: this is not TOML: {error}") from error
        self._check_sizes(found)
        return found

    def _check_sizes(self, found: Any, table: str = "", key: str = "") -> None:
        """Numbers fit into 64 bits, at whatever depth they stand."""
        if isinstance(found, dict):
            for name, value in found.items():
                self._check_sizes(value, key, name)
        elif isinstance(found, list):
            for value in found:
                self._check_sizes(value, table, key)
        elif isinstance(found, int) and not -(2**63) <= found < 2**63:
            self._fail(table, key, f"{key} holds a number that is too large; give one below 2^63")

    def _task_name(self, found: Mapping[str, Any]) -> str:
        if "task" not in found:
            raise OptionError(f"{self.path}: task is not stated; choose {', '.join(TASKS)}")
        if found["task"] not in list(TASKS):  # it may be anything
            self._fail("", "task", f"task {found['task']!r} is unknown; choose {', '.join(TASKS)}")
        return str(found["task"])

    def _check_keys(self, found: Mapping[str, Any], task: str) -> None:
        tables = {"owners", *(table for table, _ in KEYS if table)}
        for key, value in found.items():
            if key not in tables:
                self._check("", key, value, task)
            elif not isinstance(value, dict):
                self._fail("", key, f"{key} = {value!r}: it is a table; write [{key}] and its lines below")
            elif key != "owners":
                for inner, content in value.items():
                    self._check(key, inner, content, task)

    def _check(self, table: str, key: str, value: Any, task: str) -> None:
        if f"{table}.{key}" in OPEN:
            self._check_kind(table, key, value, "table")
            return
        about = KEYS.get((table, key)) or self._fail_unknown(table, key)
        if about.tasks and task not in about.tasks:
            users = ", ".join(about.tasks)
            self._fail(table, key, f"{key}: task {task!r} does not use it (it is for: {users}); take it out")
        self._check_kind(table, key, value, about.kind)
        for one in value if about.kind == "texts" else [value]:
            if about.choices and one not in about.choices:
                self._fail(table, key, f"{key} {one!r} is unknown; choose {', '.join(about.choices)}")

    def _fail_unknown(self, table: str, key: str) -> NoReturn:
        names = [name for place, name in KEYS if place == table]
        if not table:
            names += [*dict.fromkeys(place for place, _ in KEYS if place), "owners"]
        near = get_close_matches(key, names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(names)}"
        where = f" in [{table}]" if table else ""
        self._fail(table, key, f"unknown key {key!r}{where}; {hint}")

    def _check_kind(self, table: str, key: str, value: Any, kind: str) -> None:
        """The value is of this kind, and so is each entry of a table."""
        right = isinstance(value, KINDS[kind].types) and (kind == "bool" or not isinstance(value, bool))
        if right and kind == "texts":
            right = all(isinstance(one, str) for one in value)
        if not right:
            self._fail(table, key, f"{key} = {value!r}: give {KINDS[kind].words}")
        if isinstance(value, dict) and KINDS[kind].entries:
            for name, entry in value.items():
                self._check_kind(key, name, entry, KINDS[kind].entries)

    def _check_solve(self, solve: Mapping[str, Any], options: dict[str, Any], superlink: str) -> None:
        if not 0 < solve.get("tol", 1e-3) < 1:
            self._fail("solve", "tol", f"tol = {solve['tol']}: give a number above 0 and below 1")
        engine = solve.get("engine")
        if engine is not None and (engine == "flower") != bool(superlink):
            self._fail("solve", "engine", f'{engine!r} and owners do not fit: "flower" is for "{FLOWER}..." owners')
        if options:
            method = solve.get("method", "auto")
            if method == "auto":
                self._fail("solve", "method", "[solve.options] are those of a method: state it, method = ...")
            try:
                METHODS[method].build(options)
            except OptionError as error:
                self._fail("solve.options", next(iter(options)), str(error))

    # ----------------------------------------------------------------------------------------------------------- owners

    def _owners(self, found: Mapping[str, Any]) -> dict[str, str]:
        owners = found.get("owners")
        if not owners:
            raise OptionError(
                f'{self.path}: there are no owners; add a table [owners] with lines such as north = "north.csv"'
            )
        seen: dict[str, str] = {}
        for name, path in owners.items():
            if not isinstance(path, str):
                self._fail("owners", name, f"{name} = {path!r}: give the path of its file in quotes")
            if name == SERVER:
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

    def _flower(self, found: Mapping[str, Any], superlink: str) -> dict[str, Any]:
        """The table [flower], with the path of its file."""
        flower = dict(found.get("flower", {}))
        if flower and not superlink:
            self._fail("", "flower", f'[flower] is for owners at "{FLOWER}..."; take it out')
        if "root_certificates" in flower:
            flower["root_certificates"] = str(self._file("flower", "root_certificates", flower["root_certificates"]))
        return flower

    def _file(self, table: str, key: str, path: str) -> Path:
        file = self.folder / path
        if not file.is_file():
            what = f"of owner {key!r} " if table == "owners" else ""
            self._fail(table, key, f"the file {what}does not exist: {file}; correct the path, or put the file there")
        return file

    # ------------------------------------------------------------------------------------------------------------- task

    def _task(self, found: Mapping[str, Any], kind: type[Task], files: Mapping[str, Path], server: Path | None) -> Task:
        keys = keys_of(kind)
        stated = {field: found[name] for name, (field, _, _) in keys.items() if name in found}
        if issubclass(kind, TableTask):
            stated["columns"] = self._columns(found, files, server)
            stated.setdefault("standardize", True)
        for name in ("classes", "groups"):
            if name in stated:
                stated[name] = tuple(map(str, stated[name]))
        if "protected" in stated:
            stated["protected"] = str(stated["protected"])
        if "functions" in stated:
            stated["functions"] = str(self._file("", "functions", stated["functions"]).resolve())
        self._check_bound(found)
        try:
            return kind(owners=len(found["owners"]), **stated)
        except OptionError as error:
            names = {field: name for name, (field, _, _) in keys.items()}
            line = self.lines.get(("", names.get(error.key, "")), [0])[0]
            raise error.within(f"{self.path}:{line}" if line else str(self.path)) from error

    def _check_bound(self, found: Mapping[str, Any]) -> None:
        bound = found.get("bound")
        if bound is not None and "min_recall" in found:
            self._fail("", "min_recall", "min_recall and bound are both stated; min_recall finds the bounds by itself")
        if not isinstance(bound, dict):
            return
        for owner in bound:
            if owner not in (*found["owners"], SERVER):
                self._fail("bound", owner, f"{owner!r} is no owner; the owners are: {', '.join(found['owners'])}")
        for owner in found["owners"]:
            if owner not in bound:
                self._fail("", "bound", f"[bound] has no entry for owner {owner!r}; give one for every owner")

    def _columns(self, found: Mapping[str, Any], files: Mapping[str, Path], server: Path | None) -> tuple[str, ...]:
        """The features: as stated, or all other columns of the first owner; every owner has them all."""
        label = found.get("label", "")
        group = found.get("group", "")
        if not label:
            raise OptionError(f'{self.path}: label is not stated; add a line label = "..." with the column to predict')
        headers = {name: self._header(name, file) for name, file in files.items()}
        if server is not None:
            headers[SERVER] = column_names(server)
        columns = found.get("features")
        first = next(iter(headers), "")
        if columns is None and not headers:
            raise OptionError(f"{self.path}: features are not stated; list the columns that every site has")
        if columns is None:
            columns = [column for column in headers[first] if column not in (label, group)]
        for name, names in headers.items():
            has = f"it has: {', '.join(names)}"
            for key, column in (("label", label), ("group", group)):
                if column and column not in names:
                    self._fail("", key, f"owner {name!r} has no column {column!r}; {has}")
            for column in columns:
                if column in names:
                    continue
                if "features" in found:
                    self._fail("", "features", f"owner {name!r} has no column {column!r}; {has}")
                self._fail(
                    "owners",
                    name,
                    f"owner {name!r} has no column {column!r}, which owner {first!r} has ({has}); give all the same "
                    "columns, or list the common ones: features = [...]",
                )
        return tuple(columns)

    def _header(self, name: str, file: Path) -> tuple[str, ...]:
        try:
            return column_names(file)
        except DataError as error:
            self._fail("owners", name, f"owner {name!r}: {error}")

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
