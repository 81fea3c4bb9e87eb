"""A report as Markdown: the same words and tables as the page, and a sentence in place of each chart."""

from __future__ import annotations

import re

from fedpact.report.charts import Chart
from fedpact.report.content import Cell, Items, Report, Table

#: What Markdown or HTML in it would take for a sign of its own.
SIGNS = re.compile(r"([\\`*_{}\[\]#|~])")


def markdown(report: Report) -> str:
    verdict = report.verdict
    parts = [f"# {plain(report.title)}", plain(report.asked)]
    parts += [f"## {'✓' if verdict.good else '✗'} {plain(verdict.headline)}", *map(plain, verdict.sentences)]
    if verdict.todo:
        parts.append(f"**What to do next.** {plain(verdict.todo)}")
    parts.append(
        "\n".join(
            f"- {name}: {plain(value)}{remark and f' ({plain(remark)})'}" for name, value, remark in report.figures
        )
    )
    for section in report.sections:
        parts += [f"## {plain(section.title)}", *map(_block, section.blocks)]
    return "\n\n".join([*parts, plain(report.made)]) + "\n"


def plain(text: str) -> str:
    """Text that means itself, on one line."""
    one_line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SIGNS.sub(r"\\\1", one_line)


def _block(block: str | Table | Chart | Items) -> str:
    if isinstance(block, str):
        return plain(block)
    if isinstance(block, Chart):
        return f"**{plain(block.title)}.** {plain(block.about)}"
    if isinstance(block, Items):
        return "\n".join(f"- {plain(item)}" for item in block.items)
    rule = ["---:" if block.numeric(i) else "---" for i in range(len(block.columns))]
    rows = [list(map(plain, block.columns)), rule, *(list(map(_cell, row)) for row in block.rows)]
    return f"**{plain(block.caption)}**\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(cell: Cell) -> str:
    return plain(cell.text) + (f" ({plain(cell.remark)})" if cell.remark else "")
