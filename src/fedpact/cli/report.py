"""`fedpact report`: write a finished run as a page."""

from __future__ import annotations

from pathlib import Path

import click

from fedpact.cli.verify import key_option, read_keys, roster_option
from fedpact.jobs.verification import verify_for_report
from fedpact.report import content, figures
from fedpact.report.course import charts
from fedpact.report.files import explain_write_errors
from fedpact.report.markdown import markdown as as_markdown
from fedpact.report.page import page
from fedpact.report.record import Record


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="File to write.  [default: report.html in RUN]")
@click.option("--markdown", is_flag=True, help="Markdown to standard output (or --out) instead of the page.")
@click.option("--png", type=click.Path(path_type=Path), help="Folder for the charts as PNG files, in addition.")
@roster_option
@key_option
def report(
    run: Path, out: Path | None, markdown: bool, png: Path | None, roster: Path | None, keys: tuple[str, ...]
) -> None:
    """Write the report of a finished run; RUN is its output folder.

    A self-contained HTML page, without network or scripts, to mail, print and archive. The verdict comes first (are
    all constraints met, by how much, at which owner), then the certificate in plain words, every owner's bounds and
    their prices, what owners measured, convergence, what left each owner, and how to reproduce the run.

    The evidence that the owners signed is checked first, as `fedpact verify` does; a page of a run whose evidence does
    not hold says so and nothing better.

    PNG files need matplotlib: pip install 'fedpact[plot]'. Exit code 0 when written, whatever the verdict.
    """
    record = Record.load(run)
    written = content.report(record, verify_for_report(run, record, read_keys(roster, keys)))
    if markdown:
        text = as_markdown(written)
        target = out
    else:
        text = page(written)
        target = out or run / "report.html"
    with explain_write_errors(target or run):
        if target is None:
            click.echo(text, nl=False)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            click.echo(f"{written.verdict.headline}: {target}", err=True)
        if png is not None:
            png.mkdir(parents=True, exist_ok=True)
            for chart in charts(record):
                figure = figures.panels([chart], columns=1)
                click.echo(figures.save(figure, png / f"{chart.key}.png"), err=True)
