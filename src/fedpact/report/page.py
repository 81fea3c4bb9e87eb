"""A report as one HTML page that needs nothing else: no network, no script, no font; for a screen and for paper."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from fedpact.report.charts import Chart, legend, svg
from fedpact.report.content import Cell, Items, Report, Section, Table
from fedpact.report.wording import Verdict

#: Nothing is loaded and nothing is run, whatever the names in a record say.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"

#: A text of so many letters gets a column of some width, also on a narrow screen.
WORDS = 60


def page(report: Report) -> str:
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
    mark = "✓" if verdict.good else "✗"
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in verdict.sentences)
    todo = f'<p class="todo"><strong>What to do next.</strong> {escape(verdict.todo)}</p>' if verdict.todo else ""
    tiles = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd>{escape(remark)}</dd></div>"
        for name, value, remark in figures
    )
    return (
        f'<section id="verdict" tabindex="-1" aria-labelledby="verdict-title" class="{_tone(verdict.good)}">'
        f'<h2 id="verdict-title"><span class="mark" aria-hidden="true">{mark}</span>{escape(verdict.headline)}</h2>'
        f'{sentences}{todo}</section>\n<dl class="figures">{tiles}</dl>'
    )


def _section(section: Section) -> str:
    parts: list[str] = []
    for block in section.blocks:
        if isinstance(block, Chart):
            opening = "" if parts and parts[-1].endswith("</figure>") else '<div class="charts">'
            parts.append(
                f"{opening}<figure><figcaption>{escape(block.title)}{legend(block)}</figcaption>{svg(block)}</figure>"
            )
            continue
        if parts and parts[-1].endswith("</figure>"):
            parts.append("</div>")
        parts.append(_block(block))
    head = f'<section id="{section.key}" aria-labelledby="{section.key}-head"><h2 id="{section.key}-head">'
    return f"{head}{escape(section.title)}</h2>\n{chr(10).join(parts)}\n</section>\n"


def _block(block: str | Table | Items) -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, Items):
        return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in block.items)}</ul>"
    table = _table(block)
    return f"<details><summary>{escape(block.caption)}</summary>{table}</details>" if block.folded else table


def _table(table: Table) -> str:
    """In a box of its own that scrolls, also by keyboard, so that the page never does sideways."""
    right = [' class="number"' if table.numeric(i) else "" for i in range(len(table.columns))]
    head = "".join(f'<th scope="col"{r}>{escape(title)}</th>' for r, title in zip(right, table.columns, strict=True))
    rows = "".join(
        f'<tr><th scope="row"><bdi>{escape(first.text)}</bdi></th>'
        f"{''.join(f'<td{r}>{_cell(cell)}</td>' for r, cell in zip(right[1:], cells, strict=True))}</tr>\n"
        for first, *cells in table.rows
    )
    caption = escape(table.caption)
    return (
        f'<div class="scroll" role="region" aria-label="{caption}" tabindex="0"><table><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    )


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.good is not None:
        return f'<span class="pill {_tone(cell.good)}">{text}</span>'
    if cell.exact is None:
        return f'<bdi class="words">{text}</bdi>' if len(cell.text) > WORDS else f"<bdi>{text}</bdi>"
    bar = (
        "" if cell.used is None else f'<span class="bar"><i style="width:{min(100 * cell.used, 100):.1f}%"></i></span>'
    )
    remark = f"<small>{escape(cell.remark)}</small>" if cell.remark else ""
    return f'{bar}<data value="{cell.exact!r}" title="{cell.exact!r}">{text}</data>{remark}'


def _tone(good: bool) -> str:
    return "good" if good else "bad"
