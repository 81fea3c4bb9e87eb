"""The text of a job file: every key is known and used, every value is of its kind; errors point at their line."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fedpact.errors import FedpactError, OptionError
from fedpact.jobs.keys import KEYS, KINDS, LISTS, OPEN

E = TypeVar("E", bound=FedpactError)

#: Tables whose keys are names of owners.
NAMES = ("owners", "roster")


class JobText:
    """A job file, and in which line each of its keys stands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path.parent
        try:
            self.text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            remedy = "`fedpact init FOLDER` writes an example"
            raise OptionError(f"{path} cannot be read as a job ({error}); {remedy}", code="FP-OPTION-360") from error
        self.lines = key_lines(self.text)

    def parse(self) -> dict[str, Any]:
        try:
            found = tomllib.loads(self.text)
        except RecursionError as error:
            raise OptionError(
                f"{self.path}: its lists or tables are nested too deeply; a job has two levels", code="FP-OPTION-361"
            ) from error
        except (tomllib.TOMLDecodeError, ValueError) as error:  # ValueError: a number of thousands of digits
            match = re.search(r"line (\d+)", str(error))
            line = int(match[1]) if match else 1
            self._check_repeated(line)
            raise OptionError(f"{self.path}:{line}: this is not TOML: {error}", code="FP-OPTION-362") from error
        self._check_sizes(found)
        return found

    def _check_repeated(self, line: int) -> None:
        """The key of this line does not stand in an earlier one of the same table."""
        for (table, key), places in self.lines.items():
            if line in places[1:]:
                what = f"owner {key!r}" if table == "owners" else f"{key!r}"
                raise OptionError(
                    f"{self.path}:{line}: {what} is stated twice, first in line {places[0]}; give each its own name",
                    code="FP-OPTION-363",
                    key=key,
                )

    def _check_sizes(self, found: Any, table: str = "", key: str = "") -> None:
        """Numbers fit into 64 bits, at whatever depth they stand."""
        if isinstance(found, dict):
            for name, value in found.items():
                self._check_sizes(value, key, name)
        elif isinstance(found, list):
            for value in found:
                self._check_sizes(value, table, key)
        elif isinstance(found, int) and not -(2**63) <= found < 2**63:
            self.fail("FP-OPTION-364", table, key, f"{key} holds a number that is too large; give one below 2^63")

    def check_keys(self, found: Mapping[str, Any], task: str) -> None:
        tables = {*NAMES, *(table for table, _ in KEYS if table)} - LISTS.keys()
        for key, value in found.items():
            if key in LISTS:
                self._check_list(key, value, task)
            elif key not in tables:
                self._check("", key, value, task)
            elif not isinstance(value, dict):
                self.fail(
                    "FP-OPTION-366", "", key, f"{key} = {value!r}: it is a table; write [{key}] and its lines below"
                )
            elif key not in NAMES:
                for inner, content in value.items():
                    self._check(key, inner, content, task)

    def _check_list(self, name: str, tables: Any, task: str) -> None:
        """A list of tables, [[name]]: the task uses it, and so are the keys of each."""
        if isinstance(tables, dict):
            self.fail(
                "FP-OPTION-830", "", name, f"[{name}]: there may be several; write [[{name}]], with two brackets each"
            )
        self._check("", name, tables, task)
        for number, one in enumerate(tables, 1):
            for key, value in one.items():
                self._check(nth(name, number), key, value, task)

    def _check(self, table: str, key: str, value: Any, task: str) -> None:
        """The key is known, the task uses it, and its value is of its kind. table: of a list, the `nth`"""
        declared = table.partition(" ")[0]
        if f"{table}.{key}" in OPEN:
            self._check_kind(table, key, value, "table")
            return
        if (declared, key) not in KEYS:
            self._fail_unknown(table, key)
        about = KEYS[declared, key]
        if about.tasks and task not in about.tasks:
            users = ", ".join(about.tasks)
            self.fail(
                "FP-OPTION-367", table, key, f"{key}: task {task!r} does not use it (it is for: {users}); take it out"
            )
        self._check_kind(table, key, value, about.kind)
        if about.choices:
            for one in value if about.kind == "texts" else [value]:
                self.check_choice(table, key, one, about.choices)

    def check_choice(self, table: str, key: str, value: Any, choices: Sequence[str]) -> None:
        if value not in choices:
            self.fail("FP-OPTION-368", table, key, f"{key} {value!r} is unknown; choose {', '.join(choices)}")

    def _fail_unknown(self, table: str, key: str) -> NoReturn:
        names = [name for place, name in KEYS if place == table.partition(" ")[0]]
        if not table:
            names += [*dict.fromkeys(place for place, _ in KEYS if place), *NAMES]
        near = get_close_matches(key, names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(names)}"
        where = f" in [{table}]" if table else ""
        self.fail("FP-OPTION-369", table, key, f"unknown key {key!r}{where}; {hint}")

    def _check_kind(self, table: str, key: str, value: Any, kind: str) -> None:
        """The value is of this kind, and so is each entry of a table."""
        about = KINDS[kind]
        right = isinstance(value, about.types)
        if isinstance(value, bool) and kind != "bool":  # Python counts True as a whole number
            right = False
        if right and about.each is not None:
            right = all(isinstance(one, about.each) for one in value)
        if not right:
            self.fail("FP-OPTION-370", table, key, f"{key} = {value!r}: give {about.words}")
        if isinstance(value, dict) and about.entries:
            for name, entry in value.items():
                self._check_kind(f"{table}.{key}".lstrip("."), name, entry, about.entries)

    def fail(self, code: str, table: str, key: str, message: str) -> NoReturn:
        raise self.place(OptionError(message, code=code, key=key), table, key)

    def place(self, error: E, table: str, key: str) -> E:
        """The error, its message beginning with the file and the line of this key, or of its table."""
        parent, _, inner = table.rpartition(".")
        lines = self.lines.get((table, key)) or self.lines.get(("", table)) or self.lines.get((parent, inner))
        if lines:
            return error.within(f"{self.path}:{lines[0]}")
        return error.within(str(self.path))


def nth(name: str, number: int) -> str:
    """How one table of a list is called, counted from 1."""
    return f"{name} {number}"


def key_lines(text: str) -> dict[tuple[str, str], list[int]]:
    """In which lines a key stands, by (table, key); a table itself is ("", table), one of a list ("", its `nth`)."""
    found: dict[tuple[str, str], list[int]] = {}
    seen: Counter[str] = Counter()
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[\s*([^\[\]]+?)\s*\]\]", line):
            name = header[1].strip("\"' ")
            seen[name] += 1
            table = nth(name, seen[name])
            found.setdefault(("", name), [number])
            found["", table] = [number]
        elif header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            table = header[1].strip("\"' ")
            parent, _, inner = table.partition(".")
            if seen[parent]:  # a table inside the last one of a list
                table = f"{nth(parent, seen[parent])}.{inner}"
            found.setdefault(("", table), []).append(number)
        elif entry := re.match(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*=""", line):
            found.setdefault((table, entry[1].strip("\"'")), []).append(number)
    return found
