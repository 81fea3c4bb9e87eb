"""A report as Markdown: the same words and tables as the page, and a sentence in place of each chart."""

from __future__ import annotations

import re

from fedpact.report.charts import Chart
from fedpact.report.content import Items, Report, Table

#: Characters with a meaning in Markdown.
SIGNS = re.compile(r"([\\`*_{}\[\]#|~])")


def markdown(report: Report) -> str:
    """The whole document."""
    verdict = report.verdict
    parts = [f"# {plain(report.title)}", plain(report.asked)]
    parts += [f"## {verdict.mark} {plain(verdict.headline)}", *map(plain, verdict.sentences)]
    if verdict.todo:
        parts.append(f"**What to do next.** {plain(verdict.todo)}")
    figures = [f"- {name}: {_with_remark(value, remark)}" for name, value, remark in report.figures]
    parts.append("\n".join(figures))
    for section in report.sections:
        parts += [f"## {plain(section.title)}", *map(_block, section.blocks)]
    return "\n\n".join([*parts, plain(report.made)]) + "\n"


def plain(text: str) -> str:
    """Text with Markdown and HTML characters escaped, on one line."""
    one_line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SIGNS.sub(r"\\\1", one_line)


def _block(block: str | Table | Chart | Items) -> str:
    if isinstance(block, str):
        return plain(block)
    if isinstance(block, Chart):
        return f"**{plain(block.title)}.** {plain(block.about)}"
    if isinstance(block, Items):
        return "\n".join(f"- {plain(item)}" for item in block.items)
    return _table(block)


def _table(table: Table) -> str:
    rows = [list(map(plain, table.columns))]
    rows.append(["---:" if table.numeric(i) else "---" for i in range(len(table.columns))])
    for row in table.rows:
        rows.append([_with_remark(cell.text, cell.remark) for cell in row])
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([f"**{plain(table.caption)}**\n", *lines])


def _with_remark(text: str, remark: str) -> str:
    if not remark:
        return plain(text)
    return f"{plain(text)} ({plain(remark)})"
