"""Docstrings of this project as Markdown.

A docstring is plain text: paragraphs, `code` in backticks, formulas that are indented by four, and lists of
`name: what it is` whose continuation lines are indented. Markdown would run such a list together into one paragraph,
and would take `K*` and `<=_K` for markup.
"""

from __future__ import annotations

import inspect
import re
import textwrap

#: An entry: one or more names of arguments, a colon, and a text.
ENTRY = re.compile(r"(?P<names>(?:[a-z]\w*|[A-Z])(?:, \w+)*): (?P<text>.+)")
#: An entry below "Raises:", where the names are those of errors.
RAISED = re.compile(r"(?P<names>\w+(?:, \w+)*): (?P<text>.+)")
HEADING = re.compile(r"\w+:?")
BULLET = re.compile(r"(-|\d+\.) ")
INDENT = "    "


def to_markdown(docstring: str | None) -> str:
    """The whole docstring as Markdown; empty for None."""
    text = inspect.cleandoc(docstring or "")
    return "\n\n".join(_paragraph(paragraph) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip())


def first_sentence(docstring: str | None) -> str:
    """The first paragraph of a docstring, up to its first full stop, as Markdown on one line."""
    paragraph = inspect.cleandoc(docstring or "").split("\n\n")[0]
    return re.split(r"(?<=\.)\s", escape(_joined(paragraph)))[0]


def escape(text: str) -> str:
    """Characters that Markdown would take for markup, escaped outside backticks."""
    return "".join(part if part.startswith("`") else _escape(part) for part in re.split(r"(`[^`]*`)", text))


def _escape(text: str) -> str:
    return re.sub(r"([\\*_\[\]|])", r"\\\1", text).replace("<", "&lt;")


def _paragraph(text: str) -> str:
    if text.startswith(INDENT):
        return text
    if BULLET.match(text):
        return escape(text)
    items = _items(text)
    listed = [item for item in items if ENTRY.fullmatch(_joined(item))]
    if len(listed) == len(items) or len(listed) > 1:
        return "\n".join(_bullet(item) for item in items)
    head, *rest = items[0].splitlines()
    if len(items) == 1 and rest and HEADING.fullmatch(head):
        return f"**{head}**\n\n{_below(textwrap.dedent(chr(10).join(rest)))}"
    return escape(text)


def _below(text: str) -> str:
    """What stands under a heading: a list of entries, or a table of letters, kept as it is set."""
    items = _items(text)
    if all(RAISED.fullmatch(_joined(item)) for item in items):
        return "\n".join(_bullet(item, RAISED) for item in items)
    return textwrap.indent(text, INDENT)


def _items(text: str) -> list[str]:
    """Every line that is not indented, with the indented ones below it."""
    return re.split(r"\n+(?=\S)", text)


def _bullet(item: str, pattern: re.Pattern[str] = ENTRY) -> str:
    text = _joined(item)
    entry = pattern.fullmatch(text)
    if not entry:
        return f"- {escape(text)}"
    names = ", ".join(f"`{name}`" for name in entry["names"].split(", "))
    return f"- {names}: {escape(entry['text'])}"


def _joined(text: str) -> str:
    return " ".join(text.split())
