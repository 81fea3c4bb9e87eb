"""`fedpact report`: a finished run as a page for its readers."""

from __future__ import annotations

from pathlib import Path

import click

from fedpact.report import content, figures
from fedpact.report.course import charts
from fedpact.report.files import explain_write_errors
from fedpact.report.markdown import markdown as as_markdown
from fedpact.report.page import page
from fedpact.report.record import Record


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Where to write it.  [default: report.html in RUN]")
@click.option("--markdown", is_flag=True, help="Markdown on standard output (or in --out) in place of the page.")
@click.option("--png", type=click.Path(path_type=Path), help="A folder to write the charts to, too, as PNG files.")
def report(run: Path, out: Path | None, markdown: bool, png: Path | None) -> None:
    """Write the report of a finished run, whose output folder is RUN.

    One HTML page that stands alone: no network, no script; it can be mailed, printed and kept. The verdict comes first
    (are all constraints met, by how much, at whom), then the certificate in plain words, every owner's bounds and what
    they cost, what owners measured, the course of the run, what left each owner, and how to repeat it.

    PNG files need matplotlib: pip install 'fedpact[plot]'. Exit code 0 when written, whatever the verdict.
    """
    record = Record.load(run)
    told = content.report(record)
    text = as_markdown(told) if markdown else page(told)
    target = out or (None if markdown else run / "report.html")
    with explain_write_errors(target or "standard output"):
        if target is None:
            click.echo(text, nl=False)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            click.echo(f"{told.verdict.headline}: {target}", err=True)
        if png is not None:
            png.mkdir(parents=True, exist_ok=True)
            for chart in charts(record):
                click.echo(figures.save(figures.panels([chart], columns=1), png / f"{chart.key}.png"), err=True)
