"""A report as a self-contained HTML page, for screen and paper: no network, no script, no font."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from itertools import groupby

from fedpact.report.charts import Chart, legend, svg
from fedpact.report.content import Cell, Items, Report, Section, Table
from fedpact.report.wording import Verdict

#: The browser loads nothing and runs nothing, whatever text a record holds.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"

#: A text of more characters gets a column with a minimum width, also on a narrow screen.
WORDS = 60


def page(report: Report) -> str:
    """The whole document."""
    links = "".join(f'<li><a href="#{s.key}">{escape(s.title)}</a></li>' for s in report.sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(report.title)}: report of a run</title>
<style>
{files("fedpact.report").joinpath("page.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<a class="skip" href="#verdict">Skip to the verdict</a>
<header>
<p class="made">fedpact, report of a run</p>
<h1><bdi>{escape(report.title)}</bdi></h1>
<p class="asked">{escape(report.asked)}</p>
<p class="made">{escape(report.made)}</p>
</header>
<main>
{_verdict(report.verdict, report.figures)}
<nav aria-label="Contents"><ul>{links}</ul></nav>
{"".join(map(_section, report.sections))}</main>
</body>
</html>
"""


def _verdict(verdict: Verdict, figures: tuple[tuple[str, str, str], ...]) -> str:
    """The verdict, and the run in a few numbers below it."""
    tone = "warned" if verdict.warned else _tone(verdict.good)
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in verdict.sentences)
    todo = ""
    if verdict.todo:
        todo = f'<p class="todo"><strong>What to do next.</strong> {escape(verdict.todo)}</p>'
    mark = f'<span class="mark" aria-hidden="true">{verdict.mark}</span>'
    tiles = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd>{escape(remark)}</dd></div>"
        for name, value, remark in figures
    )
    return (
        f'<section id="verdict" tabindex="-1" aria-labelledby="verdict-title" class="{tone}">'
        f'<h2 id="verdict-title">{mark}{escape(verdict.headline)}</h2>'
        f'{sentences}{todo}</section>\n<dl class="figures">{tiles}</dl>'
    )


def _section(section: Section) -> str:
    """A section; consecutive charts share a grid."""
    parts: list[str] = []
    for are_charts, blocks in groupby(section.blocks, lambda block: isinstance(block, Chart)):
        text = "\n".join(map(_block, blocks))
        if are_charts:
            text = f'<div class="charts">{text}</div>'
        parts.append(text)
    head = f'<section id="{section.key}" aria-labelledby="{section.key}-head"><h2 id="{section.key}-head">'
    body = "\n".join(parts)
    return f"{head}{escape(section.title)}</h2>\n{body}\n</section>\n"


def _block(block: str | Table | Chart | Items) -> str:
    if isinstance(block, Chart):
        return f"<figure><figcaption>{escape(block.title)}{legend(block)}</figcaption>{svg(block)}</figure>"
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, Items):
        return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in block.items)}</ul>"
    if block.folded:
        return f"<details><summary>{escape(block.caption)}</summary>{_table(block)}</details>"
    return _table(block)


def _table(table: Table) -> str:
    """A table in a scrollable region, reachable by keyboard, so that the page itself never scrolls sideways."""
    styles = [' class="number"' if table.numeric(i) else "" for i in range(len(table.columns))]
    head = [f'<th scope="col"{style}>{escape(title)}</th>' for style, title in zip(styles, table.columns, strict=True)]
    rows = []
    for first, *others in table.rows:
        cells = [f"<td{style}>{_cell(cell)}</td>" for style, cell in zip(styles[1:], others, strict=True)]
        rows.append(f'<tr><th scope="row"><bdi>{escape(first.text)}</bdi></th>{"".join(cells)}</tr>\n')
    caption = escape(table.caption)
    return (
        f'<div class="scroll" role="region" aria-label="{caption}" tabindex="0"><table><caption>{caption}</caption>'
        f"<thead><tr>{''.join(head)}</tr></thead>\n<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    remark = f"<small>{escape(cell.remark)}</small>" if cell.remark else ""
    if cell.good is not None:
        return f'<span class="pill {_tone(cell.good)}">{text}</span>{remark}'
    if cell.exact is None and len(cell.text) > WORDS:
        return f'<bdi class="words">{text}</bdi>'
    if cell.exact is None:
        return f"<bdi>{text}</bdi>"
    number = f'<data value="{cell.exact!r}" title="{cell.exact!r}">{text}</data>'
    if cell.used is not None:
        number = f'<span class="bar"><i style="width:{min(100 * cell.used, 100):.1f}%"></i></span>{number}'
    return number + remark


def _tone(good: bool) -> str:
    return "good" if good else "bad"
