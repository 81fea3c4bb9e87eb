"""`fedpact report`: write a finished run as a page, or two of them side by side."""

from __future__ import annotations

from pathlib import Path

import click

from fedpact.cli.verify import key_option, read_keys, roster_option
from fedpact.errors import FedpactError
from fedpact.jobs.evaluation import read_evaluations
from fedpact.jobs.verification import verify_for_report
from fedpact.report import figures
from fedpact.report.coefficients import read_coefficients
from fedpact.report.comparison import compare
from fedpact.report.content import Report
from fedpact.report.course import charts
from fedpact.report.files import explain_write_errors
from fedpact.report.page import write_page
from fedpact.report.record import Record
from fedpact.report.sections import report as report_on


@click.command()
@click.argument("runs", metavar="RUN [OTHER]", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), help="File to write.  [default: report.html in RUN]")
@click.option("--markdown", is_flag=True, help="Markdown to standard output (or --out) instead of the page.")
@click.option("--png", type=click.Path(path_type=Path), help="Folder for the charts as PNG files, in addition.")
@click.option("--templates", type=click.Path(path_type=Path), help="Folder of your own templates and texts.")
@roster_option
@key_option
def report(
    runs: tuple[Path, ...],
    out: Path | None,
    markdown: bool,
    png: Path | None,
    templates: Path | None,
    roster: Path | None,
    keys: tuple[str, ...],
) -> None:
    """Write the report of a finished run; RUN is its output folder. With OTHER, compare the two.

    A self-contained HTML page, without network or scripts, to mail, print and archive. The verdict comes first (are
    all constraints met, does the last evaluation contradict one, requested bounds, achieved values, tightest owner),
    then the model, what owners measured,
    what the bounds cost, and last the certificate, convergence, what left each owner, and how to reproduce the run.

    The evidence that the owners signed is checked first, as `fedpact verify` does; if verification fails, the report
    says so and shows no verdict.

    A page by templates of your own, or of two runs, is written beside the folder of RUN, not into it. PNG files need
    matplotlib (the extra plot). Exit code 0 when written, whatever the verdict.
    """
    if len(runs) > 2:
        raise FedpactError(f"{len(runs)} runs are given; give one, or two to compare", code="FP-944")
    records = [Record.load(run) for run in runs]
    known = read_keys(roster, keys)

    def make() -> Report:
        pages = []
        for run, record in zip(runs, records, strict=True):
            verified = verify_for_report(run, record, known)
            pages.append(report_on(record, verified, read_coefficients(run, record), read_evaluations(run)))
        if len(pages) == 1:
            return pages[0]
        return compare(runs, records, pages)

    text = write_page(make, templates, "report.md" if markdown else "page.html")
    target = out
    if target is None and not markdown:
        target = _place(runs, templates)
    with explain_write_errors(target or runs[0]):
        if target is None:
            click.echo(text, nl=False)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            click.echo(f"{make().verdict.headline}: {target}", err=True)
        if png is not None:
            png.mkdir(parents=True, exist_ok=True)
            for chart in charts(records[0]):
                figure = figures.panels([chart], columns=1)
                click.echo(figures.save(figure, png / f"{chart.key}.png"), err=True)


def _place(runs: tuple[Path, ...], templates: Path | None) -> Path:
    """Where the page goes. The folder of a run may be signed: it gets no page but its own."""
    first = runs[0]
    if len(runs) == 2:
        return first.parent / f"{first.name}-{runs[1].name}.html"
    if templates is not None:
        return first.parent / f"{first.name}.html"
    return first / "report.html"
