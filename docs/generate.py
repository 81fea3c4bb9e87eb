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
from typing import Any

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
    kind: str
    default: str


@dataclass(frozen=True)
class Method:
    name: str
    summary: str
    text: str
    options: tuple[Option, ...]


def read_methods() -> list[Method]:
    from fedpact.solvers import METHODS

    return [_read_method(name, solver) for name, solver in METHODS.items()]


def _read_method(name: str, solver: Callable[..., Any]) -> Method:
    parameters = inspect.signature(solver).parameters.values()
    options = tuple(
        Option(p.name, str(p.annotation), repr(p.default))
        for p in parameters
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    )
    module = inspect.getmodule(solver)
    return Method(name, first_sentence(module.__doc__ if module else None), to_markdown(solver.__doc__), options)


def options() -> str:
    """A section for every method: what it is, and its options."""
    return "\n\n".join(_method_section(method) for method in read_methods())


def _method_section(method: Method) -> str:
    rows = [(f"`{option.name}`", f"`{option.kind}`", f"`{option.default}`") for option in method.options]
    listed = _table(("option", "type", "default"), rows) if rows else "It has no options."
    return f"## {method.name}\n\n{method.summary}\n\n{listed}\n\n{method.text}"


# ------------------------------------------------------------------------------------------------------------- job keys


@dataclass(frozen=True)
class Key:
    table: str
    name: str
    kind: str
    text: str


#: What a key means; `table.key`, or the key alone at the top.
MEANINGS = {
    "title": "how the run is called in its report; by default the name of the file",
    "task": '"neyman_pearson" (bounds the loss, or demands a recall, on one class at every owner), "group_fairness" '
    '(bounds the gap between groups at every owner), "linear_qp" (matrices in .npz files) or "custom" (a Python file)',
    "label": "column to predict",
    "classes": "values the label may take; by default [0, 1]",
    "protected": "class whose loss is bounded, or whose recall is demanded; by default the last one",
    "features": "columns of the model, in order; by default all other columns of the first owner",
    "bound": "largest mean loss on the protected class, or largest gap between groups, at every owner; for one bound "
    "per owner write a table `[bound]`",
    "min_recall": "recall of the protected class that every owner must have, in place of `bound`; the bounds that give "
    "it are found by the run",
    "group": 'column of the groups, for task "group_fairness"',
    "groups": "values the group may take; by default [0, 1]",
    "parity": 'what may differ between groups by at most `bound`: the mean "loss", or the mean probability of the '
    'second class over all rows ("demographic_parity") or over rows of that class ("equal_opportunity")',
    "missing": 'missing values are an "error" (the default), or replaced by the "mean" over all owners',
    "standardize": "scale numeric columns to mean 0 and standard deviation 1 over all owners, computed from sums; by "
    "default true",
    "intercept": "whether the model has an intercept; by default true",
    "regularization": "weight of half the squared norm of the model, intercepts left out; by default 0.001",
    "functions": 'Python file with a function `share(table, name, owners)`, for task "custom"',
    "solve.method": 'one of the methods; by default "auto"',
    "solve.engine": '"in-process" (the default), "threads" or "ray"; owners at `flower://` addresses imply "flower"',
    "solve.tol": "tolerance of the certificate, between 0 and 1; by default 0.001",
    "solve.seed": "seed of everything that is drawn at random; by default 0",
    "solve.max_rounds": "most exchanges with the owners in one solve",
    "solve.secure_sum": "whether the coordinator sees only sums over the owners; every owner needs the extra `secure`",
    "solve.on_failure": 'when an owner does not answer: "retry" (the default), "stale" (use its last reply where the '
    'method allows that) or "stop"',
    "solve.deadline": "seconds an owner has for a reply; by default as long as it takes",
    "solve.retries": "how often an order is sent again before the owner counts as lost; by default 8",
    "solve.compare": "whether to train without the constraints too, to show what they cost; by default true",
    "server.data": 'table of the server, for task "group_fairness": the gap is bounded on its rows as well',
    "output.folder": 'folder of the run; by default "run"',
    "output.messages": "whether to keep every message in `messages.log`, for an auditor; by default false",
    "output.track": 'trackers that write curves while it runs: "csv", "tensorboard", "mlflow"',
    "flower.root_certificates": "certificate authority of the SuperLink",
    "flower.patience": "seconds to wait for sites that are not online at the start; by default 120",
    "owners.*": "name of an owner = its table (CSV or Parquet), or `flower://ADDRESS` of the SuperLink of its site",
    "categories.*": "name of a text column = list of the values it may take, the same for all owners",
    "bound.*": "name of an owner = its bound",
}


def read_job_keys() -> list[Key]:
    from fedpact.jobs.job_file import KEYS, KINDS, OPEN

    kinds = {kind: words.split(",")[0] for kind, (_, words) in KINDS.items()}  # without their example
    named = [(table, name, kinds[kind]) for table, keys in KEYS.items() for name, kind in keys.items()]
    free = [(table, "*", "an entry for each name") for table in OPEN]
    return [
        Key(table, name, kind, MEANINGS.get(f"{table}.{name}".strip("."), "")) for table, name, kind in [*named, *free]
    ]


def job_keys() -> str:
    """A section for every table of a job file, with its keys."""
    keys = read_job_keys()
    sections = []
    for table in dict.fromkeys(key.table for key in keys):
        rows = [(f"`{key.name}`", escape(key.kind), escape(key.text)) for key in keys if key.table == table]
        title = f"`[{table}]`" if table else "At the top"
        sections.append(f"## {title}\n\n{_table(('key', 'value', 'meaning'), rows)}")
    return "\n\n".join(sections)


# --------------------------------------------------------------------------------------------------------------- errors


@dataclass(frozen=True)
class Error:
    code: str
    bases: str
    text: str


def read_errors() -> list[Error]:
    from fedpact import errors

    classes = [found for found in vars(errors).values() if inspect.isclass(found)]
    return [
        Error(found.__name__, ", ".join(f"`{base.__name__}`" for base in found.__bases__), to_markdown(found.__doc__))
        for found in classes
        if issubclass(found, errors.FedpactError)
    ]


def error_codes() -> str:
    """A section for every error."""
    return "\n\n".join(f"## {error.code}\n\n{error.text}\n\nBases: {error.bases}" for error in read_errors())


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
    "error_codes": error_codes,
    "commands": commands,
    "api": api,
    "surface": surface,
}
