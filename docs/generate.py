"""The parts of the reference that are made from the code, as Markdown.

A page in docs/ says where such a part belongs by a comment, `<!-- generated: options -->`; `fill` puts it there.
Every part has two functions: one that reads the code (`read_methods`, `read_job_keys`, ...) and one that writes the
text. Where the code keeps something changes in the first only.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args

import click
from docstrings import escape, first_sentence, to_markdown

MARK = re.compile(r"<!-- generated: (\w+)(?: ([\w.]+))? -->")


def fill(page: str) -> str:
    """A page with its generated parts in place."""

    def part(mark: re.Match[str]) -> str:
        name, argument = mark.groups()
        return PARTS[name](argument) if argument else PARTS[name]()

    return MARK.sub(part, page)


# ----------------------------------------------------------------------------------------------- options of the methods


@dataclass(frozen=True)
class Option:
    name: str
    letter: str
    kind: str
    default: str
    allowed: str
    text: str


@dataclass(frozen=True)
class Method:
    name: str
    text: str
    options: tuple[Option, ...]


def read_methods() -> list[Method]:
    from fedpact.solvers import METHODS
    from fedpact.solvers.base import options_of

    return [
        Method(name, to_markdown(kind.__doc__), tuple(_read_option(o, *about) for o, about in options_of(kind).items()))
        for name, kind in METHODS.items()
    ]


def _read_option(name: str, hint: Any, default: Any, about: Any) -> Option:
    kinds = [kind.__name__ for kind in get_args(hint) or (hint,) if kind is not NoneType]
    allowed = ", ".join(map(repr, about.choices)) or about.range
    return Option(name, about.letter, " or ".join(kinds), repr(default), allowed, about.doc)


def options() -> str:
    """A section for every method: what it is, and its options."""
    return "\n\n".join(_method_section(method) for method in read_methods())


def _method_section(method: Method) -> str:
    rows = [
        (f"`{o.name}`", escape(o.letter), o.kind, f"`{o.default}`", escape(o.allowed), escape(o.text))
        for o in method.options
    ]
    head = ("option", "letter", "type", "default", "allowed", "what it is")
    listed = _table(head, rows) if rows else "It has no options."
    return f"## {method.name}\n\n{method.text}\n\n{listed}"


# ------------------------------------------------------------------------------------------------------------- job keys


@dataclass(frozen=True)
class Key:
    table: str
    name: str
    kind: str
    default: str
    tasks: str
    text: str


def read_job_keys() -> list[Key]:
    from fedpact.jobs.keys import KEYS, KINDS, OPEN

    named = [
        Key(key.table, key.name, _kind(KINDS[key.kind].words), key.default, ", ".join(key.tasks), _meaning(key))
        for key in KEYS.values()
    ]
    free = [Key(table, "*", "an entry for each name", "", "", text) for table, text in OPEN.items()]
    return [*named, *free]


def _kind(words: str) -> str:
    """Without its example."""
    return words.partition(", such as")[0]


def _meaning(key: Any) -> str:
    return f"{key.doc}: {', '.join(key.choices)}" if key.choices else str(key.doc)


def job_keys() -> str:
    """A section for every table of a job file, with its keys."""
    keys = read_job_keys()
    sections = []
    for table in dict.fromkeys(key.table for key in keys):
        rows = [
            (f"`{key.name}`", *map(escape, (key.kind, key.default, key.text, key.tasks or "all")))
            for key in keys
            if key.table == table
        ]
        title = _title(table)
        sections.append(f"## {title}\n\n{_table(('key', 'value', 'default', 'meaning', 'tasks'), rows)}")
    return "\n\n".join(sections)


def _title(table: str) -> str:
    from fedpact.jobs.keys import LISTS

    if not table:
        return "At the top"
    return f"`[[{table}]]`" if table in LISTS else f"`[{table}]`"


def read_site_keys() -> list[Key]:
    from dataclasses import fields

    from fedpact.federation.policy import KINDS, SitePolicy, in_toml

    return [
        Key(f.metadata["table"], f.name, KINDS[f.metadata["kind"]][1], in_toml(f), "", f.metadata["doc"])
        for f in fields(SitePolicy)
    ]


def site_keys() -> str:
    """A section for every table of a site.toml, with its keys; one that holds names of the user's own has none."""
    keys = read_site_keys()
    sections = []
    for table in dict.fromkeys(key.table for key in keys):
        listed = [key for key in keys if key.table == table]
        rows = [(f"`{key.name}`", *map(escape, (key.kind, key.default, key.text))) for key in listed]
        text = _table(("key", "value", "default", "meaning"), rows)
        if len(listed) == 1:
            text = f"A line for each: {escape(listed[0].text)}."
        sections.append(f"## `[{table}]`\n\n{text}")
    return "\n\n".join(sections)


# --------------------------------------------------------------------------------------------------------------- errors


@dataclass(frozen=True)
class Error:
    """code: `FP-DATA` stands for all errors of a class, `FP-DATA-003` for one of them."""

    code: str
    kind: str
    text: str


def read_errors() -> list[Error]:
    from fedpact.errors import CODES, class_of

    found = []
    for code in sorted(CODES):
        kind = class_of(code)
        text = to_markdown(kind.__doc__)
        if code != kind.code:
            what, _, remedy = CODES[code].partition("; ")
            text = escape(f"{what}. **What to do:** {remedy}.")
        found.append(Error(code, kind.__name__, text))
    return found


def error_codes() -> str:
    """A section for every code, each class before its codes."""
    return "\n\n".join(f"## {error.code}\n\n`{error.kind}`: {error.text}" for error in read_errors())


# --------------------------------------------------------------------------------------------------------- command line


def read_commands() -> Iterator[click.Context]:
    """The context of every command and subcommand of `fedpact`, in the order of its help."""
    from fedpact.cli.main import cli

    yield from _contexts(cli, "fedpact", None)


def _contexts(command: click.Command, name: str, parent: click.Context | None) -> Iterator[click.Context]:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None and not found.hidden:
                yield from _contexts(found, inner, context)


def commands() -> str:
    """A section for every command, with what its --help prints."""
    return "\n\n".join(
        f"## {context.command_path}\n\n```text\n{context.get_help()}\n```" for context in read_commands()
    )


# ------------------------------------------------------------------------------------------------------ the public API


def api(module: str) -> str:
    """mkdocstrings' directive for every public name of a module."""
    return "\n\n".join(f"::: {module}.{name}" for name in importlib.import_module(module).__all__)


def surface() -> str:
    """A table of what `import fedpact as fp` offers."""
    import fedpact

    rows = []
    for name in fedpact.__all__:
        found = getattr(fedpact, name)
        # A room has a page of its own; anything else is found where it is defined (`fedpact.solve` is a module, too).
        target = f"({name}.md)" if inspect.ismodule(found) else f"[{found.__module__}.{name}]"
        rows.append((f"[`fp.{name}`]{target}", first_sentence(found.__doc__)))
    return _table(("name", "what it is"), rows)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


PARTS: dict[str, Callable[..., str]] = {
    "options": options,
    "job_keys": job_keys,
    "site_keys": site_keys,
    "error_codes": error_codes,
    "commands": commands,
    "api": api,
    "surface": surface,
}
